//! Kernel counts: what the kernel programs have counted, as last read.
//!
//! Owns: reading their counters and those of the probes. Because: records are compared with these counts, so that a
//! count that cannot be read for once must not become zero, and hide what is missing. Does not: compare.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use deepctx_common::Plain as _;
use deepctx_common::end::Counter;
use libbpf_rs::{MapCore as _, MapFlags, MapHandle};

/// Totals of the kernel programs' counters. Clones share the last ones.
#[derive(Clone, Debug)]
pub(super) struct KernelCounters {
    map: Arc<MapHandle>,
    last: Arc<Mutex<CounterTotals>>,
}

/// By [`Counter`] number.
type CounterTotals = [u64; Counter::ALL.len()];

impl KernelCounters {
    /// Reads from this map.
    pub(super) fn new(map: MapHandle) -> Self {
        Self { map: Arc::new(map), last: Arc::new(Mutex::new([0; Counter::ALL.len()])) }
    }

    /// Sums over all CPUs.
    pub(super) fn totals(&self) -> CounterTotals {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        update_totals(&mut last, |counter| {
            let key = u32::from(counter as u8);
            let values = self.map.lookup_percpu(key.as_bytes(), MapFlags::ANY).ok().flatten()?;
            Some(values.iter().filter_map(|value| u64::read_from(value)).sum())
        });
        *last
    }
}

/// Reads all counters. One that cannot be read keeps its value: with a zero, records would be missing unnoticed.
fn update_totals(totals: &mut CounterTotals, read: impl Fn(Counter) -> Option<u64>) {
    // Counters of outcomes are read before those of arrivals: records that come meanwhile have no outcome yet.
    for arrivals in [false, true] {
        for counter in Counter::ALL.iter().filter(|counter| is_of_arrivals(**counter) == arrivals) {
            if let Some(value) = read(*counter) {
                totals[*counter as usize] = value;
            }
        }
    }
}

/// Whether it counts arrivals, not outcomes.
fn is_of_arrivals(counter: Counter) -> bool {
    matches!(
        counter,
        Counter::SamplesSeen | Counter::ProcessEventsSeen | Counter::WaitsSeen | Counter::CallsSeen
    )
}

/// Calls of each probe, counted where none can be lost.
#[derive(Clone, Debug)]
pub(super) struct SiteCounts {
    /// `SITE_COUNTS`.
    pub(super) map: Arc<MapHandle>,
    /// Number of sites so far.
    pub(super) sites: Arc<AtomicU32>,
}

impl SiteCounts {
    /// Updates the calls so far, by site.
    pub(super) fn update(&self, counts: &mut Vec<u64>) {
        let sites = self.sites.load(Ordering::Acquire);
        if sites == 0 {
            return;
        }
        match self.map.lookup_batch(sites, MapFlags::ANY, MapFlags::ANY) {
            Ok(all) => {
                let number =
                    |(key, value): (Vec<u8>, Vec<u8>)| Some((u32::read_from(&key)?, u64::read_from(&value)?));
                update_counts(counts, sites as usize, all.take(sites as usize).filter_map(number));
            }
            Err(error) => tracing::debug!(%error, "calls cannot be counted"),
        }
    }
}

/// Takes over the counts that were read. Those that were not stay: with a zero, calls would be missing unnoticed.
fn update_counts(counts: &mut Vec<u64>, sites: usize, read: impl Iterator<Item = (u32, u64)>) {
    counts.resize(counts.len().max(sites), 0);
    for (site, count) in read {
        if let Some(place) = counts.get_mut(site as usize) {
            *place = count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_that_cannot_be_read_keep_their_values() {
        let mut totals = [7; Counter::ALL.len()];
        update_totals(&mut totals, |counter| (counter as usize == Counter::CallsSeen as usize).then_some(9));
        assert_eq!(totals[Counter::CallsSeen as usize], 9);
        assert_eq!(totals.iter().filter(|total| **total == 7).count(), totals.len() - 1);

        let mut counts = vec![5, 6];
        update_counts(&mut counts, 3, [(0, 8), (9, 1)].into_iter());
        assert_eq!(counts, [8, 6, 0]);
    }
}
