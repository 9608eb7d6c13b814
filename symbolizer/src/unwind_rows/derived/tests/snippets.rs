//! Tests with small functions, assembled with the tests.

use deepctx_address_space::Arch;
use deepctx_common::unwind::{Rule, fp_kind, rule_detail, rule_kind};

use crate::unwind_rows::derived::{DerivedTable, derive, entries_of_generated_code};

/// The bytes of a snippet in AT&T syntax, which is never executed.
macro_rules! assemble {
    ($($line:literal)*) => {{
        let (begin, end): (*const u8, *const u8);
        // SAFETY: the snippet is in a separate section and never executed; only two addresses are computed.
        unsafe {
            std::arch::asm!(
                ".pushsection .text.deepctx_snippets,\"ax\",@progbits",
                "771:",
                $($line,)*
                "772:",
                ".popsection",
                "lea 771b(%rip), {begin}",
                "lea 772b(%rip), {end}",
                begin = out(reg) begin,
                end = out(reg) end,
                options(att_syntax, nomem, nostack, preserves_flags),
            );
        }
        // SAFETY: both labels are in one section of this program, which is mapped readable.
        unsafe { std::slice::from_raw_parts(begin, end.offset_from_unsigned(begin)) }
    }};
}

const ADDRESS: u64 = 0x40_0000;

fn rule(cfa: u8, cfa_offset: i32) -> Rule {
    Rule { cfa, cfa_offset, detail: rule_detail::DERIVED, ..Rule::default() }
}
fn rsp(offset: i32) -> Rule {
    rule(rule_kind::SP, offset)
}
fn rbp(offset: i32) -> Rule {
    rule(rule_kind::FP, offset)
}
fn saved(rule: Rule, fp_offset: i32) -> Rule {
    Rule { fp: fp_kind::AT_CFA, fp_offset, ..rule }
}
fn clobbered(rule: Rule) -> Rule {
    Rule { fp: fp_kind::UNDEFINED, ..rule }
}

/// The result for `code` as one function.
fn derived(code: &[u8]) -> DerivedTable {
    let whole = ADDRESS..ADDRESS + code.len() as u64;
    derive(code, ADDRESS, std::slice::from_ref(&whole))
}

/// The rows of `code` as one function, as (length, rule); no rule where there is no row.
fn rows(code: &[u8]) -> Vec<(u64, Option<Rule>)> {
    let end = ADDRESS + code.len() as u64;
    let mut at = ADDRESS;
    let mut rows = Vec::new();
    for (from, to, rule) in derived(code).rows {
        if from > at {
            rows.push((from - at, None));
        }
        rows.push((to - from, Some(rule)));
        at = to;
    }
    if end > at {
        rows.push((end - at, None));
    }
    rows
}

fn check(code: &[u8], expected: &[(u64, Option<Rule>)]) {
    assert_eq!(rows(code), expected, "of {code:02x?}");
}

#[test]
fn pushes_and_pops_move_the_stack_pointer() {
    let code = assemble!("push %rbx" "push %r12" "nop" "pop %r12" "pop %rbx" "ret");
    check(
        code,
        &[(1, Some(rsp(8))), (2, Some(rsp(16))), (3, Some(rsp(24))), (1, Some(rsp(16))), (1, Some(rsp(8)))],
    );
}

#[test]
fn a_pushed_frame_pointer_is_found() {
    let code = assemble!("push %rbp" "mov %rsp, %rbp" "sub $0x100, %rsp" "leave" "ret");
    check(
        code,
        &[
            (1, Some(rsp(8))),
            (3, Some(rsp(16))),
            (7, Some(saved(rsp(16), -16))),
            (1, Some(saved(rsp(0x110), -16))),
            (1, Some(rsp(8))),
        ],
    );
}

#[test]
fn a_stored_frame_pointer_is_found() {
    let code = assemble!(
        "sub $0x80, %rsp" "mov %rbp, 8(%rsp)" "lea (%rdi,%rsi,2), %rbp" "mov 8(%rsp), %rbp" "add $0x80, %rsp" "ret"
    );
    check(
        code,
        &[
            (7, Some(rsp(8))),
            (9, Some(rsp(0x88))),
            (5, Some(saved(rsp(0x88), -0x80))),
            (7, Some(rsp(0x88))),
            (1, Some(rsp(8))),
        ],
    );
}

#[test]
fn a_frame_pointer_that_was_not_saved_is_lost() {
    let code = assemble!("xor %ebp, %ebp" "ret");
    check(code, &[(2, Some(rsp(8))), (1, Some(clobbered(rsp(8))))]);
}

