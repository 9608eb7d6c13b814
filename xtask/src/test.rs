//! `cargo xtask test`: everything that must hold, in one command.
//!
//! Owns: the groups of tests, how each is run, the summary. Because: what CI checks, a contributor must be able to
//! check with the same words, and a skipped test must not look like a passed one. Does not: contain tests.
//!
//! All test programs are compiled once, for the whole workspace, and then run one after another. An integration test
//! file belongs to the group that begins its name (`live_native.rs` to `live`); all others are `unit`. Programs of the
//! privileged groups run as root. A test that cannot run here prints a line `skipped: REASON`.

use crate::{aarch64, ebpf, kernels, setup, sh, sim, tidy, workloads};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use surroundings::Surroundings;

mod surroundings;

/// Options of `cargo xtask test`.
#[derive(clap::Args, Default)]
pub(crate) struct Options {
    /// Groups to run; all of them when none is named.
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(GROUPS.iter().map(|group| group.name)))]
    groups: Vec<String>,
    /// Run only tests whose name contains this.
    #[arg(long)]
    filter: Option<String>,
    /// Do not look for missing packages first.
    #[arg(long)]
    no_setup: bool,
}

struct Group {
    name: &'static str,
    as_root: bool,
}

const GROUPS: &[Group] = &[
    Group { name: "style", as_root: false },
    Group { name: "unit", as_root: false },
    Group { name: "unwind-oracle", as_root: false },
    Group { name: "exports", as_root: false },
    Group { name: "cli", as_root: false },
    Group { name: "live", as_root: true },
    Group { name: "gpu", as_root: true },
    Group { name: "python", as_root: true },
    Group { name: "torch", as_root: true },
    Group { name: "jax", as_root: true },
    Group { name: "chaos", as_root: true },
    Group { name: "kernels", as_root: false },
    Group { name: "ebpf", as_root: false },
    Group { name: "aarch64", as_root: false },
];

/// What one check came to.
struct Outcome {
    name: String,
    ok: bool,
    detail: String,
    seconds: f64,
    skipped: Vec<String>,
    /// Lines of a table that the program printed.
    table: Vec<String>,
}

