//! One step of a native unwind on x86-64.
//!
//! Owns: the algebra of each rule form. Because: a call pushes its return address, so every frame has one in memory.
//! Does not: find rules, bound the number of frames.
//!
//! ```text
//!   higher ┌────────────────┐ ◀─ CFA = rsp of the caller
//!          │ return address │ ◀─ CFA − 8
//!          │ saved rbp      │ ◀─ CFA + fp_offset (−16 when pushed first)
//!          │ …              │
//!   lower  └────────────────┘ ◀─ rsp
//! ```

use deepctx_common::end::WalkEnd;
use deepctx_common::unwind::{Rule, fp_kind, ra_kind, rule_kind};

use crate::memory::Memory;

/// DWARF numbers of the general registers of x86-64 (System V ABI, figure 3.36).
pub mod dwarf {
    /// rax
    pub const RAX: usize = 0;
    /// rdx
    pub const RDX: usize = 1;
    /// rcx
    pub const RCX: usize = 2;
    /// rbx
    pub const RBX: usize = 3;
    /// rsi
    pub const RSI: usize = 4;
    /// rdi
    pub const RDI: usize = 5;
    /// rbp
    pub const RBP: usize = 6;
    /// rsp
    pub const RSP: usize = 7;
    /// r10
    pub const R10: usize = 10;
    /// r13
    pub const R13: usize = 13;
    /// Number of general registers, before the return address column.
    pub const COUNT: usize = 16;
}

/// Registers of one frame.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// Program counter.
    pub pc: u64,
    /// rsp
    pub sp: u64,
    /// rbp
    pub bp: u64,
    /// All general registers by DWARF number; only meaningful while `exact` is 1.
    pub general: [u64; dwarf::COUNT],
    /// 1 for an interrupted frame (the leaf, or the frame that a signal interrupted): `pc` is the next instruction to
    /// execute and all registers are known. 0 for a caller: `pc` is a return address.
    pub exact: u32,
    /// 1 while rbp is known.
    pub bp_known: u32,
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
        if self.bp_known != 0 { Some(self.bp) } else { None }
    }

    /// The code address in a return address read from memory.
    #[inline(always)]
    pub const fn code_address(&self, word: u64) -> u64 {
        word
    }

    /// Sets the registers to those of a caller that resumes at `pc`. `fp`: its frame pointer, if known.
    #[inline(always)]
    pub fn resume(&mut self, pc: u64, sp: u64, fp: Option<u64>) {
        self.pc = pc;
        self.sp = sp;
        self.bp = fp.unwrap_or(0);
        self.bp_known = fp.is_some() as u32;
        self.exact = 0;
    }
}

/// Offset of `uc_mcontext.gregs` from rsp in a signal frame whose return address was popped: `struct rt_sigframe` of
/// the kernel (arch/x86/include/asm/sigframe.h) is { pretcode, ucontext }, and gregs is 40 bytes into the ucontext.
const SIGNAL_GREGS: u64 = 40;
/// Number of `gregs`, in the order of `struct sigcontext_64`: r8…r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip.
const GREGS: usize = 17;
/// DWARF register number of each `gregs` slot except the last, which is rip.
const GREG_TO_DWARF: [usize; GREGS - 1] = [8, 9, 10, 11, 12, 13, 14, 15, 5, 4, 6, 3, 1, 0, 2, 7];

