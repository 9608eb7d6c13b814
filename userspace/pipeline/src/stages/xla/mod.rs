//! Thunks: finds the thunk, and the module of XLA, that a stack is in.
//!
//! Owns: the thunks that each thread began; which of them a stack is in; the frames for it. Because: XLA's calls into
//! libraries (`DotThunk`, `SortThunk`) are half of its CPU time, and its stacks name only the kind of thunk. Does
//! not: guess: a stack whose thunk is not certain keeps the kind, and the ledger counts it; or know files: what a
//! thunk was compiled from is requested.
//!
//! ```text
//!  DotThunk::Execute(this)     begins: module, number and operator, read behind `this`; where the stack is, and whose callers are where
//!  a sample of that thread     … ▸ ThunkExecutor::Execute ▸ xla::cpu::DotThunk ▸ MatMul
//!  in the tree                 … ▸ ThunkExecutor::Execute ▸ [xla jit_step] ▸ net.py:loss:13 ▸ jit(step)/dot_general ▸ dot.3 ▸ xla::cpu::DotThunk ▸ MatMul
//! ```
//! Work that a thunk hands to other threads has no thunk on its stacks, and stays where it runs.

mod open;

use deepctx_common::call::call_flag;
use deepctx_common::end::WalkEnd;
use deepctx_common::reasons;
use deepctx_common::record::StackSample;
use deepctx_events::xla::{UNIT_NAME_BYTES, class_of};
use deepctx_events::{Event, Role, XlaEvent};
use deepctx_profile::frame::Frame;
use deepctx_profile::intern::{FrameId, StrId};
use deepctx_profile::profile::Profile;
use rustc_hash::FxHashMap;

use crate::by_process::ByProcess;
use crate::config::Config;
use crate::decode::Arguments;
use crate::input::SiteInfo;
use crate::loss_windows::LossWindows;
use crate::name_frames::compiled_frame;
use crate::scopes::{OpenScopes, ScopeId, ScopeLists};
use crate::sites::Sites;
use crate::stage::{
    CallContext, CallRecord, CallStack, Placement, ProcessChange, SiteTable, Stage, StageGap,
};
use crate::symbols::{CompiledThunk, Name};
use open::{Class, Thread, Thunk, ThunkId};

reasons! {
    class Gap, page "compiled.md";
    const THUNK_UNKNOWN = "thunk-unknown",
        "stacks in thunks of XLA have the thunk's kind and not its name: its beginning was not seen, or which it is is not certain";
    const THUNK_UNNAMED = "thunk-unnamed", "names of thunks could not be read";
    const THUNK_UNCERTAIN = "thunk-uncertain",
        "threads' thunks were given up: records are missing in which others may have begun";
    const THUNK_CALL_LOST = "thunk-call-lost",
        "beginnings of thunks were counted by their probe and never came";
}

/// Thunks whose names are remembered: more than programs have.
const STEPS_MAX: usize = 1 << 17;
/// Longest plausible name of an operator.
const NAME_BYTES_MAX: usize = 512;
/// Prefix of the frames of a thunk's kind and of a module.
const KIND: &str = "xla::cpu::";
const UNIT: &str = "[xla ";
/// Where a thread that waits for its own work helps with that of others.
const HELPING: &str = "::SlinkyThreadPool::Impl::WorkOnTasks(";
/// Classes whose thunks run no other thunk on their thread. The others are control flow, calls of a program's own
/// functions, and waits for other processes. A class that is seen to do so nevertheless is no longer treated as a leaf.
const LEAVES: [&str; 15] = [
    "ConvolutionThunk",
    "CopyThunk",
    "DotThunk",
    "FftThunk",
    "KernelThunk",
    "LogicalIdThunk",
    "OneDnnFusionThunk",
    "OneDnnOpThunk",
    "RngGetAndUpdateStateThunk",
    "RngSeedThunk",
    "SmallKernelThunk",
    "SortThunk",
    "TopKThunk",
    "XnnFusionThunk",
    "YnnFusionThunk",
];

