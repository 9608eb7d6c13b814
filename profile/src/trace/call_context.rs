//! Calling contexts of calls: the operators around a call, and where those operators were called.
//!
//! Owns: [`CallContexts`]. Because: other tools record operators with begin and end, while a live capture has them on
//! the stacks of calls. Does not: say when an operator began or how long it took: no stack shows that.

use rustc_hash::FxHashMap;

use crate::context::phase::Phase;
use crate::frame::{BACKWARD, Frame, Role};
use crate::intern::{StrId, Strings};
use crate::profile::Profile;
use crate::tree::NodeId;

/// Frame above a backward pass, at the operator whose gradient it computes. Frame above operators without a stack.
const WITHOUT_STACK: &str = "[operators]";

/// Facts from the calling context of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallContext {
    /// The enclosing operators, outermost first. In a backward pass, those of that pass.
    pub operators: Vec<StrId>,
    /// Context of the outermost operator; the root without one.
    pub outermost: NodeId,
    /// The layer, range or Python function directly around the innermost operator.
    pub place: Option<StrId>,
    /// The part of training or serving that it belongs to.
    pub phase: Phase,
}

/// Calling contexts by their node. Empty for traces of other tools, where operators are events.
#[derive(Clone, Debug, Default)]
pub struct CallContexts(pub(super) FxHashMap<NodeId, CallContext>);

impl CallContexts {
    /// The context of a node.
    pub fn get(&self, node: NodeId) -> Option<&CallContext> {
        self.0.get(&node)
    }

    /// Whether a call was made in an operator.
    pub fn have_operators(&self) -> bool {
        self.0.values().any(|context| !context.operators.is_empty())
    }

    /// Records the facts from the context of a call. `phases` are those of the profile's nodes.
    pub(super) fn note(&mut self, profile: &Profile, phases: &[Phase], node: NodeId, strings: &mut Strings) {
        self.0.entry(node).or_insert_with(|| {
            let mut context = walk(profile, node, strings);
            context.phase = phases.get(node.index()).copied().unwrap_or_default();
            context
        });
    }
}

/// Reads a context from its leaf to the root.
fn walk(profile: &Profile, leaf: NodeId, strings: &mut Strings) -> CallContext {
    let mut found =
        CallContext { operators: Vec::new(), outermost: NodeId::ROOT, place: None, phase: Phase::Other };
    let mut is_complete = false;
    let mut node = leaf;
    while node != NodeId::ROOT {
        let of = profile.tree.node(node);
        let frame = profile.frames.get(of.frame);
        match frame {
            Frame::Operator { name } if !is_complete => match profile.strings.get(name) {
                BACKWARD => is_complete = true,
                WITHOUT_STACK => {}
                name => {
                    found.operators.push(strings.intern(name));
                    found.outermost = node;
                }
            },
            Frame::Python { .. } | Frame::Layer { .. } | Frame::Range { .. }
                if !found.operators.is_empty() && found.place.is_none() && frame.role() == Role::Code =>
            {
                let name = match frame {
                    Frame::Range { name } => profile.strings.get(name).to_owned(),
                    frame => frame.label(&profile.strings, true),
                };
                found.place = Some(strings.intern(&name));
            }
            _ => {}
        }
        node = of.parent;
    }
    found.operators.reverse();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{Limits, Meta};

    /// Frames of a stack, root first: `o` an operator, `r` a range, `x` a call.
    fn check(stack: &str, operators: &[&str], place: Option<&str>, outermost: usize) {
        let mut profile = Profile::new(Meta::default(), Limits::default());
        let mut nodes = vec![NodeId::ROOT];
        for word in stack.split(" / ") {
            let (kind, name) = word.split_once(' ').unwrap();
            let name = profile.text(name);
            let frame = match kind {
                "o" => Frame::Operator { name },
                "r" => Frame::Range { name },
                _ => Frame::GpuApi { name },
            };
            let frame = profile.frame(frame);
            nodes.push(profile.tree.child(*nodes.last().unwrap(), frame));
        }
        let mut strings = Strings::new(1 << 10);
        let found = walk(&profile, *nodes.last().unwrap(), &mut strings);
        let names: Vec<&str> = found.operators.iter().map(|id| strings.get(*id)).collect();
        assert_eq!(names, operators, "{stack}");
        assert_eq!(found.place.map(|id| strings.get(id)), place, "{stack}");
        assert_eq!(found.outermost, nodes[outermost], "{stack}");
    }

    #[test]
    fn a_stack_says_operators_and_their_place() {
        check("x cuLaunchKernel", &[], None, 0);
        check("r step / x cuLaunchKernel", &[], None, 0);
        check(
            "r step / r block / o aten::linear / o aten::addmm / x gemm / x cuLaunchKernel",
            &["aten::linear", "aten::addmm"],
            Some("block"),
            3,
        );
        // An operator written in Python: the place is within it.
        check(
            "o mylib::f / r inner / o aten::mm / x cuLaunchKernel",
            &["mylib::f", "aten::mm"],
            Some("inner"),
            1,
        );
        check("r block / o [operators] / o aten::mm", &["aten::mm"], Some("block"), 3);
    }

    #[test]
    fn a_backward_pass_has_operators_of_its_own() {
        check(
            "r block / o aten::linear / o [backward] / o AddmmBackward0 / o aten::mm / x cuLaunchKernel",
            &["AddmmBackward0", "aten::mm"],
            Some("block"),
            4,
        );
        check("r block / o aten::linear / o [backward] / x cuLaunchKernel", &[], None, 0);
    }
}
