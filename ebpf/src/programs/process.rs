//! Process events: targets follow their children, and user space learns of exec, exit and new libraries.
//!
//! Raw tracepoints, because they pass the task itself, whose layout the loader knows. The classic ones pass ids of the
//! initial namespace, in a record whose layout has changed (`sched_process_free`, 6.16).

use aya_ebpf::macros::{raw_tracepoint, tracepoint};
use aya_ebpf::programs::{RawTracePointContext, TracePointContext};
use deepctx_common::config::Config;
use deepctx_common::end::Counter;
use deepctx_common::process::{Target, target_flag};
use deepctx_common::record::{ProcessEvent, kind};

use crate::emit::{self, Urgency};
use crate::maps::{COLLECTED, PROCESSES, TARGETS, config};
use crate::{filter, task};

/// `TP_PROTO(struct task_struct *parent, struct task_struct *child)`
#[raw_tracepoint(tracepoint = "sched_process_fork")]
pub fn process_fork(ctx: RawTracePointContext) -> i32 {
    let config = config();
    let (parent, child) = (ctx.arg::<u64>(0), ctx.arg::<u64>(1));
    let (Some(parent), Some(ids)) = (task::ids(config, parent), task::ids(config, child)) else { return 0 };
    if ids.pid == parent.pid || !filter::is_target(config, parent.pid) {
        return 0;
    }
    // SAFETY: the value is copied immediately.
    if let Some(target) = unsafe { TARGETS.get(&parent.pid) }.copied() {
        if target.flags & target_flag::FOLLOW == 0 {
            return 0;
        }
        if TARGETS.insert(&ids.pid, Target { flags: target_flag::FOLLOW }, 0).is_err() {
            emit::count(Counter::DropTargetsFull);
        }
    }
    // The child starts with the parent's address space, so it can be walked from its first instruction.
    // SAFETY: the value is copied before anything else can change it; user space replaces entries as a whole.
    if let Some(process) = unsafe { PROCESSES.get(&parent.pid) } {
        let _ = PROCESSES.insert(&ids.pid, process, 0);
    }
    send(kind::FORK, ids.pid, parent.pid, child_comm(config, ctx.arg::<u64>(1)));
    0
}

/// `TP_PROTO(struct task_struct *p, pid_t old_pid, struct linux_binprm *bprm)`
#[raw_tracepoint(tracepoint = "sched_process_exec")]
pub fn process_exec(ctx: RawTracePointContext) -> i32 {
    let config = config();
    let p = ctx.arg::<u64>(0);
    let Some(ids) = task::ids(config, p) else { return 0 };
    if filter::is_target(config, ids.pid) {
        // The tables of the old program would mislead the walk.
        let _ = PROCESSES.remove(&ids.pid);
        send(kind::EXEC, ids.pid, 0, child_comm(config, p));
    }
    0
}

/// `TP_PROTO(struct task_struct *p, …)`: called after `signal->live` was decremented, so 0 means the last thread.
#[raw_tracepoint(tracepoint = "sched_process_exit")]
pub fn process_exit(ctx: RawTracePointContext) -> i32 {
    let config = config();
    let p = ctx.arg::<u64>(0);
    let signal = task::read::<u64>(p + u64::from(config.task_signal));
    if task::read::<u32>(signal + u64::from(config.signal_live)) != 0 {
        return 0;
    }
    let Some(ids) = task::ids(config, p) else { return 0 };
    if filter::is_target(config, ids.pid) {
        let _ = TARGETS.remove(&ids.pid);
        let _ = PROCESSES.remove(&ids.pid);
        let _ = COLLECTED.remove(&ids.pid);
        send(kind::EXIT, ids.pid, 0, child_comm(config, p));
    }
    0
}

/// After each `mmap`: it may have loaded a library, and every sample in that library is cut short until its table is
/// loaded.
#[tracepoint(category = "syscalls", name = "sys_exit_mmap")]
pub fn mapped(_ctx: TracePointContext) -> u32 {
    /// `PROT_EXEC` (include/uapi/asm-generic/mman-common.h).
    const PROT_EXEC: u64 = 4;
    let config = config();
    let Some(ids) = task::current_ids(config) else { return 0 };
    if !filter::is_target(config, ids.pid) {
        return 0;
    }
    let [protection, _, file] = task::last_arguments();
    // Anonymous code is generated code: the next sample in it reports it.
    if protection & PROT_EXEC != 0 && file as i32 >= 0 {
        send(kind::MAP, ids.pid, 0, child_comm(config, task::current()));
    }
    0
}

#[inline(always)]
fn child_comm(config: &Config, task: u64) -> [u8; 16] {
    task::read::<u128>(task + u64::from(config.task_comm)).to_le_bytes()
}

#[inline(always)]
fn send(kind: u16, pid: u32, parent: u32, comm: [u8; 16]) {
    emit::count(Counter::ProcessEventsSeen);
    let size = size_of::<ProcessEvent>() as u32;
    let header = emit::header(kind, size);
    // A process can map at any rate; an unreported mapping is found at the next sample in it.
    let urgency = if kind == kind::MAP {
        emit::as_it_fills(header.time_ns, emit::OF_MAPPINGS)
    } else {
        Some(Urgency::Now)
    };
    let event = ProcessEvent { header, pid, parent, comm };
    // SAFETY: a whole record on the stack.
    unsafe { emit::record(&raw const event, size, urgency) };
}
