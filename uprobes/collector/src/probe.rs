//! The functions that probes are put on.
//!
//! Owns: their symbols, the counter of listeners, and the only calls of them. Because: a probe costs nothing while it
//! is not there, works across containers, and passes pointers to a program in the kernel that reads what they point to.
//! Does not: know whether anything is read.
//!
//! Each is a `nop` and a `ret`: the kernel emulates the first, so that a probe on it is as cheap as one can be.

use std::sync::atomic::{AtomicU16, Ordering};

use deepctx_common::activity::{Activity, BATCH_MAX, state};
use deepctx_common::device::Device;
use deepctx_common::samples::{Cubin, Sample, part};

/// A counter that the kernel increments, alone in its page of the file.
///
/// Because the kernel finds a counter by its file offset, in the first writable mapping of that page
/// (`valid_ref_ctr_vma`, kernel/events/uprobes.c). The linker may put the end of one segment and the start of the next
/// into one page, which is then mapped twice; until relocation is done, the first mapping may be writable as well. If
/// the process loads this library while probes exist, the kernel would increment the wrong counter.
#[repr(C)]
#[cfg_attr(target_arch = "x86_64", repr(align(4096)))]
#[cfg_attr(not(target_arch = "x86_64"), repr(align(65536)))]
struct Counter(AtomicU16);

/// Number of attached probes. The kernel counts them, since each probe names this as its reference counter. It must lie
/// in a writable part of the file, hence the section.
#[unsafe(export_name = "deepctx_collector_listeners")]
#[unsafe(link_section = ".probes")]
static LISTENERS: Counter = Counter(AtomicU16::new(0));

/// Number of listeners that want instruction samples.
#[unsafe(export_name = "deepctx_collector_samplers")]
#[unsafe(link_section = ".probes")]
static SAMPLERS: Counter = Counter(AtomicU16::new(0));

macro_rules! probe {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        extern "C" fn $name(_: u64, _: u64, _: u64) {
            core::arch::naked_asm!("nop", "ret")
        }
    };
}

probe!(deepctx_collector_correlation);
probe!(deepctx_collector_activities);
probe!(deepctx_collector_name);
probe!(deepctx_collector_clock);
probe!(deepctx_collector_state);
probe!(deepctx_collector_node);
probe!(deepctx_collector_samples);
probe!(deepctx_collector_device);

/// Number of attached probes.
pub(crate) fn listeners() -> u16 {
    LISTENERS.0.load(Ordering::Relaxed)
}

/// Number of listeners that want instruction samples.
pub(crate) fn samplers() -> u16 {
    SAMPLERS.0.load(Ordering::Relaxed)
}

/// Reports the correlation id of this driver call.
pub(crate) fn correlation(id: u32, domain: u32, callback: u32) {
    deepctx_collector_correlation(id.into(), u64::from(domain) << 32 | u64::from(callback), 0);
}

/// Reports activities, at most [`BATCH_MAX`] at once.
pub(crate) fn activities(batch: &[Activity]) {
    for batch in batch.chunks(BATCH_MAX) {
        deepctx_collector_activities(batch.as_ptr().expose_provenance() as u64, batch.len() as u64, 0);
    }
}

/// Reports the name with this `id`.
pub(crate) fn name(id: u64, name: &[u8]) {
    deepctx_collector_name(id, name.as_ptr().expose_provenance() as u64, name.len() as u64);
}

/// Reports the device's clock, read between two readings of `CLOCK_MONOTONIC`.
pub(crate) fn clock(device_ns: u64, before_ns: u64, after_ns: u64) {
    deepctx_collector_clock(device_ns, before_ns, after_ns);
}

/// Reports that this thread created a graph node, or cloned `of` if that is not 0.
pub(crate) fn node(number: u64, of: u64, kind: u32) {
    deepctx_collector_node(number, of, kind.into());
}

/// Reports a device of this process.
pub(crate) fn device(device: &Device) {
    deepctx_collector_device(0, (&raw const *device).expose_provenance() as u64, size_of::<Device>() as u64);
}

/// Reports the state of the collection: one of [`mod@state`], and its number.
pub(crate) fn state(state: u64, number: u64) {
    debug_assert!((state::COLLECTING..=state::CUBINS_LEFT).contains(&state));
    deepctx_collector_state(state, number, 0);
}

/// Reports instruction samples, at most [`deepctx_common::samples::BATCH_MAX`].
pub(crate) fn samples(batch: &[Sample]) {
    sampled(part::BATCH, 0, batch.as_ptr().expose_provenance(), size_of_val(batch));
}

/// Reports the name of a stall reason.
pub(crate) fn reason(number: u32, name: &str) {
    sampled(part::REASON, number, name.as_ptr().expose_provenance(), name.len());
}

/// Reports device code that can be read.
pub(crate) fn cubin(cubin: &Cubin) {
    sampled(part::CUBIN, 0, (&raw const *cubin).expose_provenance(), size_of::<Cubin>());
}

fn sampled(part: u32, number: u32, address: usize, bytes: usize) {
    deepctx_collector_samples(u64::from(part) << 32 | u64::from(number), address as u64, bytes as u64);
}
