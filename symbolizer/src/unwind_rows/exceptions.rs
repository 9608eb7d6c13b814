//! Where GCC's runtime installs the registers of an exception handler.
//!
//! Owns: rows for the final part of the throwing functions, as [`installing`] finds them. Because: from
//! `uw_install_context` on, the return address of such a function and its saved registers are overwritten with those
//! of the catching frame (`unwind-dw2.c`), so its FDE yields a mixture of both. The context being installed says
//! where the thread continues, always at the same offset; in the last few instructions, the stack holds not a return
//! address but the start of the handler. Does not: know other runtimes.
//!
//! ```text
//!   call uw_install_context_1        ◀─ from here, the frame that catches is the caller: its CFA is in the context,
//!   mov  context.ra(%rbp), %rsi         and right below it lies the return address of its call
//!   mov  context.cfa(%rbp), %rdi
//!   call _Unwind_DebugHook
//!   …
//!   mov  %rsi, 8(%rbp,%rcx)          ◀─ up to here; from here on, the handler is in place of that return address
//!   lea  8(%rbp,%rcx), %rcx
//!   …
//!   mov  (%rbp), %rbp                ◀─ the frame that catches has its rbp: rcx points at the handler's address,
//!   mov  %rcx, %rsp                      then rsp does,
//!   pop  %rcx                            then it is in rcx
//!   jmp  *%rcx
//! ```

use std::ops::Range;

use deepctx_address_space::Arch;
use deepctx_common::unwind::{Rule, fp_kind, ra_kind, rule_kind};
use deepctx_walk::unwind_row::x86_64::dwarf;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

use super::elf::Image;
use super::frames::Slice;
use super::new_rows::Rows;
use super::sections::{Sections, dynamic_functions};
use super::uncovered::ReadAt;

/// The functions that install a context, each with the end of its name.
const INSTALLING: [&[u8]; 4] = [
    b"_Unwind_RaiseException\0",
    b"_Unwind_Resume\0",
    b"_Unwind_ForcedUnwind\0",
    b"_Unwind_Resume_or_Rethrow\0",
];
/// Largest such function: GCC 12's have at most 928 bytes.
const FUNCTION_BYTES_MAX: u64 = 16 << 10;

/// Rows that override frame descriptions, if the file is GCC's runtime.
pub(super) fn installing(headers: &[u8], file: &dyn ReadAt, image: &Image<'_>) -> Option<Slice> {
    if image.arch != Arch::X86_64 {
        return None;
    }
    let sections = Sections::of(headers)?;
    let is_one = |name: &[u8]| INSTALLING.iter().any(|one| name.starts_with(one));
    let mut rows = Rows::new();
    for function in dynamic_functions(&sections, file, image, is_one) {
        if function.end - function.start > FUNCTION_BYTES_MAX {
            continue;
        }
        let Some(code) = sections.code_at(&function, file) else { continue };
        if let Some(ContextInstall { call, end, cfa, departure }) = installs(&code, function.start) {
            let rule = |fp, fp_offset| Rule {
                cfa: rule_kind::X86_FP_DEREF,
                cfa_offset: cfa,
                fp,
                fp_offset,
                ..Rule::default()
            };
            // During the call the saved rbp is that of the caller or of the catching frame, and nothing shows which. If
            // that frame needs it, the functions that it calls begin by saving it.
            rows.push(call.start, call.end, rule(fp_kind::AT_CFA, -16));
            rows.push(call.end, end, rule(fp_kind::X86_AT_FP, 0));
            departure.into_iter().for_each(|departure| departure.push_rows(end, cfa, &mut rows));
        }
    }
    rows.finish()
}

/// The part of a function that installs a context.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ContextInstall {
    /// The call that overwrites what the function saved.
    call: Range<u64>,
    /// End of the instruction that overwrites the return address to the catching frame.
    end: u64,
    /// Offset from rbp of the context's CFA.
    cfa: i32,
    /// The instructions after that, if understood.
    departure: Option<Departure>,
}

/// Ends of the last instructions of such a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Departure {
    /// Of the load of the catching frame's rbp.
    bp_loaded: u64,
    /// Of the move of rcx to the stack pointer.
    stack_taken: u64,
    /// Of the pop of the handler's address.
    popped: u64,
    /// Of the last one; the same if the pop is a `ret`.
    end: u64,
}

impl Departure {
    /// Adds the rows from `begin` on. `cfa`: offset of the context's CFA.
    fn push_rows(&self, begin: u64, cfa: i32, rows: &mut Rows) {
        let rule = |register: usize, cfa_offset| Rule {
            cfa: rule_kind::X86_HANDLER,
            detail: register as u8,
            cfa_offset,
            ..Rule::default()
        };
        let in_context = Rule { fp: fp_kind::X86_AT_FP, ..rule(dwarf::RBP, cfa) };
        rows.push(begin, self.bp_loaded, in_context);
        rows.push(self.bp_loaded, self.stack_taken, rule(dwarf::RCX, 8));
        rows.push(self.stack_taken, self.popped, rule(dwarf::RSP, 8));
        if self.popped < self.end {
            rows.push(self.popped, self.end, Rule { ra: ra_kind::X86_IN_RCX, ..rule(dwarf::RSP, 0) });
        }
    }
}

