//! Meet: samples, calls and what belongs to calls, each when its time has come → the context that its stack leads to.
//!
//! Owns: what is used at once, what waits until its names were asked for, and what waits behind that. Because: a call can
//! change what the records after it mean, so all of them keep their order. Does not: take records in, or decide when.

use deepctx_common::record::{StackSample, Wake};
use deepctx_profile::profile::Profile;
use deepctx_profile::tree::NodeId;

use super::decode::{Arguments, Event, Sample, decode};
use super::devices;
use super::enter::{Entering, sample_at, wait_of};
use super::source::Place;
use super::stacks::{Head, Known};
use super::stages::Stages;
use super::symbols::Symbols;
use super::waits::{self, Context, WaitId};
use super::{Pipeline, Unresolved, seen, stacks, threads};

impl<S: Symbols> Pipeline<S> {
    /// Attributes a sample whose stack was seen before; notes what is missing for one that was not.
    #[inline]
    pub(super) fn meet(&mut self, place: Place) {
        let (sample, call) = match decode(self.shelf.record(place)) {
            Ok(Event::Sample(sample) | Event::Block(sample)) => (sample, None),
            // They have no stack of their own.
            Ok(Event::Call(_, arguments)) if self.stages.is_stackless(&arguments) => {
                return self.meet_record(place);
            }
            Ok(Event::Call(sample, arguments)) => {
                (self.stages.operators.named_by_return(sample, &arguments), Some(arguments))
            }
            Ok(Event::Wake(wake)) => {
                self.meet_wake(&wake);
                self.shelf.release(place);
                return;
            }
            Ok(Event::Return(_) | Event::Correlation(_) | Event::Message(..)) => {
                return self.meet_record(place);
            }
            _ => return,
        };
        let space = self.symbols.space(sample.fixed.pid, sample.fixed.header.time_ns);
        let Self { stages, stacks, resolve, profile, accounts, config, .. } = self;
        let thread = self.threads.node(&sample.fixed, space, &mut self.symbols, profile);
        let awaiting = if self.coroutines_told {
            let (pid, time_ns) = (sample.fixed.pid, sample.fixed.header.time_ns);
            self.symbols.awaiting(pid, time_ns, &mut seen::coroutines(&sample))
        } else {
            None
        };
        // Which step or range a stack is in is known when all that was called before is.
        let must_wait = self.calls_wait && stages.follow_calls();
        let mut head = Head::new(thread, space, &sample, awaiting);
        if !must_wait {
            head = stages.within(head, &sample);
        }
        let hash = stacks::hash(&head, &sample);
        match wait_of(&sample) {
            Some(wait) => stages.waits.began(wait, sample.fixed.pid),
            None if config.off_cpu => stages.waits.runs(sample.fixed.tid, sample.fixed.header.time_ns),
            None => {}
        }
        let known = if must_wait { None } else { stacks.get(hash, &head, sample.words) };
        let path = match known {
            Some(_) => None,
            None => resolve.path_or_note(&head, &sample, profile, accounts).filter(|_| !must_wait),
        };
        let mut entering = Entering { config, stages, accounts, profile };
        let known = match (known, path) {
            (Some(known), _) => known,
            (None, Some(path)) => {
                let known = entering.context(&head, &sample, call.as_ref(), &path);
                stacks.put(hash, &head, sample.words, known);
                known
            }
            (None, None) => {
                self.calls_wait |= call.is_some();
                return self.unresolved.push(Unresolved::Stack { place, head, hash, behind: must_wait });
            }
        };
        if call.is_some() && self.calls_wait {
            return self.unresolved.push(Unresolved::Call { place, thread, known });
        }
        enter(entering, &mut self.symbols, thread, &sample, call, known);
        self.shelf.release(place);
    }

    /// Enters a record that belongs to a call, once all that was called before it is known.
    fn meet_record(&mut self, place: Place) {
        if self.calls_wait {
            self.unresolved.push(Unresolved::Record(place));
        } else {
            self.enter_record(place);
        }
    }

