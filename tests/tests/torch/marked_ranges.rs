//! Ranges of NVTX and roctx, profiler start and stop calls, and a function that marks training steps, seen from
//! outside.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::cli_support::expect_code;
use crate::frameworks::{can_capture_arguments, line, record_through, stacks, with_torch, workload};
use deepctx_profile::frame::Frame;
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Profile;

/// The program and its libraries, in this folder.
fn program(folder: &Path) -> Command {
    let compile = |arguments: &[&str], to: &str| {
        let to = folder.join(to);
        let mut compiler = Command::new("cc");
        compiler.args(["-O2", "-o"]).arg(&to).arg(workload("marked_ranges.c")).args(arguments);
        assert!(compiler.status().unwrap().success());
        to.display().to_string()
    };
    let library = |define: &str, to: &str| compile(&["-fPIC", "-shared", define], to);
    let libraries = [
        library("-DNVTX", "libnvToolsExt.so.1"),
        library("-DROCTX", "libroctx64.so.4"),
        library("-DDRIVER", "libcuda.so.1"),
    ];
    let mut arguments = vec!["-Wl,-rpath,$ORIGIN"];
    arguments.extend(libraries.iter().map(String::as_str));
    Command::new(compile(&arguments, "program"))
}

/// Counts of a metric in ranges, by name.
fn counts(profile: &Profile, metric: Metric) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for (node, cell) in profile.tree.cells(metric) {
        let Frame::Range { name } = profile.frames.get(profile.tree.node(node).frame) else { continue };
        *counts.entry(profile.strings.get(name).to_owned()).or_insert(0) += cell.count;
    }
    counts
}

/// A capture of a program from its probes' attachment to its end. Returns its file with its folder.
fn captured(command: &mut Command, marker: &str) -> (tempfile::TempDir, String) {
    record_through(
        command,
        &["--context", "python,native", "--probe", "ranges", "--step-marker", marker, "-F", "499"],
    )
}

#[test]
fn pushed_ranges_and_training_step_functions_are_recorded() {
    const ROUNDS: u64 = 200;
    if !can_capture_arguments() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut program = program(folder.path());
    program.arg(ROUNDS.to_string());
    let (_folder, file) = captured(&mut program, "libcuda.so*:train_step");
    let profile = deepctx_storage::open(&file).unwrap().profile;
    let ranges = counts(&profile, Metric::RangeTime);
    let expect = [("profiler", 1), ("pushed", ROUNDS), ("rocked", ROUNDS), ("unnamed", ROUNDS)];
    let expect = expect.into_iter().chain([("within the domain", ROUNDS)]);
    assert_eq!(ranges, expect.map(|(name, n)| (name.to_owned(), n)).collect());
    assert_eq!(counts(&profile, Metric::StepTime), [("train_step".to_owned(), ROUNDS - 1)].into());
    let samples = stacks(&file, "samples");
    let within = |stack: &str| samples.get(stack).copied().unwrap_or(0);
    let [pushed, both, domain, rocked] = [
        "[range] profiler;[range] pushed",
        "[range] profiler;[range] pushed;[range] within the domain",
        "[range] profiler;[range] within the domain",
        "[range] profiler;[range] rocked",
    ]
    .map(within);
    // Two milliseconds, and one of each other.
    assert!(pushed > both && pushed > domain && pushed > rocked, "{samples:?}");
    assert!(both * domain * rocked > 0, "{samples:?}");
    let report = expect_code(0, &["report", &file, "--all"]);
    assert!(report.contains("within the domain") && report.contains("train_step"), "{report}");
}

#[test]
fn ranges_that_pytorch_pushes_for_nvtx_are_recorded() {
    const STEPS: u64 = 200;
    let Some(mut command) = with_torch("torch_nvtx.py") else { return };
    command.arg(STEPS.to_string());
    let (_folder, file) = captured(&mut command, "step");
    let profile = deepctx_storage::open(&file).unwrap().profile;
    let ranges = counts(&profile, Metric::RangeTime);
    let expect = [("inner", STEPS), ("step", STEPS)].map(|(name, n)| (name.to_owned(), n));
    assert_eq!(ranges, expect.into());
    // The first one may be elsewhere, while names of its functions are still being read.
    let steps = counts(&profile, Metric::StepTime)["step"];
    assert!((STEPS - 3..STEPS).contains(&steps), "{steps}");
    let samples = stacks(&file, "samples");
    let below = |parts: &[&str]| {
        let all = samples.iter().filter(|(stack, _)| parts.iter().all(|part| stack.contains(part)));
        all.map(|(_, n)| n).sum::<u64>()
    };
    let at = format!(
        "torch_nvtx.py:step:{};[range] step;[range] inner;torch_nvtx.py:busy:",
        line("torch_nvtx.py", "inner")
    );
    let inner = format!("torch_nvtx.py:step:{};", line("torch_nvtx.py", "inner"));
    let (there, within) = (below(&[&inner, "torch_nvtx.py:busy:"]), below(&[&at]));
    println!("| {} ranges of NVTX; {within} of {there} samples of the inner one within it", 2 * STEPS);
    assert!(within > 100 && within == there, "{samples:?}");
}
