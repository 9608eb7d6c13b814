//! Refused: processes that the kernel programs got no unwind data of, when, and why.
//!
//! Owns: since when and until when each was refused, and how many are remembered. Because: kernel programs only see
//! that they do not know a process, and samples are resolved later than they are taken. Does not: decide who is
//! refused, or whether a sample lacks its stack for that reason.
//!
//! Refusals are learned of at once, and what ends them (mappings, an exec, an exit) only in its turn.

use deepctx_common::memory::{MemoryUse, table_bytes};
use deepctx_common::reason::Reason;
use deepctx_common::unwind::PROCESSES_MAX;
use deepctx_pipeline::input::{ProcessRefusal, RefusedProcess};
use rustc_hash::FxHashMap;

use super::reason::REFUSALS_FORGOTTEN;

/// Most processes that are remembered: as many as the kernel programs can know.
const REFUSED_MAX: usize = PROCESSES_MAX as usize;
/// How many are forgotten at once when there are more: removing them one by one would cost a search each.
const FORGOTTEN_AT_ONCE: usize = REFUSED_MAX / 8;

/// The processes that were refused last.
#[derive(Debug, Default)]
pub(super) struct RefusedProcesses {
    by_pid: FxHashMap<u32, RefusedPeriods>,
    forgotten: u64,
}

/// The last times in which a process was refused.
#[derive(Clone, Copy, Debug)]
struct RefusedPeriods {
    last: RefusedPeriod,
    /// The one before that: its samples may still come.
    before: Option<RefusedPeriod>,
}

/// When and why a process was refused, `CLOCK_MONOTONIC` nanoseconds.
#[derive(Clone, Copy, Debug)]
struct RefusedPeriod {
    since_ns: u64,
    /// The largest number while it lasts.
    until_ns: u64,
    /// When the process was last refused again.
    latest_ns: u64,
    refusal: ProcessRefusal,
}

impl RefusedPeriods {
    /// The process was refused again.
    fn add(&mut self, new: RefusedPeriod) {
        let last = &mut self.last;
        if new.since_ns < last.until_ns {
            // It goes on, or its end was learned of before this.
            last.refusal = new.refusal;
            last.latest_ns = last.latest_ns.max(new.since_ns);
        } else {
            *self = Self { last: new, before: Some(self.last) };
        }
    }
}

impl RefusedProcesses {
    /// A process was refused.
    pub(super) fn note(&mut self, refused: RefusedProcess) {
        let RefusedProcess { pid, since_ns, refusal } = refused;
        let period = RefusedPeriod { since_ns, until_ns: u64::MAX, latest_ns: since_ns, refusal };
        if let Some(periods) = self.by_pid.get_mut(&pid) {
            periods.add(period);
            return;
        }
        if self.by_pid.len() >= REFUSED_MAX {
            self.make_room();
        }
        self.by_pid.insert(pid, RefusedPeriods { last: period, before: None });
    }

    /// Counts refusals that are not remembered.
    pub(super) fn forgot(&mut self, count: u64) {
        // A raw capture may say any number.
        self.forgotten = self.forgotten.saturating_add(count);
    }

    /// Why a process was refused at a time; `None` if it was not.
    pub(super) fn at(&self, pid: u32, time_ns: u64) -> Option<ProcessRefusal> {
        let RefusedPeriods { last, before } = *self.by_pid.get(&pid)?;
        let mut periods = [Some(last), before].into_iter().flatten();
        let period = periods.find(|period| (period.since_ns..period.until_ns).contains(&time_ns))?;
        Some(period.refusal)
    }

    /// From this time on, a process has unwind data, runs another program, or is gone. It changes nothing if the
    /// process was refused again since.
    pub(super) fn ended(&mut self, pid: u32, time_ns: u64) {
        if let Some(RefusedPeriods { last, .. }) = self.by_pid.get_mut(&pid)
            && last.latest_ns <= time_ns
        {
            last.until_ns = last.until_ns.min(time_ns);
        }
    }

    /// Ends processes that do not exist: the records of their ends may be lost.
    pub(super) fn sweep(&mut self, exists: impl Fn(u32) -> bool, now_ns: u64) {
        for (pid, RefusedPeriods { last, .. }) in &mut self.by_pid {
            if last.until_ns > now_ns && !exists(*pid) {
                last.until_ns = now_ns;
            }
        }
    }

    /// Forgets those that no sample of this time or later can need.
    pub(super) fn retire(&mut self, before_ns: u64) {
        self.by_pid.retain(|_, periods| periods.last.until_ns > before_ns);
    }

    /// What is missing, and how often.
    pub(super) fn gap(&self) -> (&'static Reason, u64) {
        (REFUSALS_FORGOTTEN, self.forgotten)
    }

    /// What it holds in memory.
    pub(super) fn memory(&self) -> MemoryUse {
        let bytes = table_bytes(self.by_pid.capacity(), size_of::<(u32, RefusedPeriods)>());
        MemoryUse::new("processes without unwind data", bytes)
    }

