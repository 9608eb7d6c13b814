//! Critical path: what the end of a window waited for, back to its begin.
//!
//! Owns: [`CriticalPath`]. Because: only work on it can shorten the window. Does not: simulate a shorter part; see
//! [`super::WhatIf`].
//!
//! The path is walked backwards from the last end. On a device, the work counts, preceded by its last dependency: its
//! launch (*launch*), the work before it on its stream, or an event of another stream (*between-kernels*, or
//! *device-wait* from 30 µs on); in a graph with known edges, the node it follows, not the work that ended last on the
//! graph's stream. On a thread, the thread counts back to the last call that waited for a device, and the path
//! continues with that device's work; or back to its last off-CPU time, and the path continues with the thread that
//! woke it. So every nanosecond of the window belongs to one part, and the parts add up to the window. HTA takes the
//! longest path of a graph in which waits and gaps have no weight: its length is below the window (156 of 383 ms for
//! `timesformer-h100`), and exposed parts are missing from it.

use deepctx_profile::order::SortRows as _;
use std::cmp::Reverse;
use std::collections::BTreeMap;

use deepctx_profile::intern::Id;
use deepctx_profile::trace::{
    Basis, DeviceOp, GraphOrder, HostKind, HostOp, Job, KernelClass, Launch, Thread, TraceTime, Waiter,
    WakeUpEvent, Waker,
};
use rustc_hash::FxHashMap;
use serde::Serialize;

use super::clocks::{self, ClockAccuracy};
use super::idle::KERNEL_WAIT_NS;
use super::last_active::LastActive;
use super::steps::{RefusedStep, is_data_loader};
use super::window::{Steps, Window};

/// Limit of a part of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// A thread, outside of calls and data loader.
    Cpu,
    /// A thread in the data loader.
    DataLoader,
    /// A thread in a call of the runtime or the driver.
    ApiCall,
    /// From the begin of a launch to the begin of its work.
    Launch,
    /// From the end of work that had to end first to the begin of the next, below 30 µs.
    BetweenKernels,
    /// The same from 30 µs on: the device waited for something that the trace does not name.
    DeviceWait,
    /// A kernel that computes.
    Compute,
    /// A kernel that communicates.
    Communication,
    /// A copy or a fill.
    Memory,
    /// From the end of work to the return of the call that waited for it.
    SyncReturn,
    /// A runnable thread waited for a CPU.
    CpuQueue,
    /// A thread was off-CPU until a timer, a device or another process woke it.
    OffCpu,
    /// The trace has nothing at this time.
    Unknown,
}

/// The critical path of one rank's window.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CriticalPath {
    /// The rank.
    pub rank: u32,
    /// Length of the window and of the path.
    pub window_ns: u64,
    /// The path by what bounds it, the longest first. The parts add up to the window.
    pub parts: Vec<PathPart>,
    /// Transitions of the path over links that the trace names, or that follow from the order of calls.
    pub sure_links: u64,
    /// Transitions of the path over guessed links.
    pub inferred_links: u64,
    /// Transitions of the path between a thread and a device, which have different clocks.
    pub between_clocks: u64,
    /// How many of these are within the clock error: which end came first is not measured. `None` if the error is
    /// unknown.
    pub within_clocks: Option<u64>,
    /// Device work on the path by name, the longest first.
    pub work: Vec<PathOp>,
    /// Further names of device work on it.
    pub work_left_out: usize,
}

/// A part of the path.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PathPart {
    /// What bounds it.
    pub bound: Bound,
    /// Its length.
    pub time_ns: u64,
    /// As a share of the window.
    pub percent: f64,
}

/// Work on the path.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PathOp {
    /// Its name.
    pub name: String,
    /// How often.
    pub count: u64,
    /// Its time on the path.
    pub time_ns: u64,
}

/// Maximum number of named work; the rest is in the parts.
const WORK_ROWS: usize = 10;
/// Maximum number of operations examined for one that had ended.
const LOOK_BACK: usize = 256;

impl CriticalPath {
    /// The critical path of each rank alone, as in [`super::OverTime::critical_paths`].
    pub fn compute(job: &Job, of: Steps) -> Vec<Self> {
        let windows = job.ranks().iter().map(|rank| Window::new(rank, of));
        let measured = windows.filter(|window| RefusedStep::of(window).is_none());
        measured.filter_map(|window| compute(&window)).collect()
    }
}

