//! One step of a native unwind on aarch64.
//!
//! Owns: the algebra of each rule form. Because: a call leaves its return address in x30 (the link register). So a leaf
//! may have none in memory, that of a caller is wherever its function saved it, and either may be signed.
//! Does not: find rules, bound the number of frames.
//!
//! ```text
//!   higher ┌──────────────────┐ ◀─ CFA = sp of the caller
//!          │ locals           │
//!          │ saved x30        │ ◀─ CFA + addend
//!          │ saved x29        │ ◀─ CFA + fp_offset  ◀─ x29, once the function has set up its frame record
//!   lower  └──────────────────┘ ◀─ sp                  (these two words)
//! ```
//! Frame records form a linked list (AAPCS64, 6.4.6), but the position of the record within its frame is unspecified:
//! after a step by a frame record, the caller's sp is only known to lie above it, until a rule computes it again.

use deepctx_common::end::WalkEnd;
use deepctx_common::unwind::{Rule, fp_kind, ra_kind, rule_kind};

use crate::memory::Memory;

/// DWARF numbers of registers (DWARF for the Arm 64-bit Architecture, 4.1).
pub mod dwarf {
    /// x29, the frame pointer.
    pub const FP: usize = 29;
    /// x30, the link register.
    pub const LR: usize = 30;
    /// The stack pointer.
    pub const SP: usize = 31;
    /// Number of general registers, x0 to x30.
    pub const COUNT: usize = 31;
}

/// Registers of one frame.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// Program counter, without a signature.
    pub pc: u64,
    /// Stack pointer; while `sp_known` is 0, a lower bound of it.
    pub sp: u64,
    /// x29
    pub fp: u64,
    /// x0 to x30; only meaningful while `exact` is 1.
    pub general: [u64; dwarf::COUNT],
    /// Mask of the address bits: in a saved return address the bits above are its signature (pointer authentication).
    /// The same for all frames of a walk.
    pub address_mask: u64,
    /// 1 for an interrupted frame (the leaf, or the frame that a signal interrupted): `pc` is the next instruction to
    /// execute and all registers are known. 0 for a caller: `pc` is a return address.
    pub exact: u32,
    /// 1 while x29 is known.
    pub fp_known: u32,
    /// 1 while the stack pointer is known.
    pub sp_known: u32,
    /// Padding.
    pub reserved: u32,
}

impl Registers {
    /// The address to look up. A return address may be the first byte after its function (if the call does not return),
    /// so the address of the call is looked up instead.
    #[inline(always)]
    pub fn lookup_pc(&self) -> u64 {
        if self.exact != 0 { self.pc } else { self.pc.wrapping_sub(1) }
    }

    /// The frame pointer, if it is known.
    #[inline(always)]
    pub fn frame_pointer(&self) -> Option<u64> {
        if self.fp_known != 0 { Some(self.fp) } else { None }
    }

    /// Removes the signature from a return address read from memory.
    #[inline(always)]
    pub const fn code_address(&self, word: u64) -> u64 {
        word & self.address_mask
    }

    /// Sets the registers to those of a caller that resumes at `pc`. `fp`: its frame pointer, if known.
    #[inline(always)]
    pub fn resume(&mut self, pc: u64, sp: u64, fp: Option<u64>) {
        self.pc = pc;
        self.sp = sp;
        self.sp_known = fp.is_none() as u32;
        self.fp = fp.unwrap_or(0);
        self.fp_known = fp.is_some() as u32;
        self.exact = 0;
    }
}

/// Mask for addresses of `bits` bits, or for all 64 bits if `bits` is out of range.
#[inline(always)]
pub const fn address_mask(bits: u32) -> u64 {
    if bits > 0 && bits < u64::BITS { (1 << bits) - 1 } else { u64::MAX }
}

/// Offset of `uc_mcontext.regs` from sp in a signal frame: `struct rt_sigframe` of the kernel
/// (arch/arm64/kernel/signal.c) is { siginfo: 128 bytes, ucontext }; `uc_mcontext` is 176 bytes into the latter and
/// begins with the faulting address. sp and pc follow x0 to x30.
const SIGNAL_REGS: u64 = 128 + 176 + 8;

