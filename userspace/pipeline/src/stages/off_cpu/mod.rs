//! Waits: a stack when a thread leaves its CPU, and the time when it is back on one → off-CPU time in a context.
//!
//! Owns: pairing the two records, and naming what the thread waited for. Because: stacks are resolved in batches, so
//! either half may be known first. Does not: lose time: a wait without a stack is entered below its thread, with the
//! reason.
//!
//! A long wait is entered piece by piece ([`OffCpu::enter_until`]), so that a thread that never returns shows up too:
//! the time is exact, the count of a metric's cell is the number of pieces. From its wakeup on, the thread waited for
//! a CPU: that part is entered separately.

use std::collections::hash_map::Entry;

use deepctx_common::record::{Wake, sample_flag, wake_stack, waker};
use deepctx_profile::frame::Frame;
use deepctx_profile::intern::FrameId;
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Profile;
use deepctx_profile::trace::{WakeSource, WakeUp};
use deepctx_profile::tree::NodeId;
use deepctx_profile::units::{Nanos, Time};
use rustc_hash::FxHashMap;

use crate::config::Config;
use crate::decode::{Arguments, Sample};
use crate::input::SiteInfo;
use crate::spans::{SingleEvent, Span, SpanEnd, SpanKind, SpanThread, Spans};
use crate::stage::{CallContext, CallRecord, CallStack, Placement, ProcessChange, ProcessChangeKind, Stage};
use crate::trace_window::TraceLevel;

/// A continuing wait is entered this often.
const WAIT_PIECE_NS: u64 = 1_000_000_000;
/// Open waits remembered: as many as the kernel programs follow.
const WAITS_MAX: usize = deepctx_common::process::BLOCKED_MAX as usize;

/// A wait: thread id, and when it began (`CLOCK_MONOTONIC`, nanoseconds).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct WaitId {
    /// Thread, in the pid namespace of the profiler.
    pub(crate) tid: u32,
    /// When it left its CPU.
    pub(crate) began_ns: u64,
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaitEnd {
    /// When the thread ran again, or exited; `CLOCK_MONOTONIC` nanoseconds.
    pub(crate) at_ns: u64,
    /// Who woke it, if known.
    pub(crate) wake_up: Option<WakeUp>,
}

impl WaitEnd {
    /// Without a wake-up.
    fn at(at_ns: u64) -> Self {
        Self { at_ns, wake_up: None }
    }
}

impl From<&Wake> for WaitEnd {
    fn from(wake: &Wake) -> Self {
        let by = match wake.waker {
            waker::THREAD => Some(WakeSource::Thread { pid: wake.waker_pid, tid: wake.waker_tid }),
            waker::THREAD_OUTSIDE => Some(WakeSource::ThreadOutside),
            waker::INTERRUPT => Some(WakeSource::Interrupt),
            _ => None,
        };
        let after = Nanos(wake.woken_ns.saturating_sub(wake.began_ns));
        Self { at_ns: wake.header.time_ns, wake_up: by.map(|by| WakeUp { after, by }) }
    }
}

/// The wait reason of a runnable thread.
const FOR_A_CPU: &str = "waiting for a CPU";

/// The state of a wait that is not entered to its end.
#[derive(Clone, Copy, Debug)]
enum Wait {
    /// Its stack has not been resolved.
    Unresolved { pid: u32, ended: Option<WaitEnd> },
    /// The thread still waits; the profile has the wait up to this time.
    Open { pid: u32, context: Context, entered_ns: u64 },
}

/// Where off-CPU time is entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Context {
    /// The context in which the thread stopped.
    pub(crate) node: NodeId,
    /// The thread: its line in the timeline.
    pub(crate) thread: NodeId,
}

/// Gaps in the record of waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WaitGaps {
    /// Waits without a stack, because the CPU had used up its share of walks.
    pub(crate) rate_limited: u64,
    /// Waits without a stack, because no scratch memory was free.
    pub(crate) scratch_busy: u64,
    /// Waits whose stack was sent and did not arrive.
    pub(crate) stack_lost: u64,
    /// Stacks whose wait never ended, or for which there was no room.
    pub(crate) end_lost: u64,
}

/// Waits that are not over.
#[derive(Debug, Default)]
pub(crate) struct OffCpu {
    waits: FxHashMap<WaitId, Wait>,
    /// When the open wait of each thread began.
    of_thread: FxHashMap<u32, u64>,
    /// Waits that began before were given up, since there were too many. `CLOCK_MONOTONIC` nanoseconds.
    given_up_ns: u64,
    gaps: WaitGaps,
    /// Waits, for a trace of single events.
    pub(crate) spans: Spans,
}

