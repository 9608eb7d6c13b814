//! Over time: tables that need single events, not sums.
//!
//! Owns: [`OverTime`], the tables of a [`Job`], a file for each. Because: only the order of events shows why a device
//! was idle and which rank was late. Does not: read traces, or use calling contexts.
//!
//! Definitions are those of HolisticTraceAnalysis (HTA) 0.5.0 and of Kineto's TensorBoard plug-in, where these are
//! right; each file documents its differences, and `docs/traces.md` compares both on real traces. All times are whole
//! nanoseconds and measured, except those based on inferred links, which are counted as such.

mod annotations;
mod bandwidth;
mod breakdown;
mod clocks;
mod collectives;
mod copies;
mod counters;
mod critical_path;
mod difference;
mod exposed;
mod gaps;
mod idle;
mod intervals;
mod kernel_classes;
mod last_active;
mod launches;
mod measurement;
mod message_waits;
mod nesting;
mod operators;
mod pacing;
mod parallelism;
mod pipeline;
mod queues;
mod rank_clocks;
mod rank_tables;
mod ranks;
mod reason;
mod sequences;
mod statistics;
mod steps;
mod what_if;
mod window;

#[cfg(test)]
mod loss_tests;
#[cfg(test)]
mod mesh_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod work_tests;

use deepctx_profile::device::activity::ClockOffset;
use deepctx_profile::frame::clean;
use deepctx_profile::ledger::{Reason, Stage};
use deepctx_profile::trace::{Basis, DeviceKind, Job, RankTrace, Trace};
use serde::Serialize;

use collectives::Matches;
use intervals::Intervals;
use nesting::Nesting;
use window::Window;

pub use annotations::{Annotation, Annotations};
pub use bandwidth::Bandwidth;
pub use breakdown::DeviceTime;
pub use clocks::{ClockAccuracy, LaneClock};
pub use collectives::{Collective, Lateness, Mismatch, NotMatched, Stragglers};
pub use copies::Copies;
pub use counters::CounterSummary;
pub use critical_path::{Bound, CriticalPath, PathOp, PathPart};
pub use difference::{CountChange, EventChange, EventDifference, EventSide, EventSum};
pub use exposed::ExposedWork;
pub use gaps::{DeviceGap, DeviceGaps};
pub use idle::IdleTime;
pub use kernel_classes::{ClassOverlap, ClassSum, KernelClasses, NamedLengths};
pub use launches::Launches;
pub use measurement::{LaneLoss, Measurement, NotMeasured};
pub use message_waits::{MessagePair, MessageWaits, UnmatchedPair};
pub use nesting::OperatorBasis;
pub use operators::{CallSite, Kernel, LaunchedWork, Operator, Operators};
pub use pacing::{Pace, PacedKind};
pub use parallelism::{GroupOperation, GroupSignature, KindBasis, ParallelKind, Parallelism};
pub use pipeline::{Pipeline, PipelineStage, PipelineStep, PipelineWaits, UnknownStage};
pub use queues::Queue;
pub use rank_clocks::ClockBasis;
pub(crate) use rank_tables::RankTables;
pub use ranks::{CommunicatorSum, Excess, Phase, PhaseImbalance, SlowestRank, SlowestRankTimes};
pub use sequences::{Repetition, Sequence, Sequences};
pub use statistics::Statistics;
pub use steps::{RefusedStep, StepParts, StepSplit};
pub use what_if::{Confidence, Edit, WhatIf};
pub use window::Steps;

/// Version of the serialized form: raised when a field is removed or changes its meaning. In 4, training steps that are
/// not measured have a reason in place of their figures.
pub const SCHEMA_VERSION: u32 = 4;

