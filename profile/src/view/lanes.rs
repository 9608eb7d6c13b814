//! Lanes: the timeline by process, or by process and thread.
//!
//! Owns: joining and ordering lanes. Because: the timeline of a profile is per context, but readers think in
//! processes. Does not: choose colors or scales.

use crate::order::SortRows as _;
use std::cmp::Reverse;

use rustc_hash::FxHashMap;

use crate::context::selection::{GroupBy, Selection};
use crate::frame::{Frame, FrameKind};
use crate::metric::Metric;
use crate::profile::Profile;
use crate::profile::timeline;
use crate::tree::NodeId;
use crate::units::Nanos;
use crate::view::snapshot::{Lane, Timeline};

/// Lanes shown: more than anyone scrolls through.
const LANES_SHOWN: usize = 500;
/// Threads and streams of an overview.
const THREADS_SHOWN: usize = 6;
const STREAMS_SHOWN: usize = 3;

/// The lanes of one context, one per metric.
struct Group {
    node: NodeId,
    lanes: Vec<Lane>,
}

impl Group {
    fn new(node: NodeId) -> Self {
        Group { node, lanes: Vec::new() }
    }

    /// Adds a lane of this context, or of one below it.
    fn add(&mut self, profile: &Profile, lane: &timeline::Lane) {
        let name = lane.metric.name();
        match self.lanes.iter_mut().find(|known| known.metric == name) {
            Some(known) => add(known, lane),
            None => {
                let mut new = empty(profile, self.node, lane.metric);
                add(&mut new, lane);
                self.lanes.push(new);
            }
        }
    }

    /// Lanes by metric, and the sort key of the group: time on a CPU, then anything else, then its name.
    fn finish(mut self) -> (Order, Vec<Lane>) {
        let number = |lane: &Lane| lane.metric.parse::<Metric>().map_or(usize::MAX, Metric::index);
        self.lanes.sort_rows_by_key(number);
        let total = |of: &dyn Fn(&Lane) -> bool| {
            let lanes = self.lanes.iter().filter(|lane| of(lane));
            Reverse(lanes.fold(0, |sum: u64, lane| sum.saturating_add(lane.total)))
        };
        let on_cpu = total(&|lane| lane.metric == Metric::CpuTime.name());
        let name = self.lanes.first().map_or_else(String::new, |lane| lane.label.clone());
        ((on_cpu, total(&|_| true), name), self.lanes)
    }
}

type Order = (Reverse<u64>, Reverse<u64>, String);

/// A lane, and the process that it belongs to.
pub struct ProcessLane {
    /// The process.
    pub process: NodeId,
    /// The lane.
    pub lane: Lane,
}

/// All metrics with times: processes, hottest first, with a lane for each metric, and below each the streams of its
/// devices, and its threads if requested.
pub fn ordered(profile: &Profile, group_by: GroupBy) -> Vec<ProcessLane> {
    let timeline = &profile.timeline;
    let mut processes: FxHashMap<NodeId, (Group, FxHashMap<NodeId, Group>)> = FxHashMap::default();
    for lane in timeline.lanes() {
        let process = process_of(profile, lane.node);
        let (group, below) =
            processes.entry(process).or_insert_with(|| (Group::new(process), FxHashMap::default()));
        group.add(profile, lane);
        let is_thread =
            matches!(profile.frames.get(profile.tree.node(lane.node).frame), Frame::Thread { .. });
        if (group_by == GroupBy::Thread || !is_thread) && lane.node != process {
            below.entry(lane.node).or_insert_with(|| Group::new(lane.node)).add(profile, lane);
        }
    }
    let mut processes: Vec<_> =
        processes.into_iter().map(|(process, (group, below))| (group.finish(), process, below)).collect();
    processes.sort_rows_by(|((a, _), ..), ((b, _), ..)| a.cmp(b));
    let mut lanes = Vec::new();
    for ((_, own), process, below) in processes {
        let mut below: Vec<_> = below.into_values().map(Group::finish).collect();
        below.sort_rows_by(|(a, _), (b, _)| a.cmp(b));
        let all = own.into_iter().chain(below.into_iter().flat_map(|(_, thread)| thread));
        lanes.extend(all.map(|lane| ProcessLane { process, lane }));
    }
    lanes
}

