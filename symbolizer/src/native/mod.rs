//! Names of native code in files: functions, inlined calls, source lines.
//!
//! Owns: symbolizing addresses of a module with `blazesym`, behind a bounded cache and protected against faults.
//! Because: the reader serves all processes, its tables are expensive, and the files are untrusted. Does not: know
//! processes; addresses are those stated in the file.

mod debug_file;
mod function_start;
mod module;
mod nesting;
mod pages;

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;
use std::sync::Arc;

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{self, Input, Sym, Symbolized, evict};
use deepctx_address_space::{NoSymbol, Svma};
use rustc_hash::FxHashMap;

pub use debug_file::DebugInfo;
pub use module::{Module, ModuleCounters, ModuleHandle, Modules};

use crate::cache::{Bounded, CacheCounters, Strings};
use crate::guard::{self, Fault};

/// Most addresses whose names are cached, about 100 bytes each with shared strings. A busy system has some ten thousand
/// distinct sampled addresses.
const NAMES_MAX: usize = 1 << 16;
/// Most modules whose symbol tables are kept; each costs descriptors and memory in proportion to its symbols.
const LOADED_MAX: usize = 96;

/// Calls of [`Native::trim`] after which the tables of an unused module are dropped. Names stay cached, so a busy
/// program needs new ones ever less often; reading the tables of a big library again takes a tenth of a second.
const IDLE_TRIMS: u64 = 60;

/// One function at an address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Demangled name.
    pub name: Arc<str>,
    /// Source file of the line, when there is debug information.
    pub file: Option<Arc<str>>,
    /// Line in that file, from 1; 0 when unknown.
    pub line: u32,
    /// The function is inlined into the frame before it.
    pub inlined: bool,
}

/// The functions at one address: first the function of the symbol table, then the calls inlined at the address, the
/// innermost last. Never empty.
pub type SymbolResult = Result<Arc<[Frame]>, NoSymbol>;

/// Counters of [`Native`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NativeCounters {
    /// The cache of names.
    pub names: CacheCounters,
    /// Modules whose tables were loaded.
    pub loaded: u64,
    /// Modules whose tables were dropped, to stay within the bound or because they were unused.
    pub unloaded: u64,
    /// Modules with debug information in use.
    pub with_debug_info: u64,
    /// Times that the reader panicked or refused a file.
    pub failed: u64,
}

/// A module that the reader has open.
#[derive(Debug)]
struct Loaded {
    /// The module's own symbols.
    own: Arc<File>,
    /// The file with debug information, which may be the same one.
    debug: Option<Arc<File>>,
    /// [`Native::clock`] at the last use.
    used: u64,
    /// [`Native::trims`] at the last use.
    trims: u64,
}

/// Symbolizes native code.
#[derive(Debug)]
pub struct Native {
    reader: symbolize::Symbolizer,
    debug_info: DebugInfo,
    loaded: FxHashMap<ModuleHandle, Result<Loaded, NoSymbol>>,
    names: Bounded<(ModuleHandle, Svma), SymbolResult>,
    strings: Strings,
    /// Counts uses of modules.
    clock: u64,
    /// Calls of [`Self::trim`].
    trims: u64,
    /// `clock` at the last call of [`Self::trim`].
    trimmed_at: u64,
    counters: NativeCounters,
}

fn new_reader() -> symbolize::Symbolizer {
    // Files are passed as descriptors that always refer to the same file, so there is nothing to reload. Demangling
    // happens here, within bounds.
    symbolize::Symbolizer::builder().enable_auto_reload(false).enable_demangling(false).build()
}

