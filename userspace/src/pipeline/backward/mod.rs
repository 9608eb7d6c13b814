//! Backward: which operator of the forward pass a step of the backward pass belongs to, and the place of such a step in the
//! tree: below that operator.
//!
//! Owns: the contexts of the operators that made a step, until it runs; the steps that each thread is in; and moving stacks
//! below their operator. Because: nobody writes the backward pass: the line that costs is the one whose gradient is
//! computed, and it has long returned by then. Does not: guess: where the step that runs is not certain, or its operator was
//! not seen, the stack stays where it was taken, and the ledger says how often.
//!
//! ```text
//!  forward thread    train.py:step ▸ net.py:forward ▸ aten::linear ▸ aten::addmm ▸ get_and_increment  → thread 1, number 7
//!  backward thread   … ▸ Engine::evaluate_function(thread 1, number 7) ▸ AddmmBackward0 ▸ aten::mm
//!  in the tree       train.py:step ▸ net.py:forward ▸ aten::linear ▸ aten::addmm ▸ [backward] ▸ AddmmBackward0 ▸ aten::mm
//! ```
//! Only beginnings are probed. What ends is seen by what is on a stack: one with `n` frames of the engine's function is in the
//! `n`th of the steps that are open, and those behind it are over. A backward pass within a step (checkpoints) tells by
//! its own stack how many steps are open when it begins.

mod open;

use std::collections::VecDeque;

use deepctx_common::end::WalkEnd;
use deepctx_common::record::StackSample;
use deepctx_profile::frame::Frame;
use deepctx_profile::intern::FrameId;
use deepctx_profile::ledger::{Account, Reason};
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Profile;
use deepctx_profile::tree::NodeId;
use deepctx_uprobes::event::Event;
use deepctx_uprobes::role::Role;
use rustc_hash::FxHashMap;

use super::attribute;
use super::decode::{Arguments, Sample};
use super::holes::Holes;
use super::lists::{ListId, Lists};
use super::sites::Sites;
use super::source::SiteInfo;
use open::Thread;

/// Steps whose operator is remembered: those of a few training steps of a large model, at some 60 bytes each.
pub const STEPS_MAX: usize = 1 << 17;
/// Threads that are followed, and processes: as many as may run on a big host.
const THREADS_MAX: usize = 1 << 16;
/// Places that are remembered, of steps below their operators.
const PLACES_MAX: usize = 1 << 16;
/// How often a step may be the step of a step: derivatives of a higher order are rare, and each doubles the path.
const NESTED_MAX: usize = 4;
/// The number of a step that no operator made, such as one that accumulates a gradient.
const NO_NUMBER: u64 = u64::MAX;
/// What stands between an operator and its backward pass.
pub const MARK: &str = "[backward]";
/// [`super::stacks::Known::steps`] when the stack does not tell.
pub const UNSURE: u8 = u8::MAX;

/// What a call of one of the probed functions says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An operator makes a step.
    Created,
    /// A step begins.
    Begins,
    /// A backward pass begins.
    Backward,
}

/// The stage's state.
#[derive(Debug, Default)]
pub struct Backward {
    /// By number of the probe.
    pub(super) sites: Sites<Kind>,
    /// Each process has a number of its own, since ids come again.
    processes: FxHashMap<u32, u32>,
    processes_seen: u32,
    /// Context of the operator that made a step.
    made: FxHashMap<Step, NodeId>,
    made_in_order: VecDeque<Step>,
    /// The first step of a thread is made before the framework numbers the thread.
    first: FxHashMap<(u32, u32), (u64, NodeId)>,
    threads: FxHashMap<(u32, u32), Thread>,
    /// When the first step of each process was seen to begin: from then on all of its probes are there, since those that tell
    /// of steps are placed last.
    watched_since: FxHashMap<u32, u64>,
    lists: Lists<Option<NodeId>>,
    /// By thread and context of the operator.
    places: FxHashMap<(NodeId, NodeId), Option<NodeId>>,
    /// Whether a frame is the engine's function that runs a step, by number of the frame.
    engine: Vec<Option<bool>>,
    counts: Counts,
}

/// A step: process (by its number here), thread that made it (as the framework counts), and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Step {
    process: u32,
    thread: u64,
    number: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    unknown: u64,
    uncertain: u64,
    nested: u64,
}

