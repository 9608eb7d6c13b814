//! Placement: what is known of the autograd nodes around a stack, and where that puts the stack.
//!
//! Owns: the values for it. Because: a conclusion about a stack must be counted as it was drawn, also when the stack
//! is resolved later than it was taken, or comes from the cache. Does not: draw conclusions.

use deepctx_profile::tree::NodeId;

use crate::scopes::ScopeId;

/// The autograd nodes that a thread is in, as far as known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum OpenNodes {
    /// Records may be missing.
    #[default]
    Uncertain,
    /// Probes were detached.
    NotWatched,
    /// It is in none.
    None,
    /// The first of these, outermost first; the last ones may be over.
    Listed(ScopeId),
}

/// Who made an autograd node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum NodeMaker {
    /// No operator made it.
    Nobody,
    /// Its creation was not seen.
    Unknown,
    /// The operator of this context.
    Operator(NodeId),
}

/// How a stack was placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodePlacement {
    /// Where it was taken, rightly: in no node, in one that no operator made, or between two.
    Own,
    /// Under the operator that made its node.
    UnderOperator,
    /// Where it was taken: which node it is in is not certain.
    Uncertain,
    /// Where it was taken: nodes were not watched then.
    NotWatched,
    /// Where it was taken: its outer part is missing, so it may be in a node or not.
    Cut,
    /// Where it was taken: the operator that made its node was not seen.
    Unknown,
    /// Where it was taken: its node is nested too deeply.
    Nested,
}

impl NodePlacement {
    /// Whether the placement is right.
    pub(super) fn is_right(self) -> bool {
        matches!(self, Self::Own | Self::UnderOperator)
    }
}
