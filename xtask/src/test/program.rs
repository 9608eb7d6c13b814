//! Test programs: compiled once for the whole workspace, each run with the variables that its group needs.
//!
//! Owns: their list from cargo, the group of each, and how one runs. Because: any other selection would build
//! dependencies twice. Does not: judge more than a program's output.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::ended::ProgramEnd;
use super::outcome::{Counts, Outcome, SkipReason, check, failures};
use super::surroundings::{TestEnvironment, Variant};
use super::{GROUPS, Group, INDEPENDENT, UNIT};
use crate::{fuzz, module, sh};

/// Time limit of a hanging program: the longest takes 15 minutes on two CPUs, and shares these with two others.
const LONGEST: Duration = Duration::from_secs(40 * 60);

/// Programs that also test random input: of all parsers, and of the reader of call frame information.
const FUZZED: [&str; 2] = ["fuzz-targets/kept_inputs", "tests/unwind_oracle_generated"];
/// How long they do so on CI, in seconds for each parser.
const FUZZ_SECONDS: &str = "30";

/// One compiled test program.
pub(super) struct Program {
    title: String,
    pub(super) group: &'static Group,
    executable: PathBuf,
    folder: PathBuf,
}

fn group_of(target: &str) -> &'static Group {
    let name = target.replace('_', "-");
    let begins = |group: &&Group| name == group.name || name.starts_with(&format!("{}-", group.name));
    GROUPS.iter().find(begins).unwrap_or(UNIT)
}

/// The result of one cargo run.
#[derive(Default)]
pub(super) struct BuildOutput {
    pub(super) tests: Vec<Program>,
    /// The product's program.
    pub(super) product: Option<PathBuf>,
    /// The library of the Python module.
    pub(super) module: Option<PathBuf>,
}

/// Variables that make cargo compile the workspace with clippy's driver, a compiler that lints. `cargo clippy` sets the
/// same ones but only checks, so that everything would be processed again for compilation.
pub(super) fn linter() -> Result<[sh::Variable; 2]> {
    let sysroot = sh::output(sh::command("rustc").args(["--print", "sysroot"]))?;
    let driver = Path::new(sysroot.trim()).join("bin/clippy-driver");
    if !driver.is_file() {
        bail!("{}: not found; install the component `clippy` of the toolchain", driver.display());
    }
    // The driver's separator of arguments: `src/driver.rs` of clippy.
    let arguments = "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__";
    Ok([("RUSTC_WORKSPACE_WRAPPER", driver.into()), ("CLIPPY_ARGS", arguments.into())])
}

/// Compiles every test program of the workspace at once: any other selection would build dependencies twice.
pub(super) fn compile(lint: bool) -> (BuildOutput, Outcome) {
    let mut built = BuildOutput::default();
    let outcome = check(if lint { "clippy, compile" } else { "compile" }, || {
        let mut cargo = sh::command("cargo");
        if lint {
            cargo.envs(linter()?);
        }
        cargo
            .args(["test", "--workspace", "--no-run", "--locked", "--message-format=json-render-diagnostics"])
            .stderr(Stdio::inherit());
        eprintln!("  $ {}", sh::words(&cargo));
        let said = cargo.output().context("cannot start cargo")?;
        for line in String::from_utf8_lossy(&said.stdout).lines() {
            let Ok(message) = serde_json::from_str::<serde_json::Value>(line) else { continue };
            built.tests.extend(program_in(&message));
            built.module = library_in(&message).or(built.module.take());
            if message["target"]["name"] == PRODUCT && message["profile"]["test"] == false {
                built.product = message["executable"].as_str().map(PathBuf::from).or(built.product.take());
            }
        }
        if said.status.success() { Ok(()) } else { bail!("not everything compiles without warnings") }
    });
    built.tests.sort_by_key(|program| {
        let place = GROUPS.iter().position(|group| group.name == program.group.name);
        (place, program.title.clone())
    });
    (built, outcome)
}

/// Name of the product's program.
const PRODUCT: &str = "deepctx-bpf";
/// Variable with its path, for tests that run it.
const PRODUCT_VARIABLE: &str = "TEST_BINARY_DEEPCTX_BPF";

/// The test program announced by one line of cargo's report.
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
        group: if integration { group_of(target) } else { UNIT },
        executable,
        folder,
    })
}

/// The Python module's library, if one line of cargo's report announces it.
fn library_in(message: &serde_json::Value) -> Option<PathBuf> {
    let files = message["filenames"].as_array()?.iter();
    files.filter_map(|file| Some(PathBuf::from(file.as_str()?))).find(|file| file.ends_with(module::LIBRARY))
}

