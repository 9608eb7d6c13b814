//! Image: a mapped ELF file, and the functions that its symbol tables name.
//!
//! Owns: the mapping, and an order of the symbols by address. Because: the largest library of PyTorch has a million
//! symbols, so names stay in the file, and four bytes for each symbol are all that is kept. Does not: know debug
//! information, or the requester.
//!
//! The bytes are untrusted: an offset outside the file fails the lookup it was for. The file may shrink meanwhile;
//! callers run inside [`crate::guard::catch_faults`].

use std::cell::OnceCell;
use std::fs::File;
use std::io::Read as _;
use std::ops::Range;

use deepctx_address_space::NoSymbol;
use deepctx_address_space::elf::{u16_at, u32_at, u64_at};
use memmap2::{Mmap, UncheckedAdvice};
use object::elf::{FileHeader64, SectionHeader64};
use object::read::elf::{ElfFile, SectionHeader as _};
use object::{LittleEndian, Object as _, ObjectSection as _};

use super::plt::Stubs;
use super::runtime_names::{RuntimeNames, file_range};

/// Bytes of a symbol in a file.
const SYMBOL_BYTES: usize = 24;
/// Most labels and functions within one function: hand-written code has some ten that are not local.
const INNER_MAX: usize = 64;
/// Most bytes of a decompressed `.gnu_debugdata`; those of distributions have some hundred thousand.
const DEBUGDATA_BYTES_MAX: u64 = 256 << 20;

/// An ELF file.
pub(super) type Elf<'d> = ElfFile<'d, FileHeader64<LittleEndian>>;

/// A mapped file.
#[derive(Debug)]
pub(super) struct Image {
    map: Mmap,
    tables: OnceCell<Tables>,
    stubs: OnceCell<Stubs>,
}

/// The static and dynamic symbols of a file, and a replacement for the static ones.
#[derive(Debug, Default)]
struct Tables {
    fixed: Table,
    dynamic: Table,
    runtime: RuntimeNames,
}

#[derive(Debug, Default)]
struct Table {
    symbols: Bytes,
    names: Bytes,
    /// Indices of symbols of code and data, by address; at one address the largest first.
    by_address: Box<[u32]>,
    /// Ends of the sections, by number, for a table of all functions: a symbol without a size extends to the next one
    /// of its section. Otherwise empty: it covers only its own address.
    section_ends: Box<[u64]>,
}

/// Bytes of the file, or unpacked from it.
#[derive(Debug)]
enum Bytes {
    Mapped(Range<usize>),
    Unpacked(Vec<u8>),
}

impl Image {
    /// Maps a file.
    pub(super) fn map(file: &File) -> Result<Self, NoSymbol> {
        // SAFETY: the file may change under the mapping; it is read as plain bytes by checked parsers, and
        // `catch_faults` turns missing pages into an error.
        let map = unsafe { Mmap::map(file) }.map_err(|error| NoSymbol::from_io(&error))?;
        Ok(Self { map, tables: OnceCell::new(), stubs: OnceCell::new() })
    }

    /// All of its bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.map
    }

    /// Its sections; `None` if the headers are invalid.
    pub(super) fn elf(&self) -> Option<Elf<'_>> {
        Elf::parse(self.bytes()).ok()
    }

    /// The name of the symbol at an address, as in the file.
    pub(super) fn symbol(&self, address: u64) -> Result<&[u8], NoSymbol> {
        let tables = self.tables.get_or_init(|| Tables::of(self.bytes()));
        let bytes = self.bytes();
        let found = tables.fixed.find(bytes, address).or_else(|| tables.dynamic.find(bytes, address));
        match found.or_else(|| tables.runtime.find(bytes, address)) {
            Some([]) => Err(NoSymbol::NotCovered),
            Some(name) => Ok(name),
            None if tables.fixed.symbols.of(bytes).is_empty() && tables.runtime.is_none() => {
                Err(NoSymbol::NoSymbolTable)
            }
            None => Err(NoSymbol::NotCovered),
        }
    }

    /// The name of the function to which the PLT's stub at an address jumps, as in the file.
    pub(super) fn called_by_stub(&self, address: u64) -> Option<&[u8]> {
        let bytes = self.bytes();
        let stubs = self.stubs.get_or_init(|| {
            let elf = self.elf();
            elf.map_or_else(Stubs::default, |elf| Stubs::of(&elf, bytes))
        });
        let number = stubs.find(address)?;
        let dynamic = &self.tables.get_or_init(|| Tables::of(bytes)).dynamic;
        let name = dynamic.name(bytes, symbol(dynamic.symbols.of(bytes), number))?;
        (!name.is_empty()).then_some(name)
    }

    /// Releases the pages that were read; they are read again when needed.
    pub(super) fn release(&self) {
        // SAFETY: the mapping is shared and never written, so any read, now or later, returns the bytes of the file
        // with or without the pages. Pages of zeros, which stand for missing ones, stay zeros.
        let released = unsafe { self.map.unchecked_advise(UncheckedAdvice::DontNeed) };
        if let Err(error) = released {
            tracing::debug!(%error, "pages of a file stay resident");
        }
    }
}

