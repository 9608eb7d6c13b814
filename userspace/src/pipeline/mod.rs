//! The pipeline: from bytes to a calling context tree, in stages that only ever look forward.
//!
//! Owns: the stages and their wiring. Because: live capture, replay and tests must take the very same way.
//! Does not: open files, read clocks, start threads or know the kernel: time and symbols are given to it.
//!
//! ```text
//!  Input ──▶ decode ─┬─ fork, exec, exit, spaces ──▶ order ──▶ Symbols
//!                    │                                            ▲ asked once per address
//!                    └─ samples, calls ──▶ order ──▶ stacks (seen?) ──▶ resolve ─┬─────────────▶ attribute ──▶ Profile
//!                                                                  backward? ───┴─ correlate ─▶
//! ```
//! What changes processes is let through earlier than the samples by [`Config::foresight_ns`], because a library that
//! was mapped at one time is found by reading the process's mappings a little later.

pub mod account;
pub mod attribute;
pub mod backward;
mod by_address;
mod config;
pub mod correlate;
pub mod decode;
pub mod encode;
mod enter;
mod glue;
mod holes;
mod lists;
pub mod operators;
pub mod order;
mod plumbing;
pub mod ranges;
pub mod resolve;
pub mod seen;
mod sites;
pub mod source;
pub mod stacks;
mod steps;
pub mod symbols;
pub mod tensors;
pub mod threads;
pub mod waits;

use deepctx_common::end::PythonEnd;
use deepctx_common::record::{ProcessEvent, StackSample, Wake};
use deepctx_profile::ledger::Stage;
use deepctx_profile::profile::{Meta, Profile};
use deepctx_profile::tree::NodeId;

use account::Accounts;
use backward::Backward;
pub use config::Config;
use correlate::Correlate;
use decode::{Arguments, Event, Sample, Sequences, decode, records};
use enter::{Entering, sample_at, wait_of};
use holes::Holes;
use operators::Operators;
use order::{Key, Late, Order};
use ranges::Ranges;
use resolve::Resolve;
use seen::PythonSeen;
use source::{Input, Place, Shelf, SpaceUpdate, UnnamedKernel, UnreadCubin};
use stacks::{Head, Known, Stacks};
use symbols::{NoName, Symbols};
use tensors::Tensors;
use threads::Threads;
use waits::{Context, WaitId, Waits};

/// A wait that goes on is entered this often.
const WAIT_PIECE_NS: u64 = 1_000_000_000;
/// Samples that are resolved together: enough for one question per module, few enough to bound what is in hand.
const TOGETHER: usize = 4096;
/// Unknown addresses that are asked for together.
const ASKED_TOGETHER: usize = 1 << 16;

/// The stages, wired.
#[derive(Debug)]
pub struct Pipeline<S: Symbols> {
    config: Config,
    symbols: S,
    shelf: Shelf,
    sequences: Sequences,
    changes: Order<Change<S::Space>>,
    samples: Order<Place>,
    threads: Threads,
    stacks: Stacks,
    resolve: Resolve,
    python_seen: PythonSeen,
    /// Coroutines were told in some sample.
    coroutines_told: bool,
    unresolved: Vec<Unresolved>,
    /// A call is among the unresolved: whatever belongs to calls must wait with it.
    calls_wait: bool,
    waits: Waits,
    correlate: Correlate,
    backward: Backward,
    ranges: Ranges,
    operators: Operators,
    tensors: Tensors,
    /// Where records are missing, for those who conclude from the last one of a kind.
    holes: Holes,
    accounts: Accounts,
    profile: Profile,
    newest_ns: u64,
}

/// What changes the set of processes or one of them.
#[derive(Debug)]
enum Change<M> {
    Fork(ProcessEvent),
    Exec(ProcessEvent),
    Exit(ProcessEvent),
    /// A library was mapped: what it is comes as a space.
    Map,
    Space(SpaceUpdate<M>),
}

/// What waits for the names of a stack.
#[derive(Clone, Copy, Debug)]
enum Unresolved {
    /// A sample or a call whose stack was not seen before, or one `behind` a call whose stack was not: which step of a
    /// backward pass it is in is known when that is.
    Stack { place: Place, head: Head, hash: u64, behind: bool },
    /// A call whose stack is known, behind one whose is not.
    Call { place: Place, thread: NodeId, known: Known },
    /// A record that belongs to a call, behind one whose stack is not known.
    Record(Place),
}

