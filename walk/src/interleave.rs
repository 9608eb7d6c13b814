//! The walk of one user stack: native frames by unwind rows, Python frames spliced in at each evaluation frame.
//!
//! Owns: the two kinds of step of a walk. Because: kernel verifiers accept a flat loop over small steps at a stable
//! cost, and a Python run and a native frame share one budget. Does not: loop. The caller steps until [`Flow::Stop`],
//! at most [`STEPS_MAX`] times.
//!
//! Python frames come in runs, one per native frame of the evaluation loop. Addresses pair runs with native frames:
//! since 3.11 each evaluation links its run to a structure on the C stack, which lies within its own native frame. So a
//! sample pairs correctly even if it falls between the call of an evaluation and the linking of its frames, or between
//! their unlinking and its return.
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
use deepctx_common::python::{NO_PYTHON, entry_rule};
use deepctx_common::record::word;
use deepctx_common::unwind::{executable_flag, rule_kind};

use crate::chain::{hang, other_state, start_python};
use crate::memory::Memory;
pub use crate::state::{Flow, PYTHON_FRAMES_MAX, PYTHON_READS_MAX, STEPS_MAX, Tables, Walk, phase};
pub use crate::words::{WordBuffer, Words};
use crate::{called, frame_pointer, generated, python, short, unwind_row};

/// Emits the current native frame and steps to its caller; switches to Python if the frame is an evaluation frame.
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
        // Code generated since the mappings were last read: the same return address identifies it.
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
        if end as u32 != WalkEnd::NoRow as u32 {
            return Err(end);
        }
        if walk.mapping.flags & executable_flag::FRAME_POINTERS == 0 {
            return frame_pointer::step(walk, env);
        }
        // Code without rows (JIT, hand-written) usually keeps frame pointers. This kind uses no other field of the
        // rule.
        walk.rule.cfa = rule_kind::FRAME_POINTER;
    }
    if unwind_row::is_rare(&walk.rule) {
        return env.rare_step(walk);
    }
    let Walk { registers, rule, .. } = walk;
    unwind_row::step(registers, rule, env)
}

/// Result of one part of a Python step. A number, because in the kernel it is the result of a function that is verified
/// separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome(u32);

impl Outcome {
    /// The step is done; the walk continues.
    pub const CONTINUE: Self = Self(0);
    /// The walk is over.
    pub const STOP: Self = Self(1);
    /// The run can be read: [`python_frame`] is next.
    pub const FRAMES: Self = Self(2);
    /// The run is complete: [`python_end`] is next.
    pub const LEAVE: Self = Self(3);
    /// The run did not end at the frame that the previous `_PyCFrame` names: [`python_end`] is next.
    const FALL_BACK: Self = Self(4);
    /// The beginning of the run is unknown: [`python_begin`] is next.
    pub const BEGIN: Self = Self(5);
    /// The Python walk cannot continue: [`python_end`] is next. The number of a [`PythonEnd`] is added to this value.
    const FAIL: u32 = 16;

    const fn fail(end: PythonEnd) -> Self {
        Self(Self::FAIL + end as u32)
    }

    /// The number, as a kernel function returns it.
    pub const fn number(self) -> u32 {
        self.0
    }

    /// Converts [`Self::number`] back.
    pub const fn from_number(number: u32) -> Self {
        Self(number)
    }
}

/// Emits the next Python frame; returns to native frames after the entry frame of a run. The order of the parts is that
/// of the kernel programs, where each part is a separate function.
#[inline(always)]
pub fn python_step<E: Memory + Tables, W: Words>(walk: &mut Walk, words: &mut W, env: &E) -> Flow {
    if walk.phase == phase::GENERATED {
        return generated::step(walk, words, env);
    }
    let mut outcome = if has_begun(walk) { Outcome::FRAMES } else { python_begin(walk, words, env) };
    if outcome == Outcome::FRAMES {
        outcome = python_frame(walk, words, env);
    }
    match outcome {
        Outcome::CONTINUE => Flow::Continue,
        Outcome::STOP => Flow::Stop,
        _ => python_end(walk, words, outcome),
    }
}