/// Runs the chore.
pub(crate) fn run(options: &Options) -> Result<()> {
    if !options.no_setup {
        setup::run(&setup::Options { yes: true, tests: true })?;
    }
    let wanted = |name: &str| options.groups.is_empty() || options.groups.iter().any(|group| group == name);
    let mut outcomes = Vec::new();
    let programs =
        GROUPS.iter().any(|group| !matches!(group.name, "style" | "ebpf" | "aarch64") && wanted(group.name));
    let fetched = std::thread::scope(|scope| {
        // The network is waited for while the compiler works.
        let fetching = programs.then(|| scope.spawn(|| Surroundings::fetch(&wanted, &options.groups)));
        if wanted("style") {
            outcomes.push(check("tidy", tidy::run));
            outcomes.push(cargo("format", &["fmt", "--all", "--check"]));
            let clippy =
                ["clippy", "--workspace", "--all-targets", "--locked", "--quiet", "--", "-D", "warnings"];
            outcomes.push(cargo("clippy", &clippy));
        }
        fetching.map(|fetching| {
            let compiled = compile();
            (compiled, fetching.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        })
    });
    if let Some((compiled, (mut surroundings, fetched))) = fetched {
        outcomes.extend(fetched);
        match compiled {
            Ok((built, outcome)) => {
                outcomes.push(outcome);
                surroundings.product = built.product;
                if ["unit", "live", "gpu", "torch"].into_iter().any(wanted) {
                    outcomes.push(check("simulated device", sim::run));
                }
                let chosen = built.tests.iter().filter(|test| wanted(test.group.name));
                for test in chosen {
                    let releases = if test.group.name == "torch" { &surroundings.torch[..] } else { &[] };
                    let run = |release| test.run(&surroundings, release, options.filter.as_deref());
                    outcomes.extend(releases.iter().map(|release| run(Some(release))));
                    if releases.is_empty() {
                        outcomes.push(run(None));
                    }
                }
                if wanted("gpu") {
                    outcomes.push(list_of_gpu_checks(surroundings.product.as_deref()));
                }
                if wanted("kernels") {
                    outcomes.push(other_kernels(surroundings.product.as_deref()));
                }
            }
            Err(error) => outcomes.push(Outcome::failed("compile", &error)),
        }
    }
    if wanted("unit") {
        outcomes
            .push(cargo("documentation examples", &["test", "--workspace", "--doc", "--locked", "--quiet"]));
    }
    if wanted("ebpf") {
        outcomes.push(drift());
    }
    if wanted("aarch64") {
        outcomes.push(other_machine());
    }
    summary(&outcomes)
}

impl Outcome {
    fn failed(name: &str, error: &anyhow::Error) -> Self {
        Self {
            name: name.to_owned(),
            ok: false,
            detail: format!("{error:#}"),
            seconds: 0.0,
            skipped: Vec::new(),
            table: Vec::new(),
        }
    }
}

fn check(name: &str, body: impl FnOnce() -> Result<()>) -> Outcome {
    eprintln!("==> {name}");
    let start = Instant::now();
    let result = body();
    let mut outcome = match &result {
        Ok(()) => Outcome {
            name: name.to_owned(),
            ok: true,
            detail: String::new(),
            seconds: 0.0,
            skipped: Vec::new(),
            table: Vec::new(),
        },
        Err(error) => Outcome::failed(name, error),
    };
    outcome.seconds = start.elapsed().as_secs_f64();
    outcome
}

fn cargo(name: &str, arguments: &[&str]) -> Outcome {
    check(name, || sh::run(sh::command("cargo").args(arguments)))
}

/// What is built for aarch64, when this machine can build it.
fn other_machine() -> Outcome {
    match aarch64::not_here_because() {
        None => check("aarch64", || aarch64::run(&aarch64::Options::default())),
        Some(reason) if std::env::var_os("CI").is_some_and(|value| value == "true") => {
            check("aarch64", || bail!("not compiled: {reason}"))
        }
        Some(reason) => {
            let mut outcome = check("aarch64", || Ok(()));
            outcome.skipped.push(format!("not compiled: {reason}"));
            outcome
        }
    }
}

/// The programs on other kernels, when this machine can emulate them.
fn other_kernels(product: Option<&Path>) -> Outcome {
    let reason = match (kernels::not_here_because(), product) {
        (None, Some(product)) => {
            let mut table = Vec::new();
            let mut outcome = check("other kernels", || {
                table = kernels::run(product)?;
                Ok(())
            });
            outcome.table = table;
            return outcome;
        }
        (Some(reason), _) => reason,
        (None, None) => "the product was not built".to_owned(),
    };
    if std::env::var_os("CI").is_some_and(|value| value == "true") {
        return check("other kernels", || bail!("not booted: {reason}"));
    }
    let mut outcome = check("other kernels", || Ok(()));
    outcome.skipped.push(format!("not booted: {reason}"));
    outcome
}

/// What a machine with a GPU will be checked with, on the simulated device: it must hold there, and fail where that misbehaves.
fn list_of_gpu_checks(product: Option<&Path>) -> Outcome {
    check("list of GPU checks", || {
        let product = product.context("the product was not built")?;
        let mut list =
            sh::as_root(std::env::current_exe()?, &sh::kept(&["PATH", "HOME", "CARGO_TARGET_DIR"]));
        sh::run(list.args(["gpu-check", "--itself", "--product"]).arg(product))
    })
}

/// The committed objects against a fresh build, when this machine can build them.
fn drift() -> Outcome {
    let Some(reason) = ebpf::no_check_because() else {
        return check("kernel programs", || ebpf::run(&ebpf::Options { check: true }));
    };
    let mut outcome = check("kernel programs", || Ok(()));
    outcome.skipped.push(format!("the committed objects were not rebuilt: {reason}"));
    outcome
}

/// One compiled test program.
struct Program {
    title: String,
    group: &'static Group,
    executable: PathBuf,
    folder: PathBuf,
}

fn group_of(target: &str) -> &'static Group {
    let name = target.replace('_', "-");
    let begins = |group: &&Group| name == group.name || name.starts_with(&format!("{}-", group.name));
    // `unit` takes what no other group names.
    GROUPS.iter().find(begins).unwrap_or(&GROUPS[1])
}

