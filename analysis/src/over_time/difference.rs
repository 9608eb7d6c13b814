//! Difference: which operators, calls and kernels differ in number or time between two traces.
//!
//! Owns: [`EventDifference`]. Because: a new kernel, or an operator called twice as often, causes a change in time, and
//! is certain, unlike a share of samples. Does not: compare calling contexts; [`crate::diff`] does.
//!
//! Rows are those of HTA's `TraceDiff.compare_traces`: events by kind and name, with counts and the sums of their
//! lengths. HTA by default takes the first rank and the first training step of each side, and groups kernels and
//! operators of one name; here everything in the windows of all ranks counts, and kinds are separate. Nothing is
//! scaled: the sides report different numbers of ranks or steps.

use deepctx_profile::order::SortRows as _;
use std::collections::BTreeMap;

use deepctx_profile::frame::clean;
use deepctx_profile::trace::{HostKind, Job};
use serde::Serialize;

use super::window::{Steps, Window};
use super::{SCHEMA_VERSION, device_kind};

/// Two jobs, or two parts of one, event by event.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EventDifference {
    /// [`super::SCHEMA_VERSION`].
    pub schema_version: u32,
    /// The side before.
    pub before: EventSide,
    /// What was compared.
    pub after: EventSide,
    /// Each kind and name of events, the largest change of time first.
    pub rows: Vec<EventChange>,
}

/// Contents of one side.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct EventSide {
    /// Files.
    pub files: Vec<String>,
    /// Steps in the window, over all ranks.
    pub steps: u64,
    /// Events that are compared.
    pub events: u64,
}

/// Events of one kind and name on both sides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EventChange {
    /// The kind: `operator`, `runtime-call`, `driver-call`, `kernel`, `copy` or `fill`.
    pub kind: &'static str,
    /// The name.
    pub name: String,
    /// What changed.
    pub change: CountChange,
    /// Before.
    pub before: EventSum,
    /// After.
    pub after: EventSum,
}

/// Change of a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CountChange {
    /// Only the side after has it.
    Added,
    /// Only the side before has it.
    Removed,
    /// More of them.
    More,
    /// Fewer of them.
    Fewer,
    /// As many.
    Same,
}

/// Events of one name on one side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct EventSum {
    /// How many.
    pub count: u64,
    /// Sum of their lengths.
    pub time_ns: u64,
}

impl EventChange {
    /// Growth of the time; negative if it shrank.
    pub fn time_change_ns(&self) -> i64 {
        let [before, after] =
            [self.before, self.after].map(|sum| i64::try_from(sum.time_ns).unwrap_or(i64::MAX));
        after.saturating_sub(before)
    }
}

impl EventDifference {
    /// Compares two jobs, each within its steps.
    pub fn compute(before: &Job, before_steps: Steps, after: &Job, after_steps: Steps) -> Self {
        let (before, of_before) = sums(before, before_steps);
        let (after, of_after) = sums(after, after_steps);
        let mut names: BTreeMap<(&'static str, String), [EventSum; 2]> = BTreeMap::new();
        for (side, sums) in [of_before, of_after].into_iter().enumerate() {
            for (key, sum) in sums {
                names.entry(key).or_default()[side] = sum;
            }
        }
        let row = |((kind, name), [before, after]): (_, [EventSum; 2])| {
            let change = change(before.count, after.count);
            EventChange { kind, name, change, before, after }
        };
        let mut rows: Vec<EventChange> = names.into_iter().map(row).collect();
        // Stable: equal changes stay in the order of kind and name.
        rows.sort_rows_by_key(|row| std::cmp::Reverse(row.time_change_ns().unsigned_abs()));
        EventDifference { schema_version: SCHEMA_VERSION, before, after, rows }
    }

    /// Number of names with this change.
    pub fn count(&self, change: CountChange) -> usize {
        self.rows.iter().filter(|row| row.change == change).count()
    }
}

fn change(before: u64, after: u64) -> CountChange {
    match (before, after) {
        (0, _) => CountChange::Added,
        (_, 0) => CountChange::Removed,
        _ if after > before => CountChange::More,
        _ if after < before => CountChange::Fewer,
        _ => CountChange::Same,
    }
}

fn sums(job: &Job, steps: Steps) -> (EventSide, BTreeMap<(&'static str, String), EventSum>) {
    let mut side = EventSide::default();
    let mut sums: BTreeMap<(&'static str, String), EventSum> = BTreeMap::new();
    for of in job.ranks() {
        let window = Window::new(of, steps);
        side.files.push(clean(&of.file));
        side.steps += window.steps().len() as u64;
        let compared = |kind: HostKind| kind == HostKind::Operator || kind.is_call();
        let host = of.trace.host.iter().map(|(_, op)| op);
        let host = host.filter(|op| compared(op.kind) && window.has(op.begin));
        let host = host.map(|op| (op.kind.name(), op.name, op.duration));
        let device = window.device().map(|(_, op)| (device_kind(op.kind), op.name, op.duration));
        let mut of_rank: BTreeMap<_, EventSum> = BTreeMap::new();
        for (kind, name, duration) in host.chain(device) {
            let sum = of_rank.entry((kind, name)).or_default();
            sum.count += 1;
            sum.time_ns = sum.time_ns.saturating_add(duration.0);
            side.events += 1;
        }
        // Handles of names are local to one trace.
        for ((kind, name), of_rank) in of_rank {
            let sum = sums.entry((kind, clean(of.trace.name(name)))).or_default();
            sum.count += of_rank.count;
            sum.time_ns = sum.time_ns.saturating_add(of_rank.time_ns);
        }
    }
    (side, sums)
}
