//! Activities: a collector's reports of device work → figures at the launches that caused it.
//!
//! Owns: the messages of a collector. Because: this is where device time is measured, so each nanosecond must land in
//! the context that caused it, or carry a reason why it could not. Does not: guess: an activity without a launch has
//! a separate place.

use deepctx_common::Plain;
use deepctx_common::activity::{self, Activity, flag, kind, probe, state};
use deepctx_common::call::{Correlation, Message, message_flag};
use deepctx_profile::device::Device;
use deepctx_profile::device::activity::{self as profile_activity, ActivityKind, JoinMethod, Launch, Tier};
use deepctx_profile::frame::{Frame, Origin};
use deepctx_profile::intern::FrameId;
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Profile;
use deepctx_profile::trace::Basis;
use deepctx_profile::tree::NodeId;
use deepctx_profile::units::{Nanos, Time};

use super::clock::HostTime;
use super::counts::{Counts, Gap, LAUNCH_NOT_SEEN, UnmatchedRecord};
use super::graphs::RecordedNode;
use super::kernels::{kernel_frame, named_kernel, recorded_below};
use super::names::{KernelKey, NamedKernel, REPORTED_MAX};
use super::process::Process;
use super::recorder::{Predecessors, RecordedWork, Recorder};
use super::work::{Work, WorkKind};
use super::{EXPIRY_NS, Gpu};

/// Stands for a kernel whose name the collector did not report.
const NAME_NOT_REPORTED: &str = "[unknown: name-not-reported]";
/// Stands for a graph whose nodes were not reported one by one.
const WHOLE_GRAPH: &str = "graph";
/// A delay is recorded if the clocks are known this well, or to a tenth of the delay.
const WITHIN_MAX: Nanos = Nanos(20_000);

impl Gpu {
    /// A call was given an id.
    pub(crate) fn correlated(&mut self, record: &Correlation) {
        let Some(process) = self.processes.get_mut(record.pid) else {
            self.counts.unmatched(UnmatchedRecord::CorrelationWithoutCall);
            return;
        };
        // Ids are only given while a tool collects; the message that it began may have been lost.
        process.collect();
        match self.work.get_mut(record.call) {
            Some(work) if work.pid == record.pid && work.kind == WorkKind::Recorded => {
                self.work.take(record.call);
                self.counts.merged();
            }
            // A call has one id: a second one belongs to a call that no probe saw.
            Some(work) if work.pid == record.pid && work.correlation == 0 && record.correlation != 0 => {
                work.correlation = record.correlation;
                self.ids.insert((record.pid, record.correlation), record.call);
                self.counts.merged();
            }
            _ => self.counts.unmatched(UnmatchedRecord::CorrelationWithoutCall),
        }
    }

    /// A message of a collector. `process_node` makes the node of its process.
    pub(crate) fn message(
        &mut self,
        message: &Message,
        bytes: &[u8],
        profile: &mut Profile,
        process_node: &mut dyn FnMut(&mut Profile) -> NodeId,
    ) {
        let Self { processes, counts, .. } = self;
        let Some(process) = processes.get_mut(message.pid) else {
            counts.gap(Gap::StateFull, 1);
            counts.merged();
            return;
        };
        if message.flags & (message_flag::UNREAD | message_flag::CUT) != 0 {
            counts.gap(Gap::Malformed, 1);
        }
        match message.what {
            probe::ACTIVITIES => {
                process.collect();
                let node = *process.node.get_or_insert_with(|| process_node(profile));
                let size = size_of::<Activity>();
                if !bytes.len().is_multiple_of(size) {
                    counts.gap(Gap::Malformed, 1);
                }
                for activity in bytes.chunks_exact(size).filter_map(Activity::read_from) {
                    self.activity(message.pid, node, &activity, profile);
                }
            }
            probe::BORROWED => {
                process.node.get_or_insert_with(|| process_node(profile));
                self.borrow(message, bytes, profile);
            }
            probe::SAMPLES => {
                let node = process_node;
                self.sampled(message, bytes, profile, node);
            }
            probe::NAME => process.kernel_named(message, bytes, counts, profile),
            probe::DEVICE => process.device(bytes, counts),
            probe::NODE => {
                let [number, of, kind] = message.values;
                match of {
                    0 => process.graphs.made(message.tid, number, kind),
                    of => process.graphs.cloned_node(number, of),
                }
            }
            probe::CLOCK => process.clock_read(message.values, counts),
            probe::STATE if process.collector_state(message.values, counts) => {}
            _ => return counts.unmatched(UnmatchedRecord::UnknownMessage),
        }
        self.counts.merged();
    }

