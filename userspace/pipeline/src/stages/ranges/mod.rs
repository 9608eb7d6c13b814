//! Ranges: the named parts of a program that a thread is in (`record_function("…")`, NVTX, roctx), and the training
//! steps that follow from them.
//!
//! Owns: the open ranges of each thread; where a range is placed in a stack; how long each took. Because: programs
//! name their own parts, and optimizers and data loaders always do, whether or not a profiler listens. Does not:
//! guess: after lost records no range is considered open any more, and the ledger counts it.
//!
//! ```text
//!  enter_new("Optimizer.step#SGD.step")   name, and the stack: main ▸ train ▸ wrapper ▸ record_function.__enter__ …
//!  RecordFunction::RecordFunction         address of the record
//!  RecordFunction::end                    address of the record: the first one with it closes the range
//!  nvtxRangePushA("batch"), nvtxRangePop   the same at once; the end is that of the last one in its thread and domain
//!  in the tree                            main ▸ train ▸ wrapper ▸ [range] Optimizer.step#SGD.step ▸ SGD.step ▸ …
//! ```
//! A range is placed after the frames that a stack within it shares with the stack at its start: usually after the
//! function with the `with` statement.

mod markers;
mod open;
mod steps;

use deepctx_common::reasons;
use deepctx_common::record::StackSample;
use deepctx_events::{Event, RangeEvent, Role};
use deepctx_profile::frame::Frame;
use deepctx_profile::intern::FrameId;
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Profile;
use deepctx_profile::tree::NodeId;
use deepctx_profile::units::{Nanos, Time};
use rustc_hash::FxHashMap;

use crate::config::Config;
use crate::decode::Arguments;
use crate::input::SiteInfo;
use crate::loss_windows::{BudgetFlag, LossCause, LossWindows};
use crate::scopes::{OpenScopes, ScopeId, ScopeLists};
use crate::sites::Sites;
use crate::spans::{SingleEvent, SpanEnd, SpanThread, Spans};
use crate::stage::{
    CallContext, CallRecord, CallStack, Placement, ProcessChange, SiteTable, Stage, StageGap,
};
use crate::trace_window::TraceLevel;
use markers::Markers;
use open::{Key, OpenRange, Thread};
use steps::{Places, Steps};

reasons! {
    class Gap, page "steps.md";
    const RANGE_UNCERTAIN = "range-uncertain",
        "ranges were given up before their end: records are missing in which they may have ended";
    const RANGE_NOT_WATCHED = "range-not-watched",
        "ranges were given up before their end: the duty window of their probes was over";
    const RANGE_UNNAMED = "range-unnamed", "names of ranges could not be read";
    const RANGE_NESTED = "range-nested", "ranges are not reported: too many are open in their thread";
    const RANGE_UNFINISHED = "range-unfinished",
        "ranges had not ended when their process did: they have no time";
    const RANGE_CALL_LOST = "range-call-lost",
        "beginnings or ends of ranges were counted by their probe and never came";
    const RANGES_FULL = "ranges-full",
        "ranges were given up, or training steps not handed on: there were more than are remembered";
}

/// Files of PyTorch and Python whose functions only lead to the beginning of a range.
const ENTERING: [&str; 8] = [
    "torch/autograd/profiler.py",
    "torch/cuda/nvtx.py",
    "torch/cuda/profiler.py",
    "nvtx/nvtx.py",
    "torch/_ops.py",
    "torch/_classes.py",
    "torch/utils/_contextlib.py",
    "contextlib.py",
];
/// The name of the part of a run that is meant to be profiled.
const PROFILED: &str = "profiler";
/// NVTX's number for ASCII messages.
const ASCII: u64 = 1;

/// The meaning of a probed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A range is about to begin: its name.
    Named,
    /// It begins: its record.
    Begins,
    /// A record ends.
    Ends,
    /// A range begins: its name.
    Pushed,
    /// The one pushed last ends.
    Popped,
    /// The part meant to be profiled begins.
    Started,
    /// It ends.
    Stopped,
    /// A step ends.
    Step,
}

