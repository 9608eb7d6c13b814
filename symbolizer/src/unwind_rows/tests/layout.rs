//! Tests of overlapping frames, and of the layout of rows in pages and blocks.

use deepctx_common::unwind::{PAGE_SHIFT, ROWS_PER_BLOCK, Rule, row, rule_kind};
use object::elf::{PT_DYNAMIC, PT_LOAD};
use proptest::prelude::*;

use super::cfi::*;
use super::{Count, Elf, Section, TEXT, counted, kind_at, rsp};
use crate::unwind_rows::{ENTRY_BYTES, PADDING_MAX, UnwindTable};

/// A section of frames: start (from [`TEXT`]), length, offset of the CFA.
pub(super) fn frames(frames: &[(u64, u64, u64)]) -> Section {
    let mut section = Section::default();
    add(&mut section, frames);
    section
}

pub(super) fn add(section: &mut Section, frames: &[(u64, u64, u64)]) {
    let cie = section.cie(if section.is_debug { "" } else { "zR" }, &initial());
    for &(begin, length, offset) in frames {
        section.fde(cie, TEXT + begin, length, &def_cfa_offset(offset));
    }
}

fn table(list: &[(u64, u64, u64)]) -> UnwindTable {
    Elf::of(frames(list)).table().unwrap()
}

/// Offsets of the CFA at addresses from [`TEXT`]; 0 where there is no frame.
fn offsets<const N: usize>(table: &UnwindTable, at: [u64; N]) -> [i32; N] {
    at.map(|at| table.lookup(TEXT + at).map_or(0, |rule| rule.cfa_offset))
}

#[test]
fn terminators_in_the_middle_are_skipped() {
    let mut section = Section::default();
    section.terminator();
    add(&mut section, &[(0, 64, 8)]);
    section.terminator();
    section.terminator();
    add(&mut section, &[(64, 64, 16)]);
    section.terminator();
    add(&mut section, &[(128, 64, 24)]);
    section.terminator();
    let table = Elf::of(section).table().unwrap();
    assert_eq!(offsets(&table, [0, 64, 128]), [8, 16, 24]);
    assert_eq!(counted(&table, Count::Terminators), 5);
}

#[test]
fn frames_in_any_order_are_sorted() {
    let table = table(&[(128, 64, 24), (0, 64, 8), (64, 64, 16)]);
    assert_eq!(offsets(&table, [0, 63, 64, 127, 128, 191, 192]), [8, 8, 16, 16, 24, 24, 0]);
    assert_eq!(counted(&table, Count::Overlapping), 0);
}

#[test]
fn of_overlapping_frames_the_last_start_holds() {
    let check = |list: &[(u64, u64, u64)], expect: [i32; 5], overlaps| {
        let mut reversed = list.to_vec();
        reversed.reverse();
        let table = table(list);
        assert_eq!(offsets(&table, [0, 40, 100, 150, 250]), expect, "{list:?}");
        assert_eq!(counted(&table, Count::Overlapping), overlaps, "{list:?}");
    };
    // Nested: the outer one applies again after the inner one.
    check(&[(0, 200, 8), (100, 50, 16)], [8, 8, 16, 8, 0], 1);
    check(&[(100, 50, 16), (0, 200, 8)], [8, 8, 16, 8, 0], 1);
    // Staggered.
    check(&[(0, 120, 8), (100, 180, 16)], [8, 8, 16, 16, 16], 1);
    // The same begin: the shorter one.
    check(&[(0, 200, 8), (0, 100, 16)], [16, 16, 8, 8, 0], 1);
    // Equal: the first in the file.
    check(&[(0, 200, 16), (0, 200, 8)], [16, 16, 16, 16, 0], 1);
    // Deeper, with two ends at the same place.
    check(&[(0, 300, 8), (40, 200, 16), (100, 50, 24)], [8, 16, 24, 16, 8], 2);
}

#[test]
fn an_outer_frame_resumes_with_its_current_row() {
    let mut section = Section::default();
    let cie = section.cie("zR", &initial());
    let rows =
        [def_cfa_offset(16), advance(50), def_cfa_offset(24), advance(100), def_cfa_offset(32)].concat();
    section.fde(cie, TEXT, 200, &rows);
    section.fde(cie, TEXT + 40, 60, &def_cfa_offset(128));
    let table = Elf::of(section).table().unwrap();
    assert_eq!(offsets(&table, [39, 40, 99, 100, 149, 150]), [16, 128, 128, 24, 24, 32]);
}

