//! Operators seen from outside, beside PyTorch's own account.

use std::collections::{BTreeMap, HashSet};
use std::process::Command;

use crate::cli_support::recording::{Recording, record_until};
use crate::cli_support::{can_capture, folded};
use crate::frameworks::{
    Target, can_capture_arguments, look_alike, record_through, stacks, with_torch, workload,
};

/// Operators of stacks, outermost first, with sample counts.
type Chains = BTreeMap<Vec<String>, u64>;

/// The operators of a profile.
fn chains(file: &str, is_operator: impl Fn(&str) -> bool) -> Chains {
    let folded = folded(file, "samples", &["--view", "python"]);
    let mut chains = Chains::new();
    for line in folded.lines() {
        let (stack, count) = line.rsplit_once(' ').unwrap();
        let chain = stack.split(';').filter(|frame| is_operator(frame)).map(str::to_owned).collect();
        *chains.entry(chain).or_insert(0) += count.parse::<u64>().unwrap();
    }
    chains
}

/// Captures a process until its operators suffice.
fn operators(
    target: &Target,
    is_operator: impl Fn(&str) -> bool,
    enough: impl Fn(&Chains) -> bool,
) -> Chains {
    let (_folder, file) =
        record_until(&target.pid(), &["-F", "499"], |file| enough(&chains(file, &is_operator)));
    chains(&file, &is_operator)
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
    let is_operator = |frame: &str| !frame.starts_with("torch_names");
    let chains = operators(&target, is_operator, |chains| chains.values().sum::<u64>() >= 1000);
    let count = |chain: &[&str]| {
        chains.get(&chain.iter().map(|&name| name.to_owned()).collect::<Vec<_>>()).copied().unwrap_or(0)
    };
    let all: u64 = chains.values().sum();
    let forward = count(&["aten::linear", "aten::addmm"]);
    let backward = count(&["AddmmBackward0", "aten::add_.Tensor"]);
    // Occasionally a sample falls between two operators.
    assert!((forward + backward) * 100 >= all * 98, "{chains:?}");
    assert!(forward * 3 > all && backward * 3 > all, "{chains:?}");
}

/// Where the second node of a nested pass was created.
const AGAIN: &str = "aten::sum;[backward];SumBackward0;aten::mul.Tensor;[backward]";

/// Calls of the four nodes of each pass.
fn of_steps(calls: &BTreeMap<String, u64>) -> [u64; 4] {
    let steps = ["aten::index.Tensor;[backward]", "aten::addmm;[backward]", "aten::sum;[backward]", AGAIN];
    steps.map(|stack| calls.get(stack).copied().unwrap_or(0))
}

/// Options for stacks in which the backward pass appears below its line.
const WITH_BACKWARD: [&str; 6] = ["--context", "python,native", "--probe", "backward", "-F", "499"];

#[test]
fn backward_pass_appears_below_the_operators_it_belongs_to() {
    if !can_capture_arguments() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = look_alike("torch_backward.cpp", folder.path());
    let target = Target::start(&mut Command::new(&program));
    let placed = |samples: &BTreeMap<String, u64>| -> u64 {
        samples.iter().filter(|(stack, _)| stack.contains("[backward]")).map(|(_, n)| n).sum()
    };
    // Samples from before the probes stay where they ran.
    let recording = Recording::start(&target.pid(), &WITH_BACKWARD);
    recording.wait_for_probes();
    recording.wait_until(|file| {
        let calls = of_steps(&stacks(file, "calls"));
        placed(&stacks(file, "samples")) > 500 && calls.iter().all(|calls| *calls > 100)
    });
    let (_folder, file) = recording.end();
    drop(target);
    let calls = stacks(&file, "calls");
    // Each pass has all four nodes, and each node was created once. The places of the first ones are not certain yet.
    let of = of_steps(&calls);
    let (least, most) = (of.iter().min().unwrap(), of.iter().max().unwrap());
    assert!(most - least <= 2 + most / 20, "{calls:?}");
    assert!(calls.values().sum::<u64>() - of.iter().sum::<u64>() < 10, "{calls:?}");

    let samples = stacks(&file, "samples");
    let count = |stack: &str| samples.get(stack).copied().unwrap_or(0);
    let placed = placed(&samples);
    let right = count("aten::index.Tensor;[backward];IndexBackward0")
        + count("aten::addmm;[backward];AddmmBackward0")
        + count("aten::sum;[backward];SumBackward0")
        + count("aten::sum;[backward];SumBackward0;aten::mul.Tensor")
        + count(&format!("{AGAIN};MulBackward0"))
        + count("SumBackward0;aten::mul.Tensor;[backward];MulBackward0");
    // Never below a wrong one; nearly always below one at all, once the probes are attached.
    assert_eq!(right, placed, "{samples:?}");
    let elsewhere: u64 =
        samples.iter().filter(|(stack, _)| stack.contains("Backward0")).map(|(_, n)| n).sum();
    assert!(elsewhere - placed < placed, "{samples:?}");
    assert!(
        count("aten::index.Tensor;[backward];IndexBackward0") > 2 * count("aten::index.Tensor"),
        "{samples:?}"
    );
}

