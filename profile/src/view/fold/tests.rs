//! Trees as lines, and what is drawn of them.

use proptest::prelude::*;

use super::*;

/// A tree from lines: depth by indentation, then label and inclusive value; `p|` is Python, `l|` a layer, `#` a
/// process.
fn tree(lines: &str) -> FlameTree {
    let mut tree = FlameTree::default();
    let mut path: Vec<u32> = Vec::new();
    for line in lines.lines().filter(|line| !line.trim().is_empty()) {
        let depth = (line.len() - line.trim_start().len()) / 2;
        let (label, value) = line.trim().rsplit_once(' ').unwrap();
        let (kind, label) = match label.split_once('|') {
            _ if depth == 0 => (FrameKind::Root, label),
            Some(("p", label)) => (FrameKind::Python, label),
            Some(("l", label)) => (FrameKind::Layer, label),
            _ if label.starts_with('#') => (FrameKind::Process, label),
            _ => (FrameKind::Native, label),
        };
        path.truncate(depth);
        let place = tree.nodes.len() as u32;
        let parent = path.last().copied().unwrap_or(0);
        path.push(place);
        let inclusive = value.parse().unwrap();
        tree.nodes.push(FlameNode { label: label.into(), kind, inclusive, parent, ..FlameNode::default() });
        if place > 0 {
            tree.nodes[parent as usize].children.push(place);
        }
    }
    for index in 0..tree.nodes.len() {
        let below: u64 = tree.children(index as u32).map(|(_, child)| child.inclusive).sum();
        tree.nodes[index].exclusive = tree.nodes[index].inclusive.saturating_sub(below);
    }
    tree
}

fn show(tree: &FlameTree, node: u32, depth: usize, out: &mut String) {
    let FlameNode { label, inclusive, each, .. } = &tree.nodes[node as usize];
    let each = each.map_or_else(String::new, |(least, most)| format!(" ({least}–{most})"));
    *out += &format!("{:width$}{label} {inclusive}{each}\n", "", width = depth * 2);
    for (child, _) in tree.children(node) {
        show(tree, child, depth + 1, out);
    }
}

#[track_caller]
fn check_with(lines: &str, growth: Orientation, listed: u32, keep: &str, expect: &str) {
    let (tree, mut out) = (tree(lines), String::new());
    let kept = |node: &FlameNode| !keep.is_empty() && node.label.contains(keep);
    let folded = FoldedTree::of(&tree, Fold { growth, listed, ..Fold::default() }, kept);
    show(&folded.tree, 0, 0, &mut out);
    assert_eq!(out.trim_end(), expect.trim_matches('\n'));
    let own = |tree: &FlameTree| tree.nodes.iter().map(|node| node.exclusive).sum::<u64>();
    assert_eq!(own(&folded.tree), own(&tree));
}

#[track_caller]
fn check(lines: &str, expect: &str) {
    check_with(lines, Orientation::TopDown, 0, "", expect);
}

const TRUNK: &str = "
all 1000
  #python 1000
    outer 1000
      main 1000
        other 10
        inner 990
          p|t.py:<module> 988
            p|t.py:main 985
              step 500
              load 485";

#[test]
fn a_trunk_is_one_box_to_where_ways_part() {
    let expect = "
#python → … 5 frames: t.py:<module> → t.py:main 1000
  load 485
  other 10
  step 500";
    check(TRUNK, &expect.replace("  load 485\n  other 10\n  step 500", "  other 10\n  step 500\n  load 485"));
    let kept = "
#python → outer → main 1000
  other 10
  inner 990
    t.py:<module> → t.py:main 988
      step 500
      load 485";
    check_with(TRUNK, Orientation::TopDown, 0, "inner", kept);
    check("all 10\n  a 10\n    b 10\n      c 6\n      d 4", "a → b 10\n  c 6\n  d 4");
    check("all 10\n  a 6\n    b 6\n      c 6\n  d 4", "all 10\n  a → b → c 6\n  d 4");
    let branches = "all 100\n  a 97\n    b 94\n      c 91\n        d 88";
    check(branches, branches);
    let operators = "all 100\n  p|t.py:f 60\n    _PyEval 60\n      call 60\n        sgemm 60\n  g 40";
    check(operators, "all 100\n  … 4 frames: t.py:f → sgemm 60\n  g 40");
}

