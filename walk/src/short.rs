//! The short walk: native frames for the sake of operators alone.
//!
//! Owns: where such a walk leaves native frames, and what it says of those that it leaves out. Because: operators that
//! run now stand between the leaf and the first evaluation of Python; all Python frames are found from there on by the
//! interpreter's own chain, and the native frames between and below them (most of a deep stack's) cost a step each to
//! say nothing more. Does not: leave out what it cannot do without: where the chain is unknown, native frames are
//! walked as ever.
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
//! Since 3.11 the chain shows where one evaluation ends and the next one out begins: there stands the gap. Before, each
//! function has an evaluation of its own, and no gap is reported but that of the whole stack ([`WalkEnd::LeftOut`]).

use deepctx_common::end::WalkEnd;
use deepctx_common::python::entry_rule;
use deepctx_common::record::word;

use crate::state::{Walk, phase};
use crate::words::Words;

pub use crate::state::short as state;

/// The run of the evaluation at hand is over: goes on in the interpreter's chain, if that is all that is wanted.
#[inline(always)]
pub(crate) fn goes_on_in_chain(walk: &mut Walk) -> bool {
    // Without a chain, native frames are all there is; and the evaluation that its beginning hangs on is found by them.
    if walk.short == state::WHOLE || walk.state == 0 || walk.cframe_depth != 0 {
        return false;
    }
    walk.short = state::LEFT_OUT;
    walk.begin_run();
    walk.phase = phase::PYTHON_REST;
    true
}

/// The chain may go on in that of another thread state (up to 3.11).
#[inline(always)]
pub(crate) fn may_go_on(walk: &Walk) -> bool {
    walk.short >= state::IN_CHAIN && walk.layout.entry_rule != entry_rule::SENTINEL
}

/// The last frame of an evaluation was read, or frames were taken back and with them, perhaps, what stood before them.
#[inline(always)]
pub(crate) fn left_evaluation(walk: &mut Walk) {
    if walk.short == state::IN_CHAIN {
        walk.short = state::LEFT_OUT;
    }
}

/// A Python frame comes next: says what was left out before it.
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