/// A name as shown by torch's profiler: without the overload. `None` for frames that are no operators.
fn as_torch_shows(frame: &str) -> Option<String> {
    let backward = frame.split_once("Backward").is_some_and(|(name, number)| {
        name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            && number.chars().all(|c| c.is_ascii_digit())
    });
    match frame {
        // For a Python function, the profiler shows the class, which is in the Python frame below on the stack.
        "torch::autograd::PyNode" | "SquareBackward" => Some("PyNode".to_owned()),
        "torch::autograd::AccumulateGrad" => Some(frame.to_owned()),
        _ if backward => Some(frame.to_owned()),
        _ => frame.starts_with("aten::").then(|| frame.split('.').next().unwrap_or(frame).to_owned()),
    }
}

/// The operators among these names; an only child with its parent's name is merged with it, as in the profiler.
fn chain<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut chain: Vec<String> = names.filter_map(as_torch_shows).collect();
    chain.dedup();
    chain
}

#[test]
fn every_autograd_node_appears_below_the_line_that_created_it() {
    let Some((expect, mut found, reported)) = steps_of_a_program() else { return };
    let all: u64 = expect.values().sum();
    let elsewhere: Steps = found.extract_if(.., |chain, _| !expect.contains_key(chain)).collect();
    let stayed: u64 = elsewhere.values().sum();
    let paired: u64 = expect.iter().map(|(chain, n)| *n.min(found.get(chain).unwrap_or(&0))).sum();
    println!(
        "| {paired} of {all} steps in {} chains; {stayed} elsewhere, reported: {reported:?}",
        expect.len()
    );
    assert_eq!(found, expect, "elsewhere {elsewhere:?}");
    assert!(stayed == 0 && expect.len() > 20, "elsewhere {elsewhere:?}");
}

type Steps = BTreeMap<String, u64>;

/// The nodes of a program by the Python stacks that created them: as reported by itself, and as profiled; and what is
/// known of misplaced ones.
fn steps_of_a_program() -> Option<(Steps, Steps, Steps)> {
    const STEPS: u64 = 200;
    let mut command = with_torch("torch_backward.py")?;
    let folder = tempfile::tempdir().unwrap();
    let said = folder.path().join("said");
    command.arg(&said).arg(STEPS.to_string());
    let options = ["--context", "python,native", "--probe", "backward", "-F", "499"];
    let (_folder, file) = record_through(&mut command, &options);
    let said = std::fs::read_to_string(&said).unwrap();
    // For a node created within another, the program reports who called the engine, and the profile who created the
    // other.
    let mut expect: Steps = Steps::new();
    for line in said.lines() {
        let (count, chain) = line.split_once(' ').unwrap();
        let within = chain.rsplit_once("graph.py:").and_then(|(_, rest)| rest.split_once(';'));
        let chain = within.map_or(chain, |(_, chain)| chain);
        *expect.entry(chain.to_owned()).or_default() += count.parse::<u64>().unwrap();
    }
    let mut found: Steps = Steps::new();
    for (stack, count) in stacks(&file, "calls") {
        let maker = stack.strip_suffix(";[backward]").unwrap_or(&stack);
        let maker = maker.rsplit_once("[backward];").map_or(maker, |(_, within)| within);
        let chain: Vec<String> = maker.split(';').filter_map(file_and_line).collect();
        *found.entry(chain.join(";")).or_default() += count;
    }
    let profile = deepctx_storage::open(&file).unwrap().profile;
    let rows = profile.ledger.rows().into_iter();
    let reported =
        rows.filter(|row| row.reason.contains("ward-")).map(|row| (row.reason.to_string(), row.count));
    Some((expect, found, reported.collect()))
}

/// `net.py:12` of a frame `net.py:Net.forward:12`; `None` for an operator.
fn file_and_line(frame: &str) -> Option<String> {
    let (file, rest) = frame.split_once(".py:")?;
    let file = file.rsplit('/').next().unwrap_or(file);
    Some(format!("{file}.py:{}", rest.rsplit_once(':')?.1))
}

