//! The state of a walk.
//!
//! Owns: what a walk knows between two steps, where it is in its phases, and what it emits. Because: it is plain data
//! that lives in a scratch map in the kernel, and each kind of step needs it. Does not: take a step.

use deepctx_common::end::{PythonEnd, WalkEnd};
use deepctx_common::process::Process;
use deepctx_common::python::{CalledFunction, EVAL_RANGES, NO_PYTHON, PythonLayout, entry_rule};
use deepctx_common::record::{USER_WORDS_MAX, word};
use deepctx_common::unwind::{Executable, Mapping, Rule, executable_flag};

use crate::memory::Memory;
use crate::python::Buffers;
use crate::unwind_row::{self, Registers};
use crate::words::Words;

/// Most steps of one walk: a frame each, one more per evaluation frame that opens a Python run.
pub const STEPS_MAX: u32 = 2048;
/// Most Python frames of one walk: CPython's own recursion limit is 1000.
pub const PYTHON_FRAMES_MAX: u32 = 1024;

/// Most frames read in one walk: each evaluation frame since 3.12 has one that is not shown.
pub const PYTHON_READS_MAX: u32 = 2 * PYTHON_FRAMES_MAX;

/// Where unwind rules come from.
pub trait Tables {
    /// Puts the mapping that holds `pc` into `walk.mapping` and its executable into `walk.executable`.
    fn find_mapping(&self, walk: &mut Walk, pc: u64) -> Result<(), WalkEnd>;
    /// Puts the rule for `svma` in `walk.executable` into `walk.rule`.
    fn find_rule(&self, walk: &mut Walk, svma: u64) -> Result<(), WalkEnd>;
    /// Puts the rule for `svma` into `walk.rule`, if it is the one that stands at `walk.cursor`; moves nothing.
    fn next_rule(&self, _walk: &mut Walk, _svma: u64) -> bool {
        false
    }
    /// A PC that is in no mapping may be there because of a probe (`uprobe`): in the place of a return address, or in a
    /// copy of the probed instruction. Then it puts the real one, and what goes with it, into `walk.registers`.
    fn put_back(&self, _walk: &mut Walk) -> bool {
        false
    }
    /// Steps to the caller by a rule of which there are few ([`unwind_row::rare_step`]). An implementer may keep it
    /// apart from other steps.
    fn rare_step(&self, walk: &mut Walk) -> Result<(), WalkEnd>
    where
        Self: Memory + Sized,
    {
        unwind_row::rare_step(&mut walk.registers, &walk.rule, self)
    }
    /// Puts the layout of `walk.process.python` into `walk.layout`.
    fn find_layout(&self, walk: &mut Walk) -> bool;
}

/// May the walk go on?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Call the step that [`Walk::phase`] names.
    Continue,
    /// The walk is over; its ends are set.
    Stop,
}

/// Values of [`Walk::phase`].
pub mod phase {
    /// Next: [`crate::interleave::native_step`].
    pub const NATIVE: u32 = 0;
    /// Next: [`crate::interleave::python_step`].
    pub const PYTHON: u32 = 1;
    /// Next: [`crate::interleave::python_step`], and there is no native walk to return to.
    pub const PYTHON_REST: u32 = 2;
    /// Next: [`crate::interleave::python_step`] on what is left of the chain when the native walk has reached its end.
    pub const PYTHON_TAIL: u32 = 3;
    /// Next: [`crate::interleave::python_step`], which looks for the evaluation that called generated code.
    pub const GENERATED: u32 = 4;
}

