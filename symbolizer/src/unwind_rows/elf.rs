//! The parts of an ELF file that the builder needs.
//!
//! Owns: finding the executable segments and the call frame sections, bounded and decompressed. Because: the builder
//! should only see addresses and plain sections. Does not: decode frames.

use std::borrow::Cow;

use deepctx_address_space::Arch;
use object::elf::{self, FileHeader64, ProgramHeader64, SectionHeader64};
use object::read::elf::{FileHeader as _, ProgramHeader as _, SectionHeader as _};
use object::read::{CompressedData, CompressionFormat};
use object::{LittleEndian, ReadRef as _};

use super::{Limits, NoTable};

const LE: LittleEndian = LittleEndian;

/// Most section and program headers read: every linker stays far below, and a forged count must not cost time.
const HEADERS_MAX: usize = 1 << 16;
/// Most executable segments kept: linkers write one, `mold` and BOLT a few.
const TEXTS_MAX: usize = 64;
/// Most call frame sections of one kind: linkers write one, BOLT keeps the old one beside it.
const SECTIONS_MAX: usize = 8;
/// Size of the ELF header, which contains no code.
const ELF_HEADER_BYTES: u64 = size_of::<FileHeader64<LittleEndian>>() as u64;

/// A range of stated addresses, `begin..end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) begin: u64,
    pub(super) end: u64,
}

/// A call frame section, decompressed.
#[derive(Clone, Debug)]
pub(super) struct FrameSection<'d> {
    pub(super) data: Cow<'d, [u8]>,
    pub(super) address: u64,
    /// The end is not known from a section header: the section ends at the first terminator.
    pub(super) ends_at_terminator: bool,
}

/// The parts of a file that the builder needs.
#[derive(Debug)]
pub(super) struct Image<'d> {
    pub(super) arch: Arch,
    /// Executable segments, sorted, disjoint.
    pub(super) texts: Vec<Range>,
    pub(super) eh_frames: Vec<FrameSection<'d>>,
    pub(super) debug_frames: Vec<FrameSection<'d>>,
    pub(super) eh_frame_hdr: u64,
    pub(super) text_base: u64,
    pub(super) got_base: u64,
    /// The entry point, if the file is a program or the dynamic linker, and not another library.
    pub(super) entry: Option<u64>,
    /// Call frame sections that cannot be read.
    pub(super) unreadable_sections: u64,
}

impl<'d> Image<'d> {
    /// Reads the headers of a file for `arch`.
    pub(super) fn read(bytes: &'d [u8], arch: Arch, limits: &Limits) -> Result<Self, NoTable> {
        let header = bytes.read_at::<FileHeader64<LittleEndian>>(0).map_err(|()| NoTable::NotElf)?;
        if header.e_ident.magic != elf::ELFMAG {
            return Err(NoTable::NotElf);
        }
        let ident = &header.e_ident;
        if ident.class != elf::ELFCLASS64 || ident.data != elf::ELFDATA2LSB {
            return Err(NoTable::UnknownMachine);
        }
        let found = Arch::of_elf_machine(header.e_machine(LE).0).ok_or(NoTable::UnknownMachine)?;
        if found != arch {
            return Err(NoTable::OtherMachine { found, wanted: arch });
        }
        let segments = header.program_headers(LE, bytes).map_err(|_| NoTable::NotElf)?;
        let segments = &segments[..segments.len().min(HEADERS_MAX)];
        let texts = texts(segments);
        if texts.is_empty() {
            return Err(NoTable::NoText);
        }
        let mut image = Image {
            arch,
            text_base: texts[0].begin,
            texts,
            eh_frames: Vec::new(),
            debug_frames: Vec::new(),
            eh_frame_hdr: 0,
            got_base: 0,
            entry: entry(header, segments, bytes),
            unreadable_sections: 0,
        };
        image.sections(header, bytes, limits)?;
        if image.eh_frames.is_empty() {
            image.eh_frame_of_segment(segments, bytes, limits)?;
        }
        Ok(image)
    }

    /// The end of the executable segment that contains `address`.
    pub(super) fn text_end(&self, address: u64) -> Option<u64> {
        let after = self.texts.partition_point(|text| text.begin <= address);
        let text = self.texts.get(after.checked_sub(1)?)?;
        (address < text.end).then_some(text.end)
    }

