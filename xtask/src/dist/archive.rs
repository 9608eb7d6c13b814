//! Archives: a folder as one compressed file, with the same bytes each time.
//!
//! Owns: the options of `tar` and `xz`. Because: otherwise times, owners and file order depend on the builder, and
//! nobody could verify a package by rebuilding it. Does not: know its contents.

use super::epoch;
use crate::sh;
use anyhow::Result;
use std::path::{Path, PathBuf};

/// Compression effort.
#[derive(Clone, Copy)]
pub(super) enum Effort {
    /// For distribution.
    Usual,
    /// For temporary archives.
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

/// Packs a folder as `STEM.tar.xz`, with everything below a folder `STEM`.
pub(super) fn make(folder: &Path, stem: &str, effort: Effort, output: &Path) -> Result<PathBuf> {
    let path = output.join(format!("{stem}.tar.xz"));
    sh::run(
        sh::command("tar")
            .args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--format=posix"])
            .args(["--pax-option=exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime"])
            .arg(format!("--mtime=@{}", epoch()?))
            .arg(format!("--transform=s,^\\.,{stem},"))
            // One thread, because with several, the blocks depend on their number.
            .arg(format!("--use-compress-program=xz -{} -T1", effort.level()))
            .args(["--create", "--file"])
            .arg(&path)
            .arg("--directory")
            .arg(folder)
            .arg("."),
    )?;
    Ok(path)
}
