//! Words: map values as the 8-byte words that the kernel's verifier follows best.

use deepctx_common::Plain;

/// Copies a map value word by word. A plain assignment becomes a call of `memmove`, byte by byte: this target has no
/// cheap one, and the verifier follows each byte.
#[inline(always)]
pub fn copy<T: Plain>(to: &mut T, from: &T) {
    const { assert!(size_of::<T>().is_multiple_of(8)) };
    let (to, from) = (&raw mut *to, &raw const *from);
    for i in 0..size_of::<T>() / 8 {
        // SAFETY: within both values, which stand at multiples of 8: map values do, and so do the fields of a walk
        // (asserted in `walk`). Volatile keeps the loop from being recognised as a copy.
        unsafe { to.cast::<u64>().add(i).write_volatile(from.cast::<u64>().add(i).read_volatile()) };
    }
}

/// Sets a value to zeros, word by word; see [`copy`].
#[inline(always)]
pub fn clear<T: Plain>(value: &mut T) {
    const { assert!(size_of::<T>().is_multiple_of(8)) };
    let value = &raw mut *value;
    for i in 0..size_of::<T>() / 8 {
        // SAFETY: as in `copy`; all zeros is a value of every Plain type.
        unsafe { value.cast::<u64>().add(i).write_volatile(0) };
    }
}
