//! The step out of code without rows: by the frame pointer, where that holds what a frame pointer does.
//!
//! Owns: what such a step must show before it is believed. Because: nothing says that code without rows keeps frame pointers,
//! and in code that does not, the register holds anything. In a mapping that is marked as such code a step is a guess, as it
//! always was; among functions with rows (V8's builtins in the text of Node.js) it must have led to another frame pointer
//! further out and to executable memory, or the walk ends as if it had not been tried. Does not: find rows.

use deepctx_common::end::WalkEnd;
use deepctx_common::unwind::{executable_flag, rule_kind};

use crate::memory::Memory;
use crate::state::{Tables, Walk};

/// Most bytes from the stack pointer to the frame pointer: V8's frames, the largest seen, have some hundreds.
const FRAME_BYTES_MAX: u64 = 1 << 16;

/// Makes the frame pointer the rule of the next step, if it may be one.
#[inline(always)]
pub(crate) fn begin(walk: &mut Walk) -> Result<(), WalkEnd> {
    // The only field that this kind uses.
    walk.rule.cfa = rule_kind::FRAME_POINTER;
    // In memory: kernels before 6.3 refuse programs that keep them in a stack slot which some path leaves unwritten.
    walk.left_pc = walk.registers.pc;
    walk.left_fp = walk.registers.frame_pointer().unwrap_or(0);
    if is_stated(walk)
        || walk.left_fp % 8 == 0 && walk.left_fp.wrapping_sub(walk.registers.sp) <= FRAME_BYTES_MAX
    {
        return Ok(());
    }
    Err(WalkEnd::NoRow)
}

/// What becomes of the step that [`begin`] began.
#[inline(always)]
pub(crate) fn finish<E: Memory + Tables>(
    walk: &mut Walk,
    env: &E,
    stepped: Result<(), WalkEnd>,
) -> Result<(), WalkEnd> {
    if is_stated(walk) {
        return stepped;
    }
    if stepped.is_ok() && led_to_caller(walk, env) {
        return Ok(());
    }
    // Where the walk stopped.
    walk.registers.pc = walk.left_pc;
    Err(WalkEnd::NoRow)
}

/// True where the mapping is marked as code with frame pointers.
#[inline(always)]
fn is_stated(walk: &Walk) -> bool {
    walk.mapping.flags & executable_flag::FRAME_POINTERS != 0
}

/// True when what the step led to is a caller.
#[inline(always)]
fn led_to_caller<E: Memory + Tables>(walk: &mut Walk, env: &E) -> bool {
    let outer = walk.registers.frame_pointer().unwrap_or(0);
    if outer % 8 != 0 || outer <= walk.left_fp {
        return false;
    }
    let pc = walk.registers.lookup_pc();
    // It is looked for in any case, by the next step.
    pc >= walk.mapping.begin && pc < walk.mapping.end || env.find_mapping(walk, pc).is_ok()
}
