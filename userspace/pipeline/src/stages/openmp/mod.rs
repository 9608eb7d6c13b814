//! OpenMP: finds the code for which the threads of parallel regions work.
//!
//! Owns: the last region of each thread, and telling a helper's stack from any other. Because: a helper's stack
//! begins in the runtime and shows what it does, but not the line that started the region, which waits meanwhile.
//! Does not: guess: if several threads of a process start regions, or records are missing, work stays where it runs,
//! and the ledger counts it.
//!
//! ```text
//!  GOMP_parallel on thread 1         main ▸ step ▸ aten::mul ▸ parallel_for
//!  a sample of thread 2              clone3 ▸ start_thread ▸ gomp_thread_start ▸ loop._omp_fn.0
//!  in the tree                       main ▸ step ▸ aten::mul ▸ parallel_for ▸ [omp parallel] ▸ loop._omp_fn.0
//! ```
//! A helper has work only between two calls of the thread that starts its regions, since that thread takes part
//! itself and waits for the others; so the last region that it started is the one the helper runs. Between regions a
//! helper waits within the runtime. Which thread that is follows from the functions that were handed out: see
//! [`helpers`].

mod helpers;

use deepctx_common::reasons;
use deepctx_common::record::{StackSample, word};
use deepctx_events::{Event, Family, OpenMpEvent, Role};
use deepctx_profile::frame::Frame;
use deepctx_profile::intern::{FrameId, StrId};
use deepctx_profile::profile::Profile;
use deepctx_profile::tree::NodeId;
use deepctx_profile::view::snapshot::FrameKind;
use rustc_hash::FxHashMap;

use crate::attribute;
use crate::config::Config;
use crate::decode::Arguments;
use crate::input::SiteInfo;
use crate::loss_windows::LossWindows;
use crate::scopes::{ScopeId, ScopeLists};
use crate::sites::Sites;
use crate::stage::{
    CallContext, CallRecord, CallStack, Placement, PlacementRoot, ProcessChange, SiteTable, Stage, StageGap,
};
use helpers::{Process, PublishedFunction};

reasons! {
    class Gap, page "openmp.md";
    const REGION_UNKNOWN = "team-unknown",
        "work of OpenMP's threads stays where it ran: who handed it out was not seen, or not watched, or several threads do";
    const REGION_CALL_LOST = "team-call-lost",
        "parallel regions were counted by their probe and never recorded";
}

/// The frame above a helper's part.
pub(crate) const MARK: &str = "[omp parallel]";
/// Processes and files that are remembered: more than a big host has of either.
const KNOWN_MAX: usize = 1 << 16;
/// Cached contexts of handed out work, per participating thread.
const PLACES_MAX: usize = 1 << 16;
/// Files in which a thread begins, and in which it waits on behalf of the OpenMP runtime.
const STARTING: [&str; 4] = ["libc.", "libc-", "libpthread", "ld-"];

/// The stage's state.
#[derive(Debug, Default)]
pub(crate) struct OpenMp {
    /// By number of the probe.
    sites: Sites<()>,
    processes: FxHashMap<u32, Process>,
    lists: ScopeLists<Work>,
    /// Contexts of helpers, by the helper's thread and the context that handed out the work.
    places: FxHashMap<(NodeId, NodeId), NodeId>,
    /// Whether a file is the runtime, or a library below it.
    files: FxHashMap<StrId, File>,
    counts: Counts,
}

/// Handed out work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Work {
    asked: NodeId,
    /// Where the function begins.
    function: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum File {
    Starting,
    Runtime,
    Other,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    unknown: u64,
}

/// The role of a stack in a parallel region, besides its context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RegionPart {
    /// Nothing.
    #[default]
    None,
    /// A part in its work.
    Works {
        /// The address in its first function, in the process.
        code: u64,
        /// Whether it is placed below the context that handed it out.
        placed: bool,
    },
    /// A call within such work, which by default finds no helpers.
    Nested,
}