    /// Forgets those that were refused first.
    fn make_room(&mut self) {
        let mut since: Vec<u64> = self.by_pid.values().map(|periods| periods.last.since_ns).collect();
        let (_, last, _) = since.select_nth_unstable(FORGOTTEN_AT_ONCE);
        let last_ns = *last;
        // Those that gave way together have the same time.
        let mut left = FORGOTTEN_AT_ONCE;
        self.by_pid.retain(|_, periods| {
            let is_kept = left == 0 || periods.last.since_ns > last_ns;
            left -= usize::from(!is_kept);
            is_kept
        });
        self.forgot((FORGOTTEN_AT_ONCE - left) as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(pid: u32, since_ns: u64, refusal: ProcessRefusal) -> RefusedProcess {
        RefusedProcess { pid, since_ns, refusal }
    }

    #[test]
    fn a_refusal_holds_from_its_time_to_its_end() {
        use ProcessRefusal::{GaveWay, NoRoom, OverShare};
        let mut processes = RefusedProcesses::default();
        processes.note(refused(7, 100, OverShare));
        let check = |processes: &RefusedProcesses, expect: [Option<ProcessRefusal>; 3]| {
            assert_eq!([99, 100, 200].map(|time_ns| processes.at(7, time_ns)), expect);
            assert_eq!(processes.at(8, 150), None);
        };
        check(&processes, [None, Some(OverShare), Some(OverShare)]);
        // It is refused again: the latest reason counts, since the same time.
        processes.note(refused(7, 150, NoRoom));
        check(&processes, [None, Some(NoRoom), Some(NoRoom)]);
        processes.ended(7, 90);
        check(&processes, [None, Some(NoRoom), Some(NoRoom)]);
        processes.ended(7, 160);
        processes.ended(8, 160);
        check(&processes, [None, Some(NoRoom), None]);
        // This was sent before the end, and comes after it.
        processes.note(refused(7, 155, NoRoom));
        check(&processes, [None, Some(NoRoom), None]);
        // Samples from before may still come.
        processes.note(refused(7, 200, GaveWay));
        check(&processes, [None, Some(NoRoom), Some(GaveWay)]);
        assert_eq!(processes.at(7, 170), None);
    }

    #[test]
    fn who_is_refused_again_after_an_end_stays_refused() {
        let mut processes = RefusedProcesses::default();
        let refusal = ProcessRefusal::NoRoom;
        processes.note(refused(7, 100, refusal));
        // The new program is refused before the record of its exec, at 200, has its turn.
        processes.note(refused(7, 210, refusal));
        processes.ended(7, 200);
        assert_eq!(processes.at(7, 250), Some(refusal));
        processes.ended(7, 300);
        assert_eq!([299, 300].map(|time_ns| processes.at(7, time_ns)), [Some(refusal), None]);
    }

    #[test]
    fn refusals_of_processes_that_are_gone_are_dropped() {
        let mut processes = RefusedProcesses::default();
        (7..10).for_each(|pid| processes.note(refused(pid, 100, ProcessRefusal::NoRoom)));
        processes.ended(7, 150);
        processes.sweep(|pid| pid == 9, 200);
        processes.retire(149);
        assert_eq!(processes.by_pid.len(), 3, "samples until its end may still come");
        processes.retire(200);
        assert_eq!(processes.by_pid.keys().copied().collect::<Vec<_>>(), [9]);
    }

    #[test]
    fn refusals_stay_within_their_bound() {
        let mut processes = RefusedProcesses::default();
        let most = PROCESSES_MAX;
        for n in 0..3 * most {
            processes.note(refused(n, u64::from(n), ProcessRefusal::OverShare));
            assert!(processes.by_pid.len() <= REFUSED_MAX);
        }
        let last = 3 * most - 1;
        assert_eq!(processes.at(last, u64::MAX - 1), Some(ProcessRefusal::OverShare));
        assert_eq!(processes.at(0, u64::MAX - 1), None);
        let forgotten = u64::from(3 * most) - processes.by_pid.len() as u64;
        assert_eq!(processes.gap(), (REFUSALS_FORGOTTEN, forgotten));
    }

    #[test]
    fn forgotten_refusals_stop_at_the_largest_number() {
        let mut processes = RefusedProcesses::default();
        [u64::MAX, 1].into_iter().for_each(|count| processes.forgot(count));
        assert_eq!(processes.gap(), (REFUSALS_FORGOTTEN, u64::MAX));
    }

    #[test]
    fn of_refusals_at_one_time_most_are_kept() {
        let mut processes = RefusedProcesses::default();
        for pid in 0..=PROCESSES_MAX {
            processes.note(refused(pid, 100, ProcessRefusal::GaveWay));
        }
        assert_eq!(processes.by_pid.len(), REFUSED_MAX - FORGOTTEN_AT_ONCE + 1);
        assert_eq!(processes.gap(), (REFUSALS_FORGOTTEN, FORGOTTEN_AT_ONCE as u64));
    }
}
