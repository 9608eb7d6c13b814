//! Tests with corrupt and forged input: never a panic, never unbounded, always a reason or a counter.

use deepctx_address_space::Arch;
use deepctx_common::unwind::rule_kind;
use proptest::prelude::*;

use super::cfi::*;
use super::{Count, Elf, Section, TEXT, counted, kind_at, rsp};
use crate::unwind_rows::{Limits, NoTable, UnwindTable};

fn two_frames() -> Section {
    let mut section = Section::default();
    let cie = section.cie("zR", &initial());
    section.fde(cie, TEXT, 64, &[advance(4), def_cfa_offset(16), offset(RBP, 2)].concat());
    section.fde(cie, TEXT + 64, 64, &[advance(4), def_cfa_expression(&breg(RSP, 8))].concat());
    section
}

#[test]
fn files_of_other_kinds_have_a_reason() {
    let elf = Elf::of(two_frames());
    let check = |bytes: &[u8], reason| assert_eq!(UnwindTable::from_elf(bytes), Err(reason));
    check(b"", NoTable::NotElf);
    check(b"#!/bin/sh\n", NoTable::NotElf);
    check(&[0; 4096], NoTable::NotElf);
    check(&elf.bytes()[..63], NoTable::NotElf);
    check(&Elf { machine: 40, ..elf.clone() }.bytes(), NoTable::UnknownMachine);
    let (here, there) = match Arch::NATIVE {
        Arch::X86_64 => (Arch::X86_64, Arch::Aarch64),
        Arch::Aarch64 => (Arch::Aarch64, Arch::X86_64),
    };
    let other = Elf { machine: there.elf_machine(), ..elf.clone() }.bytes();
    check(&other, NoTable::OtherMachine { found: there, wanted: here });
    assert!(UnwindTable::from_elf_for(&other, there).is_ok());
    check(&Elf { texts: Vec::new(), ..elf }.bytes(), NoTable::NoText);
    check(&Elf::without_frames().bytes(), NoTable::NoFrames);
}

#[test]
fn a_truncated_section_gives_the_frames_before_the_end() {
    let whole = two_frames().bytes;
    let second = whole.len() - 40;
    for cut in 0..whole.len() {
        let section = Section { bytes: whole[..cut].to_vec(), ..Section::default() };
        match Elf::of(section).table() {
            Ok(table) => {
                assert!(cut > second / 2, "{cut}");
                assert_eq!(table.lookup(TEXT), Some(rsp(8)));
                assert!(counted(&table, Count::TruncatedSections) <= 1);
            }
            Err(reason) => assert_eq!(reason, NoTable::NoFrames, "{cut}"),
        }
    }
}

#[test]
fn a_truncated_file_is_no_panic() {
    let bytes = Elf::of(two_frames()).bytes();
    for cut in 0..bytes.len() {
        let _ = UnwindTable::from_elf(&bytes[..cut]);
    }
}

#[test]
fn an_entry_longer_than_the_section_ends_it() {
    let mut section = two_frames();
    section.bytes.extend([0xf0, 0xff, 0xff, 0x7f, 0, 0, 0, 0, 1]);
    let table = Elf::of(section).table().unwrap();
    assert_eq!(counted(&table, Count::TruncatedSections), 1);
    assert_eq!(counted(&table, Count::Frames), 2);
    // The same with a 64-bit length.
    let mut section = two_frames();
    section.bytes.extend([0xff; 16]);
    assert_eq!(counted(&Elf::of(section).table().unwrap(), Count::TruncatedSections), 1);
}

