//! Whole walks over a synthetic process: native frames by rules, Python frames spliced in, every end labelled.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod world;

use deepctx_common::end::{PythonEnd, WalkEnd};
use deepctx_common::python::{CalledFunction, entry_rule};
use deepctx_common::record::USER_WORDS_MAX;
use deepctx_common::unwind::{Rule, executable_flag, rule_kind};
use proptest::prelude::*;
use world::*;

#[test]
fn native_frames_are_listed_to_the_start_of_the_thread() {
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
fn called_object_is_recorded_for_requested_functions() {
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
    made.called = CalledFunction { code: 0x7100, frame_locals: 80, object_type: 8 };
    let expected = "!10 py:7000@6 py:7100@6 on:9100/8800 py:7200@6 110 f10 | complete complete";
    check("without its tags", &made, true, expected);
    made.memory.remove(&(0x9100 + 8));
    check("an object that cannot be read", &made, true, plain);
    made.memory.insert(0x9100 + 8, 0x8800);
    made.called.frame_locals = 81;
    check("a variable that cannot be read", &made, true, plain);
}

#[test]
fn broken_native_walk_keeps_python_frames_behind_a_gap() {
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
fn mismatched_python_chains_and_evaluation_frames_are_reported() {
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
fn evaluation_not_yet_linked_to_the_chain_takes_no_frames() {
    let returns = [TEXT + 0x330, TEXT + 0x120, TEXT + 0x340, TEXT + 0x130, TEXT + 0xf10];
    let frames = [(0x7000, 0), (0x7001, 3), (0x7200, 0), (0x7201, 3)];
    let made = world_from(EVAL[0] + 2, &returns);
    let outer = made.evaluations[1..].to_vec();
    let three = hung_at(made, entry_rule::SENTINEL, 3, &frames, &outer);
    let expect = "!102 330 py:7000@6 120 340 py:7200@6 130 f10 | complete complete";
    check_at(EVAL[0] + 2, "3.12 and later: the sentinel is further out", &three, expect);

    // Up to 3.10 no address shows this: a gap is reported where the Python frames run out.
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
fn frames_of_an_unrecognised_evaluation_go_to_the_next() {
    let made = world(&[TEXT + 0x330, TEXT + 0x120, TEXT + 0xf10]);
    // The inner sentinel lies outside every known evaluation frame.
    let stack = [STACK - 0x80, made.evaluations[0]];
    let frames = [(0x7000, 0), (0x7001, 3), (0x7200, 0), (0x7201, 3)];
    let missed = hung_at(made, entry_rule::SENTINEL, 3, &frames, &stack);
    check("one unknown", &missed, true, "!10 330 py:7000@6 py:7200@6 120 f10 | complete complete");
}

#[test]
fn sentinel_at_the_root_ends_the_python_chain() {
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
fn python_frames_without_an_evaluation_frame_are_reported() {
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
fn native_frames_stay_when_the_chain_leads_nowhere() {
    let made = world(&[TEXT + 0x330, TEXT + 0xf10]);
    let mut overwritten = with_python(made, entry_rule::LAST_REAL, 1, &[(0x7000, 1)]);
    overwritten.layout.cframe_current_frame = 8;
    // The `_PyCFrame` of a greenlet whose stack another one has overwritten.
    let cframe = STACK + 0x200;
    overwritten.memory.extend([(STATE + 8, cframe), (cframe + 8, 0x1234), (cframe + 16, 0)]);
    let expect = "!10 330 f10 gap:python-unreadable | complete unreadable";
    check("no evaluation frame", &overwritten, true, expect);
}

#[test]
fn generated_code_is_unwound_through_the_sentinel_of_its_caller() {
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
    // The frame pointer is that far above the sentinel, and the caller's stack begins 16 bytes above the frame pointer.
    let rule = Rule { cfa: rule_kind::FP, cfa_offset: (EVAL_FRAME - 0x10) as i32 - fp, ..ONE_WORD };
    by_fp.rules.insert(EVAL[0] + 0x1f, rule);
    by_fp.rules.insert(EVAL[0] + 0x20, Rule { cfa_offset: EVAL_FRAME as i32, ..ONE_WORD });
    check("by the frame pointer", &by_fp, true, whole);
    let mut far = made;
    far.memory.insert(STATE + 8, 0);
    check("no chain to look in", &far, true, "!10 2010 gap:frame-pointer-end | frame-pointer-end complete");
}

// x86-64 only: a call pushes its return address, and user space derives `entered` only from instructions of that
// machine.
#[cfg(target_arch = "x86_64")]
#[test]
fn generated_code_preserving_fp_is_unwound_through_its_entry_function() {
    let entering = TEXT + 0x420;
    let stack = [GENERATED + 0x10, entering, TEXT + 0x110, TEXT + 0x330, TEXT + 0x110, TEXT + 0xf10];
    let frames = [(0x7000, 0), (0x7100, 0), (0x7001, 3), (0x7200, 0), (0x7201, 3)];
    let mut made = with_python(world(&stack), entry_rule::SENTINEL, 3, &frames);
    made.resume = (entering.wrapping_sub(EVAL[0]) as u32, 0);
    made.entered = 0x30;
    let broken = "!10 2010 gap:frame-pointer-end py:7000@6 py:7100@6 py:7200@6 | frame-pointer-end complete";
    check("another's frame pointer", &made, true, broken);
    // The second word of this stack is the return address into that function.
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
    // The frame pointer of an earlier caller, whose frame is further in.
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

#[test]
fn a_structure_that_is_not_filled_yet_is_not_believed() {
    let returns = [TEXT + 0x330, TEXT + 0x120, TEXT + 0x340, TEXT + 0x130, TEXT + 0xf10];
    let expect = "!102 330 py:7000@6 120 340 py:7100@6 130 f10 | complete complete";
    let frames = [(0x7000, 1), (0x7100, 1)];
    // Garbage; frames of another call; frames that look right but are the wrong ones; zeros.
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
fn frame_pointers_unwind_code_without_rows_where_permitted() {
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

#[test]
fn a_frame_pointer_among_rows_must_prove_itself() {
    // The frame of the code without rows, and the frame pointer that it saved, which is further out.
    let (frame, outer) = (STACK + 0x20, STACK + 0x80);
    let check = |input: &str, at: u64, saved: u64, caller: u64, expect: &str| {
        let mut made = world(&[]);
        made.rules.insert(TEXT, Rule::default());
        // The row of the caller uses the frame pointer, too: on aarch64 the first step leaves sp unknown.
        made.rules.insert(TEXT + 0x100, ONE_WORD);
        made.rules.insert(TEXT + 0x310, Rule { cfa: rule_kind::FP, cfa_offset: 16, ..ONE_WORD });
        made.frame_pointer = at;
        made.memory.extend([(at, saved), (at + 8, caller), (outer + 8, TEXT + 0xf10)]);
        check(input, &made, false, expect);
    };
    let whole = "!10 330 f10 | complete not-python";
    let refused = "!10 gap:no-row | no-row not-python";
    check("a chain of frames", frame, outer, TEXT + 0x330, whole);
    check("at the stack pointer", STACK, outer, TEXT + 0x330, whole);
    check("not aligned", frame + 4, outer, TEXT + 0x330, refused);
    check("below the stack pointer", STACK - 0x20, outer, TEXT + 0x330, refused);
    check("far above the stack pointer", STACK + 0x2_0000, STACK + 0x3_0000, TEXT + 0x330, refused);
    check("what it saved is not further out", frame, frame, TEXT + 0x330, refused);
    check("what it saved is not aligned", frame, outer + 1, TEXT + 0x330, refused);
    check("a return address outside of all code", frame, outer, STACK, refused);
    check("a return address of zero", frame, outer, 0, refused);
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
        made.called = CalledFunction { code: frames.first().map_or(0, |frame| frame.0), frame_locals, object_type: 8 };
        let (words, ..) = walk(&made, pc, true);
        prop_assert!(words.len() <= USER_WORDS_MAX);
        // `text` checks that every Python word and every object word has its second word.
        text(&words);
    }
}
