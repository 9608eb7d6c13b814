//! Ranks of one file: a deepctx-bpf export holds several, anyone else's one, or one for each process.
//!
//! Owns: which rank a row of the file is of, and how its times are shifted. Because: Chrome's form and Perfetto's say
//! it by the same header. Does not: read events.

use std::hash::Hash;

use rustc_hash::FxHashMap;

use deepctx_profile::ledger::Stage;
use deepctx_profile::trace::Trace;

use super::GROUP_RANKS_LEFT_OUT;
use super::trace_rows::TraceRows;
use crate::event_header::{EventHeader, LaneHeader, LaneOwner, RankHeader};

/// Maximum ranks of a file, as for files of a folder.
const RANKS_MAX: usize = 4096;

/// The ranks, by the id of a row in the file.
pub(super) struct Ranks<K> {
    headers: Vec<RankHeader>,
    lanes: FxHashMap<K, (usize, LaneOwner)>,
    rows: Vec<TraceRows>,
}

impl<K> Default for Ranks<K> {
    fn default() -> Self {
        Ranks { headers: Vec::new(), lanes: FxHashMap::default(), rows: vec![TraceRows::default()] }
    }
}

impl<K: Eq + Hash> Ranks<K> {
    /// Uses the header of one of our exports. Another header has no ranks.
    pub(super) fn describe(&mut self, header: EventHeader, key: impl Fn(&LaneHeader) -> K) {
        if header.ranks.is_empty() || header.ranks.len() > RANKS_MAX {
            return;
        }
        self.rows.resize_with(header.ranks.len(), TraceRows::default);
        self.rows.iter_mut().for_each(|rows| rows.has_known_categories = true);
        for lane in header.lanes {
            if lane.rank < header.ranks.len() {
                self.lanes.insert(key(&lane), (lane.rank, lane.of));
            }
        }
        self.headers = header.ranks;
    }

    /// Makes a trace for each process, of a known tool's file without a header.
    pub(super) fn split(&mut self, processes: usize) {
        if self.is_ours() || processes <= 1 {
            return;
        }
        self.rows.resize_with(processes, TraceRows::default);
        self.rows.iter_mut().for_each(|rows| rows.has_known_categories = true);
    }

    /// The rank and owner of a row, if a header states them.
    pub(super) fn lane(&self, key: &K) -> Option<(usize, &LaneOwner)> {
        self.lanes.get(key).map(|(rank, of)| (*rank, of))
    }

    /// Whether the file is one of our exports.
    pub(super) fn is_ours(&self) -> bool {
        !self.headers.is_empty()
    }

    /// Shift of the file's times against those of a rank.
    pub(super) fn shift(&self, rank: usize) -> u64 {
        self.headers.get(rank).map_or(0, |of| of.shift_ns)
    }

    /// The first rank.
    pub(super) fn rows(&mut self) -> &mut TraceRows {
        self.of(0)
    }

    /// A rank; the first one if the index is out of range.
    pub(super) fn of(&mut self, rank: usize) -> &mut TraceRows {
        let place = if rank < self.rows.len() { rank } else { 0 };
        &mut self.rows[place]
    }

    /// The traces. `describe` sets clock and rank if no header does.
    pub(super) fn finish(self, describe: impl Fn(&mut Trace)) -> Vec<Trace> {
        let headers = self.headers.into_iter().map(Some).chain(std::iter::repeat(None));
        let traces = self.rows.into_iter().zip(headers).map(|(rows, header)| {
            let mut trace = rows.finish(header.is_none());
            match header {
                Some(header) => {
                    let left_out = header.apply(&mut trace);
                    trace.ledger.gap(Stage::Decode, GROUP_RANKS_LEFT_OUT, left_out as u64);
                }
                None => describe(&mut trace),
            }
            trace
        });
        traces.collect()
    }
}
