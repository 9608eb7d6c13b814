//! Stack filter: which contexts match a pattern.
//!
//! Owns: matching a pattern against whole stacks, and [`only`]. Because: the pattern may match a frame that the view
//! does not show: a thread, a native function between Python frames, the line of a loop. A frame matches by its text
//! with the line or without it, whichever the view shows. Does not: sum values.
//!
//! Profiles only grow, so earlier matches stay valid, and a refresh matches only new frames.

use crate::device::activity::{Activities, Activity};
use crate::device::gpu::Gpu;
use crate::frame::Frame;
use crate::metric::Metric;
use crate::profile::{Limits, Meta, Profile};
use crate::step_times::StepTimes;
use crate::tree::{NodeId, Tree};
use crate::view::request::Pattern;

/// A pattern with its matches in one growing profile.
#[derive(Clone, Debug)]
pub(crate) struct StackFilter {
    pattern: Pattern,
    /// By frame: whether its text matches.
    frames: Vec<bool>,
    /// By node of the tree: whether it, or a caller of it, matches.
    nodes: Vec<bool>,
}

impl StackFilter {
    /// A filter without matches so far.
    pub(crate) fn new(pattern: &Pattern) -> Self {
        StackFilter { pattern: pattern.clone(), frames: Vec::new(), nodes: Vec::new() }
    }

    /// Whether it has this pattern.
    pub(crate) fn is_of(&self, pattern: &Pattern) -> bool {
        self.pattern == *pattern
    }

    /// Matches new content of the profile.
    pub(crate) fn refresh(&mut self, profile: &Profile) {
        let mut text = String::new();
        for (_, frame) in profile.frames.iter().skip(self.frames.len()) {
            let mut matches = |lines| {
                text.clear();
                frame.write_label(&profile.strings, lines, &mut text);
                self.pattern.matches(&text)
            };
            self.frames.push(frame != Frame::Root && (matches(false) || matches(true)));
        }
        for number in self.nodes.len()..profile.tree.len() {
            let node = profile.tree.node(NodeId::from_number(number as u32));
            let above = self.nodes.get(node.parent.index()).copied().unwrap_or(false);
            self.nodes.push(above || self.frames.get(node.frame.index()).copied().unwrap_or(false));
        }
    }

    /// Whether the values of a context count.
    #[inline]
    pub(crate) fn passes(&self, node: NodeId) -> bool {
        self.nodes.get(node.index()).copied().unwrap_or(false) != self.pattern.is_inverted()
    }
}

/// A profile with only the contexts that match a pattern. It has no timeline: that is by thread and has no stacks.
pub fn only(profile: &Profile, pattern: &Pattern) -> Profile {
    let mut filter = StackFilter::new(pattern);
    filter.refresh(profile);
    only_contexts(profile, |node| filter.passes(node))
}

/// A profile with only the contexts that pass, and their callers. It has no timeline, as with [`only`].
pub fn only_contexts(profile: &Profile, passes: impl Fn(NodeId) -> bool) -> Profile {
    let mut tree = Tree::new(profile.tree.len());
    let mut places = vec![None; profile.tree.len()];
    places[0] = Some(NodeId::ROOT);
    for &metric in Metric::ALL {
        for (node, cell) in profile.tree.cells(metric).filter(|(node, _)| passes(*node)) {
            let place = place(&profile.tree, &mut tree, &mut places, node);
            tree.add_cell(place, metric, &cell);
        }
    }
    let mut gpu = Gpu::default();
    gpu.processes.clone_from(&profile.gpu.processes);
    gpu.activities = Activities::new(profile.gpu.activities.iter().len());
    for activity in profile.gpu.activities.iter().filter(|activity| passes(activity.node)) {
        let node = place(&profile.tree, &mut tree, &mut places, activity.node);
        gpu.activities.push(Activity { node, ..*activity });
    }
    for (node, shape) in profile.gpu.shapes().filter(|(node, _)| passes(*node)) {
        let node = place(&profile.tree, &mut tree, &mut places, node);
        gpu.add_shape(node, shape);
    }
    gpu.activities.leave_out(profile.gpu.activities.left_out());
    let mut step_times = StepTimes::default();
    step_times.merge(&profile.step_times, |node| {
        passes(node).then(|| place(&profile.tree, &mut tree, &mut places, node))
    });
    Profile {
        meta: profile.meta.clone(),
        executables: profile.executables.clone(),
        strings: profile.strings.clone(),
        frames: profile.frames.clone(),
        tree,
        step_times,
        producers: profile.producers.clone(),
        gpu,
        ledger: profile.ledger.clone(),
        ..Profile::new(Meta::default(), Limits::default())
    }
}