impl<S: Symbols> Pipeline<S> {
    /// A pipeline that has seen nothing.
    pub fn new(symbols: S, meta: Meta, config: Config) -> Self {
        let limits = config.limits;
        Self {
            symbols,
            shelf: Shelf::default(),
            sequences: Sequences::default(),
            changes: Order::new(config.waiting_records),
            samples: Order::new(config.waiting_records),
            threads: Threads::default(),
            stacks: Stacks::new(config.stack_bytes),
            resolve: Resolve::default(),
            python_seen: PythonSeen::default(),
            coroutines_told: false,
            unresolved: Vec::new(),
            calls_wait: false,
            waits: Waits::default(),
            correlate: Correlate::new(config.launches),
            backward: Backward::default(),
            ranges: Ranges::new(config.step_markers.clone()),
            operators: Operators::default(),
            tensors: Tensors::default(),
            holes: Holes::default(),
            accounts: Accounts::default(),
            profile: Profile::new(meta, limits),
            config,
            newest_ns: 0,
        }
    }

    /// Takes input in. Nothing reaches the profile before [`Pipeline::advance`].
    pub fn feed(&mut self, input: Input<S::Space>) {
        match input {
            Input::Records(bytes) => self.feed_records(bytes),
            Input::Space(update) => self.feed_change(update.time_ns, u16::MAX, 0, Change::Space(update)),
            Input::Counters(counters) => self.accounts.kernel(counters),
            Input::Sites(sites) => {
                let others = self.operators.learn(self.ranges.learn(self.backward.learn(sites)));
                let others = self.tensors.learn(others);
                self.correlate.learn(others);
            }
            Input::SiteCounts(counts) => {
                self.backward.counted(&counts);
                self.ranges.counted(&counts);
                self.operators.counted(&counts);
                self.tensors.counted(&counts);
                self.correlate.counted(&counts);
            }
            Input::Recovered(kernels) => self.correlate.recovered(kernels),
            Input::Lines(lines) => self.correlate.lines_read(lines, &mut self.profile),
        }
        while self.changes.is_over_capacity() {
            self.change(0);
        }
        if self.samples.is_over_capacity() || self.shelf.bytes() > self.config.waiting_bytes {
            self.use_early();
        }
    }

    /// Takes in what the kernel programs' tables lack, total so far: reasons why stacks may be incomplete.
    pub fn tables_lack(&mut self, gaps: Vec<(NoName, u64)>) {
        self.accounts.tables(gaps);
    }

    /// Uses everything up to a time, `CLOCK_MONOTONIC` nanoseconds: no older record is expected any more.
    pub fn advance(&mut self, watermark_ns: u64) {
        while self.change(watermark_ns) {}
        let until_ns = watermark_ns.saturating_sub(self.config.foresight_ns);
        self.attribute_until(until_ns);
        self.waits.enter_until(until_ns, WAIT_PIECE_NS, &mut self.profile);
        self.correlate.expire(until_ns, &mut self.profile);
        self.tensors.hold_until(until_ns, &mut self.profile);
    }

    /// Handles that were launched without a name since the last time: what is found of them comes as [`Input::Recovered`].
    pub fn unnamed_kernels(&mut self) -> Vec<UnnamedKernel> {
        self.correlate.unnamed()
    }

    /// Device code whose lines are wanted since the last time: what is read comes as [`Input::Lines`].
    pub fn unread_cubins(&mut self) -> Vec<UnreadCubin> {
        self.correlate.unread_cubins()
    }

    /// Uses everything that was fed: there will be no more.
    pub fn finish(&mut self) {
        while self.change(u64::MAX) {}
        self.attribute_until(u64::MAX);
        self.waits.enter_until(self.newest_ns, 0, &mut self.profile);
        self.correlate.finish(self.newest_ns, &mut self.profile);
        self.tensors.finish(self.newest_ns, &mut self.profile);
    }

    /// The profile so far, its ledger up to date.
    pub fn profile(&mut self) -> &mut Profile {
        self.accounts.missing(self.sequences.missing());
        self.accounts.waits(self.waits.gaps());
        self.accounts.write_to(&mut self.profile.ledger);
        self.backward.write_to(self.profile.ledger.stage_mut(Stage::Attribute));
        self.ranges.write_to(self.profile.ledger.stage_mut(Stage::Attribute));
        self.operators.write_to(self.profile.ledger.stage_mut(Stage::Attribute));
        self.correlate.write_to(&mut self.profile);
        self.tensors.write_to(&mut self.profile);
        &mut self.profile
    }

