//! Recent: the latest part of a growing profile, in slices of time.
//!
//! Owns: the slices, their figures, and the [`Profile`] of the window that they cover. Because: a flight recorder
//! must give the last minute at any moment, exactly and in bounded memory, while the whole profile keeps growing.
//! Does not: read a clock or decide when a slice ends; its owner does both.
//!
//! ```text
//!   capture begins          window                              now
//!   ├───── given up ────────┼─ slice ─┼─ slice ─┼─ … ─┼─ open ──┤
//!                           ◀── at least what is kept, at most a slice more ──▶
//! ```
//!
//! A slice holds only the figures of the contexts seen during it; the contexts themselves stay in the profile, which
//! bounds them. A figure counts in the slice in which it was added: a wait or a step when it ends, or in one-second
//! pieces while it lasts.

use std::collections::VecDeque;

use deepctx_common::reasons;

use crate::device::activity::{ACTIVITIES, Activities, Activity};
use crate::device::memory::Pool;
use crate::intern::FrameId;
use crate::ledger::{Ledger, Stage};
use crate::profile::{KeptWindow, LANES_FULL, Limits, Meta, Profile, STEP_PLACES_FULL, TIME_TOO_FAR};
use crate::step_times::StepTimes;
use crate::tree::{MetricCells, NodeId};
use crate::units::Nanos;

/// Cells of all slices together: 64 MiB. A training process has some ten thousand in a slice.
pub const CELLS_MAX: usize = 1 << 20;

reasons! {
    class Gap, page "flight-recorder.md";
    const WINDOW_CUT = "window-cut",
        "slices of the flight recorder were given up before their time, because its memory was full",
        helps "a shorter `--keep`";
}

/// The last part of one growing profile.
#[derive(Debug)]
pub struct RecentPart {
    keep: Nanos,
    cells_max: usize,
    /// Completed slices, oldest first.
    slices: VecDeque<Slice>,
    open: SliceStart,
    /// Slices dropped because there were too many cells.
    cut: u64,
}

/// The figures of one slice.
#[derive(Debug)]
struct Slice {
    begin: SliceStart,
    cells: Vec<MetricCells>,
    steps: StepTimes,
}

/// The profile when a slice began.
#[derive(Clone, Debug)]
struct SliceStart {
    /// Since the capture began.
    at: Nanos,
    ledger: Ledger,
    /// Activities of devices reported until then.
    activities: u64,
}

impl SliceStart {
    fn of(profile: &Profile, at: Nanos) -> Self {
        SliceStart { at, ledger: ledger(profile), activities: activities(profile) }
    }
}

impl RecentPart {
    /// Starts to keep the last `keep` of a profile, without earlier figures.
    pub fn start(profile: &mut Profile, keep: Nanos, at: Nanos) -> Self {
        profile.tree.keep_recent();
        profile.step_times.keep_recent();
        profile.timeline.keep_recent();
        let open = SliceStart::of(profile, at);
        RecentPart { keep, cells_max: CELLS_MAX, slices: VecDeque::new(), open, cut: 0 }
    }

    /// Ends the open slice and begins the next one; drops slices that are too old, and the oldest if there are too many
    /// cells.
    pub fn next_slice(&mut self, profile: &mut Profile, now: Nanos) {
        let begin = std::mem::replace(&mut self.open, SliceStart::of(profile, now));
        let (cells, steps) = (profile.tree.take_recent(), profile.step_times.take_recent());
        self.slices.push_back(Slice { begin, cells, steps });
        let needed = now.saturating_sub(self.keep);
        while self.second_begins().is_some_and(|at| at <= needed) {
            self.slices.pop_front();
        }
        while self.cells() > self.cells_max && self.slices.pop_front().is_some() {
            self.cut += 1;
        }
        profile.timeline.forget_before(self.begins());
    }

    /// When the window begins, since the capture began.
    pub fn begins(&self) -> Nanos {
        self.begin().at
    }

    /// When the open slice began.
    pub fn open_since(&self) -> Nanos {
        self.open.at
    }

    /// Cells of the completed slices. A bucket of step times, which is smaller, counts as one.
    pub fn cells(&self) -> usize {
        let buckets: usize = self.slices.iter().map(|slice| slice.steps.buckets()).sum();
        let cells = self.slices.iter().flat_map(|slice| &slice.cells).map(|(_, cells)| cells.len());
        cells.sum::<usize>() + buckets
    }

