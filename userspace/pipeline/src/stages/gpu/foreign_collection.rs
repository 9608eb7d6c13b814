//! Foreign collection: records of another tool's collection, as CUPTI delivered them.
//!
//! Owns: reading CUPTI's own records, and finding the launch of each. Because: a process that another tool profiles
//! already measures its kernels, and reading along costs it nothing. Does not: claim more than it knows: the
//! correlation ids of launches are not reported, so launches are matched by order, and every profile says so.
//!
//! CUPTI assigns correlation ids in the order of calls, and the order of calls is known from their times. So records
//! sorted by id match launches sorted by time, as far as both are complete: the next record belongs to the next
//! launch of the same kernel and shape (or copy of the same size). If launches were skipped, the record after it must
//! match as well.
//!
//! The members read here ([`cupti`]) have the same offsets in every CUPTI from 11.7 to 13.5
//! (`tests/fixtures/cupti_records.tsv`, computed by a C compiler from its headers): records only ever grew at their
//! end.

use std::collections::{BTreeMap, VecDeque};

use deepctx_common::activity::{Activity, flag, kind};
use deepctx_common::call::Message;
use deepctx_common::cupti::{self, of_copy, of_kernel};
use deepctx_profile::device::activity::{GpuProcess, JoinMethod, Launch, Tier};
use deepctx_profile::intern::FrameId;
use deepctx_profile::profile::Profile;
use deepctx_profile::tree::NodeId;
use rustc_hash::FxHashMap;

use super::Gpu;
use super::counts::Gap;
use super::kernels::named_kernel;
use super::names::KernelKey;

/// Launches that may wait for their records: those of some seconds.
const QUEUE_MAX: usize = 1 << 17;
/// Records that may wait for those with smaller ids.
const HELD_MAX: usize = 1 << 16;
/// How long they wait: buffers of one flush come together.
const HOLD_NS: u64 = 1_000_000_000;
/// How many launches may be skipped to find that of a record.
const PASSED_OVER_MAX: usize = 256;
/// The launch of the next record must be within this many launches after it.
const NEXT_WITHIN: usize = 16;
/// Calls seen by CUPTI, remembered for the clock.
const API_MAX: usize = 1 << 16;
/// Shortest span from which the units of the other tool's clock can be derived.
const SPAN_MIN_NS: u64 = 20_000_000;

/// Whether switching on this kind of record makes CUPTI report kernels.
pub(super) fn reports_kernels(kind: u64) -> bool {
    cupti::kind::KERNELS.iter().any(|kernel| u64::from(*kernel) == kind)
}

/// A record that was read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Record {
    /// An activity of a device. Its times are in the units of the other tool's clock.
    Activity(Activity),
    /// A call, with its begin and end on that clock.
    Api { correlation: u32, begin: u64, end: u64 },
    /// Something else.
    Other,
}

/// Reads a record; `None` if it is too short for its kind.
pub(super) fn read(bytes: &[u8]) -> Option<Record> {
    let word = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    let half = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let three = |at: usize| Some([half(at)?, half(at + 4)?, half(at + 8)?]);
    let Some(layout) = cupti::layout(half(0)?) else { return Some(Record::Other) };
    let activity = match layout.kind {
        kind::KERNEL => Activity {
            registers: u32::from(u16::from_ne_bytes(
                bytes.get(of_kernel::REGISTERS..of_kernel::REGISTERS + 2)?.try_into().ok()?,
            )),
            grid: three(of_kernel::GRID)?,
            block: three(of_kernel::BLOCK)?,
            static_shared: half(of_kernel::STATIC_SHARED)?,
            dynamic_shared: half(of_kernel::DYNAMIC_SHARED)?,
            // Later fields are newer than some versions, or cut off.
            queued_ns: word(of_kernel::QUEUED).unwrap_or(0),
            ..Activity::default()
        },
        kind::COPY | kind::PEER_COPY => Activity {
            detail: *bytes.get(of_copy::KIND)?,
            bytes: word(of_copy::BYTES)?,
            ..Activity::default()
        },
        kind::FILL => Activity { bytes: word(of_copy::BYTES)?, ..Activity::default() },
        _ if *layout == cupti::API => {
            return Some(Record::Api {
                correlation: half(layout.correlation)?,
                begin: word(layout.start)?,
                end: word(layout.end)?,
            });
        }
        _ => return Some(Record::Other),
    };
    // In peer copies this field is too new to be relied on.
    let of_graph = layout.kind != kind::PEER_COPY;
    Some(Record::Activity(Activity {
        kind: layout.kind,
        start_ns: word(layout.start)?,
        end_ns: word(layout.end)?,
        device: half(layout.device)?,
        context: half(layout.context)?,
        stream: half(layout.stream)?,
        correlation: half(layout.correlation)?,
        node: if of_graph { word(layout.node).unwrap_or(0) } else { 0 },
        graph: if of_graph { half(layout.graph).unwrap_or(0) } else { 0 },
        ..activity
    }))
}

