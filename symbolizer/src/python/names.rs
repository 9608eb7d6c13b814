//! From a sampled Python frame to its names, or to the reason why there are none.
//!
//! Owns: the attached processes, and the cache of code objects with its bound, counters and revalidation. Because:
//! the same few thousand functions make up every stack, and each should be read from its process once. Does not: find
//! interpreters (see [`mod@super::locate`]), or know stacks.

use std::sync::Arc;

use deepctx_common::memory::{shared_text_bytes, table_bytes};
use deepctx_common::reasons;
use rustc_hash::{FxHashMap, FxHashSet};

use super::code::{Code, CodeError, read_code, read_identity};
use super::layout::Layout;
use super::locate::Interpreter;
use super::modules::{CalledModule, Layer, Modules};
use super::tasks::{AwaitChain, NoTask, Tasks};
use crate::memory::{ReadError, TargetMemory};

/// Most code objects kept of all processes: a process with torch loaded has about 60 000 and runs far fewer. At ~400
/// bytes each this is 25 MiB.
pub const CODES_MAX: usize = 1 << 16;

/// Most attached processes: as many as the kernel programs walk.
pub const PROCESSES_MAX: usize = deepctx_common::unwind::PROCESSES_MAX as usize;

/// A frame as users see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PythonFrame {
    /// `Class.method`, `outer.<locals>.inner`; the plain name before 3.11, which does not record it.
    pub qualname: Arc<str>,
    /// `co_name`.
    pub name: Arc<str>,
    /// `co_filename`.
    pub file: Arc<str>,
    /// Line of the current instruction; `None` when the instruction has none or is not known.
    pub line: Option<u32>,
    /// First line of the function.
    pub first_line: u32,
    /// The frame exists but the function has not started: it is still receiving its arguments, or creating a
    /// generator. CPython hides such frames.
    pub incomplete: bool,
}

reasons! {
    class Unnamed, page "python-frames.md";
    /// Why a Python frame has no name.
    pub enum NoPythonName {
        /// [`PythonSymbols::attach`] was not called for the process, or it was detached.
        NotAttached, "python-not-attached", "the interpreter of the process could not be found";
        /// The process exited, or replaced its program.
        ProcessGone, "python-process-gone", "the process ended before the Python name was read";
        /// The memory of the code object is not mapped (any more).
        Unreadable, "python-code-unreadable", "a code object could not be read";
        /// The kernel refuses.
        Denied, "python-denied", "reading the memory of the process is not permitted", helps "run the profiler as root";
        /// [`ReadError::NoAnswer`] and its kin.
        Silent, "python-silent", "the memory of the process does not answer in time, or is not touched for that reason";
        /// The object at the address is not a code object.
        NotACodeObject, "python-code-freed", "a code object was freed before its name was read";
        /// Another code object is at the address.
        Replaced, "python-code-replaced", "another code object took the place of one before its name was read";
        /// Each attempt to read it met another state.
        Torn, "python-code-changed", "a code object changed while it was read";
    }
}

impl From<CodeError> for NoPythonName {
    fn from(error: CodeError) -> Self {
        match error {
            CodeError::Read(ReadError::Gone) => Self::ProcessGone,
            CodeError::Read(ReadError::Unmapped) => Self::Unreadable,
            CodeError::Read(ReadError::Denied) => Self::Denied,
            CodeError::Read(
                ReadError::NoAnswer | ReadError::Refused | ReadError::UserFile | ReadError::NoReader,
            ) => Self::Silent,
            CodeError::NotACodeObject => Self::NotACodeObject,
            CodeError::Torn => Self::Torn,
        }
    }
}

/// Counters of the cache. `requested = hits + read + failed.sum()`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PythonNameCounters {
    /// Frames requested.
    pub requested: u64,
    /// Found in the cache.
    pub hits: u64,
    /// Read from the process.
    pub read: u64,
    /// Of those, read again because another code object with the same checksum was at the address.
    pub reread: u64,
    /// Code objects evicted to stay within the bound.
    pub evicted: u64,
    /// Failed, by reason.
    pub failed: [u64; NoPythonName::ALL.len()],
}

/// Names of Python frames of all attached processes.
#[derive(Default)]
pub struct PythonSymbols {
    processes: FxHashMap<u32, AttachedProcess>,
    codes: CodeCache,
    /// Number of the next attachment; never reused, unlike a pid.
    next_serial: u64,
    /// Number of the current validation period: cached code objects of earlier ones are validated before use.
    epoch: u32,
    counters: PythonNameCounters,
}

struct AttachedProcess {
    serial: u64,
    memory: Box<dyn TargetMemory>,
    layout: &'static Layout,
    code_type: u64,
    /// Address of `_PyRuntime`; 0 when it is not known.
    runtime: u64,
    tasks: Tasks,
    modules: Modules,
    gone: bool,
}

impl PythonSymbols {
    /// Bytes of code objects in memory.
    pub fn bytes(&self) -> usize {
        self.codes.bytes()
    }