#[test]
fn no_row_repeats_the_share_above_it() {
    let layers = "
all 1000
  #python 1000
    p|t.py:<module> 1000
      p|t.py:train 990
        l|net 600
          p|net.py:Net.forward 598
            l|net.fc 597
              p|linear.py:Linear.forward 596
                addmm 590
        p|t.py:load 300
          read 298";
    let expect = "
#python → t.py:<module> → t.py:train 1000
  … 5 frames: net.fc → linear.py:Linear.forward → addmm 600
  t.py:load → read 300";
    check(layers, expect);
    let folded = FoldedTree::of(&tree(layers), Fold::default(), |_| false);
    for node in folded.tree.nodes.iter().skip(1) {
        assert!(!is_same(node.inclusive, folded.tree.nodes[node.parent as usize].inclusive), "{node:?}");
    }
    let places: Vec<(FrameKind, bool)> =
        (0u32..).zip(&folded.tree.nodes).map(|(at, node)| (node.kind, folded.is_trunk(at))).collect();
    assert_eq!(places, [(FrameKind::Python, true), (FrameKind::Native, true), (FrameKind::Native, true)]);
    let unnamed = Fold { from_root: false, ..Fold::default() };
    let folded = FoldedTree::of(&tree(layers), unnamed, |_| false);
    assert_eq!(folded.tree.nodes[0].label, "all");
}

#[test]
fn wrappers_are_left_out_and_what_meets_is_one() {
    // The same code, from a complete stack and from one without its native beginning.
    let threads = "
all 100
  #python 100
    p|threading.py:Thread._bootstrap 10
      p|threading.py:Thread.run 10
        p|t.py:work 10
    clone3 90
      start_thread 90
        p|threading.py:Thread._bootstrap 89
          p|threading.py:Thread.run 89
            p|t.py:work 80
            p|t.py:rest 9";
    check(threads, "#python 100\n  t.py:rest 9\n  t.py:work 90");
    let layers = "
all 100
  p|t.py:Net.forward 100
    slot_tp_call 70
      p|module.py:Module._wrapped_call_impl 70
        p|module.py:Module._call_impl:1790 68
          p|t.py:Block.forward 60
          p|t.py:hook 4
    p|t.py:loss 30";
    check(layers, "t.py:Net.forward 100\n  t.py:Block.forward 60\n  t.py:hook 4\n  t.py:loss 30");
    let spends = "all 100\n  p|t.py:f 100\n    slot_tp_call 60\n      g 20\n    h 40";
    check(spends, "t.py:f 100\n  slot_tp_call 60\n    g 20\n  h 40");
    check_with(
        layers,
        Orientation::TopDown,
        0,
        "_impl",
        "
t.py:Net.forward 100
  module.py:Module._wrapped_call_impl 70
    module.py:Module._call_impl:1790 68
      t.py:Block.forward 60
      t.py:hook 4
  t.py:loss 30",
    );
}

const LAYERS: &str = "
all 100
  p|t.py:forward 100
    l|g.h.0 (Block) 40
      l|g.h.0.attn (Attention) 30
      l|g.h.0.mlp (MLP) 10
    l|g.h.1 (Block) 20
      l|g.h.1.attn (Attention) 15
    l|g.h.2 (Block) 30
      l|g.h.2.mlp (MLP) 30
    l|g.ln (LayerNorm) 10";

