//! Operators: each start of a framework operator → one more call in the tree, below the operator that encloses it.
//!
//! Owns: which operators a thread is in, what was reported of the next one (its name, its tensors), and their place
//! in the tree. Because: stacks are samples, while each operator reports its start: counts are exact, however short
//! it is. Does not: guess: an operator whose context no stack has shown is placed below `[operators]`, and one whose
//! enclosing operator is unknown is placed there directly.
//!
//! ```text
//!  with a stack    train.py:step ▸ linear.py:Linear.forward ▸ aten::linear                    1 call
//!  within it       train.py:step ▸ linear.py:Linear.forward ▸ aten::linear ▸ aten::addmm      1 call
//!  without         [operators] ▸ aten::linear ▸ aten::addmm                                   999 calls
//!  with tensors    … ▸ aten::addmm ▸ aten::addmm [128, 32x64, 64x128] f32                     1000 calls
//! ```

mod nesting;
mod tensors;

use deepctx_common::call::{Call, call_flag};
use deepctx_common::end::WalkEnd;
use deepctx_common::reasons;
use deepctx_common::record::StackSample;
use deepctx_events::{Event, OperatorEvent, Role};
use deepctx_names::demangle;
use deepctx_names::framework::{self, Meaning};
use deepctx_profile::frame::Frame;
use deepctx_profile::intern::FrameId;
use deepctx_profile::metric::Metric;
use deepctx_profile::operator::operand::{self, Operand};
use deepctx_profile::operator::work::{self, Work};
use deepctx_profile::profile::Profile;
use deepctx_profile::tree::NodeId;
use rustc_hash::FxHashSet;

use crate::config::Config;
use crate::decode::{Arguments, Sample};
use crate::input::SiteInfo;
use crate::loss_windows::LossWindows;
use crate::scopes::OpenScopes;
use crate::sites::Sites;
use crate::spans::{SingleEvent, Span, SpanEnd, SpanKind, SpanThread, Spans};
use crate::stage::{
    CallContext, CallRecord, CallStack, Placement, PlacementRoot, ProcessChange, SiteTable, Stage, StageGap,
};
use crate::trace_window::TraceLevel;
use nesting::{Memory, OpenOperator, Parent, Thread};
use tensors::ReportedTensors;

reasons! {
    class Gap, page "operators.md";
    const OPERATOR_WITHOUT_STACK = "operator-without-stack",
        "operators have no stack of their own: they stand within the one that they began in, or below [operators]";
    const OPERATOR_UNCERTAIN = "operator-uncertain",
        "operators stand below [operators] by themselves: within which one they began is not known";
    const OPERATOR_CONTRADICTED = "operator-contradicted",
        "stacks at two places showed one operator within the other, and once more outside of it";
    const OPERATOR_NOT_WATCHED = "operator-not-watched",
        "operators are not counted: they were seen to begin at the edges of a duty window, when not all probes were in place";
    const OPERATOR_UNNAMED = "operator-unnamed", "operators were called by a handle that gave no name";
    const OPERATOR_UNREADABLE = "operator-unreadable",
        "what was read of operators or their tensors could not be what it should";
    const OPERATOR_LOST = "operator-lost",
        "operators, or their arguments, were counted by their probe and never came";
}

/// Most bytes of an operator's name that are shown.
const NAME_BYTES_MAX: usize = 128;
/// Parent of operators without a stack.
pub(crate) const MARK: &str = "[operators]";
/// An operator that was called through an unreadable handle.
const UNNAMED: &str = "[operator without a name]";
/// Scope of operators (`at::RecordScope::FUNCTION`); others are autograd nodes, scripts and the user's own.
const SCOPE_FUNCTION: u64 = 0;

/// The stage's state.
#[derive(Debug, Default)]
pub(crate) struct Operators {
    /// By number of the probe.
    sites: Sites<ProbePurpose>,
    /// Beginnings are probed themselves, not only through their tensors.
    starts: bool,
    /// Names, without their overloads, of the operators whose tensors are recorded.
    reported: FxHashSet<String>,
    threads: OpenScopes<OperatorThread>,
    memory: Memory,
    counts: Counts,
    /// Beginnings, for a trace of single events.
    pub(crate) spans: Spans,
}