impl Kind {
    /// Whether its context matters.
    pub(crate) fn has_stack(self) -> bool {
        matches!(self, Self::Named | Self::Pushed | Self::Started | Self::Step)
    }
}

/// The stage's state.
#[derive(Debug)]
pub(crate) struct Ranges {
    /// By number of the probe.
    sites: Sites<Kind>,
    /// Functions that represent ranges and steps without a name, by number of the probe.
    symbols: FxHashMap<u32, String>,
    threads: OpenScopes<Thread>,
    lists: ScopeLists<NodeId>,
    steps: Steps,
    step_places: Places,
    markers: Markers,
    counts: Counts,
    /// Ranges and steps that have ended, for a trace.
    pub(crate) spans: Spans,
    /// Whether its probes are detached with those that have a budget.
    budget: BudgetFlag,
    /// Ended steps, for a consumer that reads them while the program runs; `None` without one.
    ended_steps: Option<Vec<EndedStep>>,
}

/// Ended steps that wait for their consumer, which reads them ten times a second.
const ENDED_STEPS_MAX: usize = 1 << 16;

/// A training step that has ended, `CLOCK_MONOTONIC` nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedStep {
    /// The context where it ended.
    pub place: NodeId,
    /// When it began: at the previous end there.
    pub began_ns: u64,
    /// How long it took.
    pub took_ns: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    uncertain: u64,
    not_watched: u64,
    unnamed: u64,
    nested: u64,
    unfinished: u64,
    full: u64,
}

impl Counts {
    /// This many ranges were dropped.
    fn dropped(&mut self, missing: LossCause, ranges: usize) {
        *match missing {
            LossCause::Lost => &mut self.uncertain,
            LossCause::NotProbed => &mut self.not_watched,
        } += ranges as u64;
    }
}

