//! Clock: the time base of all events.
//!
//! Owns: reading `CLOCK_MONOTONIC`, which `bpf_ktime_get_ns` reads in the kernel. Because: user space must stamp what
//! it finds (mappings) with the same clock as samples. Does not: convert between clocks.

use rustix::time::{ClockId, clock_gettime};

/// Now, nanoseconds of `CLOCK_MONOTONIC`.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// Logs the time since the start: a user waits for it.
pub(super) fn log_progress(began_ns: u64, step: &str) {
    let milliseconds = monotonic_ns().saturating_sub(began_ns) as f64 / 1e6;
    tracing::debug!("start: {step} after {milliseconds:.1} ms");
}
