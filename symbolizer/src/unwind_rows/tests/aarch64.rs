//! Tests of each form of row of aarch64; `unwind_oracle` compares real files.

use deepctx_address_space::Arch;
use deepctx_common::unwind::{Rule, fp_kind, ra_kind, rule_kind, unsupported};

use super::cfi::*;
use super::{Count, Elf, Section, TEXT, counted};
use crate::unwind_rows::{NoTable, UnwindTable};

/// The table of one function of 64 bytes.
fn function(augmentation: &str, instructions: &[&[u8]]) -> UnwindTable {
    let mut section = Section::aarch64();
    let cie = section.cie(augmentation, &def_cfa(SP, 0));
    section.fde(cie, TEXT, 64, &instructions.concat());
    Elf { machine: Arch::Aarch64.elf_machine(), ..Elf::of(section) }.table().unwrap()
}

fn check(instructions: &[&[u8]], expect: Rule) {
    assert_eq!(function("zR", instructions).lookup(TEXT), Some(expect), "{instructions:02x?}");
}

fn check_unsupported(instructions: &[&[u8]], reason: u8) {
    check(instructions, Rule { cfa: rule_kind::UNSUPPORTED, detail: reason, ..Rule::default() });
}

/// CFA = sp + offset, the return address in x30.
fn sp(cfa_offset: i32) -> Rule {
    Rule { cfa: rule_kind::SP, ra: ra_kind::AARCH64_IN_LR, cfa_offset, ..Rule::default() }
}

/// x29 and x30 side by side, the first at CFA + offset.
fn record(fp_offset: i32, rule: Rule) -> Rule {
    Rule { fp: fp_kind::AT_CFA, fp_offset, ra: ra_kind::AT_CFA, addend: fp_offset + 8, ..rule }
}

#[test]
fn pointer_signing_gives_no_row() {
    // paciasp; stp x29, x30, [sp, #-32]!; mov x29, sp; …; ldp x29, x30, [sp], #32; autiasp; ret
    let signing: [u8; 1] = [0x2d];
    let table = function(
        "zR",
        &[
            &advance(1),
            &signing,
            &advance(1),
            &def_cfa_offset(32),
            &offset(X29, 4),
            &offset(X30, 3),
            &advance(8),
            &restore(X29),
            &restore(X30),
            &def_cfa_offset(0),
            &advance(1),
            &signing,
        ],
    );
    let rows: Vec<(u64, Rule)> = table.rows().map(|(address, rule)| (address - TEXT, *rule)).collect();
    assert_eq!(rows[..3], [(0, sp(0)), (8, record(-32, sp(32))), (40, sp(0))]);
    assert_eq!(rows[3].1.cfa, rule_kind::NONE);
}

#[test]
fn rules_of_the_cfa() {
    check(&[], sp(0));
    check(&[&def_cfa(SP, 48)], sp(48));
    check(&[&def_cfa(X29, 16)], Rule { cfa: rule_kind::FP, ..sp(16) });
    check(&[&def_cfa(X9, 8)], Rule { cfa: rule_kind::REGISTER, detail: X9, ..sp(8) });
    check_unsupported(&[&def_cfa(46, 16)], unsupported::CFA_REGISTER);
    check_unsupported(&[&def_cfa(SP, 1 << 31)], unsupported::OFFSET_RANGE);
    // sp + 16 + 16 × VG: a frame with scalable vectors.
    let scalable = [0x8f, 16, 0x92, 46, 0, 0x40, 0x1e, 0x22];
    check_unsupported(&[&def_cfa_expression(&scalable)], unsupported::CFA_EXPRESSION);
}

#[test]
fn rules_of_x29_and_the_return_address() {
    check(&[&def_cfa_offset(16), &offset(X30, 2)], Rule { ra: ra_kind::AT_CFA, addend: -16, ..sp(16) });
    check(&[&same_value(X30), &same_value(X29)], sp(0));
    check(&[&undefined(X29)], Rule { fp: fp_kind::UNDEFINED, ..sp(0) });
    check(&[&undefined(X30)], Rule { cfa: rule_kind::END, ..Rule::default() });
    check_unsupported(&[&in_register(X30, X9)], unsupported::RA_RULE);
    check_unsupported(&[&in_register(X29, X9)], unsupported::FP_RULE);
    check_unsupported(&[&expression(X29, &breg(7, 8))], unsupported::FP_RULE);
}

#[test]
fn a_signal_frame_is_one_rule() {
    let table = function("zRS", &[&def_cfa(X29, 0)]);
    assert_eq!(table.lookup(TEXT), Some(Rule { cfa: rule_kind::SIGNAL, ..Rule::default() }));
    assert_eq!(counted(&table, Count::SignalFrames), 1);
}

#[test]
fn nothing_is_derived_for_aarch64() {
    // A symbol without frame information: on x86-64, `ret` alone is a function that rows can be derived for.
    let elf = Elf { machine: Arch::Aarch64.elf_machine(), ..Elf::without_frames() };
    assert_eq!(elf.table(), Err(NoTable::NoFrames));
    assert!(crate::unwind_rows::derived::of_arch(Arch::Aarch64).is_none());
    let push_rbp = [0x55; 4096];
    let begins = |arch| crate::unwind_rows::derived::entries_of_generated_code(arch, &push_rbp, 0x1000).len();
    assert_eq!((begins(Arch::X86_64), begins(Arch::Aarch64)), (1, 0));
}