    /// One activity of a device.
    pub(super) fn activity(
        &mut self,
        pid: u32,
        process_node: NodeId,
        activity: &Activity,
        profile: &mut Profile,
    ) {
        match activity.kind {
            kind::KERNEL | kind::COPY | kind::PEER_COPY | kind::FILL | kind::GRAPH => {}
            kind::OVERHEAD => return self.collector_overhead(pid, activity),
            kind::SYNC => return,
            _ => return self.counts.gap(Gap::UnknownActivity, 1),
        }
        let call = self.ids.get(&(pid, activity.correlation)).copied();
        let work = call.and_then(|call| self.work.get_mut(call)).filter(|work| work.kind.does(activity.kind));
        let Some(process) = self.processes.get_mut(pid) else { return };
        let launchable = work.as_ref().and_then(|work| match work.kind {
            WorkKind::Graph { launchable } => Some(launchable),
            _ => None,
        });
        if work.is_none() && self.calls_end_ns.is_some_and(|end_ns| process.began_after(activity, end_ns)) {
            return self.counts.gap(Gap::ActivityAfterEnd, 1);
        }
        let kernel = activity.kind == kind::KERNEL;
        let frame = process.frame_of(activity, profile);
        let mut done = false;
        let (node, launched_ns) = match work {
            Some(work) => {
                work.seen = work.seen.saturating_add(1);
                done = is_done(work, kernel);
                if kernel {
                    process.info.joined += 1;
                }
                (process.place(work, activity, frame, &mut self.counts, profile), Some(work.time_ns))
            }
            None => {
                self.counts.gap(Gap::ActivityWithoutLaunch, 1);
                let node = without_launch(process_node, frame, activity, profile);
                (node, None)
            }
        };
        if kernel {
            process.kernel_ran(node, activity, profile);
        }
        let at = DeviceEntry { node, process_node, launched_ns };
        process.enter_times(&at, activity, &mut self.counts, profile);
        if let Some(recorder) = &mut self.recorder {
            let order = launchable.and_then(|graph| process.graphs.order(graph, activity.node)).unwrap_or(0);
            let (launch, basis, times) =
                (call.zip(launched_ns), process.basis(), process.host_times(activity));
            let work = RecordedWork { pid, node, launch, basis, times, order, after: None };
            process.record_work(work, activity, recorder);
        }
        if done && let Some(work) = call.and_then(|call| self.work.take(call)) {
            if let Some(process) = self.processes.get_mut(pid) {
                process.samples.done(work.correlation, node);
            }
            self.forget_id(&work);
        }
    }

    /// The collector reports its own overhead.
    fn collector_overhead(&mut self, pid: u32, activity: &Activity) {
        if let Some(process) = self.processes.get_mut(pid) {
            let took = duration(activity).unwrap_or(0);
            process.info.overhead = process.info.overhead.saturating_add(Nanos(took));
        }
    }

    /// The samples have reached this time: expires work that has waited too long for its activities.
    pub(crate) fn expire(&mut self, now_ns: u64, profile: &mut Profile) {
        self.settle_all(now_ns, profile);
        self.expire_samples(now_ns, profile);
        let before_ns = now_ns.saturating_sub(EXPIRY_NS);
        while let Some(work) = self.work.oldest(before_ns) {
            self.expire_work(work, Gap::LaunchWithoutActivity, profile);
        }
    }
}

/// Whether no further activity is expected of a launch after this one, which may be a kernel.
fn is_done(work: &Work, kernel: bool) -> bool {
    match work.kind {
        WorkKind::Kernel => kernel,
        WorkKind::Kernels => work.seen >= work.expected,
        WorkKind::Transfer { sized } => sized,
        WorkKind::Graph { .. } | WorkKind::Recorded => false,
    }
}

/// The same context with the stream above it: times are kept by stream, while counts are known before the stream is.
fn below(stream: FrameId, node: NodeId, profile: &mut Profile) -> NodeId {
    let ran = profile.tree.node(node);
    let stream = profile.tree.child(ran.parent, stream);
    profile.tree.child(stream, ran.frame)
}

