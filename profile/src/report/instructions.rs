//! The report's part on instructions: where kernels stood when they were sampled, and what they waited for.
//!
//! Owns: the kernels with most samples, each with its hottest instructions and their reasons. Because: that a kernel is slow is
//! known already; what it waits for is the question. Does not: say how long: samples are counted, not times.

use std::collections::BTreeMap;
use std::io::{self, Write};

use rustc_hash::FxHashMap;

use super::{Extent, NAME_WIDTH, PLACE_WIDTH, share, without_middle, without_start};
use crate::frame::{Frame, clean};
use crate::intern::FrameId;
use crate::metric::Metric;
use crate::profile::Profile;

/// Kernels that are shown, and instructions of each.
const KERNELS: usize = 3;
const INSTRUCTIONS: usize = 5;
/// Reasons that are named of an instruction.
const REASONS: usize = 2;

/// What begins the name of such a metric.
const STALL: &str = "stall:";

/// Samples by reason.
type Reasons = BTreeMap<Metric, u64>;

pub(super) fn write(profile: &Profile, extent: Extent, out: &mut dyn Write) -> io::Result<()> {
    // By kernel, which is the frame above, over all contexts.
    let mut kernels: FxHashMap<FrameId, FxHashMap<FrameId, Reasons>> = FxHashMap::default();
    for metric in Metric::ALL.iter().copied().filter(|metric| metric.name().starts_with(STALL)) {
        for (node, cell) in profile.tree.cells(metric) {
            let node = profile.tree.node(node);
            let kernel = profile.tree.node(node.parent).frame;
            let places = kernels.entry(kernel).or_default();
            let sum = places.entry(node.frame).or_default().entry(metric).or_insert(0);
            *sum = sum.saturating_add(cell.sum);
        }
    }
    let mut kernels: Vec<_> =
        kernels.into_iter().map(|(kernel, places)| (kernel, total(&places), places)).collect();
    let all = kernels.iter().fold(0u64, |all, (_, samples, _)| all.saturating_add(*samples));
    if all == 0 {
        return Ok(());
    }
    let text = |id: FrameId| profile.frames.get(id).label(&profile.strings, false);
    kernels.sort_by_cached_key(|(kernel, samples, _)| (std::cmp::Reverse(*samples), text(*kernel)));
    writeln!(out, "\nInstructions with most samples, and what their warps waited for")?;
    for (kernel, samples, places) in kernels.into_iter().take(KERNELS.min(extent.rows)) {
        writeln!(
            out,
            "  {}  {samples:>8}  {}",
            share(samples, all),
            without_middle(&text(kernel), 2 * NAME_WIDTH)
        )?;
        let mut places: Vec<_> =
            places.into_iter().map(|(place, reasons)| (place, sum(&reasons), reasons)).collect();
        places.sort_by_cached_key(|(place, samples, _)| (std::cmp::Reverse(*samples), text(*place)));
        for (place, of_place, reasons) in places.into_iter().take(INSTRUCTIONS.min(extent.rows)) {
            let frame = profile.frames.get(place);
            let at = match frame {
                Frame::Instruction { offset, .. } => format!("+{offset:#x}"),
                _ => text(place),
            };
            let line = without_start(&clean(&frame.detail(&profile.strings, true)), PLACE_WIDTH);
            let mut reasons: Vec<_> = reasons.into_iter().collect();
            reasons.sort_by_key(|(metric, n)| (std::cmp::Reverse(*n), *metric));
            let reasons = reasons.into_iter().take(REASONS).map(|(metric, n)| {
                format!("{} {}", metric.name().trim_start_matches(STALL), share(n, of_place).trim_start())
            });
            let reasons: Vec<_> = reasons.collect();
            let row = format!("    {}  {at:>9}  {}  {line}", share(of_place, samples), reasons.join(", "));
            writeln!(out, "{}", row.trim_end())?;
        }
    }
    Ok(())
}

fn sum(reasons: &Reasons) -> u64 {
    reasons.values().fold(0, |sum, n| sum.saturating_add(*n))
}

fn total(places: &FxHashMap<FrameId, Reasons>) -> u64 {
    places.values().fold(0, |total, reasons| total.saturating_add(sum(reasons)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Line;
    use crate::intern::StrId;
    use std::num::NonZeroU32;

    #[test]
    fn the_hottest_instructions_come_first_with_what_they_wait_for() {
        let mut profile = Profile::new(Default::default(), Default::default());
        let name = profile.text("gemm(float*)");
        let file = profile.text("/src/gemm.cu");
        let kernel = profile.frame(Frame::GpuKernel { name });
        let mut add = |caller: &str, offset, line: Line, metric, n| {
            let api = profile.text(caller);
            let file = if line.is_some() { file } else { StrId::EMPTY };
            let stack = [
                profile.frame(Frame::GpuApi { name: api }),
                kernel,
                profile.frame(Frame::Instruction { kernel: name, offset, file, line }),
            ];
            profile.add(&stack, metric, n);
        };
        add("a", 0x10, NonZeroU32::new(7), Metric::StallLongScoreboard, 60);
        add("b", 0x10, NonZeroU32::new(7), Metric::StallWait, 20);
        add("a", 0x40, None, Metric::StallSelected, 20);
        let mut out = Vec::new();
        write(&profile, Extent::default(), &mut out).unwrap();
        let expect = "\nInstructions with most samples, and what their warps waited for
  100.0%       100  [gpu] gemm(float*)
     80.0%      +0x10  long_scoreboard 75.0%, wait 25.0%  /src/gemm.cu:7
     20.0%      +0x40  selected 100.0%\n";
        assert_eq!(String::from_utf8(out).unwrap(), expect);
        let empty = Profile::new(Default::default(), Default::default());
        let mut out = Vec::new();
        write(&empty, Extent::default(), &mut out).unwrap();
        assert!(out.is_empty());
    }
}
