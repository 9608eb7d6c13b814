//! Tables: the parsed symbol tables of recently used files.
//!
//! Owns: the tables of each file requested recently. Because: they are slow to read, and take memory in proportion to
//! their symbols. Does not: open files, or know their owners.

use std::fs::File;
use std::rc::Rc;

use deepctx_address_space::NoSymbol;
use rustc_hash::FxHashMap;

use super::debug::{Debug, Function};
use super::function_start;
use super::image::Image;
use crate::guard::{self, Fault};

/// Most files whose tables are kept; each costs memory in proportion to its symbols.
const KEPT_MAX: usize = 96;
/// Periods after which unused tables are dropped. Names stay cached, so a busy program needs new ones less and less
/// often; reading the tables of a big library again takes a tenth of a second.
pub(crate) const IDLE_PERIODS: u64 = 60;

/// The functions at one address, the outermost first; never empty.
pub(crate) type Functions = Result<Vec<Function>, NoSymbol>;

/// The file that has debug information.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum DebugFile {
    /// None.
    #[default]
    No,
    /// The file itself.
    Own,
    /// A separate one.
    Separate,
    /// None, but a separate one has symbols.
    Symbols,
}

impl DebugFile {
    /// All, in the order of their numbers.
    pub(crate) const ALL: [Self; 4] = [Self::No, Self::Own, Self::Separate, Self::Symbols];
}

/// The file of a request, and its period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TableRequest {
    /// Number of the file, never reused for another one.
    pub(crate) key: u64,
    /// Number of the period, of about a second, of this request.
    pub(crate) period: u64,
    /// Which file has the debug information.
    pub(crate) debug: DebugFile,
    /// Another user may have written that file.
    pub(crate) doubted: bool,
    /// The debug information has a supplementary file.
    pub(crate) has_supplement: bool,
}

/// The open files for a look-up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Files<'f> {
    pub(crate) own: &'f File,
    /// The file with the debug information, or at least symbols; may be the same file.
    pub(crate) debug: &'f File,
    /// The supplementary file.
    pub(crate) supplement: &'f File,
}

/// Results for addresses of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AddressFacts {
    /// In the order of the addresses.
    pub(crate) functions: Vec<Functions>,
    /// Debug information is in use.
    pub(crate) with_debug: bool,
}

/// Tables of files.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    kept: FxHashMap<u64, LoadedTable>,
    /// Counts uses.
    clock: u64,
}

#[derive(Debug)]
struct LoadedTable {
    own: Rc<Image>,
    /// With the symbols that were stripped from the file.
    separate: Option<Rc<Image>>,
    debug: Option<Debug>,
    used: u64,
    period: u64,
}

impl Tables {
    /// The functions at addresses of a file.
    ///
    /// # Errors
    /// The file cannot be read. Its parsers may panic on untrusted bytes: then this file is dropped.
    pub(crate) fn functions(
        &mut self,
        asked: TableRequest,
        files: Files<'_>,
        addresses: &[u64],
    ) -> Result<AddressFacts, NoSymbol> {
        self.drop_idle(asked.period);
        self.clock += 1;
        let found = guard::catch_faults(|| {
            let kept = self.of(asked, files)?;
            let functions = addresses.iter().map(|address| kept.functions(*address)).collect();
            kept.release();
            Ok(AddressFacts { functions, with_debug: kept.debug.is_some() })
        });
        found.unwrap_or_else(|fault| {
            tracing::warn!(?fault, "the symbols of a file cannot be read");
            // The tables can no longer be trusted.
            self.kept.remove(&asked.key);
            Err(match fault {
                Fault::Panicked => NoSymbol::ReaderFailed,
                Fault::Truncated => NoSymbol::FileChanged,
            })
        })
    }

    /// Beginnings of the functions around addresses, by the file's call frame information.
    pub(crate) fn starts(file: &File, addresses: &[u64]) -> Vec<Option<u64>> {
        function_start::function_starts(file, addresses)
    }

