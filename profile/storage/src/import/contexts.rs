//! Calling contexts of a trace: its events as sums in a tree.
//!
//! Owns: [`add`]. Because: flame graphs, reports and comparisons are by calling context, and must say of a trace what
//! its events say: both come from one parse. Does not: parse anything.
//!
//! Host operations that lie within each other on a thread are a stack; what one does not spend in others is its wall
//! time. A range or a training step begins within the function that begins it and outlives that: what is left of the
//! function is within the range, and what is left of the function that ends it follows it.
//!
//! Work on a device hangs below the call that launched it: kernels with their time, their number and the delay from the
//! launch, copies and fills with their time and bytes. Without a launch it hangs below a node that says so.
//! Synchronizations on device rows are no time at all: the calls that wait have theirs. Operations of unknown kinds
//! belong to no thread and enter no sum: they are counted.
//!
//! When only a part of the time is selected, each event counts with its share inside that part. A launch from before
//! that part is a context all the same: its work may be in it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use rustc_hash::FxHashMap;

use deepctx_profile::device::gpu::DeviceUse;
use deepctx_profile::frame::{Frame, Origin};
use deepctx_profile::intern::{Id, StrId};
use deepctx_profile::ledger::Stage;
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Profile;
use deepctx_profile::trace::{
    Call, DeviceKind, HostKind, HostOp, Launch, Links, MemoryEvent, Thread, Trace, TraceTime,
};
use deepctx_profile::tree::NodeId;
use deepctx_profile::units::Nanos;

use super::{AMBIGUOUS_ID, NO_LAUNCH, TOO_DEEP, gap, words};

/// Maximum nesting of operations.
const DEPTH_MAX: usize = 16 * 1024;
/// By how much an end may exceed that of the enclosing operation and still be rounded: most writers round to
/// microseconds.
const ROUNDED_NS: u64 = 1000;
/// Maximum parts for each operation of a thread: a range that a program enters in Python has about ten functions at
/// its ends, and is surrounded by more operations than that.
const PARTS_MAX: usize = 4;

/// A part of a trace by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// Start.
    pub(super) from: TraceTime,
    /// Its end, exclusive.
    pub(super) to: TraceTime,
}

impl Part {
    /// The whole trace.
    pub(super) const ALL: Part = Part { from: TraceTime::from_nanos(0), to: TraceTime::from_nanos(u64::MAX) };

    /// The length of a time's overlap with it; `None` without one. An instant has no length, and is inside or not.
    fn of(self, begin: TraceTime, end: TraceTime) -> Option<u64> {
        let is_in = begin < self.to && (self.from < end || self.from <= begin);
        is_in.then(|| (end.min(self.to) - begin.max(self.from)).0)
    }
}

/// Adds the content of a part of a trace to a profile, below `root`. Returns the length of the trace.
pub(super) fn add(trace: &Trace, links: &Links, part: Part, root: NodeId, profile: &mut Profile) -> Nanos {
    for (reason, n) in trace.ledger.stage(Stage::Decode).gaps.iter() {
        profile.ledger.gap(Stage::Decode, reason.clone(), n);
    }
    let mut builder = Builder {
        trace,
        part,
        profile,
        root,
        frames: FxHashMap::default(),
        launches: FxHashMap::default(),
        allocations: Vec::new(),
    };
    let memory = builder.memory_by_thread();
    let first = builder.first_launch(links);
    for (thread, ops) in links.threads().iter().enumerate() {
        let events = memory.get(thread).map_or(&[][..], |events| events);
        builder.thread(Id::from_number(thread as u32), ops, first, events);
    }
    builder.tensors();
    builder.device(links);
    trace.span().map_or(Nanos(0), |(first, last)| last - first)
}

