//! Single device activities, as the trace formats draw them.
//!
//! Owns: [`Devices`]. Because: a sum does not show what ran concurrently, and for devices the single activities are
//! known. Does not: invent times: a launch is a moment, since how long its call took is known by context only.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use deepctx_profile::device::activity::{Activity, ActivityKind, Shape};
use deepctx_profile::frame::{Frame, FrameKind, clean};
use deepctx_profile::profile::Profile;
use deepctx_profile::tree::NodeId;
use deepctx_profile::units::Nanos;

/// Rows that a stream may need at once: kernels of one stream are sequential, so more than one means that clocks are
/// poorly known, or that a graph runs its branches on the same stream.
const LINES_MAX: usize = 8;
/// Numbers of cards whose device number stands for several: above those of devices and of processes.
const FURTHER_CARDS: u32 = 1 << 24;

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
    /// The device among those of all processes: its number there, unless that stands for several.
    pub(super) card: u32,
    /// Its number in the process.
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

/// The cards that device numbers of processes stand for: with `CUDA_VISIBLE_DEVICES`, device 0 of two processes may be
/// two of them.
#[derive(Default)]
struct Cards {
    /// By process and number there.
    numbers: FxHashMap<(u32, u32), u32>,
    /// Labels by card.
    names: FxHashMap<u32, String>,
}

impl Cards {
    fn of(profile: &Profile) -> Self {
        let mut cards: BTreeMap<u32, BTreeMap<String, u32>> = BTreeMap::new();
        for (_, number, label) in labelled(profile) {
            cards.entry(number).or_default().insert(label, number);
        }
        let mut further = FURTHER_CARDS;
        for card in cards.values_mut().filter(|labels| labels.len() > 1).flat_map(BTreeMap::values_mut) {
            *card = further;
            further = further.saturating_add(1);
        }
        let mut found = Cards::default();
        for (pid, number, label) in labelled(profile) {
            if let Some(card) = cards.get(&number).and_then(|labels| labels.get(&label)) {
                found.numbers.entry((pid, number)).or_insert(*card);
                found.names.insert(*card, label);
            }
        }
        found
    }

    /// The card of a process's device; its number there if the process did not describe it.
    fn number(&self, pid: u32, device: u32) -> u32 {
        self.numbers.get(&(pid, device)).copied().unwrap_or(device)
    }
}

/// Process, number and label of each device that is described.
fn labelled(profile: &Profile) -> impl Iterator<Item = (u32, u32, String)> {
    let processes = profile.gpu.processes.iter();
    let devices = processes.flat_map(|of| of.devices.iter().map(move |device| (of.pid, device)));
    let labelled = devices.map(|(pid, device)| (pid, device.number, clean(&device.label())));
    labelled.filter(|(.., label)| !label.is_empty())
}

/// All activities of a profile.
pub(super) struct Devices {
    cards: Cards,
    places: FxHashMap<NodeId, LaunchSite>,
    /// Row by row, by begin.
    pub(super) events: Vec<Event>,
    /// By time.
    pub(super) launches: Vec<Launch>,
}

/// How many activities of a profile are shortened, because too many of their stream overlap.
pub(super) fn shortened(profile: &Profile) -> u64 {
    rows(profile, &Cards::of(profile)).1
}

/// All activities, each on its row, and how many of them are shortened.
fn rows(profile: &Profile, cards: &Cards) -> (Vec<Event>, u64) {
    let mut all: Vec<Activity> = profile.gpu.activities.iter().copied().collect();
    all.sort_by_key(|activity| (activity.start, activity.end, activity.correlation));
    let mut ends: FxHashMap<Line, Nanos> = FxHashMap::default();
    let mut events: Vec<Event> = Vec::with_capacity(all.len());
    let mut shortened = 0;
    for mut activity in all {
        let Activity { pid, device, context, stream, start, .. } = activity;
        let card = cards.number(pid, device);
        let line = |nth| Line { card, device, pid, context, stream, nth: nth as u32 };
        let free = |nth: &usize| ends.get(&line(*nth)).is_none_or(|end| *end <= start);
        let line = match (0..LINES_MAX).find(free) {
            Some(nth) => line(nth),
            None => {
                // An activity without a row begins where the first row is free.
                activity.start = ends.get(&line(0)).copied().unwrap_or(start).min(activity.end);
                shortened += 1;
                line(0)
            }
        };
        activity.end = activity.end.max(activity.start);
        let end = ends.entry(line).or_default();
        *end = activity.end.max(*end);
        events.push(Event { line, activity });
    }
    events.sort_by_key(|event| (event.line, event.activity.start));
    (events, shortened)
}

