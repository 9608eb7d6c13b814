//! The native frame of `_PyEval_EvalFrameDefault`, from the start of its code.
//!
//! Owns: the instructions where the evaluation loop has linked its `_PyCFrame` to the thread but not filled it yet
//! (3.11, 3.12); the position of the sentinel in the native frame, for JIT code (3.14); and the same from the
//! function that enters JIT code (3.15). Because: a sample between the two stores would follow stale pointers on the
//! stack, which look valid; compilers place a dozen instructions there. JIT code has neither unwind rows nor frame
//! pointers. Does not: apply to other versions: from 3.13 on a single store links a complete chain.

use deepctx_common::python::{NO_CFRAME, PythonLayout};
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};
use object::ReadRef;

use super::elf::{Elf, Symbol};

/// Most bytes decoded from the start.
const LENGTH_MAX: u64 = 1024;
/// Most bytes of the function that enters generated code; that of 3.15 has 52.
const ENTRY_LENGTH_MAX: u64 = 256;

/// An address on the stack, relative to a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StackSlot {
    base: Register,
    offset: u64,
}

/// Offset from the symbol, and length, of the instructions between the two stores; 0, 0 when they are not found.
pub(super) fn unset_cframe<'a, R: ReadRef<'a>>(
    elf: &Elf<'a, R>,
    eval: Symbol,
    layout: &PythonLayout,
) -> (u32, u32) {
    let length = LENGTH_MAX.min(if eval.size == 0 { LENGTH_MAX } else { eval.size });
    match elf.bytes_at(eval.address, length) {
        Some(text) if layout.cframe_current_frame != NO_CFRAME => find(text, layout).unwrap_or((0, 0)),
        _ => (0, 0),
    }
}

fn find(text: &[u8], layout: &PythonLayout) -> Option<(u32, u32)> {
    let mut begin: Option<(u64, StackSlot)> = None;
    let (mut current, mut previous) = (None, None);
    let mut taken: Vec<(Register, StackSlot)> = Vec::new();
    for i in &mut Decoder::with_ip(64, text, 0, DecoderOptions::NONE) {
        if !matches!(i.flow_control(), FlowControl::Next | FlowControl::ConditionalBranch) {
            break;
        }
        if i.mnemonic() == Mnemonic::Lea && matches!(i.memory_base(), Register::RSP | Register::RBP) {
            let place = StackSlot { base: i.memory_base(), offset: i.memory_displacement64() };
            taken.retain(|(register, _)| *register != i.op0_register());
            taken.push((i.op0_register(), place));
            continue;
        }
        let stored =
            i.op0_kind() == OpKind::Memory && i.mnemonic() != Mnemonic::Cmp && i.mnemonic() != Mnemonic::Test;
        if !stored {
            if i.op0_kind() == OpKind::Register {
                taken.retain(|(register, _)| *register != i.op0_register().full_register());
            }
            continue;
        }
        match begin {
            None => {
                let names = i.mnemonic() == Mnemonic::Mov
                    && i.memory_displacement64() == u64::from(layout.tstate_frame)
                    && i.memory_base() != Register::RSP;
                let place = taken
                    .iter()
                    .find(|(register, _)| i.op1_kind() == OpKind::Register && *register == i.op1_register());
                if let (true, Some((_, place))) = (names, place) {
                    begin = Some((i.next_ip(), *place));
                }
            }
            Some((_, place)) => {
                let field = place.offset.wrapping_add(u64::from(layout.cframe_current_frame));
                current = current.or(covers(&i, place.base, field));
                previous = previous.or(covers(&i, place.base, field.wrapping_add(8)));
            }
        }
        if current.is_some() && previous.is_some() {
            break;
        }
    }
    let ((begin, _), end) = (begin?, current?.max(previous?));
    Some((u32::try_from(begin).ok()?, u32::try_from(end.checked_sub(begin)?).ok()?))
}

/// Offset from the symbol of the instruction to which generated code returns, and the distance from the sentinel to
/// the frame pointer (positive) or the stack pointer. The loop marks the sentinel with a single store, at an address
/// that it also takes. `None` when that is not found.
pub(super) fn generated_code_returns<'a, R: ReadRef<'a>>(
    elf: &Elf<'a, R>,
    eval: Symbol,
    layout: &PythonLayout,
) -> Option<(u32, i32)> {
    let length = LENGTH_MAX.min(if eval.size == 0 { LENGTH_MAX } else { eval.size });
    find_sentinel(elf.bytes_at(eval.address, length)?, layout)
}

