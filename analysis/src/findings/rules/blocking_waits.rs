//! Lines at which the program waits for its device, or for results of JAX.
//!
//! Owns: both kinds of waits, and their finding. Because: a value that is read in each step stops the host, whether a
//! driver's call waits for it or a lock of XLA. Does not: know the functions that wait (`findings/facts/class`).

use deepctx_profile::order::SortRows as _;
use std::cmp::Reverse;

use deepctx_profile::context::phase::Phase;
use deepctx_profile::intern::FrameId;
use deepctx_profile::metric::Metric;
use deepctx_profile::tree::NodeId;
use rustc_hash::{FxHashMap, FxHashSet};

use super::{Draft, Facts, Outcome, PlaceKey, Rule, Values, counted, written};
use crate::amount::percent;
use crate::findings::facts::{Class, PlacePart};
use crate::findings::finding::{Figure, Gain};
use crate::findings::reason;
use crate::findings::rule::Parameter;
use crate::findings::share::Sum;

pub(super) const RULE: Rule = Rule {
    id: "blocking-waits",
    what: "lines at which the program waits for its device: `.item()`, `.cpu()`, `synchronize()`; in JAX `float()`, \
           `np.asarray()`, `block_until_ready()`",
    definition: "lines with time in calls that wait / (length of the capture × threads that wait) ≥ \
                 `min_percent` and at least `min_calls` calls; without such a line, those with time off the CPU in \
                 conversions of JAX's arrays and `block_until_ready`, without checkpoints and without waits for a CPU \
                 or Python's lock / all time of these threads ≥ `min_percent`, and at least `min_calls` waits",
    source: "Nsight Systems (expert rules `cuda_api_sync` and `cuda_memcpy_sync`)",
    origin: "any call that waits for the device, listed by length",
    needs: "calls of a device's library; or JAX, with time off the CPU",
    parameters: &[
        Parameter { name: "min_percent", default: 10.0, source: "own; Nsight Systems lists any" },
        Parameter { name: "min_calls", default: 10.0, source: "own: one wait at the end is no waste" },
    ],
    check,
};

/// Longer waits are recorded in pieces that are not shorter.
const PIECE_NS: u64 = 1_000_000_000;

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    let of_device = device_waits(facts).map(|waits| waits.outcome(facts, values));
    if let Ok(found @ Outcome::Findings(_)) = of_device {
        return found;
    }
    // JAX waits for threads of XLA: the calls of a device's library are theirs.
    let of_arrays = array_waits(facts).map(|waits| waits.map(|waits| waits.outcome(facts, values)));
    match (of_device, of_arrays) {
        (_, Some(Ok(found))) => found,
        (Err(_), Some(Err(missing))) => missing,
        (Ok(outcome) | Err(outcome), _) => outcome,
    }
}

/// Calls that wait for a device, or why none are known.
fn device_waits(facts: &Facts<'_>) -> Result<Waits, Outcome> {
    let used = [Metric::LaunchTime, Metric::Kernels, Metric::GpuTime, Metric::SyncTime];
    if !used.into_iter().any(|metric| facts.has(metric)) {
        return Err(Outcome::missing(reason::NO_DEVICE_CALLS));
    }
    let threads: FxHashSet<_> = facts.values(Metric::SyncTime).map(|(node, _)| facts.thread(node)).collect();
    let whole = facts.elapsed().0.saturating_mul(threads.len().max(1) as u64);
    if whole == 0 {
        return Err(Outcome::missing(reason::NO_CAPTURE_LENGTH));
    }
    let lines = facts.parts(Metric::SyncTime, PlaceKey::Line, |_| true);
    // Other tools' traces have no threads: those of a process may together wait for longer than it lasts.
    let whole = whole.max(total(lines.values()).value);
    Ok(Waits { lines, whole, idle: facts.most_idle_percent(), words: &OF_DEVICE })
}

/// Waits for results of JAX, or what their check lacks. `None` in a program that asks for none.
fn array_waits(facts: &Facts<'_>) -> Option<Result<Waits, Outcome>> {
    if !facts.has_class(Class::ArrayWait) {
        return None;
    }
    if !facts.has(Metric::OffCpuTime) {
        return Some(Err(Outcome::missing(reason::NO_OFF_CPU_TIME)));
    }
    let mut lines = facts.parts(Metric::OffCpuTime, PlaceKey::Line, |node| is_array_wait(facts, node));
    let mut threads: FxHashSet<NodeId> = FxHashSet::default();
    for (node, cell) in facts.profile().tree.cells(Metric::OffCpuTime) {
        if !is_array_wait(facts, node) {
            continue;
        }
        threads.insert(facts.thread(node));
        // The pieces of a wait are one.
        let pieces = if cell.max >= PIECE_NS { cell.sum / PIECE_NS } else { 0 };
        if let Some(part) = lines.get_mut(&facts.place_frame(node, PlaceKey::Line)) {
            part.sum.count = part.sum.count.saturating_sub(pieces);
        }
    }
    let is_of_threads =
        |node: NodeId| threads.contains(&facts.thread(node)) && !facts.classes(node).has(Class::CpuQueue);
    let time = |metric: Metric| {
        let of_threads = facts.values(metric).filter(|(node, _)| is_of_threads(*node));
        of_threads.fold(0, |all: u64, (_, sum)| all.saturating_add(sum.value))
    };
    let whole = time(Metric::CpuTime).saturating_add(time(Metric::OffCpuTime));
    // While the host waits for a result, XLA computes it: it can rest only in the other time.
    let rest = 100.0 - percent(total(lines.values()).value, whole);
    Some(Ok(Waits { lines, whole, idle: Some(rest), words: &OF_ARRAYS }))
}