pub(super) fn compute(window: &Window<'_>) -> Option<CriticalPath> {
    let mut walk = Walk::new(window)?;
    let window_ns = (walk.end - walk.begin).0;
    walk.run();
    let mut parts: Vec<PathPart> = walk
        .parts
        .iter()
        .map(|(&bound, &time_ns)| PathPart {
            bound,
            time_ns,
            percent: time_ns as f64 * 100.0 / window_ns as f64,
        })
        .collect();
    parts.sort_rows_by_key(|part| std::cmp::Reverse(part.time_ns));
    let mut work: Vec<PathOp> = walk
        .work
        .iter()
        .map(|(name, &(count, time_ns))| PathOp { name: deepctx_profile::frame::clean(name), count, time_ns })
        .collect();
    work.sort_rows_by_key(|row| std::cmp::Reverse(row.time_ns));
    let work_left_out = work.len().saturating_sub(WORK_ROWS);
    work.truncate(WORK_ROWS);
    Some(CriticalPath {
        rank: window.of.rank,
        window_ns,
        parts,
        sure_links: walk.sure,
        inferred_links: walk.inferred,
        between_clocks: walk.between_clocks,
        within_clocks: walk.accuracy.within_ns().map(|_| walk.within_clocks),
        work,
        work_left_out,
    })
}

/// Position of the path.
#[derive(Clone, Copy, Debug)]
enum Position {
    Host(Id<Thread>),
    Device(Id<DeviceOp>),
}

struct Walk<'w> {
    window: &'w Window<'w>,
    begin: TraceTime,
    end: TraceTime,
    threads: Vec<ThreadTimes>,
    last_active: LastActive,
    /// By device operation: its place on its stream, and the last end before it there.
    before: Vec<(usize, Option<Id<DeviceOp>>)>,
    parts: BTreeMap<Bound, u64>,
    work: BTreeMap<&'w str, (u64, u64)>,
    sure: u64,
    inferred: u64,
    /// Accuracy of the device clock.
    accuracy: ClockAccuracy,
    between_clocks: u64,
    within_clocks: u64,
}

/// Activity of a thread.
#[derive(Default)]
struct ThreadTimes {
    any: MergedIntervals,
    calls: MergedIntervals,
    loader: MergedIntervals,
    /// Calls that waited for a device: end, begin, cause and certainty. By end.
    waits: Vec<(TraceTime, TraceTime, Id<DeviceOp>, Basis)>,
    /// Its off-CPU times, by end.
    off_cpu: Vec<OffCpu>,
}

/// An off-CPU time of a thread.
#[derive(Clone, Copy)]
struct OffCpu {
    begin: TraceTime,
    end: TraceTime,
    /// When it was woken, and by which thread; `None` if it was always runnable.
    woken: Option<(TraceTime, Waker)>,
}

/// Merged times, with the length up to each.
#[derive(Default)]
struct MergedIntervals(Vec<(TraceTime, TraceTime, u64)>);

impl MergedIntervals {
    fn of(times: impl Iterator<Item = (TraceTime, TraceTime)>) -> Self {
        let mut merged: Vec<(TraceTime, TraceTime, u64)> = Vec::new();
        // By begin already.
        for (begin, end) in times {
            match merged.last_mut() {
                Some(last) if begin <= last.1 => last.1 = last.1.max(end),
                _ => merged.push((begin, end, 0)),
            }
        }
        let mut length = 0;
        for (begin, end, up_to) in &mut merged {
            *up_to = length;
            length += (*end - *begin).0;
        }
        MergedIntervals(merged)
    }

    fn before(&self, time: TraceTime) -> u64 {
        let at = self.0.partition_point(|(begin, ..)| *begin < time);
        let last = at.checked_sub(1).and_then(|at| self.0.get(at));
        last.map_or(0, |(begin, end, up_to)| up_to + ((*end).min(time) - *begin).0)
    }

    fn between(&self, from: TraceTime, to: TraceTime) -> u64 {
        self.before(to).saturating_sub(self.before(from))
    }

    /// The last one that begins before a time.
    fn last(&self, time: TraceTime) -> Option<(TraceTime, TraceTime)> {
        let at = self.0.partition_point(|(begin, ..)| *begin < time).checked_sub(1)?;
        self.0.get(at).map(|(begin, end, _)| (*begin, *end))
    }
}