/// The node of `to` that corresponds to `node`, created with its callers if needed.
fn place(from: &Tree, to: &mut Tree, places: &mut [Option<NodeId>], node: NodeId) -> NodeId {
    let mut missing = Vec::new();
    let mut at = node;
    let mut place = loop {
        match places[at.index()] {
            Some(place) => break place,
            None => missing.push(at),
        }
        at = from.node(at).parent;
    };
    for node in missing.into_iter().rev() {
        place = to.child(place, from.node(node).frame);
        places[node.index()] = Some(place);
    }
    place
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::step_times::Bounds;
    use crate::testing::{grow, profile, stacks};
    use crate::text;
    use crate::units::Nanos;
    use crate::view::{Request, Resolution, Selection, View, Viewer};

    #[test]
    fn a_hidden_frame_is_matched() {
        let profile = profile(
            "P a-1 / T loader/2 / i eval / y m.py:f:3 / n call_ufunc / y m.py:g 10
             P a-1 / T main/1 / i eval / y m.py:f:4 / y m.py:g 1",
        );
        let check = |pattern: &str, lines, expect| {
            let pattern = Pattern::new(pattern).unwrap();
            let selection = Selection { view: View::Python, lines, ..Selection::of(Metric::CpuTime) };
            let request = Request { filter: Some(pattern.clone()), ..Request::select(selection) };
            let snapshot =
                Viewer::new().snapshot(&profile, &request, Default::default(), Resolution::default());
            assert_eq!(snapshot.flame.nodes[0].inclusive, expect, "{pattern:?}");
            assert_eq!(only(&profile, &pattern).tree.total(Metric::CpuTime).sum, expect);
        };
        check("loader", false, 10);
        check("ufunc", false, 10);
        check("!ufunc", false, 1);
        check("f:4$", true, 1);
        check("f:4$", false, 1);
        check("m.py:f$", false, 11);
        check("^all$", false, 0);
    }

    #[test]
    fn a_line_is_matched_with_its_number_or_without() {
        let profile = profile("y m.py:f:3 / n g 10");
        let check = |pattern: &str, expect| {
            let part = only(&profile, &Pattern::new(pattern).unwrap());
            assert_eq!(part.tree.metrics().next().is_some(), expect, "{pattern}");
        };
        check("m.py:f$", true);
        check("m.py:f:3$", true);
        check("!h", true);
        check("h", false);
        check("!g", false);
    }

    #[test]
    fn a_filtered_profile_keeps_matching_contexts_with_their_callers() {
        let left = only(&profile("n a / n b / n c 3\nn a / n d 4\nn e 5"), &Pattern::new("b").unwrap());
        assert_eq!(text::tree(&left), "all\n  a\n    b\n      c  cpu-time=3\n");
    }

    #[test]
    fn a_filtered_profile_keeps_the_times_of_its_steps() {
        let mut whole = profile("P a-1 / r step 1\nP b-2 / r step 1");
        whole.add_step(NodeId::from_number(2), Nanos(10));
        whole.add_step(NodeId::from_number(4), Nanos(20));
        let left = only(&whole, &Pattern::new("b-2").unwrap());
        let medians: Vec<_> = left
            .step_times
            .iter()
            .map(|(node, times)| times.percentile(50, &left.tree.exclusive(node, Metric::StepTime)))
            .collect();
        assert_eq!(medians, [Some(Bounds { least: Nanos(20), most: Nanos(20) })]);
    }

    proptest! {
        #[test]
        fn matching_and_other_stacks_add_up_to_the_whole(stacks in stacks()) {
            let mut profile = profile("");
            grow(&mut profile, &stacks, Metric::CpuTime);
            let part = |pattern| only(&profile, &Pattern::new(pattern).unwrap());
            let mut both = part("f");
            both.merge(&part("!f"));
            prop_assert_eq!(both.tree.total(Metric::CpuTime), profile.tree.total(Metric::CpuTime));
        }
    }
}
