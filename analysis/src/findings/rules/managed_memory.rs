//! Managed memory that is hardly prefetched: kernels wait for its pages.
//!
//! A profile has who allocated how much, and how much was prefetched, not which kernel touches what. So this names
//! allocations, and cannot say before which launch each would be prefetched best.

use deepctx_common::reasons;
use deepctx_profile::frame::Frame;
use deepctx_profile::intern::FrameId;
use deepctx_profile::metric::{Cell, Metric};
use deepctx_profile::profile::Profile;
use deepctx_profile::tree::NodeId;
use deepctx_profile::units::Bytes;
use rustc_hash::{FxHashMap, FxHashSet};

use super::{Draft, Facts, Outcome, PlaceKey, Rule, Values, written};
use crate::amount::percent;
use crate::findings::finding::{Figure, Finding, Gain};
use crate::findings::reason;
use crate::findings::rule::Parameter;
use crate::tables::system::resource;

reasons! {
    class Gap, page "findings.md";
    const NO_ALLOCATIONS = "no-allocations",
        "no allocation of device memory was seen: all may have been before the capture",
        helps "a command that it starts, without --no-gpu";
}

pub(super) const RULE: Rule = Rule {
    id: "managed-memory",
    what: "managed memory (unified memory) that is hardly prefetched: kernels may wait for its pages",
    definition: "in processes that launch kernels: bytes prefetched / bytes that `cuMemAllocManaged`, \
                 `cudaMallocManaged` and `hipMallocManaged` allocated < `max_percent`; of contexts whose largest \
                 allocation is > `min_mib` MiB. Not where batches are prefetched, whose sizes are not read",
    source: "PASTA (UVM advisor)",
    origin: "managed allocations, and tensors > 1 MiB in them, that kernels of an operator access",
    needs: "launches, and allocations of device memory",
    parameters: &[
        Parameter { name: "min_mib", default: 1.0, source: "PASTA" },
        Parameter {
            name: "max_percent",
            default: 10.0,
            source: "own: a program that prefetches more has chosen what",
        },
    ],
    check,
};

/// Calls that allocate managed memory.
const ALLOCATING: [&str; 3] = ["cuMemAllocManaged", "cudaMallocManaged", "hipMallocManaged"];
/// The work below a call that prefetches.
const PREFETCH: &str = "prefetch";
/// In the names of calls that prefetch several ranges.
const BATCH: &str = "PrefetchBatch";

/// The frame of a process, the same in a part of a profile; `None` in a file without processes.
type Process = Option<FrameId>;

/// Managed memory that one context allocates.
struct Allocations {
    node: NodeId,
    cell: Cell,
    process: Process,
}

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    if !facts.whole_has(Metric::Kernels) {
        return Outcome::missing(reason::NO_KERNEL_LAUNCHES);
    }
    if !facts.has(Metric::AllocBytes) {
        return Outcome::missing(NO_ALLOCATIONS);
    }
    let healthy = Outcome::Healthy { datapoints: facts.profile().tree.total(Metric::AllocBytes).count };
    let managed = managed(facts, values.get("min_mib") * f64::from(1 << 20));
    if managed.is_empty() {
        return healthy;
    }
    let Some(prefetched) = prefetched(facts.whole(), &managed) else { return healthy };
    if percent(prefetched, bytes_of(&managed)) >= values.get("max_percent") {
        return healthy;
    }
    Outcome::Findings(vec![finding(facts, values, &managed, prefetched)])
}

fn finding(facts: &Facts<'_>, values: &Values<'_>, managed: &[Allocations], prefetched: u64) -> Finding {
    let all = facts.profile().tree.total(Metric::AllocBytes);
    let (bytes, live) = (bytes_of(managed), live_at_once(facts.profile(), managed));
    let part = if prefetched == 0 { "none".to_owned() } else { written(percent(prefetched, bytes)) };
    let memory = memory_of_gpus(facts.whole());
    let waits = match memory {
        Some(memory) if live > memory => "more is live than fits into all GPUs, so its pages move in and out",
        _ => "kernels may wait for its pages",
    };
    let contexts: FxHashSet<NodeId> = managed.iter().map(|of| of.node).collect();
    let mut evidence = vec![
        Figure::measured("managed memory allocated", bytes as f64, "bytes"),
        Figure::measured("memory prefetched", prefetched as f64, "bytes"),
        Figure::bounded("managed memory of one process live at once, at least", live as f64, "bytes"),
    ];
    evidence.extend(memory.map(|memory| Figure::measured("memory of all GPUs", memory as f64, "bytes")));
    let draft = Draft {
        title: format!("{} of managed memory is allocated, {part} of it prefetched: {waits}", Bytes(bytes)),
        metric: Metric::AllocBytes.name(),
        share_percent: percent(bytes, all.sum),
        gain: Gain::Unknown { because: "how long kernels wait for pages is not measured".into() },
        places: facts.places(Metric::AllocBytes, PlaceKey::Line, |node| contexts.contains(&node), all.sum),
        evidence,
        advice: "Prefetch it before the first launch of the operator that uses it (cudaMemPrefetchAsync), or say where \
                 it belongs (cudaMemAdvise, whose calls this does not see). What only kernels use needs no managed \
                 memory. Where more is live than fits into the GPU, prefetch single tensors: whole allocations evict \
                 each other.",
        datapoints: all.count,
        violations: managed.iter().fold(0, |sum, of| of.cell.count.saturating_add(sum)),
    };
    draft.finding(values)
}

