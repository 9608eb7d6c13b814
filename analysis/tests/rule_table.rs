//! Every rule over every recorded program: what it found, and whether that is right.
//!
//! The table of docs/findings.md is made here, so that it cannot say anything else. A finding that [`DEFECTS`] does not
//! explain is a false positive; a defect that no finding names is a miss. `profiles/README.md` and `traces/README.md`
//! say where the profiles come from.

use std::fmt::Write as _;
use std::path::Path;

use deepctx_analysis::findings::{Findings, RULES, Settings};
use deepctx_analysis::{Selection, Subset};
use deepctx_profile::Metric;
use deepctx_storage::{open, open_traces};

/// Programs: name, file below `tests/`, and what it is.
const PROGRAMS: &[(&str, &str, &str)] = &[
    ("alexnet", "traces/alexnet-a100-sync.json.gz", "inference of AlexNet on an A100, traced by Kineto"),
    ("dlrm", "traces/dlrm/rank0.json.gz", "one step of DLRM, first of 8 ranks on V100s, traced by Kineto"),
    ("dlrm-job", "traces/dlrm", "the same step of all 8 ranks"),
    ("event-sync", "traces/eventsync-a100.json.gz", "four kernels with events on an A100, traced by Kineto"),
    ("mi210", "traces/gpuonly-mi210.json.gz", "562 kernels on an MI210, traced by rocprofv3"),
    ("jax-train", "profiles/jax-train.dctx", "training with JAX on two busy CPUs, from within the loop"),
    (
        "stdlib-mix",
        "profiles/stdlib-mix.dctx",
        "hashing and compression in Python's library, on two busy CPUs",
    ),
    ("torch-cpu", "profiles/torch-cpu.dctx", "training with PyTorch on two busy CPUs, from within the loop"),
    (
        "torch-embedding",
        "profiles/torch-embedding.dctx",
        "training of an embedding table, from within the loop",
    ),
    (
        "torch-loading",
        "profiles/torch-loading.dctx",
        "start of a training with loader workers: mostly imports",
    ),
    (
        "torch-steps",
        "profiles/torch-steps.dctx",
        "the training of torch-cpu with steps, memory and the machine's figures",
    ),
    ("torch-inference", "profiles/torch-inference.dctx", "inference with PyTorch on two CPUs"),
    ("web-server", "profiles/web-server.dctx", "a web service in Python's library, with its client"),
    ("cpp-exceptions", "profiles/cpp-exceptions.dctx", "a C++ program that throws exceptions without end"),
];

/// Findings that are right, each judged by reading the program or the names in its trace: rule, program, and why.
const DEFECTS: &[(&str, &str, &str)] = &[
    ("hotspot", "alexnet", "one product takes a quarter of the device's time"),
    ("hotspot", "dlrm", "two collectives take most of the device's time"),
    ("hotspot", "dlrm-job", "one collective takes two thirds of the devices' time"),
    ("hotspot", "event-sync", "a kernel that only spins takes most of the device's time"),
    (
        "spinning-threads",
        "torch-cpu",
        "libgomp's threads wait in `gomp_barrier_wait_end`; other programs had the CPUs",
    ),
    ("gil-wait", "stdlib-mix", "two threads run Python; one holds the lock"),
    ("cpu-queue", "jax-train", "the CPUs were busy with other programs"),
    ("cpu-queue", "stdlib-mix", "the CPUs were busy with other programs"),
    ("cpu-queue", "torch-cpu", "the CPUs were busy with other programs"),
    ("cpu-queue", "torch-embedding", "the CPUs were busy with other programs"),
    ("cpu-queue", "torch-loading", "the CPUs were busy with other programs"),
    (
        "cpu-queue",
        "torch-steps",
        "two threads of PyTorch and the profiler share two CPUs; waits of 0.6 ms on average",
    ),
    ("cpu-pressure", "torch-steps", "two threads of PyTorch and the profiler share two CPUs"),
    ("spinning-threads", "torch-steps", "libgomp's threads wait in `gomp_barrier_wait_end`"),
    ("spinning-threads", "torch-inference", "libgomp's threads wait in `gomp_barrier_wait_end`"),
    ("page-faults", "torch-inference", "each convolution maps its result anew, and the kernel clears it"),
    ("logging-time", "web-server", "each request is logged before it is answered"),
    ("uneven-steps", "torch-steps", "the longest of 330 steps took 61 ms, the mean 16 ms"),
    ("probe-cost", "torch-steps", "operators, ranges and memory are probed at each call"),
    ("single-tensor-optimizer", "torch-steps", "the optimizer updates in `_single_tensor_…`"),
    ("garbage-collection", "torch-cpu", "the collector runs within the loop (`main`), not at its start"),
    ("garbage-collection", "torch-loading", "imports make objects, which start collections"),
    ("import-time", "torch-loading", "the recording holds little but the import of torch"),
    ("conversions", "alexnet", "cuDNN converts with `nchwToNhwcKernel`"),
    ("conversions", "mi210", "MIOpen transposes with `batched_transpose_…`"),
    ("synchronous-data-loader", "dlrm-job", "the loaders are `_SingleProcessDataLoaderIter`"),
    ("synchronous-data-loader", "dlrm", "the loader is a `_SingleProcessDataLoaderIter`"),
    ("single-tensor-optimizer", "torch-cpu", "the optimizer updates in `_single_tensor_…`"),
    ("single-precision", "alexnet", "`sgemm` on a device with TF32"),
    ("small-kernels", "dlrm-job", "element-wise kernels of 3 µs, more than 100 of each over the ranks"),
    ("blocking-waits", "dlrm-job", "each rank waits ten times in `aten::copy_`"),
    ("blocking-waits", "jax-train", "each step waits for its result in `block_until_ready`"),
    ("straggler", "dlrm-job", "rank 7 begins five of eight collectives last; HTA names it too"),
    ("uneven-ranks", "dlrm-job", "rank 5 spends 6.8 ms in operators and calls, the mean rank 5.3 ms"),
    ("idle-device", "alexnet", "79 kernels and 16 copies in a window of 43 s: the device ran 66 ms of it"),
    ("idle-device", "event-sync", "four kernels of 12 µs on average in a step of 3 ms"),
    ("idle-device", "dlrm-job", "eight devices that ran 2.7 to 12.3 ms of steps of 13 to 20 ms"),
    ("communication", "dlrm-job", "`ncclKernel_…` takes most of the devices' time"),
    ("communication", "dlrm", "`ncclKernel_…` takes most of the device's time"),
];

