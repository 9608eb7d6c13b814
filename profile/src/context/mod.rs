//! Contexts: the calling contexts of a profile that a [`Selection`] leaves.
//!
//! Owns: [`Contexts`]. Because: every export and report must fold the same frames away, and folding must never lose a
//! value. Does not: decide which frames a selection shows; see [`crate::context::selection`].

pub mod phase;
pub mod selection;

use crate::context::selection::{Selection, below_process};
use crate::frame::Frame;
use crate::intern::{FrameId, Frames, Strings};
use crate::metric::Metric;
use crate::profile::Profile;
use crate::tree::{NodeId, Tree};

/// A profile's calling contexts as a selection shows them, with the figures of every metric.
#[derive(Clone, Debug)]
pub struct Contexts<'p> {
    /// The profile's texts.
    pub strings: &'p Strings,
    /// The shown frames. Their handles are not the profile's.
    pub frames: Frames,
    /// Contexts of those frames.
    pub tree: Tree,
}

impl<'p> Contexts<'p> {
    /// The contexts of `profile` as `selection` shows them; its metric is ignored.
    pub fn of(profile: &'p Profile, selection: &Selection) -> Self {
        // No frame or context is split in two, so everything fits that fitted before. Exceptions are contexts that move
        // below their devices, and a profile has some dozens of streams.
        let mut frames = Frames::new(profile.frames.len().saturating_mul(2));
        let mut tree = Tree::new(usize::MAX);
        let shown: Vec<Option<FrameId>> = profile
            .frames
            .iter()
            .map(|(_, frame)| selection.shown(&frame).map(|frame| frames.intern(frame)))
            .collect();
        let groups: Vec<Option<FrameId>> = profile
            .frames
            .iter()
            .map(|(_, frame)| selection.group(&frame).map(|frame| frames.intern(frame)))
            .collect();
        let mut place: Vec<NodeId> = Vec::with_capacity(profile.tree.len());
        place.push(NodeId::ROOT);
        for node in profile.tree.nodes().skip(1) {
            let parent = place[node.parent.index()];
            // A handle of another table is treated as a refused frame.
            let frame = shown.get(node.frame.index()).copied().unwrap_or(Some(FrameId::TABLE_FULL));
            let group = groups.get(node.frame.index()).copied().flatten();
            place.push(match (group, frame) {
                (Some(group), _) => {
                    let mut stack = tree.stack(parent);
                    let kinds = stack.iter().map(|frame| frames.get(*frame).kind());
                    stack.insert(below_process(kinds), group);
                    tree.path(NodeId::ROOT, stack)
                }
                (None, Some(frame)) => tree.child(parent, frame),
                (None, None) => parent,
            });
        }
        for &metric in Metric::ALL {
            for (node, cell) in profile.tree.cells(metric) {
                tree.add_cell(place[node.index()], metric, &cell);
            }
        }
        Contexts { strings: &profile.strings, frames, tree }
    }

    /// Frames of a context, root first (the root of the tree itself left out).
    pub fn stack(&self, node: NodeId) -> Vec<Frame> {
        self.tree.stack(node).into_iter().map(|frame| self.frames.get(frame)).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::context::selection::{GroupBy, View};
    use crate::metric::Cell;
    use crate::profile::{Limits, Meta};
    use crate::testing::{grow, profile, selections, stacks};

    /// Python calls native code that calls Python that calls native code.
    const CALLBACK: &str = "P python3-7 / T python3/7 / n _start / i eval / y main.py:main:9 / n call_ufunc \
         / i eval / y main.py:add:4 / n memmove / k page_fault 5";

    fn check(selection: Selection, expect: &str) {
        let profile = profile(CALLBACK);
        let contexts = Contexts::of(&profile, &selection);
        let (node, _) = contexts.tree.cells(Metric::CpuTime).next().unwrap();
        let label = |frame: Frame| frame.label(contexts.strings, true);
        let labels: Vec<String> = contexts.stack(node).into_iter().map(label).collect();
        assert_eq!(labels.join(" "), expect);
    }

    #[test]
    fn views_fold_hidden_frames_and_keep_the_order() {
        let cpu = Selection::of(Metric::CpuTime);
        check(cpu, "python3-7 _start main.py:main call_ufunc main.py:add memmove page_fault_[k]");
        check(Selection { view: View::Python, ..cpu }, "python3-7 main.py:main main.py:add");
        check(
            Selection { view: View::Native, ..cpu },
            "python3-7 _start eval call_ufunc eval memmove page_fault_[k]",
        );
        check(
            Selection { interpreter: true, lines: true, group_by: GroupBy::Thread, ..cpu },
            "python3-7 python3/7 _start eval main.py:main:9 call_ufunc eval main.py:add:4 memmove page_fault_[k]",
        );
    }

    #[test]
    fn refused_contexts_show_in_every_view() {
        let mut full = Profile::new(Meta::default(), Limits { nodes: 1, ..Limits::default() });
        full.add(&[FrameId::TABLE_FULL], Metric::Samples, 3);
        for &view in View::ALL {
            let contexts = Contexts::of(&full, &Selection { view, ..Selection::of(Metric::Samples) });
            assert_eq!(contexts.tree.len(), 2);
            assert_eq!(contexts.tree.total(Metric::Samples).sum, 3);
        }
    }

    proptest! {
        #[test]
        fn totals_of_every_metric_are_the_same_in_every_view(
            time in stacks(),
            bytes in stacks(),
            selection in selections(),
        ) {
            let mut profile = profile("");
            grow(&mut profile, &time, Metric::CpuTime);
            grow(&mut profile, &bytes, Metric::AllocBytes);
            let contexts = Contexts::of(&profile, &selection);
            for &metric in Metric::ALL {
                prop_assert_eq!(contexts.tree.total(metric), profile.tree.total(metric));
            }
            let streams = [GroupBy::Device, GroupBy::Stream].contains(&selection.group_by);
            prop_assert!(streams || contexts.tree.len() <= profile.tree.len());
            prop_assert_eq!((contexts.tree.refused(), contexts.frames.refused()), (0, 0));
        }

        #[test]
        fn transforming_stacks_or_trees_gives_the_same_tree(stacks in stacks(), selection in selections()) {
            let mut all = profile("");
            grow(&mut all, &stacks, Metric::CpuTime);
            let contexts = Contexts::of(&all, &selection);

            let mut one_by_one = Profile::new(Meta::default(), Limits::default());
            one_by_one.strings = all.strings.clone();
            for (node, cell) in all.tree.cells(Metric::CpuTime) {
                let stack = all.tree.stack(node).into_iter().map(|frame| all.frames.get(frame));
                let stack: Vec<FrameId> =
                    selection.stack(stack).map(|frame| one_by_one.frames.intern(frame)).collect();
                let node = one_by_one.tree.path(NodeId::ROOT, stack);
                one_by_one.tree.add_cell(node, Metric::CpuTime, &cell);
            }
            let contents = |frames: &Frames, tree: &Tree| {
                let frames = |node| tree.stack(node).into_iter().map(|id| frames.get(id)).collect::<Vec<_>>();
                let cells = tree.cells(Metric::CpuTime).map(|(node, cell)| (frames(node), cell));
                let mut all: Vec<(String, Cell)> = cells.map(|(f, cell)| (format!("{f:?}"), cell)).collect();
                all.sort_by(|a, b| a.0.cmp(&b.0));
                all
            };
            prop_assert_eq!(
                contents(&contexts.frames, &contexts.tree),
                contents(&one_by_one.frames, &one_by_one.tree)
            );
        }
    }
}