/// Where an activity is recorded.
struct DeviceEntry {
    node: NodeId,
    process_node: NodeId,
    /// When it was launched, `CLOCK_MONOTONIC` nanoseconds; `None` if the launch was not seen.
    launched_ns: Option<u64>,
}

impl Process {
    /// Records an activity, after the nodes of its graph that precede it.
    fn record_work(&self, work: RecordedWork<'_>, activity: &Activity, recorder: &mut Recorder) {
        let built = self.built_graphs.after(work.order);
        let after = match &built {
            Some(nodes) => Some(Predecessors { nodes, basis: Basis::Exact }),
            None => {
                let nodes = self.graph_order.after(work.order);
                nodes.map(|nodes| Predecessors { nodes, basis: Basis::ByOrder })
            }
        };
        recorder.worked(&RecordedWork { after, ..work }, activity);
    }

    /// The collector read the clock of a device between two readings of the host's.
    fn clock_read(&mut self, [device, before, after]: [u64; 3], counts: &mut Counts) {
        let jumps = self.clock.jumps();
        if !self.clock.read(device, before, after) {
            counts.gap(Gap::Malformed, 1);
        }
        counts.gap(Gap::ClockJumped, self.clock.jumps() - jumps);
    }

    /// The collector reports its state. False if this version does not know the message.
    fn collector_state(&mut self, values: [u64; 3], counts: &mut Counts) -> bool {
        match values[0] {
            state::COLLECTING => {
                self.collect();
                self.info.note = format!("CUPTI {}", values[1]);
            }
            state::IDLE => self.collecting = false,
            state::BUSY => {
                self.info.note = "another tool uses CUPTI, and this version lets only one".to_owned();
            }
            state::UNUSABLE => self.info.note = format!("CUPTI cannot be used: error {}", values[1]),
            state::LOST => counts.gap(Gap::Dropped, values[1]),
            state::SKIPPED => counts.gap(Gap::Skipped, values[1]),
            state::SAMPLING..=state::CUBINS_LEFT => self.samples.state(values, &mut self.info.note, counts),
            _ => return false,
        }
        true
    }

    /// The collector reported the name of a kernel.
    fn kernel_named(&mut self, message: &Message, bytes: &[u8], counts: &mut Counts, profile: &mut Profile) {
        self.samples.named(message.values[0], bytes, profile);
        if self.has_room_for_kernel(message.values[0]) {
            let frame = named_kernel(bytes, profile);
            self.reported_kernels.insert(message.values[0], frame);
            self.origins.named(KernelKey { frame, module: 0 }, &self.names, message.header.time_ns, profile);
        } else {
            counts.gap(Gap::StateFull, 1);
        }
    }

    /// Whether the kernel of a number can be remembered.
    pub(super) fn has_room_for_kernel(&self, number: u64) -> bool {
        self.reported_kernels.len() < REPORTED_MAX || self.reported_kernels.contains_key(&number)
    }

    /// How the launch of an activity was found.
    fn basis(&self) -> Basis {
        if self.info.join == JoinMethod::Exact { Basis::Exact } else { Basis::ByOrder }
    }

    /// When an activity began, by the host's clock, and its duration.
    fn host_times(&mut self, activity: &Activity) -> Option<(u64, Nanos)> {
        let begin = self.clock.host(Time::from_nanos(activity.start_ns))?;
        Some((begin.time.as_nanos(), Nanos(duration(activity)?)))
    }

    /// Counts a kernel that ran, and records its shape.
    fn kernel_ran(&mut self, node: NodeId, activity: &Activity, profile: &mut Profile) {
        let kernels = if activity.graph == 0 && activity.node == 0 {
            &mut self.info.kernels
        } else {
            &mut self.info.graph_kernels
        };
        *kernels += 1;
        let device_arch = self.device_of(activity.device).and_then(Device::arch);
        profile.gpu.shape(node, &Launch { device_arch, ..launch_of(activity) });
    }