    /// Reads names of `pid` through `memory` from now on. Call it again after an exec: names read before are not used
    /// for the new program. Returns false when [`PROCESSES_MAX`] others are attached.
    pub fn attach(&mut self, pid: u32, interpreter: &Interpreter, memory: Box<dyn TargetMemory>) -> bool {
        let attached = self.attach_to(pid, interpreter.layout, interpreter.code_type, memory);
        if let Some(process) = self.processes.get_mut(&pid) {
            process.runtime = interpreter.runtime;
        }
        attached
    }

    fn attach_to(
        &mut self,
        pid: u32,
        layout: &'static Layout,
        code_type: u64,
        memory: Box<dyn TargetMemory>,
    ) -> bool {
        if self.processes.len() >= PROCESSES_MAX && !self.processes.contains_key(&pid) {
            return false;
        }
        let serial = self.next_serial;
        self.next_serial += 1;
        let (tasks, modules) = (Tasks::default(), Modules::default());
        let process =
            AttachedProcess { serial, memory, layout, code_type, runtime: 0, tasks, modules, gone: false };
        self.processes.insert(pid, process);
        true
    }

    /// The current await chain of the asyncio task whose coroutine has its frame at `frame`.
    ///
    /// # Errors
    /// The reason why there is no task, or why its chain is not known.
    pub fn await_chain(&mut self, pid: u32, frame: u64) -> Result<AwaitChain, NoTask> {
        let process = self.processes.get_mut(&pid).ok_or(NoTask::Unreadable)?;
        // The process chose every address of a chain, and others wait for this thread.
        process.tasks.chain(&*process.memory, process.layout, process.runtime, frame)
    }

    /// Records PyTorch modules that were called, see [`Modules::record_calls`].
    pub fn record_module_calls(
        &mut self,
        pid: u32,
        now_ns: u64,
        stack: &[CalledModule],
        complete: bool,
    ) -> bool {
        self.processes.get_mut(&pid).is_some_and(|process| {
            process.modules.record_calls(&*process.memory, process.layout, now_ns, stack, complete)
        })
    }

    /// The names of a module that was called.
    pub fn layer(&self, pid: u32, called: CalledModule) -> Layer {
        self.processes.get(&pid).map_or_else(Layer::default, |process| process.modules.layer(called))
    }

    /// Compares the known modules with the process; see [`Modules::revalidate`].
    pub fn revalidate_modules(&mut self, pid: u32, now_ns: u64) -> bool {
        self.processes
            .get_mut(&pid)
            .is_some_and(|process| process.modules.revalidate(&*process.memory, process.layout, now_ns))
    }

    /// The offsets with which the kernel programs report the object that the function at `code` is called on; `None`
    /// for a process that is not attached.
    pub fn called(&self, pid: u32, code: u64) -> Option<deepctx_common::python::CalledFunction> {
        self.processes.get(&pid).map(|process| process.layout.called(code))
    }

    /// Drops `pid`. Call it when no more samples of it can follow.
    pub fn detach(&mut self, pid: u32) {
        self.processes.remove(&pid);
    }

    /// Marks every cached code object for validation: each is compared with its process when it is next requested.
    /// Only this detects a code object that was freed and replaced by one with the same checksum. Called once a
    /// second, it costs one short read per running function.
    pub fn revalidate(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
        self.processes.values_mut().for_each(|process| process.tasks.reset_budget());
    }

    /// Number of cached code objects; at most [`CODES_MAX`].
    pub fn cached(&self) -> usize {
        self.codes.young.len() + self.codes.old.len()
    }

    /// The counters so far.
    pub fn counters(&self) -> PythonNameCounters {
        self.counters
    }

    /// The frame of `pid` whose code object is at `code`. `checksum` and `instruction` are the halves of the second
    /// word of the sampled frame ([`deepctx_common::record::word::python_detail`]).
    ///
    /// # Errors
    /// The reason why there is no name; it is counted.
    pub fn frame(
        &mut self,
        pid: u32,
        code: u64,
        checksum: u32,
        instruction: u32,
    ) -> Result<PythonFrame, NoPythonName> {
        self.requested_code(pid, code, checksum).map(|code| frame_of(&code, instruction))
    }

    /// Whether what runs the code object at `code` can be awaited; a generator cannot. `checksum` as in
    /// [`PythonSymbols::frame`].
    ///
    /// # Errors
    /// The reason why the code object is not known; it is counted.
    pub fn is_awaitable(&mut self, pid: u32, code: u64, checksum: u32) -> Result<bool, NoPythonName> {
        self.requested_code(pid, code, checksum).map(|code| code.identity.is_awaitable())
    }

    fn requested_code(&mut self, pid: u32, code: u64, checksum: u32) -> Result<Arc<Code>, NoPythonName> {
        self.counters.requested += 1;
        let code = self.code(pid, code, checksum);
        if let Err(reason) = code {
            self.counters.failed[reason as usize] += 1;
        }
        code
    }