/// The step of [`phase::GENERATED`].
pub use crate::generated::step as generated_step;

/// Emits the next Python frame of a readable run.
#[inline(always)]
pub fn python_frame<E: Memory + Tables, W: Words>(walk: &mut Walk, words: &mut W, env: &E) -> Outcome {
    if walk.python_cursor == 0 {
        return end_of_chain(walk, words);
    }
    walk.python_reads += 1;
    if walk.python_frames >= PYTHON_FRAMES_MAX || walk.python_reads > PYTHON_READS_MAX {
        return Outcome::fail(PythonEnd::TooManyFrames);
    }
    if walk.run_open == 0 {
        walk.run_open = 1;
        walk.run_cursor = walk.python_cursor;
    }
    let at = walk.python_cursor;
    let Walk { layout, buffers, .. } = walk;
    let Some(frame) = python::read_frame(env, at, layout, buffers) else {
        return Outcome::fail(PythonEnd::Unreadable);
    };
    if walk.phase == phase::PYTHON_TAIL {
        // Since 3.15 a sentinel without a caller is the root of every chain.
        if frame.code == 0 && frame.previous == 0 {
            return Outcome::STOP;
        }
        let end = if walk.evaluations == 0 { PythonEnd::NoEvalFrame } else { PythonEnd::ChainLong };
        walk.note_python(end as u32);
        walk.push_python_gap(words, end as u32);
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
            return Outcome::fail(PythonEnd::TooManyFrames);
        }
        if frame.code == walk.called.code {
            called::push_object(walk, words, env, at);
        }
    }
    if frame.entry { end_run(walk, words, at) } else { Outcome::CONTINUE }
}

/// Whether the beginning of the run is known, as for every run of a chain but the first: then there is no need for
/// [`python_begin`].
#[inline(always)]
pub fn has_begun(walk: &Walk) -> bool {
    walk.run_open != 0
        || walk.python_started != 0 && walk.cframe_depth == 0 && walk.cframe == 0 && walk.python_cursor != 0
}