impl<'w> Walk<'w> {
    fn new(window: &'w Window<'w>) -> Option<Self> {
        let (trace, links) = (&window.of.trace, &window.of.links);
        let host = trace.host.iter().map(|(_, op)| op).filter(|op| is_of_path(op) && window.has(op.begin));
        let spans =
            host.map(|op| (op.begin, op.end())).chain(window.device().map(|(_, op)| (op.begin, op.end())));
        let (begin, end) =
            spans.reduce(|(a, b), (c, d)| (a.min(c), b.max(d))).filter(|(begin, end)| begin < end)?;
        let mut before = vec![(0, None); trace.device.len()];
        for stream in links.streams() {
            let mut last: Option<(TraceTime, Id<DeviceOp>)> = None;
            for (place, id) in stream.iter().enumerate() {
                before[id.index()] = (place, last.map(|(_, id)| id));
                let Some(op) = trace.device.get(*id) else { continue };
                last = last.max(Some((op.end(), *id)));
            }
        }
        let wake_ups = trace.wake_ups.iter().map(|(_, event)| (event.ends, event)).collect();
        let threads = links.threads().iter().map(|ops| thread_times(window, ops, &wake_ups));
        let threads: Vec<ThreadTimes> = threads.collect();
        Some(Walk {
            window,
            begin,
            end,
            last_active: LastActive::of(threads.len()),
            threads,
            before,
            parts: BTreeMap::new(),
            work: BTreeMap::new(),
            sure: 0,
            inferred: 0,
            accuracy: clocks::of_devices(trace),
            between_clocks: 0,
            within_clocks: 0,
        })
    }

    fn device(&self, id: Id<DeviceOp>) -> Option<DeviceOp> {
        self.window.of.trace.device.get(id)
    }

    /// Where the window ends: at the work or the thread that ends last. Profilers end all functions that still run at
    /// one time; of their threads, the one with most time in calls is the one that drives the device. The order of the
    /// file says nothing.
    fn last_place(&self) -> Option<Position> {
        let trace = &self.window.of.trace;
        let device = self.window.device().map(|(id, op)| (op.end(), Position::Device(id)));
        let host = trace.host.iter().filter(|(_, op)| is_of_path(op) && self.window.has(op.begin));
        let host = host.map(|(_, op)| (op.end(), Position::Host(op.thread)));
        let last = device.chain(host).filter(|(end, _)| *end == self.end).map(|(_, place)| place);
        last.max_by_key(|place| match place {
            Position::Device(id) => (false, 0, 0, Reverse(("", "")), Reverse(self.before_and_stream(*id))),
            Position::Host(id) => {
                let [calls, any] = self.threads.get(id.index()).map_or([0; 2], |times| {
                    [&times.calls, &times.any].map(|of| of.between(self.begin, self.end))
                });
                let thread = trace.threads().get(id.index());
                let name = thread.map_or(("", ""), |of| (trace.name(of.process), trace.name(of.thread)));
                (true, calls, any, Reverse(name), Reverse((0, 0)))
            }
        })
    }

    /// A device operation's stream and place there.
    fn before_and_stream(&self, id: Id<DeviceOp>) -> (u32, usize) {
        let place = self.before.get(id.index()).map_or(0, |(place, _)| *place);
        (self.device(id).map_or(0, |op| op.stream.number()), place)
    }

    fn run(&mut self) {
        let (mut time, mut place) = (self.end, self.last_place());
        // Each transition goes back in time, or from work to earlier work at the same moment.
        let mut left = 4 * (self.before.len() + self.window.of.trace.host.len()) + 64;
        while let Some(at) = place.filter(|_| time > self.begin && left > 0) {
            left -= 1;
            let (earlier, next) = match at {
                Position::Device(id) => self.at_device(id, time),
                Position::Host(thread) => self.at_host(thread, time),
            };
            (time, place) = (earlier.min(time), next);
        }
        self.add(Bound::Unknown, self.begin, time);
    }

    /// Adds a part that ends at `to`, clipped to the window.
    fn add(&mut self, bound: Bound, from: TraceTime, to: TraceTime) {
        let length = (to - from.max(self.begin)).0;
        if length > 0 {
            *self.parts.entry(bound).or_insert(0) += length;
        }
    }

    /// A transition between a time of a thread and one of a device.
    fn between_clocks(&mut self, from: TraceTime, to: TraceTime) {
        let within_ns = self.accuracy.within_ns();
        self.between_clocks += 1;
        self.within_clocks += u64::from(within_ns.is_some_and(|within_ns| (to - from).0 <= within_ns));
    }

    fn link(&mut self, basis: Basis) {
        match basis {
            Basis::Exact | Basis::ByOrder => self.sure += 1,
            Basis::Inferred => self.inferred += 1,
        }
    }

