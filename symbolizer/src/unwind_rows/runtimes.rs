//! What a runtime's own tables and names say of a file's functions beyond its frame descriptions.
//!
//! Owns: which functions begin a stack of their own, or are the return from a signal, in Go programs and in `greenlet`;
//! rows from the depths that Go keeps of its functions. Because: these runtimes switch stacks by hand, and their frame
//! descriptions promise a caller where there is none, or none that is theirs. Does not: read Go's table
//! ([`crate::pclntab`]), or form pages ([`super::assemble`]).
//!
//! The functions of Go are those at which its own traceback stops (`topofstack` in `runtime/traceback.go`), and
//! `systemstack`, which that follows to another stack. Like `_start`, they are outermost at all of their instructions:
//! the few before the stacks are switched have a caller, too, which is not shown.

use std::borrow::Cow;
use std::ops::Range;

use deepctx_address_space::Arch;
use deepctx_common::unwind::{Rule, fp_kind, rule_kind};
use object::elf::{self, FileHeader64, SectionHeader64};
use object::read::elf::{FileHeader as _, SectionHeader as _};
use object::{LittleEndian, ReadRef as _};

use super::Limits;
use super::elf::Image;
use super::frames::{ADDRESS_MAX, Frame, Slice, pack};
use super::rules::{END, Interner, SIGNAL};
use super::stats::{BuildStats, Count};
use super::uncovered::ReadAt;
use crate::pclntab::{Function, Pclntab, PclntabSection};

const LE: LittleEndian = LittleEndian;

/// Largest table of Go functions that is read: Kubernetes' largest program has 40 MiB.
const PCLNTAB_BYTES_MAX: u64 = 256 << 20;
/// Largest dynamic symbol table, and largest table of its names, in which `greenlet` is looked for: its own have 15
/// KiB.
const DYNAMIC_BYTES_MAX: u64 = 256 << 10;
/// Bytes of one symbol (`Elf64_Sym`): name u32, info u8, other u8, section u16, value u64, size u64.
const SYMBOL_BYTES: usize = 24;
/// Most different rules of Go functions: one for each depth.
const RULES_MAX: usize = 8192;

/// Go: what is called here has no caller on the stack that it runs on. Assembler functions may have the suffix `.abi0`.
const GO_OUTERMOST: [&[u8]; 6] = [
    b"runtime.goexit",
    b"runtime.mstart",
    b"runtime.mcall",
    b"runtime.morestack",
    b"runtime.rt0_go",
    b"runtime.systemstack",
];
/// Go: where signal handlers return to.
const GO_SIGNAL_RETURN: [&[u8]; 2] = [b"runtime.sigreturn", b"runtime.sigreturn__sigaction"];
/// `greenlet::UserGreenlet::inner_bootstrap`, mangled, without its parameters: it runs on the stack of the new greenlet
/// and never returns. Below it the stack is that of whoever runs now.
const GREENLET_OUTERMOST: &[u8] = b"_ZN8greenlet12UserGreenlet15inner_bootstrap";

/// What runtimes say.
#[derive(Debug, Default)]
pub(super) struct Runtimes {
    /// Functions that go before their frame descriptions.
    pub(super) marked: Option<Slice>,
    /// Rows of functions that no frame description may cover.
    pub(super) stated: Option<Slice>,
}

/// A slice under construction.
pub(super) struct Rows {
    slice: Slice,
    interner: Interner,
}

impl Rows {
    pub(super) fn new() -> Self {
        let slice =
            Slice { frames: Vec::new(), rows: Vec::new(), rules: Vec::new(), stats: BuildStats::default() };
        Self { slice, interner: Interner::new(RULES_MAX) }
    }