/// Values of [`Walk::short`].
pub mod short {
    /// All native frames are walked.
    pub const WHOLE: u32 = 0;
    /// They are walked to the first evaluation of Python.
    pub const SHORT: u32 = 1;
    /// That was reached: Python frames come one after the other.
    pub const IN_CHAIN: u32 = 2;
    /// The same, and native frames were left out behind the last one.
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
    /// The mapping that holds the current PC; an empty range before the first look-up.
    pub mapping: Mapping,
    /// Its executable.
    pub executable: Executable,
    /// Which scratch slot this is, for whoever keeps more beside it.
    pub slot: u64,
    /// Where whoever keeps rules looks first for the next one; nobody else's.
    pub cursor: u64,
    /// The rule of the current PC.
    pub rule: Rule,
    /// Layout of the interpreter.
    pub layout: PythonLayout,
    /// The function whose calls tell what they are made on; set before the walk begins.
    pub called: CalledFunction,
    /// Buffers for reading interpreter structures.
    pub buffers: Buffers,
    /// Thread pointer (fsbase) of the thread.
    pub thread_pointer: u64,
    /// The next Python frame; 0 when there is none.
    pub python_cursor: u64,
    /// Where the run began that is being emitted.
    pub run_cursor: u64,
    /// Stack pointer of the native frame whose run is being emitted.
    pub run_sp: u64,
    /// Where that frame ends: the stack pointer of its caller.
    pub run_cfa: u64,
    /// The word of that frame, which comes behind the run.
    pub run_word: u64,
    /// [`crate::python::Chain::cframe`] until the first run of the chain is paired, then 0.
    pub cframe: u64,
    /// [`crate::python::Chain::outer`] of the same.
    pub outer: u64,
    /// How far below its caller's stack pointer an evaluation keeps its `_PyCFrame`, when the next is to be found by
    /// that; else 0.
    pub cframe_depth: u64,
    /// The last frame that was emitted, if it belongs to a coroutine; else 0.
    pub coroutine: u64,
    /// The same when the run began.
    pub run_coroutine: u64,
    /// The frame at which the sentinel of the evaluation that called generated code is looked for.
    pub peeked: u64,
    /// The thread state whose chain is walked.
    pub state: u64,
    /// PC where the native walk stopped, or in code that was in no known mapping and was left all the same; else 0.
    pub stop_pc: u64,
    /// One of [`phase`].
    pub phase: u32,
    /// 1 once the thread state was looked up.
    pub python_started: u32,
    /// 1 + how the native walk ends behind the run, as a number; 0 when it goes on.
    pub run_end: u32,
    /// Most native frames.
    pub frames_max: u32,
    /// Native frames so far.
    pub native_frames: u32,
    /// Python frames so far.
    pub python_frames: u32,
    /// Frames of the interpreter read so far, those that are not shown included.
    pub python_reads: u32,
    /// Words when the run began.
    pub run_words: u32,
    /// Python frames when the run began.
    pub run_frames: u32,
    /// 1 from the first frame of a run to its entry frame.
    pub run_open: u32,
    /// Native evaluation frames met.
    pub evaluations: u32,
    /// 1 once the thread's other state was looked at.
    pub other_tried: u32,
    /// 1 while the evaluation that called the generated code at hand is known not to be found.
    pub generated_tried: u32,
    /// One of [`short`].
    pub short: u32,
    /// First word of this walk in `words` (kernel words stand before it).
    pub words_begin: u32,
    /// Words so far, those before `words_begin` included.
    pub words: u32,
    /// [`WalkEnd`] as a number.
    pub native_end: u32,
    /// [`PythonEnd`] as a number.
    pub python_end: u32,
}

impl Walk {
    /// Ready to walk `registers` of a thread of `process`; words go behind the first `words_begin` ones.
    #[inline(always)]
    pub fn begin(&mut self, words_begin: u32, frames_max: u32) {
        // Of zeros that it knows the compiler makes calls of `memset`, which sets byte after byte.
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

    /// Ends the native walk. Python frames that were not reached are still worth having, behind a labelled gap.
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

    /// What follows is taken back if it turns out not to belong here.
    #[inline(always)]
    pub(crate) fn begin_run(&mut self) {
        self.run_words = self.words;
        self.run_frames = self.python_frames;
        self.run_coroutine = self.coroutine;
        self.run_open = 0;
    }

    /// Notes how the Python walk ended, as the number of a [`PythonEnd`]; the first reason counts.
    #[inline(always)]
    pub(crate) fn note_python(&mut self, end: u32) {
        if self.python_end == PythonEnd::Complete as u32 {
            self.python_end = end;
        }
    }

    /// Labels the place where Python frames are missing, with the number of a [`PythonEnd`].
    #[inline(always)]
    pub(crate) fn push_python_gap<W: Words>(&mut self, words: &mut W, end: u32) {
        self.push(words, word::tagged(word::GAP, word::PYTHON_GAP | u64::from(end)));
    }

    /// The native evaluation frame at hand has no Python frames. The innermost may be just beginning or ending.
    #[inline(always)]
    pub(crate) fn without_run<W: Words>(&mut self, words: &mut W) {
        let end = if self.layout.entry_rule == entry_rule::ONE_PER_EVAL {
            // Then each run stands where the chain has it, and there is none to be moved.
            if self.short != short::WHOLE {
                return;
            }
            // Nothing says which run is whose: it is the innermost evaluations that lack theirs, not these.
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

    /// The mapping at hand may hold code that the interpreter generated and that cannot be unwound by itself: rows that
    /// were derived for it are guesses.
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
