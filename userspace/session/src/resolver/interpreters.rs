//! Interpreters: names that are read from the memory of running Python processes.
//!
//! Owns: attaching to interpreters, checking later that what was read still holds, and the chains of asyncio's tasks.
//! Because: unlike files, the memory of a process can only be read while it runs, so it is read as soon as something is
//! seen, and its addresses are reused. Does not: name native code.
//!
//! Reads `CLOCK_MONOTONIC`: a reading is compared with samples by when it was made.

use deepctx_capture::clock::monotonic_ns;
use deepctx_capture::{CalledFunctionMap, parent_of};
use deepctx_common::memory::{MemoryUse, table_bytes};
use deepctx_common::reason::Reason;
use deepctx_pipeline::symbols::{
    AwaitChainId, CoroutineReference, ModuleReference, Name, NameReceiver, PythonReference,
};
use deepctx_symbolizer::maps::Mapping;
use deepctx_symbolizer::python::{
    self, CalledModule, InterpreterMemory, Layer, NoInterpreter, NoPythonName, PythonSymbols, locate_process,
};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

use super::await_chains::{AwaitChains, Part, Reading};
use super::layers::{CodeObject, Layers};
use super::reason::NO_LAYER;
use super::tasks::chain;

/// Functions per process that are compared with its memory each second: at about a microsecond each, far below a
/// thousandth of a CPU.
const REVALIDATED_TOGETHER: usize = 256;
/// Most functions remembered for that; when full, the set is cleared.
const NAMED_MAX: usize = 1 << 14;

/// The interpreters of all processes.
pub(super) struct Interpreters {
    symbols: PythonSymbols,
    by_pid: FxHashMap<u32, Interpreter>,
    await_chains: AwaitChains,
    layers: Layers,
}

/// The current interpreter of a process. It has no history: names can only be read from the running program.
#[derive(Debug, Default)]
struct Interpreter {
    /// Executable mappings at the last reading.
    mappings: Vec<Mapping>,
    /// The located interpreter, valid while these mappings hold.
    located: Option<Arc<python::Interpreter>>,
    state: Attachment,
    /// Functions that were named.
    named: FxHashSet<CodeObject>,
    /// Those still to be compared with the process in this round.
    unchecked: Vec<CodeObject>,
}

/// Whether names of Python frames can be read.
#[derive(Debug, Default)]
enum Attachment {
    #[default]
    NotTried,
    Attached,
    Failed {
        reason: NoInterpreter,
        /// When it was tried.
        at_ns: u64,
    },
}

impl Interpreters {
    /// `called`: where kernel programs look up the function that calls modules of PyTorch; `None` when modules are not
    /// recorded.
    pub(super) fn new(called: Option<CalledFunctionMap>) -> Self {
        Self {
            symbols: PythonSymbols::default(),
            by_pid: FxHashMap::default(),
            await_chains: AwaitChains::default(),
            layers: Layers::new(called),
        }
    }

    /// Memory held, without that of tasks and layers.
    pub(super) fn memory(&self) -> MemoryUse {
        let of = |interpreter: &Interpreter| {
            let paths = interpreter.mappings.iter().map(|mapping| mapping.path().as_os_str().len());
            size_of_val(&*interpreter.mappings)
                + paths.sum::<usize>()
                + table_bytes(interpreter.named.capacity(), size_of::<CodeObject>())
                + interpreter.unchecked.capacity() * size_of::<CodeObject>()
        };
        let processes = self.by_pid.values().map(of).sum::<usize>()
            + table_bytes(self.by_pid.capacity(), size_of::<(u32, Interpreter)>());
        MemoryUse::new("Python functions", self.symbols.bytes() + processes)
    }

