//! The kernels of a jitted program below the lines that asked for them, with jax as it is published.

use std::path::Path;

use crate::cli_support::expect_code;
use crate::frameworks::{Samples, Target, capture, line, with_jax};

const PROGRAM: &str = "jax_train.py";

/// The program in a folder, with these variables; `None` without jax.
fn start(folder: &Path, variables: &[(&str, &str)]) -> Option<Target> {
    let mut command = with_jax(PROGRAM)?;
    Some(Target::start(command.current_dir(folder).envs(variables.iter().copied())))
}

/// Captures the program. Gives the file, in its folder, and its samples.
fn captured(target: &Target) -> (tempfile::TempDir, String, Samples) {
    let (folder, file) = capture(target, 10, &["-F", "299"], || {});
    let samples = Samples::of(&file);
    (folder, file, samples)
}

/// Nearly all samples of the kernels whose name has this part stand below this line, and none below another one.
fn check(samples: &Samples, kernel: &str, function: &str, mark: &str, operator: &str) {
    let all = samples.with(&[kernel]);
    let place = format!(";jax_train.py:{function}:{};jit(train_step)/", line(PROGRAM, mark));
    let there = samples.with(&["[xla jit_train_step]", &place, operator, kernel]);
    println!("| {kernel}: {there} of {all} samples below {function}:{}", line(PROGRAM, mark));
    assert!(there > 0 && there * 10 >= all * 9, "{kernel}: {samples}");
}

#[test]
fn kernels_stand_below_the_lines_that_asked_for_them() {
    // From what describes the module: XLA's dump, or the cache of this very compilation.
    let sources: [&[(&str, &str)]; 2] = [
        &[("XLA_FLAGS", "--xla_dump_to=dump")],
        &[("JAX_COMPILATION_CACHE_DIR", "cache"), ("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")],
    ];
    for variables in sources {
        let folder = tempfile::tempdir().unwrap();
        let Some(target) = start(folder.path(), variables) else { return };
        let (_folder, file, samples) = captured(&target);
        check(&samples, ";region_0.1", "loss", "sort", "sort;region_0.1");
        check(&samples, ";wrapped_tanh", "layer", "tanh", "/tanh;");
        check(
            &samples,
            ";multiply_subtract_fusion",
            "train_step.<locals>.<lambda>",
            "update",
            "/sub [fused: mul]",
        );
        // What is not known stays as it is: a thunk by its type.
        let thunks = samples.with(&["xla::cpu::"]);
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
    // The first one fills it, until it is killed.
    let Some(target) = start(folder.path(), &variables) else { return };
    drop(target);
    let Some(target) = start(folder.path(), &variables) else { return };
    let (_folder, _, samples) = captured(&target);
    check(&samples, ";region_0.1", "loss", "sort", "sort;region_0.1");
    check(&samples, ";wrapped_tanh", "layer", "tanh", "/tanh;");
    // oneDNN's kernels are made anew in each process, and it reports that to nobody.
    let unnamed = samples.with(&["[unknown: jit-"]) - samples.with(&["[unknown: jit-", "dnnl::"]);
    println!("| {unnamed} of {} samples in code of XLA without a name", samples.with(&[]));
    assert!(unnamed * 20 < samples.with(&[]), "{samples}");
}

#[test]
fn without_a_dump_kernels_have_names_but_no_lines() {
    let folder = tempfile::tempdir().unwrap();
    let Some(target) = start(folder.path(), &[]) else { return };
    let (_folder, _, samples) = captured(&target);
    assert!(samples.with(&[";region_0.1"]) > 10, "{samples}");
    assert_eq!(samples.with(&["[xla "]), 0, "{samples}");
}

#[test]
fn compiling_is_told_by_the_line_that_began_it() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = with_jax(PROGRAM) else { return };
    let file = folder.path().join("run.dctx").display().to_string();
    let mut record = crate::cli_support::program();
    record.args(["record", "-F", "299", "-o", &file, "--", "timeout", "30"]);
    record.arg(program.get_program()).args(program.get_args());
    // The program trains until it is ended, and its code is passed on.
    let output = record.output().unwrap();
    assert_eq!(output.status.code(), Some(124), "{}", crate::cli_support::stderr(&output));
    let report = expect_code(0, &["report", &file, "--all"]);
    let (_, table) = report.split_once("Time spent compiling, by the line that began it").expect(&report);
    let rows: Vec<&str> = table.lines().collect();
    let mut of_program = rows.windows(2).filter(|rows| rows[0].contains("jax_train.py:main"));
    assert!(of_program.any(|rows| rows[1].contains("jax ")), "{table}");
    // XLA itself compiles on threads of its own.
    assert!(table.contains("jax lowering") && table.contains("xla code generation"), "{table}");
    println!("| {}", rows[1..5].iter().map(|row| row.trim()).collect::<Vec<_>>().join("; "));
}