/// A launch that waits for its record.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueuedLaunch {
    pub(super) number: u64,
    pub(super) time_ns: u64,
    pub(super) what: LaunchIdentity,
}

/// Identifies a launch.
#[derive(Clone, Copy, Debug)]
pub(super) enum LaunchIdentity {
    /// The kernel, if it is named, and its shape.
    Kernel(Option<FrameId>, Launch),
    /// Bytes, if they are known.
    Transfer(Option<u64>),
    Graph,
}

/// A record that waits for those with smaller ids.
#[derive(Clone, Copy, Debug)]
struct HeldRecord {
    since_ns: u64,
    activity: Activity,
    /// The kernel.
    frame: Option<FrameId>,
}

/// More records must come before this can be decided.
struct IncompleteRecords;

impl QueuedLaunch {
    fn fits(&self, record: &HeldRecord) -> bool {
        let activity = &record.activity;
        let of_graph = activity.graph != 0 || activity.node != 0;
        match self.what {
            LaunchIdentity::Graph => of_graph,
            LaunchIdentity::Transfer(bytes) => {
                !of_graph
                    && activity.kind != kind::KERNEL
                    && bytes.is_none_or(|bytes| bytes == activity.bytes)
            }
            LaunchIdentity::Kernel(frame, launch) => {
                let same = frame.is_none() || record.frame.is_none() || frame == record.frame;
                // The oldest kind of launch has no shape.
                let shaped =
                    launch.block == [0; 3] || (launch.grid, launch.block) == (activity.grid, activity.block);
                !of_graph && activity.kind == kind::KERNEL && same && shaped
            }
        }
    }
}

/// The units of another tool's clock.
#[derive(Clone, Copy, Debug, Default)]
struct Units {
    /// Host and other time of the first call seen by both.
    first: Option<(u64, u64)>,
    /// Other units per host nanosecond; 0 while unknown.
    ratio: f64,
}

impl Units {
    fn record(&mut self, host_ns: u64, other: u64) {
        let (host, begin) = *self.first.get_or_insert((host_ns, other));
        let span = host_ns.saturating_sub(host);
        if span >= SPAN_MIN_NS {
            self.ratio = other.saturating_sub(begin) as f64 / span as f64;
        }
    }

    /// A time in nanoseconds of a clock that runs as fast as the host's; `None` if the units are unknown.
    fn nanoseconds(&self, other: u64, started_ns: u64) -> Option<u64> {
        // Nanoseconds, as CUPTI gives them unless it was set otherwise.
        if (self.ratio - 1.0).abs() < 0.02 {
            return Some(other);
        }
        if self.ratio > 0.0 {
            let (host, begin) = self.first?;
            let since = (other as i128 - begin as i128) as f64 / self.ratio;
            return Some(i128::from(host).saturating_add(since as i128).clamp(0, i128::from(u64::MAX)) as u64);
        }
        // Nothing to compare with. CUPTI counts from 1970; a day around the begin of the capture is plausible.
        (started_ns > 0 && other.abs_diff(started_ns) < 86_400_000_000_000).then_some(other)
    }
}

/// The other tool's collection in a process.
#[derive(Debug, Default)]
pub(super) struct ForeignCollection {
    /// Records of kernels are switched on, as far as seen.
    on: bool,
    /// A launch is the first of a collection only if its begin was seen.
    begin_seen: bool,
    queue: VecDeque<QueuedLaunch>,
    held: BTreeMap<u32, Vec<HeldRecord>>,
    records: usize,
    calls: FxHashMap<u32, (u64, u64)>,
    units: Units,
    /// Launches before the first record came.
    unconfirmed: u64,
}

impl ForeignCollection {
    /// Whether a record of a launch made now may come.
    pub(super) fn is_on(&self) -> bool {
        self.on
    }

    /// A launch waits for its record.
    pub(super) fn queue(&mut self, queued: QueuedLaunch) {
        if self.queue.len() >= QUEUE_MAX {
            self.queue.pop_front();
        }
        self.queue.push_back(queued);
    }

