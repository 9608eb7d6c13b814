//! Thunks of XLA's modules, seen from outside, beside the account of the program that ran them.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::cli_support::expect_code;
use crate::cli_support::recording::Recording;
use crate::frameworks::{Samples, Target, can_capture_arguments, look_alike_of};

/// The optimized module, which a program without jax leaves where XLA would.
const MODULE: &str = "HloModule jit_step, is_scheduled=true

ENTRY %main (x: f32[8]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  %dot.1 = f32[8]{0} custom-call(%x), metadata={op_name=\"jit(step)/dot_general\" source_file=\"/srv/net.py\" source_line=3}
  %while.4 = f32[8]{0} custom-call(%x), metadata={op_name=\"jit(step)/while\" source_file=\"/srv/net.py\" source_line=9}
}
";
/// Functions of the program, and the thunk to which each belongs.
const WORKS: [(&str, &str); 8] = [
    ("work_dot_1", "[xla jit_step];net.py:[line]:3;jit(step)/dot_general;dot.1;xla::cpu::DotThunk;"),
    ("work_dot_2", "[xla jit_step];dot.with_a_name_that_no_string_keeps_within_itself.2;xla::cpu::DotThunk;"),
    (
        "work_dot_of_other",
        "[xla jit_a_function_with_a_name_that_is_longer_than_w…];dot.1;xla::cpu::DotThunk;",
    ),
    ("work_sort", "[xla jit_step];sort.0;xla::cpu::SortThunk;"),
    ("work_loop", "[xla jit_step];net.py:[line]:9;jit(step)/while;while.4;xla::cpu::WhileThunk;"),
    ("work_dot_in_loop", "[xla jit_step];dot.5;xla::cpu::DotThunk;"),
    ("work_calls_back", "[xla jit_step];custom-call.7;xla::cpu::CustomCallThunk;"),
    ("work_called_back", "[xla jit_step];custom-call.6;xla::cpu::CustomCallThunk;"),
];

/// Sufficient samples per function.
const ENOUGH: u64 = 50;

/// A capture of the program, which starts its thunks once its probes are attached, until all functions have samples.
fn captured(program: &Path) -> (tempfile::TempDir, String) {
    let folder = program.parent().unwrap();
    let mut command = Command::new(program);
    command.current_dir(folder).env("XLA_FLAGS", "--xla_dump_to=dump").stdin(Stdio::piped());
    let mut target = Target::start(&mut command);
    let dump = folder.join("dump");
    std::fs::create_dir_all(&dump).unwrap();
    std::fs::write(dump.join("module_0007.jit_step.cpu_after_optimizations.txt"), MODULE).unwrap();
    let options = ["--context", "python,native", "--probe", "operators", "-F", "499"];
    let recording = Recording::start(&target.pid(), &options);
    recording.wait_for_probes();
    target.go();
    recording.wait_until(|file| {
        let samples = Samples::of(file);
        WORKS.iter().all(|(work, _)| samples.with(&[&format!(";{work}")]) >= ENOUGH)
    });
    recording.end()
}

#[test]
fn thunks_have_their_own_names_and_never_those_of_others() {
    if !can_capture_arguments() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = look_alike_of("jax_common", "xla_thunks.cpp", "-fno-omit-frame-pointer", folder.path());
    let (_folder, file) = captured(&program);
    let samples = Samples::of(&file);
    let of = |work: &str| samples.with(&[&format!(";{work}")]);
    let named = |work: &str| samples.with(&["[xla ", &format!(";{work}")]);
    let (all, reported) =
        WORKS.iter().fold((0, 0), |(all, reported), (work, _)| (all + of(work), reported + named(work)));
    println!("| {reported} of {all} samples in thunks are named");
    assert!(reported * 100 >= all * 95, "{samples}");
    for (work, thunk) in WORKS {
        let right = samples.with(&[thunk, &format!(";{work}")]);
        // Names are always correct, and nearly all samples have one.
        assert_eq!(right, named(work), "{work}: {samples}");
        assert!(right > 0 && right * 10 >= of(work) * 9, "{work}: {samples}");
    }
    assert_eq!(named("work_nameless"), 0, "{samples}");
    assert!(of("work_nameless") > 0, "{samples}");
    // Code in the loop is below it.
    let below = samples.with(&["while.4;xla::cpu::WhileThunk;", ";work_dot_in_loop"]);
    assert_eq!(below, named("work_dot_in_loop"), "{samples}");
    let report = expect_code(0, &["report", &file, "--all"]);
    assert!(report.contains("xla jit_step") && report.contains("dot.1  /srv/net.py:3"), "{report}");
    assert!(report.contains("thunk-unnamed"), "{report}");
}

#[test]
fn stripped_or_unfamiliar_libraries_get_no_probes_and_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    look_alike_of("jax_common", "xla_thunks.cpp", "-fno-omit-frame-pointer", folder.path());
    let library = folder.path().join("libjax_common.so");
    let probes = |path: &Path| {
        expect_code(0, &["probes", "--probe", "operators", "--library", &path.display().to_string()])
    };
    let list = probes(&library);
    assert_eq!(list.matches("  thunk-begins ").count(), 4, "{list}");
    let hidden = folder.path().join("hidden");
    std::fs::create_dir(&hidden).unwrap();
    let hidden = hidden.join("libjax_common.so");
    let mut compiler = Command::new("c++");
    compiler.args(["-std=c++17", "-O2", "-fPIC", "-shared", "-s", "-fvisibility=hidden", "-DLIBRARY", "-o"]);
    compiler.arg(&hidden).arg(crate::frameworks::workload("xla_thunks.cpp"));
    assert!(compiler.status().unwrap().success());
    let list = probes(&hidden);
    assert!(list.contains("symbols were stripped") && !list.contains("  thunk-begins "), "{list}");
    // The constructor fills its fields by a call.
    let other = folder.path().join("other");
    std::fs::create_dir(&other).unwrap();
    let other = other.join("libjax_common.so");
    let mut compiler = Command::new("c++");
    compiler.args(["-std=c++17", "-O0", "-fPIC", "-shared", "-DLIBRARY", "-o"]);
    compiler.arg(&other).arg(crate::frameworks::workload("xla_thunks.cpp"));
    assert!(compiler.status().unwrap().success());
    let list = probes(&other);
    assert!(list.contains("it is of an unknown version"), "{list}");
}
