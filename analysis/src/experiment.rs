//! Experiments: the same command over several values, and which value is best.
//!
//! Owns: [`Experiment`], from single [`Run`]s. Because: a batch size is chosen by how throughput and latency change
//! with it, which no single profile shows (A1 and A15 of XSP, Li et al., IPDPS 2020). Does not: run anything.
//!
//! A run has one training step time: the median of its steps if single events were recorded, else their mean, else the
//! wall time of the run. The runs of a value are combined by a trimmed mean, which drops the same share of them at both
//! ends.

mod overhead;

use deepctx_profile::order::SortRows as _;
use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

use crate::model::{Bound, ModelTotals, StepTimes};

pub use overhead::Overhead;

/// Version of the serialized form: raised when a field is removed or changes its meaning.
pub const SCHEMA_VERSION: u32 = 3;

/// Name of the last placeholder if its values are nested sets of probes, in increasing order.
pub const LEVEL: &str = "level";

/// Criteria of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Judgement {
    /// Runs left out at each end before the mean, as a share of all runs of a value.
    pub trim_percent: f64,
    /// Doubling a value that raises throughput by no more than this is not worth it.
    pub gain_percent: f64,
    /// The longest acceptable training step; decides instead of throughput.
    pub latency_target_ns: Option<u64>,
}

/// Results of a run from its profile: fields of `report --table totals --format json`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct RunFigures {
    /// Training steps.
    pub step_times: Option<StepTimes>,
    /// The whole model.
    pub totals: ModelTotals,
}

/// One run of the command, or a part of one with one set of probes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Run {
    /// A value for each placeholder.
    pub values: Vec<String>,
    /// Number of the run for these values, from 1. Runs with the same number are compared.
    pub repeat: usize,
    /// Its profile.
    pub profile: String,
    /// Exit code of the command; `None` if it was not run to its end.
    pub exit_code: Option<u8>,
    /// Why it does not count; `None` when it does.
    pub failure: Option<String>,
    /// From the start of the command, or of this part of it, to the end.
    pub wall_ns: u64,
    /// Results from its profile; `None` without any.
    #[serde(skip)]
    pub figures: Option<RunFigures>,
}

/// Kind of a step time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StepBasis {
    /// Time from the start of the command to its end, if the program's training steps are unknown.
    WallTime,
    /// Mean of the run's steps.
    MeanOfSteps,
    /// Median of the run's steps.
    MedianOfSteps,
}

impl StepBasis {
    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            StepBasis::WallTime => "wall time of the run",
            StepBasis::MeanOfSteps => "mean of steps",
            StepBasis::MedianOfSteps => "median of steps",
        }
    }
}

/// Results of the runs of one value.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ValueRow {
    /// A value for each placeholder.
    pub values: Vec<String>,
    /// Runs that count: where some have training steps, only these.
    pub runs: usize,
    /// Runs that failed.
    pub failed: usize,
    /// Kind of the step times; `None` when no run counts.
    pub basis: Option<StepBasis>,
    /// Timed steps of all runs that count.
    pub steps: u64,
    /// Trimmed mean over runs.
    pub step_ns: Option<f64>,
    /// The run with the shortest one.
    pub step_min_ns: Option<f64>,
    /// The run with the longest one.
    pub step_max_ns: Option<f64>,
    /// First value over step time; `None` if it is not a number.
    pub throughput_per_second: Option<f64>,
    /// Gain of throughput over the next smaller value.
    pub gain_percent: Option<f64>,
    /// Time that its set of probes adds to a training step, relative to the next smaller set.
    pub overhead: Option<Overhead>,
    /// Whether it is the best one.
    pub optimal: bool,
    /// Figures of the median run.
    #[serde(flatten)]
    pub per_step: StepFigures,
}