#[test]
fn padding_belongs_to_the_frame_before_it() {
    for gap in [0, 1, PADDING_MAX] {
        let table = table(&[(0, 64, 16), (64 + gap, 64, 16)]);
        assert_eq!(offsets(&table, [63, 64 + gap / 2, 64 + gap]), [16; 3], "{gap}");
        assert_eq!(counted(&table, Count::Rows), 2, "{gap}: one row, and the end");
    }
    let gap = PADDING_MAX + 1;
    let table = table(&[(0, 64, 16), (64 + gap, 64, 16)]);
    assert_eq!(offsets(&table, [63, 64, 63 + gap, 64 + gap]), [16, 0, 0, 16]);
    assert_eq!(kind_at(&table, TEXT + 64), rule_kind::NONE);
}

#[test]
fn a_page_starts_with_a_copy_of_the_current_row() {
    let page = 1 << PAGE_SHIFT;
    // One function over three pages and a bit, a hole of two pages, another function in the middle of a page.
    let table = table(&[(0x100, 3 * page, 16), (6 * page + 0x200, 0x100, 24)]);
    let rows: Vec<_> = table.rows().map(|(address, rule)| (address - TEXT, rule.cfa_offset)).collect();
    let expect = [
        (0, 0),
        (0x100, 16),
        (page, 16),
        (2 * page, 16),
        (3 * page, 16),
        (3 * page + 0x100, 0),
        (6 * page, 0),
        (6 * page + 0x200, 24),
        (6 * page + 0x300, 0),
    ];
    assert_eq!(rows, expect);
    let blocks: Vec<usize> = table.page_blocks().map(<[_]>::len).collect();
    assert_eq!(blocks, [1, 1, 1, 1, 0, 0, 1], "pages without rows take no blocks");
    assert_eq!(u64::from(table.first_page()), TEXT >> PAGE_SHIFT);
}

#[test]
fn a_row_at_a_page_boundary_needs_no_copy() {
    let page = 1 << PAGE_SHIFT;
    let table = table(&[(0, page, 16), (page, page, 24)]);
    let rows: Vec<_> = table.rows().map(|(address, rule)| (address - TEXT, rule.cfa_offset)).collect();
    assert_eq!(rows, [(0, 16), (page, 24)], "and the end falls together with the end of the last page");
    assert_eq!(table.pages().len(), 2);
    assert_eq!(offsets(&table, [page - 1, page, 2 * page]), [16, 24, 0]);
}

#[test]
fn a_page_with_a_row_per_byte_fits_its_blocks() {
    let length = 1u64 << PAGE_SHIFT;
    let rows: Vec<u8> =
        (0..length).flat_map(|at| [def_cfa_offset(8 + at % 2 * 8), advance(1)].concat()).collect();
    let mut section = Section::default();
    let cie = section.cie("zR", &initial());
    section.fde(cie, TEXT, length, &rows);
    let table = Elf::of(section).table().unwrap();
    assert_eq!(table.page_blocks().next().unwrap().len(), (1 << PAGE_SHIFT) / ROWS_PER_BLOCK);
    for at in [0, 1, 2, 15, 16, 17, length - 2, length - 1] {
        assert_eq!(offsets(&table, [at]), [8 + (at % 2 * 8) as i32], "{at}");
    }
}

#[test]
fn rows_are_packed_as_the_kernel_reads_them() {
    let table = table(&[(0x10, 0x10, 16), (0x20, 0x10, 24)]);
    let [block] = table.blocks() else { panic!("one block") };
    let rules = table.rules();
    let rows = block.map(|packed| (row::pc_low(packed), rules[usize::from(row::rule(packed))].cfa_offset));
    assert_eq!(rows[..4], [(0, 0), (0x10, 16), (0x20, 24), (0x30, 0)]);
    assert!(rows[4..].iter().all(|row| *row == (0x30, 0)), "the last row fills the block");
    assert_eq!(rules[0], Rule::default());
}

#[test]
fn an_entry_point_without_frame_is_outermost() {
    let check = |kind, entry: u64, expect: [u8; 4], marked| {
        let mut elf = Elf::of(frames(&[(0, 64, 16), (256, 64, 16)]));
        (elf.kind, elf.entry) = (kind, TEXT + entry);
        let table = elf.table().unwrap();
        assert_eq!([64, 128, 127 + ENTRY_BYTES, 256].map(|at| kind_at(&table, TEXT + at)), expect);
        assert_eq!(counted(&table, Count::EntryMarked), marked);
    };
    let [none, rsp, end] = [rule_kind::NONE, rule_kind::SP, rule_kind::END];
    check(2, 128, [none, end, end, rsp], 1);
    // Libraries state the beginning of their text there.
    check(3, 128, [none, none, none, rsp], 0);
    // A frame overrides it.
    check(2, 0, [none, none, none, rsp], 0);
    // Cut by the next frame.
    check(2, 190, [none, none, end, rsp], 1);
}

