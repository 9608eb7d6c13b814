//! Lanes: the events of a job as rows over time, to be drawn at any zoom.
//!
//! Owns: [`EventLanes`], a row for each thread and stream of each rank, on one clock. Because: a screen has two
//! hundred columns and a trace has millions of events, so the cost of a picture must depend on the screen, not on the
//! trace. Does not: draw, or align clocks: the caller passes clock offsets.
//!
//! A lane is cut into segments that do not overlap: each moment shows the event that began last and has not ended.
//! Sums of time by class are kept for every [`STRIDE`] segments, so computing the time of each class between any two
//! moments takes one search and at most `STRIDE` steps at each end, regardless of the number of events.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::job_time::at;
use super::{
    CounterLane, DeviceKind, DeviceOp, HostKind, HostOp, Job, KernelClass, Launch, RankTrace, TraceTime,
};
use crate::intern::{Id, StrId};
use crate::units::{Bytes, Nanos};

/// Segments between two stored sums: 72 bytes for each 64 segments of 24 bytes.
pub(super) const STRIDE: usize = 64;

/// Class of an event, as a picture distinguishes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventClass {
    /// A kernel that computes.
    Compute,
    /// A kernel that communicates.
    Communication,
    /// A copy or a fill.
    Memory,
    /// A call of an accelerator's API.
    Call,
    /// A framework's operator.
    Operator,
    /// A Python function.
    Python,
    /// A range, layer or step of the program.
    Range,
    /// Anything else.
    Other,
    /// A thread is off its CPU.
    OffCpu,
}

impl EventClass {
    /// All classes.
    pub const ALL: [Self; 9] = [
        Self::Compute,
        Self::Communication,
        Self::Memory,
        Self::Call,
        Self::Operator,
        Self::Python,
        Self::Range,
        Self::Other,
        Self::OffCpu,
    ];

    pub(super) fn of_host(kind: HostKind) -> Self {
        match kind {
            HostKind::RuntimeCall | HostKind::DriverCall => Self::Call,
            HostKind::Operator => Self::Operator,
            HostKind::Python => Self::Python,
            HostKind::Annotation | HostKind::Layer | HostKind::Step => Self::Range,
            HostKind::OffCpu => Self::OffCpu,
            HostKind::Process | HostKind::Other | HostKind::UnknownCategory => Self::Other,
        }
    }

    pub(super) fn of_device(kind: DeviceKind, name: &str) -> Self {
        match KernelClass::of(kind, name) {
            KernelClass::Compute => Self::Compute,
            KernelClass::Communication => Self::Communication,
            KernelClass::Memory => Self::Memory,
        }
    }

    pub(super) fn place(self) -> usize {
        self as usize
    }
}

/// Time of each class, in the order of [`EventClass::ALL`].
pub type ClassTimes = [u64; EventClass::ALL.len()];

/// The time in which a lane was busy: a thread is not busy while off its CPU.
pub fn busy(times: &ClassTimes) -> u64 {
    EventClass::ALL
        .iter()
        .zip(times)
        .filter(|(class, _)| **class != EventClass::OffCpu)
        .map(|(_, time)| time)
        .sum()
}

/// An event of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// An event of a thread.
    Host(Id<HostOp>),
    /// An event of a stream.
    Device(Id<DeviceOp>),
}

/// A part of a lane that shows one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Begin, since the first event of the job.
    pub from: Nanos,
    /// End.
    pub to: Nanos,
    /// Class of the event.
    pub class: EventClass,
    pub(super) event: u32,
}

/// A thread or a stream.
#[derive(Clone, Debug)]
pub struct EventLane {
    /// Its label (`rank 3 gpu0 stream 7`; `rank 3 own clock gpu0 stream 7` if that clock is not aligned).
    pub label: String,
    /// Whether it is a stream.
    pub is_stream: bool,
    /// Index of the thread or stream in the rank's trace.
    pub(super) number: usize,
    /// Index of the rank in the job.
    pub(super) rank: usize,
    /// Added to a time of the rank's trace: nanoseconds since the first event of the job.
    pub(super) shift: i128,
    pub(super) segments: Vec<Segment>,
    /// Time of each class before every `STRIDE`th segment.
    pub(super) sums: Vec<ClassTimes>,
}

/// One event, for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventFacts {
    /// Its name.
    pub name: String,
    /// Its class.
    pub class: EventClass,
    /// Begin, since the first event of the job.
    pub begin: Nanos,
    /// Length.
    pub duration: Nanos,
    /// Bytes of a copy or a fill; 0 for anything else.
    pub bytes: Bytes,
    /// Its launch; `None` for a host event, and for work without a known launch.
    pub launch: Option<LaunchFacts>,
}