    /// The profile of the window, including the open slice so far. `profile` is the growing one.
    pub fn window(&self, profile: &Profile, now: Nanos, because: &str) -> Profile {
        let begin = self.begin();
        let start = begin.at;
        let before_records = begin.ledger.stage(Stage::Attribute).kept;
        let kept = KeptWindow { before: start, before_records, because: because.to_owned() };
        let meta = Meta {
            started: profile.meta.started + start,
            started_monotonic: profile.meta.started_monotonic + start,
            kept: Some(kept),
            ..profile.meta.clone()
        };
        let mut copy = Copy {
            from: profile,
            to: Profile::new(meta, Limits::default()),
            nodes: vec![NodeId::ROOT; profile.tree.len()],
            frames: vec![None; profile.frames.len()],
        };
        for (metric, cells) in self.slices.iter().flat_map(|slice| &slice.cells) {
            for (node, cell) in cells {
                let node = copy.node(*node);
                copy.to.tree.add_cell(node, *metric, cell);
            }
        }
        for (metric, node, cell) in profile.tree.recent() {
            let node = copy.node(node);
            copy.to.tree.add_cell(node, metric, &cell);
        }
        let mut steps = StepTimes::default();
        for part in self.slices.iter().map(|slice| &slice.steps).chain(profile.step_times.recent()) {
            steps.merge(part, |node| Some(copy.node(node)));
        }
        copy.to.step_times = steps;
        copy.to.timeline = profile.timeline.recent_since(start, |node| copy.node(node));
        copy.devices(start, activities(profile) - begin.activities);
        copy.producers();
        let mut window = copy.to;
        window.executables.clone_from(&profile.executables);
        let since_start = |at: Nanos| at.saturating_sub(start);
        let pool = |pool: &Pool| Pool {
            peak_at: since_start(pool.peak_at),
            most_unused_at: since_start(pool.most_unused_at),
            ..pool.clone()
        };
        window.memory = profile.memory.iter().map(pool).collect();
        window.ledger = ledger(profile).since(&begin.ledger);
        if now.saturating_sub(start) < self.keep {
            window.ledger.gap(Stage::Store, WINDOW_CUT, self.cut);
        }
        window
    }

    fn begin(&self) -> &SliceStart {
        self.slices.front().map_or(&self.open, |slice| &slice.begin)
    }

    /// Begin of the window without its oldest slice.
    fn second_begins(&self) -> Option<Nanos> {
        self.slices.front()?;
        Some(self.slices.get(1).map_or(self.open.at, |slice| slice.begin.at))
    }
}

/// Activities of devices that were reported so far.
fn activities(profile: &Profile) -> u64 {
    let activities = &profile.gpu.activities;
    activities.left_out().saturating_add(activities.iter().len() as u64)
}

/// The ledger, plus what the tables of contexts refused; the window's timeline and step times count their own refusals.
fn ledger(profile: &Profile) -> Ledger {
    let of_window = [LANES_FULL.key, TIME_TOO_FAR.key, STEP_PLACES_FULL.key];
    let mut ledger = profile.ledger.clone();
    for (reason, n) in profile.refusals() {
        if !of_window.contains(&reason.key.as_ref()) {
            ledger.gap(Stage::Attribute, reason, n);
        }
    }
    ledger
}

/// A copy of part of a profile into another one.
struct Copy<'a> {
    from: &'a Profile,
    to: Profile,
    /// By context: the same context in the other profile; the root if there is none.
    nodes: Vec<NodeId>,
    frames: Vec<Option<FrameId>>,
}

