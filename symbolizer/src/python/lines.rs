//! Line tables of code objects, as runs of bytecode with one line each.
//!
//! Owns: the three formats of CPython (3.8–3.9, 3.10, 3.11 on). Because: the kernel program records an offset into
//! the bytecode, and users read lines. Does not: read a process. A truncated or corrupt table gives fewer runs, never
//! a panic.

/// The format of `co_lnotab` or `co_linetable`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineFormat {
    /// `co_lnotab`, up to 3.9: pairs (offset delta u8, line delta i8).
    Lnotab,
    /// `co_linetable` of 3.10: pairs (length u8, line delta i8), −128 for "no line".
    Ranges,
    /// `co_linetable` from 3.11: entries with a kind, a length in units of two bytes, and packed numbers.
    Locations,
}

/// The lines of one code object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineRuns {
    /// Sorted by `begin`; each holds until the next; neighbors have different lines.
    runs: Box<[Run]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    /// Offset in bytes from the start of the bytecode.
    begin: u32,
    /// [`NO_LINE`] for bytecode without a line.
    line: u32,
}

const NO_LINE: u32 = u32::MAX;

impl LineRuns {
    /// Bytes in memory.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.runs)
    }

    /// Decodes `table`. `first_line` is `co_firstlineno`, the base of the deltas.
    pub fn decode(format: LineFormat, table: &[u8], first_line: u32) -> Self {
        let mut runs = Builder::default();
        match format {
            LineFormat::Lnotab => decode_lnotab(table, first_line, &mut runs),
            LineFormat::Ranges => decode_ranges(table, first_line, &mut runs),
            LineFormat::Locations => decode_locations(table, first_line, &mut runs),
        }
        Self { runs: runs.0.into_boxed_slice() }
    }

    /// The line of the instruction at `offset` bytes, or `None` when it has none.
    pub fn line_at(&self, offset: u32) -> Option<u32> {
        let next = self.runs.partition_point(|run| run.begin <= offset);
        let line = self.runs[next.checked_sub(1)?].line;
        (line != NO_LINE).then_some(line)
    }

    /// Number of runs.
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// True without runs.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }
}

#[derive(Default)]
struct Builder(Vec<Run>);

impl Builder {
    /// From `begin` on, the line is `line`. `begin` must not decrease between calls.
    fn push(&mut self, begin: u32, line: u32) {
        if self.0.last().is_some_and(|last| last.begin == begin) {
            self.0.pop();
        }
        if self.0.last().is_none_or(|last| last.line != line) {
            self.0.push(Run { begin, line });
        }
    }
}

/// The line as stored: [`NO_LINE`] for a number outside the range of lines.
fn stored_line(line: i64) -> u32 {
    u32::try_from(line).unwrap_or(NO_LINE)
}

fn decode_lnotab(table: &[u8], first_line: u32, runs: &mut Builder) {
    let (mut offset, mut line) = (0_u32, i64::from(first_line));
    runs.push(0, first_line);
    for pair in table.chunks_exact(2) {
        offset = offset.saturating_add(u32::from(pair[0]));
        line += i64::from(pair[1] as i8);
        runs.push(offset, stored_line(line));
    }
}

fn decode_ranges(table: &[u8], first_line: u32, runs: &mut Builder) {
    let (mut offset, mut line) = (0_u32, i64::from(first_line));
    for pair in table.chunks_exact(2) {
        let delta = pair[1] as i8;
        if delta == i8::MIN {
            runs.push(offset, NO_LINE);
        } else {
            line += i64::from(delta);
            runs.push(offset, stored_line(line));
        }
        offset = offset.saturating_add(u32::from(pair[0]));
    }
    runs.push(offset, NO_LINE);
}

fn decode_locations(table: &[u8], first_line: u32, runs: &mut Builder) {
    let mut bytes = table.iter().copied();
    let (mut offset, mut line) = (0_u32, i64::from(first_line));
    while let Some(head) = bytes.next() {
        // A byte without the mark is in the middle of an entry: the rest of the table is corrupt.
        if head & 0x80 == 0 {
            break;
        }
        let Some(entry) = read_entry(head >> 3 & 15, &mut bytes) else { break };
        match entry {
            // "No line" does not change the current line.
            Entry::NoLine => runs.push(offset, NO_LINE),
            Entry::Delta(delta) => {
                line = line.saturating_add(delta);
                runs.push(offset, stored_line(line));
            }
        }
        offset = offset.saturating_add((u32::from(head & 7) + 1) * 2);
    }
    runs.push(offset, NO_LINE);
}

enum Entry {
    NoLine,
    Delta(i64),
}