impl Devices {
    pub(super) fn of(profile: &Profile) -> Self {
        let cards = Cards::of(profile);
        let (events, _) = rows(profile, &cards);
        let mut places: FxHashMap<NodeId, LaunchSite> = FxHashMap::default();
        for Event { activity: Activity { node, .. }, .. } in &events {
            places.entry(*node).or_insert_with(|| place(profile, *node));
        }
        let mut of_call: FxHashMap<(u32, u32, Nanos), Vec<u32>> = FxHashMap::default();
        for (number, Event { activity, .. }) in (0u32..).zip(&events) {
            if let Some(at) = activity.launched {
                of_call.entry((activity.pid, activity.correlation, at)).or_default().push(number);
            }
        }
        let mut launches: Vec<Launch> =
            of_call.into_iter().map(|((_, _, at), events)| Launch { at, events }).collect();
        launches.sort_by_key(|launch| (launch.at, launch.first()));
        Devices { cards, places, events, launches }
    }

    /// The name of a row's device: `GPU 0 H200 GPU-1234abcd`.
    pub(super) fn name(&self, line: Line) -> String {
        match self.cards.names.get(&line.card) {
            Some(name) => format!("GPU {} {name}", line.device),
            None => format!("GPU {}", line.device),
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

#[cfg(test)]
mod tests {
    use deepctx_profile::device::Device;
    use deepctx_profile::device::activity::GpuProcess;
    use deepctx_profile::testing::profile;

    use super::*;

    /// A profile with a kernel of each of these processes, all at one time on stream 7 of device 0.
    fn with_kernels(pids: &[u32]) -> Profile {
        let mut profile = profile("P a-1 / g gemm 30");
        for pid in pids {
            profile.gpu.activities.push(Activity {
                node: NodeId::from_number(2),
                kind: ActivityKind::Kernel,
                pid: *pid,
                device: 0,
                context: 1,
                stream: 7,
                correlation: 1,
                start: Nanos(20),
                end: Nanos(50),
                launched: None,
                bytes: 0,
            });
        }
        profile
    }

    #[test]
    fn work_without_a_row_is_shortened_and_counted() {
        assert_eq!(shortened(&with_kernels(&[1; LINES_MAX])), 0);
        let profile = with_kernels(&[1; LINES_MAX + 2]);
        assert_eq!(shortened(&profile), 2);
        let events = Devices::of(&profile).events;
        let lengths = events.iter().map(|event| event.activity.end.0 - event.activity.start.0);
        assert_eq!(lengths.filter(|length| *length == 0).count(), 2);
    }

    #[test]
    fn one_number_of_two_cards_is_two_devices() {
        let mut profile = with_kernels(&[1, 2, 3]);
        for (pid, uuid) in [(1, "GPU-aaaaaaaa-1"), (2, "GPU-bbbbbbbb-2")] {
            let device = Device { uuid: uuid.to_owned(), ..Device::default() };
            profile.gpu.processes.push(GpuProcess { pid, devices: vec![device], ..GpuProcess::default() });
        }
        let devices = Devices::of(&profile);
        let found: Vec<_> = devices.lines().map(|line| (line.pid, line.card, devices.name(line))).collect();
        let row = |pid, card, name: &str| (pid, card, name.to_owned());
        // It is not known which one the third process has.
        let expect = [
            row(3, 0, "GPU 0"),
            row(1, FURTHER_CARDS, "GPU 0 GPU-aaaaaaaa"),
            row(2, FURTHER_CARDS + 1, "GPU 0 GPU-bbbbbbbb"),
        ];
        assert_eq!(found, expect);
        profile.gpu.processes.truncate(1);
        assert!(Devices::of(&profile).lines().all(|line| line.card == 0));
    }
}
