//! Pacing: how regularly training steps, ranges and kernels recur.
//!
//! Owns: [`Pace`]. Because: steps of equal length with pauses between them are as slow as long steps, and only the time
//! from begin to begin shows it. Does not: show what happened meanwhile.
//!
//! Definition of Nsight Systems' recipes `nvtx_pace` and `cuda_gpu_kern_pace`: times from the begin of one to the begin
//! of the next of the same name, and from its end to that begin. They take one name; here those with most time are
//! listed: every training step, and the first ranges and kernels. If a step may have been lost between two others,
//! their interval is left out. Kernels follow those of their own device: devices that work at once are no burst.

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
    /// Kernels of one name, with intervals on one device.
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

/// The rows of a rank, and the number of further ranges and kernels that recur.
pub(super) fn compute(window: &Window<'_>) -> (Vec<Pace>, usize) {
    let trace = &window.of.trace;
    let mut steps: BTreeMap<&str, Times> = BTreeMap::new();
    for step in window.steps() {
        steps.entry(window.step_name(&step)).or_default().push((step.op.begin, step.op.end()));
    }
    let mut ranges: BTreeMap<(StrId, Id<Thread>), Times> = BTreeMap::new();
    let is_range = |kind| matches!(kind, HostKind::Annotation | HostKind::Layer);
    for (_, op) in trace.host.iter().filter(|(_, op)| is_range(op.kind) && window.has(op.begin)) {
        ranges.entry((op.name, op.thread)).or_default().push((op.begin, op.end()));
    }
    let mut kernels: BTreeMap<StrId, BTreeMap<u32, Times>> = BTreeMap::new();
    for (_, op) in window.device() {
        let Some(stream) = trace.streams().get(op.stream.index()) else { continue };
        let of_name = kernels.entry(op.name).or_default();
        of_name.entry(stream.device).or_default().push((op.begin, op.end()));
    }
    let steps = steps.into_iter().map(|(name, times)| (name, vec![times]));
    let ranges = ranges.into_iter().map(|((name, _), times)| (trace.name(name), vec![times]));
    let kernels =
        kernels.into_iter().map(|(name, of)| (trace.name(name), of.into_values().collect::<Vec<_>>()));
    let (mut paces, _) = most(window.of, PacedKind::Step, steps.collect(), usize::MAX);
    let (ranges, further_ranges) = most(window.of, PacedKind::Range, ranges.collect(), NAMES_MAX);
    let (kernels, further_kernels) = most(window.of, PacedKind::Kernel, kernels.collect(), NAMES_MAX);
    paces.extend(ranges.into_iter().chain(kernels));
    (paces, further_ranges + further_kernels)
}

/// Those with most time, and the number of others.
fn most(of: &RankTrace, kind: PacedKind, all: Vec<(&str, Vec<Times>)>, most: usize) -> (Vec<Pace>, usize) {
    let mut paces: Vec<Pace> =
        all.into_iter().filter_map(|(name, places)| pace(of, kind, name, places)).collect();
    paces.sort_rows_by(|a, b| b.lengths.sum_ns.cmp(&a.lengths.sum_ns).then_with(|| a.name.cmp(&b.name)));
    let left_out = paces.len().saturating_sub(most);
    paces.truncate(most);
    (paces, left_out)
}

/// Intervals are between those of one place: a thread, or a device.
fn pace(of: &RankTrace, kind: PacedKind, name: &str, mut places: Vec<Times>) -> Option<Pace> {
    places.retain(|times| times.len() >= TIMES_MIN);
    places.iter_mut().for_each(|times| times.sort_unstable());
    let next = |[a, b]: &&[(TraceTime, TraceTime); 2]| {
        kind != PacedKind::Step || a.1 >= b.0 || lost_between(of, a.1, b.0).is_empty()
    };
    let pairs = || places.iter().flat_map(|times| times.array_windows::<2>()).filter(next);
    let slowest = pairs().max_by_key(|[a, b]| (b.0 - a.0, std::cmp::Reverse(a.0)))?[0].0;
    Some(Pace {
        rank: of.rank,
        kind,
        name: clean(name),
        lengths: Statistics::of(places.iter().flatten().map(|(begin, end)| (*end - *begin).0))?,
        begin_to_begin: Statistics::of(pairs().map(|[a, b]| (b.0 - a.0).0))?,
        between: Statistics::of(pairs().map(|[a, b]| b.0.as_nanos().saturating_sub(a.1.as_nanos())))?,
        slowest_at_ns: (slowest - of.first_event()).0,
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::of;

    #[test]
    fn kernels_are_paced_on_their_own_device() {
        let input = "kernel 0/7 0..2 gemm\n kernel 0/7 20..22 gemm\n kernel 0/7 40..42 gemm
            kernel 1/7 1..3 gemm\n kernel 1/7 21..23 gemm\n kernel 1/7 41..43 gemm";
        let pace = of(input).pacing.remove(0);
        let between = [pace.begin_to_begin.min_ns, pace.begin_to_begin.max_ns];
        assert_eq!((pace.lengths.count, pace.begin_to_begin.count, between), (6, 4, [20_000; 2]));
    }

    #[test]
    fn names_that_are_not_listed_are_counted() {
        // Each name comes three times.
        let lines = |form: &str, names: u64| -> String {
            let line = |n: u64| {
                let at = 2 * (n % names) + 100 * (n / names);
                format!("{form} {at}..{} n{}\n", at + 1, n % names)
            };
            (0..3 * names).map(line).collect()
        };
        let found = of(&[lines("kernel 0/7", 25), lines("range m", 22)].concat());
        assert_eq!((found.pacing.len(), found.pacing_left_out), (40, 7));
    }
}
