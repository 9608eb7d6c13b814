//! Gaps: the longest idle times of a device, and what happened meanwhile.
//!
//! Owns: [`DeviceGap`]. Because: an idle share shows how much, but the cause is at one moment. Does not: sort gaps by
//! cause: see [`super::IdleTime`], by stream.
//!
//! Definition of Nsight Systems' recipe `gpu_gaps`: times without any work on a device, over a threshold (500 ms there,
//! of work of any process). Here the longest come first, whatever their length, with the work before and after, and the
//! longest activity of the thread that launched the work after.

use std::collections::BTreeMap;

use deepctx_profile::frame::clean;
use deepctx_profile::intern::Id;
use deepctx_profile::trace::{DeviceOp, HostKind, HostOp, TraceTime};
use rustc_hash::FxHashMap;
use serde::Serialize;

use super::window::Window;

/// Maximum number of listed gaps per device.
const GAPS_MAX: usize = 20;

/// Gaps of one device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeviceGaps {
    /// The rank.
    pub rank: u32,
    /// Number of the device.
    pub device: u32,
    /// How many there are.
    pub count: u64,
    /// Sum of their lengths: the device's idle time.
    pub total_ns: u64,
    /// The longest of them, longest first.
    pub longest: Vec<DeviceGap>,
}

/// An idle time of a device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeviceGap {
    /// Begin, from the first event of the trace.
    pub begin_ns: u64,
    /// Length.
    pub length_ns: u64,
    /// The work that ended last before.
    pub before: String,
    /// The work that ended it.
    pub behind: String,
    /// How much of it had passed when that work was launched; `None` if the launch is unknown. If it is the whole gap,
    /// the host was late.
    pub until_launch_ns: Option<u64>,
    /// The innermost operation with most time on the launching thread meanwhile; `None` without any.
    pub host: Option<String>,
    /// Its time there.
    pub host_ns: u64,
}

pub(super) fn compute(window: &Window<'_>) -> Vec<DeviceGaps> {
    let mut devices: BTreeMap<u32, Vec<(Id<DeviceOp>, DeviceOp)>> = BTreeMap::new();
    for (id, op) in window.device() {
        let Some(stream) = window.of.trace.streams().get(op.stream.index()) else { continue };
        devices.entry(stream.device).or_default().push((id, op));
    }
    devices.into_iter().map(|(device, ops)| of_device(window, device, ops)).collect()
}

/// A gap between two operations.
struct OperationGap {
    begin: TraceTime,
    length_ns: u64,
    before: DeviceOp,
    behind: (Id<DeviceOp>, DeviceOp),
}

fn of_device(window: &Window<'_>, device: u32, mut ops: Vec<(Id<DeviceOp>, DeviceOp)>) -> DeviceGaps {
    ops.sort_by_key(|(id, op)| (op.begin, *id));
    let mut gaps: Vec<OperationGap> = Vec::new();
    let mut last: Option<DeviceOp> = None;
    for behind in ops {
        if let Some(before) = last.filter(|before| before.end() < behind.1.begin) {
            let (begin, length_ns) = (before.end(), (behind.1.begin - before.end()).0);
            gaps.push(OperationGap { begin, length_ns, before, behind });
        }
        if last.is_none_or(|last| last.end() <= behind.1.end()) {
            last = Some(behind.1);
        }
    }
    let (count, total_ns) = (gaps.len() as u64, gaps.iter().map(|gap| gap.length_ns).sum());
    gaps.sort_by_key(|gap| (std::cmp::Reverse(gap.length_ns), gap.begin));
    gaps.truncate(GAPS_MAX);
    let longest = gaps.iter().map(|gap| row(window, gap)).collect();
    DeviceGaps { rank: window.of.rank, device, count, total_ns, longest }
}

fn row(window: &Window<'_>, gap: &OperationGap) -> DeviceGap {
    let trace = &window.of.trace;
    let end = gap.behind.1.begin;
    let call = window.of.links.launch(gap.behind.0).call();
    let launch = call.and_then(|id| trace.host.get(id));
    let stood = launch.and_then(|launch| stood_longest(window, &launch, gap.begin, end));
    DeviceGap {
        begin_ns: (gap.begin - window.of.first_event()).0,
        length_ns: gap.length_ns,
        before: clean(window.name(&gap.before)),
        behind: clean(window.name(&gap.behind.1)),
        until_launch_ns: launch.map(|launch| (launch.begin.clamp(gap.begin, end) - gap.begin).0),
        host: stood.map(|(name, _)| clean(trace.name(name))),
        host_ns: stood.map_or(0, |(_, ns)| ns),
    }
}

/// The innermost name with most time on a thread within an interval, and that time.
fn stood_longest(
    window: &Window<'_>,
    launch: &HostOp,
    from: TraceTime,
    until: TraceTime,
) -> Option<(deepctx_profile::StrId, u64)> {
    let trace = &window.of.trace;
    let ids = window.of.links.threads().get(launch.thread.index())?;
    let mut times: FxHashMap<deepctx_profile::StrId, u64> = FxHashMap::default();
    let mut enter = |op: Option<&HostOp>, from: TraceTime, until: TraceTime| {
        if let Some(op) = op.filter(|_| from < until) {
            *times.entry(op.name).or_default() += (until - from).0;
        }
    };
    let mut open: Vec<HostOp> = Vec::new();
    let mut at = from;
    for op in ids.iter().filter_map(|id| trace.host.get(*id)).take_while(|op| op.begin < until) {
        // Training steps and the whole process enclose everything.
        if matches!(op.kind, HostKind::Step | HostKind::Process | HostKind::UnknownCategory)
            || op.end() <= from
        {
            continue;
        }
        close(&mut open, &mut at, op.begin, &mut enter);
        enter(open.last(), at, op.begin.max(from));
        at = at.max(op.begin);
        open.push(op);
    }
    close(&mut open, &mut at, until, &mut enter);
    enter(open.last(), at, until);
    times.into_iter().max_by_key(|(name, ns)| (*ns, std::cmp::Reverse(name.number())))
}

/// Closes operations that end before a time, innermost first.
fn close(
    open: &mut Vec<HostOp>,
    at: &mut TraceTime,
    before: TraceTime,
    enter: &mut impl FnMut(Option<&HostOp>, TraceTime, TraceTime),
) {
    while let Some(ended) = open.pop_if(|op| op.end() <= before) {
        enter(Some(&ended), *at, ended.end());
        *at = (*at).max(ended.end());
    }
}
