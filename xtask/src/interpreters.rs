//! Real interpreters to test with: one of each CPython that the package registries have, unpacked beside the system.
//!
//! Owns: which interpreter comes from where, the folder `target/interpreters`, and the reasons for those that cannot be
//! had. Because: Python frames must be right in builds that no single machine has installed. Does not: install
//! anything into the system, or run tests.
//!
//! ```text
//! interpreters/apt/SUITE     lists and packages of one Debian suite, fetched by apt with a configuration of its own
//!             /root/SUITE    those packages, unpacked; run by their own dynamic loader and libc
//!             /build/NAME    compiled from the source package
//!             /bin/NAME      a script for each: what tests start
//! ```

use crate::apt::Apt;
use crate::{archive, sh, workloads};
use anyhow::{Context, Result, bail};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Version of the recipes below: what an older one made is made anew.
const RECIPE: &str = "1";

/// What is there to test with.
#[derive(Default)]
pub(crate) struct Interpreters {
    /// Programs to start, in the order of their versions.
    pub(crate) programs: Vec<PathBuf>,
    /// Folders of headers, each with its `patchlevel.h`.
    pub(crate) headers: Vec<PathBuf>,
    /// Those that cannot be had, `NAME: REASON`.
    pub(crate) missing: Vec<String>,
    /// Another reader of Python stacks, to compare with.
    pub(crate) peer: Option<PathBuf>,
}

impl Interpreters {
    /// What tests read: variables for their environment.
    pub(crate) fn variables(&self) -> Result<Vec<sh::Variable>> {
        Ok(vec![
            ("DEEPCTX_PYTHONS", std::env::join_paths(&self.programs)?),
            ("DEEPCTX_PYTHON_HEADERS", std::env::join_paths(&self.headers)?),
            ("DEEPCTX_PYTHONS_MISSING", self.missing.join("\n").into()),
            ("DEEPCTX_PY_SPY", self.peer.clone().unwrap_or_default().into()),
        ])
    }
}

/// A release of Debian and what of it is unpacked.
struct Suite {
    name: &'static str,
    /// `n` of each `3.n`.
    minors: &'static [u8],
    /// Libraries that the standard library's extensions need, and the libc.
    libraries: &'static [&'static str],
    loader: &'static str,
    /// Its libc runs a program that was compiled here.
    embeds: bool,
}

const MERGED_LOADER: &str = "usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2";

/// Releases before 13 kept libc outside of `/usr`.
const SUITES: &[Suite] = &[
    Suite {
        name: "bullseye",
        minors: &[9],
        libraries: &["libc6", "libexpat1", "zlib1g", "libffi7", "libbz2-1.0", "liblzma5", "libmpdec3"],
        loader: "lib/x86_64-linux-gnu/ld-linux-x86-64.so.2",
        embeds: false,
    },
    Suite {
        name: "bookworm",
        minors: &[11],
        libraries: &["libc6", "libexpat1", "zlib1g", "libffi8", "libbz2-1.0", "liblzma5"],
        loader: "lib/x86_64-linux-gnu/ld-linux-x86-64.so.2",
        embeds: true,
    },
    Suite {
        name: "trixie",
        minors: &[13],
        libraries: &["libc6", "libexpat1", "zlib1g", "libffi8", "libbz2-1.0", "liblzma5"],
        loader: MERGED_LOADER,
        embeds: true,
    },
    Suite {
        name: "sid",
        minors: &[14, 15],
        libraries: &[
            "libc6",
            "libgcc-s1",
            "libexpat1",
            "zlib1g",
            "libffi8",
            "libbz2-1.0",
            "liblzma5",
            "libzstd1",
        ],
        loader: MERGED_LOADER,
        embeds: true,
    },
];

/// A released source of CPython as Debian keeps it beside its packages, with its SHA-256.
struct Source {
    version: &'static str,
    sha256: &'static str,
    /// It can have a function for each opcode, which clang alone compiles.
    tail_calls: bool,
}

/// Sources of an interpreter without a GIL and with tail calls, the first that can be had: Debian packages neither, and
/// the builds that installers of Python fetch have both.
const BUILT: &[Source] = &[
    Source {
        version: "3.14.7",
        sha256: "3b48dac8fb59f62eaa67ac83c1eb12bda1b7a08406dd286e252c11a66be27f81",
        tail_calls: true,
    },
    Source {
        version: "3.13.5",
        sha256: "93e583f243454e6e9e4588ca2c2662206ad961659863277afcdb96801647d640",
        tail_calls: false,
    },
];

/// The compiler that has the calling convention of tail calls.
const CLANG: &str = "clang-19";

