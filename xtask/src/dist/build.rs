//! The build: one program per target. It runs on every distribution with glibc 2.31 or later or, linked against musl,
//! on every Linux.
//!
//! Owns: the tools that link it, and the record of the build. Because: a program linked against this machine's C
//! library does not start on an older one. Does not: pack.
//!
//! zig includes the symbols of every glibc version, and is fetched from the package registry for Python; libelf and
//! zlib are those of the Debian release with that glibc. The program contains no paths of this machine.

use super::epoch;
use super::needs::Needs;
use super::product::{COLLECTOR, Product};
use super::target::Target;
use super::tree::Tree;
use crate::apt::Apt;
use crate::{environment, module, sh};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Tools of zig's linker.
const TOOLS: &[&str] = &["cargo-zigbuild==0.24.0", "ziglang==0.17.1"];
/// Statically linked libraries, as Debian packages.
const LIBRARIES: [&str; 2] = ["libelf-dev", "zlib1g-dev"];
/// Libraries loaded by other programs: the collector and the Python module.
const LOADED: [&str; 2] = ["deepctx-collector", "deepctx-python"];

/// Unused half of zstd's code. Tables are written at its levels 1 to 3, which use the fast strategies. Where it would
/// choose a slower one, as for few bytes at level 3, it takes the nearest fast one. Decompression is unaffected.
const ZSTD_WITHOUT: [&str; 6] = ["GREEDY", "LAZY", "LAZY2", "BTLAZY2", "BTOPT", "BTULTRA"];

/// Optimization of a program.
#[derive(Clone, Copy)]
pub(super) enum Optimization {
    /// Across crates; see `profile.dist` in the workspace's manifest.
    Whole,
    /// None: only checks that a target links, in a fraction of the time.
    None,
}

impl Optimization {
    /// Cargo's profile name and its folder.
    fn profile(self) -> (&'static str, &'static str) {
        match self {
            Self::Whole => ("dist", "dist"),
            Self::None => ("dev", "debug"),
        }
    }
}

/// The build folder of packages.
pub(super) fn folder() -> PathBuf {
    sh::target_dir().join("dist-build")
}

/// Builds the program, the collector and the module.
pub(super) fn build(target: Target, optimization: Optimization) -> Result<Product> {
    let triple = target.triple();
    sh::step(
        &format!("build deepctx-bpf for {triple}"),
        "without other libraries than those of the C library",
    );
    target.install()?;
    let built = |target: Target| folder().join(target.triple()).join(optimization.profile().1);
    let loaded = target.with_glibc();
    if target.is_musl() {
        loaded.install()?;
        sh::run(&mut cargo(target, optimization, &["deepctx-bpf"])?)?;
        sh::run(&mut cargo(loaded, optimization, &LOADED[..1])?)?;
    } else {
        let packages = [&["deepctx-bpf"], &LOADED[..]].concat();
        sh::run(&mut cargo(target, optimization, &packages)?)?;
    }
    Ok(Product {
        target,
        program: built(target).join("deepctx-bpf"),
        collector: built(loaded).join(COLLECTOR),
        module: (!target.is_musl()).then(|| built(loaded).join(module::LIBRARY)),
        linker: TOOLS.join(", "),
    })
}

/// Cargo building packages for a target.
fn cargo(target: Target, optimization: Optimization, packages: &[&str]) -> Result<Command> {
    let tools = tools("dist-tools", TOOLS)?;
    let libraries = libraries(target)?;
    let mut cargo = sh::command("cargo");
    cargo
        .args([
            "zigbuild",
            "--locked",
            "--profile",
            optimization.profile().0,
            "--target",
            &target.zig_triple(),
        ])
        .args(packages.iter().flat_map(|package| ["--package", package]));
    if packages.contains(&"deepctx-bpf") {
        cargo.args(["--features", "deepctx-bpf/static"]);
    }
    if matches!(optimization, Optimization::None) {
        cargo.env("CARGO_PROFILE_DEV_DEBUG", "0").env("CARGO_INCREMENTAL", "0");
    }
    cargo
        .env("CARGO_TARGET_DIR", folder())
        .env("PATH", sh::path_with(&[&tools.join("bin")])?)
        .env("RUSTFLAGS", remapped()?)
        .env(format!("CFLAGS_{}", target.triple().replace('-', "_")), flags_of_c())
        .env("LIBBPF_SYS_EXTRA_CFLAGS", format!("-I{}", libraries.join("usr/include").display()))
        .env("LIBBPF_SYS_LIBRARY_PATH", libraries.join(format!("usr/lib/{}-linux-gnu", target.machine())))
        // Statically linked, from its crate.
        .env("LZMA_API_STATIC", "1")
        .env("SOURCE_DATE_EPOCH", epoch()?);
    Ok(cargo)
}

