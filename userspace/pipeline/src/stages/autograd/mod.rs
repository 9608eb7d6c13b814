//! Backward: finds the forward operator that created an autograd node, and places the node below it in the tree.
//!
//! Owns: the context of the operator that created a node, until the node runs; the nodes that each thread is in; and
//! moving stacks below their operator. Because: nobody writes the backward pass by hand: its cost belongs to the line
//! whose gradient is computed, and that line returned long before. Does not: guess: if the running node is not
//! certain, or its operator was not seen, the stack stays where it was taken, and the ledger counts it.
//!
//! ```text
//!  forward thread    train.py:step ▸ net.py:forward ▸ aten::linear ▸ aten::addmm ▸ get_and_increment  → thread 1, number 7
//!  backward thread   … ▸ Engine::evaluate_function(thread 1, number 7) ▸ AddmmBackward0 ▸ aten::mm
//!  in the tree       train.py:step ▸ net.py:forward ▸ aten::linear ▸ aten::addmm ▸ [backward] ▸ AddmmBackward0 ▸ aten::mm
//! ```
//! Only node starts are probed. Ends follow from stacks: a stack with `n` frames of the engine's function is in the
//! `n`th open node, and the nodes after it have ended. For a backward pass within a node (checkpoints), the stack at
//! its start shows how many nodes are open.

mod copies;
mod open;
mod placement;

use std::collections::VecDeque;

use deepctx_common::call::Call;
use deepctx_common::end::WalkEnd;
use deepctx_common::reasons;
use deepctx_common::record::StackSample;
use deepctx_events::{AutogradEvent, Event, Role};
use deepctx_profile::frame::Frame;
use deepctx_profile::intern::FrameId;
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Profile;
use deepctx_profile::tree::NodeId;
use rustc_hash::FxHashMap;

use crate::attribute;
use crate::config::Config;
use crate::decode::{Arguments, Sample};
use crate::input::SiteInfo;
use crate::loss_windows::{LossCause, LossWindows};
use crate::scopes::{OpenScopes, ScopeLists};
use crate::sites::Sites;
use crate::stage::{
    CallContext, CallRecord, CallStack, Placement, PlacementRoot, ProcessChange, SiteTable, Stage, StageGap,
};
use copies::{CopyId, FrameworkCopies};
use open::Thread;
use placement::NodeMaker;
pub(crate) use placement::{NodePlacement, OpenNodes};

reasons! {
    class Gap, page "operators.md";
    const FORWARD_UNKNOWN = "forward-unknown",
        "autograd nodes are not below their operator: it ran before the capture began, between two duty windows, or too long ago";
    const BACKWARD_UNCERTAIN = "backward-uncertain",
        "stacks in the backward pass are not below an operator: they lack their beginning, or records before them are missing";
    const BACKWARD_NOT_WATCHED = "backward-not-watched",
        "stacks in the backward pass are not below an operator: it was not watched then";
    const FORWARD_UNCERTAIN = "forward-uncertain",
        "autograd nodes are below an operator that itself ran within a node, which is not certain";
    const BACKWARD_NESTED = "backward-nested",
        "autograd nodes are not below their operator: derivatives of derivatives are nested too deeply";
    const BACKWARD_CALL_LOST = "backward-call-lost",
        "autograd nodes, or operators that made them, were counted by their probe and never recorded";
}

/// Autograd nodes with a recorded operator: those of a few training steps of a large model, at some 60 bytes each.
pub(crate) const NODES_MAX: usize = 1 << 17;
/// Processes with state, and threads without a number: as many as may run on a big host.
const THREADS_MAX: usize = 1 << 16;
/// Cached contexts of nodes below their operators.
const PLACES_MAX: usize = 1 << 16;
/// How deep nodes made by nodes may nest: higher-order derivatives are rare, and each doubles the path.
const NESTED_MAX: usize = 4;
/// The number of a node without an operator, such as one that accumulates a gradient.
const NO_NUMBER: u64 = u64::MAX;
/// The frame between an operator and its backward pass.
pub(crate) const MARK: &str = deepctx_profile::frame::BACKWARD;
/// [`StackNote::nodes`] if the stack does not show it.
pub(crate) const UNSURE: u8 = u8::MAX;
/// The same for a stack in at least one node.
const SOME: u8 = UNSURE - 1;