impl Program {
    /// Whether any row may run it.
    pub(super) fn is_independent(&self) -> bool {
        INDEPENDENT.contains(&self.group.name)
    }

    /// Whether it tests random input for a while on CI.
    pub(super) fn is_fuzzed(&self) -> bool {
        FUZZED.contains(&&*self.title)
    }

    /// Tests on live processes need root, whatever group they belong to.
    fn as_root(&self) -> bool {
        self.group.as_root || self.title.ends_with("_live")
    }

    /// Its environment.
    fn variables(
        &self,
        product: Option<&Path>,
        surroundings: &TestEnvironment,
        variant: Option<&Variant>,
    ) -> Vec<sh::Variable> {
        let mut variables = sh::kept(&["CI", "PATH", "HOME", "CARGO_TARGET_DIR"]);
        variables.push(("CARGO_MANIFEST_DIR", self.folder.clone().into()));
        // Root of golden files; by default, the folder of the topmost Cargo.toml of all parent folders.
        variables.push(("CARGO_WORKSPACE_DIR", sh::root().into()));
        variables.extend(product.map(|path| (PRODUCT_VARIABLE, path.into())));
        variables.extend(variant.iter().flat_map(|variant| variant.variables.iter().cloned()));
        if self.group.name == "torch" {
            variables.extend(surroundings.triton.iter().cloned());
        }
        if self.group.name == "jax" {
            variables.extend(surroundings.jax.iter().cloned());
        }
        if self.group.name == "live" {
            variables.extend(surroundings.live.iter().cloned());
        }
        if matches!(self.group.name, "unit" | "gpu") {
            variables.extend(surroundings.vendors.iter().cloned());
        }
        if self.is_fuzzed() && sh::in_ci() {
            variables.push((fuzz::SECONDS_VARIABLE, FUZZ_SECONDS.into()));
        }
        if self.group.name == "exports" {
            variables.extend(surroundings.validators.iter().cloned());
        }
        variables
    }

    /// Runs it, with one of its group's variants if there are any.
    pub(super) fn run(
        &self,
        product: Option<&Path>,
        surroundings: &TestEnvironment,
        variant: Option<&Variant>,
        filter: Option<&str>,
    ) -> Outcome {
        let variant_name = variant.map(|variant| &*variant.name).filter(|name| !name.is_empty());
        let name = variant_name.map_or(self.title.clone(), |name| format!("{}, {name}", self.title));
        eprintln!("==> {name}{}", if self.as_root() { " (as root)" } else { "" });
        let start = Instant::now();
        let variables = self.variables(product, surroundings, variant);
        let mut command = if self.as_root() {
            sh::as_root(&self.executable, &variables)
        } else {
            let mut command = Command::new(&self.executable);
            command.envs(variables);
            command
        };
        command.current_dir(&self.folder).arg("--show-output").args(filter);
        if self.as_root() {
            // They share the CPUs' sampling events and the machine, and would disturb each other.
            command.arg("--test-threads=1");
        }
        let mut outcome = Outcome { name, ..Outcome::default() };
        match ProgramEnd::of(command, &outcome.name, LONGEST) {
            Ok(ended) => {
                outcome.ok = ended.status.success() && !ended.killed;
                outcome.cpu_seconds = Some(ended.cpu.as_secs_f64());
                outcome.counts = Counts::of(&ended.text);
                outcome.detail = match outcome.counts {
                    _ if ended.killed => format!("killed: it did not end within {} s", LONGEST.as_secs()),
                    Some(counts) => counts.to_string(),
                    None => format!("ended with {}", ended.status),
                };
                let lines = || ended.text.lines();
                outcome.skipped = lines().filter_map(SkipReason::in_line).collect();
                outcome.table = lines().filter(|line| line.starts_with("| ")).map(str::to_owned).collect();
                outcome = outcome.judged();
                if !outcome.ok {
                    outcome.failures = failures(&ended.text);
                    eprintln!("{}", ended.text);
                }
            }
            Err(error) => outcome.detail = format!("cannot run {}: {error:#}", self.executable.display()),
        }
        outcome.seconds = start.elapsed().as_secs_f64();
        eprintln!("    {}", outcome.line());
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_file_belongs_to_the_group_its_name_starts_with() {
        let check = |target: &str, group: &str| assert_eq!(group_of(target).name, group, "{target}");
        check("live", "live");
        check("live_native", "live");
        check("unwind_oracle", "unwind-oracle");
        check("unwind_rows", "unit");
        check("python_offsets", "python");
        check("pipeline", "unit");
        check("torch_ranges", "torch");
    }
}
