//! Functions that runtimes know more of than their frame descriptions say.

use super::*;
use crate::pclntab::tests::table as pclntab;

/// Pairs of a depth and the bytes for which it holds.
const DEPTHS: &[(i64, u32)] = &[(0, 16), (0x20, 0x40)];

/// A Go program with these functions from [`TEXT`] on, 0x100 bytes each.
fn go(names: &[&'static str], debug_frame: &[(u64, u64, u64)]) -> UnwindTable {
    let functions: Vec<_> =
        names.iter().enumerate().map(|(at, name)| (at as u64 * 0x100, *name, DEPTHS)).collect();
    let mut elf = Elf::without_frames();
    elf.sections.push((".gopclntab", 0x2000, 2, pclntab(0xffff_fff1, TEXT, &functions)));
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
