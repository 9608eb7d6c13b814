//! Difference: how much a share changed since the mark, and whether chance explains it.
//!
//! Owns: the comparison of a box with itself before the mark. Because: a box that was sampled three times may well be
//! sampled five times by chance, and a red box would be a false alarm. Does not: draw.
//!
//! Both spans have different lengths, so shares are compared, not values. A share of `n` samples has the standard error
//! of a binomial proportion; two shares differ when they are more than two standard errors of their difference apart,
//! which chance does to one box in twenty.

use deepctx_profile::view::snapshot::Baseline;

use crate::theme::Trend;

/// Standard errors that a change must exceed.
const ERRORS: f64 = 2.0;
/// A change of at least this share is large, 0..=1.
const MUCH: f64 = 0.05;

/// A change of a share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Change {
    /// Share now less share before, -1..=1.
    pub(crate) share: f64,
    /// Its direction, and whether chance explains it.
    pub(crate) trend: Trend,
}

/// Compares a value with what it was before the mark; `whole` is the sum of all values since.
pub(crate) fn change(now: u64, before: u64, whole: u64, since: &Baseline) -> Change {
    let share = |part: u64, whole: u64| if whole == 0 { 0.0 } else { (part as f64 / whole as f64).min(1.0) };
    let (new, old) = (share(now, whole), share(before, since.before));
    let difference = new - old;
    let (n, m) = (since.count_since as f64, since.count_before as f64);
    let trend = if n == 0.0 || m == 0.0 {
        Trend::Same
    } else {
        let joint = (new * n + old * m) / (n + m);
        let error = (joint * (1.0 - joint) * (1.0 / n + 1.0 / m)).max(0.0).sqrt();
        let much = difference.abs() >= MUCH;
        match difference {
            d if d.abs() <= ERRORS * error || d == 0.0 => Trend::Same,
            d if d > 0.0 => Trend::More(much),
            _ => Trend::Less(much),
        }
    };
    Change { share: difference, trend }
}

impl Change {
    /// Sign and percentage points, for terminals with and without colour: `▲12.3`, `▼0.4`, `=` if it may be chance.
    pub(crate) fn text(self) -> String {
        let points = self.share.abs() * 100.0;
        match self.trend {
            Trend::More(_) => format!("▲{points:.1}"),
            Trend::Less(_) => format!("▼{points:.1}"),
            Trend::Same => "=".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use deepctx_profile::units::Nanos;

    use super::*;

    #[test]
    fn changes_within_two_standard_errors_are_none() {
        let check = |now, before, count_since, count_before, expected: &str| {
            let since = Baseline { at: Nanos(0), before: 1000, count_before, count_since };
            assert_eq!(change(now, before, 1000, &since).text(), expected, "{now} after {before}");
        };
        check(500, 100, 1000, 1000, "▲40.0");
        check(100, 130, 1000, 1000, "▼3.0");
        check(100, 110, 1000, 1000, "=");
        check(110, 100, 1_000_000, 1_000_000, "▲1.0");
        check(500, 300, 10, 10, "=");
        check(1000, 0, 0, 10, "=");
        check(1000, 0, 10, 10, "▲100.0");
        check(100, 100, 1000, 1000, "=");
    }

    #[test]
    fn empty_spans_have_no_change() {
        assert_eq!(change(0, 0, 0, &Baseline::default()).text(), "=");
        assert_eq!(
            change(u64::MAX, u64::MAX, 1, &Baseline { count_since: 1, ..Baseline::default() }).text(),
            "="
        );
    }
}
