//! Operator starts with their tensors, seen from outside, beside PyTorch's own account.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::cli_support::recording::Recording;
use crate::cli_support::{expect_code, folded};
use crate::frameworks::{Target, can_capture_arguments, look_alike, record_through, with_torch};

type Counts = BTreeMap<String, u64>;

/// Microseconds of work after each round, so that no reader is overloaded.
const BUSY: &str = "500";

/// Records a program during its rounds. Returns the calls and the derived values of each operator chain.
fn captured(command: &mut Command, stacks: &str, shapes: &str) -> [Counts; 2] {
    let options =
        ["--no-gpu", "--context", "python,native", "--probe", "operators", "--operator-stacks", stacks];
    let options = [&options[..], &["--shapes", shapes]].concat();
    let (_folder, file) = record_through(command, &options);
    let report = expect_code(0, &["report", &file, "--format", "json"]);
    assert!(!report.contains("\"operator-lost\"") && !report.contains("\"ring-full\""), "{report}");
    ["calls", "model-flops"].map(|metric| chains(&file, metric))
}

/// Operator chains in a stored profile, with a metric's sum for each.
fn chains(file: &str, metric: &str) -> Counts {
    let folded = folded(file, metric, &["--view", "python"]);
    let mut chains = Counts::new();
    for line in folded.lines() {
        let (stack, count) = line.rsplit_once(' ').unwrap();
        let is_operator = |frame: &&str| {
            !frame.contains(".py:")
                && !frame.starts_with('<')
                && !frame.contains('/')
                && *frame != "[operators]"
        };
        // The first is the process.
        let chain: Vec<&str> = stack.split(';').skip(1).filter(is_operator).collect();
        *chains.entry(chain.join(";")).or_insert(0) += count.parse::<u64>().unwrap();
    }
    chains
}

#[test]
fn every_operator_call_is_counted_below_its_enclosing_operator() {
    const ROUNDS: u64 = 1000;
    if !can_capture_arguments() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(look_alike("torch_starts.cpp", folder.path()));
    command.args([&ROUNDS.to_string(), BUSY]);
    let shapes = "aten::addmm,aten::relu_,aten::stack,aten::cat";
    let addmm = "aten::addmm [128 f16, 32x64 f32, 64x128 (transposed) f32]";
    let relu = "aten::relu_ [32x64] f32";
    let stack = "aten::stack [list(32x64, 64x128 (transposed), 32x64 of 4)] f32";
    let cat = "aten::cat [list(32x64, 64x128 (transposed))] f32";
    let [calls, flops] = captured(&mut command, "all", shapes);
    let expect: Counts = [
        ("aten::linear".to_owned(), ROUNDS),
        (format!("aten::linear;aten::addmm;{addmm}"), ROUNDS),
        (format!("aten::relu_;{relu}"), 2 * ROUNDS),
        ("aten::embedding".to_owned(), ROUNDS),
        ("mylib::twice.out".to_owned(), ROUNDS),
        (format!("aten::stack;{stack}"), ROUNDS),
        (format!("aten::cat;{cat}"), ROUNDS),
    ]
    .into();
    assert_eq!(calls, expect);
    let of = |chain: &str| flops.iter().find(|(key, _)| key.starts_with(chain)).map(|(_, n)| *n);
    assert_eq!(of("aten::linear;aten::addmm"), Some(ROUNDS * 2 * 32 * 64 * 128), "{flops:?}");
    assert_eq!(of("aten::relu_"), Some(2 * ROUNDS * 32 * 64), "{flops:?}");

    // Most without a stack: the same total, and nothing misplaced.
    let [calls, _] = captured(&mut command, "50/s", shapes);
    assert_eq!(by_operator(&calls), by_operator(&expect), "{calls:?}");
    for chain in calls.keys() {
        assert!(expect.contains_key(chain) || chain == &format!("aten::addmm;{addmm}"), "{calls:?}");
    }
}

