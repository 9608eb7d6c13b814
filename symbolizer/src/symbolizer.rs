//! The entry point for resolving: from (process, time, address) to a code location, from a code location to names.
//!
//! Owns: the order in which address spaces, modules, code maps of runtimes and the kernel's symbols are consulted.
//! Because: a location is cheap and decides whether two samples are in the same code; a name is expensive and is
//! needed once per location, later, possibly after the process is gone. Does not: keep samples, or wait for a
//! network.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use deepctx_address_space::maps::{self, Backing, LineFilter, Mapping, Maps, UnreadMaps};
use deepctx_address_space::time_account::{Terms, TimeAccounts};
use deepctx_address_space::{
    Avma, GONE_USER, KernelAddr, Lookup, NoSymbol, Svma, accountable_user, thread_cpu_time,
};
use deepctx_common::memory::MemoryUse;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::cache::Strings;
use crate::compiled::device_kernels::FileLaunches;
use crate::compiled::{CompilerFiles, NoOrigin, OriginResult, Settings, XlaModule};
use crate::guard;
use crate::jit::gdb::DESCRIPTOR;
use crate::jit::{Jit, JitCounters, JitSymbol};
use crate::kernel::Kernel;
use crate::memory::ProcessMemory;
use crate::native::{
    DebugInfo, Frame, ModuleCounters, ModuleHandle, Modules, NativeCounters, NativeSymbolizer, SymbolResult,
};
use crate::readable::readable;
use crate::space::{AddressSpace, Owner, Region, SpaceCounters, Spaces};
use crate::variable;

/// Where code is, independent of processes and of time: equal locations are the same code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CodeLocation {
    /// In a file.
    Native {
        /// Which file.
        module: ModuleHandle,
        /// The address to look up, as the file states it.
        address: Svma,
    },
    /// In code that a runtime generated and named.
    Jit(JitSymbol),
    /// In the kernel: the address to look up.
    Kernel(KernelAddr),
    /// Somewhere without a name, for this reason.
    Unknown(NoSymbol),
}

/// The mappings of a process with the owners of their code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessMappings {
    /// Executable mappings.
    pub mappings: Vec<(Mapping, Owner)>,
    /// Lines of the maps file that could not be parsed or kept.
    pub lost: u64,
}

/// Counters of all parts of the [`Symbolizer`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Address spaces.
    pub spaces: SpaceCounters,
    /// Files.
    pub modules: ModuleCounters,
    /// Names of native code.
    pub native: NativeCounters,
    /// Generated code.
    pub jit: JitCounters,
    /// Times that the kernel's symbols were read.
    pub kernel_reads: u64,
}

/// CPU time for searching the files of one user for variables: samples of others wait for their names meanwhile.
const SEARCHING: Terms =
    Terms { credit: Duration::from_secs(5), least: Duration::from_millis(10), regained: 20 };

/// Calls of [`Symbolizer::trim`] between two checks which files are still mapped.
const CLOSE_EVERY_TRIMS: u64 = 20;

/// Names code. It stays on the thread that creates it.
#[derive(Debug)]
pub struct Symbolizer {
    spaces: Spaces,
    modules: Modules,
    native: NativeSymbolizer,
    jit: Jit,
    /// Stated address of each searched file's `__jit_debug_descriptor`, if it has one. Modules are bounded.
    descriptors: FxHashMap<ModuleHandle, Option<Svma>>,
    /// Number of regions of a process when they were last searched for descriptors.
    searched_regions: FxHashMap<u32, usize>,
    /// CPU time that these searches took, by user.
    searches: TimeAccounts,
    compiled: CompilerFiles,
    /// Processes whose data about generated code is no longer read, since reading it showed a defect.
    defective: FxHashSet<u32>,
    kernel: Kernel,
    strings: Strings,
    /// Time of the latest event, used in place of a clock.
    now_ns: u64,
    /// Calls of [`Self::trim`].
    trims: u64,
}

impl Symbolizer {
    /// Nothing is read yet.
    pub fn new(debug_info: DebugInfo) -> Self {
        Self {
            spaces: Spaces::new(),
            modules: Modules::new(),
            native: NativeSymbolizer::new(debug_info),
            jit: Jit::new(),
            descriptors: FxHashMap::default(),
            searched_regions: FxHashMap::default(),
            searches: TimeAccounts::new(SEARCHING),
            compiled: CompilerFiles::default(),
            defective: FxHashSet::default(),
            kernel: Kernel::new(),
            strings: Strings::default(),
            now_ns: 0,
            trims: 0,
        }
    }