/// Modules that no test imports; leaving them out halves the time to compile.
const MODULES_LEFT_OUT: &str = "*disabled*
_bz2 _codecs_cn _codecs_hk _codecs_iso2022 _codecs_jp _codecs_kr _codecs_tw _ctypes_test _curses _curses_panel _dbm
_decimal _elementtree _gdbm _hashlib _lsprof _lzma _multibytecodec _remote_debugging _sqlite3 _ssl _tkinter _uuid
_zoneinfo _zstd nis pyexpat readline resource syslog termios xxlimited xxlimited_35 xxsubtype zlib
";

/// Fetches, unpacks and compiles what is not there yet. One that cannot be had is no failure; it is named.
pub(crate) fn fetch() -> Result<Interpreters> {
    let folder = sh::target_dir().join("interpreters");
    let folder = if folder.is_absolute() { folder } else { sh::root().join(folder) };
    fs::create_dir_all(folder.join("bin"))?;
    let mut found = Interpreters::default();
    for suite in SUITES {
        match suite.unpacked(&folder) {
            Ok(root) => suite.offer(&folder, &root, &mut found)?,
            Err(error) => found.missing.push(format!("debian-{}: {error:#}", suite.name)),
        }
    }
    let attempts = BUILT.iter().map(|source| source.built(&folder));
    match first_success(attempts) {
        Ok(program) => found.programs.push(program),
        Err(error) => found.missing.push(format!("built-3.14t-tail: {error:#}")),
    }
    match workloads::venv("numpy", &["numpy"]) {
        Ok(program) => found.programs.push(program),
        Err(error) => found.missing.push(format!("venv-numpy: {error:#}")),
    }
    match workloads::venv("py-spy", &["py-spy"]) {
        Ok(program) => found.peer = Some(program.with_file_name("py-spy")),
        Err(error) => found.missing.push(format!("py-spy: {error:#}")),
    }
    let (start, fail): (Vec<_>, Vec<_>) =
        found.programs.drain(..).partition(|program| sh::succeeds(Command::new(program).args(["-c", ""])));
    found.programs = start;
    found.missing.extend(fail.iter().map(|program| format!("{}: it does not start", program.display())));
    Ok(found)
}

/// Runs the chore: fetches, and says what is there.
pub(crate) fn list() -> Result<()> {
    let found = fetch()?;
    for program in &found.programs {
        println!("{}", program.display());
    }
    for missing in &found.missing {
        println!("missing: {missing}");
    }
    Ok(())
}

fn first_success<T>(attempts: impl Iterator<Item = Result<T>>) -> Result<T> {
    let mut last = None;
    for attempt in attempts {
        match attempt {
            Ok(value) => return Ok(value),
            Err(error) => last = Some(error),
        }
    }
    Err(last.context("there is nothing to try")?)
}

impl Suite {
    fn packages(&self) -> Vec<String> {
        let of = |minor: &u8| {
            [
                "python3.N-minimal",
                "libpython3.N",
                "libpython3.N-minimal",
                "libpython3.N-stdlib",
                "libpython3.N-dev",
            ]
            .map(|name| name.replace('N', &minor.to_string()))
        };
        let libraries = self.libraries.iter().map(|&name| name.to_owned());
        libraries.chain(self.minors.iter().flat_map(of)).collect()
    }

    /// The folder that holds the unpacked packages.
    fn unpacked(&self, folder: &Path) -> Result<PathBuf> {
        let root = folder.join("root").join(self.name);
        let (done, packages) = (folder.join("root").join(format!("{}.done", self.name)), self.packages());
        let recipe = format!("{RECIPE} {}", packages.join(" "));
        if fs::read_to_string(&done).is_ok_and(|text| text == recipe) {
            return Ok(root);
        }
        if sh::which("apt-get").is_none() {
            bail!("there is no apt-get here to fetch Debian's packages with");
        }
        sh::step(
            &format!("fetch the interpreters of Debian {}", self.name),
            "Python frames are tested in each version; they are unpacked aside, not installed",
        );
        let apt = Apt::of(&folder.join("apt").join(self.name), "deb", self.name)?;
        apt.update()?;
        // What an earlier recipe left would be mixed in.
        if root.exists() {
            fs::remove_dir_all(&root)?;
        }
        apt.unpack(&packages, &root)?;
        fs::write(done, recipe)?;
        Ok(root)
    }

