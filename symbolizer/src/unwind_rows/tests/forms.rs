//! Tests of each form of a call frame program and its rule.

use deepctx_common::unwind::{Rule, fp_kind, ra_kind, rule_kind, unsupported};

use super::cfi::{self, *};
use super::{Count, Elf, Section, TEXT, counted, kind_at, rbp_frame, rsp};
use crate::unwind_rows::UnwindTable;

/// The table of one function of 256 bytes at [`TEXT`].
fn function(instructions: &[&[u8]]) -> UnwindTable {
    let mut section = Section::default();
    let cie = section.cie("zR", &initial());
    section.fde(cie, TEXT, 256, &instructions.concat());
    Elf::of(section).table().unwrap()
}

/// The rule of a function with one row.
#[track_caller]
fn check(instructions: &[&[u8]], expect: Rule) {
    assert_eq!(function(instructions).lookup(TEXT + 255), Some(expect));
}

#[track_caller]
fn check_unsupported(instructions: &[&[u8]], reason: u8) {
    let found = function(instructions).lookup(TEXT + 255).unwrap();
    assert_eq!((found.cfa, found.detail), (rule_kind::UNSUPPORTED, reason), "{found:?}");
}

#[test]
fn a_prologue_gives_a_row_per_change() {
    let table = function(&[
        &advance(1),
        &def_cfa_offset(16),
        &offset(RBP, 2),
        &advance(3),
        &def_cfa_register(RBP),
        // Other registers are not tracked: no row.
        &advance(2),
        &offset(RBX, 3),
        &advance(200),
        &def_cfa(RSP, 8),
        &restore(RBP),
    ]);
    let pushed = Rule { fp: fp_kind::AT_CFA, fp_offset: -16, ..rsp(16) };
    let rows: Vec<_> = table.rows().map(|(address, rule)| (address, *rule)).collect();
    let none = Rule::default();
    let expect = [(0, rsp(8)), (1, pushed), (4, rbp_frame()), (206, rsp(8)), (256, none)];
    assert_eq!(rows, expect.map(|(at, rule)| (TEXT + at, rule)));
}

#[test]
fn the_base_of_the_cfa_may_be_any_general_register() {
    let based = |cfa, detail| Rule { cfa, detail, cfa_offset: 24, ..Rule::default() };
    for (register, kind, detail) in [
        (RSP, rule_kind::SP, 0),
        (RBP, rule_kind::FP, 0),
        (R10, rule_kind::X86_R10, 0),
        (13, rule_kind::X86_R13, 0),
        (RBX, rule_kind::X86_RBX, 0),
        (0, rule_kind::REGISTER, 0),
        (12, rule_kind::REGISTER, 12),
        (15, rule_kind::REGISTER, 15),
    ] {
        check(&[&def_cfa(register, 24)], based(kind, detail));
        check(&[&def_cfa_expression(&breg(register, 24))], based(kind, detail));
    }
    check_unsupported(&[&def_cfa(17, 24)], unsupported::CFA_REGISTER);
}

#[test]
fn half_a_cfa_definition_is_unsupported() {
    for half in [def_cfa_offset(16), def_cfa_register(RSP)] {
        let mut section = Section::default();
        let cie = section.cie("zR", &offset(RA, 1));
        section.fde(cie, TEXT, 64, &half);
        let found = Elf::of(section).table().unwrap().lookup(TEXT).unwrap();
        assert_eq!((found.cfa, found.detail), (rule_kind::UNSUPPORTED, unsupported::CFA_EXPRESSION));
    }
}

#[test]
fn offsets_have_32_bits() {
    check(&[&def_cfa_offset(540_128)], rsp(540_128));
    check(&[&def_cfa_offset(0x7fff_ffff)], rsp(0x7fff_ffff));
    check_unsupported(&[&def_cfa_offset(0x8000_0000)], unsupported::OFFSET_RANGE);
    check_unsupported(&[&def_cfa_offset(u64::MAX)], unsupported::CFA_EXPRESSION);
    check_unsupported(&[&offset(RBP, 1 << 40)], unsupported::OFFSET_RANGE);
    check_unsupported(&[&offset(RBP, u64::MAX)], unsupported::FP_RULE);
}

