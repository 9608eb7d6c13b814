//! Merged tree: a calling context tree merged by what the view shows.
//!
//! Owns: which frames are shown, which of them share a box, and the values of boxes. Because: the calling context tree
//! distinguishes lines, threads and languages that a reader wants joined. Does not: format anything.
//!
//! Profiles only grow, so a merged tree grows with its profile: each refresh reads only new frames and nodes, and
//! sums the values again.

mod sums;

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::mark::Mark;
use super::stack_filter::StackFilter;
use crate::context::selection::{Selection, below_process};
use crate::frame::{BACKWARD, Frame, FrameKind, PROBES, SPINNING, SpinPart, SpinState, WorkerKind, is_probe};
use crate::intern::{FrameId, Id, StrId};
use crate::profile::Profile;
use crate::tree::{NodeId, Trie};
use crate::view::request::Pattern;

pub(crate) use sums::Sums;

/// What distinguishes boxes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BoxIdentity {
    /// By text alone: what text formats can express.
    Text,
    /// By text, kind and location: two functions of one name in two files are two boxes.
    Location,
}

/// Text of a box.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BoxLabel {
    /// The text of the frame.
    pub text: String,
    /// Its kind.
    pub kind: FrameKind,
    /// Its location; empty if boxes differ by text alone.
    pub detail: String,
}

/// Handle of a label.
pub type LabelId = Id<BoxLabel>;

/// Frames of the longest repeated sequence that is folded: an interpreter calls itself through a handful of functions.
const CYCLE_MAX: usize = 8;

const ROOT: LabelId = LabelId::from_number(0);

/// A calling context tree merged by what a selection shows. It grows with its profile; use a new one for another
/// selection or another profile.
#[derive(Clone, Debug)]
pub struct MergedTree {
    selection: Selection,
    identity: BoxIdentity,
    /// Whether a repeated sequence of boxes becomes one.
    fold_recursion: bool,
    /// Whether threads that spin while no call waits for them get a separate box.
    spinning_apart: bool,
    labels: Vec<BoxLabel>,
    /// By label: file and line of the first frame that had it.
    sources: Vec<Option<(Arc<str>, u32)>>,
    files: FxHashMap<StrId, Arc<str>>,
    /// By label: the process that it names, or 0.
    processes: Vec<u32>,
    label_ids: FxHashMap<BoxLabel, LabelId>,
    /// By label: its rank among all sorted labels.
    ranks: Vec<u32>,
    /// By frame: its label, or `None` if it is not shown.
    of_frame: Vec<Option<LabelId>>,
    /// By frame: the label of the device or stream above its context.
    groups: Vec<Option<LabelId>>,
    /// By frame: what it says about threads that wait for others.
    spin_parts: Vec<SpinPart>,
    /// By node of the calling context tree: whether its thread waits.
    spin_states: Vec<SpinState>,
    /// The label of the box for such threads.
    spinning: Option<LabelId>,
    /// Whether the kernel frames of a probe are one box.
    probes_joined: bool,
    /// The label of that box.
    probes: Option<LabelId>,
    /// Whether the backward pass is a separate box beside the forward pass.
    backward_apart: bool,
    /// The label of that box.
    backward: Option<LabelId>,
    /// By frame: the kind of threads that begin with it.
    begins: Vec<Option<WorkerKind>>,
    /// By node of the calling context tree: the kind of its thread.
    worker_of_node: Vec<Option<WorkerKind>>,
    /// If native code is hidden: own values of processes and threads, by kind of thread.
    workers: FxHashMap<u32, [u64; WorkerKind::ALL.len()]>,
    shape: Trie<BoxLabel>,
    /// By node of the shape: whether an ancestor has the same label.
    recursive: Vec<bool>,
    /// By node of the shape: the process that it belongs to, or 0.
    pids: Vec<u32>,
    /// By node of the calling context tree: its box.
    of_node: Vec<u32>,
    /// Which stacks match the filter; none without a filter.
    filter: Option<StackFilter>,
    /// By node of the shape.
    pub exclusive: Vec<u64>,
    /// By node of the shape.
    pub inclusive: Vec<u64>,
    /// By node of the shape, with a mark: values before it.
    pub(crate) before: Option<Sums>,
    /// With a mark: number of values before it, and since.
    pub(crate) counts: (u64, u64),
}

