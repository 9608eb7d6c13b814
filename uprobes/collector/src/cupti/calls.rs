//! Calls of CUPTI: tables of functions, and what they answer.
//!
//! Owns: how a function is found and called. Because: all of them are C functions that return a number, of which 0 is
//! success. Does not: know what any of them does.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

/// `CUptiResult`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Error(pub(crate) i32);

impl Error {
    /// No CUPTI was found. Not one of CUPTI's own codes.
    pub(crate) const ABSENT: Self = Self(-1);
    /// A required function is missing. Not one of CUPTI's own codes.
    pub(crate) const INCOMPLETE: Self = Self(-2);
    pub(crate) const MULTIPLE_SUBSCRIBERS: Self = Self(39);
}

macro_rules! functions {
    ($(#[$meta:meta])* $name:ident { $($field:ident: $symbol:literal fn($($argument:ty),*);)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy)]
        struct $name { $($field: extern "C" fn($($argument),*) -> i32,)* }

        impl $name {
            /// Loads all functions; `None` when one is missing.
            fn load(library: NonNull<c_void>) -> Option<Self> {
                Some(Self { $($field: {
                    let address = symbol(library, $symbol)?;
                    // SAFETY: the symbol of this name has this type in every CUPTI.
                    unsafe {
                        std::mem::transmute::<NonNull<c_void>, extern "C" fn($($argument),*) -> i32>(address)
                    }
                },)* })
            }
        }
    };
}
pub(super) use functions;

pub(super) fn symbol(library: NonNull<c_void>, name: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: the library is open, the name is NUL-terminated.
    NonNull::new(unsafe { libc::dlsym(library.as_ptr(), name.as_ptr()) })
}

/// Converts a result code.
pub(super) fn checked(result: i32) -> Result<(), Error> {
    if result == 0 { Ok(()) } else { Err(Error(result)) }
}
