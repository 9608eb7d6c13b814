//! The plan of what runs when.
//!
//! Owns: tickets, dependencies, engines, and the order of ends. Because: it is the part that must be right, and it is
//! pure: time is an argument. Does not: wait, sleep, or carry anything out.

use std::cmp::Ordering as Order;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::Lane;
use super::timing;
use super::work::{Engine, Work};

/// Maximum concurrent kernels of different streams.
const COMPUTE_SLOTS: usize = 8;
/// The first stream's number in CUPTI's count: lower ones belong to the driver.
const FIRST_LANE: u32 = 7;

/// The end of a piece of work, and whether it was reached.
#[derive(Debug, Default)]
struct Completion {
    /// 0 while unknown.
    end_ns: AtomicU64,
    done: AtomicBool,
}

/// A handle to wait for the end of work.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ticket(Arc<Completion>);

impl Ticket {
    /// A ticket that has already ended.
    pub(crate) fn past() -> Self {
        let ticket = Self::default();
        ticket.0.end_ns.store(1, Ordering::Relaxed);
        ticket.mark_done();
        ticket
    }

    /// End time, if known.
    pub(crate) fn end_ns(&self) -> Option<u64> {
        match self.0.end_ns.load(Ordering::Acquire) {
            0 => None,
            at => Some(at),
        }
    }

    /// Whether the work was executed.
    pub(crate) fn is_done(&self) -> bool {
        self.0.done.load(Ordering::Acquire)
    }

    pub(super) fn mark_done(&self) {
        self.0.done.store(true, Ordering::Release);
    }

    fn ends_at(&self, at: u64) {
        self.0.end_ns.store(at.max(1), Ordering::Release);
    }
}

/// Origin of work.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tags {
    pub(crate) correlation: u32,
    pub(crate) device: u32,
    pub(crate) context: u32,
    pub(crate) stream: u32,
    pub(crate) thread: u32,
    pub(crate) graph: u32,
    pub(crate) source_graph: u32,
    pub(crate) node: u64,
    pub(crate) source_node: u64,
}

/// One pending piece of work.
#[derive(Debug)]
pub(crate) struct Op {
    pub(crate) work: Work,
    pub(crate) tags: Tags,
    pub(crate) ticket: Ticket,
    submitted_ns: u64,
    start_ns: u64,
    after: Vec<Ticket>,
}

/// Finished work. Times are of `CLOCK_MONOTONIC`.
#[derive(Debug)]
pub(crate) struct FinishedWork<'w> {
    pub(crate) work: &'w Work,
    pub(crate) tags: Tags,
    pub(crate) submitted_ns: u64,
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
}

impl Op {
    pub(super) fn finished(&self, end_ns: u64) -> FinishedWork<'_> {
        FinishedWork {
            work: &self.work,
            tags: self.tags,
            submitted_ns: self.submitted_ns,
            start_ns: self.start_ns,
            end_ns,
        }
    }

    /// The latest end of its dependencies, if all are known.
    fn earliest(&self) -> Option<u64> {
        self.after.iter().try_fold(0, |latest, ticket| Some(ticket.end_ns()?.max(latest)))
    }
}

/// Work with the time at which to handle it.
#[derive(Debug)]
pub(super) struct DueWork {
    pub(super) at: u64,
    number: u64,
    pub(super) op: Op,
}

impl PartialEq for DueWork {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.number) == (other.at, other.number)
    }
}

impl Eq for DueWork {}

impl PartialOrd for DueWork {
    fn partial_cmp(&self, other: &Self) -> Option<Order> {
        Some(self.cmp(other))
    }
}

