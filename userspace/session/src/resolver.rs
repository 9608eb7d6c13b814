//! Resolver: the pipeline's questions, answered by the symbolizer.
//!
//! Owns: numbering the states of each process's address space, names of processes, and attaching to interpreters.
//! Because: the pipeline must not touch files or processes, and the symbolizer knows nothing of frames and trees.
//! Does not: cache names (both sides do), keep samples, or read a clock: time comes with the events.

use std::collections::VecDeque;

use deepctx_common::record::ProcessEvent;
use deepctx_symbolizer::compiled::device::Launched;
use deepctx_symbolizer::compiled::{NoKernel, Unit};
use deepctx_symbolizer::maps::{Mapping, Maps};
use deepctx_symbolizer::native::DebugInfo;
use deepctx_symbolizer::python::{Layer, NoInterpreter, NoPythonName, PythonSymbols, locate_process};
use deepctx_symbolizer::space::AddressSpace;
use deepctx_symbolizer::{Avma, KernelAddr, Lookup, NoSymbol, Place, Symbolizer};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::awaiting::{Awaiting, Part};
use crate::layers::Layers;
use crate::origin::{tell, tell_kernel};
use crate::reason::{NO_LAYER, no_python, no_symbol};
use crate::tasks::chain;
use deepctx_capture::called::CalledMap;
use deepctx_capture::clock::monotonic_ns;
use deepctx_capture::cost::give_back;
use deepctx_pipeline::input::SpaceUpdate;
use deepctx_pipeline::symbols::{
    Answer, AwaitingId, CodeAddress, CompiledNames, CompiledStep, DeviceKernel, ModuleReference, Name,
    NoName, PythonReference, SpaceId, Symbols,
};
use deepctx_pipeline::threads::text;

/// How often what is cached is looked at again, in the time of the samples.
const SECOND_NS: u64 = 1_000_000_000;
/// Longest time until an address that had no name is asked for again.
const RETRY_MAX_NS: u64 = 60 * SECOND_NS;
/// Seconds after which the allocator gives back what is free: once the start is over, and now and then.
const GIVE_BACK_FIRST: u64 = 3;
/// See [`GIVE_BACK_FIRST`].
const GIVE_BACK_EVERY: u64 = 60;
/// Functions of one process that are compared with it each second: at about a microsecond each, far below a thousandth
/// of a CPU.
const DOUBTED_TOGETHER: usize = 256;
/// Functions remembered for that; at the bound all are forgotten.
const NAMED_MAX: usize = 1 << 14;
/// Most states of one process that are told apart; older ones are joined to the oldest kept.
const VERSIONS_MAX: usize = 64;

/// Answers the pipeline's questions. Lives on the pipeline's thread.
pub(crate) struct Resolver {
    symbolizer: Symbolizer,
    python: PythonSymbols,
    awaiting: Awaiting,
    layers: Layers,
    processes: FxHashMap<u32, Process>,
    interpreters: FxHashMap<u32, Interpreter>,
    spaces: FxHashMap<SpaceId, Asked>,
    /// Spaces that no new question will be about; those that were asked before may still come.
    stale: Vec<SpaceId>,
    next_space: u32,
    retired_ns: u64,
    /// Seconds so far in which something was looked at again.
    rests: u64,
}

/// Mappings whose files are open already.
#[derive(Debug)]
pub(crate) struct Admitted {
    space: AddressSpace,
}

/// Of which process and time a space is.
#[derive(Clone, Copy, Debug)]
struct Asked {
    pid: u32,
    time_ns: u64,
}

#[derive(Debug, Default)]
struct Process {
    versions: VecDeque<Version>,
    ended_ns: Option<u64>,
}

/// What is known of a process from a time on.
#[derive(Clone, Debug)]
struct Version {
    since_ns: u64,
    id: SpaceId,
    /// False until its mappings have been read.
    read: bool,
    name: String,
    /// When names that were missing are asked for again, and how long after that.
    retry: Option<(u64, u64)>,
}