/// The part of a profile that a refresh sums.
#[derive(Clone, Copy, Default)]
pub(crate) struct RefreshScope<'a> {
    /// Stacks that match.
    pub(crate) filter: Option<&'a Pattern>,
    /// Values since the mark.
    pub(crate) since: Option<&'a Mark>,
}

impl MergedTree {
    /// An empty tree of boxes that differ by text, kind or location.
    pub fn new(selection: Selection) -> Self {
        Self::with(selection, BoxIdentity::Location)
    }

    /// An empty tree of boxes that differ by text alone, for text formats.
    pub fn by_text(selection: Selection) -> Self {
        Self::with(selection, BoxIdentity::Text)
    }

    fn with(selection: Selection, identity: BoxIdentity) -> Self {
        let root = BoxLabel { text: "all".to_owned(), kind: FrameKind::Root, detail: String::new() };
        MergedTree {
            selection,
            identity,
            fold_recursion: false,
            spinning_apart: false,
            sources: vec![None],
            files: FxHashMap::default(),
            processes: vec![0],
            label_ids: FxHashMap::from_iter([(root.clone(), ROOT)]),
            labels: vec![root],
            ranks: vec![0],
            of_frame: Vec::new(),
            groups: Vec::new(),
            spin_parts: Vec::new(),
            spin_states: vec![SpinState::default()],
            spinning: None,
            probes_joined: false,
            probes: None,
            backward_apart: false,
            backward: None,
            begins: Vec::new(),
            worker_of_node: vec![None],
            workers: FxHashMap::default(),
            shape: Trie::new(ROOT),
            recursive: vec![false],
            pids: vec![0],
            of_node: vec![0],
            filter: None,
            exclusive: Vec::new(),
            inclusive: Vec::new(),
            before: None,
            counts: (0, 0),
        }
    }

    /// The same, with repeated sequences of boxes joined.
    #[must_use]
    pub fn folding_recursion(self) -> Self {
        MergedTree { fold_recursion: true, ..self }
    }

    /// The same, with the time of spinning threads in a box `[spinning]` below their process or thread: it is not work.
    /// Spinning below Python code, a layer or an operator stays there: that call waits. So does doubtful spinning.
    #[must_use]
    pub fn with_spinning_apart(self) -> Self {
        MergedTree { spinning_apart: true, ..self }
    }

    /// The same, with the kernel frames of a probe in one box `[probes]` below what it interrupts: they are the cost of
    /// profiling, not work of the program.
    #[must_use]
    pub fn with_probes_joined(self) -> Self {
        MergedTree { probes_joined: true, ..self }
    }

    /// The same, with the backward pass in a box `[backward]` below its process or thread, and in it the same callers
    /// as in the forward pass: each line shows its own work, and the two passes are two halves.
    #[must_use]
    pub fn with_backward_apart(self) -> Self {
        MergedTree { backward_apart: true, ..self }
    }

    /// Adds new content of the profile, which must be the same at each call, and sums its values.
    pub fn refresh(&mut self, profile: &Profile) {
        self.refresh_part(profile, RefreshScope::default());
    }

