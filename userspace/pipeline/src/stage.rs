//! The interface of a stage.
//!
//! Owns: what the pipeline requires of a stage, and the values that pass between the two. Because: adding a stage
//! takes its folder and one line in [`crate::stages`]: calls find their stage through an index, and stack caches name
//! none. Records of the kernel and of collectors are not calls; dispatch names the stage for each kind. Does not:
//! know any stage, or the order in which stages run.
//!
//! ```text
//!  Input::Sites ──▶ claims ──▶ learn                    once for each probe
//!  CALL ──▶ needs_stack? ──▶ on_call                     a call that says all it has to say without a stack
//!       └─▶ scope ─▶ (seen before?) ─▶ caller, place ─▶ on_stack, on_call
//!  SAMPLE ─▶ scope ─▶ (seen before?) ─▶ place ─▶ on_stack
//! ```

use std::borrow::Cow;
use std::fmt::Debug;
use std::hash::Hash;

use deepctx_common::reason::Reason;
use deepctx_common::record::StackSample;
use deepctx_profile::intern::FrameId;
use deepctx_profile::profile::Profile;
use deepctx_profile::tree::NodeId;

use crate::config::Config;
use crate::decode::{Arguments, Sample};
use crate::input::SiteInfo;
use crate::loss_windows::LossWindows;
use crate::spans::SingleEvent;
use crate::symbols::ProcessFacts;
use crate::trace_window::TraceLevel;

/// A part of the pipeline that uses the calls of some probed functions and the stacks around them.
///
/// Methods default to doing nothing, except those that make the stage and name its probes.
pub(crate) trait Stage {
    /// The scopes of a thread. Equal stacks in different scopes have different contexts, so the scope is part of the
    /// key of a cached stack.
    type Scope: Copy + Debug + Default + Eq + Hash;
    /// The stage's conclusion from a stack, cached with the stack's context.
    type Note: Copy + Debug + Default + Eq;

    /// How calls with a stack are accounted.
    const ACCOUNTED_AS: CallAccounting = CallAccounting::ScopeChange;
    /// Whether [`CallRecord::thread`] is needed for a call without a stack: the look-up takes time.
    const STACKLESS_CALLS_NEED_THREAD: bool = true;

    /// A new stage.
    fn new(config: &Config) -> Self;

    /// Whether the calls of a probe belong to this stage.
    fn claims(&self, site: &SiteInfo) -> bool;

    /// Adds probes that it claims. Those of one file come together.
    fn learn(&mut self, sites: Vec<SiteInfo>);

    /// The table of its probes; `None` if it has none.
    fn sites(&mut self) -> Option<&mut dyn SiteTable> {
        None
    }

    /// Whether a call of one of its probes can be used only together with its stack.
    #[inline]
    fn needs_stack(&self, _call: &Arguments<'_>) -> bool {
        true
    }

    /// The stack to use for a call of one of its probes, if not the recorded one.
    #[inline]
    fn stack_of_call<'a>(&self, sample: Sample<'a>, _call: &Arguments<'a>) -> Sample<'a> {
        sample
    }

    /// Whether the meaning of a stack depends on the calls before it.
    #[inline]
    fn follows_calls(&self) -> bool {
        false
    }

    /// The scopes that a thread is in at the time of a record.
    #[inline]
    fn scope(&mut self, _thread: &StackSample, _loss: &LossWindows) -> Self::Scope {
        Self::Scope::default()
    }

    /// The part of a stack, root first, that called the probed function.
    fn caller<'a>(
        &mut self,
        _call: &Arguments<'_>,
        frames: &'a [FrameId],
        _profile: &Profile,
    ) -> &'a [FrameId] {
        frames
    }

    /// Changes where a stack is placed in the tree. `own_call`: the stack is that of a call of this stage.
    fn place(
        &mut self,
        _scope: Self::Scope,
        _own_call: Option<&Arguments<'_>>,
        _placement: &mut Placement<'_>,
        _profile: &mut Profile,
    ) -> Self::Note {
        Self::Note::default()
    }

    /// A stack was recorded, cached or not.
    #[inline]
    fn on_stack(&mut self, _thread: &StackSample, _note: Self::Note) {}

    /// A call of one of its probes.
    fn on_call(
        &mut self,
        call: &CallRecord<'_>,
        stack: Option<&CallStack<Self::Note>>,
        context: &mut CallContext<'_>,
    );

    /// A process begins, executes a program or ends. All earlier records were attributed; those of this time were not.
    fn on_process(&mut self, _change: ProcessChange, _profile: &mut Profile) {}

    /// The probes with a budget are attached or detached, `CLOCK_MONOTONIC` nanoseconds: for a while only some are
    /// attached. All earlier records were attributed.
    fn on_duty_edge(&mut self, _time_ns: u64, _profile: &mut Profile) {}

    /// Whether input that the stage received ahead of its time is due once the samples have reached `now_ns`.
    #[inline]
    fn is_due(&self, _now_ns: u64) -> bool {
        false
    }

    /// Uses what is due.
    fn use_due(&mut self, _now_ns: u64, _profile: &mut Profile) {}

    /// The samples have reached a time, `CLOCK_MONOTONIC` nanoseconds.
    fn advance(&mut self, _until_ns: u64, _profile: &mut Profile) {}

    /// No record will follow. `now_ns`: time of the last one, `CLOCK_MONOTONIC` nanoseconds.
    fn finish(&mut self, _now_ns: u64, _profile: &mut Profile) {}

    /// Records single events from now on, up to this level.
    fn keep_events(&mut self, _level: TraceLevel) {}

    /// Hands out the single events since the last call.
    #[inline]
    fn take_events(&mut self, _events: &mut Vec<SingleEvent>) {}

    /// Gaps in its conclusions, and their reasons.
    fn gaps(&self) -> Vec<StageGap> {
        Vec::new()
    }

    /// Writes its results outside the tree to the profile.
    fn write_to(&self, _profile: &mut Profile) {}
}

