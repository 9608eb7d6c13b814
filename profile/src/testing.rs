//! Testing: profiles for tests, from short texts and at random.
//!
//! Owns: [`profile`], [`grow`], and the strategies of property tests. Because: a test of a table or a format should show its stacks
//! in a line each. Does not: exist outside of tests and of the feature `testing`.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::num::NonZeroU32;

use proptest::prelude::*;

use crate::frame::{Frame, Origin, Role};
use crate::intern::{FrameId, StrId};
use crate::metric::Metric;
use crate::profile::{Limits, Meta, Profile};
use crate::selection::{GroupBy, Selection, View};
use crate::snapshot::FlameTree;

/// A profile from lines like `P python3-7 / T main/7 / y a.py:f:12 / n add@libm.so 30`: one letter for the kind of
/// frame, its text, and a value of `cpu-time` at the end.
pub fn profile(lines: &str) -> Profile {
    let meta = Meta { target: "python train.py (pid 7)".to_owned(), frequency_hz: 99, ..Meta::default() };
    let mut profile = Profile::new(meta, Limits::default());
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (path, value) = line.rsplit_once(' ').unwrap();
        let stack: Vec<FrameId> = path
            .split(" / ")
            .map(|part| {
                let frame = frame(&mut profile, part);
                profile.frame(frame)
            })
            .collect();
        profile.add(&stack, Metric::CpuTime, value.parse().unwrap());
    }
    profile
}

fn frame(profile: &mut Profile, part: &str) -> Frame {
    let (kind, text) = part.trim().split_once(' ').unwrap();
    let number = |text: &str| text.parse().unwrap();
    let (name, module) = text.split_once('@').unwrap_or((text, ""));
    let (name, module) = (profile.text(name), profile.text(module));
    match kind {
        "P" => {
            let (comm, pid) = text.rsplit_once('-').unwrap();
            Frame::Process { comm: profile.text(comm), pid: number(pid) }
        }
        "T" => {
            let (name, tid) = text.rsplit_once('/').unwrap();
            Frame::Thread { name: profile.text(name), tid: number(tid) }
        }
        "y" => {
            let mut parts = text.split(':');
            let file = profile.text(parts.next().unwrap());
            let function = profile.text(parts.next().unwrap());
            let line = parts.next().and_then(|line| NonZeroU32::new(number(line)));
            Frame::Python { function, file, line, first_line: NonZeroU32::new(1), role: Role::Code }
        }
        "n" | "i" => {
            let role = if kind == "i" { Role::Interpreter } else { Role::Code };
            Frame::Native { symbol: name, module, file: StrId::EMPTY, line: None, inlined: false, role }
        }
        "k" => Frame::Kernel { symbol: name },
        "o" => Frame::Operator { name },
        "r" => Frame::Range { name },
        "a" => Frame::GpuApi { name },
        "s" => {
            let (device, stream) = text.split_once('/').unwrap();
            Frame::Stream { device: number(device), stream: Some(number(stream)), name: StrId::EMPTY }
        }
        "g" => Frame::GpuKernel { name },
        "?" => Frame::Unresolved { reason: name, origin: Origin::Native },
        other => panic!("no kind of frame `{other}`"),
    }
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
        let stack: Vec<FrameId> = stack
            .iter()
            .map(|&n| {
                let frame = frame(profile, FRAMES[n as usize]);
                profile.frame(frame)
            })
            .collect();
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