impl OpenMp {
    /// Whether a thread hands out work within work: the runtime is among its callers, root first.
    fn is_nested(&mut self, frames: &[FrameId], profile: &Profile) -> bool {
        frames.iter().any(|frame| self.file(*frame, profile) == File::Runtime)
    }

    /// A thread hands out work in the context of its stack, if there is one.
    fn called(
        &mut self,
        who: &StackSample,
        arguments: &Arguments<'_>,
        stack: Option<&CallStack<RegionPart>>,
    ) {
        self.sites.record(&arguments.call);
        // A region of one thread has no helpers.
        if self.sites.argument(arguments, Role::Count) == Some(1) {
            return;
        }
        let Some(function) = self.sites.argument(arguments, Role::HostFunction) else { return };
        let Self { processes, lists, .. } = self;
        let process = remembered(processes, who.pid);
        process.record(function);
        if stack.is_none_or(|stack| stack.note != RegionPart::Nested) {
            let listed = stack.and_then(|stack| lists.id(&[Work { asked: stack.node, function }]));
            process.hands_out(who.tid, PublishedFunction { listed, function, since_ns: who.header.time_ns });
        }
    }

    /// The work of a helper, if certain.
    #[inline]
    fn of(&mut self, who: &StackSample, loss: &LossWindows) -> Option<ScopeId> {
        if self.sites.is_empty() {
            return None;
        }
        let handed = self.processes.get(&who.pid)?.handed_to(who.tid)?;
        (!loss.any(handed.since_ns, who.header.time_ns)).then_some(handed.listed)?
    }

    /// The placement of a stack in a part of a region: below the region's caller, if that is certain. `scope`: the
    /// thread's work.
    fn place_part(
        &mut self,
        scope: Option<ScopeId>,
        placement: &Placement<'_>,
        profile: &mut Profile,
    ) -> Option<(RegionPart, Option<PlacementRoot>)> {
        let (sample, frames) = (placement.sample, &*placement.frames);
        let from = self.part(frames, profile)?;
        let is_own =
            |frame: &&FrameId| !matches!(profile.frames.get(**frame), Frame::Native { inlined: true, .. });
        let at = frames[..from].iter().filter(is_own).count();
        let code = sample.user.iter().rev().nth(at)? & word::PAYLOAD;
        let function = self.processes.get(&sample.fixed.pid).and_then(|process| process.function_at(code));
        let listed = scope.and_then(|listed| self.lists.get(listed)).and_then(|listed| listed.first());
        let asked = listed.filter(|work| Some(work.function) == function).map(|work| work.asked);
        let part = RegionPart::Works { code, placed: asked.is_some() };
        let root = asked.map(|asked| PlacementRoot {
            node: self.place_below(asked, placement.thread, profile),
            frames: from,
        });
        Some((part, root))
    }

    fn place_below(&mut self, asked: NodeId, thread: NodeId, profile: &mut Profile) -> NodeId {
        if let Some(place) = self.places.get(&(thread, asked)) {
            return *place;
        }
        let mark = profile.text(MARK);
        let mark = profile.frame(Frame::Operator { name: mark });
        let frames = attribute::below_thread(profile, asked);
        let place = profile.tree.path(thread, frames.iter().copied().chain([mark]));
        if self.places.len() >= PLACES_MAX {
            self.places.clear();
        }
        self.places.insert((thread, asked), place);
        place
    }

    /// How many frames, root first, lead to a helper's part of a work; `None` if the thread is in no region, or waits
    /// for work.
    fn part(&mut self, frames: &[FrameId], profile: &Profile) -> Option<usize> {
        let first = frames.iter().position(|frame| self.file(*frame, profile) != File::Starting)?;
        if self.file(frames[first], profile) != File::Runtime {
            return None;
        }
        let work = frames[first..].iter().position(|frame| self.file(*frame, profile) == File::Other)?;
        // In the kernel on behalf of the runtime: it waits, or is about to.
        let at = first + work;
        (profile.frames.get(frames[at]).kind() != FrameKind::Kernel).then_some(at)
    }

