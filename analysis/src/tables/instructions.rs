//! Instructions: where kernels were when sampled, and what their warps waited for.
//!
//! Owns: [`Instructions`]. Because: the question about a slow kernel is what it waits for. Does not: give times:
//! samples are counts.

use deepctx_profile::order::SortRows as _;
use std::cmp::Reverse;
use std::collections::BTreeMap;

use deepctx_profile::frame::{Frame, clean};
use deepctx_profile::intern::FrameId;
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Profile;
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::amount::percent;
use crate::{Subset, Table};

/// Prefix of the name of a metric that counts samples by reason.
const STALL: &str = "stall:";

/// Sampled kernels, most samples first.
pub type Instructions = Table<SampledKernel>;

/// One sampled kernel.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SampledKernel {
    /// Its name.
    pub kernel: String,
    /// Samples of its warps.
    pub samples: u64,
    /// As a share of all samples.
    pub samples_percent: f64,
    /// Its instructions, most samples first.
    pub instructions: Table<Instruction>,
}

/// One instruction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Instruction {
    /// Where it is: its offset in the kernel, `+0x1f0`, or the text of its frame.
    pub at: String,
    /// File and line; empty when unknown.
    pub line: String,
    /// Samples there.
    pub samples: u64,
    /// As a share of those of the kernel.
    pub samples_percent: f64,
    /// What the warps waited for, most samples first.
    pub reasons: Vec<Stall>,
    /// The instructions whose results it waits for, nearest first, as modelled from the code; empty if it waits for
    /// none, or if that is not known.
    pub waits_for: Vec<Producer>,
}

/// An instruction that another one waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Producer {
    /// Where it is: its offset in the kernel, or why there may be others.
    pub at: String,
    /// File and line; empty when unknown.
    pub line: String,
}

/// One stall reason.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stall {
    /// Its name, as NVIDIA's tools print it.
    pub reason: &'static str,
    /// Samples.
    pub samples: u64,
    /// As a share of those of the instruction.
    pub samples_percent: f64,
}

/// Samples by reason.
type Reasons = BTreeMap<Metric, u64>;
/// By instruction.
type Places = FxHashMap<FrameId, Reasons>;

impl Instructions {
    /// The kernels with most samples.
    pub fn compute(subset: &Subset<'_>) -> Self {
        let (profile, most) = (subset.profile(), subset.selection().rows);
        let kernels = samples(profile);
        let all = kernels.values().fold(0u64, |all, places| all.saturating_add(total(places)));
        if all == 0 {
            return Table::default();
        }
        let row = |(kernel, places): (FrameId, Places)| {
            let samples = total(&places);
            let rows =
                places.into_iter().map(|(place, reasons)| instruction(profile, place, reasons, samples));
            SampledKernel {
                kernel: text(profile, kernel),
                samples,
                samples_percent: percent(samples, all),
                instructions: sorted(rows.collect(), most),
            }
        };
        let mut rows: Vec<SampledKernel> = kernels.into_iter().map(row).collect();
        rows.sort_rows_by(|a, b| (Reverse(a.samples), &a.kernel).cmp(&(Reverse(b.samples), &b.kernel)));
        Table::cut(rows, most)
    }
}

/// Samples by kernel, which is the frame above, over all contexts.
fn samples(profile: &Profile) -> FxHashMap<FrameId, Places> {
    let mut kernels: FxHashMap<FrameId, Places> = FxHashMap::default();
    for metric in Metric::ALL.iter().copied().filter(|metric| metric.name().starts_with(STALL)) {
        for (node, cell) in profile.tree.cells(metric) {
            let node = profile.tree.node(node);
            let kernel = profile.tree.node(node.parent).frame;
            let places = kernels.entry(kernel).or_default();
            let sum = places.entry(node.frame).or_default().entry(metric).or_insert(0);
            *sum = sum.saturating_add(cell.sum);
        }
    }
    kernels
}