impl OffCpu {
    /// A wait began, and its stack is not resolved yet.
    pub(crate) fn on_begin(&mut self, id: WaitId, pid: u32) {
        self.runs(id.tid, id.began_ns);
        if self.waits.len() >= WAITS_MAX {
            self.gaps.end_lost += self.waits.len() as u64;
            self.given_up_ns = id.began_ns;
            self.drop_all(SpanEnd::Lost);
        }
        self.of_thread.insert(id.tid, id.began_ns);
        self.waits.insert(id, Wait::Unresolved { pid, ended: None });
    }

    /// Drops all waits, whose ends are not known.
    fn drop_all(&mut self, end: SpanEnd) {
        let Self { waits, spans, .. } = self;
        for (id, wait) in waits.drain() {
            if let Wait::Open { pid, context, .. } = wait {
                spans.add(span(id, pid, context, end, None));
            }
        }
        self.of_thread.clear();
    }

    /// Whether a wait with one of [`wake_stack`], which is not known, is one of those that were given up: most of its
    /// time may have been entered, so none of it is entered now.
    pub(crate) fn was_given_up(&self, id: WaitId, stack: u32) -> bool {
        stack == wake_stack::SENT && id.began_ns < self.given_up_ns
    }

    /// The thread is on a CPU at this time: an earlier wait of it is over, though no record said so. (Some kernels hide
    /// the switches of some tasks.) Its end is unknown, so the rest of it is left out.
    pub(crate) fn runs(&mut self, tid: u32, at_ns: u64) {
        if let Entry::Occupied(began) = self.of_thread.entry(tid)
            && *began.get() < at_ns
        {
            let id = WaitId { tid, began_ns: began.remove() };
            let wait = self.waits.remove(&id);
            self.gaps.end_lost += u64::from(wait.is_some());
            if let Some(Wait::Open { pid, context, .. }) = wait {
                self.spans.add(span(id, pid, context, SpanEnd::Lost, None));
            }
        }
    }

    /// Its context is known.
    pub(crate) fn resolved(&mut self, id: WaitId, context: Context, profile: &mut Profile) {
        let Entry::Occupied(mut entry) = self.waits.entry(id) else { return };
        if let Wait::Unresolved { pid, ended } = *entry.get() {
            match ended {
                Some(end) => {
                    entry.remove();
                    self.close(id, pid, context, id.began_ns, end, profile);
                }
                None => *entry.get_mut() = Wait::Open { pid, context, entered_ns: id.began_ns },
            }
        }
    }

    /// It ended. False if its stack is unknown and will stay so: the caller must enter the time.
    #[must_use]
    pub(crate) fn on_end(&mut self, id: WaitId, end: WaitEnd, profile: &mut Profile) -> bool {
        if self.of_thread.get(&id.tid) == Some(&id.began_ns) {
            self.of_thread.remove(&id.tid);
        }
        let Entry::Occupied(mut entry) = self.waits.entry(id) else { return false };
        match entry.get_mut() {
            Wait::Unresolved { ended, .. } => *ended = Some(end),
            Wait::Open { pid, context, entered_ns } => {
                let (pid, context, entered_ns) = (*pid, *context, *entered_ns);
                entry.remove();
                self.close(id, pid, context, entered_ns, end, profile);
            }
        }
        true
    }

    /// A wait is over whose stack is unknown and will stay so.
    pub(crate) fn ended_without_stack(
        &mut self,
        id: WaitId,
        pid: u32,
        context: Context,
        end: WaitEnd,
        profile: &mut Profile,
    ) {
        self.close(id, pid, context, id.began_ns, end, profile);
    }

    /// A wait is over: enters the rest of it, and keeps the event.
    fn close(
        &mut self,
        id: WaitId,
        pid: u32,
        context: Context,
        entered_ns: u64,
        end: WaitEnd,
        profile: &mut Profile,
    ) {
        enter_last(profile, context, entered_ns, id, end);
        self.spans.add(span(id, pid, context, SpanEnd::At(end.at_ns), end.wake_up));
    }

    /// A wait without a stack, for one of the reasons of [`wake_stack`]; returns the frame of that reason.
    pub(crate) fn without_stack(&mut self, stack: u32, profile: &mut Profile) -> FrameId {
        let (count, reason) = match stack {
            wake_stack::RATE_LIMITED => (&mut self.gaps.rate_limited, "stack not taken: rate limit"),
            wake_stack::SCRATCH_BUSY => (&mut self.gaps.scratch_busy, "stack not taken: scratch busy"),
            _ => (&mut self.gaps.stack_lost, "stack lost"),
        };
        *count += 1;
        let reason = profile.text(reason);
        profile.frame(Frame::Wait { reason })
    }

