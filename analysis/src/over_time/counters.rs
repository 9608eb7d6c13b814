//! Counters: summaries of values over time.
//!
//! Owns: [`CounterSummary`]. Because: whether memory grew or a CPU was busy is the first question about a trace, before
//! anyone views it over time. Does not: know windows of training steps: a counter covers the whole trace.

use std::collections::BTreeMap;

use deepctx_profile::frame::clean;
use deepctx_profile::trace::{CounterUnit, RankTrace};
use serde::Serialize;

/// A counter over the time of its trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CounterSummary {
    /// The rank.
    pub rank: u32,
    /// The process, or `machine`.
    pub process: String,
    /// The counter.
    pub name: String,
    /// Which of its values: of our own captures, the unit.
    pub series: String,
    /// Changes of the value.
    pub values: u64,
    /// Mean over time, from the first value to the last event of the trace.
    pub mean: f64,
    /// The lowest value.
    pub least: f64,
    /// The highest value.
    pub most: f64,
}

impl CounterSummary {
    /// Unit of its values; `None` if the trace does not state it.
    pub fn unit(&self) -> Option<CounterUnit> {
        CounterUnit::of_series(&self.series)
    }
}

/// A counter: its process, its name and which of its values.
type CounterKey<'t> = (&'t str, &'t str, &'t str);
/// Its values, each with its start time.
type Steps = Vec<(u64, f64)>;

/// The counters of a rank by process and name.
pub(super) fn compute(of: &RankTrace) -> Vec<CounterSummary> {
    let trace = &of.trace;
    let mut all: BTreeMap<CounterKey<'_>, Steps> = BTreeMap::new();
    for (_, step) in trace.counters.iter() {
        let [process, name, series] = [step.process, step.name, step.series].map(|id| trace.name(id));
        all.entry((process, name, series)).or_default().push((step.at.as_nanos(), step.value.get()));
    }
    let end = of.span.map_or(0, |(_, end)| end.as_nanos());
    let one = |((process, name, series), mut steps): (CounterKey<'_>, Steps)| {
        steps.sort_by_key(|(at, _)| *at);
        let values = || steps.iter().map(|(_, value)| *value);
        CounterSummary {
            rank: of.rank,
            process: clean(process),
            name: clean(name),
            series: clean(series),
            values: steps.len() as u64,
            mean: mean(&steps, end),
            least: values().fold(f64::INFINITY, f64::min),
            most: values().fold(f64::NEG_INFINITY, f64::max),
        }
    };
    all.into_iter().map(one).collect()
}

fn mean(steps: &[(u64, f64)], end: u64) -> f64 {
    let (mut area, mut length) = (0.0, 0.0);
    for (at, (from, value)) in steps.iter().enumerate() {
        let to = steps.get(at + 1).map_or(end, |(next, _)| *next);
        let time = to.saturating_sub(*from) as f64;
        (area, length) = (area + value * time, length + time);
    }
    // The last value of all has no duration.
    if length > 0.0 { area / length } else { steps.last().map_or(0.0, |(_, value)| *value) }
}

#[cfg(test)]
mod tests {
    use deepctx_profile::trace::{Job, counter_value_in_words, text};

    use super::*;

    #[test]
    fn means_are_over_the_time_that_values_held() {
        let input = "op main 0..100 f
            counter 7 20 bytes=1000 live-bytes
            counter 7 60 bytes=3000 live-bytes
            counter machine 0 share=0.5 cpu-busy
            counter 7 100 value=4 late";
        let job = Job::new(vec![("a.json".to_owned(), text::parse(input).unwrap())]).unwrap();
        let shown: Vec<String> = compute(&job.ranks()[0])
            .iter()
            .map(|row| {
                let [mean, least, most] =
                    [row.mean, row.least, row.most].map(|value| counter_value_in_words(row.unit(), value));
                format!("{} {} {}: {mean} {least} {most}", row.process, row.name, row.values)
            })
            .collect();
        let expect = [
            "7 late 1: 4 4 4",
            "7 live-bytes 2: 1.95 KiB 1000 B 2.93 KiB",
            "machine cpu-busy 1: 50.0% 50.0% 50.0%",
        ];
        assert_eq!(shown, expect);
    }
}
