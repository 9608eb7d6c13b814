//! Experiments over a real program, by the program as a user runs it. Needs root and BPF.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cli_support;

use std::path::Path;
use std::process::{Command, Output};

use cli_support::{can_capture, program, stderr, stdout};
use serde_json::Value;

/// Number of the program's steps, each from one end to the next.
const STEPS: u64 = 19;

fn workload(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads").join(name).display().to_string()
}

/// An experiment with the program in a folder; batch 0 fails.
fn experiment(folder: &Path, options: &[&str], command: &[&str]) -> Output {
    let library = folder.join("libsteps.so").display().to_string();
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-fPIC", "-shared", "-DDRIVER", "-o", &library, &workload("marked_ranges.c")]);
    assert!(compiler.status().unwrap().success());
    let marked = workload("marked_steps.py");
    let own = ["python3", &marked, &library, "{batch}"];
    let command = if command.is_empty() { &own[..] } else { command };
    let mut run = program();
    run.current_dir(folder).args(["experiment", "--system-metrics", "off", "-o", "out"]);
    run.args(["--step-marker", "libsteps.so*:train_step"]).args(options).arg("--").args(command);
    run.output().unwrap()
}

/// The means measured by the program itself, in run order.
fn own_means(output: &Output) -> Vec<f64> {
    let said = stderr(output);
    said.lines().filter_map(|line| line.strip_prefix("mean ")?.parse().ok()).collect()
}

#[test]
fn steps_of_each_value_are_those_the_program_measured() {
    if !can_capture() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let options = ["--values", "batch=1,2,4", "--latency-target", "1m", "--format", "json"];
    let output = experiment(folder.path(), &options, &[]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let found: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let (rows, means) = (found["rows"].as_array().unwrap(), own_means(&output));
    assert_eq!((rows.len(), means.len()), (3, 3), "{found}");
    for (row, (batch, mean)) in rows.iter().zip([1.0, 2.0, 4.0].into_iter().zip(means)) {
        // The first steps may precede the capture's knowledge of the probe.
        let steps = row["steps"].as_u64().unwrap();
        assert!(row["basis"] == "mean-of-steps" && (1..=STEPS).contains(&steps), "{row}");
        let step_ns = row["step_ns"].as_f64().unwrap();
        // It slept at least that long; its clock is read shortly after the step ended, when it may lose its CPU.
        assert!(step_ns >= batch * 5e6 && (step_ns / mean - 1.0).abs() < 0.5, "{row}: {mean}");
        let throughput = row["throughput_per_second"].as_f64().unwrap();
        assert!((throughput * step_ns / 1e9 - batch).abs() < 1e-6, "{row}");
    }
    assert_eq!(found["optima"][0]["value"], "4");
    for batch in [1, 2, 4] {
        assert!(folder.path().join(format!("out/run-batch={batch}-1.dctx")).exists());
    }
}

#[test]
fn levels_within_a_run_cost_what_the_program_measured() {
    if !can_capture() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let rows = r#"probe = [{ library = "libsteps.so*", symbol = "cuProfilerStart", event = "user" }]"#;
    std::fs::write(folder.path().join("rows.toml"), rows).unwrap();
    let library = folder.path().join("libsteps.so").display().to_string();
    let options = ["--levels", "--in-process", "--window", "3", "--rounds", "2", "--format", "json"];
    let options = [&options[..], &["--probe-file", "rows.toml"]].concat();
    // It ends once its steps are no longer probed.
    let output = experiment(folder.path(), &options, &["python3", &workload("switched_steps.py"), &library]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let found: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let rows = found["rows"].as_array().unwrap();
    let levels: Vec<_> = rows.iter().map(|row| row["values"][0].as_str().unwrap()).collect();
    assert_eq!((levels, &found["in_process"]), (vec!["markers", "samples", "probes"], &Value::Bool(true)));
    for row in rows {
        assert!(row["runs"] == 2 && row["steps"].as_u64().unwrap() >= 2 * 3, "{row}");
        assert_eq!(row["basis"], "median-of-steps", "{row}");
    }
    // Both are medians of steps with the same probe and without it, by two clocks.
    let said = stderr(&output);
    let own = |name| -> f64 {
        said.lines()
            .find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
            .unwrap_or_else(|| panic!("{said}"))
    };
    let (cost_ns, probes) = (own("with ") - own("without "), &rows[2]["overhead"]);
    let ns = probes["ns"].as_f64().unwrap();
    assert!(cost_ns > 0.0 && ns > cost_ns / 5.0 && ns < cost_ns * 5.0, "{probes}: {cost_ns}");
    for row in &rows[1..] {
        let of = &row["overhead"];
        let within = of["ns"].as_f64().unwrap().abs() <= of["spread_ns"].as_f64().unwrap();
        assert_eq!((&of["rounds"], &of["within_spread"]), (&Value::from(2), &Value::Bool(within)), "{row}");
    }
    // One profile has all of it, and states that these probes cover only part of the time.
    assert_eq!(std::fs::read_dir(folder.path().join("out")).unwrap().count(), 1);
    let report =
        program().args(["report", "--all"]).arg(folder.path().join("out/run-1.dctx")).output().unwrap();
    assert!(stdout(&report).contains("functions of your own: attached"), "{}", stdout(&report));
}

#[test]
fn a_failed_run_is_told_and_the_others_go_on() {
    if !can_capture() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let options = ["--values", "batch=1,0,2", "--repeat", "2"];
    let output = experiment(folder.path(), &options, &[]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    let said = stdout(&output);
    assert!(said.contains("failed: out/run-batch=0-2.dctx: the command ended with exit code 7"), "{said}");
    assert!(said.contains("step: mean of steps, over runs") && said.contains("optimum: "), "{said}");
    // Earlier profiles are replaced only on request.
    let again = experiment(folder.path(), &options, &[]);
    assert_eq!(again.status.code(), Some(2));
    assert!(stderr(&again).contains("--force") && stdout(&again).is_empty(), "{}", stderr(&again));
}

#[test]
fn without_steps_the_wall_time_of_each_run_counts() {
    if !can_capture() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let options = ["--values", "seconds=0.2,0.4", "--format", "json"];
    let output = experiment(folder.path(), &options, &["sleep", "{seconds}"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let found: Value = serde_json::from_str(&stdout(&output)).unwrap();
    for (row, seconds) in found["rows"].as_array().unwrap().iter().zip([0.2, 0.4]) {
        assert_eq!(row["basis"], "wall-time", "{row}");
        assert!(row["step_ns"].as_f64().unwrap() >= seconds * 1e9, "{row}");
    }
}

#[test]
fn a_command_that_does_not_exist_ends_the_experiment() {
    if !can_capture() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let output = experiment(folder.path(), &["--values", "n=1,2"], &["no-such-program-here", "{n}"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("command not found: no-such-program-here"), "{}", stderr(&output));
    assert!(!folder.path().join("out/run-n=1-1.dctx").exists());
}
