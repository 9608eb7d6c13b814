//! Whole walks over a made-up process: native frames by rules, Python frames spliced in, every end labelled.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::collections::BTreeMap;

use deepctx_common::end::{PythonEnd, WalkEnd};
use deepctx_common::process::Process;
use deepctx_common::python::{
    NO_CFRAME, NO_FIELD, NO_PYTHON, PythonLayout, PythonProcess, entry_rule, instruction_kind, thread_state,
};
use deepctx_common::record::{USER_WORDS_MAX, word};
use deepctx_common::unwind::{Executable, Mapping, Rule, executable_flag, rule_kind};
use deepctx_walk::interleave::{Flow, STEPS_MAX, Tables, Walk, WordBuffer, native_step, phase, python_step};
use deepctx_walk::memory::Memory;
use deepctx_walk::unwind_row::Registers;
use proptest::prelude::*;

/// Memory as words, rules by address, one mapping.
#[derive(Clone, Debug, Default)]
struct World {
    memory: BTreeMap<u64, u64>,
    /// First address → rule in force from there on.
    rules: BTreeMap<u64, Rule>,
    text: (u64, u64),
    flags: u32,
    layout: PythonLayout,
}

impl Memory for World {
    fn read_words(&self, address: u64, words: &mut [u64]) -> bool {
        words.iter_mut().enumerate().all(|(i, word)| {
            let found = self.memory.get(&address.wrapping_add(8 * i as u64));
            *word = found.copied().unwrap_or(0);
            found.is_some()
        })
    }
}

impl Tables for World {
    fn find_mapping(&self, walk: &mut Walk, pc: u64) -> Result<(), WalkEnd> {
        if !(self.text.0..self.text.1).contains(&pc) {
            return Err(WalkEnd::NoMapping);
        }
        walk.mapping =
            Mapping { begin: self.text.0, end: self.text.1, bias: 0, executable: 1, flags: self.flags };
        walk.executable = Executable { pages: 1, ..Executable::default() };
        Ok(())
    }

    fn find_rule(&self, walk: &mut Walk, svma: u64) -> Result<(), WalkEnd> {
        let (_, rule) = self.rules.range(..=svma).next_back().ok_or(WalkEnd::NoRow)?;
        walk.rule = *rule;
        if rule.cfa == rule_kind::NONE { Err(WalkEnd::NoRow) } else { Ok(()) }
    }

    fn find_layout(&self, walk: &mut Walk) -> bool {
        walk.layout = self.layout;
        true
    }
}

const TEXT: u64 = 0x40_0000;
const STACK: u64 = 0x7ffc_0000_0000;
const THREAD: u64 = 0x7f00_0000_0000;
const STATE: u64 = 0x5000_0000;
const EVAL: [u64; 2] = [TEXT + 0x100, TEXT + 0x200];

/// Functions are 0x100 bytes; each pushes nothing, so every frame is one word. The last one is the thread's start.
fn world(returns: &[u64]) -> World {
    let mut world = World { text: (TEXT, TEXT + 0x1000), ..World::default() };
    world.rules.insert(TEXT, Rule { cfa: rule_kind::RSP, cfa_offset: 8, ..Rule::default() });
    world.rules.insert(TEXT + 0xf00, Rule { cfa: rule_kind::END, ..Rule::default() });
    for (i, pc) in returns.iter().enumerate() {
        world.memory.insert(STACK + 8 * i as u64, *pc);
    }
    world
}

/// An interpreter whose frames are 112 bytes apart: `frames` as (code object, entry mark).
fn with_python(mut world: World, rule: u8, value: u8, frames: &[(u64, u8)]) -> World {
    const FRAMES: u64 = 0x6000_0000;
    world.layout = PythonLayout {
        tstate_frame: 8,
        cframe_current_frame: NO_CFRAME,
        tstate_thread_id: 0,
        frame_code: 32,
        frame_previous: 48,
        frame_instruction: 56,
        frame_entry_mark: 68,
        code_argcount: 56,
        code_kwonlyargcount: 64,
        code_flags: 48,
        code_firstlineno: 72,
        code_bytecode: 184,
        frame_tlbc_index: NO_FIELD,
        code_tlbc: NO_FIELD,
        instruction_kind: instruction_kind::POINTER,
        entry_rule: rule,
        entry_value: value,
        code_tag_mask: 0,
    };
    world.memory.insert(THREAD + 0x10, STATE);
    world.memory.insert(STATE, THREAD);
    world.memory.insert(STATE + 8, if frames.is_empty() { 0 } else { FRAMES });
    for (i, (code, mark)) in frames.iter().enumerate() {
        let at = FRAMES + 112 * i as u64;
        for offset in (0..112).step_by(8) {
            world.memory.insert(at + offset, 0);
        }
        world.memory.insert(at + 32, *code);
        world.memory.insert(at + 48, if i + 1 < frames.len() { at + 112 } else { 0 });
        world.memory.insert(at + 56, code + 184 + 6);
        world.memory.insert(at + 64, u64::from(*mark) << 32);
        for offset in (0..88).step_by(8) {
            world.memory.insert(code + offset, 0);
        }
    }
    world
}