/// Figures of one training step, from the run with the median step time: sums of the run over [`StepTimes::in_sums`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct StepFigures {
    /// Time of kernels on devices.
    pub gpu_ns_per_step: Option<f64>,
    /// Kernels.
    pub kernels_per_step: Option<f64>,
    /// Floating-point operations, by a model.
    pub modelled_flops_per_step: Option<f64>,
    /// Bytes read and written, by a model.
    pub modelled_bytes_per_step: Option<f64>,
    /// Operations per byte.
    pub modelled_flops_per_byte: Option<f64>,
    /// Operations over step time.
    pub modelled_flops_per_second: Option<f64>,
    /// The limit that the model reaches first.
    pub bound: Option<Bound>,
    /// Peak bytes of tensors.
    pub peak_memory_bytes: Option<u64>,
}

/// The best value, among those with the same values of all placeholders but the first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Optimum {
    /// Values of the other placeholders.
    pub others: Vec<String>,
    /// The best value of the first one; `None` if there is none.
    pub value: Option<String>,
    /// Why, in words.
    pub because: String,
}

/// A command over several values.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Experiment {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// The command, with its placeholders.
    pub command: String,
    /// Names of the placeholders. Throughput is based on the first one.
    pub placeholders: Vec<String>,
    /// Its criteria.
    pub judgement: Judgement,
    /// Whether sets of probes were switched while the command ran: its runs are then windows of training steps.
    pub in_process: bool,
    /// A row for each combination of values, in the order of their runs.
    pub rows: Vec<ValueRow>,
    /// The best values.
    pub optima: Vec<Optimum>,
    /// Every run.
    pub runs: Vec<Run>,
}

impl Run {
    /// Its step time, with its kind.
    fn step(&self) -> (StepBasis, f64) {
        let steps = self.figures.as_ref().and_then(|of| of.step_times.as_ref());
        match steps {
            None => (StepBasis::WallTime, self.wall_ns as f64),
            Some(StepTimes { median_ns: Some(median_ns), .. }) => (StepBasis::MedianOfSteps, *median_ns),
            Some(of) => (StepBasis::MeanOfSteps, of.mean_ns),
        }
    }

    fn figures_per_step(&self) -> StepFigures {
        let Some(RunFigures { step_times, totals }) = &self.figures else { return StepFigures::default() };
        let steps = step_times.as_ref().map(|of| of.in_sums).filter(|steps| *steps > 0.0);
        let per_step = |sum: Option<u64>| sum.zip(steps).map(|(sum, steps)| sum as f64 / steps);
        let flops = per_step(totals.figures.modelled_flops);
        StepFigures {
            gpu_ns_per_step: per_step(totals.figures.gpu_ns),
            kernels_per_step: per_step(totals.figures.kernels),
            modelled_flops_per_step: flops,
            modelled_bytes_per_step: per_step(totals.figures.modelled_bytes),
            modelled_flops_per_byte: totals.figures.modelled_flops_per_byte,
            modelled_flops_per_second: flops.map(|flops| flops / self.step().1 * 1e9),
            bound: totals.figures.bound,
            peak_memory_bytes: totals.peak_memory_bytes,
        }
    }
}

impl Experiment {
    /// Combines runs and rates them.
    pub fn of(command: String, placeholders: Vec<String>, judgement: Judgement, runs: Vec<Run>) -> Self {
        let mut combinations: Vec<&Vec<String>> = Vec::new();
        for run in &runs {
            if !combinations.contains(&&run.values) {
                combinations.push(&run.values);
            }
        }
        let rows = combinations.into_iter().map(|values| row(values, &runs, judgement.trim_percent));
        let mut rows: Vec<ValueRow> = rows.collect();
        if placeholders.last().is_some_and(|name| name == LEVEL) {
            overhead::compare(&mut rows, &runs, judgement.trim_percent);
        }
        let mut others: Vec<Vec<String>> = Vec::new();
        for row in &rows {
            let of_row = row.values.get(1..).unwrap_or_default();
            if !others.iter().any(|known| known == of_row) {
                others.push(of_row.to_vec());
            }
        }
        // Without values there is nothing to choose.
        others.retain(|_| placeholders.first().is_some_and(|name| name != LEVEL));
        let optima = others.into_iter().map(|others| optimum(&mut rows, others, &judgement)).collect();
        Experiment {
            schema_version: SCHEMA_VERSION,
            command,
            placeholders,
            judgement,
            in_process: false,
            rows,
            optima,
            runs,
        }
    }

