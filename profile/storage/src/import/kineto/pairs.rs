//! Begins and ends: events whose ends are events of their own.
//!
//! Owns: [`Pairs`]. Because: Horovod, browsers and hand-written tracers write them so (`B`, `E`), and they need not be
//! in order in the file. Does not: read fields of events.
//!
//! An end without a name is the innermost begin's. One with a name is that of the innermost begin with this name: those
//! within have lost their ends.

use std::borrow::Cow;

use rustc_hash::FxHashMap;
use serde_json::value::RawValue;

use deepctx_profile::trace::TraceTime;

/// A begin or an end.
pub(super) struct Half<'b> {
    /// Index of its rank.
    pub(super) rank: usize,
    pub(super) at: TraceTime,
    /// Empty if it has none, as most ends.
    pub(super) name: Cow<'b, str>,
    /// `None` for an end.
    pub(super) begins: Option<Begun<'b>>,
}

/// What a begin says.
pub(super) struct Begun<'b> {
    pub(super) category: Cow<'b, str>,
    pub(super) args: Option<&'b RawValue>,
    /// Ids of its row.
    pub(super) row: (Option<u64>, Option<u64>),
}

/// A begin with its end.
pub(super) struct Pair<'b> {
    pub(super) rank: usize,
    pub(super) begin: TraceTime,
    pub(super) end: TraceTime,
    pub(super) name: Cow<'b, str>,
    pub(super) of: Begun<'b>,
}

/// Open ranges among which that of an end's name is looked for.
const LOOK_BACK: usize = 64;

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

    /// Joins each end with a begin of its row. At the same time, the order of the file counts.
    pub(super) fn join(self) -> impl Iterator<Item = PairedRow<'b>> {
        self.halves.into_iter().map(|(row, halves)| join_row(row, halves))
    }
}

fn join_row(row: Row, mut halves: Vec<Half<'_>>) -> PairedRow<'_> {
    halves.sort_by_key(|half| half.at);
    let mut begun: Vec<(Pair<'_>, bool)> = Vec::new();
    let mut open = Open::default();
    let mut without_begin = 0;
    for Half { rank, at, name, begins } in halves {
        if let Some(of) = begins {
            open.begins.push(begun.len());
            begun.push((Pair { rank, begin: at, end: at, name, of }, false));
            continue;
        }
        let begin = open.end(at, |begin| name.is_empty() || begun[begin].0.name == name);
        match begin.and_then(|begin| begun.get_mut(begin)) {
            Some((pair, has_end)) => (pair.end, *has_end) = (at, true),
            None => without_begin += 1,
        }
    }
    let without_end = begun.iter().filter(|(_, has_end)| !has_end).count();
    let ended = begun.into_iter().filter_map(|(pair, has_end)| has_end.then_some(pair));
    PairedRow { row, pairs: ended.collect(), without_end, without_begin }
}

/// Begins of a row whose ends have not come, from the outermost to the innermost.
#[derive(Default)]
struct Open {
    begins: Vec<usize>,
    /// Those within a range that ended at this time: their own ends were lost, or have the same time and come later in
    /// the file.
    passed: Vec<usize>,
    passed_at: TraceTime,
}

impl Open {
    /// Removes and returns the innermost begin that this end may be of.
    fn end(&mut self, at: TraceTime, is_of: impl Fn(usize) -> bool) -> Option<usize> {
        let innermost = |of: &[usize]| {
            let within = of.iter().rev().take(LOOK_BACK).position(|begin| is_of(*begin))?;
            Some(of.len() - 1 - within)
        };
        if self.passed_at != at {
            self.passed.clear();
        } else if let Some(place) = innermost(&self.passed) {
            return Some(self.passed.remove(place));
        }
        let place = innermost(&self.begins)?;
        self.passed.extend(self.begins.drain(place + 1..));
        self.passed_at = at;
        self.begins.pop()
    }
}
