//! The walk of one user stack: native frames by unwind rows, Python frames spliced in at each evaluation frame.
//!
//! Owns: the state of a walk and its two kinds of step. Because: a flat loop over small steps is the one shape that
//! kernel verifiers accept at a stable cost, and it lets a Python run and a native frame share one budget.
//! Does not: loop. The caller steps until [`Flow::Stop`], at most [`STEPS_MAX`] times.
//!
//! Python frames come in runs, one for each native frame of the evaluation loop. Which run belongs to which native frame
//! is told by an address: since 3.11 each evaluation keeps a structure on the C stack that its run is hung on, and it
//! lies within that native frame and no other. So a sample that falls between the call of an evaluation and the
//! moment at which it hangs its frames on the chain, or between their removal and its return, pairs as it should.
//!
//! ```text
//!             ┌─────── pc in the evaluation loop: its word waits ───────┐
//!             ▼                                                         │
//!      ┌────────────┐   run emitted, then that word             ┌────────────┐ row found, ra read
//!      │   python   │──────────────────────────────────────────▶│   native   │◀──┐
//!      └────────────┘                                           └────────────┘───┘
//!             ▲                                                         │ no row, unreadable, …
//!             └───────────── rest of the chain, after a GAP ────────────┘
//! ```

use deepctx_common::end::{PythonEnd, WalkEnd};
use deepctx_common::process::Process;
use deepctx_common::python::{Called, EVAL_RANGES, NO_PYTHON, PythonLayout, entry_rule};
use deepctx_common::record::{USER_WORDS_MAX, word};
use deepctx_common::unwind::{Executable, Mapping, Rule, executable_flag, rule_kind};

use crate::called;
use crate::generated;
use crate::memory::Memory;
use crate::python::{self, Buffers};
use crate::short;
use crate::unwind_row::{self, Registers};
pub use crate::words::{WordBuffer, Words};

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
    /// Next: [`super::python_step`] on what is left of the chain when the native walk has reached its end.
    pub const PYTHON_TAIL: u32 = 3;
    /// Next: [`super::python_step`], which looks for the evaluation that called generated code.
    pub const GENERATED: u32 = 4;
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
    pub called: Called,
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
    /// [`python::Chain::cframe`] until the first run of the chain is paired, then 0.
    pub cframe: u64,
    /// [`python::Chain::outer`] of the same.
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
    /// One of [`short::state`].
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
        self.short = short::state::WHOLE;
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
            self.note_python(PythonEnd::Torn);
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

    /// Takes back what was emitted since [`Self::begin_run`].
    #[inline(always)]
    fn take_back_run(&mut self) {
        self.words = self.run_words;
        self.python_frames = self.run_frames;
        self.coroutine = self.run_coroutine;
        self.run_open = 0;
        short::left_evaluation(self);
    }

    /// Notes how the Python walk ended; the first reason counts.
    #[inline(always)]
    fn note_python(&mut self, end: PythonEnd) {
        if self.python_end == PythonEnd::Complete as u32 {
            self.python_end = end as u32;
        }
    }

    /// Labels the place where Python frames are missing.
    #[inline(always)]
    fn push_python_gap<W: Words>(&mut self, words: &mut W, end: PythonEnd) {
        self.push(words, word::tagged(word::GAP, word::PYTHON_GAP | end as u64));
    }

    /// The native evaluation frame at hand has no Python frames. The innermost may be just beginning or ending.
    #[inline(always)]
    fn without_run<W: Words>(&mut self, words: &mut W) {
        let end = if self.layout.entry_rule == entry_rule::ONE_PER_EVAL {
            // Then each run stands where the chain has it, and there is none to be moved.
            if self.short != short::state::WHOLE {
                return;
            }
            // Nothing tells which run is whose: it is the innermost evaluations that lack theirs, not these.
            if self.run_frames + 1 < self.evaluations {
                self.note_python(PythonEnd::ChainShort);
            }
            PythonEnd::ChainShort
        } else if self.evaluations > 1 {
            self.note_python(PythonEnd::OtherState);
            PythonEnd::OtherState
        } else {
            PythonEnd::Complete
        };
        self.push_python_gap(words, end);
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

/// Emits the current native frame and steps to its caller; turns to Python when the frame is an evaluation frame.
#[inline(always)]
pub fn native_step<E: Memory + Tables, W: Words>(walk: &mut Walk, words: &mut W, env: &E) -> Flow {
    let pc = walk.registers.lookup_pc();
    let word = walk.native_word();
    if (pc < walk.mapping.begin || pc >= walk.mapping.end)
        && let Err(end) = env.find_mapping(walk, pc)
    {
        if env.put_back(walk) {
            return Flow::Continue;
        }
        // Generated since mappings were last read: what tells the way out tells that it is such code, too.
        if walk.process.python.entered != 0 && walk.generated_tried == 0 {
            walk.phase = phase::GENERATED;
            return Flow::Continue;
        }
        walk.push_native(words, word);
        return walk.end_native(words, end);
    }
    if walk.native_frames >= walk.frames_max {
        return walk.end_native(words, WalkEnd::TooManyFrames);
    }
    if walk.in_generated_code() {
        if walk.generated_tried == 0 {
            walk.peeked = 0;
            walk.phase = phase::GENERATED;
            return Flow::Continue;
        }
        walk.generated_tried = 0;
    }
    let evaluation = walk.process.python.layout != NO_PYTHON && walk.in_eval_loop(pc);
    if evaluation {
        walk.evaluations += 1;
        walk.run_sp = walk.registers.sp;
        walk.run_word = word;
        walk.begin_run();
        walk.phase = phase::PYTHON;
    } else if !walk.push_native(words, word) {
        return walk.end_native(words, WalkEnd::TooManyFrames);
    }
    let stepped = step(walk, env, pc);
    if evaluation {
        walk.run_cfa = if stepped.is_ok() { walk.registers.sp } else { u64::MAX };
        walk.run_end = match stepped {
            Ok(()) => 0,
            Err(end) => 1 + end as u32,
        };
        return Flow::Continue;
    }
    match stepped {
        Ok(()) => Flow::Continue,
        Err(end) => walk.end_native(words, end),
    }
}

/// Steps to the caller.
#[inline(always)]
fn step<E: Memory + Tables>(walk: &mut Walk, env: &E, pc: u64) -> Result<(), WalkEnd> {
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
            return Err(end);
        }
        // The only field that this kind uses.
        walk.rule.cfa = rule_kind::FRAME_POINTER;
    }
    let Walk { registers, rule, .. } = walk;
    unwind_row::step(registers, rule, env)
}