impl Ranges {
    /// The steps that ended since the last call.
    pub(crate) fn ended_steps(&mut self) -> Vec<EndedStep> {
        self.ended_steps.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The ranges that a thread is in, if certain.
    #[inline]
    pub(crate) fn of(&mut self, who: &StackSample, loss: &LossWindows) -> Option<ScopeId> {
        let thread = self.threads.get_mut(who)?;
        let listed = thread.listed?;
        if let Some(missing) = loss.cause_with(self.budget, thread.since_ns, who.header.time_ns) {
            self.counts.dropped(missing, thread.forget(SpanEnd::Lost, &mut self.spans));
            return None;
        }
        // The lists of other threads have pushed it out meanwhile.
        if self.lists.get(listed).is_none() {
            thread.list(&mut self.lists);
        }
        thread.listed
    }

    /// Drops a thread's ranges if the end of one may be missing.
    fn only_certain(&mut self, who: &StackSample, loss: &LossWindows) {
        let Some(thread) = self.threads.get_mut(who) else { return };
        let now_ns = who.header.time_ns;
        if !thread.open().is_empty()
            && let Some(missing) = loss.cause_with(self.budget, thread.since_ns, now_ns)
        {
            self.counts.dropped(missing, thread.forget(SpanEnd::Lost, &mut self.spans));
        }
    }

    /// The name of a range that is about to begin, and when it was given. It holds for the next call of its thread.
    fn take_name(&mut self, who: &StackSample) -> Option<(NodeId, u64)> {
        self.threads.get_mut(who)?.named.take()
    }

    /// Gives up the ranges of all threads if there is no room for one more.
    fn make_room(&mut self, who: &StackSample) {
        if self.threads.is_full_for(who) {
            for thread in self.threads.all() {
                self.counts.full += thread.forget(SpanEnd::Lost, &mut self.spans) as u64;
            }
        }
    }

    /// The frames of a stack, root first, with those of its ranges; `None` if it is in none.
    fn within(&self, listed: Option<ScopeId>, frames: &[FrameId], profile: &Profile) -> Option<Vec<FrameId>> {
        let places = listed.and_then(|listed| self.lists.get(listed))?;
        let mut out: Vec<FrameId> = frames.to_vec();
        // Frames of the stack, and those of outer ranges that were inserted between them.
        let mut from = 0;
        for place in places {
            let stack = profile.tree.stack(*place);
            let Some((range, caller)) = stack.split_last() else { continue };
            // A full tree has no node for it.
            if !matches!(profile.frames.get(*range), Frame::Range { .. }) {
                continue;
            }
            let at = shared(caller, &out, profile).max(from);
            out.insert(at, *range);
            from = at + 1;
        }
        Some(out)
    }

    /// A range begins, or is about to, or a training step ends, in the context `node`.
    fn named(&mut self, call: &CallRecord<'_>, node: NodeId, loss: &LossWindows, profile: &mut Profile) {
        let CallRecord { sample: who, arguments, thread } = *call;
        let Some(kind) = self.sites.record(&arguments.call).copied() else { return };
        self.only_certain(who, loss);
        self.take_name(who);
        // A message that is not text is a number that only a tool understands.
        let is_text = self.sites.argument(arguments, Role::Kind).is_none_or(|kind| kind == ASCII);
        let name = match (kind, self.symbols.get(&arguments.call.site)) {
            (Kind::Started, _) => profile.text(PROFILED),
            (_, Some(symbol)) => profile.text(symbol),
            _ if arguments.text.is_empty() || kind == Kind::Pushed && !is_text => {
                self.counts.unnamed += 1;
                profile.text("unnamed")
            }
            _ => profile.text(&String::from_utf8_lossy(arguments.text)),
        };
        let frame = profile.frame(Frame::Range { name });
        let place = profile.tree.child(node, frame);
        let began_ns = who.header.time_ns;
        let key = match kind {
            Kind::Pushed => Key::Pushed(self.sites.argument(arguments, Role::Handle).unwrap_or(0)),
            Kind::Started => Key::Profiler,
            Kind::Step => return self.step(place, thread_of(who), began_ns, loss, profile),
            Kind::Named | Kind::Begins | Kind::Ends | Kind::Popped | Kind::Stopped => {
                self.make_room(who);
                self.threads.entry(who).named = Some((place, began_ns));
                return;
            }
        };
        let range = OpenRange { key, place, thread, of: thread_of(who), began_ns, within_ns: 0 };
        self.begin(who, range);
    }

    /// A range begins in a thread.
    fn begin(&mut self, who: &StackSample, range: OpenRange) {
        self.make_room(who);
        let Self { threads, lists, counts, spans, .. } = self;
        let of = threads.entry(who);
        let unended = of.drop_unended(range.key, spans);
        // A program may say twice that the part to be profiled begins.
        if matches!(range.key, Key::Record(_)) {
            counts.dropped(LossCause::Lost, unended);
        }
        counts.nested += u64::from(!of.on_begin(range));
        of.list(lists);
    }

    /// Names that end a training step, and that no range began with.
    pub(crate) fn unseen(&self) -> impl Iterator<Item = &str> {
        self.markers.unseen()
    }

    /// A range with a record begins or ends.
    fn marked(&mut self, call: &CallRecord<'_>, loss: &LossWindows, profile: &mut Profile) {
        let CallRecord { sample: who, arguments, thread } = *call;
        self.sites.record(&arguments.call);
        let now_ns = who.header.time_ns;
        if matches!(self.sites.what(&arguments.call), Some(Kind::Begins)) {
            self.only_certain(who, loss);
        }
        let named = self.take_name(who);
        let handle = self.sites.argument(arguments, Role::Handle);
        let (key, began, anywhere) = match (self.sites.what(&arguments.call), handle) {
            (Some(Kind::Popped), domain) => (Key::Pushed(domain.unwrap_or(0)), false, false),
            (Some(Kind::Stopped), _) => (Key::Profiler, false, true),
            (kind, Some(record)) => (Key::Record(record), kind == Some(&Kind::Begins), true),
            (_, None) => return,
        };
        if began {
            // A record without a name is not one of the program's ranges.
            let Some((place, named_ns)) = named else { return };
            if let Some(missing) = loss.cause_with(self.budget, named_ns, now_ns) {
                // Another range may have begun with this name, and this one have another.
                return self.counts.dropped(missing, 1);
            }
            let range = OpenRange { key, place, thread, of: thread_of(who), began_ns: now_ns, within_ns: 0 };
            return self.begin(who, range);
        }
        let Self { threads, lists, .. } = self;
        // Usually it ends where it began.
        let here = threads.get_mut(who).and_then(|of| of.on_end(key, now_ns, lists));
        let ended = here.or_else(|| {
            let mut of_process = threads.of_process(who.pid).filter(|_| anywhere);
            of_process.find_map(|of| of.on_end(key, now_ns, lists))
        });
        if let Some(ended) = ended {
            match loss.cause_with(self.budget, ended.range.began_ns, now_ns) {
                // This may be the record's second end, with the first one lost.
                Some(missing) => {
                    self.counts.dropped(missing, 1);
                    self.spans.add(ended.range.span(SpanEnd::Lost));
                }
                None => self.on_end(ended, now_ns, loss, profile),
            }
        }
    }

    fn on_end(&mut self, ended: open::EndedRange, now_ns: u64, loss: &LossWindows, profile: &mut Profile) {
        let OpenRange { place, thread, of, began_ns, within_ns, .. } = ended.range;
        self.spans.add(ended.range.span(SpanEnd::At(now_ns)));
        let took = now_ns.saturating_sub(began_ns);
        profile.tree.add(place, Metric::RangeTime, took.saturating_sub(within_ns));
        if ended.is_outermost {
            let since_start = |at_ns| Time::from_nanos(at_ns) - profile.meta.started_monotonic;
            let (from, to) = (since_start(began_ns), since_start(now_ns));
            profile.timeline.add_span(thread, Metric::RangeTime, from, to, took);
        }
        let Frame::Range { name } = profile.frames.get(profile.tree.node(place).frame) else { return };
        let name = profile.strings.get(name);
        if self.markers.match_range(name) {
            self.step(place, of, now_ns, loss, profile);
        }
    }

    /// A step ends at this place, in this thread and at this time.
    fn step(
        &mut self,
        place: NodeId,
        of: SpanThread,
        now_ns: u64,
        loss: &LossWindows,
        profile: &mut Profile,
    ) {
        // Another step may have ended meanwhile.
        let first = self.step_places.first(place, profile);
        let budget = self.budget;
        let missed = |before_ns| loss.cause_with(budget, before_ns, now_ns).is_some();
        if let Some(took_ns) = self.steps.on_end(first, of, now_ns, missed, &mut self.spans) {
            profile.add_step(place, Nanos(took_ns));
            if let Some(steps) = self.ended_steps.as_mut().filter(|steps| steps.len() < ENDED_STEPS_MAX) {
                steps.push(EndedStep { place: first, began_ns: now_ns - took_ns, took_ns });
            } else if self.ended_steps.is_some() {
                self.counts.full += 1;
            }
        }
    }
}

/// The thread of a record.
fn thread_of(who: &StackSample) -> SpanThread {
    SpanThread { pid: who.pid, tid: who.tid }
}

/// The part of a stack, root first, that locates the begin of a range or the end of a training step: up to the last
/// Python function that does more than enter a range.
fn caller<'a>(frames: &'a [FrameId], profile: &Profile) -> &'a [FrameId] {
    let says = |frame: &FrameId| match profile.frames.get(*frame) {
        Frame::Python { file, .. } => {
            let file = profile.strings.get(file);
            !ENTERING.iter().any(|entering| file.ends_with(entering))
        }
        _ => false,
    };
    let end = frames.iter().rposition(says).map_or(0, |at| at + 1);
    &frames[..end]
}

