//! Overhead: what each set of probes adds to a training step, and its uncertainty.
//!
//! Owns: the comparison of each level with the one before it (XSP's levelled experiments, S1 of Li et al., IPDPS 2020).
//! Because: other load on the machine varies more between rounds than a set of probes costs, so levels are compared
//! within a round, and a difference below the spread must not pass for a cost. Does not: run levels.
//!
//! The spread is half of the 95 % confidence interval of the trimmed mean (Tukey and McLaughlin, 1963): Student's t
//! times the winsorized deviation of the differences.

use serde::Serialize;

use super::{Run, StepBasis, ValueRow, left_out, trimmed_mean};

/// Cost of a set of probes over the previous set.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Overhead {
    /// Rounds in which both were measured.
    pub rounds: usize,
    /// Growth of its training steps: the trimmed mean of the differences within rounds.
    pub ns: f64,
    /// The same, as a share of the previous steps.
    pub percent: f64,
    /// Half of its 95 % confidence interval; `None` for fewer than two rounds.
    pub spread_ns: Option<f64>,
    /// Whether it is within the spread, so that no cost is shown; `None` without a spread.
    pub within_spread: Option<bool>,
}

/// Compares each level with the previous one, all other values being equal.
pub(super) fn compare(rows: &mut [ValueRow], runs: &[Run], trim_percent: f64) {
    for place in 1..rows.len() {
        let (before, row) = (&rows[place - 1], &rows[place]);
        let others = |of: &ValueRow| of.values.split_last().map(|(_, values)| values.to_vec());
        // A wall time and step times are not comparable.
        let basis = row.basis.filter(|basis| before.basis == Some(*basis) && others(before) == others(row));
        let Some(basis) = basis else { continue };
        let differences = differences(&before.values, &row.values, basis, runs);
        let before_ns = before.step_ns.filter(|ns| *ns > 0.0);
        rows[place].overhead = before_ns.and_then(|before_ns| overhead(differences, before_ns, trim_percent));
    }
}

/// Difference of the second to the first, in each round that has both.
fn differences(before: &[String], values: &[String], basis: StepBasis, runs: &[Run]) -> Vec<f64> {
    let step = |values: &[String], round: usize| {
        let counts = |run: &&Run| {
            run.failure.is_none() && run.repeat == round && run.values == values && run.step().0 == basis
        };
        runs.iter().find(counts).map(|run| run.step().1)
    };
    let rounds = runs.iter().filter(|run| run.values == values).map(|run| run.repeat);
    rounds.filter_map(|round| Some(step(values, round)? - step(before, round)?)).collect()
}

fn overhead(mut differences: Vec<f64>, before_ns: f64, trim_percent: f64) -> Option<Overhead> {
    differences.sort_by(f64::total_cmp);
    let ns = trimmed_mean(&differences, trim_percent)?;
    let spread_ns = spread(&differences, trim_percent);
    Some(Overhead {
        rounds: differences.len(),
        ns,
        percent: ns / before_ns * 100.0,
        spread_ns,
        within_spread: spread_ns.map(|spread| ns.abs() <= spread),
    })
}

/// Student's t for 95 %, both sides, by degrees of freedom from 1. Beyond, the last one is at most 6 % too large.
const STUDENT_T: [f64; 20] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086,
];

/// Half of the confidence interval of a trimmed mean of sorted values; `None` where one value or none is left.
fn spread(sorted: &[f64], trim_percent: f64) -> Option<f64> {
    let out = left_out(sorted.len(), trim_percent)?;
    let kept = sorted.len() - 2 * out;
    let t = STUDENT_T.get(kept.checked_sub(2)?.min(STUDENT_T.len() - 1))?;
    let (least, most) = (sorted[out], sorted[sorted.len() - 1 - out]);
    let count = sorted.len() as f64;
    let winsorized = || sorted.iter().map(|value| value.clamp(least, most));
    let mean = winsorized().sum::<f64>() / count;
    let variance = winsorized().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
    Some(t * variance.sqrt() * count.sqrt() / kept as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(differences: &[f64], trim_percent: f64, expect: Option<(f64, Option<f64>, Option<bool>)>) {
        let found = overhead(differences.to_vec(), 10.0, trim_percent);
        let thousandths = |ns: f64| (ns * 1000.0).round() / 1000.0;
        let found = found.map(|of| (of.ns, of.spread_ns.map(thousandths), of.within_spread));
        assert_eq!(found, expect, "{differences:?}");
    }

    #[test]
    fn an_overhead_has_the_spread_of_its_rounds() {
        check(&[], 20.0, None);
        check(&[4.0], 20.0, Some((4.0, None, None)));
        // t = 12.706 of 2, their deviation is √2.
        check(&[3.0, 5.0], 20.0, Some((4.0, Some(12.706), Some(true))));
        // t = 4.303 of 3, their deviation is 1.
        check(&[9.0, 10.0, 11.0], 20.0, Some((10.0, Some(2.484), Some(false))));
        check(&[-9.0, -10.0, -11.0], 20.0, Some((-10.0, Some(2.484), Some(false))));
        check(&[-1.0, 1.0, 0.0], 20.0, Some((0.0, Some(2.484), Some(true))));
        // The value at each end is dropped, and replaced by its neighbour in the deviation, which is then 1.
        check(&[9.0, -500.0, 10.0, 11.0, 900.0], 20.0, Some((10.0, Some(3.207), Some(false))));
    }
}