#[test]
fn frames_of_huge_extent_cost_no_more_than_their_bytes() {
    // One frame that claims the whole address space, and steps of 4 GiB.
    let steps = [advance(u32::MAX), def_cfa_offset(16), advance(u32::MAX), def_cfa_offset(24)].concat();
    let mut section = Section::default();
    let cie = section.cie("zR", &initial());
    section.fde(cie, TEXT, u64::MAX - TEXT, &steps.repeat(100));
    let mut elf = Elf::of(section);
    let table = elf.table().unwrap();
    assert_eq!(table.pages().len(), (64 << 20) >> 16, "cut at the end of the text");
    assert_eq!(counted(&table, Count::FrameRows), 1);
    // With a text as large as it claims, there are too many pages.
    elf.texts = vec![(TEXT, 1 << 46)];
    assert_eq!(elf.table(), Err(NoTable::TooManyPages(Limits::default().pages)));
    // Two small frames far apart.
    let mut section = Section::default();
    let cie = section.cie("zR", &initial());
    section.fde(cie, TEXT, 64, &[]);
    section.fde(cie, TEXT + (1 << 45), 64, &[]);
    let elf = Elf { texts: vec![(TEXT, 1 << 46)], ..Elf::of(section) };
    assert_eq!(elf.table(), Err(NoTable::TooManyPages(Limits::default().pages)));
}

#[test]
fn each_limit_has_its_reason() {
    let rows = |count: u32| {
        let mut section = Section::default();
        let cie = section.cie("zR", &initial());
        let program: Vec<u8> =
            (0..count).flat_map(|at| [def_cfa_offset(16 + u64::from(at) * 8), advance(1)].concat()).collect();
        section.fde(cie, TEXT, 1 << 20, &program);
        Elf::of(section).bytes()
    };
    let bytes = rows(100);
    let limits = Limits::default();
    let check =
        |limits: Limits, reason| assert_eq!(UnwindTable::from_elf_within(&bytes, &limits), Err(reason));
    check(Limits { rows: 50, ..limits }, NoTable::TooManyRows(50));
    check(Limits { rows: 100, ..limits }, NoTable::TooManyRows(100));
    check(Limits { rules: 50, ..limits }, NoTable::TooManyRules(50));
    check(Limits { pages: 1, ..limits }, NoTable::TooManyPages(1));
    check(Limits { frames: 0, ..limits }, NoTable::TooManyFrames(0));
    check(Limits { section_bytes: 100, ..limits }, NoTable::SectionTooLarge(100));
    let enough = Limits { rows: 200, rules: 102, pages: 17, frames: 1, section_bytes: 1000 };
    assert!(UnwindTable::from_elf_within(&bytes, &enough).is_ok());
    // A row has 16 bits for its rule.
    let too_many = UnwindTable::from_elf(&rows(70_000));
    assert_eq!(too_many, Err(NoTable::TooManyRules(65_535)));
}

#[test]
fn a_section_with_a_huge_decompressed_size_is_refused() {
    let stated = |size: u64| [1, size, 8].map(u64::to_le_bytes).concat();
    let mut elf = Elf::without_frames();
    elf.sections.push((".debug_frame", 0, 0x800, stated(1 << 40)));
    assert_eq!(elf.table(), Err(NoTable::SectionTooLarge(Limits::default().section_bytes)));
    // Less data than stated, and data that cannot be decompressed.
    elf.sections[0].3 = stated(1 << 20);
    assert_eq!(elf.table(), Err(NoTable::NoFrames));
}

#[test]
fn frames_outside_the_text_are_only_counted() {
    let mut section = Section::default();
    let cie = section.cie("zR", &initial());
    for begin in [0, 1, 0x1000, TEXT - 64, TEXT + (64 << 20), u64::MAX - 8] {
        section.fde(cie, begin, 128, &[]);
    }
    section.fde(cie, TEXT, 64, &[]);
    section.fde(cie, TEXT + 64, 0, &[]);
    // Cut at the end of the text.
    section.fde(cie, TEXT + (64 << 20) - 16, 128, &[]);
    let table = Elf::of(section).table().unwrap();
    assert_eq!(counted(&table, Count::OutsideText), 6);
    assert_eq!(counted(&table, Count::EmptyFrames), 1);
    assert_eq!(counted(&table, Count::Frames), 2);
    assert_eq!(kind_at(&table, TEXT + (64 << 20) - 1), rule_kind::SP);
    assert_eq!(kind_at(&table, TEXT + (64 << 20)), rule_kind::NONE);
}

