//! Threads: the current state of every thread of the targets, read without stopping any.
//!
//! Owns: the task data copied into the iterator's output. Because: a thread that is off its CPU keeps its user
//! registers and its kernel stack in place, and only a program in the kernel can read those of all threads of a running
//! process. Does not: walk user stacks: this runs on the reader's thread, which must not wait for another process's
//! page.

use core::mem::offset_of;

use aya_ebpf::bindings::{seq_file, task_struct};
use aya_ebpf::helpers::generated::{
    bpf_get_task_stack, bpf_ktime_get_ns, bpf_probe_read_kernel, bpf_seq_write, bpf_task_pt_regs,
};
use deepctx_common::config::Config;
use deepctx_common::record::KERNEL_WORDS_MAX;
use deepctx_common::thread::{Thread, ThreadFields, thread_flag};

use crate::arch::{self, Mode, UserRegs};
use crate::maps::{TARGETS, config, thread_fields};
use crate::task::{self, read};
use crate::walk::{self, Scratch, WORDS_MAX};
use crate::words;

/// `struct bpf_iter__task`
#[repr(C)]
pub struct Context {
    meta: *const Meta,
    task: *mut task_struct,
}

/// The beginning of `struct bpf_iter_meta`.
#[repr(C)]
struct Meta {
    seq: *mut seq_file,
}

/// The record is built in the words of the scratch slot.
const _: () = assert!(size_of::<Thread>() <= WORDS_MAX * 8);

/// Called for each task; the last call comes without one.
#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/task")]
pub extern "C" fn threads(context: *const Context) -> i32 {
    // SAFETY: the context of the program.
    let task = unsafe { (*context).task };
    if task.is_null() {
        return 0;
    }
    let config = config();
    // The task's address again, as a number: functions with external linkage take no typed pointer.
    let address = read::<u64>(context as u64 + offset_of!(Context, task) as u64);
    let Some(ids) = task::ids(config, address) else { return 0 };
    // SAFETY: only the presence of the entry is used.
    if unsafe { TARGETS.get(&ids.pid) }.is_none() {
        return 0;
    }
    let Some(scratch) = walk::claim() else { return 0 };
    // SAFETY: the slot was claimed for this run; the record fits into its words (asserted above), which have its
    // alignment.
    let (slot, thread) = unsafe { (&mut *scratch, &mut *(&raw mut (*scratch).words).cast::<Thread>()) };
    words::clear(thread);
    thread.pid = ids.pid;
    thread.tid = ids.tid;
    state(config, thread_fields(), address, thread);
    if thread.flags & thread_flag::ON_CPU == 0 {
        kernel_stack(task, thread);
    }
    if thread.flags & thread_flag::KERNEL_THREAD == 0 {
        registers(config, task, slot, thread);
    }
    // SAFETY: a complete record. If there is no room, the kernel calls once more with an empty buffer.
    unsafe { bpf_seq_write((*(*context).meta).seq, (&raw const *thread).cast(), size_of::<Thread>() as u32) };
    walk::release(scratch);
    0
}

/// Scheduler state of the task.
#[inline(always)]
fn state(config: &Config, fields: &ThreadFields, task: u64, thread: &mut Thread) {
    let at = |offset: u32| task + u64::from(offset);
    let number = |offset: u32| if offset == 0 { 0 } else { read::<u64>(at(offset)) };
    let of_32_bits = |offset: u32| if offset == 0 { 0 } else { read::<u32>(at(offset)) };
    thread.switches = number(fields.voluntary_switches) + number(fields.involuntary_switches);
    thread.state = read::<u32>(at(config.task_state));
    thread.exit_state = of_32_bits(fields.exit_state);
    thread.arrived_ns = number(fields.arrived);
    thread.ran_ns = number(fields.ran).wrapping_sub(number(fields.ran_before));
    thread.comm = read::<u128>(at(config.task_comm)).to_le_bytes();
    thread.thread_pointer = read::<u64>(at(config.task_thread_pointer));
    if fields.arrived != 0 {
        thread.reader_arrived_ns = read::<u64>(task::current() + u64::from(fields.arrived));
    }
    if read::<u64>(at(config.task_mm)) == 0 {
        thread.flags |= thread_flag::KERNEL_THREAD;
    }
    if of_32_bits(fields.on_cpu) != 0 {
        thread.flags |= thread_flag::ON_CPU;
    }
    // SAFETY: helper without arguments.
    thread.time_ns = unsafe { bpf_ktime_get_ns() };
}

/// The kernel stack of a task that is not on a CPU.
#[inline(always)]
fn kernel_stack(task: *mut task_struct, thread: &mut Thread) {
    const BYTES: u32 = (KERNEL_WORDS_MAX * 8) as u32;
    // SAFETY: `kernel` has room for BYTES.
    let bytes = unsafe { bpf_get_task_stack(task, (&raw mut thread.kernel).cast(), BYTES, 0) };
    if bytes < 0 {
        thread.flags |= thread_flag::NO_KERNEL_STACK;
    } else {
        thread.kernel_words = bytes as u32 / 8;
    }
}

/// The user registers that the task had at kernel entry.
#[inline(always)]
fn registers(config: &Config, task: *mut task_struct, slot: &mut Scratch, thread: &mut Thread) {
    // SAFETY: helpers of kernel 5.15; the iterator holds the task, and the destination has the size given.
    let failed = unsafe {
        let regs = bpf_task_pt_regs(task);
        bpf_probe_read_kernel((&raw mut slot.regs).cast(), size_of::<UserRegs>() as u32, regs as *const _)
    } != 0;
    if failed {
        return;
    }
    match arch::mode(&slot.regs) {
        Mode::User => thread.flags |= thread_flag::REGISTERS,
        Mode::Compat => {
            thread.flags |= thread_flag::COMPAT;
            return;
        }
        Mode::Kernel => return,
    }
    if arch::in_system_call(&slot.regs) {
        thread.flags |= thread_flag::IN_SYSTEM_CALL;
        (thread.system_call, thread.arguments) = arch::system_call(&slot.regs);
    }
    arch::begin(&mut slot.walk.registers, &slot.regs, config);
    let from = &slot.walk.registers;
    thread.pc = from.pc;
    thread.sp = from.sp;
    let mut number = 0;
    while number < from.general.len() {
        thread.general[number] = from.general[number];
        number += 1;
    }
}
