//! Exposed work: copies and communication that no other work overlaps, and those that something waits for.
//!
//! Owns: [`ExposedWork`]. Because: a copy concurrent with a kernel costs nothing, and one alone on the device may cost
//! nothing either, if nothing waits for it. Does not: compute the gain without it; that takes a simulation.
//!
//! *Exposed* is the time in which the device runs nothing else (no kernel that computes, and nothing of another row).
//! *Blocking* is the time in which something waits for it: a call of the host that waits for its end, or launched work
//! behind an event of its stream. The basis of the waits is counted: some are guessed.

use deepctx_profile::order::SortRows as _;
use std::collections::BTreeMap;

use deepctx_profile::frame::clean;
use deepctx_profile::intern::Id;
use deepctx_profile::trace::{Basis, DeviceOp, KernelClass, TraceTime, Waiter};
use rustc_hash::FxHashMap;
use serde::Serialize;

use super::clocks;
use super::intervals::Intervals;
use super::window::Window;

/// Maximum number of listed names; collectives have some dozens.
const NAMES_MAX: usize = 64;

/// Copies, fills or collectives of one name on one device.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ExposedWork {
    /// The rank.
    pub rank: u32,
    /// Number of the device.
    pub device: u32,
    /// Their name.
    pub name: String,
    /// How many.
    pub count: u64,
    /// Time in which at least one runs.
    pub time_ns: u64,
    /// Part of it in which the device runs nothing else.
    pub exposed_ns: u64,
    /// Part of it in which something waits for them.
    pub blocking_ns: u64,
    /// Error of `blocking_ns`: a wait begins at a time of a thread, so the accuracy of the device clock bounds each.
    /// `None` if unknown.
    pub blocking_within_ns: Option<u64>,
    /// Part of it that is both.
    pub exposed_and_blocking_ns: u64,
    /// How many are waited for.
    pub waited_for: u64,
    /// How many of these waits are guessed.
    pub guessed_waits: u64,
}

/// Work of a device by begin and end.
type Ops = Vec<(Id<DeviceOp>, DeviceOp)>;

pub(super) fn compute(window: &Window<'_>) -> Vec<ExposedWork> {
    let waits = waits(window);
    let within_ns = clocks::of_devices(&window.of.trace).within_ns();
    let mut devices: BTreeMap<u32, (Ops, BTreeMap<&str, Ops>)> = BTreeMap::new();
    for (id, op) in window.device() {
        let Some(stream) = window.of.trace.streams().get(op.stream.index()) else { continue };
        let (compute, others) = devices.entry(stream.device).or_default();
        let name = window.of.trace.name(op.name);
        if KernelClass::of(op.kind, name) == KernelClass::Compute {
            compute.push((id, op));
            continue;
        }
        let known = others.len() < NAMES_MAX || others.contains_key(name);
        others.entry(if known { name } else { "[others]" }).or_default().push((id, op));
    }
    let mut rows = Vec::new();
    for (device, (compute, others)) in devices {
        let compute = union(&compute);
        let times: Vec<Intervals> = others.values().map(union).collect();
        // When work of one name runs, or kernels compute, and nothing else.
        let alone = Intervals::in_one_only(times.iter().chain([&compute]));
        for ((name, ops), time) in others.iter().zip(&times) {
            let sums = exposed(time, ops, &alone, &waits);
            let (rank, name) = (window.of.rank, clean(name));
            let blocking_within_ns = within_ns.map(|each| sums.waited_for.saturating_mul(each));
            rows.push(ExposedWork { rank, device, name, blocking_within_ns, ..sums });
        }
    }
    rows.sort_rows_by(|a, b| b.exposed_ns.cmp(&a.exposed_ns).then_with(|| a.name.cmp(&b.name)));
    rows
}

fn union(ops: &Ops) -> Intervals {
    Intervals::of(ops.iter().map(|(_, op)| (op.begin, op.end())))
}

/// Since when something waits for each operation, with its certainty; of several the most certain, then the first.
fn waits(window: &Window<'_>) -> FxHashMap<Id<DeviceOp>, (Basis, TraceTime)> {
    let (trace, links) = (&window.of.trace, &window.of.links);
    let mut all: FxHashMap<Id<DeviceOp>, (Basis, TraceTime)> = FxHashMap::default();
    for wait in links.waits() {
        let since = match wait.waiter {
            Waiter::Host(call) => trace.host.get(call).map(|call| call.begin),
            Waiter::Device(op) => {
                links.launch(op).call().and_then(|call| trace.host.get(call)).map(|call| call.end())
            }
        };
        let Some(since) = since else { continue };
        let (basis, first) = all.entry(wait.on).or_insert((wait.basis, since));
        *first = since.min(*first);
        if *basis == Basis::Inferred {
            *basis = wait.basis;
        }
    }
    all
}

/// The figures of operations running in `time`, of which nothing else runs in `alone`.
fn exposed(
    time: &Intervals,
    ops: &Ops,
    alone: &Intervals,
    waits: &FxHashMap<Id<DeviceOp>, (Basis, TraceTime)>,
) -> ExposedWork {
    let exposed = time.and(alone);
    let waited: Vec<_> = ops.iter().filter_map(|(id, op)| Some((op, waits.get(id)?))).collect();
    let blocking = Intervals::of(waited.iter().map(|(op, (_, since))| (op.begin.max(*since), op.end())));
    ExposedWork {
        count: ops.len() as u64,
        time_ns: time.length(),
        exposed_ns: exposed.length(),
        blocking_ns: blocking.length(),
        exposed_and_blocking_ns: exposed.and(&blocking).length(),
        waited_for: waited.len() as u64,
        guessed_waits: waited.iter().filter(|(_, (basis, _))| *basis == Basis::Inferred).count() as u64,
        ..ExposedWork::default()
    }
}