/// The timeline as shown; `elapsed` is the length of the capture.
pub(super) fn lanes(profile: &Profile, selection: &Selection, elapsed: Nanos) -> Timeline {
    let ordered = ordered(profile, selection.group_by);
    let mut lanes: Vec<Lane> = ordered.into_iter().map(|owned| owned.lane).collect();
    let lanes_left_out = lanes.len().saturating_sub(LANES_SHOWN);
    lanes.truncate(LANES_SHOWN);
    Timeline { lanes_left_out, ..timeline(profile, lanes, elapsed) }
}

/// The timeline of the busiest threads and streams alone, the busiest first.
pub(super) fn busiest(profile: &Profile, elapsed: Nanos) -> Timeline {
    let all: Vec<Lane> = ordered(profile, GroupBy::Thread).into_iter().map(|owned| owned.lane).collect();
    let of = |metric: Metric, most: usize| {
        let below_process = |lane: &&Lane| lane.kind != FrameKind::Process && lane.metric == metric.name();
        let mut found: Vec<&Lane> = all.iter().filter(below_process).collect();
        found.sort_rows_by_key(|lane| Reverse(lane.total));
        found.truncate(most);
        found.into_iter().cloned().collect::<Vec<Lane>>()
    };
    let shown = [of(Metric::CpuTime, THREADS_SHOWN), of(Metric::GpuTime, STREAMS_SHOWN)].concat();
    timeline(profile, shown, elapsed)
}

/// A timeline of these lanes, in windows that reach until now.
fn timeline(profile: &Profile, mut lanes: Vec<Lane>, elapsed: Nanos) -> Timeline {
    let timeline = &profile.timeline;
    let (window, factor) = windows_until(elapsed, timeline.window());
    for lane in &mut lanes {
        let wider = lane.values.chunks(factor);
        let join = |a: u64, b: &u64| if lane.level { a.max(*b) } else { a.saturating_add(*b) };
        lane.values = wider.map(|values| values.iter().fold(0, join)).collect();
    }
    let windows = usize::try_from(elapsed.0.div_ceil(window.0)).unwrap_or(usize::MAX);
    let windows = windows.clamp(timeline.windows().div_ceil(factor), timeline::WINDOWS_MAX);
    Timeline { window, windows, lanes, lanes_left_out: 0 }
}

/// The width of windows so that a bounded number reaches until now, and how many of the profile's windows each joins:
/// those widen only when a value is added, and a capture may be idle for hours.
fn windows_until(elapsed: Nanos, window: Nanos) -> (Nanos, usize) {
    let (mut window_ns, mut factor) = (window.0.max(1), 1);
    while elapsed.0.div_ceil(window_ns) > timeline::WINDOWS_MAX as u64 {
        (window_ns, factor) = (window_ns.saturating_mul(2), factor * 2);
    }
    (Nanos(window_ns), factor)
}

/// The outermost context of a lane: its process. A part of the machine stands alone: disks and CPUs have no sum.
fn process_of(profile: &Profile, node: NodeId) -> NodeId {
    let mut at = node;
    if matches!(profile.frames.get(profile.tree.node(at).frame), Frame::Resource { .. }) {
        return at;
    }
    loop {
        let parent = profile.tree.node(at).parent;
        if parent == NodeId::ROOT {
            return at;
        }
        at = parent;
    }
}

fn empty(profile: &Profile, node: NodeId, metric: Metric) -> Lane {
    let frame = profile.frames.get(profile.tree.node(node).frame);
    let kind = match frame {
        Frame::Root => FrameKind::Process,
        frame => frame.kind(),
    };
    Lane {
        label: frame.label(&profile.strings, false),
        kind,
        metric: metric.name(),
        unit: metric.unit(),
        level: metric.is_level(),
        ..Lane::default()
    }
}

fn add(to: &mut Lane, lane: &timeline::Lane) {
    if to.values.len() < lane.values.len() {
        to.values.resize(lane.values.len(), 0);
    }
    for (sum, value) in to.values.iter_mut().zip(&lane.values) {
        *sum = sum.saturating_add(*value);
        to.total = if to.level { to.total.max(*sum) } else { to.total.saturating_add(*value) };
    }
}