    /// The index in the queue of a record's launch; `Err` if more records must come to decide it.
    fn find(
        &self,
        record: &HeldRecord,
        next: Option<&HeldRecord>,
        last: bool,
    ) -> Result<Option<usize>, IncompleteRecords> {
        let candidates = self.queue.iter().enumerate().take(PASSED_OVER_MAX);
        for (at, _) in candidates.filter(|(_, queued)| queued.fits(record)) {
            if at == 0 {
                return Ok(Some(0));
            }
            match next {
                Some(next) if self.queue.iter().skip(at + 1).take(NEXT_WITHIN).any(|q| q.fits(next)) => {
                    return Ok(Some(at));
                }
                Some(_) => {}
                None if last => return Ok(Some(at)),
                None => return Err(IncompleteRecords),
            }
        }
        Ok(None)
    }

    /// A tool switches records of kernels on.
    pub(super) fn on_begin(&mut self) {
        self.queue.clear();
        self.on = true;
        self.begin_seen = true;
    }

    /// It switches them off; records of work under way still come.
    pub(super) fn on_end(&mut self) {
        self.on = false;
    }

    /// Counts launches of a process whose kernels should be reported.
    pub(super) fn count(&mut self, kernels: u64, process: &mut GpuProcess) {
        if process.tier == Tier::Borrowed {
            process.launches_collected += kernels;
        } else {
            self.unconfirmed += kernels;
        }
    }
}

impl Gpu {
    /// A record of another tool's collection.
    pub(super) fn borrow(&mut self, message: &Message, bytes: &[u8], profile: &mut Profile) {
        let Some(process) = self.processes.get_mut(message.pid) else { return };
        let (record, name) =
            bytes.split_at(usize::try_from(message.values[0]).map_or(bytes.len(), |n| n.min(bytes.len())));
        let Some(record) = read(record) else {
            self.counts.gap(Gap::Malformed, 1);
            return;
        };
        // Our own collector reports more.
        if process.info.tier == Tier::Collected {
            return;
        }
        let borrowed = &mut process.foreign;
        if process.info.tier == Tier::Observed {
            process.info.tier = Tier::Borrowed;
            process.info.join = JoinMethod::Estimated;
            process.info.launches_collected += std::mem::take(&mut borrowed.unconfirmed);
            borrowed.on |= !borrowed.begin_seen;
        }
        match record {
            Record::Other => {}
            Record::Api { correlation, begin, end } => {
                if borrowed.calls.len() >= API_MAX {
                    borrowed.calls.clear();
                }
                borrowed.calls.insert(correlation, (begin, end));
            }
            Record::Activity(activity) => {
                let frame =
                    (activity.kind == kind::KERNEL && !name.is_empty()).then(|| named_kernel(name, profile));
                if let Some(frame) = frame {
                    process.origins.named(
                        KernelKey { frame, module: 0 },
                        &process.names,
                        message.header.time_ns,
                        profile,
                    );
                }
                let borrowed = &mut process.foreign;
                let held = HeldRecord { since_ns: message.header.time_ns, activity, frame };
                borrowed.held.entry(activity.correlation).or_default().push(held);
                borrowed.records += 1;
                if borrowed.records > HELD_MAX {
                    self.settle(message.pid, u64::MAX, profile);
                }
            }
        }
    }

    /// Joins the borrowed records of all processes that have waited long enough.
    pub(super) fn settle_all(&mut self, now_ns: u64, profile: &mut Profile) {
        let waiting = self.processes.followed.iter().filter(|(_, process)| process.foreign.records > 0);
        for pid in waiting.map(|(pid, _)| pid).collect::<Vec<_>>() {
            self.settle(pid, now_ns, profile);
        }
    }

    /// Joins the borrowed records of a process that have waited long enough; with `u64::MAX` all of them. All are
    /// joined before any is entered: what the last ones show about the clock holds for the first ones too.
    pub(super) fn settle(&mut self, pid: u32, now_ns: u64, profile: &mut Profile) {
        let mut joined = Vec::new();
        while let Some(records) = self.join_next(pid, now_ns, profile) {
            joined.extend(records);
        }
        let Some(node) = self.processes.get_mut(pid).and_then(|process| process.node) else { return };
        for record in joined {
            self.borrowed_activity(pid, node, record, profile);
        }
    }

