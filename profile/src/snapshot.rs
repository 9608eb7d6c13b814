//! Snapshot: all that a screen or a still picture needs, as plain data cut from a profile at one moment.
//!
//! Owns: the merged trees, the table rows, the timeline, the lines of a file and the header figures. Because: views must
//! never hold on to the profile that capture is growing. Does not: know terminals, clocks or the capture.

use std::sync::Arc;

/// A profile at one moment, merged by label for one metric and one choice of context.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// Who is profiled and how it goes.
    pub header: Header,
    /// Top-down tree; node 0 is the root.
    pub flame: FlameTree,
    /// Value of everything, whatever the filter leaves out.
    pub unfiltered: u64,
    /// What else was asked for.
    pub extra: Extra,
    /// What the values are compared with, when they are those since a mark.
    pub since: Option<Since>,
    /// Metrics that the profile has values of, by name.
    pub metrics: Vec<&'static str>,
    /// Records by stage, in the order of the stages; unused ones left out.
    pub stages: Vec<StageRow>,
    /// What is known of the device work of each process, in lines; empty when none used a device.
    pub devices: Vec<DeviceRow>,
    /// Losses and gaps: one line each, in stage order, zero lines left out.
    pub losses: Vec<LossRow>,
}

/// What one view needs beside the flame tree.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Extra {
    /// Nothing.
    #[default]
    None,
    /// Bottom-up tree: below the root the functions, below each of them its callers.
    Callers(FlameTree),
    /// The table of functions.
    Table(Table),
    /// What each process and thread did when.
    Timeline(Timeline),
    /// The lines of one source file.
    Source(SourceLines),
}

/// The values are those since a mark; those before it are what they are compared with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Since {
    /// When the mark was set: time since the capture began, nanoseconds.
    pub at_ns: u64,
    /// Value of everything before the mark.
    pub before: u64,
    /// How many single values that was the sum of.
    pub count_before: u64,
    /// How many single values the values since the mark are the sum of.
    pub count_since: u64,
}

/// Figures for the header line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Header {
    /// What is profiled, as the user would say it (`python train.py (pid 4711)`).
    pub target: String,
    /// Time since the capture began, nanoseconds.
    pub elapsed_ns: u64,
    /// Sampling frequency, Hz per CPU.
    pub frequency_hz: u32,
    /// Samples kept so far.
    pub samples: u64,
    /// Samples per second over the last refresh.
    pub samples_per_second: f64,
    /// Samples lost so far, all reasons.
    pub lost: u64,
    /// Share of samples whose native stack is complete to the thread's start, 0..=1; `None` before the first one.
    pub complete_share: Option<f64>,
    /// CPU time of the profiler itself, as a share of one CPU.
    pub own_cpu_share: f64,
    /// Memory of the profiler itself: resident set plus locked maps, bytes.
    pub own_memory_bytes: u64,
    /// Name of the metric shown (`cpu-time`), as in the command line.
    pub metric: &'static str,
    /// Unit of the metric.
    pub unit: Unit,
    /// Something the user should know now (`symbolizing libtorch_cpu.so …`, `target exited`).
    pub notice: Option<String>,
}

/// Unit of a metric's values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unit {
    /// Nanoseconds.
    #[default]
    Nanoseconds,
    /// A plain count.
    Count,
    /// Bytes.
    Bytes,
}

/// What kind of code a frame is: decides its colour and its letter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FrameKind {
    /// The root of the tree.
    #[default]
    Root,
    /// A process (`comm-pid`).
    Process,
    /// A thread.
    Thread,
    /// A Python function.
    Python,
    /// A framework operator (`aten::addmm`).
    Operator,
    /// A layer of a model (`GPT.h.0 (Block)`).
    Layer,
    /// Native code in user space.
    Native,
    /// Kernel code.
    Kernel,
    /// A GPU API call.
    GpuApi,
    /// A GPU kernel.
    GpuKernel,
    /// Could not be resolved; the label says why.
    Unresolved,
}