/// What a probe is for.
#[derive(Debug)]
pub(crate) enum ProbePurpose {
    Begins,
    Named,
    /// The operator's name, and whether it may have tensors that are not recorded.
    Tensors(String, bool),
}

/// A thread in which operators begin.
#[derive(Debug, Default)]
struct OperatorThread {
    nesting: Thread,
    /// Time of the last report of its operators, `CLOCK_MONOTONIC` nanoseconds.
    newest_ns: u64,
    /// The name reported for the next one.
    named: Option<FrameId>,
    tensors: Option<(FrameId, Option<Work>)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    without_stack: u64,
    nesting_unknown: u64,
    unnamed: u64,
    not_understood: u64,
    not_watched: u64,
}

impl Operators {
    /// Whether a beginning has a stack of its own.
    #[inline]
    pub(crate) fn has_stack(call: &Call) -> bool {
        call.flags & (call_flag::STACK_LIMITED | call_flag::STACK_UNWANTED) == 0
    }

    /// Parent of a thread's operators without a stack.
    pub(crate) fn without_stack(thread: NodeId, profile: &mut Profile) -> NodeId {
        let name = profile.text(MARK);
        let mark = profile.frame(Frame::Operator { name });
        profile.tree.child(thread, mark)
    }

    /// The state of a thread that is still certain at this report.
    fn certain(&mut self, who: &StackSample, loss: &LossWindows) -> &mut OperatorThread {
        let now_ns = who.header.time_ns;
        let known = self.threads.get(who);
        let hole = known.is_some_and(|known| loss.any(known.newest_ns, now_ns));
        let watched = self.threads.entry(who);
        if hole {
            // Operators that began meanwhile are unknown, and so is the report of the next one.
            *watched = OperatorThread::default();
        }
        watched.newest_ns = now_ns;
        watched
    }

    /// A call that describes the operator that begins next.
    pub(crate) fn next(
        &mut self,
        who: &StackSample,
        arguments: &Arguments<'_>,
        loss: &LossWindows,
        profile: &mut Profile,
    ) {
        self.certain(who, loss);
        match self.sites.record(&arguments.call) {
            None | Some(ProbePurpose::Begins) => {}
            Some(ProbePurpose::Named) => {
                let overload: Vec<u64> = self
                    .sites
                    .arguments(arguments)
                    .filter(|(role, _)| matches!(role, Role::OverloadBytes | Role::Overload))
                    .map_while(|(_, value)| value)
                    .collect();
                let named = boxed_name(arguments.text, &overload);
                let named = named.map(|name| operator(&name, profile));
                self.counts.not_understood += u64::from(named.is_none());
                self.threads.entry(who).named = named;
            }
            Some(ProbePurpose::Tensors(..)) => {
                let tensors = self.tensors(arguments, profile);
                self.threads.entry(who).tensors = tensors;
            }
        }
    }

    /// The frame of an operator's tensors, and their work.
    fn tensors(
        &mut self,
        arguments: &Arguments<'_>,
        profile: &mut Profile,
    ) -> Option<(FrameId, Option<Work>)> {
        let ProbePurpose::Tensors(name, others) = self.sites.what(&arguments.call)? else { return None };
        let tensors = ReportedTensors::of(self.sites.arguments(arguments));
        let biased = !tensors.operands.contains(&Operand::Absent);
        let counted_within = || self.reported.iter().any(|other| work::does_work_of(other, name, biased));
        let work = tensors.work(name).filter(|work| !work.composite || !counted_within());
        let text = format!("{name} {}", operand::text(&tensors.operands, *others));
        self.counts.not_understood += tensors.unknown as u64;
        Some((operator(&text, profile), work))
    }

