//! The profile: everything that one capture recorded.
//!
//! Owns: the tables, the tree and the ledger, together with the options of the capture. Because: a capture, a replay,
//! a file and a test all produce this one value, and every analysis reads it. Does not: forget; handles stay valid.

mod recent;
pub mod timeline;

use std::iter;

use deepctx_common::memory::MemoryUse;
use deepctx_common::reasons;
use serde::{Deserialize, Serialize};

use crate::device::gpu::Gpu;
use crate::device::memory::{self, POOLS_MAX, Pool, TENSOR_ROWS_LEFT_OUT};
use crate::frame::Frame;
use crate::intern::{FrameId, Frames, StrId, Strings};
use crate::ledger::{Ledger, Reason, Stage};
use crate::metric::Metric;
use crate::owner::Owner;
use crate::producers::Producers;
use crate::step_times::StepTimes;
use crate::tree::{NodeId, Tree};
use crate::units::{Bytes, Nanos, Time, clock};

use timeline::Timeline;

pub use recent::{CELLS_MAX, RecentPart};

reasons! {
    class Gap, page "loss.md";
    const TREE_FULL = "tree-full", "new contexts were joined below a [tree full] node";
    const FRAMES_FULL = "frames-full", "new frames were joined as [frames full]";
    const NAMES_FULL = "names-full", "new names were joined as [names full]";
    const TREE_SHARE = "tree-share", "new contexts of a user with most of an almost full tree were joined below a [tree full] node";
    const FRAMES_SHARE = "frames-share", "new frames of a user with most of an almost full table were joined as [frames full]";
    const NAMES_SHARE = "names-share", "new names of a user with most of an almost full table were joined as [names full]";
    const NAME_CUT = "name-cut", "names were too long and were cut";
    pub(crate) const LANES_FULL = "lanes-full", "values of further threads are not in the timeline";
    pub(crate) const TIME_TOO_FAR = "time-too-far", "values with an impossible time are not in the timeline";
    const SHAPES_FULL = "shapes-full", "launches in further contexts have no grid and block sizes";
    const PRODUCERS_FULL = "producers-full", "it is not known what further sampled instructions wait for";
    pub(crate) const STEP_PLACES_FULL = "step-places-full", "training steps at further places have no percentiles";
}

/// Everything that one capture recorded.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Target, host and options of the capture.
    pub meta: Meta,
    /// Executables and libraries, in the order in which they were found.
    pub executables: Vec<Executable>,
    /// Interned texts.
    pub strings: Strings,
    /// Interned frames.
    pub frames: Frames,
    /// Calling contexts and their figures.
    pub tree: Tree,
    /// Values by time.
    pub timeline: Timeline,
    /// How often training steps took how long, beside the figures in the tree.
    pub step_times: StepTimes,
    /// What sampled instructions of kernels wait for.
    pub producers: Producers,
    /// Device work, beside the figures in the tree.
    pub gpu: Gpu,
    /// Memory of tensors, beside the figures in the tree.
    pub memory: Vec<Pool>,
    /// Counts of all records by outcome.
    pub ledger: Ledger,
}

/// Target, host and options of a capture.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Meta {
    /// The target in words (`python train.py (pid 4711)`).
    pub target: String,
    /// Name of the host.
    pub host: String,
    /// When the capture began: nanoseconds since 1970 UTC.
    #[serde(with = "as_nanos")]
    pub started: Time<clock::Realtime>,
    /// When the capture began, by the clock of the records.
    #[serde(with = "as_nanos")]
    pub started_monotonic: Time<clock::Monotonic>,
    /// The kernel's random id of the boot that this clock counts from; empty if it is not known.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub boot_id: String,
    /// Sampling frequency, Hz per CPU.
    pub frequency_hz: u32,
    /// Version of the program that captured.
    pub version: String,
    /// Options in force, name and value, as on the command line.
    pub options: Vec<(String, String)>,
    /// CPUs that the targets might use together as the capture began, by their affinities and CPU limits; `None` if it
    /// is not known, or if every process of the machine was a target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_cpus: Option<u32>,
    /// Of a profile written by a flight recorder: its part of the capture.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<KeptWindow>,
}