impl FrameKind {
    /// Every kind, from the root of a stack towards its leaf: the order of legends, and of numbers in files.
    pub const ALL: [FrameKind; 11] = [
        FrameKind::Root,
        FrameKind::Process,
        FrameKind::Thread,
        FrameKind::Python,
        FrameKind::Layer,
        FrameKind::Operator,
        FrameKind::Native,
        FrameKind::Kernel,
        FrameKind::GpuApi,
        FrameKind::GpuKernel,
        FrameKind::Unresolved,
    ];
}

/// A flame graph's tree: nodes in an arena, children sorted by label so that boxes keep their place while live.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FlameTree {
    /// Nodes; index 0 is the root. A parent always stands before its children.
    pub nodes: Vec<FlameNode>,
}

/// One box.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FlameNode {
    /// Text in the box.
    pub label: String,
    /// Where it is: file and line, or module; empty when unknown.
    pub detail: String,
    /// Kind of frame.
    pub kind: FrameKind,
    /// Value of this node alone.
    pub exclusive: u64,
    /// Value of this node and all below it.
    pub inclusive: u64,
    /// Inclusive value before the mark, when the snapshot has one.
    pub before: u64,
    /// Source file and line, where known.
    pub source: Option<SourcePlace>,
    /// Index of the parent; 0 for the root itself.
    pub parent: u32,
    /// Indices of the children, sorted by label.
    pub children: Vec<u32>,
}

/// A place in a source file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourcePlace {
    /// Path as the program has it, not cleaned.
    pub file: Arc<str>,
    /// Line, counted from 1: the one that runs where lines are told apart, else the first of the function.
    pub line: u32,
    /// The process whose view of the files the path belongs to; 0 when unknown.
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

/// What each process and thread did when.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timeline {
    /// Length of a window, nanoseconds; the first begins with the capture.
    pub window_ns: u64,
    /// Windows until now.
    pub windows: usize,
    /// Lanes: each process, hottest first, and below it its threads if they were asked for.
    pub lanes: Vec<Lane>,
    /// Lanes left out, the coldest.
    pub lanes_left_out: usize,
}

/// One line of the timeline.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lane {
    /// Process or thread.
    pub label: String,
    /// Which of the two.
    pub kind: FrameKind,
    /// Name of the metric.
    pub metric: &'static str,
    /// Its unit.
    pub unit: Unit,
    /// Values hold until the next one, and those of several windows are not added up.
    pub level: bool,
    /// Sum of all windows; of levels the highest.
    pub total: u64,
    /// Value by window; zeros at the end may be missing.
    pub values: Vec<u64>,
}

/// What the lines of one source file cost.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SourceLines {
    /// Path as the program has it, not cleaned.
    pub file: Arc<str>,
    /// Lines with values, ascending.
    pub lines: Vec<LineRow>,
    /// Inclusive value of the functions of this file of which no line is known.
    pub without_line: u64,
}

/// One line of a source file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineRow {
    /// Number, counted from 1.
    pub line: u32,
    /// Value of the line alone.
    pub exclusive: u64,
    /// Value of the line and what it calls, counted once per stack.
    pub inclusive: u64,
}

/// What became of the records at one stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageRow {
    /// Name of the stage.
    pub stage: &'static str,
    /// Records that came in.
    pub received: u64,
    /// Records passed on.
    pub kept: u64,
    /// Records joined with others.
    pub merged: u64,
    /// Records lost, all reasons.
    pub dropped: u64,
}

/// Where the times of a process's device work come from, and whether both sides saw the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceRow {
    /// The process (`python3-4711`).
    pub process: String,
    /// From where the times come (`T2 collected`).
    pub tier: &'static str,
    /// What the collector, or its absence, has to say; empty when nothing.
    pub note: String,
    /// What is known, a line each.
    pub lines: Vec<String>,
}

/// One reason for a loss or a gap.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LossRow {
    /// Stage (`kernel`, `decode`, `order`, `resolve`, …).
    pub stage: String,
    /// Stable name of the reason (`ring-full`).
    pub reason: String,
    /// One sentence.
    pub sentence: String,
    /// How many events or frames.
    pub count: u64,
    /// True when events were lost; false when they were kept with a labelled gap.
    pub lost: bool,
}
