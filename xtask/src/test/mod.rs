//! `cargo xtask test`: everything that must hold, in one command.
//!
//! Owns: the groups of tests, how each is run, the summary. Because: a contributor must be able to run what CI checks,
//! with the same commands, and a skipped test must not look like a passed one. Does not: contain tests.
//!
//! All test programs are compiled once, for the whole workspace, by the linter if it also runs. They then run in three
//! parallel queues: compile-only checks in one, the programs in the order of their groups in another, and those that
//! take minutes in the third, which each finished queue then helps with. Emulated guests are first there: an emulated
//! CPU that does not get a real one falls behind its clock. An integration test file belongs to the group that begins
//! its name (`live_native.rs` to `live`); all others are `unit`. Programs of the privileged groups run as root. A test
//! that cannot run here prints a line `skipped: REASON`, which is a failure where `CI` is `true`, except where the
//! absence or presence of a GPU is the reason (`skipped, no GPU: REASON`, `skipped, a GPU: REASON`).

mod disk;
mod ended;
mod outcome;
mod program;
mod surroundings;

use crate::bench::soak;
use crate::kernels::{self, Kernels};
use crate::{aarch64, dist, ebpf, fuzz, gpu, module, setup, sh, sim, tidy, toolchain};
use anyhow::{Context, Result};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use outcome::{Outcome, SkipReason, cargo, check, summary};
use program::BuildOutput;
use surroundings::TestEnvironment;

/// Options of `cargo xtask test`.
#[derive(clap::Args, Default)]
pub(crate) struct Options {
    /// Groups to run; when none is named, all but `torch-older`, `python-optimized`, `kernels-between`, `docs`, `fuzz`
    /// and `soak`, which take long.
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
    /// Runs only when named, because it takes long.
    scheduled: bool,
}

const fn group(name: &'static str) -> Group {
    Group { name, as_root: false, scheduled: false }
}

const fn as_root(name: &'static str) -> Group {
    Group { as_root: true, ..group(name) }
}

const fn scheduled(name: &'static str) -> Group {
    Group { scheduled: true, ..group(name) }
}

/// The group of everything that no other group names.
const UNIT: &Group = &GROUPS[1];
/// The group that runs programs with the older release of PyTorch instead of the current one.
const TORCH_OLDER: &str = "torch-older";
/// The group that runs the Python frame tests with slowly compiled interpreters instead of all others.
const PYTHON_OPTIMIZED: &str = "python-optimized";

const GROUPS: &[Group] = &[
    group("style"),
    group("unit"),
    group("unwind-oracle"),
    group("exports"),
    group("cli"),
    as_root("live"),
    as_root("gpu"),
    as_root("python"),
    scheduled(PYTHON_OPTIMIZED),
    as_root("torch"),
    scheduled(TORCH_OLDER),
    as_root("jax"),
    as_root("chaos"),
    as_root("hostile"),
    group("packages"),
    group("module"),
    group(KERNELS),
    scheduled(KERNELS_BETWEEN),
    group("ebpf"),
    group("aarch64"),
    scheduled("docs"),
    scheduled("fuzz"),
    scheduled(SOAK),
];

/// Groups whose programs run in another environment when another group is named.
const VARIANTS: [(&str, &str); 2] = [("torch", TORCH_OLDER), ("python", PYTHON_OPTIMIZED)];

/// Whether programs of this group are to run, in any environment.
fn wants_variant(options: &Options, group: &str) -> bool {
    let other = VARIANTS.iter().find(|(of, _)| *of == group);
    options.wants(group) || other.is_some_and(|(_, name)| options.wants(name))
}

/// Emulated guests with the oldest and the newest kernel.
const KERNELS: &str = "kernels";
/// The same with kernels in between.
const KERNELS_BETWEEN: &str = "kernels-between";
/// The kernels that each of these groups boots.
const KERNELS_OF_GROUPS: [(&str, Kernels); 2] =
    [(KERNELS, Kernels::Ends), (KERNELS_BETWEEN, Kernels::Between)];

/// A capture of the whole machine for several minutes.
const SOAK: &str = "soak";

/// Groups whose programs depend only on what they start, so that any row may run them concurrently: long-running ones
/// first, the smallest last. Not `gpu`: its programs share the files of the simulated device, and a probe in a file
/// affects every process that maps it.
const INDEPENDENT: [&str; 7] = ["python", "torch", "jax", "live", "exports", "unwind-oracle", "unit"];

/// Groups without test programs of the workspace.
const WITHOUT_PROGRAMS: [&str; 7] = ["style", "module", "ebpf", "aarch64", "docs", "fuzz", SOAK];

impl Options {
    fn wants(&self, name: &str) -> bool {
        let named = self.groups.iter().any(|group| group == name);
        let always = || GROUPS.iter().any(|group| group.name == name && !group.scheduled);
        named || self.groups.is_empty() && always()
    }

