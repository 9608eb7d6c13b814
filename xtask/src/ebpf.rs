//! `cargo xtask ebpf`: builds the committed objects from the kernel programs' sources, one for each machine.
//!
//! Owns: the build, the prebuilt objects and their hashes. Because: users must build with plain cargo, so the objects
//! are committed, and they must provably come from these sources. Does not: load anything.

use crate::{btf, sh, strip, toolchain};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

const TARGET: &str = "bpfel-unknown-none";
/// Machines that an object is built for, by rustc's names. The instruction set is the same; kernel structures and
/// thread registers differ.
const ARCHES: [&str; 2] = ["x86_64", "aarch64"];
/// All sources of the object, relative to the root of the checkout.
const SOURCES: &[&str] = &[
    "common/src",
    "walk/src",
    "ebpf/src",
    "ebpf/build.rs",
    "ebpf/Cargo.toml",
    "ebpf/Cargo.lock",
    "ebpf/.cargo/config.toml",
];

/// Options of `cargo xtask ebpf`.
#[derive(clap::Args, Default)]
pub(crate) struct Options {
    /// Build again and compare with the committed objects instead of replacing them.
    #[arg(long)]
    pub(crate) check: bool,
}

/// Runs the chore.
pub(crate) fn run(options: &Options) -> Result<()> {
    toolchain::install_rust_src()?;
    let linker = toolchain::install_linker()?;
    for arch in ARCHES {
        let object = build(&linker, arch)?;
        let hash = sha256(&object)?;
        let prebuilt = PrebuiltObject::of(arch);
        if options.check {
            prebuilt.compare(&object, &hash)?;
            continue;
        }
        prebuilt.write(&object, &hash)?;
        eprintln!("==> {} ({} bytes, sha256 {})", prebuilt.object.display(), object.len(), &hash[..16]);
    }
    Ok(())
}

/// Why `--check` cannot compare: the committed objects are from another compiler. `None` when it can.
pub(crate) fn no_check_because() -> Option<String> {
    let here = toolchain::compiler().unwrap_or_default();
    ARCHES.into_iter().find_map(|arch| {
        let recorded = std::fs::read_to_string(PrebuiltObject::of(arch).sources).unwrap_or_default();
        let there = recorded.lines().nth(1).unwrap_or_default();
        (here != there).then(|| format!("the object of {arch} was built by {there}, here is {here}"))
    })
}

/// Compares the sources with those of the committed objects; needs no toolchain.
pub(crate) fn sources_match() -> Result<()> {
    if !sh::root().join("ebpf/Cargo.toml").exists() {
        bail!("ebpf/Cargo.toml is missing");
    }
    let now = source_hash()?;
    for arch in ARCHES {
        let prebuilt = PrebuiltObject::of(arch);
        let recorded = std::fs::read_to_string(&prebuilt.sources)
            .with_context(|| format!("cannot read {}", prebuilt.sources.display()))?;
        if recorded.lines().next() != Some(&now) {
            bail!(
                "the sources of the kernel programs changed since the committed object of {arch} was built\nhint: cargo xtask ebpf"
            );
        }
    }
    Ok(())
}

/// The committed files of one machine.
struct PrebuiltObject {
    object: PathBuf,
    hash: PathBuf,
    sources: PathBuf,
}

impl PrebuiltObject {
    fn of(arch: &str) -> Self {
        let stem = format!("deepctx-{arch}.bpf.o");
        let folder = sh::root().join("ebpf/prebuilt");
        let file = |suffix: &str| folder.join(format!("{stem}{suffix}"));
        Self { object: file(""), hash: file(".sha256"), sources: file(".sources.sha256") }
    }

    fn write(&self, object: &[u8], hash: &str) -> Result<()> {
        let folder = self.object.parent().context("the object lies in a folder")?;
        std::fs::create_dir_all(folder)?;
        let name = self.object.file_name().context("the object has a name")?.to_string_lossy();
        std::fs::write(&self.object, object)?;
        std::fs::write(&self.hash, format!("{hash}  {name}\n"))?;
        // The bytes depend on the compiler too, so only the same compiler can check them.
        std::fs::write(&self.sources, format!("{}\n{}\n", source_hash()?, toolchain::compiler()?))?;
        Ok(())
    }

    fn compare(&self, object: &[u8], hash: &str) -> Result<()> {
        let committed =
            std::fs::read(&self.object).with_context(|| format!("cannot read {}", self.object.display()))?;
        let recorded = std::fs::read_to_string(&self.hash)
            .with_context(|| format!("cannot read {}", self.hash.display()))?;
        if !recorded.starts_with(&sha256(&committed)?) {
            bail!(
                "{} is not the object that its .sha256 describes\nhint: cargo xtask ebpf",
                self.object.display()
            );
        }
        if committed == object {
            let name = self.object.file_name().unwrap_or_default().display();
            eprintln!("==> {name} is what these sources give (sha256 {})", &hash[..16]);
            return Ok(());
        }
        let fresh = sh::target_dir().join("fresh.bpf.o");
        std::fs::write(&fresh, object)?;
        bail!(
            "{} differs from what these sources give; the fresh one is in {}\nhint: cargo xtask ebpf",
            self.object.display(),
            fresh.display()
        )
    }
}

