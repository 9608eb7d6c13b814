//! The device clock relative to the host clock.
//!
//! Owns: readings of both. Because: activities have the device's times, everything else those of `CLOCK_MONOTONIC`.
//! Does not: compute an offset: listeners get all readings and their width.

use crate::probe;
use crate::session::Collection;

/// Number of readings; the narrowest is reported.
const TRIES: usize = 8;

fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one `timespec`.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// Reads and reports both clocks.
pub(crate) fn report(collection: &Collection) {
    let readings = (0..TRIES).filter_map(|_| {
        let before = monotonic_ns();
        let device = collection.timestamp()?;
        Some((device, before, monotonic_ns()))
    });
    if let Some((device, before, after)) = readings.min_by_key(|(_, before, after)| after - before) {
        probe::clock(device, before, after);
    }
}
