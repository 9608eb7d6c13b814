//! The wheel `deepctx-bpf`: the same files as in the other packages.
//!
//! Owns: its contents, and the module that starts the program. Because: `pip` installs programs, but `python -m` needs
//! a module. Does not: bind anything to Python.
//!
//! The program is not a Python script: `sudo $(which deepctx-bpf)` starts it without an interpreter.

use super::super::components;
use super::super::needs::Needs;
use super::super::tree::{NAME, PROGRAM, Tree, put};
use super::{Description, pack};
use crate::sh;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// Name of the Python module.
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
pub(in super::super) fn make(tree: &Tree, needs: &Needs, parts: &Path, output: &Path) -> Result<PathBuf> {
    let about = Description {
        name: NAME,
        summary: "Profiler for deep-learning processes on CPU and GPU",
        python: "3.8",
        tag: format!("py3-none-{}", needs.python_platform()),
        more: "",
        description: fs::read_to_string(sh::root().join("README.md")).context("README.md")?,
        components: components::of_program(&tree.version)?,
    };
    let folder = parts.join("wheel");
    put(&folder.join(MODULE).join("__init__.py"), INIT)?;
    put(&folder.join(MODULE).join("__main__.py"), MAIN)?;
    put(&folder.join(MODULE).join("py.typed"), "")?;
    // `data` is installed below the prefix, `scripts` into the folder of programs.
    let data = folder.join(format!("{}.data", about.stem(tree)));
    let scripts = data.join("scripts");
    fs::create_dir_all(&scripts)?;
    sh::output(sh::command("cp").arg("--archive").arg(&tree.root).arg(data.join("data")))?;
    fs::rename(data.join("data").join(PROGRAM), scripts.join(NAME))?;
    fs::remove_dir(data.join("data/bin"))?;
    pack(&folder, &about, tree, output)
}
