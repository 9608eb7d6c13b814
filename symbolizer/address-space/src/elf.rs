//! The parts of an ELF file that decide how its addresses are named, fetched with a few small reads.
//!
//! Owns: program headers, the identity of a file, the list of relevant sections, the check that it is a regular file.
//! Because: a mapped file may be a FIFO, a device, truncated while it is read, or malicious. Reading a bounded number
//! of bytes (rather than mapping the file) can fail, but can neither hang nor crash. Does not: parse symbols, DWARF
//! or call frame information.

use std::fmt;
use std::fs::File;
use std::hash::Hasher as _;
use std::io;
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, MetadataExt as _};

use rustc_hash::FxHasher;

use crate::address::{FileOffset, Svma};
use crate::arch::Arch;
use crate::reason::NoSymbol;

/// Most program headers read; linkers emit about a dozen.
const SEGMENTS_MAX: usize = 4096;
/// Most section headers read; executables have a few dozen.
const SECTIONS_MAX: usize = 65_535;
/// Largest table of section names read.
const SECTION_NAMES_MAX: u64 = 4 << 20;
/// Largest part of a note segment searched for a build-id.
const NOTES_MAX: u64 = 256 << 10;
/// Longest build-id accepted as an identity (SHA-256 is the longest that linkers produce).
const BUILD_ID_MAX: usize = 32;
/// Shortest: fewer bytes would collide (the fast styles of lld and mold have 8).
const BUILD_ID_MIN: usize = 8;
/// Files up to this size are hashed completely; of larger ones, as many bytes, spread evenly.
const HASHED_BYTES: u64 = 16 << 20;
/// Length of one hashed piece.
const HASHED_PIECE: usize = 64 << 10;

const PAGE: u64 = 4096;
const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;
const PF_X: u32 = 1;
const SHT_SYMTAB: u32 = 2;
const SHT_NOTE: u32 = 7;
const SHT_NOBITS: u32 = 8;
const SHT_DYNSYM: u32 = 11;
const SHF_COMPRESSED: u64 = 0x800;
const NT_GNU_BUILD_ID: u32 = 3;

/// A build-id, up to 32 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BuildId {
    length: u8,
    bytes: [u8; BUILD_ID_MAX],
}

impl BuildId {
    /// A build-id of 8 to 32 bytes; other lengths do not identify a file.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        if !(BUILD_ID_MIN..=BUILD_ID_MAX).contains(&bytes.len()) || bytes.iter().all(|b| *b == 0) {
            return None;
        }
        let mut id = Self { length: u8::try_from(bytes.len()).ok()?, bytes: [0; BUILD_ID_MAX] };
        id.bytes[..bytes.len()].copy_from_slice(bytes);
        Some(id)
    }

    /// The bytes of the note.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl fmt::Display for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The identity of a file by its content: the key of every cache of tables and names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ModuleId {
    /// The linker's build-id.
    BuildId(BuildId),
    /// For files without a build-id: size in bytes and a hash of the content (up to 16 MiB spread over it).
    Content {
        /// Size of the file in bytes.
        size: u64,
        /// Hash of the content.
        hash: u64,
    },
}

impl fmt::Display for ModuleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BuildId(id) => fmt::Display::fmt(id, f),
            Self::Content { size, hash } => write!(f, "{size:x}-{hash:016x}"),
        }
    }
}

/// A loadable segment (`PT_LOAD`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Start in the file.
    pub offset: FileOffset,
    /// Start in memory, as the file states it.
    pub svma: Svma,
    /// Bytes in the file.
    pub file_size: u64,
    /// Bytes in memory.
    pub memory_size: u64,
    /// Contains code.
    pub executable: bool,
}

impl Segment {
    /// True when a mapping of this segment may contain this offset of the file: loaders map whole pages.
    fn maps(&self, offset: FileOffset) -> bool {
        let begin = self.offset.0 & !(PAGE - 1);
        let end = self.offset.0.saturating_add(self.file_size).saturating_add(PAGE - 1) & !(PAGE - 1);
        (begin..end).contains(&offset.0)
    }

