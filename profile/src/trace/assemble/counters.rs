//! Turns the counters of a recording into counters of traces.
//!
//! Owns: [`RecordedCounters`]: which trace gets a counter, and its name. Because: machine-wide counters belong to no
//! process, and the set of traces is known only after all events were seen. Does not: leave anything out: records
//! that the recorder merged or lost are counted as it reports them.

use rustc_hash::FxHashMap;

use super::super::counter_unit::{CounterUnit, counter_process};
use super::super::event::{CounterStep, CounterValue};
use super::super::recorded::{COUNTER_VALUES_MERGED, RecordedEvent, RecordedKind};
use super::super::{Trace, TraceTime};
use super::tables::count_pushed;
use crate::ledger::Stage;
use crate::metric::Metric;
use crate::profile::Profile;
use crate::tree::NodeId;

/// A counter: its process, metric, and context.
type CounterKey = (u32, Metric, NodeId);

/// Values of counters by time, and their losses.
#[derive(Default)]
pub(super) struct RecordedCounters {
    events: Vec<(CounterKey, RecordedEvent)>,
}

impl RecordedCounters {
    pub(super) fn add(&mut self, pid: u32, metric: Metric, node: NodeId, event: RecordedEvent) {
        self.events.push(((pid, metric, node), event));
    }

    /// Distributes them to the traces.
    pub(super) fn place(self, profile: &Profile, traces: &mut [(u32, Trace)]) {
        let mut names: FxHashMap<CounterKey, String> = FxHashMap::default();
        let places: FxHashMap<u32, usize> = (0..).zip(&*traces).map(|(at, (pid, _))| (*pid, at)).collect();
        for (key, event) in self.events {
            let (pid, metric, node) = key;
            let Some((_, trace)) = traces.get_mut(places.get(&pid).copied().unwrap_or(0)) else { return };
            let name = names.entry(key).or_insert_with(|| name(profile, metric, node));
            match event.kind {
                // Lost values of a counter are not lost work of a step; the recorder's account counts them.
                RecordedKind::Gap => {}
                _ => step(trace, pid, metric, name, &event),
            }
        }
    }
}

fn step(trace: &mut Trace, pid: u32, metric: Metric, name: &str, event: &RecordedEvent) {
    let Some(counted) = event.counted() else { return };
    trace.ledger.gap(Stage::Store, COUNTER_VALUES_MERGED, counted.merged.into());
    let value = CounterUnit::value(metric, counted.value, event.end.duration());
    let step = CounterStep {
        process: trace.text(&counter_process(pid)),
        name: trace.text(name),
        series: trace.text(CounterUnit::of_metric(metric).name()),
        at: TraceTime::from_nanos(event.start.0),
        value: CounterValue::new(value),
    };
    let pushed = trace.counters.push(step);
    count_pushed(trace, pushed);
}

/// The same name as the profile's sums over time have.
fn name(profile: &Profile, metric: Metric, node: NodeId) -> String {
    let of = profile.frames.get(profile.tree.node(node).frame).label(&profile.strings, false);
    format!("{metric} {of}")
}
