//! The Python interpreter of the checks.
//!
//! Owns: which one it is, whether it has PyTorch with a device, and the path of its CUPTI. Because: paths on a borrowed
//! machine are unknown, and package managers put CUPTI where no linker looks. Does not: start checked programs.

use super::LONGEST;
use crate::sh;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

const HAS_TORCH: &str =
    "import torch; assert torch.cuda.is_available(), 'no CUDA device'; print(torch.__version__)";

/// Prints the folder of a CUPTI that the linker does not find by itself; empty if it finds one, or if there is none.
const FIND_CUPTI: &str = r#"
import ctypes, glob, os, site, sysconfig
def opens(name):
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True
if not any(map(opens, ["libcupti.so.13", "libcupti.so.12"])):
    packages = dict.fromkeys([sysconfig.get_paths()["purelib"], *site.getsitepackages()])
    places = [folder + "/nvidia/*/lib" for folder in packages]
    places += ["/usr/local/cuda/extras/CUPTI/lib64", "/usr/local/cuda/lib64", "/usr/local/cuda-*/extras/CUPTI/lib64"]
    found = [path for place in places for path in sorted(glob.glob(place + "/libcupti.so.1[23]"), reverse=True) if opens(path)]
    print(os.path.dirname(found[0]) if found else "")
"#;

/// An interpreter and its features.
pub(super) struct Python {
    pub(super) path: PathBuf,
    /// Why it cannot be used with PyTorch; `None` when it can.
    pub(super) no_torch: Option<String>,
    /// Path of CUPTI, for programs that do not bundle it.
    pub(super) cupti: Option<PathBuf>,
}

impl Python {
    /// The named interpreter, or the first with PyTorch; with `install`, creates one if there is none.
    pub(super) fn find(named: Option<&Path>, install: bool) -> Result<Self> {
        let ours = sh::target_dir().join("venvs/torch-cuda/bin/python");
        let known = match named {
            Some(named) => vec![named.to_owned()],
            None => [Some(ours), sh::which("python3")].into_iter().flatten().collect(),
        };
        let mut because = "no Python interpreter".to_owned();
        let mut any = None;
        for path in known.into_iter().filter(|path| path.is_file()) {
            match has_torch(&path) {
                Ok(()) => return Ok(Self::with(path, None)),
                Err(problem) => because = format!("{}: {problem}", path.display()),
            }
            any = any.or(Some(path));
        }
        if install {
            let path = crate::workloads::venv("torch-cuda", &["torch", "numpy"])?;
            let lacks = has_torch(&path).err();
            return Ok(Self::with(path, lacks));
        }
        let path = any.context("no Python interpreter (--python FILE)")?;
        Ok(Self::with(path, Some(format!("{because} (--python FILE, or --install)"))))
    }

    fn with(path: PathBuf, no_torch: Option<String>) -> Self {
        let mut command = Command::new(&path);
        command.args(["-c", FIND_CUPTI]);
        // Checks that need CUPTI report its absence.
        let said = sh::finished(command, "a search for CUPTI", LONGEST).unwrap_or_default();
        let cupti = said.lines().next().map(str::trim).filter(|line| !line.is_empty()).map(PathBuf::from);
        Self { path, no_torch, cupti }
    }
}

/// Whether an interpreter has PyTorch with a device; the error says why not.
fn has_torch(python: &Path) -> Result<(), String> {
    let mut command = Command::new(python);
    command.args(["-c", HAS_TORCH]);
    sh::finished(command, "PyTorch", LONGEST).map(drop).map_err(|error| format!("{error:#}"))
}
