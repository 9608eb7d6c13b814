//! Facts: properties of every context that several rules need, computed once.
//!
//! Owns: [`Facts`]: classes, phases, and for each context its line, its operator and its thread; sums by class and
//! phase. Because: a million contexts must be walked a few times, not once per rule. Does not: draw conclusions.
//!
//! This takes about 30 bytes per context.

mod class;
mod devices;
mod loading;
mod places;

use std::array;
use std::cell::OnceCell;

use deepctx_profile::context::phase::{Phase, phases};
use deepctx_profile::frame::{Frame, FrameKind, SpinPart, SpinState};
use deepctx_profile::intern::FrameId;
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Profile;
use deepctx_profile::trace::Job;
use deepctx_profile::tree::NodeId;
use deepctx_profile::units::Nanos;
use rustc_hash::FxHashMap;

pub(crate) use class::{Class, Classes};
pub(crate) use devices::{KERNELS_AND_COPIES, WARP_SAMPLES};
pub(crate) use loading::{LoadingTime, is_by_itself};
pub(crate) use places::{PlaceKey, PlacePart};

use super::share::{Share, Sum};
use crate::over_time::RankTables;
use crate::own_code::is_of_library;

/// Minimum number of samples for a conclusion: a share of 10 % of a hundred samples has an error of 6 points.
pub(crate) const SAMPLES_MIN: u64 = 100;

/// Properties of a frame alone.
#[derive(Clone, Copy, Debug)]
struct FrameFacts {
    classes: Classes,
    kind: FrameKind,
    /// A Python function of the program, not of a library.
    own: bool,
    /// What it says about threads that wait for others.
    spin: SpinPart,
}

/// Properties of a context that follow from its path. Contexts are node numbers; 0 is none.
#[derive(Clone, Copy, Debug, Default)]
struct PathContext {
    classes: Classes,
    spin: SpinState,
    /// The nearest Python function of the program.
    own_line: u32,
    /// The nearest Python function.
    line: u32,
    /// The nearest operator.
    operator: u32,
    /// The nearest layer of a model.
    layer: u32,
    /// The nearest thread; else the process.
    thread: u32,
}

/// Sums of a metric over contexts of the same classes and phase: few, however many contexts there are.
type KindSums = FxHashMap<(Classes, Phase), Sum>;

/// Input of several rules.
#[derive(Debug)]
pub(crate) struct Facts<'p> {
    profile: &'p Profile,
    whole: &'p Profile,
    events: Option<&'p Job>,
    ranks: Option<RankTables>,
    elapsed: Nanos,
    host: Option<Metric>,
    frames: Vec<FrameFacts>,
    within: Vec<PathContext>,
    phases: Vec<Phase>,
    /// By metric, once they are asked for.
    sums: [OnceCell<KindSums>; Metric::COUNT],
    /// Once it is asked for.
    loading: OnceCell<Option<LoadingTime>>,
    /// Counted once it is asked for: a capture keeps many activities.
    devices: OnceCell<u64>,
}

impl<'p> Facts<'p> {
    /// Walks a profile, which is all or part of another one. `elapsed` is the length of the capture, zero when unknown.
    pub(crate) fn of(profile: &'p Profile, whole: &'p Profile, elapsed: Nanos) -> Self {
        // Metrics of the program's own time, best first; a profile of another tool may have only samples.
        let host = [Metric::CpuTime, Metric::WallTime, Metric::Samples, Metric::Cycles];
        let host = host.into_iter().find(|metric| profile.tree.has(*metric));
        let frames = profile.frames.iter().map(|(_, frame)| frame_facts(profile, &frame)).collect();
        let mut facts = Facts {
            profile,
            whole,
            events: None,
            ranks: None,
            elapsed,
            host,
            frames,
            within: Vec::new(),
            phases: phases(profile),
            sums: array::from_fn(|_| OnceCell::new()),
            loading: OnceCell::new(),
            devices: OnceCell::new(),
        };
        facts.within = facts.walk();
        facts
    }

