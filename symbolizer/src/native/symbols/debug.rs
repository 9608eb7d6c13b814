//! Debug: functions, inlined calls and source lines of a file with debug information.
//!
//! Owns: the sections of one file, decompressed if necessary, and the state of `addr2line` for them. Because: parsed
//! units borrow the bytes, which must not move in the meantime. Does not: decide whether to trust the file.

use std::borrow::Cow;
use std::cell::RefCell;
use std::rc::Rc;

use addr2line::Context;
use gimli::{AbbreviationsCacheStrategy, Dwarf, EndianSlice, LittleEndian, SectionId, UnitOffset};
use object::{Object as _, ObjectSection as _};

use super::image::{Elf, Image};
use super::nesting;

/// Most functions at one address: compiled code has some ten.
const FUNCTIONS_MAX: usize = 4096;
/// Addresses from here on are not looked for in discarded functions, all of which begin at 0: none is this long.
const DISCARDED_END: u64 = 1 << 20;

type Bytes = EndianSlice<'static, LittleEndian>;

/// One function at an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Function {
    /// Readable name; empty if it has none.
    pub(crate) name: String,
    /// Source file of the line.
    pub(crate) file: Option<String>,
    /// Line in that file, from 1; 0 when unknown.
    pub(crate) line: u32,
}

impl Function {
    /// A function with this symbol and no source.
    pub(super) fn named(symbol: &str) -> Self {
        Self { name: deepctx_names::demangle(symbol), file: None, line: 0 }
    }

    /// A stub that jumps to the function with this symbol, in another file.
    pub(super) fn stub_of(symbol: &str) -> Self {
        Self { name: format!("[plt] {}", deepctx_names::demangle(symbol)), file: None, line: 0 }
    }
}

/// Debug information of one file.
pub(super) struct Debug {
    /// Refers to the fields below, so it must be dropped before them: fields are dropped in their order.
    context: Context<Bytes>,
    _unpacked: Vec<Box<[u8]>>,
    image: Rc<Image>,
    supplement: Option<Rc<Image>>,
}

impl Debug {
    /// Reads the units of a file; with `doubted`, only if they do not nest too deeply. `None`: it has no usable ones.
    pub(super) fn read(image: Rc<Image>, supplement: Option<Rc<Image>>, doubted: bool) -> Option<Self> {
        if doubted && !nesting::is_bounded(image.bytes()) {
            return None;
        }
        let unpacked = RefCell::new(Vec::new());
        let load = |image: &Image| {
            let elf = image.elf()?;
            Dwarf::load(|id| match id {
                // Locations of variables, and macros: never needed, and up to a third of all bytes.
                SectionId::DebugLoc | SectionId::DebugLocLists => Ok(EndianSlice::new(&[], LittleEndian)),
                SectionId::DebugMacinfo | SectionId::DebugMacro => Ok(EndianSlice::new(&[], LittleEndian)),
                _ => section(&elf, id, &unpacked),
            })
            .ok()
        };
        let mut dwarf = load(&image)?;
        if let Some(supplement) = &supplement {
            dwarf.set_sup(load(supplement)?);
        }
        dwarf.populate_abbreviations_cache(AbbreviationsCacheStrategy::Duplicates);
        let context = Context::from_dwarf(dwarf).ok()?;
        Some(Self { context, _unpacked: unpacked.into_inner(), image, supplement })
    }

    /// The functions at an address, the outermost first; the file's symbols name addresses that no unit covers. Empty:
    /// neither covers it.
    pub(super) fn functions(&self, address: u64) -> Result<Vec<Function>, gimli::Error> {
        let mut frames = self.context.find_frames(address).skip_all_loads()?;
        let (mut found, mut outermost) = (Vec::new(), None);
        while let Some(frame) = frames.next()?.filter(|_| found.len() < FUNCTIONS_MAX) {
            outermost = frame.dw_die_offset;
            let name = match (&frame.function, frame.dw_die_offset) {
                (Some(function), _) => function.raw_name()?,
                // A line without a function: hand-written code.
                (None, None) => String::from_utf8_lossy(self.image.symbol(address).unwrap_or_default()),
                (None, Some(_)) => Cow::Borrowed(""),
            };
            let place = frame.location.and_then(|place| Some((place.file?.to_owned(), place.line)));
            let (file, line) = place.map_or((None, 0), |(file, line)| (Some(file), line.unwrap_or(0)));
            found.push(Function { file, line, ..Function::named(&name) });
        }
        if outermost.is_some_and(|function| self.is_discarded(address, function)) {
            found.clear();
        }
        if found.is_empty() {
            let name = self.image.symbol(address).ok();
            found.extend(name.map(|name| Function::named(&String::from_utf8_lossy(name))));
        }
        found.reverse();
        Ok(found)
    }

    /// Whether the function with this entry, which should be at an address, was discarded by the linker (`ld
    /// --gc-sections`), which leaves 0 as its first address. In a linked file no function begins there: that is its
    /// header.
    fn is_discarded(&self, address: u64, function: UnitOffset) -> bool {
        let ranges = || {
            let unit = self.context.find_dwarf_and_unit(address).skip_all_loads()?;
            let entry = unit.entry(function).ok()?;
            unit.die_ranges(&entry).ok()
        };
        let is_from_zero = |range: gimli::Range| range.begin == 0 && address < range.end;
        address < DISCARDED_END
            && ranges().is_some_and(|ranges| ranges.map_while(Result::ok).any(is_from_zero))
    }

    /// Releases the pages that were read.
    pub(super) fn release(&self) {
        self.image.release();
        if let Some(supplement) = &self.supplement {
            supplement.release();
        }
    }
}

/// The bytes of a section, which stay in place while `unpacked` and the image exist.
fn section(elf: &Elf<'_>, id: SectionId, unpacked: &RefCell<Vec<Box<[u8]>>>) -> Result<Bytes, object::Error> {
    let bytes = match elf.section_by_name(id.name()).map(|section| section.uncompressed_data()).transpose()? {
        None => &[],
        // SAFETY: these are bytes of the mapping, which `Debug` keeps until the context that reads them is dropped.
        Some(Cow::Borrowed(bytes)) => unsafe { std::slice::from_raw_parts(bytes.as_ptr(), bytes.len()) },
        Some(Cow::Owned(bytes)) => {
            let bytes = bytes.into_boxed_slice();
            // SAFETY: moving the box leaves its bytes where they are; `Debug` keeps it until the context that reads
            // them is dropped, and nothing writes to it.
            let kept = unsafe { std::slice::from_raw_parts(bytes.as_ptr(), bytes.len()) };
            unpacked.borrow_mut().push(bytes);
            kept
        }
    };
    Ok(EndianSlice::new(bytes, LittleEndian))
}

impl std::fmt::Debug for Debug {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Debug").field("image", &self.image).finish_non_exhaustive()
    }
}