    /// Adds a row; it belongs to the frame before it when that ends here. False when there are too many rules.
    pub(super) fn push(&mut self, begin: u64, end: u64, rule: Rule) -> bool {
        let Ok(number) = self.interner.number(rule) else { return false };
        let row = self.slice.rows.len() as u32;
        self.slice.rows.push(pack(begin, number));
        match self.slice.frames.last_mut() {
            Some(frame) if frame.end == begin => {
                frame.end = end;
                frame.rows += 1;
            }
            _ => self.slice.frames.push(Frame { begin, end, first_row: row, rows: 1 }),
        }
        true
    }

    /// `None` without rows.
    pub(super) fn finish(mut self) -> Option<Slice> {
        self.slice.rules = self.interner.into_rules();
        (!self.slice.frames.is_empty()).then_some(self.slice)
    }
}

impl Runtimes {
    /// Reads what there is. `headers`: the bytes of the file's headers; `file`: all others.
    pub(super) fn read(
        headers: &[u8],
        file: &dyn ReadAt,
        image: &Image<'_>,
        limits: &Limits,
        stats: &mut BuildStats,
    ) -> Self {
        if let Some(PclntabSection { range, text }) =
            PclntabSection::of(headers, &|range| file.read_at(range))
        {
            let bytes = bytes_at(range, file, PCLNTAB_BYTES_MAX);
            let table = bytes.as_deref().map(|bytes| Pclntab::parse(bytes, text));
            return match table {
                Some(Ok(table)) => Self::of_go(&table, image, limits, stats),
                _ => {
                    stats.add(Count::UnreadableSections, 1);
                    Self::default()
                }
            };
        }
        let sections = Sections::of(headers).unwrap_or_default();
        Self { marked: greenlet(&sections, file, image, stats), stated: None }
    }

    fn of_go(table: &Pclntab<'_>, image: &Image<'_>, limits: &Limits, stats: &mut BuildStats) -> Self {
        let (mut marked, mut stated) = (Rows::new(), Rows::new());
        let mut before = 0;
        for function in table.functions() {
            let range = function.range.clone();
            let inside = image.text_end(range.start).is_some_and(|end| range.end <= end.min(ADDRESS_MAX));
            // Functions ascend; what does not is damaged.
            if !inside || range.start < before {
                continue;
            }
            before = range.end;
            if let Some(rule) = rule_of(function.name) {
                // The kernel pushes the address of the function itself, which is looked up as a return address.
                let begin = range.start.saturating_sub(u64::from(rule == SIGNAL));
                marked.push(begin, range.end, rule);
                stats.add(Count::OutermostMarked, u64::from(rule == END));
            }
            if image.arch == Arch::X86_64 && stated.slice.rows.len() < limits.rows {
                rows_of(table, &function, &mut stated);
            }
        }
        stats.add(Count::GoRows, stated.slice.rows.len() as u64);
        Self { marked: marked.finish(), stated: stated.finish() }
    }
}

/// The rule that holds in all of a function with this name, if it is one of those.
fn rule_of(name: &[u8]) -> Option<Rule> {
    let name = name.strip_suffix(b".abi0").unwrap_or(name);
    if GO_OUTERMOST.contains(&name) {
        Some(END)
    } else if GO_SIGNAL_RETURN.contains(&name) {
        Some(SIGNAL)
    } else {
        None
    }
}

/// Rows of a function from the depths of its stack. Where it took some, its caller's frame pointer may be saved in
/// there, and Go does not say where.
fn rows_of(table: &Pclntab<'_>, function: &Function<'_>, rows: &mut Rows) {
    for (range, depth) in table.depths(function) {
        let Some(cfa_offset) = i32::try_from(depth).ok().and_then(|depth| depth.checked_add(8)) else {
            return;
        };
        let fp = if depth == 0 { fp_kind::SAME } else { fp_kind::UNDEFINED };
        if !rows.push(range.start, range.end, Rule { cfa: rule_kind::SP, fp, cfa_offset, ..Rule::default() })
        {
            return;
        }
    }
}