    /// The same with single events.
    pub(crate) fn with_events(self, job: Option<&'p Job>) -> Self {
        Facts { events: job, ranks: job.and_then(RankTables::of), ..self }
    }

    fn walk(&self) -> Vec<PathContext> {
        let mut within: Vec<PathContext> = Vec::with_capacity(self.profile.tree.len());
        within.push(PathContext::default());
        // Callers come before what they call.
        for (number, node) in (1u32..).zip(self.profile.tree.nodes().skip(1)) {
            let mut at = within.get(node.parent.index()).copied().unwrap_or_default();
            if let Some(frame) = self.frames.get(node.frame.index()) {
                // A product that adds copies what it adds: that is a part of it.
                let is_part = frame.classes.has(Class::Conversion)
                    && self.frame_classes_of(NodeId::from_number(at.operator)).has(Class::AddingProduct);
                let own = if is_part { frame.classes.without(Class::Conversion) } else { frame.classes };
                at.classes = at.classes.with(own);
                let was_idle = at.spin == SpinState::Idle;
                at.spin = at.spin.then(frame.spin);
                if at.spin == SpinState::Idle {
                    at.classes = at.classes.with(Class::Spin.into());
                } else if was_idle {
                    at.classes = at.classes.without(Class::Spin).with(own);
                }
                if own.has(Class::TimedWait)
                    && self.frame_classes_of(node.parent).has(Class::UnnamedInterpreter)
                {
                    at.classes = at.classes.with(Class::PossibleGilWait.into());
                }
                match frame.kind {
                    FrameKind::Process | FrameKind::Thread => at.thread = number,
                    FrameKind::Operator => at.operator = number,
                    FrameKind::Layer => at.layer = number,
                    FrameKind::Python => {
                        at.line = number;
                        at.own_line = if frame.own { number } else { at.own_line };
                    }
                    _ => {}
                }
            }
            within.push(at);
        }
        within
    }

    fn kind_sums(&self, metric: Metric) -> &KindSums {
        self.sums[metric.index()].get_or_init(|| {
            let mut sums = KindSums::default();
            for (node, sum) in self.values(metric) {
                *sums.entry((self.classes(node), self.phase(node))).or_default() += sum;
            }
            sums
        })
    }

