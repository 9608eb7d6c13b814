//! Phases: what each part of training took.
//!
//! Owns: the table. Because: it is where a reader begins. Does not: tell phases apart ([`crate::phase`]).

use std::io::{self, Write};

use super::{amount, share};
use crate::metric::{Cell, Metric};
use crate::phase::{Phase, phases};
use crate::profile::Profile;

/// What a phase is measured by, as far as the profile has it.
const METRICS: [Metric; 6] = [
    Metric::CpuTime,
    Metric::OffCpuTime,
    Metric::GpuTime,
    Metric::Kernels,
    Metric::SyncTime,
    Metric::CopyTime,
];

/// The table; nothing of a program whose phases are not known.
pub(super) fn write(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let of = phases(profile);
    if of.iter().all(|phase| *phase == Phase::Other) {
        return Ok(());
    }
    let sums: Vec<(Metric, Vec<u64>)> = METRICS
        .into_iter()
        .map(|metric| {
            let mut sums = vec![0u64; Phase::ALL.len()];
            for (node, cell) in profile.tree.cells(metric) {
                let at = Phase::ALL.iter().position(|phase| *phase == of[node.index()]).unwrap_or(0);
                sums[at] = sums[at].saturating_add(cell.sum);
            }
            (metric, sums)
        })
        .filter(|(_, sums)| sums.iter().any(|sum| *sum > 0))
        .collect();
    // Several optimizers make several steps at a time.
    let steps = profile.tree.cells(Metric::StepTime).map(|(_, cell): (_, &Cell)| cell.count).max();
    write!(out, "\nPhases")?;
    match steps {
        Some(1) => writeln!(out, ", over 1 step")?,
        Some(steps) => writeln!(out, ", over {steps} steps")?,
        None => writeln!(out)?,
    }
    for (metric, _) in &sums {
        write!(out, "  {:>22}", metric.name())?;
    }
    writeln!(out, "  phase")?;
    for (at, phase) in Phase::ALL.iter().enumerate() {
        if sums.iter().all(|(_, sums)| sums[at] == 0) {
            continue;
        }
        for (metric, sums) in &sums {
            let whole = sums.iter().fold(0, |whole: u64, sum| whole.saturating_add(*sum));
            write!(out, "  {:>14}  {}", amount(metric.unit(), sums[at]), share(sums[at], whole))?;
        }
        writeln!(out, "  {}", phase.name())?;
    }
    Ok(())
}