#[test]
fn a_realigned_stack_has_cfa_and_rbp_in_memory() {
    let at = |cfa, offset, addend| Rule {
        cfa,
        cfa_offset: offset,
        addend,
        fp: fp_kind::X86_AT_FP,
        ..Rule::default()
    };
    let rbp_saved = expression(RBP, &breg(RBP, 0));
    let deref = |register, offset, rest: &[u8]| {
        def_cfa_expression(&[&breg(register, offset), &DEREF[..], rest].concat())
    };
    check(&[&rbp_saved, &deref(RBP, -40, &[])], at(rule_kind::X86_FP_DEREF, -40, 0));
    check(&[&rbp_saved, &deref(RSP, 152, &plus_uconst(8))], at(rule_kind::X86_SP_DEREF, 152, 8));
    // lit8 plus; lit8 minus; consts -16 plus.
    check(&[&rbp_saved, &deref(RSP, 0, &[0x38, 0x22])], at(rule_kind::X86_SP_DEREF, 0, 8));
    check(&[&rbp_saved, &deref(RSP, 0, &[0x38, 0x1c])], at(rule_kind::X86_SP_DEREF, 0, -8));
    check(&[&rbp_saved, &deref(RBP, 8, &[0x11, 0x70, 0x22])], at(rule_kind::X86_FP_DEREF, 8, -16));
    check_unsupported(&[&deref(RBX, 0, &[])], unsupported::CFA_EXPRESSION);
    // Twice loaded.
    check_unsupported(&[&deref(RSP, 0, &DEREF)], unsupported::CFA_EXPRESSION);
}

#[test]
fn a_compiled_realigning_function_is_fully_supported() {
    let directory = tempfile::tempdir().unwrap();
    let [source, object] = ["f.c", "f.so"].map(|name| directory.path().join(name));
    let text = "void g(void *);\n\
                void f(int n) { float a[64] __attribute__((aligned(64))); char *b = __builtin_alloca(n); \
                for (int i = 0; i < 64; i++) a[i] = n * i; g(a); g(b); }";
    std::fs::write(&source, text).unwrap();
    let compiled = std::process::Command::new("gcc")
        .args(["-O2", "-mavx", "-shared", "-fPIC", "-fno-omit-frame-pointer", "-o"])
        .args([&object, &source])
        .output();
    if !compiled.is_ok_and(|output| output.status.success()) {
        assert!(std::env::var_os("CI").is_none_or(|value| value != "true"), "needs gcc");
        return println!("skipped: needs gcc");
    }
    let table = UnwindTable::from_elf(&std::fs::read(&object).unwrap()).unwrap();
    let forms = table.forms();
    assert_eq!(forms.cfa[usize::from(rule_kind::UNSUPPORTED)], 0, "{forms:?}");
    assert!(forms.cfa[usize::from(rule_kind::X86_FP_DEREF)] > 0, "{forms:?}");
    assert!(forms.cfa[usize::from(rule_kind::X86_R10)] > 0, "{forms:?}");
    assert!(forms.fp[usize::from(fp_kind::X86_AT_FP)] > 0, "{forms:?}");
}

#[test]
fn a_plt_entry_keeps_its_threshold() {
    for threshold in [10, 11] {
        let rule = Rule { cfa: rule_kind::X86_PLT, detail: threshold, ..Rule::default() };
        check(&[&def_cfa_expression(&plt(threshold))], rule);
    }
    // `gt` in place of `ge`.
    let other: Vec<u8> = plt(11).iter().map(|&byte| if byte == 0x2a { 0x2b } else { byte }).collect();
    check_unsupported(&[&def_cfa_expression(&other)], unsupported::CFA_EXPRESSION);
}

