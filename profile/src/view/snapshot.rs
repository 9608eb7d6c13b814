//! Snapshot: all that a screen needs, as plain data cut from a profile at one moment.
//!
//! Owns: [`Snapshot`] with its trees, table rows, timeline, source lines and header figures; and [`Snapshots`], the
//! source a screen gets them from. Conclusions are rows of their own ([`crate::view::conclusions`]). Because: views
//! must never hold on to the profile that a capture is growing, and a running capture, a stored file and a test must
//! look the same to them. Does not: know terminals, clocks or the capture.

use std::sync::Arc;

pub use deepctx_common::memory::MemoryUse;
use deepctx_common::reasons;

pub use crate::frame::{FrameKind, WorkerKind};
pub use crate::ledger::LossRow;
pub use crate::metric::{Metric, Unit};
use crate::trace::EventLanes;
use crate::units::{Bytes, Nanos};
use crate::view::conclusions::Conclusions;
use crate::view::event_tables::EventTable;
use crate::view::request::Request;

/// A device that worked for less than one part in this many of the capture was not busy.
const BUSY: u64 = 10;

/// Whether a device worked for so much of a capture that its time is shown first: CPU time shows little about a program
/// that waits for it.
pub const fn device_was_busy(device_ns: u64, elapsed: Nanos) -> bool {
    device_ns > 0 && device_ns >= elapsed.0 / BUSY
}

/// A profile at one moment, merged by label for one metric and one choice of context.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// Target, progress and cost of the capture.
    pub header: Header,
    /// Top-down tree; node 0 is the root.
    pub flame: FlameTree,
    /// Value of everything, without the filter.
    pub unfiltered: u64,
    /// Part of these values in kernel code of probes; 0 where that is no box of its own.
    pub probes: u64,
    /// Other requested content.
    pub extra: TabData,
    /// Baseline of values since a mark.
    pub since: Option<Baseline>,
    /// Metrics with values in the profile, each with its sum.
    pub metrics: Vec<MetricTotal>,
    /// Records by stage, in the order of the stages; unused ones left out.
    pub stages: Vec<StageRow>,
    /// Device work of each process; empty when none used a device.
    pub devices: Vec<DeviceRow>,
    /// Losses and gaps: one line each, in stage order, zero lines left out.
    pub losses: Vec<LossRow>,
}

/// Content of one tab beside the flame graph.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum TabData {
    /// Nothing.
    #[default]
    None,
    /// The first screen.
    Overview(Overview),
    /// Bottom-up tree: below the root the functions, below each of them its callers.
    Callers(FlameTree),
    /// The table of functions.
    Table(Table),
    /// Values over time of each process and thread.
    Timeline(Timeline),
    /// Single events over time, if the source is a trace: in place of [`TabData::Timeline`].
    Events(SharedLanes),
    /// The same, with conclusions from a part of the time.
    EventRange(SharedLanes, RangeConclusions),
    /// The same, with the tables over all events.
    EventTables(SharedLanes, Arc<[EventTable]>),
    /// The lines of one source file.
    Source(SourceLines),
}

/// Lanes of a trace, built once and shared by all its snapshots.
#[derive(Clone, Debug)]
pub struct SharedLanes(pub Arc<EventLanes>);

impl PartialEq for SharedLanes {
    /// Whether both are the same lanes: a trace does not change while it is shown.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Conclusions from the events of a part of the time.
#[derive(Clone, Debug, PartialEq)]
pub struct RangeConclusions {
    /// Its begin, since the first event.
    pub from: Nanos,
    /// Its end.
    pub to: Nanos,
    /// Results of the rules that these events alone suffice for.
    pub conclusions: Arc<Conclusions>,
}

/// A metric with values in the profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricTotal {
    /// The metric.
    pub metric: Metric,
    /// Its sum over the whole profile.
    pub total: u64,
}

/// Content of the first screen beside the flame graph.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overview {
    /// Conclusions from the whole profile, whatever is selected; `None` until it was analyzed.
    pub conclusions: Option<Arc<Conclusions>>,
    /// Functions, hottest first by exclusive value.
    pub functions: Vec<TableRow>,
    /// Operators of frameworks: without nested operators, and with them; largest first by the former.
    pub operators: Vec<TableRow>,
    /// Layers of models, likewise; largest first by the latter.
    pub layers: Vec<TableRow>,
    /// Time of the busiest threads and streams, the busiest first.
    pub timeline: Timeline,
}

/// The values before a mark, as a baseline of those since.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Baseline {
    /// When the mark was set: time since the capture began.
    pub at: Nanos,
    /// Value of everything before the mark.
    pub before: u64,
    /// Number of values in that sum.
    pub count_before: u64,
    /// Number of values since the mark.
    pub count_since: u64,
}

