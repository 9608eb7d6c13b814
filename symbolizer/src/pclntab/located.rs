//! Where the table of a Go program is in its file, and where the text begins that its entries count from.
//!
//! Owns: [`PclntabSection`]. Because: that address is in the table's header, or the loader writes it there, or, since
//! Go 1.26, it is only in the linker's data of the module (`moduledata`). Does not: read functions
//! ([`super::Pclntab`]), or trust a module that does not match its table.
//!
//! ```text
//! .go.module   pcHeader │ … │ entries: address, count, room │ findfunctab │ minpc │ maxpc │ text │ …
//!              the table             functions + 1                  text + first entry  text + end of the last
//! ```
//! Where a program may be loaded anywhere, these are the addends of relative relocations. The bytes are untrusted: no
//! more relocations are read than a real program has.
//! Source: `runtime/symtab.go` and `cmd/link/internal/ld/{symtab,pcln,data}.go` of Go 1.18, 1.26 and 1.27.

use std::borrow::Cow;
use std::ops::Range;

use object::elf::{self, FileHeader64, SectionHeader64};
use object::read::elf::{FileHeader as _, SectionHeader as _, SectionTable};
use object::{LittleEndian, ReadRef as _};

use super::{FUNCTIONS_MAX, SECTIONS, counts_from_text, u32_at, u64_at};

const LE: LittleEndian = LittleEndian;

/// The section of `runtime.firstmoduledata`, since Go 1.26.
const MODULE: &[u8] = b".go.module";
/// The section that every Go program has since 1.13.
const BUILD_INFO: &[u8] = b".go.buildinfo";
/// The section in which other linkers put data with relocations.
const RELOCATED: &[u8] = b".data.rel.ro";
/// Most bytes of that section that are searched: as many as are read of a table.
const RELOCATED_BYTES_MAX: u64 = 256 << 20;
/// Words of the module up to the address of the text.
const MODULE_WORDS: usize = 23;
/// Bytes of the table's header.
const HEADER_BYTES: u64 = 72;
/// The word of the header with the address of the text section before Go 1.26.
const TEXT_AT: u64 = 24;
/// Bytes of one relocation (`Elf64_Rela`): offset u64, type and symbol u64, addend i64.
const RELOCATION_BYTES: usize = 24;
/// Most bytes of relocations read of a file: a Go program with 0.2 million functions has 50 MiB.
const RELOCATIONS_BYTES_MAX: u64 = 256 << 20;

/// Returns the bytes at a range of a file; `None` if they cannot be read.
pub(crate) type ReadFn<'f, 'r> = dyn Fn(Range<u64>) -> Option<Cow<'f, [u8]>> + 'r;

/// The table's place in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PclntabSection {
    /// Range in the file.
    pub(crate) range: Range<u64>,
    /// Address of the text section, if the table lacks it and it was found elsewhere.
    pub(crate) text: Option<u64>,
}

impl PclntabSection {
    /// Searches for the table. `headers`: the bytes of the file's headers and of the names of its sections; `read`: all
    /// others.
    pub(crate) fn of(headers: &[u8], read: &ReadFn<'_, '_>) -> Option<Self> {
        let header = headers.read_at::<FileHeader64<LittleEndian>>(0).ok()?;
        let file = File { sections: header.sections(LE, headers).ok()?, read };
        let Some(table) = SECTIONS.iter().find_map(|name| file.section(name.as_bytes())) else {
            return file.table_without_section();
        };
        let range = range_of(table)?;
        let entries = Entries::of(table.sh_addr(LE), &range, read).filter(|entries| !entries.has_text);
        let text = entries
            .and_then(|entries| file.text_of_module(&entries).or_else(|| file.text_of_loader(&entries)));
        Some(Self { range, text })
    }
}

/// The range of a section in the file, if it has bytes there.
fn range_of(section: &SectionHeader64<LittleEndian>) -> Option<Range<u64>> {
    let (begin, size) = section.file_range(LE)?;
    Some(begin..begin.checked_add(size)?)
}

/// Facts from a table whose entries are relative to the text section.
struct Entries {
    /// Its own address.
    address: u64,
    /// It has the address of the text section.
    has_text: bool,
    functions: u64,
    /// From the begin of the first function to the end of the last, relative to the text section.
    range: Range<u64>,
}

impl Entries {
    /// `None`: entries are addresses, or cannot be read.
    fn of(address: u64, table: &Range<u64>, read: &ReadFn<'_, '_>) -> Option<Self> {
        let within = |skip: u64, length: u64| {
            let begin = table.start.checked_add(skip)?;
            let end = begin.checked_add(length).filter(|end| *end <= table.end)?;
            read(begin..end)
        };
        let header = within(0, HEADER_BYTES)?;
        let word = |number: usize| u64_at(&header, 8 + 8 * number);
        let (functions, text, entries) = (word(0)?, word(2)?, word(7)?);
        if !counts_from_text(u32_at(&header, 0)?)? || functions == 0 || functions > FUNCTIONS_MAX {
            return None;
        }
        let entry = |number: u64| u32_at(&within(entries.checked_add(8 * number)?, 4)?, 0).map(u64::from);
        Some(Self { address, has_text: text != 0, functions, range: entry(0)?..entry(functions)? })
    }