/// Emits the next Python frame; back to native after the entry frame of a run.
#[inline(always)]
pub fn python_step<E: Memory + Tables, W: Words>(walk: &mut Walk, words: &mut W, env: &E) -> Flow {
    if walk.phase == phase::GENERATED {
        return generated::step(walk, words, env);
    }
    if walk.run_open == 0
        && let Err(flow) = begin_frames(walk, words, env)
    {
        return flow;
    }
    if walk.python_cursor == 0 {
        return end_of_chain(walk, words);
    }
    walk.python_reads += 1;
    if walk.python_frames >= PYTHON_FRAMES_MAX || walk.python_reads > PYTHON_READS_MAX {
        return fail(walk, words, PythonEnd::TooManyFrames);
    }
    if walk.run_open == 0 {
        walk.run_open = 1;
        walk.run_cursor = walk.python_cursor;
    }
    let at = walk.python_cursor;
    let Walk { layout, buffers, .. } = walk;
    let Some(frame) = python::read_frame(env, at, layout, buffers) else {
        return fail(walk, words, PythonEnd::Unreadable);
    };
    if walk.phase == phase::PYTHON_TAIL {
        // Since 3.15 a sentinel without a caller is the root of every chain.
        if frame.code == 0 && frame.previous == 0 {
            return Flow::Stop;
        }
        let end = if walk.evaluations == 0 { PythonEnd::NoEvalFrame } else { PythonEnd::ChainLong };
        walk.note_python(end);
        walk.push_python_gap(words, end);
        walk.begin_run();
        walk.run_open = 1;
        walk.phase = phase::PYTHON_REST;
    }
    walk.python_cursor = frame.previous;
    if frame.code != 0 {
        walk.python_frames += 1;
        short::mark(walk, words);
        if walk.coroutine != 0 && !frame.coroutine {
            walk.push(words, word::tagged(word::COROUTINE, walk.coroutine));
        }
        walk.coroutine = if frame.coroutine { at } else { 0 };
        let stored = walk.push(words, word::tagged(word::PYTHON, frame.code))
            && walk.push(words, word::python_detail(frame.checksum, frame.instruction));
        if !stored {
            return fail(walk, words, PythonEnd::TooManyFrames);
        }
        if frame.code == walk.called.code {
            called::push_object(walk, words, env, at);
        }
    }
    if frame.entry { end_run(walk, words, at) } else { Flow::Continue }
}

