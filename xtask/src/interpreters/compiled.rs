//! Interpreters compiled here from Debian's source packages.
//!
//! Owns: the list of sources, how one is compiled, and the build without a GIL. Because: such builds are not published
//! as packages for Linux. Does not: know the slow builds ([`super::optimized`]).

use super::{RECIPE, script};
use crate::apt::Apt;
use crate::{archive, sh};
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A CPython source release as kept in Debian's archive, with its SHA-256.
pub(super) struct Source {
    version: &'static str,
    sha256: &'static str,
}

/// Sources of one CPython version; the first available one is used. Older ones leave the archive, newer ones reach a
/// mirror later.
pub(super) struct Sources {
    /// `3.14`.
    pub(super) minor: &'static str,
    sources: &'static [Source],
}

/// Since 3.14, an interpreter can have a function per opcode, which only clang can compile.
pub(super) const CPYTHON_3_14: Sources = Sources {
    minor: "3.14",
    sources: &[
        Source {
            version: "3.14.7",
            sha256: "3b48dac8fb59f62eaa67ac83c1eb12bda1b7a08406dd286e252c11a66be27f81",
        },
        Source {
            version: "3.14.10",
            sha256: "de414a57119abef52784d8993e341d53aed635fc2b05c2607d9f98a2c5b72032",
        },
    ],
};

pub(super) const CPYTHON_3_15: Sources = Sources {
    minor: "3.15",
    sources: &[
        Source {
            version: "3.15.2",
            sha256: "8b5536d280142ecf6cdfe15d12a21ba1c65e300bbf7b28a8d0cdb849575797de",
        },
        Source {
            version: "3.15.0",
            sha256: "ba4bed1ba346b916890b76d9e320451420aa69f6408997d33c66482eeae3d575",
        },
    ],
};

/// The compiler that supports the tail-call convention.
const CLANG: &str = "clang-19";

/// Modules that no test imports; without them, compilation takes half the time.
const MODULES_LEFT_OUT: &str = "*disabled*
_bz2 _codecs_cn _codecs_hk _codecs_iso2022 _codecs_jp _codecs_kr _codecs_tw _ctypes_test _curses _curses_panel _dbm
_decimal _elementtree _gdbm _hashlib _lsprof _lzma _multibytecodec _remote_debugging _sqlite3 _ssl _tkinter _uuid
_zoneinfo _zstd nis pyexpat readline resource syslog termios xxlimited xxlimited_35 xxsubtype zlib
";

/// Build configuration of an interpreter.
pub(super) struct Recipe<'a> {
    /// Distinguishes builds of the same source, in the folder name.
    pub(super) kind: &'a str,
    /// Why it is built here.
    pub(super) because: &'a str,
    /// How long that takes.
    pub(super) takes: &'a str,
    /// Options of `configure`.
    pub(super) options: &'a [&'a str],
    /// Variables of `configure`, which passes them to `make`.
    pub(super) variables: &'a [(&'a str, OsString)],
    /// Variables of `make`.
    pub(super) for_make: &'a [&'a str],
}

impl Recipe<'_> {
    /// All that decides what the build is.
    fn text(&self) -> String {
        let variables = self.variables.iter().map(|(name, value)| format!("{name}={}", value.display()));
        let parts = [RECIPE, MODULES_LEFT_OUT].into_iter().chain(self.options.iter().copied());
        let parts = parts.chain(self.for_make.iter().copied()).map(str::to_owned);
        parts.chain(variables).collect::<Vec<_>>().join("\n")
    }
}

