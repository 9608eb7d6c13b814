//! Site numbers: which are in use, for which file, and when one can be reused.
//!
//! Owns: the numbers, and how many each user has. Because: records carry them, and records of a detached probe are
//! still in flight for a while. Does not: write the kernel's table (`site_table`).

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use deepctx_common::call::SITES_MAX;
use deepctx_symbolizer::shares::Shares;

use super::files::FileId;

/// How much of what stays free one user may hold: alone half of all. Less than of other tables, since each probe also
/// costs time at the end of a capture: the kernel removes probes one by one.
const SHARE_MULTIPLE: usize = 1;
/// How long a number rests: twice as long as symbolization of one file may keep samples waiting.
pub(super) const REST_NS: u64 = 20_000_000_000;

/// Resting numbers of one user.
#[derive(Debug)]
struct RestingNumbers {
    since_ns: u64,
    account: u32,
    numbers: Vec<u32>,
}

/// Requests that were refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RefusedSites {
    /// Because all numbers are in use, or the kernel refused the site.
    pub(super) left_out: u64,
    /// Because their user has most of the numbers.
    pub(super) over_share: u64,
}

/// The numbers.
#[derive(Debug)]
pub(super) struct SiteNumbers {
    /// All numbers ever used are below it.
    used: Arc<AtomicU32>,
    free: Vec<u32>,
    held: HashMap<FileId, (u32, Vec<u32>)>,
    /// Oldest first.
    resting: VecDeque<RestingNumbers>,
    shares: Shares,
    refused: RefusedSites,
}

impl SiteNumbers {
    /// All are free. `used` is raised to the numbers ever used.
    pub(super) fn new(used: Arc<AtomicU32>) -> Self {
        Self {
            used,
            free: Vec::new(),
            held: HashMap::new(),
            resting: VecDeque::new(),
            shares: Shares::new(SITES_MAX as usize, SHARE_MULTIPLE),
            refused: RefusedSites::default(),
        }
    }

    /// A number for a probe of a file charged to this user; `None` if all are in use, or most of them by this user.
    pub(super) fn take(&mut self, file: FileId, account: u32) -> Option<u32> {
        let used = self.used.load(Ordering::Relaxed);
        if self.free.is_empty() && used >= SITES_MAX {
            self.refused.left_out += 1;
            return None;
        }
        if !self.shares.may_have(account, 1) {
            self.refused.over_share += 1;
            return None;
        }
        let number = self.free.pop().unwrap_or_else(|| {
            self.used.store(used + 1, Ordering::Relaxed);
            used
        });
        self.shares.charge(account, 1);
        self.held.entry(file).or_insert_with(|| (account, Vec::new())).1.push(number);
        Some(number)
    }

    /// Whether a file has any.
    pub(super) fn has(&self, file: FileId) -> bool {
        self.held.contains_key(&file)
    }

    /// The probes of a file are gone. Its numbers count as used until they have rested.
    pub(super) fn give(&mut self, file: FileId, now_ns: u64) -> Vec<u32> {
        let Some((account, numbers)) = self.held.remove(&file) else { return Vec::new() };
        self.resting.push_back(RestingNumbers { since_ns: now_ns, account, numbers: numbers.clone() });
        numbers
    }

    /// The numbers that have rested; they are free from now on.
    pub(super) fn settle(&mut self, now_ns: u64) -> Vec<u32> {
        let mut settled = Vec::new();
        while let Some(RestingNumbers { account, numbers, .. }) =
            self.resting.pop_front_if(|resting| resting.since_ns.saturating_add(REST_NS) <= now_ns)
        {
            self.shares.give(account, numbers.len());
            settled.extend(numbers);
        }
        self.free.extend_from_slice(&settled);
        settled
    }

    /// Requests that were refused.
    pub(super) fn refused(&self) -> RefusedSites {
        self.refused
    }

    /// Sets the counts of refused requests.
    pub(super) fn set_refused(&mut self, counted: RefusedSites) {
        self.refused = counted;
    }

    /// Counts a probe that is left out for another reason.
    pub(super) fn leave_out(&mut self) {
        self.refused.left_out += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers() -> SiteNumbers {
        SiteNumbers::new(Arc::default())
    }

    /// Takes until refused.
    fn greedy(numbers: &mut SiteNumbers, file: u64, account: u32) -> usize {
        (0..).take_while(|_| numbers.take(FileId(file), account).is_some()).count()
    }

    #[test]
    fn numbers_that_have_rested_are_used_again() {
        let mut numbers = numbers();
        let first = greedy(&mut numbers, 1, 1000);
        assert_eq!(first, SITES_MAX as usize / 2);
        let given = numbers.give(FileId(1), 5);
        assert_eq!(given.len(), first);
        assert!(numbers.settle(4 + REST_NS).is_empty());
        assert_eq!(numbers.take(FileId(2), 1000), None, "giving back at once is no way to have more");
        assert_eq!(numbers.settle(5 + REST_NS), given);
        assert_eq!(greedy(&mut numbers, 2, 1000), first);
        assert!(!numbers.has(FileId(1)) && numbers.has(FileId(2)));
    }

    #[test]
    fn a_week_of_files_leaves_as_much_room_as_one() {
        let mut numbers = numbers();
        for file in 0..100_000u64 {
            let now_ns = file * REST_NS / 100;
            numbers.settle(now_ns);
            for _ in 0..50 {
                assert!(numbers.take(FileId(file), 1000).is_some(), "file {file}: {numbers:?}");
            }
            numbers.give(FileId(file), now_ns);
        }
        assert_eq!(numbers.refused(), RefusedSites::default());
        assert!(numbers.used.load(Ordering::Relaxed) <= 101 * 50, "{:?}", numbers.used);
    }

    #[test]
    fn who_comes_late_finds_a_number() {
        let mut numbers = numbers();
        let shares: Vec<usize> =
            (1000..1003).map(|user| greedy(&mut numbers, u64::from(user), user)).collect();
        assert!(shares.iter().all(|share| *share > 100), "{shares:?}");
        assert_eq!(numbers.refused(), RefusedSites { left_out: 0, over_share: 3 });
        assert!(greedy(&mut numbers, 1, 0) > 0, "root has what is left");
        assert_eq!(numbers.refused().left_out, 1);
    }
}