    /// Records a duration, and the delay after the launch.
    fn enter_times(
        &mut self,
        at: &DeviceEntry,
        activity: &Activity,
        counts: &mut Counts,
        profile: &mut Profile,
    ) {
        match duration(activity) {
            Some(took) => {
                let metric = match activity.kind {
                    kind::KERNEL | kind::GRAPH => Metric::GpuTime,
                    _ => Metric::CopyTime,
                };
                let stream = self.stream_frame(activity.device, activity.stream, profile);
                counts.gap(Gap::StateFull, u64::from(stream.is_none()));
                let ran = stream.map_or(at.node, |stream| below(stream, at.node, profile));
                profile.tree.add(ran, metric, took);
                let host = self.clock.host(Time::from_nanos(activity.start_ns));
                let delay = host.zip(at.launched_ns).and_then(|(host, launched)| delay(host, launched));
                match delay {
                    Some(delay) => profile.tree.add(ran, Metric::LaunchDelay, delay.0),
                    None => counts.gap(Gap::ClockUnknown, u64::from(at.launched_ns.is_some())),
                }
                if let Some(host) = host {
                    self.show(at, metric, host, Nanos(took), activity, profile);
                }
            }
            None => counts.gap(Gap::WithoutTimes, 1),
        }
    }
}

/// The context of an activity whose launch was not seen, with the reason.
fn without_launch(
    process_node: NodeId,
    frame: FrameId,
    activity: &Activity,
    profile: &mut Profile,
) -> NodeId {
    let kernel = activity.kind == kind::KERNEL;
    let reason = profile.text(LAUNCH_NOT_SEEN.key);
    let unseen = profile.frame(Frame::Unresolved { reason, origin: Origin::Gpu });
    let node = profile.tree.path(process_node, [unseen, frame]);
    if kernel {
        profile.tree.add(node, Metric::Kernels, 1);
    } else if activity.kind != kind::GRAPH {
        profile.tree.add(node, Metric::CopyBytes, activity.bytes);
    }
    node
}

/// Its duration; `None` if unknown.
fn duration(activity: &Activity) -> Option<u64> {
    let known = activity.flags & flag::NO_TIMES == 0;
    activity.end_ns.checked_sub(activity.start_ns).filter(|_| known)
}

/// From the launch to the start; `None` if the clocks are not known well enough.
fn delay(start: HostTime, launched_ns: u64) -> Option<Nanos> {
    let (start_ns, within) = (start.time.as_nanos(), start.within);
    if start_ns.saturating_add(within.0) < launched_ns {
        return None;
    }
    let delay = Nanos(start_ns.saturating_sub(launched_ns));
    (within <= WITHIN_MAX || within.0 <= delay.0 / 10).then_some(delay)
}

fn launch_of(activity: &Activity) -> Launch {
    Launch {
        grid: activity.grid,
        block: activity.block,
        dynamic_shared: activity.dynamic_shared,
        static_shared: Some(activity.static_shared),
        registers: Some(activity.registers),
        arch: None,
        device_arch: None,
    }
}

impl Process {
    /// A tool collects its activities.
    fn collect(&mut self) {
        self.collecting = true;
        self.info.tier = Tier::Collected;
        self.info.join = JoinMethod::Exact;
    }

    /// Whether an activity may have begun after a time of the host; false if the device's clock is unknown.
    fn began_after(&self, activity: &Activity, time_ns: u64) -> bool {
        let start = self.clock.host(Time::from_nanos(activity.start_ns));
        start.is_some_and(|start| start.time.as_nanos().saturating_add(start.within.0) >= time_ns)
    }

    /// The frame of an activity.
    fn frame_of(&self, activity: &Activity, profile: &mut Profile) -> FrameId {
        match activity.kind {
            kind::KERNEL => {
                let reported = self.reported_kernels.get(&activity.name).copied();
                reported.unwrap_or_else(|| kernel_frame(NAME_NOT_REPORTED, profile))
            }
            kind::GRAPH => kernel_frame(WHOLE_GRAPH, profile),
            kind::FILL => kernel_frame("memset", profile),
            _ => kernel_frame(copy_label(activity), profile),
        }
    }

