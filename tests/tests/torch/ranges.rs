//! Named ranges of a program and its training steps, seen from outside, beside the program's own account.

use std::collections::BTreeMap;
use std::process::Command;

use crate::frameworks::{can_capture_arguments, look_alike, record_through, stacks, with_torch};
use deepctx_profile::frame::Frame;
use deepctx_profile::metric::{Cell, Metric};
use deepctx_profile::profile::Profile;

/// A capture of a program from its probes' attachment to its end. Returns the profile and its file.
fn ranges_of(command: &mut Command) -> (Profile, tempfile::TempDir, String) {
    let (folder, file) =
        record_through(command, &["--context", "python,native", "--probe", "ranges", "-F", "499"]);
    (deepctx_storage::open(&file).unwrap().profile, folder, file)
}

/// Values of a metric, by the names of the ranges that have them.
fn by_name(profile: &Profile, metric: Metric) -> BTreeMap<String, Cell> {
    let mut by_name: BTreeMap<String, Cell> = BTreeMap::new();
    for (node, cell) in profile.tree.cells(metric) {
        let Frame::Range { name } = profile.frames.get(profile.tree.node(node).frame) else { continue };
        by_name.entry(profile.strings.get(name).to_owned()).or_insert(Cell::EMPTY).merge(&cell);
    }
    by_name
}

#[test]
fn ranges_and_steps_are_those_that_the_program_made() {
    const STEPS: u64 = 100;
    const INNER: &str = "inner, with a name that no string keeps within itself";
    const STEP: &str = "Optimizer.step#Own.step";
    if !can_capture_arguments() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = look_alike("torch_ranges.cpp", folder.path());
    let (profile, _folder, file) = ranges_of(Command::new(&program).arg(STEPS.to_string()));
    let ranges = by_name(&profile, Metric::RangeTime);
    let counts: Vec<(&str, u64)> = ranges.iter().map(|(name, cell)| (name.as_str(), cell.count)).collect();
    assert_eq!(counts, [(STEP, STEPS), ("handed over", STEPS), (INNER, STEPS), ("outer", STEPS)]);
    assert_eq!(by_name(&profile, Metric::StepTime)[STEP].count, STEPS - 1);
    // At least the program's busy time, each alone.
    for (name, least) in [(STEP, 1_000), (INNER, 3_000), ("handed over", 500), ("outer", 2_500)] {
        assert!(ranges[name].min >= least * 1000, "{name}: {:?}", ranges[name]);
    }
    let samples = stacks(&file, "samples");
    let within = |stack: &str| samples.get(stack).copied().unwrap_or(0);
    let inner = within(&format!("[range] outer;[range] {INNER}"));
    // Three milliseconds within it, and two and a half outside.
    let outer = within("[range] outer");
    assert!(inner * 3 > outer && outer * 3 > inner, "{samples:?}");
    assert!(within(&format!("[range] {STEP}")) > 0, "{samples:?}");
    assert!(samples.keys().all(|stack| stack.is_empty() || stack.starts_with("[range]")), "{samples:?}");
}

#[test]
fn training_loop_ranges_appear_below_the_lines_entering_them() {
    const STEPS: u64 = 1000;
    let Some(mut command) = with_torch("torch_steps.py") else { return };
    let folder = tempfile::tempdir().unwrap();
    let said = folder.path().join("said");
    command.arg(&said).arg(STEPS.to_string());
    let (profile, _folder, file) = ranges_of(&mut command);
    let said = std::fs::read_to_string(&said).unwrap_or_default();
    let ranges = by_name(&profile, Metric::RangeTime);
    let count = |name: &str| ranges.get(name).map_or(0, |cell| cell.count);
    for name in ["work", "inner", "Optimizer.step#SGD.step", "Optimizer.zero_grad#SGD.zero_grad"] {
        assert_eq!(count(name), STEPS, "{name}: {ranges:?}");
    }
    let numbers = said.lines().map(|line| line.split_once(' ').unwrap().0.parse::<u64>().unwrap());
    let (mut steps, mut took) = (0, 0);
    numbers.for_each(|ns| (steps, took) = (steps + 1, took + ns));
    let reported = by_name(&profile, Metric::StepTime)["Optimizer.step#SGD.step"];
    println!("| {steps} steps in {took} ns; from outside {} in {} ns", reported.count, reported.sum);
    // All steps together match the program's times, except for the delay between its clock and the probe.
    assert!(reported.count == steps && reported.sum.abs_diff(took) < took / 10, "{reported:?}, {took}");
    let samples = stacks(&file, "samples");
    // Every sample of the ranges' work is within them, after the line that is in them.
    const WITHIN: [&str; 2] = [":work:34;[range] work;", ":work:36;[range] work;[range] inner;"];
    let of = WITHIN.map(|within| {
        let at = format!("{within}torch_steps.py:busy:");
        samples.iter().filter(|(stack, _)| stack.contains(&at)).map(|(_, count)| count).sum::<u64>()
    });
    let busy = samples.iter().filter(|(stack, _)| stack.contains("torch_steps.py:busy:"));
    let busy: u64 = busy.map(|(_, count)| count).sum();
    assert_eq!(of.iter().sum::<u64>(), busy, "{of:?}");
    assert!(of.iter().all(|count| *count > 100), "{of:?}");
}