    /// What is missing, and how often.
    pub(super) fn gaps(&self) -> [(&'static Reason, u64); 1] {
        self.layers.gaps()
    }

    /// The mappings of a process were read. Attaches at once if one of them looks like an interpreter.
    pub(super) fn mapped(&mut self, pid: u32, mappings: Vec<Mapping>) {
        let looks_like_python = mappings.iter().any(|mapping| {
            mapping
                .path()
                .file_name()
                .is_some_and(|name| name.as_encoded_bytes().windows(6).any(|part| part == b"python"))
        });
        // Mappings are read before the fork itself is in order.
        let inherited = (looks_like_python && !self.by_pid.contains_key(&pid))
            .then(|| self.located_in(parent_of(pid)?, &mappings))
            .flatten();
        let interpreter = self.by_pid.entry(pid).or_default();
        // A library mapped since may hold the interpreter.
        if interpreter.mappings != mappings && !matches!(interpreter.state, Attachment::Attached) {
            interpreter.state = Attachment::NotTried;
            interpreter.located = inherited;
        }
        interpreter.mappings = mappings;
        if looks_like_python {
            // A short-lived process may be gone when its first sample is used. A failure is reported then.
            let _ = self.attach(pid);
        }
    }

    /// The located interpreter of this process, if it has these mappings.
    fn located_in(&self, pid: u32, mappings: &[Mapping]) -> Option<Arc<python::Interpreter>> {
        self.by_pid.get(&pid).filter(|of| of.mappings == mappings)?.located.clone()
    }

    /// A forked process has its parent's interpreter at the same place, until its own mappings are read and differ. Its
    /// memory is its own.
    pub(super) fn forked(&mut self, parent: u32, child: u32) {
        if !self.by_pid.contains_key(&child)
            && let Some(Interpreter { mappings, located, .. }) = self.by_pid.get(&parent)
        {
            let (mappings, located) = (mappings.clone(), located.clone());
            self.by_pid.insert(child, Interpreter { mappings, located, ..Interpreter::default() });
        }
    }

    /// Forgets a process: it has ended, or runs another program.
    pub(super) fn forget(&mut self, pid: u32) {
        self.by_pid.remove(&pid);
        self.symbols.detach(pid);
        self.await_chains.forget(pid);
        self.layers.forget(pid);
    }

    /// Reads the names of new functions while they exist.
    pub(super) fn functions_seen(&mut self, pid: u32, frames: &[PythonReference]) {
        if self.attach(pid).is_err() {
            return;
        }
        for frame in frames {
            // The name is cached; a failure is reported when the name is asked for.
            if let Ok(named) = self.symbols.frame(pid, frame.code, frame.checksum, u32::MAX) {
                self.layers.named(pid, CodeObject::of(frame), &named, &self.symbols);
            }
        }
    }

    /// Names frames of a process. True if a missing name may be known later.
    pub(super) fn name_functions(
        &mut self,
        pid: u32,
        frames: &[PythonReference],
        answer: &mut NameReceiver<'_>,
    ) -> bool {
        let attached = self.attach(pid);
        let mut later = false;
        for (n, frame) in frames.iter().enumerate() {
            let instruction = frame.instruction.unwrap_or(u32::MAX);
            let named =
                attached.and_then(|()| self.symbols.frame(pid, frame.code, frame.checksum, instruction));
            let named = match named {
                Ok(named) => named,
                Err(missing) => {
                    later |= missing == NoPythonName::Silent;
                    answer(n, &[Name::PythonUnnamed { reason: missing.reason() }]);
                    continue;
                }
            };
            self.note_named(pid, frame);
            if named.incomplete {
                answer(n, &[Name::PythonIncomplete]);
                continue;
            }
            self.layers.named(pid, CodeObject::of(frame), &named, &self.symbols);
            let (line, first_line) = (named.line.unwrap_or(0), named.first_line);
            answer(n, &[Name::Python { function: &named.qualname, file: &named.file, line, first_line }]);
        }
        later
    }

    /// Reads the await chains of coroutines that ran at a time, and of those that ran recently.
    pub(super) fn coroutines_seen(&mut self, pid: u32, time_ns: u64, coroutines: &[CoroutineReference]) {
        if self.attach(pid).is_err() {
            return;
        }
        for coroutine in coroutines {
            if !self.may_be_awaited(pid, coroutine) {
                continue;
            }
            let frame = coroutine.frame;
            if !self.await_chains.was_read_after(pid, frame, time_ns) {
                self.read_coroutine(pid, frame);
            }
            self.await_chains.ran(pid, frame, time_ns);
        }
        for frame in self.await_chains.due(pid, monotonic_ns()) {
            self.read_coroutine(pid, frame);
        }
    }

    /// The first of these coroutines that a task runs, and the await chain of that task at a time.
    pub(super) fn await_chain(
        &mut self,
        pid: u32,
        time_ns: u64,
        coroutines: &mut dyn Iterator<Item = CoroutineReference>,
    ) -> Option<(u64, AwaitChainId)> {
        for coroutine in coroutines {
            if !self.may_be_awaited(pid, &coroutine) {
                continue;
            }
            if let Some(chain) = self.await_chains.at(pid, coroutine.frame, time_ns) {
                return Some((coroutine.frame, chain));
            }
        }
        None
    }

    /// Whether this may be a task's coroutine. A generator is not, and shares its memory with coroutines of other
    /// times, so readings of that address say nothing about it. An unreadable one may be.
    fn may_be_awaited(&mut self, pid: u32, coroutine: &CoroutineReference) -> bool {
        let PythonReference { code, checksum, .. } = coroutine.function;
        self.symbols.is_awaitable(pid, code, checksum).unwrap_or(true)
    }

    /// Names the parts of await chains, root first.
    pub(super) fn name_await_chains(&self, chains: &[AwaitChainId], answer: &mut NameReceiver<'_>) {
        for (n, id) in chains.iter().enumerate() {
            let names: Vec<_> = self.await_chains.chain(*id).iter().map(Part::name).collect();
            answer(n, &names);
        }
    }

    /// Reads PyTorch modules that were called. True if names given before are out of date.
    pub(super) fn modules_seen(&mut self, pid: u32, modules: &[ModuleReference], whole: bool) -> bool {
        if self.attach(pid).is_err() {
            return false;
        }
        let called: Vec<_> = modules.iter().map(called_module).collect();
        self.symbols.record_module_calls(pid, monotonic_ns(), &called, whole)
    }

    /// Names modules of PyTorch.
    pub(super) fn name_modules(&self, pid: u32, modules: &[ModuleReference], answer: &mut NameReceiver<'_>) {
        for (n, module) in modules.iter().enumerate() {
            let Layer { path, class } = self.symbols.layer(pid, called_module(module));
            match (path.as_deref().unwrap_or(""), class.as_deref().unwrap_or("")) {
                ("", "") => answer(n, &[Name::PythonUnnamed { reason: NO_LAYER }]),
                // A variable of a closure: a function that belongs to no known version.
                ("", "cell") => answer(n, &[Name::PythonIncomplete]),
                (path, class) => answer(n, &[Name::Layer { path, class }]),
            }
        }
    }

    /// Compares some functions and modules of each process with its memory. Returns processes in which another object
    /// took the place of a named one: their names are out of date.
    pub(super) fn revalidate(&mut self) -> Vec<u32> {
        self.symbols.revalidate();
        let mut changed = Vec::new();
        for (&pid, interpreter) in &mut self.by_pid {
            if interpreter.unchecked.is_empty() {
                interpreter.unchecked.extend(&interpreter.named);
            }
            let rest = interpreter.unchecked.len().saturating_sub(REVALIDATED_TOGETHER);
            let before = self.symbols.counters().reread;
            for code in interpreter.unchecked.drain(rest..) {
                // Only a change counts; a function that is gone keeps its name.
                let _ = self.symbols.frame(pid, code.address, code.checksum, u32::MAX);
            }
            if self.symbols.counters().reread > before {
                changed.push(pid);
            }
        }
        if self.layers.is_on() {
            for &pid in self.by_pid.keys() {
                if self.symbols.revalidate_modules(pid, monotonic_ns()) {
                    changed.push(pid);
                }
            }
        }
        self.layers.revalidate(&mut self.symbols);
        changed
    }

    /// Forgets readings that no sample of this time or later can need.
    pub(super) fn retire(&mut self, before_ns: u64) {
        self.await_chains.retire(before_ns);
    }

    fn note_named(&mut self, pid: u32, frame: &PythonReference) {
        if let Some(interpreter) = self.by_pid.get_mut(&pid) {
            if interpreter.named.len() >= NAMED_MAX {
                interpreter.named.clear();
            }
            interpreter.named.insert(CodeObject::of(frame));
        }
    }

    /// Reads the await chain of a coroutine's task, now.
    fn read_coroutine(&mut self, pid: u32, frame: u64) {
        let began_ns = monotonic_ns();
        let awaited = self.symbols.await_chain(pid, frame);
        let ended_ns = monotonic_ns();
        let number = awaited.as_ref().ok().and_then(|awaited| awaited.number);
        let chain = chain(pid, awaited, &mut self.symbols);
        self.await_chains.read(pid, frame, Reading { began_ns, ended_ns, chain, number });
    }

    fn attach(&mut self, pid: u32) -> Result<(), NoPythonName> {
        let Some(interpreter) = self.by_pid.get_mut(&pid) else {
            return Err(NoPythonName::NotAttached);
        };
        let try_now = match &interpreter.state {
            Attachment::Attached => return Ok(()),
            Attachment::NotTried => true,
            Attachment::Failed { reason, at_ns } if reason.is_silence() => {
                monotonic_ns() >= at_ns + super::SECOND_NS
            }
            Attachment::Failed { reason, .. } => reason.may_change(),
        };
        if try_now {
            interpreter.state = match interpreter.locate(pid) {
                Ok((located, memory)) => {
                    if self.symbols.attach(pid, &located, Box::new(memory)) {
                        interpreter.state = Attachment::Attached;
                        return Ok(());
                    }
                    Attachment::NotTried
                }
                Err(reason) => {
                    tracing::debug!(pid, %reason, "no names of Python frames");
                    Attachment::Failed { reason, at_ns: monotonic_ns() }
                }
            };
        }
        let silent = matches!(&interpreter.state, Attachment::Failed { reason, .. } if reason.is_silence());
        Err(if silent { NoPythonName::Silent } else { NoPythonName::NotAttached })
    }
}

impl Interpreter {
    /// Locates the interpreter of process `pid`. The files of a forked process are not read again: a trainer forks its
    /// loaders in each epoch.
    fn locate(&mut self, pid: u32) -> Result<(Arc<python::Interpreter>, InterpreterMemory), NoInterpreter> {
        if let Some(located) = &self.located {
            return Ok((Arc::clone(located), InterpreterMemory::open(pid)?));
        }
        let (located, memory) = locate_process(pid, &self.mappings)?;
        let located = Arc::new(located);
        self.located = Some(Arc::clone(&located));
        Ok((located, memory))
    }
}

fn called_module(module: &ModuleReference) -> CalledModule {
    CalledModule { object: module.object, of_type: module.of_type }
}