impl Tables {
    fn of(data: &[u8]) -> Self {
        let Ok(elf) = Elf::parse(data) else {
            return Self::default();
        };
        let mut fixed = Table::of(data, mapped(&elf, ".symtab"), mapped(&elf, ".strtab"));
        fixed.section_ends = section_ends(&elf);
        if fixed.symbols.of(data).is_empty()
            && let Some((symbols, names)) = packed(&elf)
        {
            // Functions that have a dynamic symbol are not among these.
            fixed = Table::of(data, Bytes::Unpacked(symbols), Bytes::Unpacked(names));
        }
        let stripped = fixed.symbols.of(data).is_empty();
        let runtime = if stripped { RuntimeNames::of(data) } else { RuntimeNames::None };
        Self { fixed, dynamic: Table::of(data, mapped(&elf, ".dynsym"), mapped(&elf, ".dynstr")), runtime }
    }
}

/// Ends of the sections of a file, by number.
fn section_ends(elf: &Elf<'_>) -> Box<[u64]> {
    let end = |section: &SectionHeader64<LittleEndian>| {
        section.sh_addr(LittleEndian).saturating_add(section.sh_size(LittleEndian))
    };
    elf.elf_section_table().iter().map(end).collect()
}

/// The range of a section in the file, if it has bytes there.
fn mapped(elf: &Elf<'_>, name: &str) -> Bytes {
    Bytes::Mapped(file_range(elf, name).unwrap_or_default())
}

/// Symbols and names of the small ELF file that a stripped program may carry in `.gnu_debugdata`, packed by xz.
fn packed(elf: &Elf<'_>) -> Option<(Vec<u8>, Vec<u8>)> {
    let packed = elf.section_by_name(".gnu_debugdata")?.data().ok()?;
    let mut data = Vec::new();
    xz2::read::XzDecoder::new(packed).take(DEBUGDATA_BYTES_MAX).read_to_end(&mut data).ok()?;
    let inner = Elf::parse(&*data).ok()?;
    let section = |name: &str| Some(inner.section_by_name(name)?.data().ok()?.to_vec());
    Some((section(".symtab")?, section(".strtab")?))
}

impl Default for Bytes {
    fn default() -> Self {
        Self::Mapped(0..0)
    }
}

impl Bytes {
    fn of<'d>(&'d self, data: &'d [u8]) -> &'d [u8] {
        match self {
            Self::Mapped(range) => data.get(range.clone()).unwrap_or_default(),
            Self::Unpacked(bytes) => bytes,
        }
    }
}

/// A symbol by its index in a table.
fn symbol(symbols: &[u8], number: u32) -> &[u8] {
    let begin = number as usize * SYMBOL_BYTES;
    symbols.get(begin..begin + SYMBOL_BYTES).unwrap_or_default()
}

fn address_of(symbol: &[u8]) -> u64 {
    u64_at(symbol, 8)
}

fn size_of(symbol: &[u8]) -> u64 {
    u64_at(symbol, 16)
}

/// Functions, ifuncs, variables, and symbols without a type, such as hand-written code.
fn is_code_or_data(symbol: &[u8]) -> bool {
    matches!(symbol.get(4).map(|info| info & 15), Some(0 | 1 | 2 | 10))
}

/// Whether a symbol is a mark for disassemblers, where code or data begins: `$x`, `$d.1` (mapping symbols of aarch64).
/// Those are local, and have neither a type nor a size.
fn is_mark(symbol: &[u8], names: &[u8]) -> bool {
    let may_be = symbol.get(4) == Some(&0) && size_of(symbol) == 0;
    let name = || names.get(u32_at(symbol, 0) as usize..);
    may_be && name().is_some_and(|name| matches!(name, [b'$', b'x' | b'd', 0 | b'.', ..]))
}

