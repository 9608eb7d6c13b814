//! Sample: one timer tick on one CPU becomes one record with the kernel, native and Python stack.

use aya_ebpf::bindings::pt_regs;
use aya_ebpf::helpers::generated::{
    bpf_get_current_comm, bpf_get_current_task_btf, bpf_get_stack, bpf_probe_read_kernel, bpf_task_pt_regs,
};
use aya_ebpf::macros::perf_event;
use aya_ebpf::programs::PerfEventContext;
use deepctx_common::config::{Config, config_flag};
use deepctx_common::end::{Counter, KernelEnd, PythonEnd, WalkEnd};
use deepctx_common::record::{KERNEL_WORDS_MAX, StackSample, USER_WORDS_MAX, kind, sample_flag};
use deepctx_walk::unwind_row::{Registers, dwarf};

use crate::emit::{self, Urgency};
use crate::maps::config;
use crate::task::Ids;
use crate::walk::{self, Scratch};
use crate::{filter, task, words};

/// A timer tick.
#[perf_event]
pub fn sample(ctx: PerfEventContext) -> u32 {
    let config = config();
    let Some(ids) = task::current_ids(config) else {
        emit::count(Counter::SamplesSeen);
        emit::count(Counter::SamplesFiltered);
        return 0;
    };
    emit::count(Counter::SamplesSeen);
    if ids.tid == 0 {
        emit::count(Counter::SamplesIdle);
        return 0;
    }
    if !filter::is_target(config, ids.pid) {
        emit::count(Counter::SamplesFiltered);
        return 0;
    }
    let Some(scratch) = walk::claim() else {
        // Uses up a sequence number, so that the gap is seen downstream too.
        emit::header(kind::SAMPLE, 0);
        emit::count(Counter::DropScratchBusy);
        return 0;
    };
    // SAFETY: the slot was claimed for this run; nothing else on this CPU touches it until it is released.
    let slot = unsafe { &mut *scratch };
    take(&ctx, config, ids, slot);
    walk::release(scratch);
    0
}

/// Fills the record in `slot` and sends it.
#[inline(always)]
fn take(ctx: &PerfEventContext, config: &Config, ids: Ids, slot: &mut Scratch) {
    // SAFETY: the context of a perf event program is readable; sample_period is one of its fields.
    let period = unsafe { (*ctx.ctx).sample_period };
    words::clear(&mut slot.sample);
    slot.sample.pid = ids.pid;
    slot.sample.tid = ids.tid;
    slot.sample.period = period;
    // SAFETY: destination and size agree.
    unsafe {
        bpf_get_current_comm((&raw mut slot.sample.comm).cast(), size_of_val(&slot.sample.comm) as u32)
    };

    // SAFETY: as above; only the low two bits (the privilege level) are used.
    let in_kernel = unsafe { (*ctx.ctx).regs.cs } & 3 == 0;
    let mut kernel_words = 0;
    if in_kernel {
        slot.sample.flags |= sample_flag::IN_KERNEL;
        if config.flags & config_flag::KERNEL != 0 {
            kernel_words = kernel_stack(ctx, slot);
        } else {
            slot.sample.kernel_end = KernelEnd::NotWalked as u8;
        }
    }
    slot.walk.python_end = PythonEnd::NotWalked as u32;
    slot.walk.native_frames = 0;
    slot.walk.python_frames = 0;
    slot.walk.stop_pc = 0;
    slot.walk.words = kernel_words;
    slot.walk.native_end = if config.flags & (config_flag::NATIVE | config_flag::PYTHON) == 0 {
        WalkEnd::NotWalked as u32
    } else {
        match user_registers(ctx, config, in_kernel, slot) {
            Ok(()) => {
                walk::user_stack(config, ids.pid, kernel_words, slot);
                slot.walk.native_end
            }
            Err(end) => end as u32,
        }
    };
    send(slot, kernel_words);
}

