//! Real interpreters to test with: one of each CPython version in the package registries, unpacked outside the system.
//!
//! Owns: the source of each interpreter, the folder `interpreters` in the user's cache, and the reasons for unavailable
//! ones. Because: Python frames must be right in builds that no single machine has installed, and compiling one takes
//! minutes: all checkouts share them. Does not: install anything into the system, or run tests.
//!
//! ```text
//! interpreters/apt/SUITE     lists and packages of one Debian suite, fetched by apt with a configuration of its own
//!             /root/SUITE    those packages, unpacked; run by their own dynamic loader and libc
//!             /build/NAME    compiled from the source package
//!             /bin/NAME      a script for each: what tests start
//! ```

mod compiled;
mod optimized;

use crate::apt::Apt;
use crate::{sh, workloads};
use anyhow::{Result, bail};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) use optimized::fetch as fetch_optimized;

/// Version of the recipes below; results of older ones are rebuilt.
const RECIPE: &str = "1";

/// Interpreters available for tests.
#[derive(Default)]
pub(crate) struct Interpreters {
    /// Programs, ordered by version.
    pub(crate) programs: Vec<PathBuf>,
    /// Folders of headers, each with its `patchlevel.h`.
    pub(crate) headers: Vec<PathBuf>,
    /// Unavailable ones, `NAME: REASON`.
    pub(crate) missing: Vec<String>,
    /// Another reader of Python stacks, for comparison.
    pub(crate) peer: Option<PathBuf>,
}

impl Interpreters {
    /// Environment variables for tests.
    pub(crate) fn variables(&self) -> Result<Vec<sh::Variable>> {
        Ok(vec![
            ("DEEPCTX_PYTHONS", std::env::join_paths(&self.programs)?),
            ("DEEPCTX_PYTHON_HEADERS", std::env::join_paths(&self.headers)?),
            ("DEEPCTX_PYTHONS_MISSING", self.missing.join("\n").into()),
            ("DEEPCTX_PY_SPY", self.peer.clone().unwrap_or_default().into()),
        ])
    }

    /// The same, for tests that must use only these interpreters.
    pub(crate) fn alone(&self) -> Result<Vec<sh::Variable>> {
        let mut variables = self.variables()?;
        variables.push(("DEEPCTX_PYTHONS_ALONE", "true".into()));
        Ok(variables)
    }

    /// Moves those that do not start to the missing ones.
    fn leave_out_broken(&mut self) {
        let (start, fail): (Vec<_>, Vec<_>) =
            self.programs.drain(..).partition(|program| sh::succeeds(Command::new(program).args(["-c", ""])));
        self.programs = start;
        self.missing.extend(fail.iter().map(|program| format!("{}: it does not start", program.display())));
    }
}

/// A Debian release and the parts to unpack.
struct Suite {
    name: &'static str,
    /// `n` of each `3.n`.
    minors: &'static [u8],
    /// libc and the libraries that the standard library's extensions need.
    libraries: &'static [&'static str],
    loader: &'static str,
    /// Its libc runs programs compiled here.
    embeds: bool,
}

const MERGED_LOADER: &str = "usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2";

/// Releases before 13 had libc outside of `/usr`.
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

/// Fetches, unpacks and compiles missing interpreters. Unavailable ones are listed and are no failure.
pub(crate) fn fetch() -> Result<Interpreters> {
    let folder = folder()?;
    let mut found = Interpreters::default();
    for suite in SUITES {
        match suite.unpacked(&folder) {
            Ok(root) => suite.offer(&folder, &root, &mut found)?,
            Err(error) => found.missing.push(format!("debian-{}: {error:#}", suite.name)),
        }
    }
    match compiled::free_threaded(&folder) {
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
    found.leave_out_broken();
    Ok(found)
}

/// Their folder.
fn folder() -> Result<PathBuf> {
    let folder = sh::cache_dir()?.join("interpreters");
    fs::create_dir_all(folder.join("bin"))?;
    Ok(folder)
}

/// Options of `cargo xtask interpreters`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Those that are compiled as standalone builds are, which takes long.
    #[arg(long)]
    optimized: bool,
}

/// Runs the chore: fetches, and lists the result.
pub(crate) fn list(options: &Options) -> Result<()> {
    let found = if options.optimized { optimized::fetch() } else { fetch() }?;
    for program in &found.programs {
        println!("{}", program.display());
    }
    for missing in &found.missing {
        println!("missing: {missing}");
    }
    Ok(())
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

    /// The folder with the unpacked packages.
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
        // Files of an earlier recipe must not remain.
        if root.exists() {
            fs::remove_dir_all(&root)?;
        }
        apt.unpack(&packages, &root)?;
        fs::write(done, recipe)?;
        Ok(root)
    }

    /// Writes the scripts that start the unpacked interpreters.
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

/// A program that loads an interpreter, as applications with an embedded Python do.
fn launcher(folder: &Path) -> Result<PathBuf> {
    let (source, program) = (sh::root().join("tests/workloads/python_embedded.c"), folder.join("embedded"));
    let age = |path: &Path| path.metadata().and_then(|data| data.modified()).ok();
    if age(&program) < age(&source) {
        sh::run(Command::new("cc").args(["-O2", "-o"]).args([&program, &source]).arg("-ldl"))?;
    }
    Ok(program)
}
