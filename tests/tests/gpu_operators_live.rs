//! Operators of a live trace on the simulated device, compared with the device's own account.
//!
//! Owns: the tests of tables of operators' launches, by the program as a user runs it. Because: operator ends are not
//! recorded, so these tables depend on the stack of each launch. Does not: test a single stage. Needs root and BPF.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cli_support;
#[allow(dead_code, reason = "shared with other tests, which use the rest of it")]
mod device_account;
#[allow(dead_code, reason = "shared with other tests, which use the rest of it")]
mod simulated;

use std::collections::BTreeMap;

use deepctx_analysis::OverTime;
use deepctx_analysis::over_time::{Kernel, OperatorBasis, Steps};
use device_account::is_the_account;
use simulated::{Capture, Setting};

const ROUNDS: u64 = 100;

/// Kernels launched by each operator itself, by name; the last entry has no operator.
const KERNELS: [(&str, &[&str]); 6] = [
    ("aten::addmm", &["addmm_gemm_18us", "addmm_split_5us", "addmm_bias_2us"]),
    ("aten::linear", &["linear_copy_3us"]),
    ("aten::mm", &["mm_gemm_17us"]),
    ("aten::native_layer_norm", &["norm_moments_6us", "norm_scale_3us"]),
    ("aten::relu", &["relu_4us"]),
    ("", &["no_operator_5us"]),
];

/// Calls of each operator in a round.
const CALLS: [(&str, u64); 6] = [
    ("aten::addmm", 2),
    ("aten::linear", 2),
    ("aten::mm", 2),
    ("aten::native_layer_norm", 2),
    ("aten::relu", 1),
    ("aten::view", 2),
];

fn traced(words: &'static [&'static str]) -> Option<(Capture, OverTime)> {
    let library = simulated::operators()?;
    let setting = Setting { libraries: "cuda13", collector: true, words, ..Setting::default() };
    let program = simulated::python("gpu_operators.py");
    let capture = simulated::record(setting, &program, &[&library, &ROUNDS.to_string()])?;
    let tables = OverTime::compute(capture.job.as_ref().unwrap(), Steps::default());
    Some((capture, tables))
}

/// Count and nanoseconds of each kernel, by the device's log.
fn done(capture: &Capture) -> BTreeMap<String, (u64, u64)> {
    let mut done: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for line in capture.account.iter().filter(|line| line.what == "kernel") {
        let sum = done.entry(line.name.clone()).or_default();
        *sum = (sum.0 + 1, sum.1 + line.end - line.start);
    }
    done
}

/// The kernels of one operator, by the device's log.
fn of_operator(done: &BTreeMap<String, (u64, u64)>, kernels: &[&str]) -> BTreeMap<String, (u64, u64)> {
    kernels.iter().map(|name| ((*name).to_owned(), done[*name])).collect()
}

fn by_name(kernels: &[Kernel]) -> BTreeMap<String, (u64, u64)> {
    kernels.iter().map(|kernel| (kernel.name.clone(), (kernel.count, kernel.device_ns))).collect()
}

/// Each operator has its own kernels and no others.
fn operators_are_the_account_of_the_device(capture: &Capture, tables: &OverTime) {
    let done = done(capture);
    let [of] = &tables.operators[..] else { panic!("{:?}", tables.operators) };
    for (operator, kernels) in KERNELS {
        let row = of.rows.iter().find(|row| row.name == operator);
        let found = row.map_or(&of.outside, |row| &row.launched);
        assert_eq!(by_name(&found.kernels), of_operator(&done, kernels), "{operator}");
    }
    let launched: u64 = of.rows.iter().map(|row| row.launched.count).sum::<u64>() + of.outside.count;
    assert_eq!(launched, done.values().map(|(count, _)| count).sum::<u64>());
    let inclusive = |name: &str| of.rows.iter().find(|row| row.name == name).unwrap().device_inclusive_ns;
    let time = |kernels: &[&str]| of_operator(&done, kernels).values().map(|(_, ns)| ns).sum::<u64>();
    assert_eq!(inclusive("aten::linear"), time(KERNELS[0].1) + time(KERNELS[1].1));
    assert_eq!(inclusive("AddmmBackward0"), time(KERNELS[2].1));
}