/// What a checkpoint waits for is time of the checkpoint. A thread that waits for a CPU or for Python's lock has its
/// result.
fn is_array_wait(facts: &Facts<'_>, node: NodeId) -> bool {
    let classes = facts.classes(node);
    let has_result = classes.has(Class::CpuQueue) || classes.has(Class::GilWait);
    classes.has(Class::ArrayWait) && !has_result && facts.phase(node) != Phase::Checkpoint
}

fn total<'w>(parts: impl Iterator<Item = &'w PlacePart>) -> Sum {
    let mut sum = Sum::default();
    parts.for_each(|part| sum += part.sum);
    sum
}

/// How a finding names waits of one kind.
struct Words {
    what_for: &'static str,
    one: &'static str,
    time: &'static str,
    number: &'static str,
    idle: &'static str,
    because: &'static str,
    advice: &'static str,
}

const OF_DEVICE: Words = Words {
    what_for: "its device",
    one: "call",
    time: "time in calls that wait",
    number: "calls that wait",
    idle: "device idle, of the capture, at most",
    because: "the device must still finish; what is won is the time in which it had nothing to do",
    advice: "Read results less often (.item() and .cpu() wait), keep them on the device, or copy with \
             non_blocking=True from pinned memory.",
};

const OF_ARRAYS: Words = Words {
    what_for: "results of JAX",
    one: "wait",
    time: "time in waits for arrays",
    number: "waits for arrays",
    idle: "other time of these threads, in which XLA may rest, at most",
    because: "what is computed must still be finished; what is won is the time in which XLA had nothing to do",
    advice: "Read results less often (float(), np.asarray() and block_until_ready() wait): keep losses as arrays \
             and read those of many steps at once.",
};

/// Waits of one kind.
struct Waits {
    lines: FxHashMap<FrameId, PlacePart>,
    /// What shares are of.
    whole: u64,
    /// Upper bound of the share in which what is waited for had nothing to do, percent.
    idle: Option<f64>,
    words: &'static Words,
}

impl Waits {
    fn outcome(self, facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
        let Waits { lines, whole, idle, words } = self;
        let datapoints = total(lines.values()).count;
        let (least, least_calls) = (values.get("min_percent"), values.get("min_calls"));
        let mut lines: Vec<_> = lines
            .into_iter()
            .filter(|(_, part)| {
                percent(part.sum.value, whole) >= least && part.sum.count as f64 >= least_calls
            })
            .collect();
        lines.sort_rows_by_key(|(frame, part)| (Reverse(part.sum.value), frame.number()));
        let Some((first, _)) = lines.first() else { return Outcome::Healthy { datapoints } };
        let sum = total(lines.iter().map(|(_, part)| part));
        let share = percent(sum.value, whole);
        let others = lines.len() as u64 - 1;
        let beside =
            if others > 0 { format!(" and {}", counted(others, "other line")) } else { String::new() };
        let mut evidence = vec![
            Figure::measured(words.time, sum.value as f64, "ns"),
            Figure::measured(words.number, sum.count as f64, "count"),
        ];
        evidence.extend(idle.map(|idle| Figure::bounded(words.idle, idle, "percent")));
        let draft = Draft {
            title: format!(
                "The program waits {} of its time for {}, in {} at {}{beside}",
                written(share),
                words.what_for,
                counted(sum.count, words.one),
                facts.label(*first)
            ),
            metric: "time of the threads that wait",
            share_percent: share,
            // While the device works, nobody could go on for long: only the time in which it rests is won.
            gain: Gain::Bounded {
                at_most_percent: idle.map_or(share, |idle| idle.min(share)),
                because: words.because.into(),
            },
            places: lines.iter().take(5).map(|(frame, part)| facts.place(*frame, part, whole)).collect(),
            evidence,
            advice: words.advice,
            datapoints,
            violations: sum.count,
        };
        Outcome::Findings(vec![draft.finding(values)])
    }
}
