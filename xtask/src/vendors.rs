//! Libraries of the vendors, fetched from the package registries in the versions named here.
//!
//! Owns: the list, and the folder `target/vendors`. Because: the catalog must match the symbols of the real libraries,
//! and our parser the records of the real CUPTI; both can be tested without a device. Does not: compare; tests do,
//! where `DEEPCTX_VENDOR_LIBRARIES` names the folder.

use crate::apt::Apt;
use crate::{environment, sh};
use anyhow::Result;
use std::fs;
use std::path::Path;

/// CUPTI and the runtime of both current major versions; also the first CUPTI 13, since later ones read records only
/// with a driver.
const PYTHON: &[&str] = &[
    "nvidia-cuda-cupti==13.5.25",
    "nvidia-cuda-cupti==13.0.85",
    "nvidia-cuda-cupti-cu12==12.9.79",
    "nvidia-cuda-runtime==13.5.37",
    "nvidia-cuda-runtime-cu12==12.9.79",
];
/// AMD's runtime, and the Debian releases with an NVIDIA driver and its management library, and the CUPTI and runtime
/// of that time: 535 and 11.8, 550 and 12.4. Later drivers are not published as packages.
const DEBIAN: &[Debian] = &[
    Debian { suite: "trixie", component: "main", packages: &["libamdhip64-5"], folder: "amd" },
    Debian {
        suite: "bookworm",
        component: "non-free",
        packages: &["libcuda1", "libnvidia-ml1", "libcupti11.8", "libcudart11.0"],
        folder: "nvidia-535",
    },
    Debian {
        suite: "trixie",
        component: "non-free",
        packages: &["libcuda1", "libnvidia-ml1", "libcupti12", "libcudart12"],
        folder: "nvidia-550",
    },
];

/// Packages of a Debian release.
#[derive(Debug)]
struct Debian {
    suite: &'static str,
    component: &'static str,
    packages: &'static [&'static str],
    /// Folder to unpack them into.
    folder: &'static str,
}

/// Packages with the headers that the catalogue's signatures come from.
const PYTHON_HEADERS: &[&str] = &[
    "nvidia-cuda-cupti==13.5.25",
    "nvidia-cuda-runtime==13.5.37",
    "nvidia-cuda-crt==13.5.37",
    "nvidia-nccl-cu12==2.32.3",
];
/// AMD's headers.
const DEBIAN_HEADERS: Debian =
    Debian { suite: "sid", component: "main", packages: &["libamdhip64-dev", "librccl-dev"], folder: "amd" };

/// Fetches them and prints their paths.
pub(crate) fn list() -> Result<()> {
    for (name, folder) in fetch()? {
        println!("{name}={}", folder.display());
    }
    Ok(())
}

/// Fetches missing libraries (75 MB, and half a gigabyte with NCCL, whose headers come with its library). Returns the
/// variables of tests.
pub(crate) fn fetch() -> Result<Vec<sh::Variable>> {
    let libraries = sh::target_dir().join("vendors");
    sh::unless_made(&libraries, &format!("{} {DEBIAN:?}", PYTHON.join(" ")), |folder| {
        from_python(folder, PYTHON)?;
        DEBIAN.iter().try_for_each(|packages| packages.unpack(folder))
    })?;
    let headers = sh::target_dir().join("vendor-headers");
    sh::unless_made(&headers, &format!("{} {DEBIAN_HEADERS:?}", PYTHON_HEADERS.join(" ")), |folder| {
        from_python(folder, PYTHON_HEADERS)?;
        DEBIAN_HEADERS.unpack(folder)
    })?;
    Ok(vec![
        ("DEEPCTX_VENDOR_LIBRARIES", libraries.into_os_string()),
        ("DEEPCTX_VENDOR_HEADERS", headers.into_os_string()),
    ])
}

/// Installs each package into a separate folder: versions would overwrite each other, and they need one another only to
/// run programs.
fn from_python(folder: &Path, packages: &[&str]) -> Result<()> {
    fs::create_dir_all(folder)?;
    let environment = folder.join("python");
    let python = environment::empty(&environment)?;
    for package in packages {
        let mut pip = environment::pip(&python)?;
        pip.args(["install", "--only-binary=:all:", "--no-deps", "--target"]);
        sh::run(pip.arg(folder.join(package)).arg(package))?;
    }
    Ok(fs::remove_dir_all(environment)?)
}

impl Debian {
    /// Fetches and unpacks them below a folder.
    fn unpack(&self, folder: &Path) -> Result<()> {
        let apt = Apt::of_component(&folder.join("apt"), "deb", self.suite, self.component)?;
        apt.update()?;
        apt.unpack(self.packages, &folder.join(self.folder))?;
        Ok(fs::remove_dir_all(apt.folder)?)
    }
}
