//! Tests with files that have functions without frame descriptions.

use std::borrow::Cow;
use std::cell::RefCell;
use std::ops::Range;

use deepctx_common::unwind::{rule_detail, rule_kind};

use crate::generated::GeneratedCode;
use crate::unwind_rows::{Count, NoTable, ReadAt, UnwindTable};

const TEXT: u64 = 0x10_0000;

/// `push rbx; pop rbx; ret`, eight bytes with its padding.
const FUNCTION: [u8; 8] = [0x53, 0x5b, 0xc3, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc];

/// A file with `count` functions at [`TEXT`] and a symbol for each of `functions`.
fn file(count: usize, functions: &[Range<u64>], frames: Vec<(u64, Vec<u8>)>) -> Vec<u8> {
    let code = FUNCTION.repeat(count);
    let text = TEXT..TEXT + code.len() as u64;
    let functions = functions.iter().map(|range| TEXT + range.start..TEXT + range.end).collect();
    GeneratedCode { text, code, functions, frames }.to_elf()
}

fn offset_at(table: &UnwindTable, at: u64) -> Option<i32> {
    let rule = table.lookup(TEXT + at).filter(|rule| rule.cfa != rule_kind::NONE)?;
    assert_eq!((rule.cfa, rule.detail), (rule_kind::SP, rule_detail::DERIVED));
    Some(rule.cfa_offset)
}

#[test]
fn functions_without_frames_have_derived_rows() {
    let table = UnwindTable::from_elf(&file(64, &[0..8, 80..88], Vec::new())).unwrap();
    let rows = [0, 1, 2, 3, 79, 80, 81, 82, 83].map(|at| offset_at(&table, at));
    assert_eq!(rows, [Some(8), Some(16), Some(8), None, None, Some(8), Some(16), Some(8), None]);
    assert_eq!(table.stats().get(Count::DerivedFunctions), 2);
    assert_eq!(table.stats().get(Count::DerivedRows), 6);
}

#[test]
fn a_file_without_frames_and_symbols_has_no_table() {
    assert_eq!(UnwindTable::from_elf(&file(4, &[], Vec::new())), Err(NoTable::NoFrames));
}

#[test]
fn functions_with_frames_are_not_derived() {
    // A CIE (CFA = rsp + 8), an FDE of 64 bytes from the beginning of the text.
    let address = TEXT + 0x1_0000;
    let mut frames =
        vec![20, 0, 0, 0, 0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1, 0, 0];
    frames.extend([20, 0, 0, 0, 28, 0, 0, 0]);
    let field = address + frames.len() as u64;
    frames.extend((TEXT.wrapping_sub(field) as u32).to_le_bytes());
    frames.extend([64, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let functions = [0..8, 64..72];
    let table = UnwindTable::from_elf(&file(64, &functions, vec![(address, frames)])).unwrap();
    let stated = table.lookup(TEXT + 1).unwrap();
    assert_eq!((stated.cfa_offset, stated.detail), (8, 0), "not the row after the push");
    assert_eq!([64, 65, 66].map(|at| offset_at(&table, at)), [Some(8), Some(16), Some(8)]);
    assert_eq!(table.stats().get(Count::DerivedFunctions), 1);
}

/// A file that records the ranges read.
#[derive(Debug)]
struct RecordingFile<'f>(&'f [u8], RefCell<Vec<Range<u64>>>);

impl ReadAt for RecordingFile<'_> {
    fn read_at(&self, range: Range<u64>) -> Option<Cow<'_, [u8]>> {
        self.1.borrow_mut().push(range.clone());
        self.0.read_at(range)
    }
}

#[test]
fn only_symbols_and_uncovered_code_are_read() {
    let bytes = file(4096, &[0..8, 32..40, 24_000..24_008], Vec::new());
    let recording = RecordingFile(&bytes, RefCell::default());
    UnwindTable::from_parts(&bytes, &recording).unwrap();
    let lengths: Vec<u64> = recording.1.borrow().iter().map(|range| range.end - range.start).collect();
    let expect = [4 * 24, 9, 9, 9, 40, 8];
    assert_eq!(
        lengths, expect,
        "the symbols, how their names begin, two close functions, one distant function"
    );
}

#[test]
fn an_unreadable_file_has_no_derived_rows() {
    let functions = [0..8, 8..16];
    let bytes = file(64, &functions, Vec::new());
    assert_eq!(UnwindTable::from_parts(&bytes, &[].as_slice()), Err(NoTable::NoFrames));
}

#[test]
fn forged_symbols_give_no_rows_outside_the_text() {
    let ends = [0, 1, 7, 8, 511, 512, 513, u64::MAX - TEXT];
    for begin in [0, 1, 511, 512, 1 << 40] {
        for end in ends.into_iter().filter(|&end| end >= begin) {
            let functions = [begin..end, 3..u64::MAX - TEXT, 0..8];
            let table = UnwindTable::from_elf(&file(64, &functions, Vec::new()));
            assert!(table.is_ok_and(|table| table.rows().all(|(at, _)| at <= TEXT + 512)));
        }
    }
}
