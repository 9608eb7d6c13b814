//! Launches: the cost and delay of launching work on a device.
//!
//! Owns: [`Launches`]. Because: if a device waits for launches, the cause is on the host. Does not: list single
//! launches; the tree has them by context.
//!
//! Definitions are HTA's (`get_cuda_kernel_launch_stats`): the delay is from the end of the call to the begin of the
//! work, 0 when the work begins within the call; a kernel is short if it takes less than its call; outliers are calls
//! above 50 µs and delays above 100 µs. HTA knows five calls by name; here, all launched work counts.

use deepctx_profile::trace::Launch;
use serde::Serialize;

use super::window::Window;

const LONG_CALL_NS: u64 = 50_000;
const LONG_DELAY_NS: u64 = 100_000;
const MINUTE_NS: u64 = 60_000_000_000;

/// Launches of one rank: one per device operation, so operations of a graph share their call.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Launches {
    /// The rank.
    pub rank: u32,
    /// Device operations with a known call.
    pub launches: u64,
    /// Of these, those with a call that several share, such as nodes of a graph.
    pub shared_call: u64,
    /// Of these, those matched to the next call in stream order: the recorder saw no ids.
    pub by_order: u64,
    /// Of these, those whose id several calls share: the latest one before the work is taken.
    pub ambiguous: u64,
    /// Device operations launched before the trace began.
    pub before_trace: u64,
    /// Device operations without a call for other reasons.
    pub without_call: u64,
    /// Sum of the calls' lengths, each once.
    pub call_ns: u64,
    /// Calls above 50 µs, counted for each of their operations.
    pub long_calls: u64,
    /// Operations that take less time than their call.
    pub short_operations: u64,
    /// Operations that begin more than 100 µs after their call.
    pub long_delays: u64,
    /// Mean delay.
    pub delay_mean_ns: f64,
    /// Median delay.
    pub delay_median_ns: u64,
    /// Longest delay.
    pub delay_max_ns: u64,
    /// Operations that begin before their call does: the clocks of host and device disagree by that much.
    pub begun_before_call: u64,
    /// Operations that begin more than a minute after their call: no queue is that long, so clocks may disagree.
    pub minute_delays: u64,
}

pub(super) fn compute(window: &Window<'_>) -> Launches {
    let (trace, links) = (&window.of.trace, &window.of.links);
    let mut row = Launches { rank: window.of.rank, ..Launches::default() };
    let mut calls: rustc_hash::FxHashMap<u32, u64> = rustc_hash::FxHashMap::default();
    let mut delays = Vec::new();
    for (id, op) in window.device() {
        let launch = links.launch(id);
        let Some((call_id, call)) = launch.call().and_then(|id| Some((id, trace.host.get(id)?))) else {
            match launch {
                Launch::BeforeTrace => row.before_trace += 1,
                _ => row.without_call += 1,
            }
            continue;
        };
        let uses = calls.entry(call_id.number()).or_insert(0);
        *uses += 1;
        if *uses == 1 {
            row.call_ns = row.call_ns.saturating_add(call.duration.0);
        }
        row.launches += 1;
        row.by_order += u64::from(matches!(launch, Launch::ByOrder(_)));
        row.ambiguous += u64::from(matches!(launch, Launch::Ambiguous(_)));
        row.long_calls += u64::from(call.duration.0 > LONG_CALL_NS);
        row.short_operations += u64::from(op.duration < call.duration);
        row.begun_before_call += u64::from(op.begin < call.begin);
        let delay = (op.begin - call.end()).0;
        row.long_delays += u64::from(delay > LONG_DELAY_NS);
        row.minute_delays += u64::from(delay > MINUTE_NS);
        delays.push(delay);
    }
    row.shared_call = calls.values().filter(|uses| **uses > 1).sum();
    delays.sort_unstable();
    row.delay_max_ns = delays.last().copied().unwrap_or(0);
    row.delay_median_ns = delays.get(delays.len() / 2).copied().unwrap_or(0);
    let sum: u128 = delays.iter().map(|delay| u128::from(*delay)).sum();
    row.delay_mean_ns = if delays.is_empty() { 0.0 } else { sum as f64 / delays.len() as f64 };
    row
}
