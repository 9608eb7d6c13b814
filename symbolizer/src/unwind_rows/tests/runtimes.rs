//! Tests of functions about which runtimes know more than their FDEs say.

use super::*;
use crate::pclntab::tests::table as pclntab;

/// Pairs of a depth and the bytes over which it holds.
const DEPTHS: &[(i64, u32)] = &[(0, 16), (0x20, 0x40)];

/// Addresses of a program's table and of its linker's data of the module.
const TABLE: u64 = 0x2000;
const MODULE: u64 = 0x8000;

/// A Go program with these functions from [`TEXT`] on, 0x100 bytes each; its table's entries are relative to `text`.
fn program(text: u64, names: &[&'static str]) -> Elf {
    let functions: Vec<_> =
        names.iter().enumerate().map(|(at, name)| (at as u64 * 0x100, *name, DEPTHS)).collect();
    let mut elf = Elf::without_frames();
    elf.sections.push((".gopclntab", TABLE, 2, pclntab(0xffff_fff1, text, &functions)));
    elf
}

fn go(names: &[&'static str], debug_frame: &[(u64, u64, u64)]) -> UnwindTable {
    let mut elf = program(TEXT, names);
    if !debug_frame.is_empty() {
        let mut section = Section::debug();
        layout::add(&mut section, debug_frame);
        elf.sections.push((".debug_frame", 0, 0, section.bytes));
    }
    elf.table().unwrap()
}

fn kinds<const N: usize>(table: &UnwindTable, at: [u64; N]) -> [u8; N] {
    at.map(|at| kind_at(table, TEXT + at))
}

const NONE: u8 = rule_kind::NONE;
const SP: u8 = rule_kind::SP;
const END: u8 = rule_kind::END;
const SIGNAL: u8 = rule_kind::SIGNAL;

#[test]
fn stacks_of_go_end_where_its_traceback_ends() {
    let check = |name: &'static str, expect: u8| {
        let table = go(&["main.main", name], &[]);
        assert_eq!(kinds(&table, [0x110, 0x14f]), [expect; 2], "{name}");
    };
    check("runtime.goexit", END);
    check("runtime.goexit.abi0", END);
    check("runtime.mcall", END);
    check("runtime.systemstack.abi0", END);
    check("runtime.mstart.abi0", END);
    check("runtime.rt0_go.abi0", END);
    check("runtime.goexit1", SP);
    check("main.goexit", SP);
}

#[test]
fn signal_handlers_of_go_return_through_a_signal_frame() {
    let table = go(&["runtime.sigtramp", "runtime.sigreturn__sigaction.abi0", "main.main"], &[]);
    // The kernel's return address is the function itself, and the byte before it is looked up.
    assert_eq!(kinds(&table, [0xfe, 0xff, 0x100, 0x1ff, 0x200]), [NONE, SIGNAL, SIGNAL, SIGNAL, SP]);
}

#[test]
fn go_functions_have_rows_without_frame_descriptions() {
    let table = go(&["main.main"], &[]);
    let rule = |at: u64| table.lookup(TEXT + at).unwrap();
    assert_eq!(rule(0), rsp(8));
    assert_eq!(rule(16), Rule { fp: fp_kind::UNDEFINED, ..rsp(0x28) });
    assert_eq!(counted(&table, Count::GoRows), 2);
}

/// A function that saves its frame pointer (`push %rbp; mov %rsp,%rbp`), switches stacks (`mov 0x38(%rdx),%rsp`),
/// calls, and restores both (`mov 0x38(%rax),%rsp; pop %rbp; ret`).
const SWITCHES: &[u8] =
    &[0x55, 0x48, 0x89, 0xe5, 0x48, 0x8b, 0x62, 0x38, 0xff, 0xd7, 0x48, 0x8b, 0x60, 0x38, 0x5d, 0xc3];
/// Its depths.
const SWITCHES_DEPTHS: &[(i64, u32)] = &[(0, 1), (8, 14), (0, 1)];
/// `mov %rdx,%r14; mov (%rbx),%rsp; jmp *%rbx`.
const RESUMES: &[u8] = &[0x49, 0x89, 0xd6, 0x48, 0x8b, 0x23, 0xff, 0xe3];

/// Rules of a Go program with one function of this name and code.
fn with_code(name: &'static str, code: &[u8], depths: &'static [(i64, u32)]) -> impl Fn(u64) -> Rule {
    let mut elf = Elf::without_frames();
    elf.sections.push((".gopclntab", TABLE, 2, pclntab(0xffff_fff1, TEXT, &[(0, name, depths)])));
    elf.sections.push((".text", TEXT, 6, [code, &[0xcc; 0x1000][code.len()..]].concat()));
    let mut section = Section::debug();
    layout::add(&mut section, &[(0, 0x100, 800)]);
    elf.sections.push((".debug_frame", 0, 0, section.bytes));
    let table = elf.table().unwrap();
    move |at| table.lookup(TEXT + at).unwrap()
}

#[test]
fn frame_pointers_of_go_are_where_prologues_put_them() {
    let rule = with_code("main.main", SWITCHES, SWITCHES_DEPTHS);
    let saved = Rule { fp: fp_kind::AT_CFA, fp_offset: -16, ..rsp(16) };
    assert_eq!([0, 1, 4, 14, 15].map(rule), [rsp(8), saved, saved, saved, rsp(8)]);
}

#[test]
fn functions_of_go_that_change_stacks_are_followed() {
    let (fp, fp_offset) = (fp_kind::AT_CFA, -16);
    let switched = Rule { cfa: rule_kind::X86_SWITCHED, cfa_offset: 16, fp, fp_offset, ..Rule::default() };
    let saved = Rule { fp, fp_offset, ..rsp(16) };
    for name in ["runtime.systemstack.abi0", "runtime.nanotime1", "time.now", "runtime.cgocallback.abi0"] {
        let rule = with_code(name, SWITCHES, SWITCHES_DEPTHS);
        let expect = [rsp(8), saved, switched, switched, rsp(8)];
        assert_eq!([0, 1, 4, 14, 15].map(rule), expect, "{name}");
    }
    // A resumed goroutine has no caller.
    let rule = with_code("gogo", RESUMES, &[(0, 8)]);
    assert_eq!([0, 5, 6, 7].map(|at| rule(at).cfa), [SP, SP, END, END]);
}

#[test]
fn other_instructions_change_no_stacks() {
    let rule = with_code("runtime.systemstack", &SWITCHES[4..], &[(0, 12)]);
    assert_eq!([0, 8].map(|at| rule(at).cfa), [END; 2], "no frame, as before Go 1.21");
    let rule = with_code("runtime.nanotime1", &SWITCHES[4..], &[(0, 12)]);
    assert_eq!([0, 8].map(rule), [rsp(8); 2]);
    let rule = with_code("runtime.asmcgocall", SWITCHES, SWITCHES_DEPTHS);
    assert_eq!(rule(8).cfa, SP, "it leaves no goroutine");
}

/// The linker's data of a module with two functions, up to 0x1000: index and word.
const MODULE_DATA: [(usize, u64); 5] = [(0, TABLE), (17, 3), (20, TEXT), (21, TEXT + 0x1000), (22, TEXT)];

fn words_of(data: &[(usize, u64)]) -> Vec<u8> {
    let mut words = [0; 24];
    data.iter().for_each(|&(number, word)| words[number] = word);
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Relocations of words at an address: index, type, and addend of each.
fn relocations(address: u64, words: &[(usize, u64, u64)]) -> Vec<u8> {
    let relocation = |&(number, kind, addend)| [address + 8 * number as u64, kind, addend];
    words.iter().flat_map(relocation).flat_map(u64::to_le_bytes).collect()
}

#[test]
fn go_functions_count_from_the_text_of_their_module() {
    let check = |what: &str, data: &[(usize, u64)], expect: u8| {
        let mut elf = program(0, &["main.main", "runtime.goexit"]);
        elf.sections.push((".go.module", MODULE, 3, words_of(data)));
        let kinds = elf.table().map_or([NONE; 2], |table| kinds(&table, [0x100, 0x1ff]));
        assert_eq!(kinds, [expect; 2], "{what}");
    };
    check("all is said", &MODULE_DATA, END);
    check("nothing", &[], NONE);
    for (at, what) in
        ["another table", "more functions", "the first", "the last", "the text"].iter().enumerate()
    {
        let mut data = MODULE_DATA;
        data[at].1 += 8;
        check(what, &data, NONE);
    }
}

#[test]
fn the_text_of_go_may_stand_in_relocations() {
    const RELATIVE: u64 = 8;
    let check = |what: &str, address: u64, words: &[(usize, u64, u64)], expect: u8| {
        let mut elf = program(0, &["main.main", "runtime.goexit"]);
        // A count is not an address.
        elf.sections.push((".go.module", MODULE, 3, words_of(&MODULE_DATA[1..2])));
        elf.sections.push((".rela.dyn", 0x9000, 2, relocations(address, words)));
        let kinds = elf.table().map_or([NONE; 2], |table| kinds(&table, [0x100, 0x1ff]));
        assert_eq!(kinds, [expect; 2], "{what}");
    };
    let addresses = [MODULE_DATA[0], MODULE_DATA[2], MODULE_DATA[3], MODULE_DATA[4]]
        .map(|(at, word)| (at, RELATIVE, word));
    check("a module, since Go 1.26", MODULE, &addresses, END);
    check("only some of its words", MODULE, &addresses[..3], NONE);
    check("between its words", MODULE + 4, &addresses, NONE);
    check("the header of the table, before", TABLE, &[(3, RELATIVE, TEXT)], END);
    check("of another type", TABLE, &[(3, 1, TEXT)], NONE);
    check("of a symbol", TABLE, &[(3, 1 << 32 | RELATIVE, TEXT)], NONE);
    check("far away", u64::MAX - 64, &[(3, RELATIVE, TEXT)], NONE);
}

#[test]
fn a_table_among_other_data_is_found_by_its_relocation() {
    let check = |what: &str, info: &'static str, text: u64, address: u64, expect: u8| {
        let mut elf = program(text, &["main.main", "runtime.goexit"]);
        let (.., table) = elf.sections.remove(0);
        elf.sections.push((info, 0x1000, 3, vec![0; 32]));
        elf.sections.push((".data.rel.ro", TABLE - 0x40, 3, [vec![7; 0x40], table].concat()));
        elf.sections.push((".rela.dyn", 0x9000, 2, relocations(address, &[(3, 8, TEXT)])));
        let kinds = elf.table().map_or([NONE; 2], |table| kinds(&table, [0x100, 0x1ff]));
        assert_eq!(kinds, [expect; 2], "{what}");
    };
    check("a Go program", ".go.buildinfo", 0, TABLE, END);
    check("the linker wrote its text as well", ".go.buildinfo", TEXT, TABLE, END);
    check("of another place", ".go.buildinfo", 0, TABLE + 8, NONE);
    check("no Go program", ".buildinfo", 0, TABLE, NONE);
}

#[test]
fn frame_descriptions_go_before_rows_but_not_before_marks() {
    let table = go(&["main.main", "runtime.goexit"], &[(0, 0x100, 800), (0x100, 0x100, 808)]);
    assert_eq!(table.lookup(TEXT + 0x10), Some(rsp(800)));
    assert_eq!(kinds(&table, [0x100, 0x1ff]), [END; 2]);
    assert_eq!(counted(&table, Count::OutermostMarked), 1);
}

#[test]
fn a_greenlet_begins_where_its_library_starts_it() {
    let check = |name: &str, size: u64, expect: [u8; 4]| {
        let mut symbol = 1_u32.to_le_bytes().to_vec();
        symbol.extend([0x12, 0, 1, 0]);
        symbol.extend([TEXT + 0x40, size].iter().flat_map(|word| word.to_le_bytes()));
        let mut elf = Elf::of(layout::frames(&[(0, 0x200, 16)]));
        elf.sections.push((".dynsym", 0, 2, [vec![0; 24], symbol].concat()));
        elf.sections.push((".dynstr", 0, 2, [b"\0", name.as_bytes(), b"\0"].concat()));
        assert_eq!(kinds(&elf.table().unwrap(), [0x3f, 0x40, 0x7f, 0x80]), expect, "{name} {size}");
    };
    check("_ZN8greenlet12UserGreenlet15inner_bootstrapEP9_greenletP7_object", 0x40, [SP, END, END, SP]);
    check("_ZN8greenlet12UserGreenlet13g_initialstubEPv", 0x40, [SP; 4]);
    check("_ZN8greenlet12UserGreenlet15inner_bootstrapEv", 0, [SP; 4]);
}

#[test]
fn a_damaged_table_of_go_is_counted_and_gives_nothing() {
    let mut elf = Elf::of(layout::frames(&[(0, 0x200, 16)]));
    elf.sections.push((".gopclntab", 0x2000, 2, vec![0xf1, 0xff, 0xff, 0xff]));
    let table = elf.table().unwrap();
    assert_eq!(kinds(&table, [0]), [SP]);
    assert_eq!(counted(&table, Count::UnreadableSections), 1);
}
