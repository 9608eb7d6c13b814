//! The build: one program that runs on every distribution whose C library is not older than 2.31.
//!
//! Owns: the tools that link it, and the record of how it was made. Because: a program that is linked against this
//! machine's C library does not start on an older one. Does not: pack.
//!
//! zig brings the symbols of every glibc along, and is fetched from the package registry for Python; libelf and zlib
//! are those of the Debian release that has that glibc. Paths of this machine stay out of the program.

use super::epoch;
use super::needs::Needs;
use super::tree::Tree;
use crate::apt::Apt;
use crate::{environment, module, sh};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// What zig's linker needs.
const TOOLS: &[&str] = &["cargo-zigbuild==0.24.0", "ziglang==0.17.1"];
/// Debian 11, Ubuntu 20.04 and all later.
const GLIBC: &str = "2.31";
/// The release of Debian with that glibc, and what is linked in from there.
const LIBRARIES: (&str, [&str; 2]) = ("bullseye", ["libelf-dev", "zlib1g-dev"]);
/// Optimized over crates; see `profile.dist` in the workspace's manifest.
const PROFILE: &str = "dist";
/// Program, collector and Python module.
const PACKAGES: [&str; 3] = ["deepctx-bpf", "deepctx-collector", "deepctx-python"];

/// A program to pack; the collector lies beside it.
pub(super) struct Product {
    pub(super) program: PathBuf,
    /// The library of the Python module.
    pub(super) module: PathBuf,
    /// What linked it.
    linker: String,
}

impl Product {
    /// One that somebody built, with the module's library.
    pub(super) fn given(program: &Path, module: &Path) -> Self {
        Self { program: program.to_owned(), module: module.to_owned(), linker: "elsewhere".to_owned() }
    }
}

/// Builds program, collector and module.
pub(super) fn build() -> Result<Product> {
    sh::step("build deepctx-bpf", "for every distribution since glibc 2.31, without other libraries");
    let tools = tools("dist-tools", TOOLS)?;
    let libraries = libraries()?;
    let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut cargo = sh::command("cargo");
    cargo
        .args(["zigbuild", "--locked", "--profile", PROFILE])
        .args(PACKAGES.iter().flat_map(|package| ["--package", package]))
        .args(["--features", "deepctx-bpf/static", "--target", &format!("{triple}.{GLIBC}")])
        .env("PATH", sh::path_with(&[&tools.join("bin")])?)
        .env("RUSTFLAGS", remapped()?)
        .env("LIBBPF_SYS_EXTRA_CFLAGS", format!("-I{}", libraries.join("usr/include").display()))
        .env(
            "LIBBPF_SYS_LIBRARY_PATH",
            libraries.join(format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH)),
        )
        // As its crate carries it.
        .env("LZMA_API_STATIC", "1")
        .env("SOURCE_DATE_EPOCH", epoch()?);
    sh::run(&mut cargo)?;
    let program = sh::target_dir().join(triple).join(PROFILE).join("deepctx-bpf");
    Ok(Product { module: program.with_file_name(module::LIBRARY), program, linker: TOOLS.join(", ") })
}

/// Flags that keep the folders of this machine out of the program: those of this checkout, of crates and of the
/// standard library.
fn remapped() -> Result<String> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let crates = home.context("neither CARGO_HOME nor HOME is set")?.join("registry/src");
    let registries = std::fs::read_dir(&crates).into_iter().flatten().flatten().map(|entry| entry.path());
    let library = sh::output(sh::command("rustc").args(["--print", "sysroot"]))?;
    let library = Path::new(&library).join("lib/rustlib/src");
    let folders = registries.chain([sh::root(), library]);
    let flags = folders.map(|folder| format!("--remap-path-prefix={}=", folder.display()));
    Ok(flags.collect::<Vec<_>>().join(" "))
}

/// A folder with the libraries that are linked in, as their packages have them.
fn libraries() -> Result<PathBuf> {
    let folder = sh::target_dir().join("dist-libraries");
    let folder = if folder.is_absolute() { folder } else { sh::root().join(folder) };
    let (suite, packages) = LIBRARIES;
    sh::unless_made(&folder, &format!("{suite} {}", packages.join(" ")), |folder| {
        let apt = Apt::of(&folder.join("apt"), "deb", suite)?;
        apt.update()?;
        apt.unpack(&packages, folder)
    })?;
    Ok(folder)
}

/// A private Python environment with these packages, below the target folder.
pub(super) fn tools(name: &str, packages: &[&str]) -> Result<PathBuf> {
    let folder = sh::target_dir().join(name);
    sh::unless_made(&folder, &packages.join(" "), |folder| {
        environment::make(folder, &[&["--only-binary=:all:"], packages].concat()).map(drop)
    })?;
    Ok(folder)
}

/// Writes of what and by what the program was built.
pub(super) fn provenance(product: &Product, tree: &Tree, needs: &Needs, output: &Path) -> Result<PathBuf> {
    let commit = sh::output(sh::command("git").args(["rev-parse", "HEAD"]))?;
    let changed =
        !sh::output(sh::command("git").args(["status", "--porcelain", "--untracked-files=no"]))?.is_empty();
    let compiler = sh::output(sh::command("rustc").arg("--version"))?;
    let changed = if changed { ", with changes that are not committed" } else { "" };
    let libraries = needs.libraries.join(" ");
    let text = format!(
        "program     deepctx-bpf {}\ncommit      {commit}{changed}\ncompiler    {compiler}\nlinked      {}\n\
         needs       {libraries}; symbols of glibc up to {}\ncommand     cargo xtask dist\n",
        tree.version, product.linker, needs.glibc,
    );
    let path = output.join(format!("{}.build.txt", tree.stem));
    std::fs::write(&path, text)?;
    Ok(path)
}
