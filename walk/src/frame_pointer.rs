//! The step out of code without rows among functions that have some, such as V8's builtins in the text of Node.js: by
//! the frame pointer, where that holds what a frame pointer does.
//!
//! Owns: what such a step must show before it is believed. Because: nothing says that code without rows keeps frame
//! pointers, and in code that does not, the register holds anything. The step must lead to another frame pointer
//! further out and to executable memory, or the walk ends as if it had not been tried. Does not: find rows, or step in
//! mappings that are marked as code with frame pointers, where the step is a guess, as it always was.

use deepctx_common::end::WalkEnd;

use crate::memory::Memory;
use crate::state::{Tables, Walk};

/// Most bytes from the stack pointer to the frame pointer: V8's frames, the largest seen, have some hundreds.
const FRAME_BYTES_MAX: u64 = 1 << 16;

/// Steps to the caller, or leaves the registers as they are.
///
/// A step of its own rather than [`crate::unwind_row::step`]: where two ways lead into that one, the compiler keeps
/// values in stack slots that are written on one of them only, which kernels before 6.3 refuse to read.
#[inline(always)]
pub(crate) fn step<E: Memory + Tables>(walk: &mut Walk, env: &E) -> Result<(), WalkEnd> {
    let fp = walk.registers.frame_pointer().unwrap_or(1);
    if !fp.is_multiple_of(8) || fp.wrapping_sub(walk.registers.sp) > FRAME_BYTES_MAX {
        return Err(WalkEnd::NoRow);
    }
    let [outer, word] = env.read_stack(fp).ok_or(WalkEnd::NoRow)?;
    let caller = walk.registers.code_address(word);
    if !outer.is_multiple_of(8) || outer <= fp || caller == 0 {
        return Err(WalkEnd::NoRow);
    }
    // It is looked for in any case, by the next step, and as the address of its call.
    let call = caller.wrapping_sub(1);
    if !(walk.mapping.begin..walk.mapping.end).contains(&call) && env.find_mapping(walk, call).is_err() {
        return Err(WalkEnd::NoRow);
    }
    walk.registers.resume(caller, fp.wrapping_add(16), Some(outer));
    Ok(())
}
