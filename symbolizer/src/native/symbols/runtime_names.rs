//! Names from the tables of a language runtime, for files without symbols.
//!
//! Owns: [`RuntimeNames`]. Because: stripping removes symbols but leaves the tables the runtime itself needs to walk
//! stacks and to jump: Go's table of functions, and the table of opcodes of CPython's tail-calling interpreter. Does
//! not: read symbol tables, or guess.

use std::borrow::Cow;
use std::ops::Range;

use object::elf::FileHeader64;
use object::read::elf::ElfFile;
use object::{LittleEndian, Object as _, ObjectSection as _};

use crate::pclntab::{Pclntab, PclntabSection};
use crate::python::opcode_functions;

/// Names from the tables of a runtime.
#[derive(Debug, Default)]
pub(super) enum RuntimeNames {
    /// There are none.
    #[default]
    None,
    /// The range of Go's table in the file, and the address that its functions are relative to.
    Go(PclntabSection),
    /// Functions of opcodes, ascending.
    Python(Vec<(Range<u64>, String)>),
}

fn bytes_at<'d>(data: &'d [u8], range: &Range<u64>) -> Option<&'d [u8]> {
    data.get(usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?)
}

/// The range of a section in the file, if it has bytes there.
pub(super) fn file_range(elf: &ElfFile<'_, FileHeader64<LittleEndian>>, name: &str) -> Option<Range<usize>> {
    let (begin, size) = elf.section_by_name(name)?.file_range()?;
    let (begin, size) = (usize::try_from(begin).ok()?, usize::try_from(size).ok()?);
    Some(begin..begin.checked_add(size)?)
}

impl RuntimeNames {
    /// Searches a file for tables.
    pub(super) fn of(data: &[u8]) -> Self {
        if let Some(table) = PclntabSection::of(data, &|range| bytes_at(data, &range).map(Cow::Borrowed)) {
            return Self::Go(table);
        }
        match opcode_functions(data) {
            found if found.is_empty() => Self::None,
            found => Self::Python(found),
        }
    }

    /// Whether there are any.
    pub(super) fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    /// The name of the function at an address.
    pub(super) fn find<'d>(&'d self, data: &'d [u8], address: u64) -> Option<&'d [u8]> {
        match self {
            Self::None => None,
            Self::Go(PclntabSection { range, text }) => {
                let table = Pclntab::parse(bytes_at(data, range)?, *text).ok()?;
                table.find(address).map(|function| function.name).filter(|name| !name.is_empty())
            }
            Self::Python(functions) => {
                let behind = functions.partition_point(|(range, _)| range.start <= address);
                let (range, name) = functions.get(behind.checked_sub(1)?)?;
                range.contains(&address).then_some(name.as_bytes())
            }
        }
    }
}
