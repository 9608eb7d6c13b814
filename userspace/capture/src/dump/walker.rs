//! Walker: the stack of one thread that does not run, by the walkers of the kernel programs.
//!
//! Owns: a process that is dumped, and turning a walk into a record. Because: the same steps over the same rules must
//! give the same frames as a capture, and all later stages decode one form of record. Does not: decide whether the
//! thread really did not run.

use std::cell::RefCell;

use deepctx_common::end::{KernelEnd, PythonEnd, WalkEnd};
use deepctx_common::python::{NO_PYTHON, PythonLayout, PythonProcess};
use deepctx_common::record::{RecordHeader, StackSample, USER_WORDS_MAX, sample_flag};
use deepctx_common::thread::{Thread, thread_flag};
use deepctx_common::unwind::Executable;
use deepctx_pipeline::encode;
use deepctx_symbolizer::NoSymbol;
use deepctx_symbolizer::maps::{self, LineFilter, Maps};
use deepctx_symbolizer::memory::ReadError;
use deepctx_symbolizer::python::locate_process;
use deepctx_walk::interleave::{Flow, STEPS_MAX, Tables, Walk, WordBuffer, native_step, phase, python_step};
use deepctx_walk::memory::Memory;

use super::code::{Code, Files};
use super::pages::Pages;
use crate::arch;
use crate::config::FrameSource;
use crate::error::CaptureError;
use crate::programs::FRAMES_MAX;

/// A process to dump.
pub(super) struct Target {
    name: String,
    maps: Maps,
    memory: Pages,
    code: Code,
    python: PythonProcess,
    layout: Option<PythonLayout>,
    native: bool,
    kernel: bool,
    walk: Box<Walk>,
}

/// Result of a walk.
pub(super) enum WalkOutcome {
    /// A record.
    Stack(Vec<u8>),
    /// No record: tables are needed that could not be loaded at that time.
    Wanted,
}

impl Target {
    /// Opens a process: its mappings, its interpreter.
    pub(super) fn open(pid: u32, context: &[FrameSource]) -> Result<Self, CaptureError> {
        let unreadable = |reason| CaptureError::ProcessUnreadable { pid, reason };
        // First the memory: it ends with the program, so the mappings of another one are never used to walk it.
        let memory = Pages::open(pid).map_err(|error| match error {
            ReadError::Gone => CaptureError::NoSuchProcess { pid },
            _ => unreadable(NoSymbol::PermissionDenied),
        })?;
        let maps = maps::read(pid, LineFilter::Executable).map_err(|unread| match unread.reason {
            NoSymbol::ProcessGone => CaptureError::NoSuchProcess { pid },
            reason => unreadable(reason),
        })?;
        let interpreter = context
            .contains(&FrameSource::Python)
            .then(|| locate_process(pid, &maps.mappings).ok())
            .flatten()
            .map(|(interpreter, _)| (interpreter.process, interpreter.layout.kernel_with_coroutines()));
        let none = PythonProcess { layout: NO_PYTHON, ..PythonProcess::default() };
        let name = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
        Ok(Self {
            name: String::from_utf8_lossy(name.trim_ascii_end()).into_owned(),
            memory,
            code: Code::new(pid, maps.mappings.clone()),
            maps,
            python: interpreter.as_ref().map_or(none, |(process, _)| *process),
            layout: interpreter.map(|(_, layout)| layout),
            native: context.contains(&FrameSource::Native),
            kernel: context.contains(&FrameSource::Kernel),
            // SAFETY: a walk is plain data: integers and arrays of them.
            walk: unsafe { Box::<Walk>::new_zeroed().assume_init() },
        })
    }

    /// Its name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Its executable mappings.
    pub(super) fn into_maps(self) -> Maps {
        self.maps
    }

    /// Clears the cached memory.
    pub(super) fn forget_memory(&mut self) {
        self.memory.forget();
    }

    /// Whether others wait for this walk: then memory is read on this thread, and no table is loaded.
    pub(super) fn read_directly(&mut self, directly: bool) {
        self.memory.read_directly(directly);
        self.code.set_may_load(!directly);
    }

    /// Loads the tables that a walk needed.
    pub(super) fn load_wanted(&mut self, files: &mut Files) {
        self.code.load_wanted(files);
    }

