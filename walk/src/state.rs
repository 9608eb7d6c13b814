//! The state of a walk.
//!
//! Owns: the data that a walk carries from one step to the next: phase, registers, output. Because: it is plain data in
//! a scratch map in the kernel, and every kind of step needs it. Does not: take a step.

use deepctx_common::end::{PythonEnd, WalkEnd};
use deepctx_common::process::Process;
use deepctx_common::python::{CalledFunction, EVAL_RANGES, NO_PYTHON, PythonLayout, entry_rule};
use deepctx_common::record::{USER_WORDS_MAX, word};
use deepctx_common::unwind::{Executable, Mapping, Rule, executable_flag};

use crate::memory::Memory;
use crate::python::Buffers;
use crate::unwind_row::{self, Registers};
use crate::words::Words;

/// Limit on steps per walk: one per frame, plus one per evaluation frame that opens a Python run.
pub const STEPS_MAX: u32 = 2048;
/// Limit on Python frames per walk: CPython's own recursion limit is 1000.
pub const PYTHON_FRAMES_MAX: u32 = 1024;

/// Limit on interpreter frames read per walk: since 3.12 each evaluation has one frame that is not emitted.
pub const PYTHON_READS_MAX: u32 = 2 * PYTHON_FRAMES_MAX;

/// Source of unwind rules.
pub trait Tables {
    /// Stores the mapping that holds `pc` in `walk.mapping` and its executable in `walk.executable`.
    fn find_mapping(&self, walk: &mut Walk, pc: u64) -> Result<(), WalkEnd>;
    /// Stores the rule for `svma` in `walk.executable` in `walk.rule`.
    fn find_rule(&self, walk: &mut Walk, svma: u64) -> Result<(), WalkEnd>;
    /// Stores the rule for `svma` in `walk.rule`, if it is the cached rule at `walk.cursor`; does not move the cursor.
    fn next_rule(&self, _walk: &mut Walk, _svma: u64) -> bool {
        false
    }
    /// Undoes the effect of a uprobe on a PC that is in no mapping: the PC may be the trampoline that replaced a return
    /// address, or in the out-of-line copy of the probed instruction. Stores the real PC, and the registers that go
    /// with it, in `walk.registers`.
    fn put_back(&self, _walk: &mut Walk) -> bool {
        false
    }
    /// Steps to the caller by a rare kind of rule ([`unwind_row::rare_step`]). The implementation may keep this
    /// separate from other steps.
    fn rare_step(&self, walk: &mut Walk) -> Result<(), WalkEnd>
    where
        Self: Memory + Sized,
    {
        unwind_row::rare_step(&mut walk.registers, &walk.rule, self)
    }
    /// Stores the layout of `walk.process.python` in `walk.layout`.
    fn find_layout(&self, walk: &mut Walk) -> bool;
}

/// Whether the walk continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Call the step that [`Walk::phase`] names.
    Continue,
    /// The walk is over; its end reasons are set.
    Stop,
}

/// Values of [`Walk::phase`].
pub mod phase {
    /// Next: [`crate::interleave::native_step`].
    pub const NATIVE: u32 = 0;
    /// Next: [`crate::interleave::python_step`].
    pub const PYTHON: u32 = 1;
    /// Next: [`crate::interleave::python_step`], with no native walk to return to.
    pub const PYTHON_REST: u32 = 2;
    /// Next: [`crate::interleave::python_step`], on the rest of the chain after the native walk is complete.
    pub const PYTHON_TAIL: u32 = 3;
    /// Next: [`crate::interleave::python_step`], which searches for the evaluation frame that called generated code.
    pub const GENERATED: u32 = 4;
}

/// Values of [`Walk::short`].
pub mod short {
    /// All native frames are walked.
    pub const WHOLE: u32 = 0;
    /// Native frames are walked up to the first Python evaluation frame.
    pub const SHORT: u32 = 1;
    /// That frame was reached: only Python frames are emitted from here on.
    pub const IN_CHAIN: u32 = 2;
    /// Like [`IN_CHAIN`], and native frames were omitted after the last Python frame.
    pub const LEFT_OUT: u32 = 3;
}

