//! Pool: the memory of one process on one device.
//!
//! Owns: its live allocations, the share of each context, and the share that each had at the peak. Because: a peak is
//! only recognized when a higher one follows, so the share of each context must be noted along the way. Does not:
//! read records.
//!
//! Each new peak updates only the contexts that changed since the last one, so the cost of an allocation does not
//! depend on how many there are.

use deepctx_profile::device::memory;
use deepctx_profile::intern::FrameId;
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Profile;
use deepctx_profile::tree::NodeId;
use deepctx_profile::units::{Nanos, Time};
use rustc_hash::FxHashMap;

use crate::address_map::{AddressMap, Insertion};
use crate::spans::CounterValue;

/// Allocations remembered per process and device: large models have some ten thousand tensors. About 20 MiB when full.
const RANGES_MAX: usize = 1 << 18;

/// Who reported an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reporter {
    /// The allocator.
    Report,
    /// The mark at the request.
    Mark,
}

/// Outcome of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AllocationOutcome {
    /// It is tracked.
    New,
    /// It is tracked, in place of another.
    Replaced,
    /// It is not tracked: there is no room.
    Full,
}

/// Outcome of a free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FreeOutcome {
    /// This many bytes are no longer live.
    Bytes(u64),
    /// The source that reported the allocation also reports its free.
    BySomeoneElse,
    /// Nothing is live there.
    Unknown,
}

/// An allocation.
#[derive(Clone, Copy, Debug)]
struct LiveAllocation {
    bytes: u64,
    said: Reporter,
    /// Index into [`Pool::contexts`].
    context: u32,
}

/// A context that allocated.
#[derive(Clone, Copy, Debug)]
struct Context {
    node: NodeId,
    live: u64,
    at_peak: u64,
    /// `live` changed since the last peak.
    changed: bool,
}

/// Totals reported by an allocator.
#[derive(Clone, Copy, Debug)]
struct Totals {
    allocated: u64,
    reserved: u64,
}

/// The levels of a pool from a time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Levels {
    /// `CLOCK_MONOTONIC`, nanoseconds.
    at_ns: u64,
    /// The node of its counters.
    node: NodeId,
    live: u64,
    /// `None` while the allocator does not report it.
    reserved: Option<u64>,
}

impl Levels {
    /// As values of counters of a process.
    pub(super) fn counters(self, pid: u32) -> impl Iterator<Item = CounterValue> {
        let Levels { at_ns, node, live, reserved } = self;
        let of = move |metric, value| CounterValue { pid, metric, node, from_ns: at_ns, to_ns: at_ns, value };
        let reserved = reserved.map(|reserved| of(Metric::ReservedBytes, reserved));
        std::iter::once(of(Metric::LiveBytes, live)).chain(reserved)
    }
}

#[derive(Debug)]
pub(super) struct Pool {
    info: memory::Pool,
    /// The node of its counters, and the frame below allocating contexts.
    lane: NodeId,
    frame: FrameId,
    ranges: AddressMap<LiveAllocation, RANGES_MAX>,
    contexts: Vec<Context>,
    by_node: FxHashMap<NodeId, u32>,
    /// Contexts that changed since the last peak.
    changed: Vec<u32>,
    /// Bytes of all tracked allocations.
    live: u64,
    totals: Option<Totals>,
    /// Since when the level has its value: `CLOCK_MONOTONIC`, nanoseconds.
    since_ns: u64,
    level: u64,
    reserved: u64,
}

impl Pool {
    pub(super) fn new(pid: u32, device: String, lane: NodeId, frame: FrameId, now_ns: u64) -> Self {
        Self {
            info: memory::Pool { pid, device, ..memory::Pool::default() },
            lane,
            frame,
            ranges: AddressMap::default(),
            contexts: Vec::new(),
            by_node: FxHashMap::default(),
            changed: Vec::new(),
            live: 0,
            totals: None,
            since_ns: now_ns,
            level: 0,
            reserved: 0,
        }
    }