fn find_sentinel(text: &[u8], layout: &PythonLayout) -> Option<(u32, i32)> {
    let mut taken: Vec<StackSlot> = Vec::new();
    let mut marked: Option<(u64, StackSlot)> = None;
    for i in &mut Decoder::with_ip(64, text, 0, DecoderOptions::NONE) {
        if !matches!(i.flow_control(), FlowControl::Next | FlowControl::ConditionalBranch) {
            break;
        }
        if !matches!(i.memory_base(), Register::RSP | Register::RBP) {
            continue;
        }
        let place = |offset| StackSlot { base: i.memory_base(), offset };
        match i.mnemonic() {
            Mnemonic::Lea => taken.push(place(i.memory_displacement64())),
            Mnemonic::Mov if i.op0_kind() == OpKind::Memory && i.op1_kind() != OpKind::Register => {
                // Only the byte of the owner is not zero.
                let (value, size) = (i.immediate(1), i.memory_size().size() as u64);
                let into = (0..size.min(8)).find(|n| value == u64::from(layout.entry_value) << (8 * n));
                if let (None, Some(into)) = (marked, into) {
                    let at = i.memory_displacement64().wrapping_add(into);
                    marked = Some((i.next_ip(), place(at.wrapping_sub(u64::from(layout.frame_entry_mark)))));
                }
            }
            _ => {}
        }
        if let Some((next, place)) = marked
            && taken.contains(&place)
        {
            let base = i32::try_from(place.offset.wrapping_neg().cast_signed()).ok()?;
            let points_up = (place.base == Register::RBP) == (base > 0);
            return if points_up { Some((u32::try_from(next).ok()?, base)) } else { None };
        }
    }
    None
}

/// For the function that enters generated code which preserves the frame pointer (3.15): the stated address to which
/// that code returns, and the distance of this return address below the function's frame pointer. `None` for other
/// functions.
pub(super) fn enters_generated_code<'a, R: ReadRef<'a>>(
    elf: &Elf<'a, R>,
    entry: Symbol,
) -> Option<(u64, u16)> {
    let length = ENTRY_LENGTH_MAX.min(if entry.size == 0 { ENTRY_LENGTH_MAX } else { entry.size });
    let (returns, depth) = find_call(elf.bytes_at(entry.address, length)?)?;
    Some((entry.address.checked_add(returns)?, depth))
}

/// The first indirect call after `push rbp; mov rbp, rsp`, if the stack pointer is known there.
fn find_call(text: &[u8]) -> Option<(u64, u16)> {
    // Depth of the stack pointer below the frame pointer, once that is set.
    let (mut pushed, mut depth) = (false, None::<u16>);
    for i in &mut Decoder::with_ip(64, text, 0, DecoderOptions::NONE) {
        match (i.mnemonic(), i.flow_control()) {
            (_, FlowControl::IndirectCall) => return Some((i.next_ip(), depth?.checked_add(8)?)),
            (Mnemonic::Push, FlowControl::Next) => match depth {
                Some(below) => depth = Some(below.checked_add(8)?),
                None if i.op0_register() == Register::RBP && !pushed => pushed = true,
                None => return None,
            },
            (Mnemonic::Mov, FlowControl::Next) if i.op0_register() == Register::RBP => {
                if !pushed || depth.is_some() || i.op1_register() != Register::RSP {
                    return None;
                }
                depth = Some(0);
            }
            (Mnemonic::Sub, FlowControl::Next) if i.op0_register() == Register::RSP => {
                let more = u16::try_from(i.try_immediate(1).ok()?).ok()?;
                depth = Some(depth?.checked_add(more)?);
            }
            (_, FlowControl::Next) if i.op0_register() != Register::RSP && i.mnemonic() != Mnemonic::Pop => {}
            _ => return None,
        }
    }
    None
}

/// Address of the next instruction, if this one stores all 8 bytes at `base + offset`.
fn covers(i: &Instruction, base: Register, offset: u64) -> Option<u64> {
    let into = offset.wrapping_sub(i.memory_displacement64());
    let size = i.memory_size().size() as u64;
    (i.memory_base() == base && into < size && size - into >= 8).then(|| i.next_ip())
}

#[cfg(test)]
mod tests {
    use super::super::layout::Layout;
    use super::*;