/// Replaces `registers` by those of the caller.
///
/// `Err` states how the walk ended; [`WalkEnd::Complete`] if this was the outermost frame.
#[inline(always)]
pub fn step<M: Memory>(registers: &mut Registers, rule: &Rule, memory: &M) -> Result<(), WalkEnd> {
    let exact = registers.exact != 0;
    let cfa = match rule.cfa {
        rule_kind::SP if registers.sp_known != 0 => {
            registers.sp.wrapping_add_signed(i64::from(rule.cfa_offset))
        }
        rule_kind::SP => of_frame_record(registers, rule)?,
        rule_kind::FP if registers.fp_known != 0 => {
            registers.fp.wrapping_add_signed(i64::from(rule.cfa_offset))
        }
        rule_kind::REGISTER if exact && (rule.detail as usize) < dwarf::COUNT => {
            registers.general[rule.detail as usize].wrapping_add_signed(i64::from(rule.cfa_offset))
        }
        rule_kind::FP | rule_kind::REGISTER => return Err(WalkEnd::RegisterUnknown),
        rule_kind::FRAME_POINTER => return frame_record(registers, memory),
        rule_kind::SIGNAL => return signal(registers, memory),
        rule_kind::END => return Err(WalkEnd::Complete),
        rule_kind::NONE => return Err(WalkEnd::NoRow),
        _ => return Err(WalkEnd::UnsupportedRule),
    };
    // A leaf may have no frame at all; the frame of a caller holds at least its return address.
    if cfa < registers.sp || cfa == registers.sp && !exact {
        return Err(WalkEnd::StackNotGrowing);
    }
    caller(registers, rule, memory, cfa)
}

/// True if x29 and x30 were saved side by side, as a frame record.
#[inline(always)]
fn saves_frame_record(rule: &Rule) -> bool {
    rule.fp == fp_kind::AT_CFA && rule.ra == ra_kind::AT_CFA && rule.addend == rule.fp_offset.wrapping_add(8)
}

/// The CFA of a caller whose sp is unknown: x29 points at the frame record, and its rule gives the position of that
/// record in the frame.
#[inline(always)]
fn of_frame_record(registers: &Registers, rule: &Rule) -> Result<u64, WalkEnd> {
    if registers.fp_known == 0 || !saves_frame_record(rule) {
        return Err(WalkEnd::RegisterUnknown);
    }
    Ok(registers.fp.wrapping_sub(i64::from(rule.fp_offset) as u64))
}

/// Counterpart of the x86-64 function: this machine has no rare kinds.
#[inline(always)]
pub const fn is_rare(_rule: &Rule) -> bool {
    false
}

/// Counterpart of the x86-64 function.
#[inline(always)]
pub const fn rare_step<M: Memory>(_: &mut Registers, _: &Rule, _: &M) -> Result<(), WalkEnd> {
    Err(WalkEnd::UnsupportedRule)
}

/// The caller of an ordinary frame, see [`peek`].
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    pc: u64,
    cfa: u64,
    fp: u64,
    fp_known: u32,
}

impl Caller {
    /// Makes `registers` those of the caller.
    #[inline(always)]
    pub fn enter(self, registers: &mut Registers) {
        registers.pc = self.pc;
        registers.sp = self.cfa;
        registers.sp_known = 1;
        registers.fp = self.fp;
        registers.fp_known = self.fp_known;
        registers.exact = 0;
    }
}

/// The result of [`step`], if the frame is ordinary and every word it needs was read ahead; otherwise `None`.
#[inline(always)]
pub fn peek<M: Memory>(registers: &Registers, rule: &Rule, memory: &M) -> Option<Caller> {
    let base = match rule.cfa {
        rule_kind::SP if registers.sp_known != 0 => registers.sp,
        rule_kind::FP if registers.fp_known != 0 => registers.fp,
        _ => return None,
    };
    let cfa = base.wrapping_add_signed(i64::from(rule.cfa_offset));
    if cfa <= registers.sp || rule.ra != ra_kind::AT_CFA {
        return None;
    }
    let (fp, fp_known) = match rule.fp {
        fp_kind::SAME => (registers.fp, registers.fp_known),
        fp_kind::AT_CFA => (memory.peek_stack(cfa.wrapping_add_signed(i64::from(rule.fp_offset)))?, 1),
        _ => return None,
    };
    let pc = memory.peek_stack(cfa.wrapping_add_signed(i64::from(rule.addend)))? & registers.address_mask;
    (pc != 0).then_some(Caller { pc, cfa, fp, fp_known })
}