/// Where a function at `address` installs a context.
fn installs(code: &[u8], address: u64) -> Option<ContextInstall> {
    let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    let mut before = [Instruction::default(); 2];
    let mut found = None;
    while decoder.can_decode() {
        let now = decoder.decode();
        let [call, first] = before;
        if let Some((call, cfa)) = &found
            && is_store_of_handler(&now)
        {
            let (call, cfa) = (Range::clone(call), *cfa);
            return Some(ContextInstall {
                call,
                end: now.next_ip(),
                cfa,
                departure: departure(&mut decoder),
            });
        }
        if found.is_none()
            && call.mnemonic() == Mnemonic::Call
            && let (Some(ra), Some(cfa)) = (loads(&first, Register::RSI), loads(&now, Register::RDI))
            && ra == cfa.wrapping_add(8)
        {
            found = Some((call.ip()..call.next_ip(), cfa));
        }
        before = [first, now];
    }
    None
}

/// The instructions after the store of the handler's address.
fn departure(decoder: &mut Decoder<'_>) -> Option<Departure> {
    let bp_loaded = loop {
        let now = decoder.decode();
        if now.is_invalid() || now.flow_control() != FlowControl::Next {
            return None;
        }
        if loads(&now, Register::RBP) == Some(0) {
            break now.next_ip();
        }
    };
    let taken = decoder.decode();
    let takes_stack = taken.mnemonic() == Mnemonic::Mov
        && taken.op0_register() == Register::RSP
        && taken.op1_register() == Register::RCX;
    let pop = decoder.decode();
    let (stack_taken, popped) = (taken.next_ip(), pop.next_ip());
    let end = match pop.mnemonic() {
        Mnemonic::Ret => popped,
        Mnemonic::Pop if pop.op0_register() == Register::RCX => {
            let jump = decoder.decode();
            let is_jump = jump.mnemonic() == Mnemonic::Jmp && jump.op0_register() == Register::RCX;
            is_jump.then_some(jump.next_ip())?
        }
        _ => return None,
    };
    takes_stack.then_some(Departure { bp_loaded, stack_taken, popped, end })
}

/// `mov %rsi, 8(%rbp,%any)`.
fn is_store_of_handler(instruction: &Instruction) -> bool {
    instruction.mnemonic() == Mnemonic::Mov
        && instruction.op0_kind() == OpKind::Memory
        && instruction.op1_register() == Register::RSI
        && instruction.memory_base() == Register::RBP
        && instruction.memory_index() != Register::None
        && instruction.memory_displacement64() == 8
}

/// The offset from rbp of the value that an instruction loads into this register.
fn loads(instruction: &Instruction, into: Register) -> Option<i32> {
    let is_load = instruction.mnemonic() == Mnemonic::Mov
        && instruction.op0_register() == into
        && instruction.op1_kind() == OpKind::Memory
        && instruction.memory_base() == Register::RBP
        && instruction.memory_index() == Register::None;
    is_load.then_some(instruction.memory_displacement64() as i32)
}

#[cfg(test)]
mod tests {
    use super::{ContextInstall, Departure, installs};

    /// The end of GCC 12's `_Unwind_ForcedUnwind`, without its loop over the shadow stack.
    const CODE: &[u8] = &[
        0x4c, 0x89, 0xe6, 0x4c, 0x89, 0xef, 0xe8, 0x9a, 0xd5, 0xff, 0xff, 0x48, 0x8b, 0xb5, 0x68, 0xff, 0xff,
        0xff, 0x48, 0x8b, 0xbd, 0x60, 0xff, 0xff, 0xff, 0x48, 0x89, 0xc2, 0x31, 0xc0, 0xe8, 0xe2, 0xfa, 0xff,
        0xff, 0x48, 0x89, 0x74, 0x15, 0x08, 0x48, 0x8b, 0x6d, 0x00, 0x48, 0x89, 0xcc, 0x59, 0xff, 0xe1,
    ];

    #[test]
    fn the_part_that_installs_a_context_is_found() {
        let departure = Departure { bp_loaded: 0x102c, stack_taken: 0x102f, popped: 0x1030, end: 0x1032 };
        let expect =
            ContextInstall { call: 0x1006..0x100b, end: 0x1028, cfa: -0xa0, departure: Some(departure) };
        assert_eq!(installs(CODE, 0x1000), Some(expect));
    }

    #[test]
    fn last_instructions_that_differ_are_left_alone() {
        let departure_of = |code: &[u8]| installs(code, 0x1000).unwrap().departure;
        // A `ret` pops the handler's address too.
        let returning = [&CODE[..0x2f], &[0xc3]].concat();
        let expect = Departure { bp_loaded: 0x102c, stack_taken: 0x102f, popped: 0x1030, end: 0x1030 };
        assert_eq!(departure_of(&returning), Some(expect));
        for cut in 0x28..CODE.len() {
            assert_eq!(departure_of(&CODE[..cut]), None, "{cut} bytes");
        }
        // Another slot of rbp, another register for the stack, for the handler, for the jump.
        for (at, byte) in [(0x2b, 8), (0x2e, 0xc4), (0x2f, 0x5a), (0x31, 0xe2)] {
            let mut code = CODE.to_vec();
            code[at] = byte;
            assert_eq!(departure_of(&code), None, "byte {at:#x}");
        }
    }

    #[test]
    fn a_function_that_differs_is_left_alone() {
        let with = |at: usize, byte: u8| {
            let mut code = CODE.to_vec();
            code[at] = byte;
            code
        };
        // Another field, no call before, another base register, another handler.
        for (at, byte) in [(14, 0x70), (6, 0x3d), (13, 0xb3), (37, 0x54)] {
            assert_eq!(installs(&with(at, byte), 0x1000), None, "byte {at}");
        }
        for cut in 0..0x28 {
            assert_eq!(installs(&CODE[..cut], 0x1000), None, "{cut} bytes");
        }
    }
}