/// Before the first frame of a run: finds the chain, and whether the run at its head belongs to this evaluation.
#[inline(always)]
fn begin_frames<E: Memory + Tables, W: Words>(walk: &mut Walk, words: &mut W, env: &E) -> Result<(), Flow> {
    if walk.python_started == 0 {
        walk.python_started = 1;
        if let Err(end) = start_python(walk, env) {
            // A whole native stack without an evaluation is no reason to expect Python frames.
            if walk.phase == phase::PYTHON_TAIL {
                return Err(Flow::Stop);
            }
            return Err(fail(walk, words, end));
        }
    }
    let paired = walk.phase == phase::PYTHON;
    if paired && walk.cframe_depth != 0 {
        let cframe = walk.run_cfa.wrapping_sub(walk.cframe_depth);
        walk.cframe_depth = 0;
        let chain = python::chain_of_cframe(env, cframe, &walk.layout);
        hang(walk, chain.unwrap_or_default());
    } else if walk.python_cursor == 0 && (paired || short::may_go_on(walk)) {
        other_state(walk, env);
    }
    if !paired || walk.cframe == 0 {
        return Ok(());
    }
    if walk.cframe >= walk.run_cfa {
        // The chain begins further out.
        walk.without_run(words);
        return Err(leave(walk, words));
    }
    let python = &walk.process.python;
    let into = (walk.run_word & word::PAYLOAD).wrapping_sub(python.eval[0][0]);
    if word::tag(walk.run_word) == word::EXACT
        && into.wrapping_sub(u64::from(python.unset)) < u64::from(python.unset_length)
    {
        // It names nothing yet; the next one out lies as deep in its own native frame.
        walk.cframe_depth = walk.run_cfa.wrapping_sub(walk.cframe);
        hang(walk, python::Chain::default());
        walk.without_run(words);
        return Err(leave(walk, words));
    }
    Ok(())
}

#[inline(always)]
fn hang(walk: &mut Walk, chain: python::Chain) {
    walk.python_cursor = chain.frame;
    walk.cframe = chain.cframe;
    walk.outer = chain.outer;
}

/// Finds the innermost Python frame of the thread.
#[inline(always)]
pub(crate) fn start_python<E: Memory + Tables>(walk: &mut Walk, env: &E) -> Result<(), PythonEnd> {
    if !env.find_layout(walk) {
        return Err(PythonEnd::NotPython);
    }
    let state = python::thread_state(env, walk.thread_pointer, &walk.process.python, &walk.layout);
    if state == 0 {
        return Err(PythonEnd::NoThreadState);
    }
    if !python::belongs_to_thread(env, state, walk.thread_pointer, &walk.layout) {
        return Err(PythonEnd::ThreadStateMismatch);
    }
    start_chain(walk, env, state).ok_or(PythonEnd::Unreadable)
}

#[inline(always)]
fn start_chain<E: Memory>(walk: &mut Walk, env: &E, state: u64) -> Option<()> {
    let chain = python::chain(env, state, &walk.layout)?;
    walk.state = state;
    hang(walk, chain);
    Some(())
}

/// Behind the frames of a sub-interpreter come those of the state that the thread had before, where that is known.
#[inline(always)]
fn other_state<E: Memory>(walk: &mut Walk, env: &E) {
    if walk.other_tried != 0 || walk.state == 0 {
        return;
    }
    walk.other_tried = 1;
    let state = python::bound_state(env, walk.thread_pointer, &walk.process.python);
    if state != 0
        && state != walk.state
        && python::belongs_to_thread(env, state, walk.thread_pointer, &walk.layout)
    {
        // Unreadable, it is as if there were none.
        let _ = start_chain(walk, env, state);
    }
}

