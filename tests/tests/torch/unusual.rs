//! Programs and libraries that PyTorch's own tests do not cover: less is known of them, but nothing wrong.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cli_support::recording::{Recording, record_until};
use crate::cli_support::{can_capture, expect_code};
use crate::frameworks::{Target, can_capture_arguments, record_from_go, record_through, stacks, workload};
use deepctx_profile::ledger::Stage;

/// Compiles a source with these options.
fn compile(source: &str, options: &[&str], to: &Path) {
    std::fs::create_dir_all(to.parent().unwrap()).unwrap();
    let mut compiler = Command::new("c++");
    compiler.args(["-std=c++17", "-O2", "-o"]).arg(to).arg(workload(source)).args(options);
    assert!(compiler.status().unwrap().success());
}

/// A PyTorch stub library in a separate folder.
fn library(folder: &Path, name: &str, options: &[&str]) -> PathBuf {
    let file = folder.join(name).join("libtorch_cpu.so");
    compile("torch_starts.cpp", &[&["-fPIC", "-shared", "-DLIBRARY"], options].concat(), &file);
    file
}

/// Calls of each operator by a program in these processes with these libraries.
fn calls(program: &Path, rounds: u64, processes: u64, libraries: &[&PathBuf]) -> BTreeMap<String, u64> {
    let mut command = Command::new(program);
    command.args([rounds.to_string(), processes.to_string()]).args(libraries);
    let options = [
        "--no-gpu",
        "--context",
        "python,native",
        "--probe",
        "operators",
        "--operator-stacks",
        "100/s",
        "--shapes",
        "aten::relu_",
    ];
    let (mut target, recording) = record_from_go(&mut command, &options);
    (0..processes).for_each(|_| target.wait_for("done"));
    let (_folder, file) = recording.end();
    let report = expect_code(0, &["report", &file, "--format", "json"]);
    assert!(!report.contains("\"operator-lost\"") && !report.contains("\"ring-full\""), "{report}");
    let mut calls = BTreeMap::new();
    for (stack, count) in stacks(&file, "calls") {
        let operator = stack.rsplit(';').next().unwrap_or_default().to_owned();
        *calls.entry(operator).or_insert(0) += count;
    }
    calls
}

/// Samples whose stack contains this.
fn with(samples: &BTreeMap<String, u64>, part: &str) -> u64 {
    samples.iter().filter(|(stack, _)| stack.contains(part)).map(|(_, count)| count).sum()
}

#[test]
fn stripped_or_duplicate_libraries_and_forks_record_every_call() {
    const ROUNDS: u64 = 1000;
    if !can_capture_arguments() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let program = path.join("program");
    compile("torch_unusual.cpp", &["-ldl"], &program);
    let [one, other] = ["one", "other"].map(|name| library(path, name, &[]));
    let stripped = library(path, "stripped", &["-s"]);
    for (what, processes, libraries) in [
        ("a stripped library", 1, &[&stripped][..]),
        ("two copies", 1, &[&one, &other]),
        ("forked children", 3, &[&one]),
    ] {
        let each = ROUNDS * processes * libraries.len() as u64;
        let expect: BTreeMap<String, u64> = [
            ("aten::relu_ [12] f32".to_owned(), each),
            ("aten::relu_ [?]".to_owned(), each),
            ("[operator without a name]".to_owned(), 8 * each),
        ]
        .into();
        assert_eq!(calls(&program, ROUNDS, processes, libraries), expect, "{what}");
    }
}

#[test]
fn unknown_torch_version_only_leaves_the_backward_pass_in_place() {
    if !can_capture_arguments() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    // Its thread-local variables are found in another way.
    let other_form = ["-fPIC", "-shared", "-DLIBRARY", "-DONE_BLOCK=", "-ftls-model=initial-exec"];
    compile("torch_backward.cpp", &other_form, &path.join("libtorch_cpu.so"));
    let search = format!("-L{}", path.display());
    let options = ["-fomit-frame-pointer", "-pthread", &search, "-ltorch_cpu", "-Wl,-rpath,$ORIGIN"];
    compile("torch_backward.cpp", &options, &path.join("program"));
    let target = Target::start(&mut Command::new(path.join("program")));
    let options = ["--no-gpu", "-F", "499", "--context", "python,native", "--probe", "backward"];
    let recording = Recording::start(&target.pid(), &options);
    recording.wait_for("the backward pass stays where it runs");
    recording.wait_until(|file| {
        let samples = stacks(file, "samples");
        with(&samples, "aten::index.Tensor") > 10 && with(&samples, "IndexBackward0") > 10
    });
    let (_folder, file) = recording.end();
    let samples = stacks(&file, "samples");
    assert!(samples.keys().all(|stack| !stack.contains("[backward]")), "{samples:?}");
}

#[test]
fn invalid_autograd_nodes_are_matched_by_number_or_stay_unknown() {
    const ROUNDS: u64 = 1000;
    if !can_capture_arguments() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let library = ["-fPIC", "-shared", "-DLIBRARY", "-DGARBAGE"];
    compile("torch_backward.cpp", &library, &path.join("libtorch_cpu.so"));
    let search = format!("-L{}", path.display());
    let options = ["-fomit-frame-pointer", "-DGARBAGE", &search, "-ltorch_cpu", "-Wl,-rpath,$ORIGIN"];
    compile("torch_backward.cpp", &options, &path.join("program"));
    // Of each created node, six have its numbers behind an invalid virtual table; four have no node data.
    let expect: BTreeMap<String, u64> = [("aten::index.Tensor;[backward]".to_owned(), 6 * ROUNDS)].into();
    let context = ["--no-gpu", "--context", "python,native", "--probe", "backward", "-F", "499"];
    let (_folder, file) = record_through(&mut Command::new(path.join("program")), &context);
    let profile = deepctx_storage::open(&file).unwrap().profile;
    let unknown = profile.ledger.stage(Stage::Attribute).gaps.count("forward-unknown");
    let samples = stacks(&file, "samples");
    let elsewhere =
        |stack: &&String| stack.contains("[backward]") && !stack.starts_with("aten::index.Tensor;");
    assert_eq!(samples.keys().find(elsewhere), None, "{samples:?}");
    assert_eq!((stacks(&file, "calls"), unknown), (expect, 4 * ROUNDS));
}

#[test]
fn python_without_torch_is_sampled_whatever_is_asked_of_torch() {
    if !can_capture() {
        return;
    }
    let mut python = Command::new("python3");
    python.args(["-c", "print('ready', flush=True)\ndef busy():\n    while True: pass\nbusy()"]);
    let target = Target::start(&mut python);
    let features = "modules,ranges,memory,backward,operators";
    let options = [
        "--no-gpu",
        "--context",
        "python,native",
        "--probe",
        features,
        "--shapes",
        "aten::addmm",
        "-F",
        "499",
    ];
    let (_folder, file) =
        record_until(&target.pid(), &options, |file| with(&stacks(file, "samples"), "busy") > 500);
    let samples = stacks(&file, "samples");
    let all: u64 = samples.values().sum();
    assert!(with(&samples, "busy") * 10 >= all * 9, "{samples:?}");
    let framework = |stack: &String| stack.contains("aten::") || stack.contains("[operator");
    assert!(!samples.keys().any(framework), "{samples:?}");
}