/// Every table over time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OverTime {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// What each trace holds.
    pub traces: Vec<TraceSummary>,
    /// Ranks of the job that have no trace here.
    pub missing_ranks: Vec<u32>,
    /// Training steps that were requested alone and are not measured: their ranks are in no table.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<RefusedStep>,
    /// What each device did.
    pub devices: Vec<DeviceTime>,
    /// Why each stream had nothing to do.
    pub idle: Vec<IdleTime>,
    /// Cost and delay of launches.
    pub launches: Vec<Launches>,
    /// How much work waited on each stream.
    pub queues: Vec<Queue>,
    /// Bandwidth of copies.
    pub copies: Vec<Copies>,
    /// The same over time.
    pub bandwidth: Vec<Bandwidth>,
    /// Copies and communication that no other work overlaps, or that something waits for.
    pub exposed: Vec<ExposedWork>,
    /// What each device ran, by purpose and by name.
    pub kernel_classes: Vec<KernelClasses>,
    /// The longest idle times of each device.
    pub gaps: Vec<DeviceGaps>,
    /// What happened within the program's named ranges, for each rank.
    pub annotations: Vec<Annotations>,
    /// How regularly training steps, ranges and kernels recur.
    pub pacing: Vec<Pace>,
    /// Further ranges and kernels that recur, of all ranks.
    pub pacing_left_out: usize,
    /// Values over time, for each rank: machine metrics and memory in use.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub counters: Vec<CounterSummary>,
    /// What each training step spent its time on.
    pub steps: Vec<StepSplit>,
    /// The slowest rank of each training step, and why. Empty with one rank.
    pub slowest: Vec<SlowestRank>,
    /// Steps without the critical path of their slowest rank: those in which it is least behind.
    pub slowest_paths_left_out: usize,
    /// Imbalance of each phase of the training steps over ranks. Empty with one rank.
    pub imbalance: Vec<PhaseImbalance>,
    /// Collectives by communicator. Empty with one rank.
    pub communicators: Vec<CommunicatorSum>,
    /// What each communicator does and costs, and which kind of parallelism it serves; also with one rank.
    pub parallelism: Parallelism,
    /// How long stages of a pipeline wait for their neighbours in each training step.
    pub pipeline: Pipeline,
    /// Which of two ranks waits for the other in the messages between them. Empty with one rank.
    pub messages: MessageWaits,
    /// What work each operator launched, for each rank.
    pub operators: Vec<Operators>,
    /// Work that operators repeatedly launch in the same order, for each rank.
    pub sequences: Vec<Sequences>,
    /// What the end of each rank's window waited for.
    pub critical_paths: Vec<CriticalPath>,
    /// Which rank the others wait for.
    pub stragglers: Stragglers,
    /// How long windows would have taken with edits; empty unless requested ([`OverTime::what_if`]). Only this table is
    /// modelled.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub what_if: Vec<WhatIf>,
}

/// Contents of one trace, and their reliability.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TraceSummary {
    /// The rank.
    pub rank: u32,
    /// Whether the trace itself states it.
    pub rank_is_recorded: bool,
    /// The file.
    pub file: String,
    /// From the first event to the last.
    pub span_ns: u64,
    /// Time resolution of the source.
    pub resolution_ns: u64,
    /// Error of the device clock relative to the threads', in a deepctx-bpf capture whose collector compared them. Each
    /// time from a call to its work may be wrong by this much.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_clock: Option<ClockOffset>,
    /// Accuracy of its lanes' times relative to the clock of its threads. `stragglers` has the accuracy between ranks.
    pub lane_clocks: Vec<LaneClock>,
    /// Events on threads.
    pub host_events: usize,
    /// Kernels, copies and fills.
    pub device_events: usize,
    /// Synchronisations on device rows, which are not work.
    pub sync_events: usize,
    /// Allocations and frees.
    pub memory_events: usize,
    /// Waits for devices that the trace names.
    pub exact_waits: usize,
    /// Waits that follow from the order of calls.
    pub waits_by_order: usize,
    /// Waits that are guessed.
    pub inferred_waits: usize,
    /// Synchronisations without a match.
    pub unlinked_waits: u64,
    /// Count and time of each kind of events, without any rule, as by plain counting over the file.
    pub sums: Vec<KindSum>,
    /// Skipped input, by reason.
    pub gaps: Vec<GapCount>,
    /// For a deepctx-bpf capture: records of any kind lost before the trace recorder, over the whole capture. The first
    /// of its traces has them.
    pub lost_before: Vec<EarlyLoss>,
}

/// Events of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct KindSum {
    /// The kind.
    pub kind: &'static str,
    /// How many.
    pub count: u64,
    /// Sum of their lengths.
    pub time_ns: u64,
}