    /// Enters the time of open waits since they were last entered, if at least `least_ns`.
    pub(crate) fn enter_until(&mut self, now_ns: u64, least_ns: u64, profile: &mut Profile) {
        for wait in self.waits.values_mut() {
            if let Wait::Open { context, entered_ns, .. } = wait {
                let lasted = now_ns.saturating_sub(*entered_ns);
                if lasted >= least_ns && lasted > 0 {
                    enter(profile, *context, *entered_ns, now_ns);
                    *entered_ns = now_ns;
                }
            }
        }
    }

    fn process_ended(&mut self, of: u32, end_ns: u64, profile: &mut Profile) {
        let Self { waits, of_thread, spans, .. } = self;
        waits.retain(|id, wait| match *wait {
            Wait::Open { pid, context, entered_ns } if pid == of => {
                enter(profile, context, entered_ns, end_ns);
                spans.add(span(*id, pid, context, SpanEnd::At(end_ns), None));
                of_thread.remove(&id.tid);
                false
            }
            Wait::Unresolved { pid, ref mut ended } if pid == of => {
                ended.get_or_insert(WaitEnd::at(end_ns));
                of_thread.remove(&id.tid);
                true
            }
            _ => true,
        });
    }

    /// The gaps so far.
    pub(crate) fn wait_gaps(&self) -> WaitGaps {
        self.gaps
    }
}

/// Enters the rest of a wait: up to its wake-up, and from there to its end.
fn enter_last(profile: &mut Profile, context: Context, from_ns: u64, id: WaitId, end: WaitEnd) {
    let woken_ns = end.wake_up.map(|wake_up| id.began_ns.saturating_add(wake_up.after.0));
    let woken_ns = woken_ns.map_or(end.at_ns, |woken_ns| woken_ns.clamp(from_ns.min(end.at_ns), end.at_ns));
    if woken_ns > from_ns || woken_ns == end.at_ns {
        enter(profile, context, from_ns, woken_ns);
    }
    if woken_ns < end.at_ns {
        let reason = profile.text(FOR_A_CPU);
        let frame = profile.frame(Frame::Wait { reason });
        let node = profile.tree.child(profile.tree.node(context.node).parent, frame);
        enter(profile, Context { node, ..context }, woken_ns, end.at_ns);
    }
}

/// A wait as an event of a trace.
fn span(id: WaitId, pid: u32, context: Context, end: SpanEnd, wake_up: Option<WakeUp>) -> Span {
    let of = SpanThread { pid, tid: id.tid };
    Span { kind: SpanKind::OffCpu(wake_up), of, node: context.node, began_ns: id.began_ns, end }
}

/// Adds off-CPU time, between two times of `CLOCK_MONOTONIC`, to a context and to the timeline of its thread. A begin
/// before the capture is moved to the beginning of the timeline.
fn enter(profile: &mut Profile, context: Context, from_ns: u64, to_ns: u64) {
    let Context { node, thread } = context;
    let ns = to_ns.saturating_sub(from_ns);
    profile.tree.add(node, Metric::OffCpuTime, ns);
    profile.tree.add(node, Metric::WallTime, ns);
    let since_start = |time_ns| Time::from_nanos(time_ns) - profile.meta.started_monotonic;
    let (from, to) = (since_start(from_ns), since_start(to_ns));
    profile.timeline.add_span(thread, Metric::OffCpuTime, from, to, ns);
}

/// Whether a stack is of a thread that left its CPU.
fn is_off_cpu(sample: &Sample<'_>) -> bool {
    sample.fixed.flags & sample_flag::OFF_CPU != 0
}

/// Kernel frames that call our program on a switch: they are on every stack of a wait and mean nothing there.
const OBSERVER: &[&str] = &["bpf_prog_", "bpf_trace_run", "__bpf_trace_", "__traceiter_", "bpf_trampoline_"];

/// The frames, root first, without those of our own program at the leaf.
pub(crate) fn without_observer<'a>(profile: &Profile, frames: &'a [FrameId]) -> &'a [FrameId] {
    let ours = |id: &&FrameId| match profile.frames.get(**id) {
        Frame::Kernel { symbol } => {
            let symbol = profile.strings.get(symbol);
            OBSERVER.iter().any(|begin| symbol.starts_with(begin))
        }
        _ => false,
    };
    &frames[..frames.len() - frames.iter().rev().take_while(ours).count()]
}