/// The part of a capture that a flight recorder wrote: from some time to the end of the profile.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KeptWindow {
    /// How long the capture had run when this part began.
    #[serde(rename = "before_ns")]
    pub before: Nanos,
    /// Records captured before this part, and not contained in it.
    pub before_records: u64,
    /// Trigger of the write: `signal`, `hang`, `key`, `end`.
    pub because: String,
}

mod as_nanos {
    use super::Time;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<C, S: Serializer>(time: &Time<C>, to: S) -> Result<S::Ok, S::Error> {
        time.as_nanos().serialize(to)
    }

    pub(super) fn deserialize<'de, C, D: Deserializer<'de>>(from: D) -> Result<Time<C>, D::Error> {
        u64::deserialize(from).map(Time::from_nanos)
    }
}

/// An executable or library that was mapped in the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Executable {
    /// Path in the target's view of the files.
    pub path: String,
    /// GNU build-id in hex; empty when it has none.
    pub build_id: String,
    /// Size of the file.
    pub size: Bytes,
}

/// Bounds of a profile's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Contexts. A node costs about 40 bytes, one with values 90 more.
    pub nodes: usize,
    /// Distinct frames; with lines, one function has many. A frame costs about 60 bytes.
    pub frames: usize,
    /// Bytes of names.
    pub string_bytes: usize,
}

impl Default for Limits {
    /// A million contexts, half a million frames, 32 MiB of names. A torch training process stays far below with its
    /// tens of thousands; a full table costs about 150 MiB, the whole memory that the profiler allows itself.
    fn default() -> Self {
        Limits { nodes: 1 << 20, frames: 1 << 19, string_bytes: 32 << 20 }
    }
}

impl Profile {
    /// An empty profile.
    pub fn new(meta: Meta, limits: Limits) -> Self {
        Profile {
            meta,
            executables: Vec::new(),
            strings: Strings::new(limits.string_bytes),
            frames: Frames::new(limits.frames),
            tree: Tree::new(limits.nodes),
            timeline: Timeline::default(),
            step_times: StepTimes::default(),
            producers: Producers::default(),
            gpu: Gpu::default(),
            memory: Vec::new(),
            ledger: Ledger::default(),
        }
    }

    /// From now on, new names, frames and contexts count as this owner's.
    #[inline]
    pub fn grow_for(&mut self, owner: Owner) {
        self.strings.grow_for(owner);
        self.frames.grow_for(owner);
        self.tree.grow_for(owner);
    }

    /// The owner of what is new.
    #[inline]
    pub fn owner(&self) -> Owner {
        self.tree.owner()
    }

    /// The handle of a text.
    pub fn text(&mut self, text: &str) -> StrId {
        self.strings.intern(text)
    }

    /// The handle of a frame.
    pub fn frame(&mut self, frame: Frame) -> FrameId {
        self.frames.intern(frame)
    }

    /// Adds one value to the context with these frames, root first.
    pub fn add(&mut self, stack: &[FrameId], metric: Metric, value: u64) -> NodeId {
        let node = self.tree.path(NodeId::ROOT, stack.iter().copied());
        self.tree.add(node, metric, value);
        node
    }

    /// The process that a context is in, or is; `None` for a context of no process, such as a part of the machine.
    pub fn process_of(&self, node: NodeId) -> Option<NodeId> {
        let tree = &self.tree;
        let caller = |at: &NodeId| Some(tree.node(*at).parent);
        let is_process = |at: &NodeId| matches!(self.frames.get(tree.node(*at).frame), Frame::Process { .. });
        // The root is its own parent.
        let mut callers = iter::successors(Some(node), caller).take_while(|at| *at != NodeId::ROOT);
        callers.find(is_process)
    }