/// The dynamic linker is a library in which the kernel starts a program.
#[test]
fn the_entry_of_a_dynamic_linker_is_outermost() {
    let check = |name: &str, marked| {
        let mut elf = Elf::of(frames(&[(0, 64, 16)]));
        elf.entry = TEXT + 128;
        let names = [b"\0", name.as_bytes(), b"\0"].concat();
        // DT_STRTAB and DT_SONAME.
        let dynamic = [5u64, 0x2000, 14, 1, 0, 0].iter().flat_map(|word| word.to_le_bytes()).collect();
        elf.sections.extend([(".dynstr", 0x2000, 2, names), (".dynamic", 0x3000, 2, dynamic)]);
        let [strings, dynamic] = [1, 2];
        elf.segments.extend([(PT_LOAD.0, strings), (PT_DYNAMIC.0, dynamic)]);
        assert_eq!(counted(&elf.table().unwrap(), Count::EntryMarked), marked, "{name}");
    };
    check("ld-linux-x86-64.so.2", 1);
    check("ld-musl-x86_64.so.1", 1);
    check("libc.so.6", 0);
    check("libld-1.so", 0);
    check("ld", 0);
}

#[test]
fn debug_frames_fill_gaps_of_eh_frames() {
    let mut debug = Section::debug();
    // Under a frame, between frames and under both, beyond them.
    add(&mut debug, &[(0, 64, 800), (100, 300, 808), (600, 64, 816)]);
    let mut elf = Elf::of(frames(&[(0, 64, 16), (200, 100, 24), (350, 100, 32)]));
    elf.sections.push((".debug_frame", 0, 0, debug.bytes));
    let table = elf.table().unwrap();
    let at = [0, 100, 199, 200, 299, 300, 349, 350, 449, 450, 600];
    assert_eq!(offsets(&table, at), [16, 808, 808, 24, 24, 808, 808, 32, 32, 0, 816]);
    assert_eq!(counted(&table, Count::DebugFrames), 3);
}

/// A zlib stream of one stored block.
fn stored(data: &[u8]) -> Vec<u8> {
    let length = data.len() as u16;
    let (mut a, mut b) = (1u32, 0u32);
    for &byte in data {
        a = (a + u32::from(byte)) % 65521;
        b = (b + a) % 65521;
    }
    let mut stream = vec![0x78, 0x01, 0x01];
    stream.extend([length.to_le_bytes(), (!length).to_le_bytes()].concat());
    stream.extend(data);
    stream.extend((b << 16 | a).to_be_bytes());
    stream
}

#[test]
fn compressed_debug_frames_are_read() {
    let mut debug = Section::debug();
    add(&mut debug, &[(0, 64, 16)]);
    let size = debug.bytes.len() as u64;
    let zlib = stored(&debug.bytes);
    let with_header = [&1u64.to_le_bytes(), &size.to_le_bytes(), &8u64.to_le_bytes(), &zlib[..]].concat();
    let gnu = [b"ZLIB", &size.to_be_bytes()[..], &zlib[..]].concat();
    for (name, flags, contents) in [(".debug_frame", 0x800, with_header), (".zdebug_frame", 0, gnu)] {
        let mut elf = Elf::without_frames();
        elf.sections.push((name, 0, flags, contents.clone()));
        assert_eq!(offsets(&elf.table().unwrap(), [0, 63, 64]), [16, 16, 0], "{name}");
        // Corrupt in the middle of the stream.
        let middle = contents.len() - size as usize / 2;
        elf.sections[0].3[middle] ^= 0x55;
        assert!(elf.table().is_err(), "{name}");
    }
}

#[test]
fn frames_are_found_without_section_headers() {
    let mut eh_frame = frames(&[(0, 64, 16)]);
    eh_frame.terminator();
    let inside = eh_frame.bytes.len();
    // Another section follows in the segment.
    add(&mut eh_frame, &[(64, 64, 24)]);
    let mut elf = Elf::of(eh_frame);
    // Version, encodings (udata4 for the pointer, none else), address of .eh_frame.
    let hdr = [&[1, 0x03, 0xff, 0xff][..], &0x1000u32.to_le_bytes()].concat();
    elf.sections.push((".hdr", 0x900, 2, hdr));
    elf.segments = vec![(1, 0), (0x6474_e550, 1)];
    let mut bytes = elf.bytes();
    // No section headers.
    bytes[0x28..0x30].fill(0);
    bytes[0x3c..0x40].fill(0);
    let table = UnwindTable::from_elf(&bytes).unwrap();
    assert_eq!(offsets(&table, [0, 64]), [16, 0]);
    assert_eq!(counted(&table, Count::Terminators), 1);
    assert!(inside > 0);
}

