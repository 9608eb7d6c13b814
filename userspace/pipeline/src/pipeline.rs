//! Pipeline: wires the processing stages together.
//!
//! Owns: the records that wait for their time, and the order in which input reaches the stages. Because: live
//! capture, replay and tests must run exactly the same code. Does not: read clocks or know names: the caller passes
//! in time and symbols.
//!
//! Records that change processes pass [`Config::mapping_lookahead_ns`] earlier than samples, because a library that
//! was mapped at one time is only found a little later, when the process's mappings are read.

use deepctx_common::end::PythonEnd;
use deepctx_common::memory::MemoryUse;
use deepctx_common::reason::Reason;
use deepctx_common::record::ProcessEvent;
use deepctx_profile::owner::Owner;
use deepctx_profile::profile::{Meta, Profile};
use deepctx_profile::trace::{RecordedAccount, RecordedBatch};
use deepctx_profile::tree::NodeId;

use crate::account::Accounts;
use crate::arena::{RecordArena, RecordRef};
use crate::config::Config;
use crate::decode::{Event, Sample, Sequences, records};
use crate::input::{Input, SpaceUpdate, UnnamedKernel, UnreadCubin};
use crate::order::{Key, LateRecord, Order};
use crate::owners::Owners;
use crate::reason::CONTEXT_SHARED;
use crate::resolve::ResolveStage;
use crate::seen_python::SeenPythonObjects;
use crate::stack_cache::{CachedStack, StackCache, StackKey};
use crate::stage::{ProcessChange, ProcessChangeKind};
use crate::stages::Stages;
use crate::stages::gpu::Recorder;
use crate::stages::ranges::EndedStep;
use crate::symbols::Symbols;
use crate::threads::Threads;
use crate::trace_window::AwaitedBegin;

/// Samples that are resolved together: enough for one query per module, few enough to bound memory.
const TOGETHER: usize = 4096;
/// Unknown addresses that are resolved together.
const ASKED_TOGETHER: usize = 1 << 16;

/// Everything between the input and the profile.
#[derive(Debug)]
pub struct Pipeline<S: Symbols> {
    pub(crate) config: Config,
    pub(crate) symbols: S,
    pub(crate) arena: RecordArena,
    sequences: Sequences,
    changes: Order<Change<S::Space>>,
    samples: Order<RecordRef>,
    pub(crate) threads: Threads,
    pub(crate) owners: Owners,
    pub(crate) stacks: StackCache,
    pub(crate) resolve: ResolveStage,
    python_seen: SeenPythonObjects,
    /// Some sample had coroutines.
    pub(crate) coroutines_seen: bool,
    pub(crate) unresolved: Vec<PendingNames>,
    /// A call is among the unresolved records: everything that belongs to calls must wait with it.
    pub(crate) calls_wait: bool,
    pub(crate) stages: Stages,
    pub(crate) accounts: Accounts,
    pub(crate) profile: Profile,
    newest_ns: u64,
}

/// What changes the set of processes or one of them.
#[derive(Debug)]
enum Change<M> {
    Fork(ProcessEvent),
    Exec(ProcessEvent),
    Exit(ProcessEvent),
    Space(SpaceUpdate<M>),
}

/// A record that waits for the names of a stack.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PendingNames {
    /// A sample or call with a new stack, or one `behind` a call with a new stack: its scopes are known once that call
    /// is attributed.
    Stack { record: RecordRef, key: StackKey, hash: u64, behind: bool },
    /// A call with a cached stack, behind one whose stack is new.
    Call { record: RecordRef, thread: NodeId, stack: CachedStack },
    /// A record without a stack, behind a call whose stack is new.
    Record(RecordRef),
}