/// Adds how long each device was at work in a part of traces. They share a clock, and devices of one number are one.
pub(super) fn add_device_uses<'t>(
    traces: impl Iterator<Item = &'t Trace> + Clone,
    part: Part,
    profile: &mut Profile,
) {
    let of_all = traces.clone().filter_map(Trace::span);
    let Some((first, last)) = of_all.reduce(|(a, b), (c, d)| (a.min(c), b.max(d))) else { return };
    let (first, last) = (first.max(part.from), last.min(part.to));
    let mut spans: BTreeMap<u32, Vec<(TraceTime, TraceTime)>> = BTreeMap::new();
    for trace in traces {
        for (_, op) in trace.device.iter() {
            let Some(stream) = trace.streams().get(op.stream.index()) else { continue };
            if part.of(op.begin, op.end()).is_some() {
                spans.entry(stream.device).or_default().push((op.begin.max(first), op.end().min(last)));
            }
        }
    }
    let uses = spans.into_values().map(|mut spans| {
        spans.sort_unstable();
        let begin = spans.first().map_or(last, |(begin, _)| *begin);
        let (mut busy, mut until) = (0, first);
        for (begin, end) in spans {
            if end > until {
                busy += (end - begin.max(until)).0;
                until = end;
            }
        }
        DeviceUse { busy: Nanos(busy), until_first: begin - first, since_first: last - begin }
    });
    profile.gpu.uses.extend(uses);
}

struct Builder<'a> {
    trace: &'a Trace,
    part: Part,
    profile: &'a mut Profile,
    root: NodeId,
    /// Frames by name: names repeat thousands of times, and classifying one takes time.
    frames: FxHashMap<(HostKind, StrId), Frame>,
    /// Context and start of each call.
    launches: FxHashMap<Id<HostOp>, (NodeId, u64)>,
    /// Contexts of tensor allocations.
    allocations: Vec<(MemoryEvent, NodeId)>,
}

/// An open operation, or the open part of one.
struct OpenOp {
    node: NodeId,
    id: Id<HostOp>,
    op: HostOp,
    begin: TraceTime,
    end: u64,
    /// Whether a part of it follows the range that ends here.
    goes_on: bool,
    /// Time in nested operations.
    inner: u64,
    /// Time in nested ranges.
    ranges: u64,
    /// The metric of its length, if it is a call that has one.
    metric: Option<Metric>,
    /// That metric, and those of the calls around it.
    counted: CountedMetrics,
}

impl OpenOp {
    fn is_range(&self) -> bool {
        is_range(self.op.kind)
    }
}

/// Metrics that calls within each other have.
#[derive(Clone, Copy, Default)]
struct CountedMetrics {
    launch: bool,
    sync: bool,
}

impl CountedMetrics {
    /// Of the calls around what comes next.
    fn around(open: &[OpenOp]) -> Self {
        let caller = open.last().filter(|above| above.op.kind.is_call());
        caller.map_or(CountedMetrics::default(), |above| above.counted)
    }

    fn has(self, metric: Metric) -> bool {
        match metric {
            Metric::LaunchTime => self.launch,
            _ => self.sync,
        }
    }

    fn with(self, metric: Option<Metric>) -> Self {
        CountedMetrics {
            launch: self.launch || metric == Some(Metric::LaunchTime),
            sync: self.sync || metric == Some(Metric::SyncTime),
        }
    }
}

/// A part of an operation: begin, end (the longer one first), and which.
type OpPart = (u64, Reverse<u64>, u32);

/// The operations of a thread that are open at a time.
struct OpenOps {
    /// Below what they all are.
    root: NodeId,
    open: Vec<OpenOp>,
    /// Parts of operations that come later.
    later: BinaryHeap<Reverse<OpPart>>,
    /// How many more there may be: ranges that overlap in turn would part each function again and again.
    parts_left: usize,
}

impl OpenOps {
    fn part(&mut self, part: OpPart) {
        self.parts_left -= 1;
        self.later.push(Reverse(part));
    }
}

fn is_range(kind: HostKind) -> bool {
    matches!(kind, HostKind::Annotation | HostKind::Step)
}

/// A call has one length and one place; a range has one length.
fn can_be_parted(kind: HostKind) -> bool {
    !kind.is_call() && !is_range(kind)
}

