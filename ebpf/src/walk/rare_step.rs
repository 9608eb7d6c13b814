//! The step by a rare kind of rule.
//!
//! Owns: that step as a function of its own. Because: inlined among the other kinds of step, it makes kernels before
//! 6.3 find a stack slot that is read but not written on every path, and reject the program. Does not: know the meaning
//! of such a rule ([`unwind_row::rare_step`]).

use deepctx_common::end::WalkEnd;
use deepctx_walk::interleave::Walk;
use deepctx_walk::unwind_row;

use super::memory::DirectMemory;

const STEPPED: u32 = u32::MAX;

/// Steps to the caller.
#[inline(always)]
pub(super) fn step(walk: &mut Walk) -> Result<(), WalkEnd> {
    match rare_step(walk) {
        STEPPED => Ok(()),
        n if n == WalkEnd::NullPc as u32 => Err(WalkEnd::NullPc),
        n if n == WalkEnd::NoOtherStack as u32 => Err(WalkEnd::NoOtherStack),
        n if n == WalkEnd::RegisterUnknown as u32 => Err(WalkEnd::RegisterUnknown),
        n if n == WalkEnd::StackUnreadable as u32 => Err(WalkEnd::StackUnreadable),
        _ => Err(WalkEnd::UnsupportedRule),
    }
}

/// Returns [`STEPPED`], or the [`WalkEnd`]. A function of its own, so that the kernel verifies it once.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn rare_step(walk: *mut Walk) -> u32 {
    if walk.is_null() {
        return WalkEnd::UnsupportedRule as u32;
    }
    // SAFETY: the caller passes the walk of a claimed slot.
    let Walk { registers, rule, .. } = unsafe { &mut *walk };
    match unwind_row::rare_step(registers, rule, &DirectMemory) {
        Ok(()) => STEPPED,
        Err(end) => end as u32,
    }
}
