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
use crate::symbols::CompiledNames;
use crate::trace_window::TraceLevel;

/// One question that is answered from the calls of probed functions and the stacks around them.
///
/// Every method has a default that does nothing, but for those that make the stage and name its probes.
pub(crate) trait Stage {
    /// The scopes that a thread is in. Two equal stacks in different scopes have different contexts, so this is part of
    /// the key under which a stack is cached.
    type Scope: Copy + Debug + Default + Eq + Hash;
    /// What the stage concluded from a stack. It is cached together with the stack's context.
    type Note: Copy + Debug + Default + Eq;

    /// How calls that come with a stack are accounted.
    const ACCOUNTED_AS: CallAccounting = CallAccounting::ScopeChange;
    /// Whether [`CallRecord::thread`] is wanted of a call without a stack: looking it up takes time.
    const STACKLESS_CALLS_NEED_THREAD: bool = true;

    /// A stage that has seen nothing.
    fn new(config: &Config) -> Self;

    /// Whether the calls of a probe belong to this stage.
    fn claims(&self, site: &SiteInfo) -> bool;

    /// Takes in probes that it claims. Those of one file come together.
    fn learn(&mut self, sites: Vec<SiteInfo>);

    /// The table of its probes; `None` of a stage that has none.
    fn sites(&mut self) -> Option<&mut dyn SiteTable> {
        None
    }

    /// Whether a call of one of its probes says something only together with its stack.
    #[inline]
    fn needs_stack(&self, _call: &Arguments<'_>) -> bool {
        true
    }

    /// The stack that a call of one of its probes stands for, where that is not the one that was taken.
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

    /// A stack was taken, whether it was cached or not.
    #[inline]
    fn on_stack(&mut self, _thread: &StackSample, _note: Self::Note) {}

    /// A call of one of its probes.
    fn on_call(
        &mut self,
        call: &CallRecord<'_>,
        stack: Option<&CallStack<Self::Note>>,
        context: &mut CallContext<'_>,
    );

    /// A process begins, begins anew or ends. All earlier records were attributed; those of this time were not.
    fn on_process(&mut self, _change: ProcessChange, _profile: &mut Profile) {}

    /// The probes with a budget are attached or detached, `CLOCK_MONOTONIC` nanoseconds: for a while some are there and
    /// others are not. All earlier records were attributed.
    fn on_duty_edge(&mut self, _time_ns: u64, _profile: &mut Profile) {}

    /// Whether something that the stage received ahead of its time is due once the samples have reached `now_ns`.
    #[inline]
    fn is_due(&self, _now_ns: u64) -> bool {
        false
    }

    /// Uses what is due.
    fn use_due(&mut self, _now_ns: u64, _profile: &mut Profile) {}

    /// The samples have reached a time, `CLOCK_MONOTONIC` nanoseconds.
    fn advance(&mut self, _until_ns: u64, _profile: &mut Profile) {}

    /// No record will follow. The last one is of this time, `CLOCK_MONOTONIC` nanoseconds.
    fn finish(&mut self, _now_ns: u64, _profile: &mut Profile) {}

    /// Single events are recorded from now on, as far as this level goes.
    fn keep_events(&mut self, _level: TraceLevel) {}

    /// Hands out the single events since the last time.
    #[inline]
    fn take_events(&mut self, _events: &mut Vec<SingleEvent>) {}

    /// What is missing of its conclusions, and why.
    fn gaps(&self) -> Vec<StageGap> {
        Vec::new()
    }

    /// Writes what it keeps beside the tree to the profile.
    fn write_to(&self, _profile: &mut Profile) {}
}

/// A table of probes, as far as all stages need it alike.
pub(crate) trait SiteTable {
    /// Takes in how often the kernel programs counted the calls of each probe, by number of the probe.
    fn counted(&mut self, counts: &[u64]);

    /// These numbers are nobody's now: their probes are gone, and others will have them.
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
    /// What it was called with.
    pub(crate) arguments: &'a Arguments<'a>,
    /// The node of the thread; the root where the stage does not ask for it.
    pub(crate) thread: NodeId,
}

/// The stack of a call, and what it led to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallStack<N> {
    /// The context of the caller.
    pub(crate) node: NodeId,
    /// The stage's conclusion.
    pub(crate) note: N,
    /// False when the walk gave no frame: the node is then that of the thread.
    pub(crate) has_frames: bool,
}

impl<N> CallStack<N> {
    /// The context of the caller, when there is a stack that shows it.
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
    /// Those who know what compilers made code from.
    pub(crate) names: &'a mut dyn CompiledNames,
}

/// What happens to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessChange {
    /// The process, in the pid namespace of the profiler.
    pub(crate) pid: u32,
    /// When: `CLOCK_MONOTONIC`, nanoseconds.
    pub(crate) time_ns: u64,
    /// Which way.
    pub(crate) kind: ProcessChangeKind,
}

/// Which way a process changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcessChangeKind {
    /// It begins, or begins anew with another program.
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
    /// The context that stands for the first frames; without one it is the thread, which stands for none.
    pub(crate) root: Option<PlacementRoot>,
    /// Only the frames up to the last operator or Python function are shown.
    pub(crate) ends_at_operator: bool,
    /// A frame below the stack, such as what the thread waits for.
    pub(crate) leaf: Option<FrameId>,
}

/// A context that stands for the beginning of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlacementRoot {
    /// The context.
    pub(crate) node: NodeId,
    /// How many frames it stands for, from the root.
    pub(crate) frames: usize,
}

impl<'a> Placement<'a> {
    /// Where the stack was taken.
    pub(crate) fn new(sample: &'a Sample<'a>, thread: NodeId, frames: &'a [FrameId]) -> Self {
        Self { sample, thread, frames: frames.into(), root: None, ends_at_operator: false, leaf: None }
    }

    /// Leaves only the first frames, as `caller` chooses them, of a stack that no stage has added frames to.
    pub(crate) fn trim(&mut self, caller: impl FnOnce(&'a [FrameId]) -> &'a [FrameId]) {
        if let Cow::Borrowed(frames) = self.frames {
            self.frames = caller(frames).into();
        }
    }
}
