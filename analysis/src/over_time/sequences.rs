//! Sequences: kernels that an operator repeatedly launches one after another.
//!
//! Owns: [`Sequences`]. Because: fusion, a compiled graph or a better kernel can replace a repeated sequence. Does not:
//! decide whether kernels could be fused.
//!
//! Definition of HTA (`get_frequent_cuda_kernel_sequences`): the work that one call of an operator launches, by begin,
//! is one sequence; those of three operations or more count; equal sequences of one operator are one row. HTA takes a
//! part of an operator's name, and sorts by count. Here every outermost operator counts, and rows are sorted by device
//! time: a frequent but short sequence does not matter. Only work launched on a call's own thread counts: operators of
//! a backward pass are calls of their own.
//!
//! Our own recordings have no ends of operators. There the stack of each launch gives its outermost operator, and its
//! call is the last one that began, if begins were recorded. Otherwise consecutive launches of a thread below one place
//! are one call: two consecutive calls of an operator from one line are not distinguished ([`OperatorBasis::Stacks`]).

use deepctx_profile::StrId;
use deepctx_profile::frame::clean;
use deepctx_profile::order::SortRows as _;
use deepctx_profile::trace::{DeviceOp, HostKind};
use deepctx_profile::tree::NodeId;
use rustc_hash::FxHashMap;
use serde::Serialize;

use super::nesting::{Nesting, OperatorBasis, context_of};
use super::window::Window;

/// Shortest sequence that counts, which is HTA's default.
const LENGTH_MIN: usize = 3;
/// Maximum number of sequences, by device time: HTA's default is 5, for one operator.
const ROWS_MAX: usize = 20;
/// Maximum number of listed names per sequence; its length has the total. A call of a compiled model has thousands.
const NAMES_MAX: usize = 64;

/// Frequent sequences of one rank.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Sequences {
    /// The rank.
    pub rank: u32,
    /// How the operator call of a launch was determined.
    pub basis: OperatorBasis,
    /// Most device time first.
    pub rows: Vec<Sequence>,
    /// Further distinct sequences.
    pub left_out: usize,
    /// Calls of outermost operators that launched fewer operations than count.
    pub short_calls: u64,
}

/// One sequence below one operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Sequence {
    /// The operator.
    pub operator: String,
    /// Number of its operations.
    pub length: usize,
    /// Names of the first ones, equal neighbors together.
    pub kernels: Vec<Repetition>,
    /// Calls of the operator that launched it.
    pub count: u64,
    /// Sum of the operations' lengths over these calls.
    pub device_ns: u64,
    /// Sum of the calls' lengths; `None` if ends of operators were not recorded.
    pub host_ns: Option<u64>,
}

/// Equal neighbors of a sequence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Repetition {
    /// The name.
    pub name: String,
    /// How often in a row.
    pub times: u64,
}

/// A call of an outermost operator.
#[derive(Clone, Copy, Debug)]
struct OuterCall {
    /// The operator.
    name: StrId,
    /// Length of the call; zero if its end was not recorded.
    host_ns: u64,
}

/// Operations launched by calls with the same operator and sequence of names.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    count: u64,
    device_ns: u64,
    host_ns: u64,
}

