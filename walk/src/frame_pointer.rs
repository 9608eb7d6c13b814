//! Frame-pointer step out of code without rows in a mapping that has rows elsewhere, such as V8's builtins in the text
//! of Node.js.
//!
//! Owns: the plausibility checks of such a step. Because: nothing guarantees that code without rows keeps frame
//! pointers; in code that does not, the register holds arbitrary data. The step must lead to a frame pointer further
//! out and to executable memory, or the walk ends as if the step had not been tried. Does not: find rows, or step in
//! mappings flagged as code with frame pointers, where the step is taken without these checks.

use deepctx_common::end::WalkEnd;

use crate::memory::Memory;
use crate::state::{Tables, Walk};

/// Limit on the distance from the stack pointer to the frame pointer, bytes: V8's frames, the largest seen, have a few
/// hundred.
const FRAME_BYTES_MAX: u64 = 1 << 16;

/// Steps to the caller, or leaves the registers unchanged.
///
/// Separate from [`crate::unwind_row::step`]: with two paths into that function, the compiler keeps values in stack
/// slots that only one path writes, and kernels before 6.3 refuse to read those.
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
    // The next step looks this mapping up in any case, by the address of the call.
    let call = caller.wrapping_sub(1);
    if !(walk.mapping.begin..walk.mapping.end).contains(&call) && env.find_mapping(walk, call).is_err() {
        return Err(WalkEnd::NoRow);
    }
    walk.registers.resume(caller, fp.wrapping_add(16), Some(outer));
    Ok(())
}
