//! Other releases: a minimal Debian system, and the Debian package on it.
//!
//! Owns: making that system, and what must work there. Because: the C library, `dpkg` and folders differ between
//! releases. Does not: know other kernels; this machine's runs there.

use super::Packages;
use crate::{archive, sh};
use anyhow::{Context, Result, bail, ensure};
use std::ffi::OsString;
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Exit signal of a command that `timeout` had to kill.
const SIGKILL: i32 = 9;

/// This machine's trusted certificates: package mirrors may use private ones.
const CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// A Debian release in a folder, with this machine's `/proc` and `/sys` mounted until it is dropped.
pub(super) struct Release {
    root: PathBuf,
    mounted: Vec<PathBuf>,
    /// Overlay with all writes, for a temporary one.
    layer: Option<PathBuf>,
}

impl Release {
    /// Creates it if needed, with `packages` installed.
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

    /// Installs this machine's trusted certificates; requires the package `ca-certificates`.
    pub(super) fn trust(&self) -> Result<()> {
        let mut copy = sh::as_root("cp", &[]);
        copy.args(["--dereference", CERTIFICATES]).arg(self.path(CERTIFICATES));
        sh::output(&mut copy).map(drop)
    }

    /// A temporary copy with an empty `/tmp`; all writes are discarded with it.
    pub(super) fn fresh(&self) -> Result<Self> {
        let layer = self.root.with_extension("fresh");
        let (root, upper, work) = (layer.join("root"), layer.join("upper"), layer.join("work"));
        // Left by an interrupted run.
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

    /// Mounts this machine's `/proc` and `/sys`.
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

    /// Host path of a path inside.
    pub(super) fn path(&self, inside: &str) -> PathBuf {
        self.root.join(inside.trim_start_matches('/'))
    }

    /// Copies a file into its `/tmp`; returns the path inside.
    pub(super) fn copy(&self, file: &Path) -> Result<String> {
        sh::output(sh::as_root("cp", &[]).arg(file).arg(self.root.join("tmp")))?;
        let name = file.file_name().context("a package without a name")?;
        Ok(format!("/tmp/{}", name.to_string_lossy()))
    }

    /// Runs a shell script inside.
    pub(super) fn run(&self, script: &str) -> Result<String> {
        let mut enter = sh::as_root("chroot", &[]);
        sh::output(enter.args(self.entered(script)))
    }

    /// The same with a time limit: `None` if the script and its children were killed.
    pub(super) fn run_within(&self, longest: Duration, script: &str) -> Result<Option<String>> {
        let mut limited = sh::as_root("timeout", &[]);
        limited.args(["--kill-after=5", &longest.as_secs_f64().to_string(), "chroot"]);
        in_time(limited.args(self.entered(script)))
    }

    /// Arguments of `chroot` for a script.
    fn entered(&self, script: &str) -> Vec<OsString> {
        let path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        let words = ["/usr/bin/env", "-i", "HOME=/root", "LC_ALL=C.UTF-8", path, "sh", "-ec", script];
        std::iter::once(self.root.clone().into()).chain(words.map(OsString::from)).collect()
    }
}

/// Runs a command under `timeout`; `None` when it timed out.
fn in_time(limited: &mut Command) -> Result<Option<String>> {
    let output = limited.stdin(Stdio::null()).output().context("cannot start `timeout`")?;
    match (output.status.code(), output.status.signal()) {
        (Some(0), _) => Ok(Some(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())),
        // `timeout` ended the command, or had to kill it together with itself.
        (Some(124), _) | (_, Some(SIGKILL)) => Ok(None),
        _ => bail!("`{}` failed: {}", sh::words(limited), String::from_utf8_lossy(&output.stderr).trim()),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_ends_when_its_time_is_over() {
        let check = |longest: &str, script: &str, expect: Option<&str>| {
            let mut limited = Command::new("timeout");
            let said = in_time(limited.args(["--kill-after=0.1", longest, "sh", "-c", script]));
            assert_eq!(said.unwrap().as_deref(), expect, "{script}");
        };
        check("600", "echo done", Some("done"));
        check("0.1", "echo begun; sleep 600", None);
        // Its child holds the output open, and must not be waited for.
        check("0.1", "sleep 600 & wait", None);
        check("0.1", "trap '' TERM; sleep 600 & sleep 600", None);
        let mut fails = Command::new("timeout");
        let error = in_time(fails.args(["600", "sh", "-c", "echo no such package >&2; exit 3"])).unwrap_err();
        assert!(error.to_string().ends_with("failed: no such package"), "{error:#}");
    }
}
