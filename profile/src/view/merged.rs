//! A tree merged by what is shown.
//!
//! Owns: which frames are shown, which of them are the same box, and the values of boxes. Because: the calling
//! context tree tells lines, threads and languages apart that a reader wants joined. Does not: format anything.
//!
//! Profiles only grow, so a merged tree grows with its profile: each refresh looks at new frames and nodes only,
//! and sums up the values anew.

use rustc_hash::FxHashMap;

use super::{Filter, Selection};
use crate::frame::{Frame, FrameKind};
use crate::id::Id;
use crate::profile::Profile;
use crate::tree::{NodeId, Trie};

/// How boxes are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SameBy {
    /// By text alone: what text formats can express.
    Text,
    /// By text, kind and place: two functions of one name in two files are two boxes.
    Place,
}

/// What is written on a box.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Label {
    pub(crate) text: String,
    pub(crate) kind: FrameKind,
    pub(crate) detail: String,
}

type LabelId = Id<Label>;

const ROOT: LabelId = LabelId::from_number(0);

#[derive(Clone, Debug)]
pub(crate) struct Merged {
    selection: Selection,
    same_by: SameBy,
    labels: Vec<Label>,
    label_ids: FxHashMap<Label, LabelId>,
    /// By label: its place among all labels when sorted.
    ranks: Vec<u32>,
    /// By frame: its label, or none when it is not shown.
    of_frame: Vec<Option<LabelId>>,
    shape: Trie<Label>,
    /// By node of the shape: whether a box of the same label stands above it.
    recursive: Vec<bool>,
    /// By node of the calling context tree: where it went.
    of_node: Vec<u32>,
    /// By node of the shape.
    pub(crate) exclusive: Vec<u64>,
    /// By node of the shape.
    pub(crate) inclusive: Vec<u64>,
}

impl Merged {
    pub(crate) fn new(selection: Selection, same_by: SameBy) -> Self {
        let root = Label { text: "all".to_owned(), kind: FrameKind::Root, detail: String::new() };
        Merged {
            selection,
            same_by,
            label_ids: FxHashMap::from_iter([(root.clone(), ROOT)]),
            labels: vec![root],
            ranks: vec![0],
            of_frame: Vec::new(),
            shape: Trie::new(ROOT),
            recursive: vec![false],
            of_node: vec![0],
            exclusive: Vec::new(),
            inclusive: Vec::new(),
        }
    }

    /// Takes in what is new in the profile, which must be the same at each call, and sums up its values.
    ///
    /// With a filter, a stack counts only when one of its boxes passes.
    pub(crate) fn refresh(&mut self, profile: &Profile, filter: Option<Filter<'_>>) {
        self.take_frames(profile);
        self.take_nodes(profile);

        let passes = filter.map(|filter| self.passing(filter));
        self.exclusive.clear();
        self.exclusive.resize(self.shape.len(), 0);
        for (node, cell) in profile.tree.cells(self.selection.metric) {
            let place = self.of_node[node.index()] as usize;
            if passes.as_ref().is_none_or(|passes| passes[place]) {
                self.exclusive[place] = self.exclusive[place].saturating_add(cell.sum);
            }
        }
        self.inclusive.clone_from(&self.exclusive);
        for node in (1..self.shape.len()).rev() {
            let parent = self.shape.parent(node as u32) as usize;
            self.inclusive[parent] = self.inclusive[parent].saturating_add(self.inclusive[node]);
        }
    }