    /// The address that the file states for the byte at `offset`.
    pub const fn svma_of(&self, offset: FileOffset) -> Svma {
        Svma(offset.0.wrapping_sub(self.offset.0).wrapping_add(self.svma.0))
    }
}

/// The debug file named by `.gnu_debuglink`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DebugLink {
    /// File name, without a path.
    pub name: Box<[u8]>,
    /// CRC-32 of that file.
    pub crc: u32,
}

/// The sections that decide how names are looked up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sections {
    /// Has `.symtab`.
    pub symtab: bool,
    /// Has `.dynsym`.
    pub dynsym: bool,
    /// Decompressed size of `.debug_info`, 0 when there is none.
    pub debug_info: u64,
    /// Decompressed size of all debug sections, as their headers state it.
    pub debug_total: u64,
    /// `.gnu_debuglink`.
    pub debug_link: Option<DebugLink>,
    /// Refers to another file with shared debug information (`.gnu_debugaltlink`, `.debug_sup`).
    pub supplement: Option<Box<[u8]>>,
    /// Some compressed section states a size that its compressed bytes cannot expand to.
    pub inflated: bool,
}

/// The facts of one ELF file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElfFacts {
    /// Size of the file in bytes.
    pub size: u64,
    /// Loadable segments, in the order of the file.
    pub segments: Vec<Segment>,
    /// Build-id, if there is a usable one.
    pub build_id: Option<BuildId>,
    /// Relevant sections; empty when the section headers are stripped or corrupt.
    pub sections: Sections,
}

impl ElfFacts {
    /// Reads the facts of an open file of the native architecture.
    ///
    /// # Errors
    /// [`NoSymbol::NotElf`], [`NoSymbol::CorruptElf`], [`NoSymbol::TooLarge`] or a reason of the file system.
    pub fn read(file: &File) -> Result<Self, NoSymbol> {
        let size = file.metadata().map_err(|e| NoSymbol::from_io(&e))?.len();
        let header: [u8; 64] = read_array(file, 0).map_err(|_| NoSymbol::NotElf)?;
        if header[..4] != *b"\x7fELF"
            || header[4] != 2
            || header[5] != 1
            || u16_at(&header, 18) != Arch::NATIVE.elf_machine()
        {
            return Err(NoSymbol::NotElf);
        }
        let programs =
            table(file, size, u64_at(&header, 32), u16_at(&header, 54), 56, u16_at(&header, 56).into())?;
        let mut segments = Vec::new();
        let mut build_id = None;
        for p in programs.chunks_exact(56).take(SEGMENTS_MAX) {
            let (offset, file_size) = (u64_at(p, 8), u64_at(p, 32));
            match u32_at(p, 0) {
                PT_LOAD => segments.push(Segment {
                    offset: FileOffset(offset),
                    svma: Svma(u64_at(p, 16)),
                    file_size,
                    memory_size: u64_at(p, 40),
                    executable: u32_at(p, 4) & PF_X != 0,
                }),
                PT_NOTE if build_id.is_none() => {
                    build_id = build_id_in(file, offset, file_size, u64_at(p, 48))
                }
                _ => {}
            }
        }
        // A file without readable section headers still has segments: it maps and unwinds, but has no names.
        let mut sections = Sections::default();
        let note = read_sections(file, size, &header, &mut sections).unwrap_or(None);
        if let (None, Some((offset, length, align))) = (build_id, note) {
            build_id = build_id_in(file, offset, length, align);
        }
        Ok(Self { size, segments, build_id, sections })
    }

    /// The segment of a mapping that starts at `offset` of the file. Code is preferred: only executable mappings are
    /// looked up, and neighboring segments may share a page of the file.
    pub fn segment_at(&self, offset: FileOffset) -> Option<&Segment> {
        let mapping = || self.segments.iter().filter(|s| s.maps(offset));
        mapping().find(|s| s.executable).or_else(|| mapping().next())
    }