    /// Drops the tables of a file. True when there were any.
    pub(crate) fn forget(&mut self, key: u64) -> bool {
        self.kept.remove(&key).is_some()
    }

    /// Drops the least recently used tables. False if only those of the last use are left.
    pub(super) fn forget_oldest(&mut self) -> bool {
        let oldest = self.kept.iter().min_by_key(|(_, kept)| kept.used).map(|(key, _)| *key);
        self.kept.len() > 1 && oldest.is_some_and(|oldest| self.forget(oldest))
    }

    /// Files whose tables are kept.
    #[cfg(test)]
    pub(super) fn files(&self) -> usize {
        self.kept.len()
    }

    /// Drops tables that were not used for long.
    fn drop_idle(&mut self, period: u64) {
        self.kept.retain(|_, kept| period.saturating_sub(kept.period) <= IDLE_PERIODS);
    }

    fn of(&mut self, asked: TableRequest, files: Files<'_>) -> Result<&LoadedTable, NoSymbol> {
        if !self.kept.contains_key(&asked.key) && self.kept.len() >= KEPT_MAX {
            self.forget_oldest();
        }
        let kept = match self.kept.entry(asked.key) {
            std::collections::hash_map::Entry::Occupied(kept) => kept.into_mut(),
            std::collections::hash_map::Entry::Vacant(place) => {
                place.insert(LoadedTable::read(asked, files)?)
            }
        };
        (kept.used, kept.period) = (self.clock, asked.period);
        Ok(kept)
    }
}

impl LoadedTable {
    fn read(asked: TableRequest, files: Files<'_>) -> Result<Self, NoSymbol> {
        let own = Rc::new(Image::map(files.own)?);
        let image = |file| Image::map(file).ok().map(Rc::new);
        let separate = match asked.debug {
            DebugFile::No | DebugFile::Own => None,
            DebugFile::Separate | DebugFile::Symbols => image(files.debug),
        };
        let debug = match asked.debug {
            DebugFile::No | DebugFile::Symbols => None,
            DebugFile::Own => Some(Rc::clone(&own)),
            DebugFile::Separate => separate.clone(),
        };
        let supplement = asked.has_supplement.then_some(files.supplement).and_then(image);
        let debug = debug.and_then(|debug| Debug::read(debug, supplement, asked.doubted));
        Ok(Self { own, separate, debug, used: 0, period: asked.period })
    }

    fn functions(&self, address: u64) -> Functions {
        let stated = self.debug.as_ref().map(|debug| debug.functions(address));
        if let Some(Ok(functions)) = stated
            && functions.first().is_some_and(|outermost| !outermost.name.is_empty())
        {
            return Ok(functions);
        }
        // A symbol table may cover what debug information does not (or cannot, if it is corrupt): first that of the
        // file that was not stripped.
        let separate = self.separate.as_ref().and_then(|separate| separate.symbol(address).ok());
        let found = separate.map_or_else(|| self.own.symbol(address), Ok);
        if found.is_err()
            && let Some(called) = self.own.called_by_stub(address)
        {
            return Ok(vec![Function::stub_of(&String::from_utf8_lossy(called))]);
        }
        match found {
            Ok(name) => Ok(vec![Function::named(&String::from_utf8_lossy(name))]),
            // The file with debug information has all symbols: the lack of a table in the stripped file adds nothing.
            Err(NoSymbol::NoSymbolTable) if self.debug.is_some() || self.separate.is_some() => {
                Err(NoSymbol::NotCovered)
            }
            Err(reason) => Err(reason),
        }
    }

    /// Otherwise every page that was ever read counts as resident memory of this process.
    fn release(&self) {
        self.own.release();
        if let Some(separate) = &self.separate {
            separate.release();
        }
        if let Some(debug) = &self.debug {
            debug.release();
        }
    }
}