/// Second half of a step: the CFA is known; reads the return address and the saved frame pointer.
#[inline(always)]
fn caller<M: Memory>(registers: &mut Registers, rule: &Rule, memory: &M, cfa: u64) -> Result<(), WalkEnd> {
    let at = |offset: i32| cfa.wrapping_add_signed(i64::from(offset));
    let (fp, pc);
    if saves_frame_record(rule) {
        let [saved, ra] = memory.read_stack(at(rule.fp_offset)).ok_or(WalkEnd::StackUnreadable)?;
        (fp, pc) = (Some(saved), ra);
    } else {
        pc = match rule.ra {
            ra_kind::AT_CFA => {
                let [ra] = memory.read_stack(at(rule.addend)).ok_or(WalkEnd::StackUnreadable)?;
                ra
            }
            ra_kind::AARCH64_IN_LR if registers.exact != 0 => registers.general[dwarf::LR],
            ra_kind::AARCH64_IN_LR => return Err(WalkEnd::RegisterUnknown),
            _ => return Err(WalkEnd::UnsupportedRule),
        };
        fp = match rule.fp {
            fp_kind::AT_CFA => {
                let [saved] = memory.read_stack(at(rule.fp_offset)).ok_or(WalkEnd::StackUnreadable)?;
                Some(saved)
            }
            fp_kind::SAME | fp_kind::UNDEFINED => None,
            _ => return Err(WalkEnd::UnsupportedRule),
        };
    }
    if let Some(fp) = fp {
        registers.fp = fp;
        registers.fp_known = 1;
    } else if rule.fp == fp_kind::UNDEFINED {
        registers.fp_known = 0;
    }
    registers.pc = pc & registers.address_mask;
    registers.sp = cfa;
    registers.sp_known = 1;
    registers.exact = 0;
    if registers.pc == 0 { Err(WalkEnd::NullPc) } else { Ok(()) }
}

/// Steps by the frame record that x29 points at.
#[inline(always)]
fn frame_record<M: Memory>(registers: &mut Registers, memory: &M) -> Result<(), WalkEnd> {
    if registers.fp_known == 0 {
        return Err(WalkEnd::RegisterUnknown);
    }
    let record = registers.fp;
    if record < registers.sp {
        return Err(WalkEnd::FramePointerEnd);
    }
    let [fp, pc] = memory.read_stack(record).ok_or(WalkEnd::StackUnreadable)?;
    registers.fp = fp;
    registers.pc = pc & registers.address_mask;
    registers.sp = record.wrapping_add(16);
    registers.sp_known = 0;
    registers.exact = 0;
    if registers.pc == 0 { Err(WalkEnd::FramePointerEnd) } else { Ok(()) }
}

/// Steps out of a signal frame: the kernel saved every register of the interrupted frame.
#[inline(always)]
fn signal<M: Memory>(registers: &mut Registers, memory: &M) -> Result<(), WalkEnd> {
    if registers.sp_known == 0 {
        return Err(WalkEnd::RegisterUnknown);
    }
    let regs = registers.sp.wrapping_add(SIGNAL_REGS);
    // In place: the registers are too large for the stack of a kernel program.
    if !memory.read_words(regs, &mut registers.general) {
        return Err(WalkEnd::StackUnreadable);
    }
    let [sp, pc] =
        memory.read_array(regs.wrapping_add(8 * dwarf::COUNT as u64)).ok_or(WalkEnd::StackUnreadable)?;
    registers.pc = pc;
    registers.sp = sp;
    registers.sp_known = 1;
    registers.fp = registers.general[dwarf::FP];
    registers.fp_known = 1;
    registers.exact = 1;
    if pc == 0 { Err(WalkEnd::NullPc) } else { Ok(()) }
}