fn walk(world: &World, pc: u64, python: bool) -> (Vec<u64>, WalkEnd, PythonEnd) {
    let mut walk = zeroed();
    walk.registers = Registers { pc, sp: STACK, bp: 1, exact: 1, bp_known: 1, ..Registers::default() };
    walk.thread_pointer = THREAD;
    let mut process = PythonProcess { layout: NO_PYTHON, ..PythonProcess::default() };
    if python {
        process.layout = 0;
        process.eval[0] = EVAL;
        process.bound_kind = thread_state::THREAD_POINTER;
        process.bound = 0x10;
    }
    walk.process = Process { python: process, ..Process::default() };
    walk.begin(0, 512);
    let mut buffer = vec![0; USER_WORDS_MAX];
    let mut words = WordBuffer(&mut buffer);
    let mut steps = 0;
    loop {
        let flow = if walk.phase == phase::NATIVE {
            native_step(&mut walk, &mut words, world)
        } else {
            python_step(&mut walk, &mut words, world)
        };
        steps += 1;
        if flow == Flow::Stop || steps == STEPS_MAX {
            break;
        }
    }
    buffer.truncate(walk.words as usize);
    let native = WalkEnd::from_number(walk.native_end as u8).unwrap();
    let python = PythonEnd::from_number(walk.python_end as u8).unwrap();
    (buffer, native, python)
}

fn zeroed() -> Walk {
    // SAFETY: a walk is plain data: integers and arrays of them.
    unsafe { std::mem::zeroed() }
}

/// Words as text: `!pc` exact, `pc` return address, `py:code@offset`, `gap:reason`.
fn text(words: &[u64]) -> String {
    let mut out = Vec::new();
    let mut words = words.iter();
    while let Some(w) = words.next() {
        let payload = w & word::PAYLOAD;
        out.push(match word::tag(*w) {
            word::EXACT => format!("!{:x}", payload - TEXT),
            word::RETURN => format!("{:x}", payload.wrapping_sub(TEXT)),
            word::PYTHON => format!("py:{payload:x}@{}", *words.next().unwrap() as u32),
            _ => format!("gap:{}", WalkEnd::from_number(payload as u8).unwrap().key()),
        });
    }
    out.join(" ")
}

fn check(what: &str, world: &World, python: bool, expect: &str) {
    let (words, native, python_end) = walk(world, TEXT + 0x10, python);
    let got = format!("{} | {} {}", text(&words), native.key(), python_end.key());
    assert_eq!(got, expect, "{what}");
}

#[test]
fn native_frames_are_listed_up_to_the_start_of_the_thread() {
    let stack = [TEXT + 0x220, TEXT + 0x330, TEXT + 0xf10];
    check("three calls", &world(&stack), false, "!10 220 330 f10 | complete not-python");
}

#[test]
fn python_frames_stand_before_the_evaluation_frame_that_runs_them() {
    let stack = [TEXT + 0x110, TEXT + 0x330, TEXT + 0x120, TEXT + 0xf10];
    let one = with_python(world(&stack), entry_rule::LAST_REAL, 1, &[(0x7000, 0), (0x7100, 1), (0x7200, 1)]);
    check(
        "3.11: the entry frame is real",
        &one,
        true,
        "!10 py:7000@6 py:7100@6 110 330 py:7200@6 120 f10 | complete complete",
    );
    let frames = [(0x7000, 0), (0x7001, 3), (0x7200, 0), (0x7201, 3)];
    let two = with_python(world(&stack), entry_rule::SENTINEL, 3, &frames);
    check(
        "3.12 and later: the sentinel is not shown",
        &two,
        true,
        "!10 py:7000@6 110 330 py:7200@6 120 f10 | complete complete",
    );
    let three = with_python(world(&stack), entry_rule::ONE_PER_EVAL, 0, &[(0x7000, 0), (0x7200, 0)]);
    check(
        "up to 3.10: one each",
        &three,
        true,
        "!10 py:7000@6 110 330 py:7200@6 120 f10 | complete complete",
    );
}

