//! Kernels of torch.compile below the lines that asked for them, with torch as it is published.

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
    Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads/torch_compile.py")
}

/// Number of the line of the program that has this mark.
fn line(mark: &str) -> usize {
    let text = std::fs::read_to_string(workload()).unwrap();
    text.lines().position(|line| line.ends_with(&format!("# line: {mark}"))).unwrap() + 1
}

#[test]
fn fused_kernels_and_their_compilation_belong_to_lines_of_the_program() {
    let Some(python) = std::env::var_os("TEST_TORCH_PYTHON").filter(|python| Path::new(python).exists())
    else {
        println!(
            "skipped: torch, which is large, is fetched when `cargo xtask test torch` is asked for by name"
        );
        return;
    };
    if !can_capture() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.dctx").display().to_string();
    let libraries = std::env::var_os("TEST_TORCH_LIBRARIES").unwrap_or_default();
    let with = |command: &mut Command| {
        command
            .env("LD_LIBRARY_PATH", &libraries)
            .env("TORCHINDUCTOR_CACHE_DIR", folder.path().join("cache"));
    };

    // From its first instruction, to see it compile.
    let mut record = cli_support::program();
    with(&mut record);
    record.args(["record", "-F", "199", "-o", &file, "--", "timeout", "90"]).arg(&python);
    let output = record.args(["-W", "ignore"]).arg(workload()).output().unwrap();
    assert_eq!(output.status.code(), Some(124), "{}", cli_support::stderr(&output));
    let report = expect_code(0, &["report", &file]);
    let (_, table) = report.split_once("Time spent compiling, by the line that began it").expect(&report);
    let rows: Vec<&str> = table.lines().collect();
    let began = format!("torch_compile.py:step:{}", line("call"));
    let row = rows.iter().position(|row| row.contains(&began)).expect(table);
    println!("| {} {}", rows[row].trim(), rows[row + 1].trim());
    for stage in ["dynamo", "inductor"] {
        assert!(rows[row + 1].contains(stage), "{table}");
    }
    assert!(table.contains("processes of cc1plus"), "{table}");

    // Once more, attached while it runs what is in the cache.
    let mut command = Command::new(&python);
    command.args(["-W", "ignore"]).arg(workload()).stderr(Stdio::null());
    with(&mut command);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let said = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok).next();
    let target = Target(child);
    assert_eq!(said.as_deref(), Some("ready"));
    let file = folder.path().join("attached.dctx").display().to_string();
    let pid = target.0.id().to_string();
    expect_code(0, &["record", "--pid", &pid, "--duration", "10s", "-F", "299", "-o", &file]);
    let how = ["--lines", "--metric", "samples", "--format", "folded", "-o", "-"];
    let folded = expect_code(0, &[&["export", &file][..], &how].concat());
    let sum = |parts: &[&str]| -> u64 {
        let lines = folded.lines().filter(|line| parts.iter().all(|part| line.contains(part)));
        lines.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum()
    };
    let place = format!(
        "[inductor cpp_fused_mul_sigmoid_tanh_0];torch_compile.py:forward:{};aten::mul, aten::sigmoid, aten::tanh;",
        line("gate")
    );
    let (there, all) = (sum(&[&place]), sum(&[".main.cpp:"]));
    println!("| {there} of {all} samples of the fused kernel below its line");
    assert!(there > 10 && there * 10 >= all * 9, "{folded}");
}
