//! Gpu: calls of accelerator libraries, and the device work that they cause → figures in the tree.
//!
//! Owns: the state of each process's handles, streams, graphs and memory; calls that wait for their return, and
//! launches that wait for their activities. Because: a kernel runs long after its launch, under a number that only
//! the calls around it explain. Does not: invent: device time is measured ([`activities`]), or bounded and labeled as
//! a bound, and work that could not be joined has a reason in the ledger.
//!
//! ```text
//!  CALL ──▶ launch site → [API] → [kernel]   kernels, copy-bytes, …    at once
//!    │                               ▲
//!    ├── RETURN ──▶ names, handles, sync-time, allocations
//!    └── CORRELATION ──▶ id ─────────┘ gpu-time, launch-delay           when the activity with this id comes
//! ```

mod activities;
mod built_graphs;
mod calls;
mod clock;
mod communicators;
mod compiled;
mod counts;
mod devices;
mod event_window;
mod foreign_collection;
mod graph_order;
mod graphs;
mod kernels;
mod memory;
mod names;
mod origin_requests;
mod origins;
mod process;
mod processes;
mod recorder;
mod samples;
mod sites;
mod streams;
mod transfer;
mod window;
mod work;

use deepctx_profile::order::SortRows as _;
use std::collections::VecDeque;

use deepctx_profile::frame::Frame;
use deepctx_profile::intern::FrameId;
use deepctx_profile::ledger::Stage as LedgerStage;
use deepctx_profile::profile::Profile;
use deepctx_profile::tree::NodeId;
use rustc_hash::FxHashMap;

use crate::config::Config;
use crate::decode::Arguments;
use crate::followed::{Admission, SILENT_NS};
use crate::input::{CubinLines, RecoveredKernel, SiteInfo, UnnamedKernel, UnreadCubin};
use crate::stage::{
    CallAccounting, CallContext, CallRecord, CallStack, ProcessChange, ProcessChangeKind, SiteTable, Stage,
};
use crate::symbols::ProcessFacts;
use calls::{PendingCall, ReturnAction};
use counts::{Counts, Gap};
use names::NamedKernel;
use origins::Question;
use processes::{ENDED_MAX, Processes};
pub(crate) use recorder::Recorder;
use sites::Sites;
use window::Window;
use work::Work;

/// Calls that may wait for their return: far more than there are threads.
const ASKED_MAX: usize = 1 << 16;
/// How long a launch waits for its activities: longer than work is queued, and than collectors hold back buffers; and
/// no longer than its process is followed without a record.
const EXPIRY_NS: u64 = SILENT_NS;

/// The stage's state.
#[derive(Debug)]
pub(crate) struct Gpu {
    sites: Sites,
    processes: Processes,
    /// Calls that wait for their return, by number.
    pending: Window<u64, PendingCall>,
    /// Launches that wait for activities, by number.
    work: Window<u64, Work>,
    /// Calls by process and correlation id.
    ids: FxHashMap<(u32, u32), u64>,
    /// Kernels found in process memory, in the order in which they were read, that are still ahead of the samples.
    found: VecDeque<RecoveredKernel>,
    /// Device code whose lines are to be read.
    unread: Vec<UnreadCubin>,
    /// Lines of code that is still ahead of the samples, and a time that these had reached when they were here.
    lines_ahead: Vec<(Option<u64>, CubinLines)>,
    /// From when on calls are no longer watched, nanoseconds.
    calls_end_ns: Option<u64>,
    counts: Counts,
    /// Records single events if a trace was requested.
    recorder: Option<Box<Recorder>>,
}

/// A call with its context.
#[derive(Debug)]
pub(crate) struct TimedCall<'a> {
    /// Its number.
    pub(crate) number: u64,
    /// When: `CLOCK_MONOTONIC`, nanoseconds.
    pub(crate) time_ns: u64,
    /// Process.
    pub(crate) pid: u32,
    /// Thread.
    pub(crate) tid: u32,
    /// The node of the thread.
    pub(crate) thread: NodeId,
    /// The node of the caller; that of the thread if there is no stack.
    pub(crate) node: NodeId,
    /// Whether there is a stack.
    pub(crate) has_stack: bool,
    /// The arguments.
    pub(crate) arguments: Arguments<'a>,
}

impl Gpu {
    /// Records single events from now on.
    pub(crate) fn record(&mut self, recorder: Recorder) {
        self.recorder = Some(Box::new(recorder));
    }

    /// The recorder of single events; `None` if no trace was requested.
    pub(crate) fn recorder(&mut self) -> Option<&mut Recorder> {
        self.recorder.as_deref_mut()
    }