/// State of one walk. Plain data: it lives in a scratch map in the kernel.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Walk {
    /// The current native frame.
    pub registers: Registers,
    /// The process, copied when the walk began.
    pub process: Process,
    /// The mapping that holds the current PC; an empty range before the first lookup.
    pub mapping: Mapping,
    /// Its executable.
    pub executable: Executable,
    /// Index of the scratch slot, for data kept beside it.
    pub slot: u64,
    /// Position in the rule cache at which the next rule is looked up first. [`Tables`] sets it; a quick step advances
    /// it.
    pub cursor: u64,
    /// The rule of the current PC.
    pub rule: Rule,
    /// Layout of the interpreter.
    pub layout: PythonLayout,
    /// The function whose calls report their object; set before the walk begins.
    pub called: CalledFunction,
    /// Buffers for reading interpreter structures.
    pub buffers: Buffers,
    /// Thread pointer of the thread (fsbase on x86-64, tpidr_el0 on aarch64).
    pub thread_pointer: u64,
    /// The next Python frame; 0 if there is none.
    pub python_cursor: u64,
    /// First Python frame of the current run.
    pub run_cursor: u64,
    /// Stack pointer of the native frame of the current run.
    pub run_sp: u64,
    /// End of that frame: the stack pointer of its caller.
    pub run_cfa: u64,
    /// Word of that frame, emitted after the run.
    pub run_word: u64,
    /// [`crate::python::Chain::cframe`] until the first run of the chain is paired, then 0.
    pub cframe: u64,
    /// [`crate::python::Chain::outer`] of the same chain.
    pub outer: u64,
    /// Distance of the `_PyCFrame` of an evaluation below its caller's stack pointer, if the next one is to be found by
    /// it; otherwise 0.
    pub cframe_depth: u64,
    /// The last emitted Python frame, if it belongs to a coroutine; otherwise 0.
    pub coroutine: u64,
    /// Value of `coroutine` at the beginning of the run.
    pub run_coroutine: u64,
    /// Current frame in the search for the sentinel of the evaluation that called generated code.
    pub peeked: u64,
    /// The thread state whose chain is walked.
    pub state: u64,
    /// PC at which the native walk stopped, or a PC in no known mapping past which the walk went on; otherwise 0.
    pub stop_pc: u64,
    /// One of [`phase`].
    pub phase: u32,
    /// 1 after the lookup of the thread state.
    pub python_started: u32,
    /// 1 + the number of the end of the native walk after the run; 0 if it continues.
    pub run_end: u32,
    /// Limit on native frames.
    pub frames_max: u32,
    /// Native frames so far.
    pub native_frames: u32,
    /// Python frames so far.
    pub python_frames: u32,
    /// Interpreter frames read so far, including those that are not emitted.
    pub python_reads: u32,
    /// Value of `words` at the beginning of the run.
    pub run_words: u32,
    /// Value of `python_frames` at the beginning of the run.
    pub run_frames: u32,
    /// 1 from the first frame of a run to its entry frame.
    pub run_open: u32,
    /// Native evaluation frames seen.
    pub evaluations: u32,
    /// 1 after the thread's other state was tried.
    pub other_tried: u32,
    /// 1 after the search for the evaluation frame that called the current generated code has failed.
    pub generated_tried: u32,
    /// One of [`short`].
    pub short: u32,
    /// Index of the first word of this walk (kernel words precede it).
    pub words_begin: u32,
    /// Number of words so far, including those before `words_begin`.
    pub words: u32,
    /// [`WalkEnd`] as a number.
    pub native_end: u32,
    /// [`PythonEnd`] as a number.
    pub python_end: u32,
}

impl Walk {
    /// Prepares a walk from `registers` in `process`; its words follow the first `words_begin` ones.
    #[inline(always)]
    pub fn begin(&mut self, words_begin: u32, frames_max: u32) {
        // For constant zeros the compiler would emit calls of `memset`, which stores byte by byte.
        let (none, no) = core::hint::black_box((0_u64, 0_u32));
        self.mapping.begin = none;
        self.mapping.end = none;
        self.buffers.begin();
        self.python_cursor = none;
        self.run_cursor = none;
        self.cframe = none;
        self.outer = none;
        self.cframe_depth = none;
        self.coroutine = none;
        self.run_coroutine = none;
        self.state = none;
        self.run_open = no;
        self.evaluations = no;
        self.other_tried = no;
        self.generated_tried = no;
        self.short = short::WHOLE;
        self.stop_pc = none;
        self.phase = phase::NATIVE;
        self.python_started = no;
        self.run_end = no;
        self.frames_max = frames_max;
        self.native_frames = no;
        self.python_frames = no;
        self.python_reads = no;
        self.words_begin = words_begin;
        self.words = words_begin;
        self.run_words = words_begin;
        self.run_frames = no;
        self.native_end = WalkEnd::Complete as u32;
        self.python_end =
            if self.process.python.layout == NO_PYTHON { PythonEnd::NotPython } else { PythonEnd::Complete }
                as u32;
    }