/// The meaning of a probed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An operator makes an autograd node.
    Created,
    /// A node begins.
    Begins,
    /// A backward pass begins.
    Backward,
}

/// What a stack shows about the autograd nodes that it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StackNote {
    /// How many; [`UNSURE`] if the stack does not show it.
    nodes: u8,
    /// How the stack was placed because of them.
    placement: NodePlacement,
}

impl Default for StackNote {
    fn default() -> Self {
        Self { nodes: UNSURE, placement: NodePlacement::Cut }
    }
}

/// A probe of this stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Probe {
    kind: Kind,
    copy: CopyId,
}

/// The stage's state.
#[derive(Debug, Default)]
pub(crate) struct Autograd {
    /// By number of the probe.
    sites: Sites<Probe>,
    /// The last copy of the framework whose probes were learned, and which of them.
    learned: (u32, Vec<Kind>),
    /// Each process gets its own number here, since pids are reused.
    processes: FxHashMap<u32, u32>,
    processes_seen: u32,
    made: FxHashMap<NodeKey, NodeOrigin>,
    made_in_order: VecDeque<NodeKey>,
    /// The first node of a thread is made before the framework numbers the thread.
    first: FxHashMap<UnnumberedThread, (u64, NodeOrigin)>,
    threads: OpenScopes<Thread>,
    copies: FrameworkCopies,
    lists: ScopeLists<NodeMaker>,
    /// By thread and context of the operator.
    places: FxHashMap<(NodeId, NodeId), Option<NodeId>>,
    /// Whether a frame is the engine's function that runs a node, by frame number.
    engine: Vec<Option<bool>>,
    counts: Counts,
}

/// An autograd node: process (by its number here), copy of the framework, thread that made it (as the framework numbers
/// it), and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct NodeKey {
    process: u32,
    copy: CopyId,
    thread: u64,
    number: u64,
}

/// A thread that the framework has not numbered yet: process (by its number here), copy, and thread id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct UnnumberedThread {
    process: u32,
    copy: CopyId,
    tid: u32,
}

/// The operator that created an autograd node.
#[derive(Clone, Copy, Debug)]
struct NodeOrigin {
    /// Context of the operator.
    node: NodeId,
    /// Whether the context is right: the operator itself may have run within a node.
    is_right: bool,
}

/// Outcomes of autograd nodes that began, each counted once, and of stacks in nodes.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    /// Nodes whose operator was not seen.
    unknown: u64,
    /// Nodes below an operator that may be misplaced.
    misplaced: u64,
    /// Nodes nested too deeply.
    nested: u64,
    /// Stacks.
    uncertain: u64,
    not_watched: u64,
}

impl Autograd {
    fn process(&mut self, pid: u32) -> u32 {
        if self.processes.len() >= THREADS_MAX && !self.processes.contains_key(&pid) {
            self.processes.clear();
        }
        *self.processes.entry(pid).or_insert_with(|| {
            self.processes_seen = self.processes_seen.wrapping_add(1);
            self.processes_seen
        })
    }

    /// A call: its meaning, and the copy that it is of.
    fn probe_of(&mut self, who: &StackSample, call: &Call) -> Option<Probe> {
        let probe = self.sites.record(call).copied()?;
        if self.copies.record(who.pid, probe.copy) {
            // A stack without nodes of the other copies showed nothing about this one.
            self.threads.of_process(who.pid).for_each(Thread::nothing_is_certain);
        }
        Some(probe)
    }

    /// A call together with its stack: the operator at `node` makes an autograd node, or a backward pass begins in a
    /// stack with this many of them.
    fn called(
        &mut self,
        who: &StackSample,
        arguments: &Arguments<'_>,
        node: Option<NodeId>,
        nodes: u8,
        placement: NodePlacement,
    ) {
        let Some(Probe { kind, copy }) = self.probe_of(who, &arguments.call) else { return };
        match kind {
            Kind::Created => {
                let made = node.map(|node| NodeOrigin { node, is_right: placement.is_right() });
                self.created(who, copy, arguments, made);
            }
            Kind::Backward => {
                let stack_pointer = self.sites.argument(arguments, Role::StackPointer);
                self.copies.passes(who.pid, copy, who.header.time_ns);
                if nodes == 0 {
                    self.none_is_open(who);
                }
                self.threads.entry(who).backward_begins(who.header.time_ns, stack_pointer, nodes);
            }
            Kind::Begins => {}
        }
    }