    fn at_device(&mut self, id: Id<DeviceOp>, time: TraceTime) -> (TraceTime, Option<Position>) {
        let Some(op) = self.device(id) else { return (time, None) };
        let begin = op.begin.min(time);
        let name = self.window.of.trace.name(op.name);
        let bound = match KernelClass::of(op.kind, name) {
            KernelClass::Compute => Bound::Compute,
            KernelClass::Communication => Bound::Communication,
            KernelClass::Memory => Bound::Memory,
        };
        self.add(bound, begin, time);
        let row = self.work.entry(name).or_insert((0, 0));
        *row = (row.0 + 1, row.1 + (time - begin.max(self.begin)).0);
        let launch = self.window.of.links.launch(id);
        let call = launch.call().and_then(|call| self.window.of.trace.host.get(call));
        let before = self.work_before(id, begin);
        match (call, before) {
            (Some(call), before) if before.is_none_or(|(end, ..)| call.begin >= end) => {
                self.add(Bound::Launch, call.begin, begin);
                self.between_clocks(call.begin, begin);
                match launch {
                    Launch::Ambiguous(_) => self.inferred += 1,
                    _ => self.sure += 1,
                }
                (call.begin.min(begin), Some(Position::Host(call.thread)))
            }
            (_, Some((end, earlier, basis))) => {
                let is_long = (begin - end).0 >= KERNEL_WAIT_NS;
                self.add(if is_long { Bound::DeviceWait } else { Bound::BetweenKernels }, end, begin);
                self.link(basis);
                (end, Some(Position::Device(earlier)))
            }
            (_, None) => (begin, None),
        }
    }

    /// The work that an operation had to wait for: the last to end on its stream or among its waits; for a graph node
    /// with known edges, the node it follows.
    fn work_before(&self, id: Id<DeviceOp>, begin: TraceTime) -> Option<(TraceTime, Id<DeviceOp>, Basis)> {
        let links = &self.window.of.links;
        let ended = |id: Id<DeviceOp>| self.device(id).map(|op| op.end()).filter(|end| *end <= begin);
        let order = links.graph_order(id);
        if let GraphOrder::After(wait) = order
            && let Some(on) = self.device(wait.on).filter(|on| on.begin < begin)
        {
            // Clocks of a live capture drift slightly: it may seem to end some nanoseconds later.
            return Some((on.end().min(begin), wait.on, wait.basis));
        }
        // The first nodes of a graph wait for no other node of their launch.
        let launch = self.device(id).filter(|_| order == GraphOrder::First).map(|op| op.correlation);
        let is_before = |id: &Id<DeviceOp>| {
            launch.is_none_or(|launch| self.device(*id).is_some_and(|op| op.correlation != launch))
        };
        let (place, last) = self.before.get(id.index()).copied()?;
        let on_stream = || {
            let stream = links.streams().get(self.device(id)?.stream.index())?;
            // Work of a graph may run concurrently on one displayed stream.
            let earlier = stream.get(..place)?.iter().rev().filter(|id| is_before(id)).take(LOOK_BACK);
            earlier.filter_map(|id| Some((ended(*id)?, *id))).max()
        };
        let last = last.filter(is_before).and_then(|id| Some((ended(id)?, id))).or_else(on_stream);
        let last = last.map(|(end, id)| (end, id, Basis::ByOrder));
        let wait = links.device_wait(id).and_then(|wait| Some((ended(wait.on)?, wait.on, wait.basis)));
        [last, wait].into_iter().flatten().max_by_key(|(end, ..)| *end)
    }

    fn at_host(&mut self, thread: Id<Thread>, time: TraceTime) -> (TraceTime, Option<Position>) {
        let Some(times) = self.threads.get(thread.index()) else { return (time, None) };
        let active = times.any.last(time);
        let at = times.waits.partition_point(|(end, ..)| *end <= time).checked_sub(1);
        let wait = at.and_then(|at| times.waits.get(at)).copied();
        let at = times.off_cpu.partition_point(|off_cpu| off_cpu.end <= time).checked_sub(1);
        let off_cpu = at.and_then(|at| times.off_cpu.get(at)).copied();
        // The thread was active since then, unless it waited.
        let since = active.filter(|(_, end)| *end >= time).map_or(time, |(begin, _)| begin);
        // Without its switches, a thread's activity between operations is unknown.
        let since = off_cpu.map_or(since, |off_cpu| off_cpu.end);
        match wait {
            Some((end, begin, on, basis)) if end > since => {
                self.thread_parts(thread, end, time);
                let done = self.device(on).map_or(begin, |op| op.end().min(end));
                self.add(Bound::SyncReturn, done, end);
                self.between_clocks(done, end);
                self.link(basis);
                (done, Some(Position::Device(on)))
            }
            _ if off_cpu.is_some() => {
                self.thread_parts(thread, since, time);
                off_cpu.map_or((time, None), |off_cpu| self.before_off_cpu(thread, off_cpu))
            }
            _ if since < time => {
                self.thread_parts(thread, since, time);
                self.other_thread(thread, since)
            }
            _ => self.other_thread(thread, time),
        }
    }

