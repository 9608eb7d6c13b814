//! Lookups in an ELF file for finding an interpreter.
//!
//! Owns: symbols by name, bytes by stated address, the frame description that covers an address. Because: many files
//! are examined, most of which contain no interpreter; the symbol hash table rules those out at once. Does not: open
//! files, or know what the names mean.

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, EndianSlice, LittleEndian, UnwindContext, UnwindSection,
    X86_64,
};
use object::elf::{FileHeader64, PF_X, PT_LOAD, STT_FUNC, STT_GNU_IFUNC, STT_OBJECT};
use object::read::elf::{
    ElfFile64, FileHeader as _, ProgramHeader as _, SectionHeader as _, Sym as _, SymbolTable,
};
use object::{Endianness, Object as _, ObjectSection as _, ReadRef};

type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// A function or variable, as stated in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Symbol {
    /// Stated address (SVMA).
    pub(super) address: u64,
    /// Size in bytes; 0 when not stated.
    pub(super) size: u64,
}

/// The code that one frame description covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    /// First stated address.
    pub(super) begin: u64,
    /// End address, exclusive.
    pub(super) end: u64,
    /// It starts with only a return address on the stack, as functions do and split-off parts do not.
    pub(super) is_function: bool,
}

/// A parsed file.
pub(super) struct Elf<'a, R: ReadRef<'a>> {
    file: ElfFile64<'a, Endianness, R>,
    data: R,
}