    fn created(
        &mut self,
        who: &StackSample,
        copy: CopyId,
        arguments: &Arguments<'_>,
        made: Option<NodeOrigin>,
    ) {
        let process = self.process(who.pid);
        let number = self.sites.argument(arguments, Role::Sequence);
        let thread = self.sites.argument(arguments, Role::ForwardThread);
        let (Some(made), Some(number), Some(thread)) = (made, number, thread) else { return };
        let first = UnnumberedThread { process, copy, tid: who.tid };
        if thread == 0 {
            if self.first.len() < THREADS_MAX {
                self.first.insert(first, (number, made));
            }
            return;
        }
        if let Some((earlier, made)) = self.first.remove(&first)
            && earlier < number
        {
            self.remember(NodeKey { process, copy, thread, number: earlier }, made);
        }
        self.remember(NodeKey { process, copy, thread, number }, made);
    }

    fn remember(&mut self, key: NodeKey, made: NodeOrigin) {
        if self.made.insert(key, made).is_none() {
            self.made_in_order.push_back(key);
        }
        if self.made_in_order.len() > NODES_MAX
            && let Some(oldest) = self.made_in_order.pop_front()
        {
            self.made.remove(&oldest);
        }
    }

    /// An autograd node begins on a thread, whose node in the tree is `thread`.
    fn on_begin(
        &mut self,
        who: &StackSample,
        arguments: &Arguments<'_>,
        thread: NodeId,
        profile: &mut Profile,
    ) {
        let Some(Probe { copy, .. }) = self.probe_of(who, &arguments.call) else { return };
        let stack_pointer = self.sites.argument(arguments, Role::StackPointer);
        let number = self.sites.argument(arguments, Role::Sequence);
        let made_by = self.sites.argument(arguments, Role::ForwardThread);
        let process = self.processes.get(&who.pid).copied();
        let made = || {
            self.made.get(&NodeKey { process: process?, copy, thread: made_by?, number: number? }).copied()
        };
        let maker = match made() {
            _ if number == Some(NO_NUMBER) => NodeMaker::Nobody,
            None => {
                self.counts.unknown += 1;
                NodeMaker::Unknown
            }
            Some(made) => {
                match self.place_below(made.node, thread, profile) {
                    Some(node) => {
                        profile.tree.add(node, Metric::Calls, 1);
                        self.counts.misplaced += u64::from(!made.is_right);
                    }
                    None => self.counts.nested += 1,
                }
                NodeMaker::Operator(made.node)
            }
        };
        let of = self.threads.entry(who);
        of.node_begins(who.header.time_ns, stack_pointer, maker);
        of.listed = self.lists.id(of.open());
    }

    /// The autograd nodes that a thread is in, as far as known.
    #[inline]
    fn open_nodes(&mut self, who: &StackSample, loss: &LossWindows) -> OpenNodes {
        let thread = self.threads.get(who);
        match (missing(thread, who, loss), thread.and_then(|thread| thread.listed)) {
            (Some(LossCause::Lost), _) => OpenNodes::Uncertain,
            (Some(LossCause::NotProbed), _) => OpenNodes::NotWatched,
            (None, None) => OpenNodes::None,
            (None, Some(listed)) => OpenNodes::Listed(listed),
        }
    }

    /// A stack with this many frames of the engine's function was placed.
    #[inline]
    fn stack_seen(&mut self, who: &StackSample, nodes: u8, placement: NodePlacement) {
        self.counts.uncertain += u64::from(placement == NodePlacement::Uncertain);
        self.counts.not_watched += u64::from(placement == NodePlacement::NotWatched);
        if nodes == 0 {
            self.none_is_open(who);
        }
    }

    /// No node is open at the time of a stack.
    fn none_is_open(&mut self, who: &StackSample) {
        let time_ns = who.header.time_ns;
        if self.copies.since(who.pid).is_some_and(|since| since <= time_ns) {
            self.threads.entry(who).none_is_open(time_ns);
        }
    }