/// Events missing from the tables.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GapCount {
    /// Stable name of the reason.
    pub reason: String,
    /// The reason in words.
    pub sentence: String,
    /// How many.
    pub count: u64,
}

/// Records that were lost before a recorder.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EarlyLoss {
    /// The stage that they did not pass.
    pub stage: &'static str,
    /// Why, and how many.
    #[serde(flatten)]
    pub lost: GapCount,
}

impl OverTime {
    /// Computes every table. Training steps limit what counts: see [`Steps`].
    pub fn compute(job: &Job, of: Steps) -> Self {
        let mut windows: Vec<Window<'_>> = job.ranks().iter().map(|rank| Window::new(rank, of)).collect();
        let refused: Vec<RefusedStep> = windows.iter().filter_map(RefusedStep::of).collect();
        windows.retain(|window| !refused.iter().any(|step| step.rank == window.of.rank));
        let nestings: Vec<Nesting> = windows.iter().map(|window| Nesting::of(window.of)).collect();
        let nested = || windows.iter().zip(&nestings);
        // For one step, ranks cannot be compared with a rank that lost events of it.
        let matches = if refused.is_empty() { collectives::compute(job, of) } else { Matches::default() };
        // A step's time may have collectives that an earlier one launched.
        let of_others = match refused.is_empty() && of != Steps::default() {
            true => collectives::compute(job, Steps::default()),
            false => Matches::default(),
        };
        let waits = |rank| Intervals::any([matches.waits_of(rank), of_others.waits_of(rank)]);
        let split = |window: &Window<'_>| steps::compute(window, &waits(window.of.rank));
        let steps: Vec<StepSplit> = windows.iter().flat_map(split).collect();
        let mut slowest = ranks::slowest(&steps);
        let slowest_paths_left_out = ranks::add_paths(&mut slowest, &windows);
        let paces: Vec<(Vec<Pace>, usize)> = windows.iter().map(pacing::compute).collect();
        OverTime {
            schema_version: SCHEMA_VERSION,
            traces: job.ranks().iter().map(summary).collect(),
            missing_ranks: job.missing(),
            refused,
            devices: windows.iter().flat_map(breakdown::compute).collect(),
            idle: windows.iter().flat_map(idle::compute).collect(),
            launches: windows.iter().map(launches::compute).collect(),
            queues: windows.iter().flat_map(queues::compute).collect(),
            copies: windows.iter().flat_map(copies::compute).collect(),
            bandwidth: windows.iter().flat_map(bandwidth::compute).collect(),
            exposed: windows.iter().flat_map(exposed::compute).collect(),
            kernel_classes: windows.iter().flat_map(kernel_classes::compute).collect(),
            gaps: windows.iter().flat_map(gaps::compute).collect(),
            annotations: nested().map(|(window, nesting)| annotations::compute(window, nesting)).collect(),
            pacing_left_out: paces.iter().map(|(_, left_out)| left_out).sum(),
            pacing: paces.into_iter().flat_map(|(rows, _)| rows).collect(),
            counters: job.ranks().iter().flat_map(counters::compute).collect(),
            slowest,
            slowest_paths_left_out,
            imbalance: ranks::imbalance(&steps),
            communicators: ranks::communicators(&matches.stragglers.collectives),
            parallelism: parallelism::compute(&windows),
            pipeline: pipeline::compute(&windows),
            messages: message_waits::compute(&windows, &matches.stragglers.ranks),
            steps,
            operators: nested().map(|(window, nesting)| operators::compute(window, nesting)).collect(),
            sequences: nested().map(|(window, nesting)| sequences::compute(window, nesting)).collect(),
            critical_paths: windows.iter().filter_map(critical_path::compute).collect(),
            stragglers: matches.stragglers,
            what_if: Vec::new(),
        }
    }

    /// Adds the effect of these edits, each alone and all together.
    #[must_use]
    pub fn what_if(mut self, job: &Job, of: Steps, edits: &[Edit]) -> Self {
        self.what_if = WhatIf::compute(job, of, edits);
        self
    }
}

