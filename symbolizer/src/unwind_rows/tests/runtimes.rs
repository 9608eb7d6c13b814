//! Functions that runtimes know more of than their frame descriptions say.

use super::*;
use crate::pclntab::tests::table as pclntab;

/// Pairs of a depth and the bytes for which it holds.
const DEPTHS: &[(i64, u32)] = &[(0, 16), (0x20, 0x40)];

/// Where a program has its table, and its linker's data of the module.
const TABLE: u64 = 0x2000;
const MODULE: u64 = 0x8000;

/// A Go program with these functions from [`TEXT`] on, 0x100 bytes each; its table says that they count from `text`.
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

/// The linker's data of a module with two functions, of which the last one ends at 0x1000: place and word.
const MODULE_DATA: [(usize, u64); 5] = [(0, TABLE), (17, 3), (20, TEXT), (21, TEXT + 0x1000), (22, TEXT)];

fn words_of(data: &[(usize, u64)]) -> Vec<u8> {
    let mut words = [0; 24];
    data.iter().for_each(|&(number, word)| words[number] = word);
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Relocations of words at an address: which of them, type, what the loader adds to the place of the file.
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
        // A count is no address.
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