    /// An operator begins: in the context of its stack if there is one, otherwise in that of the open operators.
    fn on_begin(
        &mut self,
        call: &CallRecord<'_>,
        stack: &CallStack<bool>,
        loss: &LossWindows,
        profile: &mut Profile,
    ) {
        let CallRecord { sample: who, arguments, thread } = *call;
        let Some(what) = self.sites.record(&arguments.call) else { return };
        // While probes are being attached or detached, only some report.
        if loss.not_probed(who.header.time_ns, who.header.time_ns) {
            self.counts.not_watched += 1;
            return;
        }
        let reported = if let ProbePurpose::Tensors(name, _) = what {
            let own = operator(name, profile);
            let tensors = self.tensors(arguments, profile);
            Some((own, tensors))
        } else {
            None
        };
        let has_stack = Self::has_stack(&arguments.call);
        let Some((own, tensors)) = reported else {
            return self.starts(call, stack, loss, profile);
        };
        let node = match (has_stack, stack.note) {
            (true, true) => stack.node,
            (true, false) => profile.tree.child(stack.node, own),
            (false, _) => {
                let place = Self::without_stack(thread, profile);
                profile.tree.child(place, own)
            }
        };
        self.counts.without_stack += u64::from(!has_stack);
        enter(node, tensors, profile);
    }

    fn starts(
        &mut self,
        call: &CallRecord<'_>,
        stack: &CallStack<bool>,
        loss: &LossWindows,
        profile: &mut Profile,
    ) {
        let CallRecord { sample: who, arguments, thread } = *call;
        let (Some(code), Some(stack_pointer), scope) = (
            self.sites.argument(arguments, Role::ReturnAddress),
            self.sites.argument(arguments, Role::StackPointer),
            self.sites.argument(arguments, Role::Scope),
        ) else {
            self.counts.not_understood += 1;
            return;
        };
        let watched = self.certain(who, loss);
        let (named, tensors) = (watched.named.take(), watched.tensors.take());
        if scope != Some(SCOPE_FUNCTION) {
            watched.nesting.reach(stack_pointer);
            return;
        }
        let has_stack = Self::has_stack(&arguments.call);
        let CallStack { node, note: ends_with_it, .. } = *stack;
        let frame = if ends_with_it { profile.tree.node(node).frame } else { self.named(named, profile) };
        let Self { threads, memory, counts, .. } = self;
        let Some(watched) = threads.get_mut(who) else { return };
        let node = if has_stack {
            let around = operators_of(node, profile);
            let around = &around[..around.len().saturating_sub(usize::from(ends_with_it))];
            // A stack without its outer part does not show what is over.
            if who.native_end == WalkEnd::Complete as u8 {
                watched.nesting.shown(who.pid, code, stack_pointer, around, memory);
            } else {
                watched.nesting.reach(stack_pointer);
            }
            if ends_with_it { node } else { profile.tree.child(node, frame) }
        } else {
            counts.without_stack += 1;
            let place = match watched.nesting.parent(who.pid, code, stack_pointer, memory) {
                Parent::In(outer) => outer.node,
                Parent::None => Self::without_stack(thread, profile),
                Parent::Unknown => {
                    counts.nesting_unknown += 1;
                    Self::without_stack(thread, profile)
                }
            };
            profile.tree.child(place, frame)
        };
        watched.nesting.begin(OpenOperator { stack_pointer, code, frame, node });
        self.spans.add(Span {
            kind: SpanKind::Operator,
            of: SpanThread { pid: who.pid, tid: who.tid },
            node,
            began_ns: who.header.time_ns,
            end: SpanEnd::Open,
        });
        enter(node, tensors, profile);
    }

    /// The frame of an operator of this name.
    fn named(&mut self, named: Option<FrameId>, profile: &mut Profile) -> FrameId {
        named.unwrap_or_else(|| {
            self.counts.unnamed += 1;
            operator(UNNAMED, profile)
        })
    }
}

/// The operators of a context, the innermost last.
fn operators_of(node: NodeId, profile: &Profile) -> Vec<FrameId> {
    let is_operator = |frame: &FrameId| matches!(profile.frames.get(*frame), Frame::Operator { .. });
    profile.tree.stack(node).into_iter().filter(is_operator).collect()
}

