//! Libraries of the vendors themselves, fetched from the package registries in the versions that are named here.
//!
//! Owns: the list, and the folder `target/vendors`. Because: the catalogue is right when the real libraries have what it names, and
//! a record is read rightly when the real CUPTI hands it out; both can be seen without a device. Does not: compare; tests do, where
//! `DEEPCTX_VENDOR_LIBRARIES` names the folder.

use crate::apt::Apt;
use crate::sh;
use anyhow::Result;
use std::fs;
use std::path::Path;

/// CUPTI and the runtime of both major versions that are in use; the first CUPTI 13 too, since later ones read records only where
/// there is a driver.
const PYTHON: &[&str] = &[
    "nvidia-cuda-cupti==13.5.25",
    "nvidia-cuda-cupti==13.0.85",
    "nvidia-cuda-cupti-cu12==12.9.79",
    "nvidia-cuda-runtime==13.5.37",
    "nvidia-cuda-runtime-cu12==12.9.79",
];
/// AMD's runtime, and the Debian release that has it.
const DEBIAN: (&str, &str) = ("trixie", "libamdhip64-5");

/// Fetches them, and says where they lie.
pub(crate) fn list() -> Result<()> {
    for (name, folder) in fetch()? {
        println!("{name}={}", folder.display());
    }
    Ok(())
}

/// Fetches what is not there yet (50 MB). Gives what tests are told.
pub(crate) fn fetch() -> Result<Vec<sh::Variable>> {
    let folder = sh::target_dir().join("vendors");
    sh::unless_made(&folder, &format!("{} {DEBIAN:?}", PYTHON.join(" ")), |folder| {
        fs::create_dir_all(folder)?;
        let python = folder.join("python");
        sh::run(sh::command("python3").args(["-m", "venv"]).arg(&python))?;
        for package in PYTHON {
            let mut pip = sh::command(python.join("bin/python"));
            pip.args([
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                "--only-binary=:all:",
            ]);
            // They need one another only to run programs, and versions would lie in the same place.
            sh::run(pip.args(["--no-deps", "--target"]).arg(folder.join(package)).arg(package))?;
        }
        fs::remove_dir_all(python)?;
        amd(folder)
    })?;
    Ok(vec![("DEEPCTX_VENDOR_LIBRARIES", folder.into_os_string())])
}

fn amd(folder: &Path) -> Result<()> {
    let (suite, package) = DEBIAN;
    let apt = Apt::of(&folder.join("apt"), "deb", suite)?;
    apt.update()?;
    let downloads = apt.folder.join("downloads");
    fs::create_dir_all(&downloads)?;
    sh::run(apt.command("apt-get").args(["download", "-qq", package]).current_dir(&downloads))?;
    for archive in sh::files_below(&downloads, ".deb") {
        sh::run(sh::command("dpkg").arg("-x").arg(archive).arg(folder.join("amd")))?;
    }
    Ok(fs::remove_dir_all(apt.folder)?)
}
