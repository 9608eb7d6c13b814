//! Spans: begin and end of scopes that a stage observed, and counter values, for a trace of single events.
//!
//! Owns: what a stage has observed since it was last drained. Because: the stage that knows ranges does not record
//! events, and the stage that records events does not know ranges. Does not: bound itself: the caller of a stage
//! drains its spans at once, and one call ends at most the scopes that are open.

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
    /// The beginning of a training step, whenever it ends.
    StepBegins(u64),
    /// Time of a thread off its CPU, and who ended it, if known.
    OffCpu(Option<WakeUp>),
    /// The beginning of an operator. Its end is not watched.
    Operator,
}

/// When a span ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpanEnd {
    /// At this time, `CLOCK_MONOTONIC` nanoseconds.
    At(u64),
    /// Unknown: it may have ended where records are missing.
    Lost,
    /// Unknown: it was open when the capture, or its process, ended.
    Open,
}

/// A thread, in the pid namespace of the profiler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct SpanThread {
    /// Process id.
    pub(crate) pid: u32,
    /// Thread id.
    pub(crate) tid: u32,
}

/// A section of one thread's time.
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
    /// The context that it is counted for.
    pub(crate) node: NodeId,
    /// Begin of the counted interval, `CLOCK_MONOTONIC` nanoseconds.
    pub(crate) from_ns: u64,
    /// End of the interval. A level holds until the next value, so its interval is empty.
    pub(crate) to_ns: u64,
    /// The increase; for a level, the value.
    pub(crate) value: u64,
}

/// A single event to record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SingleEvent {
    /// A span of a thread.
    Span(Span),
    /// A value of a counter.
    Counter(CounterValue),
}

/// Events since they were last taken. Nothing is kept unless a recorder wants it.
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
    /// Keeps events from now on.
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

    /// Takes the events.
    #[inline]
    pub(crate) fn take(&mut self) -> impl Iterator<Item = T> + '_ {
        self.found.drain(..)
    }
}
