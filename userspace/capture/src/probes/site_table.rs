//! Site table: the numbers of probes, and what the programs in the kernel know of each.
//!
//! Owns: the map `SITES`. Because: a site must be in the map before its probe is attached, and is changed while the
//! probe is there. Does not: decide what a site does (`sites`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use deepctx_common::Plain as _;
use deepctx_common::call::{self, SITES_MAX, site_flag};
use deepctx_events::Event;
use deepctx_symbolizer::shares::Shares;
use libbpf_rs::{MapCore as _, MapFlags, MapHandle};

use crate::sites;
use crate::table_shares::{MULTIPLE, may_have};

/// A call that is probed.
struct CallSite {
    index: u32,
    site: call::Site,
    event: Event,
}

/// The sites that are in use.
pub(super) struct SiteTable {
    map: MapHandle,
    used: Arc<AtomicU32>,
    /// Sites of calls: they change when a collector comes.
    calls: Vec<CallSite>,
    /// Sites at which collectors give calls their ids.
    correlations: Vec<(u32, call::Site)>,
    shares: Shares,
    /// Probes without a site.
    left_out: u64,
    over_share: u64,
}

impl SiteTable {
    /// An empty table. `used` is raised with each site.
    pub(super) fn new(map: MapHandle, used: Arc<AtomicU32>) -> Self {
        let shares = Shares::new(SITES_MAX as usize, MULTIPLE);
        Self { map, used, calls: Vec::new(), correlations: Vec::new(), shares, left_out: 0, over_share: 0 }
    }

    /// A number for a site of a file for which this user answers; `None` when all are in use, or most of them by this
    /// user. Sites are never given back: records that are on their way name them.
    pub(super) fn number(&mut self, account: u32) -> Option<u32> {
        let index = self.used.load(Ordering::Relaxed);
        if index >= SITES_MAX {
            self.left_out += 1;
            return None;
        }
        if !may_have(&self.shares, account, 1) {
            self.over_share += 1;
            return None;
        }
        self.shares.charge(account, 1);
        self.used.store(index + 1, Ordering::Relaxed);
        Some(index)
    }

    /// Writes a site; false when the kernel refuses.
    pub(super) fn write(&mut self, index: u32, site: &call::Site) -> bool {
        let written = self.map.update(index.as_bytes(), site.as_bytes(), MapFlags::ANY);
        if let Err(error) = &written {
            self.left_out += 1;
            tracing::warn!(%error, index, "a site cannot be written");
        }
        written.is_ok()
    }

    /// Notes that a site is one of a call.
    pub(super) fn add_call(&mut self, index: u32, site: call::Site, event: Event) {
        self.calls.push(CallSite { index, site, event });
    }

    /// Notes that collectors give calls their ids at a site.
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

    /// From now on calls are not recorded.
    pub(super) fn mute_calls(&self) {
        for CallSite { index, site, .. } in &self.calls {
            self.mute(*index, *site);
        }
    }

    /// From now on ids of calls are not recorded.
    pub(super) fn mute_correlations(&self) {
        for (index, site) in &self.correlations {
            self.mute(*index, *site);
        }
    }

    /// Probes that were left out for want of a site.
    pub(super) fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Probes that were left out since their user has most of the sites.
    pub(super) fn over_share(&self) -> u64 {
        self.over_share
    }

    fn mute(&self, index: u32, site: call::Site) {
        let muted = call::Site { flags: site.flags | site_flag::MUTE, ..site };
        if let Err(error) = self.map.update(index.as_bytes(), muted.as_bytes(), MapFlags::ANY) {
            tracing::warn!(%error, index, "a site cannot be muted");
        }
    }
}