#[test]
fn tensors_of_the_hottest_operators_are_recorded_once_chosen() {
    const ROUNDS: u64 = 400;
    if !can_capture_arguments() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(look_alike("torch_starts.cpp", folder.path()));
    command.args([&ROUNDS.to_string(), BUSY]).stdin(Stdio::piped());
    // All six that have a name: which are hot depends on the compiler.
    let options = ["--no-gpu", "--context", "python,native", "-F", "999", "--shapes", "hottest:6"];
    let mut target = Target::start(&mut command);
    let recording = Recording::start(&target.pid(), &options);
    // Its operators run until they are chosen; other tensors are those after the choice.
    target.send("r");
    recording.wait_for("tensors are recorded from now on");
    target.send("o\n");
    target.wait_for("done");
    let (_folder, file) = recording.end();

    let of_tensors = |x: &str, weight: &str| {
        [
            (format!("aten::addmm [128 f16, {x} f32, {weight} (transposed) f32]"), ROUNDS),
            (format!("aten::relu_ [{x}] f32"), 2 * ROUNDS),
            (format!("aten::stack [list({x}, {weight} (transposed), {x} of 4)] f32"), ROUNDS),
            (format!("aten::cat [list({x}, {weight} (transposed))] f32"), ROUNDS),
            (format!("aten::embedding [{weight} (transposed)] f32"), ROUNDS),
            (format!("aten::linear [{x}, {weight} (transposed), …] f32"), ROUNDS),
        ]
    };
    let expect: Counts = of_tensors("33x64", "64x129").into();
    let before: Counts = of_tensors("32x64", "64x128").into();
    let chains = chains(&file, "calls");
    // Most calls have no stack, and are separate from those with one.
    let mut ends = Counts::new();
    for (chain, calls) in &chains {
        *ends.entry(chain.split(';').next_back().unwrap_or_default().to_owned()).or_insert(0) += calls;
    }
    let (after, rest): (Counts, Counts) = ends.into_iter().partition(|(end, _)| expect.contains_key(end));
    assert!(!after.is_empty(), "{chains:?}");
    for (tensors, calls) in &after {
        assert_eq!(expect.get(tensors), Some(calls), "{tensors} of {chains:?}");
    }
    assert!(rest.keys().all(|tensors| before.contains_key(tensors)), "{rest:?}");
}

/// Calls of each operator, anywhere.
fn by_operator(calls: &Counts) -> Counts {
    let mut sums = Counts::new();
    for (chain, count) in calls {
        let mut names = chain.split(';').filter(|frame| !has_tensors(frame));
        *sums.entry(names.next_back().unwrap_or_default().to_owned()).or_insert(0) += count;
    }
    sums
}

/// The program's description of one round.
#[derive(Debug, Default)]
struct ProgramOutput {
    chains: Counts,
    tensors: Counts,
    flops: Counts,
}

impl ProgramOutput {
    fn read(path: &Path, rounds: u64) -> Self {
        let mut said = Self::default();
        for line in std::fs::read_to_string(path).unwrap().lines() {
            let mut parts = line.splitn(3, ' ');
            let (what, count, of) = (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap());
            let (to, of) = match what {
                "chain" => {
                    (&mut said.chains, of.split(';').filter_map(as_torch_shows).collect::<Vec<_>>().join(";"))
                }
                "tensors" => (&mut said.tensors, of.to_owned()),
                _ => (&mut said.flops, of.to_owned()),
            };
            *to.entry(of).or_insert(0) += rounds * count.parse::<u64>().unwrap();
        }
        said
    }
}

/// A name as shown by torch's profiler: without the overload. `None` for frames that are no operators.
fn as_torch_shows(frame: &str) -> Option<String> {
    let is_step = frame.split_once("Backward").is_some_and(|(name, number)| {
        name.chars().all(|c| c.is_ascii_alphanumeric()) && number.chars().all(|c| c.is_ascii_digit())
    });
    match frame {
        _ if is_step || frame == "torch::autograd::AccumulateGrad" => Some(frame.to_owned()),
        _ => frame.starts_with("aten::").then(|| frame.split('.').next().unwrap_or(frame).to_owned()),
    }
}

