//! The symbols and code of one ELF file, found by a few bounded reads.
//!
//! Owns: segments, symbols by name with their versions, code bytes by address. Because: libraries of accelerators have
//! up to half a gigabyte, and the owner of the process may replace them with anything. Does not: know the catalogue;
//! map files (truncation of a mapped file kills the process).

use std::borrow::Cow;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;

use deepctx_address_space::{FileOffset, NoSymbol, Svma};
use object::LittleEndian as LE;
use object::elf::{
    FileHeader64, PF_W, PF_X, PT_LOAD, ProgramHeader64, SHN_UNDEF, SHT_DYNAMIC, SHT_DYNSYM, SHT_GNU_VERDEF,
    SHT_GNU_VERSYM, SHT_NOBITS, SHT_SYMTAB, STT_FUNC, STT_GNU_IFUNC, STT_NOTYPE, STT_OBJECT, SectionHeader64,
    Sym64,
};
use object::pod::slice_from_all_bytes;
use rustc_hash::FxHashMap;

/// Maximum program headers; linkers write about a dozen.
const SEGMENTS_MAX: u64 = 4096;
/// Maximum section headers; the format's own limit without extended numbering.
const SECTIONS_MAX: u64 = 65_535;
/// Maximum bytes of one symbol or string table. The largest known one (a debug build of a framework) has 160 MB of
/// strings.
const TABLE_BYTES_MAX: u64 = 256 << 20;
/// Maximum number of listed needed libraries.
const NEEDED_MAX: usize = 1024;
/// Tag of an entry of the dynamic section that names a library.
const DT_NEEDED: u64 = 1;
/// Maximum number of followed version definitions; libraries have a few dozen.
const VERSIONS_MAX: usize = 4096;
/// Maximum symbols of one name: static functions of several objects may share it.
pub const SAME_NAME_MAX: usize = 16;

/// Bytes that can be read at an offset: a file, or memory in tests.
pub trait ByteSource {
    /// Number of bytes.
    fn size(&self) -> u64;
    /// Exactly these bytes, or `None`.
    fn read(&self, range: Range<u64>) -> Option<Cow<'_, [u8]>>;
}

impl ByteSource for [u8] {
    fn size(&self) -> u64 {
        self.len() as u64
    }

    fn read(&self, range: Range<u64>) -> Option<Cow<'_, [u8]>> {
        let range = usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?;
        self.get(range).map(Cow::Borrowed)
    }
}

impl ByteSource for File {
    fn size(&self) -> u64 {
        self.metadata().map_or(0, |metadata| metadata.len())
    }

    fn read(&self, range: Range<u64>) -> Option<Cow<'_, [u8]>> {
        let length = range.end.checked_sub(range.start)?;
        // Checked before anything is allocated.
        if range.end > self.size() {
            return None;
        }
        let mut bytes = vec![0; usize::try_from(length).ok()?];
        self.read_exact_at(&mut bytes, range.start).ok()?;
        Some(Cow::Owned(bytes))
    }
}

/// Kind of a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SymbolKind {
    /// Code.
    Code,
    /// A function that returns the address of the code.
    Indirect,
    /// A variable.
    Data,
}

/// One definition of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Stated address.
    pub svma: Svma,
    /// Bytes of code; 0 when not stated.
    pub size: u64,
    /// Its kind.
    pub kind: SymbolKind,
    /// Its version (`libcudart.so.12`), if it has one.
    pub version: Option<Box<str>>,
    /// It is exported; otherwise it is only in the static table.
    pub exported: bool,
}

/// An ELF file of this machine.
#[derive(Debug)]
pub struct Image<'s, S: ByteSource + ?Sized> {
    source: &'s S,
    segments: Vec<ProgramHeader64<LE>>,
    sections: Vec<SectionHeader64<LE>>,
    names: Vec<u8>,
}

