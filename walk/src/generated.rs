//! The step out of code that the interpreter generated at run time.
//!
//! Owns: finding the evaluation frame that called such code. Because: code from the JIT of CPython 3.14 has no unwind
//! rows and keeps no frame pointers, and the chain of Python frames skips it. Code from the JIT of 3.15 keeps, at every
//! instruction, the frame pointer of the function that enters generated code; rows derived for it may describe code
//! that was at that address before. Does not: know the location of the sentinel in an evaluation frame, or of the
//! return address into the entering function: user space derives both from the instructions.

use deepctx_common::end::WalkEnd;

use crate::chain::start_python;
use crate::memory::Memory;
use crate::python;
use crate::state::{Flow, PYTHON_READS_MAX, Tables, Walk, phase};
use crate::words::Words;

/// Limit on the distance from the stack pointer of generated code to the evaluation frame that called it, bytes: a few
/// saved registers.
const GENERATED_FRAME_MAX: u64 = 1 << 12;

/// Steps out of generated code. If that code has neither unwind rows nor frame pointers, the sentinel of the calling
/// evaluation is at a fixed place in its native frame.
#[inline(always)]
pub fn step<E: Memory + Tables, W: Words>(walk: &mut Walk, words: &mut W, env: &E) -> Flow {
    walk.phase = phase::NATIVE;
    walk.generated_tried = 1;
    if walk.process.python.entered != 0 {
        return to_entering(walk, words, env);
    }
    if walk.python_started == 0 {
        if start_python(walk, env).is_err() {
            return Flow::Continue;
        }
        walk.python_started = 1;
    }
    if walk.peeked == 0 {
        walk.peeked = walk.python_cursor;
    }
    walk.python_reads += 1;
    let at = walk.peeked;
    if at == 0 || walk.python_reads > PYTHON_READS_MAX {
        return Flow::Continue;
    }
    let Walk { layout, buffers, .. } = walk;
    let Some(frame) = python::read_frame(env, at, layout, buffers) else { return Flow::Continue };
    if !frame.entry {
        walk.peeked = frame.previous;
        if frame.previous != 0 {
            walk.generated_tried = 0;
            walk.phase = phase::GENERATED;
        }
        return Flow::Continue;
    }
    if at.wrapping_sub(walk.registers.sp) > GENERATED_FRAME_MAX {
        return Flow::Continue;
    }
    let word = walk.native_word();
    if !walk.push_native(words, word) {
        return walk.end_native(words, WalkEnd::TooManyFrames);
    }
    walk.generated_tried = 0;
    let python = &walk.process.python;
    let pc = python.eval[0][0].wrapping_add(u64::from(python.resume));
    let base = at.wrapping_add_signed(i64::from(python.resume_base));
    if python.resume_base > 0 {
        walk.registers.resume(pc, at, Some(base));
    } else {
        walk.registers.resume(pc, base, None);
    }
    Flow::Continue
}

/// If generated code preserves the frame pointer of the function that entered it, the return address is at a fixed
/// distance below that frame pointer. Code from other generators has another value there, and is walked by its own
/// rows.
#[inline(always)]
fn to_entering<E: Memory + Tables, W: Words>(walk: &mut Walk, words: &mut W, env: &E) -> Flow {
    let python = &walk.process.python;
    let entered = u64::from(python.entered);
    let pc = python.eval[0][0].wrapping_add_signed(i64::from(python.resume as i32));
    let Some(fp) = walk.registers.frame_pointer() else { return Flow::Continue };
    let at = fp.wrapping_sub(entered);
    if at < walk.registers.sp || env.read_u64(at) != Some(pc) {
        return Flow::Continue;
    }
    let word = walk.native_word();
    if !walk.push_native(words, word) {
        return walk.end_native(words, WalkEnd::TooManyFrames);
    }
    walk.generated_tried = 0;
    if walk.registers.pc < walk.mapping.begin || walk.registers.pc >= walk.mapping.end {
        walk.stop_pc = walk.registers.pc;
    }
    walk.registers.resume(pc, at.wrapping_add(8), Some(fp));
    Flow::Continue
}