/// The frame that was just read at `at` is the last of an evaluation.
#[inline(always)]
fn end_run<W: Words>(walk: &mut Walk, words: &mut W, at: u64) -> Flow {
    let sentinel = walk.layout.entry_rule == entry_rule::SENTINEL;
    if walk.phase == phase::PYTHON && sentinel {
        if at >= walk.run_cfa {
            // Of an evaluation further out, where it is emitted once more.
            walk.take_back_run();
            walk.python_cursor = walk.run_cursor;
            walk.without_run(words);
            return leave(walk, words);
        }
        if at < walk.run_sp {
            // Of an evaluation whose native frame was not recognised, further in: its frames go with these. Or the
            // root of the chain.
            if walk.python_cursor == 0 {
                walk.run_open = 0;
                return end_of_chain(walk, words);
            }
            return Flow::Continue;
        }
    }
    if walk.cframe != 0 && walk.python_cursor != walk.outer {
        return fall_back(walk, words);
    }
    walk.run_open = 0;
    walk.cframe = 0;
    short::left_evaluation(walk);
    if walk.phase == phase::PYTHON_REST { Flow::Continue } else { leave(walk, words) }
}

/// The innermost evaluation has not hung its frames on the chain yet, and what is there in their place is left over from
/// another call: the chain begins behind it.
#[inline(always)]
fn fall_back<W: Words>(walk: &mut Walk, words: &mut W) -> Flow {
    walk.take_back_run();
    walk.python_cursor = walk.outer;
    walk.cframe = 0;
    if walk.phase == phase::PYTHON_REST {
        return Flow::Continue;
    }
    walk.without_run(words);
    leave(walk, words)
}

/// There is no further Python frame.
#[inline(always)]
fn end_of_chain<W: Words>(walk: &mut Walk, words: &mut W) -> Flow {
    if walk.run_open != 0 && walk.layout.entry_rule != entry_rule::ONE_PER_EVAL {
        if walk.phase == phase::PYTHON || walk.cframe != 0 {
            return fail(walk, words, PythonEnd::Torn);
        }
    } else if walk.phase == phase::PYTHON && walk.state != 0 && walk.python_frames == walk.run_frames {
        walk.without_run(words);
    }
    leave(walk, words)
}

/// The Python walk cannot go on. What was read of the run is kept, unless it makes no sense.
#[inline(always)]
fn fail<W: Words>(walk: &mut Walk, words: &mut W, end: PythonEnd) -> Flow {
    let is = |other: PythonEnd| end as u32 == other as u32;
    if walk.cframe != 0 && walk.run_open != 0 && !is(PythonEnd::TooManyFrames) {
        if walk.python_frames != walk.run_frames {
            // Not what is left over from a call; but behind it the chain may be whole.
            walk.note_python(PythonEnd::Torn);
            walk.take_back_run();
            walk.push_python_gap(words, PythonEnd::Torn);
            walk.begin_run();
        }
        return fall_back(walk, words);
    }
    if is(PythonEnd::Torn) {
        walk.take_back_run();
    }
    walk.note_python(end);
    if walk.phase == phase::PYTHON || !is(PythonEnd::NoThreadState) {
        walk.push_python_gap(words, end);
    }
    walk.python_cursor = 0;
    walk.state = 0;
    walk.run_open = 0;
    leave(walk, words)
}

/// Back to native frames, if there are any.
#[inline(always)]
fn leave<W: Words>(walk: &mut Walk, words: &mut W) -> Flow {
    if walk.phase != phase::PYTHON {
        return Flow::Stop;
    }
    if short::goes_on_in_chain(walk) {
        return Flow::Continue;
    }
    walk.phase = phase::NATIVE;
    walk.run_open = 0;
    let word = walk.run_word;
    if !walk.push_native(words, word) {
        return walk.end_native(words, WalkEnd::TooManyFrames);
    }
    match walk.run_end.checked_sub(1) {
        None => Flow::Continue,
        Some(end) => walk.end_native(words, WalkEnd::from_number(end as u8).unwrap_or(WalkEnd::TableCorrupt)),
    }
}