    /// Gives the profile away.
    pub fn into_profile(mut self) -> Profile {
        self.finish();
        self.profile();
        self.profile
    }

    /// Those who know names.
    pub fn symbols(&mut self) -> &mut S {
        &mut self.symbols
    }

    /// Launches of kernels and graphs so far.
    pub fn launches(&self) -> u64 {
        self.correlate.launches()
    }

    /// The counters so far.
    pub fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    /// Time of the newest record, `CLOCK_MONOTONIC` nanoseconds; 0 before the first.
    pub fn newest_ns(&self) -> u64 {
        self.newest_ns
    }

    /// Bytes of records that wait for their turn.
    pub fn waiting_bytes(&self) -> usize {
        self.shelf.bytes()
    }

    /// Stacks that had been seen before, and those that had not.
    pub fn stack_hits_and_misses(&self) -> (u64, u64) {
        self.stacks.hits_and_misses()
    }

    /// An emptied buffer, to be filled with records.
    pub fn take_spare(&mut self) -> Vec<u8> {
        self.shelf.take_spare()
    }

    fn feed_records(&mut self, bytes: Vec<u8>) {
        let batch = self.shelf.put(bytes);
        // The bytes are lent out while their places are noted.
        let bytes = self.shelf.lend(batch);
        for slot in records(&bytes) {
            self.accounts.received();
            let event = match slot.event {
                Ok(event) => event,
                Err(error) => {
                    self.accounts.undecoded(&error);
                    continue;
                }
            };
            let header = *event.header();
            self.sequences.saw(header.cpu, header.sequence);
            self.holes.saw(header.cpu, header.sequence, header.time_ns);
            self.newest_ns = self.newest_ns.max(header.time_ns);
            let change = match event {
                Event::Sample(_)
                | Event::Block(_)
                | Event::Wake(_)
                | Event::Call(..)
                | Event::Return(_)
                | Event::Correlation(_)
                | Event::Message(..) => {
                    if let Event::Sample(sample) | Event::Block(sample) | Event::Call(sample, _) = event {
                        self.note_python(&sample);
                    }
                    if let Event::Message(message, bytes) = event {
                        self.correlate.cubin_told(&message, bytes);
                    }
                    let place = self.shelf.refer(batch, slot.offset, slot.size);
                    let key = Key { time_ns: header.time_ns, cpu: header.cpu, sequence: header.sequence };
                    if let Err(Late(place)) = self.samples.push(key, place) {
                        self.shelf.release(place);
                        self.accounts.late();
                        self.holes.unused(header.time_ns);
                    }
                    continue;
                }
                Event::Fork(event) => Change::Fork(event),
                Event::Map(_) => Change::Map,
                Event::Exec(event) => {
                    self.python_seen.forget(event.pid);
                    self.symbols.replacement_seen(event.pid);
                    Change::Exec(event)
                }
                Event::Exit(event) => {
                    self.python_seen.forget(event.pid);
                    Change::Exit(event)
                }
            };
            self.feed_change(header.time_ns, header.cpu, header.sequence, change);
        }
        self.shelf.give_back(batch, bytes);
        self.shelf.seal(batch);
    }

    /// Tells of Python functions that were not met before, so that they are read while they are there.
    fn note_python(&mut self, sample: &Sample<'_>) {
        let new = self.python_seen.new_in(sample);
        let pid = sample.fixed.pid;
        if !new.functions.is_empty() {
            self.symbols.python_seen(pid, new.functions);
        }
        if !new.coroutines.is_empty() {
            self.coroutines_told = true;
            self.symbols.coroutines_seen(pid, sample.fixed.header.time_ns, new.coroutines);
        }
        if !new.modules.is_empty() {
            let whole = sample.fixed.python_end == PythonEnd::Complete as u8;
            self.symbols.modules_seen(pid, sample.fixed.header.time_ns, new.modules, whole);
        }
    }

    fn feed_change(&mut self, time_ns: u64, cpu: u16, sequence: u64, change: Change<S::Space>) {
        let key = Key { time_ns, cpu, sequence };
        match self.changes.push(key, change) {
            Ok(()) => {}
            // Mappings that were read late are still the best that is known.
            Err(Late(Change::Space(update))) => self.symbols.space_changed(update),
            Err(Late(_)) => self.accounts.late(),
        }
    }