impl Copy<'_> {
    /// The same context in the other profile.
    fn node(&mut self, node: NodeId) -> NodeId {
        let mut missing = Vec::new();
        let (mut at, mut here) = (node, NodeId::ROOT);
        while at != NodeId::ROOT {
            here = self.nodes[at.index()];
            if here != NodeId::ROOT {
                break;
            }
            missing.push(at);
            at = self.from.tree.node(at).parent;
        }
        for node in missing.into_iter().rev() {
            let frame = self.frame(self.from.tree.node(node).frame);
            here = self.to.tree.child(here, frame);
            self.nodes[node.index()] = here;
        }
        here
    }

    fn frame(&mut self, frame: FrameId) -> FrameId {
        if let Some(known) = self.frames[frame.index()] {
            return known;
        }
        let (from, strings) = (self.from, &mut self.to.strings);
        let copied = from.frames.get(frame).map_texts(|text| strings.intern(from.strings.get(text)));
        let here = self.to.frames.intern(copied);
        self.frames[frame.index()] = Some(here);
        here
    }

    /// What the sampled instructions of the other profile wait for.
    fn producers(&mut self) {
        let from = self.from;
        for (waiting, producers) in from.producers.iter() {
            let Some(Some(here)) = self.frames.get(waiting.index()).copied() else { continue };
            for producer in producers {
                let producer = self.frame(*producer);
                self.to.producers.add(here, producer);
            }
        }
    }

    /// Device work since `start`; `reported`: the number of activities reported since then.
    fn devices(&mut self, start: Nanos, reported: u64) {
        let from = &self.from.gpu;
        self.to.gpu.processes.clone_from(&from.processes);
        let mut activities = Activities::new(ACTIVITIES);
        for activity in from.activities.iter().filter(|activity| activity.end >= start) {
            activities.push(Activity {
                node: self.node(activity.node),
                start: activity.start.saturating_sub(start),
                end: activity.end.saturating_sub(start),
                // A launch before the window has no time in it.
                launched: activity.launched.and_then(|at| at.0.checked_sub(start.0).map(Nanos)),
                ..*activity
            });
        }
        activities.leave_out(reported.saturating_sub(from.activities.iter().len() as u64));
        self.to.gpu.activities = activities;
        for (node, shape) in from.shapes() {
            let here = self.nodes[node.index()];
            if here != NodeId::ROOT {
                self.to.gpu.add_shape(here, shape);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::frame::Frame;
    use crate::intern::StrId;
    use crate::ledger::CheckTime;
    use crate::metric::Metric;
    use crate::testing::{grow, profile, stacks};

    fn seconds(seconds: u64) -> Nanos {
        Nanos(seconds * Nanos::SECOND.0)
    }

    /// Adds stacks to a profile, and as many records to its ledger.
    fn add(profile: &mut Profile, stacks: &[(Vec<u8>, u64)]) {
        grow(profile, stacks, Metric::CpuTime);
        for stage in [Stage::Decode, Stage::Order, Stage::Resolve, Stage::Attribute] {
            profile.ledger.stage_mut(stage).pass(stacks.len() as u64);
        }
    }

    #[test]
    fn what_instructions_wait_for_is_in_the_window() {
        let mut growing = profile("P a-1 / k h 1");
        let kernel = growing.text("gemm");
        let mut at =
            |offset| growing.frame(Frame::Instruction { kernel, offset, file: StrId::EMPTY, line: None });
        let [load, waiting, before] = [at(0x10), at(0x20), at(0x30)];
        growing.producers.add(waiting, load);
        growing.producers.add(before, load);
        let recent = RecentPart::start(&mut growing, seconds(10), Nanos(0));
        growing.add(&[waiting], Metric::StallLongScoreboard, 1);
        let window = recent.window(&growing, seconds(1), "key");
        let label = |frame| window.frames.get(frame).label(&window.strings, false);
        let producers: Vec<_> =
            window.producers.iter().map(|(waiting, of)| (label(waiting), label(of[0]))).collect();
        assert_eq!(producers, [("gemm+0x20".to_owned(), "gemm+0x10".to_owned())]);
    }

    /// Every figure with its context, independent of the order of contexts.
    fn contents(profile: &Profile) -> Vec<String> {
        let label = |id: FrameId| {
            let frame = profile.frames.get(id);
            format!("{:?} {}", frame.kind(), frame.label(&profile.strings, true))
        };
        let path = |node| profile.tree.stack(node).into_iter().map(label).collect::<Vec<_>>();
        let cells = profile.tree.cells(Metric::CpuTime);
        let mut contents: Vec<String> =
            cells.map(|(node, cell)| format!("{:?} {cell:?}", path(node))).collect();
        contents.sort_unstable();
        contents
    }

    proptest! {
        #[test]
        fn a_window_is_the_sum_of_its_slices(
            slices in prop::collection::vec(stacks(), 1..12), keep in 1u64..8, open in stacks(),
        ) {
            let mut growing = profile("");
            let mut recent = RecentPart::start(&mut growing, seconds(keep), Nanos(0));
            for (second, stacks) in (1..).zip(&slices) {
                add(&mut growing, stacks);
                recent.next_slice(&mut growing, seconds(second));
                prop_assert!(recent.slices.len() <= keep as usize);
            }
            add(&mut growing, &open);
            let now = seconds(slices.len() as u64);
            let window = recent.window(&growing, now, "signal");
            let kept = slices.len().saturating_sub(keep as usize);
            let mut expected = profile("");
            slices[kept..].iter().chain([&open]).for_each(|stacks| add(&mut expected, stacks));
            prop_assert_eq!(contents(&window), contents(&expected));
            prop_assert_eq!(window.ledger.check(CheckTime::Finished), Ok(()));
            prop_assert_eq!(window.ledger.received(), expected.ledger.received());
            prop_assert_eq!(recent.begins(), seconds(kept as u64));
            let before: usize = slices[..kept].iter().map(Vec::len).sum();
            let because = "signal".to_owned();
            let before_window = KeptWindow { before: seconds(kept as u64), before_records: before as u64, because };
            prop_assert_eq!(window.meta.kept, Some(before_window));
            prop_assert_eq!(window.ledger.rows(), []);
        }
    }

    #[test]
    fn slices_are_given_up_early_where_memory_is_full() {
        let mut growing = profile("");
        let mut recent =
            RecentPart { cells_max: 2, ..RecentPart::start(&mut growing, seconds(60), Nanos(0)) };
        for second in 1..=10 {
            add(&mut growing, &[(vec![0, second as u8], 1)]);
            recent.next_slice(&mut growing, seconds(second));
            assert!(recent.cells() <= 2);
        }
        let window = recent.window(&growing, seconds(10), "signal");
        let gaps = &window.ledger.stage(Stage::Store).gaps;
        assert_eq!((recent.begins(), gaps.count("window-cut")), (seconds(8), 8));
        assert_eq!(window.ledger.received(), 2);
    }

    #[test]
    fn percentiles_of_steps_are_those_of_the_window() {
        let mut growing = profile("P a-1 / r step 1");
        let place = NodeId::from_number(2);
        growing.add_step(place, Nanos(1000));
        let mut recent = RecentPart::start(&mut growing, seconds(2), Nanos(0));
        for second in 1..=9 {
            growing.add_step(place, Nanos(20 - second));
            recent.next_slice(&mut growing, seconds(second));
        }
        growing.add_step(place, Nanos(5));
        let window = recent.window(&growing, seconds(9), "signal");
        let (node, times) = window.step_times.iter().next().unwrap();
        let cell = window.tree.exclusive(node, Metric::StepTime);
        let percentile = |percent| times.percentile(percent, &cell).map(|bounds| bounds.least);
        // Those of the eighth and ninth second, and of the open slice.
        assert_eq!([0, 50, 100].map(percentile), [5, 11, 12].map(|time| Some(Nanos(time))));
        let latest: Vec<Nanos> = window.step_times.latest(node).collect();
        assert_eq!(latest, [12, 11, 5].map(Nanos));
        assert_eq!(growing.step_times.of(place).map(|times| times.count()), Some(11));
    }

    #[test]
    fn extremes_and_times_are_those_of_the_window() {
        let mut growing = profile("");
        let mut recent = RecentPart::start(&mut growing, seconds(2), Nanos(0));
        for second in 1..=9 {
            add(&mut growing, &[(vec![0, 2], 100 - second)]);
            let lane = NodeId::from_number(1);
            growing.timeline.add(lane, Metric::CpuTime, Nanos(seconds(second).0 - 1), second);
            recent.next_slice(&mut growing, seconds(second));
        }
        let window = recent.window(&growing, seconds(9), "hang");
        let total = window.tree.total(Metric::CpuTime);
        assert_eq!((total.count, total.min, total.max), (2, 91, 92));
        assert_eq!(window.timeline.lanes()[0].values.iter().sum::<u64>(), 8 + 9);
        assert_eq!(window.meta.started_monotonic - growing.meta.started_monotonic, seconds(7));
        assert_eq!(
            window.meta.kept,
            Some(KeptWindow { before: seconds(7), before_records: 7, because: "hang".into() })
        );
        assert_eq!(growing.tree.total(Metric::CpuTime).count, 9, "the whole profile has all of it");
    }
}
