//! `cargo xtask check-aarch64`: cross-compile for the other architecture, and run what emulation can run.
//!
//! Owns: the cross build (by Debian's cross compiler), the emulator. Because: nobody here has such a machine, and code
//! that is never compiled breaks within weeks. Does not: build the kernel programs (`ebpf` does, for every machine).

use crate::sh;
use crate::toolchain::{self, StandardLibrary};
use anyhow::Result;
use std::process::Command;

const TARGET: &str = "aarch64-unknown-linux-gnu";
const COMPILER: &str = "aarch64-linux-gnu-gcc";
const EMULATOR: &str = "qemu-aarch64-static";
/// Where Debian's cross compiler installs the libraries of emulated programs.
const LIBRARIES: &str = "/usr/aarch64-linux-gnu";
/// Crates with machine-specific code that need no library of that machine.
const SPLIT: [&str; 3] = ["deepctx-common", "deepctx-walk", "deepctx-symbolizer"];

/// Options of `cargo xtask check-aarch64`.
#[derive(clap::Args, Default)]
pub(crate) struct Options {
    /// Check the whole workspace with its tests, and run the tests of the symbolizer too: some ten minutes. It needs
    /// libelf-dev and zlib1g-dev of arm64.
    #[arg(long)]
    whole: bool,
}

/// Runs the chore.
pub(crate) fn run(options: &Options) -> Result<()> {
    let library = toolchain::standard_library(TARGET)?;
    let cargo = |subcommand: &str| cargo(subcommand, library);
    sh::step(
        "compile for aarch64",
        "there is no such machine here, and what is never compiled does not compile",
    );
    let mut check = cargo("check");
    if options.whole {
        check.args(["--workspace", "--all-targets"]);
    } else {
        check.args(SPLIT.iter().flat_map(|package| ["-p", package]));
    }
    sh::run(&mut check)?;
    sh::step(
        "run the tests of the walkers on an emulated aarch64",
        "the registers of that machine are those of its walks there, not only of tests",
    );
    sh::run(cargo("test").args(["-p", "deepctx-walk"]))?;
    if options.whole {
        sh::run(cargo("test").args(["-p", "deepctx-symbolizer", "--test", "own_stack"]))?;
    }
    Ok(())
}

/// Why this cannot run here without installing anything; `None` when it can.
pub(crate) fn not_here_because() -> Option<String> {
    let missing = [COMPILER, EMULATOR].into_iter().find(|program| sh::which(program).is_none());
    missing.map(|program| format!("no {program} here (cargo xtask setup --tests installs it)"))
}

/// Cargo for aarch64.
fn cargo(subcommand: &str, library: StandardLibrary) -> Command {
    let mut cargo = sh::command("cargo");
    if library == StandardLibrary::Sources {
        cargo.arg("-Zbuild-std").env("RUSTC_BOOTSTRAP", "1");
    }
    cargo
        .args([subcommand, "--locked", "--quiet", "--target", TARGET])
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", COMPILER)
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", format!("{EMULATOR} -L {LIBRARIES}"))
        .env("CC_aarch64_unknown_linux_gnu", COMPILER)
        .env("AR_aarch64_unknown_linux_gnu", "aarch64-linux-gnu-ar")
        .env("PKG_CONFIG_ALLOW_CROSS", "1")
        // Debian's pkg-config files for that machine.
        .env("PKG_CONFIG_LIBDIR_aarch64_unknown_linux_gnu", "/usr/lib/aarch64-linux-gnu/pkgconfig")
        // The surrounding cargo's flags are for this machine.
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("RUSTUP_TOOLCHAIN");
    cargo
}
