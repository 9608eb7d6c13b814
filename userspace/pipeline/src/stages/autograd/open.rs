//! Open: the autograd nodes that a thread is in, derived from their starts alone.
//!
//! Owns: which of the nodes that began may still run. Because: probing the end of a node costs more than probing its
//! start, and the next start shows just as much. Does not: know what a node is.
//!
//! Within one backward pass, nodes run one after another. A backward pass that starts within a node is further down
//! the call chain, so its nodes have lower stack pointers than its own start has. As soon as a node starts higher up,
//! that pass has ended.

use super::UNSURE;
use super::placement::NodeMaker;
use crate::scopes::ScopeId;

/// Nested nodes that are followed. The framework itself moves to another thread at 60.
const OPEN_MAX: usize = 128;

/// A thread that runs nodes.
#[derive(Debug, Default)]
pub(super) struct Thread {
    /// The makers of the open nodes, outermost first; the last ones may be over.
    open: Vec<NodeMaker>,
    /// Backward passes that are open, outermost first.
    passes: Vec<Pass>,
    /// Since when no beginning can have been missed, `CLOCK_MONOTONIC` nanoseconds.
    pub(super) certain_since: Option<u64>,
    /// When the last beginning was seen, `CLOCK_MONOTONIC` nanoseconds.
    newest_ns: u64,
    /// The number of the list of open nodes; `None` if there are none.
    pub(super) listed: Option<ScopeId>,
}

#[derive(Clone, Copy, Debug)]
struct Pass {
    stack_pointer: u64,
    /// Nodes that are open around it.
    within: usize,
}

impl Thread {
    /// The makers of the nodes that may be open.
    pub(super) fn open(&self) -> &[NodeMaker] {
        &self.open
    }

    /// A stack showed that no node was open at a time. Stacks are resolved later than they are taken.
    pub(super) fn none_is_open(&mut self, now_ns: u64) {
        if now_ns < self.newest_ns {
            return;
        }
        self.open.clear();
        self.passes.clear();
        self.listed = None;
        self.certain_since = Some(now_ns);
    }

    /// Nodes may have been missed.
    pub(super) fn nothing_is_certain(&mut self) {
        self.certain_since = None;
    }

    /// A backward pass begins within this many nodes.
    pub(super) fn backward_begins(&mut self, now_ns: u64, stack_pointer: Option<u64>, nodes: u8) {
        self.newest_ns = self.newest_ns.max(now_ns);
        let within = usize::from(nodes);
        let Some(stack_pointer) = stack_pointer.filter(|_| nodes != UNSURE && within < OPEN_MAX) else {
            self.certain_since = None;
            return;
        };
        self.passes.retain(|pass| pass.within < within && pass.stack_pointer > stack_pointer);
        if within > 0 {
            self.passes.push(Pass { stack_pointer, within });
        }
    }

    /// A node begins.
    pub(super) fn node_begins(&mut self, now_ns: u64, stack_pointer: Option<u64>, made_by: NodeMaker) {
        self.newest_ns = self.newest_ns.max(now_ns);
        let Some(stack_pointer) = stack_pointer else {
            self.certain_since = None;
            return;
        };
        while self.passes.last().is_some_and(|pass| pass.stack_pointer <= stack_pointer) {
            self.passes.pop();
        }
        let within = self.passes.last().map_or(0, |pass| pass.within);
        self.open.resize(within, NodeMaker::Unknown);
        self.open.push(made_by);
    }
}

#[cfg(test)]
mod tests {
    use deepctx_profile::tree::NodeId;

    use super::*;

    fn operator(number: u32) -> NodeMaker {
        NodeMaker::Operator(NodeId::from_number(number))
    }

    /// Letters: `n POINTER OPERATOR` a node, `b POINTER NODES` a backward pass, `0` a stack without nodes.
    #[track_caller]
    fn check(events: &str, expect: &[u32]) {
        let mut thread = Thread::default();
        for event in events.split(", ") {
            let words: Vec<&str> = event.split(' ').collect();
            let number = |at: usize| words[at].parse::<u32>().unwrap();
            match words[0] {
                "n" => thread.node_begins(0, Some(u64::from(number(1))), operator(number(2))),
                "b" => thread.backward_begins(0, Some(u64::from(number(1))), number(2) as u8),
                _ => thread.none_is_open(1),
            }
        }
        let expect: Vec<_> =
            expect.iter().map(|n| if *n == 0 { NodeMaker::Unknown } else { operator(*n) }).collect();
        assert_eq!(thread.open(), expect, "{events}");
    }

    #[test]
    fn nodes_of_one_pass_follow_one_another() {
        check("0, b 1000 0, n 900 1, n 900 2, n 900 3", &[3]);
        // The next pass begins deeper in the program, or higher up.
        check("0, b 1000 0, n 900 1, b 500 0, n 400 2", &[2]);
        check("0, b 500 0, n 400 1, b 1000 0, n 900 2", &[2]);
    }

    #[test]
    fn nested_backward_pass_ends_when_an_outer_autograd_node_begins() {
        check("b 1000 0, n 900 1, b 500 1, n 400 2", &[1, 2]);
        check("b 1000 0, n 900 1, b 500 1, n 400 2, n 400 3", &[1, 3]);
        check("b 1000 0, n 900 1, b 500 1, n 400 2, b 200 2, n 100 3", &[1, 2, 3]);
        check("b 1000 0, n 900 1, b 500 1, n 400 2, n 900 4", &[4]);
        // Two checkpoints, one after the other, within one node.
        check("b 1000 0, n 900 1, b 500 1, n 400 2, b 450 1, n 350 3", &[1, 3]);
    }

    #[test]
    fn nodes_that_were_not_seen_lead_nowhere() {
        check("b 500 2, n 400 1", &[0, 0, 1]);
        let mut thread = Thread::default();
        thread.none_is_open(7);
        thread.backward_begins(8, Some(1), UNSURE);
        assert_eq!(thread.certain_since, None);
    }

    #[test]
    fn a_stack_that_was_understood_late_ends_nothing() {
        let mut thread = Thread::default();
        thread.node_begins(10, Some(900), operator(1));
        thread.none_is_open(9);
        assert_eq!((thread.open(), thread.certain_since), (&[operator(1)][..], None));
        thread.none_is_open(11);
        assert_eq!((thread.open(), thread.certain_since), (&[][..], Some(11)));
    }
}
