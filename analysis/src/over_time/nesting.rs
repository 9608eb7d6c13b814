//! Nesting: which operation of a thread another one runs in.
//!
//! Owns: [`Nesting`]. Because: a launch belongs to the operator around it, and traces say so by time alone. Does not:
//! know devices, or add figures up.
//!
//! On a thread, what begins while something is open is within it, even if it ends later: clocks of one thread do not
//! run backwards, but tools round ends. One pass over each thread, whatever the depth.

use deepctx_profile::StrId;
use deepctx_profile::intern::Id;
use deepctx_profile::trace::{HostKind, HostOp, RankTrace, TraceTime};
use rustc_hash::FxHashMap;

/// What is around one operation.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Enclosing {
    /// What it is directly within.
    pub(super) parent: Option<Id<HostOp>>,
    /// The innermost operator: itself, or around it.
    pub(super) operator: Option<Id<HostOp>>,
    /// The innermost range of the program, layer or Python function around it; steps are none.
    pub(super) place: Option<Id<HostOp>>,
    /// Whether it is an operator within one of the same name.
    pub(super) repeated: bool,
}

/// What is around each operation of a rank, by its number.
#[derive(Clone, Debug)]
pub(super) struct Nesting(Vec<Enclosing>);

/// Something that has not ended.
struct Open {
    id: Id<HostOp>,
    op: HostOp,
    end: TraceTime,
}

impl Nesting {
    pub(super) fn of(of: &RankTrace) -> Self {
        let mut around = vec![Enclosing::default(); of.trace.host.len()];
        for thread in of.links.threads() {
            let mut open: Vec<Open> = Vec::new();
            let mut operators: FxHashMap<StrId, usize> = FxHashMap::default();
            for id in thread {
                let Some(op) = of.trace.host.get(*id) else { continue };
                while let Some(ended) = open.pop_if(|open| open.end <= op.begin) {
                    if ended.op.kind == HostKind::Operator {
                        *operators.entry(ended.op.name).or_default() -= 1;
                    }
                }
                let mut row = around_of(open.last(), &around);
                if op.kind == HostKind::Operator {
                    row.operator = Some(*id);
                    let same = operators.entry(op.name).or_default();
                    row.repeated = *same > 0;
                    *same += 1;
                }
                around[id.index()] = row;
                open.push(Open { id: *id, op, end: op.end() });
            }
        }
        Nesting(around)
    }

    /// What is around an operation.
    pub(super) fn around(&self, id: Id<HostOp>) -> Enclosing {
        self.0.get(id.index()).copied().unwrap_or_default()
    }
}

/// What is around something that begins while `parent` is the innermost that is open.
fn around_of(parent: Option<&Open>, around: &[Enclosing]) -> Enclosing {
    let Some(parent) = parent else { return Enclosing::default() };
    let above = around.get(parent.id.index()).copied().unwrap_or_default();
    let is_place = matches!(parent.op.kind, HostKind::Annotation | HostKind::Layer | HostKind::Python);
    Enclosing {
        parent: Some(parent.id),
        operator: above.operator,
        place: if is_place { Some(parent.id) } else { above.place },
        repeated: false,
    }
}
