//! Activity: device work in more detail than the figures of a context.
//!
//! Owns: the source of a process's kernel times ([`Tier`]), the offset of its device clock, and how many launches
//! were observed on either side ([`GpuProcess`]); launch shapes by context ([`Shape`]); and the latest activities of
//! devices with their times ([`Activities`]). Because: a measured time and a merely bounded one must never look
//! alike, and a replay needs single activities. Does not: join anything (the pipeline does), or read clocks.

use std::collections::VecDeque;
use std::fmt;

use serde::de::IntoDeserializer as _;
use serde::de::value::{Error, StringDeserializer};
use serde::{Deserialize, Deserializer, Serialize};

use crate::device::Device;
use crate::device::occupancy::Occupancy;
use crate::tree::NodeId;
use crate::units::Nanos;

/// Where the times of a process's device work come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// Calls were observed from outside: device time is bounded by them, never measured.
    #[default]
    Observed,
    /// Records of another tool's collection were read.
    Borrowed,
    /// Our collector reported them.
    Collected,
}

impl Tier {
    /// Display form: `T0 observed`.
    pub const fn label(self) -> &'static str {
        match self {
            Tier::Observed => "T0 observed",
            Tier::Borrowed => "T1 borrowed",
            Tier::Collected => "T2 collected",
        }
    }

    /// How reliable times of devices are.
    pub const fn times(self) -> &'static str {
        match self {
            Tier::Observed => "bounds only",
            Tier::Borrowed => "from the program's own profiler",
            Tier::Collected => "measured (CUPTI)",
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.label())
    }
}

/// How activities were assigned to launches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JoinMethod {
    /// Nothing was joined.
    #[default]
    None,
    /// By the correlation id of the launch.
    Exact,
    /// By the order of launches in their thread, and by the launched work.
    Estimated,
}

/// Offset of a device clock from `CLOCK_MONOTONIC`: device time plus `offset_ns` is host time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockOffset {
    /// Host minus device, nanoseconds.
    pub offset_ns: i64,
    /// Bound of the error of the offset.
    #[serde(rename = "uncertainty_ns")]
    pub uncertainty: Nanos,
    /// How far the offset moved between the first and the last reading, nanoseconds.
    pub drift_ns: i64,
    /// Readings that it is based on.
    pub readings: u64,
}

/// A value by its name, or the default for a name that only a newer version knows.
fn or_default<'de, T, D>(from: D) -> Result<T, D::Error>
where
    T: Deserialize<'de> + Default,
    D: Deserializer<'de>,
{
    let name: StringDeserializer<Error> = String::deserialize(from)?.into_deserializer();
    Ok(T::deserialize(name).unwrap_or_default())
}

/// Facts about the device work of one process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GpuProcess {
    /// The process, as the profiler sees it; 0 for a sum.
    pub pid: u32,
    /// Processes that the row is the sum of, since they have no row of their own; 0 when it is of one process.
    pub joined_processes: u64,
    /// Where the times come from.
    #[serde(deserialize_with = "or_default")]
    pub tier: Tier,
    /// How activities were joined with launches.
    #[serde(deserialize_with = "or_default")]
    pub join: JoinMethod,
    /// A note about the collector or its absence; empty for none.
    pub note: String,
    /// Kernel launches observed by probes, without those captured into graphs.
    pub launches: u64,
    /// Of these, launches without a stack of their own, because stacks were limited.
    pub launches_without_stack: u64,
    /// Launches into a graph that was being captured: nothing ran yet.
    pub captured: u64,
    /// Launches of graphs.
    pub graph_launches: u64,
    /// Copies and fills.
    pub transfers: u64,
    /// Of these, those made while activities were collected.
    pub transfers_collected: u64,
    /// Of `launches`, those made while activities were collected: as many kernels should be reported.
    pub launches_collected: u64,
    /// Kernels outside of graphs, as reported by activities.
    pub kernels: u64,
    /// Kernels of graphs, as reported by activities.
    pub graph_kernels: u64,
    /// Of all reported kernels, those joined with a launch.
    pub joined: u64,
    /// Overhead of the collecting interface, as reported by it.
    #[serde(rename = "overhead_ns")]
    pub overhead: Nanos,
    /// Upper bound of the time that devices were busy for the process: each wait adds the time since the
    /// first launch that it covers.
    #[serde(rename = "busy_at_most_ns")]
    pub busy_at_most: Nanos,
    /// Offset of its device clock; `None` without a reading.
    pub clock: Option<ClockOffset>,
    /// Its devices, as far as a collector reported them.
    pub devices: Vec<Device>,
}

