//! The stages, in the order in which they run.
//!
//! Owns: the list, and static dispatch over it. Because: the order decides what a stage sees of the others (a range
//! is among the frames that autograd inspects), so it is stated once, here. Does not: know the state of a stage; to
//! add one, write its folder and add a line to the list below.

pub(crate) mod autograd;
pub(crate) mod gpu;
pub(crate) mod memory;
pub(crate) mod off_cpu;
pub(crate) mod openmp;
pub(crate) mod operators;
pub(crate) mod ranges;
pub(crate) mod xla;

use deepctx_common::call::{Call, SITES_MAX};
use deepctx_common::record::StackSample;
use deepctx_profile::ledger::Stage as LedgerStage;
use deepctx_profile::profile::Profile;

use crate::config::Config;
use crate::decode::{Arguments, Sample};
use crate::due_queue::DueQueue;
use crate::duty::{DutyCycle, DutyEdges};
use crate::input::{DutyWindow, SiteInfo};
use crate::loss_windows::LossWindows;
use crate::reason::PROCESS_CHANGE_LOST;
use crate::spans::SingleEvent;
use crate::stage::{CallAccounting, CallContext, CallRecord, CallStack, Placement, ProcessChange, Stage};
use crate::trace_window::TraceLevel;

/// Changes of processes that may be ahead of the samples.
const CHANGES_MAX: usize = 1 << 16;