    /// Reads the mappings of a process (pid as in the profiler's `/proc`) and opens new files. `time_ns` is the time
    /// from which on the mappings hold, on the clock of the samples. Returns the mappings with their modules, to
    /// prepare unwinding.
    ///
    /// # Errors
    /// [`NoSymbol::ProcessGone`] or [`NoSymbol::PermissionDenied`]; what was known before stays.
    pub fn refresh(&mut self, pid: u32, time_ns: u64) -> Result<ProcessMappings, UnreadMaps> {
        let maps = maps::read(pid, LineFilter::Executable)?;
        let (refreshed, space) = self.open_mappings(pid, maps);
        self.update_space(pid, time_ns, space);
        Ok(refreshed)
    }

    /// First half of [`Self::refresh`], for mappings that were read already: opens new files, while the process still
    /// gives access to them.
    pub fn open_mappings(&mut self, pid: u32, maps: Maps) -> (ProcessMappings, AddressSpace) {
        let lost = maps.malformed + maps.dropped;
        self.jit.add_dump(pid, &maps.jitdumps);
        let owned = maps.mappings.into_iter().map(|mapping| {
            let owner = owner(&mut self.modules, pid, &mapping);
            (mapping, owner)
        });
        let mappings: Vec<_> = owned.collect();
        let region = |(m, owner): &(Mapping, Owner)| Region { begin: m.begin, end: m.end, owner: *owner };
        let space = AddressSpace::new(mappings.iter().map(region).collect());
        (ProcessMappings { mappings, lost }, space)
    }

    /// Second half of [`Self::refresh`], in order of time with forks, execs and exits.
    pub fn update_space(&mut self, pid: u32, time_ns: u64, space: AddressSpace) {
        self.now_ns = self.now_ns.max(time_ns);
        self.spaces.update(pid, time_ns, space);
    }

    /// `child` was forked from `parent`.
    pub fn fork(&mut self, parent: u32, child: u32, time_ns: u64) {
        self.now_ns = self.now_ns.max(time_ns);
        if self.spaces.is_known(child) && !self.spaces.is_alive(child) {
            // What is known is of an earlier process with this number.
            self.forget_generated(child);
            self.defective.remove(&child);
        }
        self.spaces.fork(parent, child, time_ns);
        self.jit.fork(parent, child, time_ns);
    }

    /// The process started a new program. Until the next [`Self::refresh`] nothing is known about it.
    pub fn exec(&mut self, pid: u32, time_ns: u64) {
        self.now_ns = self.now_ns.max(time_ns);
        self.spaces.exec(pid, time_ns);
        self.forget_generated(pid);
        self.defective.remove(&pid);
    }

    /// The process exited. What is known about it stays until [`Self::retire`].
    pub fn exit(&mut self, pid: u32, time_ns: u64) {
        self.now_ns = self.now_ns.max(time_ns);
        self.spaces.exit(pid, time_ns);
    }

    /// Drops what only samples older than `before_ns` need; no such samples will follow.
    pub fn retire(&mut self, before_ns: u64) {
        self.spaces.retire(before_ns);
        let spaces = &self.spaces;
        self.jit.retain(|pid| spaces.is_known(pid));
        self.searched_regions.retain(|pid, _| spaces.is_known(*pid));
        self.compiled.retain(|pid| spaces.is_known(pid));
        self.defective.retain(|pid| spaces.is_known(*pid));
    }

    /// Reads again what processes say of their generated code; to be called about every second. Returns those in which
    /// code has another name now, or none.
    pub fn recheck_generated(&mut self, time_ns: u64) -> Vec<u32> {
        let mut renamed = self.jit.pids();
        renamed
            .retain(|pid| self.fenced(*pid, (), |this| Ok(this.jit.recheck(*pid, time_ns))).unwrap_or(true));
        renamed
    }

    /// Releases unused memory; to be called about every second. True when the caller should ask the allocator to
    /// return free memory to the system (`malloc_trim`).
    pub fn trim(&mut self) -> bool {
        self.trims += 1;
        if self.trims.is_multiple_of(CLOSE_EVERY_TRIMS) {
            self.modules.end_unmapped(&self.spaces.modules());
            self.descriptors.retain(|module, _| self.modules.get(*module).is_some());
        }
        let kernel = self.kernel.trim();
        self.native.trim() || kernel
    }

