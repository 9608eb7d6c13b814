//! Operators: what work of a device each operator launches.
//!
//! Owns: [`Operators`]. Because: a kernel's name is the library's, and the line to change is that of an operator. Does
//! not: look at single calls; the tree has them by context.
//!
//! Work belongs to the innermost operator around its launch, on the launching thread, by HTA's rule
//! (`get_aten_op_kernels_and_delay`). HTA knows five calls by name; here, whatever was launched counts. Every device
//! operation of the window is in exactly one row or in `outside`, so that counts and times add up to the window's.

use deepctx_profile::StrId;
use deepctx_profile::frame::clean;
use deepctx_profile::intern::Id;
use deepctx_profile::trace::{DeviceOp, HostKind, HostOp};
use rustc_hash::FxHashMap;
use serde::Serialize;

use super::nesting::Nesting;
use super::window::Window;

/// Places of an operator that are named: a model has one operator in some hundred layers.
const PLACES: usize = 8;

/// What the operators of one rank launched.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Operators {
    /// The rank.
    pub rank: u32,
    /// Each operator that was called in the window, most device time first.
    pub rows: Vec<Operator>,
    /// Work that no operator launched: its launch is in none, or is not known.
    pub outside: Launched,
}

/// All calls of one operator.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Operator {
    /// Its name.
    pub name: String,
    /// Calls that begin in the window.
    pub calls: u64,
    /// Length of these calls on their threads; a call within one of the same name counts once.
    pub host_ns: u64,
    /// What it launched itself, without operators that it called.
    pub launched: Launched,
    /// Device operations for each call.
    pub kernels_per_call: f64,
    /// Length of what it and all operators within it launched.
    pub device_inclusive_ns: u64,
    /// Ranges, layers or Python functions directly around it, most device time first.
    pub places: Vec<CallSite>,
    /// Further places.
    pub places_left_out: usize,
}

/// Work of devices with one owner.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Launched {
    /// Kernels, copies and fills.
    pub count: u64,
    /// Sum of their lengths.
    pub device_ns: u64,
    /// The same by name, most time first.
    pub kernels: Vec<Kernel>,
}

/// Work of one name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Kernel {
    /// The name.
    pub name: String,
    /// How often it ran.
    pub count: u64,
    /// Sum of its lengths.
    pub device_ns: u64,
}

/// Where an operator is called.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CallSite {
    /// Name of the range, layer or function.
    pub name: String,
    /// Device operations that were launched there.
    pub count: u64,
    /// Sum of their lengths.
    pub device_ns: u64,
}

/// Counts and times by name.
type SumsByName = FxHashMap<StrId, (u64, u64)>;

#[derive(Default)]
struct Sums {
    calls: u64,
    host_ns: u64,
    inclusive_ns: u64,
    kernels: SumsByName,
    places: SumsByName,
}

pub(super) fn compute(window: &Window<'_>, nesting: &Nesting) -> Operators {
    let (trace, links) = (&window.of.trace, &window.of.links);
    let mut operators: FxHashMap<StrId, Sums> = FxHashMap::default();
    let mut outside = SumsByName::default();
    // Device time of each call and of all below it.
    let mut below: FxHashMap<Id<HostOp>, u64> = FxHashMap::default();
    for (id, op) in trace.host.iter() {
        if op.kind == HostKind::Operator && window.has(op.begin) {
            let sums = operators.entry(op.name).or_default();
            sums.calls += 1;
            sums.host_ns += if nesting.around(id).repeated { 0 } else { op.duration.0 };
        }
    }
    for (id, op) in window.device() {
        let around = links.launch(id).call().map(|call| nesting.around(call)).unwrap_or_default();
        let operator = around.operator.and_then(|id| Some((id, trace.host.get(id)?)));
        let Some((operator_id, operator)) = operator else {
            add(&mut outside, &op, op.name);
            continue;
        };
        *below.entry(operator_id).or_default() += op.duration.0;
        let sums = operators.entry(operator.name).or_default();
        add(&mut sums.kernels, &op, op.name);
        let place = nesting.around(operator_id).place.and_then(|id| trace.host.get(id));
        if let Some(place) = place {
            add(&mut sums.places, &op, place.name);
        }
    }
    inclusive(window, nesting, below, &mut operators);
    let name = |id: StrId| clean(trace.name(id));
    let mut rows: Vec<Operator> =
        operators.into_iter().map(|(id, sums)| row(name(id), sums, &name)).collect();
    rows.sort_by(|a, b| {
        let key = |row: &Operator| (row.launched.device_ns, row.host_ns);
        key(b).cmp(&key(a)).then_with(|| a.name.cmp(&b.name))
    });
    Operators { rank: window.of.rank, rows, outside: launched(outside, &name) }
}

fn add(to: &mut SumsByName, op: &DeviceOp, name: StrId) {
    let row = to.entry(name).or_default();
    *row = (row.0 + 1, row.1.saturating_add(op.duration.0));
}

/// Hands the time of each call on to the operator around it, innermost calls first.
fn inclusive(
    window: &Window<'_>,
    nesting: &Nesting,
    mut below: FxHashMap<Id<HostOp>, u64>,
    operators: &mut FxHashMap<StrId, Sums>,
) {
    let trace = &window.of.trace;
    // Innermost first: on a thread, what is around something stands before it.
    for thread in window.of.links.threads() {
        for id in thread.iter().rev() {
            let Some(time) = below.remove(id) else { continue };
            let around = nesting.around(*id);
            if let Some(op) = trace.host.get(*id).filter(|_| !around.repeated) {
                operators.entry(op.name).or_default().inclusive_ns += time;
            }
            let outer = around.parent.and_then(|parent| nesting.around(parent).operator);
            if let Some(outer) = outer {
                *below.entry(outer).or_default() += time;
            }
        }
    }
}

fn row(name: String, sums: Sums, text: &dyn Fn(StrId) -> String) -> Operator {
    let launched = launched(sums.kernels, text);
    let all = launched_rows(sums.places, text);
    let places_left_out = all.len().saturating_sub(PLACES);
    let places = all.into_iter().take(PLACES);
    Operator {
        name,
        calls: sums.calls,
        host_ns: sums.host_ns,
        kernels_per_call: if sums.calls == 0 { 0.0 } else { launched.count as f64 / sums.calls as f64 },
        launched,
        device_inclusive_ns: sums.inclusive_ns,
        places: places.map(|Kernel { name, count, device_ns }| CallSite { name, count, device_ns }).collect(),
        places_left_out,
    }
}

fn launched(of: SumsByName, text: &dyn Fn(StrId) -> String) -> Launched {
    let (count, device_ns) = of.values().fold((0, 0), |(count, ns), row| (count + row.0, ns + row.1));
    Launched { count, device_ns, kernels: launched_rows(of, text) }
}

fn launched_rows(of: SumsByName, text: &dyn Fn(StrId) -> String) -> Vec<Kernel> {
    let rows = of.into_iter();
    let mut rows: Vec<Kernel> =
        rows.map(|(id, (count, device_ns))| Kernel { name: text(id), count, device_ns }).collect();
    rows.sort_by(|a, b| b.device_ns.cmp(&a.device_ns).then_with(|| a.name.cmp(&b.name)));
    rows
}