/// Looks up the origin of a thunk.
type OriginQuery<'a> = dyn FnMut(&CompiledThunk<'_>, &mut dyn FnMut(&[Name<'_>])) + 'a;

/// The role of a stack for thunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ThunkPart {
    /// Unknown.
    #[default]
    Unreported,
    /// The stack is complete, and in no thunk.
    Outside,
    /// The innermost thunk that it is in is named.
    Named,
    /// The innermost thunk is shown by its kind.
    Unknown,
}

/// The stage's state.
#[derive(Debug, Default)]
pub(crate) struct XlaThunks {
    /// By number of the probe.
    sites: Sites<Class>,
    classes: Vec<Kind>,
    threads: OpenScopes<Thread>,
    lists: ScopeLists<Thunk>,
    numbers: ByProcess<Key, ThunkId, STEPS_MAX>,
    frames: FxHashMap<ThunkId, Box<[FrameId]>>,
    given: u32,
    counts: Counts,
}

/// A class of thunks.
#[derive(Debug)]
struct Kind {
    name: String,
    /// Its thunks may run others on their thread.
    nests: bool,
}

/// Identifies a thunk of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    class: Class,
    unit_number: u64,
    unit: StrId,
    name: StrId,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    unknown: u64,
    unnamed: u64,
    uncertain: u64,
}

impl XlaThunks {
    /// A thunk begins on a thread. Its origin is looked up when it begins for the first time.
    fn on_begin(
        &mut self,
        who: &StackSample,
        arguments: &Arguments<'_>,
        profile: &mut Profile,
        ask: &mut OriginQuery<'_>,
    ) {
        let Some(class) = self.sites.record(&arguments.call).copied() else { return };
        let id = self.id(who, class, arguments, profile, ask);
        self.counts.unnamed += u64::from(id.is_none());
        let stack_pointer = self.sites.argument(arguments, Role::StackPointer);
        let callers = self.sites.arguments(arguments).filter(|(role, _)| *role == Role::FramePointer);
        let callers: Vec<u64> = callers.filter_map(|(_, frame)| frame).collect();
        let Self { threads, lists, classes, .. } = self;
        let nests = classes.get(usize::from(class.0)).is_none_or(|class| class.nests);
        let thread = threads.entry(who);
        thread.on_begin(
            Thunk { class, id },
            who.header.time_ns,
            stack_pointer.filter(|_| nests),
            &callers,
            stack_pointer,
        );
        thread.list(lists);
    }

    /// The number of the thunk that a call begins; `None` if its names are invalid.
    fn id(
        &mut self,
        who: &StackSample,
        class: Class,
        arguments: &Arguments<'_>,
        profile: &mut Profile,
        ask: &mut OriginQuery<'_>,
    ) -> Option<ThunkId> {
        let argument = |role| self.sites.argument(arguments, role);
        let is_whole = arguments.call.flags & (call_flag::TEXT_CUT | call_flag::TEXT_UNREAD) == 0;
        let name = text(arguments.text).filter(|name| name.len() <= NAME_BYTES_MAX && is_whole)?;
        (argument(Role::NameBytes) == Some(name.len() as u64)).then_some(())?;
        let unit_bytes = usize::try_from(argument(Role::UnitNameBytes)?).ok().filter(|bytes| *bytes > 0)?;
        let (read, cut) = (unit_bytes.min(UNIT_NAME_BYTES), unit_bytes > UNIT_NAME_BYTES);
        let words = self.sites.arguments(arguments).filter(|(role, _)| *role == Role::UnitName);
        let words: Option<Vec<u64>> = words.take(read.div_ceil(8)).map(|(_, word)| word).collect();
        let bytes: Vec<u8> = words?.iter().flat_map(|word| word.to_le_bytes()).collect();
        let unit = text(bytes.get(..read)?)?;
        let unit_number = argument(Role::UnitNumber)?;
        let shown = if cut { format!("{unit}…") } else { unit.to_owned() };
        let key = Key { class, unit_number, unit: profile.text(&shown), name: profile.text(name) };
        if let Some(id) = self.numbers.get(who.pid, &key) {
            return Some(*id);
        }
        if self.numbers.is_full() {
            self.numbers.clear();
            self.frames.clear();
        }
        let id = ThunkId(self.given);
        self.given = self.given.checked_add(1)?;
        let of_class = self.classes.get(usize::from(class.0)).map_or("", |class| &class.name);
        let fused = ["Kernel", "Fusion"].iter().any(|part| of_class.contains(part));
        let time_ns = who.header.time_ns;
        let thunk = CompiledThunk { pid: who.pid, time_ns, unit_number, unit, cut, name, fused };
        let mut frames: Vec<FrameId> = Vec::new();
        ask(&thunk, &mut |names| frames = names.iter().map(|name| compiled_frame(name, profile)).collect());
        if frames.is_empty() {
            let unit = format!("{UNIT}{shown}]");
            frames.push(compiled_frame(&Name::Compiled { name: &unit }, profile));
        }
        frames.push(compiled_frame(&Name::Compiled { name }, profile));
        self.numbers.get_or_insert_with(who.pid, key, || id);
        self.frames.insert(id, frames.into());
        Some(id)
    }

