//! Every development task of the project, as one command: `cargo xtask CHORE`.
//!
//! Owns: the list of tasks. Because: a contributor must be able to run what CI runs, with the same commands. Does not:
//! hold product code; it runs cargo, the product and third-party tools.

mod aarch64;
mod apt;
mod archive;
mod bench;
mod btf;
mod demo;
mod dialogue;
mod dist;
mod ebpf;
mod environment;
mod fuzz;
mod gpu;
mod interpreters;
mod kernels;
mod module;
mod setup;
mod sh;
mod sim;
mod strip;
mod test;
mod tidy;
mod toolchain;
mod traces;
mod validators;
mod vendors;
mod workloads;

use clap::{Parser, Subcommand};

/// Every chore of the project.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Install what a fresh Debian machine lacks, and say whether its kernel can do the job.
    Setup(setup::Options),
    /// Build the kernel programs and put the stripped object into ebpf/prebuilt/.
    Ebpf(ebpf::Options),
    /// Set up, build, start an example workload, attach to it and show where its time goes.
    Demo(demo::Options),
    /// Build the simulated accelerator's libraries, and the collector.
    Sim,
    /// Fetch the CPython versions that `test python` runs with, and list them.
    Interpreters(interpreters::Options),
    /// Fetch those of the vendors' own libraries that registries have, for tests.
    Vendors,
    /// Set up and run every test, or the named groups.
    Test(test::Options),
    /// Check on a machine with a GPU what only such a machine can show; one table.
    GpuCheck(gpu::Options),
    /// Compile for aarch64, and run what can be run under emulation.
    CheckAarch64(aarch64::Options),
    /// Check what compilers do not: dependencies, module headers, safety arguments, sizes, circles of files.
    Tidy(tidy::Options),
    /// Build the Python module `deepctx` into target/module.
    Module,
    /// Build what is handed out: an archive, a Debian package and a Python wheel, for any Linux since glibc 2.31.
    Dist(dist::Options),
    /// Feed every parser of foreign bytes with what a fuzzer makes up.
    Fuzz(fuzz::Options),
    /// Compare what `timeline` says of real traces with plain counting and with HolisticTraceAnalysis.
    Traces(traces::Options),
    /// Measure the figures the project promises; one JSON line each.
    Bench(bench::Options),
    /// Capture the whole machine for hours while processes and libraries come and go: nothing may grow.
    Soak(bench::soak::Options),
}

fn main() {
    sh::remember_own_program();
    let outcome = match Arguments::parse().chore {
        Chore::Setup(options) => setup::run(&options),
        Chore::Ebpf(options) => ebpf::run(&options),
        Chore::Demo(options) => demo::run(&options),
        Chore::Sim => sim::run(),
        Chore::Interpreters(options) => interpreters::list(&options),
        Chore::Vendors => vendors::list(),
        Chore::Test(options) => test::run(&options),
        Chore::GpuCheck(options) => gpu::run(&options),
        Chore::CheckAarch64(options) => aarch64::run(&options),
        Chore::Tidy(options) => tidy::run(&options),
        Chore::Module => module::build(module::DEV).map(drop),
        Chore::Dist(options) => dist::run(&options),
        Chore::Fuzz(options) => fuzz::run(&options),
        Chore::Traces(options) => traces::run(&options),
        Chore::Bench(options) => bench::run(&options),
        Chore::Soak(options) => bench::soak::run(&options),
    };
    if let Err(error) = outcome {
        eprintln!("error: {error:#}");
        std::process::exit(2);
    }
}
