//! Unused: files whose probes are no longer needed.
//!
//! Owns: which processes have exited, and since when no process maps a file. Because: a capture may run for weeks,
//! and each probe takes one of a limited number of sites. Does not: detach.

use std::collections::HashMap;

use deepctx_symbolizer::start_ticks;
use deepctx_uprobes::{PlanId, PlannedFile};

/// How long a file keeps its probes without a process: parsing PyTorch's libraries again takes as long as starting a
/// small program, and one start is often followed by another.
const IDLE_NS: u64 = 30_000_000_000;
/// Files that lose their probes at once: the kernel takes some forty milliseconds for a few of them.
const FILES_MOST: usize = 64;

/// Processes with probes, and files without such processes.
#[derive(Debug, Default)]
pub(super) struct UnusedFiles {
    /// Start time of each process: its pid may be reused.
    processes: HashMap<u32, u64>,
    /// When each file became unused.
    unused: HashMap<PlanId, u64>,
}

impl UnusedFiles {
    /// A process is about to be scanned.
    pub(super) fn begin(&mut self, pid: u32) {
        if let Some(started) = start_ticks(pid) {
            self.processes.insert(pid, started);
        }
    }

    /// Processes with these files that are gone.
    pub(super) fn gone(&mut self, planned: &[PlannedFile]) -> Vec<u32> {
        let mut pids: Vec<u32> = planned.iter().flat_map(|planned| planned.pids.iter().copied()).collect();
        pids.sort_unstable();
        pids.dedup();
        self.processes.retain(|pid, _| pids.binary_search(pid).is_ok());
        let is_gone = |pid: &u32| {
            let now = start_ticks(*pid);
            now.is_none() || self.processes.get(pid).is_some_and(|started| now != Some(*started))
        };
        pids.retain(is_gone);
        pids
    }

    /// Files that no process has had for a while; if others need their places, the longest unused ones.
    pub(super) fn expired(&mut self, planned: &[PlannedFile], now_ns: u64, scarce: bool) -> Vec<PlanId> {
        let unused = planned.iter().filter(|planned| planned.pids.is_empty());
        let unused: HashMap<PlanId, u64> = unused
            .map(|planned| (planned.id, self.unused.get(&planned.id).copied().unwrap_or(now_ns)))
            .collect();
        self.unused = unused;
        let is_expired = |since_ns: u64| scarce || now_ns.saturating_sub(since_ns) >= IDLE_NS;
        let expired = self.unused.iter().filter(|(_, since_ns)| is_expired(**since_ns));
        let mut expired: Vec<(u64, PlanId)> = expired.map(|(id, since_ns)| (*since_ns, *id)).collect();
        expired.sort_unstable();
        expired.truncate(FILES_MOST);
        expired.into_iter().map(|(_, id)| id).collect()
    }
}

#[cfg(test)]
mod tests {
    use deepctx_uprobes::catalogue::user;
    use deepctx_uprobes::{Kernel, Layers, Library, Planner};

    use super::*;

    /// This test's own program, as a file with a probe.
    fn planner() -> (Planner, PlanId) {
        let own = std::env::current_exe().unwrap();
        let rows = user::parse(&format!("[[probe]]\nlibrary = {own:?}\nsymbol = \"main\"\n")).unwrap();
        let mut planner = Planner::new(rows, Layers::Lowest, Kernel { version: (6, 12) });
        let ids = planner.add_libraries(vec![Library::of_file(&own).unwrap()]);
        (planner, ids[0])
    }

    #[test]
    fn files_are_unused_from_their_last_process_on() {
        let (mut planner, id) = planner();
        let (mut unused, own) = (UnusedFiles::default(), std::process::id());
        unused.begin(own);
        assert!(unused.gone(planner.planned()).is_empty());
        assert!(unused.expired(planner.planned(), 5, false).is_empty());
        planner.remove_process(own);
        assert!(unused.expired(planner.planned(), 10, false).is_empty());
        assert!(unused.expired(planner.planned(), 9 + IDLE_NS, false).is_empty());
        assert_eq!(unused.expired(planner.planned(), 10 + IDLE_NS, false), [id]);
        // Another process has it meanwhile.
        assert!(planner.add_process(own).unwrap().is_empty());
        assert!(unused.expired(planner.planned(), 11 + IDLE_NS, true).is_empty());
        planner.remove_process(own);
        assert!(unused.expired(planner.planned(), 12 + IDLE_NS, false).is_empty());
        assert_eq!(unused.expired(planner.planned(), 12 + IDLE_NS, true), [id], "others need its places");
    }

    #[test]
    fn a_process_with_a_number_used_again_is_gone() {
        let (planner, _) = planner();
        let (mut unused, own) = (UnusedFiles::default(), std::process::id());
        unused.processes.insert(own, 1);
        assert_eq!(unused.gone(planner.planned()), [own]);
        unused.begin(own);
        assert!(unused.gone(planner.planned()).is_empty());
    }
}