/// Records the kernel stack; gives the number of words.
#[inline(always)]
fn kernel_stack(ctx: &PerfEventContext, slot: &mut Scratch) -> u32 {
    const BYTES: u32 = (KERNEL_WORDS_MAX * 8) as u32;
    // SAFETY: `words` has room for BYTES.
    let bytes = unsafe { bpf_get_stack(ctx.ctx.cast(), (&raw mut slot.words).cast(), BYTES, 0) };
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

/// Finds the registers with which the thread left user mode.
#[inline(always)]
fn user_registers(
    ctx: &PerfEventContext,
    config: &Config,
    in_kernel: bool,
    slot: &mut Scratch,
) -> Result<(), WalkEnd> {
    let task = task::current();
    if in_kernel {
        if task::read::<u64>(task + u64::from(config.task_mm)) == 0 {
            slot.sample.flags |= sample_flag::KERNEL_THREAD;
            return Err(WalkEnd::NoUserStack);
        }
        // SAFETY: helpers of kernel 5.15; the task is the running one, so its registers stay where they are.
        let failed = unsafe {
            let regs = bpf_task_pt_regs(bpf_get_current_task_btf());
            bpf_probe_read_kernel((&raw mut slot.regs).cast(), size_of::<pt_regs>() as u32, regs as *const _)
        } != 0;
        if failed {
            return Err(WalkEnd::NoRegisters);
        }
        // -1 unless the thread is in a system call: then the PC follows the `syscall` instruction.
        if slot.regs.orig_rax as i64 != -1 {
            slot.sample.flags |= sample_flag::IN_SYSCALL;
        }
    } else {
        // SAFETY: the registers are part of the context.
        let r = unsafe { &(*ctx.ctx).regs };
        slot.regs = pt_regs {
            r15: r.r15,
            r14: r.r14,
            r13: r.r13,
            r12: r.r12,
            rbp: r.rbp,
            rbx: r.rbx,
            r11: r.r11,
            r10: r.r10,
            r9: r.r9,
            r8: r.r8,
            rax: r.rax,
            rcx: r.rcx,
            rdx: r.rdx,
            rsi: r.rsi,
            rdi: r.rdi,
            orig_rax: r.orig_rax,
            rip: r.rip,
            cs: r.cs,
            eflags: r.eflags,
            rsp: r.rsp,
            ss: r.ss,
        };
    }
    // __USER_CS is 0x33, __USER32_CS 0x23 (arch/x86/include/asm/segment.h).
    if slot.regs.cs == 0x23 {
        return Err(WalkEnd::CompatMode);
    }
    if slot.regs.cs & 3 != 3 {
        return Err(WalkEnd::NoRegisters);
    }
    let r = &slot.regs;
    let registers = &mut slot.walk.registers;
    registers.pc = r.rip;
    registers.sp = r.rsp;
    registers.bp = r.rbp;
    registers.exact = 1;
    registers.bp_known = 1;
    set_general(registers, r);
    slot.walk.thread_pointer = task::read::<u64>(task + u64::from(config.task_thread_pointer));
    Ok(())
}

#[inline(always)]
fn set_general(registers: &mut Registers, r: &pt_regs) {
    let general = &mut registers.general;
    general[dwarf::RAX] = r.rax;
    general[dwarf::RDX] = r.rdx;
    general[dwarf::RCX] = r.rcx;
    general[dwarf::RBX] = r.rbx;
    general[dwarf::RSI] = r.rsi;
    general[dwarf::RDI] = r.rdi;
    general[dwarf::RBP] = r.rbp;
    general[dwarf::RSP] = r.rsp;
    general[8] = r.r8;
    general[9] = r.r9;
    general[10] = r.r10;
    general[11] = r.r11;
    general[12] = r.r12;
    general[13] = r.r13;
    general[14] = r.r14;
    general[15] = r.r15;
}

/// Completes the header and hands the record over.
#[inline(always)]
fn send(slot: &mut Scratch, kernel_words: u32) {
    const WORDS_MAX: u32 = (KERNEL_WORDS_MAX + USER_WORDS_MAX) as u32;
    let words = if slot.walk.words > WORDS_MAX { WORDS_MAX } else { slot.walk.words };
    let size = size_of::<StackSample>() as u32 + words * 8;
    slot.sample.header = emit::header(kind::SAMPLE, size);
    slot.sample.kernel_words = kernel_words as u16;
    slot.sample.user_words = words.wrapping_sub(kernel_words) as u16;
    slot.sample.native_end = slot.walk.native_end as u8;
    slot.sample.python_end = slot.walk.python_end as u8;
    slot.sample.native_frames = slot.walk.native_frames as u16;
    slot.sample.python_frames = slot.walk.python_frames as u16;
    slot.sample.stop_pc = slot.walk.stop_pc;
    // SAFETY: `words` follow `sample` without a gap (asserted in `walk`), and `size` is within both.
    unsafe { emit::record(&raw const slot.sample, size, Urgency::Later) };
}
