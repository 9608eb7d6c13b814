//! The wheel: the same files as a package for Python, for those who have `pip` and nothing else.
//!
//! Owns: its metadata, and the module that starts the program. Because: people who train models install everything
//! with `pip`, often without root. Does not: bind anything to Python.
//!
//! The program is no script of Python's: `sudo $(which deepctx-bpf)` starts it without an interpreter.

use super::needs::Needs;
use super::tree::{PROGRAM, Tree, put};
use super::{build, epoch};
use crate::sh;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// Writes the list of files with their sums, and packs.
const TOOLS: &[&str] = &["wheel==0.48.0", "packaging==26.3"];
/// Name among Python's modules.
const MODULE: &str = "deepctx_bpf";

const INIT: &str = r#""""deepctx-bpf: where the time of a process goes, on CPU and GPU.

The package carries the program `deepctx-bpf`; `program()` says where it is.
"""

import sysconfig
from pathlib import Path


def program() -> Path:
    """The program that this package installed."""
    for scheme in (None, "posix_user", "posix_local", "posix_prefix"):
        folder = sysconfig.get_path("scripts", scheme) if scheme else sysconfig.get_path("scripts")
        found = Path(folder, "deepctx-bpf")
        if found.is_file():
            return found
    # Installed with `--prefix` or `--target`: the program is beside this package.
    for folder in Path(__file__).resolve().parents:
        found = folder / "bin" / "deepctx-bpf"
        if found.is_file():
            return found
    raise FileNotFoundError("deepctx-bpf: the program is not where pip puts programs; install the package again")
"#;

const MAIN: &str = r#""""`python -m deepctx_bpf` is the program itself."""

import os
import sys

from deepctx_bpf import program

try:
    path = str(program())
except FileNotFoundError as error:
    sys.exit(f"error: {error}")
os.execv(path, [path, *sys.argv[1:]])
"#;

/// Packs the tree.
pub(super) fn make(tree: &Tree, needs: &Needs, parts: &Path, output: &Path) -> Result<PathBuf> {
    let (folder, stem) = (parts.join("wheel"), format!("{MODULE}-{}", tree.version));
    put(&folder.join(MODULE).join("__init__.py"), INIT)?;
    put(&folder.join(MODULE).join("__main__.py"), MAIN)?;
    put(&folder.join(MODULE).join("py.typed"), "")?;
    // `data` goes below the prefix as it is, `scripts` into the folder for programs.
    let data = folder.join(format!("{stem}.data"));
    let scripts = data.join("scripts");
    fs::create_dir_all(&scripts)?;
    sh::output(sh::command("cp").arg("--archive").arg(&tree.root).arg(data.join("data")))?;
    fs::rename(data.join("data").join(PROGRAM), scripts.join("deepctx-bpf"))?;
    fs::remove_dir(data.join("data/bin"))?;
    let about = folder.join(format!("{stem}.dist-info"));
    let platform = needs.python_platform();
    put(
        &about.join("WHEEL"),
        &format!(
            "Wheel-Version: 1.0\nGenerator: deepctx-bpf\nRoot-Is-Purelib: false\nTag: py3-none-{platform}\n"
        ),
    )?;
    put(&about.join("METADATA"), &metadata(tree)?)?;
    let tools = build::tools("wheel-tools", TOOLS)?;
    let mut pack = sh::command(tools.join("bin/python"));
    pack.args(["-m", "wheel", "pack"]).arg(&folder).arg("--dest-dir").arg(output);
    sh::run(pack.env("SOURCE_DATE_EPOCH", epoch()?))?;
    let path = output.join(format!("{stem}-py3-none-{platform}.whl"));
    anyhow::ensure!(path.is_file(), "{} was not made", path.display());
    Ok(path)
}

fn metadata(tree: &Tree) -> Result<String> {
    let readme = fs::read_to_string(sh::root().join("README.md")).context("README.md")?;
    Ok(format!(
        "Metadata-Version: 2.4\nName: deepctx-bpf\nVersion: {}\n\
         Summary: Profiler for deep-learning processes on CPU and GPU\n\
         License-Expression: MIT OR Apache-2.0\nRequires-Python: >=3.8\n\
         Classifier: Operating System :: POSIX :: Linux\n\
         Classifier: Topic :: Software Development :: Debuggers\n\
         Description-Content-Type: text/markdown\n\n{readme}",
        tree.version
    ))
}
