//! Memory use: bytes held by each part of the profiler, by name.
//!
//! Owns: [`MemoryUse`], and the sizes of collections. Because: users who ask why the profiler takes so much memory get
//! the parts, not only a sum, and parts of several crates stand in one table. Does not: measure the process.

/// Bytes held by one part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// Name of the part, as shown to users.
    pub by: &'static str,
    /// Bytes.
    pub bytes: u64,
}

impl MemoryUse {
    /// `bytes` bytes, held by this part.
    pub const fn new(by: &'static str, bytes: usize) -> Self {
        Self { by, bytes: bytes as u64 }
    }
}

/// Size in bytes of the standard library's hash table with room for `capacity` entries of `entry` bytes: a power of two
/// of buckets, an eighth of which stay free, with one control byte each (`hashbrown`, `capacity_to_buckets`).
pub const fn table_bytes(capacity: usize, entry: usize) -> usize {
    let places = if capacity == 0 { 0 } else { (capacity + capacity / 7).next_power_of_two() };
    places * (entry + 1)
}

/// Size in bytes of a shared text: two reference counts before it, and the allocator's overhead per block.
pub const fn shared_text_bytes(length: usize) -> usize {
    (2 * size_of::<usize>() + length + ALLOCATED_BESIDE).next_multiple_of(2 * size_of::<usize>())
}

/// Overhead of the C library's allocator per block of memory.
const ALLOCATED_BESIDE: usize = size_of::<usize>();

#[cfg(test)]
mod tests {
    extern crate std;

    use std::collections::HashMap;

    use super::table_bytes;

    #[test]
    fn a_table_is_as_large_as_its_capacity_says() {
        for (entries, expect) in [(0, 0), (14, 16 * 13), (28, 32 * 13), (29, 64 * 13), (1000, 2048 * 13)] {
            let table = HashMap::<u32, u64>::with_capacity(entries);
            assert_eq!(table_bytes(table.capacity(), 12), expect, "{entries} entries");
        }
    }
}
