//! Private Python environments: the system's own packages stay as they are.
//!
//! Owns: their creation, and the installer that they share. Because: an installer in each takes seven seconds of CPU
//! time to unpack and is used once. Does not: know which packages are needed.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use anyhow::Result;

use crate::sh;

/// Recreates an environment with these packages. Returns its interpreter.
pub(crate) fn make(folder: &Path, packages: &[&str]) -> Result<PathBuf> {
    let python = empty(folder)?;
    sh::run(pip(&python)?.arg("install").args(packages))?;
    Ok(python)
}

/// The same, with prebuilt packages only.
pub(crate) fn make_of_wheels(folder: &Path, packages: &[&str]) -> Result<PathBuf> {
    make(folder, &[&["--only-binary=:all:"], packages].concat())
}

/// Creates an environment without packages. Returns its interpreter.
pub(crate) fn empty(folder: &Path) -> Result<PathBuf> {
    sh::run(sh::command("python3").args(["-m", "venv", "--clear", "--without-pip"]).arg(folder))?;
    Ok(folder.join("bin/python"))
}

/// The installer for this interpreter's environment; a command and options follow.
pub(crate) fn pip(python: &Path) -> Result<Command> {
    let mut pip = sh::command(installer()?);
    pip.args(["-m", "pip", "--quiet", "--disable-pip-version-check", "--python"]).arg(python);
    Ok(pip)
}

/// The interpreter whose environment contains the installer.
fn installer() -> Result<PathBuf> {
    // Environments are created concurrently.
    static MADE: Mutex<()> = Mutex::new(());
    let _made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = sh::target_dir().join("venvs/pip");
    sh::unless_made(&folder, "", |folder| {
        sh::run(sh::command("python3").args(["-m", "venv", "--clear"]).arg(folder))
    })?;
    Ok(folder.join("bin/python"))
}