/// Replaces `registers` by those of the caller.
///
/// `Err` states how the walk ended; [`WalkEnd::Complete`] if this was the outermost frame.
#[inline(always)]
pub fn step<M: Memory>(registers: &mut Registers, rule: &Rule, memory: &M) -> Result<(), WalkEnd> {
    let exact = registers.exact != 0;
    let base = match rule.cfa {
        rule_kind::SP | rule_kind::X86_SP_DEREF | rule_kind::X86_PLT => registers.sp,
        rule_kind::FP | rule_kind::X86_FP_DEREF | rule_kind::FRAME_POINTER => {
            if registers.bp_known == 0 {
                return Err(WalkEnd::RegisterUnknown);
            }
            registers.bp
        }
        rule_kind::X86_R10 | rule_kind::X86_R13 | rule_kind::X86_RBX | rule_kind::REGISTER => {
            if !exact {
                return Err(WalkEnd::RegisterUnknown);
            }
            let number = match rule.cfa {
                rule_kind::X86_R10 => dwarf::R10,
                rule_kind::X86_R13 => dwarf::R13,
                rule_kind::X86_RBX => dwarf::RBX,
                _ => rule.detail as usize,
            };
            if number >= dwarf::COUNT {
                return Err(WalkEnd::UnsupportedRule);
            }
            registers.general[number]
        }
        rule_kind::SIGNAL => return signal(registers, memory),
        rule_kind::END => return Err(WalkEnd::Complete),
        rule_kind::NONE => return Err(WalkEnd::NoRow),
        _ => return Err(WalkEnd::UnsupportedRule),
    };
    let offset = match rule.cfa {
        rule_kind::X86_PLT => 8 + if registers.pc & 15 >= u64::from(rule.detail) { 8 } else { 0 },
        rule_kind::FRAME_POINTER => 16,
        _ => i64::from(rule.cfa_offset),
    };
    let mut cfa = base.wrapping_add_signed(offset);
    if rule.cfa == rule_kind::X86_FP_DEREF || rule.cfa == rule_kind::X86_SP_DEREF {
        cfa =
            memory.read_u64(cfa).ok_or(WalkEnd::StackUnreadable)?.wrapping_add_signed(i64::from(rule.addend));
    }
    // A leaf that has pushed nothing has CFA = rsp + 8; the frame of a caller is always above that of its callee. Only
    // vfork has already popped its return address.
    if cfa < registers.sp || cfa == registers.sp && rule.ra != ra_kind::X86_IN_RDI {
        return Err(if rule.cfa == rule_kind::FRAME_POINTER {
            WalkEnd::FramePointerEnd
        } else {
            WalkEnd::StackNotGrowing
        });
    }
    caller(registers, rule, memory, cfa)
}

/// Lowest plausible stack address: no stack is in the first page.
const STACK_MIN: u64 = 4096;

/// Offset of the end of the stack in a goroutine: `g.stack.hi`, on which C code relies (`runtime/cgo/libcgo.h`).
const GOROUTINE_STACK_END: u64 = 8;

/// The stack pointer of the goroutine that called C, from the words that `asmcgocall` left on the thread's own stack.
#[inline(always)]
fn goroutine_sp<M: Memory>(sp: u64, rule: &Rule, memory: &M) -> Result<u64, WalkEnd> {
    let goroutine_at = sp.wrapping_add_signed(i64::from(rule.cfa_offset));
    let goroutine = memory.read_u64(goroutine_at).ok_or(WalkEnd::StackUnreadable)?;
    let depth_at = sp.wrapping_add_signed(i64::from(rule.addend));
    let depth = memory.read_u64(depth_at).ok_or(WalkEnd::StackUnreadable)?;
    if goroutine == 0 {
        return Ok(depth);
    }
    let end = memory.read_u64(goroutine.wrapping_add(GOROUTINE_STACK_END)).ok_or(WalkEnd::NoOtherStack)?;
    Ok(end.wrapping_sub(depth))
}

/// Whether this kind of rule is rare: [`rare_step`] handles it, not [`step`].
#[inline(always)]
pub const fn is_rare(rule: &Rule) -> bool {
    rule.cfa >= rule_kind::X86_SWITCHED
}

/// Like [`step`], out of a function that runs on another stack than its caller, or that transfers control to an
/// exception handler.
///
/// Separate from [`step`]: with these kinds included, the compiler keeps a value in a stack slot that only some of them
/// write, and kernels before 6.3 refuse to read it.
#[inline(always)]
pub fn rare_step<M: Memory>(registers: &mut Registers, rule: &Rule, memory: &M) -> Result<(), WalkEnd> {
    let cfa = match rule.cfa {
        rule_kind::X86_SWITCHED if registers.bp_known == 0 => return Err(WalkEnd::RegisterUnknown),
        rule_kind::X86_SWITCHED => registers.bp.wrapping_add_signed(i64::from(rule.cfa_offset)),
        rule_kind::X86_GO_CALLS_C => {
            goroutine_sp(registers.sp, rule, memory)?.wrapping_add(u64::from(rule.detail))
        }
        rule_kind::X86_HANDLER => return enter_handler(registers, rule, memory),
        rule_kind::X86_SAVED_RBX => cfa_in_saved_rbx(registers, rule, memory)?,
        _ => return Err(WalkEnd::UnsupportedRule),
    };
    // A stack may be anywhere: only alignment and a lower bound can be checked.
    if cfa & 7 != 0 || cfa < STACK_MIN {
        return Err(WalkEnd::NoOtherStack);
    }
    caller(registers, rule, memory, cfa)
}

