//! The kernels of a jitted program below the lines that requested them, with the published jax.

use std::path::Path;

use crate::cli_support::expect_code;
use crate::cli_support::recording::record_until;
use crate::frameworks::{Samples, Target, compiling, line, with_jax};

const PROGRAM: &str = "jax_train.py";

/// The program in a folder, with these variables; `None` without jax.
fn start(folder: &Path, variables: &[(&str, &str)]) -> Option<Target> {
    let mut command = with_jax(PROGRAM)?;
    Some(Target::start(command.current_dir(folder).envs(variables.iter().copied())))
}

/// Captures the program until it has samples of each of these, and many in total. Returns the file with its folder, and
/// its samples.
fn captured(target: &Target, parts: &[&str]) -> (tempfile::TempDir, String, Samples) {
    let (folder, file) = record_until(&target.pid(), &["-F", "299"], |file| {
        let samples = Samples::of(file);
        samples.with(&[]) > 2000 && parts.iter().all(|part| samples.with(&[part]) > 30)
    });
    let samples = Samples::of(&file);
    (folder, file, samples)
}

/// Nearly all samples of kernels whose name contains this are below this line, and none below another one.
fn check(samples: &Samples, kernel: &str, function: &str, mark: &str, operator: &str) {
    let all = samples.with(&[kernel]);
    let place = format!(";jax_train.py:{function}:{};jit(train_step)/", line(PROGRAM, mark));
    let there = samples.with(&["[xla jit_train_step]", &place, operator, kernel]);
    println!("| {kernel}: {there} of {all} samples below {function}:{}", line(PROGRAM, mark));
    assert!(there > 0 && there * 10 >= all * 9, "{kernel}: {samples}");
}

#[test]
fn kernels_stand_below_the_lines_that_asked_for_them() {
    // From a description of the module: XLA's dump, or the cache of this compilation.
    let sources: [&[(&str, &str)]; 2] = [
        &[("XLA_FLAGS", "--xla_dump_to=dump")],
        &[("JAX_COMPILATION_CACHE_DIR", "cache"), ("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")],
    ];
    for variables in sources {
        let folder = tempfile::tempdir().unwrap();
        let Some(target) = start(folder.path(), variables) else { return };
        // Unknown thunks keep their type as name.
        const THUNKS: &str = "xla::cpu::";
        let kernels = [";region_0.1", ";wrapped_tanh", ";multiply_subtract_fusion", THUNKS];
        let (_folder, file, samples) = captured(&target, &kernels);
        check(&samples, ";region_0.1", "loss", "sort", "sort;region_0.1");
        check(&samples, ";wrapped_tanh", "layer", "tanh", "/tanh;");
        check(
            &samples,
            ";multiply_subtract_fusion",
            "train_step.<locals>.<lambda>",
            "update",
            "/sub [fused: mul]",
        );
        let thunks = samples.with(&[THUNKS]);
        assert!(thunks > 100, "{samples}");
        let report = expect_code(0, &["report", &file, "--all"]);
        assert!(report.contains("Compiled code, by what it was compiled from"), "{report}");
        assert!(report.contains(&format!("jax_train.py:{}", line(PROGRAM, "sort"))), "{report}");
    }
}

#[test]
fn code_loaded_from_the_cache_is_identified_by_its_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let variables =
        [("JAX_COMPILATION_CACHE_DIR", "cache"), ("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")];
    // The first run fills it until it is killed.
    let Some(target) = start(folder.path(), &variables) else { return };
    drop(target);
    let Some(target) = start(folder.path(), &variables) else { return };
    let (_folder, _, samples) = captured(&target, &[";region_0.1", ";wrapped_tanh"]);
    check(&samples, ";region_0.1", "loss", "sort", "sort;region_0.1");
    check(&samples, ";wrapped_tanh", "layer", "tanh", "/tanh;");
    // oneDNN generates kernels in each process and does not report them.
    let unnamed = samples.with(&["[unknown: jit-"]) - samples.with(&["[unknown: jit-", "dnnl::"]);
    println!("| {unnamed} of {} samples in code of XLA without a name", samples.with(&[]));
    assert!(unnamed * 20 < samples.with(&[]), "{samples}");
}

#[test]
fn without_a_dump_kernels_have_names_but_no_lines() {
    let folder = tempfile::tempdir().unwrap();
    let Some(target) = start(folder.path(), &[]) else { return };
    let (_folder, _, samples) = captured(&target, &[";region_0.1"]);
    assert_eq!(samples.with(&["[xla "]), 0, "{samples}");
}

#[test]
fn compiling_is_told_by_the_line_that_began_it() {
    let Some(program) = with_jax(PROGRAM) else { return };
    let table = compiling(&program, "299", |table| {
        let rows: Vec<&str> = table.lines().collect();
        let mut of_program = rows.windows(2).filter(|rows| rows[0].contains("jax_train.py:main"));
        // XLA compiles on separate threads.
        let has_stages = table.contains("jax lowering") && table.contains("xla code generation");
        of_program.any(|rows| rows[1].contains("jax ")) && has_stages
    });
    println!("| {}", table.lines().skip(1).take(4).map(str::trim).collect::<Vec<_>>().join("; "));
}
