//! Sections of a file by what they hold: code, dynamic symbols, bytes.
//!
//! Owns: reading them in parts, bounded. Because: a large file should be read only as far as needed. Does not: find
//! call frame sections ([`super::elf`]), or say what the bytes mean.

use std::borrow::Cow;
use std::ops::Range;

use object::elf::{self, FileHeader64, SectionHeader64};
use object::read::elf::{FileHeader as _, SectionHeader as _};
use object::{LittleEndian, ReadRef as _};

use super::elf::Image;
use super::frames::ADDRESS_MAX;
use super::uncovered::ReadAt;

const LE: LittleEndian = LittleEndian;

/// Largest dynamic symbol table, and largest table of its names, searched for `greenlet`: its own have 15 KiB.
const DYNAMIC_BYTES_MAX: u64 = 256 << 10;
/// Most names of sections: a program has some fifty.
const NAMES_BYTES_MAX: u64 = 64 << 10;
/// Bytes of one symbol (`Elf64_Sym`): name u32, info u8, other u8, section u16, value u64, size u64.
const SYMBOL_BYTES: usize = 24;

/// The functions among the dynamic symbols whose name, with the rest of the name table, is wanted; by address.
pub(super) fn dynamic_functions(
    sections: &Sections<'_>,
    file: &dyn ReadAt,
    image: &Image<'_>,
    is_wanted: impl Fn(&[u8]) -> bool,
) -> Vec<Range<u64>> {
    functions(sections, elf::SHT_DYNSYM, file, image, is_wanted)
}

/// The same among the static symbols, which the dynamic linker does not need and `strip` removes. Only small tables are
/// read.
pub(super) fn local_functions(
    sections: &Sections<'_>,
    file: &dyn ReadAt,
    image: &Image<'_>,
    is_wanted: impl Fn(&[u8]) -> bool,
) -> Vec<Range<u64>> {
    functions(sections, elf::SHT_SYMTAB, file, image, is_wanted)
}

fn functions(
    sections: &Sections<'_>,
    table: elf::SectionType,
    file: &dyn ReadAt,
    image: &Image<'_>,
    is_wanted: impl Fn(&[u8]) -> bool,
) -> Vec<Range<u64>> {
    let found = || {
        let symbols = sections.list.iter().find(|section| section.sh_type(LE) == table)?;
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
    /// The section with the names of all.
    names: Option<&'d SectionHeader64<LittleEndian>>,
}

impl<'d> Sections<'d> {
    pub(super) fn of(headers: &'d [u8]) -> Option<Self> {
        let header = headers.read_at::<FileHeader64<LittleEndian>>(0).ok()?;
        let list = header.section_headers(LE, headers).ok()?;
        let names = header.shstrndx(LE, headers).ok().and_then(|index| list.get(index as usize));
        Some(Self { list, names })
    }

    /// Whether a section has a name with this prefix.
    pub(super) fn any_named(&self, file: &dyn ReadAt, begin: &[u8]) -> bool {
        let Some(names) = self.names.and_then(|names| contents(names, file, NAMES_BYTES_MAX)) else {
            return false;
        };
        let name = |section: &SectionHeader64<LittleEndian>| names.get(section.sh_name(LE) as usize..);
        self.list.iter().any(|section| name(section).is_some_and(|name| name.starts_with(begin)))
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

/// The bytes of an uncompressed section, up to `most`.
fn contents<'f>(
    section: &SectionHeader64<LittleEndian>,
    file: &'f dyn ReadAt,
    most: u64,
) -> Option<Cow<'f, [u8]>> {
    let (begin, size) = section.file_range(LE)?;
    bytes_at(begin..begin.checked_add(size)?, file, most)
}

/// The bytes at a range of the file, if there are any, and at most `most`.
pub(super) fn bytes_at(range: Range<u64>, file: &dyn ReadAt, most: u64) -> Option<Cow<'_, [u8]>> {
    let size = range.end.saturating_sub(range.start);
    (1..=most).contains(&size).then(|| file.read_at(range))?
}