    /// Finds the launch of the records with the smallest id; `None` if there are none, or they must wait.
    fn join_next(&mut self, pid: u32, now_ns: u64, profile: &Profile) -> Option<Vec<HeldRecord>> {
        let last = now_ns == u64::MAX;
        let process = self.processes.get_mut(pid)?;
        let borrowed = &mut process.foreign;
        let mut waiting = borrowed.held.iter();
        let (&id, records) = waiting.next()?;
        let record = *records.first()?;
        if !last && record.since_ns.saturating_add(HOLD_NS) > now_ns {
            return None;
        }
        let known = self.ids.contains_key(&(pid, id));
        let next = waiting.next().and_then(|(_, records)| records.first());
        let found =
            if known || !borrowed.begin_seen { None } else { borrowed.find(&record, next, last).ok()? };
        let records = borrowed.held.remove(&id)?;
        borrowed.records -= records.len();
        let queued = found.and_then(|at| borrowed.queue.drain(..=at).next_back());
        if let Some(queued) = queued
            && let Some(work) = self.work.get_mut(queued.number)
        {
            work.correlation = id;
            self.ids.insert((pid, id), queued.number);
            if let Some((begin, end)) = borrowed.calls.remove(&id) {
                borrowed.units.record(queued.time_ns, begin);
                let started_ns = profile.meta.started.as_nanos();
                let at = |time| borrowed.units.nanoseconds(time, started_ns);
                if let (Some(begin), Some(end)) = (at(begin), at(end)) {
                    // The call was seen at some time between its begin and its end on the other clock.
                    let width = end.saturating_sub(begin);
                    process.clock.read(begin, queued.time_ns.saturating_sub(width), queued.time_ns);
                }
            }
        }
        Some(records)
    }

    /// Enters a borrowed record as an activity, with its name and times converted to those of our collector.
    fn borrowed_activity(&mut self, pid: u32, node: NodeId, record: HeldRecord, profile: &mut Profile) {
        let Some(process) = self.processes.get_mut(pid) else { return };
        let started_ns = profile.meta.started.as_nanos();
        let units = process.foreign.units;
        let mut activity = record.activity;
        match (
            units.nanoseconds(activity.start_ns, started_ns),
            units.nanoseconds(activity.end_ns, started_ns),
        ) {
            (Some(start), Some(end)) => (activity.start_ns, activity.end_ns) = (start, end),
            _ => activity.flags |= flag::NO_TIMES,
        }
        if let Some(frame) = record.frame {
            // Our collector numbers its names; these are numbered by their frames.
            activity.name = u64::from(frame.number());
            if process.has_room_for_kernel(activity.name) {
                process.reported_kernels.insert(activity.name, frame);
            } else {
                self.counts.gap(Gap::StateFull, 1);
            }
        }
        self.activity(pid, node, &activity, profile);
    }
}

#[cfg(test)]
mod tests {
    use super::super::names::REPORTED_MAX;
    use super::*;
    use crate::config::Config;
    use crate::stage::Stage as _;

    #[test]
    fn names_in_records_of_another_tool_have_a_bound() {
        let mut profile = Profile::new(Default::default(), Default::default());
        let [known, new] = [b"gemm", b"relu"].map(|name| named_kernel(name, &mut profile));
        let mut gpu = Gpu::new(&Config::default());
        gpu.processes.follow(7, 0, 1);
        let reported = &mut gpu.processes.get_mut(7).unwrap().reported_kernels;
        reported.insert(u64::from(known.number()), known);
        reported.extend((1u64 << 32..).map(|number| (number, known)).take(REPORTED_MAX - 1));
        for frame in [known, new] {
            let activity = Activity { kind: kind::KERNEL, ..Activity::default() };
            let record = HeldRecord { since_ns: 1, activity, frame: Some(frame) };
            gpu.borrowed_activity(7, NodeId::ROOT, record, &mut profile);
        }
        let process = gpu.processes.get_mut(7).unwrap();
        assert_eq!((process.reported_kernels.len(), process.info.kernels), (REPORTED_MAX, 2));
    }

    /// `version structure member offset size`, for each CUPTI; `=` in place of a member names the structure.
    const LAYOUTS: &str = include_str!("../../../tests/fixtures/cupti_records.tsv");

    /// Writes a number where the header of a version has a member.
    fn put(bytes: &mut [u8], version: &str, structure: &str, member: &str, value: u64) {
        let mut lines = LAYOUTS.lines().map(|line| line.split('\t').collect::<Vec<_>>());
        let line = lines.rfind(|words| words[..3] == [version, structure, member]);
        let [.., offset, size] = line.unwrap_or_else(|| panic!("{version} {structure} {member}"))[..] else {
            panic!("a line has five columns")
        };
        let (offset, size): (usize, usize) = (offset.parse().unwrap(), size.parse().unwrap());
        bytes[offset..offset + size].copy_from_slice(&value.to_ne_bytes()[..size]);
    }