impl Backward {
    /// Takes the probes that are this stage's out of those that were placed.
    pub fn learn(&mut self, sites: Vec<SiteInfo>) -> Vec<SiteInfo> {
        let kind = |event| match event {
            Event::StepCreated => Some(Kind::Created),
            Event::StepBegins => Some(Kind::Begins),
            Event::BackwardBegins => Some(Kind::Backward),
            _ => None,
        };
        self.sites.learn(sites, |info| kind(info.event))
    }

    /// The samples have reached this time.
    fn reach(&mut self, now_ns: u64) {
        while let Some((_, pid)) = self.sites.changed(now_ns) {
            if let Some(process) = self.processes.remove(&pid) {
                self.first.retain(|(of, _), _| *of != process);
            }
            self.threads.retain(|(of, _), _| *of != pid);
            self.watched_since.remove(&pid);
        }
    }

    fn process(&mut self, pid: u32) -> u32 {
        if self.processes.len() >= THREADS_MAX {
            self.processes.clear();
        }
        *self.processes.entry(pid).or_insert_with(|| {
            self.processes_seen = self.processes_seen.wrapping_add(1);
            self.processes_seen
        })
    }

    fn thread(&mut self, pid: u32, tid: u32) -> &mut Thread {
        if self.threads.len() >= THREADS_MAX {
            self.threads.clear();
        }
        self.threads.entry((pid, tid)).or_default()
    }

    /// A call that says what a stack has to tell: the operator at `node` makes a step, or a backward pass begins in a stack
    /// with so many steps.
    pub fn called(&mut self, who: &StackSample, arguments: &Arguments<'_>, node: Option<NodeId>, steps: u8) {
        self.sites.came(&arguments.call);
        self.reach(who.header.time_ns);
        match self.sites.what(&arguments.call) {
            Some(Kind::Created) => self.created(who, arguments, node),
            Some(Kind::Backward) => {
                let stack_pointer = self.sites.argument(arguments, Role::StackPointer);
                self.thread(who.pid, who.tid).backward_begins(who.header.time_ns, stack_pointer, steps);
            }
            Some(Kind::Begins) | None => {}
        }
    }

    fn created(&mut self, who: &StackSample, arguments: &Arguments<'_>, node: Option<NodeId>) {
        let process = self.process(who.pid);
        let number = self.sites.argument(arguments, Role::Sequence);
        let thread = self.sites.argument(arguments, Role::ForwardThread);
        let (Some(node), Some(number), Some(thread)) = (node, number, thread) else { return };
        if thread == 0 {
            if self.first.len() < THREADS_MAX {
                self.first.insert((process, who.tid), (number, node));
            }
            return;
        }
        if let Some((earlier, node)) = self.first.remove(&(process, who.tid))
            && earlier < number
        {
            self.remember(Step { process, thread, number: earlier }, node);
        }
        self.remember(Step { process, thread, number }, node);
    }

    fn remember(&mut self, step: Step, node: NodeId) {
        if self.made.insert(step, node).is_none() {
            self.made_in_order.push_back(step);
        }
        if self.made_in_order.len() > STEPS_MAX
            && let Some(oldest) = self.made_in_order.pop_front()
        {
            self.made.remove(&oldest);
        }
    }

    /// A step begins on a thread, whose node is `thread`.
    pub fn begins(
        &mut self,
        who: &StackSample,
        arguments: &Arguments<'_>,
        thread: NodeId,
        profile: &mut Profile,
    ) {
        self.sites.came(&arguments.call);
        self.reach(who.header.time_ns);
        if self.watched_since.len() < THREADS_MAX {
            self.watched_since.entry(who.pid).or_insert(who.header.time_ns);
        }
        let stack_pointer = self.sites.argument(arguments, Role::StackPointer);
        let number = self.sites.argument(arguments, Role::Sequence);
        let made_by = self.sites.argument(arguments, Role::ForwardThread);
        let mut operator = None;
        if number != Some(NO_NUMBER) {
            if let (Some(process), Some(thread), Some(number)) =
                (self.processes.get(&who.pid).copied(), made_by, number)
            {
                operator = self.made.get(&Step { process, thread, number }).copied();
            }
            self.counts.unknown += u64::from(operator.is_none());
        }
        if let Some(node) = operator.and_then(|operator| self.place_below(operator, thread, profile)) {
            profile.tree.add(node, Metric::Calls, 1);
        }
        self.thread(who.pid, who.tid).step_begins(who.header.time_ns, stack_pointer, operator);
        let Self { threads, lists, .. } = self;
        if let Some(thread) = threads.get_mut(&(who.pid, who.tid)) {
            // Where no step has an operator, none leads anywhere.
            let leads = thread.open().iter().any(Option::is_some);
            thread.listed = if leads { lists.id(thread.open()) } else { None };
        }
    }