/// Compiler flags for C code.
fn flags_of_c() -> String {
    ZSTD_WITHOUT.map(|strategy| format!("-DZSTD_EXCLUDE_{strategy}_BLOCK_COMPRESSOR")).join(" ")
}

/// Flags that keep local folder names out of the program: those of this checkout, of crates and of the standard
/// library.
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

/// A folder with the statically linked libraries from their packages.
fn libraries(target: Target) -> Result<PathBuf> {
    let (suite, machine) = (target.libraries(), target.debian_architecture());
    let folder = sh::target_dir().join(format!("dist-libraries-{suite}-{machine}"));
    // The last word changes whenever what is done with them does.
    sh::unless_made(&folder, &format!("{} 2", LIBRARIES.join(" ")), |folder| {
        let apt = Apt::of(&folder.join("apt"), "deb", suite)?.for_machine(machine)?;
        apt.update()?;
        apt.unpack(&LIBRARIES, folder)?;
        if target.is_musl() { without_compressed_files(target, folder) } else { Ok(()) }
    })?;
    Ok(folder)
}

/// Replaces zlib's functions for compressed files: they call functions that only glibc defines. libbpf reads the
/// kernel's configuration with them, which none of our programs asks for.
fn without_compressed_files(target: Target, folder: &Path) -> Result<()> {
    const NONE: &str = "void *gzopen(const char *path, const char *mode) { return 0; }\n\
                        char *gzgets(void *file, char *into, int len) { return 0; }\n\
                        int gzclose(void *file) { return 0; }\n";
    let library = folder.join(format!("usr/lib/{}-linux-gnu/libz.a", target.machine()));
    let objects = ["gzlib.o", "gzread.o", "gzwrite.o", "gzclose.o"];
    sh::output(sh::command("ar").arg("d").arg(&library).args(objects))?;
    let (source, object) = (folder.join("gznone.c"), folder.join("gznone.o"));
    std::fs::write(&source, NONE)?;
    let tools = tools("dist-tools", TOOLS)?;
    let mut compile = Command::new(tools.join("bin/python"));
    compile.args([
        "-m",
        "ziglang",
        "cc",
        "-target",
        &format!("{}-linux-musl", target.machine()),
        "-O2",
        "-c",
    ]);
    sh::output(compile.arg(&source).arg("-o").arg(&object))?;
    sh::output(sh::command("ar").arg("rD").arg(&library).arg(&object)).map(drop)
}

/// A private Python environment with these packages in the target folder.
pub(super) fn tools(name: &str, packages: &[&str]) -> Result<PathBuf> {
    let folder = sh::target_dir().join(name);
    sh::unless_made(&folder, &packages.join(" "), |folder| {
        environment::make_of_wheels(folder, packages).map(drop)
    })?;
    Ok(folder)
}

/// Writes which sources and tools the program was built from.
pub(super) fn provenance(product: &Product, tree: &Tree, needs: &Needs, output: &Path) -> Result<PathBuf> {
    let commit = sh::output(sh::command("git").args(["rev-parse", "HEAD"]))?;
    let changed =
        !sh::output(sh::command("git").args(["status", "--porcelain", "--untracked-files=no"]))?.is_empty();
    let compiler = sh::output(sh::command("rustc").arg("--version"))?;
    let changed = if changed { ", with changes that are not committed" } else { "" };
    let libraries = match needs.glibc {
        Some(glibc) => format!("{}; symbols of glibc up to {glibc}", needs.libraries.join(" ")),
        None => "nothing: musl is linked in".to_owned(),
    };
    let text = format!(
        "program     deepctx-bpf {}\ncommit      {commit}{changed}\ncompiler    {compiler}\nlinked      {}\n\
         needs       {libraries}\ncommand     cargo xtask dist --target {}\n",
        tree.version,
        product.linker,
        product.target.triple(),
    );
    let path = output.join(format!("{}.build.txt", tree.stem));
    std::fs::write(&path, text)?;
    Ok(path)
}
