//! Words: access to map values as 8-byte words, which the kernel's verifier handles best.

use deepctx_common::Plain;

/// Copies a map value word by word. A plain assignment becomes a call of `memmove` that copies byte by byte: this
/// target has no cheap one, and the verifier follows each byte.
#[inline(always)]
pub fn copy<T: Plain>(to: &mut T, from: &T) {
    const { assert!(size_of::<T>().is_multiple_of(8)) };
    let (to, from) = (&raw mut *to, &raw const *from);
    for i in 0..size_of::<T>() / 8 {
        // SAFETY: within both values, which are 8-byte aligned: map values are, and so are the fields of a walk
        // (asserted in `walk::scratch`). Volatile keeps the compiler from turning the loop into a copy.
        unsafe { to.cast::<u64>().add(i).write_volatile(from.cast::<u64>().add(i).read_volatile()) };
    }
}

/// Zeroes a value word by word; see [`copy`].
#[inline(always)]
pub fn clear<T: Plain>(value: &mut T) {
    const { assert!(size_of::<T>().is_multiple_of(8)) };
    let value = &raw mut *value;
    for i in 0..size_of::<T>() / 8 {
        // SAFETY: as in `copy`; all zeros is a valid value of every Plain type.
        unsafe { value.cast::<u64>().add(i).write_volatile(0) };
    }
}