    /// Tells the next change of processes; false when none is due.
    fn change(&mut self, watermark_ns: u64) -> bool {
        let Some((_, change)) = self.changes.pop(watermark_ns) else { return false };
        if !matches!(change, Change::Space(_)) {
            self.accounts.process();
        }
        match change {
            Change::Fork(event) => {
                self.backward.will_change(event.pid, event.header.time_ns);
                self.ranges.will_change(event.pid, event.header.time_ns);
                self.operators.will_change(event.pid, event.header.time_ns);
                self.tensors.will_change(event.pid, event.header.time_ns);
                self.correlate.will_change(event.pid, event.header.time_ns, correlate::Change::Begins);
                self.symbols.forked(&event);
            }
            Change::Exec(event) => {
                self.backward.will_change(event.pid, event.header.time_ns);
                self.ranges.will_change(event.pid, event.header.time_ns);
                self.operators.will_change(event.pid, event.header.time_ns);
                self.tensors.will_change(event.pid, event.header.time_ns);
                self.correlate.will_change(event.pid, event.header.time_ns, correlate::Change::Begins);
                self.symbols.replaced(&event);
            }
            Change::Exit(event) => {
                self.backward.will_change(event.pid, event.header.time_ns);
                self.ranges.will_change(event.pid, event.header.time_ns);
                self.operators.will_change(event.pid, event.header.time_ns);
                self.tensors.will_change(event.pid, event.header.time_ns);
                self.correlate.will_change(event.pid, event.header.time_ns, correlate::Change::Ends);
                self.waits.will_end(event.pid, event.header.time_ns);
                self.symbols.ended(&event);
            }
            Change::Map => {}
            Change::Space(update) => self.symbols.space_changed(update),
        }
        true
    }

    /// Uses the oldest half of what waits, although younger records could still belong before it.
    fn use_early(&mut self) {
        for _ in 0..self.samples.len() / 2 {
            if let Some((_, place)) = self.samples.pop(u64::MAX) {
                self.accounts.early();
                self.meet(place);
            }
        }
        self.attribute_unresolved();
    }

    fn attribute_until(&mut self, watermark_ns: u64) {
        while let Some((key, place)) = self.samples.pop(watermark_ns) {
            self.processes_changed(key.time_ns);
            self.meet(place);
            if self.unresolved.len() >= TOGETHER || self.resolve.missing() >= ASKED_TOGETHER {
                self.attribute_unresolved();
                self.symbols.retire(key.time_ns);
            }
        }
        self.attribute_unresolved();
        self.processes_changed(watermark_ns);
        self.symbols.retire(watermark_ns);
    }

    /// The samples have reached this time: with the processes that changed until then changes what is known of them.
    #[inline]
    fn processes_changed(&mut self, now_ns: u64) {
        self.waits.processes_ended(now_ns, &mut self.profile);
        if self.correlate.change_is_due(now_ns) {
            // What was called before must be known before.
            self.attribute_unresolved();
            self.correlate.processes_changed(now_ns, &mut self.profile);
        }
    }

    /// Whether a call says what it says without a stack of its own.
    #[inline]
    fn is_stackless(&self, arguments: &Arguments<'_>) -> bool {
        self.backward.kind(arguments) == Some(backward::Kind::Begins)
            || self.ranges.kind(arguments).is_some_and(|kind| kind != ranges::Kind::Named)
            || self.operators.kind(&arguments.call) == Some(operators::Kind::Next)
            || self.tensors.needs_no_stack(arguments)
    }

