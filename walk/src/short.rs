//! The short walk: native frames only as far as operators need them.
//!
//! Owns: where such a walk stops walking native frames, and how it reports the omission. Because: operators that run
//! now are between the leaf and the first Python evaluation frame. From there on the interpreter's own chain gives all
//! Python frames; the native frames between and below them, most of a deep stack, would cost a step each without adding
//! information. Does not: omit frames that it needs: if the chain is unknown, native frames are walked as usual.
//!
//! ```text
//!  native, leaf first                        Python, innermost first
//!   at::native::addmm
//!   at::_ops::addmm::call   ◀── operators
//!   THPVariable_addmm
//!   _PyEval_EvalFrameDefault   ◀──────────    inner()   outer()*     * entry frame
//!  ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─       GAP: left out
//!   PyObject_Call, at::_ops::… (not seen)     callback()*
//! ```
//!
//! Since 3.11 the chain shows where one evaluation ends and the next one out begins: the gap is placed there. Before
//! 3.11 each function has its own evaluation, and the only report is the end of the whole walk ([`WalkEnd::LeftOut`]).

use deepctx_common::end::WalkEnd;
use deepctx_common::python::entry_rule;
use deepctx_common::record::word;

use crate::state::{Walk, phase};
use crate::words::Words;

pub use crate::state::short as state;

/// Called at the end of the run of the current evaluation: continues on the interpreter's chain, if native frames are
/// not needed.
#[inline(always)]
pub(crate) fn goes_on_in_chain(walk: &mut Walk) -> bool {
    // Without a chain, native frames are all there is. With `cframe_depth` set, native frames locate the evaluation at
    // which the chain begins.
    if walk.short == state::WHOLE || walk.state == 0 || walk.cframe_depth != 0 {
        return false;
    }
    walk.short = state::LEFT_OUT;
    walk.begin_run();
    walk.phase = phase::PYTHON_REST;
    true
}

/// The chain may continue in that of another thread state (up to 3.11).
#[inline(always)]
pub(crate) fn may_go_on(walk: &Walk) -> bool {
    walk.short >= state::IN_CHAIN && walk.layout.entry_rule != entry_rule::SENTINEL
}

/// Called after the last frame of an evaluation was read, or after frames were discarded, perhaps together with the gap
/// before them.
#[inline(always)]
pub(crate) fn left_evaluation(walk: &mut Walk) {
    if walk.short == state::IN_CHAIN {
        walk.short = state::LEFT_OUT;
    }
}

/// Called before a Python frame is emitted: reports the native frames omitted before it.
#[inline(always)]
pub(crate) fn mark<W: Words>(walk: &mut Walk, words: &mut W) {
    if walk.short != state::LEFT_OUT {
        return;
    }
    walk.short = state::IN_CHAIN;
    walk.native_end = WalkEnd::LeftOut as u32;
    if walk.layout.entry_rule != entry_rule::ONE_PER_EVAL {
        walk.push(words, word::tagged(word::GAP, WalkEnd::LeftOut as u64));
    }
}