    fn take_frames(&mut self, profile: &Profile) {
        for (_, frame) in profile.frames.iter().skip(self.of_frame.len()) {
            let shown = self.selection.shows(&frame).then(|| self.label_of(profile, &frame));
            self.of_frame.push(shown);
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
        let mut label =
            Label { text: frame.label(&profile.strings, lines), kind: frame.kind(), detail: String::new() };
        let detail = frame.detail(&profile.strings, lines);
        if self.same_by == SameBy::Place {
            label.detail = detail;
        } else {
            // The kind of the first frame with this text: only colours depend on it.
            label.kind = FrameKind::Root;
            close_number(&mut label.text);
        }
        if let Some(&id) = self.label_ids.get(&label) {
            return id;
        }
        let id = LabelId::from_number(self.labels.len() as u32);
        self.labels.push(Label { kind: frame.kind(), ..label.clone() });
        self.label_ids.insert(label, id);
        id
    }

    fn take_nodes(&mut self, profile: &Profile) {
        let tree = &profile.tree;
        for number in self.of_node.len()..tree.len() {
            let node = tree.node(NodeId::from_number(number as u32));
            let parent = self.of_node[node.parent.index()];
            let place = match self.of_frame.get(node.frame.index()).copied().flatten() {
                None => parent,
                Some(label) => self.child(parent, label),
            };
            self.of_node.push(place);
        }
    }

    fn child(&mut self, parent: u32, label: LabelId) -> u32 {
        if let Some(node) = self.shape.find(parent, label) {
            return node;
        }
        let mut above = parent;
        while above != 0 && self.shape.key(above) != label {
            above = self.shape.parent(above);
        }
        self.recursive.push(above != 0);
        self.shape.insert(parent, label)
    }

    fn passing(&self, filter: Filter<'_>) -> Vec<bool> {
        let labels: Vec<bool> = self.labels.iter().map(|label| filter(&label.text, label.kind)).collect();
        let mut passes = vec![false; self.shape.len()];
        for node in 1..self.shape.len() {
            let parent = self.shape.parent(node as u32) as usize;
            passes[node] = passes[parent] || labels[self.shape.key(node as u32).index()];
        }
        passes
    }

    /// Every label met so far.
    pub(crate) fn labels(&self) -> &[Label] {
        &self.labels
    }

    pub(crate) fn label(&self, node: u32) -> &Label {
        &self.labels[self.shape.key(node).index()]
    }

    /// Nodes whose inclusive value is at least `least` (and not zero), depth first, siblings sorted by label. Each
    /// comes with its depth; the root is first, at depth 0, whatever its value.
    pub(crate) fn walk(&self, least: u64) -> Vec<(u32, u32)> {
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

    /// The nodes with the highest exclusive values, with the texts from the root (left out) to them. Equal values are
    /// in order of their texts.
    pub(crate) fn hottest(&self, most: usize) -> Vec<(u64, Vec<&str>)> {
        let mut nodes: Vec<u32> =
            (0u32..).zip(&self.exclusive).filter(|(_, v)| **v > 0).map(|(n, _)| n).collect();
        let value = |node: &u32| self.exclusive[*node as usize];
        if nodes.len() > most {
            // Keeps all that equal the last one, so that which of them stay is decided by their texts.
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

    fn path(&self, mut node: u32) -> Vec<&str> {
        let mut texts = Vec::new();
        while node != 0 {
            texts.push(self.label(node).text.as_str());
            node = self.shape.parent(node);
        }
        texts.reverse();
        texts
    }

    /// By label: exclusive value, and inclusive value counted once per stack.
    pub(crate) fn totals(&self) -> impl Iterator<Item = (&Label, u64, u64)> {
        let mut totals = vec![(0u64, 0u64); self.labels.len()];
        for node in 0..self.shape.len() {
            let (exclusive, inclusive) = &mut totals[self.shape.key(node as u32).index()];
            *exclusive = exclusive.saturating_add(self.exclusive[node]);
            if !self.recursive[node] {
                *inclusive = inclusive.saturating_add(self.inclusive[node]);
            }
        }
        self.labels.iter().zip(totals).map(|(label, (exclusive, inclusive))| (label, exclusive, inclusive))
    }
}

/// Readers of folded lines take `name 12 34` for two values: a number that ends a name is tied to it.
fn close_number(text: &mut String) {
    if let Some((name, number)) = text.rsplit_once(' ')
        && number.bytes().all(|b| b.is_ascii_digit() || b == b'.')
    {
        *text = format!("{name}_{number}");
    }
}
