//! Marks: the values of a profile at one moment, to separate later values from earlier ones.
//!
//! Owns: [`Mark`]. Because: profiles only grow, so the old value of each cell is all that is needed to separate the
//! values since from those before. Does not: keep contexts or names.

use crate::metric::Metric;
use crate::profile::Profile;
use crate::units::Nanos;

/// The values of a profile at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// By metric, by index of the cell: sum and count.
    values: Vec<Vec<(u64, u64)>>,
    /// Time since the capture began.
    at: Nanos,
}

impl Mark {
    /// The values that a profile has now, `at` after its capture began. 16 bytes per value.
    pub fn set(profile: &Profile, at: Nanos) -> Self {
        let of = |metric: &Metric| {
            let mut values = Vec::new();
            for (_, place, cell) in profile.tree.placed_cells(*metric) {
                if place >= values.len() {
                    values.resize(place + 1, (0, 0));
                }
                values[place] = (cell.sum, cell.count);
            }
            values
        };
        Mark { values: Metric::ALL.iter().map(of).collect(), at }
    }

    /// When it was set: time since the capture began.
    pub fn at(&self) -> Nanos {
        self.at
    }

    /// Sum and count of a cell at that time.
    #[inline]
    pub(crate) fn value(&self, metric: Metric, place: usize) -> (u64, u64) {
        self.values.get(metric.index()).and_then(|values| values.get(place)).copied().unwrap_or_default()
    }
}
