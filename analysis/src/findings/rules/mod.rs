//! Rules: the list of all of them, and their common parts.
//!
//! Owns: [`RULES`], [`Draft`], and the check of a share ([`ShareCheck`]). Because: a rule is one file that reads like
//! its definition. Does not: know what a single rule looks for.

mod backward_cost;
mod blocking_copies;
mod blocking_waits;
mod bursty_device;
mod checkpoint_time;
mod collective_backend;
mod communication;
mod compilation_time;
mod conversions;
mod cpu_bottleneck;
mod cpu_latency;
mod cpu_limit;
mod cpu_pressure;
mod cpu_queue;
mod cpu_steal;
mod data_parallel;
mod few_loader_workers;
mod full_memory;
mod garbage_collection;
mod gil_holders;
mod gil_wait;
mod gpu_throttling;
mod gpu_windows;
mod gradient_zeroing;
mod growing_memory;
mod hotspot;
mod idle_device;
mod import_time;
mod io_bottleneck;
mod io_pressure;
mod late_start;
mod load_balancing;
mod loader_workers;
mod loading;
mod logging_time;
mod lost_events;
mod managed_memory;
mod memory_pressure;
mod network_limit;
mod odd_sizes;
mod page_faults;
mod pageable_copies;
mod path_check;
mod pressure;
mod probe_cost;
mod repeated_indexing;
mod single_precision;
mod single_tensor_optimizer;
mod slow_data_loader;
mod small_batch;
mod small_kernels;
mod spinning_threads;
mod stall_reasons;
mod straggler;
mod stuck_data_loader;
mod synchronous_data_loader;
mod underused_device;
mod uneven_ranks;
mod uneven_steps;

#[cfg(test)]
mod device_tests;
#[cfg(test)]
mod gain_tests;
#[cfg(test)]
mod healthy_tests;
#[cfg(test)]
mod loader_tests;
#[cfg(test)]
mod machine_tests;
#[cfg(test)]
mod rank_tests;
#[cfg(test)]
mod step_tests;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use deepctx_profile::metric::Metric;
use deepctx_profile::tree::NodeId;
use deepctx_profile::units::{counted, counted_as};

use super::facts::{Classes, Facts, PlaceKey, SAMPLES_MIN};
use super::finding::{Figure, Finding, Gain, Location, LocationKind, Severity};
use super::reason;
use super::rule::{Outcome, Rule, Values};
use super::share::Share;
use crate::over_time::RankTables;

/// Every rule, in the order of the documentation: the program's own time, training, devices, the profile itself.
pub const RULES: &[&Rule] = &[
    &hotspot::RULE,
    &spinning_threads::RULE,
    &gil_wait::RULE,
    &cpu_queue::RULE,
    &cpu_pressure::RULE,
    &cpu_limit::RULE,
    &cpu_steal::RULE,
    &io_pressure::RULE,
    &memory_pressure::RULE,
    &network_limit::RULE,
    &garbage_collection::RULE,
    &import_time::RULE,
    &page_faults::RULE,
    &conversions::RULE,
    &slow_data_loader::RULE,
    &synchronous_data_loader::RULE,
    &stuck_data_loader::RULE,
    &loader_workers::RULE,
    &few_loader_workers::RULE,
    &single_tensor_optimizer::RULE,
    &gradient_zeroing::RULE,
    &repeated_indexing::RULE,
    &checkpoint_time::RULE,
    &logging_time::RULE,
    &compilation_time::RULE,
    &uneven_steps::RULE,
    &backward_cost::RULE,
    &small_kernels::RULE,
    &stall_reasons::RULE,
    &cpu_latency::RULE,
    &blocking_waits::RULE,
    &blocking_copies::RULE,
    &pageable_copies::RULE,
    &managed_memory::RULE,
    &single_precision::RULE,
    &odd_sizes::RULE,
    &communication::RULE,
    &collective_backend::RULE,
    &data_parallel::RULE,
    &straggler::RULE,
    &uneven_ranks::RULE,
    &idle_device::RULE,
    &cpu_bottleneck::RULE,
    &io_bottleneck::RULE,
    &bursty_device::RULE,
    &underused_device::RULE,
    &small_batch::RULE,
    &load_balancing::RULE,
    &full_memory::RULE,
    &gpu_throttling::RULE,
    &late_start::RULE,
    &growing_memory::RULE,
    &probe_cost::RULE,
    &lost_events::RULE,
];