/// The interpreter of a process as it is now. Unlike address spaces it has no history: names can only be read from the
/// living program.
#[derive(Debug, Default)]
struct Interpreter {
    /// Executable mappings as they were read last.
    mappings: Vec<Mapping>,
    state: Attachment,
    /// Functions that were named: code object and checksum.
    named: FxHashSet<(u64, u32)>,
    /// Those of them that are still to be compared with the process in this round.
    doubted: Vec<(u64, u32)>,
}

/// Whether names of Python frames can be read.
#[derive(Debug, Default)]
enum Attachment {
    #[default]
    NotSought,
    Attached,
    None(NoInterpreter),
}

impl Resolver {
    /// Knows nothing yet.
    pub(crate) fn new(debug_info: DebugInfo) -> Self {
        Self {
            symbolizer: Symbolizer::new(debug_info),
            python: PythonSymbols::default(),
            awaiting: Awaiting::default(),
            layers: Layers::default(),
            processes: FxHashMap::default(),
            interpreters: FxHashMap::default(),
            spaces: FxHashMap::default(),
            stale: Vec::new(),
            next_space: 0,
            retired_ns: 0,
            rests: 0,
        }
    }

    /// Tells modules of PyTorch as layers; `map`: where the kernel programs are told of the function that calls them.
    #[must_use]
    pub(crate) fn with_layers(mut self, map: Option<CalledMap>) -> Self {
        self.layers = Layers::new(map);
        self
    }

    /// Opens the files behind mappings, at once: they may be reachable only while the process lives.
    pub(crate) fn admit(&mut self, pid: u32, maps: Maps) -> Admitted {
        let mappings = maps.mappings.clone();
        let (_, space) = self.symbolizer.admit(pid, maps);
        let looks_like_python = mappings.iter().any(|mapping| {
            mapping
                .path()
                .file_name()
                .is_some_and(|name| name.as_encoded_bytes().windows(6).any(|part| part == b"python"))
        });
        let interpreter = self.interpreters.entry(pid).or_default();
        // A library that was mapped since may hold the interpreter.
        if interpreter.mappings != mappings && !matches!(interpreter.state, Attachment::Attached) {
            interpreter.state = Attachment::NotSought;
        }
        interpreter.mappings = mappings;
        if looks_like_python {
            // Best done now: a short-lived process may be gone when its first sample is used. What prevents it will be
            // told then.
            let _ = self.attach_python(pid);
        }
        Admitted { space }
    }

    /// The symbolizer, for its counters and modules.
    pub(crate) fn symbolizer(&self) -> &Symbolizer {
        &self.symbolizer
    }

    fn new_space(&mut self, pid: u32, time_ns: u64) -> SpaceId {
        let id = SpaceId(self.next_space);
        // After four thousand million states the oldest are long retired.
        self.next_space = self.next_space.wrapping_add(1);
        self.spaces.insert(id, Asked { pid, time_ns });
        id
    }

    fn push(&mut self, pid: u32, time_ns: u64, read: bool, name: String) {
        let id = self.new_space(pid, time_ns);
        let process = self.processes.entry(pid).or_default();
        process.ended_ns = None;
        process.versions.push_back(Version { since_ns: time_ns, id, read, name, retry: None });
        if process.versions.len() > VERSIONS_MAX
            && let Some(oldest) = process.versions.pop_front()
        {
            self.stale.push(oldest.id);
        }
    }

    fn version(&mut self, pid: u32, time_ns: u64) -> Option<&mut Version> {
        let versions = &mut self.processes.get_mut(&pid)?.versions;
        let at = versions.partition_point(|version| version.since_ns <= time_ns).saturating_sub(1);
        versions.get_mut(at)
    }

    /// An answer of this space was "not yet": ask again later, less and less often.
    fn retry_later(&mut self, space: SpaceId) {
        let Some(Asked { pid, time_ns }) = self.spaces.get(&space).copied() else { return };
        if let Some(version) = self.version(pid, time_ns).filter(|version| version.id == space) {
            let wait = version.retry.map_or(SECOND_NS, |(_, wait)| wait);
            version.retry = Some((time_ns.saturating_add(wait), (wait * 2).min(RETRY_MAX_NS)));
        }
    }