    /// The profile.
    pub(crate) fn profile(&self) -> &'p Profile {
        self.profile
    }

    /// The profile that this is a part of. Machine metrics have no stack, so a part has none; and a device is idle only
    /// if nothing of the whole runs on it.
    pub(crate) fn whole(&self) -> &'p Profile {
        self.whole
    }

    /// Single events of the capture; `None` when there are none.
    pub(crate) fn events(&self) -> Option<&'p Job> {
        self.events
    }

    /// Ranks beside each other; `None` without events of several.
    pub(crate) fn ranks(&self) -> Option<&RankTables> {
        self.ranks.as_ref()
    }

    /// Length of the capture; zero when unknown.
    pub(crate) fn elapsed(&self) -> Nanos {
        self.elapsed
    }

    /// The metric of the program's own time; `None` if there is none.
    pub(crate) fn host(&self) -> Option<Metric> {
        self.host
    }

    /// Whether the values of a metric are sampled, and so have an error.
    pub(crate) fn is_sampled(metric: Metric) -> bool {
        matches!(metric, Metric::CpuTime | Metric::Samples | Metric::Cycles)
    }

    /// Whether the profile has values of a metric.
    pub(crate) fn has(&self, metric: Metric) -> bool {
        self.profile.tree.has(metric)
    }

    /// Whether the whole has values of a metric; see [`Facts::whole`].
    pub(crate) fn whole_has(&self, metric: Metric) -> bool {
        self.whole.tree.has(metric)
    }

    /// Whether a frame is of a class by itself.
    pub(crate) fn has_class(&self, class: Class) -> bool {
        self.frames.iter().any(|frame| frame.classes.has(class))
    }

    /// Whether a context is in a phase.
    pub(crate) fn has_phase(&self, phase: Phase) -> bool {
        self.phases.contains(&phase)
    }

    /// Whether there are layers of a model.
    fn has_layers(&self) -> bool {
        self.frames.iter().any(|frame| frame.kind == FrameKind::Layer)
    }

    /// The phase of every context, by its number.
    pub(crate) fn into_phases(self) -> Vec<Phase> {
        self.phases
    }

    /// The time of the threads that load data; `None` when none does.
    pub(crate) fn loading(&self) -> Option<&LoadingTime> {
        self.loading.get_or_init(|| LoadingTime::of(self, self.host?)).as_ref()
    }

    /// The values of a metric by context.
    pub(crate) fn values(&self, metric: Metric) -> impl Iterator<Item = (NodeId, Sum)> + '_ {
        let by_value = metric == Metric::Samples;
        // A sum of another tool is one value of many samples; their number is stored beside it.
        let samples = Self::is_sampled(metric) && !by_value && self.has(Metric::Samples);
        self.profile.tree.cells(metric).map(move |(node, cell)| {
            let count = match (by_value, samples) {
                (true, _) => cell.sum,
                (_, true) => self.profile.tree.exclusive(node, Metric::Samples).sum,
                _ => cell.count,
            };
            (node, Sum { value: cell.sum, count })
        })
    }

    /// The classes of a context.
    pub(crate) fn classes(&self, node: NodeId) -> Classes {
        self.at(node).classes
    }

    /// The classes of a frame by itself.
    pub(crate) fn frame_classes(&self, frame: FrameId) -> Classes {
        self.frames.get(frame.index()).map_or_else(Classes::default, |frame| frame.classes)
    }

    /// The classes of a context's own frame alone.
    fn frame_classes_of(&self, node: NodeId) -> Classes {
        self.frame_classes(self.profile.tree.node(node).frame)
    }

    /// The phase of a context.
    pub(crate) fn phase(&self, node: NodeId) -> Phase {
        self.phases.get(node.index()).copied().unwrap_or_default()
    }

    /// The thread of a context, or its process.
    pub(crate) fn thread(&self, node: NodeId) -> NodeId {
        NodeId::from_number(self.at(node).thread)
    }

    /// The innermost operator of a context; the root if there is none.
    pub(crate) fn operator(&self, node: NodeId) -> NodeId {
        NodeId::from_number(self.at(node).operator)
    }

    /// The innermost layer of a context; the root if there is none.
    pub(crate) fn layer(&self, node: NodeId) -> NodeId {
        NodeId::from_number(self.at(node).layer)
    }

    /// The innermost Python function of the program, else of a library; the root if there is none.
    pub(crate) fn line(&self, node: NodeId) -> NodeId {
        let at = self.at(node);
        NodeId::from_number(if at.own_line > 0 { at.own_line } else { at.line })
    }

    /// The frame of a context.
    pub(crate) fn frame(&self, node: NodeId) -> Frame {
        self.profile.frames.get(self.profile.tree.node(node).frame)
    }

    /// The text of a frame, with its line.
    pub(crate) fn label(&self, frame: FrameId) -> String {
        let frame = self.profile.frames.get(frame);
        deepctx_profile::frame::clean(&frame.label(&self.profile.strings, true))
    }

    /// The part of a metric in contexts of a class.
    pub(crate) fn share(&self, metric: Metric, class: Class) -> Share {
        self.share_of(metric, |classes, _| classes.has(class))
    }

    /// The part of a metric in contexts of selected classes and phases. All such shares of a metric take one walk.
    pub(crate) fn share_of(&self, metric: Metric, is_in: impl Fn(Classes, Phase) -> bool) -> Share {
        let mut share = Share { sampled: Self::is_sampled(metric), ..Share::default() };
        for ((classes, phase), sum) in self.kind_sums(metric) {
            share.whole += *sum;
            if is_in(*classes, *phase) {
                share.part += *sum;
            }
        }
        share
    }

    /// The part of a metric in selected contexts, which takes a walk.
    pub(crate) fn share_where(&self, metric: Metric, mut is_in: impl FnMut(NodeId) -> bool) -> Share {
        let mut share = Share { sampled: Self::is_sampled(metric), ..Share::default() };
        for (node, sum) in self.values(metric) {
            share.whole += sum;
            if is_in(node) {
                share.part += sum;
            }
        }
        share
    }

    fn at(&self, node: NodeId) -> PathContext {
        self.within.get(node.index()).copied().unwrap_or_default()
    }
}