/// Records a call of an operator, or of its tensors, and their work.
fn enter(node: NodeId, tensors: Option<(FrameId, Option<Work>)>, profile: &mut Profile) {
    let node = tensors.map_or(node, |(frame, _)| profile.tree.child(node, frame));
    profile.tree.add(node, Metric::Calls, 1);
    if let Some(work) = tensors.and_then(|(_, work)| work) {
        profile.tree.add(node, Metric::ModelFlops, work.flops);
        if let Some(bytes) = work.bytes {
            profile.tree.add(node, Metric::ModelBytes, bytes);
        }
    }
}

fn operator(name: &str, profile: &mut Profile) -> FrameId {
    let name = profile.text(name);
    profile.frame(Frame::Operator { name })
}

/// `namespace::name.overload` of an operator's entry: from a text, and the length and first bytes of another. `None` if
/// that is not a valid name.
fn boxed_name(text: &[u8], overload: &[u64]) -> Option<String> {
    let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let name = str::from_utf8(text).ok().filter(|name| name.len() <= NAME_BYTES_MAX)?;
    let (space, own) = name.split_once("::")?;
    if !plain(space) || !plain(own) || space.is_empty() || own.is_empty() {
        return None;
    }
    let (length, words) = overload.split_first()?;
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    Some(match usize::try_from(*length).ok().filter(|length| *length < bytes.len()) {
        Some(0) => name.to_owned(),
        Some(length) => {
            let overload = str::from_utf8(&bytes[..length]).ok().filter(|overload| plain(overload))?;
            format!("{name}.{overload}")
        }
        // A long one is stored elsewhere.
        None if *length <= NAME_BYTES_MAX as u64 => format!("{name}.…"),
        None => return None,
    })
}

/// Whether a path ends with the operator that begins: its function, which asks whether a profiler listens, and nothing
/// in between. Frames are root first.
pub(crate) fn ends_with_operator(frames: &[FrameId], profile: &Profile) -> bool {
    let Some(last) =
        frames.iter().rposition(|frame| matches!(profile.frames.get(*frame), Frame::Operator { .. }))
    else {
        return false;
    };
    let mut behind = frames[last + 1..].iter().filter_map(|frame| match profile.frames.get(*frame) {
        Frame::Native { inlined: true, .. } => None,
        Frame::Native { symbol, .. } => Some(profile.strings.get(symbol)),
        _ => Some(""),
    });
    let function =
        behind.next().is_some_and(|symbol| symbol.starts_with("at::_ops::") && symbol.contains("::call("));
    function
        && behind.next().is_none_or(|symbol| symbol.starts_with("at::getStepCallbacks"))
        && behind.next().is_none()
}

impl Stage for Operators {
    type Scope = ();
    /// Whether the context ends with the operator that begins.
    type Note = bool;

    const STACKLESS_CALLS_NEED_THREAD: bool = false;

    fn new(_config: &Config) -> Self {
        Self::default()
    }

    fn claims(&self, site: &SiteInfo) -> bool {
        matches!(site.event, Event::Operator(_))
    }

    fn learn(&mut self, sites: Vec<SiteInfo>) {
        let Self { reported, starts, .. } = self;
        self.sites.learn(sites, |info| {
            let what = match info.event {
                Event::Operator(OperatorEvent::Begins) => ProbePurpose::Begins,
                Event::Operator(OperatorEvent::Named) => ProbePurpose::Named,
                Event::Operator(OperatorEvent::Tensors) => {
                    let function = demangle(&info.symbol);
                    // Only entries with a name are probed.
                    let Meaning::Entry(name) = framework::meaning(&function) else { return None };
                    let is_operand = |role: &&Role| matches!(role, Role::TensorRank | Role::ListLength);
                    let operands = info.roles.iter().filter(is_operand).count();
                    let name = name.into_owned();
                    reported.extend(name.split('.').next().map(str::to_owned));
                    ProbePurpose::Tensors(name, function.matches("at::Tensor").count() > operands)
                }
                _ => return None,
            };
            *starts |= matches!(what, ProbePurpose::Begins);
            Some(what)
        });
    }

    fn sites(&mut self) -> Option<&mut dyn SiteTable> {
        Some(&mut self.sites)
    }

