//! Priority: the profiler's share of the CPUs while a capture ends.
//!
//! Owns: raising the priority of this process's threads and workers. Because: the end is promised within 5 s, and
//! programs that keep every CPU busy could delay it for as long as they like. Does not: raise it during a capture: a
//! profiler must not displace what it measures.

use deepctx_symbolizer::worker::started_after;
use rustix::process::{Pid, setpriority_process};

use super::targets::parent_of;

/// Nine times the weight of a usual thread (`sched_prio_to_weight`, kernel/sched/core.c).
const NICE: i32 = -10;

/// Raises the priority of every thread of this process and of its workers. Threads and workers that are started later
/// inherit it. Without `CAP_SYS_NICE` it stays as it is.
pub fn raise() {
    let workers = started_after(0).map(|(_, started)| started).unwrap_or_default();
    let own = std::process::id();
    // A worker that has ended may have left its number to another process.
    let workers = workers.into_iter().map(|worker| worker.pid).filter(|pid| parent_of(*pid) == Some(own));
    for id in threads().into_iter().chain(workers) {
        let id = i32::try_from(id).ok().and_then(Pid::from_raw);
        if let Some(Err(error)) = id.map(|id| setpriority_process(Some(id), NICE)) {
            tracing::debug!(%error, "the priority stays");
        }
    }
}

/// The threads of this process.
fn threads() -> Vec<u32> {
    let entries = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}