    fn check(what: &str, text: &[u8], minor: u8, expect: Option<(u32, u32)>) {
        let layout = &Layout::of(minor, false).unwrap().kernel;
        assert_eq!(find(text, layout), expect, "{what}");
    }

    #[test]
    fn the_instructions_between_the_two_stores_are_found() {
        // lea rsi, [rsp + 0xa0]; mov [rdi + 0x38], rsi; mov rsi, [rax + 8]; movups [rsp + 0xa8], xmm0; ret
        let text = [
            0x48, 0x8d, 0xb4, 0x24, 0xa0, 0, 0, 0, 0x48, 0x89, 0x77, 0x38, 0x48, 0x8b, 0x70, 8, 0x0f, 0x11,
            0x84, 0x24, 0xa8, 0, 0, 0, 0xc3,
        ];
        check("both fields at once", &text, 11, Some((12, 12)));
        // lea rax, [rsp + 0x80]; mov [rdi + 0x38], rax; mov [rsp + 0x88], rdx; mov [rsp + 0x80], rsi; ret
        let text = [
            0x48, 0x8d, 0x84, 0x24, 0x80, 0, 0, 0, 0x48, 0x89, 0x47, 0x38, 0x48, 0x89, 0x94, 0x24, 0x88, 0,
            0, 0, 0x48, 0x89, 0xb4, 0x24, 0x80, 0, 0, 0, 0xc3,
        ];
        check("one after the other", &text, 12, Some((12, 16)));
        check("a version without such a structure", &text[..12], 12, None);
        check("nothing", &[], 11, None);
    }

    #[test]
    fn the_sentinel_in_the_frame_of_the_loop_is_found() {
        let layout = &Layout::of(14, false).unwrap().kernel;
        let check = |what: &str, text: &[u8], expect: Option<(u32, i32)>| {
            assert_eq!(find_sentinel(text, layout), expect, "{what}");
        };
        // lea rax, [rbp - 0x90]; mov dword [rbp - 0x48], 0x30000; ret
        let by_fp = [0x48, 0x8d, 0x85, 0x70, 0xff, 0xff, 0xff, 0xc7, 0x45, 0xb8, 0, 0, 3, 0, 0xc3];
        check("by the frame pointer", &by_fp, Some((14, 0x90)));
        // mov byte [rsp + 0x5a], 3; lea rcx, [rsp + 0x10]; ret
        let by_sp = [0xc6, 0x44, 0x24, 0x5a, 3, 0x48, 0x8d, 0x4c, 0x24, 0x10, 0xc3];
        check("by the stack pointer", &by_sp, Some((5, -0x10)));
        check("its address is not taken", &by_fp[7..], None);
        check("nothing is marked", &by_fp[..7], None);
    }

    #[test]
    fn the_call_that_enters_generated_code_is_found() {
        let check = |what: &str, text: &[u8], expect: Option<(u64, u16)>| {
            assert_eq!(find_call(text), expect, "{what}");
        };
        // push rbp; mov rbp, rsp; push r15; push rbx; sub rsp, 0x18; mov r12, rdi; xor edi, edi; call [r12 + 0x58]
        let text = [
            0x55, 0x48, 0x89, 0xe5, 0x41, 0x57, 0x53, 0x48, 0x83, 0xec, 0x18, 0x49, 0x89, 0xfc, 0x31, 0xff,
            0x41, 0xff, 0x54, 0x24, 0x58,
        ];
        check("as 3.15 has it", &text, Some((21, 0x30)));
        check("with a landing pad", &[&[0xf3, 0x0f, 0x1e, 0xfa], &text[..]].concat(), Some((25, 0x30)));
        check("without a frame pointer", &text[4..], None);
        check("not whole", &text[..18], None);
        check("nothing", &[], None);
        // push rbp; mov rbp, rsp; pop rbx; call [r12 + 0x58]
        check("the stack shrinks", &[0x55, 0x48, 0x89, 0xe5, 0x5b, 0x41, 0xff, 0x54, 0x24, 0x58], None);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_give_a_range_within_them(text in proptest::collection::vec(proptest::num::u8::ANY, 0..512)) {
            let _ = find_call(&text);
            let _ = find_sentinel(&text, &Layout::of(14, false).unwrap().kernel);
            for minor in [11, 12] {
                if let Some((begin, length)) = find(&text, &Layout::of(minor, false).unwrap().kernel) {
                    assert!(begin as usize + length as usize <= text.len());
                }
            }
        }
    }
}