/// Contexts whose largest allocation of managed memory has more than `least` bytes, in processes that launch kernels.
fn managed(facts: &Facts<'_>, least: f64) -> Vec<Allocations> {
    let (profile, whole) = (facts.profile(), facts.whole());
    let allocates = |node: NodeId| match profile.frames.get(profile.tree.node(node).frame) {
        Frame::GpuApi { name } => ALLOCATING.contains(&profile.strings.get(name)),
        _ => false,
    };
    let cells = profile.tree.cells(Metric::AllocBytes);
    let mut found: Vec<Allocations> = cells
        .filter(|(node, cell)| cell.max as f64 > least && allocates(*node))
        .map(|(node, cell)| Allocations { node, cell, process: process_of(profile, node) })
        .collect();
    // Contexts of kernels are many, and few programs allocate managed memory.
    if !found.is_empty() {
        let launches = whole.tree.cells(Metric::Kernels);
        let launching: FxHashSet<Process> = launches.map(|(node, _)| process_of(whole, node)).collect();
        found.retain(|of| launching.contains(&of.process));
    }
    found
}

fn process_of(profile: &Profile, node: NodeId) -> Process {
    profile.process_of(node).map(|process| profile.tree.node(process).frame)
}

/// Bytes that the processes of these allocations prefetch; `None` if unknown.
fn prefetched(whole: &Profile, managed: &[Allocations]) -> Option<u64> {
    let is_batch = |frame: &Frame| match frame {
        Frame::GpuApi { name } => whole.strings.get(*name).contains(BATCH),
        _ => false,
    };
    if whole.frames.iter().any(|(_, frame)| is_batch(&frame)) {
        return None;
    }
    let is_prefetch = |node: NodeId| match whole.frames.get(whole.tree.node(node).frame) {
        Frame::GpuKernel { name } => whole.strings.get(name) == PREFETCH,
        _ => false,
    };
    let processes: FxHashSet<Process> = managed.iter().map(|of| of.process).collect();
    let prefetches = whole.tree.cells(Metric::CopyBytes).filter(|(node, _)| is_prefetch(*node));
    let of_these = prefetches.filter(|(node, _)| processes.contains(&process_of(whole, *node)));
    Some(of_these.fold(0, |sum, (_, cell)| cell.sum.saturating_add(sum)))
}

fn bytes_of(managed: &[Allocations]) -> u64 {
    managed.iter().fold(0, |sum, of| of.cell.sum.saturating_add(sum))
}

/// The most that one process is known to have live: what it never freed, or its largest allocation.
fn live_at_once(profile: &Profile, managed: &[Allocations]) -> u64 {
    let mut live: FxHashMap<Process, u64> = FxHashMap::default();
    for of in managed {
        let returned = profile.tree.exclusive(of.node, Metric::ReturnedBytes).sum;
        let sum = live.entry(of.process).or_default();
        *sum = sum.saturating_add(of.cell.sum.saturating_sub(returned));
    }
    let largest = managed.iter().map(|of| of.cell.max).max().unwrap_or(0);
    live.into_values().fold(largest, u64::max)
}

/// Memory of all GPUs of the machine: which of them a process uses is not known. `None` if it was not read.
fn memory_of_gpus(whole: &Profile) -> Option<u64> {
    let is_gpu = |node: NodeId| resource(whole, node).is_some_and(|name| name.starts_with("gpu "));
    let totals = whole.tree.cells(Metric::MemoryTotalBytes).filter(|(node, _)| is_gpu(*node));
    let sum = totals.fold(0u64, |sum, (_, cell)| sum.saturating_add(cell.max));
    (sum > 0).then_some(sum)
}