    fn file(&mut self, frame: FrameId, profile: &Profile) -> File {
        let (Frame::Native { module, .. } | Frame::NativeUnnamed { module, .. }) = profile.frames.get(frame)
        else {
            return File::Other;
        };
        if self.files.len() >= KNOWN_MAX {
            self.files.clear();
        }
        *self.files.entry(module).or_insert_with(|| {
            let path = profile.strings.get(module);
            let name = path.rsplit('/').next().unwrap_or(path);
            let mut runtime = Family::ALL.into_iter().filter(|family| family.is_openmp());
            if runtime.any(|family| family.is_named(name.as_bytes())) {
                File::Runtime
            } else if STARTING.iter().any(|starting| name.starts_with(starting)) {
                File::Starting
            } else {
                File::Other
            }
        })
    }
}

/// A process, which is remembered from now on. A full table is cleared for a new one.
fn remembered(processes: &mut FxHashMap<u32, Process>, pid: u32) -> &mut Process {
    if processes.len() >= KNOWN_MAX && !processes.contains_key(&pid) {
        processes.clear();
    }
    processes.entry(pid).or_default()
}

impl Stage for OpenMp {
    type Scope = Option<ScopeId>;
    type Note = RegionPart;

    fn new(_config: &Config) -> Self {
        Self::default()
    }

    fn claims(&self, site: &SiteInfo) -> bool {
        matches!(site.event, Event::OpenMp(_))
    }

    fn learn(&mut self, sites: Vec<SiteInfo>) {
        self.sites
            .learn(sites, |info| (info.event == Event::OpenMp(OpenMpEvent::ParallelBegins)).then_some(()));
    }

    fn sites(&mut self) -> Option<&mut dyn SiteTable> {
        Some(&mut self.sites)
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
        attribute::without_probed(profile, frames, true)
    }

    fn place(
        &mut self,
        scope: Option<ScopeId>,
        own_call: Option<&Arguments<'_>>,
        placement: &mut Placement<'_>,
        profile: &mut Profile,
    ) -> RegionPart {
        if self.sites.is_empty() {
            return RegionPart::None;
        }
        if own_call.is_some() && self.is_nested(&placement.frames, profile) {
            return RegionPart::Nested;
        }
        let Some((part, root)) = self.place_part(scope, placement, profile) else { return RegionPart::None };
        // The backward pass goes below its operator first.
        placement.root = placement.root.or(root);
        part
    }

    #[inline]
    fn on_stack(&mut self, thread: &StackSample, note: RegionPart) {
        let RegionPart::Works { code, placed } = note else { return };
        self.counts.unknown += u64::from(!placed);
        if let Some(process) = self.processes.get_mut(&thread.pid) {
            process.works(thread.tid, code, thread.header.time_ns);
        }
    }

    fn on_call(
        &mut self,
        call: &CallRecord<'_>,
        stack: Option<&CallStack<RegionPart>>,
        _context: &mut CallContext<'_>,
    ) {
        self.called(call.sample, call.arguments, stack.filter(|stack| stack.has_frames));
    }

    fn on_process(&mut self, change: ProcessChange, _profile: &mut Profile) {
        self.processes.remove(&change.pid);
    }

    fn on_duty_edge(&mut self, _time_ns: u64, _profile: &mut Profile) {
        self.processes.values_mut().for_each(Process::forget);
    }

    fn gaps(&self) -> Vec<StageGap> {
        vec![
            StageGap { reason: REGION_UNKNOWN, count: self.counts.unknown },
            StageGap { reason: REGION_CALL_LOST, count: self.sites.lost() },
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_process_finds_its_functions_in_a_full_table() {
        let mut processes = FxHashMap::default();
        (0..KNOWN_MAX as u32).for_each(|pid| remembered(&mut processes, pid).record(u64::from(pid)));
        assert_eq!(remembered(&mut processes, 7).function_at(7), Some(7));
        assert_eq!(remembered(&mut processes, KNOWN_MAX as u32).function_at(7), None);
        assert_eq!(processes.len(), 1);
    }
}
