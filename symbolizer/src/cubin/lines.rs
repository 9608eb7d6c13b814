//! Source lines of device code.
//!
//! Owns: reading the line table of a cubin. Because: an offset in a kernel means nothing to its author. Does not:
//! decode instructions.
//!
//! `.debug_line` is DWARF (version 2 by `ptxas` 12, 3 by 13), with a sequence for each function. A cubin is
//! relocatable: each function starts at 0 in a section of its own, and a relocation at the first address of a
//! sequence says which function it is. `.nv_debug_line_sass` beside it refers to lines of generated PTX, and is
//! ignored.

use std::num::NonZeroU32;

use gimli::{DebugLine, DebugLineOffset, LineProgramHeader, LittleEndian as Little};
use object::LittleEndian;
use object::elf::FileHeader64;
use object::read::elf::{FileHeader as _, SectionHeader as _, Sym as _};
use rustc_hash::FxHashMap;

use super::{CubinTable, EM_CUDA, NAME_MAX, NoCubin};

/// Most rows of an image: sixteen megabytes. Instructions beyond have no line.
pub const ROWS_MAX: usize = 1 << 20;
/// Most files of an image, and most tables: each linked source file has one.
const FILES_MAX: usize = 1 << 14;
/// Longest path.
const PATH_MAX: usize = 4096;
/// Most relocations applied: one per function.
const RELOCATIONS_MAX: usize = 1 << 18;
/// Bits of an address within a function; the symbol number of the function is above them.
const FUNCTION_SHIFT: u32 = 32;

/// The start of a line in the code of a function; it holds up to the next row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Bytes from the start of the function.
    pub offset: u32,
    /// Index in [`LineTable::files`].
    pub file: u32,
    /// The line; `None` where the table has none.
    pub line: Option<NonZeroU32>,
}

/// The line table of an image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineTable {
    /// Paths as written by the compiler.
    pub files: Vec<String>,
    /// Rows by function, ascending.
    pub functions: FxHashMap<String, Vec<Row>>,
    /// Rows beyond [`ROWS_MAX`], or outside functions.
    pub left_out: u64,
}

impl LineTable {
    /// File and line of an instruction.
    pub fn at(&self, function: &str, offset: u64) -> Option<(&str, NonZeroU32)> {
        let rows = self.functions.get(function)?;
        let offset = u32::try_from(offset).ok()?;
        let row = rows[..rows.partition_point(|row| row.offset <= offset)].last()?;
        Some((self.files.get(row.file as usize)?, row.line?))
    }
}

/// Reads the line table of a cubin. An image without one has no functions.
///
/// # Errors
/// [`NoCubin`]. A corrupt table is read up to the first error.
pub fn read(bytes: &[u8]) -> Result<LineTable, NoCubin> {
    let header = FileHeader64::<LittleEndian>::parse(bytes).map_err(|_| NoCubin::NotElf)?;
    let endian = header.endian().map_err(|_| NoCubin::NotElf)?;
    let machine = header.e_machine.get(endian).0;
    if machine != EM_CUDA {
        return Err(NoCubin::OtherMachine(machine));
    }
    let sections = header.sections(endian, bytes).map_err(|_| NoCubin::Corrupt(CubinTable::Sections))?;
    let symbols = sections
        .symbols(endian, bytes, object::elf::SHT_SYMTAB)
        .map_err(|_| NoCubin::Corrupt(CubinTable::Symbols))?;
    let mut table = None;
    let mut relocations: Vec<(usize, usize)> = Vec::new();
    for section in sections.iter() {
        let Ok(name) = sections.section_name(endian, section) else { continue };
        let data = || section.data(endian, bytes).map_err(|_| NoCubin::Corrupt(CubinTable::Lines));
        match name {
            b".debug_line" => table = Some(data()?),
            b".rel.debug_line" => relocations.extend(relocations_in(data()?, 16)),
            b".rela.debug_line" => relocations.extend(relocations_in(data()?, 24)),
            _ => {}
        }
    }
    let Some(table) = table else { return Ok(LineTable::default()) };
    let mut table = table.to_vec();
    for (place, symbol) in relocations.iter().take(RELOCATIONS_MAX) {
        // The symbol number stands for the function until the rows are read: 0 means no function.
        let address = ((*symbol as u64) << FUNCTION_SHIFT).to_le_bytes();
        if let Some(to) = place.checked_add(8).and_then(|end| table.get_mut(*place..end)) {
            to.copy_from_slice(&address);
        }
    }
    let mut rows = Rows::default();
    rows.read(&table);
    let mut functions: FxHashMap<String, Vec<Row>> = FxHashMap::default();
    for (number, mut of_function) in rows.by_symbol {
        let symbol = symbols.symbol(object::SymbolIndex(number as usize)).ok();
        let name = symbol.and_then(|symbol| symbol.name(endian, symbols.strings()).ok());
        let Some(name) = name.filter(|name| !name.is_empty() && name.len() <= NAME_MAX) else {
            rows.left_out += of_function.len() as u64;
            continue;
        };
        functions.entry(String::from_utf8_lossy(name).into_owned()).or_default().append(&mut of_function);
    }
    // After joining them: several symbols may have one name.
    for rows in functions.values_mut() {
        // A stable sort: of several rows at one offset, the last counts.
        rows.sort_by_key(|row| row.offset);
    }
    Ok(LineTable { files: rows.files, functions, left_out: rows.left_out })
}

