//! Helpers: which thread hands work to which.
//!
//! Owns: [`Process`]. Because: each thread that starts parallel regions has its own helpers for as long as it lives,
//! and a helper's stack does not name that thread. Does not: know contexts.
//!
//! A helper runs the function that its thread handed out last. If only one thread of the process handed out that
//! function last, it is that one. Two regions that agree settle the question, since a region may have begun before
//! the probes were attached. Functions are identified by their start: the last start at or before the code that runs.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use crate::scopes::ScopeId;

/// Threads of a process with state, and functions that it hands out: far more than programs have.
const MOST: usize = 1 << 14;

/// The function that a thread handed out last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PublishedFunction {
    /// The context; `None` if unknown.
    pub(super) listed: Option<ScopeId>,
    /// Where the function begins.
    pub(super) function: u64,
    /// When, `CLOCK_MONOTONIC` nanoseconds.
    pub(super) since_ns: u64,
}

/// The thread that a helper works for, as far as known.
#[derive(Clone, Copy, Debug)]
struct Helper {
    by: u32,
    /// The work that first showed it.
    since_ns: u64,
    is_settled: bool,
}

/// The parallel regions of a process, by thread id.
#[derive(Debug, Default)]
pub(super) struct Process {
    handed: FxHashMap<u32, PublishedFunction>,
    functions: BTreeSet<u64>,
    helpers: FxHashMap<u32, Helper>,
}

impl Process {
    /// A function is handed out.
    pub(super) fn record(&mut self, function: u64) {
        if self.functions.len() >= MOST && !self.functions.contains(&function) {
            *self = Self::default();
        }
        self.functions.insert(function);
    }

    /// Handed out functions are not watched for a while, or are too many. Functions stay where they are.
    pub(super) fn forget(&mut self) {
        self.handed.clear();
        self.helpers.clear();
    }

    /// A thread hands out work that helpers may take part in.
    pub(super) fn hands_out(&mut self, tid: u32, handed: PublishedFunction) {
        if self.handed.len() >= MOST && !self.handed.contains_key(&tid) {
            self.forget();
        }
        self.handed.insert(tid, handed);
    }

    /// The work last handed to a helper, once its master thread is settled.
    #[inline]
    pub(super) fn handed_to(&self, tid: u32) -> Option<PublishedFunction> {
        let helper = self.helpers.get(&tid).filter(|helper| helper.is_settled)?;
        self.handed.get(&helper.by).copied()
    }

    /// The function that contains this address.
    pub(super) fn function_at(&self, code: u64) -> Option<u64> {
        self.functions.range(..=code).next_back().copied()
    }

    /// A helper was seen at work at this address, at a time in `CLOCK_MONOTONIC` nanoseconds.
    pub(super) fn works(&mut self, tid: u32, code: u64, time_ns: u64) {
        let Some(function) = self.function_at(code) else { return };
        // Its stack took time to resolve; work handed out before then is forgotten.
        if self.handed.values().any(|handed| handed.since_ns > time_ns) {
            return;
        }
        if self.helpers.get(&tid).is_some_and(|helper| helper.is_settled) {
            if self.handed_to(tid).is_none_or(|handed| handed.function != function) {
                self.helpers.remove(&tid);
            }
            return;
        }
        let mut by = self.handed.iter().filter(|(by, handed)| **by != tid && handed.function == function);
        let (Some((&by, handed)), None) = (by.next(), by.next()) else { return };
        if self.helpers.len() >= MOST && !self.helpers.contains_key(&tid) {
            self.helpers.clear();
        }
        let since_ns = handed.since_ns;
        let first = Helper { by, since_ns, is_settled: false };
        let helper = self.helpers.entry(tid).or_insert(first);
        if helper.by != by {
            *helper = first;
        }
        helper.is_settled = helper.since_ns != since_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARED: u64 = 0x3000;

    fn handed(function: u64, since_ns: u64) -> PublishedFunction {
        PublishedFunction { listed: None, function, since_ns }
    }

    /// A helper is seen at these addresses, each after these threads handed out these functions; the thread that it
    /// settles on.
    fn check(works: &[(&[(u32, u64)], u64)], expect: Option<u64>) {
        let (mut process, mut now_ns) = (Process::default(), 0);
        for (before, code) in works {
            for (tid, function) in *before {
                now_ns += 1;
                process.record(*function);
                process.hands_out(*tid, handed(*function, now_ns));
            }
            process.works(9, *code, now_ns);
        }
        assert_eq!(process.handed_to(9).map(|handed| handed.function), expect, "{works:?}");
    }

    #[test]
    fn two_works_that_agree_settle_for_whom_a_helper_works() {
        check(&[(&[(1, 0x1000)], 0x1010), (&[(1, 0x2000)], 0x2010)], Some(0x2000));
        // The same work seen twice may have been handed out before.
        check(&[(&[(1, 0x1000)], 0x1010), (&[], 0x1020)], None);
        check(&[(&[(1, 0x1000)], 0x1010), (&[(1, 0x1000)], 0x1010)], Some(0x1000));
    }

    #[test]
    fn what_two_threads_handed_out_tells_nothing() {
        check(&[(&[(1, SHARED), (2, SHARED)], SHARED), (&[(1, SHARED), (2, SHARED)], SHARED)], None);
        // Later works distinguish them.
        check(
            &[
                (&[(1, SHARED), (2, SHARED)], SHARED),
                (&[(2, 0x1000)], 0x1004),
                (&[(2, 0x2000), (1, 0x1000)], 0x2004),
            ],
            Some(0x2000),
        );
    }

    #[test]
    fn a_work_that_is_told_after_later_ones_tells_nothing() {
        let mut process = Process::default();
        process.record(0x1000);
        process.hands_out(1, handed(0x1000, 10));
        process.works(9, 0x1010, 9);
        process.hands_out(1, handed(0x1000, 20));
        process.works(9, 0x1010, 20);
        assert_eq!(process.handed_to(9), None);
        process.hands_out(1, handed(0x1000, 30));
        process.works(9, 0x1010, 31);
        process.hands_out(1, handed(0x2000, 40));
        process.works(9, 0x1010, 32);
        assert_eq!(process.handed_to(9), Some(handed(0x2000, 40)));
    }

    #[test]
    fn full_tables_keep_what_is_handed_out_again() {
        let mut process = Process::default();
        (1..=MOST as u64).for_each(|function| process.record(function));
        (1..=MOST as u32).for_each(|tid| process.hands_out(tid, handed(u64::from(tid), 1)));
        process.record(7);
        process.hands_out(7, handed(7, 2));
        assert_eq!((process.functions.len(), process.handed.len()), (MOST, MOST));
        // Another thread's work needs its function.
        process.hands_out(MOST as u32 + 1, handed(7, 3));
        assert_eq!((process.function_at(7), process.handed.len()), (Some(7), 1));
    }

    #[test]
    fn works_that_disagree_settle_nothing() {
        check(&[(&[(1, 0x1000), (2, 0x2000)], 0x1010), (&[(1, 0x1000)], 0x2010)], None);
        // Settled, and then seen at work that its thread did not hand out.
        check(&[(&[(1, 0x1000)], 0x1010), (&[(1, 0x2000)], 0x2010), (&[(2, SHARED)], SHARED)], None);
        check(&[(&[(1, 0x1000)], 0x10)], None);
    }
}