fn frame_facts(profile: &Profile, frame: &Frame) -> FrameFacts {
    let own = match frame {
        Frame::Python { file, .. } => !is_of_library(profile.strings.get(*file)),
        _ => false,
    };
    FrameFacts {
        classes: class::of(frame, &profile.strings),
        kind: frame.kind(),
        own,
        spin: SpinPart::of(frame, &profile.strings),
    }
}

#[cfg(test)]
mod tests {
    use deepctx_profile::text;

    use super::*;

    #[test]
    fn a_folder_named_torch_may_be_the_programs_own() {
        let profile = text::parse(
            "P a-1 / y /srv/torch/train.py:main:9 / y /v/torch/nn/modules/module.py:Module._call_impl / n f 1",
        )
        .unwrap();
        let facts = Facts::of(&profile, &profile, Nanos(0));
        let (leaf, _) = profile.tree.cells(Metric::CpuTime).next().unwrap();
        assert_eq!(facts.label(profile.tree.node(facts.line(leaf)).frame), "train.py:main:9");
    }

    #[test]
    fn sums_by_class_and_phase_are_those_of_a_walk() {
        let profile = text::parse(
            "P a-1 / n gomp_barrier_wait 3
             P a-1 / y /v/torch/optim/adam.py:Adam.step / o aten::copy_ 5
             P a-1 / y /a/t.py:f / o aten::contiguous / o aten::copy_ 7
             P a-1 / o aten::addmm / o aten::copy_ 11
             P a-1 / y /v/torch/serialization.py:save / n write 13
             P a-1 / n f 17",
        )
        .unwrap();
        let facts = Facts::of(&profile, &profile, Nanos(0));
        for class in Class::ALL {
            let walked = facts.share_where(Metric::CpuTime, |node| facts.classes(node).has(*class));
            assert_eq!(facts.share(Metric::CpuTime, *class), walked, "{class:?}");
        }
        for phase in Phase::ALL {
            let walked = facts.share_where(Metric::CpuTime, |node| facts.phase(node) == phase);
            assert_eq!(facts.share_of(Metric::CpuTime, |_, of| of == phase), walked, "{}", phase.name());
        }
        let converts = facts.share(Metric::CpuTime, Class::Conversion);
        assert_eq!((converts.part.value, converts.whole.value), (12, 56));
        assert_eq!(facts.share(Metric::GpuTime, Class::Conversion).whole, Sum::default());
    }

    #[test]
    fn a_worker_of_a_stripped_runtime_spins_without_work() {
        const WORKER: &str = "P a-1 / n clone3 / u libgomp.so.1+0x10";
        let lines = format!(
            "{WORKER} / u libgomp.so.1+0x20 30\n{WORKER} / n work 5\n{WORKER} / u libgomp.so.1+0x20 / n task 7"
        );
        let profile = text::parse(&lines).unwrap();
        let share = Facts::of(&profile, &profile, Nanos(0)).share(Metric::CpuTime, Class::Spin);
        assert_eq!((share.part.value, share.whole.value), (30, 42));
    }
}
