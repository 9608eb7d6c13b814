//! The dynamic linker.
//!
//! Owns: opening libraries and looking up symbols. Because: the libraries find each other at run time. Does not: keep
//! anything open but what it was asked for.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

/// An open library, never closed.
#[derive(Clone, Copy)]
pub(crate) struct Library(NonNull<c_void>);

// SAFETY: handles of the dynamic linker may be used by any thread.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

impl Library {
    /// Opens by name or path.
    pub(crate) fn open(name: &CStr) -> Option<Self> {
        // SAFETY: a NUL-terminated string; constructors of the library run, as its user expects.
        NonNull::new(unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) }).map(Self)
    }

    /// The library that contains this address.
    pub(crate) fn of(address: *const c_void) -> Option<Self> {
        Self::open(path_of(address)?)
    }

    /// Address of an exported symbol.
    pub(crate) fn symbol(self, name: &CStr) -> Option<usize> {
        // SAFETY: the handle is open, the string NUL-terminated.
        let address = unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) };
        (!address.is_null()).then(|| address.expose_provenance())
    }
}

/// File of the library that contains an address.
pub(crate) fn path_of(address: *const c_void) -> Option<&'static CStr> {
    // SAFETY: all zeroes are a valid value; `dladdr` fills it in.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: `dladdr` accepts any address.
    if unsafe { libc::dladdr(address, &raw mut info) } == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the linker's own string, which lives as long as the library.
    Some(unsafe { CStr::from_ptr(info.dli_fname) })
}