    fn note_named(&mut self, pid: u32, frame: &PythonReference) {
        if let Some(interpreter) = self.interpreters.get_mut(&pid) {
            if interpreter.named.len() >= NAMED_MAX {
                interpreter.named.clear();
            }
            interpreter.named.insert((frame.code, frame.checksum));
        }
    }

    /// Compares some functions of each process with the process. Where another one has taken the place of one that was
    /// named, with the same checksum, all answers of the process are put in doubt.
    fn compare_functions(&mut self, time_ns: u64) {
        self.python.doubt();
        let mut changed = Vec::new();
        for (&pid, interpreter) in &mut self.interpreters {
            if interpreter.doubted.is_empty() {
                interpreter.doubted.extend(&interpreter.named);
            }
            let rest = interpreter.doubted.len().saturating_sub(DOUBTED_TOGETHER);
            let before = self.python.counters().reread;
            for (code, checksum) in interpreter.doubted.drain(rest..) {
                // Only whether it changed counts; one that is gone keeps the name that it had.
                let _ = self.python.frame(pid, code, checksum, u32::MAX);
            }
            if self.python.counters().reread > before {
                changed.push(pid);
            }
        }
        for (&pid, _) in self.interpreters.iter().filter(|_| self.layers.is_on()) {
            if self.python.compare_modules(pid, monotonic_ns()) {
                changed.push(pid);
            }
        }
        self.layers.compare(&mut self.python);
        for pid in changed {
            self.answer_anew(pid, time_ns);
        }
    }

    /// Answers about a process are out of date: whoever asks from now on asks anew.
    fn answer_anew(&mut self, pid: u32, time_ns: u64) {
        let since_ns =
            self.processes.get(&pid).and_then(|process| process.versions.back()).map(|v| v.since_ns);
        let id = self.new_space(pid, since_ns.unwrap_or(0).max(time_ns));
        let last = self.processes.get_mut(&pid).and_then(|process| process.versions.back_mut());
        let unused = last.map_or(id, |version| std::mem::replace(&mut version.id, id));
        self.stale.push(unused);
    }

    /// Reads who awaits the task that runs a coroutine, now.
    fn read_coroutine(&mut self, pid: u32, frame: u64) {
        let began_ns = monotonic_ns();
        let awaited = self.python.awaiting(pid, frame);
        let read_ns = [began_ns, monotonic_ns()];
        let number = awaited.as_ref().ok().and_then(|awaited| awaited.number);
        let chain = chain(pid, awaited, &mut self.python);
        self.awaiting.read(pid, frame, read_ns, chain, number);
    }

    fn attach_python(&mut self, pid: u32) -> Result<(), NoName> {
        let Some(interpreter) = self.interpreters.get_mut(&pid) else {
            return Err(no_python(NoPythonName::NotAttached));
        };
        let seek = match &interpreter.state {
            Attachment::Attached => return Ok(()),
            Attachment::NotSought => true,
            Attachment::None(reason) => reason.may_change(),
        };
        if seek {
            interpreter.state = match locate_process(pid, &interpreter.mappings) {
                Ok((found, memory)) => {
                    if self.python.attach(pid, &found, Box::new(memory)) {
                        interpreter.state = Attachment::Attached;
                        return Ok(());
                    }
                    Attachment::NotSought
                }
                Err(reason) => {
                    tracing::debug!(pid, %reason, "no names of Python frames");
                    Attachment::None(reason)
                }
            };
        }
        Err(no_python(NoPythonName::NotAttached))
    }
}