impl<'a, R: ReadRef<'a>> Elf<'a, R> {
    /// `None` unless the bytes are a little-endian 64-bit ELF file of x86-64.
    pub(super) fn parse(data: R) -> Option<Self> {
        // The first bytes rule out most other files before their tables are read.
        FileHeader64::<Endianness>::parse(data).ok()?;
        let file = ElfFile64::<Endianness, R>::parse(data).ok()?;
        (file.is_little_endian() && file.architecture() == object::Architecture::X86_64)
            .then_some(Self { file, data })
    }

    /// AVMA − SVMA of the mapping that maps the file from `file_offset` on at `begin`.
    pub(super) fn bias(&self, begin: u64, file_offset: u64) -> Option<u64> {
        let endian = self.file.endian();
        self.file.elf_program_headers().iter().find_map(|header| {
            let (offset, size) = header.file_range(endian);
            let page = offset & !4095;
            let shown = file_offset >= page && file_offset < offset.saturating_add(size);
            (header.p_type(endian) == PT_LOAD && header.p_flags(endian).0 & PF_X.0 != 0 && shown).then(|| {
                let stated = header.p_vaddr(endian).wrapping_add(file_offset.wrapping_sub(offset));
                begin.wrapping_sub(stated)
            })
        })
    }

    /// The exported symbol of this name.
    pub(super) fn exported(&self, name: &str) -> Option<Symbol> {
        let endian = self.file.endian();
        let symbols = self.file.elf_dynamic_symbol_table();
        let hashed = self.file.elf_section_table().gnu_hash(endian, self.data).ok().flatten();
        if let Some((table, _)) = hashed {
            let hash = object::elf::gnu_hash(name.as_bytes());
            let versions = object::read::elf::VersionTable::default();
            let (_, symbol) = table.find(endian, name.as_bytes(), hash, None, symbols, &versions)?;
            return (!symbol.is_undefined(endian))
                .then(|| Symbol { address: symbol.st_value(endian), size: symbol.st_size(endian) });
        }
        let strings = self.strings(symbols);
        symbols.iter().find_map(|symbol| {
            let found = !symbol.is_undefined(endian) && is_named(strings, symbol.st_name(endian), name);
            found.then(|| Symbol { address: symbol.st_value(endian), size: symbol.st_size(endian) })
        })
    }

    /// The symbols of these names in the static symbol table, which strippers remove; in the order of `names`.
    pub(super) fn local<const N: usize>(&self, names: [&str; N]) -> [Option<Symbol>; N] {
        let mut found = [None; N];
        let endian = self.file.endian();
        let symbols = self.file.elf_symbol_table();
        let strings = self.strings(symbols);
        for symbol in symbols.iter() {
            if !matches!(symbol.st_type(), STT_FUNC | STT_OBJECT | STT_GNU_IFUNC)
                || symbol.is_undefined(endian)
            {
                continue;
            }
            for (name, slot) in names.iter().zip(&mut found) {
                if slot.is_none() && is_named(strings, symbol.st_name(endian), name) {
                    *slot = Some(Symbol { address: symbol.st_value(endian), size: symbol.st_size(endian) });
                }
            }
        }
        found
    }

    /// Addresses of the symbols whose name has this prefix, from the static symbol table; sorted, each once.
    pub(super) fn prefixed(&self, prefix: &str) -> Vec<u64> {
        let endian = self.file.endian();
        let symbols = self.file.elf_symbol_table();
        let strings = self.strings(symbols);
        let named = symbols.iter().filter(|symbol| {
            let name = strings.get(symbol.st_name(endian) as usize..).unwrap_or_default();
            !symbol.is_undefined(endian) && name.starts_with(prefix.as_bytes())
        });
        let mut addresses: Vec<u64> = named.map(|symbol| symbol.st_value(endian)).collect();
        addresses.sort_unstable();
        addresses.dedup();
        addresses
    }

    /// All names of a symbol table in one read: reading each name separately would take a system call each.
    fn strings(&self, symbols: &SymbolTable<'a, FileHeader64<Endianness>, R>) -> &'a [u8] {
        let section = self.file.elf_section_table().section(symbols.string_section());
        section.and_then(|section| section.data(self.file.endian(), self.data)).unwrap_or_default()
    }

    /// Up to `length` bytes at a stated address; `None` when the file has none there.
    pub(super) fn bytes_at(&self, address: u64, length: u64) -> Option<&'a [u8]> {
        let endian = self.file.endian();
        self.file.elf_program_headers().iter().filter(|header| header.p_type(endian) == PT_LOAD).find_map(
            |header| {
                let from = address.checked_sub(header.p_vaddr(endian))?;
                let (offset, size) = header.file_range(endian);
                let length = size.checked_sub(from)?.min(length);
                let bytes = self.data.read_bytes_at(offset.checked_add(from)?, length).ok()?;
                (!bytes.is_empty()).then_some(bytes)
            },
        )
    }

    /// The bytes of the section of this name, if there are at most `limit`.
    pub(super) fn section(&self, name: &str, limit: u64) -> Option<&'a [u8]> {
        let section = self.file.section_by_name(name)?;
        if section.size() <= limit { section.data().ok() } else { None }
    }

    /// The C string at a stated address, up to `limit` bytes.
    pub(super) fn c_string_at(&self, address: u64, limit: u64) -> Option<&'a [u8]> {
        let bytes = self.bytes_at(address, limit)?;
        Some(&bytes[..bytes.iter().position(|b| *b == 0)?])
    }

    /// The extent of the frame description that covers a stated address. `None` for files without the sorted index of
    /// frame descriptions (`.eh_frame_hdr`, which every linker writes): a linear search for each address would take
    /// too long.
    pub(super) fn extent_at(&self, address: u64) -> Option<Extent> {
        let section = |name: &str| {
            let section = self.file.section_by_name(name)?;
            Some((section.data().ok()?, section.address()))
        };
        let (frame_bytes, frame_address) = section(".eh_frame")?;
        let (index_bytes, index_address) = section(".eh_frame_hdr")?;
        let mut bases = BaseAddresses::default().set_eh_frame(frame_address).set_eh_frame_hdr(index_address);
        if let Some((_, text)) = section(".text") {
            bases = bases.set_text(text);
        }
        let frame = EhFrame::new(frame_bytes, LittleEndian);
        let index = EhFrameHdr::new(index_bytes, LittleEndian).parse(&bases, 8).ok()?;
        let table = index.table()?;
        let cie = EhFrame::<Bytes<'_>>::cie_from_offset;
        let fde = table.fde_for_address(&frame, &bases, address, cie).ok()?;
        let begin = fde.initial_address();
        let mut context = UnwindContext::new();
        let first = fde.unwind_info_for_address(&frame, &bases, &mut context, begin).ok()?;
        let is_function = matches!(first.cfa(), CfaRule::RegisterAndOffset { register, offset: 8 } if *register == X86_64::RSP);
        Some(Extent { begin, end: begin.checked_add(fde.len())?, is_function })
    }
}

/// Whether the string at `offset` is exactly `name`.
fn is_named(strings: &[u8], offset: u32, name: &str) -> bool {
    let text = strings.get(offset as usize..).unwrap_or_default();
    text.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.first() == Some(&0))
}
