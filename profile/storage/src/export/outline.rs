//! The outline: the contexts of a selection in one fixed order, with the data that every format needs.
//!
//! Owns: order, texts, inclusive sums, and which process and thread a context belongs to. Because: the formats must
//! agree on all of these, and must come out the same for the same profile, whatever the order in which it was
//! captured. Does not: write anything.

use deepctx_profile::order::SortRows as _;
use rustc_hash::FxHashMap;

use deepctx_profile::context::Contexts;
use deepctx_profile::frame::Frame;
use deepctx_profile::intern::FrameId;
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Profile;
use deepctx_profile::tree::NodeId;
use deepctx_profile::view::Selection;

/// Contexts of a selection, depth first, siblings by text.
#[derive(Debug)]
pub(crate) struct Outline<'p> {
    pub(crate) contexts: Contexts<'p>,
    /// Metrics with values; the selected one is first if it has any.
    pub(crate) metrics: Vec<Metric>,
    /// By frame: its text.
    labels: Vec<String>,
    /// Every node with its depth; the root is first, at depth 0.
    pub(crate) order: Vec<(NodeId, u32)>,
    /// Processes and threads, in order of first appearance.
    pub(crate) lanes: Vec<Lane>,
    /// By node: its index in `lanes`.
    lane_of: Vec<u32>,
}

/// Position of each node, by node; see [`Outline::layout`].
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) starts: Vec<u64>,
    /// Zero for nodes without a value on their row.
    pub(crate) lengths: Vec<u64>,
}

/// A process, or one of its threads if threads are distinguished.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lane {
    /// Name and id; `None` outside processes.
    pub(crate) process: Option<(String, u32)>,
    /// Name and id.
    pub(crate) thread: Option<(String, u32)>,
}

impl Lane {
    /// Process id; 0 when unknown.
    pub(crate) fn pid(&self) -> u32 {
        self.process.as_ref().map_or(0, |(_, pid)| *pid)
    }

    /// Thread id; if threads are merged, that of the main thread, which is the process's.
    pub(crate) fn tid(&self) -> u32 {
        self.thread.as_ref().map_or_else(|| self.pid(), |(_, tid)| *tid)
    }

    /// Name of the process.
    pub(crate) fn process_name(&self) -> &str {
        self.process.as_ref().map_or("", |(name, _)| name)
    }

    /// Name of the thread, or of its process if threads are merged.
    pub(crate) fn thread_name(&self) -> &str {
        self.thread.as_ref().map_or_else(|| self.process_name(), |(name, _)| name)
    }
}

impl<'p> Outline<'p> {
    pub(crate) fn of(profile: &'p Profile, selection: &Selection) -> Self {
        let contexts = Contexts::of(profile, selection);
        let mut metrics: Vec<Metric> = contexts.tree.metrics_with_sum().collect();
        metrics.sort_rows_by_key(|&metric| (metric != selection.metric, metric));
        let label = |frame: Frame| frame.label(contexts.strings, selection.lines);
        let labels: Vec<String> = contexts.frames.iter().map(|(_, frame)| label(frame)).collect();
        let order = order(&contexts, &labels);
        let mut outline =
            Outline { contexts, metrics, labels, order, lanes: Vec::new(), lane_of: Vec::new() };
        outline.find_lanes();
        outline
    }

    fn find_lanes(&mut self) {
        self.lane_of = vec![0; self.contexts.tree.len()];
        self.lanes.push(Lane::default());
        let name = |id| deepctx_profile::frame::clean(self.contexts.strings.get(id));
        for &(node, _) in self.order.iter().skip(1) {
            let above = self.lane_of[self.contexts.tree.node(node).parent.index()];
            let lane = match self.frame(node) {
                Frame::Process { comm, pid } => Lane { process: Some((name(comm), pid)), thread: None },
                Frame::Thread { name: comm, tid } => {
                    Lane { thread: Some((name(comm), tid)), ..self.lanes[above as usize].clone() }
                }
                _ => {
                    self.lane_of[node.index()] = above;
                    continue;
                }
            };
            self.lane_of[node.index()] = self.lanes.len() as u32;
            self.lanes.push(lane);
        }
    }

    /// The frame of a node.
    pub(crate) fn frame(&self, node: NodeId) -> Frame {
        self.contexts.frames.get(self.frame_id(node))
    }

    /// The handle of a node's frame.
    pub(crate) fn frame_id(&self, node: NodeId) -> FrameId {
        self.contexts.tree.node(node).frame
    }

    /// Text of a node.
    pub(crate) fn label(&self, node: NodeId) -> &str {
        self.frame_label(self.frame_id(node))
    }

    /// Text of a frame.
    pub(crate) fn frame_label(&self, frame: FrameId) -> &str {
        &self.labels[frame.index()]
    }

    /// Number of a node's lane.
    pub(crate) fn lane(&self, node: NodeId) -> usize {
        self.lane_of[node.index()] as usize
    }

    /// Whether a node has an exclusive value of any metric.
    pub(crate) fn has_values(&self, node: NodeId) -> bool {
        self.metrics.iter().any(|&metric| !self.contexts.tree.exclusive(node, metric).is_empty())
    }

    /// Exclusive sum of a node.
    pub(crate) fn own(&self, node: NodeId, metric: Metric) -> u64 {
        self.contexts.tree.exclusive(node, metric).sum
    }

