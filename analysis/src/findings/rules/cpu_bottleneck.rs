//! Devices that rest while one thread of the program has all the work.

use std::cmp::Reverse;

use deepctx_profile::frame::Frame;
use deepctx_profile::intern::FrameId;
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Profile;
use deepctx_profile::profile::timeline::Lane;
use deepctx_profile::tree::{NodeId, Tree};
use rustc_hash::{FxHashMap, FxHashSet};

use super::gpu_windows::{MIN_SECONDS, Utilization, gpus};
use super::{Draft, Facts, Outcome, PlaceKey, Rule, Values, no_host_time, written};
use crate::amount::percent;
use crate::findings::facts::Class;
use crate::findings::finding::{Figure, Gain, Location, LocationKind};
use crate::findings::reason;
use crate::findings::rule::Parameter;

pub(super) const RULE: Rule = Rule {
    id: "cpu-bottleneck",
    what: "devices that rest while a thread of the program keeps a CPU busy: it prepares their work, or launches it",
    definition: "windows of time, from the first on in which a GPU was busy, in which each GPU that ran anything is \
                 busy for less than `max_gpu_percent`, and a thread of a process that launches work is on a CPU for \
                 more than `min_cpu_percent` / all these windows ≥ `min_percent`; a capture of at least `min_seconds`",
    source: "SageMaker Debugger (`CPUBottleneck`)",
    origin: "share of snapshots with GPU < 10 % and a CPU > 90 % is > 50 %",
    needs: "samples of threads, launches, and system metrics of GPUs",
    parameters: &[
        Parameter { name: "max_gpu_percent", default: 10.0, source: "SageMaker Debugger" },
        Parameter { name: "min_cpu_percent", default: 90.0, source: "SageMaker Debugger" },
        Parameter { name: "min_percent", default: 50.0, source: "SageMaker Debugger" },
        MIN_SECONDS,
    ],
    check,
};

/// Windows in which devices rest and a thread is busy.
struct Held<'f> {
    windows: u64,
    /// Sum over them: how much the busiest GPU rests, in percent of a window.
    rest: f64,
    /// The thread that is busy in most of them, and in how many.
    thread: &'f Lane,
    of_thread: u64,
}

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    let utilization = match gpus(facts, values.get("min_seconds")) {
        Ok(utilization) => utilization,
        Err(missing) => return missing,
    };
    // A CPU of the machine may be busy for others, and a thread moves between CPUs.
    let threads = threads(facts.whole());
    if threads.is_empty() {
        return no_host_time();
    }
    if samples_of_window(facts.whole()) < SAMPLES_OF_WINDOW {
        return Outcome::missing(reason::TOO_FEW_SAMPLES);
    }
    let threads = working(facts, threads);
    let datapoints = utilization.windows;
    let Some(held) = held(facts, values, &utilization, &threads) else {
        return Outcome::Healthy { datapoints };
    };
    let share = percent(held.windows, datapoints);
    if share < values.get("min_percent") {
        return Outcome::Healthy { datapoints };
    }
    let of_thread = percent(held.of_thread, held.windows);
    let rest = utilization.of_capture(held.rest / datapoints.max(1) as f64);
    let draft = Draft {
        title: format!(
            "For {} of the time, GPUs hardly work while a thread of the program keeps a CPU busy",
            written(share)
        ),
        metric: "length of the capture",
        share_percent: utilization.of_capture(share),
        gain: Gain::Bounded { at_most_percent: rest, because: "the devices' own work stays".into() },
        places: places(facts, &held),
        evidence: vec![
            Figure::measured("windows in which GPUs rest and a thread is busy", share, "percent"),
            Figure::measured("of these, with the thread listed", of_thread, "percent"),
        ],
        advice: "See what this thread runs: move it to workers of the data loader, to other threads or to the device, \
                 or launch fewer and larger kernels (torch.compile, jax.jit, CUDA graphs, larger batches).",
        datapoints,
        violations: held.windows,
    };
    Outcome::Findings(vec![draft.finding(values)])
}

/// Least samples of a busy thread in a window: with fewer, one more or less decides.
const SAMPLES_OF_WINDOW: f64 = 4.0;