/// The rules that found something in a program, and those that lacked their input.
fn outcomes(file: &str) -> Findings {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(file);
    let opened = open(&path).unwrap_or_else(|error| panic!("{file}: {error}"));
    let job = file
        .ends_with("/dlrm")
        .then(|| open_traces(&[path]).unwrap_or_else(|error| panic!("{file}: {error}")));
    let selection = Selection::of(Metric::CpuTime);
    let subset = Subset::new(&opened.profile, &selection).with_events(job.as_ref());
    Findings::compute(&subset, opened.elapsed, &Settings::default())
}

/// Names in a cell of the table.
fn cell(names: &[&str]) -> String {
    if names.is_empty() { "–".to_owned() } else { names.join(", ") }
}

#[test]
fn the_table_of_false_positives_is_that_of_the_programs() {
    const BEGIN: &str = "<!-- programs: begin -->\n";
    const END: &str = "<!-- programs: end -->";
    let found: Vec<(&str, Findings)> =
        PROGRAMS.iter().map(|(name, file, _)| (*name, outcomes(file))).collect();
    for (rule, program, _) in DEFECTS {
        assert!(RULES.iter().any(|of| of.id == *rule), "{rule}");
        assert!(PROGRAMS.iter().any(|of| of.0 == *program), "{program}");
    }
    for finding in found.iter().flat_map(|(_, of)| &of.findings) {
        assert!((0.0..=100.0).contains(&finding.share_percent), "{finding:?}");
        let gain = finding.gain.percent().unwrap_or(0.0);
        assert!((0.0..=finding.share_percent + 1e-9).contains(&gain), "{finding:?}");
    }
    let mut table = String::from("| program | what it is |\n|---|---|\n");
    for (name, _, what) in PROGRAMS {
        writeln!(table, "| {name} | {what} |").unwrap();
    }
    table += "\n| rule | checked in | found, rightly | false positives | missed |\n|---|---|---|---|---|\n";
    for rule in RULES {
        let with = |outcomes: &[&str]| -> Vec<&str> {
            let is = |of: &Findings| {
                of.checks.iter().any(|check| check.rule == rule.id && outcomes.contains(&&*check.outcome))
            };
            found.iter().filter(|(_, of)| is(of)).map(|(name, _)| *name).collect()
        };
        let is_defect = |program: &str| DEFECTS.iter().any(|of| of.0 == rule.id && of.1 == program);
        let (right, wrong): (Vec<&str>, Vec<&str>) =
            with(&["findings"]).into_iter().partition(|program| is_defect(program));
        let missed: Vec<&str> = with(&["healthy"]).into_iter().filter(|program| is_defect(program)).collect();
        let checked = with(&["findings", "healthy"]).len();
        let cells = [cell(&right), cell(&wrong), cell(&missed)].join(" | ");
        writeln!(table, "| `{}` | {checked} of {} | {cells} |", rule.id, PROGRAMS.len()).unwrap();
    }
    table += "\n| defect | of | why it is one |\n|---|---|---|\n";
    for (rule, program, why) in DEFECTS {
        writeln!(table, "| `{rule}` | {program} | {why} |").unwrap();
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/findings.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    expect_test::expect_file![path].assert_eq(&format!("{before}{BEGIN}{table}{END}{after}"));
}
