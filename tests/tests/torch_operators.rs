//! Operators as they are seen from outside, beside what PyTorch says of itself.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cli_support;

use std::collections::{BTreeMap, HashSet};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use cli_support::{can_capture, expect_code};

/// A program that is killed when the test ends, however it ends.
struct Target(Child);

impl Target {
    /// Starts it and waits for its `ready`.
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let target = Self(child);
        assert!(lines.map_while(Result::ok).any(|line| line == "ready"), "the program ended");
        target
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn workload(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads").join(name)
}

/// Captures a process for some seconds: operators of its stacks, outermost first, and how many samples had them.
fn operators(
    target: &Target,
    seconds: u32,
    is_operator: impl Fn(&str) -> bool,
) -> BTreeMap<Vec<String>, u64> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.dctx").display().to_string();
    let (pid, duration) = (target.0.id().to_string(), format!("{seconds}s"));
    expect_code(0, &["record", "--pid", &pid, "--duration", &duration, "-F", "499", "-o", &file]);
    let folded = expect_code(
        0,
        &["export", &file, "--view", "python", "--metric", "samples", "--format", "folded", "-o", "-"],
    );
    let mut chains = BTreeMap::new();
    for line in folded.lines() {
        let (stack, count) = line.rsplit_once(' ').unwrap();
        let chain = stack.split(';').filter(|frame| is_operator(frame)).map(str::to_owned).collect();
        *chains.entry(chain).or_insert(0) += count.parse::<u64>().unwrap();
    }
    chains
}

#[test]
fn operators_are_told_by_the_names_on_the_stack() {
    if !can_capture() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("torch_names");
    let mut compiler = Command::new("c++");
    compiler.args(["-std=c++17", "-O2", "-fomit-frame-pointer", "-o"]);
    assert!(compiler.args([&program, &workload("torch_names.cpp")]).status().unwrap().success());
    let target = Target::start(&mut Command::new(&program));
    let chains = operators(&target, 2, |frame| !frame.starts_with("torch_names"));
    let count = |chain: &[&str]| {
        chains.get(&chain.iter().map(|&name| name.to_owned()).collect::<Vec<_>>()).copied().unwrap_or(0)
    };
    let all: u64 = chains.values().sum();
    let forward = count(&["aten::linear", "aten::addmm"]);
    let backward = count(&["AddmmBackward0", "aten::add_.Tensor"]);
    assert!(all > 100, "{chains:?}");
    // Now and then a sample falls between two operators.
    assert!((forward + backward) * 100 >= all * 98, "{chains:?}");
    assert!(forward * 3 > all && backward * 3 > all, "{chains:?}");
}

/// A name as torch's profiler shows it: without the overload. `None` for what is no operator.
fn as_torch_shows(frame: &str) -> Option<String> {
    let backward = frame.split_once("Backward").is_some_and(|(name, number)| {
        name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            && number.chars().all(|c| c.is_ascii_digit())
    });
    match frame {
        // Of a function in Python the profiler shows the class, which on the stack is in the Python frame below.
        "torch::autograd::PyNode" | "SquareBackward" => Some("PyNode".to_owned()),
        "torch::autograd::AccumulateGrad" => Some(frame.to_owned()),
        _ if backward => Some(frame.to_owned()),
        _ => frame.starts_with("aten::").then(|| frame.split('.').next().unwrap_or(frame).to_owned()),
    }
}

/// The operators among these names; an only child with its parent's name is one with it, as the profiler has it.
fn chain<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut chain: Vec<String> = names.filter_map(as_torch_shows).collect();
    chain.dedup();
    chain
}

#[test]
fn operators_of_a_training_loop_nest_as_torchs_own_profiler_saw_them() {
    let Some(python) = std::env::var_os("TEST_TORCH_PYTHON").filter(|python| Path::new(python).exists())
    else {
        println!(
            "skipped: torch, which is large, is fetched when `cargo xtask test torch` is asked for by name"
        );
        return;
    };
    if !can_capture() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("chains");
    let mut command = Command::new(python);
    command.args(["-W", "ignore"]).args([&workload("torch_train.py"), &file]).stderr(Stdio::null());
    command.env("LD_LIBRARY_PATH", std::env::var_os("TEST_TORCH_LIBRARIES").unwrap_or_default());
    let target = Target::start(&mut command);
    let said = std::fs::read_to_string(&file).unwrap();
    let seen: HashSet<Vec<String>> = said.lines().map(|line| chain(line.split(';'))).collect();
    assert!(seen.len() > 50, "the profiler saw {} chains", seen.len());

    let captured = operators(&target, 10, |frame| as_torch_shows(frame).is_some());
    let (mut equal, mut other) = (0, BTreeMap::new());
    let mut met = HashSet::new();
    for (names, count) in captured {
        let names = chain(names.iter().map(String::as_str));
        if names.is_empty() {
            continue;
        }
        if seen.contains(&names) {
            equal += count;
            met.insert(names);
        } else {
            *other.entry(names).or_insert(0) += count;
        }
    }
    println!(
        "| {equal} samples in operators, other than torch saw: {}; chains met: {} of {}",
        other.values().sum::<u64>(),
        met.len(),
        seen.len()
    );
    assert!(other.is_empty(), "not seen by the profiler: {other:?}; {equal} equal");
    assert!(equal > 1000 && met.len() > 20, "{equal} samples in {} chains", met.len());
}
