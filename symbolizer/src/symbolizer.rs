//! The one door for the pipeline: from (process, time, address) to a place, from a place to names.
//!
//! Owns: the order in which address spaces, modules, runtimes' maps and the kernel are asked. Because: a place is
//! cheap and decides whether two samples are the same code; a name is dear and is needed once per place, later, and
//! after the process is gone. Does not: keep samples, read clocks, or wait for a network.

use std::sync::Arc;

use deepctx_address_space::maps::{self, Backing, Keep, Mapping, Maps};
use deepctx_address_space::{Avma, KernelAddr, Lookup, NoSymbol, Svma};
use rustc_hash::FxHashMap;

use crate::cache::Strings;
use crate::compiled::device::Launches;
use crate::compiled::{Answer, Compiled, NoKernel, Settings, Unit};
use crate::jit::gdb::DESCRIPTOR;
use crate::jit::{Jit, JitCounters, JitSymbol};
use crate::kernel::Kernel;
use crate::native::{DebugInfo, Frame, ModuleCounters, ModuleHandle, Modules, Named, Native, NativeCounters};
use crate::python::ProcessMemory;
use crate::space::{AddressSpace, Owner, Region, SpaceCounters, Spaces};
use crate::variable;

/// Where code is, independent of processes and of time: equal places are the same code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
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
    /// Nowhere that has a name.
    Nowhere(NoSymbol),
}

/// What [`Symbolizer::refresh`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refreshed {
    /// Executable mappings of the process.
    pub mappings: Vec<(Mapping, Owner)>,
    /// Lines of the maps file that could not be understood or kept.
    pub lost: u64,
}

/// Counters of everything behind the door.
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
    /// Times the kernel's table was read.
    pub kernel_readings: u64,
}

/// Names code. Lives on one thread; make it there.
#[derive(Debug)]
pub struct Symbolizer {
    spaces: Spaces,
    modules: Modules,
    native: Native,
    jit: Jit,
    /// Where each file that was asked states its list of generated code, if it has one. Modules are bounded.
    descriptors: FxHashMap<ModuleHandle, Option<Svma>>,
    /// How many mappings of a process have been asked for such a list.
    asked: FxHashMap<u32, usize>,
    compiled: Compiled,
    kernel: Kernel,
    strings: Strings,
    /// Time of the youngest event, which stands for the clock where one is needed.
    now_ns: u64,
}

impl Symbolizer {
    /// With nothing read.
    pub fn new(debug_info: DebugInfo) -> Self {
        Self {
            spaces: Spaces::new(),
            modules: Modules::new(),
            native: Native::new(debug_info),
            jit: Jit::new(),
            descriptors: FxHashMap::default(),
            asked: FxHashMap::default(),
            compiled: Compiled::default(),
            kernel: Kernel::new(),
            strings: Strings::default(),
            now_ns: 0,
        }
    }

    /// Reads the mappings of a process (pid as `/proc` of the profiler has it) and opens files that are new. `time_ns`
    /// is the time from which the mappings are known to hold, on the clock of the samples. Gives the mappings with
    /// their modules, for whoever prepares unwinding.
    ///
    /// # Errors
    /// [`NoSymbol::ProcessGone`], [`NoSymbol::PermissionDenied`]; what was known before stays.
    pub fn refresh(&mut self, pid: u32, time_ns: u64) -> Result<Refreshed, NoSymbol> {
        let maps = maps::read(pid, Keep::Executable)?;
        let (refreshed, space) = self.admit(pid, maps);
        self.space_changed(pid, time_ns, space);
        Ok(refreshed)
    }

    /// First half of [`Self::refresh`], for mappings that were read already: opens files that are new, while the process
    /// is there to lead to them.
    pub fn admit(&mut self, pid: u32, maps: Maps) -> (Refreshed, AddressSpace) {
        let lost = maps.malformed + maps.dropped;
        self.jit.found_dump(pid, maps.jitdump.as_ref());
        let owned = maps.mappings.into_iter().map(|mapping| {
            let owner = owner(&mut self.modules, pid, &mapping);
            (mapping, owner)
        });
        let mappings: Vec<_> = owned.collect();
        let region = |(m, owner): &(Mapping, Owner)| Region { begin: m.begin, end: m.end, owner: *owner };
        let space = AddressSpace::new(mappings.iter().map(region).collect());
        (Refreshed { mappings, lost }, space)
    }

    /// Second half of [`Self::refresh`], in its turn among forks, execs and exits.
    pub fn space_changed(&mut self, pid: u32, time_ns: u64, space: AddressSpace) {
        self.now_ns = self.now_ns.max(time_ns);
        self.spaces.update(pid, time_ns, space);
    }

    /// `child` was forked from `parent`.
    pub fn fork(&mut self, parent: u32, child: u32, time_ns: u64) {
        self.now_ns = self.now_ns.max(time_ns);
        self.spaces.fork(parent, child, time_ns);
        self.jit.fork(parent, child);
    }

