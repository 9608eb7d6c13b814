//! `Plain`: types for which every bit pattern is a value, so that bytes may be read as them.
//!
//! Owns: the marker trait and the two conversions. Because: the only `unsafe` of this crate lives here.

/// A `repr(C)` type without meaningful padding, pointers, references or invalid bit patterns.
///
/// # Safety
/// The implementor guarantees `repr(C)`, `Copy`, no uninitialised padding bytes and no invalid bit patterns.
pub unsafe trait Plain: Copy + 'static {
    /// The value at the start of `bytes`, or `None` when there are too few bytes. Alignment is not required.
    fn read_from(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < size_of::<Self>() {
            return None;
        }
        // SAFETY: the length was checked, reads are unaligned, and every bit pattern is valid for a Plain type.
        Some(unsafe { bytes.as_ptr().cast::<Self>().read_unaligned() })
    }

    /// The value as bytes, for map keys and values.
    fn as_bytes(&self) -> &[u8] {
        // SAFETY: a Plain type has no uninitialised padding, so all of its bytes may be read.
        unsafe { core::slice::from_raw_parts(core::ptr::from_ref(self).cast::<u8>(), size_of::<Self>()) }
    }
}

// SAFETY: an array has no padding of its own.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}
// SAFETY: integers have no padding and no invalid patterns.
unsafe impl Plain for u32 {}
// SAFETY: as above.
unsafe impl Plain for u64 {}
