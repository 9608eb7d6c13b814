//! Steps: what each training step spent its time on.
//!
//! Owns: [`StepSplit`]. Because: a step has one length, and each nanosecond of it belongs in one column. Does not: know
//! epochs or batches.
//!
//! The split is that of Kineto's TensorBoard plug-in: kinds of events have priorities, and each moment belongs to the
//! active kind with the highest priority: kernels, copies, fills, communication, calls of the runtime, the data loader,
//! operators, nothing. A step ends where the next one of the trace begins; the last one at its own end or the end of
//! the work launched within it, whichever is later. Unlike the plug-in, communication has a part in which another rank
//! had not arrived. If events were lost during a step, it is not measured: its parts would be too small, and its length
//! wrong if the begin of the next one was among them.

use deepctx_profile::frame::clean;
use deepctx_profile::trace::{DeviceKind, HostKind, KernelClass, TraceTime};
use serde::Serialize;

use super::intervals::Intervals;
use super::measurement::{Measurement, NotMeasured, lost_between};
use super::window::{TrainingStep, Window};

/// One training step of one rank.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepSplit {
    /// The rank.
    pub rank: u32,
    /// Number of the step.
    pub step: u64,
    /// Its name without the number. Places of a program that count on their own have different ones (JAX).
    pub name: String,
    /// Length of the step on the host.
    pub host_ns: u64,
    /// From its begin to the begin of the next, or its end on the device.
    #[serde(skip)]
    pub(super) time: (TraceTime, TraceTime),
    /// Its parts.
    #[serde(flatten)]
    pub split: Measurement<StepParts>,
}

/// The time of a training step. All parts add up to the length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StepParts {
    /// From its begin to the begin of the next, or its end on the device.
    pub length_ns: u64,
    /// A kernel computes.
    pub kernel_ns: u64,
    /// A copy runs.
    pub copy_ns: u64,
    /// A fill runs.
    pub fill_ns: u64,
    /// A kernel communicates.
    pub communication_ns: u64,
    /// Of that, the part in which another rank had not arrived; 0 if no collective could be matched.
    pub waiting_ns: u64,
    /// A call of the runtime or the driver.
    pub api_call_ns: u64,
    /// The data loader.
    pub data_loader_ns: u64,
    /// An operator.
    pub operator_ns: u64,
    /// Nothing known to the trace.
    pub other_ns: u64,
}

/// Whether a host operation is the data loader, by PyTorch's names.
pub(super) fn is_data_loader(name: &str) -> bool {
    name.starts_with("enumerate(DataLoader)") || name.contains("DataLoaderIter.__next__")
}

pub(super) fn compute(window: &Window<'_>, waits: &Intervals) -> Vec<StepSplit> {
    let steps = with_ends(window);
    if steps.is_empty() {
        return Vec::new();
    }
    let kinds = by_priority(window);
    let split = |(step, end): (TrainingStep, TraceTime)| {
        let lost = lost_between(window.of, step.op.begin, end);
        let split = Measurement::unless(lost, || parts(&step, end, &kinds, waits));
        let (rank, name) = (window.of.rank, clean(window.step_name(&step)));
        let (host_ns, time) = (step.op.duration.0, (step.op.begin, end));
        StepSplit { rank, step: step.number, name, host_ns, time, split }
    };
    steps.into_iter().map(split).collect()
}

/// The training steps of a window, and where each ends.
pub(super) fn with_ends(window: &Window<'_>) -> Vec<(TrainingStep, TraceTime)> {
    // With those behind the window: a step is as long, whichever steps were requested.
    let all = window.steps_of_trace();
    let end = |(place, step): (usize, &TrainingStep)| {
        let next = all.get(place + 1);
        (*step, next.map_or_else(|| end_of_last(window, step), |next| next.op.begin))
    };
    all.iter().enumerate().filter(|(_, step)| window.has(step.op.begin)).map(end).collect()
}

/// A training step that was requested alone, and is not measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RefusedStep {
    /// The rank.
    pub rank: u32,
    /// Number of the step.
    pub step: u64,
    /// Why.
    #[serde(flatten)]
    pub because: NotMeasured,
}

impl RefusedStep {
    /// The only training step of a window, if events were lost in it: no table of the window is reliable.
    pub(super) fn of(window: &Window<'_>) -> Option<Self> {
        if !window.is_of_steps() {
            return None;
        }
        let steps = with_ends(window);
        let [(step, end)] = steps.as_slice() else { return None };
        // What it launched may end behind the begin of the next one.
        let end = end_of_last(window, step).max(*end);
        let lost = lost_between(window.of, step.op.begin, end);
        let because = Measurement::unless(lost, || ()).not_measured()?.clone();
        Some(RefusedStep { rank: window.of.rank, step: step.number, because })
    }
}

fn end_of_last(window: &Window<'_>, step: &TrainingStep) -> TraceTime {
    let launched = |id| window.of.links.launch(id).call().and_then(|call| window.of.trace.host.get(call));
    // What is launched behind its end belongs to a step that the trace has only in part, or to none.
    let time = step.op.begin..step.op.end();
    let device = window.of.trace.device.iter();
    let of_step = device.filter(|(id, _)| launched(*id).is_some_and(|call| time.contains(&call.begin)));
    of_step.map(|(_, op)| op.end()).fold(step.op.end(), TraceTime::max)
}