    /// The process began a new program. Until the next [`Self::refresh`] nothing is known of it.
    pub fn exec(&mut self, pid: u32, time_ns: u64) {
        self.now_ns = self.now_ns.max(time_ns);
        self.spaces.exec(pid, time_ns);
        self.jit.forget(pid);
        self.asked.remove(&pid);
        self.compiled.forget(pid);
    }

    /// The process ended. What is known of it stays until [`Self::retire`].
    pub fn exit(&mut self, pid: u32, time_ns: u64) {
        self.now_ns = self.now_ns.max(time_ns);
        self.spaces.exit(pid, time_ns);
    }

    /// No sample older than `before_ns` will come any more.
    pub fn retire(&mut self, before_ns: u64) {
        self.spaces.retire(before_ns);
        let spaces = &self.spaces;
        self.jit.retain(|pid| spaces.is_known(pid));
        self.asked.retain(|pid, _| spaces.is_known(*pid));
        self.compiled.retain(|pid| spaces.is_known(pid));
    }

    /// Gives back memory that is not in use; to be called every second or so. True when the allocator should be asked to
    /// give back what is free.
    pub fn rest(&mut self) -> bool {
        self.native.rest()
    }

    /// The place of a user-space address at the time of a sample. Reads at most a runtime's own map of its code, and
    /// that only when it has grown.
    pub fn place(&mut self, pid: u32, time_ns: u64, address: Avma, lookup: Lookup) -> Place {
        self.now_ns = self.now_ns.max(time_ns);
        let address = Avma(lookup.address(address.0));
        let region = match self.spaces.lookup(pid, time_ns, address) {
            Ok(region) => region,
            Err(reason) => return Place::Nowhere(reason),
        };
        match region.owner {
            Owner::Module { module, bias } => Place::Native { module, address: address.to_svma(bias) },
            Owner::Generated => match self.generated(pid, time_ns, address, [region.begin.0, region.end.0]) {
                Ok(symbol) => Place::Jit(symbol),
                Err(reason) => Place::Nowhere(reason),
            },
            Owner::Nobody(reason) => Place::Nowhere(reason),
        }
    }

    fn generated(
        &mut self,
        pid: u32,
        time_ns: u64,
        address: Avma,
        mapping: [u64; 2],
    ) -> Result<JitSymbol, NoSymbol> {
        let mut found = self.jit.lookup(pid, time_ns, address);
        if found.is_err() && self.seek_descriptors(pid, time_ns) {
            found = self.jit.lookup(pid, time_ns, address);
        }
        let Self { spaces, modules, jit, compiled, .. } = self;
        found.or_else(|reason| {
            let settings = || settings(pid, time_ns, spaces, modules);
            let loaded = compiled.loaded(pid, time_ns, mapping, address.0, settings);
            loaded.and_then(|loaded| jit.found_code(pid, loaded)).ok_or(reason)
        })
    }

    /// Looks in the files of a process, each once, for a runtime's list of generated code. True when one was found.
    fn seek_descriptors(&mut self, pid: u32, time_ns: u64) -> bool {
        let Some(space) = self.spaces.at(pid, time_ns) else { return false };
        let regions = space.regions();
        if self.asked.insert(pid, regions.len()) == Some(regions.len()) {
            return false;
        }
        let mut found = false;
        for region in regions {
            let Owner::Module { module, bias } = region.owner else { continue };
            let modules = &mut self.modules;
            let stated = *self.descriptors.entry(module).or_insert_with(|| {
                let file = modules.open(module).ok()?;
                variable::find(&file, DESCRIPTOR.0, DESCRIPTOR.1)
            });
            if let Some(stated) = stated {
                self.jit.found_descriptor(pid, Avma(stated.0.wrapping_add(bias)));
                found = true;
            }
        }
        found
    }

    /// What a kernel at a place was compiled from; `symbol` is the name of its function.
    ///
    /// # Errors
    /// Why nothing is known: most code was not compiled from operators.
    pub fn compiled(&mut self, pid: u32, time_ns: u64, place: Place, symbol: &str) -> Answer {
        let Self { spaces, modules, jit, compiled, .. } = self;
        match place {
            Place::Jit(code) => {
                if let Some(number) = jit.loaded(code) {
                    return compiled.loaded_kernel(pid, number);
                }
                let piece = jit.piece(code).ok_or(NoKernel::NotCompiled)?;
                let settings = || settings(pid, time_ns, spaces, modules);
                compiled.generated(pid, time_ns, piece, jit.pieces(pid), settings)
            }
            Place::Native { module, .. } => {
                let path = modules.get(module).map(|module| Arc::clone(module.path()));
                compiled.library(pid, time_ns, &path.ok_or(NoKernel::NotCompiled)?, symbol)
            }
            Place::Kernel(_) | Place::Nowhere(_) => Err(NoKernel::NotCompiled),
        }
    }