    /// The identity of the file: its build-id, or its size and a hash of its content.
    ///
    /// # Errors
    /// A reason of the file system, if the content must be hashed and cannot be read.
    pub fn identity(&self, file: &File) -> Result<ModuleId, NoSymbol> {
        match self.build_id {
            Some(id) => Ok(ModuleId::BuildId(id)),
            None => content_hash(file, self.size)
                .map(|hash| ModuleId::Content { size: self.size, hash })
                .map_err(|e| NoSymbol::from_io(&e)),
        }
    }
}

/// Returns an open file if it is a regular file.
///
/// # Errors
/// [`NoSymbol::NotRegularFile`], or a reason of the file system.
pub fn check_regular(file: File) -> Result<File, NoSymbol> {
    let meta = file.metadata().map_err(|e| NoSymbol::from_io(&e))?;
    let kind = meta.file_type();
    if !kind.is_file() || kind.is_fifo() || kind.is_char_device() || meta.size() > i64::MAX as u64 {
        return Err(NoSymbol::NotRegularFile);
    }
    Ok(file)
}

/// Reads a table of fixed-size entries that must lie within the file.
fn table(
    file: &File,
    size: u64,
    offset: u64,
    entry_size: u16,
    expected_size: u16,
    count: usize,
) -> Result<Vec<u8>, NoSymbol> {
    if count == 0 {
        return Ok(Vec::new());
    }
    if entry_size != expected_size {
        return Err(NoSymbol::CorruptElf);
    }
    if count > SECTIONS_MAX {
        return Err(NoSymbol::TooLarge);
    }
    read_range(file, size, offset, count as u64 * u64::from(expected_size)).ok_or(NoSymbol::CorruptElf)
}

/// Offset, length and alignment of a note section.
type NoteRange = (u64, u64, u64);

/// Fills `sections`; returns the range of the build-id note section, if there is one.
fn read_sections(
    file: &File,
    size: u64,
    header: &[u8],
    out: &mut Sections,
) -> Result<Option<NoteRange>, NoSymbol> {
    let headers = table(file, size, u64_at(header, 40), u16_at(header, 58), 64, u16_at(header, 60).into())?;
    let names_index = usize::from(u16_at(header, 62));
    let Some(names_header) = headers.chunks_exact(64).nth(names_index) else { return Ok(None) };
    let names_size = u64_at(names_header, 32).min(SECTION_NAMES_MAX);
    let names = read_range(file, size, u64_at(names_header, 24), names_size).ok_or(NoSymbol::CorruptElf)?;
    let mut note = None;
    for s in headers.chunks_exact(64) {
        let kind = u32_at(s, 4);
        let (offset, length) = (u64_at(s, 24), u64_at(s, 32));
        match kind {
            SHT_SYMTAB => out.symtab = true,
            SHT_DYNSYM => out.dynsym = true,
            SHT_NOBITS => continue,
            _ => {}
        }
        let name = names.get(u32_at(s, 0) as usize..).unwrap_or_default();
        let name = &name[..name.iter().position(|b| *b == 0).unwrap_or(name.len())];
        let stated = stated_size(file, name, u64_at(s, 8), offset, length);
        // Neither zlib (1032:1) nor zstd on real debug information (below 100:1) comes near this ratio.
        out.inflated |= stated > length.saturating_mul(1200).saturating_add(1 << 20);
        match name {
            b".debug_info" | b".zdebug_info" => out.debug_info = stated,
            b".gnu_debuglink" => out.debug_link = debug_link(file, size, offset, length),
            b".gnu_debugaltlink" => out.supplement = Some(file_name(file, size, offset, length)),
            // After a version of two bytes, and a flag for which of the two files this is.
            b".debug_sup" => {
                out.supplement =
                    Some(file_name(file, size, offset.saturating_add(3), length.saturating_sub(3)))
            }
            b".note.gnu.build-id" if kind == SHT_NOTE => note = Some((offset, length, u64_at(s, 48))),
            _ => {}
        }
        if name.starts_with(b".debug_") || name.starts_with(b".zdebug_") {
            out.debug_total = out.debug_total.saturating_add(stated);
        }
    }
    Ok(note)
}

