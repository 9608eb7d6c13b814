//! A second apt beside the system's: packages of any Debian release, fetched and unpacked, never installed.
//!
//! Owns: its configuration. Because: tests need interpreters and kernels of several releases. Does not: know which,
//! or where Debian's archive is (`archive` asks the machine).

use crate::{archive, sh};
use anyhow::{Result, bail};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// apt with separate lists, packages and settings, independent of the system's.
pub(crate) struct Apt {
    /// Folder for all of them.
    pub(crate) folder: PathBuf,
}

impl Apt {
    /// Lists of one suite's main component; `kind` is `deb` or `deb-src`.
    pub(crate) fn of(folder: &Path, kind: &str, suite: &str) -> Result<Self> {
        Self::of_component(folder, kind, suite, "main")
    }

    /// Lists of one component of a suite. The archive has every suite, whichever this machine uses.
    pub(crate) fn of_component(folder: &Path, kind: &str, suite: &str, component: &str) -> Result<Self> {
        let apt = Self { folder: folder.to_owned() };
        let keys = "/usr/share/keyrings/debian-archive-keyring.gpg";
        if !Path::new(keys).exists() {
            bail!("there is no {keys} to check Debian's packages with");
        }
        for place in ["lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(folder.join(place))?;
        }
        let archive = archive::debian()?;
        let line = format!("{kind} [signed-by={keys}] {archive} {suite} {component}\n");
        fs::write(folder.join("sources.list"), line)?;
        // Locally installed packages must not affect what is fetched.
        fs::write(folder.join("status"), "")?;
        let place = |name: &str| folder.join(name).display().to_string();
        let settings = [
            ("Dir::State::lists", place("lists")),
            ("Dir::State::status", place("status")),
            ("Dir::Cache", place("cache")),
            ("Dir::Etc::sourcelist", place("sources.list")),
            ("Dir::Etc::sourceparts", "/dev/null".to_owned()),
            ("APT::Sandbox::User", "root".to_owned()),
            ("Acquire::Languages", "none".to_owned()),
            ("Acquire::IndexTargets::deb::DEP-11::DefaultEnabled", "false".to_owned()),
            ("Acquire::Retries", "3".to_owned()),
        ];
        let text: String = settings.iter().map(|(name, value)| format!("{name} \"{value}\";\n")).collect();
        fs::write(folder.join("apt.conf"), text)?;
        Ok(apt)
    }

    /// The same for packages of another machine, by Debian's name.
    pub(crate) fn for_machine(self, machine: &str) -> Result<Self> {
        let path = self.folder.join("apt.conf");
        let text = fs::read_to_string(&path)?;
        let of = format!("APT::Architecture \"{machine}\";\nAPT::Architectures {{ \"{machine}\"; }};\n");
        fs::write(&path, text + &of)?;
        Ok(self)
    }

    /// A command for one of apt's programs.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("APT_CONFIG", self.folder.join("apt.conf"));
        command
    }

    /// Fetches the lists.
    pub(crate) fn update(&self) -> Result<()> {
        sh::run(self.command("apt-get").args(["update", "-qq"]))
    }

    /// Fetches packages and unpacks them all into one folder.
    pub(crate) fn unpack(&self, packages: &[impl AsRef<OsStr>], into: &Path) -> Result<()> {
        let downloads = self.folder.join("downloads");
        fs::create_dir_all(&downloads)?;
        fs::create_dir_all(into)?;
        let mut download = self.command("apt-get");
        sh::run(download.args(["download", "-qq"]).args(packages).current_dir(&downloads))?;
        for archive in sh::files_below(&downloads, ".deb") {
            sh::output(Command::new("dpkg-deb").arg("--extract").arg(archive).arg(into))?;
        }
        Ok(fs::remove_dir_all(&downloads)?)
    }
}