    fn sections(
        &mut self,
        header: &FileHeader64<LittleEndian>,
        bytes: &'d [u8],
        limits: &Limits,
    ) -> Result<(), NoTable> {
        // A file without usable section headers may still name its .eh_frame in a program header.
        let Ok(sections) = header.section_headers(LE, bytes) else { return Ok(()) };
        let Ok(strings) = header.section_strings_index(LE, bytes) else { return Ok(()) };
        let names =
            sections.get(strings.0).and_then(|section| section.data(LE, bytes).ok()).unwrap_or_default();
        for section in sections.iter().take(HEADERS_MAX) {
            let name = names.get(section.sh_name(LE) as usize..).unwrap_or_default();
            let is = |wanted: &[u8]| name.starts_with(wanted);
            let address = section.sh_addr(LE);
            if is(b".text\0") {
                self.text_base = address;
            } else if is(b".got\0") {
                self.got_base = address;
            } else if is(b".eh_frame_hdr\0") {
                self.eh_frame_hdr = address;
            } else if is(b".eh_frame\0") || is(b".debug_frame\0") || is(b".zdebug_frame\0") {
                if section.sh_type(LE) == elf::SHT_NOBITS {
                    continue;
                }
                let list = if is(b".eh_frame\0") { &mut self.eh_frames } else { &mut self.debug_frames };
                match contents(section, bytes, is(b".zdebug_frame\0"), limits)? {
                    Some(data) if list.len() < SECTIONS_MAX => {
                        list.push(FrameSection { data, address, ends_at_terminator: false });
                    }
                    _ => self.unreadable_sections += 1,
                }
            }
        }
        Ok(())
    }

    /// Without section headers: `PT_GNU_EH_FRAME` → `.eh_frame_hdr` → `.eh_frame` up to the end of its segment.
    fn eh_frame_of_segment(
        &mut self,
        segments: &[ProgramHeader64<LittleEndian>],
        bytes: &'d [u8],
        limits: &Limits,
    ) -> Result<(), NoTable> {
        let Some(segment) = segments.iter().find(|segment| segment.p_type(LE) == elf::PT_GNU_EH_FRAME) else {
            return Ok(());
        };
        let Ok(data) = segment.data(LE, bytes) else { return Ok(()) };
        self.eh_frame_hdr = segment.p_vaddr(LE);
        let bases = gimli::BaseAddresses::default().set_eh_frame_hdr(self.eh_frame_hdr);
        let Ok(hdr) = gimli::EhFrameHdr::new(data, gimli::LittleEndian).parse(&bases, 8) else {
            self.unreadable_sections += 1;
            return Ok(());
        };
        let gimli::Pointer::Direct(address) = hdr.eh_frame_ptr() else { return Ok(()) };
        for segment in segments.iter().filter(|segment| segment.p_type(LE) == elf::PT_LOAD) {
            let Some(skip) = address.checked_sub(segment.p_vaddr(LE)) else { continue };
            let Ok(data) = segment.data(LE, bytes) else { continue };
            let Some(data) = usize::try_from(skip).ok().and_then(|skip| data.get(skip..)) else { continue };
            if data.is_empty() {
                continue;
            }
            // The end of the section is unknown, but a valid one does not exceed the limit.
            let data = &data[..data.len().min(usize::try_from(limits.section_bytes).unwrap_or(usize::MAX))];
            self.eh_frames.push(FrameSection { data: data.into(), address, ends_at_terminator: true });
            return Ok(());
        }
        self.unreadable_sections += 1;
        Ok(())
    }
}

/// Executable segments, sorted and disjoint. Code starts neither at address 0 nor inside the ELF header, where
/// linkers leave the frames of functions that they removed.
fn texts(segments: &[ProgramHeader64<LittleEndian>]) -> Vec<Range> {
    let mut texts: Vec<Range> = segments
        .iter()
        .filter(|segment| segment.p_type(LE) == elf::PT_LOAD && segment.p_flags(LE).contains(elf::PF_X))
        .filter_map(|segment| {
            let begin = segment.p_vaddr(LE);
            let end = begin.checked_add(segment.p_memsz(LE))?;
            let header = if segment.p_offset(LE) == 0 { ELF_HEADER_BYTES } else { 0 };
            let begin = begin.checked_add(header)?.max(1);
            (begin < end).then_some(Range { begin, end })
        })
        .take(TEXTS_MAX)
        .collect();
    texts.sort_unstable_by_key(|text| text.begin);
    let mut merged: Vec<Range> = Vec::with_capacity(texts.len());
    for text in texts {
        match merged.last_mut() {
            Some(last) if text.begin <= last.end => last.end = last.end.max(text.end),
            _ => merged.push(text),
        }
    }
    merged
}