    /// Like [`MergedTree::refresh`], for a part of the profile.
    pub(crate) fn refresh_part(&mut self, profile: &Profile, scope: RefreshScope<'_>) {
        self.take_frames(profile);
        self.take_nodes(profile);
        self.filter = scope.filter.map(|pattern| {
            let known = self.filter.take().filter(|known| known.is_of(pattern));
            let mut filter = known.unwrap_or_else(|| StackFilter::new(pattern));
            filter.refresh(profile);
            filter
        });

        let metric = self.selection.metric;
        let mut sums = Sums {
            exclusive: std::mem::take(&mut self.exclusive),
            inclusive: std::mem::take(&mut self.inclusive),
        };
        self.sum_up(&mut sums, profile, metric, scope.since);
        Sums { exclusive: self.exclusive, inclusive: self.inclusive } = sums;
        self.workers = self.sum_workers(profile, scope.since);
        (self.before, self.counts) = (None, (0, 0));
        if let Some(mark) = scope.since {
            let mut before = Sums { exclusive: vec![0; self.shape.len()], inclusive: Vec::new() };
            for (node, place, cell) in profile.tree.placed_cells(metric) {
                let (sum, count) = mark.value(metric, place);
                if self.passes(node) {
                    let box_sum = &mut before.exclusive[self.of_node[node.index()] as usize];
                    *box_sum = box_sum.saturating_add(sum);
                    self.counts.0 = self.counts.0.saturating_add(count);
                    self.counts.1 = self.counts.1.saturating_add(cell.count.saturating_sub(count));
                }
            }
            self.sum_below(&mut before);
            self.before = Some(before);
        }
    }

    /// Whether the values of a context count.
    #[inline]
    pub(crate) fn passes(&self, node: NodeId) -> bool {
        self.filter.as_ref().is_none_or(|filter| filter.passes(node))
    }

    fn take_frames(&mut self, profile: &Profile) {
        for (_, frame) in profile.frames.iter().skip(self.of_frame.len()) {
            let is_joined = self.probes_joined
                && matches!(frame, Frame::Kernel { symbol } if is_probe(profile.strings.get(symbol)));
            let shown = self.selection.shows(&frame).then(|| match is_joined {
                true => self.probes_label(),
                false => self.label_of(profile, &frame),
            });
            self.of_frame.push(shown);
            let group = self.selection.group(&frame).map(|frame| self.label_of(profile, &frame));
            self.groups.push(group);
            let part = match self.spinning_apart {
                true => SpinPart::of(&frame, &profile.strings),
                false => SpinPart::Other,
            };
            self.spin_parts.push(part);
            self.begins.push(match frame {
                Frame::Native { symbol, .. } => WorkerKind::of(profile.strings.get(symbol)),
                _ => None,
            });
            if matches!(frame, Frame::Operator { name } if profile.strings.get(name) == BACKWARD) {
                self.backward = shown.filter(|_| self.backward_apart);
            }
            if matches!(part, SpinPart::Spinning | SpinPart::UnnamedRuntime) && self.spinning.is_none() {
                let detail = "waits for other threads without giving up its CPU";
                self.spinning = Some(self.add_label(SPINNING, detail));
            }
        }
        if self.ranks.len() < self.labels.len() {
            self.rank_labels();
        }
    }

    fn rank_labels(&mut self) {
        let mut sorted: Vec<u32> = (0..self.labels.len() as u32).collect();
        sorted.sort_unstable_by_key(|&label| &self.labels[label as usize]);
        self.ranks.resize(sorted.len(), 0);
        for (rank, label) in (0..).zip(sorted) {
            self.ranks[label as usize] = rank;
        }
    }

    fn label_of(&mut self, profile: &Profile, frame: &Frame) -> LabelId {
        let lines = self.selection.lines;
        let mut label = BoxLabel {
            text: frame.label(&profile.strings, lines),
            kind: frame.kind(),
            detail: String::new(),
        };
        let detail = frame.detail(&profile.strings, lines);
        if self.identity == BoxIdentity::Location {
            label.detail = detail;
        } else {
            // Uses the kind of the first frame with this text: only colors depend on it.
            label.kind = FrameKind::Root;
            close_number(&mut label.text);
        }
        if let Some(&id) = self.label_ids.get(&label) {
            return id;
        }
        let id = LabelId::from_number(self.labels.len() as u32);
        self.labels.push(BoxLabel { kind: frame.kind(), ..label.clone() });
        let source = frame.source(lines).map(|(file, line)| {
            let text = self.files.entry(file).or_insert_with(|| profile.strings.get(file).into());
            (Arc::clone(text), line)
        });
        self.sources.push(source);
        self.processes.push(if let Frame::Process { pid, .. } = frame { *pid } else { 0 });
        self.label_ids.insert(label, id);
        id
    }