    /// Writes the scripts that start what was unpacked.
    fn offer(&self, folder: &Path, root: &Path, found: &mut Interpreters) -> Result<()> {
        let libraries = ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"].map(|place| root.join(place));
        let start = format!(
            "PYTHONHOME={} exec {} --library-path {}:{}",
            root.join("usr").display(),
            root.join(self.loader).display(),
            libraries[0].display(),
            libraries[1].display(),
        );
        for minor in self.minors {
            let name = format!("debian-{}-3.{minor}", self.name);
            let program = root.join(format!("usr/bin/python3.{minor}"));
            let script = |name: String, line: String| script(&folder.join("bin").join(name), &line);
            found.programs.push(script(name.clone(), format!("{start} {} \"$@\"", program.display()))?);
            if *minor >= 14 {
                let line = format!("PYTHON_JIT=1 {start} {} \"$@\"", program.display());
                found.programs.push(script(format!("{name}-jit"), line)?);
            }
            if self.embeds {
                let library = libraries[0].join(format!("libpython3.{minor}.so.1.0"));
                let line = format!("{start} {} {} \"$@\"", launcher(folder)?.display(), library.display());
                found.programs.push(script(format!("{name}-embedded"), line)?);
            }
            found.headers.push(root.join(format!("usr/include/python3.{minor}")));
        }
        Ok(())
    }
}

fn script(path: &Path, line: &str) -> Result<PathBuf> {
    fs::write(path, format!("#!/bin/sh\n{line}\n"))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    Ok(path.to_owned())
}

/// A program that is no interpreter but loads one, as applications with an embedded Python do.
fn launcher(folder: &Path) -> Result<PathBuf> {
    let (source, program) = (sh::root().join("tests/workloads/python_embedded.c"), folder.join("embedded"));
    let age = |path: &Path| path.metadata().and_then(|data| data.modified()).ok();
    if age(&program) < age(&source) {
        sh::run(Command::new("cc").args(["-O2", "-o"]).args([&program, &source]).arg("-ldl"))?;
    }
    Ok(program)
}

impl Source {
    fn minor(&self) -> &str {
        self.version.rsplit_once('.').map_or(self.version, |(minor, _)| minor)
    }

    /// The unpacked source.
    fn unpacked(&self, folder: &Path) -> Result<PathBuf> {
        let (sources, version) = (folder.join("source"), self.version);
        let tree = sources.join(format!("Python-{version}"));
        let file = sources.join(format!("python-{version}.tar.xz"));
        if tree.join("configure").exists() && !file.exists() {
            return Ok(tree);
        }
        fs::create_dir_all(&sources)?;
        let apt = Apt::of(&folder.join("apt/source"), "deb-src", "sid")?;
        let package = format!("python{}", self.minor());
        let archive = archive::debian()?;
        let address = format!("{archive}/pool/main/p/{package}/{package}_{version}.orig.tar.xz");
        // apt's helper checks the sum, and leaves no file when it differs.
        let mut fetch = apt.command("/usr/lib/apt/apt-helper");
        fetch.args(["download-file", &address]).arg(&file).arg(format!("SHA256:{}", self.sha256));
        sh::run(&mut fetch).with_context(|| format!("the source of CPython {version} cannot be had"))?;
        sh::run(Command::new("tar").arg("--extract").arg("--file").arg(&file).current_dir(&sources))?;
        fs::remove_file(file)?;
        Ok(tree)
    }

    /// An interpreter that was compiled with `--disable-gil`, and `--with-tail-call-interp` where that can be.
    fn built(&self, folder: &Path) -> Result<PathBuf> {
        let tail_calls = self.tail_calls && sh::which(CLANG).is_some();
        let kind = if tail_calls { "t-tail" } else { "t" };
        let build = folder.join("build").join(format!("{}{kind}", self.version));
        let done = build.join("done");
        if !fs::read_to_string(&done).is_ok_and(|text| text == RECIPE) {
            let tree = self.unpacked(folder)?;
            sh::step(
                &format!("compile CPython {}{kind} (two to five minutes)", self.version),
                "no registry has such a build for Linux",
            );
            fs::create_dir_all(build.join("Modules"))?;
            fs::write(build.join("Modules/Setup.local"), MODULES_LEFT_OUT)?;
            let mut configure = Command::new(tree.join("configure"));
            configure.args(["--quiet", "--disable-gil", "--without-ensurepip", "--disable-test-modules"]);
            configure.env("CFLAGS", "-O1 -g0").env("OPT", "-DNDEBUG").current_dir(&build);
            if tail_calls {
                configure.arg("--with-tail-call-interp").env("CC", CLANG);
            }
            // Its own words are the reason why it is missing.
            let said = configure.output().context("cannot start configure")?;
            if !said.status.success() {
                let text = String::from_utf8_lossy(&said.stderr);
                let last: Vec<&str> = text.trim().lines().rev().take(3).collect();
                bail!("configure failed: {}", last.into_iter().rev().collect::<Vec<_>>().join(" / "));
            }
            let jobs = std::thread::available_parallelism().map_or(1, usize::from);
            let mut make = Command::new("make");
            make.args(["--silent", &format!("-j{jobs}")]).current_dir(&build);
            sh::output(&mut make)?;
            fs::write(done, RECIPE)?;
        }
        let name = format!("built-{}{kind}", self.minor());
        script(&folder.join("bin").join(name), &format!("exec {} \"$@\"", build.join("python").display()))
    }
}