/// Relocations of `bytes` bytes each: offset and symbol number. (`Elf64_Rel` and `Elf64_Rela` start alike.)
fn relocations_in(data: &[u8], bytes: usize) -> impl Iterator<Item = (usize, usize)> {
    data.chunks_exact(bytes).filter_map(|entry| {
        let place = u64::from_le_bytes(entry.get(..8)?.try_into().ok()?);
        let symbol = u32::from_le_bytes(entry.get(12..16)?.try_into().ok()?);
        Some((usize::try_from(place).ok()?, symbol as usize))
    })
}

#[derive(Default)]
struct Rows {
    files: Vec<String>,
    known: FxHashMap<String, u32>,
    by_symbol: FxHashMap<u32, Vec<Row>>,
    count: usize,
    left_out: u64,
}

type Slice<'t> = gimli::EndianSlice<'t, Little>;

impl Rows {
    /// Reads the consecutive tables of all compilation units.
    fn read(&mut self, table: &[u8]) {
        let lines = DebugLine::new(table, Little);
        let mut offset = 0;
        for _ in 0..FILES_MAX {
            let Ok(program) = lines.program(DebugLineOffset(offset), 8, None, None) else { return };
            // The length, and the four bytes of the length field; 64-bit tables are not written.
            let length = program.header().unit_length();
            self.program(program);
            offset = match offset.checked_add(4).and_then(|offset| offset.checked_add(length)) {
                Some(next) if next < table.len() => next,
                _ => return,
            };
        }
    }

    fn program(&mut self, program: gimli::IncompleteLineProgram<Slice<'_>>) {
        let mut rows = program.rows();
        // By the file number in the table.
        let mut files: FxHashMap<u64, Option<u32>> = FxHashMap::default();
        while let Ok(Some((header, row))) = rows.next_row() {
            let symbol = (row.address() >> FUNCTION_SHIFT) as u32;
            let Some(within) = u32::try_from(row.address() & u64::from(u32::MAX)).ok().filter(|_| symbol > 0)
            else {
                self.left_out += u64::from(!row.end_sequence());
                continue;
            };
            if self.count >= ROWS_MAX {
                self.left_out += 1;
                continue;
            }
            let file = if files.len() < FILES_MAX {
                *files.entry(row.file_index()).or_insert_with(|| self.file(header, row.file_index()))
            } else {
                files.get(&row.file_index()).copied().flatten()
            };
            let line = row.line().and_then(|line| u32::try_from(line.get()).ok()).and_then(NonZeroU32::new);
            // After the end of a function, and in unknown files, there are no lines.
            let line = line.filter(|_| file.is_some() && !row.end_sequence());
            self.count += 1;
            let row = Row { offset: within, file: file.unwrap_or(0), line };
            self.by_symbol.entry(symbol).or_default().push(row);
        }
    }