    /// Whether a run failed.
    pub fn has_failures(&self) -> bool {
        self.runs.iter().any(|run| run.failure.is_some())
    }
}

fn row(values: &[String], runs: &[Run], trim_percent: f64) -> ValueRow {
    let of_values: Vec<&Run> = runs.iter().filter(|run| run.values == values).collect();
    let counting = || of_values.iter().filter(|run| run.failure.is_none());
    // Wall time includes start and end of the program: it is not mixed with training steps.
    let basis = counting().map(|run| run.step().0).max();
    let mut used: Vec<&Run> = counting().filter(|run| Some(run.step().0) == basis).copied().collect();
    used.sort_rows_by(|a, b| a.step().1.total_cmp(&b.step().1));
    let times: Vec<f64> = used.iter().map(|run| run.step().1).collect();
    let step_ns = trimmed_mean(&times, trim_percent);
    let value = values.first().and_then(|value| number(value));
    let middle = used.get(used.len().saturating_sub(1) / 2);
    let steps = used.iter().filter_map(|run| run.figures.as_ref()?.step_times.as_ref()).map(|of| of.count);
    ValueRow {
        values: values.to_vec(),
        runs: used.len(),
        failed: of_values.iter().filter(|run| run.failure.is_some()).count(),
        basis,
        steps: steps.fold(0, u64::saturating_add),
        step_ns,
        step_min_ns: times.first().copied(),
        step_max_ns: times.last().copied(),
        throughput_per_second: value.zip(step_ns).filter(|(_, ns)| *ns > 0.0).map(|(of, ns)| of / ns * 1e9),
        gain_percent: None,
        overhead: None,
        optimal: false,
        per_step: middle.map(|run| run.figures_per_step()).unwrap_or_default(),
    }
}

/// A value as a number above zero.
fn number(value: &str) -> Option<f64> {
    value.trim().parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0)
}

/// The mean of sorted values without this percentage of them at each end, rounded down; `None` without values.
fn trimmed_mean(sorted: &[f64], percent: f64) -> Option<f64> {
    let left_out = left_out(sorted.len(), percent)?;
    let kept = sorted.get(left_out..sorted.len() - left_out)?;
    Some(kept.iter().sum::<f64>() / kept.len() as f64)
}

/// Number of trimmed values at each end; `None` without values.
fn left_out(count: usize, percent: f64) -> Option<usize> {
    let left_out = (count as f64 * percent.clamp(0.0, 50.0) / 100.0) as usize;
    // If half is trimmed at each end, the middle remains.
    Some(left_out.min(count.checked_sub(1)? / 2))
}

/// Finds and marks the best of the rows with these other values.
fn optimum(rows: &mut [ValueRow], others: Vec<String>, judgement: &Judgement) -> Optimum {
    let mut group: Vec<(usize, f64, f64, f64)> = Vec::new();
    let is_of = |row: &ValueRow| row.values.get(1..) == Some(others.as_slice());
    // Wall time includes start and end of the program: it is not compared with training steps.
    let best = rows.iter().filter(|row| is_of(row)).filter_map(|row| row.basis).max();
    let is_wall = |basis: Option<StepBasis>| basis == Some(StepBasis::WallTime);
    let counts = |row: &ValueRow| is_of(row) && is_wall(row.basis) == is_wall(best);
    for (place, row) in rows.iter().enumerate().filter(|(_, row)| counts(row)) {
        let value = row.values.first().and_then(|value| number(value));
        if let (Some(value), Some(step_ns), Some(rate)) = (value, row.step_ns, row.throughput_per_second) {
            group.push((place, value, step_ns, rate));
        }
    }
    group.sort_rows_by(|a, b| a.1.partial_cmp(&b.1).unwrap_or(Ordering::Equal));
    for [before, after] in group.array_windows::<2>() {
        rows[after.0].gain_percent = Some((after.3 / before.3 - 1.0) * 100.0);
    }
    let (place, because) = match judgement.latency_target_ns {
        Some(target_ns) => within_latency(&group, target_ns),
        None => without_gain(&group, judgement.gain_percent),
    };
    if let Some(row) = place.and_then(|place| rows.get_mut(place)) {
        row.optimal = true;
    }
    let value = place.and_then(|place| rows.get(place)?.values.first().cloned());
    Optimum { others, value, because }
}

