//! Archives: a folder as one compressed file, with the same bytes each time.
//!
//! Owns: the options of `tar` and `xz`. Because: otherwise times, owners and file order depend on the builder, and
//! nobody could verify a package by rebuilding it. Does not: know its contents.

use super::epoch;
use crate::sh;
use anyhow::Result;
use std::path::{Path, PathBuf};

/// How much time is spent on making an archive small.
#[derive(Clone, Copy)]
pub(super) enum Effort {
    /// For what is handed out.
    Usual,
    /// For what is thrown away again.
    Least,
}

impl Effort {
    /// The level of `xz`.
    pub(super) fn level(self) -> u32 {
        match self {
            Self::Usual => 6,
            Self::Least => 0,
        }
    }
}

/// Packs a folder as `STEM.tar.xz`, all of it below a folder `STEM`.
pub(super) fn make(folder: &Path, stem: &str, effort: Effort, output: &Path) -> Result<PathBuf> {
    let path = output.join(format!("{stem}.tar.xz"));
    sh::run(
        sh::command("tar")
            .args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--format=posix"])
            .args(["--pax-option=exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime"])
            .arg(format!("--mtime=@{}", epoch()?))
            .arg(format!("--transform=s,^\\.,{stem},"))
            // One thread: the blocks of several depend on how many there are.
            .arg(format!("--use-compress-program=xz -{} -T1", effort.level()))
            .args(["--create", "--file"])
            .arg(&path)
            .arg("--directory")
            .arg(folder)
            .arg("."),
    )?;
    Ok(path)
}
