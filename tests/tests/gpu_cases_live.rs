//! Loops on the simulated device with one defect each, their twins, and the findings of both.
//!
//! Owns: the pairs whose defect concerns the device. Because: kernel names set its times, so a rule sees what it would
//! see on a real device. Does not: test a rule's arithmetic; unit tests beside the rules do. Needs root and BPF.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cases;
mod cli_support;
mod frameworks;
#[allow(dead_code, reason = "shared with other tests, which use the rest of it")]
mod simulated;

use cases::{Analysis, Case, hold};
use frameworks::line;
use simulated::Setting;

const PROGRAM: &str = "gpu_cases.py";

/// Loops last a second, and the device is idle while the program starts.
const WITHOUT_START: [&str; 2] = ["--skip", "idle-device"];

fn recorded(loops: &[&str]) -> Option<(tempfile::TempDir, String)> {
    let setting = Setting { libraries: "cuda13", collector: true, ..Setting::default() };
    simulated::record_file(setting, &simulated::python(PROGRAM), loops)
}

/// A defect at a marked line of its loop.
fn at_its_line(name: &'static str, rule: &'static str) -> Case {
    Case { name, rule, place: format!("{PROGRAM}:{name}:{}", line(PROGRAM, name)) }
}

#[test]
fn defects_of_loops_on_a_device_are_found() {
    let cases = [
        at_its_line("loss_on_cpu", "blocking-copies"),
        at_its_line("small_kernels", "small-kernels"),
        at_its_line("single_precision", "single-precision"),
    ];
    let words = cases.iter().flat_map(|case| ["defect", "twin"].map(|kind| format!("{kind}:{}", case.name)));
    let words: Vec<String> = words.collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let Some((_folder, file)) = recorded(&words) else { return };
    hold(&cases, &file, &WITHOUT_START);
}

#[test]
fn a_value_read_in_every_step_is_found() {
    let Some((_folder, defect)) = recorded(&["defect:item"]) else { return };
    let Some((_other, twin)) = recorded(&["twin:item"]) else { return };
    let case = at_its_line("item", "blocking-waits");
    let problems = case.problems([defect, twin].map(|file| Analysis::of(&file, &WITHOUT_START)));
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