    fn wants_any(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.wants(name))
    }
}

/// Runs the chore.
pub(crate) fn run(options: &Options) -> Result<()> {
    if options.groups.is_empty() && options.filter.is_none() {
        disk::require_space()?;
    }
    if !options.no_setup {
        setup::run(&setup::Options { yes: true, tests: true })?;
    }
    let mut outcomes = Vec::new();
    let compiled = compile(options, &mut outcomes);
    // Most programs run their tests one after another and sleep half of the time: the CPUs have time for the compiler,
    // and for programs whose tests depend only on processes they start.
    let independent =
        compiled.as_ref().map(|(built, surroundings)| independent(built, surroundings, options));
    let independent = Mutex::new(independent.unwrap_or_default());
    std::thread::scope(|scope| {
        let beside = scope.spawn(|| {
            let built = compiled.as_ref().map(|(built, _)| built);
            let compiled_only = std::thread::scope(|low| low.spawn(|| compiled_only(options, built)).join());
            let mut outcomes = compiled_only.unwrap_or_else(resume);
            outcomes.extend(taken(&independent));
            outcomes
        });
        let longest_first = scope.spawn(|| {
            let built = compiled.as_ref().map(|(built, _)| built);
            let emulated = wanted_kernels(built, options).into_iter();
            emulated.chain(taken(&independent)).collect::<Vec<_>>()
        });
        if let Some((built, surroundings)) = &compiled {
            outcomes.extend(others(built, surroundings, options));
            outcomes.extend(taken(&independent));
        }
        let rows = [beside, longest_first];
        outcomes.extend(rows.into_iter().flat_map(|row| row.join().unwrap_or_else(resume)));
    });
    if options.wants("docs") {
        let of_all = ["doc", "--workspace", "--no-deps", "--document-private-items", "--locked", "--quiet"];
        outcomes.push(cargo("links of the documentation", &of_all));
    }
    if options.wants("fuzz") {
        outcomes.push(check("fuzz targets", || fuzz::run(&fuzz::Options::scheduled())));
    }
    if options.wants(SOAK) {
        outcomes.push(check("ten minutes of soak", soak::ten_minutes));
    }
    summary(&outcomes)
}

/// Checks the style, compiles the test programs if needed, and fetches their requirements meanwhile.
fn compile(options: &Options, outcomes: &mut Vec<Outcome>) -> Option<(BuildOutput, TestEnvironment)> {
    let programs =
        GROUPS.iter().any(|group| !WITHOUT_PROGRAMS.contains(&group.name) && options.wants(group.name));
    if options.wants("style") {
        outcomes.extend(style());
        if !programs {
            outcomes.push(lint());
        }
    }
    if !programs {
        return None;
    }
    std::thread::scope(|scope| {
        // The network transfers overlap with the compiler.
        let fetching = scope.spawn(|| TestEnvironment::fetch(options));
        let (built, outcome) = program::compile(options.wants("style"));
        let (surroundings, fetched) = fetching.join().unwrap_or_else(resume);
        outcomes.extend(fetched);
        outcomes.push(outcome);
        if options.wants_any(&["unit", "live", "gpu", "hostile", "torch", TORCH_OLDER]) {
            outcomes.push(check("simulated device", sim::run));
        }
        Some((built, surroundings))
    })
}

/// Resumes the panic of a thread.
fn resume<T>(panic: Box<dyn std::any::Any + Send>) -> T {
    std::panic::resume_unwind(panic)
}

/// Checks without a compiler.
fn style() -> [Outcome; 2] {
    [check("tidy", || tidy::run(&tidy::Options::default())), cargo("format", &["fmt", "--all", "--check"])]
}

/// Lints if no test program is compiled.
fn lint() -> Outcome {
    cargo(
        "clippy",
        &["clippy", "--workspace", "--all-targets", "--locked", "--quiet", "--", "-D", "warnings"],
    )
}

/// Checks that mostly compile, at lower CPU priority than the concurrent tests.
fn compiled_only(options: &Options, built: Option<&BuildOutput>) -> Vec<Outcome> {
    lower_priority();
    let mut outcomes = Vec::new();
    if options.wants("unit") {
        outcomes.push(check("documentation examples", || {
            let mut cargo = sh::command("cargo");
            // Another compiler driver would recompile the libraries.
            let variables = if options.wants("style") { Vec::from(program::linter()?) } else { Vec::new() };
            sh::run(cargo.envs(variables).args(["test", "--workspace", "--doc", "--locked", "--quiet"]))
        }));
    }
    if options.wants("module") {
        let with_tests = built.and_then(|built| built.module.as_deref().zip(built.product.as_deref()));
        outcomes.push(check("Python module", || module::test(with_tests)));
    }
    if options.wants("ebpf") {
        outcomes.push(drift(options));
    }
    if options.wants("aarch64") {
        outcomes.push(other_machine());
    }
    outcomes
}

