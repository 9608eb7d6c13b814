//! Sequences: kernels that an operator launches one after another, again and again.
//!
//! Owns: [`Sequences`]. Because: a sequence that repeats is what fusion, a compiled graph or a better kernel can
//! replace. Does not: say whether kernels could be fused.
//!
//! Definition of HTA (`get_frequent_cuda_kernel_sequences`): the work that one call of an operator launches, by begin,
//! is one sequence; those of three operations or more count; equal sequences of one operator are one row. HTA wants a
//! part of an operator's name, and sorts by count. Here every outermost operator counts, and rows are sorted by device
//! time: a sequence that is frequent and short is worth nothing. Work of all threads that is launched within a call
//! counts, which is that of its own thread: operators of a backward pass are calls of their own.

use deepctx_profile::StrId;
use deepctx_profile::frame::clean;
use deepctx_profile::intern::Id;
use deepctx_profile::trace::{DeviceOp, HostOp};
use rustc_hash::FxHashMap;
use serde::Serialize;

use super::nesting::Nesting;
use super::window::Window;

/// Shortest sequence that counts, which is HTA's default.
const LENGTH_MIN: usize = 3;
/// Sequences that are kept, by device time: HTA's default is 5, for one operator.
const ROWS_MAX: usize = 20;
/// Names of a sequence that are listed; its length says how many there are. A call of a compiled model has thousands.
const NAMES_MAX: usize = 64;

/// Frequent sequences of one rank.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Sequences {
    /// The rank.
    pub rank: u32,
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
    /// How many operations it has.
    pub length: usize,
    /// Names of the first of them, equal neighbours together.
    pub kernels: Vec<Repetition>,
    /// Calls of the operator that launched it.
    pub count: u64,
    /// Sum of the operations' lengths over these calls.
    pub device_ns: u64,
    /// Sum of the calls' lengths.
    pub host_ns: u64,
}

/// Equal neighbours of a sequence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Repetition {
    /// The name.
    pub name: String,
    /// How often in a row.
    pub times: u64,
}

pub(super) fn compute(window: &Window<'_>, nesting: &Nesting) -> Sequences {
    let trace = &window.of.trace;
    let outermost = outermost(window, nesting);
    let mut of_call: FxHashMap<Id<HostOp>, Vec<DeviceOp>> = FxHashMap::default();
    for (id, op) in window.device() {
        let call = window.of.links.launch(id).call();
        if let Some(operator) = call.and_then(|call| outermost.get(call.index()).copied().flatten()) {
            of_call.entry(operator).or_default().push(op);
        }
    }
    let mut result = Sequences { rank: window.of.rank, ..Sequences::default() };
    let mut found: FxHashMap<(StrId, Vec<StrId>), (u64, u64, u64)> = FxHashMap::default();
    for (id, mut ops) in of_call {
        if ops.len() < LENGTH_MIN {
            result.short_calls += 1;
            continue;
        }
        let Some(operator) = trace.host.get(id) else { continue };
        ops.sort_by_key(|op| (op.begin, op.end(), op.name.number()));
        let device_ns: u64 = ops.iter().map(|op| op.duration.0).sum();
        let key = (operator.name, ops.iter().map(|op| op.name).collect());
        let row = found.entry(key).or_default();
        *row = (row.0 + 1, row.1 + device_ns, row.2 + operator.duration.0);
    }
    let text = |id: StrId| clean(trace.name(id));
    let mut rows: Vec<_> = found.into_iter().collect();
    // Names decide between equals, so that two runs give one order.
    rows.sort_by(|(a, x), (b, y)| (y.1, y.0).cmp(&(x.1, x.0)).then_with(|| a.cmp(b)));
    result.left_out = rows.len().saturating_sub(ROWS_MAX);
    let shown = rows.into_iter().take(ROWS_MAX);
    let row =
        |((operator, names), (count, device_ns, host_ns)): ((StrId, Vec<StrId>), (u64, u64, u64))| Sequence {
            operator: text(operator),
            length: names.len(),
            kernels: repeated(&names, &text),
            count,
            device_ns,
            host_ns,
        };
    result.rows = shown.map(row).collect();
    result
}

/// The outermost operator around each host operation, by its number.
fn outermost(window: &Window<'_>, nesting: &Nesting) -> Vec<Option<Id<HostOp>>> {
    let mut outermost: Vec<Option<Id<HostOp>>> = vec![None; window.of.trace.host.len()];
    // On a thread, what is around something stands before it.
    for id in window.of.links.threads().iter().flatten() {
        let around = nesting.around(*id);
        let above = around.parent.and_then(|parent| outermost.get(parent.index()).copied().flatten());
        outermost[id.index()] = above.or(around.operator);
    }
    outermost
}

fn repeated(names: &[StrId], text: &dyn Fn(StrId) -> String) -> Vec<Repetition> {
    let runs = names.chunk_by(|a, b| a == b).take(NAMES_MAX);
    runs.map(|run| Repetition { name: text(run[0]), times: run.len() as u64 }).collect()
}
