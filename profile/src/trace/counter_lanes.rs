//! Counter lanes: values over time as rows of a chart.
//!
//! Owns: [`CounterLane`]. Because: a column of a screen shows the highest of thousands of values, and must cost no
//! more than a search. Does not: draw.

use rustc_hash::FxHashMap;

use super::counter_unit::CounterUnit;
use super::job_time::at;
use super::{RankTrace, counter_value_in_words};
use crate::intern::StrId;
use crate::units::Nanos;

/// Values between two stored highest ones.
const STRIDE: usize = 64;

/// A counter over time.
#[derive(Clone, Debug)]
pub struct CounterLane {
    /// Its label (`rank 3 live-bytes [memory] cuda:0`).
    pub label: String,
    /// Unit of its values; `None` if the trace does not state it.
    pub unit: Option<CounterUnit>,
    /// Number of its rank.
    pub rank: u32,
    /// Time of each change, since the first event of the job, and the new value.
    steps: Vec<(Nanos, f64)>,
    /// The maximum of every `STRIDE` values.
    highest: Vec<f64>,
}

impl CounterLane {
    fn new(label: String, unit: Option<CounterUnit>, rank: u32, mut steps: Vec<(Nanos, f64)>) -> Self {
        steps.sort_by_key(|(at, _)| *at);
        // Of several values at one moment, the last one holds.
        steps.reverse();
        steps.dedup_by_key(|(at, _)| *at);
        steps.reverse();
        let highest = steps.chunks(STRIDE).map(highest).collect();
        CounterLane { label, unit, rank, steps, highest }
    }

    /// Changes of the value, by time.
    pub fn steps(&self) -> &[(Nanos, f64)] {
        &self.steps
    }

    /// The value at a moment; `None` before the first one.
    pub fn value(&self, moment: Nanos) -> Option<f64> {
        let place = self.steps.partition_point(|(at, _)| *at <= moment).checked_sub(1)?;
        self.steps.get(place).map(|(_, value)| *value)
    }

    /// Time of the next change after a moment.
    pub fn next(&self, moment: Nanos) -> Option<Nanos> {
        let place = self.steps.partition_point(|(at, _)| *at <= moment);
        self.steps.get(place).map(|(at, _)| *at)
    }

    /// Time of the last change before a moment.
    pub fn previous(&self, moment: Nanos) -> Option<Nanos> {
        let place = self.steps.partition_point(|(at, _)| *at < moment).checked_sub(1)?;
        self.steps.get(place).map(|(at, _)| *at)
    }

    /// The highest value between two moments; `None` when there is none.
    pub fn highest(&self, from: Nanos, to: Nanos) -> Option<f64> {
        // The value at the begin was set earlier.
        let first = self.steps.partition_point(|(at, _)| *at <= from).saturating_sub(1);
        let end = self.steps.partition_point(|(at, _)| *at < to);
        let (whole, rest) = (first.next_multiple_of(STRIDE), end / STRIDE * STRIDE);
        let parts = match whole < rest {
            true => [
                highest(&self.steps[first..whole]),
                self.highest[whole / STRIDE..rest / STRIDE].iter().copied().fold(f64::NEG_INFINITY, f64::max),
                highest(&self.steps[rest..end]),
            ],
            false => [highest(self.steps.get(first..end).unwrap_or_default()); 3],
        };
        Some(parts.into_iter().fold(f64::NEG_INFINITY, f64::max)).filter(|value| value.is_finite())
    }

    /// The highest value of all.
    pub fn most(&self) -> f64 {
        self.highest.iter().copied().fold(0.0, f64::max)
    }

    /// A value with its unit, for people.
    pub fn written(&self, value: f64) -> String {
        counter_value_in_words(self.unit, value)
    }
}

fn highest(steps: &[(Nanos, f64)]) -> f64 {
    steps.iter().map(|(_, value)| *value).fold(f64::NEG_INFINITY, f64::max)
}