impl<'s, S: ByteSource + ?Sized> Image<'s, S> {
    /// Reads the headers.
    ///
    /// # Errors
    /// [`NoSymbol::NotElf`], [`NoSymbol::CorruptElf`] or [`NoSymbol::TooLarge`].
    pub fn parse(source: &'s S) -> Result<Self, NoSymbol> {
        let header = source.read(0..64).ok_or(NoSymbol::NotElf)?;
        let (header, _) =
            object::pod::from_bytes::<FileHeader64<LE>>(&header).map_err(|()| NoSymbol::NotElf)?;
        let ident = &header.e_ident;
        let machine = header.e_machine.get(LE);
        if ident.magic != object::elf::ELFMAG
            || ident.class != object::elf::ELFCLASS64
            || ident.data != object::elf::ELFDATA2LSB
            || machine != object::elf::EM_X86_64
        {
            return Err(NoSymbol::NotElf);
        }
        let segments = table::<ProgramHeader64<LE>, S>(
            source,
            header.e_phoff.get(LE),
            header.e_phentsize.get(LE),
            header.e_phnum.get(LE).into(),
            SEGMENTS_MAX,
        )?;
        // A file without section headers runs, but has no names.
        let sections = table::<SectionHeader64<LE>, S>(
            source,
            header.e_shoff.get(LE),
            header.e_shentsize.get(LE),
            header.e_shnum.get(LE).into(),
            SECTIONS_MAX,
        )
        .unwrap_or_default();
        let mut image = Self { source, segments, sections, names: Vec::new() };
        let names = image.sections.get(usize::from(header.e_shstrndx.get(LE).0));
        image.names = names.and_then(|section| image.section_bytes(section)).unwrap_or_default().into_owned();
        Ok(image)
    }

    /// The definitions of each wanted name, in the order of `wanted`.
    ///
    /// # Errors
    /// [`NoSymbol::NoSymbolTable`] when the file has none, [`NoSymbol::TooLarge`], [`NoSymbol::CorruptElf`].
    pub fn find(&self, wanted: &[&str]) -> Result<Vec<Vec<Symbol>>, NoSymbol> {
        let mut index: FxHashMap<&[u8], Vec<usize>> = FxHashMap::default();
        for (i, name) in wanted.iter().enumerate() {
            index.entry(name.as_bytes()).or_default().push(i);
        }
        let mut found = vec![Vec::new(); wanted.len()];
        let mut tables = 0;
        for kind in [SHT_DYNSYM, SHT_SYMTAB] {
            let Some(section) = self.sections.iter().find(|section| section.sh_type.get(LE) == kind) else {
                continue;
            };
            self.search(section, kind == SHT_DYNSYM, &index, &mut found)?;
            tables += 1;
        }
        if tables == 0 { Err(NoSymbol::NoSymbolTable) } else { Ok(found) }
    }

    fn search(
        &self,
        section: &SectionHeader64<LE>,
        exported: bool,
        index: &FxHashMap<&[u8], Vec<usize>>,
        found: &mut [Vec<Symbol>],
    ) -> Result<(), NoSymbol> {
        let strings = self.sections.get(section.sh_link.get(LE) as usize).ok_or(NoSymbol::CorruptElf)?;
        if section.sh_size.get(LE) > TABLE_BYTES_MAX || strings.sh_size.get(LE) > TABLE_BYTES_MAX {
            return Err(NoSymbol::TooLarge);
        }
        let bytes = self.section_bytes(section).ok_or(NoSymbol::CorruptElf)?;
        let strings = self.section_bytes(strings).ok_or(NoSymbol::CorruptElf)?;
        let symbols = whole_entries::<Sym64<LE>>(&bytes);
        let versions = if exported { self.versions(&strings) } else { Versions::default() };
        for (i, symbol) in symbols.iter().enumerate() {
            let kind = match symbol.st_type() {
                STT_FUNC | STT_NOTYPE => SymbolKind::Code,
                STT_GNU_IFUNC => SymbolKind::Indirect,
                STT_OBJECT => SymbolKind::Data,
                _ => continue,
            };
            // An undefined symbol is another file's; an absolute one is a version, not code.
            let section = symbol.st_shndx.get(LE);
            if section == SHN_UNDEF || section == object::elf::SHN_ABS {
                continue;
            }
            let Some(places) = index.get(c_string(&strings, symbol.st_name.get(LE))) else { continue };
            let svma = Svma(symbol.st_value.get(LE));
            for &place in places {
                let same = &mut found[place];
                // The static table repeats the dynamic one; an old version may share the code of a new one.
                if same.len() <= SAME_NAME_MAX && !same.iter().any(|other| other.svma == svma) {
                    let size = symbol.st_size.get(LE);
                    same.push(Symbol { svma, size, kind, version: versions.of(i), exported });
                }
            }
        }
        Ok(())
    }

