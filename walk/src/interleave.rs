//! The walk of one user stack: native frames by unwind rows, Python frames spliced in at each evaluation frame.
//!
//! Owns: the state of a walk and its two kinds of step. Because: a flat loop over small steps is the one shape that
//! kernel verifiers accept at a stable cost, and it lets a Python run and a native frame share one budget.
//! Does not: loop. The caller steps until [`Flow::Stop`], at most [`STEPS_MAX`] times.
//!
//! ```text
//!            ┌────────── pc in the evaluation loop, run not yet emitted ─────────┐
//!            ▼                                                                   │
//!     ┌────────────┐  entry frame reached      ┌────────────┐  row found, ra read ┘
//!  ──▶│   python   │──────────────────────────▶│   native   │◀──┐
//!     └────────────┘                           └────────────┘───┘
//!            ▲                                       │ no row, unreadable, …
//!            └── rest of the chain, after a GAP ─────┘
//! ```

use deepctx_common::end::{PythonEnd, WalkEnd};
use deepctx_common::process::Process;
use deepctx_common::python::{EVAL_RANGES, NO_PYTHON, PythonLayout};
use deepctx_common::record::{USER_WORDS_MAX, word};
use deepctx_common::unwind::{Executable, Mapping, Rule, executable_flag, rule_kind};

use crate::memory::Memory;
use crate::python::{self, Buffers};
use crate::unwind_row::{self, Registers};

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
    /// Next: [`super::native_step`].
    pub const NATIVE: u32 = 0;
    /// Next: [`super::python_step`].
    pub const PYTHON: u32 = 1;
    /// Next: [`super::python_step`], and there is no native walk to return to.
    pub const PYTHON_REST: u32 = 2;
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
    /// Buffers for reading interpreter structures.
    pub buffers: Buffers,
    /// Thread pointer (fsbase) of the thread.
    pub thread_pointer: u64,
    /// The next Python frame; 0 when there is none.
    pub python_cursor: u64,
    /// PC where the native walk stopped, 0 when it ended well.
    pub stop_pc: u64,
    /// One of [`phase`].
    pub phase: u32,
    /// 1 once the thread state was looked up.
    pub python_started: u32,
    /// 1 while the Python run of the current evaluation frame has been emitted.
    pub run_emitted: u32,
    /// Most native frames.
    pub frames_max: u32,
    /// Native frames so far.
    pub native_frames: u32,
    /// Python frames so far.
    pub python_frames: u32,
    /// Frames of the interpreter read so far, those that are not shown included.
    pub python_reads: u32,
    /// Padding.
    pub reserved: u32,
    /// First word of this walk in `words` (kernel words stand before it).
    pub words_begin: u32,
    /// Words so far, those before `words_begin` included.
    pub words: u32,
    /// [`WalkEnd`] as a number.
    pub native_end: u32,
    /// [`PythonEnd`] as a number.
    pub python_end: u32,
}

/// Where the words of a walk go. Outside [`Walk`], since in the kernel it is the record itself.
pub trait Words {
    /// Stores `word` at `index`; false when there is no room.
    fn put(&mut self, index: u32, word: u64) -> bool;
}

/// A plain buffer of words.
#[derive(Debug)]
pub struct WordBuffer<'a>(pub &'a mut [u64]);

impl Words for WordBuffer<'_> {
    fn put(&mut self, index: u32, word: u64) -> bool {
        match self.0.get_mut(index as usize) {
            Some(slot) => {
                *slot = word;
                true
            }
            None => false,
        }
    }
}

impl Walk {
    /// Ready to walk `registers` of a thread of `process`; words go behind the first `words_begin` ones.
    #[inline(always)]
    pub fn begin(&mut self, words_begin: u32, frames_max: u32) {
        self.mapping.begin = 0;
        self.mapping.end = 0;
        self.buffers.begin();
        self.python_cursor = 0;
        self.stop_pc = 0;
        self.phase = phase::NATIVE;
        self.python_started = 0;
        self.run_emitted = 0;
        self.frames_max = frames_max;
        self.native_frames = 0;
        self.python_frames = 0;
        self.python_reads = 0;
        self.words_begin = words_begin;
        self.words = words_begin;
        self.native_end = WalkEnd::Complete as u32;
        self.python_end =
            if self.process.python.layout == NO_PYTHON { PythonEnd::NotPython } else { PythonEnd::Complete }
                as u32;
    }

    #[inline(always)]
    fn push<W: Words>(&mut self, words: &mut W, value: u64) -> bool {
        let index = self.words;
        if index.wrapping_sub(self.words_begin) >= USER_WORDS_MAX as u32 || !words.put(index, value) {
            return false;
        }
        self.words = index + 1;
        true
    }

    #[inline(always)]
    pub(crate) fn push_native<W: Words>(&mut self, words: &mut W) -> bool {
        let tag = if self.registers.exact != 0 { word::EXACT } else { word::RETURN };
        let stored = self.push(words, word::tagged(tag, self.registers.pc));
        self.native_frames += stored as u32;
        stored
    }

