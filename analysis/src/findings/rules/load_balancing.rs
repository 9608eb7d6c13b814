//! GPUs of which some work far more than others.
//!
//! A driver does not say whose work a GPU runs. So this needs a program that launched something and, where the devices
//! that it used are known, no more GPUs at work than these: another job would look like an imbalance.

use deepctx_common::reasons;

use super::gpu_windows::{GpuUtilization, MIN_SECONDS, Utilization, gpus};
use super::{Draft, Facts, Outcome, Rule, Values, written};
use crate::findings::finding::{Figure, Gain};
use crate::findings::rule::Parameter;

reasons! {
    class Gap, page "findings.md";
    const SINGLE_GPU = "single-gpu", "only one GPU ran anything: there is none to compare it with";
    const GPUS_OF_OTHERS = "gpus-of-others",
        "more GPUs ran something than the program used: a driver does not say whose work it was";
}

pub(super) const RULE: Rule = Rule {
    id: "load-balancing",
    what: "GPUs of which one has far more to do than the mean of them: the work is spread unevenly",
    definition: "of the windows of time, from the first on in which a GPU was busy: the Jensen-Shannon distance of two \
                 GPUs' histograms of utilization (bins of 2 %, natural logarithm, without what as few windows differ \
                 by chance) > `min_distance`, and the GPU that is busiest on average is ≥ `min_percent` points above \
                 the mean of all; of GPUs that ran anything, if the program used as many, where that was measured; a \
                 capture of at least `min_seconds`",
    source: "SageMaker Debugger (`LoadBalancing`)",
    origin: "Jensen-Shannon distance of the GPUs' histograms of utilization > 0.2",
    needs: "launches, and system metrics of several GPUs",
    parameters: &[
        Parameter { name: "min_distance", default: 0.2, source: "SageMaker Debugger" },
        Parameter {
            name: "min_percent",
            default: 5.0,
            source: "own: GPUs that are busy for 93 and for 95 % have no bin in common",
        },
        MIN_SECONDS,
    ],
    check,
};

/// Bins of a histogram: of 2 % each.
const BINS: usize = 50;

/// Windows by utilization.
type Histogram = [u64; BINS];

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    let utilization = match gpus(facts, values.get("min_seconds")) {
        Ok(utilization) => utilization,
        Err(missing) => return missing,
    };
    let all = &utilization.gpus;
    if all.len() < 2 {
        return Outcome::missing(SINGLE_GPU);
    }
    // Without measured activities there are none.
    let used = facts.device_uses().len();
    if used > 0 && used < all.len() {
        return Outcome::missing(GPUS_OF_OTHERS);
    }
    let datapoints = utilization.windows;
    let by_mean = |a: &&GpuUtilization, b: &&GpuUtilization| a.mean_busy.total_cmp(&b.mean_busy);
    // The first of those that are equally busy.
    let extremes = all.iter().rev().max_by(by_mean).zip(all.iter().min_by(by_mean));
    let Some((busiest, idlest)) = extremes else { return Outcome::Healthy { datapoints } };
    let mean = utilization.mean_busy();
    let (above, distance) = (busiest.mean_busy - mean, most_distant(all));
    let least = values.get("min_percent");
    if distance <= values.get("min_distance") || above < least || above <= 0.0 {
        return Outcome::Healthy { datapoints };
    }
    let gain = utilization.of_capture(above).min(100.0);
    let draft = Draft {
        title: format!(
            "Work is spread unevenly over {} GPUs: {} is busy {} of the time, {} {}",
            all.len(),
            busiest.name,
            written(busiest.mean_busy),
            idlest.name,
            written(idlest.mean_busy)
        ),
        metric: "length of the capture",
        share_percent: gain,
        gain: Gain::Bounded {
            at_most_percent: gain,
            because: "spread evenly, each GPU has the mean of the work".into(),
        },
        places: Vec::new(),
        evidence: vec![
            Figure::measured("GPUs busy, the busiest", busiest.mean_busy, "percent"),
            Figure::measured("GPUs busy, mean", mean, "percent"),
            Figure::measured("GPUs busy, the least busy", idlest.mean_busy, "percent"),
            Figure::measured("Jensen-Shannon distance of the two that are least alike", distance, "ratio"),
        ],
        advice: "Give GPUs equal parts: DistributedDataParallel instead of DataParallel, whose first device has more \
                 to do, batches of equal size, stages of equal work. Or another job runs on one (nvidia-smi).",
        datapoints,
        violations: windows_above(&utilization, busiest, least).clamp(1, datapoints.max(1)),
    };
    Outcome::Findings(vec![draft.finding(values)])
}

