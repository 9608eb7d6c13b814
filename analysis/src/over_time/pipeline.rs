//! Pipelines: how long a stage waits for its neighbours in each training step.
//!
//! Owns: [`Pipeline`]. Because: stages of a pipeline send activations and gradients as messages between two ranks, and
//! a device that only waits for one is the bubble of the pipeline. Does not: match messages of two ranks: few traces
//! say whom a message is for; those that do are in [`super::MessageWaits`].
//!
//! A *message* is work that the trace calls `send` or `recv`. Messages that are sent together often have no such note:
//! then a kernel of NCCL that sends and receives counts if the program's own events name messages. All-to-alls run in
//! the same kernel. If the program does both, and the trace does not say which kernel is which, the rank is refused; so
//! it is if the trace says nothing, or if one kernel runs everything, as RCCL's does.
//!
//! A stage waits *at most* as long as messages run while its device runs nothing else. The kernel of a message runs
//! until the neighbour has come and the data is there: the transfer itself is part of this time. Time in which the
//! device has no work at all is not: see the gaps of the device.

use std::collections::BTreeSet;

use deepctx_common::reason::Reason;
use deepctx_common::reasons;
use deepctx_profile::frame::clean;
use deepctx_profile::intern::{Id, StrId};
use deepctx_profile::trace::{DeviceKind, DeviceOp, TraceTime, communicates};
use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;

use super::intervals::Intervals;
use super::measurement::{Measurement, lost_between};
use super::reason::fields;
use super::steps;
use super::window::{TrainingStep, Window};

/// The waits of the stages of a pipeline.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Pipeline {
    /// Ranks that exchange messages. Empty if there is no pipeline.
    pub stages: Vec<PipelineStage>,
    /// Ranks of which it is unknown whether they do, or in which steps.
    pub refused: Vec<UnknownStage>,
}

/// One stage.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PipelineStage {
    /// The rank.
    pub rank: u32,
    /// Communicators of its messages, as far as the trace names them.
    pub communicators: Vec<String>,
    /// Messages that the trace does not call so: the names of their kernels and of the program's events do.
    pub inferred_messages: usize,
    /// Its training steps.
    pub steps: Vec<PipelineStep>,
}

/// One training step of a stage.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PipelineStep {
    /// Number of the step.
    pub step: u64,
    /// Its waits.
    #[serde(flatten)]
    pub waits: Measurement<PipelineWaits>,
}

/// The waits of a stage in one training step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PipelineWaits {
    /// Length of the step, as in [`StepParts`](super::StepParts).
    pub length_ns: u64,
    /// Messages that begin in it.
    pub messages: usize,
    /// Time in which at least one runs.
    pub message_ns: u64,
    /// Part of it in which the device runs nothing else: it waits for a neighbour, or for the transfer itself.
    pub waiting_at_most_ns: u64,
}

/// A rank that may be a stage. Serialized, `reason` is the key and `because` the sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct UnknownStage {
    /// The rank.
    pub rank: u32,
    /// Why it is unknown.
    #[serde(flatten, serialize_with = "fields")]
    pub because: &'static Reason,
}

reasons! {
    class Gap, page "traces.md";
    const MESSAGE_OR_ALL_TO_ALL = "message-or-all-to-all",
        "kernels send and receive, and the trace does not say whether messages of a pipeline or all-to-alls";
    const MESSAGE_OR_COLLECTIVE = "message-or-collective",
        "one kernel runs messages and collectives, and the trace does not say which of them";
    const NO_TRAINING_STEPS = "no-training-steps",
        "ranks exchange messages, and the trace has no training steps to which they belong";
}

/// Names of messages in the program's own events: operators of PyTorch, and its ranges around calls of NCCL.
const MESSAGES: [&str; 5] = ["c10d::send", "c10d::recv", "nccl:send", "nccl:recv", "batch_isend_irecv"];
/// Names of all-to-alls, in lower case.
const ALL_TO_ALLS: [&str; 3] = ["alltoall", "all_to_all", "all2all"];