    /// The thunks that a thread began last, if none of their successors can have been missed.
    #[inline]
    fn of(&mut self, who: &StackSample, loss: &LossWindows) -> Option<ScopeId> {
        if self.sites.is_empty() {
            return None;
        }
        let now_ns = who.header.time_ns;
        let thread = self.threads.get_mut(who)?;
        if loss.any(thread.since_ns()?, now_ns) {
            self.counts.uncertain += 1;
            thread.forget();
        } else if thread.outer_since_ns().is_some_and(|since_ns| loss.any(since_ns, now_ns)) {
            thread.forget_outer();
            thread.list(&mut self.lists);
        }
        thread.listed()
    }

    /// Adds the frames of the thunks that a stack is in.
    fn within(
        &mut self,
        listed: Option<ScopeId>,
        placement: &mut Placement<'_>,
        profile: &Profile,
    ) -> ThunkPart {
        let frames = &*placement.frames;
        let shown: Vec<(usize, Class)> =
            (0..frames.len()).filter_map(|at| Some((at, self.class(frames[at], profile)?))).collect();
        let Some(((_, innermost), outer)) = shown.split_last() else {
            let whole = placement.sample.native_end() == Some(WalkEnd::Complete);
            return if whole { ThunkPart::Outside } else { ThunkPart::Unreported };
        };
        for (_, class) in outer {
            self.classes[usize::from(class.0)].nests = true;
        }
        let thunks = listed.and_then(|listed| self.lists.get(listed)).unwrap_or_default();
        let classes: Vec<Class> = shown.iter().map(|(_, class)| *class).collect();
        let nests = self.classes[usize::from(innermost.0)].nests;
        let ids = open::shown(thunks, &classes, nests);
        let mut part = ThunkPart::Unknown;
        let mut out: Vec<FrameId> = Vec::with_capacity(frames.len() + 8);
        out.extend_from_slice(&frames[..shown[0].0]);
        for (n, ((at, _), id)) in shown.iter().zip(ids).enumerate() {
            let end = shown.get(n + 1).map_or(frames.len(), |(next, _)| *next);
            let own = &frames[*at..end];
            let named = id.and_then(|id| self.frames.get(&id)).filter(|_| !helps(own, profile));
            match named {
                Some(names) => {
                    out.extend_from_slice(names);
                    extend_without_origins(&mut out, own, profile);
                    part = ThunkPart::Named;
                }
                None => {
                    out.extend_from_slice(own);
                    part = ThunkPart::Unknown;
                }
            }
        }
        placement.frames = out.into();
        part
    }

    /// The class of the thunk kind that a frame shows.
    fn class(&self, frame: FrameId, profile: &Profile) -> Option<Class> {
        let Frame::Operator { name } = profile.frames.get(frame) else { return None };
        let name = profile.strings.get(name).strip_prefix(KIND)?;
        let number = self.classes.iter().position(|class| class.name == name)?;
        Some(Class(number as u16))
    }
}

/// A name in bytes, if valid: names of XLA are printable and have no blanks.
fn text(bytes: &[u8]) -> Option<&str> {
    let is_name = !bytes.is_empty() && bytes.iter().all(u8::is_ascii_graphic);
    std::str::from_utf8(bytes).ok().filter(|_| is_name)
}

/// Whether the thread helps with the work of others within these frames.
fn helps(frames: &[FrameId], profile: &Profile) -> bool {
    frames.iter().any(|frame| match profile.frames.get(*frame) {
        Frame::Native { symbol, .. } => profile.strings.get(symbol).contains(HELPING),
        _ => false,
    })
}

/// Adds the frames of a thunk without the origin of its code: the thunk shows it already.
fn extend_without_origins(out: &mut Vec<FrameId>, frames: &[FrameId], profile: &Profile) {
    let mut in_origin = false;
    for frame in frames {
        in_origin = match profile.frames.get(*frame) {
            Frame::Operator { name } if profile.strings.get(name).starts_with(UNIT) => true,
            Frame::Operator { .. } | Frame::Python { .. } => in_origin,
            _ => false,
        };
        if !in_origin {
            out.push(*frame);
        }
    }
}

