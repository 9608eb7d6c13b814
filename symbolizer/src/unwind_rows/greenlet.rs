//! Rows of the library `greenlet`.
//!
//! Owns: which of its functions begins a new stack; and where a thread already runs at the address of a greenlet's
//! stack whose contents, or whose Python frames, have not been put back yet. Because: such stacks show a caller that is
//! not theirs, frames of the greenlet that used that address before, or its Python functions at this one's evaluation
//! frames. Does not: form pages ([`super::assemble`]).
//!
//! ```text
//! slp_switch:
//!   add  %rax, %rsp     ◀─ the stack of the greenlet that goes on; from here on, frames further out are another's,
//!   add  %rax, %rbp         or half of each
//!   call slp_restore_state
//!   …                   ◀─ its words were copied back from the heap; the thread state still has the other's frames
//!   ret
//! g_switchstack:
//!   call slp_switch
//!   …                   ◀─ calls what sets the thread state
//!   ret                 ◀─ from here on, both are this greenlet's
//! ```

use std::ops::Range;

use deepctx_address_space::Arch;
use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, Register};

use super::elf::Image;
use super::frames::Slice;
use super::greenlet_c;
use super::instructions::{calls, instructions};
use super::new_rows::Rows;
use super::rules::END;
use super::sections::{Sections, dynamic_functions, local_functions};
use super::stats::{BuildStats, Count};
use super::uncovered::ReadAt;

/// `greenlet::UserGreenlet::inner_bootstrap`, mangled, without its parameters: it runs on the stack of the new greenlet
/// and never returns. The stack below it belongs to whichever greenlet runs.
const OUTERMOST: &[u8] = b"_ZN8greenlet12UserGreenlet15inner_bootstrap";
/// `greenlet::Greenlet::g_switchstack()`, which calls the function that switches stacks; that has no dynamic symbol.
const SWITCHING: &[u8] = b"_ZN8greenlet8Greenlet13g_switchstackEv";
/// Export of all releases: the initializer of the module.
const MODULE: &[u8] = b"PyInit__greenlet\0";
/// Up to 1.x, the function in which a new greenlet begins, and the one that calls the stack switch. They have no
/// dynamic symbols, so a stripped library is walked like any other; the wheels on PyPI are not stripped.
const INITIAL_C: &[u8] = b"g_initialstub\0";
const SWITCHING_C: &[u8] = b"g_switchstack\0";
/// Bytes of a callee that are read: the stack switch has 135.
const CALLEE_BYTES: u64 = 256;
/// Most bytes of its caller: those of greenlet 3 have at most 1837.
const CALLER_BYTES_MAX: u64 = 16 << 10;

/// Rows that override frame descriptions, if this is `greenlet`'s library.
pub(super) fn rows(
    sections: &Sections<'_>,
    file: &dyn ReadAt,
    image: &Image<'_>,
    stats: &mut BuildStats,
) -> Option<Slice> {
    let named = |wanted| dynamic_functions(sections, file, image, |name| name.starts_with(wanted));
    let mut outermost = named(OUTERMOST);
    let mut switching = named(SWITCHING);
    if outermost.is_empty() && !named(MODULE).is_empty() && image.arch == Arch::X86_64 {
        let local = |wanted| local_functions(sections, file, image, |name| name.starts_with(wanted));
        outermost = local(INITIAL_C).into_iter().flat_map(|f| new_stack(&f, sections, file)).collect();
        switching = local(SWITCHING_C);
    }
    if outermost.is_empty() {
        return None;
    }
    if image.arch == Arch::X86_64 {
        outermost.extend(switching.into_iter().flat_map(|caller| switched(&caller, sections, file, image)));
        outermost.sort_unstable_by_key(|range| (range.start, range.end));
        outermost.dedup();
    }
    let mut rows = Rows::new();
    for range in outermost {
        rows.push(range.start, range.end, END);
        stats.add(Count::OutermostMarked, 1);
    }
    rows.finish()
}

/// Where the first greenlets, written in C, are on a new stack.
fn new_stack(function: &Range<u64>, sections: &Sections<'_>, file: &dyn ReadAt) -> Vec<Range<u64>> {
    if function.end - function.start > CALLER_BYTES_MAX {
        return Vec::new();
    }
    let code = sections.code_at(function, file);
    code.map(|code| greenlet_c::new_stack(&code, function.start)).unwrap_or_default()
}

/// Where this function or a callee of it is on the stack of a greenlet that is not restored yet.
fn switched(
    caller: &Range<u64>,
    sections: &Sections<'_>,
    file: &dyn ReadAt,
    image: &Image<'_>,
) -> Vec<Range<u64>> {
    if caller.end - caller.start > CALLER_BYTES_MAX {
        return Vec::new();
    }
    let Some(code) = sections.code_at(caller, file) else { return Vec::new() };
    if let Some(copying) = without_words(&code, caller.start) {
        return until_restored(&code, caller.start, copying);
    }
    let of_callee = |(returned, callee): (u64, u64)| {
        let end = callee.saturating_add(CALLEE_BYTES).min(image.text_end(callee)?);
        let switch = sections.code_at(&(callee..end), file)?;
        let mut parts = vec![through_return(&switch, callee, without_words(&switch, callee)?)];
        parts.extend(until_restored(&code, caller.start, returned..returned));
        Some(parts)
    };
    calls(&code, caller.start).find_map(of_callee).unwrap_or_default()
}