    /// Memory held by its parts.
    pub fn memory(&self) -> [MemoryUse; 4] {
        [
            MemoryUse::new("names of native code", self.native.bytes()),
            MemoryUse::new("symbols of the kernel", self.kernel.bytes()),
            MemoryUse::new("files that are mapped", self.modules.bytes()),
            MemoryUse::new("mappings of processes", self.spaces.bytes()),
        ]
    }

    /// The location of a user-space address at the time of a sample. Reads at most a runtime's own map of its code,
    /// and only when that has grown.
    pub fn locate(&mut self, pid: u32, time_ns: u64, address: Avma, lookup: Lookup) -> CodeLocation {
        self.now_ns = self.now_ns.max(time_ns);
        let address = Avma(lookup.address(address.0));
        let region = match self.spaces.lookup(pid, time_ns, address) {
            Ok(region) => region,
            Err(reason) => return CodeLocation::Unknown(reason),
        };
        match region.owner {
            Owner::Module { module, bias } => CodeLocation::Native { module, address: address.to_svma(bias) },
            Owner::Generated => {
                let mapping = region.begin.0..region.end.0;
                let locate = |this: &mut Self| this.locate_generated(pid, time_ns, address, mapping);
                match self.fenced(pid, NoSymbol::JitDefect, locate) {
                    Ok(symbol) => CodeLocation::Jit(symbol),
                    Err(reason) => CodeLocation::Unknown(reason),
                }
            }
            Owner::Unknown(reason) => CodeLocation::Unknown(reason),
        }
    }

    /// Whether the mapping of a user-space address at the time of a sample is not among the first `most` executable
    /// ones of its process, by address. False for an address without a known mapping.
    pub fn is_beyond(&self, pid: u32, time_ns: u64, most: usize, address: Avma, lookup: Lookup) -> bool {
        let address = Avma(lookup.address(address.0));
        self.spaces.is_beyond(pid, time_ns, most, address).unwrap_or(false)
    }

    /// Reads a process's data about its generated code: its maps, its memory, the files of its compilers. If that shows
    /// a defect, nothing of this process is read from then on, and all others lose nothing.
    fn fenced<T, E>(
        &mut self,
        pid: u32,
        defect: E,
        read: impl FnOnce(&mut Self) -> Result<T, E>,
    ) -> Result<T, E> {
        if self.defective.contains(&pid) {
            return Err(defect);
        }
        guard::catch_faults(|| read(self)).unwrap_or_else(|fault| {
            tracing::warn!(
                pid,
                ?fault,
                "reading what it says of its generated code failed: it is not read again"
            );
            self.forget_generated(pid);
            self.defective.insert(pid);
            Err(defect)
        })
    }

    /// Drops a process's data about its generated code.
    fn forget_generated(&mut self, pid: u32) {
        self.jit.forget(pid);
        self.searched_regions.remove(&pid);
        self.compiled.forget(pid);
    }

    fn locate_generated(
        &mut self,
        pid: u32,
        time_ns: u64,
        address: Avma,
        mapping: Range<u64>,
    ) -> Result<JitSymbol, NoSymbol> {
        let mut found = self.jit.lookup(pid, time_ns, address);
        if found.is_err() && self.find_jit_descriptors(pid, time_ns) {
            found = self.jit.lookup(pid, time_ns, address);
        }
        let Self { spaces, modules, jit, compiled, .. } = self;
        found.or_else(|reason| {
            let settings = || settings(pid, time_ns, spaces, modules);
            let located = compiled.cached_function(pid, time_ns, mapping, address.0, settings);
            located.and_then(|located| jit.add_located(pid, time_ns, located)).ok_or(reason)
        })
    }