    /// Attributes a sample whose stack was seen before; notes what is missing for one that was not.
    #[inline]
    fn meet(&mut self, place: Place) {
        let (sample, call) = match decode(self.shelf.record(place)) {
            Ok(Event::Sample(sample) | Event::Block(sample)) => (sample, None),
            // They have no stack of their own.
            Ok(Event::Call(_, arguments)) if self.is_stackless(&arguments) => {
                return self.meet_record(place);
            }
            Ok(Event::Call(sample, arguments)) => {
                (self.operators.named_by_return(sample, &arguments), Some(arguments))
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
        let Self {
            stacks,
            resolve,
            profile,
            waits,
            accounts,
            config,
            correlate,
            backward,
            ranges,
            operators,
            tensors,
            holes,
            ..
        } = self;
        let thread = self.threads.node(&sample.fixed, space, &mut self.symbols, profile);
        let awaiting = if self.coroutines_told {
            let (pid, time_ns) = (sample.fixed.pid, sample.fixed.header.time_ns);
            self.symbols.awaiting(pid, time_ns, &mut seen::coroutines(&sample))
        } else {
            None
        };
        // Which step or range a stack is in is known when all that was called before is.
        let must_wait = self.calls_wait && (backward.is_on() || ranges.is_on());
        let mut head = Head::new(thread, space, &sample, awaiting);
        if !must_wait {
            head = head.within(backward.steps_of(&sample.fixed, holes), ranges.of(&sample.fixed, holes));
        }
        let hash = stacks::hash(&head, &sample);
        match wait_of(&sample) {
            Some(wait) => waits.began(wait, sample.fixed.pid),
            None if config.off_cpu => waits.runs(sample.fixed.tid, sample.fixed.header.time_ns),
            None => {}
        }
        let known = if must_wait { None } else { stacks.get(hash, &head, sample.words) };
        let path = match known {
            Some(_) => None,
            None => resolve.path_or_note(&head, &sample, profile, accounts).filter(|_| !must_wait),
        };
        let mut entering = Entering {
            config,
            waits,
            correlate,
            backward,
            ranges,
            operators,
            tensors,
            holes,
            accounts,
            profile,
        };
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
        entering.enter(thread, &sample, call, known);
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
        let Self {
            shelf,
            correlate,
            backward,
            ranges,
            operators,
            tensors,
            holes,
            profile,
            accounts,
            symbols,
            ..
        } = self;
        let event = decode(shelf.record(place));
        match event {
            Ok(Event::Call(..)) => accounts.step(),
            _ => accounts.device_record(),
        }
        match event {
            Ok(Event::Call(of, arguments)) if operators.kind(&arguments.call).is_some() => {
                operators.next(&of.fixed, &arguments, profile);
            }
            Ok(Event::Call(step, arguments)) => {
                let space = symbols.space(step.fixed.pid, step.fixed.header.time_ns);
                let thread = self.threads.node(&step.fixed, space, symbols, profile);
                if ranges.kind(&arguments).is_some() {
                    ranges.told(&step.fixed, &arguments, thread, holes, profile);
                } else if tensors.is_own(&arguments) {
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
        if self.waits.ended(id, end_ns, &mut self.profile) {
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
        let frame = self.waits.without_stack(wake.stack, &mut self.profile);
        let node = self.profile.tree.child(thread, frame);
        waits::enter(&mut self.profile, Context { node, thread }, wake.began_ns, end_ns);
    }

    fn attribute_unresolved(&mut self) {
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
                    let Self {
                        profile,
                        correlate,
                        accounts,
                        waits,
                        config,
                        backward,
                        ranges,
                        operators,
                        tensors,
                        holes,
                        ..
                    } = self;
                    let mut entering = Entering {
                        config,
                        waits,
                        correlate,
                        backward,
                        ranges,
                        operators,
                        tensors,
                        holes,
                        accounts,
                        profile,
                    };
                    entering.enter(thread, &sample, Some(arguments), known);
                }
                return self.shelf.release(place);
            }
            Unresolved::Record(place) => return self.enter_record(place),
        };
        let Some((sample, call)) = sample_at(&self.shelf, place) else { return };
        let sample = match &call {
            Some(arguments) => self.operators.named_by_return(sample, arguments),
            None => sample,
        };
        let Self {
            resolve,
            profile,
            accounts,
            waits,
            config,
            correlate,
            backward,
            ranges,
            operators,
            tensors,
            holes,
            ..
        } = self;
        let head = if behind {
            head.within(backward.steps_of(&sample.fixed, holes), ranges.of(&sample.fixed, holes))
        } else {
            head
        };
        let hash = if behind { stacks::hash(&head, &sample) } else { hash };
        let path = resolve.path(&head, &sample, profile, accounts);
        let mut entering = Entering {
            config,
            waits,
            correlate,
            backward,
            ranges,
            operators,
            tensors,
            holes,
            accounts,
            profile,
        };
        let known = entering.context(&head, &sample, call.as_ref(), &path);
        entering.enter(head.thread(), &sample, call, known);
        self.stacks.put(hash, &head, sample.words, known);
        self.shelf.release(place);
    }
}