fn descriptor_path(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

impl Native {
    /// Nothing is loaded yet.
    pub fn new(debug_info: DebugInfo) -> Self {
        Self {
            reader: new_reader(),
            debug_info,
            loaded: FxHashMap::default(),
            names: Bounded::new(NAMES_MAX),
            strings: Strings::default(),
            clock: 0,
            trims: 0,
            trimmed_at: 0,
            counters: NativeCounters::default(),
        }
    }

    /// Symbolizes addresses of one module, in their order. The first call for a module reads its tables, which takes
    /// time proportional to its symbols.
    pub fn symbolize(
        &mut self,
        modules: &mut Modules,
        module: ModuleHandle,
        addresses: &[Svma],
    ) -> Vec<SymbolResult> {
        let mut results: Vec<Option<SymbolResult>> =
            addresses.iter().map(|a| self.names.get((module, *a))).collect();
        let mut missing: Vec<u64> =
            addresses.iter().zip(&results).filter(|(_, result)| result.is_none()).map(|(a, _)| a.0).collect();
        if !missing.is_empty() {
            missing.sort_unstable();
            missing.dedup();
            let found = self.resolve(modules, module, &missing);
            for (address, named) in missing.iter().zip(&found) {
                self.names.insert((module, Svma(*address)), named.clone());
            }
            for (address, result) in addresses.iter().zip(&mut results) {
                if result.is_none() {
                    *result = missing.binary_search(&address.0).ok().and_then(|at| found.get(at).cloned());
                }
            }
        }
        results.into_iter().map(|result| result.unwrap_or(Err(NoSymbol::ReaderFailed))).collect()
    }

    /// Where the functions around addresses of one module begin, as far as its call frame information says so. For
    /// addresses without a name: all of a function are one row then.
    pub fn function_starts(
        &self,
        modules: &mut Modules,
        module: ModuleHandle,
        addresses: &[Svma],
    ) -> Vec<Option<Svma>> {
        // A section that states a thousand times its size is left alone, as for names.
        let usable = modules.get(module).is_some_and(|of| !of.facts().sections.inflated);
        let Some(file) = modules.open(module).ok().filter(|_| usable && !addresses.is_empty()) else {
            return vec![None; addresses.len()];
        };
        let addresses: Vec<u64> = addresses.iter().map(|address| address.0).collect();
        let starts = function_start::function_starts(&file, &addresses);
        starts.into_iter().map(|start| start.map(Svma)).collect()
    }

    /// The counters so far.
    pub fn counters(&self) -> NativeCounters {
        NativeCounters { names: self.names.counters(), ..self.counters }
    }

    /// Symbolizes sorted addresses without the cache.
    fn resolve(
        &mut self,
        modules: &mut Modules,
        module: ModuleHandle,
        addresses: &[u64],
    ) -> Vec<SymbolResult> {
        let (own, debug) = match self.load(modules, module) {
            Ok(files) => files,
            Err(reason) => return vec![Err(reason); addresses.len()],
        };
        let mut results = vec![Err(NoSymbol::NotCovered); addresses.len()];
        if let Some(debug) = &debug {
            results = self.read_symbols(module, debug, true, addresses);
        }
        // What debug information does not cover (or cannot, if it is corrupt), the symbol table may.
        let open: Vec<usize> = (0..results.len()).filter(|i| results[*i].is_err()).collect();
        if !open.is_empty() {
            let rest: Vec<u64> = open.iter().map(|i| addresses[*i]).collect();
            let found = self.read_symbols(module, &own, false, &rest);
            for (i, named) in open.into_iter().zip(found) {
                // The file with debug information has all symbols: that the stripped file has none adds nothing.
                if debug.is_none() || named != Err(NoSymbol::NoSymbolTable) {
                    results[i] = named;
                }
            }
        }
        results
    }

    /// Opens a module for the reader, and makes room for it.
    fn load(
        &mut self,
        modules: &mut Modules,
        module: ModuleHandle,
    ) -> Result<(Arc<File>, Option<Arc<File>>), NoSymbol> {
        self.clock += 1;
        if !self.loaded.contains_key(&module) {
            self.make_room();
            let loaded = self.examine(modules, module);
            match &loaded {
                Ok(files) => {
                    self.counters.loaded += 1;
                    self.counters.with_debug_info += u64::from(files.debug.is_some());
                }
                Err(_) => self.counters.failed += 1,
            }
            self.loaded.insert(module, loaded);
        }
        match self.loaded.get_mut(&module) {
            Some(Ok(files)) => {
                (files.used, files.trims) = (self.clock, self.trims);
                Ok((Arc::clone(&files.own), files.debug.clone()))
            }
            Some(Err(reason)) => Err(*reason),
            None => Err(NoSymbol::ReaderFailed),
        }
    }

    fn examine(&self, modules: &mut Modules, module: ModuleHandle) -> Result<Loaded, NoSymbol> {
        let own = modules.open(module)?;
        let facts = modules.get(module).ok_or(NoSymbol::ModuleMissing)?;
        // The reader would decompress a section that states a thousand times its size before it checks anything.
        if facts.facts().sections.inflated {
            return Err(NoSymbol::CorruptElf);
        }
        let debug = self.debug_info.find(facts, &own);
        Ok(Loaded { own, debug, used: self.clock, trims: self.trims })
    }

    fn make_room(&mut self) {
        if self.loaded.len() < LOADED_MAX {
            return;
        }
        let used = |loaded: &Result<Loaded, NoSymbol>| loaded.as_ref().map_or(0, |files| files.used);
        let oldest = self.loaded.iter().min_by_key(|(_, loaded)| used(loaded)).map(|(module, _)| *module);
        if let Some(module) = oldest {
            self.unload(module);
        }
    }

    fn unload(&mut self, module: ModuleHandle) {
        if let Some(Ok(files)) = self.loaded.remove(&module) {
            // The reader must drop the path before the descriptor can be reused for another file.
            for file in [Some(&files.own), files.debug.as_ref()].into_iter().flatten() {
                if self.reader.evict(&evict::Elf::new(descriptor_path(file)).into()).is_err() {
                    self.counters.failed += 1;
                }
            }
            self.counters.unloaded += 1;
        }
    }

    /// Releases unused memory; to be called about every second. True when tables were dropped, so that the allocator
    /// may have memory to return to the system.
    pub fn trim(&mut self) -> bool {
        self.trims += 1;
        let idle = |files: &Loaded| self.trims.saturating_sub(files.trims) > IDLE_TRIMS;
        let idle: Vec<_> = self
            .loaded
            .iter()
            .filter(|(_, loaded)| loaded.as_ref().is_ok_and(idle))
            .map(|(module, _)| *module)
            .collect();
        for module in &idle {
            self.unload(*module);
        }
        if self.clock != self.trimmed_at {
            self.trimmed_at = self.clock;
            if let Err(error) = pages::release() {
                tracing::debug!(%error, "pages of symbolized files stay resident");
            }
        }
        !idle.is_empty()
    }

    /// Symbolizes with the reader. Its parsers may panic on untrusted bytes: then this file is given up, not the
    /// profiler.
    fn read_symbols(
        &mut self,
        module: ModuleHandle,
        file: &File,
        debug_syms: bool,
        addresses: &[u64],
    ) -> Vec<SymbolResult> {
        let mut elf = Elf::new(descriptor_path(file));
        elf.debug_syms = debug_syms;
        let source = Source::Elf(elf);
        let Self { reader, strings, .. } = self;
        let read = guard::catch_faults(|| {
            let symbols = reader.symbolize(&source, Input::VirtOffset(addresses)).ok()?;
            Some(symbols.into_iter().map(|symbol| frames_of(symbol, strings)).collect::<Vec<_>>())
        });
        let reason = match read {
            Ok(Some(results)) if results.len() == addresses.len() => return results,
            Ok(_) => NoSymbol::ReaderFailed,
            Err(fault) => {
                tracing::warn!(module = module.index(), ?fault, "the symbols of a file cannot be read");
                let reason = match fault {
                    Fault::Panicked => NoSymbol::ReaderFailed,
                    Fault::Truncated => NoSymbol::FileChanged,
                };
                // The state of the reader cannot be trusted any more, and refers to descriptors that will be closed.
                self.reader = new_reader();
                self.loaded.clear();
                self.loaded.insert(module, Err(reason));
                reason
            }
        };
        self.counters.failed += 1;
        vec![Err(reason); addresses.len()]
    }
}

fn frames_of(symbol: Symbolized<'_>, strings: &mut Strings) -> SymbolResult {
    match symbol {
        Symbolized::Sym(symbol) if !symbol.name.is_empty() => Ok(frames(&symbol, strings)),
        Symbolized::Sym(_) => Err(NoSymbol::NotCovered),
        Symbolized::Unknown(reason) => Err(match reason {
            symbolize::Reason::MissingSyms => NoSymbol::NoSymbolTable,
            symbolize::Reason::IgnoredError => NoSymbol::ReaderFailed,
            symbolize::Reason::InvalidFileOffset => NoSymbol::OutsideSegments,
            _ => NoSymbol::NotCovered,
        }),
    }
}

fn frames(symbol: &Sym<'_>, strings: &mut Strings) -> Arc<[Frame]> {
    let mut frame = |name: &str, code: Option<&symbolize::CodeInfo<'_>>, inlined| Frame {
        name: strings.intern(&deepctx_names::demangle(name)),
        file: code.map(|code| strings.intern(&code.to_path().to_string_lossy())),
        line: code.and_then(|code| code.line).unwrap_or(0),
        inlined,
    };
    let outer = frame(&symbol.name, symbol.code_info.as_deref(), false);
    let inner = symbol.inlined.iter().map(|call| frame(&call.name, call.code_info.as_ref(), true));
    std::iter::once(outer).chain(inner).collect()
}