/// How many of a stack's frames, root first, it shares with the caller of a range. Only Python functions are compared:
/// native frames between them can differ by the instruction. The last shared function is still running, so its line may
/// differ.
fn shared(caller: &[FrameId], frames: &[FrameId], profile: &Profile) -> usize {
    let mut callers = caller.iter().filter(|frame| is_python(**frame, profile));
    let mut shared = 0;
    for (at, frame) in frames.iter().enumerate() {
        if !is_python(*frame, profile) {
            continue;
        }
        let Some(caller) = callers.next() else { break };
        if caller == frame {
            shared = at + 1;
            continue;
        }
        if is_same_function(*caller, *frame, profile) {
            shared = at + 1;
        }
        break;
    }
    shared
}

fn is_python(frame: FrameId, profile: &Profile) -> bool {
    matches!(profile.frames.get(frame), Frame::Python { .. })
}

fn is_same_function(one: FrameId, other: FrameId, profile: &Profile) -> bool {
    let function = |frame| match profile.frames.get(frame) {
        Frame::Python { function, file, first_line, .. } => Some((function, file, first_line)),
        _ => None,
    };
    function(one) == function(other)
}

impl Stage for Ranges {
    type Scope = Option<ScopeId>;
    type Note = ();

    fn new(config: &Config) -> Self {
        Self {
            sites: Sites::default(),
            symbols: FxHashMap::default(),
            threads: OpenScopes::default(),
            lists: ScopeLists::default(),
            steps: Steps::default(),
            step_places: Places::default(),
            markers: Markers::new(config.step_markers.clone()),
            counts: Counts::default(),
            spans: Spans::default(),
            budget: BudgetFlag(!config.hands_out_steps),
            ended_steps: config.hands_out_steps.then(Vec::new),
        }
    }

