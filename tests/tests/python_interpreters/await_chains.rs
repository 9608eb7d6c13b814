//! Who awaits the running task, read from outside, against the program's own record.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::cli_support::can_capture;
use crate::support::{Python, Stacks, Target, captured, programs, pythons, row, total, workload};
use deepctx_symbolizer::python::task_fields::PublishedOffsets;

/// The oldest `3.n` whose tasks are read.
const OLDEST_MINOR: u8 = 11;
/// The oldest `3.n` whose asyncio publishes its field offsets.
const STATES_FROM_MINOR: u8 = 14;
const CONTEXT: &[&str] = &["--probe", "async"];

/// The frames between the event loop and the task's functions, and the functions.
fn parts(frames: &[String]) -> Option<(&[String], &[String])> {
    let called = 1 + frames.iter().rposition(|frame| frame.starts_with("events.py:Handle._run:"))?;
    let rest = frames.get(called..)?;
    let is_chain = |frame: &String| frame.starts_with("[task") || frame.starts_with("[unknown: async-");
    let own = rest.iter().rposition(is_chain).map_or(0, |last| last + 1);
    Some(rest.split_at(own))
}

fn unknown(chain: &[String]) -> bool {
    chain.iter().any(|frame| frame.starts_with("[unknown: "))
}

fn check(python: &Python) {
    let mut target = Target::start(python, &[&workload("python_async.py")]);
    let lines = target.lines_until_ready();
    let expected: BTreeMap<String, String> = lines
        .iter()
        .map(|line| {
            let said: Value = serde_json::from_str(line).unwrap();
            let chain: Vec<_> =
                said["chain"].as_array().unwrap().iter().map(|part| part.as_str().unwrap()).collect();
            (chain.join(";"), said["leaf"].as_str().unwrap().to_owned())
        })
        .collect();
    // Until each was sampled, mostly after each task was first read.
    let stacks = captured(target.pid(), 1999, ("python", CONTEXT), |stacks| {
        let seen = ObservedChains::of(stacks, &expected);
        let is_enough = seen.equal.len() == expected.len() && seen.labelled < seen.equal();
        seen.wrong.is_some() || (is_enough && seen.equal() > 500)
    });
    let seen = ObservedChains::of(&stacks, &expected);
    let (equal, labelled) = (seen.equal(), seen.labelled);
    row(&python.name, "await chains", expected.len(), equal + labelled, equal, labelled);
    assert_eq!(seen.wrong, None, "{}: it is none of {expected:#?}", python.name);
}

/// Samples of tasks.
#[derive(Default)]
struct ObservedChains<'e> {
    /// With one of the program's chains, by their ids.
    equal: BTreeMap<&'e str, u64>,
    /// Marked as incomplete.
    labelled: u64,
    /// A chain that the program does not have.
    wrong: Option<String>,
}

impl<'e> ObservedChains<'e> {
    fn of(stacks: &Stacks, expected: &'e BTreeMap<String, String>) -> Self {
        let mut seen = Self::default();
        for (frames, count) in stacks {
            let Some((chain, own)) = parts(frames) else { continue };
            // The loop's own work, before and after a task's.
            if !own.iter().any(|frame| frame.starts_with("python_async.py:spin:")) {
                continue;
            }
            let chain_text = chain.join(";");
            match expected.get(&chain_text) {
                _ if unknown(chain) => seen.labelled += count,
                Some(leaf) => *seen.equal.entry(leaf).or_default() += count,
                None => seen.wrong = Some(chain_text),
            }
        }
        seen
    }

    fn equal(&self) -> u64 {
        self.equal.values().sum()
    }
}

#[test]
fn await_chain_matches_the_one_the_program_recorded() {
    if !can_capture() {
        return;
    }
    for python in programs().iter().filter(|python| python.minor >= OLDEST_MINOR) {
        check(python);
    }
}

#[test]
fn published_asyncio_offsets_are_found_and_match_the_table() {
    for python in pythons().iter().filter(|python| python.minor >= STATES_FROM_MINOR) {
        let mut target =
            Target::start(python, &["-c", "import asyncio; print('{\"ready\"', flush=True); input()"]);
        target.lines_until_ready();
        let (interpreter, memory, _) = target.attach();
        let stated = PublishedOffsets::of_process(&*memory, interpreter.runtime);
        let stated = stated.unwrap_or_else(|| panic!("{}: nothing is stated that can be so", python.name));
        // A mismatch would be trusted; then the table is out of date.
        assert_eq!(
            stated.matches_table(&*memory, interpreter.layout),
            Some(true),
            "{}: {stated:?}",
            python.name
        );
    }
}

