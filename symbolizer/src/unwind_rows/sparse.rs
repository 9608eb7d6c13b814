//! An ELF file in memory, with only the parts needed for unwinding.
//!
//! Owns: which ranges are read. Because: a library of half a gigabyte has 20 MB of call frame information; reading
//! all of it costs a second and the memory, and if it were mapped, truncating the file would kill this process. Does
//! not: decode anything; unread bytes are zero, and the builder of tables does not access them.

use std::borrow::Cow;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;

use deepctx_address_space::NoSymbol;
use memmap2::MmapMut;
use object::elf::FileHeader64;
use object::read::elf::{FileHeader as _, SectionHeader as _};
use object::read::{ReadCache, ReadRef as _};
use object::{LittleEndian, elf};

use crate::unwind_rows::{NoTable, ReadAt, UnwindTable};

/// Largest file: it takes address space for its whole size, not memory.
pub(crate) const FILE_BYTES_MAX: u64 = 64 << 30;
/// Most bytes read of one file. The largest call frame section seen has 18 MB.
const READ_BYTES_MAX: u64 = 1 << 30;
/// Bytes read at the start of a file: its headers.
const HEAD_BYTES: u64 = 64 << 10;
/// Most bytes read of the dynamic section: 4,096 entries; the longest seen has about 60.
const DYNAMIC_BYTES_MAX: u64 = 64 << 10;
/// Most section headers read.
const SECTIONS_MAX: usize = 1 << 16;

/// The bytes of a file; unread ones are zero and take no memory.
#[derive(Debug)]
pub struct SparseFile<'f> {
    bytes: MmapMut,
    file: &'f File,
}

impl<'f> SparseFile<'f> {
    /// Reads the headers and the call frame sections of an ELF file.
    ///
    /// # Errors
    /// [`NoSymbol::NotElf`], [`NoSymbol::TooLarge`], or a reason of the file system.
    pub fn frames_of(file: &'f File) -> Result<Self, NoSymbol> {
        let size = file.metadata().map_err(|e| NoSymbol::from_io(&e))?.len();
        if size > FILE_BYTES_MAX {
            return Err(NoSymbol::TooLarge);
        }
        let head = 0..size.min(HEAD_BYTES);
        let mut ranges = vec![head];
        // A file without usable sections still has segments; then all of it is read, within the bound.
        match frame_sections(file) {
            Some(sections) => ranges.extend(sections),
            None if size <= READ_BYTES_MAX => ranges.push(0..size),
            None => return Err(NoSymbol::TooLarge),
        }
        let length = usize::try_from(size.max(1)).map_err(|_| NoSymbol::TooLarge)?;
        let mut bytes = MmapMut::map_anon(length).map_err(|e| NoSymbol::from_io(&e))?;
        let mut budget = READ_BYTES_MAX;
        for range in ranges {
            let (begin, end) = (range.start.min(size), range.end.min(size));
            budget = budget.checked_sub(end.saturating_sub(begin)).ok_or(NoSymbol::TooLarge)?;
            if let Some(into) = bytes.get_mut(begin as usize..end as usize) {
                file.read_exact_at(into, begin).map_err(|e| NoSymbol::from_io(&e))?;
            }
        }
        Ok(Self { bytes, file })
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The unwind table; data beyond the call frame sections is read from the file.
    ///
    /// # Errors
    /// The reason why there is no table.
    pub fn unwind_table(&self) -> Result<UnwindTable, NoTable> {
        UnwindTable::from_parts(&self.bytes, self)
    }
}

impl ReadAt for SparseFile<'_> {
    fn read_at(&self, range: Range<u64>) -> Option<Cow<'_, [u8]>> {
        let end = range.end.min(self.bytes.len() as u64);
        let length = end.checked_sub(range.start).filter(|&length| length <= READ_BYTES_MAX)?;
        let mut bytes = vec![0; usize::try_from(length).ok()?];
        self.file.read_exact_at(&mut bytes, range.start).ok()?;
        Some(Cow::Owned(bytes))
    }
}

