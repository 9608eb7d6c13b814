//! `cargo xtask fuzz`: every parser of untrusted bytes, with input from a fuzzer.
//!
//! Owns: how the fuzzer is installed, built and run, and its findings. Because: the profiler runs as root and reads
//! files and memory of programs that it knows nothing about. Does not: contain targets (`tests/fuzz-targets`).

use crate::sh;
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// Options of `cargo xtask fuzz`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Targets to run; all of them when none is named.
    targets: Vec<String>,
    /// Seconds for each.
    #[arg(long, default_value_t = SECONDS)]
    seconds: u32,
    /// Most bytes of an input.
    #[arg(long, default_value_t = BYTES)]
    bytes: u32,
}

/// Variable with the seconds for which a test program tests random input.
pub(crate) const SECONDS_VARIABLE: &str = "DEEPCTX_FUZZ_SECONDS";
/// The target that compares random call frame information with `readelf`: a test program, since it compiles each input.
const READELF: &str = "readelf";

/// Default time per target.
const SECONDS: u32 = 60;
/// Default maximum input size in bytes.
const BYTES: u32 = 16384;

impl Options {
    /// Options for all targets, ten minutes each.
    pub(crate) fn scheduled() -> Self {
        Self { targets: Vec::new(), seconds: 600, bytes: BYTES }
    }
}

/// Seconds after which an input counts as a hang.
const HANG_SECONDS: u32 = 20;
/// Memory limit of the fuzzer in MiB; a target that exceeds it takes an allocation size from its input.
const MEMORY_MIB: u32 = 2048;

/// Runs the chore.
pub(crate) fn run(options: &Options) -> Result<()> {
    if sh::which("cargo-fuzz").is_none() {
        sh::step("install cargo-fuzz", "it builds the targets with the compiler's coverage instrumentation");
        sh::run(sh::command("cargo").args(["install", "--locked", "cargo-fuzz"]))?;
    }
    let all = targets()?;
    let chosen: Vec<_> = match &options.targets[..] {
        [] => all,
        named => {
            if let Some(unknown) = named.iter().find(|name| !all.contains(name)) {
                bail!("there is no target {unknown}\nhint: there are {}", all.join(", "));
            }
            named.to_vec()
        }
    };
    let mut failed = Vec::new();
    for target in &chosen {
        let found = fuzz(target, options).with_context(|| format!("cannot run {target}"))?;
        println!("{} {target:<14} {}", if found.ok { "ok    " } else { "FAILED" }, found.summary);
        if !found.ok {
            failed.push(target.as_str());
        }
    }
    ensure!(failed.is_empty(), "found something in {}", failed.join(", "));
    Ok(())
}

/// The result of one run.
struct FuzzRun {
    ok: bool,
    summary: String,
}

/// The targets: those of the fuzzer by file name, and the comparison with `readelf`.
fn targets() -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder().join("fuzz_targets"))? {
        let path = entry?.path();
        names.extend(path.file_stem().map(|name| name.to_string_lossy().into_owned()));
    }
    names.sort();
    names.push(READELF.to_owned());
    Ok(names)
}

fn folder() -> PathBuf {
    sh::root().join("tests/fuzz")
}

/// Runs the comparison with `readelf`.
fn compare_with_readelf(options: &Options) -> Result<FuzzRun> {
    let mut cargo = sh::command("cargo");
    cargo.args(["test", "--quiet", "--locked", "-p", "deepctx-tests", "--test", "unwind_oracle_generated"]);
    cargo.args(["--", "--nocapture"]).env(SECONDS_VARIABLE, options.seconds.to_string());
    eprintln!("  $ {}", sh::words(&cargo));
    let said = Command::output(&mut cargo)?;
    let text = String::from_utf8_lossy(&said.stdout);
    let new = text.lines().rfind(|line| line.contains("new libraries")).unwrap_or_default().to_owned();
    // Without `readelf` or a compiler, the program compares nothing, and says so.
    let ok = said.status.success() && !new.is_empty();
    let summary = if ok { new } else { format!("{text}{}", String::from_utf8_lossy(&said.stderr)) };
    Ok(FuzzRun { ok, summary })
}

fn fuzz(target: &str, options: &Options) -> Result<FuzzRun> {
    if target == READELF {
        return compare_with_readelf(options);
    }
    // The corpus is worth more than the rest of the build folder, and is kept longer.
    let corpus = sh::target_dir().join("fuzz-corpus").join(target);
    fs::create_dir_all(&corpus)?;
    let mut cargo = sh::command("cargo");
    cargo
        .args(["fuzz", "run", "--fuzz-dir"])
        .arg(folder())
        .args(["--sanitizer", "none", target])
        .arg(&corpus);
    sh::run(
        sh::command("cargo")
            .args([
                "run",
                "--quiet",
                "--locked",
                "-p",
                "deepctx-fuzz-targets",
                "--example",
                "seeds",
                "--",
                target,
            ])
            .arg(&corpus),
    )?;
    let limits = [
        format!("-max_total_time={}", options.seconds),
        format!("-max_len={}", options.bytes),
        format!("-timeout={HANG_SECONDS}"),
        format!("-rss_limit_mb={MEMORY_MIB}"),
        "-print_final_stats=1".to_owned(),
    ];
    // The instrumentation flag needs this on stable compilers.
    cargo.arg("--").args(limits).env("RUSTC_BOOTSTRAP", "1");
    eprintln!("  $ {}", sh::words(&cargo));
    let said = Command::output(&mut cargo)?;
    let text = String::from_utf8_lossy(&said.stderr);
    let figure = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("stat::{name}:")));
        line.map_or("?", str::trim).to_owned()
    };
    let summary =
        format!("{} inputs, peak {} MiB", figure("number_of_executed_units"), figure("peak_rss_mb"));
    if said.status.success() {
        return Ok(FuzzRun { ok: true, summary });
    }
    let last: Vec<&str> = text.lines().rev().take(40).collect();
    let last = last.into_iter().rev().collect::<Vec<_>>().join("\n");
    Ok(FuzzRun { ok: false, summary: format!("{summary}\n{last}") })
}
