//! Contexts: the stacks with the highest exclusive values.
//!
//! Owns: [`Contexts`]. Because: a hot function is fixed at its call site. Does not: shorten stacks; renderers do.

use deepctx_profile::frame::FrameKind;
use deepctx_profile::view::View;
use serde::Serialize;

use crate::amount::{Amount, exclusive, percent};
use crate::{Subset, Table};

/// Calling contexts by exclusive value, largest first.
pub type Contexts = Table<Context>;

/// One calling context.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Context {
    /// Its own value.
    #[serde(flatten, serialize_with = "exclusive")]
    pub exclusive: Amount,
    /// Its exclusive value as a share of everything shown.
    pub exclusive_percent: f64,
    /// Its frames, outermost first.
    pub frames: Vec<String>,
    /// Kind of code of each frame.
    #[serde(skip)]
    pub kinds: Vec<FrameKind>,
    /// Whether every call that may wait is among them: only the full view shows each.
    #[serde(skip)]
    pub has_callers: bool,
}

impl Contexts {
    /// The hottest contexts.
    pub fn compute(subset: &Subset<'_>) -> Self {
        let (unit, total) = (subset.metric().unit(), subset.total());
        let has_callers = subset.selection().shown.view == View::Full;
        let hottest = subset.tree().hottest(subset.selection().rows).into_iter();
        let rows = hottest.map(|(value, frames)| Context {
            exclusive: Amount::new(value, unit),
            exclusive_percent: percent(value, total),
            frames: frames.iter().map(|label| label.text.clone()).collect(),
            kinds: frames.iter().map(|label| label.kind).collect(),
            has_callers,
        });
        let rows: Vec<_> = rows.collect();
        Table { left_out: subset.tree().nodes_with_own_value().saturating_sub(rows.len()), rows }
    }
}

#[cfg(test)]
mod tests {
    use deepctx_profile::metric::Metric;
    use deepctx_profile::text;

    use super::*;
    use crate::Selection;

    #[test]
    fn the_hottest_contexts_come_first_with_their_callers() {
        let profile = text::parse("P a-1 / n f / n g 30\nP a-1 / n g 50\nP a-1 / n f 20").unwrap();
        let selection = Selection { rows: 2, ..Selection::of(Metric::CpuTime) };
        let contexts = Contexts::compute(&Subset::new(&profile, &selection));
        let rows: Vec<_> =
            contexts.rows.iter().map(|row| (row.exclusive_percent, row.frames.join(";"))).collect();
        assert_eq!(contexts.left_out, 1);
        assert_eq!(rows, [(50.0, "a-1;g".to_owned()), (30.0, "a-1;f;g".to_owned())]);
    }
}