    /// Adds a training step that ended at a place.
    pub fn add_step(&mut self, place: NodeId, took: Nanos) {
        self.tree.add(place, Metric::StepTime, took.0);
        self.step_times.add(place, took);
    }

    /// Adds all of another profile: equal contexts are merged, and both captures begin at the same time. The other's
    /// `meta` is ignored.
    pub fn merge(&mut self, other: &Profile) {
        let strings = &mut self.strings;
        let frames: Vec<FrameId> = other
            .frames
            .iter()
            .map(|(_, frame)| self.frames.intern(frame.map_texts(|id| strings.intern(other.strings.get(id)))))
            .collect();
        let frame = |id: FrameId| frames.get(id.index()).copied().unwrap_or(FrameId::TABLE_FULL);
        self.tree.merge(&other.tree, frame);
        self.producers.merge(&other.producers, frame);
        let tree = &mut self.tree;
        self.timeline.merge(&other.timeline, |node| {
            tree.path(NodeId::ROOT, other.tree.stack(node).into_iter().map(frame))
        });
        let tree = &mut self.tree;
        self.step_times.merge(&other.step_times, |node| {
            Some(tree.path(NodeId::ROOT, other.tree.stack(node).into_iter().map(frame)))
        });
        let tree = &mut self.tree;
        self.gpu
            .merge(&other.gpu, |node| tree.path(NodeId::ROOT, other.tree.stack(node).into_iter().map(frame)));
        self.memory.extend(other.memory.iter().cloned());
        let left_out = memory::keep_largest(&mut self.memory, POOLS_MAX);
        for executable in &other.executables {
            if !self.executables.contains(executable) {
                self.executables.push(executable.clone());
            }
        }
        self.ledger.merge(&other.ledger);
        self.ledger.gap(Stage::Attribute, TENSOR_ROWS_LEFT_OUT, left_out);
    }

    /// Memory of its tables. Device data is small, and not included.
    pub fn memory(&self) -> [MemoryUse; 5] {
        [
            MemoryUse::new("calling contexts", self.tree.bytes()),
            MemoryUse::new("frames", self.frames.bytes()),
            MemoryUse::new("names", self.strings.bytes()),
            MemoryUse::new("timeline", self.timeline.bytes()),
            MemoryUse::new("times of training steps", self.step_times.bytes()),
        ]
    }