/// The clocks of a job's ranks, from ends of collectives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobClocks {
    /// Offset of each rank's clock ahead of that of its [`Lateness::clock_reference`].
    pub offsets_ns: Vec<(u32, i64)>,
    /// Ranks whose clocks are not aligned with the first rank's: no chain of collectives leads there.
    pub unaligned: Vec<u32>,
}

impl JobClocks {
    /// The clocks of a job.
    pub fn of(job: &Job) -> Self {
        let found = collectives::compute(job, Steps::default()).stragglers.ranks;
        let first = found.first().map(|row| row.rank);
        let unaligned = found.iter().filter(|row| Some(row.clock_reference) != first);
        JobClocks {
            unaligned: unaligned.map(|row| row.rank).collect(),
            offsets_ns: found.iter().map(|row| (row.rank, row.clock_offset_ns)).collect(),
        }
    }

    /// Offset of a rank's clock; 0 if it is not known.
    pub fn offset_ns(&self, rank: u32) -> i64 {
        let at = self.offsets_ns.binary_search_by_key(&rank, |(of, _)| *of);
        at.ok().and_then(|at| self.offsets_ns.get(at)).map_or(0, |(_, offset_ns)| *offset_ns)
    }
}

fn summary(of: &RankTrace) -> TraceSummary {
    let waits = |basis: Basis| of.links.waits().filter(|wait| wait.basis == basis).count();
    TraceSummary {
        rank: of.rank,
        rank_is_recorded: of.rank_is_recorded,
        file: clean(&of.file),
        span_ns: of.span_ns(),
        resolution_ns: of.trace.clock.resolution.0,
        device_clock: of.trace.device_clock,
        lane_clocks: clocks::of_lanes(of),
        host_events: of.trace.host.len(),
        device_events: of.trace.device.len(),
        sync_events: of.trace.syncs.len(),
        memory_events: of.trace.memory.len(),
        exact_waits: waits(Basis::Exact),
        waits_by_order: waits(Basis::ByOrder),
        inferred_waits: waits(Basis::Inferred),
        unlinked_waits: of.links.unlinked_waits(),
        sums: sums(&of.trace),
        gaps: gaps(&of.trace),
        lost_before: lost_before(&of.trace),
    }
}

/// What is missing, no matter which part left it out: the importer, the recorder, or the writer.
fn gaps(trace: &Trace) -> Vec<GapCount> {
    let accounts = Stage::ALL.iter().map(|stage| trace.ledger.stage(*stage));
    let rows = accounts.flat_map(|account| account.gaps.iter().chain(account.dropped.iter()));
    rows.map(|(reason, count)| gap_count(reason, count)).collect()
}

fn lost_before(trace: &Trace) -> Vec<EarlyLoss> {
    let of_stage = |stage: &Stage| {
        let stage = *stage;
        let rows = trace.lost_before.stage(stage).dropped.iter();
        rows.map(move |(reason, count)| EarlyLoss { stage: stage.name(), lost: gap_count(reason, count) })
    };
    Stage::ALL.iter().flat_map(of_stage).collect()
}

fn gap_count(reason: &Reason, count: u64) -> GapCount {
    GapCount { reason: reason.key.to_string(), sentence: reason.sentence.to_string(), count }
}

fn sums(trace: &Trace) -> Vec<KindSum> {
    let mut sums: Vec<KindSum> = Vec::new();
    let mut add = |kind: &'static str, time_ns: u64| match sums.iter_mut().find(|row| row.kind == kind) {
        Some(row) => {
            row.count += 1;
            row.time_ns = row.time_ns.saturating_add(time_ns);
        }
        None => sums.push(KindSum { kind, count: 1, time_ns }),
    };
    trace.host.iter().for_each(|(_, op)| add(op.kind.name(), op.duration.0));
    trace.device.iter().for_each(|(_, op)| add(device_kind(op.kind), op.duration.0));
    trace.syncs.iter().for_each(|(_, sync)| add("synchronisation", sync.duration.0));
    trace.device_ranges.iter().for_each(|(_, range)| add("device-range", range.duration.0));
    sums
}

fn device_kind(kind: DeviceKind) -> &'static str {
    match kind {
        DeviceKind::Kernel => "kernel",
        DeviceKind::Copy => "copy",
        DeviceKind::Fill => "fill",
    }
}
