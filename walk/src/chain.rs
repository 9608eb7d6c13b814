//! Where the Python frames of a thread begin.
//!
//! Owns: the way from a thread to the head of its chain of frames. Because: evaluations and generated code ask for it
//! alike. Does not: read frames.

use deepctx_common::end::PythonEnd;

use crate::memory::Memory;
use crate::python;
use crate::state::{Tables, Walk};

/// Goes on with this chain.
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

/// Behind the frames of a sub-interpreter come those of the state that the thread had before, where that is known.
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
        // Unreadable, it is as if there were none.
        let _ = start_chain(walk, env, state);
    }
}
