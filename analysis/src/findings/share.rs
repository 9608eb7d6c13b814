//! Shares: a part of a whole, possibly sampled.
//!
//! Owns: [`Share`] and its sampling error. Because: a rule that fires on noise is worse than none, so only the lower
//! end of a share's 95 % interval counts. Does not: know thresholds.

use std::ops::AddAssign;

use crate::amount::percent;

/// Quantile of the normal distribution for a 95 % interval.
const Z: f64 = 1.96;

/// A sum with the number of values in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    /// The sum.
    pub(crate) value: u64,
    /// How many values; of sampled metrics, samples.
    pub(crate) count: u64,
}

impl AddAssign for Sum {
    fn add_assign(&mut self, other: Self) {
        self.value = self.value.saturating_add(other.value);
        self.count = self.count.saturating_add(other.count);
    }
}

/// A part of a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Share {
    /// The part.
    pub(crate) part: Sum,
    /// The whole.
    pub(crate) whole: Sum,
    /// Whether the values were sampled: then the share has an error.
    pub(crate) sampled: bool,
    /// Measured time added to sampled time, of the part and of the whole: off-CPU waits.
    pub(crate) exact: [Sum; 2],
}

impl Share {
    /// In percent.
    pub(crate) fn percent(&self) -> f64 {
        let [part, whole] = self.all();
        percent(part.value, whole.value)
    }

    /// The part and the whole, sampled and measured together.
    pub(crate) fn all(&self) -> [Sum; 2] {
        let [mut part, mut whole] = self.exact;
        part += self.part;
        whole += self.whole;
        [part, whole]
    }

    /// The lower end of its 95 % interval, in percent.
    pub(crate) fn at_least_percent(&self) -> f64 {
        if !self.sampled {
            return self.percent();
        }
        let [part, whole] = self.exact.map(|exact| exact.value as f64);
        let sampled = wilson_lower(self.part.count, self.whole.count) * self.whole.value as f64;
        // Many short samples are no more time than they are long.
        let sampled = sampled.min(self.part.value as f64);
        let whole = self.whole.value as f64 + whole;
        if whole == 0.0 { 0.0 } else { (sampled + part) / whole * 100.0 }
    }
}

/// The lower end of Wilson's interval of a share: `part` of `whole` samples.
pub(crate) fn wilson_lower(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        return 0.0;
    }
    let (n, p) = (whole as f64, part.min(whole) as f64 / whole as f64);
    let middle = p + Z * Z / (2.0 * n);
    let reach = Z * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
    ((middle - reach) / (1.0 + Z * Z / n)).max(0.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn few_samples_prove_little() {
        let check = |part, whole, expect: &str| {
            assert_eq!(format!("{:.1}", wilson_lower(part, whole) * 100.0), expect, "{part} of {whole}");
        };
        check(0, 0, "0.0");
        check(1, 4, "4.6");
        check(10, 40, "14.2");
        check(1000, 4000, "23.7");
        check(4, 4, "51.0");
    }

    #[test]
    fn exact_parts_have_no_error() {
        let sum = |value| Sum { value, count: value };
        let share = Share { part: sum(0), whole: sum(100), sampled: true, exact: [sum(300), sum(300)] };
        assert_eq!((share.percent(), share.at_least_percent()), (75.0, 75.0));
        let exact = Share { part: sum(1), whole: sum(4), sampled: false, exact: [Sum::default(); 2] };
        assert_eq!(exact.at_least_percent(), 25.0);
    }

    proptest! {
        #[test]
        fn the_bound_is_below_the_share(part in 0u64..10_000, more in 0u64..10_000, lengths in (1u64..9, 1u64..9)) {
            let whole = part + more;
            let share = Share {
                part: Sum { value: part * lengths.0, count: part },
                whole: Sum { value: part * lengths.0 + more * lengths.1, count: whole },
                sampled: true,
                exact: [Sum::default(); 2],
            };
            prop_assert!(share.at_least_percent() <= share.percent() + 1e-9);
            prop_assert!(share.at_least_percent() >= 0.0);
        }
    }
}
