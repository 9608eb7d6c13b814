//! Steps: what each training step spent its time on.
//!
//! Owns: [`StepSplit`]. Because: a step has one length, and each nanosecond of it belongs in one column. Does not: know
//! epochs or batches.
//!
//! The split is that of Kineto's TensorBoard plug-in: kinds of events have priorities, and each moment belongs to the
//! active kind with the highest priority: kernels, copies, fills, communication, calls of the runtime, the data loader,
//! operators, nothing. A step ends where the next one begins; the last one at its own end or the end of the work it
//! launched, whichever is later. Unlike the plug-in, communication has a part in which another rank had not arrived. If
//! events were lost during a step, it is not measured: its parts would be too small, and its length wrong if the begin
//! of the next one was among them.

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
    /// Length of the step on the host.
    pub host_ns: u64,
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
        StepSplit { rank: window.of.rank, step: step.number, host_ns: step.op.duration.0, split }
    };
    steps.into_iter().map(split).collect()
}

/// The training steps of a window, and where each ends.
pub(super) fn with_ends(window: &Window<'_>) -> Vec<(TrainingStep, TraceTime)> {
    let steps = window.steps();
    let end = |(place, step): (usize, &TrainingStep)| {
        let next = steps.get(place + 1);
        (*step, next.map_or_else(|| end_of_last(window, step), |next| next.op.begin))
    };
    steps.iter().enumerate().map(end).collect()
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
        let steps = window.steps();
        let [step] = steps.as_slice() else { return None };
        if !window.is_of_steps() {
            return None;
        }
        let lost = lost_between(window.of, step.op.begin, end_of_last(window, step));
        let because = Measurement::unless(lost, || ()).not_measured()?.clone();
        Some(RefusedStep { rank: window.of.rank, step: step.number, because })
    }
}

fn end_of_last(window: &Window<'_>, step: &TrainingStep) -> TraceTime {
    let launched = |id| window.of.links.launch(id).call().and_then(|call| window.of.trace.host.get(call));
    let of_step =
        window.device().filter(|(id, _)| launched(*id).is_some_and(|call| call.begin >= step.op.begin));
    of_step.map(|(_, op)| op.end()).fold(step.op.end(), TraceTime::max)
}

/// The place of communication among the kinds.
const COMMUNICATION: usize = 3;

/// Times of each kind, highest priority first.
fn by_priority(window: &Window<'_>) -> [Intervals; 7] {
    let device = |wanted: fn(DeviceKind, KernelClass) -> bool| {
        let of_kind =
            window.device().filter(|(_, op)| wanted(op.kind, KernelClass::of(op.kind, window.name(op))));
        Intervals::of(of_kind.map(|(_, op)| (op.begin, op.end())).collect::<Vec<_>>())
    };
    let trace = &window.of.trace;
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