/// The largest value with an acceptable training step.
fn within_latency(group: &[(usize, f64, f64, f64)], target_ns: u64) -> (Option<usize>, String) {
    match group.iter().rev().find(|(_, _, step_ns, _)| *step_ns <= target_ns as f64) {
        Some((place, ..)) => (Some(*place), "the largest value within the latency target".to_owned()),
        None => (None, "no value is within the latency target".to_owned()),
    }
}

/// The smallest value that gains nothing from doubling.
fn without_gain(group: &[(usize, f64, f64, f64)], gain_percent: f64) -> (Option<usize>, String) {
    let doubled = |value: f64| group.iter().find(move |(_, other, ..)| *other >= 2.0 * value);
    let mut compared = false;
    for (place, value, _, rate) in group {
        let Some((_, other, _, doubled_rate)) = doubled(*value) else { continue };
        compared = true;
        let gain = (doubled_rate / rate - 1.0) * 100.0;
        if gain <= gain_percent {
            let because = format!("{other} instead of {value} changes throughput by {gain:+.1} %");
            return (Some(*place), because);
        }
    }
    match (compared, group.last()) {
        (true, Some((_, largest, ..))) => {
            (None, format!("every doubling up to {largest} raises throughput by more than {gain_percent} %"))
        }
        _ => (None, "no value and its double were both measured".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JUDGEMENT: Judgement = Judgement { trim_percent: 20.0, gain_percent: 5.0, latency_target_ns: None };

    fn run(value: &str, step_ms: f64) -> Run {
        let step_times = Some(StepTimes { count: 10, mean_ns: step_ms * 1e6, ..StepTimes::default() });
        let figures = Some(RunFigures { step_times, ..RunFigures::default() });
        Run { values: vec![value.to_owned()], exit_code: Some(0), figures, ..Run::default() }
    }

    #[track_caller]
    fn check(runs: &[(&str, f64)], judgement: Judgement, value: Option<&str>, because: &str) {
        let runs = runs.iter().map(|(value, step_ms)| run(value, *step_ms)).collect();
        let of = Experiment::of("train {batch}".into(), vec!["batch".into()], judgement, runs);
        let [found] = &of.optima[..] else { panic!("{:?}", of.optima) };
        assert_eq!(found.value.as_deref(), value, "{}", found.because);
        assert!(found.because.contains(because), "{}", found.because);
        let marked: Vec<_> =
            of.rows.iter().filter(|row| row.optimal).map(|row| row.values[0].as_str()).collect();
        assert_eq!(marked.first().copied(), value);
    }

    #[test]
    fn the_optimum_is_the_smallest_value_without_gain_by_doubling() {
        let runs = [("1", 10.0), ("2", 11.0), ("4", 15.0), ("8", 29.0), ("16", 58.0)];
        check(&runs, JUDGEMENT, Some("4"), "8 instead of 4 changes throughput by +3.4 %");
        check(&runs, Judgement { gain_percent: 1.0, ..JUDGEMENT }, Some("8"), "+0.0 %");
        check(&runs[..3], JUDGEMENT, None, "every doubling up to 4");
        check(&runs[..1], JUDGEMENT, None, "no value and its double");
        check(&[("small", 3.0)], JUDGEMENT, None, "no value and its double");
    }

    #[test]
    fn a_latency_target_decides_instead_of_throughput() {
        let runs = [("1", 10.0), ("2", 11.0), ("4", 15.0), ("8", 29.0)];
        let within = |ms: u64| Judgement { latency_target_ns: Some(ms * 1_000_000), ..JUDGEMENT };
        check(&runs, within(15), Some("4"), "the largest value within");
        check(&runs, within(9), None, "no value is within");
    }

    #[test]
    fn runs_of_a_value_make_a_trimmed_mean() {
        for (values, percent, expect) in [
            (&[][..], 20.0, None),
            (&[7.0], 20.0, Some(7.0)),
            (&[1.0, 2.0, 30.0], 20.0, Some(11.0)),
            (&[1.0, 2.0, 3.0, 4.0, 100.0], 20.0, Some(3.0)),
            (&[1.0, 2.0, 30.0], 50.0, Some(2.0)),
            (&[1.0, 3.0], 50.0, Some(2.0)),
        ] {
            assert_eq!(trimmed_mean(values, percent), expect, "{values:?}");
        }
    }

    #[test]
    fn failed_runs_are_counted_and_do_not_count() {
        let mut runs = vec![run("2", 10.0), run("2", 20.0), run("4", 10.0)];
        runs[1].failure = Some("exit code 1".into());
        let of = Experiment::of(String::new(), vec!["batch".into()], JUDGEMENT, runs);
        let row = &of.rows[0];
        assert_eq!(
            (row.runs, row.failed, row.step_ns, row.throughput_per_second),
            (1, 1, Some(10e6), Some(200.0))
        );
        assert_eq!((of.rows[1].gain_percent, of.has_failures()), (Some(100.0), true));
    }

    #[test]
    fn a_run_without_steps_has_not_failed() {
        let mut runs = vec![run("1", 10.0), run("1", 12.0)];
        (runs[1].figures, runs[1].wall_ns) = (None, 9_000_000_000);
        let of = Experiment::of(String::new(), vec!["batch".into()], JUDGEMENT, runs);
        assert_eq!((of.rows[0].runs, of.rows[0].failed, of.has_failures()), (1, 0, false));
    }

    #[test]
    fn wall_times_are_not_compared_with_training_steps() {
        let mut runs = vec![run("1", 10.0), run("2", 18.0), run("4", 30.0)];
        (runs[2].figures, runs[2].wall_ns) = (None, 9_000_000_000);
        let of = Experiment::of(String::new(), vec!["batch".into()], JUDGEMENT, runs);
        let gains: Vec<_> = of.rows.iter().map(|row| row.gain_percent.map(f64::round)).collect();
        assert_eq!((gains, of.optima[0].value.as_deref()), (vec![None, Some(11.0), None], None));
    }

    #[test]
    fn a_run_has_its_best_known_step_time() {
        let mut runs = vec![run("1", 5.0)];
        runs[0].wall_ns = 9_000;
        let basis = |runs: &[Run]| {
            let of = Experiment::of(String::new(), vec!["n".into()], JUDGEMENT, runs.to_vec());
            (of.rows[0].basis, of.rows[0].step_ns)
        };
        assert_eq!(basis(&runs), (Some(StepBasis::MeanOfSteps), Some(5e6)));
        runs[0].figures.as_mut().unwrap().step_times.as_mut().unwrap().median_ns = Some(4e6);
        assert_eq!(basis(&runs), (Some(StepBasis::MedianOfSteps), Some(4e6)));
        runs[0].figures = None;
        assert_eq!(basis(&runs), (Some(StepBasis::WallTime), Some(9_000.0)));
        runs[0].failure = Some("gone".into());
        assert_eq!(basis(&runs), (None, None));
    }

    #[test]
    fn figures_of_a_step_count_the_untimed_one() {
        let mut run = run("1", 10.0);
        let figures = run.figures.as_mut().unwrap();
        figures.step_times.as_mut().unwrap().in_sums = 11.0;
        (figures.totals.figures.kernels, figures.totals.figures.gpu_ns) = (Some(110), Some(22_000));
        let of = Experiment::of(String::new(), vec!["n".into()], JUDGEMENT, vec![run]);
        let found = &of.rows[0];
        assert_eq!((found.steps, found.per_step.kernels_per_step), (10, Some(10.0)));
        assert_eq!(found.per_step.gpu_ns_per_step, Some(2_000.0));
        let mut text = Vec::new();
        crate::render::text::write_experiment(&of, &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("\nGPU, kernels, flops, bytes: sums of the run in the middle"), "{text}");
    }

    #[test]
    fn each_level_has_its_overhead_over_the_one_before() {
        let at = |value: &str, level: &str, ms| {
            let mut run = run(value, ms);
            run.values.push(level.to_owned());
            run
        };
        let runs = vec![
            at("1", "samples", 10.0),
            at("1", "launches", 12.0),
            at("1", "operators", 9.0),
            at("2", "samples", 40.0),
            at("2", "launches", 50.0),
        ];
        let of = Experiment::of(String::new(), vec!["batch".into(), LEVEL.into()], JUDGEMENT, runs);
        let overheads: Vec<_> = of.rows.iter().map(|row| row.overhead.map(|of| of.ns)).collect();
        assert_eq!(overheads, [None, Some(2e6), Some(-3e6), None, Some(10e6)]);
        assert_eq!(of.rows[4].overhead.unwrap().percent, 25.0);
        let mut alone = run("samples", 3.0);
        alone.figures = None;
        let of =
            Experiment::of(String::new(), vec![LEVEL.into()], JUDGEMENT, vec![alone, run("launches", 3.0)]);
        assert_eq!((of.rows[1].overhead, of.optima.len()), (None, 0));
    }

    #[test]
    fn levels_are_compared_within_a_round() {
        // Each round is 30 ms longer than the previous one: only differences within rounds are meaningful.
        let rounds = |costs: [f64; 3]| {
            let mut runs = Vec::new();
            for (round, cost_ms) in costs.into_iter().enumerate() {
                for (level, ms) in [("samples", 0.0), ("launches", cost_ms)] {
                    runs.push(Run { repeat: round + 1, ..run(level, 10.0 + 30.0 * round as f64 + ms) });
                }
            }
            runs
        };
        let overhead = |runs| {
            let of = Experiment::of(String::new(), vec![LEVEL.into()], JUDGEMENT, runs);
            of.rows[1].overhead.unwrap()
        };
        let found = overhead(rounds([2.0, 2.1, 1.9]));
        assert_eq!((found.rounds, found.within_spread), (3, Some(false)), "{found:?}");
        assert!((found.ns - 2e6).abs() < 1.0, "{found:?}");
        assert_eq!(overhead(rounds([-2.0, 2.0, 0.1])).within_spread, Some(true));
        // A round with a failed run does not count.
        let mut runs = rounds([2.0, 2.1, 50.0]);
        runs[5].failure = Some("exit code 1".into());
        let found = overhead(runs);
        assert_eq!((found.rounds, (found.ns / 1e3).round()), (2, 2050.0), "{found:?}");
    }

    #[test]
    fn other_placeholders_have_an_optimum_each() {
        let of_two = |value: &str, other: &str, ms| {
            let mut run = run(value, ms);
            run.values.push(other.to_owned());
            run
        };
        let runs = vec![
            of_two("1", "a", 10.0),
            of_two("2", "a", 20.0),
            of_two("1", "b", 10.0),
            of_two("2", "b", 10.0),
        ];
        let of = Experiment::of(String::new(), vec!["batch".into(), "mode".into()], JUDGEMENT, runs);
        let found: Vec<_> = of.optima.iter().map(|of| (of.others[0].as_str(), of.value.as_deref())).collect();
        assert_eq!(found, [("a", Some("1")), ("b", None)]);
    }
}