impl GpuProcess {
    /// Whether it used a device.
    pub fn is_used(&self) -> bool {
        *self != GpuProcess { pid: self.pid, ..GpuProcess::default() }
    }

    /// Launches by probes minus kernels by activities, outside of graphs: 0 when both sides agree.
    pub fn difference(&self) -> i128 {
        i128::from(self.launches_collected) - i128::from(self.kernels)
    }
}

/// The smallest, largest and last of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread {
    /// The smallest.
    pub min: u32,
    /// The largest.
    pub max: u32,
    /// The last.
    pub last: u32,
}

impl Spread {
    fn of(value: u32) -> Self {
        Spread { min: value, max: value, last: value }
    }

    fn merge(&mut self, other: &Spread) {
        *self = Spread { min: self.min.min(other.min), max: self.max.max(other.max), last: other.last };
    }
}

/// How one kernel was launched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Launch {
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block, bytes.
    pub dynamic_shared: u32,
    /// Static shared memory of a block, bytes; known only from activities and device code.
    pub static_shared: Option<u32>,
    /// Registers of a thread; likewise.
    pub registers: Option<u32>,
    /// Architecture of the code that ran: 80 for `sm_80`; known only from device code.
    pub arch: Option<u32>,
    /// Architecture of the device that ran it; known only from a collector.
    pub device_arch: Option<u32>,
}

/// How the kernels of one context were launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Blocks, by dimension.
    pub grid: [Spread; 3],
    /// Threads of a block, by dimension.
    pub block: [Spread; 3],
    /// Dynamic shared memory of a block, bytes.
    pub dynamic_shared: Spread,
    /// Static shared memory of a block, bytes; `None` while unknown.
    pub static_shared: Option<Spread>,
    /// Registers of a thread; likewise.
    pub registers: Option<Spread>,
    /// Architecture of the code: 80 for `sm_80`; likewise.
    pub arch: Option<Spread>,
    /// Architecture of the device; likewise.
    pub device_arch: Option<Spread>,
}

impl Shape {
    /// The shape of one launch.
    pub fn of(launch: &Launch) -> Self {
        Shape {
            grid: launch.grid.map(Spread::of),
            block: launch.block.map(Spread::of),
            dynamic_shared: Spread::of(launch.dynamic_shared),
            static_shared: launch.static_shared.map(Spread::of),
            registers: launch.registers.map(Spread::of),
            arch: launch.arch.map(Spread::of),
            device_arch: launch.device_arch.map(Spread::of),
        }
    }

    pub(super) fn add(&mut self, launch: &Launch) {
        self.merge(&Shape::of(launch));
    }

    /// Shared memory of a block at the last launch, bytes; `None` while its static part is unknown.
    pub fn shared(&self) -> Option<u32> {
        Some(self.dynamic_shared.last.saturating_add(self.static_shared?.last))
    }

    /// The most shared memory of a block, bytes; `None` while its static part is unknown. Kernels of one name may have
    /// several static parts, so it is an upper bound.
    pub fn most_shared(&self) -> Option<u32> {
        Some(self.dynamic_shared.max.saturating_add(self.static_shared?.max))
    }

    /// Threads of a block of the last launch.
    pub fn threads(&self) -> u32 {
        self.block.iter().fold(1u32, |threads, of| threads.saturating_mul(of.last))
    }

    /// Architecture that the last launch ran on: the device's; while that is unknown, that of the code, which is
    /// compiled for it or for an earlier one.
    pub fn runs_on(&self) -> Option<u32> {
        self.device_arch.or(self.arch).map(|of| of.last)
    }

    /// How many blocks of the last launch fit on a multiprocessor; `None` while some limit of it is unknown.
    pub fn occupancy(&self) -> Option<Occupancy> {
        Occupancy::of(self.runs_on()?, self.threads(), self.registers?.last, self.shared()?)
    }

    pub(super) fn merge(&mut self, other: &Shape) {
        let pairs = self.grid.iter_mut().chain(&mut self.block).zip(other.grid.iter().chain(&other.block));
        pairs.for_each(|(mine, theirs)| mine.merge(theirs));
        self.dynamic_shared.merge(&other.dynamic_shared);
        for (mine, theirs) in [
            (&mut self.static_shared, other.static_shared),
            (&mut self.registers, other.registers),
            (&mut self.arch, other.arch),
            (&mut self.device_arch, other.device_arch),
        ] {
            match (mine.as_mut(), theirs) {
                (Some(mine), Some(theirs)) => mine.merge(&theirs),
                (None, theirs) => *mine = theirs,
                (Some(_), None) => {}
            }
        }
    }
}

