//! Pressure: time in which programs waited for a scarce resource of the machine.
//!
//! Owns: [`PressureCheck`], the waits of the program itself ([`own_waits`]), and how many CPUs it may use. Because: the
//! kernel counts this time the same way for CPUs, disks and memory (`Documentation/accounting/psi.rst`), and one check
//! fits all three. Does not: know which resource is waited for.

use deepctx_profile::frame::Frame;
use deepctx_profile::metric::Metric;

use super::{Draft, Facts, Outcome, Values, violations_at_least, written};
use crate::amount::percent;
use crate::findings::finding::{Figure, Gain};
use crate::findings::reason;
use crate::tables::system::resource;

/// A rule that fires when some program waited for at least a share of the capture.
pub(super) struct PressureCheck {
    pub(super) metric: Metric,
    /// The conclusion, behind `For 20 % of the capture, `.
    pub(super) what: &'static str,
    pub(super) figure: &'static str,
    pub(super) advice: &'static str,
    pub(super) because: &'static str,
}

impl PressureCheck {
    pub(super) fn outcome(&self, facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
        let waited = facts.whole().tree.total(self.metric);
        let elapsed = facts.elapsed().0;
        if waited.count == 0 || elapsed == 0 {
            return no_system_metrics();
        }
        let (share, datapoints) = (percent(waited.sum.min(elapsed), elapsed), waited.count);
        if share < values.get("min_percent") {
            return Outcome::Healthy { datapoints };
        }
        let mut evidence = vec![Figure::measured(self.figure, share, "percent")];
        evidence.extend(cpus_busy(facts));
        let draft = Draft {
            title: format!("For {} of the capture, {}", written(share), self.what),
            metric: "length of the capture",
            share_percent: share,
            gain: Gain::Bounded { at_most_percent: share, because: self.because.into() },
            places: Vec::new(),
            evidence,
            advice: self.advice,
            datapoints,
            violations: violations_at_least(share, datapoints),
        };
        Outcome::Findings(vec![draft.finding(values)])
    }
}

/// How long the program's threads waited.
#[derive(Default)]
pub(super) struct OwnWaits {
    /// For one reason.
    pub(super) known_ns: u64,
    /// Without a stack, so that the reason is not known: it may have been the same.
    pub(super) unknown_ns: u64,
}

/// Waits of the program's threads for a reason, in the whole: a part has no other pressure. `None` if time off the CPU
/// was not recorded.
pub(super) fn own_waits(facts: &Facts<'_>, reason: &str) -> Option<OwnWaits> {
    if !facts.whole_has(Metric::OffCpuTime) {
        return None;
    }
    let whole = facts.whole();
    let mut waits = OwnWaits::default();
    for (node, cell) in whole.tree.cells(Metric::OffCpuTime) {
        let Frame::Wait { reason: waited_for } = whole.frames.get(whole.tree.node(node).frame) else {
            continue;
        };
        let sum = match whole.strings.get(waited_for) {
            known if known == reason => &mut waits.known_ns,
            other if other.starts_with("stack ") => &mut waits.unknown_ns,
            _ => continue,
        };
        *sum = sum.saturating_add(cell.sum);
    }
    Some(waits)
}

/// CPUs of the machine that were read.
fn cpus(facts: &Facts<'_>) -> u64 {
    let profile = facts.whole();
    let cells = profile.tree.cells(Metric::CpuBusyTime);
    cells.filter(|(node, _)| resource(profile, *node).is_some_and(|name| name.starts_with("cpu "))).count()
        as u64
}

/// Utilization of the machine's CPUs; 0 if unknown.
fn cpus_busy_percent(facts: &Facts<'_>) -> f64 {
    let busy = facts.whole().tree.total(Metric::CpuBusyTime).sum;
    match facts.elapsed().0.saturating_mul(cpus(facts)) {
        0 => 0.0,
        whole => percent(busy.min(whole), whole),
    }
}

/// CPUs that the program may use: those of the machine, but no more than its affinity and its CPU limit allow. 0 if the
/// machine was not read.
pub(super) fn usable_cpus(facts: &Facts<'_>) -> u64 {
    let allowed = facts.whole().meta.allowed_cpus.filter(|cpus| *cpus > 0);
    allowed.map_or(u64::MAX, u64::from).min(cpus(facts))
}

/// Utilization of these, as far as it is known: whatever runs elsewhere, they are busy while the program runs.
pub(super) fn usable_cpus_busy_percent(facts: &Facts<'_>) -> f64 {
    let own = facts.whole().tree.total(Metric::CpuTime).sum;
    let by_program = match facts.elapsed().0.saturating_mul(usable_cpus(facts)) {
        0 => 0.0,
        whole => percent(own.min(whole), whole),
    };
    cpus_busy_percent(facts).max(by_program)
}

/// Both numbers of CPUs; one where the program may use all.
pub(super) fn cpu_figures(facts: &Facts<'_>) -> Vec<Figure> {
    let (all, usable) = (cpus(facts), usable_cpus(facts));
    let mut figures = vec![Figure::measured("CPUs of the machine", all as f64, "count")];
    if usable < all {
        figures.push(Figure::bounded("CPUs that the program may use, at most", usable as f64, "count"));
    }
    figures
}

/// Utilization of the machine's CPUs, and the profiled programs' own share: this shows who they compete with.
fn cpus_busy(facts: &Facts<'_>) -> Vec<Figure> {
    let tree = &facts.whole().tree;
    let (busy, own) = (tree.total(Metric::CpuBusyTime).sum, tree.total(Metric::CpuTime).sum);
    let busy_percent = cpus_busy_percent(facts);
    if busy_percent == 0.0 {
        return Vec::new();
    }
    let mut figures = vec![Figure::measured("CPUs of the machine busy", busy_percent, "percent")];
    if own > 0 {
        let share = percent(own.min(busy), busy);
        figures.push(Figure::measured("of that, for the profiled programs", share, "percent"));
    }
    figures
}

/// The outcome if the machine was not read, or its kernel does not count pressure.
pub(super) fn no_system_metrics() -> Outcome {
    Outcome::missing(reason::NO_SYSTEM_METRICS)
}
