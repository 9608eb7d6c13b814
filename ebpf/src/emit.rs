//! Emit: the only way out of the kernel programs. Numbers every record, counts every drop.

use aya_ebpf::helpers::generated::{bpf_get_smp_processor_id, bpf_ktime_get_ns, bpf_ringbuf_output};
use deepctx_common::end::Counter;
use deepctx_common::record::RecordHeader;

use crate::maps::{COUNTERS, EVENTS, SEQUENCE};

/// When user space hears of a record.
#[derive(Clone, Copy)]
pub enum Urgency {
    /// With the next drain, by timer: a wake-up per record costs 17 times the record (`BPF_RB_NO_WAKEUP`).
    Later = 1,
    /// At once (`BPF_RB_FORCE_WAKEUP`): rare records on which the next samples depend.
    Now = 2,
}

/// Adds one to a counter.
#[inline(always)]
pub fn count(counter: Counter) {
    if let Some(slot) = COUNTERS.get_ptr_mut(counter as u32) {
        // SAFETY: the slot belongs to this CPU; an interrupt that adds to it between load and store can at worst
        // happen within its own, balanced, program run, which finishes before this one goes on.
        unsafe { *slot += 1 };
    }
}

/// A header for a record of `size` bytes; uses up a sequence number.
#[inline(always)]
pub fn header(kind: u16, size: u32) -> RecordHeader {
    let mut sequence = 0;
    if let Some(slot) = SEQUENCE.get_ptr_mut(0) {
        // SAFETY: as in `count`.
        unsafe {
            *slot += 1;
            sequence = *slot;
        }
    }
    // SAFETY: helpers without arguments.
    let (cpu, time_ns) = unsafe { (bpf_get_smp_processor_id() as u16, bpf_ktime_get_ns()) };
    RecordHeader { size, kind, cpu, sequence, time_ns }
}

/// Puts the first `size` bytes at `record` into the ring buffer.
///
/// # Safety
/// `record` points to at least `size` readable bytes that begin with a [`RecordHeader`].
#[inline(always)]
pub unsafe fn record<T>(record: *const T, size: u32, urgency: Urgency) {
    let ring = (&raw const EVENTS).cast_mut().cast();
    // SAFETY: by contract of this function.
    let failed =
        unsafe { bpf_ringbuf_output(ring, record.cast_mut().cast(), u64::from(size), urgency as u64) } != 0;
    count(if failed { Counter::DropRingFull } else { Counter::RecordsEmitted });
}
