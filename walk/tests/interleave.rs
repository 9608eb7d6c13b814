//! Whole walks over a made-up process: native frames by rules, Python frames spliced in, every end labelled.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::collections::BTreeMap;

use deepctx_common::end::{PythonEnd, WalkEnd};
use deepctx_common::process::Process;
use deepctx_common::python::{
    Called, NO_CFRAME, NO_FIELD, NO_PYTHON, PythonLayout, PythonProcess, entry_rule, instruction_kind,
    thread_state,
};
use deepctx_common::record::{USER_WORDS_MAX, word};
use deepctx_common::unwind::{Executable, Mapping, Rule, executable_flag, ra_kind, rule_kind};
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
    /// Stack pointers of the native frames of the evaluation loop, innermost first.
    evaluations: Vec<u64>,
    /// `PythonProcess::resume` and `resume_base`.
    resume: (u32, i32),
    /// `PythonProcess::entered`.
    entered: u16,
    /// The code that the interpreter made is in no mapping that is known.
    unknown: bool,
    /// The function whose calls tell what they are made on.
    called: Called,
    /// Frame pointer of the interrupted thread; 0 stands for one that leads nowhere.
    frame_pointer: u64,
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
        if (GENERATED..GENERATED + 0x1000).contains(&pc) && !self.unknown {
            let flags = executable_flag::ANONYMOUS | executable_flag::FRAME_POINTERS;
            walk.mapping =
                Mapping { begin: GENERATED, end: GENERATED + 0x1000, bias: 0, executable: 2, flags };
            walk.executable = Executable::default();
            return Ok(());
        }
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
/// Code that the interpreter made.
const GENERATED: u64 = TEXT + 0x2000;
const STACK: u64 = 0x7ffc_0000_0000;
const THREAD: u64 = 0x7f00_0000_0000;
const STATE: u64 = 0x5000_0000;
const EVAL: [u64; 2] = [TEXT + 0x100, TEXT + 0x200];

/// Bytes of a native frame of the evaluation loop: there is room for an interpreter frame below the return address.
const EVAL_FRAME: u64 = 0x100;

/// How a frame of one word, its return address, is unwound on this machine.
#[cfg(target_arch = "aarch64")]
const ONE_WORD: Rule = Rule {
    cfa: rule_kind::SP,
    fp: 0,
    ra: ra_kind::AT_CFA,
    detail: 0,
    cfa_offset: 8,
    fp_offset: 0,
    addend: -8,
};
/// How a frame of one word, its return address, is unwound on this machine.
#[cfg(target_arch = "x86_64")]
const ONE_WORD: Rule = Rule {
    cfa: rule_kind::SP,
    fp: 0,
    ra: ra_kind::X86_AT_CFA_MINUS_8,
    detail: 0,
    cfa_offset: 8,
    fp_offset: 0,
    addend: 0,
};

/// A thread that was interrupted at `pc`.
fn interrupted(pc: u64, fp: u64) -> Registers {
    let registers = Registers { pc, sp: STACK, exact: 1, ..Registers::default() };
    #[cfg(target_arch = "aarch64")]
    return Registers { fp, fp_known: 1, sp_known: 1, address_mask: u64::MAX, ..registers };
    #[cfg(target_arch = "x86_64")]
    return Registers { bp: fp, bp_known: 1, ..registers };
}

/// Functions are 0x100 bytes; each pushes nothing, so every frame is one word, but for the evaluation loop's. The last
/// one is the thread's start.
fn world(returns: &[u64]) -> World {
    world_from(TEXT + 0x10, returns)
}