/// How many samples a thread has in a window if it is always on a CPU.
fn samples_of_window(profile: &Profile) -> f64 {
    let time = profile.tree.total(Metric::CpuTime);
    let samples = profile.tree.total(Metric::Samples).sum.max(time.count);
    profile.timeline.window().0 as f64 * samples as f64 / time.sum.max(1) as f64
}

/// Time on the CPU, thread by thread, of processes that launch work: a capture may have others of the machine, and the
/// profiler. Where threads are not separate, lanes are sums of processes.
fn threads(profile: &Profile) -> Vec<&Lane> {
    let tree = &profile.tree;
    let launches = tree.cells(Metric::Kernels);
    let launching: FxHashSet<NodeId> = launches.filter_map(|(node, _)| profile.process_of(node)).collect();
    let is_thread = |lane: &Lane| {
        let node = tree.node(lane.node);
        let is_thread = matches!(profile.frames.get(node.frame), Frame::Thread { .. });
        lane.metric == Metric::CpuTime && is_thread && launching.contains(&node.parent)
    };
    profile.timeline.lanes().iter().filter(|lane| is_thread(lane)).collect()
}

/// Without threads that spin for most of their time: these keep a CPU busy while they wait.
fn working<'f>(facts: &Facts<'f>, threads: Vec<&'f Lane>) -> Vec<&'f Lane> {
    let mut sums: FxHashMap<[FrameId; 2], [u64; 2]> = FxHashMap::default();
    for (node, sum) in facts.values(Metric::CpuTime) {
        let [all, spins] = sums.entry(key(&facts.profile().tree, facts.thread(node))).or_default();
        *all = all.saturating_add(sum.value);
        if facts.classes(node).has(Class::Spin) {
            *spins = spins.saturating_add(sum.value);
        }
    }
    let tree = &facts.whole().tree;
    let works = |lane: &&Lane| {
        sums.get(&key(tree, lane.node)).is_none_or(|[all, spins]| percent(*spins, *all) <= 50.0)
    };
    threads.into_iter().filter(works).collect()
}

/// `None` if there is no such window.
fn held<'f>(
    facts: &Facts<'f>,
    values: &Values<'_>,
    utilization: &Utilization,
    threads: &[&'f Lane],
) -> Option<Held<'f>> {
    let least_ns = facts.whole().timeline.window().0 as f64 * values.get("min_cpu_percent") / 100.0;
    let is_busy = |lane: &Lane, at: usize| lane.values.get(at).is_some_and(|ns| *ns as f64 > least_ns);
    let (mut windows, mut rest) = (Vec::new(), 0.0);
    for (at, busy) in (utilization.first..).zip(utilization.busiest()) {
        if busy < values.get("max_gpu_percent") && threads.iter().any(|lane| is_busy(lane, at)) {
            windows.push(at);
            rest += 100.0 - busy;
        }
    }
    let count = |lane: &Lane| windows.iter().filter(|at| is_busy(lane, **at)).count() as u64;
    let counted = threads.iter().map(|lane| (count(lane), *lane));
    let (of_thread, thread) = counted.max_by_key(|(n, lane)| (*n, Reverse(lane.node.number())))?;
    (!windows.is_empty()).then_some(Held { windows: windows.len() as u64, rest, thread, of_thread })
}

/// The thread, and the lines at which it runs longest in the whole capture.
fn places(facts: &Facts<'_>, held: &Held<'_>) -> Vec<Location> {
    let tree = &facts.whole().tree;
    let thread = key(tree, held.thread.node);
    let elapsed = facts.elapsed().0;
    let ran = held.thread.values.iter().fold(0, |sum: u64, ns| sum.saturating_add(*ns));
    let mut places = vec![Location {
        kind: LocationKind::Process,
        name: facts.label(tree.node(held.thread.node).frame),
        at: String::new(),
        context: held.thread.node.number(),
        share_percent: percent(ran.min(elapsed), elapsed),
    }];
    let is_in = |node| key(&facts.profile().tree, facts.thread(node)) == thread;
    places.extend(facts.places(Metric::CpuTime, PlaceKey::Line, is_in, elapsed));
    places
}

/// A thread by its frame and that above it: those are the same in a part of a profile and in the whole.
fn key(tree: &Tree, thread: NodeId) -> [FrameId; 2] {
    let node = tree.node(thread);
    [tree.node(node.parent).frame, node.frame]
}