/// The launch of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchFacts {
    /// The call.
    pub call: String,
    /// The thread.
    pub thread: String,
    /// From the end of the call to the begin of the work.
    pub delay: Nanos,
}

/// Sums of a part of the time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeTables {
    /// Begin, since the first event of the job.
    pub from: Nanos,
    /// End.
    pub to: Nanos,
    /// Work of devices by name, most time first.
    pub device: Vec<RangeRow>,
    /// Time on threads by name, most time first: of nested events the innermost.
    pub host: Vec<RangeRow>,
}

/// Events of one name in a part of the time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeRow {
    /// The name.
    pub name: String,
    /// Number of events with a part there.
    pub count: u64,
    /// Their time there.
    pub time: Nanos,
}

/// The events of a job by lane.
#[derive(Clone, Debug)]
pub struct EventLanes {
    pub(super) job: Arc<Job>,
    pub(super) length: Nanos,
    pub(super) lanes: Vec<EventLane>,
    pub(super) counters: Vec<CounterLane>,
    pub(super) unaligned: Vec<u32>,
}

impl EventLanes {
    /// The job.
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// Ranks whose clocks are not aligned with the first rank's: their times cannot be compared with its.
    pub fn unaligned(&self) -> &[u32] {
        &self.unaligned
    }

    /// Two moments since the first event of the job, on the clock of a rank, by its index in the job; `None` if it has
    /// no lane.
    pub fn times_of(&self, rank: usize, from: Nanos, to: Nanos) -> Option<(TraceTime, TraceTime)> {
        let shift = self.lanes.iter().find(|lane| lane.rank == rank)?.shift;
        let own = |at: Nanos| u64::try_from((i128::from(at.0) - shift).max(0)).unwrap_or(u64::MAX);
        Some((TraceTime::from_nanos(own(from)), TraceTime::from_nanos(own(to))))
    }

    /// From the first event to the end of the last; never 0.
    pub fn length(&self) -> Nanos {
        self.length
    }

    /// The lanes: of each rank its streams, then its threads, each the busiest first.
    pub fn lanes(&self) -> &[EventLane] {
        &self.lanes
    }

    /// The counters of all ranks that are ever above 0: of each rank by name.
    pub fn counters(&self) -> &[CounterLane] {
        &self.counters
    }

    /// Number of rows of a picture: the lanes, then the counters.
    pub fn row_count(&self) -> usize {
        self.lanes.len() + self.counters.len()
    }

    /// The counter of a row.
    pub fn counter_of_row(&self, row: usize) -> Option<&CounterLane> {
        self.counters.get(row.checked_sub(self.lanes.len())?)
    }

    /// Facts about the event of a segment.
    pub fn facts(&self, lane: &EventLane, segment: Segment) -> Option<EventFacts> {
        let of = self.job.ranks().get(lane.rank)?;
        let name = |name: StrId| crate::frame::clean(of.trace.name(name));
        match lane.event(segment) {
            Event::Host(id) => {
                let op = of.trace.host.get(id)?;
                let (class, begin) = (EventClass::of_host(op.kind), lane.at(op.begin));
                let name = name(op.name);
                Some(EventFacts { name, class, begin, duration: op.duration, bytes: Bytes(0), launch: None })
            }
            Event::Device(id) => {
                let op = of.trace.device.get(id)?;
                let class = EventClass::of_device(op.kind, of.trace.name(op.name));
                let (begin, launch) = (lane.at(op.begin), launch(of, of.links.launch(id), &op));
                let name = name(op.name);
                Some(EventFacts { name, class, begin, duration: op.duration, bytes: op.bytes, launch })
            }
        }
    }

    /// The name of the event of a segment.
    pub fn name(&self, lane: &EventLane, segment: Segment) -> &str {
        self.job
            .ranks()
            .get(lane.rank)
            .map_or("", |of| lane.name(of, segment).map_or("", |name| of.trace.name(name)))
    }

    /// Sums of a part of the time by name. Takes time in proportion to the events there.
    pub fn range(&self, from: Nanos, to: Nanos) -> RangeTables {
        let mut sums: [FxHashMap<(usize, StrId), Sum>; 2] = Default::default();
        for lane in &self.lanes {
            // An event with nested events has several segments.
            let mut seen = FxHashSet::default();
            let Some(of) = self.job.ranks().get(lane.rank) else { continue };
            for segment in lane.between(from, to) {
                let Some(name) = lane.name(of, *segment) else { continue };
                let sum = sums[usize::from(lane.is_stream)].entry((lane.rank, name)).or_default();
                let time = (segment.to.min(to)).saturating_sub(segment.from.max(from)).0;
                sum.time = sum.time.saturating_add(time);
                sum.count += u64::from(seen.insert(segment.event));
            }
        }
        let [host, device] = sums.map(|sums| self.rows(sums));
        RangeTables { from, to, device, host }
    }