/// Windows in which a GPU is so many points above the mean of all.
fn windows_above(utilization: &Utilization, gpu: &GpuUtilization, points: f64) -> u64 {
    let all = &utilization.gpus;
    let is_above = |(at, busy): (usize, &f64)| {
        let sum: f64 = all.iter().filter_map(|gpu| gpu.by_time.get(at)).sum();
        *busy > sum / all.len() as f64 + points
    };
    gpu.by_time.iter().enumerate().filter(|window| is_above(*window)).count() as u64
}

/// The distance of the two GPUs that are least alike.
fn most_distant(gpus: &[GpuUtilization]) -> f64 {
    let histograms: Vec<Histogram> = gpus.iter().map(|gpu| histogram(&gpu.by_time)).collect();
    let others = |at: usize| histograms.iter().skip(at + 1);
    let pairs = histograms.iter().enumerate().flat_map(|(at, one)| others(at).map(move |other| (one, other)));
    pairs.map(|(one, other)| distance(one, other)).fold(0.0, f64::max)
}

fn histogram(busy: &[f64]) -> Histogram {
    let mut bins = [0; BINS];
    for percent in busy {
        let bin = (percent * BINS as f64 / 100.0) as usize;
        bins[bin.min(BINS - 1)] += 1;
    }
    bins
}

/// The Jensen-Shannon distance of two histograms of equally many windows.
fn distance(one: &Histogram, other: &Histogram) -> f64 {
    let windows = one.iter().sum::<u64>().max(1) as f64;
    let (mut divergence, mut bins) = (0.0, 0u64);
    for (p, q) in one.iter().zip(other).filter(|(p, q)| **p + **q > 0) {
        let [p, q] = [p, q].map(|count| *count as f64 / windows);
        let towards_middle = |part: f64| if part > 0.0 { part * (2.0 * part / (p + q)).ln() } else { 0.0 };
        divergence += (towards_middle(p) + towards_middle(q)) / 2.0;
        bins += 1;
    }
    // Its mean for two GPUs that are used alike: 4 · windows times it is distributed as chi-squared.
    let by_chance = bins.saturating_sub(1) as f64 / (4.0 * windows);
    (divergence - by_chance).max(0.0).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distance_is_that_of_jensen_and_shannon() {
        let check = |one: &[f64], other: &[f64], expect: &str| {
            let found = distance(&histogram(one), &histogram(other));
            assert_eq!(format!("{found:.2}"), expect, "{one:?} {other:?}");
        };
        let often = |busy: &[f64]| busy.repeat(1000);
        // The root of the logarithm of 2, at most.
        check(&often(&[90.0]), &often(&[40.0]), "0.83");
        check(&often(&[0.0]), &often(&[100.0]), "0.83");
        check(&often(&[90.0, 40.0]), &often(&[40.0, 90.0]), "0.00");
        // The root of the entropy of 1/4 and 3/4, less half of that of 1/2 and 1/2.
        check(&often(&[90.0, 40.0]), &often(&[40.0, 40.0]), "0.46");
        // Of one bin.
        check(&often(&[41.9]), &often(&[40.1]), "0.00");
        // So few windows differ as much by chance.
        check(&[10.0, 20.0, 30.0, 40.0], &[10.0, 20.0, 30.0, 50.0], "0.00");
        check(&[f64::NAN, 200.0], &[-5.0, f64::INFINITY], "0.00");
    }
}