/// File ranges of the headers of segments and sections, their names, what a dynamic linker reads, and every call frame
/// section. `None` without one of the last.
fn frame_sections(file: &File) -> Option<Vec<Range<u64>>> {
    const LE: LittleEndian = LittleEndian;
    let cache = ReadCache::new(file);
    let data = &cache;
    let header = data.read_at::<FileHeader64<LittleEndian>>(0).ok()?;
    let sections = header.section_headers(LE, data).ok()?;
    let strings = sections.get(header.section_strings_index(LE, data).ok()?.0)?;
    let (names_at, names_bytes) = strings.file_range(LE)?;
    let names = data.read_bytes_at(names_at, names_bytes).ok()?;
    let table = header.e_shoff(LE);
    // BOLT and patchelf put them after everything else. (`program_headers` fails without any.)
    let (segments_at, segments) = (header.e_phoff(LE), header.program_headers(LE, data).unwrap_or_default());
    let mut ranges = vec![
        table..table.checked_add(size_of_val(sections) as u64)?,
        segments_at..segments_at.checked_add(size_of_val(segments) as u64)?,
        names_at..names_at + names_bytes,
    ];
    // It distinguishes programs and the dynamic linker from libraries.
    let dynamic = sections.iter().take(SECTIONS_MAX).find(|section| section.sh_type(LE) == elf::SHT_DYNAMIC);
    if let Some((offset, size)) = dynamic.and_then(|section| section.file_range(LE)) {
        ranges.push(offset..offset.checked_add(size.min(DYNAMIC_BYTES_MAX))?);
    }
    let fixed = ranges.len();
    for section in sections.iter().take(SECTIONS_MAX) {
        let name = names.get(section.sh_name(LE) as usize..).unwrap_or_default();
        let wanted = [&b".eh_frame"[..], b".debug_frame", b".zdebug_frame"];
        if section.sh_type(LE) != elf::SHT_NOBITS
            && wanted.iter().any(|w| name.starts_with(w))
            && let Some((offset, size)) = section.file_range(LE)
        {
            ranges.push(offset..offset.checked_add(size)?);
        }
    }
    (ranges.len() > fixed).then_some(ranges)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::SparseFile;
    use crate::unwind_rows::UnwindTable;

    #[test]
    fn a_sparse_file_gives_the_same_table() {
        let path = std::env::current_exe().unwrap();
        let whole = UnwindTable::from_elf(&std::fs::read(&path).unwrap()).unwrap();
        let file = File::open(&path).unwrap();
        let sparse = SparseFile::frames_of(&file).unwrap();
        assert_eq!(sparse.unwind_table().unwrap(), whole);
    }

    /// As BOLT writes them, which rustc and libLLVM are built with.
    #[test]
    fn program_headers_behind_everything_else_are_read() {
        let mut bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let whole = UnwindTable::from_elf(&bytes).unwrap();
        let number = |at: usize, size: usize| {
            let mut number = [0; 8];
            number[..size].copy_from_slice(&bytes[at..at + size]);
            u64::from_le_bytes(number) as usize
        };
        // e_phoff, e_phentsize and e_phnum of `Elf64_Ehdr`.
        let (begin, size) = (number(32, 8), number(54, 2) * number(56, 2));
        let headers = bytes[begin..begin + size].to_vec();
        bytes[begin..begin + size].fill(0);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        let moved = bytes.len() as u64;
        bytes[32..40].copy_from_slice(&moved.to_le_bytes());
        bytes.extend(headers);
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, &bytes).unwrap();
        assert_eq!(SparseFile::frames_of(&file).unwrap().unwind_table().unwrap(), whole);
    }

    #[test]
    fn a_file_that_is_not_elf_has_no_table() {
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, b"#!/bin/sh\n").unwrap();
        let sparse = SparseFile::frames_of(&file).unwrap();
        assert!(sparse.unwind_table().is_err());
    }
}
