//! The functions that probes are put on.
//!
//! Owns: their symbols, the counter of listeners, and the only calls of them. Because: a probe costs nothing while it is
//! not there, works across containers, and hands pointers to a program in the kernel that reads what is behind them.
//! Does not: know whether anybody reads.
//!
//! Each is a `nop` and a `ret`: the kernel emulates the first, so that a probe on it is as cheap as one can be.

use std::sync::atomic::{AtomicU16, Ordering};

use deepctx_common::activity::{Activity, BATCH_MAX, state};

/// How many probes are there; the kernel counts, since each names this as its counter. It must lie in a part of the file
/// that is mapped to be written, hence the section.
#[unsafe(export_name = "deepctx_collector_listeners")]
#[unsafe(link_section = ".probes")]
static LISTENERS: AtomicU16 = AtomicU16::new(0);

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

/// How many probes listen.
pub(crate) fn listeners() -> u16 {
    LISTENERS.load(Ordering::Relaxed)
}

/// This call of the driver's got this correlation id.
pub(crate) fn correlation(id: u32, domain: u32, callback: u32) {
    deepctx_collector_correlation(id.into(), u64::from(domain) << 32 | u64::from(callback), 0);
    #[cfg(feature = "record")]
    record::push(record::Said::Correlation(id, domain, callback));
}

/// Activities, at most [`BATCH_MAX`] at once.
pub(crate) fn activities(batch: &[Activity]) {
    for batch in batch.chunks(BATCH_MAX) {
        deepctx_collector_activities(batch.as_ptr().expose_provenance() as u64, batch.len() as u64, 0);
        #[cfg(feature = "record")]
        record::push(record::Said::Activities(batch.to_vec()));
    }
}

/// The name that `id` stands for.
pub(crate) fn name(id: u64, name: &[u8]) {
    deepctx_collector_name(id, name.as_ptr().expose_provenance() as u64, name.len() as u64);
    #[cfg(feature = "record")]
    record::push(record::Said::Name(id, name.to_vec()));
}

/// The device's clock was read between two readings of `CLOCK_MONOTONIC`.
pub(crate) fn clock(device_ns: u64, before_ns: u64, after_ns: u64) {
    deepctx_collector_clock(device_ns, before_ns, after_ns);
    #[cfg(feature = "record")]
    record::push(record::Said::Clock(device_ns, before_ns, after_ns));
}

/// How the collection stands: one of [`state`], and its number.
pub(crate) fn state(state: u64, number: u64) {
    debug_assert!((state::COLLECTING..=state::SKIPPED).contains(&state));
    deepctx_collector_state(state, number, 0);
    #[cfg(feature = "record")]
    record::push(record::Said::State(state, number));
}

/// What was said, kept for tests: a listener without a kernel.
#[cfg(feature = "record")]
pub mod record {
    use std::sync::{Mutex, PoisonError};

    use deepctx_common::activity::Activity;

    /// One message.
    #[derive(Clone, Debug, PartialEq)]
    pub enum Said {
        /// Id, domain, callback id.
        Correlation(u32, u32, u32),
        /// A batch.
        Activities(Vec<Activity>),
        /// Id, name.
        Name(u64, Vec<u8>),
        /// Device's time, before, after.
        Clock(u64, u64, u64),
        /// State, number.
        State(u64, u64),
    }

    static SAID: Mutex<Vec<Said>> = Mutex::new(Vec::new());

    pub(super) fn push(said: Said) {
        SAID.lock().unwrap_or_else(PoisonError::into_inner).push(said);
    }

    /// All that was said so far.
    pub fn said() -> Vec<Said> {
        SAID.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Raises or lowers the counter, as the kernel does.
    pub fn listen(listeners: u16) {
        super::LISTENERS.store(listeners, std::sync::atomic::Ordering::Relaxed);
    }
}
