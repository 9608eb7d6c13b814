//! Operators: the device work that each operator launches.
//!
//! Owns: [`Operators`]. Because: a kernel's name comes from a library, but the line to change calls an operator. Does
//! not: list single calls; the tree has them by context.
//!
//! Work belongs to the innermost operator around its launch, on the launching thread, by HTA's rule
//! (`get_aten_op_kernels_and_delay`). HTA knows five calls by name; here, all launched work counts. Every device
//! operation of the window is in exactly one row or in `outside`, so counts and times add up to the window's.
//!
//! Our own recordings have no ends of operators. There the stack of each launch gives its operator: device times and
//! counts are exact, and values that no stack gives are `None` ([`OperatorBasis`]).

use deepctx_profile::order::SortRows as _;
use std::hash::Hash;

use deepctx_profile::StrId;
use deepctx_profile::frame::clean;
use deepctx_profile::intern::Id;
use deepctx_profile::trace::{DeviceOp, HostKind, HostOp};
use rustc_hash::FxHashMap;
use serde::Serialize;

use super::nesting::{Nesting, OperatorBasis, context_of};
use super::window::Window;

/// Maximum number of named places per operator: a model has one operator in some hundred layers.
const PLACES: usize = 8;

/// Work launched by the operators of one rank.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Operators {
    /// The rank.
    pub rank: u32,
    /// How the operator of a launch was determined.
    pub basis: OperatorBasis,
    /// Each operator called in the window, most device time first. Without begins of operators, those that launched
    /// something.
    pub rows: Vec<Operator>,
    /// Work outside any operator: its launch is in none, has no stack, or is unknown.
    pub outside: LaunchedWork,
    /// Work by the part of training or serving that launched it, most device time first; only if stacks were taken.
    pub phases: Vec<CallSite>,
}

/// All calls of one operator.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Operator {
    /// Its name.
    pub name: String,
    /// Calls that begin in the window; `None` if their begins were not recorded.
    pub calls: Option<u64>,
    /// Length of these calls on their threads; a call within one of the same name counts once. `None` if their ends
    /// were not recorded.
    pub host_ns: Option<u64>,
    /// Work launched by itself, without operators that it called.
    pub launched: LaunchedWork,
    /// Device operations per call; `None` if calls were not counted.
    pub kernels_per_call: Option<f64>,
    /// Length of the work launched by it and all operators within it.
    pub device_inclusive_ns: u64,
    /// Ranges, layers or Python functions directly around it, most device time first.
    pub places: Vec<CallSite>,
    /// Further places.
    pub places_left_out: usize,
}

/// Device work with one owner.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LaunchedWork {
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

/// A call site of an operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CallSite {
    /// Name of the range, layer or function.
    pub name: String,
    /// Device operations launched there.
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

impl Sums {
    fn include(&mut self, time: u64) {
        self.inclusive_ns = self.inclusive_ns.saturating_add(time);
    }
}