    /// Searches the files of a process, each once, for `__jit_debug_descriptor`. True when one was found.
    fn find_jit_descriptors(&mut self, pid: u32, time_ns: u64) -> bool {
        let Some(space) = self.spaces.at(pid, time_ns) else { return false };
        let regions = space.regions();
        if self.searched_regions.insert(pid, regions.len()) == Some(regions.len()) {
            return false;
        }
        let (mut found, mut user) = (false, None);
        for region in regions {
            let Owner::Module { module, bias } = region.owner else { continue };
            if !self.descriptors.contains_key(&module) {
                let user = *user.get_or_insert_with(|| accountable_user(pid).unwrap_or(GONE_USER));
                // Other processes with the same files are searched on their own account.
                if !self.searches.allows(user, Instant::now()) {
                    // The rest is searched later.
                    self.searched_regions.remove(&pid);
                    break;
                }
                let began = thread_cpu_time();
                let file = self.modules.open(module).ok();
                let stated = file.and_then(|file| variable::find(&file, DESCRIPTOR.0, DESCRIPTOR.1));
                self.descriptors.insert(module, stated);
                self.searches.charge(user, thread_cpu_time().saturating_sub(began), Instant::now());
            }
            if let Some(stated) = self.descriptors.get(&module).copied().flatten() {
                self.jit.add_descriptor(pid, Avma(stated.0.wrapping_add(bias)));
                found = true;
            }
        }
        found
    }

    /// What the kernel at a location was compiled from; `symbol` is the name of its function.
    ///
    /// # Errors
    /// Why this is not known: most code was not compiled from operators.
    pub fn kernel_origin(&mut self, pid: u32, time_ns: u64, at: CodeLocation, symbol: &str) -> OriginResult {
        self.fenced(pid, NoOrigin::Defect, |this| this.kernel_origin_read(pid, time_ns, at, symbol))
    }

    fn kernel_origin_read(&mut self, pid: u32, time_ns: u64, at: CodeLocation, symbol: &str) -> OriginResult {
        let Self { spaces, modules, jit, compiled, .. } = self;
        match at {
            CodeLocation::Jit(code) => {
                if let Some(number) = jit.cached_function(code) {
                    return compiled.cached_kernel(pid, number);
                }
                let function = jit.registered_function(code).ok_or(NoOrigin::NotCompiled)?;
                let settings = || settings(pid, time_ns, spaces, modules);
                compiled.generated(pid, time_ns, function, jit.registered_functions(pid), settings)
            }
            CodeLocation::Native { module, .. } => {
                let path = modules.get(module).map(|module| Arc::clone(module.path()));
                compiled.library(pid, time_ns, &path.ok_or(NoOrigin::NotCompiled)?, symbol)
            }
            CodeLocation::Kernel(_) | CodeLocation::Unknown(_) => Err(NoOrigin::NotCompiled),
        }
    }

    /// What a device kernel was compiled from, by its name; `siblings` are kernels that were loaded with the same
    /// code. True when more may be known later.
    pub fn device_kernel_origin(
        &mut self,
        pid: u32,
        time_ns: u64,
        name: &str,
        siblings: &[&str],
    ) -> (OriginResult, bool) {
        let read = |this: &mut Self| {
            let Self { spaces, modules, compiled, .. } = this;
            Ok(compiled.device(pid, time_ns, name, siblings, || settings(pid, time_ns, spaces, modules)))
        };
        self.fenced(pid, NoOrigin::Defect, read).unwrap_or_else(|defect| (Err(defect), false))
    }

    /// What a thunk of an XLA module was compiled from. `fused`: other operators may be fused into it.
    ///
    /// # Errors
    /// Why this is not known.
    pub fn thunk_origin(
        &mut self,
        pid: u32,
        time_ns: u64,
        module: XlaModule<'_>,
        thunk: &str,
        fused: bool,
    ) -> OriginResult {
        self.fenced(pid, NoOrigin::Defect, |this| {
            let Self { spaces, modules, compiled, .. } = this;
            compiled.thunk(pid, time_ns, module, thunk, fused, || settings(pid, time_ns, spaces, modules))
        })
    }

    /// The kernels that a generated file of a process launches.
    ///
    /// # Errors
    /// Why this is not known: most files are not generated.
    pub fn launches_of(&mut self, pid: u32, time_ns: u64, path: &str) -> Result<FileLaunches, NoOrigin> {
        self.fenced(pid, NoOrigin::Defect, |this| this.compiled.launches_of(pid, time_ns, path))
    }

    /// The location of a kernel address.
    pub const fn kernel_location(address: KernelAddr, lookup: Lookup) -> CodeLocation {
        CodeLocation::Kernel(KernelAddr(lookup.address(address.0)))
    }