/// Kind of device work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ActivityKind {
    /// A kernel ran.
    Kernel,
    /// Bytes were copied.
    Copy,
    /// Bytes were set.
    Fill,
    /// A graph ran, reported as one activity.
    Graph,
    /// The host waited, as the device's interface reports it.
    Sync,
}

impl ActivityKind {
    /// Every kind.
    pub const ALL: [ActivityKind; 5] = [
        ActivityKind::Kernel,
        ActivityKind::Copy,
        ActivityKind::Fill,
        ActivityKind::Graph,
        ActivityKind::Sync,
    ];

    /// Stored name.
    pub const fn name(self) -> &'static str {
        match self {
            ActivityKind::Kernel => "kernel",
            ActivityKind::Copy => "copy",
            ActivityKind::Fill => "fill",
            ActivityKind::Graph => "graph",
            ActivityKind::Sync => "sync",
        }
    }
}

/// One activity of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activity {
    /// Its context.
    pub node: NodeId,
    /// Its kind.
    pub kind: ActivityKind,
    /// The process.
    pub pid: u32,
    /// Device.
    pub device: u32,
    /// Context on the device.
    pub context: u32,
    /// Stream of the context.
    pub stream: u32,
    /// Correlation id of the call; 0 for none.
    pub correlation: u32,
    /// Begin, since the capture began, by the host's clock as far as the offset is known.
    pub start: Nanos,
    /// End, likewise.
    pub end: Nanos,
    /// When the host launched it, since the capture began; `None` when the call was not observed.
    pub launched: Option<Nanos>,
    /// Bytes copied or filled; 0 for other work.
    pub bytes: u64,
}

/// The latest activities of devices.
#[derive(Clone, Debug, Default)]
pub struct Activities {
    ring: VecDeque<Activity>,
    capacity: usize,
    left_out: u64,
}

impl Activities {
    /// Keeps at most `capacity` activities and drops the oldest beyond. One takes about 80 bytes.
    pub fn new(capacity: usize) -> Self {
        Activities { ring: VecDeque::new(), capacity, left_out: 0 }
    }

    /// Adds one.
    pub fn push(&mut self, activity: Activity) {
        if self.ring.len() >= self.capacity {
            self.leave_out(1);
            self.ring.pop_front();
        }
        if self.capacity > 0 {
            self.ring.push_back(activity);
        }
    }

    /// Activities in the order in which they were reported, not by time.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Activity> {
        self.ring.iter()
    }

    /// Counts activities that were never added.
    pub fn leave_out(&mut self, n: u64) {
        self.left_out = self.left_out.saturating_add(n);
    }

    /// How many were dropped or never added.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }
}

/// Processes that are kept: more than run on the devices of a host.
pub const PROCESSES_MAX: usize = 1024;
/// Activities kept by default: some seconds of a busy device, 5 MiB.
pub const ACTIVITIES: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn node(number: u32) -> NodeId {
        NodeId::from_number(number)
    }

    #[test]
    fn the_oldest_activities_are_dropped_and_counted() {
        let mut activities = Activities::new(2);
        let activity = |correlation| Activity {
            node: node(1),
            kind: ActivityKind::Kernel,
            pid: 1,
            device: 0,
            context: 1,
            stream: 7,
            correlation,
            start: Nanos(1),
            end: Nanos(2),
            launched: None,
            bytes: 0,
        };
        (1..=5).for_each(|correlation| activities.push(activity(correlation)));
        assert_eq!(activities.iter().map(|a| a.correlation).collect::<Vec<_>>(), [4, 5]);
        assert_eq!(activities.left_out(), 3);
        let mut none = Activities::new(0);
        none.push(activity(1));
        assert_eq!((none.iter().len(), none.left_out()), (0, 1));
        // A file may say anything.
        none.leave_out(u64::MAX);
        none.push(activity(2));
        assert_eq!(none.left_out(), u64::MAX);
    }

    #[test]
    fn launches_and_kernels_are_compared_outside_of_graphs() {
        let process =
            GpuProcess { launches_collected: 10, kernels: 8, graph_kernels: 100, ..GpuProcess::default() };
        assert_eq!(process.difference(), 2);
    }
}
