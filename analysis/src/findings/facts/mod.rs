//! Facts: properties of every context that several rules need, computed once.
//!
//! Owns: [`Facts`]: classes, phases, and for each context its line, its operator and its thread; sums by class.
//! Because: a million contexts must be walked a few times, not once per rule. Does not: draw conclusions.
//!
//! This takes about 30 bytes per context.

mod class;
mod devices;
mod places;

use std::cell::OnceCell;

use deepctx_profile::context::phase::{Phase, phases};
use deepctx_profile::frame::{Frame, FrameKind};
use deepctx_profile::intern::FrameId;
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Profile;
use deepctx_profile::trace::Job;
use deepctx_profile::tree::NodeId;
use deepctx_profile::units::Nanos;

pub(crate) use class::{Class, Classes};
pub(crate) use devices::{KERNELS_AND_COPIES, WARP_SAMPLES};
pub(crate) use places::{PlaceKey, PlacePart};

use super::share::{Share, Sum};
use crate::over_time::RankTables;

/// Minimum number of samples for a conclusion: a share of 10 % of a hundred samples has an error of 6 points.
pub(crate) const SAMPLES_MIN: u64 = 100;

/// Properties of a frame alone.
#[derive(Clone, Copy, Debug)]
struct FrameFacts {
    classes: Classes,
    kind: FrameKind,
    /// A Python function of the program, not of a library.
    own: bool,
}

/// Properties of a context that follow from its path. Contexts are node numbers; 0 is none.
#[derive(Clone, Copy, Debug, Default)]
struct PathContext {
    classes: Classes,
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
    host_sums: Vec<Sum>,
    device_sums: Vec<Sum>,
    /// Counted once it is asked for: a capture keeps many activities.
    devices: OnceCell<u64>,
}

impl<'p> Facts<'p> {
    /// Walks a profile, which is all or part of another one. `elapsed` is the length of the capture, zero when unknown.
    pub(crate) fn of(profile: &'p Profile, whole: &'p Profile, elapsed: Nanos) -> Self {
        // Metrics of the program's own time, best first; a profile of another tool may have only samples.
        let host = [Metric::CpuTime, Metric::WallTime, Metric::Samples, Metric::Cycles];
        let host = host.into_iter().find(|metric| profile.tree.total(*metric).sum > 0);
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
            host_sums: Vec::new(),
            device_sums: Vec::new(),
            devices: OnceCell::new(),
        };
        facts.within = facts.walk();
        facts.host_sums = host.map_or_else(Vec::new, |metric| facts.class_sums(metric));
        facts.device_sums = facts.class_sums(Metric::GpuTime);
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
                let is_part =
                    self.frame_classes_of(NodeId::from_number(at.operator)).has(Class::AddingProduct);
                let own = if is_part { frame.classes.without(Class::Conversion) } else { frame.classes };
                at.classes = at.classes.with(own);
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

    fn class_sums(&self, metric: Metric) -> Vec<Sum> {
        let mut sums = vec![Sum::default(); Class::ALL.len() + 1];
        for (node, sum) in self.values(metric) {
            if let Some(total) = sums.last_mut() {
                *total += sum;
            }
            for class in self.classes(node).iter() {
                if let Some(of_class) = sums.get_mut(class as usize) {
                    *of_class += sum;
                }
            }
        }
        sums
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
        self.profile.tree.total(metric).sum > 0
    }

    /// Whether the whole has values of a metric; see [`Facts::whole`].
    pub(crate) fn whole_has(&self, metric: Metric) -> bool {
        self.whole.tree.total(metric).sum > 0
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

    /// The part of a metric in contexts of a class. Precomputed for time on the host and on devices.
    pub(crate) fn share(&self, metric: Metric, class: Class) -> Share {
        let known = match metric {
            Metric::GpuTime => Some(&self.device_sums),
            _ if Some(metric) == self.host => Some(&self.host_sums),
            _ => None,
        };
        match known {
            Some(sums) => {
                let of = |at: usize| sums.get(at).copied().unwrap_or_default();
                let (part, whole) = (of(class as usize), of(Class::ALL.len()));
                Share { part, whole, sampled: Self::is_sampled(metric), ..Share::default() }
            }
            None => self.share_where(metric, |node| self.classes(node).has(class)),
        }
    }

    /// The part of a metric in selected contexts.
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
    const LIBRARIES: [&str; 5] = ["/site-packages/", "/dist-packages/", "/lib/python", "/torch/", "<frozen "];
    let own = match frame {
        Frame::Python { file, .. } => {
            let file = profile.strings.get(*file);
            // Built-in functions have no file; a trace may have paths relative to its libraries.
            let library = file.is_empty() || file.starts_with("torch/") || file.starts_with("<built-in");
            !library && !LIBRARIES.iter().any(|part| file.contains(part))
        }
        _ => false,
    };
    FrameFacts { classes: class::of(frame, &profile.strings), kind: frame.kind(), own }
}
