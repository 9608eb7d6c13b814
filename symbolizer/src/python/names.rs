//! From a sampled Python frame to its names, or to the reason why there are none.
//!
//! Owns: which process is read how, and the cache of code objects with its bound, its counters and its doubt.
//! Because: the same few thousand functions make up every stack, and each must be read from its process once.
//! Does not: find interpreters (see [`super::locate`]), or know of stacks.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::code::{Code, CodeError, read_code, read_identity};
use super::layout::Layout;
use super::locate::Interpreter;
use super::memory::{ReadError, TargetMemory};
use super::modules::{self, Layer, Modules};
use super::tasks::{Awaited, NoTask, Tasks};

/// Most code objects kept, over all processes: a process with torch loaded has about 60 000 and runs far fewer;
/// at ~400 bytes each this is 25 MiB.
pub const CODES_MAX: usize = 1 << 16;

/// Most processes attached at a time: as many as the kernel programs walk.
pub const PROCESSES_MAX: usize = deepctx_common::unwind::PROCESSES_MAX as usize;

/// A frame as people see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PythonFrame {
    /// `Class.method`, `outer.<locals>.inner`; the plain name before 3.11, which does not record it.
    pub qualname: Arc<str>,
    /// `co_name`.
    pub name: Arc<str>,
    /// `co_filename`.
    pub file: Arc<str>,
    /// Line that was running; `None` when the instruction stands for none, or is not known.
    pub line: Option<u32>,
    /// Line on which the function begins.
    pub first_line: u32,
    /// The frame exists and the function has not begun: it is still getting its arguments, or makes a generator. CPython
    /// shows no such frame.
    pub incomplete: bool,
}

/// Why a frame has no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, thiserror::Error)]
pub enum NoPythonName {
    /// [`PythonSymbols::attach`] was not called for the process, or it was detached.
    #[error("the interpreter of the process is not attached")]
    NotAttached,
    /// The process ended, or replaced its program, before the name was read.
    #[error("the process ended before the name was read")]
    ProcessGone,
    /// Memory of the code object is not mapped (any more).
    #[error("the code object could not be read")]
    Unreadable,
    /// No right to read the process.
    #[error("not permitted to read the process")]
    Denied,
    /// Something else is at the address.
    #[error("the code object was freed before its name was read")]
    NotACodeObject,
    /// Another code object is at the address.
    #[error("another code object took its place before its name was read")]
    Replaced,
    /// It changed while it was read.
    #[error("the code object changed while it was read")]
    Torn,
}

impl NoPythonName {
    /// Every reason, in the order of [`PythonNameCounters::failed`].
    pub const ALL: [Self; 7] = [
        Self::NotAttached,
        Self::ProcessGone,
        Self::Unreadable,
        Self::Denied,
        Self::NotACodeObject,
        Self::Replaced,
        Self::Torn,
    ];
}

impl From<CodeError> for NoPythonName {
    fn from(error: CodeError) -> Self {
        match error {
            CodeError::Read(ReadError::Gone) => Self::ProcessGone,
            CodeError::Read(ReadError::Unmapped) => Self::Unreadable,
            CodeError::Read(ReadError::Denied) => Self::Denied,
            CodeError::NotACodeObject => Self::NotACodeObject,
            CodeError::Torn => Self::Torn,
        }
    }
}

/// What the cache did. `asked = hits + read + failed.sum()`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PythonNameCounters {
    /// Frames asked for.
    pub asked: u64,
    /// Answered from the cache.
    pub hits: u64,
    /// Read from the process.
    pub read: u64,
    /// Of those, read again because another code object had taken the address with the same checksum.
    pub reread: u64,
    /// Code objects forgotten to keep the bound.
    pub evicted: u64,
    /// Not answered, by reason.
    pub failed: [u64; NoPythonName::ALL.len()],
}

/// Names of Python frames of many processes.
#[derive(Default)]
pub struct PythonSymbols {
    processes: FxHashMap<u32, Attached>,
    codes: CodeCache,
    /// Number of the next attachment: never reused, unlike a pid.
    next_serial: u64,
    epoch: u32,
    counters: PythonNameCounters,
}

