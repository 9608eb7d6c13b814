//! Sample: one timer tick on one CPU becomes one record with the kernel, native and Python stack.

use aya_ebpf::EbpfContext as _;
use aya_ebpf::macros::perf_event;
use aya_ebpf::programs::PerfEventContext;
use deepctx_common::config::{Config, config_flag};
use deepctx_common::end::{Counter, KernelEnd};
use deepctx_common::record::{kind, sample_flag};

use crate::emit;
use crate::maps::config;
use crate::task::Ids;
use crate::walk::{self, Scratch};
use crate::{arch, filter, stack, task};

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
        // Uses up a sequence number, so that user space sees the gap too.
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

/// Fills the record in `slot` and emits it.
#[inline(always)]
fn take(ctx: &PerfEventContext, config: &Config, ids: Ids, slot: &mut Scratch) {
    // SAFETY: the context of a perf event program is readable, and the registers are part of it.
    let (period, regs) = unsafe { ((*ctx.ctx).sample_period, &(*ctx.ctx).regs) };
    let in_kernel = arch::in_kernel(regs);
    stack::begin(slot, ids, period, if in_kernel { sample_flag::IN_KERNEL } else { 0 });
    let mut kernel_words = 0;
    let registers = if in_kernel {
        if config.flags & config_flag::KERNEL != 0 {
            kernel_words = stack::kernel(ctx.as_ptr(), slot);
        } else {
            slot.sample.kernel_end = KernelEnd::NotWalked as u8;
        }
        stack::registers_at_entry(config, slot)
    } else {
        arch::copy(&mut slot.regs, regs);
        stack::take_registers(config, slot)
    };
    stack::user(config, config.flags, ids.pid, kernel_words, registers, slot);
    stack::send(kind::SAMPLE, slot, kernel_words);
}