/// Before the first frame of a run: finds the chain, and checks that the run at its head belongs to this evaluation.
#[inline(always)]
pub fn python_begin<E: Memory + Tables, W: Words>(walk: &mut Walk, words: &mut W, env: &E) -> Outcome {
    if walk.python_started == 0 {
        walk.python_started = 1;
        if let Err(end) = start_python(walk, env) {
            // A complete native stack without an evaluation frame: there is no reason to expect Python frames.
            return if walk.phase == phase::PYTHON_TAIL { Outcome::STOP } else { Outcome::fail(end) };
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
        return Outcome::FRAMES;
    }
    if walk.cframe >= walk.run_cfa {
        // The chain begins further out.
        walk.without_run(words);
        return Outcome::LEAVE;
    }
    let python = &walk.process.python;
    let into = (walk.run_word & word::PAYLOAD).wrapping_sub(python.eval[0][0]);
    if word::tag(walk.run_word) == word::EXACT
        && into.wrapping_sub(u64::from(python.unset)) < u64::from(python.unset_length)
    {
        // The `_PyCFrame` is not filled in yet. The next one out is at the same depth in its own native frame.
        walk.cframe_depth = walk.run_cfa.wrapping_sub(walk.cframe);
        hang(walk, python::Chain::default());
        walk.without_run(words);
        return Outcome::LEAVE;
    }
    Outcome::FRAMES
}

/// Discards everything emitted since [`Walk::begin_run`].
#[inline(always)]
fn take_back_run(walk: &mut Walk) {
    walk.words = walk.run_words;
    walk.python_frames = walk.run_frames;
    walk.coroutine = walk.run_coroutine;
    walk.run_open = 0;
    short::left_evaluation(walk);
}

/// Handles the frame just read at `at`, the last one of an evaluation.
#[inline(always)]
fn end_run<W: Words>(walk: &mut Walk, words: &mut W, at: u64) -> Outcome {
    let sentinel = walk.layout.entry_rule == entry_rule::SENTINEL;
    if walk.phase == phase::PYTHON && sentinel {
        if at >= walk.run_cfa {
            // The run belongs to an evaluation further out, and is emitted again there.
            take_back_run(walk);
            walk.python_cursor = walk.run_cursor;
            walk.without_run(words);
            return Outcome::LEAVE;
        }
        if at < walk.run_sp {
            // The end of an unrecognized evaluation further in, whose Python frames join this run, or the root of the
            // chain.
            if walk.python_cursor == 0 {
                walk.run_open = 0;
                return end_of_chain(walk, words);
            }
            return Outcome::CONTINUE;
        }
    }
    if walk.cframe != 0 && walk.python_cursor != walk.outer {
        return Outcome::FALL_BACK;
    }
    walk.run_open = 0;
    walk.cframe = 0;
    short::left_evaluation(walk);
    if walk.phase == phase::PYTHON_REST { Outcome::CONTINUE } else { Outcome::LEAVE }
}

/// Handles the end of the chain: there are no further Python frames.
#[inline(always)]
fn end_of_chain<W: Words>(walk: &mut Walk, words: &mut W) -> Outcome {
    if walk.run_open != 0 && walk.layout.entry_rule != entry_rule::ONE_PER_EVAL {
        if walk.phase == phase::PYTHON || walk.cframe != 0 {
            return Outcome::fail(PythonEnd::Torn);
        }
    } else if walk.phase == phase::PYTHON && walk.state != 0 && walk.python_frames == walk.run_frames {
        walk.without_run(words);
    }
    Outcome::LEAVE
}

/// Runs after a run, or if the Python walk cannot continue.
#[inline(always)]
pub fn python_end<W: Words>(walk: &mut Walk, words: &mut W, outcome: Outcome) -> Flow {
    let mut falls_back = outcome == Outcome::FALL_BACK;
    if let Some(end) = outcome.0.checked_sub(Outcome::FAIL) {
        falls_back = fails(walk, words, end);
    }
    if falls_back {
        // The innermost evaluation has not linked its frames yet, and its `_PyCFrame` holds leftovers of an earlier
        // call: the chain begins at the outer frame.
        take_back_run(walk);
        walk.python_cursor = walk.outer;
        walk.cframe = 0;
        if walk.phase == phase::PYTHON_REST {
            return Flow::Continue;
        }
        walk.without_run(words);
    }
    leave(walk, words)
}

/// Ends the Python walk. The frames read of the run are kept unless they are implausible. True if the rest of the chain
/// may be intact.
#[inline(always)]
fn fails<W: Words>(walk: &mut Walk, words: &mut W, end: u32) -> bool {
    let is = |other: PythonEnd| end == other as u32;
    // Before a gap in the tail, there is no run to take back, only native frames.
    let in_tail = walk.phase == phase::PYTHON_TAIL;
    if walk.cframe != 0 && walk.run_open != 0 && !in_tail && !is(PythonEnd::TooManyFrames) {
        if walk.python_frames != walk.run_frames {
            // Leftovers of an earlier call would have shown no frame: the chain is changing.
            walk.note_python(PythonEnd::Torn as u32);
            take_back_run(walk);
            walk.push_python_gap(words, PythonEnd::Torn as u32);
            walk.begin_run();
        }
        return true;
    }
    if is(PythonEnd::Torn) {
        take_back_run(walk);
    }
    walk.note_python(end);
    if walk.phase == phase::PYTHON || !is(PythonEnd::NoThreadState) {
        walk.push_python_gap(words, end);
    }
    walk.python_cursor = 0;
    walk.state = 0;
    walk.run_open = 0;
    false
}

/// Returns to native frames, if there are any.
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
