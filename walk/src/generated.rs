//! The step out of code that the interpreter generated.
//!
//! Owns: finding the evaluation that called such code. Because: the JIT of CPython 3.14 makes code that neither has
//! unwind rows nor keeps frame pointers, and the chain of Python frames leads past it. That of 3.15 leaves the frame
//! pointer as the function set it that enters such code, at every instruction; rows that were derived for it may be of
//! code that stood there before. Does not: know where an evaluation keeps its sentinel, or the function that enters
//! generated code its return address: user space reads that off their instructions.

use deepctx_common::end::WalkEnd;

use crate::chain::start_python;
use crate::memory::Memory;
use crate::python;
use crate::state::{Flow, PYTHON_READS_MAX, Tables, Walk, phase};
use crate::words::Words;

/// Most bytes between the stack pointer of generated code and the evaluation that called it: a few saved registers.
const GENERATED_FRAME_MAX: u64 = 1 << 12;

/// In generated code. Where it neither has unwind rows nor keeps frame pointers, the sentinel of the evaluation that
/// called it lies in the native frame of that evaluation, at a place that is always the same.
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

/// Where generated code leaves the frame pointer alone, it is that of the function that entered it, and the return
/// address lies at its place below. Code of other generators has something else there, and is walked by what is known
/// of it.
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
