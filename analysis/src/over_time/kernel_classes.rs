//! Kernel classes: what each device ran, by purpose and by name.
//!
//! Owns: [`KernelClasses`]. Because: computation, communication and memory traffic need different fixes, and kernels
//! with varying lengths stand out by name. Does not: attribute them to callers: see [`super::Operators`].
//!
//! Definition of HTA (`get_gpu_kernel_breakdown`): each moment goes to the set of classes running then, so the parts
//! add up to the busy time; and each kernel to its class, by name, with count, sum, minimum, maximum, mean and standard
//! deviation. HTA lists the first kernels of a class up to a share of its time, and merges the rest (`others`).

use deepctx_profile::order::SortRows as _;
use std::collections::BTreeMap;

use deepctx_profile::StrId;
use deepctx_profile::frame::clean;
use deepctx_profile::trace::{DeviceOp, KernelClass};
use rustc_hash::FxHashMap;
use serde::Serialize;

use super::breakdown::percent;
use super::intervals::Intervals;
use super::statistics::Statistics;
use super::window::Window;

/// Maximum number of listed kernels per class, by time.
const KERNELS_MAX: usize = 100;
/// Every class, in the order of names in a combination.
const CLASSES: [KernelClass; 3] = [KernelClass::Compute, KernelClass::Communication, KernelClass::Memory];

/// Work of one device for one rank.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KernelClasses {
    /// The rank.
    pub rank: u32,
    /// Number of the device.
    pub device: u32,
    /// Time by the set of running classes, most first.
    pub together: Vec<ClassOverlap>,
    /// Each class, with its operations.
    pub classes: Vec<ClassSum>,
}

/// Time in which exactly these classes run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClassOverlap {
    /// Names of the classes: `compute`, `communication`, `memory`.
    pub classes: Vec<&'static str>,
    /// How long.
    pub time_ns: u64,
    /// As a share of the time in which anything runs.
    pub percent: f64,
}

/// Operations of one class.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClassSum {
    /// The class.
    pub class: &'static str,
    /// Lengths of all its operations.
    pub lengths: Statistics,
    /// The same by name, most time first.
    pub kernels: Vec<NamedLengths>,
    /// Further names.
    pub left_out: usize,
}

/// Lengths of operations of one name.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NamedLengths {
    /// The name.
    pub name: String,
    /// The lengths.
    #[serde(flatten)]
    pub lengths: Statistics,
}

pub(super) fn compute(window: &Window<'_>) -> Vec<KernelClasses> {
    let mut devices: BTreeMap<u32, Vec<(KernelClass, DeviceOp)>> = BTreeMap::new();
    for (_, op) in window.device() {
        let Some(stream) = window.of.trace.streams().get(op.stream.index()) else { continue };
        let class = KernelClass::of(op.kind, window.name(&op));
        devices.entry(stream.device).or_default().push((class, op));
    }
    let of_device = |(device, ops): (u32, Vec<(KernelClass, DeviceOp)>)| KernelClasses {
        rank: window.of.rank,
        device,
        together: together(&ops),
        classes: CLASSES.into_iter().filter_map(|class| class_sum(window, class, &ops)).collect(),
    };
    devices.into_iter().map(of_device).collect()
}

fn together(ops: &[(KernelClass, DeviceOp)]) -> Vec<ClassOverlap> {
    let union = |of: KernelClass| {
        let of = ops.iter().filter(|(class, _)| *class == of);
        Intervals::of(of.map(|(_, op)| (op.begin, op.end())))
    };
    let unions = CLASSES.map(union);
    let busy = Intervals::of(ops.iter().map(|(_, op)| (op.begin, op.end())));
    // For each set of classes, as bits: the time in which exactly these run.
    let mut rows: Vec<ClassOverlap> = (1_usize..1 << CLASSES.len())
        .map(|set| {
            let is_in = |place: &usize| set & (1 << *place) != 0;
            let times = unions.iter().enumerate().fold(busy.clone(), |left, (place, union)| {
                if is_in(&place) { left.and(union) } else { left.without(union) }
            });
            let classes = (0..CLASSES.len()).filter(is_in).map(|place| class_name(CLASSES[place]));
            let percent = percent(times.length(), busy.length()).unwrap_or(0.0);
            ClassOverlap { classes: classes.collect(), time_ns: times.length(), percent }
        })
        .filter(|row| row.time_ns > 0)
        .collect();
    rows.sort_rows_by_key(|row| std::cmp::Reverse(row.time_ns));
    rows
}

fn class_sum(window: &Window<'_>, class: KernelClass, ops: &[(KernelClass, DeviceOp)]) -> Option<ClassSum> {
    let of = || ops.iter().filter(|(of, _)| *of == class).map(|(_, op)| op);
    let lengths = Statistics::of(of().map(|op| op.duration.0))?;
    let mut by_name: FxHashMap<StrId, Vec<u64>> = FxHashMap::default();
    for op in of() {
        by_name.entry(op.name).or_default().push(op.duration.0);
    }
    let mut kernels: Vec<NamedLengths> = by_name
        .into_iter()
        .filter_map(|(name, lengths)| {
            let lengths = Statistics::of(lengths)?;
            Some(NamedLengths { name: clean(window.of.trace.name(name)), lengths })
        })
        .collect();
    kernels.sort_rows_by(|a, b| b.lengths.sum_ns.cmp(&a.lengths.sum_ns).then_with(|| a.name.cmp(&b.name)));
    let left_out = kernels.len().saturating_sub(KERNELS_MAX);
    kernels.truncate(KERNELS_MAX);
    Some(ClassSum { class: class_name(class), lengths, kernels, left_out })
}

fn class_name(class: KernelClass) -> &'static str {
    match class {
        KernelClass::Compute => "compute",
        KernelClass::Communication => "communication",
        KernelClass::Memory => "memory",
    }
}