/// Defines the set of stages, their scopes and notes, and the calls of all of them, from one list.
macro_rules! stages {
    ($($(#[$doc:meta])* $name:ident: $id:ident = $stage:ty,)+) => {
        /// A stage by its place in the list.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum StageId { $($(#[$doc])* $id,)+ }

        /// The scopes of a thread, one per stage: part of the key of a cached stack.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub(crate) struct Scopes { $($name: <$stage as Stage>::Scope,)+ }

        /// The stages' conclusions from a stack: part of its cached result.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub(crate) struct Notes { $($name: <$stage as Stage>::Note,)+ }

        /// The stages.
        #[derive(Debug)]
        pub(crate) struct StageSet { $(pub(crate) $name: $stage,)+ }

        impl StageSet {
            fn new(config: &Config) -> Self {
                Self { $($name: <$stage as Stage>::new(config),)+ }
            }

            /// Gives each probe to the first stage that claims it, and reports which that was.
            fn learn(&mut self, mut sites: Vec<SiteInfo>, mut owner: impl FnMut(&SiteInfo, StageId)) {
                $(
                    let own: Vec<SiteInfo> = sites.extract_if(.., |site| self.$name.claims(site)).collect();
                    if !own.is_empty() {
                        own.iter().for_each(|site| owner(site, StageId::$id));
                        self.$name.learn(own);
                    }
                )+
            }

            fn count_sites(&mut self, counts: &[u64]) {
                $(if let Some(sites) = self.$name.sites() { sites.counted(counts) })+
            }

            fn free_sites(&mut self, numbers: &[u32]) {
                $(if let Some(sites) = self.$name.sites() { sites.freed(numbers) })+
            }

            #[inline]
            fn needs_stack(&self, owner: StageId, call: &Arguments<'_>) -> bool {
                match owner { $(StageId::$id => self.$name.needs_stack(call),)+ }
            }

            #[inline]
            fn stack_of_call<'a>(
                &self,
                owner: StageId,
                sample: Sample<'a>,
                call: &Arguments<'a>,
            ) -> Sample<'a> {
                match owner { $(StageId::$id => self.$name.stack_of_call(sample, call),)+ }
            }

            #[inline]
            fn follows_calls(&self) -> bool { false $(|| self.$name.follows_calls())+ }

            #[inline]
            fn scopes(&mut self, thread: &StackSample, loss: &LossWindows) -> Scopes {
                Scopes { $($name: self.$name.scope(thread, loss),)+ }
            }

            fn place(
                &mut self,
                scopes: Scopes,
                call: Option<(StageId, &Arguments<'_>)>,
                placement: &mut Placement<'_>,
                profile: &mut Profile,
            ) -> Notes {
                if let Some((owner, arguments)) = call {
                    match owner {
                        $(StageId::$id => placement.trim(|frames| {
                            self.$name.caller(arguments, frames, profile)
                        }),)+
                    }
                }
                let own = |id: StageId| call.filter(|(owner, _)| *owner == id).map(|(_, arguments)| arguments);
                Notes { $($name: self.$name.place(scopes.$name, own(StageId::$id), placement, profile),)+ }
            }

            #[inline]
            fn on_stack(&mut self, thread: &StackSample, notes: &Notes) {
                $(self.$name.on_stack(thread, notes.$name);)+
            }

            fn on_call(
                &mut self,
                owner: StageId,
                call: &CallRecord<'_>,
                stack: Option<CallStack<Notes>>,
                context: &mut CallContext<'_>,
            ) {
                match owner {
                    $(StageId::$id => {
                        let stack = stack.map(|stack| CallStack {
                            node: stack.node,
                            note: stack.note.$name,
                            has_frames: stack.has_frames,
                        });
                        self.$name.on_call(call, stack.as_ref(), context);
                    })+
                }
            }

            fn on_process(&mut self, change: ProcessChange, profile: &mut Profile) {
                $(self.$name.on_process(change, profile);)+
            }

            fn on_duty_edge(&mut self, time_ns: u64, profile: &mut Profile) {
                $(self.$name.on_duty_edge(time_ns, profile);)+
            }

            #[inline]
            fn is_due(&self, now_ns: u64) -> bool { false $(|| self.$name.is_due(now_ns))+ }

            fn use_due(&mut self, now_ns: u64, profile: &mut Profile) {
                $(self.$name.use_due(now_ns, profile);)+
            }

            fn advance(&mut self, until_ns: u64, profile: &mut Profile) {
                $(self.$name.advance(until_ns, profile);)+
            }

            fn finish(&mut self, now_ns: u64, profile: &mut Profile) {
                $(self.$name.finish(now_ns, profile);)+
            }

            fn keep_events(&mut self, level: TraceLevel) {
                $(self.$name.keep_events(level);)+
            }

            fn take_events(&mut self, events: &mut Vec<SingleEvent>) {
                $(self.$name.take_events(events);)+
            }

            fn account(&self, profile: &mut Profile) {
                $(
                    let account = profile.ledger.stage_mut(LedgerStage::Attribute);
                    for gap in self.$name.gaps() {
                        account.gaps.add(gap.reason, gap.count);
                    }
                    self.$name.write_to(profile);
                )+
            }
        }

        impl StageId {
            /// How calls of this stage with a stack are accounted.
            pub(crate) fn accounted_as(self) -> CallAccounting {
                match self { $(Self::$id => <$stage as Stage>::ACCOUNTED_AS,)+ }
            }

            /// Whether the thread is looked up for calls without a stack.
            pub(crate) fn stackless_calls_need_thread(self) -> bool {
                match self { $(Self::$id => <$stage as Stage>::STACKLESS_CALLS_NEED_THREAD,)+ }
            }
        }
    };
}

stages! {
    /// Time off the CPU, by wait reason.
    off_cpu: OffCpu = off_cpu::OffCpu,
    /// Named ranges of the program, and the training steps derived from them.
    ranges: Ranges = ranges::Ranges,
    /// Thunks of XLA's CPU back end.
    xla: Xla = xla::XlaThunks,
    /// The backward pass, below the operators whose gradients it computes.
    autograd: Autograd = autograd::Autograd,
    /// Parallel regions of OpenMP, below their callers.
    openmp: OpenMp = openmp::OpenMp,
    /// Operators of PyTorch, counted as they begin.
    operators: Operators = operators::Operators,
    /// Memory of tensors.
    memory: Memory = memory::TensorMemory,
    /// Calls of accelerator libraries, and the device work that they caused. It takes all probes that no other stage
    /// claims.
    gpu: Gpu = gpu::Gpu,
}

/// The stages, the index of their probes, and when records may be missing.
#[derive(Debug)]
pub(crate) struct Stages {
    pub(crate) set: StageSet,
    /// The stage of each probe, by number of the probe.
    owners: Vec<Option<StageId>>,
    pub(crate) loss: LossWindows,
    duty: DutyCycle,
    /// Changes of processes that the samples have not reached.
    process_changes: DueQueue<ProcessChange, CHANGES_MAX>,
    /// Edges of duty windows that the samples have not reached.
    duty_edges: DutyEdges,
    /// Single events on their way to the recorder; empty between two calls.
    events: Vec<SingleEvent>,
}

impl Stages {
    /// New stages.
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            set: StageSet::new(config),
            owners: Vec::new(),
            loss: LossWindows::default(),
            duty: DutyCycle::default(),
            process_changes: DueQueue::default(),
            duty_edges: DutyEdges::default(),
            events: Vec::new(),
        }
    }

    /// Adds probes. Numbers beyond the kernel programs' table have no stage.
    pub(crate) fn learn(&mut self, sites: Vec<SiteInfo>) {
        let Self { set, owners, .. } = self;
        let sites = sites.into_iter().filter(|site| site.site < SITES_MAX).collect();
        set.learn(sites, |site, owner| {
            let at = site.site as usize;
            if at >= owners.len() {
                owners.resize(at + 1, None);
            }
            owners[at] = Some(owner);
        });
    }

    /// The stage of a call; calls of unknown probes count as those of accelerators.
    #[inline]
    pub(crate) fn owner(&self, call: &Call) -> StageId {
        self.owners.get(call.site as usize).copied().flatten().unwrap_or(StageId::Gpu)
    }

    /// Sets how often the kernel programs counted the calls of each probe.
    pub(crate) fn count_sites(&mut self, counts: &[u64]) {
        self.set.count_sites(counts);
    }

    /// These numbers of probes are free now.
    pub(crate) fn free_sites(&mut self, numbers: &[u32]) {
        self.set.free_sites(numbers);
        for number in numbers {
            if let Some(owner) = self.owners.get_mut(*number as usize) {
                *owner = None;
            }
        }
    }

    /// Whether a call can be used only together with its stack.
    #[inline]
    pub(crate) fn needs_stack(&self, call: &Arguments<'_>) -> bool {
        self.set.needs_stack(self.owner(&call.call), call)
    }

    /// The stack to use for a call.
    #[inline]
    pub(crate) fn stack_of_call<'a>(&self, sample: Sample<'a>, call: &Arguments<'a>) -> Sample<'a> {
        self.set.stack_of_call(self.owner(&call.call), sample, call)
    }

    /// Whether the meaning of a stack depends on the calls before it.
    #[inline]
    pub(crate) fn follows_calls(&self) -> bool {
        self.set.follows_calls()
    }

    /// The scopes that a thread is in at the time of a record.
    #[inline]
    pub(crate) fn scopes(&mut self, thread: &StackSample) -> Scopes {
        self.set.scopes(thread, &self.loss)
    }

    /// Places a stack in the tree.
    pub(crate) fn place(
        &mut self,
        scopes: Scopes,
        call: Option<&Arguments<'_>>,
        placement: &mut Placement<'_>,
        profile: &mut Profile,
    ) -> Notes {
        let call = call.map(|arguments| (self.owner(&arguments.call), arguments));
        self.set.place(scopes, call, placement, profile)
    }

    /// A stack was recorded.
    #[inline]
    pub(crate) fn on_stack(&mut self, thread: &StackSample, notes: &Notes) {
        self.set.on_stack(thread, notes);
    }

    /// A call of a probe of `owner`.
    pub(crate) fn on_call(
        &mut self,
        owner: StageId,
        call: &CallRecord<'_>,
        stack: Option<CallStack<Notes>>,
        profile: &mut Profile,
        facts: &mut dyn crate::symbols::ProcessFacts,
    ) {
        let mut context = CallContext { profile, loss: &self.loss, facts };
        self.set.on_call(owner, call, stack, &mut context);
        self.record_spans();
    }

    /// A process changes at a time that the samples have not reached.
    pub(crate) fn on_process(&mut self, change: ProcessChange) {
        self.process_changes.add(change.time_ns, change);
    }

    /// Whether any input that the stages received ahead of its time is due. Unresolved records must be attributed
    /// first.
    #[inline]
    pub(crate) fn change_is_due(&self, now_ns: u64) -> bool {
        self.process_changes.is_due(now_ns) || self.duty_edges.is_due(now_ns) || self.set.is_due(now_ns)
    }

    /// Passes the due changes to the stages.
    pub(crate) fn apply_changes(&mut self, now_ns: u64, profile: &mut Profile) {
        while let Some((_, change)) = self.process_changes.reached(now_ns) {
            self.set.on_process(change, profile);
        }
        while let Some(time_ns) = self.duty_edges.reached(now_ns) {
            self.set.on_duty_edge(time_ns, profile);
        }
        self.set.use_due(now_ns, profile);
        self.record_spans();
    }

    /// A duty window opens or closes at a time that the samples have not reached.
    pub(crate) fn on_duty_window(&mut self, window: DutyWindow) {
        self.loss.duty_window(&window);
        self.duty_edges.take(&window);
        self.duty.take(window);
    }

    /// The samples have reached a time.
    pub(crate) fn advance(&mut self, until_ns: u64, profile: &mut Profile) {
        self.set.advance(until_ns, profile);
        if let Some(recorder) = self.set.gpu.recorder() {
            recorder.advance(until_ns);
        }
    }

    /// No record will follow.
    pub(crate) fn finish(&mut self, now_ns: u64, profile: &mut Profile) {
        self.apply_changes(u64::MAX, profile);
        self.set.finish(now_ns, profile);
        self.record_spans();
        if let Some(recorder) = self.set.gpu.recorder() {
            recorder.advance(u64::MAX);
        }
    }

    /// Records single events from now on.
    pub(crate) fn record(&mut self, recorder: gpu::Recorder) {
        self.set.keep_events(recorder.trace_level());
        self.set.gpu.record(recorder);
    }

    /// Hands the stages' spans and counter values to the recorder.
    #[inline]
    pub(crate) fn record_spans(&mut self) {
        if self.set.gpu.recorder().is_none() {
            return;
        }
        self.set.take_events(&mut self.events);
        if let Some(recorder) = self.set.gpu.recorder() {
            self.events.drain(..).for_each(|event| recorder.event(event));
        }
    }

    /// Writes all gaps and their reasons to the profile. The records have reached `now_ns`.
    pub(crate) fn account(&self, profile: &mut Profile, now_ns: u64) {
        let attribute = profile.ledger.stage_mut(LedgerStage::Attribute);
        attribute.gaps.add(PROCESS_CHANGE_LOST, self.process_changes.dropped());
        self.duty.write_to(attribute, now_ns);
        self.set.account(profile);
    }
}
