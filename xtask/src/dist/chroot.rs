//! Other releases: the Debian package on a system that has nothing else.
//!
//! Owns: making that system, and what must work there. Because: the C library, `dpkg` and folders of each release are
//! others. Does not: know other kernels; what runs there is this machine's.

use super::Packages;
use crate::{archive, sh};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::Path;

/// Installs the Debian package on a release and records there.
pub(super) fn check(packages: &Packages, suite: &str) -> Result<()> {
    ensure!(sh::which("debootstrap").is_some(), "no debootstrap here\nhint: apt-get install debootstrap");
    sh::step(&format!("install on Debian {suite}"), "a package must work where nothing else is");
    let root = std::path::absolute(sh::target_dir().join("dist-releases").join(suite))?;
    if !root.join("usr/bin/dpkg").exists() {
        fs::create_dir_all(&root)?;
        let mut make = sh::as_root("debootstrap", &[]);
        sh::run(make.args(["--variant=minbase", suite]).arg(&root).arg(archive::debian()?))?;
    }
    let name = packages.deb.file_name().context("a package without a name")?;
    sh::output(sh::as_root("cp", &[]).arg(&packages.deb).arg(root.join("tmp")))?;
    let mounted = ["proc", "sys"].map(|folder| root.join(folder));
    for folder in &mounted {
        let kind = folder.file_name().unwrap_or_default();
        sh::output(
            sh::as_root("mount", &[])
                .args(["--rbind", "--make-rslave"])
                .arg(Path::new("/").join(kind))
                .arg(folder),
        )?;
    }
    let tried = within(
        &root,
        &format!(
            "dpkg -i /tmp/{0} && deepctx-bpf --version && deepctx-bpf record --force -o /tmp/run.dctx -- \
         sh -c 'i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done' && deepctx-bpf report /tmp/run.dctx && \
         dpkg --purge deepctx-bpf && ! ls -d /usr/bin/deepctx-bpf /usr/lib/deepctx-bpf /usr/share/doc/deepctx-bpf",
            name.to_string_lossy()
        ),
    );
    for folder in &mounted {
        sh::output(sh::as_root("umount", &[]).args(["--recursive", "--lazy"]).arg(folder))?;
    }
    let said = tried?;
    ensure!(said.contains("Hottest functions"), "nothing was recorded on {suite}:\n{said}");
    println!("Debian {suite}: installed, recorded, removed");
    Ok(())
}

fn within(root: &Path, script: &str) -> Result<String> {
    sh::output(sh::as_root("chroot", &[]).arg(root).args(["sh", "-ec", script]))
}