    /// Calls are no longer watched from this time on: work that begins later on devices may belong to unseen calls.
    pub(crate) fn calls_end(&mut self, time_ns: u64) {
        self.calls_end_ns = Some(time_ns);
    }

    /// Adds names of kernels that no call reported. They are used from the time at which they were read: an earlier
    /// launch may have been another kernel.
    pub(crate) fn recovered(&mut self, kernels: Vec<RecoveredKernel>) {
        for kernel in kernels {
            if self.found.len() >= ASKED_MAX {
                self.counts.gap(Gap::StateFull, 1);
            } else {
                self.found.push_back(kernel);
            }
        }
    }

    /// Handles of attributed launches that no call named, to be looked up.
    pub(crate) fn unnamed(&mut self) -> Vec<UnnamedKernel> {
        let mut unnamed = Vec::new();
        for (pid, process) in self.processes.followed.iter_mut() {
            let wanted = process.names.wanted().into_iter();
            unnamed.extend(wanted.map(|(handle, asked_ns)| UnnamedKernel { pid, handle, asked_ns }));
        }
        unnamed
    }

    /// The samples have reached this time: uses what was found until then. Names reported by calls are surer, and stay.
    fn use_found(&mut self, now_ns: u64, profile: &mut Profile) {
        while let Some(kernel) = self.found.pop_front_if(|kernel| kernel.read_ns <= now_ns) {
            if let Some(process) = self.processes.get_mut(kernel.pid)
                && process.names.is_wanted(kernel.handle, kernel.asked_ns)
            {
                let frame = kernels::recovered_kernel(&kernel.name, profile);
                let named = NamedKernel { frame, module: 0, recovered: true, code: Some(kernel.code) };
                if !process.names.name(kernel.handle, named) {
                    self.counts.gap(Gap::StateFull, 1);
                }
            }
        }
    }

    /// A record of a process is about to be used: the process is followed from now on, if there is room.
    pub(crate) fn admit(
        &mut self,
        pid: u32,
        time_ns: u64,
        facts: &mut dyn ProcessFacts,
        profile: &mut Profile,
    ) {
        let user = match self.processes.followed.admit(pid, time_ns, facts) {
            Admission::Decided | Admission::Refused => return,
            Admission::Room { user } => user,
            Admission::After { user, silent } => {
                self.counts.gap(Gap::StateFull, 1);
                self.process_ends(silent, time_ns, profile);
                user
            }
        };
        self.processes.follow(pid, user, time_ns);
    }

    fn process_ends(&mut self, pid: u32, time_ns: u64, profile: &mut Profile) {
        if !self.processes.followed.contains(pid) {
            return;
        }
        self.settle(pid, u64::MAX, profile);
        if let Some(recorder) = &mut self.recorder {
            recorder.finish(Some(pid));
        }
        for work in self.work.take_if(|work| work.pid == pid) {
            self.expire_work(work, Gap::LaunchWithoutActivity, profile);
        }
        for pending in self.pending.take_if(|pending| pending.pid == pid) {
            self.never_returned(pending, time_ns, profile);
        }
        if let Some(mut process) = self.processes.followed.remove(pid) {
            process.samples.expire(u64::MAX, &mut self.counts, profile);
            let info = process.finished(&mut self.counts);
            if info.is_used() {
                let without_room = self.processes.ended.push(info, ENDED_MAX);
                self.counts.gap(Gap::StateFull, without_room);
            }
        }
    }

    /// A call that will not return.
    fn never_returned(&mut self, pending: PendingCall, now_ns: u64, profile: &mut Profile) {
        match pending.action {
            ReturnAction::Sync { node, .. } => {
                calls::blocked(node, pending.entered_ns, now_ns, profile);
                self.counts.gap(Gap::NotReturned, 1);
            }
            _ => self.counts.gap(Gap::ReturnMissing, 1),
        }
    }

    /// Launches of kernels and graphs so far.
    pub(crate) fn launches(&self) -> u64 {
        let live = self.processes.followed.values().map(|process| &process.info);
        live.chain(self.processes.ended.iter())
            .map(|info| info.launches + info.captured + info.graph_launches)
            .sum()
    }
}

impl Stage for Gpu {
    type Scope = ();
    type Note = ();

    const ACCOUNTED_AS: CallAccounting = CallAccounting::Call;

    fn new(config: &Config) -> Self {
        Self {
            sites: Sites::default(),
            processes: Processes::default(),
            pending: Window::new(ASKED_MAX),
            work: Window::new(config.launches),
            ids: FxHashMap::default(),
            found: VecDeque::new(),
            unread: Vec::new(),
            lines_ahead: Vec::new(),
            calls_end_ns: None,
            counts: Counts::default(),
            recorder: None,
        }
    }

