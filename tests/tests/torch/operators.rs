//! Operators as they are seen from outside, beside what PyTorch says of itself.

use std::collections::{BTreeMap, HashSet};
use std::process::Command;

use crate::cli_support::{can_capture, folded};
use crate::frameworks::recording::{record_through, record_until};
use crate::frameworks::{Target, can_capture_arguments, capture, look_alike, stacks, with_torch, workload};

/// Captures a process for some seconds: operators of its stacks, outermost first, and how many samples had them.
fn operators(
    target: &Target,
    seconds: u32,
    is_operator: impl Fn(&str) -> bool,
) -> BTreeMap<Vec<String>, u64> {
    let (_folder, file) = capture(target, seconds, &["-F", "499"], || {});
    let folded = folded(&file, "samples", &["--view", "python"]);
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

/// Captures a process with its backward pass below its forward pass. Gives the file.
fn with_backward(target: &Target, seconds: u32) -> (tempfile::TempDir, String) {
    capture(target, seconds, &WITH_BACKWARD, || {})
}

/// Options for stacks in which the backward pass appears below the line that it belongs to.
const WITH_BACKWARD: [&str; 6] = ["--context", "python,native", "--probe", "backward", "-F", "499"];

#[test]
fn backward_pass_appears_below_the_operators_it_belongs_to() {
    if !can_capture_arguments() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = look_alike("torch_backward.cpp", folder.path());
    let target = Target::start(&mut Command::new(&program));
    let (_folder, file) = with_backward(&target, 3);
    drop(target);
    let calls = stacks(&file, "calls");
    const AGAIN: &str = "aten::sum;[backward];SumBackward0;aten::mul.Tensor;[backward]";
    const STEPS: [&str; 4] =
        ["aten::index.Tensor;[backward]", "aten::addmm;[backward]", "aten::sum;[backward]", AGAIN];
    // Each pass has all four nodes, and each node was made once. Where the first ones were made is not certain yet.
    let of = STEPS.map(|stack| calls.get(stack).copied().unwrap_or(0));
    let (least, most) = (of.iter().min().unwrap(), of.iter().max().unwrap());
    assert!(*least > 100 && most - least <= 2 + most / 20, "{calls:?}");
    assert!(calls.values().sum::<u64>() - of.iter().sum::<u64>() < 10, "{calls:?}");

    let samples = stacks(&file, "samples");
    let count = |stack: &str| samples.get(stack).copied().unwrap_or(0);
    let placed: u64 = samples.iter().filter(|(stack, _)| stack.contains("[backward]")).map(|(_, n)| n).sum();
    let right = count("aten::index.Tensor;[backward];IndexBackward0")
        + count("aten::addmm;[backward];AddmmBackward0")
        + count("aten::sum;[backward];SumBackward0")
        + count("aten::sum;[backward];SumBackward0;aten::mul.Tensor")
        + count(&format!("{AGAIN};MulBackward0"))
        + count("SumBackward0;aten::mul.Tensor;[backward];MulBackward0");
    // Never below a wrong one; nearly always below one at all, once the probes are there.
    assert_eq!(right, placed, "{samples:?}");
    let elsewhere: u64 =
        samples.iter().filter(|(stack, _)| stack.contains("Backward0")).map(|(_, n)| n).sum();
    assert!(placed > 100 && elsewhere - placed < placed, "{samples:?}");
    assert!(
        count("aten::index.Tensor;[backward];IndexBackward0") > 2 * count("aten::index.Tensor"),
        "{samples:?}"
    );
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

/// The nodes of a program by the Python stacks that made them, as it reports them itself, and as they are seen from
/// outside; and what is known of those that are not where they belong.
fn steps_of_a_program() -> Option<(Steps, Steps, Steps)> {
    const STEPS: u64 = 200;
    let mut command = with_torch("torch_backward.py")?;
    let folder = tempfile::tempdir().unwrap();
    let said = folder.path().join("said");
    command.arg(&said).arg(STEPS.to_string());
    let options = ["--context", "python,native", "--probe", "backward", "-F", "499"];
    let (_folder, file) = record_through(&mut command, &options);
    let said = std::fs::read_to_string(&said).unwrap();
    // Of a node that was made within another one the program says who called the engine, and the profile who made
    // the other.
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
    // What was sampled before the probes were there stays where it ran.
    let (_folder, file) = record_until(&target, &WITH_BACKWARD, |file| {
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
    let (_folder, file) = capture(&target, 20, &context, || {});
    let (mut forward, mut backward, mut other) = (0, 0, BTreeMap::new());
    let mut met = HashSet::new();
    for (stack, count) in stacks(&file, "samples") {
        let is_layer = |frame: &&str| frame.starts_with('(') || *frame == "Net" || frame.starts_with("Net.");
        let chain = stack.split(';').filter(is_layer).collect::<Vec<_>>().join(";");
        if chain.is_empty() {
            continue;
        }
        if !expect.contains(&*chain) {
            *other.entry(chain).or_insert(0) += count;
        } else if stack.contains("[backward]") {
            backward += count;
            met.insert(chain);
        } else {
            forward += count;
            met.insert(chain);
        }
    }
    println!(
        "| {forward} samples in layers, {backward} in their backward pass, other than hooks saw: {}; {} of {} chains",
        other.values().sum::<u64>(),
        met.len(),
        expect.len()
    );
    assert!(other.is_empty(), "not seen by hooks: {other:?}");
    assert!(forward > 300 && backward > 100 && met.len() > 20, "{met:?}");
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
    assert!(equal > 300 && met.len() > 20, "{equal} samples in {} chains", met.len());
}