/// As [`world`], interrupted at `leaf`.
fn world_from(leaf: u64, returns: &[u64]) -> World {
    let mut world = World { text: (TEXT, TEXT + 0x1000), ..World::default() };
    world.rules.insert(TEXT, ONE_WORD);
    world.rules.insert(EVAL[0], Rule { cfa_offset: EVAL_FRAME as i32, ..ONE_WORD });
    world.rules.insert(EVAL[1], ONE_WORD);
    world.rules.insert(TEXT + 0xf00, Rule { cfa: rule_kind::END, ..Rule::default() });
    let (mut sp, mut pc) = (STACK, leaf);
    for next in returns {
        let is_eval = (EVAL[0]..EVAL[1]).contains(&pc);
        if is_eval {
            world.evaluations.push(sp);
        }
        sp += if is_eval { EVAL_FRAME } else { 8 };
        world.memory.insert(sp - 8, *next);
        pc = *next;
    }
    world
}

/// An interpreter whose frames are 112 bytes apart: `frames` as (code object, entry mark). Sentinels lie in the native
/// frames of the evaluation loop, the innermost in the innermost.
fn with_python(world: World, rule: u8, value: u8, frames: &[(u64, u8)]) -> World {
    let stack = world.evaluations.clone();
    hung_at(world, rule, value, frames, &stack)
}

/// As [`with_python`], with the sentinels in the native frames at `stack`.
fn hung_at(mut world: World, rule: u8, value: u8, frames: &[(u64, u8)], stack: &[u64]) -> World {
    const FRAMES: u64 = 0x6000_0000;
    let mut stack = stack.iter();
    let places: Vec<u64> = (0..)
        .zip(frames)
        .map(|(i, (_, mark))| {
            let sentinel = rule == entry_rule::SENTINEL && *mark == value;
            let hung = if sentinel { stack.next().map(|sp| sp + 0x10) } else { None };
            hung.unwrap_or(FRAMES + 112 * i)
        })
        .collect();
    world.layout = PythonLayout {
        tstate_frame: 8,
        cframe_current_frame: NO_CFRAME,
        tstate_thread_id: 0,
        frame_code: 32,
        frame_previous: 48,
        frame_instruction: 56,
        frame_entry_mark: 68,
        code_identity: 48,
        code_identity_words: 6,
        code_bytecode: 184,
        frame_tlbc_index: NO_FIELD,
        code_tlbc: NO_FIELD,
        instruction_kind: instruction_kind::POINTER,
        entry_rule: rule,
        entry_value: value,
        code_tag_mask: 0,
        frame_owner: 0,
        code_name: 0,
    };
    world.memory.insert(THREAD + 0x10, STATE);
    world.memory.insert(STATE, THREAD);
    world.memory.insert(STATE + 8, places.first().copied().unwrap_or(0));
    for (i, (code, mark)) in frames.iter().enumerate() {
        let at = places[i];
        for offset in (0..112).step_by(8) {
            world.memory.insert(at + offset, 0);
        }
        world.memory.insert(at + 32, *code);
        world.memory.insert(at + 48, places.get(i + 1).copied().unwrap_or(0));
        world.memory.insert(at + 56, code + 184 + 6);
        world.memory.insert(at + 64, u64::from(*mark) << 32);
        for offset in (0..168).step_by(8) {
            world.memory.insert(code + offset, 0);
        }
    }
    world
}

fn walk(world: &World, pc: u64, python: bool) -> (Vec<u64>, WalkEnd, PythonEnd) {
    let mut walk = zeroed();
    walk.registers = interrupted(pc, world.frame_pointer.max(1));
    walk.thread_pointer = THREAD;
    let mut process = PythonProcess { layout: NO_PYTHON, ..PythonProcess::default() };
    if python {
        process.layout = 0;
        process.eval[0] = EVAL;
        // As if the first 16 bytes were those in which a structure is named and not filled.
        process.unset_length = 16;
        process.bound_kind = thread_state::THREAD_POINTER;
        process.bound = 0x10;
        (process.resume, process.resume_base) = world.resume;
        process.entered = world.entered;
    }
    walk.process = Process { python: process, ..Process::default() };
    walk.called = world.called;
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
            word::COROUTINE => format!("co:{payload:x}"),
            word::OBJECT => format!("on:{payload:x}/{:x}", words.next().unwrap()),
            _ if payload == word::PYTHON_GAP => continue,
            _ if payload & word::PYTHON_GAP != 0 => {
                format!("gap:python-{}", PythonEnd::from_number(payload as u8).unwrap().key())
            }
            _ => format!("gap:{}", WalkEnd::from_number(payload as u8).unwrap().key()),
        });
    }
    out.join(" ")
}

