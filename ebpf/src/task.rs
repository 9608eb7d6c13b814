//! Task: reads of `task_struct`, by offsets that the loader took from the kernel's BTF.

use aya_ebpf::helpers::generated::{
    bpf_get_current_pid_tgid, bpf_get_current_task, bpf_get_current_task_btf, bpf_probe_read_kernel,
    bpf_task_pt_regs,
};
use deepctx_common::config::{Config, config_flag};

use crate::arch;

/// Process and thread id in the pid namespace of the profiler.
#[derive(Clone, Copy)]
pub struct Ids {
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
}

/// Deepest nesting of pid namespaces that the kernel allows (`MAX_PID_NS_LEVEL`).
const PIDNS_LEVELS: u32 = 32;

/// Reads a number from kernel memory; 0 if it cannot be read. The helper zeroes the destination on failure
/// (`bpf_probe_read_kernel_common` in kernel/trace/bpf_trace.c); one branch less halves the number of paths to verify.
#[inline(always)]
pub fn read<T: Copy + Default>(address: u64) -> T {
    let mut value = T::default();
    // SAFETY: the destination is a local of the size given; the helper checks the source.
    let _ =
        unsafe { bpf_probe_read_kernel((&raw mut value).cast(), size_of::<T>() as u32, address as *const _) };
    value
}

/// Address of the running task.
#[inline(always)]
pub fn current() -> u64 {
    // SAFETY: helper without arguments.
    unsafe { bpf_get_current_task() }
}

/// The third, fourth and fifth argument of the running task's system call.
#[inline(always)]
pub fn last_arguments() -> [u64; 3] {
    // SAFETY: helpers of kernel 5.15; the task is the running one, so its registers stay in place.
    let regs = unsafe { bpf_task_pt_regs(bpf_get_current_task_btf()) } as u64;
    let at = |offset: usize| read::<u64>(regs + offset as u64);
    arch::LAST_ARGUMENTS.map(at)
}

/// Whether an interrupt is running instead of the task that it interrupted. `context` is that of a tracepoint program,
/// which the kernel places on the current stack. Interrupts have stacks of their own, except those that interrupt user
/// mode; in that case the thread is in no system call.
#[inline(always)]
pub fn is_interrupted(context: *const core::ffi::c_void) -> bool {
    /// Upper bound on the stack size of a task (`THREAD_SIZE`: 16 KiB, twice that with KASAN).
    const STACK_BYTES: u64 = 32 << 10;
    // SAFETY: helper without arguments.
    if unsafe { bpf_get_current_pid_tgid() } == 0 {
        return true;
    }
    // SAFETY: helpers of kernel 5.15. The registers are at the top of the task's stack, which stays in place.
    let regs = unsafe { bpf_task_pt_regs(bpf_get_current_task_btf()) } as u64;
    // The kernel's verifier accepts the difference of two addresses, but no comparison of them.
    regs.wrapping_sub(context as u64) > STACK_BYTES
        || read::<u32>(regs + arch::SYSTEM_CALL as u64) == u32::MAX
}

/// Ids of the running task; `None` if it is not visible in the profiler's namespace.
#[inline(always)]
pub fn current_ids(config: &Config) -> Option<Ids> {
    if config.flags & config_flag::INIT_PIDNS != 0 {
        // SAFETY: helper without arguments.
        let both = unsafe { bpf_get_current_pid_tgid() };
        return Some(Ids { pid: (both >> 32) as u32, tid: both as u32 });
    }
    ids(config, current())
}

/// Ids of a task; `None` if it is not visible in the profiler's namespace.
#[inline(always)]
pub fn ids(config: &Config, task: u64) -> Option<Ids> {
    if config.flags & config_flag::INIT_PIDNS != 0 {
        let pid = read::<u32>(task + u64::from(config.task_tgid));
        let tid = read::<u32>(task + u64::from(config.task_pid));
        return Some(Ids { pid, tid });
    }
    let tid = number_in_profiler_ns(task);
    let leader = read::<u64>(task + u64::from(config.task_group_leader));
    let pid = number_in_profiler_ns(leader);
    if pid == 0 || tid == 0 { None } else { Some(Ids { pid, tid }) }
}

/// The id of `task` in the profiler's pid namespace, or 0.
///
/// A function of its own, so that the kernel verifies its loop once.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn number_in_profiler_ns(task: u64) -> u32 {
    let config = crate::maps::config();
    let pid = read::<u64>(task + u64::from(config.task_thread_pid));
    let level = read::<u32>(pid + u64::from(config.pid_level));
    for i in 0..PIDNS_LEVELS {
        if i > level {
            break;
        }
        let upid = pid + u64::from(config.pid_numbers) + u64::from(i) * u64::from(config.upid_size);
        let namespace = read::<u64>(upid + u64::from(config.upid_ns));
        if read::<u32>(namespace + u64::from(config.pidns_inum)) == config.profiler_pidns {
            return read::<u32>(upid + u64::from(config.upid_nr));
        }
    }
    0
}