    fn claims(&self, site: &SiteInfo) -> bool {
        matches!(site.event, Event::Range(_))
    }

    fn learn(&mut self, sites: Vec<SiteInfo>) {
        let kind = |event| match event {
            RangeEvent::Named => Kind::Named,
            RangeEvent::Begins => Kind::Begins,
            RangeEvent::Ends => Kind::Ends,
            RangeEvent::Pushed => Kind::Pushed,
            RangeEvent::Popped => Kind::Popped,
            RangeEvent::ProfilerStart => Kind::Started,
            RangeEvent::ProfilerStop => Kind::Stopped,
            RangeEvent::TrainingStep => Kind::Step,
        };
        let nameless = |info: &&SiteInfo| {
            matches!(info.event, Event::Range(RangeEvent::Pushed | RangeEvent::TrainingStep))
                && !info.roles.contains(&Role::Name)
        };
        for info in &sites {
            self.symbols.remove(&info.site);
        }
        let symbols = sites.iter().filter(nameless).map(|info| (info.site, info.symbol.clone()));
        self.symbols.extend(symbols);
        self.sites.learn(sites, |info| match info.event {
            Event::Range(event) => Some(kind(event)),
            _ => None,
        });
    }

    fn sites(&mut self) -> Option<&mut dyn SiteTable> {
        Some(&mut self.sites)
    }

    #[inline]
    fn needs_stack(&self, call: &Arguments<'_>) -> bool {
        self.sites.what(&call.call).is_none_or(|kind| kind.has_stack())
    }

    #[inline]
    fn follows_calls(&self) -> bool {
        !self.sites.is_empty()
    }

    #[inline]
    fn scope(&mut self, thread: &StackSample, loss: &LossWindows) -> Option<ScopeId> {
        self.of(thread, loss)
    }