const PROBED: &str = "aten::addmm,aten::mm,aten::bmm,aten::baddbmm,aten::linear,aten::convolution,\
                      aten::native_layer_norm,aten::gelu,aten::add_,aten::embedding,aten::_log_softmax,\
                      aten::stack,aten::cat,aten::_scaled_dot_product_flash_attention_for_cpu";

#[test]
fn training_loop_operators_and_tensors_match_those_torch_recorded() {
    let Some(mut command) = with_torch("torch_starts.py") else { return };
    let rounds = 50;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("said");
    command.arg(&path).arg(rounds.to_string());
    for stacks in ["all", "100/s"] {
        let [calls, flops] = captured(&mut command, stacks, PROBED);
        let said = ProgramOutput::read(&path, rounds);
        let differences = compared(&said, &calls, &flops, stacks == "all");
        assert!(differences.is_empty(), "with {stacks}: {differences}");
    }
}

/// Differences between the program's description and the profile.
fn compared(said: &ProgramOutput, calls: &Counts, flops: &Counts, nested: bool) -> String {
    let (mut chains, mut tensors, mut work) = (Counts::new(), Counts::new(), Counts::new());
    for (chain, count) in calls {
        let frames = chain.split(';').filter(|frame| !has_tensors(frame));
        let names: Vec<String> = frames.filter_map(as_torch_shows).collect();
        if names.last().is_some_and(|name| name.starts_with("aten::")) {
            *chains.entry(names.join(";")).or_insert(0) += count;
        }
        if let Some((operator, shape)) = chain.split(';').find_map(|frame| frame.split_once(" [")) {
            let name = as_torch_shows(operator).unwrap_or_default();
            *tensors.entry(format!("{name} [{}", shape.replace(", …", ""))).or_insert(0) += count;
        }
    }
    for (chain, count) in flops {
        let frames = chain.split(';').filter(|frame| !has_tensors(frame));
        let name = frames.filter_map(as_torch_shows).next_back().unwrap_or_default();
        *work.entry(name).or_insert(0) += count;
    }
    let mut differences = Vec::new();
    if nested {
        differences.extend(different("operators", &said.chains, &chains));
    } else {
        differences.extend(different("operators", &by_operator(&said.chains), &by_operator(&chains)));
        // Without a stack, the profile has the enclosing operators, from the outside in, or marks them as unknown.
        let ends: BTreeSet<&str> = said.chains.keys().flat_map(|chain| ends_of(chain)).collect();
        differences.extend(
            chains.keys().filter(|chain| !ends.contains(&***chain)).map(|chain| format!("no {chain}")),
        );
    }
    differences.extend(different("tensors", &said.tensors, &tensors));
    // The list contains only operators for which torch has a formula.
    work.retain(|operator, _| said.flops.contains_key(operator));
    let flops = said.flops.iter().filter(|(operator, _)| *operator != "aten::convolution_backward");
    differences.extend(different("work", &flops.map(|(key, n)| (key.clone(), *n)).collect(), &work));
    println!(
        "| {} operators in {} chains, {} with tensors of {} kinds, {} operations by the model: {} differ",
        chains.values().sum::<u64>(),
        chains.len(),
        tensors.values().sum::<u64>(),
        tensors.len(),
        work.values().sum::<u64>(),
        differences.len()
    );
    differences.join("\n")
}

/// Whether a frame is an operator with its tensors, below the operator itself.
fn has_tensors(frame: &str) -> bool {
    frame.contains(" [")
}

/// The suffixes of a chain, one per operator.
fn ends_of(chain: &str) -> Vec<&str> {
    let mut ends = vec![chain];
    ends.extend(chain.match_indices(';').map(|(at, _)| &chain[at + 1..]));
    ends
}

fn different(what: &str, expect: &Counts, found: &Counts) -> Vec<String> {
    let keys: BTreeSet<&String> = expect.keys().chain(found.keys()).collect();
    let of = |counts: &Counts, key: &String| counts.get(key).copied().unwrap_or(0);
    keys.into_iter()
        .filter(|key| of(expect, key) != of(found, key))
        .map(|key| format!("{what}: {key}: expected {}, found {}", of(expect, key), of(found, key)))
        .collect()
}