impl Table {
    fn of(data: &[u8], symbols: Bytes, names: Bytes) -> Self {
        let (all, texts) = (symbols.of(data), names.of(data));
        let count = u32::try_from(all.len() / SYMBOL_BYTES).unwrap_or(u32::MAX);
        let is_named = |symbol: &[u8]| is_code_or_data(symbol) && !is_mark(symbol, texts);
        let mut by_address: Vec<u32> = (0..count).filter(|&n| is_named(symbol(all, n))).collect();
        by_address.sort_unstable_by_key(|&n| {
            let symbol = symbol(all, n);
            (address_of(symbol), u64::MAX - size_of(symbol))
        });
        let (by_address, section_ends) = (by_address.into_boxed_slice(), Box::default());
        Self { symbols, names, by_address, section_ends }
    }

    /// The name of the nearest symbol at or before an address that covers it. A symbol without a size does not name the
    /// function that it is in: it is a label of hand-written code. Nor does a function that ends before the address
    /// hide the one around it.
    fn find<'d>(&'d self, data: &'d [u8], address: u64) -> Option<&'d [u8]> {
        let symbols = self.symbols.of(data);
        let nth = |&n: &u32| symbol(symbols, n);
        let before = |limit: u64, or_at: bool| {
            self.by_address.partition_point(|n| {
                let at = address_of(nth(n));
                at < limit || (or_at && at == limit)
            })
        };
        let behind = before(address, true);
        let nearest = address_of(nth(self.by_address.get(behind.checked_sub(1)?)?));
        let first = before(nearest, false);
        let covers = |symbol: &&[u8]| match size_of(symbol) {
            _ if u16_at(symbol, 6) == 0 => false,
            0 => address == nearest || self.section_end(symbol).is_some_and(|end| address < end),
            size => address < address_of(symbol).saturating_add(size),
        };
        let mut candidates = self.by_address.get(first..behind)?.iter().map(nth);
        let mut found = candidates.clone().find(covers);
        if found.is_none() || candidates.all(|symbol| size_of(symbol) == 0) {
            let further = self.by_address.get(first.saturating_sub(INNER_MAX)..first)?;
            let mut functions = further.iter().rev().map(nth).filter(|symbol| size_of(symbol) > 0);
            found = functions.find(covers).or(found);
        }
        self.name(data, found?)
    }

    /// The name of a symbol of this table.
    fn name<'d>(&'d self, data: &'d [u8], symbol: &[u8]) -> Option<&'d [u8]> {
        let name = self.names.of(data).get(u32_at(symbol, 0) as usize..)?;
        Some(without_version(&name[..name.iter().position(|&byte| byte == 0)?]))
    }

    /// The end of a symbol's section, if symbols without a size reach so far.
    fn section_end(&self, symbol: &[u8]) -> Option<u64> {
        self.section_ends.get(usize::from(u16_at(symbol, 6))).copied()
    }
}