    fn code(&mut self, pid: u32, address: u64, checksum: u32) -> Result<Arc<Code>, NoPythonName> {
        let process = self.processes.get_mut(&pid).ok_or(NoPythonName::NotAttached)?;
        let key = (process.serial, address, checksum);
        if let Some(code) = self.codes.validated(&key, self.epoch) {
            self.counters.hits += 1;
            return Ok(code);
        }
        let cached = self.codes.take(&key, &mut self.counters.evicted);
        if let Some(entry) = &cached
            && (entry.epoch == self.epoch || process.is_valid(address, entry))
        {
            self.codes.insert(key, Entry { epoch: self.epoch, code: entry.code.clone() });
            self.counters.hits += 1;
            return Ok(entry.code.clone());
        }
        let mut code = process.read(address)?;
        if code.identity.checksum != checksum {
            return Err(NoPythonName::Replaced);
        }
        code.file = self.codes.shared(code.file);
        let code = Arc::new(code);
        self.codes.insert(key, Entry { epoch: self.epoch, code: code.clone() });
        self.counters.read += 1;
        self.counters.reread += u64::from(cached.is_some());
        Ok(code)
    }
}

impl AttachedProcess {
    /// Whether a cached entry still holds. It does when the process cannot be read: then the sample is older.
    fn is_valid(&mut self, address: u64, entry: &Entry) -> bool {
        if self.gone {
            return true;
        }
        match read_identity(&*self.memory, self.layout, self.code_type, address) {
            // With another checksum there now, the sample belongs to the code object that was there before.
            Ok(now) => now == entry.code.identity || now.checksum != entry.code.identity.checksum,
            Err(error) => {
                self.note_error(error);
                true
            }
        }
    }

    fn read(&mut self, address: u64) -> Result<Code, NoPythonName> {
        if self.gone {
            return Err(NoPythonName::ProcessGone);
        }
        read_code(&*self.memory, self.layout, self.code_type, address).map_err(|error| {
            self.note_error(error);
            error.into()
        })
    }

    /// Stops reading a process that is gone.
    fn note_error(&mut self, error: CodeError) {
        self.gone |= error == CodeError::Read(ReadError::Gone);
    }
}

/// The walker reports `u32::MAX` for an unknown instruction; other negative offsets are before the first instruction.
fn frame_of(code: &Code, instruction: u32) -> PythonFrame {
    let line = match instruction {
        u32::MAX => None,
        before if before > i32::MAX as u32 => Some(code.identity.first_line),
        offset => code.lines.line_at(offset),
    };
    PythonFrame {
        qualname: code.qualname.clone(),
        name: code.name.clone(),
        file: code.file.clone(),
        line,
        first_line: code.identity.first_line,
        incomplete: instruction != u32::MAX
            && code.started.is_some_and(|started| instruction.cast_signed() < started),
    }
}

/// (attachment, address, checksum). The checksum is part of the key, so that samples from before and after a reuse of
/// the address each find their own code object.
type Key = (u64, u64, u32);

struct Entry {
    /// The epoch in which it was last validated.
    epoch: u32,
    code: Arc<Code>,
}

/// A cache of two generations: when the young one is full, the old one is dropped.
#[derive(Default)]
struct CodeCache {
    young: FxHashMap<Key, Entry>,
    old: FxHashMap<Key, Entry>,
    files: FxHashSet<Arc<str>>,
}

impl CodeCache {
    /// The fast path, for nearly every frame: an entry validated in this epoch.
    fn validated(&self, key: &Key, epoch: u32) -> Option<Arc<Code>> {
        self.young.get(key).filter(|entry| entry.epoch == epoch).map(|entry| entry.code.clone())
    }

    /// Removes an entry, to be inserted again if it is still valid.
    fn take(&mut self, key: &Key, evicted: &mut u64) -> Option<Entry> {
        if self.young.len() >= CODES_MAX / 2 {
            *evicted += self.old.len() as u64;
            self.old = std::mem::take(&mut self.young);
            self.files.clear();
        }
        self.young.remove(key).or_else(|| self.old.remove(key))
    }

    fn insert(&mut self, key: Key, entry: Entry) {
        self.young.insert(key, entry);
    }

    /// Bytes in memory.
    fn bytes(&self) -> usize {
        let of = |entry: &Entry| {
            let Code { name, qualname, lines, .. } = &*entry.code;
            // Before 3.11 both are one text.
            let qualname = if Arc::ptr_eq(name, qualname) { 0 } else { shared_text_bytes(qualname.len()) };
            size_of::<Code>() + shared_text_bytes(name.len()) + qualname + lines.bytes()
        };
        let table = |of: &FxHashMap<Key, Entry>| table_bytes(of.capacity(), size_of::<(Key, Entry)>());
        let files = self.files.iter().map(|file| shared_text_bytes(file.len()));
        self.young.values().chain(self.old.values()).map(of).sum::<usize>()
            + table(&self.young)
            + table(&self.old)
            + files.sum::<usize>()
            + table_bytes(self.files.capacity(), size_of::<Arc<str>>())
    }

    /// One copy of each path: all functions of a module have the same file.
    fn shared(&mut self, file: Arc<str>) -> Arc<str> {
        if let Some(known) = self.files.get(&file) {
            return known.clone();
        }
        self.files.insert(file.clone());
        file
    }
}

#[cfg(test)]
#[path = "names_tests.rs"]
mod tests;
