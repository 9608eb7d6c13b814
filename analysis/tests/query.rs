//! Queries over small profiles: what matches, what is refused, and what always holds.

use std::fmt::Write as _;

use deepctx_analysis::Query;
use deepctx_profile::metric::Metric;
use deepctx_profile::testing::{grow, stacks};
use deepctx_profile::text;
use proptest::prelude::*;

/// `docs/query.md`: its stacks, and its table of queries with the stacks that each matches.
const PAGE: &str = include_str!("../../docs/query.md");

/// The stacks whose values a query lets through, in order.
fn matched(stacks: &str, query: &str) -> String {
    let profile = text::parse(stacks).expect("stacks of a test");
    let matches = Query::parse(query).unwrap_or_else(|error| panic!("{error}")).matches(&profile);
    let mut numbers: Vec<u64> = profile
        .tree
        .cells(Metric::CpuTime)
        .filter(|(node, _)| matches.has(*node))
        .map(|(_, cell)| cell.sum)
        .collect();
    numbers.sort_unstable();
    numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(" ")
}

#[test]
fn every_example_of_the_documentation_matches_as_it_says() {
    let stacks = PAGE.split("```text\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let rows: Vec<Vec<String>> = PAGE
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| line.replace("\\|", "\u{1}").trim_matches('|').split('|').map(unescaped).collect())
        .filter(|cells: &Vec<String>| cells.len() == 3)
        .collect();
    assert!(rows.len() >= 20, "{}", rows.len());
    for cells in rows {
        let expect = if cells[2] == "none" { "" } else { &cells[2] };
        assert_eq!(matched(stacks, cells[0].trim_matches('`')), expect, "{}", cells[0]);
    }
}

fn unescaped(cell: &str) -> String {
    cell.replace('\u{1}', "|").trim().to_owned()
}

#[test]
fn folded_frames_do_not_stand_between_steps() {
    let stacks = "P a-1 / y m.py:f / i eval / y m.py:g 1
        P a-1 / y m.py:f / n call / y m.py:g 2
        P a-1 / y m.py:f / s 0/7 / g gemm 3";
    let check = |query, expect| assert_eq!(matched(stacks, query), expect, "{query}");
    check("python:f python:g", "1");
    check("python:f * python:g", "2");
    check("python:f gpu-kernel:gemm", "3");
    check("native:eval", "");
}

#[test]
fn a_gap_takes_any_number_of_frames() {
    let stacks =
        "n a / n b 1\nn a / n x / n b 2\nn a / n x / n x / n b 3\nn b / n a 4\nn a / n b / n a / n c 5";
    let check = |query, expect| assert_eq!(matched(stacks, query), expect, "{query}");
    check("a b", "1 5");
    check("a ** b", "1 2 3 5");
    check("a * b", "2");
    check("a * ** b", "2 3");
    check("a ** ** b $", "1 2 3");
    check("^ a", "1 2 3 5");
    check("a $", "4");
    check("b ** a c", "5");
    check("! a ** b", "4");
    check("* * *", "2 3 5");
}

#[test]
fn a_step_that_no_frame_is_matches_no_stack() {
    let stacks = "P a-1 / n f 1\nP a-1 / n f / i eval 2";
    let check = |query, expect| assert_eq!(matched(stacks, query), expect, "{query}");
    check("f ** missing", "");
    check("missing ** f", "");
    // It is there, but folded.
    check("f eval", "");
    check("! missing", "1 2");
    check("! f ** missing", "1 2");
    check("! f", "");
}

#[test]
fn a_phase_is_that_of_the_context() {
    let stacks = "P a-1 / y /v/torch/optim/sgd.py:SGD.step / n f 1
        P a-1 / y /v/torch/optim/sgd.py:SGD.step / y /v/torch/nn/modules/module.py:Module._call_impl / n f 2
        P a-1 / y /v/torch/nn/modules/module.py:Module._call_impl / i eval / n f 3
        P a-1 / n f 4";
    let check = |query, expect| assert_eq!(matched(stacks, query), expect, "{query}");
    check("phase:optimizer", "1 2");
    check("phase:optimizer $", "1");
    check("phase:forward ** f", "2 3");
    check("phase:forward f", "2 3");
    check("f phase:forward", "");
    check("phase:optimizer ** phase:forward", "2");
    check("phase:backward", "");
    check("phase:@module.py", "");
    check("^ * phase:other", "4");
    check("phase:/^(forward|other)$/ $", "2 3 4");
}