/// Time that two rules find: the first explains it, the second says what could be won.
pub(super) struct SharedTime {
    pub(super) explains: &'static str,
    pub(super) claims: &'static str,
    /// Whether the time is the same only if both findings name the same place first.
    pub(super) at_one_place: bool,
}

/// All of it, in the order of reference: nothing refers to a rule that has referred to another one. A rule that refers
/// has an unknown gain, so that no time stands in the list twice.
pub(super) const SHARED_TIME: &[SharedTime] = &[
    // First, since `slow-data-loader` then refers to the same one.
    SharedTime { explains: "few-loader-workers", claims: "stuck-data-loader", at_one_place: true },
    SharedTime { explains: "few-loader-workers", claims: "slow-data-loader", at_one_place: false },
    SharedTime { explains: "slow-data-loader", claims: "stuck-data-loader", at_one_place: true },
    SharedTime { explains: "cpu-bottleneck", claims: "idle-device", at_one_place: false },
    SharedTime { explains: "bursty-device", claims: "idle-device", at_one_place: false },
    SharedTime { explains: "bursty-device", claims: "cpu-bottleneck", at_one_place: false },
    SharedTime { explains: "io-bottleneck", claims: "io-pressure", at_one_place: false },
    SharedTime { explains: "io-bottleneck", claims: "idle-device", at_one_place: false },
    SharedTime { explains: "io-bottleneck", claims: "cpu-bottleneck", at_one_place: false },
    SharedTime { explains: "bursty-device", claims: "io-bottleneck", at_one_place: false },
    SharedTime { explains: "small-batch", claims: "idle-device", at_one_place: false },
    SharedTime { explains: "underused-device", claims: "idle-device", at_one_place: false },
    SharedTime { explains: "underused-device", claims: "small-batch", at_one_place: false },
    SharedTime { explains: "underused-device", claims: "cpu-bottleneck", at_one_place: false },
    SharedTime { explains: "underused-device", claims: "io-bottleneck", at_one_place: false },
    // Work that moves to another GPU fills time in which that one rests.
    SharedTime { explains: "load-balancing", claims: "idle-device", at_one_place: false },
    SharedTime { explains: "load-balancing", claims: "small-batch", at_one_place: false },
    SharedTime { explains: "load-balancing", claims: "underused-device", at_one_place: false },
    SharedTime { explains: "cpu-pressure", claims: "cpu-queue", at_one_place: false },
    SharedTime { explains: "uneven-ranks", claims: "straggler", at_one_place: true },
];

/// The rule-specific part of a finding; the rest follows from the rule.
#[derive(Debug)]
pub(super) struct Draft<'a> {
    title: String,
    metric: &'static str,
    share_percent: f64,
    gain: Gain,
    places: Vec<Location>,
    evidence: Vec<Figure>,
    advice: &'a str,
    datapoints: u64,
    violations: u64,
}

impl Draft<'_> {
    fn finding(self, values: &Values<'_>) -> Finding {
        self.named(values.rule().id, values.all())
    }

    /// The finding of a rule with this name and these parameters.
    pub(super) fn named(self, rule: &str, parameters: BTreeMap<&'static str, f64>) -> Finding {
        Finding {
            rule: rule.to_owned(),
            severity: Severity::of_percent(self.gain.percent()),
            title: self.title,
            places: self.places,
            metric: self.metric.into(),
            share_percent: self.share_percent,
            gain: self.gain,
            gain_of_capture_percent: None,
            evidence: self.evidence,
            advice: self.advice.to_owned(),
            parameters: parameters.into_iter().map(|(name, value)| (name.into(), value)).collect(),
            datapoints: self.datapoints,
            violations: self.violations,
        }
    }
}

/// A rule that fires when some contexts have at least a share of a metric.
pub(super) struct ShareCheck<'c> {
    pub(super) metric: Metric,
    pub(super) share: Share,
    /// The parameter with the minimum share, in percent.
    pub(super) limit: &'static str,
    /// The whole of the share, if that is not all of `metric`.
    pub(super) of: Option<&'static str>,
    /// The metric that ranks places, if it is not `metric`.
    pub(super) places: Option<Metric>,
    /// Which contexts, for the places.
    pub(super) is_in: &'c dyn Fn(NodeId) -> bool,
    pub(super) by: PlaceKey,
    /// The conclusion, from the formatted share.
    pub(super) title: &'c dyn Fn(&str) -> String,
    /// Name of the share in the evidence.
    pub(super) figure: &'static str,
    pub(super) advice: &'c str,
    /// Why the gain is bounded by the share.
    pub(super) because: &'static str,
}