/// Adds the counters of a rank. `prefix` names it where there are several; `shift` is added to its times.
pub(super) fn add(of: &RankTrace, prefix: &str, shift: i128, length: Nanos, lanes: &mut Vec<CounterLane>) {
    let trace = &of.trace;
    let mut all: FxHashMap<(StrId, StrId, StrId), Vec<(Nanos, f64)>> = FxHashMap::default();
    for (_, step) in trace.counters.iter() {
        let moment = at(shift, step.at);
        if moment < length {
            let key = (step.process, step.name, step.series);
            all.entry(key).or_default().push((moment, step.value.get()));
        }
    }
    let mut processes: FxHashMap<(StrId, StrId), u32> = FxHashMap::default();
    for (_, name, series) in all.keys() {
        *processes.entry((*name, *series)).or_default() += 1;
    }
    let lane = |((process, name_id, series), steps): ((StrId, StrId, StrId), Vec<_>)| {
        let unit = CounterUnit::of_series(trace.name(series));
        let name = match (unit, trace.name(series)) {
            (Some(_), _) | (None, "value") => trace.name(name_id).to_owned(),
            (None, series) => format!("{} {series}", trace.name(name_id)),
        };
        let process = match processes.get(&(name_id, series)) {
            Some(2..) => format!("process {} ", trace.name(process)),
            _ => String::new(),
        };
        let label = crate::frame::clean(&format!("{prefix}{process}{name}"));
        CounterLane::new(label, unit, of.rank, steps)
    };
    let mut own: Vec<CounterLane> = all.into_iter().map(lane).filter(|lane| lane.most() > 0.0).collect();
    own.sort_by(|a, b| a.label.cmp(&b.label));
    lanes.extend(own);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::trace::{EventLanes, Job, text};

    fn lanes(input: &str) -> EventLanes {
        let job = Job::new(vec![("a.json".to_owned(), text::parse(input).unwrap())]).unwrap();
        EventLanes::new(Arc::new(job), |_| 0)
    }

    #[test]
    fn counters_are_lanes_by_name_with_their_units() {
        let found = lanes(
            "op main 100..200 f
             counter 7 120 bytes=2048 live-bytes
             counter machine 90 share=0.5 cpu-busy cpu 0
             counter machine 150 share=0.25 cpu-busy cpu 0
             counter machine 150 share=0 cpu-steal cpu 0
             counter 7 130 value=3 queue
             counter 7 950 value=3 queue behind the end",
        );
        let shown: Vec<String> = found
            .counters()
            .iter()
            .map(|lane| {
                let steps =
                    lane.steps().iter().map(|(at, value)| format!("{}:{}", at.0, lane.written(*value)));
                format!("{} {}", lane.label, steps.collect::<Vec<_>>().join(" "))
            })
            .collect();
        let expect = ["cpu-busy cpu 0 0:50.0% 50000:25.0%", "live-bytes 20000:2.00 KiB", "queue 30000:3"];
        assert_eq!(shown, expect);
        let lane = &found.counters()[1];
        assert_eq!((lane.value(Nanos(19_999)), lane.value(Nanos(20_000))), (None, Some(2048.0)));
    }

    proptest! {
        #[test]
        fn the_highest_is_that_of_all_values(
            steps in prop::collection::vec((0u64..2000, 0u32..1000), 1..400),
            from in 0u64..2000,
            length in 1u64..2000,
        ) {
            let steps: Vec<_> = steps.iter().map(|(at, value)| (Nanos(*at), f64::from(*value))).collect();
            let lane = CounterLane::new(String::new(), None, 0, steps);
            let (from, to) = (Nanos(from), Nanos(from + length));
            let within = lane.steps().iter().filter(|(at, _)| from <= *at && *at < to).map(|(_, value)| *value);
            let plain = lane.value(from).into_iter().chain(within).reduce(f64::max);
            prop_assert_eq!(lane.highest(from, to), plain);
        }
    }
}
