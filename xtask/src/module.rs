//! `cargo xtask module`: the Python module `deepctx`, as a package that can be imported, and its tests.
//!
//! Owns: what lies in the package, and the private environment of its tests. Because: the module's tests are Python's,
//! and must run what users import, with the packages that read its tables. Does not: write a wheel.
//!
//! ```text
//! target/module/deepctx      the package, for PYTHONPATH
//! target/validators/module   a private environment: what reads tables, what checks types, what runs tests
//! ```

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::sh;

/// What reads tables and trees, checks types and runs tests.
const PACKAGES: &[&str] = &[
    "duckdb==2.0.0",
    "mypy==2.4.1",
    "networkx==3.6.1",
    "pandas==2.3.3",
    "polars==2.1.0",
    "pyarrow==26.0.1",
    "pytest==9.2.0",
];

/// Builds the package by itself.
pub(crate) fn build() -> Result<PathBuf> {
    let mut cargo = sh::command("cargo");
    sh::run(cargo.args(["build", "--package", "deepctx-python", "--locked", "--quiet"]))?;
    assemble()
}

/// Puts the package together from what was built.
fn assemble() -> Result<PathBuf> {
    let package = sh::target_dir().join("module/deepctx");
    sh::remove(&package)?;
    fs::create_dir_all(&package)?;
    let sources = sh::root().join("python/deepctx");
    for entry in fs::read_dir(&sources).with_context(|| sources.display().to_string())? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            fs::copy(entry.path(), package.join(entry.file_name()))?;
        }
    }
    let library = sh::target_dir().join("debug/libdeepctx_native.so");
    fs::copy(&library, package.join("_native.abi3.so")).with_context(|| library.display().to_string())?;
    Ok(package)
}

/// Builds it and runs its tests: types, examples in its texts, behaviour, and `analyze --rules` of the command. The
/// libraries are those of the workspace's tests, compiled with these variables; by itself, each would be compiled again
/// with fewer features.
pub(crate) fn test(variables: impl IntoIterator<Item = (&'static str, OsString)>) -> Result<()> {
    let mut cargo = sh::command("cargo");
    cargo.envs(variables).args(["build", "--workspace", "--all-targets", "--locked", "--quiet"]);
    sh::run(&mut cargo)?;
    let package = assemble()?;
    let environment = environment()?;
    let run = |program: &str, arguments: &[&str]| {
        // Programs, not `python -m`: that would import the sources in this folder instead of the package.
        let mut command = sh::command(environment.join("bin").join(program));
        command.args(arguments).current_dir(sh::root().join("python"));
        // Nothing is written beside the sources.
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        command.env("DEEPCTX_BPF", sh::target_dir().join("debug/deepctx-bpf"));
        sh::run(command.env("PYTHONPATH", package.parent().unwrap_or(Path::new("."))))
    };
    run("mypy", &["--strict", "--cache-dir=/dev/null", "deepctx"])?;
    let installed = package.display().to_string();
    let quiet = ["-q", "-p", "no:cacheprovider", "--import-mode=importlib", "--doctest-modules"];
    run("pytest", &[&quiet[..], &["tests", &installed]].concat())
}

/// The environment, which is made if it is not there.
fn environment() -> Result<PathBuf> {
    let folder = sh::target_dir().join("validators/module");
    fs::create_dir_all(&folder)?;
    sh::unless_made(&folder, &PACKAGES.join(" "), |python| {
        sh::run(sh::command("python3").args(["-m", "venv"]).arg(python))?;
        let mut pip = sh::command(python.join("bin/python"));
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary=:all:"]);
        sh::run(pip.args(PACKAGES))
    })?;
    Ok(folder)
}