#[test]
fn a_bad_query_is_refused_at_its_column() {
    let check = |query: &str, column: usize, message: &str| {
        let error = Query::parse(query).expect_err(query);
        assert_eq!(error.column(), column, "{error}");
        assert!(error.message().starts_with(message), "{error}");
    };
    check("", 1, "expected a frame");
    check("**", 3, "expected a frame");
    check("^ $", 4, "expected a frame");
    check("pyton:f", 1, "unknown kind `pyton`: expected one of process, thread, python");
    check("main ** pyton:f", 9, "unknown kind `pyton`");
    check("train.py:step", 1, "unknown kind `train.py`");
    check("python:", 8, "expected a name behind `python:`");
    check("python:f@", 10, "expected a file or a library");
    check("é ^ f", 3, "`^` is the root");
    check("! !f", 3, "`!` can only come once");
    check("f $ g", 3, "`$` is the leaf");
    check("operator:\"aten", 10, "this quote does not end");
    check("f /a", 3, "this regular expression does not end");
    check("f /a(/", 3, "unclosed group");
    check("f /a/b", 6, "expected a blank");
    check("/(a{1000}){1000}/", 1, "Compiled regex exceeds size limit");
    check(&"f ".repeat(31), 61, "a query has at most 30 steps");
    check(&"x".repeat(1001), 1001, "the query is longer than 1000 bytes");
}

#[test]
fn an_error_points_at_its_column() {
    let error = Query::parse("python:f ** kern:g").unwrap_err().to_string();
    let (message, drawing) = error.split_once('\n').unwrap();
    assert!(message.starts_with("column 13: unknown kind `kern`"), "{message}");
    assert_eq!(drawing, "  python:f ** kern:g\n              ^");
}

/// All ways to match, tried one after the other: what the state sets must agree with.
fn matches_slowly(steps: &[&str], stack: &[String]) -> bool {
    match (steps.split_first(), stack.split_first()) {
        (None, _) => true,
        (Some((&"**", rest)), None) => matches_slowly(rest, stack),
        (Some(_), None) => false,
        (Some((&"**", rest)), Some((_, below))) => {
            matches_slowly(rest, stack) || matches_slowly(steps, below)
        }
        (Some((step, rest)), Some((frame, below))) => {
            (*step == "*" || step == frame) && matches_slowly(rest, below)
        }
    }
}

proptest! {
    #[test]
    fn state_sets_agree_with_a_search(
        steps in proptest::collection::vec(prop_oneof!["[ab]", Just("*".to_owned()), Just("**".to_owned())], 0..6),
        stacks in proptest::collection::vec(proptest::collection::vec("[abc]", 1..7), 1..6),
    ) {
        let query = format!("^ {} a", steps.join(" "));
        let mut lines = String::new();
        for (stack, number) in stacks.iter().zip(0..) {
            writeln!(lines, "n {} {}", stack.join(" / n "), 1 << number).unwrap();
        }
        let steps: Vec<&str> = steps.iter().map(String::as_str).chain(["a"]).collect();
        let profile = text::parse(&lines).unwrap();
        let part = Query::parse(&query).unwrap().part_of(&profile).tree.total(Metric::CpuTime).sum;
        let expect: u64 = stacks
            .iter()
            .zip(0..)
            .filter(|(stack, _)| matches_slowly(&steps, stack))
            .map(|(_, number)| 1 << number)
            .sum();
        prop_assert_eq!(part, expect, "{}", query);
    }

    #[test]
    fn matching_and_other_paths_add_up_to_the_whole(stacks in stacks()) {
        let mut profile = text::parse("").unwrap();
        grow(&mut profile, &stacks, Metric::CpuTime);
        let part = |query| Query::parse(query).unwrap().part_of(&profile);
        let mut both = part("/f/ ** *");
        both.merge(&part("! /f/ ** *"));
        prop_assert_eq!(both.tree.total(Metric::CpuTime), profile.tree.total(Metric::CpuTime));
    }

    #[test]
    fn any_text_is_a_query_or_has_a_column(text in "[a-z:@/\"*?$^! .\\\\é\t]{0,40}") {
        match Query::parse(&text) {
            Ok(query) => prop_assert_eq!(query.text(), text),
            Err(error) => prop_assert!((1..=text.chars().count() + 1).contains(&error.column()), "{}", error),
        }
    }
}
