//! Short walks: only the native frames that show operators, all Python frames, and a gap wherever frames were omitted.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod world;

use deepctx_common::python::entry_rule;
use deepctx_common::record::{USER_WORDS_MAX, word};
use deepctx_common::unwind::Rule;
use deepctx_walk::short::state;
use proptest::prelude::*;
use world::*;

#[track_caller]
fn check(what: &str, world: &World, pc: u64, expect: &str) {
    let (words, native, python) = walk_as(world, pc, true, state::SHORT);
    let got = format!("{} | {} {}", text(&words), native.key(), ended(python));
    assert_eq!(got, expect, "{what}");
}

const LEAF: u64 = TEXT + 0x10;

#[test]
fn native_frames_stop_at_the_first_evaluation_but_python_continues() {
    let stack = [TEXT + 0x330, TEXT + 0x110, TEXT + 0x340, TEXT + 0x120, TEXT + 0xf10];
    let real = with_python(world(&stack), entry_rule::LAST_REAL, 1, &[(0x7000, 0), (0x7100, 1), (0x7200, 1)]);
    let expect = "!10 330 py:7000@6 py:7100@6 gap:native-left-out py:7200@6 | native-left-out complete";
    check("3.11", &real, LEAF, expect);
    let frames = [(0x7000, 0), (0x7100, 0), (0x7001, 3), (0x7200, 0), (0x7201, 3)];
    check("3.12 and later", &with_python(world(&stack), entry_rule::SENTINEL, 3, &frames), LEAF, expect);
    let rooted = [&frames[..], &[(0x7202, 3)]].concat();
    check(
        "3.15: and a sentinel at the root",
        &with_python(world(&stack), entry_rule::SENTINEL, 3, &rooted),
        LEAF,
        expect,
    );
    let each = with_python(world(&stack), entry_rule::ONE_PER_EVAL, 0, &[(0x7000, 0), (0x7200, 0)]);
    let expect = "!10 330 py:7000@6 py:7200@6 | native-left-out complete";
    check("up to 3.10, where any two frames may have native ones between them", &each, LEAF, expect);
}

#[test]
fn one_evaluation_leaves_nothing_out_between_python_frames() {
    let stack = [TEXT + 0x110, TEXT + 0x340, TEXT + 0xf10];
    let frames = [(0x7000, 0), (0x7100, 0), (0x7001, 3)];
    let made = with_python(world(&stack), entry_rule::SENTINEL, 3, &frames);
    check("the thread's own", &made, LEAF, "!10 py:7000@6 py:7100@6 | complete complete");
}

#[test]
fn a_thread_without_python_frames_is_walked_to_its_end() {
    let none = with_python(world(&[TEXT + 0x330, TEXT + 0xf10]), entry_rule::SENTINEL, 3, &[]);
    check("no chain", &none, LEAF, "!10 330 f10 | complete complete");
    let mut foreign = none.clone();
    foreign.memory.insert(THREAD + 0x10, 0);
    check("no state", &foreign, LEAF, "!10 330 f10 | complete complete");
    let hung = hung_at(
        world(&[TEXT + 0x330, TEXT + 0xf10]),
        entry_rule::SENTINEL,
        3,
        &[(0x7000, 0), (0x7001, 3), (0x7200, 0), (0x7201, 3)],
        &[STACK + 0x40],
    );
    let expect = "!10 330 f10 gap:python-no-eval-frame py:7000@6 py:7200@6 | complete no-eval-frame";
    check("code that is not known to evaluate: nothing was left out", &hung, LEAF, expect);
}

#[test]
fn a_native_walk_that_breaks_before_python_says_so() {
    let broken = with_python(
        world(&[TEXT + 0x330, 0x9999]),
        entry_rule::LAST_REAL,
        1,
        &[(0x7000, 0), (0x7100, 1), (0x7200, 1)],
    );
    let (words, native, python) = walk_as(&broken, LEAF, true, state::SHORT);
    let words = text(&words);
    assert!(words.ends_with("gap:no-mapping py:7000@6 py:7100@6 py:7200@6"), "{words}");
    assert_eq!((native.key(), ended(python)), ("no-mapping", "complete"));
}

#[test]
fn where_the_chain_cannot_be_told_native_frames_are_walked() {
    let stack = [TEXT + 0x110, TEXT + 0x330, TEXT + 0xf10];
    let mut other = with_python(world(&stack), entry_rule::LAST_REAL, 1, &[(0x7000, 1)]);
    other.memory.insert(STATE, 0x1234);
    let expect = "!10 gap:python-thread-state-mismatch 110 330 f10 | complete thread-state-mismatch";
    check("a state of another thread", &other, LEAF, expect);
    let torn = with_python(world(&stack), entry_rule::SENTINEL, 3, &[(0x7000, 0), (0x7100, 0)]);
    check("a run without an end", &torn, LEAF, "!10 gap:python-torn 110 330 f10 | complete torn");
}