fn check(what: &str, world: &World, python: bool, expect: &str) {
    check_from(TEXT + 0x10, what, world, python, expect);
}

fn check_at(pc: u64, what: &str, world: &World, expect: &str) {
    check_from(pc, what, world, true, expect);
}

fn check_from(pc: u64, what: &str, world: &World, python: bool, expect: &str) {
    let (words, native, python_end) = walk(world, pc, python);
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
fn a_function_tells_what_it_is_called_on_where_it_is_asked() {
    let stack = [TEXT + 0x110, TEXT + 0xf10];
    let frames = [(0x7000, 0), (0x7100, 0), (0x7200, 1)];
    let mut made = with_python(world(&stack), entry_rule::LAST_REAL, 1, &frames);
    let locals = |n: u64| 0x6000_0000 + 112 * n + 80;
    for (n, object) in [(0, 0x9000), (1, 0x9101), (2, 0x9200)] {
        made.memory.insert(locals(n), object);
    }
    made.memory.insert(0x9100 + 8, 0x8800);
    let plain = "!10 py:7000@6 py:7100@6 py:7200@6 110 f10 | complete complete";
    check("nobody asks", &made, true, plain);
    made.called = Called { code: 0x7100, frame_locals: 80, object_type: 8 };
    let told = "!10 py:7000@6 py:7100@6 on:9100/8800 py:7200@6 110 f10 | complete complete";
    check("without its tags", &made, true, told);
    made.memory.remove(&(0x9100 + 8));
    check("an object that cannot be read", &made, true, plain);
    made.memory.insert(0x9100 + 8, 0x8800);
    made.called.frame_locals = 81;
    check("a variable that cannot be read", &made, true, plain);
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
    check(
        "fewer Python frames",
        &short,
        true,
        "!10 py:7000@6 110 gap:python-other-state 120 f10 | complete other-state",
    );
    let long = with_python(
        world(&[TEXT + 0x110, TEXT + 0xf10]),
        entry_rule::LAST_REAL,
        1,
        &[(0x7000, 1), (0x7100, 1)],
    );
    check(
        "more Python frames",
        &long,
        true,
        "!10 py:7000@6 110 f10 gap:python-chain-long py:7100@6 | complete chain-long",
    );
    let mut other =
        with_python(world(&[TEXT + 0x110, TEXT + 0xf10]), entry_rule::LAST_REAL, 1, &[(0x7000, 1)]);
    other.memory.insert(STATE, 0x1234);
    check(
        "a state of another thread",
        &other,
        true,
        "!10 gap:python-thread-state-mismatch 110 f10 | complete thread-state-mismatch",
    );
    other.memory.insert(THREAD + 0x10, 0);
    check(
        "a thread that never ran Python",
        &other,
        true,
        "!10 gap:python-no-thread-state 110 f10 | complete no-thread-state",
    );
}

#[test]
fn an_evaluation_that_has_not_hung_its_frames_on_the_chain_leaves_the_others_theirs() {
    let returns = [TEXT + 0x330, TEXT + 0x120, TEXT + 0x340, TEXT + 0x130, TEXT + 0xf10];
    let frames = [(0x7000, 0), (0x7001, 3), (0x7200, 0), (0x7201, 3)];
    let made = world_from(EVAL[0] + 2, &returns);
    let outer = made.evaluations[1..].to_vec();
    let three = hung_at(made, entry_rule::SENTINEL, 3, &frames, &outer);
    let expect = "!102 330 py:7000@6 120 340 py:7200@6 130 f10 | complete complete";
    check_at(EVAL[0] + 2, "3.12 and later: the sentinel is further out", &three, expect);

    // Up to 3.10 nothing says so here: a mark is left where the frames run out.
    let one = with_python(
        world_from(EVAL[0] + 2, &returns),
        entry_rule::ONE_PER_EVAL,
        0,
        &[(0x7000, 0), (0x7200, 0)],
    );
    let expect = "py:7000@6 !102 330 py:7200@6 120 340 gap:python-chain-short 130 f10 | complete complete";
    check_at(EVAL[0] + 2, "up to 3.10", &one, expect);
}

#[test]
fn an_evaluation_that_was_not_recognised_gives_its_frames_to_the_next() {
    let made = world(&[TEXT + 0x330, TEXT + 0x120, TEXT + 0xf10]);
    // The inner sentinel lies where no known evaluation is.
    let stack = [STACK - 0x80, made.evaluations[0]];
    let frames = [(0x7000, 0), (0x7001, 3), (0x7200, 0), (0x7201, 3)];
    let missed = hung_at(made, entry_rule::SENTINEL, 3, &frames, &stack);
    check("one unknown", &missed, true, "!10 330 py:7000@6 py:7200@6 120 f10 | complete complete");
}

#[test]
fn a_sentinel_at_the_root_of_the_chain_is_its_end() {
    let made = world(&[TEXT + 0x110, TEXT + 0xf10]);
    let rooted = with_python(made, entry_rule::SENTINEL, 3, &[(0x7000, 0), (0x7001, 3), (0x7002, 3)]);
    check("3.15", &rooted, true, "!10 py:7000@6 110 f10 | complete complete");
}

#[test]
fn a_run_without_an_end_is_torn_and_not_shown() {
    let made = world(&[TEXT + 0x110, TEXT + 0xf10]);
    let torn = with_python(made, entry_rule::SENTINEL, 3, &[(0x7000, 0), (0x7100, 0)]);
    check("no sentinel", &torn, true, "!10 gap:python-torn 110 f10 | complete torn");
}

#[test]
fn python_frames_without_an_evaluation_in_a_whole_native_stack_are_told() {
    let made = world(&[TEXT + 0x330, TEXT + 0xf10]);
    let hung = hung_at(made.clone(), entry_rule::SENTINEL, 3, &[(0x7000, 0), (0x7001, 3)], &[STACK + 0x40]);
    let expect = "!10 330 f10 gap:python-no-eval-frame py:7000@6 | complete no-eval-frame";
    check("code that is not known to evaluate", &hung, true, expect);
    let none = with_python(made.clone(), entry_rule::SENTINEL, 3, &[]);
    check("a thread that runs no Python", &none, true, "!10 330 f10 | complete complete");
    let mut foreign = with_python(made, entry_rule::SENTINEL, 3, &[]);
    foreign.memory.insert(THREAD + 0x10, 0);
    check("a thread that never did", &foreign, true, "!10 330 f10 | complete complete");
}

#[test]
fn generated_code_is_left_by_way_of_the_sentinel_of_the_evaluation_that_called_it() {
    let stack = [GENERATED + 0x10, TEXT + 0x110, TEXT + 0x330, TEXT + 0x110, TEXT + 0xf10];
    let frames = [(0x7000, 0), (0x7100, 0), (0x7001, 3), (0x7200, 0), (0x7201, 3)];
    let mut made = with_python(world(&stack), entry_rule::SENTINEL, 3, &frames);
    check(
        "it cannot be unwound by itself",
        &made,
        true,
        "!10 2010 gap:frame-pointer-end py:7000@6 py:7100@6 py:7200@6 | frame-pointer-end complete",
    );
    made.resume = (0x20, -0x10);
    let whole = "!10 2010 py:7000@6 py:7100@6 120 330 py:7200@6 110 f10 | complete complete";
    check("by the stack pointer", &made, true, whole);
    let (mut by_fp, fp) = (made.clone(), 0x20);
    by_fp.resume = (0x20, fp);
    // As if the frame pointer stood so far above the sentinel, and the caller's stack 16 bytes above that.
    let rule = Rule { cfa: rule_kind::FP, cfa_offset: (EVAL_FRAME - 0x10) as i32 - fp, ..ONE_WORD };
    by_fp.rules.insert(EVAL[0] + 0x1f, rule);
    by_fp.rules.insert(EVAL[0] + 0x20, Rule { cfa_offset: EVAL_FRAME as i32, ..ONE_WORD });
    check("by the frame pointer", &by_fp, true, whole);
    let mut far = made;
    far.memory.insert(STATE + 8, 0);
    check("no chain to look in", &far, true, "!10 2010 gap:frame-pointer-end | frame-pointer-end complete");
}

// Where a call puts its return address onto the stack; what it is found by is only read off such machines' instructions.
#[cfg(target_arch = "x86_64")]
#[test]
fn generated_code_that_leaves_the_frame_pointer_alone_is_left_by_way_of_the_function_that_entered_it() {
    let entering = TEXT + 0x420;
    let stack = [GENERATED + 0x10, entering, TEXT + 0x110, TEXT + 0x330, TEXT + 0x110, TEXT + 0xf10];
    let frames = [(0x7000, 0), (0x7100, 0), (0x7001, 3), (0x7200, 0), (0x7201, 3)];
    let mut made = with_python(world(&stack), entry_rule::SENTINEL, 3, &frames);
    made.resume = (entering.wrapping_sub(EVAL[0]) as u32, 0);
    made.entered = 0x30;
    let broken = "!10 2010 gap:frame-pointer-end py:7000@6 py:7100@6 py:7200@6 | frame-pointer-end complete";
    check("another's frame pointer", &made, true, broken);
    // The return address into that function is the second word of this stack.
    made.frame_pointer = STACK + 8 + 0x30;
    let whole = "!10 2010 420 py:7000@6 py:7100@6 110 330 py:7200@6 110 f10 | complete complete";
    check("the function's frame pointer", &made, true, whole);
    let mut far = made.clone();
    far.entered = 0x28;
    check("another word lies there", &far, true, broken);
    let mut new = made.clone();
    new.unknown = true;
    check("in no mapping that is known", &new, true, whole);
    new.memory.insert(STACK + 8, TEXT + 0x10);
    let unknown = "!10 2010 gap:no-mapping py:7000@6 py:7100@6 py:7200@6 | no-mapping complete";
    check("in none, and not entered by that function", &new, true, unknown);
    // That of a caller before it, whose frame is further in.
    made.entered = 0x40;
    made.memory.insert(STACK - 8, entering);
    check("below the stack pointer", &made, true, broken);
}

#[test]
fn the_outermost_frame_of_coroutines_is_told_before_its_caller() {
    let stack = [TEXT + 0x110, TEXT + 0x330, TEXT + 0x120, TEXT + 0xf10];
    let frames = [(0x7000, 0), (0x7100, 0), (0x7001, 3), (0x7200, 0), (0x7201, 3)];
    let owned = |indices: &[u64], asked: bool| {
        let mut made = with_python(world(&stack), entry_rule::SENTINEL, 3, &frames);
        made.layout.frame_owner = if asked { 70 } else { 0 };
        for index in indices {
            *made.memory.get_mut(&(0x6000_0000 + 112 * index + 64)).unwrap() |= 1 << 48;
        }
        made
    };
    let check = |what, made: &World, expect| check(what, made, true, expect);
    check(
        "across native frames",
        &owned(&[0, 1], true),
        "!10 py:7000@6 py:7100@6 110 330 co:60000070 py:7200@6 120 f10 | complete complete",
    );
    check(
        "within a run",
        &owned(&[0], true),
        "!10 py:7000@6 co:60000000 py:7100@6 110 330 py:7200@6 120 f10 | complete complete",
    );
    check(
        "nobody asked",
        &owned(&[0, 1], false),
        "!10 py:7000@6 py:7100@6 110 330 py:7200@6 120 f10 | complete complete",
    );
}

/// A `_PyCFrame` on the stack of each evaluation, as in 3.11; the first `left_over` of them hold what an earlier call
/// left there.
fn with_cframes(mut world: World, frames: &[(u64, u8)], left_over: Option<[u64; 2]>) -> World {
    world = with_python(world, entry_rule::LAST_REAL, 1, frames);
    world.layout.cframe_current_frame = 8;
    let cframes: Vec<u64> = world.evaluations.iter().map(|sp| sp + 0x20).collect();
    world.memory.insert(STATE + 8, cframes[0]);
    let unset = usize::from(left_over.is_some());
    for (i, at) in cframes.iter().enumerate() {
        let frame = 0x6000_0000 + 112 * i.saturating_sub(unset) as u64;
        world.memory.insert(at + 8, if i < unset + frames.len() { frame } else { 0 });
        world.memory.insert(at + 16, cframes.get(i + 1).copied().unwrap_or(0));
    }
    if let Some([current, previous]) = left_over {
        world.memory.insert(cframes[0] + 8, current);
        world.memory.insert(cframes[0] + 16, previous);
    }
    world
}

#[test]
fn a_structure_that_is_not_filled_yet_is_not_believed() {
    let returns = [TEXT + 0x330, TEXT + 0x120, TEXT + 0x340, TEXT + 0x130, TEXT + 0xf10];
    let expect = "!102 330 py:7000@6 120 340 py:7100@6 130 f10 | complete complete";
    let frames = [(0x7000, 1), (0x7100, 1)];
    // Rubbish; frames of another call; frames that look right and are the wrong ones.
    let outermost = world_from(EVAL[0] + 2, &returns).evaluations[2] + 0x20;
    for left_over in [[0x1234, 0x5678], [0x6000_0000 + 112, 0], [0x6000_0000 + 112, outermost], [0, 0]] {
        let made = with_cframes(world_from(EVAL[0] + 2, &returns), &frames, Some(left_over));
        check_at(EVAL[0] + 2, &format!("{left_over:x?}"), &made, expect);
    }
    let filled =
        with_cframes(world_from(EVAL[0] + 0x50, &returns), &[(0x7000, 1), (0x7100, 1), (0x7200, 1)], None);
    let expect = "py:7000@6 !150 330 py:7100@6 120 340 py:7200@6 130 f10 | complete complete";
    check_at(EVAL[0] + 0x50, "behind those instructions", &filled, expect);
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
        stack in prop::collection::vec(
            prop_oneof![TEXT..TEXT + 0x1000, GENERATED..GENERATED + 0x1000, any::<u64>()], 0..40),
        rules in prop::collection::btree_map(TEXT..TEXT + 0x1000, arbitrary_rule(), 0..20),
        frames in prop::collection::vec((prop_oneof![0x7000u64..0x9000, any::<u64>().prop_map(|a| a & !7)], any::<u8>()), 0..10),
        entry in 0u8..4,
        pc in TEXT..TEXT + 0x1000,
        flags in 0u32..8,
        resume in (0u32..0x100, any::<i32>()),
        entered in prop_oneof![Just(0u16), any::<u16>()],
        frame_locals in 0u32..128,
    ) {
        let frames: Vec<_> = frames.into_iter().map(|(code, mark)| (code & 0xffff_ffff_ffff, mark)).collect();
        let mut made = with_python(world(&stack), entry, 1, &frames);
        made.rules.extend(rules);
        made.flags = flags;
        made.resume = resume;
        made.entered = entered;
        made.called = Called { code: frames.first().map_or(0, |frame| frame.0), frame_locals, object_type: 8 };
        let (words, ..) = walk(&made, pc, true);
        prop_assert!(words.len() <= USER_WORDS_MAX);
        // Every Python word, and every object, has its second half.
        text(&words);
    }
}

fn arbitrary_rule() -> impl Strategy<Value = Rule> {
    (0u8..16, 0u8..6, 0u8..6, any::<u8>(), -64i32..256, -64i32..64, -64i32..64).prop_map(
        |(cfa, fp, ra, detail, cfa_offset, fp_offset, addend)| Rule {
            cfa,
            fp,
            ra,
            detail,
            cfa_offset,
            fp_offset,
            addend,
        },
    )
}
