//! Single device activities, as the trace formats draw them.
//!
//! Owns: [`Devices`]. Because: a sum does not show what ran concurrently, and for devices the single activities are
//! known. Does not: invent times: a launch is a moment, since how long its call took is known by context only.

use rustc_hash::FxHashMap;

use deepctx_profile::device::activity::{Activity, ActivityKind, Shape};
use deepctx_profile::frame::{Frame, FrameKind};
use deepctx_profile::profile::Profile;
use deepctx_profile::tree::NodeId;
use deepctx_profile::units::Nanos;

/// Rows that a stream may need at once: kernels of one stream are sequential, so more than one means that clocks are
/// poorly known, or that a graph runs its branches on the same stream.
const LINES_MAX: usize = 8;

/// Facts about the context of an activity.
pub(super) struct LaunchSite {
    /// The kernel or the kind of copy.
    pub(super) name: String,
    /// The call that launched it; empty if unknown.
    pub(super) api: String,
    /// The Python function that launched it; empty if there is none.
    pub(super) caller: String,
    /// The thread that launched it; `None` if unknown.
    pub(super) thread: Option<(String, u32)>,
    /// Grid and block sizes and other launch attributes.
    pub(super) shape: Option<Shape>,
}

/// A row of activities that do not overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Line {
    pub(super) device: u32,
    pub(super) pid: u32,
    pub(super) context: u32,
    pub(super) stream: u32,
    /// 0 unless activities of the stream overlap.
    pub(super) nth: u32,
}

/// An activity on its row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    pub(super) line: Line,
    pub(super) activity: Activity,
}

/// A call that launched device work.
#[derive(Clone, Debug)]
pub(super) struct Launch {
    pub(super) at: Nanos,
    /// Numbers of its activities in [`Devices::events`]; never empty.
    pub(super) events: Vec<u32>,
}

impl Launch {
    /// Number of its first activity.
    pub(super) fn first(&self) -> usize {
        self.events.first().map_or(0, |first| *first as usize)
    }
}

/// All activities of a profile.
pub(super) struct Devices {
    /// Name of each device, if all processes that reported it agree.
    names: FxHashMap<u32, Option<String>>,
    places: FxHashMap<NodeId, LaunchSite>,
    /// Row by row, by begin.
    pub(super) events: Vec<Event>,
    /// By time.
    pub(super) launches: Vec<Launch>,
}

impl Devices {
    pub(super) fn of(profile: &Profile) -> Self {
        let mut all: Vec<Activity> = profile.gpu.activities.iter().copied().collect();
        all.sort_by_key(|activity| (activity.start, activity.end, activity.correlation));
        let mut ends: FxHashMap<Line, Nanos> = FxHashMap::default();
        let mut places: FxHashMap<NodeId, LaunchSite> = FxHashMap::default();
        let mut events: Vec<Event> = Vec::with_capacity(all.len());
        for mut activity in all {
            let Activity { node, pid, device, context, stream, start, .. } = activity;
            places.entry(node).or_insert_with(|| place(profile, node));
            let line = |nth| Line { device, pid, context, stream, nth: nth as u32 };
            let free = |nth: &usize| ends.get(&line(*nth)).is_none_or(|end| *end <= start);
            let line = match (0..LINES_MAX).find(free) {
                Some(nth) => line(nth),
                None => {
                    // An activity without a row begins where the first row is free: it is shortened.
                    activity.start = ends.get(&line(0)).copied().unwrap_or(start).min(activity.end);
                    line(0)
                }
            };
            activity.end = activity.end.max(activity.start);
            ends.insert(line, activity.end);
            events.push(Event { line, activity });
        }
        events.sort_by_key(|event| (event.line, event.activity.start));
        let mut of_call: FxHashMap<(u32, u32, Nanos), Vec<u32>> = FxHashMap::default();
        for (number, Event { activity, .. }) in (0u32..).zip(&events) {
            if let Some(at) = activity.launched {
                of_call.entry((activity.pid, activity.correlation, at)).or_default().push(number);
            }
        }
        let mut launches: Vec<Launch> =
            of_call.into_iter().map(|((_, _, at), events)| Launch { at, events }).collect();
        launches.sort_by_key(|launch| (launch.at, launch.first()));
        Devices { names: names(profile), places, events, launches }
    }

    /// The name of a device: `GPU 0 H200 GPU-1234abcd`.
    pub(super) fn name(&self, device: u32) -> String {
        match self.names.get(&device) {
            Some(Some(name)) => format!("GPU {device} {name}"),
            _ => format!("GPU {device}"),
        }
    }

    /// Facts about the context of an activity.
    pub(super) fn place(&self, activity: &Activity) -> &LaunchSite {
        // Every context of `events` was added.
        &self.places[&activity.node]
    }

    /// Rows in order.
    pub(super) fn lines(&self) -> impl Iterator<Item = Line> {
        let before = self.events.iter().map(|event| Some(event.line));
        let before = std::iter::once(None).chain(before);
        self.events
            .iter()
            .zip(before)
            .filter(|(event, before)| Some(event.line) != *before)
            .map(|(e, _)| e.line)
    }
}

fn names(profile: &Profile) -> FxHashMap<u32, Option<String>> {
    let mut names: FxHashMap<u32, Option<String>> = FxHashMap::default();
    for device in profile.gpu.processes.iter().flat_map(|process| &process.devices) {
        let label = deepctx_profile::frame::clean(&device.label());
        let known = names.entry(device.number).or_insert_with(|| Some(label.clone()));
        if known.as_ref() != Some(&label) {
            *known = None;
        }
    }
    names.retain(|_, name| name.as_ref().is_none_or(|name| !name.is_empty()));
    names
}

/// The kind of work in PyTorch's profiler.
pub(super) const fn category(kind: ActivityKind) -> &'static str {
    match kind {
        ActivityKind::Kernel | ActivityKind::Graph => "kernel",
        ActivityKind::Copy => "gpu_memcpy",
        ActivityKind::Fill => "gpu_memset",
        ActivityKind::Sync => "cuda_sync",
    }
}

fn place(profile: &Profile, node: NodeId) -> LaunchSite {
    let strings = &profile.strings;
    let clean = |id| deepctx_profile::frame::clean(strings.get(id));
    let frame = |node| profile.frames.get(profile.tree.node(node).frame);
    let name = match frame(node) {
        Frame::GpuKernel { name } => clean(name),
        other => other.label(strings, false),
    };
    let mut place = LaunchSite {
        name,
        api: String::new(),
        caller: String::new(),
        thread: None,
        shape: profile.gpu.shape_of(node).copied(),
    };
    let mut at = profile.tree.node(node).parent;
    while at != NodeId::ROOT {
        match frame(at) {
            found @ Frame::GpuApi { .. } if place.api.is_empty() => place.api = found.label(strings, false),
            found if found.kind() == FrameKind::Python && place.caller.is_empty() => {
                place.caller = found.label(strings, true);
            }
            Frame::Thread { name, tid } => place.thread = Some((clean(name), tid)),
            _ => {}
        }
        at = profile.tree.node(at).parent;
    }
    place
}