    /// The context of an activity that belongs to a launch.
    fn place(
        &mut self,
        work: &mut Work,
        activity: &Activity,
        frame: FrameId,
        counts: &mut super::counts::Counts,
        profile: &mut Profile,
    ) -> NodeId {
        match work.kind {
            WorkKind::Kernel => {
                let reported = self.reported_kernels.contains_key(&activity.name);
                if let Some(held) = work.held.take() {
                    work.node = self.kernel_node(work.api, frame, 0, profile);
                    profile.tree.add(work.node, Metric::Kernels, 1);
                    self.samples.unknown = self.samples.unknown.saturating_sub(1);
                    self.samples.ran(frame, work.node);
                    counts.gap(Gap::NameUnknown, u64::from(!reported));
                    if reported {
                        self.names.name(held.handle, NamedKernel::new(frame, 0));
                    }
                } else if reported && profile.tree.node(work.node).frame != frame {
                    counts.gap(Gap::NameDiffers, 1);
                }
                work.node
            }
            WorkKind::Kernels => profile.tree.child(work.api, frame),
            WorkKind::Recorded => work.node,
            WorkKind::Transfer { sized } => {
                if !sized {
                    profile.tree.add(work.node, Metric::CopyBytes, activity.bytes);
                }
                work.node
            }
            WorkKind::Graph { .. } if activity.kind == kind::GRAPH => profile.tree.child(work.api, frame),
            WorkKind::Graph { launchable } => {
                let node = match self.recorded_context(launchable, work.api, activity, frame, profile) {
                    // The launch was recorded without a name, which is known now.
                    Some(node) if activity.kind == kind::KERNEL && profile.tree.node(node).frame != frame => {
                        let parent = profile.tree.node(node).parent;
                        self.kernel_node(parent, frame, 0, profile)
                    }
                    Some(node) => node,
                    None => self.kernel_node(work.api, frame, 0, profile),
                };
                match activity.kind {
                    _ if work.counted => {}
                    kind::KERNEL => profile.tree.add(node, Metric::Kernels, 1),
                    _ => profile.tree.add(node, Metric::CopyBytes, activity.bytes),
                }
                node
            }
        }
    }

    /// The context of the launched graph's node that an activity belongs to; `None` if the node was not seen.
    fn recorded_context(
        &mut self,
        launchable: u64,
        api: NodeId,
        activity: &Activity,
        frame: FrameId,
        profile: &mut Profile,
    ) -> Option<NodeId> {
        let graph = self.graphs.launchable(launchable);
        if !graph.as_ref().is_some_and(|graph| graph.updated) {
            let make = |recorded: &RecordedNode| recorded_below(api, recorded.node, profile);
            if let Some(node) = self.graphs.numbered(api, activity.node, make) {
                return Some(node);
            }
        }
        let place = self.graphs.launchable(launchable)?.place(activity.node, frame)?;
        self.graph_contexts(launchable, api, profile).get(place).copied()
    }

    /// Shows an activity in the timeline, and keeps it.
    fn show(
        &mut self,
        at: &DeviceEntry,
        metric: Metric,
        start: HostTime,
        took: Nanos,
        activity: &Activity,
        profile: &mut Profile,
    ) {
        let DeviceEntry { node, process_node, launched_ns } = *at;
        let begin = start.time - profile.meta.started_monotonic;
        let end = begin.saturating_add(took);
        if let Some(lane) = self.lane(activity.device, activity.stream, process_node, profile) {
            profile.timeline.add_span(lane, metric, begin, end, took.0);
        }
        let kind = match activity.kind {
            activity::kind::KERNEL => ActivityKind::Kernel,
            activity::kind::FILL => ActivityKind::Fill,
            activity::kind::GRAPH => ActivityKind::Graph,
            _ => ActivityKind::Copy,
        };
        profile.gpu.activities.push(profile_activity::Activity {
            node,
            kind,
            pid: self.info.pid,
            device: activity.device,
            context: activity.context,
            stream: activity.stream,
            correlation: activity.correlation,
            start: begin,
            end,
            launched: launched_ns.map(|ns| Time::from_nanos(ns) - profile.meta.started_monotonic),
            bytes: activity.bytes,
        });
    }
}

/// A label for `CUpti_ActivityMemcpyKind` (`cupti_activity.h`).
fn copy_label(activity: &Activity) -> &'static str {
    match activity.detail {
        1 => "memcpy HtoD",
        2 => "memcpy DtoH",
        3 => "memcpy HtoA",
        4 => "memcpy AtoH",
        5 => "memcpy AtoA",
        6 => "memcpy AtoD",
        7 => "memcpy DtoA",
        8 => "memcpy DtoD",
        9 => "memcpy HtoH",
        10 => "memcpy PtoP",
        _ if activity.kind == kind::PEER_COPY => "memcpy PtoP",
        _ => "memcpy unified",
    }
}