#[test]
fn the_table_is_independent_of_the_thread_count() {
    let list: Vec<_> = (0..30_000).map(|at| (at * 64, 40 + at % 2 * 24, 8 + at % 100 * 8)).collect();
    let bytes = Elf::of(frames(&list)).bytes();
    let on = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| UnwindTable::from_elf(&bytes).unwrap())
    };
    let (one, many) = (on(1), on(4));
    assert_eq!(one, many);
    assert_eq!(counted(&one, Count::Frames), 30_000);
    assert_eq!(one.rules().len(), 101);
    for &(begin, length, offset) in &list {
        assert_eq!(offsets(&one, [begin, begin + length - 1]), [offset as i32; 2]);
    }
}

/// The expected table, computed naively: the frame that starts last, then the shorter, then the first.
fn expected(list: &[(u64, u64, u64)], at: u64) -> Option<u64> {
    let holding =
        list.iter().enumerate().filter(|(_, (begin, length, _))| (*begin..begin + length).contains(&at));
    let best = holding.max_by_key(|(index, (begin, length, _))| {
        (*begin, std::cmp::Reverse(*length), std::cmp::Reverse(*index))
    });
    best.map(|(_, (.., offset))| *offset)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn packed_rows_agree_with_the_frames(
        list in prop::collection::vec((0u64..1 << 18, prop_oneof![1u64..200, 1u64..1 << 17], 1u64..40), 1..60),
        probes in prop::collection::vec(0u64..1 << 19, 100),
    ) {
        let list: Vec<_> = list.into_iter().map(|(begin, length, slot)| (begin, length, slot * 8)).collect();
        let table = table(&list);
        let edges = list.iter().flat_map(|(begin, length, _)| {
            [begin.saturating_sub(1), *begin, begin + length - 1, begin + length]
        });
        let covered = |at: u64| (at.saturating_sub(PADDING_MAX)..=at).any(|at| expected(&list, at).is_some());
        for at in edges.chain(probes) {
            let found = table.lookup(TEXT + at).filter(|rule| rule.cfa != rule_kind::NONE);
            match expected(&list, at) {
                Some(offset) => prop_assert_eq!(found, Some(rsp(offset as i32)), "at {:#x}", at),
                // Padding may belong to the frame before it.
                None => prop_assert!(found.is_none() || covered(at), "at {:#x}: {:?}", at, found),
            }
        }
        for (page, blocks) in table.pages().iter().zip(table.page_blocks()) {
            let rows: Vec<u32> = blocks.iter().flatten().copied().collect();
            prop_assert!(rows.is_sorted());
            prop_assert_eq!(blocks.len(), usize::from(page.blocks));
            prop_assert!(rows.first().is_none_or(|&first| row::pc_low(first) == 0));
        }
    }

    #[test]
    fn debug_frames_hold_only_where_no_eh_frame_does(
        first in prop::collection::vec((0u64..1 << 9, 1u64..100, 1u64..20), 1..12),
        second in prop::collection::vec((0u64..1 << 9, 1u64..100, 100u64..120), 1..12),
    ) {
        let slots = |list: Vec<(u64, u64, u64)>| -> Vec<_> {
            list.into_iter().map(|(begin, length, slot)| (begin, length, slot * 8)).collect()
        };
        let (first, second) = (slots(first), slots(second));
        let mut debug = Section::debug();
        add(&mut debug, &second);
        let mut elf = Elf::of(frames(&first));
        elf.sections.push((".debug_frame", 0, 0, debug.bytes));
        let table = elf.table().unwrap();
        let both: Vec<Option<u64>> =
            (0..1 << 10).map(|at| expected(&first, at).or_else(|| expected(&second, at))).collect();
        for (at, holding) in both.iter().enumerate() {
            let found = table.lookup(TEXT + at as u64).filter(|rule| rule.cfa != rule_kind::NONE);
            match holding {
                Some(offset) => prop_assert_eq!(found, Some(rsp(*offset as i32)), "at {:#x}", at),
                None => {
                    let before = &both[at.saturating_sub(PADDING_MAX as usize)..at];
                    let padding = before.iter().any(Option::is_some);
                    prop_assert!(found.is_none() || padding, "at {:#x}: {:?}", at, found);
                }
            }
        }
    }
}