impl<S: Symbols> Pipeline<S> {
    /// An empty pipeline.
    pub fn new(symbols: S, meta: Meta, config: Config) -> Self {
        let limits = config.limits;
        let mut stages = Stages::new(&config);
        if let Some(window) = config.trace {
            let started_ns = meta.started_monotonic.as_nanos();
            stages.record(Recorder::new(started_ns, window, config.trace_level));
        }
        Self {
            symbols,
            arena: RecordArena::default(),
            sequences: Sequences::default(),
            changes: Order::new(config.waiting_records),
            samples: Order::new(config.waiting_records),
            threads: Threads::default(),
            owners: Owners::default(),
            stacks: StackCache::new(config.stack_bytes),
            resolve: ResolveStage::default(),
            python_seen: SeenPythonObjects::default(),
            coroutines_seen: false,
            unresolved: Vec::new(),
            calls_wait: false,
            stages,
            accounts: Accounts::default(),
            profile: Profile::new(meta, limits),
            config,
            newest_ns: 0,
        }
    }

    /// Adds input. Nothing reaches the profile before [`Pipeline::advance`].
    pub fn feed(&mut self, input: Input<S::Space>) {
        match input {
            Input::Records(bytes) => self.feed_records(bytes),
            Input::Space(update) => self.feed_change(update.time_ns, u16::MAX, 0, Change::Space(update)),
            Input::Refused(refusals) => self.symbols.refused(refusals),
            Input::Counters(counters) => self.accounts.kernel(counters),
            Input::Sites(sites) => self.stages.learn(sites),
            Input::SitesFreed(numbers) => self.stages.free_sites(&numbers),
            Input::SiteCounts(counts) => self.stages.count_sites(&counts),
            Input::CallsEnd(time_ns) => self.stages.set.gpu.calls_end(time_ns),
            Input::Recovered(kernels) => self.stages.set.gpu.recovered(kernels),
            Input::Lines(lines) => self.stages.set.gpu.lines_read(lines, &mut self.profile),
            Input::DutyWindow(window) => self.stages.on_duty_window(window),
            Input::System(sample) => {
                let mut recorder = self.stages.set.gpu.recorder();
                let record = |value| recorder.as_mut().map_or((), |recorder| recorder.machine(value));
                super::system::add(&sample, &mut self.profile, record);
            }
        }
        while self.changes.is_over_capacity() {
            self.change(0);
        }
        if self.samples.is_over_capacity() || self.arena.bytes() > self.config.waiting_bytes {
            self.evict_oldest();
        }
    }