    fn versions() -> Vec<&'static str> {
        let mut versions: Vec<_> = LAYOUTS.lines().filter_map(|line| line.split('\t').next()).collect();
        versions.dedup();
        assert!(versions.len() >= 7, "{versions:?}");
        versions
    }

    fn record(version: &str, structure: &str, members: &[(&str, u64)]) -> Vec<u8> {
        let mut bytes = vec![0xee; 256];
        for member in ["graphNodeId", "graphId", "queued"] {
            if LAYOUTS.contains(&format!("{version}\t{structure}\t{member}\t")) {
                put(&mut bytes, version, structure, member, 0);
            }
        }
        for (member, value) in members {
            put(&mut bytes, version, structure, member, *value);
        }
        bytes
    }

    #[test]
    fn records_are_read_with_the_layout_of_every_cupti_version() {
        for version in versions() {
            let kernel = record(
                version,
                "Kernel",
                &[
                    ("kind", 10),
                    ("registersPerThread", 40),
                    ("start", 1000),
                    ("end", 1500),
                    ("deviceId", 1),
                    ("contextId", 2),
                    ("streamId", 7),
                    ("gridX", 3),
                    ("blockX", 64),
                    ("staticSharedMemory", 48),
                    ("dynamicSharedMemory", 64),
                    ("correlationId", 70),
                    ("graphNodeId", 0x1_0000_0005),
                    ("graphId", 9),
                ],
            );
            let Some(Record::Activity(found)) = read(&kernel) else { panic!("{version}") };
            assert_eq!((found.kind, found.registers, found.correlation), (kind::KERNEL, 40, 70), "{version}");
            assert_eq!((found.start_ns, found.end_ns, found.stream), (1000, 1500, 7));
            assert_eq!((found.grid[0], found.block[0]), (3, 64));
            assert_eq!((found.static_shared, found.dynamic_shared), (48, 64));
            assert_eq!((found.device, found.context, found.node, found.graph), (1, 2, 0x1_0000_0005, 9));
            let copy = [
                ("kind", 1),
                ("copyKind", 2),
                ("bytes", 4096),
                ("start", 5),
                ("end", 9),
                ("correlationId", 71),
            ];
            let Some(Record::Activity(found)) = read(&record(version, "Memcpy", &copy)) else {
                panic!("{version}")
            };
            assert_eq!((found.kind, found.detail, found.bytes, found.correlation), (kind::COPY, 2, 4096, 71));
            let peer = [("bytes", 8), ("start", 5), ("end", 9), ("correlationId", 72), ("copyKind", 10)];
            let mut peer = record(version, "MemcpyPtoP", &peer);
            peer[..4].copy_from_slice(&22u32.to_ne_bytes());
            let Some(Record::Activity(found)) = read(&peer) else { panic!("{version}") };
            assert_eq!((found.kind, found.bytes, found.correlation), (kind::PEER_COPY, 8, 72));
            let fill = [("kind", 2), ("bytes", 16), ("start", 5), ("end", 9), ("correlationId", 73)];
            let Some(Record::Activity(found)) = read(&record(version, "Memset", &fill)) else {
                panic!("{version}")
            };
            assert_eq!((found.kind, found.bytes, found.correlation), (kind::FILL, 16, 73));
            let api = [("kind", 5), ("start", 5), ("end", 9), ("correlationId", 74)];
            let api = read(&record(version, "Api", &api));
            assert_eq!(api, Some(Record::Api { correlation: 74, begin: 5, end: 9 }));
        }
    }

    #[test]
    fn truncated_records_are_rejected_and_other_kinds_ignored() {
        let version = versions()[0];
        let kernel = record(version, "Kernel", &[("kind", 3), ("correlationId", 70)]);
        assert!((0..96).all(|cut| read(&kernel[..cut]).is_none()));
        let Some(Record::Activity(found)) = read(&kernel[..96]) else { panic!("the name is not needed") };
        assert_eq!((found.correlation, found.node), (70, 0));
        assert_eq!(read(&38u32.to_ne_bytes()), Some(Record::Other));
        assert_eq!(read(&[]), None);
    }

    #[test]
    fn clocks_in_other_units_are_distinguished_from_nanoseconds() {
        let started = 1_700_000_000_000_000_000;
        let mut units = Units::default();
        assert_eq!(units.nanoseconds(started + 5, started), Some(started + 5));
        assert_eq!(units.nanoseconds(123_456, started), None);
        units.record(1_000_000, 50_000_000);
        units.record(101_000_000, 350_000_000);
        assert_eq!(units.nanoseconds(350_000_000, started), Some(101_000_000));
        assert_eq!(units.nanoseconds(49_999_997, started), Some(999_999));
        let mut units = Units::default();
        units.record(1_000_000, 50_000_000);
        units.record(101_000_000, 150_000_100);
        assert_eq!(units.nanoseconds(777, started), Some(777));
    }
}
