//! Testing: profiles for tests, from short texts and at random.
//!
//! Owns: [`profile`], [`grow`], and the strategies of property tests. Because: a test of a table or a format should
//! show its stacks in a line each. Does not: exist outside of tests and of the feature `testing`.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use proptest::prelude::*;

use crate::context::selection::{GroupBy, Selection, View};
use crate::intern::FrameId;
use crate::metric::Metric;
use crate::profile::Profile;
use crate::text;
use crate::view::snapshot::FlameTree;

/// A profile from lines of stacks; see [`text::parse`].
pub fn profile(lines: &str) -> Profile {
    text::parse(lines).unwrap()
}

pub fn show(flame: &FlameTree) -> String {
    let mut text = String::new();
    let mut to_write = vec![(0usize, 0u32)];
    while let Some((depth, at)) = to_write.pop() {
        let node = &flame.nodes[at as usize];
        let pad = " ".repeat(depth * 2);
        text += &format!(
            "{pad}{} {}/{} {:?} {}\n",
            node.label, node.exclusive, node.inclusive, node.kind, node.detail
        );
        to_write.extend(node.children.iter().rev().map(|&child| (depth + 1, child)));
    }
    text
}

pub fn stacks() -> impl Strategy<Value = Vec<(Vec<u8>, u64)>> {
    prop::collection::vec((prop::collection::vec(0u8..16, 0..10), 0u64..1000), 0..60)
}

pub fn grow(profile: &mut Profile, stacks: &[(Vec<u8>, u64)], metric: Metric) {
    const FRAMES: [&str; 16] = [
        "P a-1",
        "P b-2",
        "T a/1",
        "T b/2",
        "y m.py:f:1",
        "y m.py:f:2",
        "y n.py:f",
        "i eval",
        "n f",
        "n g h 5",
        "k f",
        "o f",
        "g f",
        "? f",
        "s 0/7",
        "s 1/7",
    ];
    for (stack, value) in stacks {
        let stack: Vec<FrameId> =
            stack.iter().map(|&n| text::parse_frame(profile, FRAMES[n as usize]).unwrap()).collect();
        profile.add(&stack, metric, *value);
    }
}

pub fn selections() -> impl Strategy<Value = Selection> {
    (0usize..3, any::<bool>(), 0usize..4, any::<bool>()).prop_map(|(view, lines, group_by, interpreter)| {
        Selection {
            view: View::ALL[view],
            lines,
            group_by: GroupBy::ALL[group_by],
            interpreter,
            ..Selection::of(Metric::CpuTime)
        }
    })
}