#[test]
fn a_native_walk_that_breaks_keeps_the_python_frames_behind_a_gap() {
    let stack = [TEXT + 0x330, 0x9999];
    let broken = with_python(world(&stack), entry_rule::LAST_REAL, 1, &[(0x7000, 0), (0x7100, 1)]);
    let got = walk(&broken, TEXT + 0x10, true);
    let words = text(&got.0);
    assert!(
        words.starts_with("!10 330 ") && words.ends_with("gap:no-mapping py:7000@6 py:7100@6"),
        "{words}"
    );
    assert_eq!(got.1, WalkEnd::NoMapping);
}

#[test]
fn chains_and_evaluation_frames_that_do_not_pair_up_are_told() {
    let stack = [TEXT + 0x110, TEXT + 0x120, TEXT + 0xf10];
    let short = with_python(world(&stack), entry_rule::LAST_REAL, 1, &[(0x7000, 1)]);
    check("fewer Python frames", &short, true, "!10 py:7000@6 110 120 f10 | complete chain-short");
    let long = with_python(
        world(&[TEXT + 0x110, TEXT + 0xf10]),
        entry_rule::LAST_REAL,
        1,
        &[(0x7000, 1), (0x7100, 1)],
    );
    check("more Python frames", &long, true, "!10 py:7000@6 110 f10 | complete chain-long");
    let mut other =
        with_python(world(&[TEXT + 0x110, TEXT + 0xf10]), entry_rule::LAST_REAL, 1, &[(0x7000, 1)]);
    other.memory.insert(STATE, 0x1234);
    check("a state of another thread", &other, true, "!10 110 f10 | complete thread-state-mismatch");
    other.memory.insert(THREAD + 0x10, 0);
    check("a thread that never ran Python", &other, true, "!10 110 f10 | complete no-thread-state");
}

#[test]
fn a_cycle_of_python_frames_ends_at_the_bound() {
    let mut cycle =
        with_python(world(&[TEXT + 0x110, TEXT + 0xf10]), entry_rule::LAST_REAL, 1, &[(0x7000, 0)]);
    cycle.memory.insert(0x6000_0000 + 48, 0x6000_0000);
    let (words, native, python) = walk(&cycle, TEXT + 0x10, true);
    assert_eq!((native, python), (WalkEnd::Complete, PythonEnd::TooManyFrames));
    assert!(words.len() <= USER_WORDS_MAX);
}

#[test]
fn code_without_rows_is_walked_by_frame_pointers_where_that_may_be() {
    let mut generated = world(&[]);
    generated.rules.insert(TEXT, Rule::default());
    generated.flags = executable_flag::FRAME_POINTERS;
    check(
        "a frame pointer of 1",
        &generated,
        false,
        "!10 gap:frame-pointer-end | frame-pointer-end not-python",
    );
    generated.flags = 0;
    check("no frame pointers here", &generated, false, "!10 gap:no-row | no-row not-python");
}

proptest! {
    #[test]
    fn whatever_the_memory_holds_a_walk_ends_within_its_bounds(
        stack in prop::collection::vec(prop_oneof![TEXT..TEXT + 0x1000, any::<u64>()], 0..40),
        rules in prop::collection::btree_map(TEXT..TEXT + 0x1000, arbitrary_rule(), 0..20),
        frames in prop::collection::vec((prop_oneof![0x7000u64..0x9000, any::<u64>().prop_map(|a| a & !7)], any::<u8>()), 0..10),
        entry in 0u8..4,
        pc in TEXT..TEXT + 0x1000,
        flags in 0u32..8,
    ) {
        let frames: Vec<_> = frames.into_iter().map(|(code, mark)| (code & 0xffff_ffff_ffff, mark)).collect();
        let mut made = with_python(world(&stack), entry, 1, &frames);
        made.rules.extend(rules);
        made.flags = flags;
        let (words, ..) = walk(&made, pc, true);
        prop_assert!(words.len() <= USER_WORDS_MAX);
        // Every Python word has its second half.
        text(&words);
    }
}

fn arbitrary_rule() -> impl Strategy<Value = Rule> {
    (0u8..16, 0u8..6, 0u8..4, any::<u8>(), -64i32..256, -64i32..64, -64i32..64).prop_map(
        |(cfa, rbp, ra, detail, cfa_offset, rbp_offset, cfa_addend)| Rule {
            cfa,
            rbp,
            ra,
            detail,
            cfa_offset,
            rbp_offset,
            cfa_addend,
        },
    )
}
