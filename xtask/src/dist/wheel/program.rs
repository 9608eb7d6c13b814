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
use anyhow::Result;
use std::fs;
use std::path::{Path, PathBuf};

/// Name of the Python module.
const MODULE: &str = "deepctx_bpf";

/// Text for the package index; the README's links to pages would be dead there.
const DESCRIPTION: &str = "# deepctx-bpf

Where does a process spend its time, and on whose behalf? This profiler attaches to a running process and shows a
calling context tree that grows while you watch: Python functions above the framework's operators and the C++ they call,
down to the Linux kernel or to the kernels launched on a GPU, in one stack. The process is not restarted, not recompiled
and not stopped.

```sh
sudo $(which deepctx-bpf) doctor          # what works on this machine, and how to fix what does not
sudo $(which deepctx-bpf) demo            # start an example in Python and show where its time goes
sudo $(which deepctx-bpf) --pid 4711      # live view of one process and its children
sudo $(which deepctx-bpf) dump --pid 4711 # for a hang: where each thread is and what it waits for
sudo $(which deepctx-bpf) record --pid 4711 --duration 30s -o run.dctx
deepctx-bpf report run.dctx               # opening a profile needs no root
```

To capture, it needs Linux 5.15 or later, and root or six capabilities. The documentation is installed with it, in
`share/doc/deepctx-bpf` below the folder of the environment. The package `deepctx` opens profiles in Python.
";

const INIT: &str = r#""""deepctx-bpf: where the time of a process goes, on CPU and GPU.

The package carries the program `deepctx-bpf`; `program()` says where it is.
"""

import sysconfig
from pathlib import Path


def program() -> Path:
    """The program that this package installed."""
    # Below one prefix with this package, which is at most `PREFIX/lib/python3.X/site-packages/deepctx_bpf`: another
    # version may be where this interpreter has its programs.
    folders = [folder / "bin" for folder in list(Path(__file__).resolve().parents)[:5]]
    # `posix_local` is Debian's own.
    known = sysconfig.get_scheme_names()
    schemes = [scheme for scheme in ("posix_user", "posix_local", "posix_prefix") if scheme in known]
    folders += [Path(sysconfig.get_path("scripts"))]
    folders += [Path(sysconfig.get_path("scripts", scheme)) for scheme in schemes]
    for folder in folders:
        found = folder / "deepctx-bpf"
        if found.is_file():
            return found
    raise FileNotFoundError("deepctx-bpf: the program is not where pip puts programs; install the package again")
"#;

const MAIN: &str = r#""""`python -m deepctx_bpf` is the program itself."""

import errno
import os
import platform
import sys

from deepctx_bpf import program

path = None
try:
    path = str(program())
    os.execv(path, [path, *sys.argv[1:]])
except OSError as error:
    if path is None:
        sys.exit(f"error: {error}")
    why = {
        errno.ENOEXEC: f"it is for another machine than this one ({platform.machine()}): install the wheel for this one",
        errno.ENOENT: "its loader is missing, as where the C library is musl: take the archive for musl",
        errno.EACCES: "its file system is mounted with noexec, or its mode was changed: install it elsewhere",
    }.get(error.errno, os.strerror(error.errno))
    sys.exit(f"error: {path} cannot be started: {why}")
"#;

/// Packs the tree.
pub(in super::super) fn make(tree: &Tree, needs: &Needs, parts: &Path, output: &Path) -> Result<PathBuf> {
    let about = Description {
        name: NAME,
        summary: "Profiler for deep-learning processes on CPU and GPU",
        python: "3.8",
        tag: format!("py3-none-{}", needs.python_platform()),
        more: "",
        description: DESCRIPTION.to_owned(),
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::process::Command;

    use super::*;

    #[test]
    fn the_package_index_gets_no_link_to_a_page() {
        assert!(DESCRIPTION.starts_with("# deepctx-bpf\n") && !DESCRIPTION.contains("]("));
    }

    #[test]
    fn python_starts_the_program_beside_its_module() -> Result<()> {
        let folder = std::env::temp_dir().join(format!("deepctx-wheel-beside-{}", std::process::id()));
        put(&folder.join(MODULE).join("__init__.py"), INIT)?;
        put(&folder.join(MODULE).join("__main__.py"), MAIN)?;
        // Another version, for this user, and the module's own.
        for (place, version) in [("user/bin", 1), ("bin", 2)] {
            let program = folder.join(place).join(NAME);
            put(&program, &format!("#!/bin/sh\necho version {version}\n"))?;
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
        }
        let mut python = Command::new("python3");
        python.args(["-m", MODULE]).env("PYTHONPATH", &folder).env("PYTHONUSERBASE", folder.join("user"));
        let ended = python.env("PYTHONDONTWRITEBYTECODE", "1").output()?;
        assert_eq!(String::from_utf8_lossy(&ended.stdout), "version 2\n");
        Ok(fs::remove_dir_all(&folder)?)
    }

    #[test]
    fn a_program_that_cannot_start_is_one_sentence() -> Result<()> {
        let folder = std::env::temp_dir().join(format!("deepctx-wheel-{}", std::process::id()));
        let program = folder.join("bin").join(NAME);
        put(&folder.join(MODULE).join("__init__.py"), INIT)?;
        put(&folder.join(MODULE).join("__main__.py"), MAIN)?;
        let check = |content: &str, mode: u32, expect: &str| -> Result<()> {
            put(&program, content)?;
            fs::set_permissions(&program, fs::Permissions::from_mode(mode))?;
            let mut python = Command::new("python3");
            python.args(["-m", MODULE, "--version"]).env("PYTHONPATH", &folder);
            let ended = python.env("PYTHONDONTWRITEBYTECODE", "1").output()?;
            let said = String::from_utf8_lossy(&ended.stdout) + String::from_utf8_lossy(&ended.stderr);
            assert!(said.contains(expect) && said.lines().count() == 1, "{said}");
            Ok(())
        };
        check("#!/bin/sh\necho deepctx-bpf $1\n", 0o755, "deepctx-bpf --version")?;
        check("\x7fELF of another machine", 0o755, "it is for another machine than this one")?;
        check("#!/no/loader\n", 0o755, "its loader is missing")?;
        check("#!/bin/sh\n", 0o644, "is mounted with noexec")?;
        fs::remove_file(&program)?;
        let mut python = Command::new("python3");
        let ended = python.args(["-m", MODULE]).env("PYTHONPATH", &folder).output()?;
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(said.contains("install the package again") && said.lines().count() == 1, "{said}");
        Ok(fs::remove_dir_all(&folder)?)
    }
}