    /// Enters a record that belongs to a call.
    fn enter_record(&mut self, place: Place) {
        let Self { shelf, stages, profile, accounts, symbols, .. } = self;
        let Stages { correlate, backward, ranges, operators, tensors, thunks, holes, .. } = stages;
        let event = decode(shelf.record(place));
        match event {
            Ok(Event::Call(..)) => accounts.step(),
            _ => accounts.device_record(),
        }
        match event {
            Ok(Event::Call(of, arguments)) if operators.sites.own(&arguments.call) => {
                operators.next(&of.fixed, &arguments, holes, profile);
            }
            Ok(Event::Call(of, arguments)) if thunks.sites.own(&arguments.call) => {
                thunks.begins(&of.fixed, &arguments, profile, &mut |step, answer| {
                    symbols.compiled_step(step, answer);
                });
            }
            Ok(Event::Call(step, arguments)) => {
                let space = symbols.space(step.fixed.pid, step.fixed.header.time_ns);
                let thread = self.threads.node(&step.fixed, space, symbols, profile);
                if ranges.sites.own(&arguments.call) {
                    ranges.told(&step.fixed, &arguments, thread, holes, profile);
                } else if tensors.sites.own(&arguments.call) {
                    tensors.called(&step.fixed, &arguments, thread, None, profile);
                } else {
                    backward.begins(&step.fixed, &arguments, thread, profile);
                }
            }
            Ok(Event::Return(record)) => correlate.returned(&record, profile),
            Ok(Event::Correlation(record)) => correlate.correlated(&record),
            Ok(Event::Message(message, bytes)) => {
                let time_ns = message.header.time_ns;
                let mut node =
                    |profile: &mut Profile| threads::process_node(message.pid, time_ns, "", symbols, profile);
                correlate.message(&message, bytes, profile, &mut node);
                devices::ask(symbols, correlate, profile);
            }
            _ => {}
        }
        self.shelf.release(place);
    }

    /// A thread runs again: its wait is over.
    fn meet_wake(&mut self, wake: &Wake) {
        self.accounts.wake();
        let id = WaitId { tid: wake.tid, began_ns: wake.began_ns };
        let end_ns = wake.header.time_ns;
        if self.stages.waits.ended(id, end_ns, &mut self.profile) {
            return;
        }
        let space = self.symbols.space(wake.pid, end_ns);
        let who = StackSample {
            header: wake.header,
            pid: wake.pid,
            tid: wake.tid,
            comm: wake.comm,
            ..Default::default()
        };
        let thread = self.threads.node(&who, space, &mut self.symbols, &mut self.profile);
        let frame = self.stages.waits.without_stack(wake.stack, &mut self.profile);
        let node = self.profile.tree.child(thread, frame);
        waits::enter(&mut self.profile, Context { node, thread }, wake.began_ns, end_ns);
    }

    pub(super) fn attribute_unresolved(&mut self) {
        self.resolve.ask(&mut self.symbols, &mut self.profile, &mut self.accounts);
        let mut unresolved = std::mem::take(&mut self.unresolved);
        self.calls_wait = false;
        unresolved.drain(..).for_each(|one| self.attribute_asked(one));
        self.unresolved = unresolved;
        self.resolve.trim();
    }

    /// Attributes what waited, now that all addresses have been asked for.
    fn attribute_asked(&mut self, unresolved: Unresolved) {
        let (place, head, hash, behind) = match unresolved {
            Unresolved::Stack { place, head, hash, behind } => (place, head, hash, behind),
            Unresolved::Call { place, thread, known } => {
                if let Some((sample, Some(arguments))) = sample_at(&self.shelf, place) {
                    let Self { profile, stages, accounts, config, symbols, .. } = self;
                    let entering = Entering { config, stages, accounts, profile };
                    enter(entering, symbols, thread, &sample, Some(arguments), known);
                }
                return self.shelf.release(place);
            }
            Unresolved::Record(place) => return self.enter_record(place),
        };
        let Some((sample, call)) = sample_at(&self.shelf, place) else { return };
        let sample = match &call {
            Some(arguments) => self.stages.operators.named_by_return(sample, arguments),
            None => sample,
        };
        let Self { resolve, profile, stages, accounts, config, .. } = self;
        let head = if behind { stages.within(head, &sample) } else { head };
        let hash = if behind { stacks::hash(&head, &sample) } else { hash };
        let path = resolve.path(&head, &sample, profile, accounts);
        let mut entering = Entering { config, stages, accounts, profile };
        let known = entering.context(&head, &sample, call.as_ref(), &path);
        enter(entering, &mut self.symbols, head.thread(), &sample, call, known);
        self.stacks.put(hash, &head, sample.words, known);
        self.shelf.release(place);
    }
}

/// Enters what has a context. What a call is about to launch is asked for first.
#[inline]
fn enter<S: Symbols>(
    mut entering: Entering<'_>,
    symbols: &mut S,
    thread: NodeId,
    sample: &Sample<'_>,
    call: Option<Arguments<'_>>,
    known: Known,
) {
    let Entering { stages, profile, .. } = &mut entering;
    devices::before_call(sample, call.as_ref(), known.node, symbols, &mut stages.correlate, profile);
    entering.enter(thread, sample, call, known);
}
