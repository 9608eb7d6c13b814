//! The object on which a function was called.
//!
//! Owns: reading the first argument of a Python frame, and the type of that object. Because: all layers of a model run
//! the same functions, and only the object distinguishes them. Does not: select the function: [`Walk::called`] does.

use deepctx_common::python::LOCAL_TAGS;
use deepctx_common::record::word;

use crate::memory::Memory;
use crate::state::Walk;
use crate::words::Words;

/// Emits the object on which the function of the frame at `at` was called. An unreadable object is not reported.
#[inline(always)]
pub(crate) fn push_object<E: Memory, W: Words>(walk: &mut Walk, words: &mut W, env: &E, at: u64) {
    let called = walk.called;
    let local = env.read_u64(at.wrapping_add(u64::from(called.frame_locals))).unwrap_or(0);
    let object = local & !LOCAL_TAGS;
    let of_type = env.read_u64(object.wrapping_add(u64::from(called.object_type))).unwrap_or(0);
    if of_type != 0 && walk.push(words, word::tagged(word::OBJECT, object)) {
        walk.push(words, of_type);
    }
}
