//! Unwind rows that BOLT got wrong.
//!
//! Owns: finding rows that contradict the instruction before them, and the correct row to use instead. Because: where
//! BOLT 19 turns an indirect tail call into a comparison and a direct one, it leaves the new block under the unwind
//! row of the function body, although the frame has already been popped; and Python interpreters are built with BOLT.
//! Does not: trust its own rows beyond the wrong ones.
//!
//! ```text
//!   pop  %rbp
//!   cmpq $target, table(,%rax,8)   ◀─ CFA = rsp + 8
//!   jne  other
//!   mov  %r15, 0x38(%r12)          ◀─ stated: CFA = rsp + 16, but a branch that is not taken leaves rsp alone
//!   …
//! ```

use std::ops::Range;

use deepctx_address_space::Arch;
use deepctx_common::unwind::{Rule, rule_kind};
use iced_x86::{FlowControl, Instruction, OpKind, Register};

use super::derived::{self, Bounds, Code};
use super::elf::Image;
use super::frames::{Frame, Slice, unpack};
use super::instructions::instructions;
use super::new_rows::Rows;
use super::sections::Sections;
use super::uncovered::ReadAt;

/// Prefix of the sections that BOLT keeps of its input program; `strip` leaves them in place.
const KEPT: &[u8] = b".bolt.org.";
/// Largest function that is examined: the largest of CPython 3.14 has 30 KiB.
const FUNCTION_BYTES_MAX: u64 = 256 << 10;
/// Total bytes that are examined.
const ALL_BYTES_MAX: u64 = 64 << 20;

/// Rows that override frame descriptions, if BOLT wrote the file.
pub(super) fn rows(frames: &[Slice], headers: &[u8], file: &dyn ReadAt, image: &Image<'_>) -> Option<Slice> {
    if image.arch != Arch::X86_64 || frames.iter().all(|slice| slice.frames.is_empty()) {
        return None;
    }
    let sections = Sections::of(headers)?;
    if !sections.any_named(file, KEPT) {
        return None;
    }
    let mut rows = Rows::new();
    let mut bytes = 0;
    for (slice, frame) in frames.iter().flat_map(|slice| slice.frames.iter().map(move |frame| (slice, frame)))
    {
        let size = frame.end.saturating_sub(frame.begin);
        let Some(stated) = doubtful(slice, frame).filter(|_| size <= FUNCTION_BYTES_MAX) else { continue };
        bytes += size;
        if bytes > ALL_BYTES_MAX {
            break;
        }
        let Some(code) = sections.code_at(&(frame.begin..frame.end), file) else { continue };
        for (begin, end, rule) in corrected(&code, &(frame.begin..frame.end), &stated) {
            rows.push(begin, end, rule);
        }
    }
    rows.finish()
}

/// Address and rule of each row of a function, if it removes its stack frame and later has one again.
fn doubtful(slice: &Slice, frame: &Frame) -> Option<Vec<(u64, Rule)>> {
    let rows = slice.rows.get(frame.rows())?;
    let rows: Option<Vec<(u64, Rule)>> = rows
        .iter()
        .map(|&row| {
            let (address, rule) = unpack(row);
            Some((address, *slice.rules.get(usize::from(rule))?))
        })
        .collect();
    let rows = rows?;
    let depths = || rows.windows(2).map(|pair| (pair[0].1.cfa_offset, pair[1].1.cfa_offset));
    let falls = depths().position(|(before, after)| after < before)?;
    depths().skip(falls).any(|(before, after)| after > before).then_some(rows)
}

/// The right rules where the rows of a function are wrong, as far as its instructions show them.
fn corrected(code: &[u8], function: &Range<u64>, stated: &[(u64, Rule)]) -> Vec<(u64, u64, Rule)> {
    let wrong = contradicted(code, function.start, stated);
    if wrong.is_empty() {
        return Vec::new();
    }
    // A split-off part does not begin like a function.
    let at_entry = |(_, rule): &(u64, Rule)| rule.cfa == rule_kind::SP && rule.cfa_offset == 8;
    if !stated.first().is_some_and(at_entry) {
        return Vec::new();
    }
    let code = Code { address: function.start, bytes: code };
    let derived = derived::derive_all(&[code], std::slice::from_ref(function), &Bounds::default()).rows;
    let parts = wrong.into_iter().flat_map(|row| {
        let begin = stated[row].0;
        let end = stated.get(row + 1).map_or(function.end, |(next, _)| *next);
        let within = |&(from, to, rule): &(u64, u64, Rule)| (from.max(begin), to.min(end), rule);
        derived.iter().map(within).filter(|(from, to, _)| from < to).collect::<Vec<_>>()
    });
    parts.collect()
}

/// The rows that begin after an instruction that does not change the stack, yet state another depth.
fn contradicted(code: &[u8], begin: u64, stated: &[(u64, Rule)]) -> Vec<usize> {
    let by_sp = |rule: &Rule| rule.cfa == rule_kind::SP;
    let differs = |row: &usize| {
        let (before, after) = (&stated[row - 1].1, &stated[*row].1);
        by_sp(before) && by_sp(after) && before.cfa_offset != after.cfa_offset
    };
    let mut rows = (1..stated.len()).filter(differs).peekable();
    let mut wrong = Vec::new();
    for now in instructions(code, begin).take_while(|now| !now.is_invalid()) {
        while rows.next_if(|row| stated[*row].0 < now.next_ip()).is_some() {}
        let Some(&row) = rows.peek() else { break };
        if stated[row].0 == now.next_ip() && leaves_stack(&now) {
            wrong.push(row);
        }
    }
    wrong
}