/// An interpreter without a GIL and, if possible, with a function per opcode: Debian packages neither, but the builds
/// that Python installers fetch have both.
pub(super) fn free_threaded(folder: &Path) -> Result<PathBuf> {
    let tail_calls = sh::which(CLANG).is_some();
    let mut variables = vec![("CFLAGS", "-O1 -g0".into()), ("OPT", "-DNDEBUG".into())];
    let mut options = vec!["--disable-gil"];
    if tail_calls {
        variables.push(("CC", CLANG.into()));
        options.push("--with-tail-call-interp");
    }
    let kind = if tail_calls { "t-tail" } else { "t" };
    let recipe = Recipe {
        kind,
        because: "such a build is not published as a package for Linux",
        takes: "two to five minutes",
        options: &options,
        variables: &variables,
        for_make: &[],
    };
    let build = CPYTHON_3_14.compiled(folder, &recipe)?;
    let name = format!("built-{}{kind}", CPYTHON_3_14.minor);
    script(&folder.join("bin").join(name), &format!("exec {} \"$@\"", build.join("python").display()))
}

impl Sources {
    /// The folder in which the first available source is built by a recipe.
    pub(super) fn compiled(&self, folder: &Path, recipe: &Recipe<'_>) -> Result<PathBuf> {
        let mut last = None;
        for source in self.sources {
            match source.compiled(folder, self.minor, recipe) {
                Ok(build) => return Ok(build),
                Err(error) => last = Some(error),
            }
        }
        Err(last.context("there is no source to try")?)
    }
}

impl Source {
    /// The unpacked source.
    fn unpacked(&self, folder: &Path, minor: &str) -> Result<PathBuf> {
        let (sources, version) = (folder.join("source"), self.version);
        let tree = sources.join(format!("Python-{version}"));
        let file = sources.join(format!("python-{version}.tar.xz"));
        if tree.join("configure").exists() && !file.exists() {
            return Ok(tree);
        }
        fs::create_dir_all(&sources)?;
        let apt = Apt::of(&folder.join("apt/source"), "deb-src", "sid")?;
        let package = format!("python{minor}");
        let archive = archive::debian()?;
        let address = format!("{archive}/pool/main/p/{package}/{package}_{version}.orig.tar.xz");
        // apt's helper checks the checksum, and leaves no file on a mismatch.
        let mut fetch = apt.command("/usr/lib/apt/apt-helper");
        fetch.args(["download-file", &address]).arg(&file).arg(format!("SHA256:{}", self.sha256));
        sh::run(&mut fetch).with_context(|| format!("the source of CPython {version} cannot be had"))?;
        sh::run(Command::new("tar").arg("--extract").arg("--file").arg(&file).current_dir(&sources))?;
        fs::remove_file(file)?;
        Ok(tree)
    }

    /// The folder in which the source is built by a recipe.
    fn compiled(&self, folder: &Path, minor: &str, recipe: &Recipe<'_>) -> Result<PathBuf> {
        let (version, kind) = (self.version, recipe.kind);
        let build = folder.join("build").join(format!("{version}{kind}"));
        let (done, made_by) = (build.join("done"), recipe.text());
        if fs::read_to_string(&done).is_ok_and(|text| text == made_by) {
            return Ok(build);
        }
        // Files of another recipe must not remain.
        sh::remove(&build)?;
        let tree = self.unpacked(folder, minor)?;
        sh::step(&format!("compile CPython {version}{kind} ({})", recipe.takes), recipe.because);
        fs::create_dir_all(build.join("Modules"))?;
        fs::write(build.join("Modules/Setup.local"), MODULES_LEFT_OUT)?;
        let mut configure = Command::new(tree.join("configure"));
        configure.args(["--quiet", "--without-ensurepip", "--disable-test-modules"]).args(recipe.options);
        configure.envs(recipe.variables.iter().map(|(name, value)| (name, value))).current_dir(&build);
        // Its output is the reason why it is missing.
        let said = configure.output().context("cannot start configure")?;
        if !said.status.success() {
            let text = String::from_utf8_lossy(&said.stderr);
            let last: Vec<&str> = text.trim().lines().rev().take(3).collect();
            bail!("configure failed: {}", last.into_iter().rev().collect::<Vec<_>>().join(" / "));
        }
        let jobs = std::thread::available_parallelism().map_or(1, usize::from);
        let mut make = Command::new("make");
        make.args(["--silent", &format!("-j{jobs}")]).args(recipe.for_make).current_dir(&build);
        sh::output(&mut make)?;
        fs::write(done, made_by)?;
        Ok(build)
    }
}