    /// What a kernel of a device was compiled from, by its name; `siblings` are others that came with the same code. True when
    /// more may be known later.
    pub fn device_kernel(&mut self, pid: u32, time_ns: u64, name: &str, siblings: &[&str]) -> (Answer, bool) {
        let Self { spaces, modules, compiled, .. } = self;
        compiled.device(pid, time_ns, name, siblings, || settings(pid, time_ns, spaces, modules))
    }

    /// What a step of a module that XLA compiled was made from. `fused`: other operators may be fused into it.
    ///
    /// # Errors
    /// Why that is not known.
    pub fn compiled_step(
        &mut self,
        pid: u32,
        time_ns: u64,
        unit: Unit<'_>,
        step: &str,
        fused: bool,
    ) -> Answer {
        let Self { spaces, modules, compiled, .. } = self;
        compiled.step(pid, time_ns, unit, step, fused, || settings(pid, time_ns, spaces, modules))
    }

    /// What a generated file of a process launches.
    ///
    /// # Errors
    /// Why that is not known: most files are not generated.
    pub fn launched_by(&mut self, pid: u32, time_ns: u64, path: &str) -> Result<Launches, NoKernel> {
        self.compiled.launched_by(pid, time_ns, path)
    }

    /// The place of a kernel address.
    pub const fn kernel_place(address: KernelAddr, lookup: Lookup) -> Place {
        Place::Kernel(KernelAddr(lookup.address(address.0)))
    }

    /// The functions at a place: the outermost first, calls inlined at the place after it, the innermost last.
    ///
    /// # Errors
    /// The reason why there is no name; [`Self::label`] then has a text to show.
    pub fn name(&mut self, place: Place) -> Named {
        match place {
            Place::Native { module, address } => {
                let mut named = self.native.symbolize(&mut self.modules, module, &[address]);
                named.pop().unwrap_or(Err(NoSymbol::ReaderFailed))
            }
            Place::Jit(symbol) => {
                let name = self.jit.name(symbol).ok_or(NoSymbol::JitNotCovered)?;
                Ok(single(self.strings.intern(name)))
            }
            Place::Kernel(address) => {
                let symbol = self.kernel.lookup(address, self.now_ns)?;
                Ok(single(self.strings.intern(symbol.name)))
            }
            Place::Nowhere(reason) => Err(reason),
        }
    }

    /// Names many addresses of one module at once, which is faster than one by one.
    pub fn names(&mut self, module: ModuleHandle, addresses: &[Svma]) -> Vec<Named> {
        self.native.symbolize(&mut self.modules, module, addresses)
    }

    /// Begins to read the kernel's names, on a thread of its own.
    pub fn read_kernel_ahead(&mut self) {
        self.kernel.read_ahead();
    }

    /// Text for a place without a name: `library+0xoffset`, or `[unknown: reason]`.
    pub fn label(&self, place: Place, reason: NoSymbol) -> String {
        match place {
            Place::Native { module, address } => match self.modules.get(module) {
                Some(module) => module.label(address),
                None => format!("[unknown: {}]", reason.key()),
            },
            Place::Jit(_) | Place::Kernel(_) | Place::Nowhere(_) => format!("[unknown: {}]", reason.key()),
        }
    }

    /// The files of all processes seen.
    pub const fn modules(&self) -> &Modules {
        &self.modules
    }

    /// The files, for opening one.
    pub const fn modules_mut(&mut self) -> &mut Modules {
        &mut self.modules
    }

    /// The address spaces.
    pub const fn spaces(&self) -> &Spaces {
        &self.spaces
    }

    /// What happened so far.
    pub fn counters(&self) -> Counters {
        Counters {
            spaces: self.spaces.counters(),
            modules: self.modules.counters(),
            native: self.native.counters(),
            jit: self.jit.counters(),
            kernel_readings: self.kernel.readings(),
        }
    }
}

/// Where the compilers of a process leave what they know.
fn settings(pid: u32, time_ns: u64, spaces: &Spaces, modules: &mut Modules) -> Settings {
    let environ = spaces.at(pid, time_ns).and_then(|space| environ(modules, space));
    let memory = ProcessMemory::open(pid).ok();
    Settings::read(pid, memory.as_ref().map(|memory| memory as _), environ)
}

/// Where the C library of a process has its variable `environ`.
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

/// Who can name the code of a mapping.
fn owner(modules: &mut Modules, pid: u32, mapping: &Mapping) -> Owner {
    match mapping.backing {
        Backing::Anonymous => Owner::Generated,
        Backing::Uprobes => Owner::Nobody(NoSymbol::UprobeTrampoline),
        Backing::Special => Owner::Nobody(NoSymbol::SpecialMapping),
        Backing::File | Backing::DeletedFile | Backing::Memfd | Backing::Vdso => {
            match modules.admit(pid, mapping) {
                Ok((module, bias)) => Owner::Module { module, bias },
                // Runtimes put generated code into shared memory too (to map it a second time, writable).
                Err(NoSymbol::NotElf) if mapping.backing != Backing::Vdso => Owner::Generated,
                Err(reason) => Owner::Nobody(reason),
            }
        }
    }
}
