//! The step out of code that the interpreter generated.
//!
//! Owns: finding the evaluation that called such code. Because: the JIT of CPython 3.14 makes code that neither has unwind
//! rows nor keeps frame pointers, and the chain of Python frames leads past it. Does not: know where an evaluation keeps
//! its sentinel: user space reads that off the evaluation loop.

use deepctx_common::end::WalkEnd;

use crate::interleave::{Flow, PYTHON_READS_MAX, Tables, Walk, Words, phase, start_python};
use crate::memory::Memory;
use crate::python;

/// Most bytes between the stack pointer of generated code and the evaluation that called it: a few saved registers.
const GENERATED_FRAME_MAX: u64 = 1 << 12;

/// In generated code, which neither has unwind rows nor keeps frame pointers: the sentinel of the evaluation that called
/// it lies in the native frame of that evaluation, at a place that is always the same.
#[inline(always)]
pub(crate) fn step<E: Memory + Tables, W: Words>(walk: &mut Walk, words: &mut W, env: &E) -> Flow {
    walk.phase = phase::NATIVE;
    walk.generated_tried = 1;
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
