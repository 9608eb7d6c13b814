//! The beginning of a thread's chain of Python frames.
//!
//! Owns: finding the head of the frame chain from the thread pointer. Because: evaluation frames and generated code
//! both need it. Does not: read frames.

use deepctx_common::end::PythonEnd;

use crate::memory::Memory;
use crate::python;
use crate::state::{Tables, Walk};

/// Continues the walk on this chain.
#[inline(always)]
pub(crate) fn hang(walk: &mut Walk, chain: python::Chain) {
    walk.python_cursor = chain.frame;
    walk.cframe = chain.cframe;
    walk.outer = chain.outer;
}

/// Finds the innermost Python frame of the thread.
#[inline(always)]
pub(crate) fn start_python<E: Memory + Tables>(walk: &mut Walk, env: &E) -> Result<(), PythonEnd> {
    if !env.find_layout(walk) {
        return Err(PythonEnd::NotPython);
    }
    let state = python::thread_state(env, walk.thread_pointer, &walk.process.python, &walk.layout);
    if state == 0 {
        return Err(PythonEnd::NoThreadState);
    }
    if !python::belongs_to_thread(env, state, walk.thread_pointer, &walk.layout) {
        return Err(PythonEnd::ThreadStateMismatch);
    }
    start_chain(walk, env, state).ok_or(PythonEnd::Unreadable)
}

#[inline(always)]
fn start_chain<E: Memory>(walk: &mut Walk, env: &E, state: u64) -> Option<()> {
    let chain = python::chain(env, state, &walk.layout)?;
    walk.state = state;
    hang(walk, chain);
    Some(())
}

/// Continues with the frames of the thread's bound state after those of a sub-interpreter, if that state is known.
#[inline(always)]
pub(crate) fn other_state<E: Memory>(walk: &mut Walk, env: &E) {
    if walk.other_tried != 0 || walk.state == 0 {
        return;
    }
    walk.other_tried = 1;
    let state = python::bound_state(env, walk.thread_pointer, &walk.process.python);
    if state != 0
        && state != walk.state
        && python::belongs_to_thread(env, state, walk.thread_pointer, &walk.layout)
    {
        // An unreadable state counts as no state.
        let _ = start_chain(walk, env, state);
    }
}