    /// Exported code whose name starts with one of these prefixes, each name once; at most `most`.
    ///
    /// # Errors
    /// As [`Image::find`].
    pub fn exported_code(&self, prefixes: &[String], most: usize) -> Result<Vec<(String, Symbol)>, NoSymbol> {
        let section = self.sections.iter().find(|section| section.sh_type.get(LE) == SHT_DYNSYM);
        let section = section.ok_or(NoSymbol::NoSymbolTable)?;
        let strings = self.sections.get(section.sh_link.get(LE) as usize).ok_or(NoSymbol::CorruptElf)?;
        if section.sh_size.get(LE) > TABLE_BYTES_MAX || strings.sh_size.get(LE) > TABLE_BYTES_MAX {
            return Err(NoSymbol::TooLarge);
        }
        let symbols = self.section_bytes(section).ok_or(NoSymbol::CorruptElf)?;
        let strings = self.section_bytes(strings).ok_or(NoSymbol::CorruptElf)?;
        let mut found: Vec<(String, Symbol)> = Vec::new();
        for symbol in whole_entries::<Sym64<LE>>(&symbols) {
            if symbol.st_type() != STT_FUNC || symbol.st_shndx.get(LE) == SHN_UNDEF {
                continue;
            }
            let name = c_string(&strings, symbol.st_name.get(LE));
            if !prefixes.iter().any(|prefix| name.starts_with(prefix.as_bytes())) {
                continue;
            }
            let (Ok(name), true) = (str::from_utf8(name), found.len() < most) else { continue };
            if found.iter().all(|(other, _)| other != name) {
                let svma = Svma(symbol.st_value.get(LE));
                let size = symbol.st_size.get(LE);
                let symbol = Symbol { svma, size, kind: SymbolKind::Code, version: None, exported: true };
                found.push((name.to_owned(), symbol));
            }
        }
        Ok(found)
    }

    /// The libraries that the file needs (`DT_NEEDED`).
    pub fn needed(&self) -> Vec<String> {
        let dynamic = self.sections.iter().find(|section| section.sh_type.get(LE) == SHT_DYNAMIC);
        let Some((dynamic, strings)) = dynamic.and_then(|section| {
            let strings = self.sections.get(section.sh_link.get(LE) as usize)?;
            Some((self.section_bytes(section)?, self.section_bytes(strings)?))
        }) else {
            return Vec::new();
        };
        let word = |bytes: &[u8]| bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let needed = dynamic.chunks_exact(16).filter(|entry| word(entry) == DT_NEEDED).take(NEEDED_MAX);
        needed
            .filter_map(|entry| u32::try_from(word(&entry[8..])).ok())
            .map(|at| String::from_utf8_lossy(c_string(&strings, at)).into_owned())
            .collect()
    }

    /// True if the file imports this symbol.
    pub fn imports(&self, name: &str) -> bool {
        let section = self.sections.iter().find(|section| section.sh_type.get(LE) == SHT_DYNSYM);
        let tables = section.and_then(|section| {
            let strings = self.sections.get(section.sh_link.get(LE) as usize)?;
            Some((self.section_bytes(section)?, self.section_bytes(strings)?))
        });
        tables.is_some_and(|(symbols, strings)| {
            whole_entries::<Sym64<LE>>(&symbols).iter().any(|symbol| {
                symbol.st_shndx.get(LE) == SHN_UNDEF
                    && c_string(&strings, symbol.st_name.get(LE)) == name.as_bytes()
            })
        })
    }

    fn versions(&self, strings: &[u8]) -> Versions {
        let section = |kind| self.sections.iter().find(|section| section.sh_type.get(LE) == kind);
        let bytes_of = |kind| {
            let section = section(kind).filter(|section| section.sh_size.get(LE) <= TABLE_BYTES_MAX)?;
            self.section_bytes(section)
        };
        let (Some(of_symbols), Some(definitions)) = (bytes_of(SHT_GNU_VERSYM), bytes_of(SHT_GNU_VERDEF))
        else {
            return Versions::default();
        };
        let of_symbols =
            of_symbols.chunks_exact(2).map(|half| u16::from_le_bytes([half[0], half[1]])).collect();
        let mut names = FxHashMap::default();
        let mut at = 0usize;
        for _ in 0..VERSIONS_MAX {
            // Elf64_Verdef: version, flags, index, count (2 bytes each), hash, aux, next (4 bytes each).
            let Some(definition) = definitions.get(at..at.saturating_add(20)) else { break };
            let half = |i: usize| u16::from_le_bytes([definition[i], definition[i + 1]]);
            let word = |i: usize| {
                u32::from_le_bytes([definition[i], definition[i + 1], definition[i + 2], definition[i + 3]])
            };
            let name_at = at.saturating_add(word(12) as usize);
            if let Some(name) = definitions.get(name_at..).and_then(<[u8]>::first_chunk::<4>) {
                let name = c_string(strings, u32::from_le_bytes(*name));
                if let Ok(name) = str::from_utf8(name) {
                    names.insert(half(4) & 0x7fff, name.into());
                }
            }
            let next = word(16) as usize;
            if next == 0 {
                break;
            }
            at = at.saturating_add(next);
        }
        Versions { of_symbols, names }
    }