impl CompiledNames for Resolver {
    fn device_kernel(&mut self, kernel: &DeviceKernel<'_>, answer: &mut dyn FnMut(&[Name<'_>])) -> bool {
        let DeviceKernel { pid, time_ns, name, siblings } = *kernel;
        let (known, later) = self.symbolizer.device_kernel(pid, time_ns, name, siblings);
        if let Ok(kernel) = known {
            tell_kernel(&kernel, answer);
        }
        later
    }

    fn compiled_step(&mut self, step: &CompiledStep<'_>, answer: &mut dyn FnMut(&[Name<'_>])) {
        let CompiledStep { pid, time_ns, unit_number: number, unit: name, cut, name: step, fused } = *step;
        let unit = Unit { number, name, cut };
        if let Ok(kernel) = self.symbolizer.compiled_step(pid, time_ns, unit, step, fused) {
            tell_kernel(&kernel, answer);
        }
    }

    fn launched_by(
        &mut self,
        pid: u32,
        time_ns: u64,
        path: &str,
        answer: &mut dyn FnMut(&str, u32, &[Name<'_>]),
    ) -> bool {
        match self.symbolizer.launched_by(pid, time_ns, path) {
            Ok(launches) => {
                for Launched { name, line, kernel } in &launches.launched {
                    tell_kernel(kernel, &mut |names| answer(name, *line, names));
                }
                !launches.complete
            }
            Err(reason) => reason == NoKernel::NotThere,
        }
    }
}

impl Symbols for Resolver {
    type Space = Admitted;

    fn replacement_seen(&mut self, pid: u32) {
        self.interpreters.remove(&pid);
        self.python.detach(pid);
        self.awaiting.forget(pid);
        self.layers.forget(pid);
    }

    fn python_seen(&mut self, pid: u32, frames: &[PythonReference]) {
        if self.attach_python(pid).is_ok() {
            for frame in frames {
                // Kept by the cache of names; a failure is told when the name is asked for.
                if let Ok(named) = self.python.frame(pid, frame.code, frame.checksum, u32::MAX) {
                    self.layers.named(pid, (frame.code, frame.checksum), &named, &self.python);
                }
            }
        }
    }

    fn coroutines_seen(&mut self, pid: u32, time_ns: u64, frames: &[u64]) {
        if self.attach_python(pid).is_err() {
            return;
        }
        for &frame in frames {
            if !self.awaiting.was_read_after(pid, frame, time_ns) {
                self.read_coroutine(pid, frame);
            }
            self.awaiting.ran(pid, frame, time_ns);
        }
        for frame in self.awaiting.due(pid, monotonic_ns()) {
            self.read_coroutine(pid, frame);
        }
    }

    fn awaiting(
        &mut self,
        pid: u32,
        time_ns: u64,
        frames: &mut dyn Iterator<Item = u64>,
    ) -> Option<(u64, AwaitingId)> {
        loop {
            let frame = frames.next()?;
            if let Some(chain) = self.awaiting.at(pid, frame, time_ns) {
                return Some((frame, chain));
            }
        }
    }

    fn awaiting_parts(&mut self, chains: &[AwaitingId], answer: &mut Answer<'_>) {
        for (n, id) in chains.iter().enumerate() {
            let names: Vec<_> = self.awaiting.chain(*id).iter().map(Part::name).collect();
            answer(n, &names);
        }
    }

    fn modules_seen(&mut self, pid: u32, time_ns: u64, modules: &[ModuleReference], whole: bool) {
        if self.attach_python(pid).is_err() {
            return;
        }
        let called: Vec<_> = modules.iter().map(|module| (module.object, module.of_type)).collect();
        if self.python.modules_called(pid, monotonic_ns(), &called, whole) {
            self.answer_anew(pid, time_ns);
        }
    }

    fn modules(&mut self, space: SpaceId, modules: &[ModuleReference], answer: &mut Answer<'_>) {
        let Some(Asked { pid, .. }) = self.spaces.get(&space).copied() else { return };
        for (n, module) in modules.iter().enumerate() {
            let Layer { path, class } = self.python.layer(pid, (module.object, module.of_type));
            match (path.as_deref().unwrap_or(""), class.as_deref().unwrap_or("")) {
                ("", "") => answer(n, &[Name::PythonUnnamed { reason: NO_LAYER }]),
                // The variable of a closure: another function than those of any version that is known.
                ("", "cell") => answer(n, &[Name::PythonIncomplete]),
                (path, class) => answer(n, &[Name::Layer { path, class }]),
            }
        }
    }

    fn space_changed(&mut self, update: SpaceUpdate<Admitted>) {
        let SpaceUpdate { pid, time_ns, name, maps: Admitted { space } } = update;
        let unchanged_before = self.symbolizer.counters().spaces.unchanged;
        self.symbolizer.space_changed(pid, time_ns, space);
        let unchanged = self.symbolizer.counters().spaces.unchanged > unchanged_before;
        let last = self.processes.get(&pid).and_then(|process| process.versions.back());
        match last.map(|version| (version.read, version.since_ns, version.name.clone())) {
            Some((true, _, _)) if unchanged => {}
            Some((true, _, known)) => {
                self.push(pid, time_ns, true, if known.is_empty() { name } else { known })
            }
            // The first reading tells how it was since the beginning of the program.
            Some((false, since_ns, known)) => {
                let unread = self.processes.get_mut(&pid).and_then(|process| process.versions.pop_back());
                self.stale.extend(unread.map(|version| version.id));
                self.push(pid, since_ns, true, if known.is_empty() { name } else { known });
            }
            None => self.push(pid, 0, true, name),
        }
    }

    fn forked(&mut self, event: &ProcessEvent) {
        let (parent, child, time_ns) = (event.parent, event.pid, event.header.time_ns);
        self.symbolizer.fork(parent, child, time_ns);
        let parent_versions = self.processes.get(&parent).map(|process| &process.versions);
        let read = parent_versions.and_then(VecDeque::back).is_some_and(|version| version.read);
        self.push(child, time_ns, read, text(&event.comm));
        // It has the parent's interpreter until it says otherwise, but its own memory.
        if !self.interpreters.contains_key(&child)
            && let Some(Interpreter { mappings, .. }) = self.interpreters.get(&parent)
        {
            let mappings = mappings.clone();
            self.interpreters.insert(child, Interpreter { mappings, ..Interpreter::default() });
        }
    }

    fn replaced(&mut self, event: &ProcessEvent) {
        self.symbolizer.exec(event.pid, event.header.time_ns);
        self.push(event.pid, event.header.time_ns, false, text(&event.comm));
    }

    fn ended(&mut self, event: &ProcessEvent) {
        self.symbolizer.exit(event.pid, event.header.time_ns);
        if let Some(process) = self.processes.get_mut(&event.pid) {
            process.ended_ns = Some(event.header.time_ns);
        }
    }

    fn retire(&mut self, before_ns: u64) {
        // All questions about samples that were used are answered now.
        for space in self.stale.drain(..) {
            self.spaces.remove(&space);
        }
        if before_ns < self.retired_ns.saturating_add(SECOND_NS) {
            return;
        }
        self.retired_ns = before_ns;
        self.symbolizer.retire(before_ns);
        self.awaiting.retire(before_ns);
        self.compare_functions(before_ns);
        self.rests += 1;
        let now_and_then = self.rests == GIVE_BACK_FIRST || self.rests.is_multiple_of(GIVE_BACK_EVERY);
        if self.symbolizer.rest() || now_and_then {
            give_back();
        }
        let (spaces, python, interpreters) = (&mut self.spaces, &mut self.python, &mut self.interpreters);
        let (awaiting, layers) = (&mut self.awaiting, &mut self.layers);
        self.processes.retain(|pid, process| {
            while process.versions.get(1).is_some_and(|next| next.since_ns <= before_ns) {
                if let Some(old) = process.versions.pop_front() {
                    spaces.remove(&old.id);
                }
            }
            let dead = process.ended_ns.is_some_and(|ended| ended <= before_ns);
            if dead {
                for version in &process.versions {
                    spaces.remove(&version.id);
                }
                python.detach(*pid);
                awaiting.forget(*pid);
                layers.forget(*pid);
                interpreters.remove(pid);
            }
            !dead
        });
    }

    fn space(&mut self, pid: u32, time_ns: u64) -> SpaceId {
        match self.version(pid, time_ns) {
            Some(version) if version.retry.is_none_or(|(at, _)| time_ns < at) => version.id,
            Some(_) => {
                let id = self.new_space(pid, time_ns);
                match self.version(pid, time_ns) {
                    Some(version) => {
                        let before = std::mem::replace(&mut version.id, id);
                        // Kept for the wait that follows if the answer is the same again.
                        version.retry = version.retry.map(|(_, wait)| (u64::MAX, wait));
                        self.stale.push(before);
                        id
                    }
                    None => id,
                }
            }
            None => {
                self.push(pid, 0, false, String::new());
                self.version(pid, time_ns).map_or(SpaceId(0), |version| version.id)
            }
        }
    }

    fn process_name(&mut self, pid: u32, time_ns: u64) -> Option<&str> {
        self.version(pid, time_ns).map(|version| version.name.as_str())
    }

    fn user(&mut self, space: SpaceId, addresses: &[CodeAddress], answer: &mut Answer<'_>) {
        let Some(Asked { pid, time_ns }) = self.spaces.get(&space).copied() else { return };
        let mut in_modules: FxHashMap<_, Vec<_>> = FxHashMap::default();
        let mut not_yet = false;
        for (n, address) in addresses.iter().enumerate() {
            let (address, lookup) = split(*address);
            let place = self.symbolizer.place(pid, time_ns, Avma(address), lookup);
            match place {
                Place::Native { module, address } => in_modules.entry(module).or_default().push((n, address)),
                Place::Jit(_) | Place::Kernel(_) | Place::Nowhere(_) => {
                    let named = self.symbolizer.name(place);
                    not_yet |= matches!(named, Err(NoSymbol::JitWithoutMap | NoSymbol::JitNotCovered));
                    not_yet |= tell(
                        n,
                        &named,
                        "",
                        address,
                        &mut |symbol| self.symbolizer.compiled(pid, time_ns, place, symbol),
                        answer,
                    );
                }
            }
        }
        for (module, questions) in in_modules {
            let stated: Vec<_> = questions.iter().map(|(_, address)| *address).collect();
            let named = self.symbolizer.names(module, &stated);
            let path = self.symbolizer.modules().get(module).map_or("", |module| module.path());
            let path = path.to_owned();
            for ((n, address), named) in questions.iter().zip(&named) {
                let place = Place::Native { module, address: *address };
                not_yet |= tell(
                    *n,
                    named,
                    &path,
                    address.0,
                    &mut |symbol| self.symbolizer.compiled(pid, time_ns, place, symbol),
                    answer,
                );
            }
        }
        if not_yet {
            self.retry_later(space);
        }
    }

    fn python(&mut self, space: SpaceId, frames: &[PythonReference], answer: &mut Answer<'_>) {
        let Some(Asked { pid, .. }) = self.spaces.get(&space).copied() else { return };
        let attached = self.attach_python(pid);
        for (n, frame) in frames.iter().enumerate() {
            let named = match attached {
                Ok(()) => self
                    .python
                    .frame(pid, frame.code, frame.checksum, frame.instruction.unwrap_or(u32::MAX))
                    .map_err(no_python),
                Err(reason) => Err(reason),
            };
            match named {
                Ok(named) if named.incomplete => {
                    self.note_named(pid, frame);
                    answer(n, &[Name::PythonIncomplete]);
                }
                Ok(named) => {
                    self.note_named(pid, frame);
                    self.layers.named(pid, (frame.code, frame.checksum), &named, &self.python);
                    answer(
                        n,
                        &[Name::Python {
                            function: &named.qualname,
                            file: &named.file,
                            line: named.line.unwrap_or(0),
                            first_line: named.first_line,
                        }],
                    )
                }
                Err(reason) => answer(n, &[Name::PythonUnnamed { reason }]),
            }
        }
    }

    fn kernel(&mut self, addresses: &[CodeAddress], answer: &mut Answer<'_>) {
        for (n, address) in addresses.iter().enumerate() {
            let (address, lookup) = split(*address);
            let place = Symbolizer::kernel_place(KernelAddr(address), lookup);
            match self.symbolizer.name(place) {
                Ok(frames) => {
                    let names: Vec<_> =
                        frames.iter().map(|frame| Name::Kernel { symbol: &frame.name }).collect();
                    answer(n, &names);
                }
                Err(reason) => answer(n, &[Name::KernelUnnamed { reason: no_symbol(reason) }]),
            }
        }
    }
}

fn split(address: CodeAddress) -> (u64, Lookup) {
    match address {
        CodeAddress::Exact(address) => (address, Lookup::Exact),
        CodeAddress::Return(address) => (address, Lookup::Return),
    }
}