/// A name without the version that a linker appends where the source states one: `memcpy@@GLIBC_2.14`.
fn without_version(name: &[u8]) -> &[u8] {
    let is_version = |at: &usize| name[*at..].starts_with(b"@@") || name[*at..].starts_with(b"@GLIBC");
    (1..name.len()).find(is_version).map_or(name, |at| &name[..at])
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    /// Bytes of one symbol: offset of its name, type, section, address and size.
    fn bytes_of((name, kind, section, at, size): (u32, u8, u16, u64, u64)) -> Vec<u8> {
        let mut bytes = name.to_le_bytes().to_vec();
        bytes.extend([kind, 0]);
        bytes.extend(section.to_le_bytes());
        bytes.extend(at.to_le_bytes());
        bytes.extend(size.to_le_bytes());
        bytes
    }

    #[test]
    fn the_nearest_symbol_that_reaches_an_address_names_it() {
        let symbols = [
            (1, 2, 1, 0x10, 0x10),
            (3, 2, 1, 0x10, 0x20),
            (5, 0, 1, 0x40, 0),
            (7, 2, 0, 0x50, 0x10),
            (9, 3, 1, 0x44, 0x10),
            (99, 2, 1, 0x60, u64::MAX),
            (11, 2, 1, 0x70, 0x20),
            (9, 0, 1, 0x78, 0),
            (13, 2, 1, 0xa0, 0x10),
        ];
        let symbols: Vec<u8> = symbols.into_iter().flat_map(bytes_of).collect();
        let table = |section_ends: &[u64]| {
            let names = Bytes::Unpacked(b"\0a\0b\0c\0d\0e\0f\0g@@V_1\0".to_vec());
            let table = Table::of(&[], Bytes::Unpacked(symbols.clone()), names);
            Table { section_ends: section_ends.into(), ..table }
        };
        let (all, some) = (table(&[0, 0x48]), table(&[]));
        for (address, among_all, among_some) in [
            (0xf, None, None),
            (0x10, Some("b"), Some("b")),
            (0x2f, Some("b"), Some("b")),
            (0x30, None, None),
            (0x40, Some("c"), Some("c")),
            (0x45, Some("c"), None),
            // In another section.
            (0x48, None, None),
            // Not defined here, and a name outside the table.
            (0x55, None, None),
            (u64::MAX, None, None),
            // A label within a function.
            (0x78, Some("f"), Some("f")),
            (0x7f, Some("f"), Some("f")),
            (0x95, None, None),
            // With a version.
            (0xa1, Some("g"), Some("g")),
        ] {
            let found = [&all, &some].map(|table| table.find(&[], address));
            let found = found.map(|name| name.map(|name| str::from_utf8(name).unwrap()));
            assert_eq!(found, [among_all, among_some], "{address:#x}");
        }
    }

    #[test]
    fn code_behind_an_inner_function_is_of_the_outer_one() {
        let symbols = [(1, 2, 1, 0x10, 0x40), (3, 2, 1, 0x20, 8), (5, 2, 1, 0x60, 8)];
        let symbols = Bytes::Unpacked(symbols.into_iter().flat_map(bytes_of).collect());
        let table = Table::of(&[], symbols, Bytes::Unpacked(b"\0a\0b\0c\0".to_vec()));
        let found = |address: u64| table.find(&[], address).map(|name| str::from_utf8(name).unwrap());
        assert_eq!([0x18, 0x24, 0x30].map(found), [Some("a"), Some("b"), Some("a")]);
        assert_eq!([0x50, 0x68].map(found), [None, None]);
    }

    #[test]
    fn marks_for_disassemblers_name_no_code() {
        // At the beginning of a function without a size, within it, before its data, and a label that looks alike.
        let symbols = [(1, 0, 1, 0x10, 0), (4, 2, 1, 0x10, 0), (1, 0, 1, 0x18, 0), (6, 0, 1, 0x20, 0)];
        let symbols = symbols.into_iter().chain([(11, 0, 1, 0x30, 0)]);
        let symbols = Bytes::Unpacked(symbols.flat_map(bytes_of).collect());
        let table = Table::of(&[], symbols, Bytes::Unpacked(b"\0$x\0f\0$d.1\0$dx\0".to_vec()));
        let table = Table { section_ends: [0, 0x40].into(), ..table };
        for (address, expect) in [(0x10, "f"), (0x14, "f"), (0x1c, "f"), (0x24, "f"), (0x34, "$dx")] {
            let found = table.find(&[], address).map(|name| str::from_utf8(name).unwrap());
            assert_eq!(found, Some(expect), "{address:#x}");
        }
    }

    #[test]
    fn versions_of_symbols_are_no_part_of_their_names() {
        let check = |name: &str, expect: &str| {
            assert_eq!(without_version(name.as_bytes()), expect.as_bytes());
        };
        check("memcpy@@GLIBC_2.14", "memcpy");
        check("memcpy@GLIBC_2.2.5", "memcpy");
        check("julia_@time_123", "julia_@time_123");
        check("@@", "@@");
        check("", "");
    }

    #[test]
    fn released_pages_read_the_same() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 1 << 20]).unwrap();
        let image = Image::map(&file).unwrap();
        let sum = || image.bytes().iter().map(|byte| u64::from(*byte)).sum::<u64>();
        let resident = || {
            let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
            let begin = format!("{:x}-", image.bytes().as_ptr().addr());
            let line = smaps.split_once(&begin).unwrap().1.lines().find_map(|line| line.strip_prefix("Rss:"));
            line.unwrap().trim().to_owned()
        };
        assert_eq!(sum(), 7 << 20);
        image.release();
        assert_eq!(resident(), "0 kB");
        assert_eq!(sum(), 7 << 20);
    }
}
