//! Snapshot: all that a screen or a still picture needs, as plain data cut from a profile at one moment.
//!
//! Owns: the merged flame tree, the table rows and the header figures. Because: views must never hold on to the
//! profile that capture is growing. Does not: know terminals, clocks or the capture.

/// A profile at one moment, merged by label for one metric and one choice of context.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// Who is profiled and how it goes.
    pub header: Header,
    /// Top-down tree; node 0 is the root.
    pub flame: FlameTree,
    /// Functions, hottest first by exclusive value.
    pub table: Vec<TableRow>,
    /// Losses and gaps: one line each, in stage order, zero lines left out.
    pub losses: Vec<LossRow>,
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
    /// Index of the parent; 0 for the root itself.
    pub parent: u32,
    /// Indices of the children, sorted by label.
    pub children: Vec<u32>,
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
