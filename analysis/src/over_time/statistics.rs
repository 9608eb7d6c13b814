//! Statistics: summary of a set of lengths.
//!
//! Owns: [`Statistics`]. Because: a mean hides the one call that took a second. Does not: keep the lengths.

use serde::Serialize;

/// A non-empty set of durations.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Statistics {
    /// How many.
    pub count: u64,
    /// Their sum.
    pub sum_ns: u64,
    /// The least.
    pub min_ns: u64,
    /// The most.
    pub max_ns: u64,
    /// Their mean.
    pub mean_ns: f64,
    /// Their standard deviation, as that of a sample (divided by one less than the count); 0 of one.
    pub deviation_ns: f64,
}

impl Statistics {
    /// Statistics of these lengths; `None` without any.
    pub(super) fn of(lengths: impl IntoIterator<Item = u64>) -> Option<Self> {
        let (mut count, mut sum_ns, mut min_ns, mut max_ns) = (0_u64, 0_u64, u64::MAX, 0);
        // Welford's recurrence: sums of squared nanoseconds would lose precision by cancellation.
        let (mut mean, mut squares) = (0.0, 0.0);
        for length in lengths {
            count += 1;
            sum_ns = sum_ns.saturating_add(length);
            (min_ns, max_ns) = (min_ns.min(length), max_ns.max(length));
            let off = length as f64 - mean;
            mean += off / count as f64;
            squares += off * (length as f64 - mean);
        }
        let deviation = if count > 1 { (squares / (count - 1) as f64).sqrt() } else { 0.0 };
        let mean_ns = sum_ns as f64 / count.max(1) as f64;
        (count > 0).then_some(Statistics { count, sum_ns, min_ns, max_ns, mean_ns, deviation_ns: deviation })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_have_sums_extremes_and_a_deviation() {
        let check = |lengths: &[u64], expect: Option<(u64, u64, u64, u64, f64, f64)>| {
            let found = Statistics::of(lengths.iter().copied());
            let found = found.map(|of| {
                let rounded = (of.deviation_ns * 1e6).round() / 1e6;
                (of.count, of.sum_ns, of.min_ns, of.max_ns, of.mean_ns, rounded)
            });
            assert_eq!(found, expect, "{lengths:?}");
        };
        check(&[], None);
        check(&[7], Some((1, 7, 7, 7, 7.0, 0.0)));
        check(&[2, 4, 4, 4, 5, 5, 7, 9], Some((8, 40, 2, 9, 5.0, 2.138_09)));
        // Large numbers that differ by little.
        let large = 4_000_000_000_000;
        let expect = (2, 2 * large + 8, large + 1, large + 7, large as f64 + 4.0, 4.242_641);
        check(&[large + 1, large + 7], Some(expect));
    }
}
