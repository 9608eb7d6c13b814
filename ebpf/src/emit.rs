//! Emit: the single exit of the kernel programs. Numbers every record, counts every drop.

use core::intrinsics::{AtomicOrdering, atomic_xadd};

use aya_ebpf::helpers::generated::{
    bpf_get_smp_processor_id, bpf_ktime_get_ns, bpf_ringbuf_output, bpf_ringbuf_query,
};
use deepctx_common::end::Counter;
use deepctx_common::record::RecordHeader;

use crate::maps::{COUNTERS, EVENTS, SEQUENCE, WOKEN};

/// When user space is notified of a record.
#[derive(Clone, Copy)]
pub enum Urgency {
    /// With the next timed drain: a wake-up per record costs 17 times as much as the record (`BPF_RB_NO_WAKEUP`).
    Later = 1,
    /// Immediately (`BPF_RB_FORCE_WAKEUP`): for rare records on which the next samples depend.
    Now = 2,
}

/// Minimum time between two wake-ups of one CPU because the ring fills: the reader takes this long to drain it.
const WAKE_NS: u64 = 1_000_000;

/// Eighths of the ring that calls and messages may fill. The rest is reserved, so that a process that floods the ring
/// with calls costs no sample.
pub const OF_CALLS: u64 = 6;
/// The same for mappings, which the walks of later samples need.
pub const OF_MAPPINGS: u64 = 7;

/// Urgency of a record that a process can cause at any rate; such records may fill `eighths` of the ring. User space is
/// woken once a quarter is full. `None`: there is no room left for them.
#[inline(always)]
pub fn as_it_fills(now: u64, eighths: u64) -> Option<Urgency> {
    /// `BPF_RB_AVAIL_DATA`, `BPF_RB_RING_SIZE`
    const AVAILABLE: u64 = 0;
    const SIZE: u64 = 1;
    let ring: *mut core::ffi::c_void = (&raw const EVENTS).cast_mut().cast();
    // SAFETY: these helpers take the address of a ring buffer map.
    let (bytes, size) = unsafe { (bpf_ringbuf_query(ring, AVAILABLE), bpf_ringbuf_query(ring, SIZE)) };
    if bytes < size / 4 {
        return Some(Urgency::Later);
    }
    if bytes >= size / 8 * eighths {
        return None;
    }
    let Some(last) = WOKEN.get_ptr_mut(0) else { return Some(Urgency::Later) };
    // SAFETY: the slot belongs to this CPU; an interrupting program at worst causes one more wake-up.
    unsafe {
        if now.wrapping_sub(*last) < WAKE_NS {
            return Some(Urgency::Later);
        }
        *last = now;
    }
    Some(Urgency::Now)
}

/// Adds to a number in a map and returns its previous value. Atomic, even if the number belongs to this CPU: a timer
/// may interrupt a program at a probe, and another thread with a probe may preempt it.
#[inline(always)]
pub fn add(number: *mut u64, more: u64) -> u64 {
    // SAFETY: the callers pass map values. The intrinsic, because the target's `AtomicU64` lacks this operation
    // although the instruction set has it from v3 on. Not `Relaxed`: for that the compiler emits the instruction
    // without a result.
    unsafe { atomic_xadd::<u64, u64, { AtomicOrdering::SeqCst }>(number, more) }
}

/// Adds one to a counter.
#[inline(always)]
pub fn count(counter: Counter) {
    if let Some(slot) = COUNTERS.get_ptr_mut(counter as u32) {
        add(slot, 1);
    }
}

/// A header for a record of `size` bytes; uses up a sequence number.
#[inline(always)]
pub fn header(kind: u16, size: u32) -> RecordHeader {
    let mut sequence = 0;
    if let Some(slot) = SEQUENCE.get_ptr_mut(0) {
        sequence = add(slot, 1) + 1;
    }
    // SAFETY: helpers without arguments.
    let (cpu, time_ns) = unsafe { (bpf_get_smp_processor_id() as u16, bpf_ktime_get_ns()) };
    RecordHeader { size, kind, cpu, sequence, time_ns }
}

/// Copies the first `size` bytes at `record` into the ring buffer; without an urgency the record is dropped, because
/// there is no room.
///
/// # Safety
/// `record` points to at least `size` readable bytes that begin with a [`RecordHeader`].
#[inline(always)]
pub unsafe fn record<T>(record: *const T, size: u32, urgency: Option<Urgency>) {
    let Some(urgency) = urgency else {
        count(Counter::DropRingFull);
        return;
    };
    let ring = (&raw const EVENTS).cast_mut().cast();
    // SAFETY: by contract of this function.
    let failed =
        unsafe { bpf_ringbuf_output(ring, record.cast_mut().cast(), u64::from(size), urgency as u64) } != 0;
    count(if failed { Counter::DropRingFull } else { Counter::RecordsEmitted });
}