#[test]
fn index_gradient_appears_below_the_indexing_line() {
    let Some(mut command) = with_torch("torch_embedding.py") else { return };
    let target = Target::start(&mut command);
    let line = ":look_up:20;aten::index.Tensor";
    let counts = |file: &str| -> [u64; 2] {
        let samples = stacks(file, "samples");
        let of = |has: &dyn Fn(&str) -> bool| {
            samples.iter().filter(|(stack, _)| has(stack)).map(|(_, count)| count).sum()
        };
        let backward = format!("{line};[backward];IndexBackward0");
        [of(&|stack| stack.ends_with(line)), of(&|stack| stack.contains(&backward))]
    };
    // Samples from before the probes stay where they ran.
    let (_folder, file) = record_until(&target.pid(), &WITH_BACKWARD, |file| {
        let [forward, backward] = counts(file);
        forward > 10 && backward > forward
    });
    let [forward, backward] = counts(&file);
    println!("| below the line that indexes: {forward} samples, and {backward} of its backward pass");
    assert!(backward > forward, "{forward} {backward}");
}

#[test]
fn layers_match_torch_hooks_in_forward_and_backward_passes() {
    let Some(mut command) = with_torch("torch_layers.py") else { return };
    let folder = tempfile::tempdir().unwrap();
    let said = folder.path().join("chains");
    let target = Target::start(command.arg(&said));
    let said = std::fs::read_to_string(&said).unwrap();
    let expect: HashSet<&str> = said.lines().collect();
    assert!(expect.len() > 20, "{expect:?}");

    let context = ["--context", "python,native", "--probe", "modules,backward", "-F", "499"];
    let (_folder, file) = record_until(&target.pid(), &context, |file| {
        let seen = Layers::of(file, &expect);
        seen.forward > 1000 && seen.backward > 300 && seen.met.len() > 20
    });
    let Layers { forward, backward, met, other } = Layers::of(&file, &expect);
    println!(
        "| {forward} samples in layers, {backward} in their backward pass, other than hooks saw: {}; {} of {} chains",
        other.values().sum::<u64>(),
        met.len(),
        expect.len()
    );
    assert!(other.is_empty(), "not seen by hooks: {other:?}");
}

/// Samples in layers.
#[derive(Default)]
struct Layers {
    forward: u64,
    backward: u64,
    /// The program's chains of layers.
    met: HashSet<String>,
    /// Other chains with their samples.
    other: BTreeMap<String, u64>,
}

impl Layers {
    /// Layers of a profile, given the program's chains.
    fn of(file: &str, expect: &HashSet<&str>) -> Self {
        let mut seen = Self::default();
        for (stack, count) in stacks(file, "samples") {
            let is_layer =
                |frame: &&str| frame.starts_with('(') || *frame == "Net" || frame.starts_with("Net.");
            let chain = stack.split(';').filter(is_layer).collect::<Vec<_>>().join(";");
            if chain.is_empty() {
                continue;
            }
            if !expect.contains(&*chain) {
                *seen.other.entry(chain).or_default() += count;
                continue;
            }
            *(if stack.contains("[backward]") { &mut seen.backward } else { &mut seen.forward }) += count;
            seen.met.insert(chain);
        }
        seen
    }
}

#[test]
fn training_loop_operators_nest_as_in_torchs_own_profiler() {
    let Some(mut command) = with_torch("torch_train.py") else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("chains");
    command.arg(&file);
    let target = Target::start(&mut command);
    let said = std::fs::read_to_string(&file).unwrap();
    let seen: HashSet<Vec<String>> = said.lines().map(|line| chain(line.split(';'))).collect();
    assert!(seen.len() > 50, "the profiler saw {} chains", seen.len());

    let compare = |captured: &Chains| {
        let (mut equal, mut met, mut other) = (0, HashSet::new(), Chains::new());
        for (names, count) in captured {
            let names = chain(names.iter().map(String::as_str));
            if names.is_empty() {
                continue;
            }
            if seen.contains(&names) {
                equal += count;
                met.insert(names);
            } else {
                *other.entry(names).or_default() += count;
            }
        }
        (equal, met, other)
    };
    let is_operator = |frame: &str| as_torch_shows(frame).is_some();
    let captured = operators(&target, is_operator, |captured| {
        let (equal, met, _) = compare(captured);
        equal > 2000 && met.len() > 20
    });
    let (equal, met, other) = compare(&captured);
    println!(
        "| {equal} samples in operators, other than torch saw: {}; chains met: {} of {}",
        other.values().sum::<u64>(),
        met.len(),
        seen.len()
    );
    assert!(other.is_empty(), "not seen by the profiler: {other:?}; {equal} equal");
}