/// The entry point of a program or a dynamic linker. That of another library is often the start of `.text`, and has no
/// meaning.
fn entry(
    header: &FileHeader64<LittleEndian>,
    segments: &[ProgramHeader64<LittleEndian>],
    bytes: &[u8],
) -> Option<u64> {
    let of_type = |wanted| segments.iter().find(move |segment| segment.p_type(LE) == wanted);
    let dynamic = of_type(elf::PT_DYNAMIC).and_then(|segment| segment.dynamic(LE, bytes).ok().flatten());
    let dynamic = dynamic.map(|entries| &entries[..entries.len().min(HEADERS_MAX)]).unwrap_or_default();
    let value = |wanted| dynamic.iter().find(|entry| entry.d_tag.get(LE) == wanted).map(|e| e.d_val.get(LE));
    let is_program = header.e_type(LE) == elf::ET_EXEC
        || of_type(elf::PT_INTERP).is_some()
        || value(elf::DT_FLAGS_1).is_some_and(|flags| flags & PIE != 0);
    let is_dynamic_linker = || {
        let names = value(elf::DT_STRTAB)?;
        let load = segments.iter().filter(|segment| segment.p_type(LE) == elf::PT_LOAD);
        let offset = load
            .filter_map(|load| Some((names.checked_sub(load.p_vaddr(LE))?, load)))
            .find(|(within, load)| *within < load.p_filesz(LE))
            .and_then(|(within, load)| load.p_offset(LE).checked_add(within))?;
        let name_at = offset.checked_add(value(elf::DT_SONAME)?)?;
        let name = bytes.read_bytes_at(name_at, DYNAMIC_LINKER.len() as u64).ok()?;
        (name == DYNAMIC_LINKER).then_some(())
    };
    let entry = header.e_entry(LE);
    (entry != 0 && (is_program || is_dynamic_linker().is_some())).then_some(entry)
}

/// Prefix of the names of dynamic linkers: `ld-linux-x86-64.so.2`, `ld-linux-aarch64.so.1`, `ld-musl-x86_64.so.1`. The
/// kernel starts programs there.
const DYNAMIC_LINKER: &[u8] = b"ld-";

/// `DF_1_PIE` of `DT_FLAGS_1`.
const PIE: u64 = 0x0800_0000;

/// The decompressed bytes of a section; `None` when they cannot be read.
fn contents<'d>(
    section: &SectionHeader64<LittleEndian>,
    bytes: &'d [u8],
    is_zdebug: bool,
    limits: &Limits,
) -> Result<Option<Cow<'d, [u8]>>, NoTable> {
    let too_large = NoTable::SectionTooLarge(limits.section_bytes);
    if section.sh_size(LE) > limits.section_bytes {
        return Err(too_large);
    }
    let Ok(data) = section.data(LE, bytes) else { return Ok(None) };
    let compressed = match section.compression(LE, bytes) {
        Ok(None) if !is_zdebug => return Ok(Some(data.into())),
        // "ZLIB", the size as eight bytes in big-endian order, the stream.
        Ok(None) => match data.split_first_chunk::<12>() {
            Some(([b'Z', b'L', b'I', b'B', size @ ..], data)) => {
                let uncompressed_size = u64::from_be_bytes(*size);
                CompressedData { format: CompressionFormat::Zlib, data, uncompressed_size }
            }
            _ => return Ok(None),
        },
        Ok(Some((header, offset, size))) => {
            let Ok(data) = bytes.read_bytes_at(offset, size) else { return Ok(None) };
            let format = match header.ch_type.get(LE) {
                kind if kind == elf::ELFCOMPRESS_ZLIB => CompressionFormat::Zlib,
                kind if kind == elf::ELFCOMPRESS_ZSTD => CompressionFormat::Zstandard,
                _ => return Ok(None),
            };
            CompressedData { format, data, uncompressed_size: header.ch_size.get(LE) }
        }
        Err(_) => return Ok(None),
    };
    if compressed.uncompressed_size > limits.section_bytes {
        return Err(too_large);
    }
    Ok(compressed.decompress().ok())
}