/// Decompressed size of a section, as its header states it.
fn stated_size(file: &File, name: &[u8], flags: u64, offset: u64, length: u64) -> u64 {
    if flags & SHF_COMPRESSED != 0 {
        return read_array::<24>(file, offset).map_or(length, |h| u64_at(&h, 8));
    }
    if name.starts_with(b".zdebug_")
        && let Ok(h) = read_array::<12>(file, offset)
        && h[..4] == *b"ZLIB"
    {
        return h[4..].iter().fold(0, |size, byte| size << 8 | u64::from(*byte));
    }
    length
}

fn debug_link(file: &File, size: u64, offset: u64, length: u64) -> Option<DebugLink> {
    let bytes = read_range(file, size, offset, length.min(4096))?;
    let end = bytes.iter().position(|b| *b == 0)?;
    let crc = bytes.get((end + 4) & !3..)?.first_chunk::<4>()?;
    let name = &bytes[..end];
    // The format requires a file name; a path could lead anywhere.
    let plain = !name.is_empty() && !name.contains(&b'/') && name != b"." && name != b"..";
    plain.then(|| DebugLink { name: name.into(), crc: u32::from_le_bytes(*crc) })
}

/// The path at the start of a section; empty when there is none.
fn file_name(file: &File, size: u64, offset: u64, length: u64) -> Box<[u8]> {
    let mut bytes = read_range(file, size, offset, length.min(4096)).unwrap_or_default();
    bytes.truncate(bytes.iter().position(|byte| *byte == 0).unwrap_or(0));
    bytes.into_boxed_slice()
}

fn build_id_in(file: &File, offset: u64, length: u64, align: u64) -> Option<BuildId> {
    let mut bytes = vec![0; usize::try_from(length.min(NOTES_MAX)).ok()?];
    let read = file.read_at(&mut bytes, offset).ok()?;
    bytes.truncate(read);
    build_id_note(&bytes, align)
}

/// Finds the GNU build-id in the bytes of a note segment.
fn build_id_note(mut notes: &[u8], align: u64) -> Option<BuildId> {
    let align = if align == 8 { 8 } else { 4 };
    let padded = |n: usize| n.checked_add(align - 1).map(|n| n & !(align - 1));
    while notes.len() >= 12 {
        let (name_size, size) = (u32_at(notes, 0) as usize, u32_at(notes, 4) as usize);
        let description = padded(12usize.checked_add(name_size)?)?;
        let next = padded(description.checked_add(size)?)?;
        if u32_at(notes, 8) == NT_GNU_BUILD_ID && notes.get(12..16) == Some(b"GNU\0") && name_size == 4 {
            return BuildId::new(notes.get(description..description + size)?);
        }
        notes = notes.get(next..)?;
    }
    None
}

/// Hashes up to [`HASHED_BYTES`] of the file: all of a small one, evenly spread pieces (with the first and the last)
/// of a large one. Two link results of the same size differ in many places, because addresses shift.
fn content_hash(file: &File, size: u64) -> io::Result<u64> {
    let mut hasher = FxHasher::default();
    hasher.write_u64(size);
    let mut piece = vec![0; HASHED_PIECE];
    let pieces = (size.min(HASHED_BYTES)).div_ceil(HASHED_PIECE as u64);
    let last = size.saturating_sub(HASHED_PIECE as u64);
    for i in 0..pieces {
        let offset = match size {
            _ if size <= HASHED_BYTES => i * HASHED_PIECE as u64,
            _ if i + 1 == pieces => last,
            _ => last / (pieces - 1) * i,
        };
        let read = file.read_at(&mut piece, offset)?;
        hasher.write(&piece[..read]);
    }
    Ok(hasher.finish())
}