    /// It takes every probe that no stage before it claims: functions listed by the user are calls, too.
    fn claims(&self, _site: &SiteInfo) -> bool {
        true
    }

    fn learn(&mut self, sites: Vec<SiteInfo>) {
        self.sites.learn(sites);
    }

    fn sites(&mut self) -> Option<&mut dyn SiteTable> {
        Some(&mut self.sites)
    }

    /// The frames of a call's stack, root first, up to its caller: without the kernel frames (they run our own program)
    /// and without the function itself, which gets a frame as a call.
    fn caller<'a>(
        &mut self,
        call: &Arguments<'_>,
        frames: &'a [FrameId],
        profile: &Profile,
    ) -> &'a [FrameId] {
        let kernel = |id: &FrameId| {
            matches!(profile.frames.get(*id), Frame::Kernel { .. } | Frame::KernelUnnamed { .. })
        };
        let user = frames.len() - frames.iter().rev().take_while(|id| kernel(id)).count();
        let frames = &frames[..user];
        let itself = frames.last().is_some_and(|id| match profile.frames.get(*id) {
            Frame::Native { symbol, .. } => profile.strings.get(symbol) == self.sites.symbol(call.call.site),
            // An unnamed function at the place of a probe is the probed function.
            Frame::NativeUnnamed { .. } => true,
            _ => false,
        });
        if itself { &frames[..frames.len() - 1] } else { frames }
    }

    fn on_call(
        &mut self,
        call: &CallRecord<'_>,
        stack: Option<&CallStack<()>>,
        context: &mut CallContext<'_>,
    ) {
        let CallContext { profile, facts, .. } = context;
        let node = stack.map_or(call.thread, |stack| stack.node);
        self.admit(call.sample.pid, call.sample.header.time_ns, *facts, profile);
        // The context of a kernel is made when it is launched, so what it was compiled from is asked before.
        if self.launches_unknown(call.sample, call.arguments, node, profile) {
            self.ask_names(*facts, profile);
        }
        let at = TimedCall {
            number: call.sample.period,
            time_ns: call.sample.header.time_ns,
            pid: call.sample.pid,
            tid: call.sample.tid,
            thread: call.thread,
            node,
            has_stack: stack.is_some_and(|stack| stack.has_frames),
            arguments: *call.arguments,
        };
        self.call(&at, profile);
    }

    fn on_process(&mut self, change: ProcessChange, profile: &mut Profile) {
        let ProcessChange { pid, time_ns, kind } = change;
        // Records that were used early may already be of the new program.
        match self.processes.get_mut(pid).filter(|process| process.first_ns > time_ns) {
            Some(process) => process.from_start |= kind == ProcessChangeKind::Begins,
            None => self.process_ends(pid, time_ns, profile),
        }
        self.processes.changed(pid, kind);
    }

    #[inline]
    fn is_due(&self, now_ns: u64) -> bool {
        self.found.front().is_some_and(|kernel| kernel.read_ns <= now_ns)
    }

    fn use_due(&mut self, now_ns: u64, profile: &mut Profile) {
        self.use_found(now_ns, profile);
    }

    fn advance(&mut self, until_ns: u64, profile: &mut Profile) {
        self.expire(until_ns, profile);
    }

    fn finish(&mut self, now_ns: u64, profile: &mut Profile) {
        self.expire_samples(u64::MAX, profile);
        self.settle_all(u64::MAX, profile);
        for work in self.work.take_if(|_| true) {
            self.expire_work(work, Gap::LaunchWithoutActivity, profile);
        }
        for pending in self.pending.take_if(|_| true) {
            self.never_returned(pending, now_ns, profile);
        }
        self.processes.followed.values_mut().for_each(|process| process.streams.close());
        if let Some(recorder) = &mut self.recorder {
            recorder.finish(None);
        }
    }

    /// Writes process data to the profile, and gaps to the account of the stage, whose received and kept counts are
    /// filled already.
    fn write_to(&self, profile: &mut Profile) {
        let mut counts = self.counts.clone();
        counts.gap(Gap::CallLost, self.sites.lost());
        let mut live: Vec<_> = self
            .processes
            .followed
            .values()
            .filter_map(|process| {
                process.count_gaps(&mut counts);
                let info = process.info();
                info.is_used().then_some(info)
            })
            .collect();
        live.sort_rows_by_key(|info| info.pid);
        live.extend(self.processes.ended.iter().cloned());
        profile.gpu.processes = live;
        counts.write_to(profile.ledger.stage_mut(LedgerStage::Correlate));
    }
}