#[test]
fn frames_of_an_unreadable_cie_are_counted() {
    let mut section = Section::default();
    let mut at = TEXT;
    for augmentation in ["zX", "eh", "S\u{7f}", "zRRRRRR"] {
        let cie = section.cie(augmentation, &initial());
        at += 256;
        section.fde(cie, at, 64, &[]);
    }
    // Indirect pointers, an unknown encoding.
    for encoding in [0x80, 0x9b, 0x0d, 0xff] {
        let cie = section.cie_encoded("zR", encoding, &initial());
        at += 256;
        section.fde(cie, at, 64, &[]);
    }
    // A CIE that is an FDE.
    let fde = section.bytes.len() - 32;
    section.fde(fde, at + 256, 64, &[]);
    let good = section.cie("zR", &initial());
    section.fde(good, TEXT, 64, &[]);
    let table = Elf::of(section).table().unwrap();
    assert_eq!(table.lookup(TEXT), Some(rsp(8)));
    let kinds: Vec<u8> = (1..=9).map(|at| kind_at(&table, TEXT + at * 256)).collect();
    assert_eq!(kinds, [rule_kind::NONE; 9]);
    assert_eq!(counted(&table, Count::Frames), 1);
    assert_eq!(counted(&table, Count::BadFrames), 9);
}

#[test]
fn invalid_initial_instructions_make_frames_unsupported() {
    for instructions in [[initial(), advance(1)].concat(), [initial(), REMEMBER.repeat(70)].concat(), {
        let mut long = initial();
        long.resize(10_000, 0);
        long
    }] {
        let mut section = Section::default();
        let cie = section.cie("zR", &instructions);
        section.fde(cie, TEXT, 64, &[]);
        let table = Elf::of(section).table().unwrap();
        assert_eq!(kind_at(&table, TEXT), rule_kind::UNSUPPORTED);
    }
}

#[test]
fn thousands_of_nested_frames_stay_linear() {
    let mut section = Section::default();
    let cie = section.cie("zR", &initial());
    let program: Vec<u8> =
        (0..1000u64).flat_map(|at| [def_cfa_offset(16 + at % 8 * 8), advance(60)].concat()).collect();
    for at in 0..20_000 {
        let program = if at % 100 == 0 { &program[..] } else { &[] };
        section.fde(cie, TEXT + at, 60_000 - 2 * at, program);
    }
    let table = Elf::of(section).table().unwrap();
    assert_eq!(counted(&table, Count::Overlapping), 19_999);
    assert!(counted(&table, Count::Rows) <= counted(&table, Count::FrameRows) + 40_000);
}

#[test]
fn very_many_symbols_of_one_address_stay_linear() {
    // A function without a size at the beginning of the text.
    let mut symbol = [0; 24];
    (symbol[4], symbol[6]) = (2, 1);
    symbol[8..16].copy_from_slice(&TEXT.to_le_bytes());
    let mut elf = Elf::without_frames();
    elf.sections.extend([(".dynsym", 0, 2, symbol.repeat(400_000)), (".dynstr", 0, 2, vec![0; 16])]);
    // Comparing each symbol with all behind it would take many minutes.
    assert_eq!(elf.table(), Err(NoTable::NoFrames));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn random_changes_are_no_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)
    ) {
        let mut bytes = Elf::of(two_frames()).bytes();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(table) = UnwindTable::from_elf(&bytes) {
            for (address, rule) in table.rows() {
                prop_assert_eq!(table.lookup(address), Some(*rule));
            }
        }
    }

    #[test]
    fn programs_of_random_bytes_are_no_panic(program in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut section = Section::default();
        let cie = section.cie("zR", &initial());
        section.fde(cie, TEXT, 1 << 18, &program);
        let table = Elf::of(section).table().unwrap();
        prop_assert!(table.lookup(TEXT).is_some());
        prop_assert!(table.lookup(TEXT + (1 << 18) - 1).is_some());
    }
}