    /// The address of the text section in a module, if it is this table's.
    fn text_in(&self, module: &[u64; MODULE_WORDS]) -> Option<u64> {
        let [table, .., entries, _, _, first, end, text] = *module;
        let is_ours = table == self.address && entries == self.functions + 1;
        let fits = text.checked_add(self.range.start) == Some(first)
            && text.checked_add(self.range.end) == Some(end);
        (is_ours && fits && text != 0).then_some(text)
    }
}

/// Parts of a file that may contain the address of its text section.
struct File<'d, 'f, 'r> {
    sections: SectionTable<'d, FileHeader64<LittleEndian>, &'d [u8]>,
    read: &'r ReadFn<'f, 'r>,
}

impl<'d> File<'d, '_, '_> {
    fn section(&self, name: &[u8]) -> Option<&'d SectionHeader64<LittleEndian>> {
        self.sections.section_by_name(LE, name).map(|(_, section)| section)
    }

    /// The table of Go 1.18 to 1.25 in a section with other data, where the system's linker puts it for
    /// position-independent programs: found by a header whose text address the loader relocates.
    fn table_without_section(&self) -> Option<PclntabSection> {
        self.section(BUILD_INFO)?;
        let section = self.section(RELOCATED)?;
        let range = range_of(section).filter(|range| range.end - range.start <= RELOCATED_BYTES_MAX)?;
        let bytes = (self.read)(range.clone())?;
        let starts = bytes.as_chunks::<8>().0.iter();
        let is_header = |start: &[u8; 8]| matches!(start, [0xf0 | 0xf1, 0xff, 0xff, 0xff, 0, 0, 1 | 4, 8]);
        let skip = 8 * starts.take_while(|start| !is_header(start)).count() as u64;
        let range = range.start + skip..range.end;
        let entries = Entries::of(section.sh_addr(LE).checked_add(skip)?, &range, self.read)?;
        let text = Some(self.text_of_loader(&entries)?);
        Some(PclntabSection { range, text })
    }

    /// From the linker's data of the module.
    fn text_of_module(&self, entries: &Entries) -> Option<u64> {
        let section = self.section(MODULE)?;
        let Range { start: begin, .. } = range_of(section)?;
        let bytes = (self.read)(begin..begin.checked_add(8 * MODULE_WORDS as u64)?)?;
        let mut module = [0; MODULE_WORDS];
        for (number, word) in module.iter_mut().enumerate() {
            *word = u64_at(&bytes, 8 * number)?;
        }
        entries.text_in(&module).or_else(|| {
            self.relocate(section.sh_addr(LE), &mut module);
            entries.text_in(&module)
        })
    }

    /// From the value that the loader would write into the header.
    fn text_of_loader(&self, entries: &Entries) -> Option<u64> {
        let mut text = [0];
        self.relocate(entries.address.checked_add(TEXT_AT)?, &mut text);
        text.into_iter().find(|text| *text != 0)
    }

    /// Relocates words at an address like the loader, for a program loaded at its stated address.
    fn relocate(&self, address: u64, words: &mut [u64]) {
        let mut left = RELOCATIONS_BYTES_MAX;
        for section in self.sections.iter().filter(|section| section.sh_type(LE) == elf::SHT_RELA) {
            let Some(range) = range_of(section) else { continue };
            let Some(rest) = left.checked_sub(range.end - range.start) else { return };
            left = rest;
            let Some(bytes) = (self.read)(range) else { continue };
            for relocation in bytes.as_chunks::<RELOCATION_BYTES>().0 {
                if let Some((place, addend)) = relative(relocation)
                    && let Some(skip) = place.checked_sub(address).filter(|skip| skip.is_multiple_of(8))
                    && let Some(word) =
                        usize::try_from(skip / 8).ok().and_then(|number| words.get_mut(number))
                {
                    *word = addend;
                }
            }
        }
    }
}

/// Offset and addend of a relocation that only adds the load bias.
fn relative(relocation: &[u8]) -> Option<(u64, u64)> {
    let word = |number: usize| u64_at(relocation, 8 * number);
    // It has no symbol, so the upper half is zero.
    let is_relative =
        [elf::R_X86_64_RELATIVE, elf::R_AARCH64_RELATIVE].iter().any(|kind| word(1) == Some(kind.0.into()));
    Some((word(0)?, word(2)?)).filter(|_| is_relative)
}