struct Attached {
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
    /// Reads names of `pid` through `memory` from now on. Call it again after an exec: what was read before is not
    /// used for the new program. Returns false when [`PROCESSES_MAX`] others are attached.
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
        let process = Attached { serial, memory, layout, code_type, runtime: 0, tasks, modules, gone: false };
        self.processes.insert(pid, process);
        true
    }

    /// Who awaits the asyncio task whose coroutine has its frame at `frame`, as it is now.
    ///
    /// # Errors
    /// The reason why there is no task, or why it cannot be told.
    pub fn awaiting(&mut self, pid: u32, frame: u64) -> Result<Awaited, NoTask> {
        let process = self.processes.get_mut(&pid).ok_or(NoTask::Unreadable)?;
        process.tasks.chain(&*process.memory, process.layout, process.runtime, frame)
    }

    /// Takes note of modules of PyTorch that were called, see [`Modules::called`].
    pub fn modules_called(&mut self, pid: u32, now_ns: u64, stack: &[modules::Called], whole: bool) -> bool {
        self.processes.get_mut(&pid).is_some_and(|process| {
            process.modules.called(&*process.memory, process.layout, now_ns, stack, whole)
        })
    }

    /// What is known of a module that was called.
    pub fn layer(&self, pid: u32, called: modules::Called) -> Layer {
        self.processes.get(&pid).map_or_else(Layer::default, |process| process.modules.layer(called))
    }

    /// Compares modules with their process; see [`Modules::compare`].
    pub fn compare_modules(&mut self, pid: u32, now_ns: u64) -> bool {
        self.processes
            .get_mut(&pid)
            .is_some_and(|process| process.modules.compare(&*process.memory, process.layout, now_ns))
    }

    /// What the kernel programs need to tell what the function at `code` is called on; `None` for a process that is not
    /// attached.
    pub fn called(&self, pid: u32, code: u64) -> Option<deepctx_common::python::Called> {
        self.processes.get(&pid).map(|process| process.layout.called(code))
    }

    /// Forgets `pid`. Call it when no more samples of it can come.
    pub fn detach(&mut self, pid: u32) {
        self.processes.remove(&pid);
    }

    /// Puts every cached code object in doubt: each is compared with its process when it is next asked for. A code
    /// object that was freed and replaced by one with the same checksum is found by this, and only by this; once a
    /// second costs one short read for each function that runs.
    pub fn doubt(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
        self.processes.values_mut().for_each(|process| process.tasks.rest());
    }

    /// Code objects kept now; at most [`CODES_MAX`].
    pub fn cached(&self) -> usize {
        self.codes.young.len() + self.codes.old.len()
    }

    /// What was done so far.
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
        self.counters.asked += 1;
        match self.code(pid, code, checksum) {
            Ok(code) => Ok(frame_of(&code, instruction)),
            Err(reason) => {
                self.counters.failed[reason as usize] += 1;
                Err(reason)
            }
        }
    }

    fn code(&mut self, pid: u32, address: u64, checksum: u32) -> Result<Arc<Code>, NoPythonName> {
        let process = self.processes.get_mut(&pid).ok_or(NoPythonName::NotAttached)?;
        let key = (process.serial, address, checksum);
        if let Some(code) = self.codes.fresh(&key, self.epoch) {
            self.counters.hits += 1;
            return Ok(code);
        }
        let known = self.codes.take(&key, &mut self.counters.evicted);
        if let Some(entry) = &known
            && (entry.epoch == self.epoch || process.still_there(address, entry))
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
        self.counters.reread += u64::from(known.is_some());
        Ok(code)
    }
}

impl Attached {
    /// Whether what is cached still holds. When the process cannot be asked, it does: the sample is from before.
    fn still_there(&mut self, address: u64, entry: &Entry) -> bool {
        if self.gone {
            return true;
        }
        match read_identity(&*self.memory, self.layout, self.code_type, address) {
            // With another checksum in place, the sample is of the one that was there before.
            Ok(now) => now == entry.code.identity || now.checksum != entry.code.identity.checksum,
            Err(error) => {
                self.note(error);
                true
            }
        }
    }

    fn read(&mut self, address: u64) -> Result<Code, NoPythonName> {
        if self.gone {
            return Err(NoPythonName::ProcessGone);
        }
        read_code(&*self.memory, self.layout, self.code_type, address).map_err(|error| {
            self.note(error);
            error.into()
        })
    }

    /// A dead process is asked no more.
    fn note(&mut self, error: CodeError) {
        self.gone |= error == CodeError::Read(ReadError::Gone);
    }
}

/// The walker gives `u32::MAX` for "not known"; other negative offsets stand before the first instruction.
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
            && code.begun.is_some_and(|begun| instruction.cast_signed() < begun),
    }
}

/// (attachment, address, checksum): the checksum is part of it, so that samples from before and after a reuse of the
/// address each find their own.
type Key = (u64, u64, u32);

struct Entry {
    /// When it was last compared with the process.
    epoch: u32,
    code: Arc<Code>,
}

/// Two generations: what was not asked for during one is forgotten when the next is full.
#[derive(Default)]
struct CodeCache {
    young: FxHashMap<Key, Entry>,
    old: FxHashMap<Key, Entry>,
    files: FxHashSet<Arc<str>>,
}

impl CodeCache {
    /// The short way, for nearly every frame: what was asked for in this epoch already.
    fn fresh(&self, key: &Key, epoch: u32) -> Option<Arc<Code>> {
        self.young.get(key).filter(|entry| entry.epoch == epoch).map(|entry| entry.code.clone())
    }

    /// Takes an entry out, to be put back when it still holds.
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

    /// One copy of each path: a module's functions all name the same file.
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