    /// Adds the label of a box that stands for no single frame.
    fn add_label(&mut self, text: &str, detail: &str) -> LabelId {
        let label = BoxLabel { text: text.to_owned(), kind: FrameKind::Kernel, detail: detail.to_owned() };
        let id = LabelId::from_number(self.labels.len() as u32);
        self.labels.push(label.clone());
        self.sources.push(None);
        self.processes.push(0);
        self.label_ids.insert(label, id);
        id
    }

    fn probes_label(&mut self) -> LabelId {
        if let Some(label) = self.probes {
            return label;
        }
        let label = self.add_label(PROBES, "kernel code of probes: the cost of profiling");
        self.probes = Some(label);
        label
    }

    /// Whether a frame is part of the box of probes above it: kernel code is, a wait or work on a device is not.
    fn is_within_probes(&self, profile: &Profile, parent: u32, frame: FrameId) -> bool {
        self.probes == Some(self.shape.key(parent))
            && matches!(profile.frames.get(frame), Frame::Kernel { .. } | Frame::KernelUnnamed { .. })
    }

    /// Where a frame stands that begins or ends a wait for nobody: in the box for these, below the process or thread of
    /// `parent`, or where it would stand without that box.
    fn apart(&mut self, profile: &Profile, caller: NodeId, parent: u32, state: SpinState) -> Option<u32> {
        let label = self.spinning?;
        match (self.spin_states[caller.index()].is_apart(), state.is_apart()) {
            (false, true) => {
                let mut outer = parent;
                while outer != 0 && !is_target(self.label(outer).kind) {
                    outer = self.shape.parent(outer);
                }
                Some(self.child(outer, label))
            }
            // Only workers get work, and above it they have no frames that have other places.
            (true, false) => {
                let mut labels = Vec::new();
                let mut at = caller;
                while at != NodeId::ROOT {
                    let node = profile.tree.node(at);
                    labels.extend(self.of_frame.get(node.frame.index()).copied().flatten());
                    at = node.parent;
                }
                Some(labels.into_iter().rev().fold(0, |parent, label| self.child(parent, label)))
            }
            _ => None,
        }
    }

    fn take_nodes(&mut self, profile: &Profile) {
        let tree = &profile.tree;
        for number in self.of_node.len()..tree.len() {
            let node = tree.node(NodeId::from_number(number as u32));
            let parent = self.of_node[node.parent.index()];
            let of = |labels: &[Option<LabelId>]| labels.get(node.frame.index()).copied().flatten();
            let part = self.spin_parts.get(node.frame.index()).copied().unwrap_or(SpinPart::Caller);
            let state = self.spin_states[node.parent.index()].then(part);
            let parent = self.apart(profile, node.parent, parent, state).unwrap_or(parent);
            self.spin_states.push(state);
            let place = match (of(&self.groups), of(&self.of_frame)) {
                (Some(group), _) => self.insert(parent, group, |kinds| below_process(kinds.iter().copied())),
                (None, Some(_)) if self.is_within_probes(profile, parent, node.frame) => parent,
                (None, Some(label)) if self.backward == Some(label) => self.backward_box(parent, label),
                (None, Some(label)) => self.child(parent, label),
                (None, None) => parent,
            };
            self.of_node.push(place);
            let begins = self.begins.get(node.frame.index()).copied().flatten();
            self.worker_of_node.push(begins.or(self.worker_of_node[node.parent.index()]));
        }
    }

    /// The box of an operator's backward pass: that of the operator in the backward half. Anything nested in a backward
    /// pass already stays there.
    fn backward_box(&mut self, operator: u32, label: LabelId) -> u32 {
        let mut above = operator;
        while above != 0 && self.shape.key(above) != label {
            above = self.shape.parent(above);
        }
        if above != 0 {
            return self.child(operator, label);
        }
        self.insert(operator, label, |kinds| kinds.iter().take_while(|kind| is_target(**kind)).count())
    }

