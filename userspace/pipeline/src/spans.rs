//! Spans: begin and end of scopes that a stage observed, and counter values, for a trace of single events.
//!
//! Owns: what a stage has observed since it was last drained. Because: the stage that knows ranges does not record
//! events, and the stage that records events does not know ranges. Does not: bound itself: the caller of a stage
//! drains its spans at once, and one call ends at most the open scopes of one process's threads.

use deepctx_profile::metric::Metric;
use deepctx_profile::trace::WakeUp;
use deepctx_profile::tree::NodeId;

/// What a span is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpanKind {
    /// A range that the program names.
    Range,
    /// A training step, by its number at its place.
    Step(u64),
    /// A training step begins, whenever it ends.
    StepBegins(u64),
    /// A thread was off its CPU, and who ended that, if anybody was seen to.
    OffCpu(Option<WakeUp>),
    /// An operator begins. Its end is not watched.
    Operator,
}

/// When a span ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpanEnd {
    /// At this time, `CLOCK_MONOTONIC` nanoseconds.
    At(u64),
    /// Not known: records are missing in which it may have ended.
    Lost,
    /// Not known: it was open when the capture, or its process, ended.
    Open,
}

/// A thread, in the pid namespace of the profiler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SpanThread {
    /// Its process.
    pub(crate) pid: u32,
    /// Itself.
    pub(crate) tid: u32,
}

/// Something with a begin in one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// What it is.
    pub(crate) kind: SpanKind,
    /// The thread that it began in.
    pub(crate) of: SpanThread,
    /// Its calling context, whose innermost frame is its name.
    pub(crate) node: NodeId,
    /// When it began, `CLOCK_MONOTONIC` nanoseconds.
    pub(crate) began_ns: u64,
    /// When it ended.
    pub(crate) end: SpanEnd,
}

/// A value of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CounterValue {
    /// The process; 0 for the machine.
    pub(crate) pid: u32,
    /// What is counted.
    pub(crate) metric: Metric,
    /// Of what.
    pub(crate) node: NodeId,
    /// From when on, `CLOCK_MONOTONIC` nanoseconds.
    pub(crate) from_ns: u64,
    /// Until when it was counted. The same for a level that holds until the next value.
    pub(crate) to_ns: u64,
    /// By how much it grew; of a level, what it is.
    pub(crate) value: u64,
}

/// Something to record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SingleEvent {
    /// A span of a thread.
    Span(Span),
    /// A value of a counter.
    Counter(CounterValue),
}

/// What was found since it was last taken. Nothing is kept unless somebody records it.
#[derive(Debug)]
pub(crate) struct RecordBuffer<T> {
    wanted: bool,
    found: Vec<T>,
}

/// Spans since they were last taken.
pub(crate) type Spans = RecordBuffer<Span>;

impl<T> Default for RecordBuffer<T> {
    fn default() -> Self {
        RecordBuffer { wanted: false, found: Vec::new() }
    }
}

impl<T> RecordBuffer<T> {
    /// From now on, what is found is kept.
    pub(crate) fn want(&mut self) {
        self.wanted = true;
    }

    /// Adds one.
    #[inline]
    pub(crate) fn add(&mut self, one: T) {
        if self.wanted {
            self.found.push(one);
        }
    }

    /// Takes what was found.
    #[inline]
    pub(crate) fn take(&mut self) -> impl Iterator<Item = T> + '_ {
        self.found.drain(..)
    }
}