impl Builder<'_> {
    fn memory_by_thread(&self) -> Vec<Vec<MemoryEvent>> {
        let mut by_thread = vec![Vec::new(); self.trace.threads().len()];
        for (_, event) in
            self.trace.memory.iter().filter(|(_, event)| self.part.of(event.at, event.at).is_some())
        {
            by_thread[event.thread.index()].push(event);
        }
        by_thread.iter_mut().for_each(|events| events.sort_by_key(|event| event.at));
        by_thread
    }

    /// Begin of the first call whose work is in the part, or of the part.
    fn first_launch(&self, links: &Links) -> TraceTime {
        if self.part == Part::ALL {
            return self.part.from;
        }
        let in_part = self.trace.device.iter().filter(|(_, op)| self.part.of(op.begin, op.end()).is_some());
        let calls = in_part.filter_map(|(id, _)| self.trace.host.get(links.launch(id).call()?));
        calls.map(|call| call.begin).fold(self.part.from, TraceTime::min)
    }

    /// The stacks of one thread, of operations that end after `first`.
    fn thread(&mut self, thread: Id<Thread>, ops: &[Id<HostOp>], first: TraceTime, memory: &[MemoryEvent]) {
        if ops.is_empty() && memory.is_empty() {
            return;
        }
        let root = self.process(thread);
        let mut memory = memory.iter().peekable();
        let parts_left = ops.len().saturating_mul(PARTS_MAX);
        let mut ops_open = OpenOps { root, open: Vec::new(), later: BinaryHeap::new(), parts_left };
        for id in ops {
            let counts = |op: &HostOp| {
                op.kind != HostKind::UnknownCategory && op.end() >= first && op.begin < self.part.to
            };
            let known = self.trace.host.get(*id).filter(counts);
            let Some(op) = known else { continue };
            while let Some(event) = memory.next_if(|event| event.at < op.begin) {
                self.allocation(&mut ops_open, event);
            }
            let begin = op.begin.as_nanos();
            self.later_until(&mut ops_open, begin);
            self.open(&mut ops_open, *id, op, begin, op.end().as_nanos());
        }
        for event in memory {
            self.allocation(&mut ops_open, event);
        }
        self.later_until(&mut ops_open, u64::MAX);
        self.close_until(&mut ops_open.open, u64::MAX);
    }

    /// Opens the parts of operations that begin up to a time.
    fn later_until(&mut self, ops: &mut OpenOps, time: u64) {
        while let Some(Reverse((begin, Reverse(end), number))) = ops.later.peek().copied() {
            if begin > time {
                break;
            }
            ops.later.pop();
            let id = Id::from_number(number);
            if let Some(op) = self.trace.host.get(id) {
                self.open(ops, id, op, begin, end);
            }
        }
    }

    /// Opens an operation, or the part of one between two times.
    fn open(&mut self, ops: &mut OpenOps, id: Id<HostOp>, op: HostOp, begin: u64, mut end: u64) {
        self.close_until(&mut ops.open, begin);
        let mut goes_on = false;
        if is_range(op.kind) {
            self.close_outlived(ops, begin, end);
        }
        let is_too_deep = ops.open.len() >= DEPTH_MAX;
        if let Some(above) = ops.open.last_mut() {
            let (range_end, whole_end) = (above.end, end);
            end = end.min(above.end);
            let inner = self.part.of(TraceTime::from_nanos(begin), TraceTime::from_nanos(end));
            // What is too deep stays time of the operation around it.
            let inner = inner.filter(|_| !is_too_deep);
            above.inner = above.inner.saturating_add(inner.unwrap_or(0));
            let is_range_end = above.is_range() || above.goes_on;
            let outlives = is_range_end && whole_end > range_end.saturating_add(ROUNDED_NS);
            goes_on = outlives && can_be_parted(op.kind) && ops.parts_left > 0;
            if goes_on {
                ops.part((range_end, Reverse(whole_end), id.number()));
            }
        }
        if is_too_deep {
            return gap(self.profile, TOO_DEEP, 1);
        }
        let frame = self.frame(&op);
        let frame = self.profile.frame(frame);
        let above = ops.open.last().map_or(ops.root, |above| above.node);
        let is_root = self.profile.tree.node(ops.root).frame == frame;
        let node = if is_root { above } else { self.profile.tree.child(above, frame) };
        if op.kind.is_call() {
            self.launches.insert(id, (node, begin));
        }
        let begin = TraceTime::from_nanos(begin);
        // A call of the runtime that makes one of the driver, which some tools list too, launches or waits once.
        let around = CountedMetrics::around(&ops.open);
        let metric = self.metric(&op).filter(|metric| !around.has(*metric));
        let counted = around.with(metric);
        ops.open.push(OpenOp { node, id, op, begin, end, goes_on, inner: 0, ranges: 0, metric, counted });
    }

    /// The metric of a call's length: that of a launch or of a wait.
    fn metric(&self, op: &HostOp) -> Option<Metric> {
        if !op.kind.is_call() {
            return None;
        }
        let name = self.trace.name(op.name);
        match Call::of(name) {
            _ if name.contains("Launch") => Some(Metric::LaunchTime),
            call if call.waits() => Some(Metric::SyncTime),
            _ => None,
        }
    }

    /// Closes the operations that a range begins in and outlives: what is left of them is within the range.
    fn close_outlived(&mut self, ops: &mut OpenOps, begin: u64, end: u64) {
        let outlived =
            |above: &mut OpenOp| can_be_parted(above.op.kind) && end > above.end.saturating_add(ROUNDED_NS);
        while ops.parts_left > 0
            && let Some(mut closed) = ops.open.pop_if(outlived)
        {
            ops.part((begin, Reverse(closed.end), closed.id.number()));
            let left = self.part.of(TraceTime::from_nanos(begin), TraceTime::from_nanos(closed.end));
            closed.end = begin;
            let ranges = self.close(&closed);
            if let Some(above) = ops.open.last_mut() {
                above.inner = above.inner.saturating_sub(left.unwrap_or(0));
                above.ranges = above.ranges.saturating_add(ranges);
            }
        }
    }

    fn close_until(&mut self, open: &mut Vec<OpenOp>, time: u64) {
        while let Some(closed) = open.pop_if(|above| above.end <= time) {
            let ranges = self.close(&closed);
            if let Some(above) = open.last_mut() {
                above.ranges = above.ranges.saturating_add(ranges);
            }
        }
    }

    /// Adds the time of an operation. Returns its time in ranges.
    fn close(&mut self, closed: &OpenOp) -> u64 {
        let Some(length) = self.part.of(closed.begin, TraceTime::from_nanos(closed.end)) else {
            return closed.ranges;
        };
        let tree = &mut self.profile.tree;
        let own = length.saturating_sub(closed.inner);
        if own > 0 {
            tree.add(closed.node, Metric::WallTime, own);
        }
        match closed.op.kind {
            HostKind::RuntimeCall | HostKind::DriverCall => {
                if let Some(metric) = closed.metric {
                    tree.add(closed.node, metric, length);
                }
                closed.ranges
            }
            HostKind::Annotation | HostKind::Step => {
                tree.add(closed.node, Metric::RangeTime, length.saturating_sub(closed.ranges));
                // A truncated step is not a short one.
                let is_whole = length == closed.end - closed.begin.as_nanos();
                if closed.op.kind == HostKind::Step && is_whole {
                    self.profile.add_step(closed.node, Nanos(length));
                }
                length
            }
            _ => closed.ranges,
        }
    }

    /// Adds an allocation or a free to its enclosing operation.
    fn allocation(&mut self, ops: &mut OpenOps, event: &MemoryEvent) {
        self.later_until(ops, event.at.as_nanos());
        self.close_until(&mut ops.open, event.at.as_nanos());
        let node = ops.open.last().map_or(ops.root, |above| above.node);
        self.allocations.push((*event, node));
    }

    /// Bytes of tensors by allocating context, whichever thread frees them. The first schema has no addresses: its
    /// frees cannot be matched.
    fn tensors(&mut self) {
        let mut allocations = std::mem::take(&mut self.allocations);
        allocations.sort_by_key(|(event, _)| event.at);
        let mut live: FxHashMap<(Option<u32>, u64), (NodeId, u64)> = FxHashMap::default();
        for (event, node) in allocations {
            let (bytes, place) = (event.bytes.unsigned_abs(), (event.device, event.address));
            if event.bytes >= 0 {
                self.profile.tree.add(node, Metric::TensorBytes, bytes);
                if event.address != 0 {
                    live.insert(place, (node, bytes));
                }
            } else if let Some((node, bytes)) = live.remove(&place) {
                self.profile.tree.add(node, Metric::TensorReturnedBytes, bytes);
            }
        }
    }

    /// The node of a thread's process.
    fn process(&mut self, thread: Id<Thread>) -> NodeId {
        let Some(thread) = self.trace.threads().get(thread.index()) else { return self.root };
        let pid = self.trace.name(thread.process);
        let frame = match pid.parse::<u32>() {
            Ok(pid) => Frame::Process { comm: self.profile.text("process"), pid },
            Err(_) => Frame::Unresolved { reason: self.profile.text(pid), origin: Origin::Native },
        };
        let frame = self.profile.frame(frame);
        self.profile.tree.child(self.root, frame)
    }

    fn frame(&mut self, op: &HostOp) -> Frame {
        if let Some(frame) = self.frames.get(&(op.kind, op.name)) {
            return *frame;
        }
        let (name, profile) = (self.trace.name(op.name), &mut *self.profile);
        let frame = match op.kind {
            HostKind::RuntimeCall | HostKind::DriverCall => Frame::GpuApi { name: profile.text(name) },
            HostKind::Python => words::python_function(profile, &words::without_addresses(name)),
            HostKind::Layer => words::layer(profile, name),
            HostKind::Operator => Frame::Operator { name: profile.text(name) },
            HostKind::Annotation => Frame::Range { name: profile.text(name) },
            // All steps are one context: their numbers would make as many trees.
            HostKind::Step => Frame::Range { name: profile.text(name.split('#').next().unwrap_or(name)) },
            HostKind::Process => words::process(profile, name).unwrap_or_else(|| words::frame(profile, name)),
            HostKind::OffCpu | HostKind::Other | HostKind::UnknownCategory => words::frame(profile, name),
        };
        self.frames.insert((op.kind, op.name), frame);
        frame
    }

    /// Device work, below the calls that launched it.
    fn device(&mut self, links: &Links) {
        let (mut lost, mut ambiguous) = (0, 0);
        for (id, op) in self.trace.device.iter() {
            let Some(length) = self.part.of(op.begin, op.end()) else { continue };
            let launch = links.launch(id);
            ambiguous += u64::from(matches!(launch, Launch::Ambiguous(_)));
            let found = launch.call().and_then(|call| self.launches.get(&call).copied());
            let (above, launched) = found.map_or_else(
                || {
                    lost += 1;
                    (self.without_launch(), None)
                },
                |(node, begin)| (node, Some(begin)),
            );
            let above = self.stream(above, op.stream);
            let frame = Frame::GpuKernel { name: self.profile.text(self.trace.name(op.name)) };
            let frame = self.profile.frame(frame);
            let tree = &mut self.profile.tree;
            let node = tree.child(above, frame);
            match op.kind {
                DeviceKind::Kernel => {
                    tree.add(node, Metric::GpuTime, length);
                    tree.add(node, Metric::Kernels, 1);
                    if let Some(delay) = launched.and_then(|begin| op.begin.as_nanos().checked_sub(begin)) {
                        tree.add(node, Metric::LaunchDelay, delay);
                    }
                }
                DeviceKind::Copy | DeviceKind::Fill => {
                    tree.add(node, Metric::CopyTime, length);
                    let bytes =
                        u128::from(op.bytes.0) * u128::from(length) / u128::from(op.duration.0.max(1));
                    let is_whole = length == op.duration.0;
                    let bytes = if is_whole { op.bytes.0 } else { u64::try_from(bytes).unwrap_or(u64::MAX) };
                    tree.add(node, Metric::CopyBytes, bytes);
                }
            }
        }
        gap(self.profile, NO_LAUNCH, lost);
        gap(self.profile, AMBIGUOUS_ID, ambiguous);
    }

    fn without_launch(&mut self) -> NodeId {
        let reason = self.profile.text(NO_LAUNCH.key);
        let frame = self.profile.frame(Frame::Unresolved { reason, origin: Origin::Gpu });
        self.profile.tree.child(self.root, frame)
    }

    fn stream(&mut self, above: NodeId, stream: Id<deepctx_profile::trace::Stream>) -> NodeId {
        let Some(of) = self.trace.streams().get(stream.index()) else { return above };
        let frame = Frame::Stream {
            device: of.device,
            stream: of.stream.and_then(|number| u32::try_from(number).ok()),
            name: StrId::EMPTY,
        };
        let frame = self.profile.frame(frame);
        self.profile.tree.child(above, frame)
    }
}

#[cfg(test)]
#[cfg(feature = "export")]
mod tests;
