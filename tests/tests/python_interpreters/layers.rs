//! Called modules, read from outside, against the program's own account.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::cli_support::can_capture;
use crate::support::{Python, Stacks, Target, captured, for_each, programs, row, workload};

const CONTEXT: &[&str] = &["--probe", "modules"];

/// The layers among a stack's frames: all that are neither Python functions nor the start of the thread.
fn layers(frames: &[String]) -> Vec<String> {
    let is_layer = |frame: &&String| {
        !frame.contains(".py:")
            && !frame.starts_with('<')
            && !frame.contains(":spin")
            && !frame.starts_with("[unknown: python-")
    };
    frames.iter().filter(is_layer).cloned().collect()
}

/// The function that spins for exactly one place.
fn leaf(frames: &[String]) -> Option<String> {
    let frame = frames.iter().rev().find_map(|frame| frame.strip_prefix("<string>:"))?;
    Some(frame.split(':').next()?.to_owned())
}

fn check(python: &Python, plain: bool) {
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
    // Until each was sampled, mostly after the function that calls modules was found.
    let stacks = captured(target.pid(), 1999, ("python", CONTEXT), |stacks| {
        let seen = ObservedLayers::of(stacks, &said);
        !seen.other.is_empty() || (seen.equal.len() == said.len() && seen.before < seen.equal())
    });
    let seen = ObservedLayers::of(&stacks, &said);
    let what = if plain { "layers, as up to 2.0" } else { "layers" };
    row(&python.name, what, said.len(), seen.equal() + seen.before, seen.equal(), seen.before);
    assert!(seen.other.is_empty(), "{}: {:?}; expected {said:?}", python.name, seen.other);
}

/// Samples of the program.
#[derive(Default)]
struct ObservedLayers {
    /// With the program's layers, by function.
    equal: BTreeMap<String, u64>,
    /// Without layers: the function that calls modules was not found yet.
    before: u64,
    /// With other layers, by function.
    other: BTreeMap<(String, Vec<String>), u64>,
}

impl ObservedLayers {
    fn of(stacks: &Stacks, said: &BTreeMap<String, Vec<String>>) -> Self {
        let mut seen = Self::default();
        for (frames, count) in stacks {
            let Some(leaf) = leaf(frames) else { continue };
            let found = layers(frames);
            if found == said[&leaf] {
                *seen.equal.entry(leaf).or_default() += count;
            } else if found.is_empty() {
                seen.before += count;
            } else {
                *seen.other.entry((leaf, found)).or_default() += count;
            }
        }
        seen
    }

    fn equal(&self) -> u64 {
        self.equal.values().sum()
    }
}

#[test]
fn layer_frames_match_the_modules_the_program_runs() {
    if !can_capture() {
        return;
    }
    for_each(&programs(), |python| {
        check(python, false);
    });
    // One is enough: only the name of a function differs.
    check(&programs()[0], true);
}