    /// For an operator's beginning without a stack: the sample with its one known frame, where the function goes on.
    /// Any other call as it is.
    #[inline]
    fn stack_of_call<'a>(&self, sample: Sample<'a>, arguments: &Arguments<'a>) -> Sample<'a> {
        let begins = matches!(self.sites.what(&arguments.call), Some(ProbePurpose::Begins));
        match arguments.values.first() {
            Some(word) if begins && !Self::has_stack(&arguments.call) && arguments.call.unread & 1 == 0 => {
                Sample { words: word.bytes(), user: word, ..sample }
            }
            _ => sample,
        }
    }

    #[inline]
    fn needs_stack(&self, call: &Arguments<'_>) -> bool {
        match self.sites.what(&call.call) {
            Some(ProbePurpose::Named) => false,
            Some(ProbePurpose::Tensors(..)) => !self.starts,
            Some(ProbePurpose::Begins) | None => true,
        }
    }

    fn place(
        &mut self,
        (): (),
        own_call: Option<&Arguments<'_>>,
        placement: &mut Placement<'_>,
        profile: &mut Profile,
    ) -> bool {
        let Some(arguments) = own_call else { return false };
        placement.ends_at_operator = true;
        if !Self::has_stack(&arguments.call) {
            let node = Self::without_stack(placement.thread, profile);
            let frames = placement.root.map_or(0, |root| root.frames);
            placement.root = Some(PlacementRoot { node, frames });
        }
        ends_with_operator(&placement.frames, profile)
    }

    fn on_call(
        &mut self,
        call: &CallRecord<'_>,
        stack: Option<&CallStack<bool>>,
        context: &mut CallContext<'_>,
    ) {
        match stack {
            Some(stack) => self.on_begin(call, stack, context.loss, context.profile),
            None => self.next(call.sample, call.arguments, context.loss, context.profile),
        }
    }

    fn on_process(&mut self, change: ProcessChange, _profile: &mut Profile) {
        self.threads.forget_process(change.pid);
        self.memory.forget(change.pid);
    }

    fn keep_events(&mut self, level: TraceLevel) {
        if level == TraceLevel::Context {
            self.spans.want();
        }
    }

    #[inline]
    fn take_events(&mut self, events: &mut Vec<SingleEvent>) {
        events.extend(self.spans.take().map(SingleEvent::Span));
    }

    fn gaps(&self) -> Vec<StageGap> {
        vec![
            StageGap { reason: OPERATOR_WITHOUT_STACK, count: self.counts.without_stack },
            StageGap { reason: OPERATOR_UNCERTAIN, count: self.counts.nesting_unknown },
            StageGap { reason: OPERATOR_CONTRADICTED, count: self.memory.contradicted },
            StageGap { reason: OPERATOR_NOT_WATCHED, count: self.counts.not_watched },
            StageGap { reason: OPERATOR_UNNAMED, count: self.counts.unnamed },
            StageGap { reason: OPERATOR_UNREADABLE, count: self.counts.not_understood },
            StageGap { reason: OPERATOR_LOST, count: self.sites.lost() },
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boxed_name_is_shown_when_it_is_one() {
        let short = |text: &[u8]| {
            let mut bytes = [0; 16];
            bytes[..text.len()].copy_from_slice(text);
            let (low, high) = bytes.split_at(8);
            let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
            vec![text.len() as u64, word(low), word(high)]
        };
        let check = |text: &[u8], overload: &[u64], expect: Option<&str>| {
            assert_eq!(boxed_name(text, overload).as_deref(), expect);
        };
        check(b"aten::_foreach_add_", &short(b"List"), Some("aten::_foreach_add_.List"));
        check(b"mylib::twice", &short(b""), Some("mylib::twice"));
        check(b"aten::add", &short(b"fifteen_letters"), Some("aten::add.fifteen_letters"));
        check(b"aten::add", &[30, 0x7fff_0000, 0], Some("aten::add.…"));
        check(b"aten::add", &[u64::MAX, 0, 0], None);
        check(b"aten::add", &short(b"\x1b[31m"), None);
        check(b"aten::", &short(b""), None);
        check(b"no name", &short(b""), None);
        check(&[0xff; 8], &short(b""), None);
        check(b"", &[], None);
    }
}