    /// The index of a file's path.
    fn file(&mut self, header: &LineProgramHeader<Slice<'_>>, number: u64) -> Option<u32> {
        let entry = header.file(number)?;
        let text = |value: gimli::AttributeValue<Slice<'_>>| match value {
            gimli::AttributeValue::String(text) => Some(text.to_string_lossy().into_owned()),
            _ => None,
        };
        let name = text(entry.path_name())?;
        let folder = if name.starts_with('/') { None } else { entry.directory(header).and_then(text) };
        let path = match folder {
            Some(folder) if !folder.is_empty() => format!("{folder}/{name}"),
            _ => name,
        };
        if path.is_empty() || path.len() > PATH_MAX {
            return None;
        }
        if let Some(known) = self.known.get(&path) {
            return Some(*known);
        }
        if self.files.len() >= FILES_MAX {
            return None;
        }
        let place = self.files.len() as u32;
        self.files.push(path.clone());
        self.known.insert(path, place);
        Some(place)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    // `tests/fixtures/cubin/lines.ptx`, by `ptxas -lineinfo -arch=sm_80` of CUDA 12.9 and 13.5.
    const CUDA_12: &[u8] = include_bytes!("../../tests/fixtures/cubin/lines12.cubin");
    const CUDA_13: &[u8] = include_bytes!("../../tests/fixtures/cubin/lines13.cubin");
    /// Image, function, offset, file, line: from `cuptiGetSassToSourceCorrelation` of CUPTI 12.9.
    const ANSWERS: &str = include_str!("../../tests/fixtures/cubin/lines.tsv");
    const WITHOUT: &[u8] = include_bytes!("../../tests/fixtures/cubin/cuda13.cubin");

    #[test]
    fn every_instruction_has_the_line_that_cupti_gives() {
        let images = [("lines12", read(CUDA_12).unwrap()), ("lines13", read(CUDA_13).unwrap())];
        let mut compared = 0;
        for answer in ANSWERS.lines() {
            let [image, function, offset, file, line] = answer.split('\t').collect::<Vec<_>>()[..] else {
                panic!("{answer}");
            };
            let (_, lines) = images.iter().find(|(name, _)| *name == image).unwrap();
            let ours = lines.at(function, offset.parse().unwrap());
            assert_eq!(ours, Some((file, line.parse().unwrap())), "{answer}");
            compared += 1;
        }
        assert_eq!(compared, 96);
        for (_, lines) in &images {
            assert_eq!((lines.files.len(), lines.functions.len(), lines.left_out), (2, 2, 0));
        }
    }

    #[test]
    fn offsets_outside_a_function_have_no_line() {
        let lines = read(CUDA_13).unwrap();
        assert_eq!(lines.at("_Z5scalePfi", 0x17f).map(|(_, line)| line.get()), Some(9));
        for (function, offset) in
            [("_Z5scalePfi", 0x180), ("_Z5scalePfi", u64::MAX), ("_Z4reluPf", 0), ("", 0)]
        {
            assert_eq!(lines.at(function, offset), None, "{function}+{offset:#x}");
        }
    }

    #[test]
    fn an_image_without_a_table_has_no_lines() {
        assert_eq!(read(WITHOUT), Ok(LineTable::default()));
        assert_eq!(read(b"not one"), Err(NoCubin::NotElf));
    }

    #[test]
    fn without_relocations_rows_have_no_function() {
        let mut bytes = CUDA_12.to_vec();
        let at = bytes.windows(15).position(|name| name == b".rel.debug_line").unwrap();
        bytes[at + 1] = b'x';
        let lines = read(&bytes).unwrap();
        assert!(lines.functions.is_empty() && lines.left_out > 10, "{lines:?}");
    }

    proptest! {
        #[test]
        fn corrupt_tables_never_panic(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
            within_table in any::<bool>(), cut: prop::sample::Index,
        ) {
            for whole in [CUDA_12, CUDA_13] {
                let mut bytes = whole.to_vec();
                // The table itself is small compared with the rest of the file.
                let range = if within_table { 0x5f0..0x770 } else { 0..bytes.len() };
                for (at, value) in &changes {
                    bytes[range.start + at.index(range.len())] = *value;
                }
                if let Ok(lines) = read(&bytes) {
                    for (function, rows) in &lines.functions {
                        prop_assert!(rows.is_sorted_by_key(|row| row.offset));
                        let _ = lines.at(function, 0x80);
                    }
                }
                bytes.truncate(cut.index(bytes.len()));
                let _ = read(&bytes);
            }
        }
    }
}