impl Ord for DueWork {
    fn cmp(&self, other: &Self) -> Order {
        // The earliest first.
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

#[derive(Debug)]
struct Stream {
    blocking: bool,
    last: Ticket,
    /// Additional dependencies of the next work.
    also: Vec<Ticket>,
}

/// All scheduled work.
#[derive(Debug)]
pub(super) struct State {
    streams: BTreeMap<u32, Stream>,
    next_lane: u32,
    compute: [u64; COMPUTE_SLOTS],
    /// Host to device (and within it), device to host.
    copy: [u64; 2],
    running: BinaryHeap<DueWork>,
    /// Work with a dependency whose end is unknown, in submission order.
    held: VecDeque<Op>,
    number: u64,
    /// Number of unfinished operations.
    pub(super) outstanding: usize,
    pub(super) sleeps_until: u64,
}

/// The stream of every device: the default stream.
pub(crate) const DEFAULT: Lane = Lane(FIRST_LANE);

impl State {
    pub(super) fn new() -> Self {
        let mut state = Self {
            streams: BTreeMap::new(),
            next_lane: FIRST_LANE,
            compute: [0; COMPUTE_SLOTS],
            copy: [0; 2],
            running: BinaryHeap::new(),
            held: VecDeque::new(),
            number: 0,
            outstanding: 0,
            sleeps_until: 0,
        };
        state.open(true);
        state
    }

    pub(super) fn open(&mut self, blocking: bool) -> Lane {
        let lane = self.next_lane;
        self.next_lane += 1;
        self.streams.insert(lane, Stream { blocking, last: Ticket::past(), also: Vec::new() });
        Lane(lane)
    }

    pub(super) fn close(&mut self, lane: Lane) {
        if lane != DEFAULT {
            self.streams.remove(&lane.0);
        }
    }

    pub(super) fn wait_for(&mut self, lane: Lane, ticket: Ticket) {
        if let Some(stream) = self.streams.get_mut(&lane.0) {
            stream.also.retain(|other| !other.is_done());
            stream.also.push(ticket);
        }
    }

    pub(super) fn tail(&self, lane: Lane) -> Ticket {
        self.streams.get(&lane.0).map_or_else(Ticket::past, |stream| stream.last.clone())
    }

    pub(super) fn tails(&self) -> Vec<Ticket> {
        self.streams.values().map(|stream| stream.last.clone()).collect()
    }

    /// Dependencies of a stream's next work: its last work and, by default-stream order, that of others.
    fn after(&mut self, lane: Lane) -> Vec<Ticket> {
        let mut after = Vec::with_capacity(2);
        let blocking = self.streams.get(&lane.0).is_some_and(|stream| stream.blocking);
        for (&number, stream) in &self.streams {
            let own = number == lane.0;
            let by_default = blocking && stream.blocking && (lane == DEFAULT || number == DEFAULT.0);
            if (own || by_default) && !stream.last.is_done() {
                after.push(stream.last.clone());
            }
        }
        if let Some(stream) = self.streams.get_mut(&lane.0) {
            after.append(&mut stream.also);
        }
        after
    }

    pub(super) fn submit(&mut self, lane: Lane, work: Work, tags: Tags, now: u64) -> Ticket {
        let after = self.after(lane);
        let ticket = self.add(work, tags, after, now);
        if let Some(stream) = self.streams.get_mut(&lane.0) {
            stream.last = ticket.clone();
        }
        ticket
    }

    pub(super) fn submit_graph(
        &mut self,
        lane: Lane,
        nodes: Vec<(Work, Tags, Vec<usize>)>,
        tags: Tags,
        now: u64,
    ) -> Ticket {
        let before = self.after(lane);
        let mut tickets: Vec<Ticket> = Vec::with_capacity(nodes.len());
        for (work, tags, after) in nodes {
            let after = match after.is_empty() {
                true => before.clone(),
                false => after.into_iter().filter_map(|index| tickets.get(index).cloned()).collect(),
            };
            let ticket = self.add(work, tags, after, now);
            tickets.push(ticket);
        }
        tickets.extend(before);
        let end = self.add(Work::GraphEnd, tags, tickets, now);
        if let Some(stream) = self.streams.get_mut(&lane.0) {
            stream.last = end.clone();
        }
        end
    }

    fn add(&mut self, work: Work, tags: Tags, after: Vec<Ticket>, now: u64) -> Ticket {
        self.outstanding += 1;
        let ticket = Ticket::default();
        let op = Op { work, tags, ticket: ticket.clone(), submitted_ns: now, start_ns: 0, after };
        match op.earliest() {
            Some(earliest) => self.place(op, earliest),
            None => self.held.push_back(op),
        }
        ticket
    }

    /// Schedules the work.
    fn place(&mut self, mut op: Op, earliest: u64) {
        let engine = op.work.engine();
        let latency = if engine == Engine::None { 0 } else { timing::LAUNCH_NS };
        let earliest = earliest.max(op.submitted_ns + latency);
        let slot = match engine {
            Engine::None => None,
            Engine::Compute => self.compute.iter_mut().min(),
            Engine::CopyIn => Some(&mut self.copy[0]),
            Engine::CopyOut => Some(&mut self.copy[1]),
        };
        let start = slot.as_ref().map_or(earliest, |free| earliest.max(**free));
        let end = start + op.work.duration_ns();
        if let Some(free) = slot {
            *free = end;
        }
        op.start_ns = start;
        op.after = Vec::new();
        let at = match op.work {
            // Its end is known when the function returns.
            Work::Host(_) => start,
            _ => {
                op.ticket.ends_at(end);
                end
            }
        };
        self.number += 1;
        self.running.push(DueWork { at, number: self.number, op });
    }

    /// Records a known end and schedules the work that waited for it, recursively.
    pub(super) fn resolve(&mut self, ticket: &Ticket, now: u64) {
        ticket.ends_at(now);
        ticket.mark_done();
        self.outstanding -= 1;
        let mut waiting = std::mem::take(&mut self.held);
        while let Some(op) = waiting.pop_front() {
            match op.earliest() {
                Some(earliest) => self.place(op, earliest),
                None => self.held.push_back(op),
            }
        }
    }

    pub(super) fn next_due(&self) -> Option<u64> {
        self.running.peek().map(|due| due.at)
    }

    /// Takes due work, at most a thousand at once, so that waiters are not delayed.
    pub(super) fn take_due(&mut self, now: u64, into: &mut Vec<DueWork>) {
        while into.len() < 1000 && self.running.peek().is_some_and(|due| due.at <= now) {
            into.extend(self.running.pop());
        }
    }
}
