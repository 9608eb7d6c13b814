use proptest::prelude::*;

use super::*;
use crate::frame::Frame;
use crate::profile::{Limits, Meta, Profile};
use crate::text;

fn frame(number: u32) -> FrameId {
    // Past the reserved frames.
    FrameId::from_number(3 + number)
}

#[test]
fn equal_stacks_share_their_nodes() {
    let mut tree = Tree::new(100);
    let one = tree.path(NodeId::ROOT, [frame(1), frame(2), frame(3)]);
    let two = tree.path(NodeId::ROOT, [frame(1), frame(4)]);
    assert_eq!(tree.path(NodeId::ROOT, [frame(1), frame(2), frame(3)]), one);
    assert_eq!(tree.path(NodeId::ROOT, [frame(1), frame(4)]), two);
    assert_eq!(tree.len(), 5);
    assert_eq!(tree.stack(one), [frame(1), frame(2), frame(3)]);
}

#[test]
fn a_frame_below_itself_is_another_context() {
    let mut tree = Tree::new(100);
    let node = tree.path(NodeId::ROOT, [frame(1), frame(1), frame(1)]);
    assert_eq!(tree.stack(node).len(), 3);
}

#[test]
fn a_root_frame_below_the_root_is_a_node() {
    let mut tree = Tree::new(100);
    let node = tree.child(NodeId::ROOT, FrameId::ROOT);
    assert_ne!(node, NodeId::ROOT);
    assert_eq!(tree.child(NodeId::ROOT, FrameId::ROOT), node);
}

#[test]
fn a_full_tree_keeps_every_value_below_a_labelled_node() {
    let mut profile = Profile::new(Meta::default(), Limits { nodes: 3, ..Limits::default() });
    let names: Vec<FrameId> = ["a", "b", "c", "d", "e"]
        .map(|name| {
            let name = profile.text(name);
            profile.frame(Frame::Operator { name })
        })
        .to_vec();
    let [a, b, c, d, e] = names[..] else { unreachable!() };
    profile.add(&[a, b], Metric::Samples, 1);
    profile.add(&[a, c, d], Metric::Samples, 1);
    profile.add(&[a, d, e], Metric::Samples, 1);
    profile.add(&[e], Metric::Samples, 1);
    profile.add(&[a, b], Metric::Samples, 1);
    expect_test::expect![[r#"
        all
          [tree full]  samples=1
          a
            [tree full]  samples=2/2[1..1]
            b  samples=2/2[1..1]
    "#]]
    .assert_eq(&text::tree(&profile));
    assert_eq!(profile.tree.refused(), 5);
    assert_eq!(profile.tree.total(Metric::Samples).sum, 5);
}

#[test]
fn handles_of_another_tree_never_panic() {
    let tree = Tree::new(10);
    let foreign = NodeId::from_number(1234);
    assert_eq!(tree.node(foreign).frame, FrameId::ROOT);
    assert_eq!(tree.exclusive(foreign, Metric::CpuTime), Cell::EMPTY);
}

/// A stack of few distinct frames, so that prefixes are shared, and a value.
fn adds() -> impl Strategy<Value = Vec<(Vec<u32>, u8, u64)>> {
    prop::collection::vec((prop::collection::vec(0u32..6, 0..12), 0u8..3, 0u64..1_000_000), 0..80)
}

fn grow(tree: &mut Tree, adds: &[(Vec<u32>, u8, u64)]) {
    for (stack, metric, value) in adds {
        let node = tree.path(NodeId::ROOT, stack.iter().map(|&n| frame(n)));
        tree.add(node, Metric::ALL[*metric as usize], *value);
    }
}

fn contents(tree: &Tree) -> Vec<(Metric, Vec<FrameId>, Cell)> {
    let mut all: Vec<_> = tree
        .metrics()
        .flat_map(|metric| tree.cells(metric).map(move |(node, cell)| (metric, tree.stack(node), cell)))
        .collect();
    all.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
    all
}

proptest! {
    #[test]
    fn totals_are_sums_of_added_values(adds in adds(), nodes_max in 1usize..60) {
        let mut tree = Tree::new(nodes_max);
        grow(&mut tree, &adds);
        for &metric in &Metric::ALL[..3] {
            let mut expect = Cell::EMPTY;
            for (_, m, value) in &adds {
                if Metric::ALL[*m as usize] == metric {
                    expect.add(*value);
                }
            }
            prop_assert_eq!(tree.total(metric), expect);
            prop_assert_eq!(tree.has(metric), expect.sum > 0);
            prop_assert_eq!(tree.inclusive(metric)[0], expect.sum);
        }
        prop_assert!(tree.len() <= 2 * nodes_max);
    }

    #[test]
    fn merging_two_trees_equals_growing_one(left in adds(), right in adds()) {
        let (mut a, mut b, mut both) = (Tree::new(10_000), Tree::new(10_000), Tree::new(10_000));
        grow(&mut a, &left);
        grow(&mut b, &right);
        grow(&mut both, &left);
        grow(&mut both, &right);
        a.merge(&b, |frame| frame);
        prop_assert_eq!(contents(&a), contents(&both));
    }
}