#[test]
fn signal_frame_is_one_rule_including_the_preceding_byte() {
    let mut section = Section::default();
    let cie = section.cie("zRS", &initial());
    let strange = [def_cfa_expression(&[0x96]), advance(4), undefined(RA)].concat();
    section.fde(cie, TEXT + 15, 10, &strange);
    let table = Elf::of(section).table().unwrap();
    let kinds = [14, 15, 16, 24, 25].map(|at| kind_at(&table, TEXT + at));
    assert_eq!(
        kinds,
        [rule_kind::NONE, rule_kind::SIGNAL, rule_kind::SIGNAL, rule_kind::SIGNAL, rule_kind::NONE]
    );
    assert_eq!(counted(&table, Count::SignalFrames), 1);
}

#[test]
fn a_signal_frame_may_begin_one_byte_before_the_text() {
    let mut section = Section::default();
    let cie = section.cie("zRS", &initial());
    section.fde(cie, TEXT - 1, 10, &[]);
    let table = Elf::of(section).table().unwrap();
    assert_eq!(kind_at(&table, TEXT - 1), rule_kind::SIGNAL);
    assert_eq!(kind_at(&table, TEXT + 8), rule_kind::SIGNAL);
}

#[test]
fn vfork_keeps_the_return_address_in_a_register() {
    let pop = [advance(1), def_cfa_offset(0), in_register(RA, RDI)].concat();
    check(&[&pop], Rule { ra: ra_kind::X86_IN_RDI, ..rsp(0) });
    check(&[&pop, &advance(8), &def_cfa_offset(8), &offset(RA, 1)], rsp(8));
    check_unsupported(&[&in_register(RA, 1)], unsupported::RA_RULE);
}

#[test]
fn an_undefined_return_address_ends_the_stack() {
    let end = Rule { cfa: rule_kind::END, ..Rule::default() };
    check(&[&undefined(RA)], end);
    check(&[&undefined(RA), &def_cfa_expression(&[0x96])], end);
}

#[test]
fn rules_of_the_frame_pointer() {
    check(&[&offset(RBP, 2)], Rule { fp: fp_kind::AT_CFA, fp_offset: -16, ..rsp(8) });
    check(&[&offset(RBP, 2), &same_value(RBP)], rsp(8));
    check(&[&offset(RBP, 2), &restore(RBP)], rsp(8));
    check(&[&undefined(RBP)], Rule { fp: fp_kind::UNDEFINED, ..rsp(8) });
    check(&[&expression(RBP, &breg(RBP, -8))], Rule { fp: fp_kind::X86_AT_FP, fp_offset: -8, ..rsp(8) });
    check(&[&expression(RBP, &breg(RSP, 120))], Rule { fp: fp_kind::X86_AT_SP, fp_offset: 120, ..rsp(8) });
    // The expression starts with the CFA on its stack: lit16 minus.
    check(&[&expression(RBP, &[0x40, 0x1c])], Rule { fp: fp_kind::AT_CFA, fp_offset: -16, ..rsp(8) });
    check_unsupported(&[&in_register(RBP, 9)], unsupported::FP_RULE);
    check_unsupported(&[&expression(RBP, &breg(RBX, 0))], unsupported::FP_RULE);
    // Value, not place: `DW_CFA_val_offset`.
    check_unsupported(&[&[0x14, RBP, 2]], unsupported::FP_RULE);
}

#[test]
fn a_remembered_state_is_restored() {
    let table = function(&[
        &def_cfa(RBP, 16),
        &offset(RBP, 2),
        &REMEMBER,
        &advance(10),
        &def_cfa(RSP, 8),
        &restore(RBP),
        &advance(1),
        &RESTORE_STATE,
        // The base register is restored too.
        &advance(10),
        &def_cfa_offset(32),
    ]);
    let rules = [0, 10, 11, 21].map(|at| table.lookup(TEXT + at).unwrap());
    assert_eq!(rules, [rbp_frame(), rsp(8), rbp_frame(), Rule { cfa_offset: 32, ..rbp_frame() }]);
}

