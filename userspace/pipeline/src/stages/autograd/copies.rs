//! Framework copies: from when on no backward pass of a process can be missed.
//!
//! Owns: the copies of the framework seen in each process, and from when on all probes of each copy are attached.
//! Because: a stack without autograd nodes is conclusive only if a node that began before it would have been seen.
//! Does not: attach probes; it relies on the order in which they are attached.
//!
//! The probe at the start of a backward pass is attached last in each file. Once it fires, all others are attached.

use rustc_hash::FxHashMap;

use super::THREADS_MAX;

/// A copy of the framework's library. Two copies in one process number threads and nodes independently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct CopyId(pub(super) u32);

/// The copies by process.
#[derive(Debug, Default)]
pub(super) struct FrameworkCopies {
    /// Each with the time, `CLOCK_MONOTONIC` nanoseconds, since when all of its probes are attached, if known. At most
    /// as many copies as files with such probes.
    processes: FxHashMap<u32, Vec<(CopyId, Option<u64>)>>,
}

impl FrameworkCopies {
    /// A process reported something of a copy. True if this is the copy's first report, but not the process's: earlier
    /// conclusions did not consider this copy.
    pub(super) fn record(&mut self, pid: u32, copy: CopyId) -> bool {
        if self.processes.len() >= THREADS_MAX && !self.processes.contains_key(&pid) {
            return false;
        }
        let copies = self.processes.entry(pid).or_default();
        if copies.iter().any(|(known, _)| *known == copy) {
            return false;
        }
        copies.push((copy, None));
        copies.len() > 1
    }

    /// A backward pass of a copy begins at this time.
    pub(super) fn passes(&mut self, pid: u32, copy: CopyId, now_ns: u64) {
        let copies = self.processes.get_mut(&pid);
        if let Some((_, since)) =
            copies.and_then(|copies| copies.iter_mut().find(|(known, _)| *known == copy))
        {
            since.get_or_insert(now_ns);
        }
    }

    /// Since when all probes of a process are attached; `None` while unknown.
    pub(super) fn since(&self, pid: u32) -> Option<u64> {
        let copies = self.processes.get(&pid)?;
        copies.iter().try_fold(0, |latest: u64, (_, since)| since.map(|since| latest.max(since)))
    }

    /// The process runs another program from now on.
    pub(super) fn forget(&mut self, pid: u32) {
        self.processes.remove(&pid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_is_covered_once_each_torch_copy_began_a_pass() {
        let mut copies = FrameworkCopies::default();
        let (one, other) = (CopyId(0), CopyId(1));
        assert_eq!(copies.since(7), None);
        assert!(!copies.record(7, one));
        assert_eq!(copies.since(7), None);
        copies.passes(7, one, 10);
        copies.passes(7, one, 20);
        assert_eq!(copies.since(7), Some(10));
        // Another copy reports something: nothing is certain until its last probe has.
        assert!(copies.record(7, other));
        assert!(!copies.record(7, other));
        assert_eq!(copies.since(7), None);
        copies.passes(7, other, 30);
        assert_eq!((copies.since(7), copies.since(8)), (Some(30), None));
        copies.forget(7);
        assert_eq!(copies.since(7), None);
    }
}
