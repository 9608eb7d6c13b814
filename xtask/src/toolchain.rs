//! Tools that the compiler needs to build for other targets: the sources of the standard library, and a BPF linker.
//!
//! Owns: where both come from, and the folder in the user's cache that keeps the linker. Because: a machine that
//! never built the kernel programs must be able to. Does not: build them.

use crate::sh;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The linker's version; newer ones need a newer LLVM than this rustc includes.
const LINKER_VERSION: &str = "0.13.0";

/// The compiler's version string.
pub(crate) fn compiler() -> Result<String> {
    sh::output(sh::command("rustc").arg("--version"))
}

/// Folder of the compiler and its libraries.
pub(crate) fn sysroot() -> Result<PathBuf> {
    sh::output(sh::command("rustc").args(["--print", "sysroot"])).map(PathBuf::from)
}

/// True when the sources of the standard library are installed.
fn has_rust_src() -> bool {
    sysroot().is_ok_and(|sysroot| sysroot.join("lib/rustlib/src/rust/library/core").is_dir())
}

/// Source of another target's standard library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StandardLibrary {
    /// Precompiled by the toolchain's makers.
    Compiled,
    /// Compiled here.
    Sources,
}

/// Installs the standard library of a target, or its sources if it cannot be fetched.
pub(crate) fn standard_library(target: &str) -> Result<StandardLibrary> {
    if sh::succeeds(sh::command("rustup").args(["target", "add", target])) {
        return Ok(StandardLibrary::Compiled);
    }
    install_rust_src()?;
    Ok(StandardLibrary::Sources)
}

/// Installs the sources of the standard library if needed.
pub(crate) fn install_rust_src() -> Result<()> {
    if has_rust_src() {
        return Ok(());
    }
    sh::step(
        "install the component rust-src",
        "the BPF target has no compiled `core`: it is built from source",
    );
    sh::run(sh::command("rustup").args(["component", "add", "rust-src"]))
}

/// The BPF linker, built if missing.
pub(crate) fn install_linker() -> Result<PathBuf> {
    if let Some(linker) = linker()? {
        return Ok(linker);
    }
    sh::step(
        &format!("build bpf-linker {LINKER_VERSION} (about two minutes, once)"),
        "rustc emits BPF code as LLVM bitcode, which must be linked by the very LLVM that rustc carries",
    );
    build_linker(&folder()?)?;
    linker()?.context("bpf-linker was installed, but does not start")
}

/// True when nothing needs to be installed.
pub(crate) fn is_complete() -> bool {
    has_rust_src() && linker().is_ok_and(|linker| linker.is_some())
}

/// The linker to use: ours first, then one of the same version in `PATH`.
fn linker() -> Result<Option<PathBuf>> {
    let right = |path: &PathBuf| {
        sh::output(Command::new(path).arg("--version")).is_ok_and(|version| version.contains(LINKER_VERSION))
    };
    let ours = folder()?.join("bin/bpf-linker");
    Ok([Some(ours), sh::which("bpf-linker")].into_iter().flatten().find(right))
}

/// Folder of our linker. It loads the compiler's own library, so each compiler has a separate one.
fn folder() -> Result<PathBuf> {
    let compiler: String =
        compiler()?.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' }).collect();
    Ok(sh::cache_dir()?
        .join("tools")
        .join(format!("bpf-linker-{LINKER_VERSION}-{}", compiler.trim_matches('-'))))
}

/// Builds the linker against rustc's own `libLLVM`: no LLVM package is needed and the versions cannot differ.
fn build_linker(folder: &Path) -> Result<()> {
    let libraries = sysroot()?.join("lib");
    let llvm = std::fs::read_dir(&libraries)?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| file_name(path).starts_with("libLLVM.so."))
        .with_context(|| format!("no libLLVM.so.* in {}", libraries.display()))?;
    let major: String =
        file_name(&llvm)["libLLVM.so.".len()..].chars().take_while(char::is_ascii_digit).collect();
    let prefix = folder.join("llvm");
    std::fs::create_dir_all(prefix.join("lib"))?;
    let link = prefix.join("lib/libLLVM.so");
    if link.symlink_metadata().is_ok() {
        std::fs::remove_file(&link)?;
    }
    std::os::unix::fs::symlink(&llvm, &link)?;
    sh::run(
        sh::command("cargo")
            // Most of its work is in LLVM, which is already optimized; the program itself need not be.
            .args(["install", "--debug", "--quiet", "--locked", "--no-default-features"])
            .args(["--features", &format!("llvm-{major}")])
            .arg("--root")
            .arg(folder)
            .arg(format!("bpf-linker@{LINKER_VERSION}"))
            .env("LLVM_PREFIX", &prefix)
            .env("RUSTFLAGS", format!("-C link-arg=-Wl,-rpath,{}", libraries.display())),
    )
}

fn file_name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}