    /// How many nodes a stack is in, as far as it shows: frames root first.
    fn nodes_in(&mut self, sample: &Sample<'_>, frames: &[FrameId], profile: &Profile) -> u8 {
        let nodes = frames.iter().filter(|frame| self.is_engine(**frame, profile)).count();
        match u8::try_from(nodes) {
            _ if sample.fixed.native_end == WalkEnd::Complete as u8 => {
                u8::try_from(nodes).map_or(SOME, |nodes| nodes.min(SOME))
            }
            Ok(0) => UNSURE,
            _ => SOME,
        }
    }

    fn is_engine(&mut self, frame: FrameId, profile: &Profile) -> bool {
        // Bounded, since frames are.
        if self.engine.len() <= frame.index() {
            self.engine.resize(frame.index() + 1, None);
        }
        *self.engine[frame.index()].get_or_insert_with(|| match profile.frames.get(frame) {
            Frame::Native { symbol, .. } => {
                profile.strings.get(symbol).starts_with("torch::autograd::Engine::evaluate_function(")
            }
            _ => false,
        })
    }

    /// The placement of a stack in this many nodes; if below the operator that made the node: the context there, and
    /// how many of the stack's frames, root first, it represents.
    fn place_stack(
        &mut self,
        within: OpenNodes,
        nodes: u8,
        thread: NodeId,
        frames: &[FrameId],
        profile: &mut Profile,
    ) -> (NodePlacement, Option<(NodeId, usize)>) {
        let made_by = match (nodes, within) {
            (0, _) => return (NodePlacement::Own, None),
            (UNSURE, _) => return (NodePlacement::Cut, None),
            (_, OpenNodes::NotWatched) => return (NodePlacement::NotWatched, None),
            (SOME, _) | (_, OpenNodes::Uncertain | OpenNodes::None) => {
                return (NodePlacement::Uncertain, None);
            }
            (_, OpenNodes::Listed(listed)) => self.lists.get(listed),
        };
        let operator = match made_by.and_then(|made_by| made_by.get(usize::from(nodes) - 1)) {
            Some(NodeMaker::Operator(operator)) => *operator,
            Some(NodeMaker::Nobody) => return (NodePlacement::Own, None),
            Some(NodeMaker::Unknown) => return (NodePlacement::Unknown, None),
            None => return (NodePlacement::Uncertain, None),
        };
        let last = frames.iter().rposition(|frame| self.is_engine(*frame, profile));
        // In the function itself another node may be about to begin.
        let within = last.and_then(|last| frames.get(last + 1)).map(|within| profile.frames.get(*within));
        let (Some(last), Some(within)) = (last, within) else { return (NodePlacement::Own, None) };
        if matches!(within, Frame::Kernel { .. } | Frame::KernelUnnamed { .. }) {
            return (NodePlacement::Own, None);
        }
        match self.place_below(operator, thread, profile) {
            Some(place) => (NodePlacement::UnderOperator, Some((place, last + 1))),
            None => (NodePlacement::Nested, None),
        }
    }

    /// The context of the backward pass of an operator, on a thread.
    fn place_below(&mut self, operator: NodeId, thread: NodeId, profile: &mut Profile) -> Option<NodeId> {
        if let Some(place) = self.places.get(&(thread, operator)) {
            return *place;
        }
        let mark = profile.text(MARK);
        let mark = profile.frame(Frame::Operator { name: mark });
        let frames = attribute::below_thread(profile, operator);
        let place = (frames.iter().filter(|frame| **frame == mark).count() < NESTED_MAX).then(|| {
            let operator = profile.tree.path(thread, frames.iter().copied());
            profile.tree.child(operator, mark)
        });
        if self.places.len() >= PLACES_MAX {
            self.places.clear();
        }
        self.places.insert((thread, operator), place);
        place
    }
}

/// Why a thread's calls may be missing up to the time of a stack; `None` if none can be.
fn missing(thread: Option<&Thread>, who: &StackSample, loss: &LossWindows) -> Option<LossCause> {
    let now_ns = who.header.time_ns;
    match thread.and_then(|thread| thread.certain_since).filter(|since| *since <= now_ns) {
        Some(since) => loss.cause(since, now_ns),
        None if loss.not_probed(now_ns, now_ns) => Some(LossCause::NotProbed),
        None => Some(LossCause::Lost),
    }
}

impl Stage for Autograd {
    type Scope = OpenNodes;
    type Note = StackNote;

    fn new(_config: &Config) -> Self {
        Self::default()
    }

    fn claims(&self, site: &SiteInfo) -> bool {
        matches!(site.event, Event::Autograd(_))
    }