/// Figures for the header line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Header {
    /// The target in words (`python train.py (pid 4711)`).
    pub target: String,
    /// Time since the capture began.
    pub elapsed: Nanos,
    /// Sampling frequency, Hz per CPU.
    pub frequency_hz: u32,
    /// Samples kept so far.
    pub samples: u64,
    /// Samples per second over the last refresh.
    pub samples_per_second: f64,
    /// Samples lost so far, all reasons.
    pub lost: u64,
    /// Share of stacks without a gap in their native part, 0..=1; `None` before the first one.
    pub complete_share: Option<f64>,
    /// Cost of the profiler itself; `None` for a stored profile, which does not contain it.
    pub overhead: Option<Overhead>,
    /// Its memory by owner, largest first; empty if unknown.
    pub memory: Vec<MemoryUse>,
    /// Name of the metric shown (`cpu-time`), as in the command line.
    pub metric: &'static str,
    /// Unit of the metric.
    pub unit: Unit,
    /// Features that `--probe auto` chose (`operators`); empty without it.
    pub auto_probes: Vec<String>,
    /// A notice for the user (`symbolizing libtorch_cpu.so …`, `target exited`).
    pub notice: Option<String>,
}

/// Cost of the profiler itself.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Overhead {
    /// CPU time, as a share of one CPU.
    pub cpu_share: f64,
    /// Memory: resident set plus locked maps.
    pub memory: Bytes,
}

/// A flame graph's tree: nodes in an arena, children by label, so that boxes keep their place while live; those of the
/// bottom-up tree by value, largest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FlameTree {
    /// Nodes; index 0 is the root. A parent always precedes its children.
    pub nodes: Vec<FlameNode>,
}

impl FlameTree {
    /// Children of a node that are safe to follow: in range and after their parent, so that no walk can loop, even in a
    /// damaged file.
    pub fn children(&self, parent: u32) -> impl Iterator<Item = (u32, &FlameNode)> {
        let listed = self.nodes.get(parent as usize).map_or(&[][..], |node| &node.children);
        listed
            .iter()
            .filter(move |&&child| child > parent)
            .filter_map(|&child| self.nodes.get(child as usize).map(|node| (child, node)))
    }

    /// Children that name this node as their parent. In a damaged tree others have several parents.
    pub fn own_children(&self, node: u32) -> impl Iterator<Item = u32> {
        self.children(node).filter(move |(_, child)| child.parent == node).map(|(child, _)| child)
    }
}

/// One box.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FlameNode {
    /// Text in the box.
    pub label: String,
    /// Its location: file and line, or module; empty if unknown.
    pub detail: String,
    /// Kind of frame.
    pub kind: FrameKind,
    /// Value of this node alone.
    pub exclusive: u64,
    /// Value of this node and all below it.
    pub inclusive: u64,
    /// Inclusive value before the mark, when the snapshot has one.
    pub before: u64,
    /// Smallest and largest inclusive value of the siblings that this box represents, if several.
    pub each: Option<(u64, u64)>,
    /// For a process or thread with hidden native code: the kind of threads with most of its own value, and how much.
    pub workers: Option<(WorkerKind, u64)>,
    /// Source file and line, where known.
    pub source: Option<SourcePlace>,
    /// Index of the parent; 0 for the root itself.
    pub parent: u32,
    /// Indices of the children, in their order.
    pub children: Vec<u32>,
}

/// A place in a source file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourcePlace {
    /// Path as the program has it, not cleaned.
    pub file: Arc<str>,
    /// Line, counted from 1: the current line if lines are distinguished, otherwise the first of the function.
    pub line: u32,
    /// The process in whose mount namespace the path is valid; 0 when unknown.
    pub pid: u32,
}

/// Functions over all their contexts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// Metrics beside the one of the snapshot, in the order of [`TableRow::others`].
    pub others: Vec<Column>,
    /// Functions, hottest first by exclusive value.
    pub rows: Vec<TableRow>,
}

/// A metric of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Name as in the command line.
    pub metric: &'static str,
    /// Unit of its values.
    pub unit: Unit,
}

/// One function over all its contexts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TableRow {
    /// Text of the frame.
    pub label: String,
    /// File and line, or module.
    pub detail: String,
    /// Kind of frame.
    pub kind: FrameKind,
    /// Value at the leaf.
    pub exclusive: u64,
    /// Value anywhere on the stack, counted once per stack however often the function recurs.
    pub inclusive: u64,
    /// Exclusive and inclusive value of each other metric.
    pub others: Vec<(u64, u64)>,
    /// Source file and line, where known.
    pub source: Option<SourcePlace>,
}