/// `length` bytes at `offset`, if the file of `size` bytes has them.
pub fn read_range(file: &File, size: u64, offset: u64, length: u64) -> Option<Vec<u8>> {
    if offset.checked_add(length)? > size {
        return None;
    }
    let mut bytes = vec![0; usize::try_from(length).ok()?];
    file.read_exact_at(&mut bytes, offset).ok()?;
    Some(bytes)
}

/// `N` bytes at `offset`.
///
/// # Errors
/// The file cannot be read, or is shorter.
pub fn read_array<const N: usize>(file: &File, offset: u64) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    file.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}

/// The little-endian u16 at an offset; 0 beyond the end of the buffer.
pub fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |b| u16::from_le_bytes(*b))
}

/// The little-endian u32 at an offset; 0 beyond the end of the buffer.
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |b| u32::from_le_bytes(*b))
}

/// The little-endian u64 at an offset; 0 beyond the end of the buffer.
pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |b| u64::from_le_bytes(*b))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use proptest::prelude::*;

    use super::*;

    fn note(kind: u32, name: &[u8], description: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for word in [name.len(), description.len()] {
            bytes.extend(u32::try_from(word).unwrap().to_le_bytes());
        }
        bytes.extend(kind.to_le_bytes());
        for part in [name, description] {
            bytes.extend(part);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        bytes
    }

    fn check_note(notes: &[Vec<u8>], expected: Option<&str>) {
        assert_eq!(build_id_note(&notes.concat(), 4).map(|id| id.to_string()).as_deref(), expected);
    }

    #[test]
    fn a_build_id_is_found_among_other_notes() {
        let id = note(3, b"GNU\0", &[0xab; 20]);
        check_note(
            &[note(1, b"GNU\0", &[0; 16]), note(4, b"Go\0\0", b"x/y"), id.clone()],
            Some(&"ab".repeat(20)),
        );
        check_note(&[note(3, b"Xen\0", &[0xab; 20])], None);
        check_note(&[id[..30].to_vec()], None);
    }

    #[test]
    fn a_build_id_of_unusual_length_is_no_identity() {
        for (bytes, usable) in
            [(&[1; 7][..], false), (&[1; 8], true), (&[0; 20], false), (&[1; 32], true), (&[1; 33], false)]
        {
            assert_eq!(BuildId::new(bytes).is_some(), usable, "{bytes:?}");
        }
    }

    #[test]
    fn a_shared_page_belongs_to_the_segment_with_code() {
        let segment = |offset, svma, file_size, executable| Segment {
            offset: FileOffset(offset),
            svma: Svma(svma),
            file_size,
            memory_size: file_size,
            executable,
        };
        // Neighbors share the page at 0x1000 of the file.
        let segments = vec![segment(0, 0, 0x1234, false), segment(0x1240, 0x2240, 0x800, true)];
        let facts = ElfFacts { size: 0x2000, segments, build_id: None, sections: Sections::default() };
        let svma = |offset| facts.segment_at(FileOffset(offset)).map(|s| s.svma_of(FileOffset(offset)).0);
        assert_eq!(svma(0x1000), Some(0x2000));
        assert_eq!(svma(0), Some(0));
        assert_eq!(svma(0x2000), None);
    }

    proptest! {
        #[test]
        fn any_bytes_after_an_elf_header_are_handled(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            let mut file = tempfile::tempfile().unwrap();
            let mut header = [0; 64];
            header[..6].copy_from_slice(b"\x7fELF\x02\x01");
            header[18..20].copy_from_slice(&Arch::NATIVE.elf_machine().to_le_bytes());
            // Tables inside the file, so that their entries are read.
            header[32] = 64;
            header[40] = 64;
            header[54] = 56;
            header[56] = 3;
            header[58] = 64;
            header[60] = 3;
            file.write_all(&header).unwrap();
            file.write_all(&bytes).unwrap();
            if let Ok(facts) = ElfFacts::read(&file) {
                prop_assert!(facts.identity(&file).is_ok());
                facts.segment_at(FileOffset(0));
            }
        }
    }
}
