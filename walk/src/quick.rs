//! The quick steps: an ordinary native frame whose mapping, rule and stack words are cached, and an ordinary Python
//! frame whose words are.
//!
//! Owns: the fast path that most frames take. Because: it is short, so a loop over it is cheap to verify and to run,
//! whereas a call of the full step costs as much as a frame. Does not: decide anything. It leaves unusual frames
//! unchanged to [`crate::interleave`], whose steps give the same result for ordinary ones (a property test checks
//! this).

use deepctx_common::python::NO_PYTHON;
use deepctx_common::record::{USER_WORDS_MAX, word};

use crate::memory::Memory;
use crate::state::{PYTHON_FRAMES_MAX, PYTHON_READS_MAX, Tables, Walk, phase};
use crate::words::Words;
use crate::{python, short, unwind_row};

/// Emits the current native frame and steps to its caller, if that takes no search and no read. Otherwise changes
/// nothing and returns false.
#[inline(always)]
pub fn native_step<E: Memory + Tables, W: Words>(walk: &mut Walk, words: &mut W, env: &E) -> bool {
    let pc = walk.registers.lookup_pc();
    if pc < walk.mapping.begin || pc >= walk.mapping.end || walk.native_frames >= walk.frames_max {
        return false;
    }
    if walk.executable.pages == 0
        || walk.process.python.layout != NO_PYTHON && (walk.in_eval_loop(pc) || walk.in_generated_code())
        || !env.next_rule(walk, pc.wrapping_sub(walk.mapping.bias))
    {
        return false;
    }
    let Some(caller) = unwind_row::peek(&walk.registers, &walk.rule, env) else { return false };
    if !walk.push_native(words, walk.native_word()) {
        return false;
    }
    caller.enter(&mut walk.registers);
    walk.cursor += 1;
    true
}

/// Emits the next Python frame, if it is an ordinary frame of the current run and a read-ahead covers it. Otherwise
/// changes nothing and returns false.
#[inline(always)]
pub fn python_step<E: Memory, W: Words>(walk: &mut Walk, words: &mut W, env: &E) -> bool {
    let room = (USER_WORDS_MAX as u32 - 2) >= walk.words.wrapping_sub(walk.words_begin);
    if walk.run_open == 0
        || walk.phase > phase::PYTHON_REST
        || walk.python_cursor == 0
        || walk.coroutine != 0
        || walk.short == short::state::LEFT_OUT
        || walk.python_frames >= PYTHON_FRAMES_MAX
        || walk.python_reads >= PYTHON_READS_MAX
        || !room
    {
        return false;
    }
    let Walk { layout, buffers, python_cursor, .. } = walk;
    let Some(frame) = python::peek_frame(env, *python_cursor, layout, buffers) else { return false };
    if frame.entry || frame.code == walk.called.code {
        return false;
    }
    let before = walk.words;
    if !walk.push(words, word::tagged(word::PYTHON, frame.code))
        || !walk.push(words, word::python_detail(frame.checksum, frame.instruction))
    {
        walk.words = before;
        return false;
    }
    walk.python_reads += 1;
    walk.python_frames += 1;
    walk.python_cursor = frame.previous;
    true
}