    fn rows(&self, sums: FxHashMap<(usize, StrId), Sum>) -> Vec<RangeRow> {
        // Handles of names belong to one trace.
        let mut by_name: FxHashMap<&str, (u64, u64)> = FxHashMap::default();
        for ((rank, name), sum) in sums {
            let Some(of) = self.job.ranks().get(rank) else { continue };
            let row = by_name.entry(of.trace.name(name)).or_default();
            *row = (row.0 + sum.count, row.1.saturating_add(sum.time));
        }
        let row = |(name, (count, time)): (&str, (u64, u64))| RangeRow {
            name: crate::frame::clean(name),
            count,
            time: Nanos(time),
        };
        let mut rows: Vec<RangeRow> = by_name.into_iter().map(row).collect();
        rows.sort_by(|a, b| b.time.cmp(&a.time).then_with(|| a.name.cmp(&b.name)));
        rows
    }
}

/// Events of one name, while they are counted.
#[derive(Default)]
struct Sum {
    count: u64,
    time: u64,
}

fn launch(of: &RankTrace, launch: Launch, op: &DeviceOp) -> Option<LaunchFacts> {
    let call = of.trace.host.get(launch.call()?)?;
    let thread = of.trace.threads().get(call.thread.index())?;
    Some(LaunchFacts {
        call: crate::frame::clean(of.trace.name(call.name)),
        thread: crate::frame::clean(of.trace.name(thread.thread)),
        delay: op.begin - call.end(),
    })
}

impl EventLane {
    /// Time of each class between two moments.
    pub fn times(&self, from: Nanos, to: Nanos) -> ClassTimes {
        let (until_from, until_to) = (self.times_before(from), self.times_before(to));
        std::array::from_fn(|place| until_to[place].saturating_sub(until_from[place]))
    }

    fn times_before(&self, at: Nanos) -> ClassTimes {
        let number = self.segments.partition_point(|segment| segment.from < at);
        // The last of them may extend beyond the moment: stored sums must not include it.
        let stored = number.saturating_sub(1) / STRIDE;
        let mut times = self.sums.get(stored).copied().unwrap_or_default();
        for segment in self.segments.get(stored * STRIDE..number).unwrap_or_default() {
            times[segment.class.place()] += segment.to.min(at).saturating_sub(segment.from).0;
        }
        times
    }

    /// The segment at a moment, otherwise the nearest one.
    pub fn nearest(&self, at: Nanos) -> Option<Segment> {
        let next = self.segments.partition_point(|segment| segment.from <= at);
        let before = next.checked_sub(1).and_then(|place| self.segments.get(place));
        let after = self.segments.get(next);
        match (before, after) {
            (Some(before), _) if before.to > at => Some(*before),
            (Some(before), Some(after)) => {
                let is_nearer = at.saturating_sub(before.to) <= after.from.saturating_sub(at);
                Some(if is_nearer { *before } else { *after })
            }
            (one, other) => one.or(other).copied(),
        }
    }

    /// The first segment that begins after a moment.
    pub fn next(&self, at: Nanos) -> Option<Segment> {
        self.segments.get(self.segments.partition_point(|segment| segment.from <= at)).copied()
    }

    /// The last segment that begins before a moment.
    pub fn previous(&self, at: Nanos) -> Option<Segment> {
        let place = self.segments.partition_point(|segment| segment.from < at).checked_sub(1)?;
        self.segments.get(place).copied()
    }

    /// The segments that overlap the time between two moments.
    pub fn between(&self, from: Nanos, to: Nanos) -> &[Segment] {
        let first = self.segments.partition_point(|segment| segment.to <= from);
        let end = self.segments.partition_point(|segment| segment.from < to);
        self.segments.get(first..end.max(first)).unwrap_or_default()
    }

    fn event(&self, segment: Segment) -> Event {
        match self.is_stream {
            true => Event::Device(Id::from_number(segment.event)),
            false => Event::Host(Id::from_number(segment.event)),
        }
    }

    /// The name of a segment's event in the trace of the lane's rank.
    fn name(&self, of: &RankTrace, segment: Segment) -> Option<StrId> {
        match self.event(segment) {
            Event::Host(id) => of.trace.host.get(id).map(|op| op.name),
            Event::Device(id) => of.trace.device.get(id).map(|op| op.name),
        }
    }

    pub(super) fn at(&self, time: TraceTime) -> Nanos {
        at(self.shift, time)
    }
}