#[test]
fn evaluation_not_yet_linked_to_the_chain_takes_no_frames() {
    let returns = [TEXT + 0x330, TEXT + 0x120, TEXT + 0x340, TEXT + 0x130, TEXT + 0xf10];
    let frames = [(0x7000, 0), (0x7001, 3), (0x7200, 0), (0x7201, 3)];
    let begins = EVAL[0] + 2;
    let made = world_from(begins, &returns);
    let outer = made.evaluations[1..].to_vec();
    let three = hung_at(made, entry_rule::SENTINEL, 3, &frames, &outer);
    let expect = "gap:native-left-out py:7000@6 gap:native-left-out py:7200@6 | native-left-out complete";
    check("3.12 and later: the sentinel is further out", &three, begins, expect);
    let one =
        with_python(world_from(begins, &returns), entry_rule::ONE_PER_EVAL, 0, &[(0x7000, 0), (0x7200, 0)]);
    check(
        "up to 3.10 nothing has to be moved",
        &one,
        begins,
        "py:7000@6 py:7200@6 | native-left-out complete",
    );
    // The linked but unfilled structure is located from that of the next evaluation, to which native frames lead.
    let named =
        with_cframes(world_from(begins, &returns), &[(0x7000, 1), (0x7100, 1)], Some([0x1234, 0x5678]));
    let expect = "!102 330 py:7000@6 gap:native-left-out py:7100@6 | native-left-out complete";
    check("3.11", &named, begins, expect);
}

#[test]
fn coroutines_are_marked_across_omitted_native_frames() {
    let stack = [TEXT + 0x110, TEXT + 0x330, TEXT + 0x120, TEXT + 0xf10];
    let frames = [(0x7000, 0), (0x7001, 3), (0x7200, 0), (0x7201, 3)];
    let mut made = with_python(world(&stack), entry_rule::SENTINEL, 3, &frames);
    made.layout.frame_owner = 70;
    *made.memory.get_mut(&(0x6000_0000 + 64)).unwrap() |= 1 << 48;
    let expect = "!10 py:7000@6 gap:native-left-out co:60000000 py:7200@6 | native-left-out complete";
    check("across native frames", &made, LEAF, expect);
}

/// The Python words of a walk, and the native words before the first of them.
fn parts(words: &[u64]) -> (Vec<u64>, Vec<u64>) {
    let (mut python, mut native) = (Vec::new(), Vec::new());
    let mut words = words.iter();
    while let Some(&word) = words.next() {
        match word::tag(word) {
            word::PYTHON => python.extend([word, *words.next().unwrap()]),
            word::RETURN | word::EXACT if python.is_empty() => native.push(word),
            _ => {}
        }
    }
    (python, native)
}

proptest! {
    #[test]
    fn python_frames_and_leading_native_frames_match_the_whole_walk(
        runs in prop::collection::vec((0usize..6, 1usize..5), 1..6),
        version in 0usize..3,
    ) {
        let (rule, mark) = [(entry_rule::ONE_PER_EVAL, 0), (entry_rule::LAST_REAL, 1), (entry_rule::SENTINEL, 3)][version];
        let (mut stack, mut frames, mut code) = (Vec::new(), Vec::new(), 0x7000);
        for (native, python) in &runs {
            stack.extend(std::iter::repeat_n(TEXT + 0x330, *native));
            stack.push(TEXT + 0x110);
            let python = if version == 0 { 1 } else { *python };
            for n in 1..=python {
                frames.push((code, if version == 1 && n == python { mark } else { 0 }));
                code += 0x100;
            }
            if version == 2 {
                frames.push((code + 1, mark));
            }
        }
        stack.push(TEXT + 0xf10);
        let made = with_python(world(&stack), rule, mark, &frames);
        let (whole, ..) = walk(&made, LEAF, true);
        let (short, native, python) = walk_as(&made, LEAF, true, state::SHORT);
        prop_assert_eq!(parts(&short), parts(&whole));
        prop_assert!(short.len() <= whole.len());
        let between = runs.len() > 1;
        prop_assert_eq!(native.key(), if between { "native-left-out" } else { "complete" });
        prop_assert_eq!(ended(python), "complete");
        let gaps = short.iter().filter(|word| word::tag(**word) == word::GAP).count();
        prop_assert_eq!(gaps, if version == 0 { 0 } else { runs.len() - 1 });
    }

    #[test]
    fn short_walk_stays_within_bounds_for_any_memory_contents(
        stack in prop::collection::vec(prop_oneof![TEXT..TEXT + 0x1000, any::<u64>()], 0..40),
        rules in prop::collection::btree_map(TEXT..TEXT + 0x1000, arbitrary_rule(), 0..20),
        frames in prop::collection::vec((0x7000u64..0x9000, any::<u8>()), 0..10),
        entry in 0u8..4,
        cframes: bool,
        pc in TEXT..TEXT + 0x1000,
    ) {
        let mut made = world(&stack);
        let has_room = made.evaluations.len() > 1;
        made = if cframes && has_room { with_cframes(made, &frames, None) } else { with_python(made, entry, 1, &frames) };
        made.rules.extend(rules.into_iter().map(|(at, rule)| (at, Rule { detail: 0, ..rule })));
        let (words, ..) = walk_as(&made, pc, true, state::SHORT);
        prop_assert!(words.len() <= USER_WORDS_MAX);
        text(&words);
    }
}