/// The place of communication among the kinds.
const COMMUNICATION: usize = 3;

/// Times of each kind, highest priority first.
fn by_priority(window: &Window<'_>) -> [Intervals; 7] {
    let trace = &window.of.trace;
    // With work that other steps launched: a moment has the same kind, whichever steps were requested.
    let device = |wanted: fn(DeviceKind, KernelClass) -> bool| {
        let of_kind =
            trace.device.iter().filter(|(_, op)| wanted(op.kind, KernelClass::of(op.kind, window.name(op))));
        Intervals::of(of_kind.map(|(_, op)| (op.begin, op.end())).collect::<Vec<_>>())
    };
    let host = |wanted: &dyn Fn(HostKind, &str) -> bool| {
        let of_kind = trace.host.iter().filter(|(_, op)| wanted(op.kind, trace.name(op.name)));
        Intervals::of(of_kind.map(|(_, op)| (op.begin, op.end())))
    };
    [
        device(|kind, class| kind == DeviceKind::Kernel && class == KernelClass::Compute),
        device(|kind, _| kind == DeviceKind::Copy),
        device(|kind, _| kind == DeviceKind::Fill),
        device(|_, class| class == KernelClass::Communication),
        host(&|kind, _| kind.is_call()),
        host(&|kind, name| kind != HostKind::UnknownCategory && is_data_loader(name)),
        host(&|kind, _| kind == HostKind::Operator),
    ]
}

fn parts(step: &TrainingStep, end: TraceTime, kinds: &[Intervals; 7], waits: &Intervals) -> StepParts {
    let mut left = Intervals::of([(step.op.begin, end)]);
    let length_ns = left.length();
    let (mut parts, mut waiting_ns) = ([0; 7], 0);
    for (place, (part, kind)) in parts.iter_mut().zip(kinds).enumerate() {
        let own = left.and(kind);
        *part = own.length();
        if place == COMMUNICATION {
            waiting_ns = own.and(waits).length();
        }
        left = left.without(kind);
    }
    let [kernel_ns, copy_ns, fill_ns, communication_ns, api_call_ns, data_loader_ns, operator_ns] = parts;
    StepParts {
        length_ns,
        kernel_ns,
        copy_ns,
        fill_ns,
        communication_ns,
        waiting_ns,
        api_call_ns,
        data_loader_ns,
        operator_ns,
        other_ns: left.length(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{job, of};
    use super::super::{OverTime, Steps};

    /// A last launch comes behind the last step.
    const STEPS: &str = "
        step m 0..10 ProfilerStep#1
        step m 10..20 ProfilerStep#2
        call m 1..2 cudaLaunchKernel #1
        call m 11..12 cudaLaunchKernel #2
        call m 25..26 cudaLaunchKernel #3
        kernel 0/7 3..14 a #1
        kernel 0/7 15..23 b #2
        kernel 0/7 30..90 behind #3";

    /// Number of each step, and its length in µs.
    fn lengths(found: &OverTime) -> Vec<(u64, u64)> {
        found.steps.iter().map(|row| (row.step, row.split.figures().unwrap().length_ns / 1000)).collect()
    }

    #[test]
    fn the_last_step_ends_with_what_it_launched() {
        assert_eq!(lengths(&of(STEPS)), [(1, 10), (2, 13)]);
    }

    #[test]
    fn a_step_is_as_long_whichever_steps_are_requested() {
        let first = Steps { from: None, until: Some(2) };
        assert_eq!(lengths(&OverTime::compute(&job(&[STEPS]), first)), [(1, 10)]);
    }

    #[test]
    fn parts_of_a_step_are_those_of_the_whole_trace() {
        let parts = |traces: &[&str], of: Steps| {
            let found = OverTime::compute(&job(traces), of);
            *found.steps.iter().find(|row| row.step == 2).unwrap().split.figures().unwrap()
        };
        let second = Steps { from: Some(2), until: None };
        let whole = parts(&[STEPS], Steps::default());
        // 4 µs of the first step's kernel, and its own.
        assert_eq!((whole.kernel_ns, whole.length_ns), (12_000, 13_000));
        assert_eq!(parts(&[STEPS], second), whole);
        let rank = |begin: u64| {
            format!(
                "step m 0..10 ProfilerStep#1\n step m 10..100 ProfilerStep#2
                 call m 1..2 cudaLaunchKernel #1\n kernel 0/9 {begin}..100 ncclKernel_AllReduce #1"
            )
        };
        let (first, other) = (rank(20), rank(90));
        let ranks = [first.as_str(), other.as_str()];
        let whole = parts(&ranks, Steps::default());
        assert_eq!((whole.communication_ns, whole.waiting_ns), (80_000, 70_000));
        assert_eq!(parts(&ranks, second), whole);
    }

    #[test]
    fn a_loss_before_the_next_step_refuses_a_single_one() {
        let steps = "step m 0..8 s#1\n step m 10..18 s#2\n lost t8 8.5..9 1";
        let first = Steps { from: Some(1), until: Some(2) };
        let found = OverTime::compute(&job(&[steps]), first);
        assert_eq!((found.refused.len(), found.steps.len()), (1, 0));
    }
}
