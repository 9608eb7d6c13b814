//! Lanes: the timeline by process, or by process and thread.
//!
//! Owns: joining and ordering lanes. Because: the timeline of a profile knows contexts, people know processes. Does not:
//! choose colours or scales.

use rustc_hash::FxHashMap;

use super::{GroupBy, Selection};
use crate::frame::Frame;
use crate::metric::Metric;
use crate::profile::Profile;
use crate::snapshot::{Lane, Timeline};
use crate::timeline;
use crate::tree::NodeId;

/// Lanes shown: more than anyone scrolls through.
const LANES_SHOWN: usize = 500;

/// A process with the lanes of its threads.
struct Process<'p> {
    lane: Lane,
    threads: Vec<&'p timeline::Lane>,
}

/// The timeline of all metrics that have one; `elapsed_ns` is the length of the capture.
pub(super) fn lanes(profile: &Profile, selection: &Selection, elapsed_ns: u64) -> Timeline {
    let timeline = &profile.timeline;
    let window_ns = timeline.window().0;
    let mut processes: FxHashMap<(NodeId, Metric), Process<'_>> = FxHashMap::default();
    for lane in timeline.lanes() {
        let group = process_of(profile, lane.node);
        let process = processes
            .entry((group, lane.metric))
            .or_insert_with(|| Process { lane: empty(profile, group, lane.metric), threads: Vec::new() });
        add(&mut process.lane, lane);
        process.threads.push(lane);
    }
    let mut processes: Vec<_> = processes.into_values().collect();
    processes.sort_by(|a, b| {
        (a.lane.metric, b.lane.total, &a.lane.label).cmp(&(b.lane.metric, a.lane.total, &b.lane.label))
    });
    let mut lanes = Vec::new();
    for Process { lane, threads } in processes {
        let alone = threads.len() == 1 && threads[0].node == process_of(profile, threads[0].node);
        lanes.push(lane);
        if selection.group_by == GroupBy::Thread && !alone {
            let mut below: Vec<Lane> = threads.into_iter().map(|thread| own(profile, thread)).collect();
            below.sort_by(|a, b| (b.total, &a.label).cmp(&(a.total, &b.label)));
            lanes.append(&mut below);
        }
    }
    let lanes_left_out = lanes.len().saturating_sub(LANES_SHOWN);
    lanes.truncate(LANES_SHOWN);
    let (window_ns, factor) = windows_until(elapsed_ns, window_ns);
    for lane in &mut lanes {
        let wider = lane.values.chunks(factor);
        lane.values = wider.map(|values| values.iter().fold(0, |a: u64, b| a.saturating_add(*b))).collect();
    }
    let windows = usize::try_from(elapsed_ns.div_ceil(window_ns)).unwrap_or(usize::MAX);
    let windows = windows.clamp(timeline.windows().div_ceil(factor), timeline::WINDOWS_MAX);
    Timeline { window_ns, windows, lanes, lanes_left_out }
}

/// Windows wide enough that a bounded number of them reaches until now, and how many of those of the profile each takes:
/// those become wider only when a value comes, and a capture may be idle for hours.
fn windows_until(elapsed_ns: u64, window_ns: u64) -> (u64, usize) {
    let (mut window_ns, mut factor) = (window_ns.max(1), 1);
    while elapsed_ns.div_ceil(window_ns) > timeline::WINDOWS_MAX as u64 {
        (window_ns, factor) = (window_ns.saturating_mul(2), factor * 2);
    }
    (window_ns, factor)
}

/// The outermost context that a lane belongs to: its process.
fn process_of(profile: &Profile, node: NodeId) -> NodeId {
    let mut at = node;
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
        Frame::Root => crate::snapshot::FrameKind::Process,
        frame => frame.kind(),
    };
    Lane {
        label: frame.label(&profile.strings, false),
        kind,
        metric: metric.name(),
        unit: metric.unit(),
        ..Lane::default()
    }
}

fn own(profile: &Profile, lane: &timeline::Lane) -> Lane {
    let mut own = empty(profile, lane.node, lane.metric);
    add(&mut own, lane);
    own
}

fn add(to: &mut Lane, lane: &timeline::Lane) {
    if to.values.len() < lane.values.len() {
        to.values.resize(lane.values.len(), 0);
    }
    for (sum, value) in to.values.iter_mut().zip(&lane.values) {
        *sum = sum.saturating_add(*value);
        to.total = to.total.saturating_add(*value);
    }
}
