//! Names: the event names that a trace uses for the contexts of a profile.
//!
//! Owns: [`ContextNames`]. Because: every event of a trace has a name, whichever tool wrote it, while a recorded
//! event refers to a node of the tree, whose innermost frame has the name. Does not: keep the rest of the context
//! ([`super::super::call_context`]).

use rustc_hash::FxHashMap;

use super::super::Trace;
use super::super::recorded::{RecordedEvent, RecordedKind};
use crate::frame::Frame;
use crate::intern::StrId;
use crate::profile::Profile;
use crate::tree::NodeId;

/// The names of the contexts so far.
#[derive(Default)]
pub(super) struct ContextNames(FxHashMap<NodeId, StrId>);

impl ContextNames {
    /// The name of the innermost frame of a context.
    pub(super) fn name(&mut self, trace: &mut Trace, profile: &Profile, node: NodeId) -> StrId {
        if let Some(name) = self.0.get(&node) {
            return *name;
        }
        let frame = profile.frames.get(profile.tree.node(node).frame);
        let name = match frame {
            Frame::GpuApi { name } | Frame::GpuKernel { name } | Frame::Range { name } => {
                trace.strings.intern(profile.strings.get(name))
            }
            other => trace.strings.intern(&other.label(&profile.strings, false)),
        };
        self.0.insert(node, name);
        name
    }

    /// The name of work: copies and fills are named as in traces of all tools (`Memcpy HtoD`), which distinguish them
    /// from kernels by it.
    pub(super) fn work(&mut self, trace: &mut Trace, profile: &Profile, event: &RecordedEvent) -> StrId {
        let name = self.name(trace, profile, event.node);
        if !matches!(event.kind, RecordedKind::Copy | RecordedKind::Fill) {
            return name;
        }
        match trace.name(name).strip_prefix("mem") {
            Some(rest) => {
                let capital = format!("Mem{rest}");
                trace.text(&capital)
            }
            None => name,
        }
    }
}