#[test]
fn task_is_not_named_after_another_that_replaced_it() {
    if !can_capture() {
        return;
    }
    for python in programs().iter().filter(|python| python.minor >= OLDEST_MINOR) {
        let mut target = Target::start(python, &[&workload("python_async_turns.py")]);
        target.lines_until_ready();
        let (mut compared, mut equal, mut labelled, mut wrong) = (0, 0, 0, 0);
        let is_enough = |stacks: &Stacks| total(stacks) > 500;
        for (frames, count) in captured(target.pid(), 999, ("python", CONTEXT), is_enough) {
            let Some((chain, own)) = parts(&frames) else { continue };
            let turn = own.iter().find_map(|frame| {
                ["odd", "even"].into_iter().find(|turn| {
                    frame.starts_with("python_async_turns.py:") && frame.contains(&format!(":{turn}:"))
                })
            });
            let Some(turn) = turn else { continue };
            compared += count;
            match chain.last() {
                _ if unknown(chain) => labelled += count,
                Some(name) if *name == format!("[task {turn}]") => equal += count,
                _ => wrong += count,
            }
        }
        row(&python.name, "tasks that take turns", 1, compared, equal, labelled);
        // Their coroutines and tasks share addresses and contents. Names are trusted after many readings, and never for
        // an address at which two were found.
        assert!(wrong == 0, "{}: {wrong} of {compared} under another's name", python.name);
        assert!(compared > 20, "{}: {compared}", python.name);
    }
}

#[test]
fn generators_are_no_coroutines_of_tasks() {
    /// A generator expression in a plain function, called by a task and by a thread without a loop; each is a new
    /// short-lived object.
    const PROGRAM: &str = "
import asyncio, threading
def total():
    return sum(n for n in range(20000))
def spin():
    while True:
        total()
async def work():
    while True:
        total()
        await asyncio.sleep(0)
async def main():
    task = asyncio.create_task(work(), name='worker')
    await asyncio.sleep(0)
    threading.Thread(target=spin, daemon=True).start()
    print('{\"ready\"', flush=True)
    await task
asyncio.run(main())
";
    if !can_capture() {
        return;
    }
    let newest = programs().into_iter().rfind(|python| python.minor >= OLDEST_MINOR);
    let Some(python) = newest else { return };
    let mut target = Target::start(&python, &["-c", PROGRAM]);
    target.lines_until_ready();
    let of = |stacks: &Stacks, part: &str| -> u64 {
        let all = stacks.iter().filter(|(frames, _)| frames.iter().any(|frame| frame.contains("<genexpr>")));
        all.filter(|(frames, _)| frames.join(";").contains(part)).map(|(_, count)| count).sum()
    };
    // Names are trusted after several readings.
    let stacks = captured(target.pid(), 1999, ("python", CONTEXT), |stacks| {
        let generators = of(stacks, "events.py:Handle._run:");
        let is_enough = generators > 300 && of(stacks, ":spin:") > 100;
        is_enough && of(stacks, "[task worker]") * 2 > generators
    });
    let (mut generators, mut below_a_task, mut labelled) = (0, 0, 0);
    for (frames, count) in stacks {
        let Some(at) = frames.iter().position(|frame| frame.contains("<genexpr>")) else { continue };
        let before = frames[at - 1].as_str();
        assert!(!before.starts_with("[unknown: async-"), "{before} above a generator expression");
        if frames.iter().any(|frame| frame.contains(":spin:")) {
            let chain = frames.iter().find(|frame| frame.starts_with("[task") || frame.contains(": async-"));
            assert_eq!(chain, None, "a thread without a loop has no task");
            continue;
        }
        generators += count;
        below_a_task += if frames.iter().any(|frame| frame == "[task worker]") { count } else { 0 };
        labelled += if unknown(&frames) { count } else { 0 };
    }
    row(&python.name, "generators within tasks", 1, generators, below_a_task, labelled);
    assert!(below_a_task * 2 > generators, "{below_a_task} of {generators}");
}