#[test]
fn after_an_alignment_the_frame_pointer_is_used() {
    let code = assemble!("push %rbp" "mov %rsp, %rbp" "and $-64, %rsp" "sub $0x140, %rsp" "call 771b" "mov %rbp, %rsp"
        "pop %rbp" "ret");
    check(
        code,
        &[
            (1, Some(rsp(8))),
            (3, Some(rsp(16))),
            (4, Some(saved(rsp(16), -16))),
            (15, Some(saved(rbp(16), -16))),
            (1, Some(saved(rsp(16), -16))),
            (1, Some(rsp(8))),
        ],
    );
}

#[test]
fn after_an_alignment_the_stored_stack_pointer_is_used() {
    let code = assemble!("mov %rsp, %rax" "and $-64, %rsp" "sub $0x40, %rsp" "mov %rax, 0x18(%rsp)" "mov %rbp, 8(%rsp)"
        "xor %eax, %eax" "xor %ebp, %ebp" "mov 8(%rsp), %rbp" "mov 0x18(%rsp), %rsp" "ret");
    let register = Rule { detail: 0, ..rule(rule_kind::REGISTER, 8) };
    let stored = Rule { addend: 8, ..rule(rule_kind::X86_SP_DEREF, 0x18) };
    let with_rbp = Rule { fp: fp_kind::X86_AT_SP, fp_offset: 8, ..stored };
    check(
        code,
        &[
            (7, Some(rsp(8))),
            (9, Some(register)),
            (9, Some(stored)),
            (5, Some(with_rbp)),
            (5, Some(stored)),
            (1, Some(rsp(8))),
        ],
    );
}

#[test]
fn the_stack_alignment_of_gcc_is_supported() {
    let code = assemble!("lea 8(%rsp), %r10" "and $-32, %rsp" "push -8(%r10)" "push %rbp" "mov %rsp, %rbp" "push %r10"
        "sub $0x20, %rsp" "call 771b" "mov -8(%rbp), %r10" "leave" "lea -8(%r10), %rsp" "ret");
    let r10 = |rule: Rule| Rule { detail: 10, ..rule };
    let stored = Rule { fp: fp_kind::X86_AT_SP, fp_offset: 8, ..rule(rule_kind::X86_SP_DEREF, 0) };
    let deeper = Rule { fp_offset: 0x28, cfa_offset: 0x20, ..stored };
    let rows = rows(code);
    assert_eq!(rows[0], (9, Some(rsp(8))));
    assert_eq!(rows[1], (8, Some(r10(rule(rule_kind::REGISTER, 0)))));
    assert_eq!(rows[2], (2, Some(r10(Rule { fp: fp_kind::X86_AT_SP, ..rule(rule_kind::REGISTER, 0) }))));
    assert_eq!(rows[3].1, Some(stored));
    assert_eq!(rows[4].1, Some(deeper));
    assert_eq!(rows.last(), Some(&(1, Some(rsp(8)))));
    assert!(rows.iter().all(|(_, rule)| rule.is_some()), "{rows:?}");
}

#[test]
fn a_variable_allocation_needs_a_frame_pointer() {
    let code = assemble!("sub %rdi, %rsp" "nop" "ud2");
    check(code, &[(3, Some(rsp(8))), (3, None)]);
    let code = assemble!("push %rbp" "mov %rsp, %rbp" "sub %rdi, %rsp" "leave" "ret");
    check(
        code,
        &[
            (1, Some(rsp(8))),
            (3, Some(rsp(16))),
            (3, Some(saved(rsp(16), -16))),
            (1, Some(saved(rbp(16), -16))),
            (1, Some(rsp(8))),
        ],
    );
}

#[test]
fn one_of_two_stacks_is_unwound_by_a_stored_pointer() {
    let code = assemble!("push %rbp" "mov %rsp, %rbp" "test %edi, %edi" "je 1f" "and $-4096, %rsp" "jmp 2f"
        "1:" "mov 0x68(%rsp), %rsp" "2:" "mov %rbp, 0x78(%rsp)" "xor %ebp, %ebp" "mov 0x78(%rsp), %rsp" "pop %rbp" "ret");
    let stored = Rule { addend: 16, ..saved(rule(rule_kind::X86_SP_DEREF, 0x78), -16) };
    let rows = rows(code);
    assert_eq!(
        rows[rows.len() - 4..],
        [
            (7, Some(saved(rbp(16), -16))),
            (5, Some(stored)),
            (1, Some(saved(rsp(16), -16))),
            (1, Some(rsp(8)))
        ],
        "{rows:#?}"
    );
}

#[test]
fn differing_paths_have_no_row() {
    let code = assemble!("test %edi, %edi" "je 1f" "push %rax" "1:" "nop" "ud2");
    check(code, &[(5, Some(rsp(8))), (3, None)]);
}