/// What one run of cargo built.
#[derive(Default)]
struct Built {
    tests: Vec<Program>,
    /// The program that users run.
    product: Option<PathBuf>,
}

/// Compiles every test program of the workspace at once: any other selection would build dependencies twice.
fn compile() -> Result<(Built, Outcome)> {
    let mut built = Built::default();
    let outcome = check("compile", || {
        let mut cargo = sh::command("cargo");
        cargo
            .args(["test", "--workspace", "--no-run", "--locked", "--message-format=json-render-diagnostics"])
            .stderr(std::process::Stdio::inherit());
        eprintln!("  $ {}", sh::words(&cargo));
        let said = cargo.output().context("cannot start cargo")?;
        for line in String::from_utf8_lossy(&said.stdout).lines() {
            let Ok(message) = serde_json::from_str::<serde_json::Value>(line) else { continue };
            built.tests.extend(program_in(&message));
            if message["target"]["name"] == PRODUCT && message["profile"]["test"] == false {
                built.product = message["executable"].as_str().map(PathBuf::from).or(built.product.take());
            }
        }
        if said.status.success() { Ok(()) } else { bail!("the tests do not compile") }
    });
    built.tests.sort_by_key(|program| {
        let place = GROUPS.iter().position(|group| group.name == program.group.name);
        (place, program.title.clone())
    });
    Ok((built, outcome))
}

/// Name of the program that users run.
const PRODUCT: &str = "deepctx-bpf";
/// Tells tests that run the program where it is.
const PRODUCT_VARIABLE: &str = "TEST_BINARY_DEEPCTX_BPF";

/// The test program that one line of cargo's report announces.
fn program_in(message: &serde_json::Value) -> Option<Program> {
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let executable = PathBuf::from(message["executable"].as_str()?);
    let folder = PathBuf::from(message["manifest_path"].as_str()?).parent()?.to_owned();
    let target = message["target"]["name"].as_str()?;
    let integration = message["target"]["kind"][0] == "test";
    let package = folder.file_name()?.to_string_lossy().into_owned();
    let kind = message["target"]["kind"][0].as_str()?;
    Some(Program {
        title: if integration { format!("{package}/{target}") } else { format!("{package} ({kind})") },
        group: if integration { group_of(target) } else { &GROUPS[1] },
        executable,
        folder,
    })
}

impl Program {
    /// Tests on live processes need root, whatever group they belong to.
    fn as_root(&self) -> bool {
        self.group.as_root || self.title.ends_with("_live")
    }