#[test]
fn siblings_that_differ_by_a_number_are_one_until_listed() {
    let joined = "
t.py:forward 100
  g.h.{0..2} (Block) ×3 90 (20–40)
    g.h.{0,1}.attn (Attention) ×2 45 (15–30)
    g.h.{0,2}.mlp (MLP) ×2 40 (10–30)
  g.ln (LayerNorm) 10";
    check(LAYERS, joined);
    let listed = "
t.py:forward 100
  g.h.0 (Block) 40
    g.h.0.attn (Attention) 30
    g.h.0.mlp (MLP) 10
  g.h.1 (Block) 20
    g.h.1.attn (Attention) 15
  g.h.2 (Block) → g.h.2.mlp (MLP) 30
  g.ln (LayerNorm) 10";
    check_with(LAYERS, Orientation::TopDown, 1, "", listed);
    let functions = "all 10\n  a.1 6\n  a.2 4";
    check(functions, functions);
}

#[test]
fn functions_stay_above_their_folded_callers() {
    let callers = "all 10\n  f 10\n    a 10\n      p|b.py 10\n        p|c.py 10\n          d 10";
    let expect = "all 10\n  f 10\n    … 4 frames: b.py → c.py 10";
    check_with(callers, Orientation::BottomUp, 0, "", expect);
    let wrapped = "all 10\n  slot_tp_call 4\n    g 4\n  f 6\n    slot_tp_call 6\n      g 4\n      h 2";
    let expect = "all 10\n  slot_tp_call 4\n    g 4\n  f 6\n    g 4\n    h 2";
    check_with(wrapped, Orientation::BottomUp, 0, "", expect);
}

#[test]
fn each_node_has_a_box_that_covers_it() {
    let folded = FoldedTree::of(&tree(TRUNK), Fold::default(), |_| false);
    let boxes: Vec<u32> = (0..10).map(|node| folded.box_of(node)).collect();
    assert_eq!(boxes, [0, 0, 0, 0, 1, 0, 0, 0, 2, 3]);
    assert_eq!((folded.first_of(0), folded.last_of(0), folded.first_of(1)), (0, 7, 4));
    let folded = FoldedTree::of(&tree(LAYERS), Fold::default(), |_| false);
    let boxes: Vec<u32> = (0..9).map(|node| folded.box_of(node)).collect();
    assert_eq!(boxes, [0, 0, 1, 2, 3, 1, 2, 1, 3]);
    assert_eq!((folded.joins(1), folded.joins(4), folded.first_of(2)), (true, false, 3));
}

proptest! {
    #[test]
    fn folding_keeps_every_value(nodes in prop::collection::vec((any::<u32>(), 0u64..50, 0usize..5), 1..60)) {
        let mut tree = FlameTree { nodes: vec![FlameNode::default()] };
        for (parent, value, label) in nodes {
            let (index, parent) = (tree.nodes.len() as u32, parent % tree.nodes.len() as u32);
            let (exclusive, inclusive) = (value, value);
            let (label, kind) = [
                ("slot_tp_call", FrameKind::Native), ("f", FrameKind::Native), ("g", FrameKind::Native),
                ("h.1", FrameKind::Layer), ("h.2", FrameKind::Layer),
            ][label];
            let label = label.to_owned();
            tree.nodes.push(FlameNode { label, kind, parent, exclusive, inclusive, ..FlameNode::default() });
            tree.nodes[parent as usize].children.push(index);
        }
        for index in (1..tree.nodes.len()).rev() {
            let FlameNode { parent, inclusive, .. } = tree.nodes[index];
            tree.nodes[parent as usize].inclusive += inclusive;
        }
        let own = |tree: &FlameTree| tree.nodes.iter().map(|node| node.exclusive).sum::<u64>();
        for growth in [Orientation::TopDown, Orientation::BottomUp] {
            let folded = FoldedTree::of(&tree, Fold { growth, ..Fold::default() }, |_| false);
            prop_assert_eq!(own(&folded.tree), own(&tree));
            for (place, node) in (0u32..).zip(&folded.tree.nodes) {
                let below: u64 = folded.tree.children(place).map(|(_, child)| child.inclusive).sum();
                prop_assert_eq!(node.inclusive, node.exclusive + below);
                prop_assert_eq!(folded.box_of(folded.first_of(place)), place);
                prop_assert_eq!(folded.box_of(folded.last_of(place)), place);
            }
        }
        prop_assert_eq!(FoldedTree::nothing(&tree).tree.nodes.len(), tree.nodes.len());
    }
}