fn instruction(profile: &Profile, place: FrameId, reasons: Reasons, of_kernel: u64) -> (String, Instruction) {
    let samples = sum(&reasons);
    let label = text(profile, place);
    let producer = |at: &FrameId| Producer { at: offset(profile, *at), line: line(profile, *at) };
    let mut reasons: Vec<_> = reasons.into_iter().collect();
    reasons.sort_rows_by_key(|(metric, n)| (Reverse(*n), *metric));
    let stall = |(metric, n): (Metric, u64)| Stall {
        reason: metric.name().trim_start_matches(STALL),
        samples: n,
        samples_percent: percent(n, samples),
    };
    let row = Instruction {
        at: offset(profile, place),
        line: line(profile, place),
        samples,
        samples_percent: percent(samples, of_kernel),
        reasons: reasons.into_iter().map(stall).collect(),
        waits_for: profile.producers.of(place).iter().map(producer).collect(),
    };
    (label, row)
}

/// Most samples first, then by the text of their frames.
fn sorted(mut rows: Vec<(String, Instruction)>, most: usize) -> Table<Instruction> {
    rows.sort_rows_by(|(name, a), (other, b)| (Reverse(a.samples), name).cmp(&(Reverse(b.samples), other)));
    Table::cut(rows.into_iter().map(|(_, row)| row).collect(), most)
}

/// The offset of an instruction; of any other frame, its text.
fn offset(profile: &Profile, frame: FrameId) -> String {
    match profile.frames.get(frame) {
        Frame::Instruction { offset, .. } => format!("+{offset:#x}"),
        _ => text(profile, frame),
    }
}

/// File and line of an instruction; empty when unknown.
fn line(profile: &Profile, frame: FrameId) -> String {
    clean(&profile.frames.get(frame).detail(&profile.strings, true))
}

fn text(profile: &Profile, frame: FrameId) -> String {
    profile.frames.get(frame).label(&profile.strings, false)
}

fn sum(reasons: &Reasons) -> u64 {
    reasons.values().fold(0, |sum, n| sum.saturating_add(*n))
}

fn total(places: &Places) -> u64 {
    places.values().fold(0, |total, reasons| total.saturating_add(sum(reasons)))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::num::NonZeroU32;

    use deepctx_profile::frame::{Line, Origin};
    use deepctx_profile::intern::StrId;

    use super::*;
    use crate::Selection;

    /// Two instructions of one kernel, called from two places.
    pub(crate) fn sampled() -> Profile {
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
        let at = |offset, line: Line| {
            let file = if line.is_some() { file } else { StrId::EMPTY };
            Frame::Instruction { kernel: name, offset, file, line }
        };
        let [waiting, load] = [at(0x10, NonZeroU32::new(7)), at(0, NonZeroU32::new(6))];
        let (waiting, load) = (profile.frame(waiting), profile.frame(load));
        let reason = profile.text(deepctx_common::samples::NoProducer::BeforeBlock.key());
        let unknown = profile.frame(Frame::Unresolved { reason, origin: Origin::Gpu });
        profile.producers.add(waiting, load);
        profile.producers.add(waiting, unknown);
        profile
    }

    #[test]
    fn the_hottest_instructions_come_first_with_their_stall_reasons() {
        let profile = sampled();
        let instructions = Instructions::compute(&Subset::new(&profile, &Selection::of(Metric::CpuTime)));
        let [kernel] = &instructions.rows[..] else { panic!("{instructions:?}") };
        assert_eq!((kernel.kernel.as_str(), kernel.samples), ("[gpu] gemm(float*)", 100));
        let rows: Vec<_> = kernel
            .instructions
            .rows
            .iter()
            .map(|row| (row.at.as_str(), row.line.as_str(), row.samples_percent, row.reasons[0].reason))
            .collect();
        assert_eq!(
            rows,
            [("+0x10", "/src/gemm.cu:7", 80.0, "long_scoreboard"), ("+0x40", "", 20.0, "selected")]
        );
        let waits_for = |row: usize| {
            let waits_for = kernel.instructions.rows[row].waits_for.iter();
            waits_for.map(|of| (of.at.as_str(), of.line.as_str())).collect::<Vec<_>>()
        };
        assert_eq!(waits_for(0), [("+0x0", "/src/gemm.cu:6"), ("[unknown: producer-before-block]", "")]);
        assert!(waits_for(1).is_empty());
    }

    #[test]
    fn a_profile_without_samples_of_warps_has_no_table() {
        let profile = Profile::new(Default::default(), Default::default());
        assert!(Instructions::compute(&Subset::new(&profile, &Selection::of(Metric::CpuTime))).is_empty());
    }
}
