//! Operators without native frames: each remaining stack matches a full walk, and missing parts are marked.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cli_support::can_capture;
use crate::cli_support::recording::record_until;
use crate::frameworks::{Samples, Target, with_torch, workload};
use deepctx_profile::frame::{Frame, Role};
use deepctx_profile::metric::Metric;

const WHOLE: &[&str] = &["--context", "python,native"];
const WITHOUT_NATIVE: &[&str] = &["--context", "python", "--probe", "operators"];
const LEFT_OUT: &str = "[native code left out]";

/// Samples by stack: frames below the thread, root first.
type Stacks = BTreeMap<Vec<String>, u64>;

/// A capture of a program with this many samples, without its native frames except for the mark; and whether there were
/// others.
fn captured(target: &Target, samples: u64, context: &[&str]) -> (Stacks, bool) {
    let options = [context, &["--no-gpu", "-F", "499"]].concat();
    let (_folder, file) =
        record_until(&target.pid(), &options, |file| Samples::of(file).with(&[]) >= samples);
    let profile = deepctx_storage::open(file).unwrap().profile;
    let (mut stacks, mut native) = (Stacks::new(), false);
    for (node, cell) in profile.tree.cells(Metric::Samples) {
        let mut frames = Vec::new();
        for frame in profile.tree.stack(node) {
            let frame = profile.frames.get(frame);
            let label = frame.label(&profile.strings, true);
            match frame {
                Frame::Root | Frame::Process { .. } | Frame::Thread { .. } => {}
                Frame::Native { role: Role::Interpreter, .. } if label == LEFT_OUT => frames.push(label),
                Frame::Native { .. } | Frame::NativeUnnamed { .. } => native = true,
                Frame::Kernel { .. } | Frame::KernelUnnamed { .. } => {}
                _ => frames.push(label),
            }
        }
        *stacks.entry(frames).or_default() += cell.count;
    }
    (stacks, native)
}

fn is_python(frame: &str) -> bool {
    frame.contains(".py:")
}

/// What a short walk sees of a stack: all Python frames, and the operators after the last of them; all operators if
/// there is none.
fn seen_short(stack: &[String]) -> Vec<String> {
    let last = stack.iter().rposition(|frame| is_python(frame)).unwrap_or(0);
    let kept = |(at, frame): &(usize, &String)| *at >= last || is_python(frame);
    stack.iter().enumerate().filter(kept).map(|(_, frame)| frame.clone()).collect()
}

fn without_mark(stack: &[String]) -> Vec<String> {
    stack.iter().filter(|frame| *frame != LEFT_OUT).cloned().collect()
}

fn total(stacks: &Stacks) -> u64 {
    stacks.values().sum()
}

fn library(folder: &Path) -> PathBuf {
    let library = folder.join("libtorch_cpu.so");
    let mut compiler = Command::new("c++");
    compiler.args(["-std=c++17", "-O2", "-fomit-frame-pointer", "-fPIC", "-shared", "-pthread", "-o"]);
    assert!(compiler.args([&library, &workload("torch_called.cpp")]).status().unwrap().success());
    library
}

#[test]
fn python_frames_and_operators_match_those_of_a_full_walk() {
    if !can_capture() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("python3");
    let target = Target::start(command.arg(workload("torch_called.py")).arg(library(folder.path())));
    let (whole, native) = captured(&target, 300, WHOLE);
    assert!(native, "{whole:?}");
    let (short, native) = captured(&target, 300, WITHOUT_NATIVE);
    assert!(!native, "{short:?}");

    let names = |stack: &[String]| -> String {
        let name = |frame: &String| match frame.split(':').nth(1) {
            Some(function) if is_python(frame) => function.to_owned(),
            _ => frame.clone(),
        };
        stack.iter().map(name).collect::<Vec<_>>().join(" ")
    };
    let sum = |stacks: &Stacks, wanted: &str| -> u64 {
        stacks.iter().filter(|(stack, _)| names(&without_mark(stack)) == wanted).map(|(_, n)| n).sum()
    };
    const PLAIN: &str = "<module> Layer.__call__ Layer.__call__ forward aten::linear aten::addmm";
    const ENGINE: &str = "MmBackward0 aten::mm";
    const WITHIN: &str =
        "<module> Layer.__call__ through_operator aten::relu called_back forward aten::linear aten::addmm";
    const WITHIN_SHORT: &str =
        "<module> Layer.__call__ through_operator called_back forward aten::linear aten::addmm";
    for (stacks, within) in [(&whole, WITHIN), (&short, WITHIN_SHORT)] {
        let parts = [PLAIN, ENGINE, within].map(|wanted| sum(stacks, wanted));
        let all = total(stacks);
        // Occasionally a sample falls between two operators.
        assert!(parts.iter().sum::<u64>() * 100 >= all * 95, "{parts:?} of {all}: {stacks:?}");
        assert!(parts.iter().all(|part| part * 10 > all), "{parts:?} of {all}: {stacks:?}");
    }
    // Frames between two evaluations are marked as missing. Up to 3.10 each function has a separate evaluation, and
    // none is marked.
    let version =
        Command::new("python3").args(["-c", "import sys; print(sys.version_info[1])"]).output().unwrap();
    if String::from_utf8_lossy(&version.stdout).trim().parse::<u32>().unwrap() > 10 {
        let marked = |wanted: &str| {
            short.iter().filter(|(stack, _)| names(stack) == wanted).map(|(_, n)| n).sum::<u64>()
        };
        let within = format!(
            "<module> {LEFT_OUT} Layer.__call__ through_operator {LEFT_OUT} called_back forward aten::linear aten::addmm"
        );
        assert_eq!(marked(&within), sum(&short, WITHIN_SHORT), "{short:?}");
    }
}

#[test]
fn a_training_loop_shows_the_same_operators_without_native_frames() {
    let Some(mut command) = with_torch("torch_train.py") else { return };
    let folder = tempfile::tempdir().unwrap();
    let target = Target::start(command.arg(folder.path().join("chains")));
    // Enough samples to cover most stacks.
    let (whole, _) = captured(&target, 4000, WHOLE);
    let (short, native) = captured(&target, 4000, WITHOUT_NATIVE);
    assert!(!native);
    let expect: BTreeSet<Vec<String>> = whole.keys().map(|stack| seen_short(stack)).collect();
    let (mut equal, mut other) = (0, Stacks::new());
    let mut operators = BTreeSet::new();
    for (stack, count) in &short {
        let stack = without_mark(stack);
        if expect.contains(&stack) {
            equal += count;
            operators.insert(stack);
        } else {
            other.insert(stack, *count);
        }
    }
    println!(
        "| {equal} of {} samples have one of {} stacks that whole walks show; rare ones: {}",
        total(&short),
        operators.len(),
        total(&other)
    );
    // Stacks that occur once or twice in one capture may be absent in the other.
    assert!(equal * 100 >= total(&short) * 95 && operators.len() > 50, "{other:?}");
    assert!(other.values().all(|count| count * 50 < total(&short)), "{other:?}");
}