    /// A thread was off-CPU: the path continues with the thread that woke it, or with itself before.
    fn before_off_cpu(&mut self, thread: Id<Thread>, off_cpu: OffCpu) -> (TraceTime, Option<Position>) {
        let OffCpu { begin, end, woken } = off_cpu;
        self.sure += 1;
        let woken_at = woken.map_or(begin, |(at, _)| at.clamp(begin, end));
        self.add(Bound::CpuQueue, woken_at, end);
        match woken {
            Some((_, Waker::Thread(other))) if other != thread => (woken_at, Some(Position::Host(other))),
            _ => {
                self.add(Bound::OffCpu, begin, woken_at);
                (begin, Some(Position::Host(thread)))
            }
        }
    }

    /// A guess: an idle thread resumes when another thread gives it work, the one that was active then.
    fn other_thread(&mut self, thread: Id<Thread>, time: TraceTime) -> (TraceTime, Option<Position>) {
        let threads = &self.threads;
        let last = |of: Id<Thread>, time| threads.get(of.index())?.any.last(time);
        let Some((end, other)) = self.last_active.before(time, last) else { return (time, None) };
        self.add(Bound::Unknown, end, time);
        self.inferred += u64::from(other != thread);
        (end, Some(Position::Host(other)))
    }

    /// Splits the time of a thread.
    fn thread_parts(&mut self, thread: Id<Thread>, from: TraceTime, to: TraceTime) {
        let from = from.max(self.begin);
        let Some(times) = self.threads.get(thread.index()).filter(|_| from < to) else { return };
        let all = (to - from).0;
        let calls = times.calls.between(from, to);
        // Calls within the data loader count as calls.
        let loader = times.loader.between(from, to).min(all - calls);
        for (bound, length) in
            [(Bound::ApiCall, calls), (Bound::DataLoader, loader), (Bound::Cpu, all - calls - loader)]
        {
            if length > 0 {
                *self.parts.entry(bound).or_insert(0) += length;
            }
        }
    }
}

/// Whether the path goes through an operation: an off-CPU thread does nothing, and for an operation of unknown kind it
/// is unknown whether its thread does anything.
fn is_of_path(op: &HostOp) -> bool {
    !matches!(op.kind, HostKind::OffCpu | HostKind::UnknownCategory)
}

fn thread_times(
    window: &Window<'_>,
    ops: &[Id<HostOp>],
    wake_ups: &FxHashMap<Id<HostOp>, WakeUpEvent>,
) -> ThreadTimes {
    let (trace, links) = (&window.of.trace, &window.of.links);
    let rows = || ops.iter().filter_map(|id| trace.host.get(*id)).filter(is_of_path);
    let times = |op: HostOp| (op.begin, op.end());
    let mut waits: Vec<_> = ops
        .iter()
        .filter_map(|id| {
            let (op, wait) = (trace.host.get(*id)?, links.host_wait(*id)?);
            debug_assert!(matches!(wait.waiter, Waiter::Host(_)));
            // Work that had ended before the call did not block it.
            let held_up = trace.device.get(wait.on)?.end() > op.begin && window.has_device(wait.on);
            held_up.then_some((op.end(), op.begin, wait.on, wait.basis))
        })
        .collect();
    waits.sort_by_key(|(end, begin, ..)| (*end, *begin));
    let off_cpu = |id: &Id<HostOp>| {
        let op = trace.host.get(*id).filter(|op| !is_of_path(op))?;
        let woken = wake_ups.get(id).map(|event| (event.at, event.by));
        Some(OffCpu { begin: op.begin, end: op.end(), woken })
    };
    let mut off_cpu: Vec<_> = ops.iter().filter_map(off_cpu).collect();
    off_cpu.sort_by_key(|off_cpu| (off_cpu.end, off_cpu.begin));
    ThreadTimes {
        any: MergedIntervals::of(rows().map(times)),
        calls: MergedIntervals::of(rows().filter(|op| op.kind.is_call()).map(times)),
        loader: MergedIntervals::of(rows().filter(|op| is_data_loader(trace.name(op.name))).map(times)),
        waits,
        off_cpu,
    }
}