pub(super) fn compute(window: &Window<'_>, nesting: &Nesting) -> Sequences {
    let trace = &window.of.trace;
    let basis = OperatorBasis::of(trace);
    let (calls, of_launch) = match basis {
        OperatorBasis::Intervals => outermost(window, nesting),
        OperatorBasis::StacksAndBegins | OperatorBasis::Stacks => outermost_by_stack(window),
    };
    let mut of_call: Vec<Vec<DeviceOp>> = vec![Vec::new(); calls.len()];
    for (id, op) in window.device() {
        let launch = window.of.links.launch(id).call();
        let call = launch.and_then(|launch| of_launch.get(launch.index()).copied().flatten());
        if let Some(ops) = call.and_then(|call| of_call.get_mut(call)) {
            ops.push(op);
        }
    }
    let mut result = Sequences { rank: window.of.rank, basis, ..Sequences::default() };
    let mut found: FxHashMap<(StrId, Vec<StrId>), Sums> = FxHashMap::default();
    for (call, mut ops) in calls.iter().zip(of_call).filter(|(_, ops)| !ops.is_empty()) {
        if ops.len() < LENGTH_MIN {
            result.short_calls += 1;
            continue;
        }
        ops.sort_by_key(|op| (op.begin, op.end(), op.name.number()));
        let key = (call.name, ops.iter().map(|op| op.name).collect());
        let sums = found.entry(key).or_default();
        sums.count += 1;
        sums.device_ns = ops.iter().fold(sums.device_ns, |sum, op| sum.saturating_add(op.duration.0));
        sums.host_ns = sums.host_ns.saturating_add(call.host_ns);
    }
    let text = |id: StrId| clean(trace.name(id));
    let mut rows: Vec<_> = found.into_iter().collect();
    // Names break ties, so two runs give the same order.
    rows.sort_rows_by(|(a, x), (b, y)| {
        (y.device_ns, y.count).cmp(&(x.device_ns, x.count)).then_with(|| a.cmp(b))
    });
    result.left_out = rows.len().saturating_sub(ROWS_MAX);
    let shown = rows.into_iter().take(ROWS_MAX);
    let row = |((operator, names), sums): ((StrId, Vec<StrId>), Sums)| Sequence {
        operator: text(operator),
        length: names.len(),
        kernels: repeated(&names, &text),
        count: sums.count,
        device_ns: sums.device_ns,
        host_ns: (basis == OperatorBasis::Intervals).then_some(sums.host_ns),
    };
    result.rows = shown.map(row).collect();
    result
}

/// Calls of outermost operators, and the enclosing one of each host operation, by its number.
type OuterCalls = (Vec<OuterCall>, Vec<Option<usize>>);

/// By the intervals of operators.
fn outermost(window: &Window<'_>, nesting: &Nesting) -> OuterCalls {
    let trace = &window.of.trace;
    let mut calls = Vec::new();
    let mut of_op: Vec<Option<usize>> = vec![None; trace.host.len()];
    // On a thread, enclosing operations precede inner ones.
    for id in window.of.links.threads().iter().flatten() {
        let around = nesting.around(*id);
        let above = around.parent.and_then(|parent| of_op.get(parent.index()).copied().flatten());
        // Without one above, the innermost operator is this operation itself.
        let own = || {
            let op = trace.host.get(around.operator?)?;
            calls.push(OuterCall { name: op.name, host_ns: op.duration.0 });
            Some(calls.len() - 1)
        };
        of_op[id.index()] = above.or_else(own);
    }
    (calls, of_op)
}

/// By the stacks of launches.
fn outermost_by_stack(window: &Window<'_>) -> OuterCalls {
    let trace = &window.of.trace;
    let mut calls: Vec<OuterCall> = Vec::new();
    let mut of_op: Vec<Option<usize>> = vec![None; trace.host.len()];
    for thread in window.of.links.threads() {
        // The last call of each operator that did not begin within itself.
        let mut begun: FxHashMap<StrId, usize> = FxHashMap::default();
        // The place of the last launch, and its call.
        let mut open: Option<(NodeId, usize)> = None;
        for id in thread {
            let Some(op) = trace.host.get(*id) else { continue };
            let context = context_of(trace, Some(*id));
            let is_boundary = matches!(op.kind, HostKind::Step | HostKind::Annotation);
            let Some(context) = context.filter(|_| !is_boundary) else {
                open = open.filter(|_| !is_boundary && !op.kind.is_call());
                continue;
            };
            let Some(name) = context.operators.first().copied() else { continue };
            if op.kind == HostKind::Operator {
                if context.operators.len() == 1 {
                    begun.insert(name, calls.len());
                    calls.push(OuterCall { name, host_ns: 0 });
                }
                continue;
            }
            // Autograd nodes are operators in stacks without known begins.
            let begun = begun.get(&name).copied();
            let followed = || open.filter(|(place, _)| *place == context.outermost).map(|(_, call)| call);
            let call = begun.or_else(followed).unwrap_or_else(|| {
                calls.push(OuterCall { name, host_ns: 0 });
                calls.len() - 1
            });
            open = Some((context.outermost, call));
            of_op[id.index()] = Some(call);
        }
    }
    (calls, of_op)
}

fn repeated(names: &[StrId], text: &dyn Fn(StrId) -> String) -> Vec<Repetition> {
    let runs = names.chunk_by(|a, b| a == b).take(NAMES_MAX);
    runs.map(|run| Repetition { name: text(run[0]), times: run.len() as u64 }).collect()
}