    /// The functions at a location: the outermost first, then the calls inlined there, the innermost last.
    ///
    /// # Errors
    /// The reason why there is no name; [`Self::label`] then gives a text to show.
    pub fn name(&mut self, at: CodeLocation) -> SymbolResult {
        match at {
            CodeLocation::Native { module, address } => {
                let mut named = self.native.symbolize(&mut self.modules, module, &[address]);
                named.pop().unwrap_or(Err(NoSymbol::ReaderFailed))
            }
            CodeLocation::Jit(symbol) => {
                let name = self.jit.readable_name(symbol).ok_or(NoSymbol::JitNotCovered)?;
                Ok(single(self.strings.intern(&name)))
            }
            CodeLocation::Kernel(address) => {
                let symbol = self.kernel.lookup(address, self.now_ns)?;
                Ok(single(self.strings.intern(&readable(symbol.name))))
            }
            CodeLocation::Unknown(reason) => Err(reason),
        }
    }

    /// Where the functions around addresses of one module begin, see [`NativeSymbolizer::function_starts`].
    pub fn function_starts(&mut self, module: ModuleHandle, addresses: &[Svma]) -> Vec<Option<Svma>> {
        self.native.function_starts(&mut self.modules, module, addresses)
    }

    /// Whether names of a module may be better later, see [`NativeSymbolizer::is_awaited`].
    pub fn is_awaited(&self, module: ModuleHandle) -> bool {
        self.native.is_awaited(module)
    }

    /// Names many addresses of one module together, which is faster than one by one.
    pub fn names(&mut self, module: ModuleHandle, addresses: &[Svma]) -> Vec<SymbolResult> {
        self.native.symbolize(&mut self.modules, module, addresses)
    }

    /// Whether the name of a kernel address that was given before has changed since the last call: modules and BPF
    /// programs come and go.
    pub fn take_kernel_renamed(&mut self) -> bool {
        self.kernel.take_renamed()
    }

    /// Starts reading the kernel's symbols on a separate thread.
    pub fn prefetch_kernel_symbols(&mut self) {
        self.kernel.prefetch();
    }

    /// Text for a location without a name: `library+0xoffset`, or `[unknown: reason]`.
    pub fn label(&self, at: CodeLocation, reason: NoSymbol) -> String {
        match at {
            CodeLocation::Native { module, address } => match self.modules.get(module) {
                Some(module) => module.label(address),
                None => format!("[unknown: {}]", reason.key()),
            },
            CodeLocation::Jit(_) | CodeLocation::Kernel(_) | CodeLocation::Unknown(_) => {
                format!("[unknown: {}]", reason.key())
            }
        }
    }

    /// The files of all processes.
    pub const fn modules(&self) -> &Modules {
        &self.modules
    }

    /// The files, to open one.
    pub const fn modules_mut(&mut self) -> &mut Modules {
        &mut self.modules
    }

    /// The counters so far.
    pub fn counters(&self) -> Counters {
        Counters {
            spaces: self.spaces.counters(),
            modules: self.modules.counters(),
            native: self.native.counters(),
            jit: self.jit.counters(),
            kernel_reads: self.kernel.reads(),
        }
    }
}

/// The folders where the compilers of a process keep their dumps and caches.
fn settings(pid: u32, time_ns: u64, spaces: &Spaces, modules: &mut Modules) -> Settings {
    let environ = spaces.at(pid, time_ns).and_then(|space| environ(modules, space));
    let memory = ProcessMemory::open(pid).ok();
    Settings::read(pid, memory.as_ref().map(|memory| memory as _), environ)
}

/// The address of the C library's variable `environ` in a process.
fn environ(modules: &mut Modules, space: &AddressSpace) -> Option<u64> {
    let is_libc =
        |name: &str| name.starts_with("libc.so") || name.contains("libc.musl") || name.starts_with("ld-musl");
    space.regions().iter().find_map(|region| {
        let Owner::Module { module, bias } = region.owner else { return None };
        modules.get(module).filter(|module| is_libc(module.name()))?;
        let stated = variable::find(&*modules.open(module).ok()?, "__environ", 8)?;
        Some(stated.0.wrapping_add(bias))
    })
}

fn single(name: Arc<str>) -> Arc<[Frame]> {
    Arc::new([Frame { name, file: None, line: 0, inlined: false }])
}