    fn learn(&mut self, sites: Vec<SiteInfo>) {
        let kind = |event| match event {
            Event::Autograd(AutogradEvent::NodeCreated) => Some(Kind::Created),
            Event::Autograd(AutogradEvent::NodeBegins) => Some(Kind::Begins),
            Event::Autograd(AutogradEvent::BackwardBegins) => Some(Kind::Backward),
            _ => None,
        };
        // The probes of a file come together, and each is in a file once.
        let (copy, kinds) = &mut self.learned;
        if sites.iter().filter_map(|info| kind(info.event)).any(|kind| kinds.contains(&kind)) {
            *copy = copy.wrapping_add(1);
            kinds.clear();
        }
        let copy = CopyId(*copy);
        self.sites.learn(sites, |info| {
            let kind = kind(info.event)?;
            kinds.push(kind);
            Some(Probe { kind, copy })
        });
    }

    fn sites(&mut self) -> Option<&mut dyn SiteTable> {
        Some(&mut self.sites)
    }

    #[inline]
    fn needs_stack(&self, call: &Arguments<'_>) -> bool {
        self.sites.what(&call.call).is_none_or(|probe| probe.kind != Kind::Begins)
    }

    #[inline]
    fn follows_calls(&self) -> bool {
        !self.sites.is_empty()
    }

    #[inline]
    fn scope(&mut self, thread: &StackSample, loss: &LossWindows) -> OpenNodes {
        self.open_nodes(thread, loss)
    }

    fn place(
        &mut self,
        scope: OpenNodes,
        own_call: Option<&Arguments<'_>>,
        placement: &mut Placement<'_>,
        profile: &mut Profile,
    ) -> StackNote {
        placement.ends_at_operator |= own_call.is_some();
        if self.sites.is_empty() {
            return StackNote::default();
        }
        let nodes = self.nodes_in(placement.sample, &placement.frames, profile);
        let (of_nodes, root) = self.place_stack(scope, nodes, placement.thread, &placement.frames, profile);
        placement.root = root.map(|(node, frames)| PlacementRoot { node, frames }).or(placement.root);
        StackNote { nodes, placement: of_nodes }
    }

    #[inline]
    fn on_stack(&mut self, thread: &StackSample, note: StackNote) {
        if !self.sites.is_empty() {
            self.stack_seen(thread, note.nodes, note.placement);
        }
    }

    fn on_call(
        &mut self,
        call: &CallRecord<'_>,
        stack: Option<&CallStack<StackNote>>,
        context: &mut CallContext<'_>,
    ) {
        let Some(stack) = stack else {
            return self.on_begin(call.sample, call.arguments, call.thread, context.profile);
        };
        let node = stack.caller().filter(|node| *node != call.thread);
        self.called(call.sample, call.arguments, node, stack.note.nodes, stack.note.placement);
    }

    fn on_process(&mut self, change: ProcessChange, _profile: &mut Profile) {
        if let Some(process) = self.processes.remove(&change.pid) {
            self.first.retain(|of, _| of.process != process);
        }
        self.threads.forget_process(change.pid);
        self.copies.forget(change.pid);
    }

    fn on_duty_edge(&mut self, _time_ns: u64, _profile: &mut Profile) {
        // Another thread may have their numbers by the next duty window.
        self.first.clear();
    }

    fn gaps(&self) -> Vec<StageGap> {
        vec![
            StageGap { reason: FORWARD_UNKNOWN, count: self.counts.unknown },
            StageGap { reason: BACKWARD_UNCERTAIN, count: self.counts.uncertain },
            StageGap { reason: BACKWARD_NOT_WATCHED, count: self.counts.not_watched },
            StageGap { reason: FORWARD_UNCERTAIN, count: self.counts.misplaced },
            StageGap { reason: BACKWARD_NESTED, count: self.counts.nested },
            StageGap { reason: BACKWARD_CALL_LOST, count: self.sites.lost() },
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_process_keeps_its_number_in_a_full_table() {
        let mut autograd = Autograd::default();
        let numbers: Vec<u32> = (0..THREADS_MAX as u32).map(|pid| autograd.process(pid)).collect();
        assert_eq!(autograd.process(7), numbers[7]);
        autograd.process(THREADS_MAX as u32);
        assert_ne!(autograd.process(7), numbers[7]);
    }
}
