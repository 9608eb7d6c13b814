//! A batch that never arrives.

use deepctx_profile::context::phase::Phase;
use deepctx_profile::metric::{Cell, Metric};
use deepctx_profile::tree::NodeId;
use deepctx_profile::units::Nanos;

use super::loading::no_loading;
use super::{Draft, Facts, Outcome, PlaceKey, Rule, Values, no_host_time, no_waits};
use crate::amount::percent;
use crate::findings::facts::Class;
use crate::findings::finding::{Figure, Gain, Location};
use crate::findings::rule::Parameter;

pub(super) const RULE: Rule = Rule {
    id: "stuck-data-loader",
    what: "batches that take seconds to come: a worker of the data loader hangs, has died, or has far too much to do",
    definition: "waits for batches of loader workers, of which one lasts a second or longer: time in those longer than \
                 a quarter of a second ≥ `min_seconds`, and ≥ `min_percent` of all time of the threads that use batches. The \
                 time is a lower bound: a wait is recorded in pieces of a second, and the sum of their squares says \
                 how many are long",
    source: "SageMaker Debugger (case of a crashed loader)",
    origin: "a case, found by hand: steps grow, then the GPU is at 0 %",
    needs: "Python frames and time off the CPU",
    parameters: &[
        Parameter {
            name: "min_seconds",
            default: 3.0,
            source: "own; PyTorch looks after its workers every 5 s",
        },
        Parameter { name: "min_percent", default: 10.0, source: "own" },
    ],
    check,
};

/// A long wait is recorded in pieces of a second; timers fire a little early or late.
const PIECE_NS: u64 = 950_000_000;
/// Length of a long wait.
const LONG_NS: f64 = 2.5e8;

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    let Some(host) = facts.host() else { return no_host_time() };
    if !facts.has(Metric::OffCpuTime) {
        return no_waits();
    }
    let Some(loading) = facts.loading() else { return no_loading() };
    let waits = |node: NodeId| loading.is_wait(facts, Metric::OffCpuTime, node);
    let cells = || facts.profile().tree.cells(Metric::OffCpuTime).filter(|(node, _)| waits(*node));
    let datapoints = cells().fold(0, |sum: u64, (_, cell)| sum.saturating_add(cell.count));
    let Some((node, longest)) =
        cells().max_by_key(|(_, cell)| cell.max).filter(|(_, cell)| cell.max >= PIECE_NS)
    else {
        return Outcome::Healthy { datapoints };
    };
    let long_ns = cells().map(|(_, cell)| long_at_least(&cell)).fold(0, u64::saturating_add);
    let whole = loading.time(host).value.saturating_add(loading.time(Metric::OffCpuTime).value);
    let share = percent(long_ns, whole);
    if Nanos(long_ns).as_seconds() < values.get("min_seconds") || share < values.get("min_percent") {
        return Outcome::Healthy { datapoints };
    }
    let line = facts.profile().tree.node(facts.line(node)).frame;
    let of_line = |node: NodeId| waits(node) && facts.profile().tree.node(facts.line(node)).frame == line;
    let mut places = facts.places(Metric::OffCpuTime, PlaceKey::Line, of_line, whole);
    places.extend(stuck_in(facts, whole));
    let all_ns = cells().fold(0, |sum: u64, (_, cell)| sum.saturating_add(cell.sum));
    // The other cells have no long wait.
    let with_long = cells().filter(|(_, cell)| cell.max as f64 > LONG_NS);
    let at_most = percent(with_long.fold(0, |sum: u64, (_, cell)| sum.saturating_add(cell.sum)), whole);
    let draft = Draft {
        title: format!("The program waits at least {} for batches that take seconds to come", Nanos(long_ns)),
        metric: "time of the threads that use batches",
        share_percent: at_most,
        gain: Gain::Bounded {
            at_most_percent: at_most,
            because: "batches that come in time are not waited for".into(),
        },
        places,
        evidence: vec![
            Figure::bounded("waits of more than a quarter of a second, at least", long_ns as f64, "ns"),
            Figure::measured("all waits for batches", all_ns as f64, "ns"),
        ],
        advice: "See where its workers are (deepctx-bpf dump --pid WORKER) and whether one ended: the kernel's log \
                 says what ran out of memory. Workers that start slowly do so once.",
        datapoints,
        violations: (long_ns / longest.max.max(1)).clamp(1, datapoints.max(1)),
    };
    Outcome::Findings(vec![draft.finding(values)])
}

/// Lower bound of the time in values longer than [`LONG_NS`]. No value is above the largest one, and the others are at
/// most `LONG_NS`: so the squares sum up to at most `largest · long time + LONG_NS · other time`.
fn long_at_least(cell: &Cell) -> u64 {
    let (largest, squares) = (cell.max as f64, cell.sum_squares as f64);
    if largest <= LONG_NS {
        return 0;
    }
    ((squares - LONG_NS * cell.sum as f64) / (largest - LONG_NS)).clamp(0.0, cell.sum as f64) as u64
}

/// Where workers waited a second or longer within a sample: the possible cause of the missing batch.
fn stuck_in(facts: &Facts<'_>, whole: u64) -> Vec<Location> {
    let tree = &facts.profile().tree;
    let is_long = |node| tree.exclusive(node, Metric::OffCpuTime).max >= PIECE_NS;
    let is_in = |node| {
        facts.phase(node) == Phase::LoadingWorker && facts.classes(node).has(Class::Fetch) && is_long(node)
    };
    facts.places(Metric::OffCpuTime, PlaceKey::Line, is_in, whole)
}
