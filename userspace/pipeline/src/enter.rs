//! Enter: what a record stands for → into the context that its stack leads to.
//!
//! Owns: the way from a resolved stack to a node of the tree, for each kind of record. Because: a stack that was seen before
//! and one that was not must end up alike. Does not: keep anything.

use deepctx_common::record::{kind, sample_flag};
use deepctx_profile::frame::Frame;
use deepctx_profile::profile::Profile;
use deepctx_profile::tree::NodeId;

use super::Config;
use super::account::Accounts;
use super::attribute::{self, Tick};
use super::backward::{self, Kind};
use super::correlate::CallAt;
use super::decode::{Arguments, Event, Sample, decode};
use super::operators::{self, Operators};
use super::ranges;
use super::resolve::CallPath;
use super::shown;
use super::source::{Place, Shelf};
use super::stacks::{Head, Known};
use super::stages::Stages;
use super::teams::TeamPart;
use super::thunks::ThunkPart;
use super::waits::{self, Context, WaitId};

/// The stages that a record is entered with.
pub(super) struct Entering<'a> {
    pub(super) config: &'a Config,
    pub(super) stages: &'a mut Stages,
    pub(super) accounts: &'a mut Accounts,
    pub(super) profile: &'a mut Profile,
}

impl Entering<'_> {
    /// The context that a path leads to, and what the account must know of it.
    #[inline]
    pub(super) fn context(
        &mut self,
        head: &Head,
        sample: &Sample<'_>,
        call: Option<&Arguments<'_>>,
        path: &CallPath<'_>,
    ) -> Known {
        let Self { stages, accounts, profile, .. } = self;
        let Stages { correlate, backward, ranges, operators, tensors, teams, thunks, .. } = &mut **stages;
        let off_cpu = sample.fixed.flags & sample_flag::OFF_CPU != 0;
        let said = call.is_some_and(|arguments| backward.sites.own(&arguments.call));
        let began = call.filter(|arguments| operators.sites.own(&arguments.call));
        let named = call.filter(|arguments| ranges.sites.own(&arguments.call));
        let mut to_team = TeamPart::None;
        let frames = match call {
            Some(arguments) if tensors.sites.own(&arguments.call) => {
                tensors.caller(arguments, profile, path.frames)
            }
            Some(arguments) if teams.sites.own(&arguments.call) => {
                let caller = attribute::without_probed(profile, path.frames, true);
                if teams.is_nested(caller, profile) {
                    to_team = TeamPart::Nested;
                }
                caller
            }
            Some(arguments) if !said && began.is_none() && named.is_none() => {
                correlate.caller(arguments.call.site, profile, path.frames)
            }
            None if off_cpu => waits::without_observer(profile, path.frames),
            _ => path.frames,
        };
        let frames = if named.is_some() { ranges::caller(frames, profile) } else { frames };
        let mut to_thunks = ThunkPart::Untold;
        let frames = ranges.within(head.ranges(), frames, profile);
        let frames = &*thunks.within(head.thunks(), sample, frames, profile, &mut to_thunks);
        let steps = if !backward.sites.is_empty() {
            backward.steps_in(sample, frames, profile)
        } else {
            backward::UNSURE
        };
        let (stand, placed) = backward.place(head.steps(), steps, head.thread(), frames, profile);
        let in_team = teams.place(head, sample, frames, profile, &mut to_team);
        let (from, stood_for) = placed.or(in_team).unwrap_or((head.thread(), 0));
        let operator = began.is_some() && operators::ends_with_operator(frames, profile);
        let from = match began {
            Some(arguments) if !Operators::has_stack(&arguments.call) => {
                Operators::without_stack(head.thread(), profile)
            }
            _ => from,
        };
        let below = &frames[stood_for..];
        let below =
            if said || began.is_some() { &below[..backward::operator_path(below, profile)] } else { below };
        let mut node = if shown::operators_alone(sample) {
            let shown = shown::without_native(below, profile);
            attribute::node(&mut profile.tree, from, &shown)
        } else {
            attribute::node(&mut profile.tree, from, below)
        };
        if off_cpu {
            let preempted = sample.fixed.flags & sample_flag::PREEMPTED != 0;
            let reason = waits::reason(profile, frames, preempted);
            let reason = profile.text(reason);
            let frame = profile.frame(Frame::Wait { reason });
            node = profile.tree.child(node, frame);
        }
        accounts.malformed_words(path.malformed);
        Known { node, unnamed: path.unnamed, steps, stand, operator, team: to_team, thunks: to_thunks }
    }

    /// Enters a sample, the beginning of a wait, or a call into its context.
    #[inline]
    pub(super) fn enter(
        &mut self,
        thread: NodeId,
        sample: &Sample<'_>,
        call: Option<Arguments<'_>>,
        known: Known,
    ) {
        let Self { stages, accounts, profile, .. } = self;
        let Stages { backward, ranges, operators, tensors, teams, thunks, holes, .. } = &mut **stages;
        teams.stack_seen(&sample.fixed, known);
        thunks.stack_seen(&sample.fixed, known);
        if !backward.sites.is_empty() {
            backward.stack_seen(&sample.fixed, known.steps, known.stand);
        }
        match call {
            None => self.enter_sample(thread, sample, known),
            Some(arguments) => match backward.kind(&arguments.call) {
                Some(kind) => {
                    accounts.step();
                    let said = known.node != thread && !sample.words.is_empty() && kind == Kind::Created;
                    let node = said.then_some(known.node);
                    backward.called(&sample.fixed, &arguments, node, known.steps, known.stand);
                }
                None if ranges.sites.own(&arguments.call) => {
                    accounts.step();
                    ranges.named(sample, &arguments, [thread, known.node], holes, profile);
                }
                None if operators.sites.own(&arguments.call) => {
                    accounts.step();
                    operators.begins(&sample.fixed, &arguments, thread, known, holes, profile);
                }
                None if teams.sites.own(&arguments.call) => {
                    accounts.step();
                    let known = Some(known).filter(|_| !sample.words.is_empty());
                    teams.called(&sample.fixed, &arguments, known);
                }
                None if tensors.sites.own(&arguments.call) => {
                    accounts.call(sample, known.unnamed);
                    let node = Some(known.node).filter(|_| !sample.words.is_empty());
                    tensors.called(&sample.fixed, &arguments, thread, node, profile);
                }
                None => self.enter_call(thread, sample, arguments, known),
            },
        }
    }

    /// Enters what a sample stands for into its context.
    fn enter_sample(&mut self, thread: NodeId, sample: &Sample<'_>, known: Known) {
        let Self { config, stages, accounts, profile } = self;
        match wait_of(sample) {
            Some(wait) => {
                stages.waits.resolved(wait, Context { node: known.node, thread }, profile);
                accounts.block(sample, known.unnamed);
            }
            None => {
                let tick = Tick { time_ns: sample.fixed.header.time_ns, period: sample.fixed.period };
                attribute::add(profile, thread, known.node, tick, config.timer, config.off_cpu);
                accounts.sample(sample, known.unnamed);
            }
        }
    }

    /// Enters what a call stands for into its context.
    fn enter_call(&mut self, thread: NodeId, sample: &Sample<'_>, arguments: Arguments<'_>, known: Known) {
        let fixed = &sample.fixed;
        self.accounts.call(sample, known.unnamed);
        let call = CallAt {
            number: fixed.period,
            time_ns: fixed.header.time_ns,
            pid: fixed.pid,
            tid: fixed.tid,
            thread,
            node: known.node,
            has_stack: !sample.words.is_empty(),
            arguments,
        };
        self.stages.correlate.call(&call, self.profile);
    }
}

/// The wait that a record begins; `None` of a timer sample.
#[inline]
pub(super) fn wait_of(sample: &Sample<'_>) -> Option<WaitId> {
    let fixed = &sample.fixed;
    (fixed.header.kind == kind::BLOCK).then_some(WaitId { tid: fixed.tid, began_ns: fixed.period })
}

/// The sample or call that was found at this place when its batch was decoded.
pub(super) fn sample_at(shelf: &Shelf, place: Place) -> Option<(Sample<'_>, Option<Arguments<'_>>)> {
    match decode(shelf.record(place)) {
        Ok(Event::Sample(sample) | Event::Block(sample)) => Some((sample, None)),
        Ok(Event::Call(sample, arguments)) => Some((sample, Some(arguments))),
        _ => None,
    }
}