#[test]
fn agreeing_paths_have_a_row() {
    let code = assemble!("test %edi, %edi" "je 1f" "push %rax" "pop %rax" "1:" "ret");
    check(code, &[(5, Some(rsp(8))), (1, Some(rsp(16))), (1, Some(rsp(8)))]);
}

#[test]
fn targets_of_jump_tables_have_no_row() {
    let code = assemble!("jmp *%rax" "nop" "ret");
    check(code, &[(2, Some(rsp(8))), (2, None)]);
}

#[test]
fn a_contradictory_return_drops_all_rows() {
    let code = assemble!("push %rax" "ret");
    check(code, &[(2, None)]);
    assert_eq!(derived(code).stats.contradictions, 1);
}

#[test]
fn a_replaced_return_address_ends_the_rows() {
    let code = assemble!("mov %rax, (%rsp)" "nop" "ret");
    check(code, &[(4, Some(rsp(8))), (2, None)]);
}

#[test]
fn a_call_of_the_next_instruction_is_a_push() {
    let code = assemble!("call 1f" "1:" "pop %rax" "ret");
    check(code, &[(5, Some(rsp(8))), (1, Some(rsp(16))), (1, Some(rsp(8)))]);
}

#[test]
fn a_local_callee_has_no_row() {
    let code = assemble!("call 1f" "ret" "1:" "nop" "ret");
    check(code, &[(5, Some(rsp(8))), (1, Some(clobbered(rsp(8)))), (2, None)]);
}

#[test]
fn code_reached_by_a_jump_from_outside_has_no_row() {
    let code = assemble!("push %rax" "jmp 1f" "push %rbx" "1:" "nop" "ud2");
    let at = |from: u64, to: u64| ADDRESS + from..ADDRESS + to;
    let of = |entries: &[_]| derive(code, ADDRESS, entries).rows;
    assert_eq!(of(&[at(3, 7)]), [(ADDRESS + 3, ADDRESS + 4, rsp(8)), (ADDRESS + 4, ADDRESS + 7, rsp(16))]);
    assert_eq!(
        of(&[at(0, 3), at(3, 7)]),
        [
            (ADDRESS, ADDRESS + 1, rsp(8)),
            (ADDRESS + 1, ADDRESS + 3, rsp(16)),
            (ADDRESS + 3, ADDRESS + 4, rsp(8))
        ]
    );
}

#[test]
fn a_tail_call_does_not_affect_the_callee() {
    let code = assemble!("push %rax" "pop %rcx" "jmp 1f" "1:" "push %rbx" "pop %rbx" "ret");
    let rows = derive(code, ADDRESS, &[ADDRESS..ADDRESS + 4, ADDRESS + 4..ADDRESS + 7]).rows;
    assert_eq!(rows.last(), Some(&(ADDRESS + 6, ADDRESS + 7, rsp(8))));
}

#[test]
fn an_overwritten_saved_register_is_lost() {
    let code = assemble!("push %rbp" "xor %ebp, %ebp" "movups %xmm0, -8(%rsp)" "ud2");
    check(
        code,
        &[
            (1, Some(rsp(8))),
            (2, Some(rsp(16))),
            (5, Some(saved(rsp(16), -16))),
            (2, Some(clobbered(rsp(16)))),
        ],
    );
}

#[test]
fn a_register_in_the_red_zone_survives_until_a_call() {
    let code = assemble!("mov %rbp, -8(%rsp)" "xor %ebp, %ebp" "call 771b" "ud2");
    check(code, &[(7, Some(rsp(8))), (5, Some(saved(rsp(8), -16))), (2, Some(clobbered(rsp(8))))]);
}

#[test]
fn an_address_computed_twice_is_two_addresses() {
    let code = assemble!("1:" "mov %rsp, %rax" "and $-64, %rsp" "push %rax" "dec %edi" "jne 1b" "ud2");
    // In the second iteration rax is no longer the stack pointer at the entry.
    assert!(derived(code).rows.is_empty());
}

#[test]
fn functions_of_generated_code_start_on_pages() {
    let mut code = vec![0; 4 * 4096 + 100];
    let mut put = |at: usize, bytes: &[u8]| code[at..at + bytes.len()].copy_from_slice(bytes);
    put(16, assemble!("push %rbx"));
    put(4096, assemble!("push %rbx"));
    put(2 * 4096, assemble!("sub $0x28, %rsp"));
    put(3 * 4096, assemble!("push %rax"));
    put(4 * 4096, assemble!("endbr64"));
    let at = |page: u64| ADDRESS + page * 4096;
    assert_eq!(
        entries_of_generated_code(Arch::X86_64, &code, ADDRESS),
        [at(1)..at(2), at(2)..at(4), at(4)..ADDRESS + code.len() as u64]
    );
    assert_eq!(entries_of_generated_code(Arch::X86_64, &code[16..], ADDRESS + 16)[0], at(1)..at(2));
}
