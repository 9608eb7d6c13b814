//! Walks with quick Python steps between full ones equal walks without them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod world;

use std::cell::Cell;

use deepctx_common::end::WalkEnd;
use deepctx_common::python::{CalledFunction, entry_rule};
use deepctx_common::unwind::Rule;
use deepctx_walk::interleave::{Tables, Walk, phase};
use deepctx_walk::memory::Memory;
use deepctx_walk::quick;
use deepctx_walk::short::state;
use proptest::prelude::*;
use world::*;

/// A world of which `near` selects, by address, the parts that were read ahead.
struct ReadAhead<'a> {
    world: &'a World,
    near: &'a [bool],
}

impl Memory for ReadAhead<'_> {
    fn read_words(&self, address: u64, words: &mut [u64]) -> bool {
        self.world.read_words(address, words)
    }

    fn peek_below(&self, address: u64, words: &mut [u64]) -> bool {
        self.near[(address / 16) as usize % self.near.len()] && self.read_words(address, words)
    }
}

impl Tables for ReadAhead<'_> {
    fn find_mapping(&self, walk: &mut Walk, pc: u64) -> Result<(), WalkEnd> {
        self.world.find_mapping(walk, pc)
    }

    fn find_rule(&self, walk: &mut Walk, svma: u64) -> Result<(), WalkEnd> {
        self.world.find_rule(walk, svma)
    }

    fn find_layout(&self, walk: &mut Walk) -> bool {
        self.world.find_layout(walk)
    }
}

/// Checks that both walks are equal; returns the number of quick steps.
fn quick_steps(world: &World, pc: u64, short: u32, near: &[bool], most: u32) -> u32 {
    let env = ReadAhead { world, near };
    let taken = Cell::new(0);
    let with = walk_in(&env, world, pc, true, short, |walk, words| {
        if walk.phase == phase::NATIVE {
            return;
        }
        for _ in 0..most {
            if !quick::python_step(walk, words, &env) {
                break;
            }
            taken.set(taken.get() + 1);
        }
    });
    assert_eq!(with, walk_as(world, pc, true, short));
    taken.get()
}

const LEAF: u64 = TEXT + 0x10;

#[test]
fn frames_within_an_evaluation_are_quick() {
    let stack = [TEXT + 0x110, TEXT + 0xf10];
    let frames = [(0x7000, 0), (0x7100, 0), (0x7200, 0), (0x7300, 1)];
    let real = with_python(world(&stack), entry_rule::LAST_REAL, 1, &frames);
    // Not the first frame, which begins the run, and not the last, which ends it.
    assert_eq!(quick_steps(&real, LEAF, state::WHOLE, &[true], 8), 2);
    assert_eq!(quick_steps(&real, LEAF, state::WHOLE, &[false], 8), 0);
    let hung = with_python(world(&stack), entry_rule::SENTINEL, 1, &frames);
    assert_eq!(quick_steps(&hung, LEAF, state::WHOLE, &[true], 8), 2);
    let each = with_python(world(&stack), entry_rule::ONE_PER_EVAL, 1, &frames);
    assert_eq!(quick_steps(&each, LEAF, state::WHOLE, &[true], 8), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]
    #[test]
    fn quick_steps_change_no_walk(
        stack in prop::collection::vec(prop_oneof![3 => TEXT..TEXT + 0x1000, 3 => Just(TEXT + 0x110), 1 => any::<u64>()], 0..20),
        rules in prop::collection::btree_map(TEXT..TEXT + 0x1000, arbitrary_rule(), 0..4),
        frames in prop::collection::vec(
            ((0u64..0x20).prop_map(|n| 0x7000 + 0x100 * n), prop_oneof![4 => Just(0), 2 => Just(1), 1 => any::<u8>()]),
            0..24,
        ),
        rule in 0u8..4,
        (cframes, owners, short) in any::<(bool, bool, bool)>(),
        called in prop_oneof![Just(0), Just(0x7100)],
        unreadable in prop::option::of(0x6000_0000u64..0x6000_0400),
        near in prop::collection::vec(any::<bool>(), 1..40),
        most in 1u32..16,
        pc in prop_oneof![Just(LEAF), TEXT..TEXT + 0x1000],
    ) {
        let mut made = world_from(pc, &stack);
        made = if cframes && made.evaluations.len() > 1 {
            with_cframes(made, &frames, None)
        } else {
            with_python(made, rule, 1, &frames)
        };
        made.rules.extend(rules.into_iter().map(|(at, rule)| (at, Rule { detail: 0, ..rule })));
        if owners {
            made.layout.frame_owner = 70;
        }
        made.called = CalledFunction { code: called, frame_locals: 80, object_type: 8 };
        if let Some(at) = unreadable {
            made.memory.remove(&(at & !7));
        }
        let short = if short { state::SHORT } else { state::WHOLE };
        quick_steps(&made, pc, short, &near, most);
    }
}
