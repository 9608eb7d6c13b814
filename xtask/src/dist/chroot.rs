//! Other releases: a system of Debian that has nothing else, and the Debian package on it.
//!
//! Owns: making that system, and what must work there. Because: the C library, `dpkg` and folders of each release are
//! others. Does not: know other kernels; what runs there is this machine's.

use super::Packages;
use crate::{archive, sh};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};

/// Certificates of those that this machine trusts: a registry's address may lead to a machine of its owner's.
const CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// A release of Debian in a folder, with this machine's `/proc` and `/sys`, which are taken away when it is dropped.
pub(super) struct Release {
    root: PathBuf,
    mounted: Vec<PathBuf>,
    /// Holds what was written, of one that is gone after its use.
    layer: Option<PathBuf>,
}

impl Release {
    /// Makes it unless it is there; `packages` are installed.
    pub(super) fn made(suite: &str, packages: &str) -> Result<Self> {
        let root = std::path::absolute(sh::target_dir().join("dist-releases").join(suite))?;
        if !root.join("usr/bin/dpkg").exists() {
            fs::create_dir_all(&root)?;
            let mut make = sh::as_root("debootstrap", &[]);
            sh::run(make.args(["--variant=minbase", suite]).arg(&root).arg(archive::debian()?))?;
        }
        let mut release = Self { root, mounted: Vec::new(), layer: None };
        release.mount_kernel()?;
        if !packages.is_empty() {
            let install = format!(
                "export DEBIAN_FRONTEND=noninteractive; apt-get update -qq && \
                 apt-get install -y -qq --no-install-recommends {packages} > /dev/null && rm -rf /tmp/*"
            );
            release.run(&install)?;
        }
        Ok(release)
    }

    /// Makes it trust those that this machine trusts; it has the package `ca-certificates`.
    pub(super) fn trust(&self) -> Result<()> {
        let mut copy = sh::as_root("cp", &[]);
        copy.args(["--dereference", CERTIFICATES]).arg(self.path(CERTIFICATES));
        sh::output(&mut copy).map(drop)
    }

    /// Another one that begins as this one is, but for its `/tmp`; all that is written there is gone with it.
    pub(super) fn fresh(&self) -> Result<Self> {
        let layer = self.root.with_extension("fresh");
        let (root, upper, work) = (layer.join("root"), layer.join("upper"), layer.join("work"));
        // An interrupted run leaves one.
        sh::output(sh::as_root("rm", &[]).args(["-rf", "--one-file-system"]).arg(&layer))?;
        sh::output(sh::as_root("mkdir", &[]).arg("-p").args([&root, &upper, &work]))?;
        let options = format!(
            "lowerdir={},upperdir={},workdir={}",
            self.root.display(),
            upper.display(),
            work.display()
        );
        let mut release = Self { root: root.clone(), mounted: Vec::new(), layer: Some(layer) };
        let mut mount = sh::as_root("mount", &[]);
        sh::output(mount.args(["-t", "overlay", "overlay", "-o", &options]).arg(&root))?;
        release.mounted.push(root);
        release.mount_kernel()?;
        release.run("rm -rf /tmp/*")?;
        Ok(release)
    }

    /// Gives it this machine's `/proc` and `/sys`.
    fn mount_kernel(&mut self) -> Result<()> {
        for kind in ["proc", "sys"] {
            let folder = self.root.join(kind);
            let mut mount = sh::as_root("mount", &[]);
            mount.args(["--rbind", "--make-rslave"]).arg(Path::new("/").join(kind)).arg(&folder);
            sh::output(&mut mount)?;
            self.mounted.push(folder);
        }
        Ok(())
    }

    /// Where a path of it is here.
    pub(super) fn path(&self, inside: &str) -> PathBuf {
        self.root.join(inside.trim_start_matches('/'))
    }

    /// Copies a file into its `/tmp`; gives the path there.
    pub(super) fn copy(&self, file: &Path) -> Result<String> {
        sh::output(sh::as_root("cp", &[]).arg(file).arg(self.root.join("tmp")))?;
        let name = file.file_name().context("a package without a name")?;
        Ok(format!("/tmp/{}", name.to_string_lossy()))
    }

    /// Runs a script of its shell.
    pub(super) fn run(&self, script: &str) -> Result<String> {
        let mut enter = sh::as_root("chroot", &[]);
        enter.arg(&self.root).args(["/usr/bin/env", "-i", "HOME=/root", "LC_ALL=C.UTF-8"]);
        enter.arg("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        sh::output(enter.args(["sh", "-ec", script]))
    }
}

impl Drop for Release {
    fn drop(&mut self) {
        let mut left = false;
        for folder in self.mounted.iter().rev() {
            if let Err(error) =
                sh::output(sh::as_root("umount", &[]).args(["--recursive", "--lazy"]).arg(folder))
            {
                eprintln!("note: {} stays mounted: {error:#}", folder.display());
                left = true;
            }
        }
        if let Some(layer) = self.layer.as_ref().filter(|_| !left) {
            let mut remove = sh::as_root("rm", &[]);
            if let Err(error) = sh::output(remove.args(["-rf", "--one-file-system"]).arg(layer)) {
                eprintln!("note: {} stays: {error:#}", layer.display());
            }
        }
    }
}

/// Installs the Debian package on a release and records there.
pub(super) fn check(packages: &Packages, suite: &str) -> Result<()> {
    sh::step(&format!("install on Debian {suite}"), "a package must work where nothing else is");
    let deb = packages.deb.as_ref().filter(|_| !packages.target.is_foreign());
    let deb = deb.context("there is no Debian package for this machine")?;
    let release = Release::made(suite, "")?;
    let inside = release.copy(deb)?;
    let said = release.run(&format!(
        "dpkg -i {inside} && deepctx-bpf --version && deepctx-bpf record --force -o /tmp/run.dctx -- \
         sh -c 'i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done' && deepctx-bpf report /tmp/run.dctx && \
         dpkg --purge deepctx-bpf && ! ls -d /usr/bin/deepctx-bpf /usr/lib/deepctx-bpf /usr/share/doc/deepctx-bpf",
    ))?;
    ensure!(said.contains("Hottest functions"), "nothing was recorded on {suite}:\n{said}");
    println!("Debian {suite}: installed, recorded, removed");
    Ok(())
}