/// Values over time of each process and thread.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timeline {
    /// Length of a window; the first begins with the capture.
    pub window: Nanos,
    /// Windows until now.
    pub windows: usize,
    /// Lanes: each process, hottest first, and below it its threads if requested.
    pub lanes: Vec<Lane>,
    /// Lanes left out, the coldest.
    pub lanes_left_out: usize,
}

/// One line of the timeline.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lane {
    /// Process or thread.
    pub label: String,
    /// Its kind.
    pub kind: FrameKind,
    /// Name of the metric.
    pub metric: &'static str,
    /// Its unit.
    pub unit: Unit,
    /// Whether values are levels, which hold until the next one and are not added up.
    pub level: bool,
    /// Sum of all windows; of levels the highest.
    pub total: u64,
    /// Value by window; zeros at the end may be missing.
    pub values: Vec<u64>,
}

/// Costs of the lines of one source file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SourceLines {
    /// Path as the program has it, not cleaned.
    pub file: Arc<str>,
    /// Lines with values, ascending.
    pub lines: Vec<LineRow>,
    /// Inclusive value of the functions of this file without a known line.
    pub without_line: u64,
}

/// One line of a source file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineRow {
    /// Number, counted from 1.
    pub line: u32,
    /// Value of the line alone.
    pub exclusive: u64,
    /// Value of the line and its callees, counted once per stack.
    pub inclusive: u64,
}

impl Snapshot {
    /// The metric to open with if a device was busy.
    pub fn device_metric(&self) -> Option<Metric> {
        let busy = |it: &&MetricTotal| {
            it.metric == Metric::GpuTime && device_was_busy(it.total, self.header.elapsed)
        };
        self.metrics.iter().find(busy).map(|it| it.metric)
    }

    /// Adds conclusions from the whole profile, if they are shown.
    pub fn conclude(&mut self, conclusions: Arc<Conclusions>) {
        if let TabData::Overview(overview) = &mut self.extra {
            overview.conclusions = Some(conclusions);
        }
    }
}

/// Records of one stage, by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageRow {
    /// Name of the stage.
    pub stage: &'static str,
    /// Records received.
    pub received: u64,
    /// Records passed on.
    pub kept: u64,
    /// Records joined with others.
    pub merged: u64,
    /// Records lost, all reasons.
    pub dropped: u64,
}

/// Source of the times of a process's device work, and whether host and device agree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceRow {
    /// The process, or how many (`process 4711`).
    pub process: String,
    /// Source of the times (`measured (CUPTI)`).
    pub tier: &'static str,
    /// A note about the collector or its absence; empty for none.
    pub note: String,
    /// Facts, a line each.
    pub lines: Vec<String>,
}

/// A source of snapshots and source files.
///
/// No method may wait: an event loop calls them between two key presses. Work that takes longer than a few milliseconds
/// belongs on the source's own thread, which stores its newest result for `latest`.
pub trait Snapshots {
    /// The newest snapshot for `request`; `None` if it was returned before, or if there is none yet.
    ///
    /// After the request changed, a snapshot for an older request is never returned.
    fn latest(&mut self, request: &Request) -> Option<Arc<Snapshot>>;

    /// The text of a source file, or why there is none; `None` while it is being read.
    fn text(&mut self, place: &SourcePlace) -> Option<Arc<SourceText>> {
        let _ = place;
        Some(Arc::new(SourceText::Missing(NoText::NotHere)))
    }

    /// Whether more can follow: false for a stored profile and once the capture has ended.
    fn live(&self) -> bool {
        true
    }
}

/// A source file, as far as it could be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceText {
    /// It was read.
    Lines {
        /// Its lines, raw.
        lines: Vec<String>,
        /// Whether the file was modified after the capture began, so that lines may have moved.
        changed: bool,
    },
    /// There is no text to show.
    Missing(NoText),
}

reasons! {
    class Unread, page "view.md";
    /// Why there is no text of a file. Its sentences follow "no text: ".
    pub enum NoText {
        NotHere, "source-not-here", "files cannot be read here";
        /// Its name is `<string>`, `<frozen …>` or alike.
        NotAFile, "source-not-a-file", "the code was made while the program ran and is in no file";
        NotFound, "source-not-found", "there is no such file on this machine";
        NotRegular, "source-not-regular", "the path leads to something else than a file";
        TooLarge, "source-too-large", "the file is too large for source code";
        Binary, "source-binary", "the file is not text";
        /// It may not be read, or reading failed.
        Unreadable, "source-unreadable", "the file could not be read";
    }
}
