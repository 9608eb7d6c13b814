//! Targets: the machines and C libraries of our packages.
//!
//! Owns: how each is linked, and what runs its programs here. Because: most users who want a package for another
//! machine have none to build it on. Does not: build; see [`super::build`].

use crate::sh;
use anyhow::Result;
use std::path::Path;
use std::process::Command;

/// A machine with a C library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Target {
    #[value(name = "x86_64-unknown-linux-gnu")]
    X86Gnu,
    #[value(name = "aarch64-unknown-linux-gnu")]
    ArmGnu,
    #[value(name = "x86_64-unknown-linux-musl")]
    X86Musl,
    #[value(name = "aarch64-unknown-linux-musl")]
    ArmMusl,
}

/// The oldest supported glibc: that of Debian 11 and Ubuntu 20.04.
const GLIBC: &str = "2.31";
/// Emulator for the other machine's programs.
pub(super) const EMULATOR: &str = "qemu-aarch64-static";
/// Library folder for emulated programs, from Debian's cross compiler.
const EMULATED_LIBRARIES: &str = "/usr/aarch64-linux-gnu";

impl Target {
    /// This machine with glibc.
    pub(super) fn here() -> Self {
        if std::env::consts::ARCH == "aarch64" { Self::ArmGnu } else { Self::X86Gnu }
    }

    pub(super) fn machine(self) -> &'static str {
        match self {
            Self::X86Gnu | Self::X86Musl => "x86_64",
            Self::ArmGnu | Self::ArmMusl => "aarch64",
        }
    }

    pub(super) fn is_musl(self) -> bool {
        matches!(self, Self::X86Musl | Self::ArmMusl)
    }

    /// The same machine with glibc. Libraries for programs that use a GPU are built for it: GPU drivers need glibc.
    pub(super) fn with_glibc(self) -> Self {
        if self.machine() == "aarch64" { Self::ArmGnu } else { Self::X86Gnu }
    }

    /// The target triple of rustc, also used in cargo's folders.
    pub(super) fn triple(self) -> String {
        format!("{}-unknown-linux-{}", self.machine(), if self.is_musl() { "musl" } else { "gnu" })
    }

    /// The target for cargo-zigbuild: with the glibc version.
    pub(super) fn zig_triple(self) -> String {
        if self.is_musl() { self.triple() } else { format!("{}.{GLIBC}", self.triple()) }
    }

    /// Debian's name of the machine.
    pub(super) fn debian_architecture(self) -> &'static str {
        if self.machine() == "aarch64" { "arm64" } else { "amd64" }
    }

    /// The Debian release whose libelf and zlib are linked: the one with the oldest glibc. For musl a later one, whose
    /// libelf calls no function that only glibc's headers define (`__fxstat`).
    pub(super) fn libraries(self) -> &'static str {
        if self.is_musl() { "bookworm" } else { "bullseye" }
    }

    /// Whether its programs run here only under emulation.
    pub(super) fn is_foreign(self) -> bool {
        self.machine() != std::env::consts::ARCH
    }

    /// A command that starts a program of this target here.
    pub(super) fn command(self, program: &Path) -> Command {
        if !self.is_foreign() {
            return sh::command(program);
        }
        let mut command = sh::command(EMULATOR);
        command.args(["-L", EMULATED_LIBRARIES]).arg(program);
        command
    }

    /// Installs the target's standard library if needed.
    pub(super) fn install(self) -> Result<()> {
        let triple = self.triple();
        let folder =
            sh::output(sh::command("rustc").args(["--print", "target-libdir", "--target", &triple]))?;
        if Path::new(&folder).is_dir() {
            return Ok(());
        }
        sh::step(&format!("install Rust's standard library for {triple}"), "it is linked in");
        sh::run(sh::command("rustup").args(["target", "add", &triple]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum as _;

    #[test]
    fn targets_are_called_as_rustc_calls_them() {
        for target in Target::value_variants() {
            let name = target.to_possible_value().unwrap();
            assert_eq!(name.get_name(), target.triple());
            assert_eq!(target.with_glibc().machine(), target.machine());
            assert!(!target.with_glibc().is_musl());
            assert_eq!(target.zig_triple().ends_with(".2.31"), !target.is_musl(), "{target:?}");
        }
        assert!(!Target::here().is_foreign());
    }
}
