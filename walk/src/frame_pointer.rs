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
use crate::unwind_row;

/// Most bytes from the stack pointer to the frame pointer: V8's frames, the largest seen, have some hundreds.
const FRAME_BYTES_MAX: u64 = 1 << 16;

/// Steps to the caller by the frame pointer.
#[inline(always)]
pub(crate) fn step<E: Memory + Tables>(walk: &mut Walk, env: &E) -> Result<(), WalkEnd> {
    // The only field that this kind uses.
    walk.rule.cfa = rule_kind::FRAME_POINTER;
    if walk.mapping.flags & executable_flag::FRAME_POINTERS != 0 {
        let Walk { registers, rule, .. } = walk;
        return unwind_row::step(registers, rule, env);
    }
    let pc = walk.registers.pc;
    if checked(walk, env) {
        return Ok(());
    }
    // Where the walk stopped.
    walk.registers.pc = pc;
    Err(WalkEnd::NoRow)
}

/// True when what the step led to is a caller. Leaves the registers as the step made them.
#[inline(always)]
fn checked<E: Memory + Tables>(walk: &mut Walk, env: &E) -> bool {
    let sp = walk.registers.sp;
    let Some(fp) = walk.registers.frame_pointer() else { return false };
    if fp % 8 != 0 || fp.wrapping_sub(sp) > FRAME_BYTES_MAX {
        return false;
    }
    let Walk { registers, rule, .. } = walk;
    if unwind_row::step(registers, rule, env).is_err() {
        return false;
    }
    let outer = registers.frame_pointer().unwrap_or(0);
    if outer % 8 != 0 || outer <= fp {
        return false;
    }
    let pc = registers.lookup_pc();
    // It is looked for in any case, by the next step.
    pc >= walk.mapping.begin && pc < walk.mapping.end || env.find_mapping(walk, pc).is_ok()
}