    #[inline(always)]
    pub(crate) fn push<W: Words>(&mut self, words: &mut W, value: u64) -> bool {
        let index = self.words;
        if index.wrapping_sub(self.words_begin) >= USER_WORDS_MAX as u32 || !words.put(index, value) {
            return false;
        }
        self.words = index + 1;
        true
    }

    #[inline(always)]
    pub(crate) fn native_word(&self) -> u64 {
        let tag = if self.registers.exact != 0 { word::EXACT } else { word::RETURN };
        word::tagged(tag, self.registers.pc)
    }

    #[inline(always)]
    pub(crate) fn push_native<W: Words>(&mut self, words: &mut W, word: u64) -> bool {
        let stored = self.push(words, word);
        self.native_frames += stored as u32;
        stored
    }

    /// Ends the native walk. Python frames that were not reached still follow, after a labelled gap.
    #[inline(always)]
    pub(crate) fn end_native<W: Words>(&mut self, words: &mut W, end: WalkEnd) -> Flow {
        self.native_end = end as u32;
        let rest =
            self.process.python.layout != NO_PYTHON && (self.python_started == 0 || self.python_cursor != 0);
        if end as u32 == WalkEnd::Complete as u32 {
            if !rest {
                return Flow::Stop;
            }
            self.phase = phase::PYTHON_TAIL;
            return Flow::Continue;
        }
        self.stop_pc = self.registers.pc;
        self.push(words, word::tagged(word::GAP, end as u64));
        if self.cframe_depth != 0 {
            self.note_python(PythonEnd::Torn as u32);
        }
        if !rest {
            return Flow::Stop;
        }
        self.begin_run();
        self.phase = phase::PYTHON_REST;
        Flow::Continue
    }

    /// Marks the beginning of a run, so that the words that follow can be discarded if they do not belong here.
    #[inline(always)]
    pub(crate) fn begin_run(&mut self) {
        self.run_words = self.words;
        self.run_frames = self.python_frames;
        self.run_coroutine = self.coroutine;
        self.run_open = 0;
    }

    /// Records how the Python walk ended, as the number of a [`PythonEnd`]; the first reason wins.
    #[inline(always)]
    pub(crate) fn note_python(&mut self, end: u32) {
        if self.python_end == PythonEnd::Complete as u32 {
            self.python_end = end;
        }
    }

    /// Emits a gap where Python frames are missing, with the number of a [`PythonEnd`].
    #[inline(always)]
    pub(crate) fn push_python_gap<W: Words>(&mut self, words: &mut W, end: u32) {
        self.push(words, word::tagged(word::GAP, word::PYTHON_GAP | u64::from(end)));
    }

    /// The current native evaluation frame has no Python frames. For the innermost this is normal: it may be just
    /// starting or returning.
    #[inline(always)]
    pub(crate) fn without_run<W: Words>(&mut self, words: &mut W) {
        let end = if self.layout.entry_rule == entry_rule::ONE_PER_EVAL {
            // In a short walk each run is emitted in the order of the chain, so no run needs to be moved.
            if self.short != short::WHOLE {
                return;
            }
            // No address pairs runs with evaluation frames here: the innermost evaluation frames lack their runs, not
            // this one.
            if self.run_frames + 1 < self.evaluations {
                self.note_python(PythonEnd::ChainShort as u32);
            }
            PythonEnd::ChainShort
        } else if self.evaluations > 1 {
            self.note_python(PythonEnd::OtherState as u32);
            PythonEnd::OtherState
        } else {
            PythonEnd::Complete
        };
        self.push_python_gap(words, end as u32);
    }

    /// The current mapping may hold interpreter-generated code that cannot be unwound by itself: rows derived for it
    /// are guesses.
    #[inline(always)]
    pub(crate) fn in_generated_code(&self) -> bool {
        self.process.python.resume != 0 && self.mapping.flags & executable_flag::ANONYMOUS != 0
    }

    #[inline(always)]
    pub(crate) fn in_eval_loop(&self, pc: u64) -> bool {
        let mut i = 0;
        while i < EVAL_RANGES {
            let [begin, end] = self.process.python.eval[i];
            if pc >= begin && pc < end {
                return true;
            }
            i += 1;
        }
        false
    }
}