/// Whether an operation that a trace names is a message between two ranks.
pub(super) fn is_message(operation: &str) -> bool {
    ["send", "recv"].iter().any(|name| operation.eq_ignore_ascii_case(name))
}

fn is_all_to_all(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ALL_TO_ALLS.iter().any(|part| name.contains(part))
}

pub(super) fn compute(windows: &[Window<'_>]) -> Pipeline {
    let mut found = Pipeline::default();
    for window in windows {
        let rank = window.of.rank;
        match stage(window) {
            Ok(stage) => found.stages.extend(stage),
            Err(because) => found.refused.push(UnknownStage { rank, because }),
        }
    }
    found
}

/// The stage of a rank; `None` if it exchanges no messages.
fn stage(window: &Window<'_>) -> Result<Option<PipelineStage>, &'static Reason> {
    let messages = Messages::of(window)?;
    if messages.named.is_empty() && messages.inferred.is_empty() {
        return Ok(None);
    }
    let steps = steps::with_ends(window);
    if steps.is_empty() {
        return Err(NO_TRAINING_STEPS);
    }
    let (mut begins, running, waiting) = times(window, &messages);
    begins.sort_unstable();
    let of_step = |(step, end): (TrainingStep, TraceTime)| {
        let begin = step.op.begin;
        let before = |at: TraceTime| begins.partition_point(|message| *message < at);
        let waits = Measurement::unless(lost_between(window.of, begin, end), || PipelineWaits {
            length_ns: (end - begin).0,
            messages: before(end).saturating_sub(before(begin)),
            message_ns: running.between(begin, end),
            waiting_at_most_ns: waiting.between(begin, end),
        });
        PipelineStep { step: step.number, waits }
    };
    let steps = steps.into_iter().map(of_step).collect();
    let communicators = messages.communicators.into_iter().collect();
    let inferred_messages = messages.inferred.len();
    Ok(Some(PipelineStage { rank: window.of.rank, communicators, inferred_messages, steps }))
}

/// When messages begin, when they run, and when a device with messages runs nothing else.
fn times(window: &Window<'_>, messages: &Messages) -> (Vec<TraceTime>, Intervals, Intervals) {
    // By device: its messages, and its other work.
    let mut devices: FxHashMap<u32, [Vec<(TraceTime, TraceTime)>; 2]> = FxHashMap::default();
    let mut begins = Vec::new();
    for (id, op) in window.device() {
        let Some(stream) = window.of.trace.streams().get(op.stream.index()) else { continue };
        let is_message = messages.named.contains(&id) || messages.inferred.contains(&id);
        devices.entry(stream.device).or_default()[usize::from(!is_message)].push((op.begin, op.end()));
        begins.extend(is_message.then_some(op.begin));
    }
    let by_device: Vec<[Intervals; 2]> = devices.into_values().map(|of| of.map(Intervals::of)).collect();
    let waiting = Intervals::any(by_device.iter().map(|[messages, others]| messages.without(others)));
    let running = Intervals::any(by_device.into_iter().map(|[messages, _]| messages));
    (begins, running, waiting)
}

/// The messages of a rank.
#[derive(Default)]
pub(super) struct Messages {
    /// Those with a note.
    named: FxHashSet<Id<DeviceOp>>,
    /// Those without, by the program's own events.
    pub(super) inferred: FxHashSet<Id<DeviceOp>>,
    communicators: BTreeSet<String>,
}

impl Messages {
    pub(super) fn of(window: &Window<'_>) -> Result<Self, &'static Reason> {
        let trace = &window.of.trace;
        let mut found = Messages::default();
        let (mut others, mut notes_name_all_to_alls) = (FxHashSet::default(), false);
        for (_, note) in trace.collectives.iter().filter(|(_, note)| window.has_device(note.op)) {
            let operation = trace.name(note.operation);
            if is_message(operation) {
                found.named.insert(note.op);
                found.communicators.insert(clean(trace.name(note.communicator)));
            } else {
                others.insert(note.op);
                notes_name_all_to_alls |= is_all_to_all(operation);
            }
        }
        // A kernel that runs a collective, too, is no message.
        found.named.retain(|op| !others.contains(op));
        let unnoted = |part: &str| {
            let mut ops = kernels_of_nccl(window, part);
            ops.retain(|op| !found.named.contains(op) && !others.contains(op));
            ops
        };
        let unnamed = unnoted("SendRecv");
        if unnamed.is_empty() {
            let may_be_any = found.named.is_empty() && !unnoted("Generic").is_empty();
            let is_unknown = may_be_any && named_by_program(window)[0];
            return if is_unknown { Err(MESSAGE_OR_COLLECTIVE) } else { Ok(found) };
        }
        let [messages, all_to_alls] = named_by_program(window);
        if messages && (!all_to_alls || notes_name_all_to_alls) {
            found.inferred = unnamed;
        } else if messages || !all_to_alls {
            return Err(MESSAGE_OR_ALL_TO_ALL);
        }
        Ok(found)
    }
}

/// Kernels of NCCL with this part in their names.
fn kernels_of_nccl(window: &Window<'_>, part: &str) -> FxHashSet<Id<DeviceOp>> {
    let mut known: FxHashMap<StrId, bool> = FxHashMap::default();
    let mut is_one = |name: StrId| {
        *known.entry(name).or_insert_with(|| {
            let name = window.of.trace.name(name);
            name.contains(part) && communicates(name)
        })
    };
    let kernels = window.device().filter(|(_, op)| op.kind == DeviceKind::Kernel);
    kernels.filter(|(_, op)| is_one(op.name)).map(|(id, _)| id).collect()
}

/// Whether events of the program name messages, and all-to-alls.
fn named_by_program(window: &Window<'_>) -> [bool; 2] {
    let trace = &window.of.trace;
    let host = trace.host.iter().map(|(_, op)| op.name);
    let ranges = trace.device_ranges.iter().map(|(_, range)| range.name);
    let names: FxHashSet<StrId> = host.chain(ranges).collect();
    let has = |is_one: &dyn Fn(&str) -> bool| names.iter().any(|name| is_one(trace.name(*name)));
    [has(&|name| MESSAGES.iter().any(|part| name.contains(part))), has(&is_all_to_all)]
}

#[cfg(test)]
mod tests {
    use deepctx_profile::trace::{CollectiveNote, Job, Trace, text};

    use super::super::tests::of;
    use super::super::{OverTime, Steps};
    use super::*;

    /// A step of 100 µs with 60 µs of compute beside and between three messages.
    const STAGE: &str = "
        step main 0..100 ProfilerStep#1
        kernel 0/9 0..20 ncclDevKernel_SendRecv
        kernel 0/7 15..45 gemm
        kernel 0/9 40..50 ncclDevKernel_SendRecv
        kernel 0/7 50..80 gemm
        kernel 0/9 80..90 ncclDevKernel_SendRecv";
    const SENDS: &str = "\n range main 1..2 nccl:send 0->1\n op main 3..4 c10d::recv_";

    /// Messages, their time and the waits of each step, in µs; or why there are none.
    fn shown(pipeline: &Pipeline) -> Vec<String> {
        let refused = pipeline.refused.iter().map(|of| format!("{} {}", of.rank, of.because.key));
        let stages = pipeline.stages.iter().flat_map(|of| {
            of.steps.iter().map(move |step| match step.waits.figures() {
                Some(PipelineWaits { length_ns, messages, message_ns, waiting_at_most_ns }) => {
                    let us = [length_ns, message_ns, waiting_at_most_ns].map(|ns| ns / 1000);
                    format!("{} {} {messages} {us:?}", of.rank, step.step)
                }
                None => format!("{} {} lost", of.rank, step.step),
            })
        });
        stages.chain(refused).collect()
    }

    #[test]
    fn a_stage_waits_while_only_messages_run() {
        let found = of(&format!("{STAGE}{SENDS}")).pipeline;
        assert_eq!(shown(&found), ["0 1 3 [100, 40, 30]"]);
        assert_eq!((found.stages[0].inferred_messages, &found.stages[0].communicators), (3, &Vec::new()));
        // Without a kernel that sends, there is no pipeline.
        assert_eq!(of(&STAGE.replace("SendRecv", "AllReduce")).pipeline, Pipeline::default());
    }

    #[test]
    fn each_step_has_its_own_waits() {
        let second = "
            step main 100..200 ProfilerStep#2
            kernel 0/9 95..130 ncclDevKernel_SendRecv
            lost gpu0-s7 150..160 4";
        let found = of(&format!("{STAGE}{SENDS}{second}")).pipeline;
        assert_eq!(shown(&found), ["0 1 4 [100, 45, 35]", "0 2 lost"]);
    }

    #[test]
    fn a_possible_all_to_all_is_refused() {
        let check = |more: &str, expect: &[&str]| {
            assert_eq!(shown(&of(&format!("{STAGE}{more}")).pipeline), expect, "{more}");
        };
        check("", &["0 message-or-all-to-all"]);
        check("\n op main 1..2 c10d::alltoall_base_", &[]);
        check(&format!("{SENDS}\n range main 5..6 nccl:all_to_all"), &["0 message-or-all-to-all"]);
        let of_rccl = STAGE.replace("SendRecv", "Generic_4");
        assert_eq!(of(&of_rccl).pipeline, Pipeline::default());
        assert_eq!(shown(&of(&format!("{of_rccl}{SENDS}")).pipeline), ["0 message-or-collective"]);
        let without_step = STAGE.replace("step main 0..100 ProfilerStep#1", "");
        assert_eq!(shown(&of(&format!("{without_step}{SENDS}")).pipeline), ["0 no-training-steps"]);
    }

    /// The same kernels, with notes about some of them.
    fn noted(operations: &[(usize, &str)], more: &str) -> Pipeline {
        let mut trace: Trace = text::parse(&format!("{STAGE}{more}")).unwrap();
        let ops: Vec<_> = trace.device.iter().map(|(id, _)| id).collect();
        for (place, operation) in operations {
            let [operation, communicator, element] =
                [*operation, "5 PIPELINE_GROUP", "BFloat16"].map(|word| trace.text(word));
            let op = ops[*place];
            let note = CollectiveNote {
                op,
                operation,
                communicator,
                group_size: 4,
                elements_in: 8,
                element,
                ordinal: None,
                peer: None,
            };
            trace.collectives.push(note).unwrap();
        }
        let job = Job::new(vec![("a.json".to_owned(), trace)]).unwrap();
        OverTime::compute(&job, Steps::default()).pipeline
    }

    #[test]
    fn what_a_trace_calls_a_message_is_one() {
        let found = noted(&[(0, "recv"), (2, "send"), (4, "all_to_allv")], "");
        assert_eq!(shown(&found), ["0 1 2 [100, 30, 20]"]);
        let stage = &found.stages[0];
        assert_eq!((stage.inferred_messages, &*stage.communicators[0]), (0, "5 PIPELINE_GROUP"));
        // Notes tell all-to-alls, so that a kernel without one is a message.
        let said = format!("{SENDS}\n op main 5..6 c10d::alltoall_base_");
        let found = noted(&[(4, "all_to_allv")], &said);
        assert_eq!(shown(&found), ["0 1 2 [100, 30, 20]"]);
        assert_eq!(found.stages[0].inferred_messages, 2);
    }
}