    /// Ends the native walk. Python frames that were not reached are still worth having, behind a labelled gap.
    #[inline(always)]
    fn end_native<W: Words>(&mut self, words: &mut W, end: WalkEnd) -> Flow {
        self.native_end = end as u32;
        let rest =
            self.process.python.layout != NO_PYTHON && (self.python_started == 0 || self.python_cursor != 0);
        if end as u32 == WalkEnd::Complete as u32 {
            if self.python_cursor != 0 && self.python_end == PythonEnd::Complete as u32 {
                self.python_end = PythonEnd::ChainLong as u32;
            }
            return Flow::Stop;
        }
        self.stop_pc = self.registers.pc;
        self.push(words, word::tagged(word::GAP, end as u64));
        if !rest {
            return Flow::Stop;
        }
        self.phase = phase::PYTHON_REST;
        Flow::Continue
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

/// Emits the current native frame and steps to its caller, or turns to Python when the frame is an evaluation frame.
#[inline(always)]
pub fn native_step<E: Memory + Tables, W: Words>(walk: &mut Walk, words: &mut W, env: &E) -> Flow {
    let pc = walk.registers.lookup_pc();
    if (pc < walk.mapping.begin || pc >= walk.mapping.end)
        && let Err(end) = env.find_mapping(walk, pc)
    {
        walk.push_native(words);
        return walk.end_native(words, end);
    }
    if walk.process.python.layout != NO_PYTHON && walk.run_emitted == 0 && walk.in_eval_loop(pc) {
        walk.phase = phase::PYTHON;
        return Flow::Continue;
    }
    walk.run_emitted = 0;
    if walk.native_frames >= walk.frames_max {
        return walk.end_native(words, WalkEnd::TooManyFrames);
    }
    if !walk.push_native(words) {
        return walk.end_native(words, WalkEnd::TooManyFrames);
    }
    let found = if walk.executable.pages != 0 {
        env.find_rule(walk, pc.wrapping_sub(walk.mapping.bias))
    } else if walk.mapping.flags & executable_flag::FRAME_POINTERS != 0 {
        Err(WalkEnd::NoRow)
    } else {
        Err(WalkEnd::NoTable)
    };
    if let Err(end) = found {
        // Code without rows (JIT, Go, hand-written) usually keeps frame pointers.
        if end as u32 != WalkEnd::NoRow as u32 || walk.mapping.flags & executable_flag::FRAME_POINTERS == 0 {
            return walk.end_native(words, end);
        }
        // The only field that this kind uses.
        walk.rule.cfa = rule_kind::FRAME_POINTER;
    }
    let Walk { registers, rule, .. } = walk;
    match unwind_row::step(registers, rule, env) {
        Ok(()) => Flow::Continue,
        Err(end) => walk.end_native(words, end),
    }
}

/// Emits the next Python frame; back to native after the entry frame of a run.
#[inline(always)]
pub fn python_step<E: Memory + Tables, W: Words>(walk: &mut Walk, words: &mut W, env: &E) -> Flow {
    if walk.python_started == 0 {
        walk.python_started = 1;
        if let Err(end) = start_python(walk, env) {
            return end_run(walk, Some(end));
        }
    }
    if walk.python_cursor == 0 {
        let end = if walk.phase == phase::PYTHON_REST { None } else { Some(PythonEnd::ChainShort) };
        return end_run(walk, end);
    }
    walk.python_reads += 1;
    if walk.python_frames >= PYTHON_FRAMES_MAX || walk.python_reads > PYTHON_READS_MAX {
        walk.python_cursor = 0;
        return end_run(walk, Some(PythonEnd::TooManyFrames));
    }
    let Walk { layout, buffers, python_cursor, .. } = walk;
    let Some(frame) = python::read_frame(env, *python_cursor, layout, buffers) else {
        walk.python_cursor = 0;
        return end_run(walk, Some(PythonEnd::Unreadable));
    };
    walk.python_cursor = frame.previous;
    if frame.code != 0 {
        walk.python_frames += 1;
        let stored = walk.push(words, word::tagged(word::PYTHON, frame.code))
            && walk.push(words, word::python_detail(frame.checksum, frame.instruction));
        if !stored {
            walk.python_cursor = 0;
            return end_run(walk, Some(PythonEnd::TooManyFrames));
        }
    }
    if frame.entry && walk.phase == phase::PYTHON { end_run(walk, None) } else { Flow::Continue }
}

/// Finds the innermost Python frame of the thread.
#[inline(always)]
fn start_python<E: Memory + Tables>(walk: &mut Walk, env: &E) -> Result<(), PythonEnd> {
    if !env.find_layout(walk) {
        return Err(PythonEnd::NotPython);
    }
    let state = python::thread_state(env, walk.thread_pointer, &walk.process.python);
    if state == 0 {
        return Err(PythonEnd::NoThreadState);
    }
    if !python::belongs_to_thread(env, state, walk.thread_pointer, &walk.layout) {
        return Err(PythonEnd::ThreadStateMismatch);
    }
    walk.python_cursor = python::current_frame(env, state, &walk.layout).ok_or(PythonEnd::Unreadable)?;
    Ok(())
}

#[inline(always)]
fn end_run(walk: &mut Walk, end: Option<PythonEnd>) -> Flow {
    if let Some(end) = end
        && walk.python_end == PythonEnd::Complete as u32
    {
        walk.python_end = end as u32;
    }
    if walk.phase == phase::PYTHON_REST {
        return Flow::Stop;
    }
    walk.phase = phase::NATIVE;
    walk.run_emitted = 1;
    Flow::Continue
}
