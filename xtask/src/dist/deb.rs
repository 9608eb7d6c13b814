//! The Debian package.
//!
//! Owns: its control files. Because: `dpkg` must know the program's dependencies, and remove all its files again. Does
//! not: start or enable anything on installation.

use super::archive::Effort;
use super::epoch;
use super::needs::Needs;
use super::tree::{NAME, Tree, compress, prune_links, put};
use crate::sh;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// Packages of the libraries that a program may link besides the C library.
const LIBRARIES: [(&str, &str); 3] =
    [("libelf.so.1", "libelf1"), ("liblzma.so.5", "liblzma5"), ("libz.so.1", "zlib1g")];
/// The service that runs the machine's flight recorder; disabled by default.
pub(super) const UNIT: &str = "usr/lib/systemd/system/deepctx-bpf.service";
/// Its source.
const SERVICE: &str = "packaging/deepctx-bpf.service";
/// Start of `copyright`; Debian ships one of the two licences.
const COPYRIGHT: &str = "Copyright (c) 2026 the authors of deepctx-bpf

It is licensed under either of two licences, as you like:

- the Apache License, Version 2.0: /usr/share/common-licenses/Apache-2.0
- the MIT License:

";

/// Packs the tree below `/usr`.
pub(super) fn make(
    tree: &Tree,
    needs: &Needs,
    effort: Effort,
    parts: &Path,
    output: &Path,
) -> Result<PathBuf> {
    let folder = parts.join("deb");
    let documents = folder.join("usr/share/doc").join(NAME);
    fs::create_dir_all(&folder)?;
    sh::output(sh::command("cp").arg("--archive").arg(&tree.root).arg(folder.join("usr")))?;
    // Debian's conventions: licences in `copyright`, changes under another name.
    for name in ["LICENSE-APACHE", "LICENSE-MIT"] {
        fs::remove_file(documents.join(name))?;
    }
    let changes = documents.join("changelog");
    fs::rename(documents.join("CHANGELOG.md"), &changes)?;
    compress(&changes)?;
    prune_links(&documents)?;
    let unit = fs::read_to_string(sh::root().join(SERVICE))?;
    put(&folder.join(UNIT), &unit)?;
    let licence = fs::read_to_string(sh::root().join("LICENSE-MIT"))?;
    put(&documents.join("copyright"), &(COPYRIGHT.to_owned() + &licence))?;
    let changes = documents.join("changelog.Debian");
    put(&changes, &changelog(&tree.version)?)?;
    compress(&changes)?;
    let bytes = size(&folder)?;
    put(&folder.join("DEBIAN/control"), &control(tree, needs, bytes / 1024)?)?;
    let sums = sh::output(
        sh::command("sh")
            .current_dir(&folder)
            .args(["-c", "find usr -type f | LC_ALL=C sort | xargs md5sum"]),
    )?;
    put(&folder.join("DEBIAN/md5sums"), &(sums + "\n"))?;
    let name = format!("{NAME}_{}-1_{}.deb", tree.version, needs.debian_architecture());
    let path = output.join(name);
    let mut build = sh::command("dpkg-deb");
    build
        .args(["--root-owner-group", "-Zxz", &format!("-z{}", effort.level()), "--build"])
        .arg(&folder)
        .arg(&path);
    sh::run(build.env("SOURCE_DATE_EPOCH", epoch()?))?;
    Ok(path)
}

fn control(tree: &Tree, needs: &Needs, kibibytes: u64) -> Result<String> {
    let glibc = needs.glibc.context("Debian has glibc, and this is linked with musl")?;
    let mut depends = vec![format!("libc6 (>= {glibc})")];
    for library in needs.others() {
        let package = LIBRARIES.iter().find(|(name, _)| *name == library).map(|(_, package)| *package);
        depends.push(package.with_context(|| format!("{library}: no package is known for it"))?.to_owned());
    }
    if needs.libraries.iter().any(|library| library == "libgcc_s.so.1") {
        depends.push("libgcc-s1".to_owned());
    }
    Ok(format!(
        "Package: {NAME}\nVersion: {}-1\nArchitecture: {}\nMaintainer: {}\nInstalled-Size: {kibibytes}\n\
         Depends: {}\nSection: devel\nPriority: optional\n\
         Description: profiler for deep-learning processes on CPU and GPU\n \
         Shows where the time of a running process goes, from the Python line through\n \
         the operator of the framework and the C++ frames to the kernel on the GPU.\n \
         It attaches from outside by eBPF: nothing in the process is changed.\n",
        tree.version,
        needs.debian_architecture(),
        maintainer(),
        depends.join(", "),
    ))
}

/// The packager, in the form of Debian's own tools.
fn maintainer() -> String {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let name = variable("DEBFULLNAME").unwrap_or_else(|| "deepctx-bpf maintainers".to_owned());
    let address = variable("DEBEMAIL").unwrap_or_else(|| "maintainers@deepctx-bpf.invalid".to_owned());
    format!("{name} <{address}>")
}

fn changelog(version: &str) -> Result<String> {
    let date =
        sh::output(sh::command("date").args(["--utc", "--rfc-email"]).arg(format!("--date=@{}", epoch()?)))?;
    Ok(format!(
        "{NAME} ({version}-1) unstable; urgency=medium\n\n  * Release {version}.\n\n -- {}  {date}\n",
        maintainer()
    ))
}

fn size(folder: &Path) -> Result<u64> {
    let files = sh::files_below(folder, "");
    files.iter().map(|file| Ok(fs::metadata(file)?.len())).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Settings below which a capture has less in it and does not say so.
    const BLINDING: [&str; 10] = [
        "PrivateDevices",
        "PrivateNetwork",
        "PrivateTmp",
        "PrivateUsers",
        "ProcSubset",
        "ProtectClock",
        "ProtectKernelLogs",
        "ProtectKernelModules",
        "ProtectKernelTunables",
        "ProtectProc",
    ];

    #[test]
    fn the_service_sees_the_whole_machine() {
        let unit = fs::read_to_string(sh::root().join(SERVICE)).unwrap();
        let setting = |name: &str| unit.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        for name in BLINDING {
            assert_eq!(setting(name), None, "{name}");
        }
        // Events of CPUs come by netlink. Anything more could leave the machine.
        assert_eq!(setting("RestrictAddressFamilies"), Some("AF_UNIX AF_NETLINK"));
    }
}