    /// Up to `limit` bytes of code at a stated address, and their file offset.
    pub fn code(&self, svma: Svma, limit: u64) -> Option<(FileOffset, Cow<'s, [u8]>)> {
        self.segments.iter().find_map(|segment| {
            if segment.p_type.get(LE) != PT_LOAD || segment.p_flags.get(LE).0 & PF_X.0 == 0 {
                return None;
            }
            let from = svma.0.checked_sub(segment.p_vaddr.get(LE))?;
            let length = segment.p_filesz.get(LE).checked_sub(from)?.min(limit);
            let offset = segment.p_offset.get(LE).checked_add(from)?;
            let bytes = self.source.read(offset..offset.checked_add(length)?)?;
            (!bytes.is_empty()).then_some((FileOffset(offset), bytes))
        })
    }

    /// File offset of `bytes` writable bytes at a stated address; `None` if the file does not contain them.
    pub fn variable(&self, svma: Svma, bytes: u64) -> Option<FileOffset> {
        self.segments.iter().find_map(|segment| {
            if segment.p_type.get(LE) != PT_LOAD || segment.p_flags.get(LE).0 & PF_W.0 == 0 {
                return None;
            }
            let from = svma.0.checked_sub(segment.p_vaddr.get(LE))?;
            let offset = segment.p_offset.get(LE).checked_add(from)?;
            (segment.p_filesz.get(LE).checked_sub(from)? >= bytes).then_some(FileOffset(offset))
        })
    }

    /// Stated address and bytes of the section of this name; `None` if there is none of at most `most` bytes.
    pub fn section(&self, name: &str, most: u64) -> Option<(Svma, Cow<'s, [u8]>)> {
        let section = self
            .sections
            .iter()
            .find(|section| c_string(&self.names, section.sh_name.get(LE)) == name.as_bytes())?;
        let small = section.sh_size.get(LE) <= most;
        Some((Svma(section.sh_addr.get(LE)), self.section_bytes(section).filter(|_| small)?))
    }

    /// True if a section's name starts with this prefix.
    pub fn has_section(&self, prefix: &str) -> bool {
        self.sections
            .iter()
            .any(|section| c_string(&self.names, section.sh_name.get(LE)).starts_with(prefix.as_bytes()))
    }

    fn section_bytes(&self, section: &SectionHeader64<LE>) -> Option<Cow<'s, [u8]>> {
        let (offset, size) = (section.sh_offset.get(LE), section.sh_size.get(LE));
        if section.sh_type.get(LE) == SHT_NOBITS || size > TABLE_BYTES_MAX {
            return None;
        }
        self.source.read(offset..offset.checked_add(size)?)
    }
}

/// Versions of dynamic symbols.
#[derive(Debug, Default)]
struct Versions {
    of_symbols: Vec<u16>,
    names: FxHashMap<u16, Box<str>>,
}

impl Versions {
    fn of(&self, symbol: usize) -> Option<Box<str>> {
        // 0 is local and 1 is the file itself; the upper bit hides a version from new links.
        let index = self.of_symbols.get(symbol)? & 0x7fff;
        if index < 2 { None } else { self.names.get(&index).cloned() }
    }
}

/// A table of the file, with a size limit.
fn table<T: object::Pod + Clone, S: ByteSource + ?Sized>(
    source: &S,
    offset: u64,
    entry: u16,
    count: u64,
    most: u64,
) -> Result<Vec<T>, NoSymbol> {
    if count == 0 {
        return Ok(Vec::new());
    }
    if usize::from(entry) != size_of::<T>() {
        return Err(NoSymbol::CorruptElf);
    }
    if count > most {
        return Err(NoSymbol::TooLarge);
    }
    let end = offset.checked_add(count * size_of::<T>() as u64).ok_or(NoSymbol::CorruptElf)?;
    let bytes = source.read(offset..end).ok_or(NoSymbol::CorruptElf)?;
    Ok(whole_entries::<T>(&bytes).to_vec())
}

/// The entries of a table, without a truncated last one.
fn whole_entries<T: object::Pod>(bytes: &[u8]) -> &[T] {
    let whole = bytes.len() - bytes.len() % size_of::<T>().max(1);
    slice_from_all_bytes(&bytes[..whole]).unwrap_or_default()
}

/// The string at `offset`, empty when there is none.
fn c_string(strings: &[u8], offset: u32) -> &[u8] {
    let text = strings.get(offset as usize..).unwrap_or_default();
    &text[..text.iter().position(|b| *b == 0).unwrap_or(0)]
}