    /// Sets the gaps of the kernel programs' tables, totals so far: reasons why stacks may be incomplete.
    pub fn tables_lack(&mut self, mut gaps: Vec<(&'static Reason, u64)>) {
        let shared = self.threads.shared();
        gaps.extend((shared > 0).then_some((CONTEXT_SHARED, shared)));
        self.accounts.tables(gaps);
    }

    /// Uses everything up to a time, `CLOCK_MONOTONIC` nanoseconds: no older record is expected any more.
    pub fn advance(&mut self, watermark_ns: u64) {
        while self.change(watermark_ns) {}
        let until_ns = watermark_ns.saturating_sub(self.config.mapping_lookahead_ns);
        self.attribute_until(until_ns);
        self.profile.grow_for(Owner::CAPTURE);
        self.stages.advance(until_ns, &mut self.profile);
    }

    /// Handles launched without a name since the last call; names found for them come back as [`Input::Recovered`].
    pub fn unnamed_kernels(&mut self) -> Vec<UnnamedKernel> {
        self.stages.set.gpu.unnamed()
    }

    /// Device code whose lines are wanted since the last call; lines read come back as [`Input::Lines`].
    pub fn unread_cubins(&mut self) -> Vec<UnreadCubin> {
        self.stages.set.gpu.unread_cubins()
    }

    /// Uses everything that was fed: there will be no more.
    pub fn finish(&mut self) {
        while self.change(u64::MAX) {}
        self.attribute_until(u64::MAX);
        self.accounts.finish();
        self.stages.finish(self.newest_ns, &mut self.profile);
    }

    /// The profile so far, its ledger up to date.
    pub fn profile(&mut self) -> &mut Profile {
        self.accounts.missing(self.sequences.missing());
        self.accounts.waits(self.stages.set.off_cpu.wait_gaps());
        self.accounts.write_to(&mut self.profile.ledger);
        self.stages.account(&mut self.profile, self.newest_ns);
        &mut self.profile
    }

    /// Finishes with the profile.
    pub fn into_profile(mut self) -> Profile {
        self.finish();
        self.profile();
        self.profile
    }

    /// The source of names.
    pub fn symbols(&mut self) -> &mut S {
        &mut self.symbols
    }

    /// Single events recorded since the last call; `None` if there are none.
    pub fn recorded(&mut self) -> Option<RecordedBatch> {
        self.stages.set.gpu.recorder()?.take()
    }

    /// Counts of single events so far; `None` if they are not recorded.
    pub fn recorded_account(&mut self) -> Option<RecordedAccount> {
        self.stages.set.gpu.recorder().map(|recorder| recorder.account())
    }

    /// What the window of single events waits for, while none are recorded.
    pub fn trace_awaits(&mut self) -> Option<AwaitedBegin> {
        self.stages.set.gpu.recorder().and_then(|recorder| recorder.awaited())
    }

    /// Requests single events from a time on, `CLOCK_MONOTONIC` nanoseconds. False if their window has ended, or the
    /// pipeline was not configured for requests.
    pub fn request_trace(&mut self, at_ns: u64) -> bool {
        self.stages.set.gpu.recorder().is_some_and(|recorder| recorder.request_window(at_ns))
    }

    /// Launches of kernels and graphs so far.
    pub fn launches(&self) -> u64 {
        self.stages.set.gpu.launches()
    }

    /// The counters so far.
    pub fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    /// Time of the newest record, `CLOCK_MONOTONIC` nanoseconds; 0 before the first.
    pub fn newest_ns(&self) -> u64 {
        self.newest_ns
    }

    /// The training steps that ended since the last call, if [`Config::hands_out_steps`] is set.
    pub fn ended_steps(&mut self) -> Vec<EndedStep> {
        self.stages.set.ranges.ended_steps()
    }

    /// Names of ranges that end a training step and that no range began with.
    pub fn unseen_markers(&self) -> impl Iterator<Item = &str> {
        self.stages.set.ranges.unseen()
    }

    /// Bytes of records that wait for their turn.
    pub fn waiting_bytes(&self) -> usize {
        self.arena.bytes()
    }

    /// Memory of the profile and of the pipeline's caches, without that of the stages.
    pub fn memory(&self) -> Vec<MemoryUse> {
        let Self {
            arena, changes, samples, threads, owners, stacks, resolve, python_seen, unresolved, ..
        } = self;
        let unresolved = unresolved.capacity() * size_of::<PendingNames>();
        let waiting = arena.held_bytes() + changes.held_bytes() + samples.held_bytes() + unresolved;
        let mut held = self.profile.memory().to_vec();
        held.extend([
            MemoryUse::new("stacks seen before", stacks.held_bytes()),
            MemoryUse::new("addresses seen before", resolve.held_bytes() + python_seen.held_bytes()),
            MemoryUse::new("threads seen before", threads.held_bytes() + owners.held_bytes()),
            MemoryUse::new("records that wait", waiting),
        ]);
        held
    }

    /// Hits and misses of the stack cache.
    pub fn stack_hits_and_misses(&self) -> (u64, u64) {
        self.stacks.hits_and_misses()
    }

    fn feed_records(&mut self, bytes: Vec<u8>) {
        let batch = self.arena.put(bytes);
        // The bytes are lent out so that references to them can be added.
        let bytes = self.arena.lend(batch);
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
            self.sequences.record(header.cpu, header.sequence);
            self.stages.loss.record(header.cpu, header.sequence, header.time_ns);
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
                        // By the sample's turn, nobody may know anymore whose process it was.
                        self.owners.of(sample.fixed.pid, &mut self.symbols);
                        self.note_python(&sample);
                    }
                    if let Event::Message(message, bytes) = event {
                        self.stages.set.gpu.note_cubin(&message, bytes);
                    }
                    let record = self.arena.refer(batch, slot.offset, slot.size);
                    let key = Key { time_ns: header.time_ns, cpu: header.cpu, sequence: header.sequence };
                    if let Err(LateRecord(record)) = self.samples.push(key, record) {
                        self.arena.release(record);
                        self.accounts.late();
                        self.stages.loss.record_unused(header.time_ns);
                    }
                    continue;
                }
                Event::Fork(event) => Change::Fork(event),
                // It changes nothing: the description of the mapping follows as a space. There may be 100 000 a second,
                // too many to order.
                Event::Map(_) => {
                    self.accounts.process();
                    continue;
                }
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
        self.arena.put_back(batch, bytes);
        self.arena.seal(batch);
    }

    /// Reports Python functions not seen before, so that they are read while they exist.
    fn note_python(&mut self, sample: &Sample<'_>) {
        let new = self.python_seen.new_in(sample);
        let pid = sample.fixed.pid;
        if !new.functions.is_empty() {
            self.symbols.python_seen(pid, new.functions);
        }
        if !new.coroutines.is_empty() {
            self.coroutines_seen = true;
            self.symbols.coroutines_seen(pid, sample.fixed.header.time_ns, new.coroutines);
        }
        if !new.modules.is_empty() {
            let whole = sample.fixed.python_end == PythonEnd::Complete as u8;
            self.symbols.modules_seen(pid, sample.fixed.header.time_ns, new.modules, whole);
        }
    }

    fn feed_change(&mut self, time_ns: u64, cpu: u16, sequence: u64, change: Change<S::Space>) {
        // Not at its end: its last samples still wait for their turn.
        if let Change::Fork(event) | Change::Exec(event) = &change {
            self.owners.forget(event.pid);
        }
        let key = Key { time_ns, cpu, sequence };
        match self.changes.push(key, change) {
            Ok(()) => {}
            // Mappings that were read late are still the best available.
            Err(LateRecord(Change::Space(update))) => self.symbols.space_changed(update),
            Err(LateRecord(_)) => self.accounts.late(),
        }
    }

    /// Passes on the next change of processes; false when none is due.
    fn change(&mut self, watermark_ns: u64) -> bool {
        let Some((_, change)) = self.changes.pop(watermark_ns) else { return false };
        if !matches!(change, Change::Space(_)) {
            self.accounts.process();
        }
        match change {
            Change::Fork(event) => {
                self.threads.begins(event.pid);
                self.process_changes(&event, ProcessChangeKind::Begins);
                self.symbols.forked(&event);
            }
            Change::Exec(event) => {
                self.process_changes(&event, ProcessChangeKind::Begins);
                self.symbols.replaced(&event);
            }
            Change::Exit(event) => {
                self.threads.ends(event.pid, event.header.time_ns);
                self.process_changes(&event, ProcessChangeKind::Ends);
                self.symbols.on_exit(&event);
            }
            Change::Space(update) => self.symbols.space_changed(update),
        }
        true
    }

    /// Uses the oldest half of the waiting records, although newer records could still belong before them.
    fn evict_oldest(&mut self) {
        for _ in 0..self.samples.len() / 2 {
            if let Some((key, record)) = self.samples.pop(u64::MAX) {
                self.accounts.early();
                self.processes_changed(key.time_ns);
                self.dispatch(record);
            }
        }
        self.attribute_unresolved();
    }

    fn attribute_until(&mut self, watermark_ns: u64) {
        while let Some((key, record)) = self.samples.pop(watermark_ns) {
            self.processes_changed(key.time_ns);
            self.dispatch(record);
            if self.unresolved.len() >= TOGETHER || self.resolve.missing() >= ASKED_TOGETHER {
                self.attribute_unresolved();
                self.symbols.retire(key.time_ns);
            }
        }
        self.attribute_unresolved();
        self.processes_changed(watermark_ns);
        self.symbols.retire(watermark_ns);
        self.threads.retire(watermark_ns);
    }

    /// The samples have reached this time: applies the changes of processes up to it.
    #[inline]
    fn processes_changed(&mut self, now_ns: u64) {
        if self.stages.change_is_due(now_ns) {
            // Earlier calls must be attributed first.
            self.attribute_unresolved();
            self.stages.apply_changes(now_ns, &mut self.profile);
        }
    }

    fn process_changes(&mut self, event: &ProcessEvent, kind: ProcessChangeKind) {
        self.stages.on_process(ProcessChange { pid: event.pid, time_ns: event.header.time_ns, kind });
    }
}
