//! Work of OpenMP's helper threads, beside the account that the program's function names give; and their waiting.

use std::path::Path;
use std::process::Command;

use deepctx_profile::frame::{SPINNING, is_spinning};
use deepctx_profile::view::MergedTree;
use deepctx_profile::{Metric, Selection};

use crate::cli_support::recording::record_until;
use crate::frameworks::{Samples, Target, can_capture_arguments, with_torch, workload};

/// Captures until there are enough samples of each line's work; most of the helpers' work must be below the thread that
/// shared it.
#[track_caller]
fn check(target: &Target, lines: &[(&str, &str)]) {
    let options = ["--freq", "499", "--context", "python,native", "--probe", "openmp"];
    let counts = |samples: &Samples| -> Vec<u64> {
        lines.iter().map(|(line, work)| samples.with(&[line, ";[omp parallel];", work])).collect()
    };
    let left = |samples: &Samples| samples.with(&["start_thread", "_omp_fn"]);
    let (_folder, file) = record_until(&target.pid(), &options, |file| {
        let samples = Samples::of(file);
        let is_enough = counts(&samples).iter().all(|count| *count > 20);
        is_enough && left(&samples) * 5 < samples.with(&[";[omp parallel];"])
    });
    let samples = Samples::of(&file);
    let (counts, placed) = (counts(&samples), samples.with(&[";[omp parallel];"]));
    println!("{counts:?} of {placed} by line, {} left where they ran", left(&samples));
    assert_eq!(counts.iter().sum::<u64>(), placed, "in works of other lines:\n{samples}");
}

#[test]
fn openmp_helpers_appear_below_the_function_starting_their_region() {
    if !can_capture_arguments() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-fopenmp", "-o"]).arg(&program).arg(workload("openmp.c"));
    assert!(compiler.status().unwrap().success());
    let target = Target::start(&mut Command::new(program));
    check(&target, &[(";light;[omp parallel]", "light._omp_fn"), (";heavy;[omp parallel]", "heavy._omp_fn")]);
}

#[test]
fn torch_openmp_helpers_appear_below_the_python_line() {
    let Some(mut program) = with_torch("torch_openmp.py") else { return };
    let target = Target::start(&mut program);
    check(&target, &[(":grow", "_omp_fn"), (":bend", "_omp_fn")]);
}

/// Samples of a helper that waits: enough for a hundredth of them to be several.
const WAITING: u64 = 400;

#[test]
fn openmp_helpers_that_wait_are_shown_as_spinning() {
    // With more threads than CPUs, libgomp's threads fall asleep almost at once.
    if std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() < 2) {
        println!("skipped: a thread of libgomp spins only if it has a CPU of its own");
        return;
    }
    let Some(mut program) = with_torch("torch_openmp.py") else { return };
    let target = Target::start(&mut program);
    let (_folder, file) = record_until(&target.pid(), &["--freq", "499"], |file| {
        Samples::of(file).with(&["gomp_thread_start", "barrier_wait"]) > WAITING
    });
    let profile = deepctx_storage::open(Path::new(&file)).unwrap().profile;
    let mut tree = MergedTree::new(Selection::of(Metric::Samples)).with_spinning_apart();
    tree.refresh(&profile);
    let (mut apart, mut left) = (0, 0);
    for (samples, boxes) in tree.hottest(usize::MAX) {
        let texts: Vec<&str> = boxes.iter().map(|shown| shown.text.as_str()).collect();
        if let Some(at) = texts.iter().position(|text| *text == SPINNING) {
            assert!(texts.get(at + 1).is_some_and(|text| is_spinning(text)), "{texts:?}");
            assert!(!texts.iter().any(|text| text.contains("torch_openmp.py")), "a call waits: {texts:?}");
            apart += samples;
        } else if texts.contains(&"gomp_thread_start") && texts.iter().any(|text| is_spinning(text)) {
            left += samples;
        }
    }
    // Stacks with a gap, behind which a call may wait, stay as they are.
    assert!(apart > 0 && left * 100 <= apart, "{apart} stand apart, {left} do not");
}
