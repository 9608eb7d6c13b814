//! Windows: the examined events of a rank.
//!
//! Owns: [`Window`]. Because: the first training steps warm up caches, and another tool's figures may leave steps out.
//! Does not: compute.

use deepctx_profile::intern::Id;
use deepctx_profile::trace::{DeviceOp, HostKind, HostOp, RankTrace, TraceTime};

/// Training steps by number, the begin inclusive and the end exclusive; open ends include everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    /// The first step that counts.
    pub from: Option<u64>,
    /// The first step after those that count.
    pub until: Option<u64>,
}

/// A training step of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TrainingStep {
    pub(super) number: u64,
    pub(super) op: HostOp,
}

/// The events of a rank that count: host operations that begin in the window, and device operations launched by those.
#[derive(Clone, Debug)]
pub(super) struct Window<'t> {
    pub(super) of: &'t RankTrace,
    from: TraceTime,
    until: TraceTime,
    whole: bool,
}

impl<'t> Window<'t> {
    pub(super) fn new(of: &'t RankTrace, steps: Steps) -> Self {
        let all = steps_of(of);
        let begin =
            |number: u64| all.iter().filter(|step| step.number >= number).map(|step| step.op.begin).min();
        let last = TraceTime::from_nanos(u64::MAX);
        let from = steps.from.map_or(TraceTime::default(), |from| begin(from).unwrap_or(last));
        let until = steps.until.and_then(begin).unwrap_or(last);
        Window { of, from, until, whole: steps == Steps::default() }
    }

    /// One training step, by its begin and its end.
    pub(super) fn of_step(of: &'t RankTrace, from: TraceTime, until: TraceTime) -> Self {
        Window { of, from, until, whole: false }
    }

    pub(super) fn has(&self, time: TraceTime) -> bool {
        self.from <= time && time < self.until
    }

    /// Device operations, in the order of the trace.
    pub(super) fn device(&self) -> impl Iterator<Item = (Id<DeviceOp>, DeviceOp)> + '_ {
        self.of.trace.device.iter().filter(|(id, _)| self.has_device(*id))
    }

    /// Work with unknown launch counts only if everything does.
    pub(super) fn has_device(&self, id: Id<DeviceOp>) -> bool {
        let call = self.of.links.launch(id).call().and_then(|call| self.of.trace.host.get(call));
        self.whole || call.is_some_and(|call| self.has(call.begin))
    }

    /// The operations of each stream that count, by begin.
    pub(super) fn streams(&self) -> impl Iterator<Item = (usize, Vec<(Id<DeviceOp>, DeviceOp)>)> + '_ {
        let with_row = |id: &Id<DeviceOp>| Some((*id, self.of.trace.device.get(*id)?));
        self.of.links.streams().iter().enumerate().map(move |(number, ids)| {
            (number, ids.iter().filter(|id| self.has_device(**id)).filter_map(with_row).collect())
        })
    }

    /// Whether training steps limit it.
    pub(super) fn is_of_steps(&self) -> bool {
        !self.whole
    }

    /// Steps that begin in the window, by begin.
    pub(super) fn steps(&self) -> Vec<TrainingStep> {
        self.steps_of_trace().into_iter().filter(|step| self.has(step.op.begin)).collect()
    }

    /// Steps of the whole trace, by begin.
    pub(super) fn steps_of_trace(&self) -> Vec<TrainingStep> {
        steps_of(self.of)
    }

    /// The name of a step without its number.
    pub(super) fn step_name(&self, step: &TrainingStep) -> &str {
        let name = self.of.trace.name(step.op.name);
        name.rsplit_once('#').map_or(name, |(name, _)| name)
    }

    pub(super) fn name(&self, op: &DeviceOp) -> &str {
        self.of.trace.name(op.name)
    }
}

fn steps_of(of: &RankTrace) -> Vec<TrainingStep> {
    let steps = of.trace.host.iter().filter(|(_, op)| op.kind == HostKind::Step);
    let number = |op: &HostOp| of.trace.name(op.name).rsplit('#').next()?.trim().parse().ok();
    let mut steps: Vec<TrainingStep> =
        steps.filter_map(|(_, op)| Some(TrainingStep { number: number(&op)?, op })).collect();
    steps.sort_by_key(|step| step.op.begin);
    steps
}