/// The part of a table of probes that is the same for all stages.
pub(crate) trait SiteTable {
    /// Sets how often the kernel programs counted the calls of each probe, by number of the probe.
    fn counted(&mut self, counts: &[u64]);

    /// These numbers are free: their probes are gone, and new probes will reuse them.
    fn freed(&mut self, numbers: &[u32]);
}

/// Something that a stage could not conclude.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StageGap {
    /// Why.
    pub(crate) reason: &'static Reason,
    /// How often.
    pub(crate) count: u64,
}

/// How a call is accounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallAccounting {
    /// It only changes what later stacks mean.
    ScopeChange,
    /// It has figures of its own, and its stack counts as walked.
    Call,
}

/// A call of a probed function.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallRecord<'a> {
    /// Thread, time and flags.
    pub(crate) sample: &'a StackSample,
    /// The arguments.
    pub(crate) arguments: &'a Arguments<'a>,
    /// The node of the thread; the root if the stage does not need it.
    pub(crate) thread: NodeId,
}

/// The stack of a call, resolved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallStack<N> {
    /// The context of the caller.
    pub(crate) node: NodeId,
    /// The stage's conclusion.
    pub(crate) note: N,
    /// False if the walk gave no frame: the node is then that of the thread.
    pub(crate) has_frames: bool,
}

impl<N> CallStack<N> {
    /// The context of the caller, if a stack shows it.
    pub(crate) fn caller(&self) -> Option<NodeId> {
        self.has_frames.then_some(self.node)
    }
}

/// What a stage works with besides its own state.
pub(crate) struct CallContext<'a> {
    /// Where figures are entered.
    pub(crate) profile: &'a mut Profile,
    /// When records may be missing.
    pub(crate) loss: &'a LossWindows,
    /// Those who know more about processes.
    pub(crate) facts: &'a mut dyn ProcessFacts,
}

/// What happens to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessChange {
    /// The process, in the pid namespace of the profiler.
    pub(crate) pid: u32,
    /// When: `CLOCK_MONOTONIC`, nanoseconds.
    pub(crate) time_ns: u64,
    /// The kind of change.
    pub(crate) kind: ProcessChangeKind,
}

/// How a process changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcessChangeKind {
    /// It begins, or executes another program.
    Begins,
    /// It ends.
    Ends,
}

/// Where a stack is placed, while the stages work on it.
#[derive(Debug)]
pub(crate) struct Placement<'a> {
    /// The sample or call that the stack is of.
    pub(crate) sample: &'a Sample<'a>,
    /// The node of its thread.
    pub(crate) thread: NodeId,
    /// Its frames, root first.
    pub(crate) frames: Cow<'a, [FrameId]>,
    /// The context that represents the first frames; without one it is the thread, which represents none.
    pub(crate) root: Option<PlacementRoot>,
    /// Only the frames up to the last operator or Python function are shown.
    pub(crate) ends_at_operator: bool,
    /// A frame below the stack, such as the wait reason of the thread.
    pub(crate) leaf: Option<FrameId>,
}

/// A context that represents the beginning of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlacementRoot {
    /// The context.
    pub(crate) node: NodeId,
    /// How many frames it represents, from the root.
    pub(crate) frames: usize,
}

impl<'a> Placement<'a> {
    /// The place where the stack was taken.
    pub(crate) fn new(sample: &'a Sample<'a>, thread: NodeId, frames: &'a [FrameId]) -> Self {
        Self { sample, thread, frames: frames.into(), root: None, ends_at_operator: false, leaf: None }
    }

    /// Keeps only the first frames, as `caller` selects them. No stage may have added frames before.
    pub(crate) fn trim(&mut self, caller: impl FnOnce(&'a [FrameId]) -> &'a [FrameId]) {
        if let Cow::Borrowed(frames) = self.frames {
            self.frames = caller(frames).into();
        }
    }
}