    /// A position for every node: the nodes below it lie within it, side by side, followed by its own value. Each
    /// process and each thread has a separate row, which begins at 0.
    pub(crate) fn layout(&self, metric: Metric) -> Layout {
        let tree = &self.contexts.tree;
        let mut lengths: Vec<u64> = vec![0; tree.len()];
        for (node, cell) in tree.cells(metric) {
            lengths[node.index()] = cell.sum;
        }
        for number in (1..tree.len()).rev() {
            let parent = tree.node(NodeId::from_number(number as u32)).parent.index();
            if self.lane_of[parent] == self.lane_of[number] {
                lengths[parent] = lengths[parent].saturating_add(lengths[number]);
            }
        }
        // A process that changed its name has two lanes but one row.
        let mut ends: FxHashMap<(u32, u32), u64> = FxHashMap::default();
        let mut starts: Vec<u64> = vec![0; tree.len()];
        let mut next: Vec<u64> = vec![0; tree.len()];
        for &(node, depth) in &self.order {
            let (at, parent) = (node.index(), tree.node(node).parent.index());
            let lane = &self.lanes[self.lane_of[at] as usize];
            let before = if depth > 0 && self.lane_of[parent] == self.lane_of[at] {
                &mut next[parent]
            } else {
                ends.entry((lane.pid(), lane.tid())).or_default()
            };
            starts[at] = *before;
            *before = before.saturating_add(lengths[at]);
            next[at] = starts[at];
        }
        Layout { starts, lengths }
    }

    /// Frames from the root (excluded) to a node.
    pub(crate) fn stack(&self, node: NodeId) -> Vec<FrameId> {
        self.contexts.tree.stack(node)
    }
}

/// All nodes depth first, siblings by text and then by age.
fn order(contexts: &Contexts<'_>, labels: &[String]) -> Vec<(NodeId, u32)> {
    let tree = &contexts.tree;
    let mut ranks: Vec<u32> = vec![0; labels.len()];
    let mut sorted: Vec<u32> = (0..labels.len() as u32).collect();
    sorted.sort_by_key(|&frame| &labels[frame as usize]);
    for (rank, frame) in (0..).zip(sorted) {
        ranks[frame as usize] = rank;
    }
    // Children of each node, concatenated.
    let mut ends = vec![0u32; tree.len() + 1];
    for node in tree.nodes().skip(1) {
        ends[node.parent.index() + 1] += 1;
    }
    for at in 1..ends.len() {
        ends[at] += ends[at - 1];
    }
    let starts = ends.clone();
    let mut children = vec![0u32; tree.len() - 1];
    for (number, node) in (0u32..).zip(tree.nodes()).skip(1) {
        let end = &mut ends[node.parent.index()];
        children[*end as usize] = number;
        *end += 1;
    }
    let mut order = Vec::with_capacity(tree.len());
    let mut to_visit = vec![(0u32, 0u32)];
    while let Some((node, depth)) = to_visit.pop() {
        order.push((NodeId::from_number(node), depth));
        let list = &mut children[starts[node as usize] as usize..ends[node as usize] as usize];
        let rank = |&child: &u32| ranks[tree.node(NodeId::from_number(child)).frame.index()];
        list.sort_by_key(|child| std::cmp::Reverse(rank(child)));
        to_visit.extend(list.iter().map(|&child| (child, depth + 1)));
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use deepctx_profile::testing::{grow, profile, selections, stacks};
    use deepctx_profile::view::GroupBy;

    proptest::proptest! {
        #[test]
        fn boxes_lie_within_their_callers_and_never_overlap(
            stacks in stacks(),
            selection in selections(),
        ) {
            let mut all = profile("");
            grow(&mut all, &stacks, Metric::CpuTime);
            let outline = Outline::of(&all, &selection);
            let Layout { starts, lengths } = outline.layout(Metric::CpuTime);
            let mut own = 0;
            let mut open: Vec<Vec<u64>> = vec![Vec::new(); outline.lanes.len()];
            for &(node, _) in &outline.order {
                let at = node.index();
                let (from, to) = (starts[at], starts[at] + lengths[at]);
                if lengths[at] == 0 {
                    continue;
                }
                // Closes boxes that are over, then extends those that must contain this one.
                let line = &mut open[outline.lane(node)];
                while line.last().is_some_and(|&end| end <= from) {
                    line.pop();
                }
                proptest::prop_assert!(line.iter().all(|&end| to <= end));
                line.push(to);
                own += outline.own(node, Metric::CpuTime);
            }
            proptest::prop_assert_eq!(own, all.tree.total(Metric::CpuTime).sum);
        }
    }

    #[test]
    fn contexts_are_listed_depth_first_with_their_process_and_thread() {
        let profile = profile(
            "P b-2 / T b/2 / n z 1
             P b-2 / T w/3 / n y / n x 2
             P a-1 / n m 3
             n loose 4",
        );
        let selection = Selection { group_by: GroupBy::Thread, ..Selection::of(Metric::CpuTime) };
        let outline = Outline::of(&profile, &selection);
        let shown: Vec<String> = outline
            .order
            .iter()
            .map(|&(node, depth)| {
                let lane = &outline.lanes[outline.lane(node)];
                format!("{depth} {} {}/{}", outline.label(node), lane.pid(), lane.tid())
            })
            .collect();
        assert_eq!(
            shown,
            [
                "0 all 0/0",
                "1 a-1 1/1",
                "2 m 1/1",
                "1 b-2 2/2",
                "2 b/2 2/2",
                "3 z 2/2",
                "2 w/3 2/3",
                "3 y 2/3",
                "4 x 2/3",
                "1 loose 0/0"
            ]
        );
    }
}