/// All of the function that runs from the beginning of this part on; only this part if unclear.
fn until_restored(code: &[u8], begin: u64, part: Range<u64>) -> Vec<Range<u64>> {
    let all: Vec<Instruction> = instructions(code, begin).take_while(|now| !now.is_invalid()).collect();
    // Before the switch, the stack is whole.
    let is_whole = |run: &Range<u64>| run.contains(&part.start.wrapping_sub(1));
    let runs = greenlet_c::reached(&all, part.start).filter(|runs| !runs.iter().any(is_whole));
    runs.unwrap_or_else(|| if part.is_empty() { Vec::new() } else { vec![part] })
}

/// The part and what follows, up to the return of a function whose end is unknown; only the part if unclear.
fn through_return(code: &[u8], begin: u64, part: Range<u64>) -> Range<u64> {
    for now in instructions(code, begin).skip_while(|now| now.ip() < part.end) {
        match now.flow_control() {
            FlowControl::Return => return part.start..now.next_ip(),
            FlowControl::Next | FlowControl::Call | FlowControl::ConditionalBranch => {}
            _ => break,
        }
    }
    part
}

/// The range from after `add %r,%rsp`, which `add %r,%rbp` and a call follow, to the end of that call.
fn without_words(code: &[u8], begin: u64) -> Option<Range<u64>> {
    let mut before = [Instruction::default(); 2];
    for now in instructions(code, begin).take_while(|now| !now.is_invalid()) {
        let [first, second] = before;
        let moves = adds(&first, Register::RSP).filter(|by| adds(&second, Register::RBP) == Some(*by));
        if moves.is_some() && now.mnemonic() == Mnemonic::Call {
            return Some(first.next_ip()..now.next_ip());
        }
        before = [second, now];
    }
    None
}

/// The register that an instruction adds to this one.
fn adds(instruction: &Instruction, to: Register) -> Option<Register> {
    let is_add = instruction.mnemonic() == Mnemonic::Add
        && instruction.op0_kind() == OpKind::Register
        && instruction.op0_register() == to
        && instruction.op1_kind() == OpKind::Register;
    is_add.then(|| instruction.op1_register())
}

#[cfg(test)]
mod tests {
    use super::{through_return, until_restored, without_words};

    /// From greenlet 3's `slp_switch`: sub %rbx,%rax; add %rax,%rsp; add %rax,%rbp; call; xor %rax,%rax.
    const CODE: [u8; 17] = [
        0x48, 0x29, 0xd8, 0x48, 0x01, 0xc4, 0x48, 0x01, 0xc5, 0xe8, 0x64, 0xf8, 0xff, 0xff, 0x48, 0x31, 0xc0,
    ];

    #[test]
    fn the_part_with_a_stack_without_words_is_found() {
        assert_eq!(without_words(&CODE, 0x1000), Some(0x1006..0x100e));
    }

    #[test]
    fn code_that_moves_the_stack_otherwise_is_left_alone() {
        // Another register in one of the two, another target, no call.
        for (at, byte) in [(5, 0xcc), (8, 0xcd), (5, 0xc3), (9, 0xb8)] {
            let mut code = CODE;
            code[at] = byte;
            assert_eq!(without_words(&code, 0x1000), None, "byte {at}");
        }
        for cut in 0..14 {
            assert_eq!(without_words(&CODE[..cut], 0x1000), None, "{cut} bytes");
        }
    }

    /// The same, then: movq 0x18(%rsp),%rbx; pop %rbp; ret; nop.
    const SWITCH: [u8; 25] = [
        0x48, 0x29, 0xd8, 0x48, 0x01, 0xc4, 0x48, 0x01, 0xc5, 0xe8, 0x64, 0xf8, 0xff, 0xff, 0x48, 0x31, 0xc0,
        0x48, 0x8b, 0x5c, 0x24, 0x18, 0x5d, 0xc3, 0x90,
    ];

    #[test]
    fn the_switch_has_no_caller_until_it_returns() {
        let check = |code: &[u8], end: u64| {
            assert_eq!(through_return(code, 0x1000, 0x1006..0x100e), 0x1006..end, "{code:x?}");
        };
        check(&SWITCH, 0x1018);
        check(&SWITCH[..23], 0x100e);
        let mut jumps = SWITCH;
        // jmp to the next instruction.
        jumps[17..19].copy_from_slice(&[0xeb, 0x00]);
        check(&jumps, 0x100e);
    }

    /// Like `g_switchstack` of greenlet 3, without the irrelevant instructions.
    #[rustfmt::skip]
    const CALLER: [u8; 23] = [
        0x75, 0x12, // 1000: jne 1014
        0xe8, 0x10, 0, 0, 0, // 1002: call slp_switch
        0x85, 0xc0, // 1007: test %eax,%eax
        0x78, 0x04, // 1009: js 100f
        0xff, 0x50, 0x28, // 100b: call *0x28(%rax)
        0xc3, // 100e: ret
        0x31, 0xc0, // 100f: xor %eax,%eax
        0xeb, 0x02, // 1011: jmp 1015
        0x90, // 1013: nop
        0x5b, // 1014: pop %rbx
        0x5d, // 1015: pop %rbp
        0xc3, // 1016: ret
    ];

    #[test]
    fn its_caller_has_none_from_there_on() {
        let check = |code: &[u8], expect: &[std::ops::Range<u64>]| {
            assert_eq!(until_restored(code, 0x1000, 0x1007..0x1007), expect, "{code:x?}");
        };
        check(&CALLER, &[0x1007..0x1013, 0x1015..0x1017]);
        // A way back to the switch, or to an unknown address.
        let mut changed = CALLER;
        changed[0x12] = 0xef;
        check(&changed, &[]);
        changed[0x11..0x13].copy_from_slice(&[0xff, 0xe0]);
        check(&changed, &[]);
    }
}
