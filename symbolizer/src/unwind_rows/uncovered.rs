//! Functions without frame descriptions.
//!
//! Owns: finding the functions of a file that no frame description covers, reading their code, and converting derived
//! rows to a slice of frames. Because: functions in assembler have symbols, but no call frame information. Does not:
//! derive rows ([`super::derived`]), or resolve overlapping frames ([`super::assemble`]).

use std::borrow::Cow;
use std::ops::Range;

use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader as _, ProgramHeader as _, SectionHeader as _};
use object::{LittleEndian, ReadRef as _};

use super::derived::{Bounds, Code, DeriveFn, DerivedTable, of_arch};
use super::elf::Image;
use super::frames::{ADDRESS_MAX, Frame, Slice, pack};
use super::rules::Interner;
use super::stats::{BuildStats, Count};

const LE: LittleEndian = LittleEndian;

/// Widest gap between frames that counts as part of the frame before it: functions are aligned to 16 bytes and the
/// padding never runs, so it needs no row. Wider gaps get a row for "no frame".
pub const PADDING_MAX: u64 = 15;
/// Bytes of one symbol (`Elf64_Sym`): name u32, info u8, other u8, section u16, value u64, size u64.
const SYMBOL_BYTES: usize = 24;
/// Most symbols read. The largest table seen has 0.6 million.
const SYMBOLS_MAX: usize = 8 << 20;
/// Functions closer to each other than this are read together.
const READ_GAP: u64 = 4096;
/// Most different rules derived for one file: the table of all executables has room for 128 Ki.
const RULES_MAX: usize = 8192;

/// Prefix of V8's builtins. They pop arguments off their caller's stack and push others, so depths found in one are
/// useless after a call; all keep frame pointers, by which they are walked.
const V8_BUILTIN: &[u8] = b"Builtins_";

/// Random access to the bytes of a file.
pub trait ReadAt {
    /// The bytes at `range`; `None` when they cannot be read.
    fn read_at(&self, range: Range<u64>) -> Option<Cow<'_, [u8]>>;
}

impl ReadAt for &[u8] {
    fn read_at(&self, range: Range<u64>) -> Option<Cow<'_, [u8]>> {
        let begin = usize::try_from(range.start).ok()?;
        let end = usize::try_from(range.end).ok()?;
        self.get(begin..end).map(Cow::Borrowed)
    }
}

/// Access to the symbols and the code of a file.
pub(super) struct UncoveredCode<'i> {
    /// The headers of the file.
    headers: &'i [u8],
    /// The rest of the file.
    file: &'i dyn ReadAt,
    image: &'i Image<'i>,
    derive: DeriveFn,
}

impl<'i> UncoveredCode<'i> {
    /// `None` for architectures without an instruction decoder.
    pub(super) fn new(headers: &'i [u8], file: &'i dyn ReadAt, image: &'i Image<'i>) -> Option<Self> {
        Some(Self { headers, file, image, derive: of_arch(image.arch)? })
    }
}

