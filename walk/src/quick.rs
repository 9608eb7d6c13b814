//! The quick step: an ordinary frame whose mapping, rule and stack words are all at hand.
//!
//! Owns: the one path that most frames take. Because: it is so short that a loop over it is cheap to verify and to run,
//! where a call of the whole step costs as much as a frame. Does not: decide anything: whatever is unusual is left, as
//! it was, to [`crate::interleave::native_step`], which does the same for these frames (a property test says so).

use deepctx_common::python::NO_PYTHON;

use crate::interleave::{Tables, Walk, Words};
use crate::memory::Memory;
use crate::unwind_row;

/// Emits the current native frame and steps to its caller, if that takes no search and no read; else changes nothing and
/// gives false.
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