    /// Its row in the profile; `None` if nothing was allocated.
    pub(super) fn row(&self) -> Option<memory::Pool> {
        (self.info.allocations > 0 || self.info.peak_bytes > 0).then(|| self.info.clone())
    }

    /// Whether its allocator reports.
    pub(super) fn reports(&self) -> bool {
        self.totals.is_some()
    }

    /// The allocator reports how much it has handed out, and how much it holds.
    pub(super) fn report(&mut self, totals: Option<(u64, u64)>) {
        if let Some((allocated, reserved)) = totals {
            self.totals = Some(Totals { allocated, reserved });
        }
    }

    /// A request of this size at a mark. False if nobody else reported the allocation.
    pub(super) fn on_request(&mut self, address: u64, bytes: u64) -> bool {
        match self.ranges.get_mut(address).filter(|live| live.said == Reporter::Report) {
            Some(live) => {
                self.info.asked_bytes = self.info.asked_bytes.saturating_add(bytes);
                self.info.given_bytes = self.info.given_bytes.saturating_add(live.bytes);
                true
            }
            None => false,
        }
    }

    /// Memory is handed out to `caller`.
    pub(super) fn give(
        &mut self,
        address: u64,
        bytes: u64,
        said: Reporter,
        caller: NodeId,
        profile: &mut Profile,
    ) -> AllocationOutcome {
        let node = profile.tree.child(caller, self.frame);
        profile.tree.add(node, Metric::TensorBytes, bytes);
        self.info.allocations += 1;
        self.info.allocated_bytes = self.info.allocated_bytes.saturating_add(bytes);
        let context = self.context(node);
        let given = match self.ranges.put(address, LiveAllocation { bytes, said, context }) {
            Insertion::New => AllocationOutcome::New,
            Insertion::Replaced(other) => {
                self.on_free(other, profile);
                AllocationOutcome::Replaced
            }
            Insertion::Full => {
                // Its free will not be recognized, so it counts as if it had come.
                self.returned(node, bytes, profile);
                return AllocationOutcome::Full;
            }
        };
        self.live = self.live.saturating_add(bytes);
        let of = self.touch(context);
        of.live = of.live.saturating_add(bytes);
        given
    }

    /// Memory is taken back.
    pub(super) fn take(&mut self, address: u64, said: Reporter, profile: &mut Profile) -> FreeOutcome {
        match self.ranges.get_mut(address) {
            None => FreeOutcome::Unknown,
            Some(live) if live.said != said => FreeOutcome::BySomeoneElse,
            Some(live) => {
                let live = *live;
                self.ranges.take(address);
                self.on_free(live, profile);
                FreeOutcome::Bytes(live.bytes)
            }
        }
    }

    fn on_free(&mut self, live: LiveAllocation, profile: &mut Profile) {
        self.live = self.live.saturating_sub(live.bytes);
        let of = self.touch(live.context);
        of.live = of.live.saturating_sub(live.bytes);
        let node = of.node;
        self.returned(node, live.bytes, profile);
    }

    fn returned(&mut self, node: NodeId, bytes: u64, profile: &mut Profile) {
        profile.tree.add(node, Metric::TensorReturnedBytes, bytes);
        self.info.returned_bytes = self.info.returned_bytes.saturating_add(bytes);
    }

    fn context(&mut self, node: NodeId) -> u32 {
        *self.by_node.entry(node).or_insert_with(|| {
            self.contexts.push(Context { node, live: 0, at_peak: 0, changed: false });
            // Contexts are nodes of the tree, whose numbers are 32-bit.
            self.contexts.len() as u32 - 1
        })
    }

    /// A context that is about to change.
    fn touch(&mut self, context: u32) -> &mut Context {
        let of = &mut self.contexts[context as usize];
        if !of.changed {
            of.changed = true;
            self.changed.push(context);
        }
        of
    }

