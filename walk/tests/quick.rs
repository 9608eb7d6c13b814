//! A quick step gives the same result as a full step, or changes nothing.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use deepctx_common::end::WalkEnd;
use deepctx_common::python::{NO_PYTHON, PythonProcess};
use deepctx_common::unwind::{Executable, Mapping, Rule, ra_kind, rule_kind};
use deepctx_walk::interleave::{Flow, Tables, Walk, WordBuffer, native_step};
use deepctx_walk::memory::{Memory, Slice};
use deepctx_walk::quick;
use deepctx_walk::unwind_row::Registers;
use proptest::prelude::*;

const STACK: u64 = 0x7ffc_0000_0000;
const TEXT: u64 = 0x40_0000;

/// One rule for all code, and a stack that is read ahead as a whole.
struct World {
    stack: Vec<u8>,
    rule: Rule,
    at_hand: bool,
}

impl World {
    fn stack(&self) -> Slice<'_> {
        Slice { begin: STACK, bytes: &self.stack }
    }
}

impl Memory for World {
    fn read_words(&self, address: u64, words: &mut [u64]) -> bool {
        self.stack().read_words(address, words)
    }

    fn peek_stack(&self, address: u64) -> Option<u64> {
        self.stack().read_u64(address)
    }
}

impl Tables for World {
    fn find_mapping(&self, walk: &mut Walk, _pc: u64) -> Result<(), WalkEnd> {
        walk.mapping = mapping();
        walk.executable = Executable { pages: 1, ..Executable::default() };
        Ok(())
    }

    fn find_rule(&self, walk: &mut Walk, _svma: u64) -> Result<(), WalkEnd> {
        walk.rule = self.rule;
        Ok(())
    }

    fn next_rule(&self, walk: &mut Walk, _svma: u64) -> bool {
        if self.at_hand {
            walk.rule = self.rule;
        }
        self.at_hand
    }

    fn find_layout(&self, _walk: &mut Walk) -> bool {
        false
    }
}

fn mapping() -> Mapping {
    Mapping { begin: TEXT, end: TEXT + 0x1000, bias: 0x1000, executable: 1, flags: 0 }
}

fn walk(registers: Registers, eval: bool) -> Walk {
    // SAFETY: a walk is plain data; all zeros is a valid value.
    let mut walk: Walk = unsafe { std::mem::zeroed() };
    walk.registers = registers;
    walk.process.python =
        PythonProcess { layout: if eval { 0 } else { NO_PYTHON }, ..PythonProcess::default() };
    walk.process.python.eval[0] = [TEXT, TEXT + 0x10];
    walk.begin(0, 4);
    walk.mapping = mapping();
    walk.executable = Executable { pages: 1, ..Executable::default() };
    walk
}

/// State that a step may change.
fn state(walk: &Walk) -> (Registers, u32, u32, u32) {
    (walk.registers, walk.native_frames, walk.words, walk.phase)
}

fn registers() -> impl Strategy<Value = Registers> {
    let near = |base: u64, most: u64| (0..most).prop_map(move |n| base + n);
    let pc = prop_oneof![4 => near(TEXT, 0x40), 1 => Just(TEXT + 0x1000), 1 => any::<u64>()];
    let sp = (0u64..40).prop_map(|n| STACK + 8 * n);
    let bp = prop_oneof![3 => (0u64..48).prop_map(|n| STACK + 8 * n), 1 => any::<u64>()];
    (pc, sp, bp, 0u32..2, 0u32..2).prop_map(|(pc, sp, fp, exact, fp_known)| {
        let registers = Registers { pc, sp, exact, ..Registers::default() };
        #[cfg(target_arch = "aarch64")]
        return Registers { fp, fp_known, sp_known: 1, address_mask: u64::MAX >> 8, ..registers };
        #[cfg(target_arch = "x86_64")]
        return Registers { bp: fp, bp_known: fp_known, ..registers };
    })
}

fn rule() -> impl Strategy<Value = Rule> {
    let offset = prop_oneof![4 => (-4i32..20).prop_map(|n| 8 * n), 1 => any::<i32>()];
    let saved = prop_oneof![Just(-16), offset.clone()];
    let addend = prop_oneof![Just(-8), offset.clone()];
    (0u8..14, 0u8..5, 0u8..6, offset, saved, addend).prop_map(
        |(cfa, fp, ra, cfa_offset, fp_offset, addend)| Rule {
            cfa,
            fp,
            ra,
            cfa_offset,
            fp_offset,
            addend,
            ..Rule::default()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]
    #[test]
    fn a_quick_step_is_a_whole_step_or_none(
        registers in registers(),
        rule in rule(),
        stack in prop::collection::vec(prop_oneof![3 => Just(TEXT + 9), 1 => Just(0), 1 => any::<u64>()], 40),
        frames in 0u32..5,
        eval in any::<bool>(),
        at_hand in prop::bool::weighted(0.9),
    ) {
        let stack = stack.iter().flat_map(|word| word.to_le_bytes()).collect();
        let world = World { stack, rule, at_hand };
        let (mut quick, mut whole) = (walk(registers, eval), walk(registers, eval));
        (quick.native_frames, whole.native_frames) = (frames, frames);
        let (mut quick_words, mut whole_words) = ([0; 8], [0; 8]);
        let before = state(&quick);
        if quick::native_step(&mut quick, &mut WordBuffer(&mut quick_words), &world) {
            prop_assert!(at_hand);
            let flow = native_step(&mut whole, &mut WordBuffer(&mut whole_words), &world);
            prop_assert_eq!(flow, Flow::Continue);
            prop_assert_eq!(state(&quick), state(&whole));
            prop_assert_eq!(quick_words, whole_words);
        } else {
            prop_assert_eq!(state(&quick), before);
            prop_assert_eq!(quick_words, [0; 8]);
        }
    }
}

#[test]
fn an_ordinary_frame_is_quick() {
    #[cfg(target_arch = "aarch64")]
    let (ra, known) =
        (ra_kind::AT_CFA, Registers { sp_known: 1, address_mask: u64::MAX, ..Registers::default() });
    #[cfg(target_arch = "x86_64")]
    let (ra, known) = (ra_kind::X86_AT_CFA_MINUS_8, Registers::default());
    let rule = Rule { cfa: rule_kind::SP, cfa_offset: 8, ra, addend: -8, ..Rule::default() };
    let world = World { stack: (TEXT + 9).to_le_bytes().to_vec(), rule, at_hand: true };
    let mut walk = walk(Registers { pc: TEXT + 0x20, sp: STACK, ..known }, true);
    let mut words = [0; 8];
    assert!(quick::native_step(&mut walk, &mut WordBuffer(&mut words), &world));
    assert_eq!((walk.registers.pc, walk.registers.sp, walk.native_frames), (TEXT + 9, STACK + 8, 1));
    // The next frame is in the evaluation loop.
    assert!(!quick::native_step(&mut walk, &mut WordBuffer(&mut words), &world));
}