/// Where greenlets begin, if this is `greenlet`'s library.
fn greenlet(
    sections: &Sections<'_>,
    file: &dyn ReadAt,
    image: &Image<'_>,
    stats: &mut BuildStats,
) -> Option<Slice> {
    let mut rows = Rows::new();
    for function in dynamic_functions(sections, file, image, |name| name.starts_with(GREENLET_OUTERMOST)) {
        rows.push(function.start, function.end, END);
        stats.add(Count::OutermostMarked, 1);
    }
    rows.finish()
}

/// The functions among the dynamic symbols whose name, with all that follows it in the table, is wanted; by address.
pub(super) fn dynamic_functions(
    sections: &Sections<'_>,
    file: &dyn ReadAt,
    image: &Image<'_>,
    is_wanted: impl Fn(&[u8]) -> bool,
) -> Vec<Range<u64>> {
    let found = || {
        let symbols = sections.list.iter().find(|section| section.sh_type(LE) == elf::SHT_DYNSYM)?;
        let names = sections.list.get(symbols.sh_link(LE) as usize)?;
        let names = contents(names, file, DYNAMIC_BYTES_MAX)?;
        let symbols = contents(symbols, file, DYNAMIC_BYTES_MAX)?;
        let function = |symbol: &[u8; SYMBOL_BYTES]| {
            let word = |at: usize| Some(u64::from_le_bytes(*symbol.get(at..)?.first_chunk()?));
            let name = names.get(u32::from_le_bytes(*symbol.first_chunk()?) as usize..)?;
            let (begin, size) = (word(8)?, word(16)?);
            let end = begin.checked_add(size)?.min(image.text_end(begin)?).min(ADDRESS_MAX);
            (is_wanted(name) && begin < end).then_some(begin..end)
        };
        Some(symbols.as_chunks::<SYMBOL_BYTES>().0.iter().filter_map(function).collect::<Vec<_>>())
    };
    let mut found = found().unwrap_or_default();
    found.sort_unstable_by_key(|function| (function.start, function.end));
    found
}

/// The sections of a file.
#[derive(Default)]
pub(super) struct Sections<'d> {
    list: &'d [SectionHeader64<LittleEndian>],
}

impl<'d> Sections<'d> {
    pub(super) fn of(headers: &'d [u8]) -> Option<Self> {
        let header = headers.read_at::<FileHeader64<LittleEndian>>(0).ok()?;
        Some(Self { list: header.section_headers(LE, headers).ok()? })
    }

    /// The bytes of a function.
    pub(super) fn code_at<'f>(&self, function: &Range<u64>, file: &'f dyn ReadAt) -> Option<Cow<'f, [u8]>> {
        let holds = |section: &&SectionHeader64<LittleEndian>| {
            let (begin, size) = (section.sh_addr(LE), section.sh_size(LE));
            let is_code = section.sh_flags(LE).contains(elf::SHF_EXECINSTR);
            is_code && begin <= function.start && function.end <= begin.saturating_add(size)
        };
        let section = self.list.iter().find(holds)?;
        let (offset, _) = section.file_range(LE)?;
        let begin = offset.checked_add(function.start - section.sh_addr(LE))?;
        file.read_at(begin..begin.checked_add(function.end - function.start)?)
    }
}

/// The bytes of a section that is stored as it is, up to `most`.
fn contents<'f>(
    section: &SectionHeader64<LittleEndian>,
    file: &'f dyn ReadAt,
    most: u64,
) -> Option<Cow<'f, [u8]>> {
    let (begin, size) = section.file_range(LE)?;
    bytes_at(begin..begin.checked_add(size)?, file, most)
}

/// The bytes at a range of the file, if there are any and no more than `most`.
fn bytes_at(range: Range<u64>, file: &dyn ReadAt, most: u64) -> Option<Cow<'_, [u8]>> {
    let size = range.end.saturating_sub(range.start);
    (1..=most).contains(&size).then(|| file.read_at(range))?
}