/// Lowers the CPU priority of everything that this thread starts from now on. Without `renice`, it stays the same.
fn lower_priority() {
    let thread = std::fs::read_link("/proc/thread-self");
    let id = thread.ok().and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    if let Some(id) = id {
        sh::succeeds(sh::command("renice").args(["-n", "10", "-p", &id]));
    }
}

/// A job for any idle row.
type Job<'a> = Box<dyn FnOnce() -> Outcome + Send + 'a>;

/// Runs these jobs one after another until none is left.
fn taken(jobs: &Mutex<VecDeque<Job<'_>>>) -> Vec<Outcome> {
    let next = || jobs.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    std::iter::from_fn(next).map(|job| job()).collect()
}

/// Test programs of the wanted groups that any row may run.
fn independent<'a>(
    built: &'a BuildOutput,
    surroundings: &'a TestEnvironment,
    options: &'a Options,
) -> VecDeque<Job<'a>> {
    let product = built.product.as_deref();
    let run = |program: &'a program::Program, variant| -> Job<'a> {
        Box::new(move || program.run(product, surroundings, variant, options.filter.as_deref()))
    };
    let mut jobs = VecDeque::new();
    for group in INDEPENDENT {
        let variants = surroundings.variants(group);
        for program in built.tests.iter().filter(|program| program.group.name == group) {
            if wants_variant(options, group) {
                jobs.extend(variants.iter().map(|variant| run(program, Some(variant))));
                // Longer than all others of their groups.
                if program.is_fuzzed() {
                    jobs.push_front(run(program, None));
                } else if variants.is_empty() {
                    jobs.push_back(run(program, None));
                }
            }
        }
    }
    jobs
}

/// Runs all other test programs of the wanted groups, and checks of the product.
fn others(built: &BuildOutput, surroundings: &TestEnvironment, options: &Options) -> Vec<Outcome> {
    let product = built.product.as_deref();
    let wanted = built.tests.iter();
    let wanted = wanted.filter(|program| !program.is_independent() && options.wants(program.group.name));
    let mut outcomes: Vec<Outcome> =
        wanted.map(|program| program.run(product, surroundings, None, options.filter.as_deref())).collect();
    if options.wants("gpu") {
        outcomes.push(list_of_gpu_checks(product));
    }
    if options.wants("packages") {
        outcomes.push(check("packages", || {
            let parts = product.zip(built.module.as_deref());
            let (product, library) = parts.context("the product or the Python module was not built")?;
            dist::of_product(product, library)
        }));
    }
    outcomes
}

/// Compares the committed kernel program objects with a fresh build.
fn drift(options: &Options) -> Outcome {
    let name = "kernel programs";
    if options.no_setup && !sh::in_ci() && !toolchain::is_complete() {
        return Outcome::skipped(
            name,
            SkipReason::Missing("no BPF linker or no rust-src here (cargo xtask ebpf)".to_owned()),
        );
    }
    match ebpf::no_check_because() {
        None => check(name, || ebpf::run(&ebpf::Options { check: true })),
        Some(reason) => Outcome::skipped(name, SkipReason::Missing(reason)),
    }
}

/// Checks the aarch64 builds, if this machine supports it.
fn other_machine() -> Outcome {
    match aarch64::not_here_because() {
        None => check("aarch64", || aarch64::run(&aarch64::Options::default())),
        Some(reason) => Outcome::skipped("aarch64", SkipReason::Missing(reason)),
    }
}

/// Boots the kernels of the wanted groups, if any.
fn wanted_kernels(built: Option<&BuildOutput>, options: &Options) -> Option<Outcome> {
    let wanted = KERNELS_OF_GROUPS.into_iter().filter(|(name, _)| options.wants(name));
    let kernels: Vec<Kernels> = wanted.map(|(_, kernels)| kernels).collect();
    let product = built.and_then(|built| built.product.as_deref());
    (!kernels.is_empty()).then(|| other_kernels(&kernels, product))
}

/// Checks other kernels, if this machine can emulate them.
fn other_kernels(kernels: &[Kernels], product: Option<&Path>) -> Outcome {
    let name = "other kernels";
    if let Some(reason) = kernels::not_here_because() {
        return Outcome::skipped(name, SkipReason::Missing(reason));
    }
    let mut table = Vec::new();
    let outcome = check(name, || {
        table = kernels::run(kernels, product.context("the product was not built")?)?;
        Ok(())
    });
    Outcome { table, ..outcome }
}

/// Runs the list for machines with a GPU on the simulated device: it must pass there, and fail with its faults.
fn list_of_gpu_checks(product: Option<&Path>) -> Outcome {
    check("list of GPU checks", || {
        let product = product.context("the product was not built")?;
        // Build outputs must not belong to root.
        gpu::build_programs()?;
        let mut list = sh::own_program_as_root()?;
        sh::run(list.args(["gpu-check", "--itself", "--product"]).arg(product))
    })
}
