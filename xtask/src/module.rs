//! `cargo xtask module`: the Python module `deepctx`, as a package that can be imported, and its tests.
//!
//! Owns: the contents of the package, and the private environment of its tests. Because: the module's tests are
//! Python's, and must run what users import, with the packages that read its tables. Does not: write the wheel; `dist`
//! does.
//!
//! ```text
//! target/module/deepctx      the package, for PYTHONPATH
//! target/validators/module   a private environment: what reads tables, what checks types, what runs tests
//! ```

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};

use crate::{environment, sh};

/// Cargo's file name of the module's library.
pub(crate) const LIBRARY: &str = "libdeepctx_native.so";

/// Cargo's default profile, whose folder is `debug`.
pub(crate) const DEV: &str = "dev";

/// The oldest CPython: the library uses its stable ABI, as set by `pyo3`'s feature in the workspace's manifest.
pub(crate) const OLDEST: (u8, u8) = (3, 10);

/// Packages that read tables and trees, check types, execute notebooks and run tests.
const PACKAGES: &[&str] = &[
    "duckdb==2.0.0",
    "ipykernel==7.4.0",
    "mypy==2.4.1",
    "nbclient==0.11.0",
    "networkx==3.6.1",
    "pandas==2.3.3",
    "polars==2.1.0",
    "pyarrow==26.0.1",
    // Includes node, which it needs.
    "pyright[nodejs]==1.1.414",
    "pytest==9.2.0",
];

/// Builds the package with one of cargo's profiles.
pub(crate) fn build(profile: &str) -> Result<PathBuf> {
    assemble(&built(profile, &["deepctx-python"])?)
}

/// Builds the module's library together with the other packages.
fn built(profile: &str, packages: &[&str]) -> Result<PathBuf> {
    let mut cargo = sh::command("cargo");
    cargo.args(["build", "--locked", "--quiet", "--profile", profile]);
    sh::run(cargo.args(packages.iter().flat_map(|package| ["--package", package])))?;
    let folder = if profile == DEV { "debug" } else { profile };
    Ok(sh::target_dir().join(folder).join(LIBRARY))
}

/// Assembles the package.
fn assemble(library: &Path) -> Result<PathBuf> {
    let package = sh::target_dir().join("module/deepctx");
    sh::remove(&package)?;
    lay_out(library, &package)?;
    Ok(package)
}

/// Copies the package's files to a folder, readable by all, whatever the checkout's modes.
pub(crate) fn lay_out(library: &Path, package: &Path) -> Result<()> {
    fs::create_dir_all(package)?;
    let sources = sh::root().join("python/deepctx");
    let mut files = vec![(library.to_owned(), package.join("_native.abi3.so"))];
    for entry in fs::read_dir(&sources).with_context(|| sources.display().to_string())? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            files.push((entry.path(), package.join(entry.file_name())));
        }
    }
    for (from, to) in files {
        fs::copy(&from, &to).with_context(|| from.display().to_string())?;
        fs::set_permissions(&to, fs::Permissions::from_mode(0o644))?;
    }
    Ok(())
}

/// Runs the module's tests: types, doc examples, behavior, the notebook, the command's `analyze --rules`.
/// `built_with_tests` is the library and the command if they were built with the workspace's tests: building the
/// command again would replace it under other running tests.
pub(crate) fn test(built_with_tests: Option<(&Path, &Path)>) -> Result<()> {
    let (library, product) = match built_with_tests {
        Some((library, product)) => (library.to_owned(), product.to_owned()),
        None => (built(DEV, &["deepctx-python", "deepctx-bpf"])?, sh::target_dir().join("debug/deepctx-bpf")),
    };
    let package = assemble(&library)?;
    let environment = environment()?;
    let run = |program: &str, arguments: &[&str]| {
        // Programs instead of `python -m`, which would import the sources in this folder instead of the package.
        let mut command = sh::command(environment.join("bin").join(program));
        command.args(arguments).current_dir(sh::root().join("python"));
        // Keeps bytecode files out of the sources.
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        command.env("DEEPCTX_BPF", &product);
        // pyright looks for node there.
        command.env("PATH", sh::path_with(&[&environment.join("bin")])?);
        sh::run(command.env("PYTHONPATH", package.parent().unwrap_or(Path::new("."))))
    };
    run("mypy", &["--strict", "--cache-dir=/dev/null", "deepctx", "examples/rules.py"])?;
    // Files and strictness: `pyrightconfig.json`.
    run("pyright", &["--warnings"])?;
    let installed = package.display().to_string();
    let quiet = ["-q", "-p", "no:cacheprovider", "--import-mode=importlib", "--doctest-modules"];
    run("pytest", &[&quiet[..], &["tests", &installed]].concat())
}

/// The environment, created if needed. Concurrent tests use the same one.
pub(crate) fn environment() -> Result<PathBuf> {
    static MADE: Mutex<()> = Mutex::new(());
    let _made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = sh::target_dir().join("validators/module");
    fs::create_dir_all(&folder)?;
    sh::unless_made(&folder, &PACKAGES.join(" "), |python| {
        environment::make_of_wheels(python, PACKAGES).map(drop)
    })?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_python_is_the_one_of_the_manifest() {
        let manifest = fs::read_to_string(sh::root().join("Cargo.toml")).unwrap();
        let (major, minor) = OLDEST;
        assert!(manifest.contains(&format!("\"abi3-py{major}{minor}\"")), "pyo3 has another feature");
    }
}