impl<'c> ShareCheck<'c> {
    fn outcome(self, facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
        let draft = self.draft(facts, values.get(self.limit));
        draft.map_or_else(|outcome| outcome, |draft| Outcome::Findings(vec![draft.finding(values)]))
    }

    /// The findings if the share is at least `limit` percent; else the outcome.
    pub(super) fn draft(&self, facts: &Facts<'_>, limit: f64) -> Result<Draft<'c>, Outcome> {
        if let Some(few) = too_few(&self.share) {
            return Err(few);
        }
        let [part, whole] = self.share.all();
        let datapoints = whole.count;
        if self.share.at_least_percent() < limit || self.share.percent() <= 0.0 {
            return Err(Outcome::Healthy { datapoints });
        }
        let metric = self.places.unwrap_or(self.metric);
        let mut places = facts.places(metric, self.by, self.is_in, whole.value);
        if self.by == PlaceKey::Leaf {
            places.extend(facts.lines(metric, self.is_in, whole.value));
        }
        places.extend(facts.layers(metric, self.is_in, whole.value));
        let percent = self.share.percent();
        let mut evidence = vec![Figure::measured(self.figure, percent, "percent")];
        if self.share.sampled {
            let at_least = self.share.at_least_percent();
            evidence.push(Figure::bounded("at least, by 95 % confidence", at_least, "percent"));
        }
        Ok(Draft {
            title: (self.title)(&written(percent)),
            metric: self.of.unwrap_or(self.metric.name()),
            share_percent: percent,
            gain: Gain::Bounded { at_most_percent: percent, because: self.because.into() },
            places,
            evidence,
            advice: self.advice,
            datapoints,
            violations: part.count,
        })
    }
}

/// Off-CPU time of some classes as a share of the time in which threads run or could run: idle threads wait for other
/// things. The outcome if the profile lacks either.
fn share_of_runnable(facts: &Facts<'_>, is_wait: impl Fn(Classes) -> bool) -> Result<Share, Outcome> {
    if facts.host().is_none() {
        return Err(no_host_time());
    }
    if !facts.has(Metric::OffCpuTime) {
        return Err(no_waits());
    }
    let waits = facts.share_of(Metric::OffCpuTime, |classes, _| is_wait(classes)).part;
    let whole = facts.share_of(Metric::CpuTime, |_, _| false).whole;
    Ok(Share { part: Default::default(), whole, sampled: true, exact: [waits, waits] })
}

/// The outcome for a share of too few samples, unless measured time outweighs all of them.
fn too_few(share: &Share) -> Option<Outcome> {
    let count = share.whole.count;
    let is_measured = share.exact[0].value > share.whole.value;
    (share.sampled && count < SAMPLES_MIN && !is_measured).then(|| {
        let taken = counted_as(count, "sample was taken", "samples were taken");
        let sentence = format!("only {taken}; {SAMPLES_MIN} are needed");
        Outcome::missing_because(reason::TOO_FEW_SAMPLES, sentence)
    })
}

/// The outcome for a profile without time of the program itself.
pub(super) fn no_host_time() -> Outcome {
    Outcome::missing(reason::NO_HOST_TIME)
}

/// The outcome for a profile without time of kernels.
fn no_device_time() -> Outcome {
    Outcome::missing(reason::NO_DEVICE_TIME)
}

/// A rank as a place.
fn rank_place(ranks: &RankTables, rank: u32, share_percent: f64) -> Location {
    let at = ranks.ranks.get(&rank).map_or_else(String::new, |(_, file)| file.clone());
    Location { kind: LocationKind::Rank, name: format!("rank {rank}"), at, context: 0, share_percent }
}

/// The outcome for a profile without events of several ranks.
fn no_ranks() -> Outcome {
    Outcome::missing(reason::NO_RANKS)
}

/// The outcome for a profile without time off the CPU.
fn no_waits() -> Outcome {
    Outcome::missing(reason::NO_OFF_CPU_TIME)
}

/// Violations of a rule about a share of time, among the intervals that were read. The number of intervals with any is
/// not stored; the mean gives a lower bound.
fn violations_at_least(share_percent: f64, datapoints: u64) -> u64 {
    ((share_percent / 100.0 * datapoints as f64).ceil() as u64).clamp(1, datapoints.max(1))
}

/// A share, formatted for a sentence.
fn written(percent: f64) -> String {
    if percent < 9.95 { format!("{percent:.1}%") } else { format!("{percent:.0}%") }
}