/// Limit on the size of a frame whose CFA is in rbx, bytes: the full processor state (11 KiB with the tiles of AMX)
/// plus its alignment.
const REALIGNED_BYTES_MAX: u64 = 16 << 10;

/// The CFA of a frame that keeps it in rbx, which its callee saved.
#[inline(always)]
fn cfa_in_saved_rbx<M: Memory>(registers: &Registers, rule: &Rule, memory: &M) -> Result<u64, WalkEnd> {
    let slot = registers.sp.wrapping_add_signed(i64::from(rule.cfa_offset));
    let rbx = memory.read_u64(slot).ok_or(WalkEnd::StackUnreadable)?;
    // The first instructions of the callee have not saved rbx yet.
    if registers.exact != 0 || rbx.wrapping_sub(registers.sp) > REALIGNED_BYTES_MAX {
        return Err(WalkEnd::RegisterUnknown);
    }
    Ok(rbx.wrapping_add_signed(i64::from(rule.addend)))
}

/// Sets `registers` to those of the frame that catches an exception, at the beginning of its handler.
#[inline(always)]
fn enter_handler<M: Memory>(registers: &mut Registers, rule: &Rule, memory: &M) -> Result<(), WalkEnd> {
    if registers.exact == 0 {
        return Err(WalkEnd::RegisterUnknown);
    }
    let base = match rule.detail as usize {
        dwarf::RBP => registers.bp,
        dwarf::RSP => registers.sp,
        dwarf::RCX => registers.general[dwarf::RCX],
        _ => return Err(WalkEnd::UnsupportedRule),
    };
    let mut cfa = base.wrapping_add_signed(i64::from(rule.cfa_offset));
    if rule.detail as usize == dwarf::RBP {
        cfa = memory.read_u64(cfa).ok_or(WalkEnd::StackUnreadable)?;
    }
    if cfa < registers.sp {
        return Err(WalkEnd::StackNotGrowing);
    }
    let handler = if rule.ra == ra_kind::X86_IN_RCX {
        registers.general[dwarf::RCX]
    } else {
        memory.read_u64(cfa.wrapping_sub(8)).ok_or(WalkEnd::StackUnreadable)?
    };
    if handler == 0 {
        return Err(WalkEnd::NullPc);
    }
    let mut bp = registers.bp;
    if rule.fp == fp_kind::X86_AT_FP {
        let saved = bp.wrapping_add_signed(i64::from(rule.fp_offset));
        bp = memory.read_u64(saved).ok_or(WalkEnd::StackUnreadable)?;
    }
    // The code before a handler often belongs to another function or has another frame. The lookup subtracts 1, as for
    // a return address, so it finds the first instruction of the handler.
    registers.resume(handler.wrapping_add(1), cfa, Some(bp));
    Ok(())
}

/// The caller of an ordinary frame, see [`peek`].
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    pc: u64,
    cfa: u64,
    bp: u64,
    bp_known: u32,
}

impl Caller {
    /// Makes `registers` those of the caller.
    #[inline(always)]
    pub fn enter(self, registers: &mut Registers) {
        registers.pc = self.pc;
        registers.sp = self.cfa;
        registers.bp = self.bp;
        registers.bp_known = self.bp_known;
        registers.exact = 0;
    }
}

