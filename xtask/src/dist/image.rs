//! The container image: the result of docs/examples/container/Dockerfile for an archive.
//!
//! Owns: trying it without a container engine. Because: a program that needs another file starts on the machine that
//! built it, but not in an empty image. Does not: build an image.

use super::Packages;
use super::tree::PROGRAM;
use crate::sh;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::Path;
use std::process::{Child, Command};

/// The image's recipe.
const RECIPE: &str = "docs/examples/container/Dockerfile";
/// Output folder within the image, as in the recipe.
const OUTPUT: &str = "/out";

/// Records a process from a root that contains only the archive, without a network.
pub(super) fn check(packages: &Packages, folder: &Path) -> Result<()> {
    let recipe = fs::read_to_string(sh::root().join(RECIPE)).context(RECIPE)?;
    let variables = "ENV PATH=/${ARCHIVE}/bin TMPDIR=/out";
    for line in ["FROM scratch", "ADD ${ARCHIVE}.tar.xz /", variables, "WORKDIR /out"] {
        ensure!(
            recipe.lines().any(|found| found == line),
            "{RECIPE} has no `{line}`, which is what is tried here"
        );
    }
    let image = folder.join("image");
    for inside in ["proc", "sys", OUTPUT.trim_start_matches('/')] {
        fs::create_dir_all(image.join(inside))?;
    }
    sh::output(sh::command("tar").arg("-xf").arg(&packages.archive).arg("-C").arg(&image))?;
    let program = Path::new("/").join(packages.stem()).join(PROGRAM);
    let target = Busy::start()?;
    // All in namespaces that end with it, so that no mount remains.
    let script = "mount --rbind --make-rslave /proc \"$1/proc\" && mount --rbind --make-rslave /sys \"$1/sys\" && \
                  exec env -i TMPDIR=/out PATH=\"${2%/*}\" \"$(command -v chroot)\" \"$@\"";
    let run = |arguments: &[&str]| {
        let mut unshare = sh::as_root("unshare", &[]);
        unshare.args(["--mount", "--net", "sh", "-ec", script, "sh"]).arg(&image).arg(&program);
        sh::output(unshare.args(arguments))
    };
    let profile = format!("{OUTPUT}/run.dctx");
    let pid = target.0.id().to_string();
    run(&["record", "--pid", &pid, "--duration", "2s", "-o", &profile])?;
    let report = run(&["report", "--format", "json", &profile])?;
    sh::output(sh::as_root("rm", &[]).arg("-r").arg(&image))?;
    let report: serde_json::Value = serde_json::from_str(&report)?;
    let samples = report["samples"].as_u64().or_else(|| report["metrics"][0]["count"].as_u64());
    ensure!(samples.is_some_and(|samples| samples > 0), "nothing was recorded: {report}");
    Ok(())
}

/// A program that counts until it is dropped.
struct Busy(Child);

impl Busy {
    fn start() -> Result<Self> {
        let child = Command::new("sh").args(["-c", "while :; do :; done"]).spawn();
        Ok(Self(child.context("cannot start sh")?))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