pub(super) fn compute(window: &Window<'_>, nesting: &Nesting) -> Operators {
    let (trace, links) = (&window.of.trace, &window.of.links);
    let basis = OperatorBasis::of(trace);
    let mut operators = called(window, nesting);
    let (mut outside, mut phases) = (SumsByName::default(), FxHashMap::default());
    // Device time of each call and of all below it.
    let mut below: FxHashMap<Id<HostOp>, u64> = FxHashMap::default();
    for (id, op) in window.device() {
        let call = links.launch(id).call();
        if let Some(context) = call.and_then(|id| trace.contexts.get(trace.host.get(id)?.context)) {
            add(&mut phases, &op, context.phase.name());
        }
        let around = call.map(|call| nesting.around(call)).unwrap_or_default();
        let operator = around.operator.and_then(|id| Some((id, trace.host.get(id)?)));
        let Some((operator_id, operator)) = operator else {
            if !by_stack(window, call, &op, &mut operators) {
                add(&mut outside, &op, op.name);
            }
            continue;
        };
        let time = below.entry(operator_id).or_default();
        *time = time.saturating_add(op.duration.0);
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
        operators.into_iter().map(|(id, sums)| row(name(id), sums, basis, &name)).collect();
    rows.sort_rows_by(|a, b| {
        let key = |row: &Operator| (row.launched.device_ns, row.host_ns, row.calls);
        key(b).cmp(&key(a)).then_with(|| a.name.cmp(&b.name))
    });
    let phases = launched_rows(phases, &|phase: &str| phase.to_owned());
    Operators {
        rank: window.of.rank,
        basis,
        rows,
        outside: launched(outside, &name),
        phases: phases.into_iter().map(CallSite::from).collect(),
    }
}

/// The operators called in the window, with their calls only.
fn called(window: &Window<'_>, nesting: &Nesting) -> FxHashMap<StrId, Sums> {
    let mut operators: FxHashMap<StrId, Sums> = FxHashMap::default();
    for (id, op) in window.of.trace.host.iter() {
        if op.kind == HostKind::Operator && window.has(op.begin) {
            let sums = operators.entry(op.name).or_default();
            sums.calls += 1;
            let own = if nesting.around(id).repeated { 0 } else { op.duration.0 };
            sums.host_ns = sums.host_ns.saturating_add(own);
        }
    }
    operators
}

/// Adds work to the operators in the stack of its launch; false if there are none.
fn by_stack(
    window: &Window<'_>,
    call: Option<Id<HostOp>>,
    op: &DeviceOp,
    operators: &mut FxHashMap<StrId, Sums>,
) -> bool {
    let Some(context) = context_of(&window.of.trace, call) else { return false };
    for (place, name) in context.operators.iter().enumerate() {
        // An operator within one of the same name counts once.
        if !context.operators[..place].contains(name) {
            operators.entry(*name).or_default().include(op.duration.0);
        }
    }
    let Some(innermost) = context.operators.last() else { return false };
    let sums = operators.entry(*innermost).or_default();
    add(&mut sums.kernels, op, op.name);
    if let Some(place) = context.place {
        add(&mut sums.places, op, place);
    }
    true
}

fn add<N: Eq + Hash>(to: &mut FxHashMap<N, (u64, u64)>, op: &DeviceOp, name: N) {
    let row = to.entry(name).or_default();
    *row = (row.0 + 1, row.1.saturating_add(op.duration.0));
}

/// Adds the time of each call to the enclosing operator, innermost calls first.
fn inclusive(
    window: &Window<'_>,
    nesting: &Nesting,
    mut below: FxHashMap<Id<HostOp>, u64>,
    operators: &mut FxHashMap<StrId, Sums>,
) {
    let trace = &window.of.trace;
    // Innermost first: on a thread, enclosing operations precede inner ones.
    for thread in window.of.links.threads() {
        for id in thread.iter().rev() {
            let Some(time) = below.remove(id) else { continue };
            let around = nesting.around(*id);
            if let Some(op) = trace.host.get(*id).filter(|_| !around.repeated) {
                operators.entry(op.name).or_default().include(time);
            }
            let outer = around.parent.and_then(|parent| nesting.around(parent).operator);
            if let Some(outer) = outer {
                let sum = below.entry(outer).or_default();
                *sum = sum.saturating_add(time);
            }
        }
    }
}

fn row(name: String, sums: Sums, basis: OperatorBasis, text: &dyn Fn(StrId) -> String) -> Operator {
    let launched = launched(sums.kernels, text);
    let all = launched_rows(sums.places, text);
    let places_left_out = all.len().saturating_sub(PLACES);
    let places = all.into_iter().take(PLACES);
    let calls = (basis != OperatorBasis::Stacks).then_some(sums.calls);
    let per_call = |calls| if calls == 0 { 0.0 } else { launched.count as f64 / calls as f64 };
    Operator {
        name,
        calls,
        host_ns: (basis == OperatorBasis::Intervals).then_some(sums.host_ns),
        kernels_per_call: calls.map(per_call),
        launched,
        device_inclusive_ns: sums.inclusive_ns,
        places: places.map(CallSite::from).collect(),
        places_left_out,
    }
}

fn launched(of: SumsByName, text: &dyn Fn(StrId) -> String) -> LaunchedWork {
    let (count, device_ns) =
        of.values().fold((0, 0u64), |(count, ns), row| (count + row.0, ns.saturating_add(row.1)));
    LaunchedWork { count, device_ns, kernels: launched_rows(of, text) }
}

fn launched_rows<N>(of: FxHashMap<N, (u64, u64)>, text: &dyn Fn(N) -> String) -> Vec<Kernel> {
    let rows = of.into_iter();
    let mut rows: Vec<Kernel> =
        rows.map(|(id, (count, device_ns))| Kernel { name: text(id), count, device_ns }).collect();
    rows.sort_rows_by(|a, b| b.device_ns.cmp(&a.device_ns).then_with(|| a.name.cmp(&b.name)));
    rows
}

impl Operators {
    /// Time of all work, by operators and by none.
    pub(crate) fn device_ns(&self) -> u64 {
        let of_rows = self.rows.iter().map(|row| row.launched.device_ns);
        of_rows.fold(self.outside.device_ns, u64::saturating_add)
    }
}

impl From<Kernel> for CallSite {
    fn from(Kernel { name, count, device_ns }: Kernel) -> Self {
        CallSite { name, count, device_ns }
    }
}