/// The owner of the code of a mapping.
fn owner(modules: &mut Modules, pid: u32, mapping: &Mapping) -> Owner {
    match mapping.backing {
        Backing::Anonymous => Owner::Generated,
        Backing::Uprobes => Owner::Unknown(NoSymbol::UprobeTrampoline),
        Backing::Special => Owner::Unknown(NoSymbol::SpecialMapping),
        Backing::File | Backing::DeletedFile | Backing::Memfd | Backing::Vdso => {
            match modules.open_mapping(pid, mapping) {
                Ok((module, bias)) => Owner::Module { module, bias },
                // Runtimes put generated code into shared memory too (to map it a second time, writable).
                Err(NoSymbol::NotElf) if mapping.backing != Backing::Vdso => Owner::Generated,
                Err(reason) => Owner::Unknown(reason),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jit::LocatedFunction;

    #[test]
    fn a_forked_process_has_no_names_of_an_earlier_namesake() {
        let mut symbolizer = Symbolizer::new(DebugInfo::default());
        let (parent, pid) = (u32::MAX - 1, u32::MAX);
        symbolizer.update_space(pid, 1, AddressSpace::default());
        let earlier = LocatedFunction { address: 0x1000, size: 16, name: "earlier".into(), key: 1, hash: 0 };
        assert!(symbolizer.jit.add_located(pid, 1, earlier).is_some());
        symbolizer.exit(pid, 2);
        assert!(symbolizer.jit.lookup(pid, 2, Avma(0x1008)).is_ok(), "late samples");
        symbolizer.fork(parent, pid, 3);
        assert_eq!(symbolizer.jit.lookup(pid, 4, Avma(0x1008)), Err(NoSymbol::JitWithoutMap));
    }

    #[test]
    fn a_generated_name_that_defeats_demanglers_costs_itself() {
        let mut symbolizer = Symbolizer::new(DebugInfo::default());
        let mut name_of = |key: u64, name: &str| {
            let located =
                LocatedFunction { address: key << 12, size: 16, name: name.to_owned(), key, hash: 0 };
            let symbol = symbolizer.jit.add_located(u32::MAX, 1, located).unwrap();
            symbolizer.name(CodeLocation::Jit(symbol)).unwrap()[0].name.to_string()
        };
        let endless = format!("_Z1fIX{}E", "dl".repeat(80));
        let overflow = "_Z1fT9223372036854775807_";
        assert_eq!(name_of(1, &endless), endless);
        assert_eq!(name_of(2, overflow), overflow);
        assert_eq!(name_of(3, "_ZN4work5outerEl"), "work::outer(long)");
    }

    #[test]
    fn kernel_code_in_rust_has_readable_names() {
        let mut symbolizer = Symbolizer::new(DebugInfo::default());
        symbolizer.kernel = Kernel::with_symbols("ffffffff81000000 T _RNvC6_123foo3bar\n");
        let at = Symbolizer::kernel_location(KernelAddr(0xffff_ffff_8100_0001), Lookup::Exact);
        assert_eq!(&*symbolizer.name(at).unwrap()[0].name, "123foo::bar");
    }

    #[test]
    fn files_left_for_lack_of_time_are_searched_later() {
        let mut symbolizer = Symbolizer::new(DebugInfo::default());
        let pid = std::process::id();
        let user = accountable_user(pid).unwrap();
        symbolizer.refresh(pid, 1).unwrap();
        symbolizer.searches.charge(user, 2 * SEARCHING.credit, Instant::now());
        symbolizer.find_jit_descriptors(pid, 1);
        assert!(symbolizer.descriptors.is_empty(), "no time is left");
        symbolizer.searches = TimeAccounts::new(SEARCHING);
        symbolizer.find_jit_descriptors(pid, 1);
        assert!(!symbolizer.descriptors.is_empty());
    }

    #[test]
    fn a_defect_costs_one_process_its_generated_code() {
        let mut symbolizer = Symbolizer::new(DebugInfo::default());
        let mut asked = 0;
        let mut ask = |symbolizer: &mut Symbolizer, pid, is_well: bool| {
            symbolizer.fenced(pid, NoOrigin::Defect, |_| {
                asked += 1;
                assert!(is_well, "a defect");
                Ok(pid)
            })
        };
        assert_eq!(ask(&mut symbolizer, 7, true), Ok(7));
        assert_eq!(ask(&mut symbolizer, 7, false), Err(NoOrigin::Defect));
        assert_eq!(ask(&mut symbolizer, 7, true), Err(NoOrigin::Defect));
        assert_eq!(ask(&mut symbolizer, 8, true), Ok(8));
        symbolizer.exec(7, 1);
        assert_eq!(ask(&mut symbolizer, 7, true), Ok(7), "another program");
        assert_eq!(asked, 4, "it was not asked again after the defect");
    }
}