    /// The box of the same stack with one more label, at the place determined by the kinds of the others, such as a
    /// device below its process.
    fn insert(&mut self, node: u32, label: LabelId, place: impl Fn(&[FrameKind]) -> usize) -> u32 {
        let mut labels = Vec::new();
        let mut at = node;
        while at != 0 {
            labels.push(self.shape.key(at));
            at = self.shape.parent(at);
        }
        labels.reverse();
        let kinds: Vec<FrameKind> = labels.iter().map(|label| self.labels[label.index()].kind).collect();
        labels.insert(place(&kinds), label);
        labels.into_iter().fold(0, |parent, label| self.child(parent, label))
    }

    fn child(&mut self, parent: u32, label: LabelId) -> u32 {
        if self.fold_recursion
            && let Some(node) = self.begin_of_cycle(parent, label)
        {
            return node;
        }
        if let Some(node) = self.shape.find(parent, label) {
            return node;
        }
        let mut above = parent;
        while above != 0 && self.shape.key(above) != label {
            above = self.shape.parent(above);
        }
        self.recursive.push(above != 0);
        let pid = self.processes[label.index()];
        self.pids.push(if pid != 0 { pid } else { self.pids[parent as usize] });
        self.shape.insert(parent, label)
    }

    /// The node to return to if a call of `label` makes the last boxes repeat those before them: in `a b c b` a call of
    /// `c` leads back to the first `c`.
    fn begin_of_cycle(&self, parent: u32, label: LabelId) -> Option<u32> {
        if self.labels[label.index()].kind == FrameKind::Unresolved {
            return None;
        }
        // The boxes upwards from the caller; the root ends them.
        let mut up = [0u32; 2 * CYCLE_MAX];
        let mut known = 0;
        let mut at = parent;
        while at != 0 && known < up.len() {
            up[known] = at;
            known += 1;
            at = self.shape.parent(at);
        }
        let key = |place: usize| self.shape.key(up[place]);
        (1..=CYCLE_MAX)
            .take_while(|length| 2 * length - 1 <= known)
            .find(|&length| {
                key(length - 1) == label && (0..length - 1).all(|place| key(place) == key(place + length))
            })
            .map(|length| up[length - 1])
    }

    /// Every label so far.
    pub fn labels(&self) -> &[BoxLabel] {
        &self.labels
    }

    /// The label of a box.
    pub fn label(&self, node: u32) -> &BoxLabel {
        &self.labels[self.shape.key(node).index()]
    }

    /// Number of a box's label.
    pub fn label_id(&self, node: u32) -> LabelId {
        self.shape.key(node)
    }

    /// A label by its number.
    pub fn label_of_id(&self, label: LabelId) -> &BoxLabel {
        &self.labels[label.index()]
    }

    /// Rank of a label among all sorted ones.
    pub fn rank(&self, label: LabelId) -> u32 {
        self.ranks[label.index()]
    }

    /// File and line of a label.
    pub fn source(&self, label: LabelId) -> Option<&(Arc<str>, u32)> {
        self.sources[label.index()].as_ref()
    }

    /// The caller of a box; 0, the root, for boxes without one.
    pub fn parent(&self, node: u32) -> u32 {
        self.shape.parent(node)
    }

    /// Value of everything shown.
    pub fn total(&self) -> u64 {
        self.inclusive.first().copied().unwrap_or(0)
    }

    /// With a mark: value of everything before it.
    pub(super) fn total_before(&self) -> u64 {
        self.before.as_ref().and_then(|before| before.inclusive.first()).copied().unwrap_or(0)
    }

    /// What is shown.
    pub fn selection(&self) -> &Selection {
        &self.selection
    }

    /// The process that a box belongs to; 0 when it is in none.
    pub fn pid(&self, node: u32) -> u32 {
        self.pids[node as usize]
    }

