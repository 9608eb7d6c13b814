//! Names of native code in files: functions, inlined calls, source lines.
//!
//! Owns: names of module addresses, behind a bounded cache, and which files they are read from. Because: symbol
//! tables are expensive to read, and the files are untrusted: [`symbols`] reads them without privileges. Does not:
//! know processes; addresses are those stated in the file.

mod debug_file;
mod debuginfod;
mod module;
mod module_table;
pub mod symbols;

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use deepctx_address_space::elf::BuildId;
use deepctx_address_space::worker::Author;
use deepctx_address_space::{FileVersion, NoSymbol, Svma};
use rustc_hash::FxHashMap;

pub use debug_file::DebugInfo;
pub use debuginfod::{ServerUrl, Servers};
pub use module::{ModuleCounters, Modules};
pub use module_table::{Module, ModuleHandle};

use crate::cache::{BoundedCache, CacheCounters, Strings};
use debug_file::LocatedDebugFile;
use debuginfod::Debuginfod;
use symbols::{AddressFacts, DebugFile, Files, Symbols, TableRequest};

/// Most addresses whose names are cached, about 100 bytes each with shared strings. A busy system has some ten thousand
/// distinct sampled addresses.
const NAMES_MAX: usize = 1 << 16;
/// Most modules whose symbol tables are kept; each costs descriptors and memory in proportion to its symbols.
const LOADED_MAX: usize = 96;

/// Calls of [`NativeSymbolizer::trim`] after which an unused module's tables are dropped. Names stay cached, so a busy
/// program needs new ones less and less often; reading a big library's tables again takes 0.1 s.
const IDLE_TRIMS: u64 = 60;

/// Calls of [`NativeSymbolizer::trim`] after which a file that took too long is read again; eight times as many after
/// each further failure.
const AGAIN_TRIMS: u64 = 60;

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

/// Counters of [`NativeSymbolizer`].
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

/// Next key of opened files, unique in this process.
static NEXT_KEY: AtomicU64 = AtomicU64::new(1);

/// A module whose files are open.
#[derive(Debug)]
struct OpenModule {
    /// Key of these files.
    key: u64,
    /// The author of the module's own file.
    author: Author,
    /// The module's own symbols.
    own: Arc<File>,
    /// Its debug information, or the symbols that were stripped from it.
    debug: Option<Arc<LocatedDebugFile>>,
    /// Its debug information from servers.
    served: DebuginfodState,
    /// Its debug information was counted.
    counted: bool,
    /// [`NativeSymbolizer::clock`] at the last use.
    used: u64,
    /// [`NativeSymbolizer::trims`] at the last use.
    trims: u64,
    /// How often reading it failed before.
    failures: u32,
}

/// State of a module's debug information from servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DebuginfodState {
    /// Not requested.
    Unasked,
    /// Requested for this build.
    Awaited(BuildId),
    /// Debug information.
    Found,
    /// None, which is why unnamed code has no name.
    Missing(NoSymbol),
}

/// The part of an [`OpenModule`] that a query needs.
struct SymbolFiles {
    key: u64,
    author: Author,
    own: Arc<File>,
    debug: Option<Arc<LocatedDebugFile>>,
}

/// A file that is not read.
#[derive(Clone, Copy, Debug)]
struct Refusal {
    reason: NoSymbol,
    /// How often reading it failed.
    failures: u32,
    /// The call of [`NativeSymbolizer::trim`] after which it is read again, if ever.
    again: Option<u64>,
}

impl Refusal {
    /// For good.
    fn always(reason: NoSymbol) -> Self {
        Self { reason, failures: 0, again: None }
    }

    /// Reading it cost a reader: a busy machine is no reason to have no names for weeks, but each attempt may cost as
    /// much again.
    fn for_now(reason: NoSymbol, failures: u32, trims: u64) -> Self {
        let wait = AGAIN_TRIMS << (3 * failures.min(4));
        Self { reason, failures: failures.saturating_add(1), again: Some(trims + wait) }
    }
}

/// Symbolizes native code.
#[derive(Debug)]
pub struct NativeSymbolizer {
    symbols: Symbols,
    debug_info: DebugInfo,
    debuginfod: Option<Debuginfod>,
    loaded: FxHashMap<ModuleHandle, Result<OpenModule, Refusal>>,
    names: BoundedCache<(ModuleHandle, Svma), SymbolResult>,
    strings: Strings,
    /// Counts uses of modules.
    clock: u64,
    /// Calls of [`Self::trim`].
    trims: u64,
    counters: NativeCounters,
    /// The missing reader was reported.
    reported_no_reader: bool,
}

