//! Modules that are called, read from outside, against what the program knows of itself.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

use crate::support::{Python, Target, captured_with, for_each, profiler, programs, row, workload};

/// A chain that was not seen in so many captures of a second or two is never seen.
const CAPTURES_MAX: usize = 100;

const CONTEXT: &[&str] = &["--probe", "modules"];

/// What is a layer among the frames of a stack: everything that is neither a Python function nor the thread's
/// beginning.
fn layers(frames: &[String]) -> Vec<String> {
    let is_layer = |frame: &&String| {
        !frame.contains(".py:")
            && !frame.starts_with('<')
            && !frame.contains(":spin")
            && !frame.starts_with("[unknown: python-")
    };
    frames.iter().filter(is_layer).cloned().collect()
}

/// The function that spins for one place and no other.
fn leaf(frames: &[String]) -> Option<String> {
    let frame = frames.iter().rev().find_map(|frame| frame.strip_prefix("<string>:"))?;
    Some(frame.split(':').next()?.to_owned())
}

fn check(profiler: &Path, python: &Python, plain: bool) {
    let program = workload("python_layers.py");
    let arguments = if plain { vec![&*program, "--plain"] } else { vec![&*program] };
    let mut target = Target::start(python, &arguments);
    let said: BTreeMap<String, Vec<String>> = target
        .lines_until_ready()
        .iter()
        .map(|line| {
            let said: Value = serde_json::from_str(line).unwrap();
            let chain = said["chain"].as_array().unwrap().iter();
            let chain = chain.map(|part| part.as_str().unwrap().to_owned()).collect();
            (said["leaf"].as_str().unwrap().to_owned(), chain)
        })
        .collect();
    assert!(said.len() > 12, "{}: {said:?}", python.name);
    let (mut compared, mut equal, mut before) = (0, 0, 0);
    let (mut other, mut missing) = (BTreeMap::new(), said.keys().collect::<BTreeSet<_>>());
    // Until each was seen; on a busy machine few samples come in a second or two.
    for _ in 0..CAPTURES_MAX {
        for (frames, count) in captured_with(profiler, target.pid(), [2, 499], "python", CONTEXT) {
            let Some(leaf) = leaf(&frames) else { continue };
            let (found, expect) = (layers(&frames), &said[&leaf]);
            compared += count;
            if found == *expect {
                equal += count;
                missing.remove(&leaf);
            } else if found.is_empty() {
                // Until the function is known that calls modules.
                before += count;
            } else {
                *other.entry((leaf, found)).or_insert(0) += count;
            }
        }
        if missing.is_empty() {
            break;
        }
    }
    let what = if plain { "layers, as up to 2.0" } else { "layers" };
    row(&python.name, what, said.len(), compared, equal, before);
    assert!(other.is_empty(), "{}: {other:?}; expected {said:?}", python.name);
    assert!(missing.is_empty(), "{}: never seen: {missing:?}", python.name);
    assert!(before < equal, "{}: {before} of {compared} without layers", python.name);
}

#[test]
fn layer_frames_match_the_modules_the_program_runs() {
    let Some(profiler) = profiler() else { return };
    for_each(&programs(), |python| {
        check(&profiler, python, false);
    });
    // One is enough: what differs is the name of a function.
    check(&profiler, &programs()[0], true);
}