    /// The steps that a thread may be in, when that is certain.
    #[inline]
    pub fn steps_of(&mut self, who: &StackSample, holes: &Holes) -> Option<ListId> {
        self.reach(who.header.time_ns);
        let listed = self.threads.get(&(who.pid, who.tid))?.listed?;
        self.is_certain(who, holes).then_some(listed)
    }

    /// Whether nothing can have been missed of a thread.
    fn is_certain(&self, who: &StackSample, holes: &Holes) -> bool {
        let thread = self.threads.get(&(who.pid, who.tid));
        let since = thread.and_then(|thread| thread.certain_since);
        since.is_some_and(|since| !holes.any(since, who.header.time_ns))
    }

    /// A stack was seen with so many frames of the engine's function.
    #[inline]
    pub fn stack_seen(&mut self, who: &StackSample, steps: u8, placed: bool, holes: &Holes) {
        match steps {
            0 => {
                let time_ns = who.header.time_ns;
                if self.watched_since.get(&who.pid).is_none_or(|since| *since > time_ns) {
                    return;
                }
                self.thread(who.pid, who.tid).none_is_open(time_ns);
            }
            UNSURE => {}
            _ if placed => {}
            // That of a step which no operator made belongs to none for certain.
            _ => self.counts.uncertain += u64::from(!self.is_certain(who, holes)),
        }
    }

    /// How many steps a stack is in, as far as it tells: frames root first.
    pub fn steps_in(&mut self, sample: &Sample<'_>, frames: &[FrameId], profile: &Profile) -> u8 {
        if sample.fixed.native_end != WalkEnd::Complete as u8 {
            return UNSURE;
        }
        let steps = frames.iter().filter(|frame| self.is_engine(**frame, profile)).count();
        u8::try_from(steps).unwrap_or(UNSURE)
    }

    fn is_engine(&mut self, frame: FrameId, profile: &Profile) -> bool {
        // Frames are bounded, and so is this.
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

    /// Where a stack in so many steps belongs: a context below the operator that made the step, and how many of its frames,
    /// root first, that context stands for. `None` when it belongs where it was taken.
    pub fn place(
        &mut self,
        listed: ListId,
        steps: u8,
        thread: NodeId,
        frames: &[FrameId],
        profile: &mut Profile,
    ) -> Option<(NodeId, usize)> {
        if steps == 0 || steps == UNSURE {
            return None;
        }
        let operator = self.lists.get(listed)?.get(usize::from(steps) - 1).copied()??;
        let last = frames.iter().rposition(|frame| self.is_engine(*frame, profile))?;
        // In the function itself another step may be about to begin.
        let within = frames.get(last + 1)?;
        if matches!(profile.frames.get(*within), Frame::Kernel { .. } | Frame::KernelUnnamed { .. }) {
            return None;
        }
        Some((self.place_below(operator, thread, profile)?, last + 1))
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
        self.counts.nested += u64::from(place.is_none());
        if self.places.len() >= PLACES_MAX {
            self.places.clear();
        }
        self.places.insert((thread, operator), place);
        place
    }

    /// Writes what is missing into the account of the stage that places stacks.
    pub fn write_to(&self, account: &mut Account) {
        for (key, sentence, n) in [
            (
                "forward-unknown",
                "steps of the backward pass are not below their operator: it ran before the capture began, or too long ago",
                self.counts.unknown,
            ),
            (
                "backward-uncertain",
                "stacks in the backward pass are not below an operator: records before them are missing",
                self.counts.uncertain,
            ),
            (
                "backward-nested",
                "derivatives of derivatives are not below an operator: they are nested too deeply",
                self.counts.nested,
            ),
            (
                "backward-call-lost",
                "steps of the backward pass, or operators that made them, were counted by their probe and never came",
                self.sites.lost(),
            ),
        ] {
            account.gaps.add(Reason::new(key, sentence), n);
        }
    }
}

/// How many of an operator's frames, root first, say where it is: up to the last one that is Python or an operator.
pub fn operator_path(frames: &[FrameId], profile: &Profile) -> usize {
    let says =
        |frame: &FrameId| matches!(profile.frames.get(*frame), Frame::Python { .. } | Frame::Operator { .. });
    frames.iter().rposition(says).map_or(0, |at| at + 1)
}
