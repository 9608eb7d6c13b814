//! The kernels of a jitted program below the lines that asked for them, with jax as it is published.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cli_support;

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use cli_support::{can_capture, expect_code};

/// A program that is killed when the test ends, however it ends.
struct Target(Child);

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn workload() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads/jax_train.py")
}

/// Number of the line of the program that has this mark.
fn line(mark: &str) -> usize {
    let text = std::fs::read_to_string(workload()).unwrap();
    text.lines().position(|line| line.ends_with(&format!("# line: {mark}"))).unwrap() + 1
}

/// The program in a folder, with these variables; `None` without jax.
fn start(folder: &Path, variables: &[(&str, &str)]) -> Option<Target> {
    let Some(python) = std::env::var_os("TEST_JAX_PYTHON").filter(|python| Path::new(python).exists()) else {
        println!("skipped: jax, which is large, is fetched when `cargo xtask test jax` is asked for by name");
        return None;
    };
    if !can_capture() {
        return None;
    }
    let mut command = Command::new(python);
    command.arg(workload()).current_dir(folder).envs(variables.iter().copied()).env("JAX_PLATFORMS", "cpu");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let said = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok).next();
    let target = Target(child);
    assert_eq!(said.as_deref(), Some("ready"));
    Some(target)
}

/// Captures the program. Gives the file, and its samples by stack.
fn captured(target: &Target, folder: &Path) -> (String, Vec<(String, u64)>) {
    let file = folder.join("run.dctx").display().to_string();
    let pid = target.0.id().to_string();
    expect_code(0, &["record", "--pid", &pid, "--duration", "10s", "-F", "299", "-o", &file]);
    let how = ["--lines", "--metric", "samples", "--format", "folded", "-o", "-"];
    let folded = expect_code(0, &[&["export", &file][..], &how].concat());
    let stacks = folded.lines().map(|line| {
        let (stack, count) = line.rsplit_once(' ').unwrap();
        (stack.to_owned(), count.parse().unwrap())
    });
    (file, stacks.collect())
}

fn sum(stacks: &[(String, u64)], parts: &[&str]) -> u64 {
    let all = stacks.iter().filter(|(stack, _)| parts.iter().all(|part| stack.contains(part)));
    all.map(|(_, count)| count).sum()
}

/// Nearly all samples of the kernels whose name has this part stand below this line, and none below another one.
fn check(stacks: &[(String, u64)], kernel: &str, function: &str, mark: &str, operator: &str) {
    let all = sum(stacks, &[kernel]);
    let place = format!(";jax_train.py:{function}:{};jit(train_step)/", line(mark));
    let there = sum(stacks, &["[xla jit_train_step]", &place, operator, kernel]);
    println!("| {kernel}: {there} of {all} samples below {function}:{}", line(mark));
    assert!(there > 0 && there * 10 >= all * 9, "{kernel}: {stacks:?}");
}

#[test]
fn kernels_stand_below_the_lines_that_asked_for_them() {
    // From what tells of the module: XLA's dump, or the cache of this very compilation.
    let sources: [&[(&str, &str)]; 2] = [
        &[("XLA_FLAGS", "--xla_dump_to=dump")],
        &[("JAX_COMPILATION_CACHE_DIR", "cache"), ("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")],
    ];
    for variables in sources {
        let folder = tempfile::tempdir().unwrap();
        let Some(target) = start(folder.path(), variables) else { return };
        let (file, stacks) = captured(&target, folder.path());
        check(&stacks, ";region_0.1", "loss", "sort", "sort;region_0.1");
        check(&stacks, ";wrapped_tanh", "layer", "tanh", "/tanh;");
        check(
            &stacks,
            ";multiply_subtract_fusion",
            "train_step.<locals>.<lambda>",
            "update",
            "/sub [fused: mul]",
        );
        // What is not told stays as it is: a thunk by its type.
        let thunks = sum(&stacks, &["xla::cpu::"]);
        assert!(thunks > 100, "{stacks:?}");
        let report = expect_code(0, &["report", &file]);
        assert!(report.contains("Compiled code, by what it was compiled from"), "{report}");
        assert!(report.contains(&format!("jax_train.py:{}", line("sort"))), "{report}");
    }
}

#[test]
fn without_a_dump_kernels_have_their_own_names_and_no_lines() {
    let folder = tempfile::tempdir().unwrap();
    let Some(target) = start(folder.path(), &[]) else { return };
    let (_, stacks) = captured(&target, folder.path());
    assert!(sum(&stacks, &[";region_0.1"]) > 10, "{stacks:?}");
    assert_eq!(sum(&stacks, &["[xla "]), 0, "{stacks:?}");
}

#[test]
fn compiling_is_told_by_the_line_that_began_it() {
    let folder = tempfile::tempdir().unwrap();
    let Some(python) = std::env::var_os("TEST_JAX_PYTHON").filter(|python| Path::new(python).exists()) else {
        println!("skipped: jax, which is large, is fetched when `cargo xtask test jax` is asked for by name");
        return;
    };
    if !can_capture() {
        return;
    }
    let file = folder.path().join("run.dctx").display().to_string();
    let (python, program) = (python.to_string_lossy().into_owned(), workload().display().to_string());
    let command = ["--", "timeout", "30", &python, &program];
    // The program trains until it is ended, and its code is passed on.
    expect_code(124, &[&["record", "-F", "299", "-o", &file][..], &command].concat());
    let report = expect_code(0, &["report", &file]);
    let (_, table) = report.split_once("Time spent compiling, by the line that began it").expect(&report);
    let rows: Vec<&str> = table.lines().collect();
    let mut of_program = rows.windows(2).filter(|rows| rows[0].contains("jax_train.py:main"));
    assert!(of_program.any(|rows| rows[1].contains("jax ")), "{table}");
    // XLA itself compiles on threads of its own.
    assert!(table.contains("jax lowering") && table.contains("xla code generation"), "{table}");
    println!("| {}", rows[1..5].iter().map(|row| row.trim()).collect::<Vec<_>>().join("; "));
}
