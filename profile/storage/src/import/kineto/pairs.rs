//! Begins and ends: events whose ends are events of their own.
//!
//! Owns: [`Pairs`]. Because: Horovod, browsers and hand-written tracers write them so (`B`, `E`), and they need not be
//! in order in the file. Does not: read fields of events.

use std::borrow::Cow;

use rustc_hash::FxHashMap;
use serde_json::value::RawValue;

use deepctx_profile::trace::TraceTime;

/// A begin or an end.
pub(super) struct Half<'b> {
    /// Index of its rank.
    pub(super) rank: usize,
    pub(super) at: TraceTime,
    /// `None` for an end.
    pub(super) begins: Option<Begun<'b>>,
}

/// What a begin says.
pub(super) struct Begun<'b> {
    pub(super) category: Cow<'b, str>,
    pub(super) name: Cow<'b, str>,
    pub(super) args: Option<&'b RawValue>,
    /// Ids of its row.
    pub(super) row: (Option<u64>, Option<u64>),
}

/// A begin with its end.
pub(super) struct Pair<'b> {
    pub(super) rank: usize,
    pub(super) begin: TraceTime,
    pub(super) end: TraceTime,
    pub(super) of: Begun<'b>,
}

/// Process and thread.
type Row = (String, String);

/// The begins and ends of a file, by row.
#[derive(Default)]
pub(super) struct Pairs<'b> {
    rows: FxHashMap<Row, usize>,
    /// By row, in the order of the file.
    halves: Vec<(Row, Vec<Half<'b>>)>,
}

/// The content of one row.
pub(super) struct PairedRow<'b> {
    pub(super) row: Row,
    /// In the order of their begins: of two with the same begin and end, the first one encloses the other.
    pub(super) pairs: Vec<Pair<'b>>,
    pub(super) without_end: usize,
    pub(super) without_begin: usize,
}

impl<'b> Pairs<'b> {
    pub(super) fn push(&mut self, row: Row, half: Half<'b>) {
        let place = *self.rows.entry(row).or_insert_with_key(|row| {
            self.halves.push((row.clone(), Vec::new()));
            self.halves.len() - 1
        });
        self.halves[place].1.push(half);
    }

    /// Joins each end with the last open begin of its row. At the same time, the order of the file counts.
    pub(super) fn join(self) -> impl Iterator<Item = PairedRow<'b>> {
        self.halves.into_iter().map(|(row, mut halves)| {
            halves.sort_by_key(|half| half.at);
            let (mut begun, mut open) = (Vec::new(), Vec::new());
            let mut without_begin = 0;
            for Half { rank, at, begins } in halves {
                match (begins, open.pop()) {
                    (Some(of), last) => {
                        open.extend(last);
                        open.push(begun.len());
                        begun.push((Pair { rank, begin: at, end: at, of }, false));
                    }
                    (None, Some(begin)) => {
                        let (pair, has_end): &mut (Pair<'_>, bool) = &mut begun[begin];
                        (pair.end, *has_end) = (at, true);
                    }
                    (None, None) => without_begin += 1,
                }
            }
            let ended = begun.into_iter().filter_map(|(pair, has_end)| has_end.then_some(pair));
            PairedRow { row, pairs: ended.collect(), without_end: open.len(), without_begin }
        })
    }
}
