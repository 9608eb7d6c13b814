//! Pacing: how regularly training steps, ranges and kernels recur.
//!
//! Owns: [`Pace`]. Because: steps of equal length with pauses between them are as slow as long steps, and only the time
//! from begin to begin shows it. Does not: show what happened meanwhile.
//!
//! Definition of Nsight Systems' recipes `nvtx_pace` and `cuda_gpu_kern_pace`: times from the begin of one to the begin
//! of the next of the same name, and from its end to that begin. They take one name; here those with most time are
//! listed: every training step, and the first ranges and kernels. If a step may have been lost between two others,
//! their interval is left out.

use deepctx_profile::order::SortRows as _;
use std::collections::BTreeMap;

use deepctx_profile::StrId;
use deepctx_profile::frame::clean;
use deepctx_profile::intern::Id;
use deepctx_profile::trace::{HostKind, RankTrace, Thread, TraceTime};
use serde::Serialize;

use super::measurement::lost_between;
use super::statistics::Statistics;
use super::window::Window;

/// Maximum number of listed ranges, and of kernels, per rank.
const NAMES_MAX: usize = 20;
/// At least two intervals are needed to differ.
const TIMES_MIN: usize = 3;

/// What recurs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PacedKind {
    /// Training steps.
    Step,
    /// Ranges of one name on one thread.
    Range,
    /// Kernels of one name.
    Kernel,
}

/// How regularly something recurs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pace {
    /// The rank.
    pub rank: u32,
    /// Its kind.
    pub kind: PacedKind,
    /// Its name; of training steps without their number.
    pub name: String,
    /// Lengths.
    pub lengths: Statistics,
    /// Times from one begin to the next.
    pub begin_to_begin: Statistics,
    /// Times from one end to the next begin, 0 where they overlap.
    pub between: Statistics,
    /// Begin of the one with the longest interval to the next, from the first event of the trace.
    pub slowest_at_ns: u64,
}

/// Begins and ends, by begin.
type Times = Vec<(TraceTime, TraceTime)>;

pub(super) fn compute(window: &Window<'_>) -> Vec<Pace> {
    let trace = &window.of.trace;
    let mut steps: BTreeMap<&str, Times> = BTreeMap::new();
    for step in window.steps() {
        let name = trace.name(step.op.name);
        let name = name.rsplit_once('#').map_or(name, |(name, _)| name);
        steps.entry(name).or_default().push((step.op.begin, step.op.end()));
    }
    let mut ranges: BTreeMap<(StrId, Id<Thread>), Times> = BTreeMap::new();
    let is_range = |kind| matches!(kind, HostKind::Annotation | HostKind::Layer);
    for (_, op) in trace.host.iter().filter(|(_, op)| is_range(op.kind) && window.has(op.begin)) {
        ranges.entry((op.name, op.thread)).or_default().push((op.begin, op.end()));
    }
    let mut kernels: BTreeMap<StrId, Times> = BTreeMap::new();
    for (_, op) in window.device() {
        kernels.entry(op.name).or_default().push((op.begin, op.end()));
    }
    let ranges = ranges.into_iter().map(|((name, _), times)| (trace.name(name), times));
    let kernels = kernels.into_iter().map(|(name, times)| (trace.name(name), times));
    let mut paces = most(window.of, PacedKind::Step, steps.into_iter().collect(), usize::MAX);
    paces.extend(most(window.of, PacedKind::Range, ranges.collect(), NAMES_MAX));
    paces.extend(most(window.of, PacedKind::Kernel, kernels.collect(), NAMES_MAX));
    paces
}

/// Those with most time.
fn most(of: &RankTrace, kind: PacedKind, all: Vec<(&str, Times)>, most: usize) -> Vec<Pace> {
    let mut paces: Vec<Pace> =
        all.into_iter().filter_map(|(name, times)| pace(of, kind, name, times)).collect();
    paces.sort_rows_by(|a, b| b.lengths.sum_ns.cmp(&a.lengths.sum_ns).then_with(|| a.name.cmp(&b.name)));
    paces.truncate(most);
    paces
}

fn pace(of: &RankTrace, kind: PacedKind, name: &str, mut times: Times) -> Option<Pace> {
    if times.len() < TIMES_MIN {
        return None;
    }
    times.sort_unstable();
    let next = |[a, b]: &&[(TraceTime, TraceTime); 2]| {
        kind != PacedKind::Step || a.1 >= b.0 || lost_between(of, a.1, b.0).is_empty()
    };
    let pairs = || times.array_windows::<2>().filter(next);
    let slowest = pairs().max_by_key(|[a, b]| (b.0 - a.0, std::cmp::Reverse(a.0)))?[0].0;
    Some(Pace {
        rank: of.rank,
        kind,
        name: clean(name),
        lengths: Statistics::of(times.iter().map(|(begin, end)| (*end - *begin).0))?,
        begin_to_begin: Statistics::of(pairs().map(|[a, b]| (b.0 - a.0).0))?,
        between: Statistics::of(pairs().map(|[a, b]| b.0.as_nanos().saturating_sub(a.1.as_nanos())))?,
        slowest_at_ns: (slowest - of.first_event()).0,
    })
}
