//! What helpers of OpenMP do, beside what the program says by the names of its functions.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cli_support;
mod frameworks;

use std::process::Command;

use frameworks::{Samples, Target, can_capture_arguments, capture, with_torch, workload};

/// Captures until most of what helpers do stands below who handed it out; on a busy machine it takes long until that is known.
#[track_caller]
fn check(target: &Target, lines: &[(&str, &str)]) {
    for seconds in [4, 10, 30] {
        let options = ["--freq", "499", "--context", "python,native,team"];
        let (_folder, file) = capture(target, seconds, &options, || {});
        let samples = Samples::of(&file);
        let placed = |line: &str, work: &str| samples.with(&[line, ";[team];", work]);
        let counts: Vec<_> = lines.iter().map(|(line, work)| placed(line, work)).collect();
        let placed = samples.with(&[";[team];"]);
        let left = samples.with(&["start_thread", "_omp_fn"]);
        println!("{counts:?} of {placed} by line, {left} left where they ran");
        assert_eq!(counts.iter().sum::<u64>(), placed, "in works of other lines:\n{samples}");
        if counts.iter().all(|count| *count > 20) && left * 5 < placed {
            return;
        }
        assert!(seconds < 30, "{samples}");
    }
}

#[test]
fn what_helpers_do_stands_below_the_function_that_handed_it_to_them() {
    if !can_capture_arguments() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-fopenmp", "-o"]).arg(&program).arg(workload("openmp.c"));
    assert!(compiler.status().unwrap().success());
    let target = Target::start(&mut Command::new(program));
    check(&target, &[(";light;[team]", "light._omp_fn"), (";heavy;[team]", "heavy._omp_fn")]);
}

#[test]
fn what_helpers_of_torch_do_stands_below_the_line_of_python() {
    let Some(mut program) = with_torch("torch_team.py") else { return };
    let target = Target::start(&mut program);
    check(&target, &[(":grow", "_omp_fn"), (":bend", "_omp_fn")]);
}
