//! Loops of JAX on the CPU with one defect each, their twins, and the findings of both.

use crate::cases::{Analysis, Case, hold};
use crate::frameworks::{line, record_through, with_jax};

const PROGRAM: &str = "jax_cases.py";

/// A defect at a marked line of its loop.
fn at_its_line(name: &'static str, rule: &'static str) -> Case {
    Case { name, rule, place: format!("{PROGRAM}:{name}:{}", line(PROGRAM, name)) }
}

#[test]
fn defects_of_loops_of_jax_are_found_at_their_lines() {
    let Some(mut command) = with_jax(PROGRAM) else { return };
    let folder = tempfile::tempdir().unwrap();
    let options = ["--context", "python,native", "-F", "499", "--off-cpu"];
    let (_recording, file) = record_through(command.arg(folder.path()), &options);
    hold(
        &[
            at_its_line("float_loss", "blocking-waits"),
            at_its_line("recompilation", "compilation-time"),
            at_its_line("pickles", "checkpoint-time"),
        ],
        &file,
        &[],
    );
}

/// What the rule says of a recording of one loop, with names of its compiled code.
fn conversions(kind: &str) -> Option<Analysis> {
    let folder = tempfile::tempdir().unwrap();
    let mut command = with_jax(PROGRAM)?;
    command.arg(folder.path()).args(["conversions", kind]);
    command.current_dir(folder.path()).env("XLA_FLAGS", "--xla_dump_to=dump");
    let (_recording, file) = record_through(&mut command, &["-F", "499"]);
    // The whole program has threads that spin, which say nothing about the loop.
    Some(Analysis::of(&file, &["--only", "conversions"]))
}

/// What XLA runs stands in threads of its own, below no function of the loop: each kind has its recording.
#[test]
fn a_type_that_is_converted_in_every_step_is_found() {
    let [Some(defect), Some(twin)] = ["defect", "twin"].map(conversions) else { return };
    let place = format!("{PROGRAM}:converted:{}", line(PROGRAM, "conversions"));
    let case = Case { name: "conversions", rule: "conversions", place };
    let problems = case.problems([defect, twin]);
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
