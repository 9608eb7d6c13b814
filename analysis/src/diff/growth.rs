//! Growth: changes of a comparison that exceed a limit.
//!
//! Owns: [`GrowthLimit`] and what it finds. Because: a CI pipeline must fail for slowdowns, not for noise. Does not:
//! set an exit code.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use super::Comparison;

/// A growth limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum GrowthLimit {
    /// Growth of a function's share: `+5%` are five percentage points of the total, 0.05 here.
    Function(f64),
    /// Growth of the whole total, relative to its old value: `total+5%`. Any growth from 0 exceeds it.
    Total(f64),
}

/// A growth beyond a limit and beyond noise.
#[derive(Clone, Debug, PartialEq)]
pub struct Regression {
    /// The function; `None` for the whole total.
    pub function: Option<String>,
    /// By how much; infinite for a total that was 0.
    pub change: f64,
    /// Chance changes are smaller than this in 95 of 100 cases.
    pub bound: f64,
}

/// Change of a whole total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct TotalChange {
    /// Relative to its old value, -1 and up; `None` if that was 0.
    pub change: Option<f64>,
    /// Chance changes are smaller than this in 95 of 100 cases, if values fall at random; runs of a program may differ
    /// by more.
    pub bound: f64,
}

/// An invalid limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadLimit;

impl fmt::Display for BadLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected a limit like +5% (a function's share) or total+5% (the whole)")
    }
}

impl std::error::Error for BadLimit {}

impl FromStr for GrowthLimit {
    type Err = BadLimit;

    fn from_str(text: &str) -> Result<Self, BadLimit> {
        let (of, number) = text.split_once('+').ok_or(BadLimit)?;
        let percent: f64 = number.strip_suffix('%').ok_or(BadLimit)?.parse().map_err(|_| BadLimit)?;
        // A number may have a sign of its own: `++5%`.
        if !percent.is_finite() || number.starts_with(['+', '-']) {
            return Err(BadLimit);
        }
        match of {
            "" => Ok(Self::Function(percent / 100.0)),
            "total" => Ok(Self::Total(percent / 100.0)),
            _ => Err(BadLimit),
        }
    }
}

impl fmt::Display for GrowthLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // As it was written: 0.07 times 100 is 7.000000000000001.
        let percent = |part: f64| (part * 1e8).round() / 1e6;
        match self {
            Self::Function(share) => write!(f, "+{}%", percent(*share)),
            Self::Total(part) => write!(f, "total+{}%", percent(*part)),
        }
    }
}

impl Comparison {
    /// Change of the whole total.
    pub fn total_change(&self) -> TotalChange {
        let [before, after] = self.totals.map(|total| total.sum as f64);
        if before == 0.0 {
            return TotalChange { change: None, bound: 0.0 };
        }
        // The variance of a sum of values that fall at random is about the sum of their squares.
        let [of_before, of_after] = self.totals.map(|total| total.sum_squares as f64);
        let ratio = after / before;
        let variance = of_after / before.powi(2) + ratio.powi(2) * of_before / before.powi(2);
        TotalChange { change: Some(ratio - 1.0), bound: 2.0 * variance.sqrt() }
    }

    /// Growths beyond a limit and beyond noise; largest first.
    pub fn beyond(&self, limit: GrowthLimit) -> Vec<Regression> {
        match limit {
            GrowthLimit::Function(most) => {
                let grown = self.functions().into_iter().filter(|row| row.significant && row.change > most);
                let grown = grown.map(|row| Regression {
                    function: Some(row.frames.join(";")),
                    change: row.change,
                    bound: row.bound,
                });
                grown.collect()
            }
            GrowthLimit::Total(most) => {
                let TotalChange { change, bound } = self.total_change();
                // No percentage of 0 is as much as any growth.
                let from_zero = (self.totals[1].sum > 0).then_some(f64::INFINITY);
                let change = change.or(from_zero);
                let grown = change.filter(|change| *change > most && *change > bound);
                grown.map(|change| Regression { function: None, change, bound }).into_iter().collect()
            }
        }
    }
}

impl fmt::Display for Regression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (change, bound) = (self.change * 100.0, self.bound * 100.0);
        match &self.function {
            Some(function) => write!(f, "the share of {function} grew by {change:.2}% ±{bound:.2}%"),
            None if self.change.is_infinite() => f.write_str("the total grew from 0"),
            None => write!(f, "the total grew by {change:.2}% ±{bound:.2}%"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_shown_as_it_was_written() {
        for percent in 0..=100 {
            for text in [format!("+{percent}%"), format!("total+{percent}.25%")] {
                assert_eq!(text.parse::<GrowthLimit>().unwrap().to_string(), text);
            }
        }
    }

    #[test]
    fn a_limit_has_one_sign_and_a_number() {
        for text in ["5%", "++5%", "+-5%", "+-0%", "total++5%", "total-5%", "+5", "+%", "+inf%", "+NaN%"] {
            assert_eq!(text.parse::<GrowthLimit>(), Err(BadLimit), "{text}");
        }
    }
}