    /// Nodes whose inclusive value is at least `least` (and not zero), depth first, siblings sorted by label. Each
    /// comes with its depth; the root is first, at depth 0, whatever its value.
    pub fn walk(&self, least: u64) -> Vec<(u32, u32)> {
        let least = least.max(1);
        // Children of each node, one list after the other.
        let mut ends = vec![0u32; self.shape.len() + 1];
        let kept = || (1..self.shape.len() as u32).filter(|&node| self.inclusive[node as usize] >= least);
        for node in kept() {
            ends[self.shape.parent(node) as usize + 1] += 1;
        }
        for at in 1..ends.len() {
            ends[at] += ends[at - 1];
        }
        let starts = ends.clone();
        let mut children = vec![0u32; ends[ends.len() - 1] as usize];
        for node in kept() {
            let end = &mut ends[self.shape.parent(node) as usize];
            children[*end as usize] = node;
            *end += 1;
        }
        let mut order = Vec::with_capacity(children.len() + 1);
        let mut to_visit = vec![(0u32, 0u32)];
        while let Some((node, depth)) = to_visit.pop() {
            order.push((node, depth));
            let list = &mut children[starts[node as usize] as usize..ends[node as usize] as usize];
            list.sort_unstable_by_key(|&child| std::cmp::Reverse(self.ranks[self.shape.key(child).index()]));
            to_visit.extend(list.iter().map(|&child| (child, depth + 1)));
        }
        order
    }

    /// The nodes with the highest exclusive values, with the labels from the root (excluded) to them. Equal values are
    /// sorted by text.
    pub fn hottest(&self, most: usize) -> Vec<(u64, Vec<&BoxLabel>)> {
        let mut nodes: Vec<u32> =
            (0u32..).zip(&self.exclusive).filter(|(_, v)| **v > 0).map(|(n, _)| n).collect();
        let value = |node: &u32| self.exclusive[*node as usize];
        if nodes.len() > most {
            // Keeps all values equal to the last one, so that their texts decide which of them stay.
            let mut values: Vec<u64> = nodes.iter().map(value).collect();
            let least = match most.checked_sub(1) {
                Some(last) => *values.select_nth_unstable_by(last, |a, b| b.cmp(a)).1,
                None => return Vec::new(),
            };
            nodes.retain(|node| value(node) >= least);
        }
        let mut hottest: Vec<_> = nodes.iter().map(|node| (value(node), self.path(*node))).collect();
        hottest.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        hottest.truncate(most);
        hottest
    }

    /// Number of nodes with an exclusive value: the candidates of [`MergedTree::hottest`].
    pub fn nodes_with_own_value(&self) -> usize {
        self.exclusive.iter().filter(|value| **value > 0).count()
    }

    fn path(&self, mut node: u32) -> Vec<&BoxLabel> {
        let mut texts = Vec::new();
        while node != 0 {
            texts.push(self.label(node));
            node = self.shape.parent(node);
        }
        texts.reverse();
        texts
    }

    /// By label: exclusive value, and inclusive value counted once per stack.
    pub fn totals(&self) -> Vec<(u64, u64)> {
        self.totals_of(&self.exclusive, &self.inclusive)
    }

    /// Like [`MergedTree::totals`], for other values.
    pub(crate) fn totals_of(&self, exclusive: &[u64], inclusive: &[u64]) -> Vec<(u64, u64)> {
        let mut totals = vec![(0u64, 0u64); self.labels.len()];
        for node in 0..exclusive.len() {
            let (own, all) = &mut totals[self.shape.key(node as u32).index()];
            *own = own.saturating_add(exclusive[node]);
            if !self.recursive[node] {
                *all = all.saturating_add(inclusive[node]);
            }
        }
        totals
    }

    /// The value of all boxes of probes, however small, counted once per stack.
    pub(crate) fn probes(&self) -> u64 {
        let Some(label) = self.probes else { return 0 };
        let boxes = (0u32..).zip(&self.inclusive);
        let counted =
            boxes.filter(|(node, _)| self.shape.key(*node) == label && !self.recursive[*node as usize]);
        counted.fold(0u64, |sum, (_, value)| sum.saturating_add(*value))
    }
}

/// Whether a box is a process or a thread, which have no code of their own.
fn is_target(kind: FrameKind) -> bool {
    matches!(kind, FrameKind::Process | FrameKind::Thread)
}

/// Readers of folded lines read `name 12 34` as two values: joins a number at the end of a name to it.
fn close_number(text: &mut String) {
    if let Some((name, number)) = text.rsplit_once(' ')
        && number.bytes().all(|b| b.is_ascii_digit() || b == b'.')
    {
        *text = format!("{name}_{number}");
    }
}