#[test]
fn restore_uses_the_initial_instructions() {
    let mut section = Section::default();
    let cie = section.cie("zR", &[initial(), offset(RBP, 2)].concat());
    section.fde(cie, TEXT, 64, &[same_value(RBP), advance(8), restore(RBP)].concat());
    let table = Elf::of(section).table().unwrap();
    let saved = Rule { fp: fp_kind::AT_CFA, fp_offset: -16, ..rsp(8) };
    assert_eq!([table.lookup(TEXT), table.lookup(TEXT + 8)], [Some(rsp(8)), Some(saved)]);
}

#[test]
fn signed_factored_offsets_are_supported() {
    // DW_CFA_def_cfa_sf, DW_CFA_def_cfa_offset_sf, DW_CFA_offset_extended_sf; the factor is -8.
    check(&[&[0x12, RSP], &sleb(-3)], rsp(24));
    check(&[&[0x13], &sleb(-4)], rsp(32));
    check(&[&[0x11, RBP], &sleb(2)], Rule { fp: fp_kind::AT_CFA, fp_offset: -16, ..rsp(8) });
    // An expression, then a new offset: the base register from before the expression holds.
    check(
        &[&def_cfa(RBP, 16), &def_cfa_expression(&breg(RSP, 8)), &def_cfa_offset(48)],
        Rule { cfa: rule_kind::FP, ..rsp(48) },
    );
}

#[test]
fn pointer_encodings_relative_and_absolute() {
    let rel = |to: u64, from: u64| (to as i64 - from as i64) as i32;
    // pcrel sdata4 (what compilers write), datarel sdata4 (from .got), textrel udata4, absolute udata4.
    for (encoding, base) in [(0x1b, None), (0x3b, Some(0x7000)), (0x23, Some(TEXT)), (0x03, Some(0))] {
        let mut section = Section::default();
        let cie = section.cie_encoded("zR", encoding, &initial());
        let here = 0x1000 + section.bytes.len() as u64 + 8;
        let begin = rel(TEXT + 64, base.unwrap_or(here));
        section.fde_encoded(cie, &[begin.to_le_bytes(), 32u32.to_le_bytes()].concat(), &[]);
        let mut elf = Elf::of(section);
        elf.sections.push((".text", TEXT, 6, Vec::new()));
        elf.sections.push((".got", 0x7000, 3, Vec::new()));
        let table = elf.table();
        // gimli takes datarel to mean .got only for .eh_frame, as here.
        let table = table.unwrap_or_else(|reason| panic!("{encoding:#x}: {reason}"));
        assert_eq!(table.lookup(TEXT + 64), Some(rsp(8)), "{encoding:#x}");
    }
}

#[test]
fn a_program_is_unsupported_from_its_first_bad_instruction() {
    let bad = 0x3d;
    let table = function(&[&advance(8), &def_cfa_offset(16), &advance(8), &[bad], &advance(8)]);
    let rules = [0, 8, 16, 255].map(|at| {
        let rule = table.lookup(TEXT + at).unwrap();
        (rule.cfa, rule.detail)
    });
    let damaged = (rule_kind::UNSUPPORTED, unsupported::BAD_PROGRAM);
    assert_eq!(rules, [(rule_kind::SP, 0), (rule_kind::SP, 0), damaged, damaged]);
    assert_eq!(table.forms().unsupported[usize::from(unsupported::BAD_PROGRAM)], 1);
    let bad_program = |instructions: &[&[u8]]| check_unsupported(instructions, unsupported::BAD_PROGRAM);
    bad_program(&[&RESTORE_STATE]);
    bad_program(&[&cfi::REMEMBER.repeat(1000)]);
    // DW_CFA_set_loc backwards.
    bad_program(&[&advance(8), &[0x01], &TEXT.to_le_bytes(), &def_cfa_offset(64)]);
}