/// Reads the rest of an entry of this kind after its first byte; columns are skipped. `None` when the table ends.
fn read_entry(kind: u8, bytes: &mut impl Iterator<Item = u8>) -> Option<Entry> {
    match kind {
        0..=9 => {
            bytes.next()?;
            Some(Entry::Delta(0))
        }
        10..=12 => {
            bytes.next()?;
            bytes.next()?;
            Some(Entry::Delta(i64::from(kind) - 10))
        }
        13 => Some(Entry::Delta(read_signed(bytes)?)),
        14 => {
            let delta = read_signed(bytes)?;
            for _ in 0..3 {
                read_varint(bytes)?;
            }
            Some(Entry::Delta(delta))
        }
        _ => Some(Entry::NoLine),
    }
}

/// Groups of six bits, lowest first; bit 6 says that another follows.
fn read_varint(bytes: &mut impl Iterator<Item = u8>) -> Option<u32> {
    let mut value = 0_u32;
    let mut shift = 0;
    loop {
        let byte = bytes.next()?;
        // CPython writes no bits beyond 32; they are dropped, and the end of the table bounds the loop.
        value |= u32::from(byte & 63).checked_shl(shift).unwrap_or(0);
        shift = (shift + 6).min(32);
        if byte & 64 == 0 {
            return Some(value);
        }
    }
}

/// A varint whose lowest bit is the sign.
fn read_signed(bytes: &mut impl Iterator<Item = u8>) -> Option<i64> {
    let value = read_varint(bytes)?;
    let magnitude = i64::from(value >> 1);
    Some(if value & 1 == 1 { -magnitude } else { magnitude })
}

#[cfg(test)]
mod tests {
    use LineFormat::*;
    use proptest::prelude::*;

    use super::*;

    /// `expect`: (offset, line) pairs.
    fn check(format: LineFormat, table: &[u8], first_line: u32, expect: &[(u32, Option<u32>)]) {
        let runs = LineRuns::decode(format, table, first_line);
        for &(offset, line) in expect {
            assert_eq!(runs.line_at(offset), line, "{format:?} {table:?} at {offset}");
        }
    }

    #[test]
    fn lnotab_deltas_at_one_offset_add_up() {
        // A jump of 300 lines is written as 127 + 127 + 46 at the same offset.
        check(
            Lnotab,
            &[6, 127, 0, 127, 0, 46, 4, 0xff],
            10,
            &[
                (0, Some(10)),
                (5, Some(10)),
                (6, Some(310)),
                (9, Some(310)),
                (10, Some(309)),
                (1000, Some(309)),
            ],
        );
        check(Lnotab, &[], 7, &[(0, Some(7)), (u32::MAX, Some(7))]);
    }

    #[test]
    fn ranges_without_a_line_keep_the_current_line() {
        check(
            Ranges,
            &[4, 1, 6, 0x80, 2, 1],
            1,
            &[(0, Some(2)), (3, Some(2)), (4, None), (9, None), (10, Some(3)), (12, None)],
        );
    }

    #[test]
    fn locations_of_every_kind_are_read() {
        let table = [
            0x80 | 1,
            0x11, // kind 0, two units, same line
            0x80 | 11 << 3,
            1,
            2, // kind 11, one unit, +1
            0x80 | 13 << 3,
            0b11,           // kind 13, one unit, −1
            0x80 | 15 << 3, // kind 15, one unit, no line
            0x80 | 14 << 3,
            64 | 8,
            1,
            0,
            64,
            0,
            0, // kind 14: 72 >> 1 = +36, end line, two columns
        ];
        check(
            Locations,
            &table,
            5,
            &[(0, Some(5)), (3, Some(5)), (4, Some(6)), (6, Some(5)), (8, None), (10, Some(41)), (12, None)],
        );
    }

    #[test]
    fn a_truncated_table_keeps_its_first_lines() {
        check(Locations, &[0x80, 0x11, 0x80 | 14 << 3, 64], 5, &[(0, Some(5)), (2, None)]);
        check(Locations, &[0x01, 0x80, 0x11], 5, &[(0, None)]);
        check(Ranges, &[4, 1, 6], 1, &[(0, Some(2)), (4, None)]);
    }

    proptest! {
        #[test]
        fn any_bytes_decode(table in prop::collection::vec(any::<u8>(), 0..4096), first in any::<u32>(), at in any::<u32>()) {
            for format in [Lnotab, Ranges, Locations] {
                let runs = LineRuns::decode(format, &table, first);
                let _ = runs.line_at(at);
                prop_assert!(runs.len() <= table.len() + 1);
                prop_assert!(runs.runs.is_sorted_by(|a, b| a.begin < b.begin));
            }
        }
    }
}
