//! Site table: the numbers of probes, and what the kernel programs know about each.
//!
//! Owns: the map `SITES`. Because: a site must be in the map before its probe is attached, and may change while the
//! probe is attached. Does not: decide what a site does (`sites`), or which numbers are free (`site_numbers`).

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use deepctx_common::Plain as _;
use deepctx_common::call::{self, site_flag};
use deepctx_events::Event;
use libbpf_rs::{MapCore as _, MapFlags, MapHandle};

use super::files::FileId;
use super::site_numbers::{RefusedSites, SiteNumbers};
use crate::sites;

/// A probed call.
struct CallSite {
    index: u32,
    site: call::Site,
    event: Event,
}

/// The sites in use.
pub(super) struct SiteTable {
    map: MapHandle,
    counts: MapHandle,
    numbers: SiteNumbers,
    /// Sites of calls: they change when a collector appears.
    calls: Vec<CallSite>,
    /// Sites at which collectors report correlation ids.
    correlations: Vec<(u32, call::Site)>,
}

impl SiteTable {
    /// An empty table. `counts`: the map of how often each site was reached. `used` is raised to the sites ever used.
    pub(super) fn new(map: MapHandle, counts: MapHandle, used: Arc<AtomicU32>) -> Self {
        let numbers = SiteNumbers::new(used);
        Self { map, counts, numbers, calls: Vec::new(), correlations: Vec::new() }
    }

    /// A number for a site of a file charged to this user; `None` if all are in use, or most of them by this user.
    pub(super) fn number(&mut self, file: FileId, account: u32) -> Option<u32> {
        self.numbers.take(file, account)
    }

    /// Whether a file has sites.
    pub(super) fn has(&self, file: FileId) -> bool {
        self.numbers.has(file)
    }

    /// The probes of a file are gone.
    pub(super) fn give(&mut self, file: FileId, now_ns: u64) {
        let mut numbers = self.numbers.give(file, now_ns);
        numbers.sort_unstable();
        let is_gone = |index: &u32| numbers.binary_search(index).is_ok();
        self.calls.retain(|call| !is_gone(&call.index));
        self.correlations.retain(|(index, _)| !is_gone(index));
    }

    /// Numbers that are free from now on. None of their records is still expected, and readers of records must learn of
    /// it before [`SiteTable::number`] returns them again.
    pub(super) fn settle(&mut self, now_ns: u64) -> Vec<u32> {
        self.numbers.settle(now_ns)
    }

    /// Resets the counts of these numbers.
    pub(super) fn reset_counts(&self, numbers: &[u32]) {
        for number in numbers {
            if let Err(error) = self.counts.update(number.as_bytes(), 0u64.as_bytes(), MapFlags::ANY) {
                tracing::warn!(%error, number, "calls of a site are not counted from 0");
            }
        }
    }

    /// Writes a site; false if the kernel refuses.
    pub(super) fn write(&mut self, index: u32, site: &call::Site) -> bool {
        let written = self.map.update(index.as_bytes(), site.as_bytes(), MapFlags::ANY);
        if let Err(error) = &written {
            self.numbers.leave_out();
            tracing::warn!(%error, index, "a site cannot be written");
        }
        written.is_ok()
    }

    /// Marks a site as one of a call.
    pub(super) fn add_call(&mut self, index: u32, site: call::Site, event: Event) {
        self.calls.push(CallSite { index, site, event });
    }

    /// Marks a site at which collectors report correlation ids.
    pub(super) fn add_correlation(&mut self, index: u32, site: call::Site) {
        self.correlations.push((index, site));
    }

    /// From now on launches are remembered until their id comes.
    pub(super) fn expect_correlations(&mut self) {
        let calls = std::mem::take(&mut self.calls);
        for CallSite { index, site, event } in &calls {
            self.write(*index, &sites::with_correlation(*site, *event));
        }
        self.calls = calls;
    }

    /// Calls are not recorded from now on.
    pub(super) fn mute_calls(&self) {
        self.mute(self.calls.iter().map(|call| (call.index, call.site)));
    }

    /// Correlation ids are not recorded from now on.
    pub(super) fn mute_correlations(&self) {
        self.mute(self.correlations.iter().copied());
    }

    /// Probes that were left out.
    pub(super) fn refused(&self) -> RefusedSites {
        self.numbers.refused()
    }

    /// Sets the counts of probes that were left out.
    pub(super) fn set_refused(&mut self, counted: RefusedSites) {
        self.numbers.set_refused(counted);
    }

    /// Mutes these with one system call: the first and the last are muted at almost the same time.
    fn mute(&self, sites: impl Iterator<Item = (u32, call::Site)>) {
        let muted =
            sites.map(|(index, site)| (index, call::Site { flags: site.flags | site_flag::MUTE, ..site }));
        let muted: Vec<(u32, call::Site)> = muted.collect();
        if muted.is_empty() {
            return;
        }
        let keys: Vec<u8> = muted.iter().flat_map(|(index, _)| index.as_bytes()).copied().collect();
        let values: Vec<u8> = muted.iter().flat_map(|(_, site)| site.as_bytes()).copied().collect();
        let count = muted.len() as u32;
        let Err(error) = self.map.update_batch(&keys, &values, count, MapFlags::ANY, MapFlags::ANY) else {
            return;
        };
        tracing::debug!(%error, "sites are muted one after another");
        for (index, site) in &muted {
            if let Err(error) = self.map.update(index.as_bytes(), site.as_bytes(), MapFlags::ANY) {
                tracing::warn!(%error, index, "a site cannot be muted");
            }
        }
    }
}
