//! Nesting: the enclosing operation of each operation of a thread.
//!
//! Owns: [`Nesting`]. Because: a launch belongs to the operator around it, and traces show that by time alone. Does
//! not: know devices, or sum figures.
//!
//! On a thread, an operation that begins while another is open is within it, even if it ends later: the clock of one
//! thread does not run backwards, but tools round ends. It takes one pass over each thread, at any depth.

use deepctx_profile::StrId;
use deepctx_profile::intern::Id;
use deepctx_profile::trace::{CallContext, HostKind, HostOp, RankTrace, Trace, TraceTime};
use rustc_hash::FxHashMap;
use serde::Serialize;

/// How the operator of a launch was determined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum OperatorBasis {
    /// Operators are events of the trace, with begin and end.
    #[default]
    Intervals,
    /// From the stack of each launch; begins of operators were recorded as well, so their calls are counted.
    StacksAndBegins,
    /// From the stack of each launch. The number and length of operator calls is unknown.
    Stacks,
}

impl OperatorBasis {
    pub(super) fn of(trace: &Trace) -> Self {
        let begins = || trace.host.iter().any(|(_, op)| op.kind == HostKind::Operator);
        match trace.contexts.have_operators() {
            false => OperatorBasis::Intervals,
            true if begins() => OperatorBasis::StacksAndBegins,
            true => OperatorBasis::Stacks,
        }
    }
}

/// Operators in the stack of a call; `None` without a stack, or outside any operator.
pub(super) fn context_of(trace: &Trace, call: Option<Id<HostOp>>) -> Option<&CallContext> {
    let context = trace.contexts.get(trace.host.get(call?)?.context)?;
    Some(context).filter(|context| !context.operators.is_empty())
}

/// Enclosing operations of one operation.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EnclosingOps {
    /// Its direct parent.
    pub(super) parent: Option<Id<HostOp>>,
    /// The innermost operator: itself or an enclosing one.
    pub(super) operator: Option<Id<HostOp>>,
    /// The innermost enclosing range of the program, layer or Python function; training steps do not count.
    pub(super) place: Option<Id<HostOp>>,
    /// Whether it is an operator within one of the same name, or a range or layer within one of the same name.
    pub(super) repeated: bool,
}

/// Enclosing operations of each operation of a rank, by its number.
#[derive(Clone, Debug)]
pub(super) struct Nesting(Vec<EnclosingOps>);

/// An open operation.
struct OpenOp {
    id: Id<HostOp>,
    op: HostOp,
    end: TraceTime,
}

impl Nesting {
    pub(super) fn of(of: &RankTrace) -> Self {
        let mut around = vec![EnclosingOps::default(); of.trace.host.len()];
        for thread in of.links.threads() {
            let mut open: Vec<OpenOp> = Vec::new();
            let mut names: FxHashMap<(bool, StrId), usize> = FxHashMap::default();
            for id in thread {
                let Some(op) = of.trace.host.get(*id) else { continue };
                while let Some(ended) = open.pop_if(|open| open.end <= op.begin) {
                    if let Some(key) = counted(&ended.op) {
                        *names.entry(key).or_default() -= 1;
                    }
                }
                let mut row = around_of(open.last(), &around);
                if op.kind == HostKind::Operator {
                    row.operator = Some(*id);
                }
                if let Some(key) = counted(&op) {
                    let same = names.entry(key).or_default();
                    row.repeated = *same > 0;
                    *same += 1;
                }
                around[id.index()] = row;
                open.push(OpenOp { id: *id, op, end: op.end() });
            }
        }
        Nesting(around)
    }

    /// Enclosing operations of an operation.
    pub(super) fn around(&self, id: Id<HostOp>) -> EnclosingOps {
        self.0.get(id.index()).copied().unwrap_or_default()
    }
}

/// What may be within one of the same name: whether it is an operator, and the name.
fn counted(op: &HostOp) -> Option<(bool, StrId)> {
    match op.kind {
        HostKind::Operator => Some((true, op.name)),
        HostKind::Annotation | HostKind::Layer => Some((false, op.name)),
        _ => None,
    }
}

/// Enclosing operations of one that begins while `parent` is the innermost open one.
fn around_of(parent: Option<&OpenOp>, around: &[EnclosingOps]) -> EnclosingOps {
    let Some(parent) = parent else { return EnclosingOps::default() };
    let above = around.get(parent.id.index()).copied().unwrap_or_default();
    let is_place = matches!(parent.op.kind, HostKind::Annotation | HostKind::Layer | HostKind::Python);
    EnclosingOps {
        parent: Some(parent.id),
        operator: above.operator,
        place: if is_place { Some(parent.id) } else { above.place },
        repeated: false,
    }
}
