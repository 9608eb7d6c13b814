//! Python stacks: the captured chain is the one that the program itself recorded.

use std::collections::{HashMap, HashSet};
use std::process::Command;

use deepctx_common::end::{PythonEnd, WalkEnd};
use deepctx_symbolizer::maps::{self, LineFilter};
use deepctx_symbolizer::python::{PythonSymbols, locate_process};
use serde_json::Value;

use crate::support::{Target, can_capture, capture_until, has_program, options, workload};

/// A frame by the program's own account: code object, line, qualified name.
type ExpectedFrames = Vec<(u64, u32, String)>;

fn expected(line: &Value) -> ExpectedFrames {
    line["frames"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| {
            let number = |key: &str| f[key].as_u64().unwrap();
            (number("code"), number("line") as u32, f["qualname"].as_str().unwrap().to_owned())
        })
        .collect()
}

/// Starts a workload that prints its chains, and parses them: thread id → scenario, state, chain.
fn start(command: &mut Command) -> (Target, HashMap<u32, (String, String, ExpectedFrames)>) {
    let mut target = Target::start(command);
    let mut threads = HashMap::new();
    loop {
        let line: Value = serde_json::from_str(&target.line()).unwrap();
        if line["ready"] == true {
            return (target, threads);
        }
        let text = |key: &str| line[key].as_str().unwrap().to_owned();
        let tid = line["tid"].as_u64().unwrap() as u32;
        threads.insert(tid, (text("scenario"), text("state"), expected(&line)));
    }
}

/// Samples the target and compares every sample of every thread with a known chain, apart from `leaves_off` frames that
/// the thread has called since (a spinning leaf calls nothing).
fn check(command: &mut Command, at_least: usize) {
    let (target, threads) = start(command);
    let pid = target.pid();
    let running: HashSet<u32> =
        threads.iter().filter(|(_, (_, state, _))| state != "sleeping").map(|(tid, _)| *tid).collect();
    assert!(!running.is_empty());
    let captured = capture_until(options(pid, 999), |c| {
        let mut seen: HashMap<u32, usize> = HashMap::new();
        for sample in c.of(pid) {
            *seen.entry(sample.fixed.tid).or_default() += 1;
        }
        running.iter().all(|tid| seen.get(tid).is_some_and(|n| *n >= at_least))
    });
    let mappings = maps::read(pid, LineFilter::Executable).unwrap().mappings;
    let (interpreter, memory) = locate_process(pid, &mappings).unwrap();
    let mut symbols = PythonSymbols::default();
    assert!(symbols.attach(pid, &interpreter, Box::new(memory)));

    let (mut compared, mut seen) = (0, HashSet::new());
    for sample in captured.of(pid) {
        let Some((scenario, _, chain)) = threads.get(&sample.fixed.tid) else { continue };
        assert_eq!(
            sample.native_end(),
            WalkEnd::Complete,
            "{scenario}: stopped at {:#x}",
            sample.fixed.stop_pc
        );
        assert_eq!(sample.python_end(), PythonEnd::Complete, "{scenario}");
        let walked: ExpectedFrames = sample
            .python()
            .into_iter()
            .map(|(code, checksum, instruction)| {
                let frame = symbols.frame(pid, code, checksum, instruction).unwrap();
                (code, frame.line.unwrap_or(0), frame.qualname.to_string())
            })
            .collect();
        // The leaf moves within its line's loop; its line is the announced one.
        assert_eq!(&walked, chain, "{scenario}");
        compared += 1;
        seen.insert(sample.fixed.tid);
    }
    let missing: Vec<_> =
        running.difference(&seen).filter_map(|tid| threads.get(tid)).map(|t| &t.0).collect();
    assert!(missing.is_empty(), "never sampled: {missing:?}");
    eprintln!("{compared} stacks of {} threads are the program's own", seen.len());
}

#[test]
fn python_stacks_are_the_chains_that_the_program_recorded() {
    if can_capture() && has_program("python3") {
        check(Command::new("python3").arg(workload("python_chains.py")), 3);
    }
}

#[test]
fn threads_that_compute_without_the_gil_keep_their_python_frames() {
    if can_capture() && has_program("python3") {
        check(Command::new("python3").arg(workload("gil_released.py")), 20);
    }
}
