//! Programs of this machine that a run of `cargo xtask dist` starts.
//!
//! Owns: their names, and the Debian packages that have them. Because: a build takes ten minutes, and a missing tool
//! would show up only after it. Does not: install any.

use super::Options;
use super::target::{EMULATOR, Target};
use crate::sh;
use anyhow::{Result, bail};

/// A program and its Debian package.
type Program = (&'static str, &'static str);

/// For every run.
const PACK: &[Program] = &[
    ("ar", "binutils"),
    ("dpkg-deb", "dpkg"),
    ("git", "git"),
    ("gzip", "gzip"),
    ("objcopy", "binutils"),
    ("python3", "python3-venv"),
    ("sha256sum", "coreutils"),
    ("strip", "binutils"),
    ("tar", "tar"),
    ("timeout", "coreutils"),
    ("xz", "xz-utils"),
];
/// For fetching and building the linked libraries.
const BUILD: &[Program] = &[("apt-get", "apt"), ("make", "make")];
/// For inspecting and running the other machine's programs.
const FOREIGN: &[Program] =
    &[("aarch64-linux-gnu-objcopy", "gcc-aarch64-linux-gnu"), (EMULATOR, "qemu-user-static")];
/// For entering a folder as a separate system.
const CHECK: &[Program] = &[("setpriv", "util-linux"), ("unshare", "util-linux")];
/// For creating a Debian system.
const RELEASES: &[Program] = &[("debootstrap", "debootstrap")];

/// The programs that a run with these options starts.
fn of(options: &Options, target: Target) -> Vec<Program> {
    let parts = [
        (true, PACK),
        (options.product.is_none(), BUILD),
        (target.is_foreign(), FOREIGN),
        (options.check, CHECK),
        (options.first_minute || !options.releases.is_empty(), RELEASES),
    ];
    parts.into_iter().filter(|(needed, _)| *needed).flat_map(|(_, programs)| programs).copied().collect()
}

/// Fails and lists all that are missing.
pub(super) fn check(options: &Options, target: Target) -> Result<()> {
    let missing = of(options, target).into_iter().filter(|(program, _)| sh::which(program).is_none());
    refuse(&missing.collect::<Vec<_>>())
}

fn refuse(missing: &[Program]) -> Result<()> {
    if missing.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = missing.iter().map(|(program, _)| *program).collect();
    let mut packages: Vec<&str> = missing.iter().map(|(_, package)| *package).collect();
    packages.sort_unstable();
    packages.dedup();
    bail!("not installed here: {}\nhint: apt-get install {}", names.join(", "), packages.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_asks_for_what_it_starts() {
        let foreign = if Target::here() == Target::ArmGnu { Target::X86Gnu } else { Target::ArmGnu };
        let check = |options: Options, target: Target, name: &str, expect: bool| {
            assert_eq!(of(&options, target).iter().any(|(program, _)| *program == name), expect, "{name}");
        };
        let packed = || Options { product: Some("program".into()), ..Options::default() };
        check(Options::default(), Target::here(), "dpkg-deb", true);
        check(Options::default(), Target::here(), "apt-get", true);
        check(packed(), Target::here(), "apt-get", false);
        check(Options::default(), Target::here(), EMULATOR, false);
        check(Options::default(), foreign, EMULATOR, true);
        check(Options::default(), Target::here(), "debootstrap", false);
        check(Options { releases: vec!["sid".to_owned()], ..packed() }, Target::here(), "debootstrap", true);
        check(Options { first_minute: true, ..packed() }, Target::here(), "debootstrap", true);
    }

    #[test]
    fn missing_programs_are_named_at_once() {
        let check = |missing: &[Program], expect: &str| {
            let said = refuse(missing).err().map(|error| error.to_string()).unwrap_or_default();
            assert_eq!(said, expect);
        };
        check(&[], "");
        check(
            &[("strip", "binutils"), (EMULATOR, "qemu-user-static"), ("ar", "binutils")],
            "not installed here: strip, qemu-aarch64-static, ar\nhint: apt-get install binutils qemu-user-static",
        );
    }
}
