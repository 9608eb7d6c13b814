//! Changes: a comparison as tables.
//!
//! Owns: the rows, and their serialized form. Because: text and JSON must list the same changes. Does not: compare.

use deepctx_profile::frame::{FrameKind, short_labels};
use deepctx_profile::metric::Unit;
use serde::{Serialize, Serializer};

use super::growth::TotalChange;
use super::options::OptionChange;
use crate::amount::Amount;

/// Below this share of matched values on both sides, a note says that the profiles have little in common.
const MATCHED_LEAST: f64 = 0.1;

/// What changed between two profiles.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Changes {
    /// [`crate::SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Name of the metric.
    pub metric: &'static str,
    /// Unit of its values.
    #[serde(skip)]
    pub unit: Unit,
    /// The profile that was compared with.
    pub before: SideTotal,
    /// The profile that was compared.
    pub after: SideTotal,
    /// How much the total changed.
    pub total: TotalChange,
    /// Share of each side in contexts that both have.
    pub matched: MatchedValues,
    /// Options that differ between the captures and affect this comparison.
    pub options: Vec<OptionChange>,
    /// Functions, largest change first.
    pub functions: ChangeTable,
    /// Contexts, largest change first.
    pub contexts: ChangeTable,
}

/// Figures of a whole profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SideTotal {
    /// Sum, in the metric's unit.
    pub total: u64,
    /// How many values there are.
    pub values: u64,
}

/// Values in contexts that both profiles have; `None` where there are no values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MatchedValues {
    /// Share of the profile that was compared with, 0..=1.
    pub before: Option<f64>,
    /// Share of the profile that was compared.
    pub after: Option<f64>,
}

/// The largest changes. Serialized, it is the list of its rows.
#[derive(Clone, Debug, PartialEq)]
pub struct ChangeTable {
    /// The rows.
    pub rows: Vec<Change>,
    /// How many more differ.
    pub left_out: usize,
    /// Of these, how many by more than noise.
    pub significant_left_out: usize,
}

/// One context or function in both profiles.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// Growth of the share, -1..=1.
    pub change: f64,
    /// Chance changes are smaller than this in 95 of 100 cases; a share.
    pub bound: f64,
    /// Whether the change exceeds noise, given the number of comparisons.
    pub significant: bool,
    /// In the profile that was compared with.
    pub before: Side,
    /// In the profile that was compared.
    pub after: Side,
    /// Texts of the frames, outermost first; for a function only its own.
    pub frames: Vec<String>,
    /// Kinds of the frames, used to shorten their names for people.
    #[serde(skip)]
    pub kinds: Vec<FrameKind>,
}

/// A context or function in one of the profiles.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Side {
    /// Share of the total, 0..=1.
    pub share: f64,
    /// Value, in the metric's unit.
    pub value: u64,
}

impl Changes {
    /// Why these changes may not be changes of the program, in sentences.
    pub fn notes(&self) -> Vec<String> {
        self.little_in_common().into_iter().chain(self.options.iter().map(ToString::to_string)).collect()
    }

    /// Both totals, where the old one is 0 and the growth therefore has no share.
    pub(crate) fn totals_from_zero(&self) -> Option<[Amount; 2]> {
        let totals = [self.before, self.after].map(|side| Amount::new(side.total, self.unit));
        self.total.change.is_none().then_some(totals)
    }

    fn little_in_common(&self) -> Option<String> {
        let (before, after) = (self.matched.before?, self.matched.after?);
        (before < MATCHED_LEAST && after < MATCHED_LEAST).then(|| {
            format!(
                "only {:.1}% of the values before and {:.1}% after lie in contexts that both profiles have: these may \
                 be different programs",
                before * 100.0,
                after * 100.0
            )
        })
    }

    /// Table rows of these changes, each with the short names of its frames: no two names are equal.
    pub(crate) fn short_frames(&self, tables: &[&ChangeTable]) -> Vec<Vec<Vec<String>>> {
        let rows = || tables.iter().flat_map(|table| &table.rows);
        let frames =
            rows().flat_map(|row| row.kinds.iter().copied().zip(row.frames.iter().map(String::as_str)));
        let mut short = short_labels(frames).into_iter();
        let mut of_row = |row: &Change| short.by_ref().take(row.frames.len()).collect();
        tables.iter().map(|table| table.rows.iter().map(&mut of_row).collect()).collect()
    }
}

impl ChangeTable {
    /// The first rows of all.
    pub(super) fn cut(mut rows: Vec<Change>, most: usize) -> Self {
        let left_out = rows.len().saturating_sub(most);
        let significant_left_out = rows.iter().skip(most).filter(|row| row.significant).count();
        rows.truncate(most);
        ChangeTable { rows, left_out, significant_left_out }
    }
}

impl Serialize for ChangeTable {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.rows.serialize(to)
    }
}
