//! Stack: builds the record of the running thread, with its kernel, native and Python stack.
//!
//! Owns: the steps common to all programs that send a stack. Because: samples, waits and calls differ only in where the
//! registers come from. Does not: decide which threads get a stack.

use core::ffi::c_void;

use aya_ebpf::helpers::generated::{
    bpf_get_current_comm, bpf_get_current_task_btf, bpf_get_stack, bpf_probe_read_kernel, bpf_task_pt_regs,
};
use deepctx_common::config::{Config, config_flag};
use deepctx_common::end::{KernelEnd, PythonEnd, WalkEnd};
use deepctx_common::record::{KERNEL_WORDS_MAX, StackSample, USER_WORDS_MAX, sample_flag};

use crate::arch::{self, UserRegs};
use crate::emit::{self, Urgency};
use crate::maps::NEWS;
use crate::task::{self, Ids};
use crate::walk::{self, Scratch};
use crate::words;

/// Starts the record of the running thread in `slot`.
#[inline(always)]
pub fn begin(slot: &mut Scratch, ids: Ids, period: u64, flags: u8) {
    words::clear(&mut slot.sample);
    if let Some(ahead) = walk::ahead(slot) {
        ahead.stack.clear();
        ahead.frames.clear();
    }
    slot.sample.pid = ids.pid;
    slot.sample.tid = ids.tid;
    slot.sample.period = period;
    slot.sample.flags = flags;
    // SAFETY: destination and size agree.
    unsafe {
        bpf_get_current_comm((&raw mut slot.sample.comm).cast(), size_of_val(&slot.sample.comm) as u32)
    };
}

/// Records the kernel stack from the program's context; returns the number of words.
#[inline(always)]
pub fn kernel(context: *mut c_void, slot: &mut Scratch) -> u32 {
    const BYTES: u32 = (KERNEL_WORDS_MAX * 8) as u32;
    // SAFETY: `words` has room for BYTES.
    let bytes = unsafe { bpf_get_stack(context, (&raw mut slot.words).cast(), BYTES, 0) };
    if bytes < 0 {
        slot.sample.kernel_end = KernelEnd::Failed as u8;
        return 0;
    }
    let words = bytes as u32 / 8;
    if words >= KERNEL_WORDS_MAX as u32 {
        slot.sample.kernel_end = KernelEnd::Truncated as u8;
        return KERNEL_WORDS_MAX as u32;
    }
    words
}

/// Takes the user registers that the running thread, now in the kernel, had at kernel entry.
#[inline(always)]
pub fn registers_at_entry(config: &Config, slot: &mut Scratch) -> Result<(), WalkEnd> {
    if task::read::<u64>(task::current() + u64::from(config.task_mm)) == 0 {
        slot.sample.flags |= sample_flag::KERNEL_THREAD;
        return Err(WalkEnd::NoUserStack);
    }
    // SAFETY: helpers of kernel 5.15; the task is the running one, so its registers stay in place.
    let failed = unsafe {
        let regs = bpf_task_pt_regs(bpf_get_current_task_btf());
        bpf_probe_read_kernel((&raw mut slot.regs).cast(), size_of::<UserRegs>() as u32, regs as *const _)
    } != 0;
    if failed {
        return Err(WalkEnd::NoRegisters);
    }
    // In a system call, the PC is the address after the system call instruction.
    if arch::in_system_call(&slot.regs) {
        slot.sample.flags |= sample_flag::IN_SYSCALL;
    }
    take_registers(config, slot)
}

/// Starts the walk from the registers in `slot.regs`.
#[inline(always)]
pub fn take_registers(config: &Config, slot: &mut Scratch) -> Result<(), WalkEnd> {
    arch::mode(&slot.regs).walkable()?;
    arch::begin(&mut slot.walk.registers, &slot.regs, config);
    slot.walk.thread_pointer = task::read::<u64>(task::current() + u64::from(config.task_thread_pointer));
    Ok(())
}

/// Walks the user stack, if requested and if there are registers to start from. `flags` are those of the [`Config`],
/// plus what this stack needs beyond them.
#[inline(always)]
pub fn user(
    config: &Config,
    flags: u32,
    pid: u32,
    kernel_words: u32,
    registers: Result<(), WalkEnd>,
    slot: &mut Scratch,
) {
    slot.walk.python_end = PythonEnd::NotWalked as u32;
    slot.walk.native_frames = 0;
    slot.walk.python_frames = 0;
    slot.walk.stop_pc = 0;
    slot.walk.words = kernel_words;
    if flags & config_flag::OPERATORS != 0 {
        slot.sample.flags |= sample_flag::OPERATORS;
    }
    if flags & (config_flag::NATIVE | config_flag::PYTHON | config_flag::OPERATORS) == 0 {
        slot.walk.native_end = WalkEnd::NotWalked as u32;
        return;
    }
    match registers {
        Ok(()) => walk::user_stack(config, flags, pid, kernel_words, slot),
        Err(end) => slot.walk.native_end = end as u32,
    }
}

/// Completes the header and emits the record.
#[inline(always)]
pub fn send(kind: u16, slot: &mut Scratch, kernel_words: u32) {
    let words = finish(slot, kernel_words);
    let size = size_of::<StackSample>() as u32 + words * 8;
    slot.sample.header = emit::header(kind, size);
    let urgency =
        if is_news(slot.walk.native_end, slot.sample.header.time_ns) { Urgency::Now } else { Urgency::Later };
    // SAFETY: `words` follow `sample` without a gap (asserted in `walk::scratch`), and `size` lies within both.
    unsafe { emit::record(&raw const slot.sample, size, Some(urgency)) };
}

/// Copies the results of the walk into the record. Returns the number of words.
#[inline(always)]
pub fn finish(slot: &mut Scratch, kernel_words: u32) -> u32 {
    const WORDS_MAX: u32 = (KERNEL_WORDS_MAX + USER_WORDS_MAX) as u32;
    let words = if slot.walk.words > WORDS_MAX { WORDS_MAX } else { slot.walk.words };
    slot.sample.kernel_words = kernel_words as u16;
    slot.sample.user_words = words.wrapping_sub(kernel_words) as u16;
    slot.sample.native_end = slot.walk.native_end as u8;
    slot.sample.python_end = slot.walk.python_end as u8;
    slot.sample.native_frames = slot.walk.native_frames as u16;
    slot.sample.python_frames = slot.walk.python_frames as u16;
    slot.sample.stop_pc = slot.walk.stop_pc;
    words
}

/// Minimum time between two wake-ups for unknown code on one CPU: user space needs a few milliseconds to load a table
/// anyway.
const NEWS_NS: u64 = 10_000_000;

/// True if a walk met code that user space cannot know yet, such as a library loaded just now: until user space has its
/// table, no sample in it can be walked.
#[inline(always)]
pub fn is_news(native_end: u32, now: u64) -> bool {
    if native_end != WalkEnd::NoMapping as u32 && native_end != WalkEnd::UnknownProcess as u32 {
        return false;
    }
    let Some(last) = NEWS.get_ptr_mut(0) else { return false };
    // SAFETY: the slot belongs to this CPU; an interrupting program at worst causes one more wake-up.
    unsafe {
        let due = now.wrapping_sub(*last) >= NEWS_NS;
        if due {
            *last = now;
        }
        due
    }
}
