//! Functions: the cost of each over all its contexts.
//!
//! Owns: [`Functions`]. Because: it is the first question about a profile. Does not: distinguish lines of a function,
//! unless the selection does.

use deepctx_profile::frame::FrameKind;
use deepctx_profile::view::request::Resolution;
use serde::{Serialize, Serializer};

use crate::amount::{Amount, exclusive, inclusive, percent};
use crate::{Subset, Table};

/// Functions by exclusive and then by inclusive value, largest first.
pub type Functions = Table<Function>;

/// One function over all its contexts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Function {
    /// Its name.
    pub function: String,
    /// File and line, or module; empty when unknown.
    pub at: String,
    /// Its kind of code.
    #[serde(serialize_with = "kind")]
    pub kind: FrameKind,
    /// Its own value.
    #[serde(flatten, serialize_with = "exclusive")]
    pub exclusive: Amount,
    /// Its exclusive value as a share of everything shown.
    pub exclusive_percent: f64,
    /// Its inclusive value.
    #[serde(flatten, serialize_with = "inclusive")]
    pub inclusive: Amount,
    /// Likewise.
    pub inclusive_percent: f64,
}

impl Functions {
    /// The hottest functions.
    pub fn compute(subset: &Subset<'_>) -> Self {
        let (unit, total) = (subset.metric().unit(), subset.total());
        let all = subset.tree().table(Resolution::default());
        let rows = all.into_iter().map(|row| Function {
            function: row.label,
            at: row.detail,
            kind: row.kind,
            exclusive: Amount::new(row.exclusive, unit),
            exclusive_percent: percent(row.exclusive, total),
            inclusive: Amount::new(row.inclusive, unit),
            inclusive_percent: percent(row.inclusive, total),
        });
        Table::cut(rows.collect(), subset.selection().rows)
    }
}

fn kind<S: Serializer>(kind: &FrameKind, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(kind.name())
}

#[cfg(test)]
mod tests {
    use deepctx_profile::metric::Metric;
    use deepctx_profile::text;
    use deepctx_profile::view::request::Pattern;

    use super::*;
    use crate::Selection;

    #[test]
    fn functions_are_ranked_by_their_own_value_within_the_filter() {
        let profile =
            text::parse("P a-1 / n main / n f 30\nP a-1 / n main / n g 60\nP a-1 / n h 10").unwrap();
        let filter = Pattern::new("main").ok();
        let selection = Selection { filter, rows: 2, ..Selection::of(Metric::CpuTime) };
        let functions = Functions::compute(&Subset::new(&profile, &selection));
        let rows: Vec<_> = functions
            .rows
            .iter()
            .map(|row| (row.function.as_str(), row.exclusive.value, row.inclusive_percent))
            .collect();
        assert_eq!(rows, [("g", 60, 60.0 * 100.0 / 90.0), ("f", 30, 30.0 * 100.0 / 90.0)]);
        assert_eq!(functions.left_out, 1);
    }
}
