//! Memory table: which parts hold the profiler's memory.
//!
//! Owns: the rows that no part accounts for, so that the rows add up to the memory of the process. Because: a total
//! alone does not say what to do about it. Does not: measure, or know the parts.

use deepctx_capture::cost::ResidentMemory;
use deepctx_common::memory::MemoryUse;
use deepctx_profile::order::SortRows as _;

/// Pages of files: the program itself, its libraries, and what the kernel shares.
const FILES: &str = "program and libraries";
/// Memory allocated by parts that do not account for it.
const OTHER: &str = "other";
/// The rest of the process's own pages.
const UNUSED: &str = "stacks of threads, and free in the allocator";

/// All memory of the process, largest first: the kernel's maps, and what is resident `here`.
pub(crate) fn by_owner(maps: &[MemoryUse], here: Vec<MemoryUse>, resident: ResidentMemory) -> Vec<MemoryUse> {
    let accounted: u64 = here.iter().map(|held| held.bytes).sum();
    let mut rows: Vec<MemoryUse> = maps.to_vec();
    rows.push(MemoryUse { by: FILES, bytes: resident.files });
    rows.extend(here);
    // Allocated memory need not have been touched yet: then parts hold more than is resident, and there is no rest.
    rows.push(MemoryUse { by: OTHER, bytes: resident.allocated.saturating_sub(accounted) });
    let held = accounted.max(resident.allocated);
    rows.push(MemoryUse { by: UNUSED, bytes: resident.anonymous.saturating_sub(held) });
    rows.retain(|held| held.bytes > 0);
    rows.sort_rows_by_key(|held| std::cmp::Reverse(held.bytes));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: [MemoryUse; 2] =
        [MemoryUse::new("kernel: unwind rows", 17), MemoryUse::new("kernel: ring buffer", 4)];

    fn check(here: &[MemoryUse], resident: ResidentMemory, expect: &[(&str, u64)]) {
        let rows = by_owner(&MAPS, here.to_vec(), resident);
        let rows: Vec<_> = rows.iter().map(|held| (held.by, held.bytes)).collect();
        assert_eq!(rows, expect);
    }

    #[test]
    fn rows_add_up_to_what_is_resident_and_locked() {
        let here = [MemoryUse::new("names", 3), MemoryUse::new("frames", 5), MemoryUse::new("timeline", 0)];
        let resident = ResidentMemory { files: 16, anonymous: 20, allocated: 10 };
        let rows = [
            ("kernel: unwind rows", 17),
            (FILES, 16),
            (UNUSED, 10),
            ("frames", 5),
            ("kernel: ring buffer", 4),
            ("names", 3),
            (OTHER, 2),
        ];
        check(&here, resident, &rows);
        assert_eq!(rows.iter().map(|(_, bytes)| bytes).sum::<u64>(), 16 + 20 + 17 + 4);
    }

    #[test]
    fn room_that_was_not_touched_leaves_no_rest() {
        let resident = ResidentMemory { files: 0, anonymous: 4, allocated: 5 };
        check(
            &[MemoryUse::new("names", 7)],
            resident,
            &[("kernel: unwind rows", 17), ("names", 7), ("kernel: ring buffer", 4)],
        );
    }
}