/// The result of [`step`], if the frame is ordinary and every word it needs was read ahead; otherwise `None`.
#[inline(always)]
pub fn peek<M: Memory>(registers: &Registers, rule: &Rule, memory: &M) -> Option<Caller> {
    let base = match rule.cfa {
        rule_kind::SP => registers.sp,
        rule_kind::FP if registers.bp_known != 0 => registers.bp,
        _ => return None,
    };
    let cfa = base.wrapping_add_signed(i64::from(rule.cfa_offset));
    if cfa <= registers.sp || rule.ra != ra_kind::X86_AT_CFA_MINUS_8 {
        return None;
    }
    let (bp, bp_known) = match rule.fp {
        fp_kind::SAME => (registers.bp, registers.bp_known),
        fp_kind::AT_CFA => (memory.peek_stack(cfa.wrapping_add_signed(i64::from(rule.fp_offset)))?, 1),
        _ => return None,
    };
    let pc = memory.peek_stack(cfa.wrapping_sub(8))?;
    (pc != 0).then_some(Caller { pc, cfa, bp, bp_known })
}

/// Second half of a step: the CFA is known; reads the return address and the saved frame pointer.
#[inline(always)]
fn caller<M: Memory>(registers: &mut Registers, rule: &Rule, memory: &M, cfa: u64) -> Result<(), WalkEnd> {
    let adjacent = rule.cfa == rule_kind::FRAME_POINTER
        || rule.fp == fp_kind::AT_CFA && rule.fp_offset == -16 && rule.ra == ra_kind::X86_AT_CFA_MINUS_8;
    let pc;
    if adjacent {
        let [bp, ra] = memory.read_stack(cfa.wrapping_sub(16)).ok_or(WalkEnd::StackUnreadable)?;
        registers.bp = bp;
        registers.bp_known = 1;
        pc = ra;
    } else {
        // Every variable is assigned on every path: kernels before 6.3 refuse to read a stack slot that the compiler
        // leaves unwritten on a path that does not need it.
        let saved = match rule.fp {
            fp_kind::AT_CFA => cfa,
            fp_kind::X86_AT_FP if registers.bp_known == 0 => return Err(WalkEnd::RegisterUnknown),
            fp_kind::X86_AT_FP => registers.bp,
            _ => registers.sp,
        };
        let is_saved = matches!(rule.fp, fp_kind::AT_CFA | fp_kind::X86_AT_FP | fp_kind::X86_AT_SP);
        let (mut bp, mut bp_known) = (registers.bp, registers.bp_known);
        // The saved frame pointer lies below the return address: in this order, one access reads both.
        if is_saved {
            let saved = saved.wrapping_add_signed(i64::from(rule.fp_offset));
            [bp] = memory.read_stack(saved).ok_or(WalkEnd::StackUnreadable)?;
            bp_known = 1;
        } else if rule.fp == fp_kind::UNDEFINED {
            bp_known = 0;
        }
        pc = match rule.ra {
            ra_kind::X86_AT_CFA_MINUS_8 => {
                let [ra] = memory.read_stack(cfa.wrapping_sub(8)).ok_or(WalkEnd::StackUnreadable)?;
                ra
            }
            ra_kind::X86_IN_RDI if registers.exact != 0 => registers.general[dwarf::RDI],
            ra_kind::X86_IN_RDI => return Err(WalkEnd::RegisterUnknown),
            _ => return Err(WalkEnd::UnsupportedRule),
        };
        registers.bp = bp;
        registers.bp_known = bp_known;
    }
    registers.pc = pc;
    registers.sp = cfa;
    registers.exact = 0;
    if pc == 0 {
        return Err(if rule.cfa == rule_kind::FRAME_POINTER {
            WalkEnd::FramePointerEnd
        } else {
            WalkEnd::NullPc
        });
    }
    Ok(())
}

/// Steps out of a signal frame: the kernel saved every register of the interrupted frame.
#[inline(always)]
fn signal<M: Memory>(registers: &mut Registers, memory: &M) -> Result<(), WalkEnd> {
    let gregs: [u64; GREGS] =
        memory.read_array(registers.sp.wrapping_add(SIGNAL_GREGS)).ok_or(WalkEnd::StackUnreadable)?;
    let mut i = 0;
    while i < GREGS - 1 {
        registers.general[GREG_TO_DWARF[i]] = gregs[i];
        i += 1;
    }
    registers.pc = gregs[GREGS - 1];
    registers.sp = registers.general[dwarf::RSP];
    registers.bp = registers.general[dwarf::RBP];
    registers.bp_known = 1;
    registers.exact = 1;
    if registers.pc == 0 { Err(WalkEnd::NullPc) } else { Ok(()) }
}
