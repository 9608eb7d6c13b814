//! Musl: a function that a linked library expects of glibc and musl lacks.
//!
//! Owns: [`rawmemchr`]. Because: libelf is linked as Debian builds it, for glibc, and this is its only function that
//! musl lacks. Does not: exist with glibc.

use std::ffi::{c_int, c_void};

/// The first such byte, which must exist.
///
/// # Safety
/// The bytes from `text` up to that one can be read.
#[unsafe(no_mangle)]
unsafe extern "C" fn rawmemchr(text: *const c_void, byte: c_int) -> *mut c_void {
    // SAFETY: it reads no further than the byte, which the caller says is there.
    unsafe { libc::memchr(text, byte, usize::MAX) }
}