/// Kernel functions by prefix, and the wait reason that each shows. From the leaf outwards, the first frame with a row
/// counts; specific rows precede general ones.
const REASONS: &[(&str, &str)] = &[
    ("futex_", "futex"),
    ("do_nanosleep", "sleep"),
    ("hrtimer_nanosleep", "sleep"),
    ("do_sigtimedwait", "signal"),
    ("sigsuspend", "signal"),
    ("do_signal_stop", "stopped"),
    ("ptrace_stop", "stopped"),
    ("do_wait", "child"),
    ("kernel_wait4", "child"),
    ("ep_poll", "poll"),
    ("do_epoll_wait", "poll"),
    ("do_sys_poll", "poll"),
    ("do_select", "poll"),
    ("io_cqring_wait", "io_uring"),
    ("anon_pipe_", "pipe"),
    ("pipe_", "pipe"),
    ("unix_stream_", "socket"),
    ("unix_", "socket"),
    ("tcp_", "network"),
    ("udp_", "network"),
    ("inet_", "network"),
    ("sk_wait_data", "network"),
    ("sk_stream_wait", "network"),
    ("n_tty_read", "terminal"),
    ("tty_", "terminal"),
    ("uvm_", "gpu driver"),
    ("nvidia_", "gpu driver"),
    ("os_acquire_", "gpu driver"),
    ("amdgpu_", "gpu driver"),
    ("kfd_", "gpu driver"),
    ("amdkfd_", "gpu driver"),
    ("drm_", "gpu driver"),
    ("dma_fence_", "gpu driver"),
    ("io_schedule", "disk"),
    ("folio_wait_", "disk"),
    ("wait_on_page_", "disk"),
    ("blk_", "disk"),
    ("rwsem_down_", "kernel lock"),
    ("down_read", "kernel lock"),
    ("down_write", "kernel lock"),
    ("__mutex_lock", "kernel lock"),
    ("rt_mutex_", "kernel lock"),
    ("do_user_addr_fault", "page fault"),
    ("handle_mm_fault", "page fault"),
    ("do_exit", "exit"),
];

/// The wait reason, from the names of the kernel frames, root first.
pub(crate) fn reason(profile: &Profile, frames: &[FrameId], preempted: bool) -> &'static str {
    if preempted {
        return FOR_A_CPU;
    }
    frames
        .iter()
        .rev()
        .map_while(|id| match profile.frames.get(*id) {
            Frame::Kernel { symbol } => Some(profile.strings.get(symbol)),
            Frame::KernelUnnamed { .. } => Some(""),
            _ => None,
        })
        .find_map(|symbol| {
            REASONS.iter().find(|(begin, _)| symbol.starts_with(begin)).map(|(_, reason)| *reason)
        })
        .unwrap_or("blocked")
}

impl Stage for OffCpu {
    type Scope = ();
    type Note = ();

    fn new(_config: &Config) -> Self {
        Self::default()
    }

    fn claims(&self, _site: &SiteInfo) -> bool {
        false
    }

    fn learn(&mut self, _sites: Vec<SiteInfo>) {}

    fn place(
        &mut self,
        (): (),
        _own_call: Option<&Arguments<'_>>,
        placement: &mut Placement<'_>,
        profile: &mut Profile,
    ) {
        if !is_off_cpu(placement.sample) {
            return;
        }
        placement.trim(|frames| without_observer(profile, frames));
        let preempted = placement.sample.fixed.flags & sample_flag::PREEMPTED != 0;
        let reason = reason(profile, &placement.frames, preempted);
        let reason = profile.text(reason);
        placement.leaf = Some(profile.frame(Frame::Wait { reason }));
    }

    fn on_call(
        &mut self,
        _call: &CallRecord<'_>,
        _stack: Option<&CallStack<()>>,
        _context: &mut CallContext<'_>,
    ) {
    }

    /// When a process ends, the waits of its threads end.
    fn on_process(&mut self, change: ProcessChange, profile: &mut Profile) {
        if change.kind == ProcessChangeKind::Ends {
            self.process_ended(change.pid, change.time_ns, profile);
        }
    }

    fn advance(&mut self, until_ns: u64, profile: &mut Profile) {
        self.enter_until(until_ns, WAIT_PIECE_NS, profile);
    }

    fn finish(&mut self, now_ns: u64, profile: &mut Profile) {
        self.enter_until(now_ns, 0, profile);
        self.drop_all(SpanEnd::Open);
    }

    fn keep_events(&mut self, _level: TraceLevel) {
        self.spans.want();
    }

    #[inline]
    fn take_events(&mut self, events: &mut Vec<SingleEvent>) {
        events.extend(self.spans.take().map(SingleEvent::Span));
    }
}

#[cfg(test)]
mod tests;
