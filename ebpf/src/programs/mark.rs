//! Mark: a byte was used that a hardware watchpoint watches, which is told as a call, with its stack.

use aya_ebpf::macros::perf_event;
use aya_ebpf::programs::PerfEventContext;
use deepctx_common::call::Call;
use deepctx_common::config::Config;
use deepctx_common::end::{Counter, KernelEnd};
use deepctx_common::record::kind;
use deepctx_common::watch::WatchPlace;

use super::call::{halves, send};
use crate::maps::{SITE_COUNTS, SITES, WATCHES, config};
use crate::task::Ids;
use crate::walk::{self, Scratch};
use crate::{arch, emit, stack, task};

/// What is told of a use.
#[derive(Clone, Copy)]
struct Use {
    site: u32,
    event: u16,
    object: u64,
}

/// A watched byte was used, by code in user space.
#[perf_event]
pub fn mark(ctx: PerfEventContext) -> u32 {
    let config = config();
    let Some(ids) = task::current_ids(config) else { return 0 };
    // SAFETY: the context of a perf event program is readable.
    let address = unsafe { (*ctx.ctx).addr };
    // Only what belongs to targets is there.
    let Some(watch) = WATCHES.get_ptr_mut(&WatchPlace { address, pid: ids.pid, reserved: 0 }) else {
        return 0;
    };
    // SAFETY: a map value; what is read of it stays as long as it is there.
    let (hits, site, object) = unsafe { (&raw mut (*watch).hits, (*watch).site, (*watch).object) };
    // Before anything can be lost.
    emit::add(hits, 1);
    if let Some(count) = SITE_COUNTS.get_ptr_mut(site) {
        emit::add(count, 1);
    }
    emit::count(Counter::CallsSeen);
    let Some(scratch) = walk::claim() else {
        // Uses up a sequence number, so that the gap is seen downstream too.
        emit::header(kind::CALL, 0);
        emit::count(Counter::DropScratchBusy);
        return 0;
    };
    // SAFETY: the slot was claimed for this run; nothing else on this CPU touches it until it is released.
    let slot = unsafe { &mut *scratch };
    let event = SITES.get(site).map_or(0, |site| site.event);
    take(&ctx, config, ids, Use { site, event, object }, slot);
    walk::release(scratch);
    0
}

/// Fills the record in `slot` and sends it.
#[inline(always)]
fn take(ctx: &PerfEventContext, config: &Config, ids: Ids, found: Use, slot: &mut Scratch) {
    stack::begin(slot, ids, 0, 0);
    slot.sample.header = emit::header(kind::CALL, 0);
    slot.sample.period = u64::from(slot.sample.header.cpu) << 48 | slot.sample.header.sequence;
    slot.sample.kernel_end = KernelEnd::Complete as u8;
    slot.arguments[0] = found.object;
    // SAFETY: the context of a perf event program is readable, and the registers are part of it: those of user space, where
    // alone watchpoints count.
    arch::copy(&mut slot.regs, unsafe { &(*ctx.ctx).regs });
    let registers = stack::take_registers(config, slot);
    stack::user(config, config.flags, ids.pid, 0, registers, slot);
    let words = stack::finish(slot, 0);
    let call = Call { site: found.site, event: found.event, arguments: 1, ..Call::default() };
    let [first, second] = halves(&call);
    send(slot, words, first, second, 0);
}
