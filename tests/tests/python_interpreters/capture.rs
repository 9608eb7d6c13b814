//! Stacks captured by the kernel programs, against the chains that the program itself recorded.

use std::collections::HashMap;

use serde_json::Value;

use crate::cli_support::can_capture;
use crate::support::{
    Python, Stacks, Target, captured, captured_in_bursts, chains, for_each, labelled, pythons, row, total,
    ways, workload,
};

/// Python frames that always fit into a sample; deeper stacks keep those nearest to the leaf.
const FRAMES_RECORDED: usize = 500;
/// The root of the main thread, which may still be announcing the others and does not stay in place.
const MAIN_THREAD: &str = "python_chains.py:<module>:";
/// One in this many samples may be marked as incomplete; none may be wrong.
const LABELLED_AT_MOST: u64 = 200;

/// Root first, as in folded stacks: `file:function:line` joined by semicolons.
fn folded<'v>(frames: impl DoubleEndedIterator<Item = &'v Value>) -> String {
    let text = |frame: &Value, key: &str| frame[key].as_str().unwrap().replace(';', ":");
    let frame = |frame: &Value| {
        let file = text(frame, "file");
        let file = file.rsplit('/').next().unwrap();
        format!("{file}:{}:{}", text(frame, "qualname"), frame["line"])
    };
    let frames: Vec<String> = frames.rev().map(frame).collect();
    frames.join(";")
}

fn frames_of<'v>(scenario: &'v Value, key: &str) -> &'v [Value] {
    scenario[key].as_array().map_or(&[], Vec::as_slice)
}

/// The threads of a program by stack.
type Threads = HashMap<String, Thread>;

struct Thread {
    scenario: String,
    /// It always computes. A sleeping one may be sampled when a stopped program continues.
    spins: bool,
}

/// Samples of a program.
#[derive(Default)]
struct ObservedStacks<'e> {
    /// Correct samples of each spinning scenario.
    equal: HashMap<&'e str, u64>,
    /// Samples marked as incomplete.
    labelled: u64,
    /// The last of them.
    last_gap: Option<String>,
    /// A stack that no thread has.
    wrong: Option<String>,
    /// Stacks without Python frames: idle threads of numpy's BLAS run briefly when a stopped program continues.
    foreign: u64,
}

impl<'e> ObservedStacks<'e> {
    fn of(stacks: &Stacks, expected: &'e Threads) -> Self {
        let mut seen = Self::default();
        stacks.iter().for_each(|(frames, count)| seen.add(frames, *count, expected));
        seen
    }

    fn add(&mut self, frames: &[String], count: u64, expected: &'e Threads) {
        if labelled(frames) {
            self.labelled += count;
            self.last_gap = Some(frames.join(";"));
            return;
        }
        if frames.first().is_some_and(|root| root.starts_with(MAIN_THREAD)) {
            return;
        }
        if frames.is_empty() {
            self.foreign += count;
            return;
        }
        let stack = frames.join(";");
        let deep = frames.len() >= FRAMES_RECORDED;
        // A stack truncated at the root keeps the frames nearest to the leaf, at a frame boundary.
        let found = expected.get(&stack).or_else(|| {
            let cut = expected.iter().find(|(chain, _)| deep && chain.ends_with(&format!(";{stack}")));
            cut.map(|(_, thread)| thread)
        });
        match found {
            Some(thread) if thread.spins => *self.equal.entry(&thread.scenario).or_insert(0) += count,
            Some(_) => {}
            None => self.wrong = Some(stack),
        }
    }

    fn equal(&self) -> u64 {
        self.equal.values().sum()
    }
}

/// Captures the program until each of its threads was sampled: the interpreter's lock is not fair, and on a busy
/// machine a thread may wait for seconds.
fn check<'e>(
    python: &Python,
    pid: u32,
    (frequency, options): (u32, &[&str]),
    expected: &'e Threads,
) -> ObservedStacks<'e> {
    let spinning = expected.values().filter(|thread| thread.spins).count();
    let stacks = captured_in_bursts(pid, frequency, ("python", options), |stacks| {
        let seen = ObservedStacks::of(stacks, expected);
        seen.wrong.is_some() || (seen.equal.len() == spinning && seen.equal() > 500)
    });
    let seen = ObservedStacks::of(&stacks, expected);
    if let Some(stack) = &seen.wrong {
        panic!("{}: no thread has the stack {stack}; they have {:#?}", python.name, expected.keys());
    }
    let (foreign, equal) = (seen.foreign, seen.equal());
    assert!(foreign * 100 <= equal, "{}: {foreign} stacks beside {equal} have no Python frame", python.name);
    seen
}

#[test]
fn every_captured_stack_matches_one_reported_by_the_program() {
    if !can_capture() {
        return;
    }
    println!(
        "| interpreter                      | scenarios                |   n | stacks |  equal | gaps |"
    );
    // One at a time, so that all threads of each get CPU time.
    for python in &pythons() {
        let (target, scenarios): (Target, Vec<Value>) = chains(python);
        let thread = |of: &Value| {
            let (scenario, spins) = (of["scenario"].as_str().unwrap().to_owned(), of["state"] == "spinning");
            (folded(frames_of(of, "frames").iter()), Thread { scenario, spins })
        };
        let expected = scenarios.iter().map(thread).collect();
        for (way, options) in ways(python) {
            let what = &format!("fixed chains{way}");
            let seen = check(python, target.pid(), (1999, options), &expected);
            let compared = seen.equal() + seen.labelled;
            row(&python.name, what, seen.equal.len(), compared, seen.equal(), seen.labelled);
            assert!(
                seen.labelled * LABELLED_AT_MOST <= compared,
                "{}, {what}: {} gaps in {compared}, as {:?}",
                python.name,
                seen.labelled,
                seen.last_gap
            );
        }
    }
    for missing in std::env::var("DEEPCTX_PYTHONS_MISSING").unwrap_or_default().lines() {
        println!("| not to be had: {missing}");
    }
}

/// Up to 3.11, the frames of the interpreter that called the sub-interpreter are known too; later only those of the
/// running one, with a label in place of the others.
#[test]
fn a_sub_interpreter_shows_its_own_frames() {
    if !can_capture() {
        return;
    }
    for_each(&pythons(), |python| {
        let program = workload("python_chains.py");
        let mut target = Target::start(python, &[&program, "--only", "sub-interpreter"]);
        let lines = target.lines_until_ready();
        let scenario: Value = serde_json::from_str(&lines[0]).unwrap();
        let (inner, outer) = (frames_of(&scenario, "frames"), frames_of(&scenario, "outer"));
        let chain = folded(inner.iter());
        let whole = folded(inner.iter().chain(outer));
        let (mut equal, mut other) = (0, 0);
        let is_enough = |stacks: &Stacks| total(stacks) > 300;
        for (frames, count) in captured(target.pid(), 1999, ("python", &[]), is_enough) {
            let stack =
                frames.iter().filter(|frame| !frame.starts_with('[')).cloned().collect::<Vec<_>>().join(";");
            match (stack == whole, stack == chain && labelled(&frames)) {
                (false, false) if !stack.contains("within") => other += count,
                (false, false) => panic!("{}: {stack} is neither {whole} nor its inner part", python.name),
                _ => equal += count,
            }
        }
        row(&python.name, "sub-interpreter", 1, equal, equal, 0);
        assert!(
            equal > other && equal > 0,
            "{}: {equal} of the sub-interpreter, {other} others",
            python.name
        );
    });
}