impl UncoveredCode<'_> {
    /// Derived frames of the functions outside `covered` (sorted and disjoint), if there are any.
    pub(super) fn frames(
        &self,
        covered: impl Iterator<Item = Range<u64>>,
        stats: &mut BuildStats,
    ) -> Option<Slice> {
        let gaps = self.gaps(covered);
        if gaps.is_empty() {
            return None;
        }
        let functions = self.functions(&gaps)?;
        let derived = self.derive(&functions)?;
        stats.add(Count::DerivedFunctions, derived.stats.functions - derived.stats.without_rows);
        stats.add(Count::UnderivedFunctions, derived.stats.without_rows + derived.stats.beyond_bounds);
        Some(slice(&derived, stats))
    }

    /// Parts of the text that are neither covered nor padding.
    fn gaps(&self, covered: impl Iterator<Item = Range<u64>>) -> Vec<Range<u64>> {
        let mut texts = self.image.texts.iter().map(|text| text.begin..text.end.min(ADDRESS_MAX));
        let mut gaps = Vec::new();
        let mut add = |gap: Range<u64>| {
            if gap.end.saturating_sub(gap.start) > PADDING_MAX {
                gaps.push(gap);
            }
        };
        let Some(mut rest) = texts.next() else { return gaps };
        for piece in covered {
            while piece.start >= rest.end {
                add(rest);
                match texts.next() {
                    Some(next) => rest = next,
                    None => return gaps,
                }
            }
            add(rest.start..piece.start);
            rest.start = rest.start.max(piece.end);
        }
        add(rest);
        texts.for_each(add);
        gaps
    }

    /// Functions that start in one of `gaps`, cut at the end of the gap, by address.
    fn functions(&self, gaps: &[Range<u64>]) -> Option<Vec<Range<u64>>> {
        let header = self.headers.read_at::<FileHeader64<LittleEndian>>(0).ok()?;
        let sections = header.section_headers(LE, self.headers).ok()?;
        let of_type = |wanted| sections.iter().find(|section| section.sh_type(LE) == wanted);
        let table = of_type(elf::SHT_SYMTAB).or_else(|| of_type(elf::SHT_DYNSYM))?;
        let bytes = table.sh_size(LE).min((SYMBOLS_MAX * SYMBOL_BYTES) as u64);
        let begin = table.sh_offset(LE);
        let symbols = self.file.read_at(begin..begin.checked_add(bytes)?)?;
        let gap_of = |address: u64| {
            let after = gaps.partition_point(|gap| gap.start <= address);
            after.checked_sub(1).and_then(|at| gaps.get(at)).filter(|gap| address < gap.end)
        };
        let names = sections.get(table.sh_link(LE) as usize).and_then(|names| names.file_range(LE));
        let mut functions = Vec::new();
        for symbol in symbols.as_chunks::<SYMBOL_BYTES>().0 {
            let [_, _, _, _, info, _, section @ .., _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _] = *symbol;
            let is_function = matches!(elf::SymbolType(info & 0xf), elf::STT_FUNC | elf::STT_GNU_IFUNC);
            if !is_function || section == [0, 0] {
                continue;
            }
            let word = |at: usize| symbol[at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
            let (value, size) = (word(8), word(16));
            if let Some(gap) = gap_of(value)
                && !self.is_v8_builtin(names, symbol)
            {
                functions.push((value, value.saturating_add(size), gap.end));
            }
        }
        functions.sort_unstable();
        // Otherwise each of many equal symbols looks for the next one behind all of them.
        functions.dedup();
        let mut ranges: Vec<Range<u64>> = Vec::with_capacity(functions.len());
        for (at, &(begin, end, gap_end)) in functions.iter().enumerate() {
            // Symbols from assembler sources often have no size.
            let next = || {
                let more = functions.get(at..).unwrap_or_default();
                more.iter().find(|&&(next, ..)| next > begin).map_or(gap_end, |&(next, ..)| next)
            };
            let end = if end == begin { next() } else { end }.min(gap_end);
            ranges.push(begin..end);
        }
        ranges.dedup();
        Some(ranges)
    }

    /// Whether a symbol whose name is in the file range `names` belongs to V8.
    fn is_v8_builtin(&self, names: Option<(u64, u64)>, symbol: &[u8; SYMBOL_BYTES]) -> bool {
        let name = symbol.first_chunk().map_or(0, |name| u64::from(u32::from_le_bytes(*name)));
        let length = V8_BUILTIN.len() as u64;
        let begins = || {
            // A name that reaches the end of the table earlier is another one.
            let (begin, _) = names.filter(|&(_, bytes)| name + length <= bytes)?;
            let begin = begin.checked_add(name)?;
            self.file.read_at(begin..begin.checked_add(length)?)
        };
        begins().is_some_and(|begins| *begins == *V8_BUILTIN)
    }

    fn derive(&self, functions: &[Range<u64>]) -> Option<DerivedTable> {
        let bounds = Bounds::default();
        let mut spans: Vec<Range<u64>> = Vec::new();
        let mut bytes = 0;
        for function in functions {
            match spans.last_mut() {
                Some(last) if function.start.saturating_sub(last.end) <= READ_GAP => {
                    bytes += function.end.saturating_sub(last.end);
                    last.end = last.end.max(function.end);
                }
                _ => {
                    bytes += function.end - function.start;
                    spans.push(function.clone());
                }
            }
            if bytes >= bounds.code_bytes {
                break;
            }
        }
        let code: Vec<(u64, Cow<'_, [u8]>)> = spans
            .iter()
            .filter_map(|span| Some((span.start, self.file.read_at(self.file_range(span)?)?)))
            .collect();
        let pieces: Vec<Code<'_>> =
            code.iter().map(|(address, bytes)| Code { address: *address, bytes }).collect();
        (!pieces.is_empty()).then(|| (self.derive)(&pieces, functions, &bounds))
    }

    /// The file range of a range of stated addresses.
    fn file_range(&self, span: &Range<u64>) -> Option<Range<u64>> {
        let header = self.headers.read_at::<FileHeader64<LittleEndian>>(0).ok()?;
        let segments = header.program_headers(LE, self.headers).ok()?;
        segments.iter().filter(|segment| segment.p_type(LE) == elf::PT_LOAD).find_map(|segment| {
            let skip = span.start.checked_sub(segment.p_vaddr(LE))?;
            let left = segment.p_filesz(LE).checked_sub(skip).filter(|&left| left > 0)?;
            let begin = segment.p_offset(LE).checked_add(skip)?;
            Some(begin..begin.checked_add(left.min(span.end - span.start))?)
        })
    }
}

/// A slice with one frame for each run of rows without a gap.
fn slice(derived: &DerivedTable, stats: &mut BuildStats) -> Slice {
    let mut slice = Slice {
        frames: Vec::new(),
        rows: Vec::with_capacity(derived.rows.len()),
        rules: Vec::new(),
        stats: BuildStats::default(),
    };
    let mut interner = Interner::new(RULES_MAX);
    for &(begin, end, rule) in &derived.rows {
        let Ok(number) = interner.number(rule) else {
            stats.add(Count::DerivedRulesBeyond, 1);
            continue;
        };
        // Bounded by the code examined.
        let row = slice.rows.len() as u32;
        slice.rows.push(pack(begin, number));
        match slice.frames.last_mut() {
            Some(frame) if frame.end == begin => {
                frame.end = end;
                frame.rows += 1;
            }
            _ => slice.frames.push(Frame { begin, end, first_row: row, rows: 1 }),
        }
    }
    stats.add(Count::DerivedRows, slice.rows.len() as u64);
    slice.rules = interner.into_rules();
    slice
}
