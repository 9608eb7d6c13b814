//! Off-CPU: a thread of a target leaves its CPU, and comes back to one.
//!
//! Owns: which switches count, who woke the thread, and the budget of walks per CPU. Because: the stack of a wait
//! exists when the wait begins, and its duration is known when it ends; so the stack is sent first and the time
//! follows. Does not: pair the two (user space does), or lose time: the time of a wait is sent even without a walk.

use aya_ebpf::EbpfContext as _;
use aya_ebpf::helpers::generated::{bpf_get_current_pid_tgid, bpf_ktime_get_ns};
use aya_ebpf::macros::raw_tracepoint;
use aya_ebpf::programs::RawTracePointContext;
use deepctx_common::config::Config;
use deepctx_common::end::Counter;
use deepctx_common::process::{Blocked, WAITS_WALKED_PER_SECOND};
use deepctx_common::record::{Wake, kind, sample_flag, wake_stack, waker};

use super::state::Bucket;
use crate::emit::{self, Urgency};
use crate::maps::{BLOCKED, WALKS, config};
use crate::task::Ids;
use crate::{filter, stack, task, walk};

/// `TASK_DEAD` (include/linux/sched.h): the thread will not run again.
const TASK_DEAD: u32 = 0x80;

/// Largest burst of walks: the budget of one second.
const WALKS_AT_ONCE: u64 = WAITS_WALKED_PER_SECOND as u64;
/// Time after which one more walk is due.
const WALK_NS: u64 = 1_000_000_000 / WALKS_AT_ONCE;

impl Bucket {
    /// Takes one walk; false if the budget is used up.
    #[inline(always)]
    fn take(&mut self, now: u64) -> bool {
        let earliest = now.saturating_sub(WALKS_AT_ONCE * WALK_NS);
        let from = if self.paid_ns < earliest { earliest } else { self.paid_ns };
        if from > now {
            return false;
        }
        self.paid_ns = from + WALK_NS;
        true
    }
}

/// `TP_PROTO(bool preempt, struct task_struct *prev, struct task_struct *next, …)`: `prev` is still the running task.
#[raw_tracepoint(tracepoint = "sched_switch")]
pub fn off_cpu(ctx: RawTracePointContext) -> i32 {
    let config = config();
    // SAFETY: helper without arguments.
    let now = unsafe { bpf_ktime_get_ns() };
    comes(config, ctx.arg::<u64>(2));
    leaves(&ctx, config, ctx.arg::<u64>(1), now);
    0
}

/// `next` runs again.
#[inline(always)]
fn comes(config: &Config, next: u64) {
    let key = task::read::<u32>(next + u64::from(config.task_pid));
    if key == 0 {
        return;
    }
    // SAFETY: the value is copied immediately; only the thread's own switches, which are serialized, write it.
    let Some(blocked) = (unsafe { BLOCKED.get(&key) }).copied() else { return };
    let _ = BLOCKED.remove(&key);
    emit::count(Counter::WaitsSeen);
    let size = size_of::<Wake>() as u32;
    let wake = Wake {
        header: emit::header(kind::WAKE, size),
        pid: blocked.pid,
        tid: blocked.tid,
        began_ns: blocked.began_ns,
        comm: task::read::<u128>(next + u64::from(config.task_comm)).to_le_bytes(),
        stack: blocked.stack,
        waker: blocked.waker,
        woken_ns: blocked.woken_ns,
        waker_pid: blocked.waker_pid,
        waker_tid: blocked.waker_tid,
    };
    // SAFETY: a whole record on the stack.
    unsafe { emit::record(&raw const wake, size, Some(Urgency::Later)) };
}

/// `prev`, the running task, leaves its CPU.
#[inline(always)]
fn leaves(ctx: &RawTracePointContext, config: &Config, prev: u64, now: u64) {
    // SAFETY: helper without arguments.
    let key = unsafe { bpf_get_current_pid_tgid() } as u32;
    if key == 0 {
        return;
    }
    let Some(ids) = task::current_ids(config) else { return };
    if !filter::is_target(config, ids.pid) || task::read::<u64>(prev + u64::from(config.task_mm)) == 0 {
        return;
    }
    // A waker may have set the state to running just before: such a wait counts as a preemption, and is as short as
    // one.
    let state = task::read::<u32>(prev + u64::from(config.task_state));
    if state & TASK_DEAD != 0 {
        return;
    }
    let flags = sample_flag::OFF_CPU | if state == 0 { sample_flag::PREEMPTED } else { 0 };
    // The entry first: a stack without an entry would look like a wait that never ends.
    let blocked = Blocked { began_ns: now, pid: ids.pid, tid: ids.tid, ..Blocked::default() };
    if BLOCKED.insert(&key, blocked, 0).is_err() {
        emit::count(Counter::WaitsUntracked);
        return;
    }
    let stack = walked(ctx, config, ids, flags, now);
    if stack != wake_stack::SENT
        && let Some(blocked) = BLOCKED.get_ptr_mut(&key)
    {
        // SAFETY: the thread does not run again until this switch is complete, so the entry stays. A concurrent waker
        // writes other fields.
        unsafe { (*blocked).stack = stack };
    }
}

/// `TP_PROTO(struct task_struct *p)`: the running task, or an interrupt, wakes `p`. The last wake-up before the thread
/// runs counts.
#[raw_tracepoint(tracepoint = "sched_waking")]
pub fn waking(ctx: RawTracePointContext) -> i32 {
    let config = config();
    let key = task::read::<u32>(ctx.arg::<u64>(0) + u64::from(config.task_pid));
    let Some(blocked) = BLOCKED.get_ptr_mut(&key) else { return 0 };
    let (waker, ids) = match task::is_interrupted(ctx.as_ptr()) {
        true => (waker::INTERRUPT, None),
        false => match task::current_ids(config) {
            Some(ids) => (waker::THREAD, Some(ids)),
            None => (waker::THREAD_OUTSIDE, None),
        },
    };
    let Ids { pid, tid } = ids.unwrap_or(Ids { pid: 0, tid: 0 });
    // SAFETY: the kernel holds the lock of the woken thread, so wakers are serialized, and the switch that takes the
    // entry comes after them; a slot of the map stays readable.
    unsafe {
        (*blocked).woken_ns = bpf_ktime_get_ns();
        (*blocked).waker = waker;
        (*blocked).waker_pid = pid;
        (*blocked).waker_tid = tid;
    }
    0
}

/// Sends the stack of the running task, within the CPU's budget of walks. Returns one of [`wake_stack`].
#[inline(always)]
fn walked(ctx: &RawTracePointContext, config: &Config, ids: Ids, flags: u8, now: u64) -> u32 {
    let Some(bucket) = WALKS.get_ptr_mut(0) else { return wake_stack::RATE_LIMITED };
    // SAFETY: the slot belongs to this CPU, whose switches are serialized.
    if !unsafe { (*bucket).take(now) } {
        return wake_stack::RATE_LIMITED;
    }
    let Some(scratch) = walk::claim() else { return wake_stack::SCRATCH_BUSY };
    // SAFETY: the slot was claimed for this run; nothing else on this CPU touches it until it is released.
    let slot = unsafe { &mut *scratch };
    emit::count(Counter::WaitsSeen);
    stack::begin(slot, ids, now, flags | sample_flag::IN_KERNEL);
    let kernel_words = stack::kernel(ctx.as_ptr(), slot);
    let registers = stack::registers_at_entry(config, slot);
    stack::user(config, config.flags, ids.pid, kernel_words, registers, slot);
    stack::send(kind::BLOCK, slot, kernel_words);
    walk::release(scratch);
    wake_stack::SENT
}