    /// Counts of entries that the tables refused: gaps in the kept data, besides those of the ledger.
    pub fn refusals(&self) -> impl Iterator<Item = (Reason, u64)> {
        let (no_lane, too_far) = self.timeline.refused();
        let full = [
            (TREE_FULL, self.tree.refused()),
            (FRAMES_FULL, self.frames.refused()),
            (NAMES_FULL, self.strings.refused()),
            (TREE_SHARE, self.tree.share_refused()),
            (FRAMES_SHARE, self.frames.share_refused()),
            (NAMES_SHARE, self.strings.share_refused()),
            (NAME_CUT, self.strings.cut()),
            (LANES_FULL, no_lane),
            (TIME_TOO_FAR, too_far),
            (SHAPES_FULL, self.gpu.shapes_refused()),
            (STEP_PLACES_FULL, self.step_times.refused()),
            (PRODUCERS_FULL, self.producers.refused()),
        ];
        full.into_iter().filter(|(_, n)| *n > 0).map(|(reason, n)| (reason.into(), n))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{CheckTime, Stage};
    use crate::testing::profile;
    use crate::text;

    #[test]
    fn merging_joins_equal_contexts() {
        let (left, right) = (
            "P a-1 / y m.py:f:1 / n g@/l/x.so 3
             P a-1 / y m.py:f:2 5",
            "P b-2 / k h 1
             P a-1 / y m.py:f:2 7
             P a-1 / y m.py:f:1 / n g@/l/x.so 4",
        );
        let (mut merged, other, both) = (profile(left), profile(right), profile(&format!("{left}\n{right}")));
        merged.merge(&other);
        assert_eq!(text::tree(&merged), text::tree(&both));
        assert_eq!(merged.frames.len(), both.frames.len());
    }

    #[test]
    fn contexts_are_in_the_process_that_they_are_below() {
        let profile = profile("P a-1 / T a/1 / n f 1\nP b-2 / n g 1\nm machine / m cpu 0 1");
        let process = |number: u32| profile.process_of(NodeId::from_number(number)).map(|node| node.number());
        assert_eq!([0, 1, 3, 5, 7].map(process), [None, Some(1), Some(1), Some(4), None]);
    }

    #[test]
    fn merging_adds_ledgers_and_joins_executables() {
        let executable =
            |path: &str| Executable { path: path.to_owned(), build_id: String::new(), size: Bytes(1) };
        let (mut a, mut b) = (profile(""), profile(""));
        a.executables.push(executable("/l/x.so"));
        b.executables.extend([executable("/l/x.so"), executable("/l/y.so")]);
        a.ledger.stage_mut(Stage::Decode).pass(2);
        b.ledger.stage_mut(Stage::Decode).received = 1;
        b.ledger.dropped(Stage::Decode, Reason::new("short-record", "too short"), 1);
        a.merge(&b);
        assert_eq!(a.executables, [executable("/l/x.so"), executable("/l/y.so")]);
        assert_eq!((a.ledger.received(), a.ledger.lost()), (3, 1));
        assert_eq!(a.ledger.check(CheckTime::Running), Ok(()));
    }

    #[test]
    fn merging_joins_what_instructions_wait_for() {
        let with = |stacks: &str| {
            let mut profile = profile(stacks);
            let kernel = profile.text("gemm");
            let mut at =
                |offset| profile.frame(Frame::Instruction { kernel, offset, file: StrId::EMPTY, line: None });
            let [waiting, load] = [at(0x20), at(0x10)];
            profile.producers.add(waiting, load);
            (profile, waiting, load)
        };
        let (mut merged, waiting, load) = with("P a-1 / k h 1");
        // Its frames have other numbers.
        let (other, ..) = with("P b-2 / k h 1\nP c-3 / k i 1");
        merged.merge(&other);
        assert_eq!(merged.producers.iter().collect::<Vec<_>>(), [(waiting, &[load][..])]);
    }

    #[test]
    fn merging_joins_the_times_of_steps_at_equal_places() {
        let (mut a, mut b) = (profile("P a-1 / r step 1"), profile("P b-2 / r step 1\nP a-1 / r step 1"));
        let node = NodeId::from_number;
        a.add_step(node(2), Nanos(10));
        b.add_step(node(2), Nanos(30));
        b.add_step(node(4), Nanos(20));
        a.merge(&b);
        let median = |place| {
            let cell = a.tree.exclusive(place, Metric::StepTime);
            a.step_times.of(place)?.percentile(50, &cell)
        };
        let medians = [2, 4].map(|number| median(node(number)).map(|bounds| bounds.least.0));
        assert_eq!(medians, [Some(10), Some(30)]);
        assert_eq!(a.step_times.of(node(2)).map(|of| of.count()), Some(2));
    }

    #[test]
    fn refusals_of_tables_are_counted_by_reason() {
        let mut profile = Profile::new(Meta::default(), Limits { nodes: 2, frames: 4, string_bytes: 16 });
        assert_eq!(profile.refusals().count(), 0);
        let long = profile.text("a name longer than sixteen bytes");
        let kept = profile.frame(Frame::Operator { name: long });
        let refused = profile.frame(Frame::Operator { name: StrId::EMPTY });
        profile.add(&[kept, refused], Metric::Samples, 1);
        profile.text(&"x".repeat(crate::intern::TEXT_MAX + 1));
        let keys: Vec<_> = profile.refusals().map(|(reason, n)| format!("{} {n}", reason.key)).collect();
        assert_eq!(keys, ["tree-full 1", "frames-full 1", "names-full 2", "name-cut 1"]);
    }
}