    fn run(
        &self,
        surroundings: &Surroundings,
        torch: Option<&workloads::Torch>,
        filter: Option<&str>,
    ) -> Outcome {
        let release = torch.map_or(String::new(), |torch| format!(", torch {}", torch.release));
        let name = format!("{}{release}", self.title);
        eprintln!("==> {name}{}", if self.as_root() { " (as root)" } else { "" });
        let start = Instant::now();
        let mut variables = sh::kept(&["CI", "PATH", "HOME", "CARGO_TARGET_DIR"]);
        variables.push(("CARGO_MANIFEST_DIR", self.folder.clone().into()));
        variables.extend(surroundings.product.as_ref().map(|path| (PRODUCT_VARIABLE, path.into())));
        if self.group.name == "python" {
            variables.extend(surroundings.interpreters.iter().cloned());
        }
        if let Some(torch) = torch {
            variables.extend(torch.variables());
        }
        if self.group.name == "torch" {
            variables.extend(surroundings.triton.iter().cloned());
        }
        if self.group.name == "jax" {
            variables.extend(surroundings.jax.iter().cloned());
        }
        if matches!(self.group.name, "unit" | "gpu") {
            variables.extend(surroundings.vendors.iter().cloned());
        }
        if self.group.name == "exports" {
            variables.extend(surroundings.validators.iter().cloned());
        }
        let mut command = if self.as_root() {
            sh::as_root(&self.executable, &variables)
        } else {
            let mut command = Command::new(&self.executable);
            command.envs(variables);
            command
        };
        command.current_dir(&self.folder);
        command.arg("--show-output").args(filter);
        if self.as_root() {
            // They share the CPUs' sampling events and the machine; side by side they would disturb each other.
            command.arg("--test-threads=1");
        }
        let mut outcome = Outcome {
            name,
            ok: false,
            detail: String::new(),
            seconds: 0.0,
            skipped: Vec::new(),
            table: Vec::new(),
        };
        match command.stdin(std::process::Stdio::null()).output() {
            Ok(said) => {
                let text = String::from_utf8_lossy(&said.stdout).into_owned()
                    + &String::from_utf8_lossy(&said.stderr);
                outcome.ok = said.status.success();
                outcome.detail = counts(&text).unwrap_or_else(|| format!("ended with {}", said.status));
                outcome.skipped = text
                    .lines()
                    .filter_map(|line| line.strip_prefix("skipped: "))
                    .map(str::to_owned)
                    .collect();
                if !outcome.ok {
                    eprintln!("{text}");
                }
                outcome.table =
                    text.lines().filter(|line| line.starts_with("| ")).map(str::to_owned).collect();
            }
            Err(error) => outcome.detail = format!("cannot start {}: {error}", self.executable.display()),
        }
        outcome.seconds = start.elapsed().as_secs_f64();
        outcome
    }
}

/// `12 passed; 0 failed; 1 ignored` out of a test program's last line.
fn counts(text: &str) -> Option<String> {
    let line = text.lines().rev().find_map(|line| line.strip_prefix("test result: "))?;
    let (_, counts) = line.split_once(". ")?;
    Some(counts.split("; ").take(3).collect::<Vec<_>>().join(", "))
}

/// Prints one line per check, then the verdict; the exit code is 1 when a check failed.
fn summary(outcomes: &[Outcome]) -> Result<()> {
    println!();
    for outcome in outcomes {
        let word = if outcome.ok { "ok    " } else { "FAILED" };
        println!("{word} {:<34} {:>6.1} s  {}", outcome.name, outcome.seconds, outcome.detail);
        for reason in &outcome.skipped {
            println!("       skipped: {reason}");
        }
        for line in &outcome.table {
            println!("       {line}");
        }
    }
    let failed = outcomes.iter().filter(|outcome| !outcome.ok).count();
    let skipped: usize = outcomes.iter().map(|outcome| outcome.skipped.len()).sum();
    println!("{} checks, {failed} failed, {skipped} skipped", outcomes.len());
    if failed > 0 {
        std::process::exit(1);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_file_belongs_to_the_group_that_begins_its_name() {
        let check = |target: &str, group: &str| assert_eq!(group_of(target).name, group, "{target}");
        check("live", "live");
        check("live_native", "live");
        check("unwind_oracle", "unwind-oracle");
        check("unwind_rows", "unit");
        check("python_offsets", "python");
        check("pipeline", "unit");
    }

    #[test]
    fn counts_are_read_from_the_last_result_line() {
        let text =
            "running 2 tests\ntest result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out\n";
        assert_eq!(counts(text).as_deref(), Some("2 passed, 0 failed, 1 ignored"));
        assert_eq!(counts("nothing here"), None);
    }
}