    fn caller<'a>(
        &mut self,
        _call: &Arguments<'_>,
        frames: &'a [FrameId],
        profile: &Profile,
    ) -> &'a [FrameId] {
        caller(frames, profile)
    }

    fn place(
        &mut self,
        scope: Option<ScopeId>,
        _own_call: Option<&Arguments<'_>>,
        placement: &mut Placement<'_>,
        profile: &mut Profile,
    ) {
        if let Some(frames) = self.within(scope, &placement.frames, profile) {
            placement.frames = frames.into();
        }
    }

    fn on_call(
        &mut self,
        call: &CallRecord<'_>,
        stack: Option<&CallStack<()>>,
        context: &mut CallContext<'_>,
    ) {
        match stack {
            Some(stack) => self.named(call, stack.node, context.loss, context.profile),
            None => self.marked(call, context.loss, context.profile),
        }
    }

    fn on_process(&mut self, change: ProcessChange, _profile: &mut Profile) {
        let Self { threads, spans, counts, steps, .. } = self;
        let unfinished =
            threads.of_process(change.pid).map(|thread| thread.forget(SpanEnd::Open, spans) as u64);
        counts.unfinished += unfinished.sum::<u64>();
        threads.forget_process(change.pid);
        steps.all_end(|of| of.pid == change.pid, spans);
    }

    fn finish(&mut self, _now_ns: u64, _profile: &mut Profile) {
        let Self { threads, spans, steps, .. } = self;
        for thread in threads.all() {
            thread.forget(SpanEnd::Open, spans);
        }
        steps.all_end(|_| true, spans);
    }

    fn keep_events(&mut self, _level: TraceLevel) {
        self.spans.want();
    }

    #[inline]
    fn take_events(&mut self, events: &mut Vec<SingleEvent>) {
        events.extend(self.spans.take().map(SingleEvent::Span));
    }

    fn gaps(&self) -> Vec<StageGap> {
        vec![
            StageGap { reason: RANGE_UNCERTAIN, count: self.counts.uncertain },
            StageGap { reason: RANGE_NOT_WATCHED, count: self.counts.not_watched },
            StageGap { reason: RANGE_UNNAMED, count: self.counts.unnamed },
            StageGap { reason: RANGE_NESTED, count: self.counts.nested },
            StageGap { reason: RANGE_UNFINISHED, count: self.counts.unfinished },
            StageGap { reason: RANGE_CALL_LOST, count: self.sites.lost() },
            StageGap { reason: RANGES_FULL, count: self.counts.full },
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_range_outlives_the_list_that_holds_it() {
        let mut ranges = Ranges::new(&Config::default());
        let (who, loss, place) = (StackSample::default(), LossWindows::default(), NodeId::from_number(1));
        let (key, of) = (Key::Profiler, thread_of(&who));
        let thread = ranges.threads.entry(&who);
        thread.on_begin(OpenRange { key, place, thread: place, of, began_ns: 0, within_ns: 0 });
        thread.list(&mut ranges.lists);
        let listed = ranges.of(&who, &loss).unwrap();
        // Other threads have so many lists that none of the first are kept.
        let mut other = 2;
        while ranges.lists.get(listed).is_some() {
            ranges.lists.id(&[NodeId::from_number(other)]);
            other += 1;
        }
        let listed = ranges.of(&who, &loss).unwrap();
        assert_eq!(ranges.lists.get(listed), Some(&[place][..]));
    }

    #[test]
    fn ranges_given_up_for_another_thread_are_counted() {
        let mut ranges = Ranges::new(&Config::default());
        ranges.spans.want();
        let who = |tid| StackSample { tid, ..StackSample::default() };
        let begin = |ranges: &mut Ranges, tid: u32| {
            let (key, of, place) = (Key::Record(9), thread_of(&who(tid)), NodeId::from_number(1));
            let range = OpenRange { key, place, thread: place, of, began_ns: 0, within_ns: 0 };
            ranges.begin(&who(tid), range);
        };
        (0..3).for_each(|tid| begin(&mut ranges, tid));
        let mut tid = 3;
        while !ranges.threads.is_full_for(&who(tid)) {
            ranges.threads.entry(&who(tid));
            tid += 1;
        }
        // A known thread: only its own range with the same record is over.
        begin(&mut ranges, 2);
        assert_eq!((ranges.counts.uncertain, ranges.counts.full), (1, 0));
        begin(&mut ranges, tid);
        assert_eq!((ranges.counts.uncertain, ranges.counts.full), (1, 3));
        assert_eq!(ranges.spans.take().filter(|span| span.end == SpanEnd::Lost).count(), 4);
    }

    #[test]
    fn steps_that_nobody_takes_are_counted_beyond_their_bound() {
        let mut profile = Profile::new(Default::default(), Default::default());
        let mut ranges = Ranges::new(&Config { hands_out_steps: true, ..Config::default() });
        let loss = LossWindows::default();
        for now_ns in 0..ENDED_STEPS_MAX as u64 + 3 {
            ranges.step(NodeId::ROOT, SpanThread::default(), now_ns, &loss, &mut profile);
        }
        assert_eq!((ranges.ended_steps().len(), ranges.counts.full), (ENDED_STEPS_MAX, 2));
    }
}