    /// An allocation or free: updates the levels over time, and perhaps the peak. Returns the levels if they changed.
    pub(super) fn changed(&mut self, now_ns: u64, profile: &mut Profile) -> Option<Levels> {
        let level = self.totals.map_or(self.live, |totals| totals.allocated);
        let reserved = self.totals.map_or(0, |totals| totals.reserved);
        let at = Time::from_nanos(now_ns) - profile.meta.started_monotonic;
        let has_changed = (level, reserved) != (self.level, self.reserved);
        if has_changed {
            self.hold_until(now_ns, profile);
            (self.level, self.reserved) = (level, reserved);
            profile.timeline.add(self.lane, Metric::LiveBytes, at, level);
            if self.totals.is_some() {
                profile.timeline.add(self.lane, Metric::ReservedBytes, at, reserved);
            }
        }
        if level > self.info.peak_bytes {
            self.info.peak_bytes = level;
            self.info.peak_at = at;
            self.info.peak_unseen_bytes = level.saturating_sub(self.live);
            self.info.peak_reserved_bytes = self.totals.map(|totals| totals.reserved);
            for context in self.changed.drain(..) {
                let of = &mut self.contexts[context as usize];
                (of.at_peak, of.changed) = (of.live, false);
            }
        }
        if let Some(Totals { allocated, reserved }) = self.totals {
            let unused = reserved.saturating_sub(allocated);
            self.info.most_reserved_bytes = self.info.most_reserved_bytes.max(Some(reserved));
            if self.info.most_unused_bytes < Some(unused) {
                self.info.most_unused_bytes = Some(unused);
                self.info.most_unused_at = at;
            }
        }
        let reserved = self.totals.map(|totals| totals.reserved);
        has_changed.then_some(Levels { at_ns: now_ns, node: self.lane, live: level, reserved })
    }

    /// The level did not change until then.
    pub(super) fn hold_until(&mut self, now_ns: u64, profile: &mut Profile) {
        if now_ns <= self.since_ns {
            return;
        }
        let since = |ns| Time::from_nanos(ns) - profile.meta.started_monotonic;
        let (from, to): (Nanos, Nanos) = (since(self.since_ns), since(now_ns));
        self.since_ns = now_ns;
        if self.level > 0 {
            profile.timeline.add_span(self.lane, Metric::LiveBytes, from, to, self.level);
        }
        if self.reserved > 0 {
            profile.timeline.add_span(self.lane, Metric::ReservedBytes, from, to, self.reserved);
        }
    }

    /// The process ends, or the capture does. Live memory stays attributed to its contexts.
    pub(super) fn end(&mut self, now_ns: u64, profile: &mut Profile) {
        self.hold_until(now_ns, profile);
        self.ranges = AddressMap::default();
        self.write_contexts(profile);
    }

    /// The pool is not watched for a while: live memory is unknown from now on. Returns the number of live allocations.
    pub(super) fn forget(&mut self, now_ns: u64, profile: &mut Profile) -> u64 {
        self.hold_until(now_ns, profile);
        let forgotten = std::mem::take(&mut self.ranges).len() as u64;
        for context in 0..self.contexts.len() as u32 {
            if self.contexts[context as usize].live > 0 {
                self.touch(context).live = 0;
            }
        }
        (self.live, self.level, self.reserved) = (0, 0, 0);
        forgotten
    }

    /// Writes each context's bytes at the peak and at the end; once.
    fn write_contexts(&mut self, profile: &mut Profile) {
        self.by_node = FxHashMap::default();
        for Context { node, live, at_peak, .. } in std::mem::take(&mut self.contexts) {
            for (metric, bytes) in [(Metric::PeakBytes, at_peak), (Metric::LiveBytes, live)] {
                if bytes > 0 {
                    profile.tree.add(node, metric, bytes);
                }
            }
        }
    }
}