impl Stage for XlaThunks {
    type Scope = Option<ScopeId>;
    type Note = ThunkPart;

    const STACKLESS_CALLS_NEED_THREAD: bool = false;

    fn new(_config: &Config) -> Self {
        Self::default()
    }

    fn claims(&self, site: &SiteInfo) -> bool {
        matches!(site.event, Event::Xla(_))
    }

    fn learn(&mut self, sites: Vec<SiteInfo>) {
        let Self { sites: own, classes, .. } = self;
        own.learn(sites, |info| {
            let name = class_of(&info.symbol).filter(|_| info.event == Event::Xla(XlaEvent::ThunkBegins))?;
            let known = classes.iter().position(|class| class.name == name);
            let number = known.unwrap_or_else(|| {
                classes.push(Kind { name: name.to_owned(), nests: !LEAVES.contains(&name) });
                classes.len() - 1
            });
            Some(Class(number as u16))
        });
    }

    fn sites(&mut self) -> Option<&mut dyn SiteTable> {
        Some(&mut self.sites)
    }

    #[inline]
    fn needs_stack(&self, _call: &Arguments<'_>) -> bool {
        false
    }

    #[inline]
    fn follows_calls(&self) -> bool {
        !self.sites.is_empty()
    }

    #[inline]
    fn scope(&mut self, thread: &StackSample, loss: &LossWindows) -> Option<ScopeId> {
        self.of(thread, loss)
    }

    fn place(
        &mut self,
        scope: Option<ScopeId>,
        _own_call: Option<&Arguments<'_>>,
        placement: &mut Placement<'_>,
        profile: &mut Profile,
    ) -> ThunkPart {
        if self.sites.is_empty() {
            return ThunkPart::Unreported;
        }
        self.within(scope, placement, profile)
    }

    #[inline]
    fn on_stack(&mut self, thread: &StackSample, note: ThunkPart) {
        match note {
            ThunkPart::Unknown => self.counts.unknown += 1,
            // All earlier thunks are over. The stack may have waited for its names meanwhile.
            ThunkPart::Outside => {
                let Self { threads, lists, .. } = self;
                if let Some(of) = threads.get_mut(thread) {
                    of.over_by(thread.header.time_ns);
                    of.list(lists);
                }
            }
            ThunkPart::Unreported | ThunkPart::Named => {}
        }
    }

    fn on_call(
        &mut self,
        call: &CallRecord<'_>,
        _stack: Option<&CallStack<ThunkPart>>,
        context: &mut CallContext<'_>,
    ) {
        let CallContext { profile, facts, .. } = context;
        self.on_begin(call.sample, call.arguments, profile, &mut |thunk, answer| {
            facts.compiled_thunk(thunk, answer);
        });
    }

    fn on_process(&mut self, change: ProcessChange, _profile: &mut Profile) {
        let Self { threads, numbers, frames, .. } = self;
        threads.forget_process(change.pid);
        // In another program the same names may mean something else.
        for id in numbers.remove(change.pid).into_values() {
            frames.remove(&id);
        }
    }

    fn gaps(&self) -> Vec<StageGap> {
        vec![
            StageGap { reason: THUNK_UNKNOWN, count: self.counts.unknown },
            StageGap { reason: THUNK_UNNAMED, count: self.counts.unnamed },
            StageGap { reason: THUNK_UNCERTAIN, count: self.counts.uncertain },
            StageGap { reason: THUNK_CALL_LOST, count: self.sites.lost() },
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::ProcessChangeKind;

    #[test]
    fn frames_of_thunks_are_dropped_with_their_process() {
        let mut profile = Profile::new(Default::default(), Default::default());
        let mut thunks = XlaThunks::default();
        for pid in [7, 8] {
            let (unit, name) = (StrId::EMPTY, StrId::EMPTY);
            let key = Key { class: Class(0), unit_number: 1, unit, name };
            thunks.numbers.get_or_insert_with(pid, key, || ThunkId(pid));
            thunks.frames.insert(ThunkId(pid), Box::default());
        }
        let change = ProcessChange { pid: 7, time_ns: 1, kind: ProcessChangeKind::Ends };
        thunks.on_process(change, &mut profile);
        assert_eq!((thunks.numbers.values_mut().count(), thunks.frames.len()), (1, 1));
        assert!(thunks.frames.contains_key(&ThunkId(8)));
    }
}