/// Sequences as calls, operator and kernels.
fn sequences(tables: &OverTime) -> Vec<(u64, String, String)> {
    let of = &tables.sequences[0];
    let mut rows: Vec<_> = of
        .rows
        .iter()
        .map(|row| {
            let names = row.kernels.iter().map(|part| format!("{}*{}", part.times, part.name));
            (row.count, row.operator.clone(), names.collect::<Vec<_>>().join(" "))
        })
        .collect();
    rows.sort_by(|a, b| a.1.cmp(&b.1));
    rows
}

const LINEAR: &str = "1*addmm_gemm_18us 1*addmm_split_5us 1*addmm_bias_2us 1*linear_copy_3us";

#[test]
fn stacks_say_what_operators_launched() {
    let Some((capture, tables)) = traced(&["--trace", "10m"]) else { return };
    operators_are_the_account_of_the_device(&capture, &tables);
    let of = &tables.operators[0];
    assert_eq!(of.basis, OperatorBasis::Stacks);
    assert!(of.rows.iter().all(|row| (row.calls, row.host_ns) == (None, None)), "{:?}", of.rows);
    let addmm = of.rows.iter().find(|row| row.name == "aten::addmm").unwrap();
    let mut places: Vec<_> = addmm.places.iter().map(|place| (place.name.as_str(), place.count)).collect();
    places.sort_unstable();
    let [(block, of_block), (head, of_head)] = places[..] else { panic!("{places:?}") };
    assert!(block.starts_with("gpu_operators.py:block:") && head.starts_with("gpu_operators.py:head:"));
    assert_eq!((of_block, of_head), (3 * ROUNDS, 3 * ROUNDS));
    // Two calls of the norm come from one line, in sequence.
    let norms = "1*norm_moments_6us 1*norm_scale_3us 2*norm_moments_6us 1*norm_scale_3us 1*norm_moments_6us";
    let expect = [
        (ROUNDS, "AddmmBackward0", "4*mm_gemm_17us"),
        (2 * ROUNDS, "aten::linear", LINEAR),
        (ROUNDS, "aten::native_layer_norm", norms),
    ];
    let found = sequences(&tables);
    let found: Vec<_> = found.iter().map(|(count, name, names)| (*count, &**name, &**names)).collect();
    assert_eq!(found, expect);
}

#[test]
fn begins_of_operators_count_their_calls() {
    let words = &["--trace", "10m", "--trace-level", "context", "--probe", "operators"];
    let Some((capture, tables)) = traced(words) else { return };
    is_the_account(&capture);
    operators_are_the_account_of_the_device(&capture, &tables);
    let of = &tables.operators[0];
    assert_eq!(of.basis, OperatorBasis::StacksAndBegins);
    let calls: BTreeMap<&str, u64> =
        of.rows.iter().map(|row| (row.name.as_str(), row.calls.unwrap())).filter(|row| row.1 > 0).collect();
    assert_eq!(calls, CALLS.map(|(name, calls)| (name, calls * ROUNDS)).into());
    assert!(of.rows.iter().all(|row| row.host_ns.is_none()));
    let expect = [
        // Backward nodes do not report their start.
        (ROUNDS, "AddmmBackward0", "4*mm_gemm_17us"),
        (2 * ROUNDS, "aten::linear", LINEAR),
        (2 * ROUNDS, "aten::native_layer_norm", "1*norm_moments_6us 1*norm_scale_3us 1*norm_moments_6us"),
    ];
    let found = sequences(&tables);
    let found: Vec<_> = found.iter().map(|(count, name, names)| (*count, &**name, &**names)).collect();
    assert_eq!(found, expect);
}