/// Builds the object of one machine in its own workspace and strips it.
fn build(linker: &Path, arch: &str) -> Result<Vec<u8>> {
    sh::step(
        &format!("build the kernel programs for {arch}"),
        "the object must be the one that these sources give",
    );
    let folder = sh::root().join("ebpf");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let beside = linker.parent().map(Path::to_owned);
    let path = std::env::join_paths(beside.into_iter().chain(std::env::split_paths(&path)))?;
    let mut cargo = sh::command("cargo");
    cargo
        .current_dir(&folder)
        .args(["build", "--release", "--locked", "--message-format=json-render-diagnostics"])
        // The nightly options (building `core`, trimming paths) are needed on the stable compiler.
        .env("RUSTC_BOOTSTRAP", "1")
        .args(["-Ztrim-paths", "--config", "profile.release.trim-paths=\"all\""])
        // Also read by aya-ebpf's build script, which would otherwise assume the host.
        .arg("--config")
        .arg(format!(r#"target.{TARGET}.rustflags=["--cfg", 'bpf_target_arch="{arch}"']"#))
        // One folder for both: host code, such as macros, is the same.
        .env("CARGO_TARGET_DIR", sh::target_dir().join("ebpf"))
        .env("PATH", path)
        // An incremental build splits the code differently: the object would depend on who builds it.
        .env("CARGO_INCREMENTAL", "0")
        // The surrounding cargo's flags and wrappers are for the host, not for the kernel.
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("RUSTUP_TOOLCHAIN")
        .stderr(std::process::Stdio::inherit());
    eprintln!("  $ cd ebpf && RUSTC_BOOTSTRAP=1 {}", sh::words(&cargo));
    let said = cargo.output().context("cannot start cargo")?;
    if !said.status.success() {
        bail!("the kernel programs do not build");
    }
    let linked = String::from_utf8_lossy(&said.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["reason"] == "compiler-artifact")
        .filter_map(|message| message["executable"].as_str().map(PathBuf::from))
        .next_back()
        .with_context(|| format!("cargo named no program for {TARGET}"))?;
    let object = std::fs::read(&linked).with_context(|| format!("cannot read {}", linked.display()))?;
    let stripped = strip::strip(&object)?;
    btf::check(&stripped)?;
    if let Some(place) = place_of_this_machine(&stripped) {
        bail!("the object names {place}, a place of this machine, so it cannot be reproduced elsewhere");
    }
    Ok(stripped)
}

/// A local path in an object: a home folder, a cargo registry, or this checkout.
pub(crate) fn place_of_this_machine(object: &[u8]) -> Option<String> {
    if let Some(folder) = object.split(|byte| *byte == 0).find_map(btf::registry) {
        return Some(String::from_utf8_lossy(folder).into_owned());
    }
    let known = ["/.cargo/", "/registry/", "/root/", "/home/", "/.rustup/"].map(str::to_owned);
    let folders = [Some(sh::root()), toolchain::sysroot().ok(), cargo_home()].into_iter().flatten();
    let folders = folders.map(|folder| folder.to_string_lossy().into_owned());
    known.into_iter().chain(folders).find(|place| {
        !place.is_empty() && object.windows(place.len()).any(|window| window == place.as_bytes())
    })
}

fn cargo_home() -> Option<PathBuf> {
    let own = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    own.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")))
}

/// Hash of the names and contents of all [`SOURCES`].
fn source_hash() -> Result<String> {
    let root = sh::root();
    let mut all = Vec::new();
    for source in SOURCES {
        let path = root.join(source);
        let files = if path.is_dir() { sh::files_below(&path, "") } else { vec![path] };
        for file in files.into_iter().filter(|file| file.exists()) {
            all.extend_from_slice(file.strip_prefix(&root)?.as_os_str().as_encoded_bytes());
            all.push(0);
            all.extend_from_slice(&std::fs::read(&file)?);
            all.push(0);
        }
    }
    sha256(&all)
}

/// SHA-256 in hexadecimal, by a program that every Linux machine has.
fn sha256(bytes: &[u8]) -> Result<String> {
    use std::io::Write;
    use std::process::Stdio;
    let mut child = Command::new("sha256sum")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start sha256sum")?;
    child.stdin.take().context("sha256sum has a standard input")?.write_all(bytes)?;
    let said = child.wait_with_output()?;
    let text = String::from_utf8(said.stdout)?;
    match text.split_whitespace().next() {
        Some(hash) if hash.len() == 64 => Ok(hash.to_owned()),
        _ => bail!("sha256sum said {text:?}"),
    }
}