/// Whether the next instruction runs with the same stack pointer.
fn leaves_stack(instruction: &Instruction) -> bool {
    let goes_on = matches!(instruction.flow_control(), FlowControl::Next | FlowControl::ConditionalBranch);
    let names_rsp = (0..instruction.op_count()).any(|operand| {
        instruction.op_kind(operand) == OpKind::Register
            && instruction.op_register(operand).full_register() == Register::RSP
    });
    goes_on && !instruction.is_stack_instruction() && !names_rsp
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `_TAIL_CALL_start_frame` of CPython 3.14.7, as BOLT 19 leaves it.
    #[rustfmt::skip]
    const CODE: [u8; 116] = [
        0x55, // a03552: push %rbp
        0x41, 0x8b, 0x4e, 0x30, 0x8d, 0x41, 0xff, 0x41, 0x89, 0x46, 0x30, 0x85, 0xc9,
        0x0f, 0x8e, 0xf4, 0xfa, 0x11, 0x00, // a03560: jle b2305a
        0x4d, 0x8b, 0x7c, 0x24, 0x38, 0x4d, 0x8b, 0x6c, 0x24, 0x40, 0x41, 0x0f, 0xb7, 0x3f,
        0x40, 0x0f, 0xb6, 0xc7, 0xc1, 0xef, 0x08,
        0x5d, // a0357b: pop %rbp
        0x48, 0x81, 0x3c, 0xc5, 0x90, 0xd8, 0x2a, 0x00, 0x00, 0x1a, 0xa0, 0x00,
        0x75, 0x35, // a03588: jne a035bf
        0x4d, 0x89, 0x7c, 0x24, 0x38, 0x49, 0x8b, 0x46, 0x18, 0x49, 0x8b, 0x0c, 0x24, 0x48, 0x83, 0xe1, 0xfe,
        0x48, 0x3b, 0x81, 0xa8, 0x00, 0x00, 0x00,
        0x0f, 0x85, 0xf4, 0xcf, 0x03, 0x00, // a035a2: jne a4059c
        0x41, 0x0f, 0xb7, 0x7f, 0x02, 0x49, 0x83, 0xc7, 0x02, 0x40, 0x0f, 0xb6, 0xc7, 0xc1, 0xef, 0x08,
        0xff, 0x24, 0xc5, 0x90, 0xd8, 0x2a, 0x00, // a035b8: jmp *0x2ad890(,%rax,8)
        0xff, 0x24, 0xc5, 0x90, 0xd8, 0x2a, 0x00, // a035bf: the same
    ];
    const FUNCTION: Range<u64> = 0xa0_3552..0xa0_35c6;
    /// Its rows: address and depth.
    const STATED: [(u64, i32); 4] = [(0xa0_3552, 8), (0xa0_3553, 16), (0xa0_357c, 8), (0xa0_358a, 16)];

    /// Expects parts with their depths.
    fn check(code: &[u8], stated: &[(u64, i32)], expect: &[(u64, u64, i32)]) {
        let rule = |depth| Rule { cfa: rule_kind::SP, cfa_offset: depth, ..Rule::default() };
        let stated: Vec<_> = stated.iter().map(|&(address, depth)| (address, rule(depth))).collect();
        let parts = corrected(code, &FUNCTION, &stated);
        let parts: Vec<_> = parts.iter().map(|(from, to, rule)| (*from, *to, rule.cfa_offset)).collect();
        assert_eq!(parts, expect, "{stated:?}");
    }

    #[test]
    fn a_row_behind_a_branch_is_corrected() {
        check(&CODE, &STATED, &[(0xa0_358a, 0xa0_35c6, 8)]);
        // The correction ends at the next right row.
        let [first, second, third, wrong] = STATED;
        check(&CODE, &[first, second, third, wrong, (0xa0_35bf, 8)], &[(0xa0_358a, 0xa0_35bf, 8)]);
    }

    #[test]
    fn nothing_is_said_of_code_that_is_missing() {
        let rule = |depth| Rule { cfa: rule_kind::SP, cfa_offset: depth, ..Rule::default() };
        let stated = STATED.map(|(address, depth)| (address, rule(depth)));
        for cut in 0..CODE.len() {
            let parts = corrected(&CODE[..cut], &FUNCTION, &stated);
            assert!(parts.iter().all(|(_, to, _)| *to <= FUNCTION.start + cut as u64), "{cut}: {parts:?}");
        }
    }

    #[test]
    fn rows_that_agree_with_the_code_stay() {
        let [first, second, third, wrong] = STATED;
        check(&CODE, &[first, second, third], &[]);
        // After a jump, in the middle of an instruction, or in a split-off part.
        check(&CODE, &[first, second, third, (0xa0_35bf, 16)], &[]);
        check(&CODE, &[first, second, third, (0xa0_3589, 16)], &[]);
        check(&CODE, &[(first.0, 16), second, third, wrong], &[]);
    }
}