    /// Walks a thread that is not on a CPU.
    pub(super) fn walk(&mut self, thread: &Thread, files: &mut Files) -> WalkOutcome {
        let mut words = vec![0; USER_WORDS_MAX];
        let walk = &mut *self.walk;
        walk.process.python = self.python;
        walk.called.code = 0;
        walk.thread_pointer = thread.thread_pointer;
        walk.begin(0, FRAMES_MAX);
        let registers = match thread.flags {
            flags if flags & thread_flag::KERNEL_THREAD != 0 => Err(WalkEnd::NoUserStack),
            flags if flags & thread_flag::COMPAT != 0 => Err(WalkEnd::CompatMode),
            flags if flags & thread_flag::REGISTERS == 0 => Err(WalkEnd::NoRegisters),
            _ if !self.native && self.layout.is_none() => Err(WalkEnd::NotWalked),
            _ => Ok(arch::registers(thread)),
        };
        match registers {
            Ok(registers) => {
                walk.registers = registers;
                if !self.native {
                    walk.phase = phase::PYTHON_REST;
                    walk.native_end = WalkEnd::NotWalked as u32;
                }
                self.memory.read_stack_ahead(thread.sp);
                let around = WalkInput {
                    memory: &self.memory,
                    code: &self.code,
                    files: RefCell::new(files),
                    layout: self.layout.as_ref(),
                };
                steps(walk, &mut WordBuffer(&mut words), &around);
            }
            Err(end) => {
                walk.native_end = end as u32;
                walk.python_end = PythonEnd::NotWalked as u32;
            }
        }
        if self.code.has_wanted() {
            WalkOutcome::Wanted
        } else {
            WalkOutcome::Stack(record(thread, walk, &words, self.kernel))
        }
    }
}

/// Twice as many as in the kernel, where a step may take several frames.
fn steps(walk: &mut Walk, words: &mut WordBuffer<'_>, around: &WalkInput<'_>) {
    for _ in 0..2 * STEPS_MAX {
        let flow = match walk.phase {
            phase::NATIVE => native_step(walk, words, around),
            _ => python_step(walk, words, around),
        };
        if flow == Flow::Stop {
            break;
        }
    }
}

/// Input of a walk.
struct WalkInput<'a> {
    memory: &'a Pages,
    code: &'a Code,
    files: RefCell<&'a mut Files>,
    layout: Option<&'a PythonLayout>,
}

impl Memory for WalkInput<'_> {
    fn read_words(&self, address: u64, words: &mut [u64]) -> bool {
        self.memory.read_words(address, words)
    }
}

impl Tables for WalkInput<'_> {
    fn find_mapping(&self, walk: &mut Walk, pc: u64) -> Result<(), WalkEnd> {
        let (mapping, has_table) = self.code.mapping(pc, &mut self.files.borrow_mut())?;
        walk.mapping = mapping;
        walk.executable = Executable { pages: u32::from(has_table), ..Executable::default() };
        Ok(())
    }

    fn find_rule(&self, walk: &mut Walk, svma: u64) -> Result<(), WalkEnd> {
        walk.rule = self.code.rule(&walk.mapping, svma)?;
        Ok(())
    }

    fn find_layout(&self, walk: &mut Walk) -> bool {
        self.layout.inspect(|layout| walk.layout = **layout).is_some()
    }
}

/// The record of a walk, as a kernel program would have written it.
fn record(thread: &Thread, walk: &Walk, words: &[u64], with_kernel: bool) -> Vec<u8> {
    // A runnable thread outside a system call was interrupted: the kernel frames are the interrupt's.
    let is_interrupted = thread.state == 0 && thread.flags & thread_flag::IN_SYSTEM_CALL == 0;
    let kernel_words = if with_kernel && !is_interrupted { thread.kernel_words as usize } else { 0 };
    let kernel = &thread.kernel[..kernel_words.min(thread.kernel.len())];
    let user = &words[..(walk.words as usize).min(words.len())];
    let kernel_end = match thread.flags & thread_flag::NO_KERNEL_STACK {
        _ if !with_kernel => KernelEnd::NotWalked,
        0 if kernel.len() == thread.kernel.len() => KernelEnd::Truncated,
        0 => KernelEnd::Complete,
        _ => KernelEnd::Failed,
    };
    let in_kernel = if is_interrupted { 0 } else { sample_flag::IN_KERNEL };
    let in_call = thread.flags & thread_flag::IN_SYSTEM_CALL != 0;
    let sample = StackSample {
        header: RecordHeader { time_ns: thread.time_ns, ..RecordHeader::default() },
        pid: thread.pid,
        tid: thread.tid,
        stop_pc: walk.stop_pc,
        comm: thread.comm,
        native_end: walk.native_end as u8,
        python_end: walk.python_end as u8,
        kernel_end: kernel_end as u8,
        flags: in_kernel | if in_call { sample_flag::IN_SYSCALL } else { 0 },
        native_frames: walk.native_frames as u16,
        python_frames: walk.python_frames as u16,
        generation: 1,
        ..StackSample::default()
    };
    let mut bytes = Vec::new();
    encode::sample(&mut bytes, &sample, kernel, user);
    bytes
}
