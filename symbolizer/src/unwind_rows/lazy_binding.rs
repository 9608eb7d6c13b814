//! The dynamic linker's code that resolves a function on its first call.
//!
//! Owns: a row for each call within the code that saves all argument registers meanwhile (`_dl_runtime_resolve`).
//! Because: that code aligns its stack and keeps the CFA in rbx, which a walk knows only at the leaf; but its callee
//! saves rbx at an offset that the callee's first instructions show. Does not: know more of the dynamic linker, which
//! distributions strip of symbols.
//!
//! ```text
//!   push %rbx                                        callee: push %r13 …
//!   mov  %rsp, %rbx     ◀─ the CFA is in rbx                 push %rbx   ◀─ at a known offset from the stack pointer
//!   and  $-64, %rsp                                                         that the call had
//!   …
//!   call callee         ◀─ the row holds in the last byte of the call: a leaf is never there, its return address
//!                          is looked up there
//! ```

use std::ops::Range;

use deepctx_address_space::Arch;
use deepctx_common::unwind::{Rule, fp_kind, ra_kind, rule_kind};
use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, Register};

use super::elf::Image;
use super::frames::{ADDRESS_MAX, Frame, Slice, unpack};
use super::instructions::{calls, instructions};
use super::new_rows::Rows;
use super::sections::Sections;
use super::uncovered::ReadAt;

/// Bytes above the return address at the entry of such code: the PLT entry has pushed the library and the number of the
/// function.
const PUSHED_BY_PLT: i32 = 16;
/// Largest such function: glibc 2.36's have at most 1003 bytes.
const FUNCTION_BYTES_MAX: u64 = 4 << 10;
/// Most functions of a file that are examined: glibc has six.
const FUNCTIONS_MAX: usize = 16;
/// Bytes of a callee that are read: it has saved rbx by then.
const PROLOGUE_BYTES: u64 = 64;

/// Rows that override frame descriptions, if the file is a dynamic linker.
pub(super) fn rows(frames: &[Slice], headers: &[u8], file: &dyn ReadAt, image: &Image<'_>) -> Option<Slice> {
    if image.arch != Arch::X86_64 {
        return None;
    }
    let binding =
        frames.iter().flat_map(|slice| slice.frames.iter().filter_map(|frame| binding(slice, frame)));
    let mut binding = binding.take(FUNCTIONS_MAX).peekable();
    binding.peek()?;
    let sections = Sections::of(headers)?;
    let mut found = Vec::new();
    for (range, rule) in binding {
        let Some(code) = sections.code_at(&range, file) else { continue };
        for (call, callee) in calls(&code, range.start) {
            let end = callee.saturating_add(PROLOGUE_BYTES).min(image.text_end(callee).unwrap_or(callee));
            let prologue = sections.code_at(&(callee..end), file);
            if let Some(slot) = prologue.and_then(|code| saves_rbx(&code, callee)) {
                found.push((call, of_caller(rule, slot)));
            }
        }
    }
    found.sort_unstable_by_key(|(call, _)| *call);
    let mut rows = Rows::new();
    for (call, rule) in found {
        rows.push(call - 1, call, rule);
    }
    rows.finish()
}

/// The code of a frame to which the PLT jumps, and its rule, with the CFA in rbx.
fn binding(slice: &Slice, frame: &Frame) -> Option<(Range<u64>, Rule)> {
    let rule_of = |&row: &u64| slice.rules.get(usize::from(unpack(row).1)).copied();
    let rows = slice.rows.get(frame.rows())?;
    let first = rows.first().and_then(rule_of)?;
    let by_plt = first.cfa == rule_kind::SP && first.cfa_offset == PUSHED_BY_PLT + 8;
    let is_small = frame.end.saturating_sub(frame.begin) <= FUNCTION_BYTES_MAX && frame.end < ADDRESS_MAX;
    if !by_plt || !is_small {
        return None;
    }
    let in_rbx = rows.iter().filter_map(rule_of).find(|rule| rule.cfa == rule_kind::X86_RBX)?;
    let is_supported = in_rbx.ra == ra_kind::X86_AT_CFA_MINUS_8 && in_rbx.fp == fp_kind::SAME;
    is_supported.then_some((frame.begin..frame.end, in_rbx))
}

/// The rule for a frame with that rule whose callee saved rbx at `slot`.
fn of_caller(rule: Rule, slot: i32) -> Rule {
    Rule { cfa: rule_kind::X86_SAVED_RBX, cfa_offset: slot, addend: rule.cfa_offset, ..rule }
}

/// The slot of the caller's rbx in a function, as an offset from the caller's stack pointer.
fn saves_rbx(code: &[u8], begin: u64) -> Option<i32> {
    // The return address.
    let mut depth = 8;
    for now in instructions(code, begin) {
        let is_push = now.mnemonic() == Mnemonic::Push && now.op0_kind() == OpKind::Register;
        if is_push {
            depth += 8;
            if now.op0_register() == Register::RBX {
                return Some(-depth);
            }
        } else if now.is_invalid() || now.flow_control() != FlowControl::Next || writes_rbx_or_rsp(&now) {
            return None;
        }
    }
    None
}

fn writes_rbx_or_rsp(instruction: &Instruction) -> bool {
    let first = instruction.op0_kind() == OpKind::Register && instruction.op0_register().is_gpr();
    let written = instruction.op0_register();
    instruction.is_stack_instruction()
        || first && [Register::RBX, Register::RSP].contains(&written.full_register())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The beginning of glibc 2.36's `_dl_fixup`.
    const FIXUP: &[u8] = &[0x41, 0x55, 0x45, 0x31, 0xc9, 0x41, 0x54, 0x55, 0x53, 0x48, 0x89, 0xfb];

    #[test]
    fn the_place_of_a_saved_rbx_is_found() {
        assert_eq!(saves_rbx(FIXUP, 0x1000), Some(-40));
        // With a preceding endbr64, as in distributions with shadow stacks.
        let marked = [&[0xf3, 0x0f, 0x1e, 0xfa][..], FIXUP].concat();
        assert_eq!(saves_rbx(&marked, 0x1000), Some(-40));
    }

    #[test]
    fn a_function_that_changes_rbx_before_is_refused() {
        for cut in 0..9 {
            assert_eq!(saves_rbx(&FIXUP[..cut], 0x1000), None, "{cut} bytes");
        }
        let before = |bytes: &[u8]| saves_rbx(&[bytes, FIXUP].concat(), 0x1000);
        assert_eq!(before(&[0x48, 0x89, 0xfb]), None, "mov %rdi,%rbx");
        assert_eq!(before(&[0x89, 0xfb]), None, "mov %edi,%ebx");
        assert_eq!(before(&[0x48, 0x83, 0xec, 0x18]), None, "sub $0x18,%rsp");
        assert_eq!(before(&[0xc3]), None, "ret");
        assert_eq!(before(&[0xe8, 0, 0, 0, 0]), None, "call");
    }
}