impl NativeSymbolizer {
    /// Nothing is loaded yet.
    pub fn new(debug_info: DebugInfo) -> Self {
        let bytes_max = debug_info.bytes_max;
        let started = debug_info.servers.clone().map(|servers| Debuginfod::start(servers, bytes_max));
        let debuginfod = started.and_then(|started| {
            started.inspect_err(|error| tracing::warn!(%error, "debuginfod servers are not asked")).ok()
        });
        Self {
            symbols: Symbols::default(),
            debug_info,
            debuginfod,
            loaded: FxHashMap::default(),
            names: BoundedCache::new(NAMES_MAX),
            strings: Strings::default(),
            clock: 0,
            trims: 0,
            counters: NativeCounters::default(),
            reported_no_reader: false,
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
            let mut found = self.resolve(modules, module, &missing);
            let is_awaited = self.is_awaited(module);
            self.explain(modules, module, &mut found);
            let lasting = |named: &SymbolResult| !is_awaited && !is_for_now(named);
            for (address, named) in missing.iter().zip(&found).filter(|(_, named)| lasting(named)) {
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

    /// Whether servers are being asked for debug information of a module: its names may be better later.
    pub fn is_awaited(&self, module: ModuleHandle) -> bool {
        let of = |files: &OpenModule| matches!(files.served, DebuginfodState::Awaited(_));
        matches!(self.loaded.get(&module), Some(Ok(files)) if of(files))
    }

    /// Replaces the reason of missing names by the outcome of asking servers, if they were asked.
    fn explain(&self, modules: &Modules, module: ModuleHandle, found: &mut [SymbolResult]) {
        let reason = match self.loaded.get(&module) {
            Some(Ok(OpenModule { served: DebuginfodState::Awaited(_), .. })) => NoSymbol::DebuginfodPending,
            Some(Ok(OpenModule { served: DebuginfodState::Missing(reason), .. })) => *reason,
            _ => return,
        };
        // What a file with all of its symbols has no name for, such as a PLT, has none on a server either.
        let is_stripped = modules.get(module).is_none_or(|of| !of.facts().sections.symtab);
        let lacks_symbols = |named: &SymbolResult| match named {
            Err(NoSymbol::NoSymbolTable) => true,
            Err(NoSymbol::NotCovered) => is_stripped,
            _ => false,
        };
        found.iter_mut().filter(|named| lacks_symbols(named)).for_each(|named| *named = Err(reason));
    }

    /// Beginnings of the functions around addresses of one module, as far as its call frame information has them. For
    /// addresses without a name: all of a function then make one row.
    pub fn function_starts(
        &mut self,
        modules: &mut Modules,
        module: ModuleHandle,
        addresses: &[Svma],
    ) -> Vec<Option<Svma>> {
        let none = vec![None; addresses.len()];
        // A file with an implausible compression ratio, or that cost a reader, is skipped, as for names.
        let inflated = modules.get(module).is_none_or(|of| of.facts().sections.inflated);
        let refused = matches!(self.loaded.get(&module), Some(Err(_)));
        if inflated || refused || addresses.is_empty() {
            return none;
        }
        let Ok(file) = modules.open(module) else { return none };
        let Ok(version) = FileVersion::of(&file) else { return none };
        let addresses: Vec<u64> = addresses.iter().map(|address| address.0).collect();
        match self.symbols.starts(Author::of(&version), &file, &addresses) {
            Ok(starts) => starts.into_iter().map(|start| start.map(Svma)).collect(),
            Err(reason) => {
                self.refuse(module, reason);
                none
            }
        }
    }

    /// Bytes of the names in memory; the tables that they were read from are elsewhere.
    pub fn bytes(&self) -> usize {
        let frames = |named: &SymbolResult| named.as_ref().map_or(0, |frames| size_of_val(&**frames));
        self.names.bytes() + self.names.values().map(frames).sum::<usize>() + self.strings.bytes()
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
        let all = |reason| vec![Err(reason); addresses.len()];
        let ready = match self.load(modules, module) {
            Ok(ready) => ready,
            Err(reason) => return all(reason),
        };
        let mut found = self.ask(&ready, addresses, false);
        if let Err(reason) = &found
            && ready.debug.is_some()
            && costs_a_reader(*reason)
        {
            // Without its debug information it may still have names.
            let (number, reason) = (module.number(), reason.key());
            tracing::warn!(module = number, reason, "a file gives no source lines and no inlined calls");
            let without = SymbolFiles { key: NEXT_KEY.fetch_add(1, Ordering::Relaxed), debug: None, ..ready };
            if let Some(Ok(files)) = self.loaded.get_mut(&module) {
                (files.key, files.debug) = (without.key, None);
            }
            self.counters.failed += 1;
            found = self.ask(&without, addresses, true);
        }
        match found {
            Ok(found) => {
                if let Some(Ok(files)) = self.loaded.get_mut(&module) {
                    self.counters.with_debug_info += u64::from(found.with_debug && !files.counted);
                    files.counted |= found.with_debug;
                }
                let strings = &mut self.strings;
                found.functions.into_iter().map(|functions| Ok(frames(&functions?, strings))).collect()
            }
            Err(reason) => {
                self.refuse(module, reason);
                all(reason)
            }
        }
    }

    /// Refuses to read this file from now on, or for a while.
    fn refuse(&mut self, module: ModuleHandle, reason: NoSymbol) {
        if reason == NoSymbol::SymbolShareSpent {
            tracing::debug!(module = module.number(), "symbols of a file are read later");
        } else {
            // Without readers no file has symbols, and the same error comes again and again.
            if reason != NoSymbol::NoSymbolReader || !std::mem::replace(&mut self.reported_no_reader, true) {
                tracing::warn!(module = module.number(), reason = reason.key(), "a file gives no symbols");
            }
            self.counters.failed += 1;
        }
        // A reader may start successfully the next time.
        if !matches!(reason, NoSymbol::NoSymbolReader | NoSymbol::SymbolShareSpent) {
            let failures = match self.loaded.get(&module) {
                Some(Ok(files)) => files.failures,
                Some(Err(refusal)) => refusal.failures,
                None => 0,
            };
            let refusal = match costs_a_reader(reason) {
                true => Refusal::for_now(reason, failures, self.trims),
                false => Refusal::always(reason),
            };
            self.loaded.insert(module, Err(refusal));
        }
    }

    fn ask(&mut self, ready: &SymbolFiles, addresses: &[u64], more: bool) -> Result<AddressFacts, NoSymbol> {
        let debug = ready.debug.as_deref();
        let asked = TableRequest {
            key: ready.key,
            period: self.trims,
            debug: match debug {
                None => DebugFile::No,
                Some(found) if Arc::ptr_eq(&found.file, &ready.own) => DebugFile::Own,
                Some(found) if found.symbols_only => DebugFile::Symbols,
                Some(_) => DebugFile::Separate,
            },
            doubted: debug.is_some_and(|found| found.doubted),
            has_supplement: debug.is_some_and(|found| found.supplement.is_some()),
        };
        let own: &File = &ready.own;
        let files = Files {
            own,
            debug: debug.map_or(own, |found| &found.file),
            supplement: debug.and_then(|found| found.supplement.as_ref()).unwrap_or(own),
        };
        self.symbols.functions(ready.author, asked, files, addresses, more)
    }

    /// Opens the files of a module, and makes room for them.
    fn load(&mut self, modules: &mut Modules, module: ModuleHandle) -> Result<SymbolFiles, NoSymbol> {
        self.clock += 1;
        let failures = match self.loaded.get(&module) {
            None => Some(0),
            Some(Ok(_)) => None,
            Some(Err(refusal)) => {
                refusal.again.filter(|again| self.trims >= *again).map(|_| refusal.failures)
            }
        };
        if let Some(failures) = failures {
            self.make_room();
            let loaded = match self.examine(modules, module, failures) {
                // It is examined when its author has time again.
                Err(reason @ NoSymbol::SymbolShareSpent) => return Err(reason),
                examined => examined.map_err(Refusal::always),
            };
            match &loaded {
                Ok(_) => self.counters.loaded += 1,
                Err(_) => self.counters.failed += 1,
            }
            self.loaded.insert(module, loaded);
        }
        self.take_served(module);
        match self.loaded.get_mut(&module) {
            Some(Ok(files)) => {
                (files.used, files.trims) = (self.clock, self.trims);
                let (key, author) = (files.key, files.author);
                Ok(SymbolFiles { key, author, own: Arc::clone(&files.own), debug: files.debug.clone() })
            }
            Some(Err(refusal)) => Err(refusal.reason),
            None => Err(NoSymbol::ReaderFailed),
        }
    }

    /// Uses files that servers have sent meanwhile.
    fn take_served(&mut self, module: ModuleHandle) {
        let Self { loaded, debuginfod: Some(debuginfod), debug_info, symbols, .. } = self else { return };
        let Some(Ok(files)) = loaded.get_mut(&module) else { return };
        let DebuginfodState::Awaited(id) = files.served else { return };
        files.served = match debuginfod.find(files.author, id) {
            Err(NoSymbol::DebuginfodPending) => return,
            Err(reason) => DebuginfodState::Missing(reason),
            Ok(file) => match debug_info.served(file) {
                Some(found) => {
                    // Its tables are read again.
                    symbols.forget(files.key);
                    (files.key, files.debug) =
                        (NEXT_KEY.fetch_add(1, Ordering::Relaxed), Some(Arc::new(found)));
                    DebuginfodState::Found
                }
                None => DebuginfodState::Missing(NoSymbol::DebuginfodUnusable),
            },
        };
    }

    fn examine(
        &mut self,
        modules: &mut Modules,
        module: ModuleHandle,
        failures: u32,
    ) -> Result<OpenModule, NoSymbol> {
        let own = modules.open(module)?;
        let facts = modules.get(module).ok_or(NoSymbol::ModuleMissing)?;
        // The reader would unpack a section that states a thousand times its size before any check.
        if facts.facts().sections.inflated {
            return Err(NoSymbol::CorruptElf);
        }
        let author = Author::of(&FileVersion::of(&own).map_err(|error| NoSymbol::from_io(&error))?);
        let begun = Instant::now();
        self.symbols.check_share(author, begun)?;
        let debug = self.debug_info.find(facts, &own).map(Arc::new);
        // The file that its link names may take a while to be read.
        self.symbols.charge(author, begun);
        let wanted = self.debuginfod.as_ref().and_then(|_| self.debug_info.wanted(facts, debug.as_deref()));
        let served = wanted.map_or(DebuginfodState::Unasked, DebuginfodState::Awaited);
        let key = NEXT_KEY.fetch_add(1, Ordering::Relaxed);
        Ok(OpenModule {
            key,
            author,
            own,
            debug,
            served,
            counted: false,
            used: self.clock,
            trims: self.trims,
            failures,
        })
    }

    fn make_room(&mut self) {
        if self.loaded.len() < LOADED_MAX {
            return;
        }
        let used = |loaded: &Result<OpenModule, Refusal>| loaded.as_ref().map_or(0, |files| files.used);
        let oldest = self.loaded.iter().min_by_key(|(_, loaded)| used(loaded)).map(|(module, _)| *module);
        if let Some(module) = oldest {
            self.unload(module);
        }
    }

    fn unload(&mut self, module: ModuleHandle) {
        if let Some(Ok(files)) = self.loaded.remove(&module) {
            self.symbols.forget(files.key);
            self.counters.unloaded += 1;
        }
    }

    /// Releases unused memory; call it about every second. True if tables were dropped, so that the allocator may have
    /// memory to return to the system.
    pub fn trim(&mut self) -> bool {
        self.trims += 1;
        let idle = |files: &OpenModule| self.trims.saturating_sub(files.trims) > IDLE_TRIMS;
        let idle: Vec<_> = self
            .loaded
            .iter()
            .filter(|(_, loaded)| loaded.as_ref().is_ok_and(idle))
            .map(|(module, _)| *module)
            .collect();
        for module in &idle {
            self.unload(*module);
        }
        self.symbols.end_idle(self.trims);
        !idle.is_empty()
    }
}

/// Whether the answer may change later.
fn is_for_now(named: &SymbolResult) -> bool {
    named.as_ref().is_err_and(NoSymbol::may_be_named_later)
}

/// Whether a reader ended, or had to be ended, because of a file.
fn costs_a_reader(reason: NoSymbol) -> bool {
    matches!(reason, NoSymbol::SymbolsTookTooLong | NoSymbol::SymbolReaderEnded)
}

fn frames(functions: &[symbols::Function], strings: &mut Strings) -> Arc<[Frame]> {
    let frame = |(n, function): (usize, &symbols::Function)| Frame {
        name: strings.intern(&function.name),
        file: function.file.as_deref().map(|file| strings.intern(file)),
        line: function.line,
        inlined: n > 0,
    };
    functions.iter().enumerate().map(frame).collect()
}

#[cfg(test)]
mod tests {
    use deepctx_address_space::maps::{self, LineFilter};

    use super::*;

    #[test]
    fn a_file_with_all_its_symbols_needs_no_server() {
        let pid = std::process::id();
        let maps = maps::read(pid, LineFilter::Executable).unwrap();
        let program = std::env::current_exe().unwrap();
        let own = maps.mappings.iter().find(|mapping| mapping.path() == program).unwrap();
        let mut modules = Modules::new();
        let (module, _) = modules.open_mapping(pid, own).unwrap();
        let mut native = NativeSymbolizer::new(DebugInfo { bytes_max: 0, ..DebugInfo::default() });
        let mut check = |native: &mut NativeSymbolizer, address| {
            let found = native.symbolize(&mut modules, module, &[Svma(address)]);
            assert_eq!(found, [Err(NoSymbol::NotCovered)]);
        };
        check(&mut native, u64::MAX);
        let Some(Ok(files)) = native.loaded.get_mut(&module) else { panic!("its symbols were read") };
        files.served = DebuginfodState::Missing(NoSymbol::DebuginfodNotFound);
        check(&mut native, u64::MAX - 1);
    }
}
