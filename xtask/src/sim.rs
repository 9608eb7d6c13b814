//! `cargo xtask sim`: the simulated libraries, linked, and the collector.
//!
//! Owns: which folder has which library, under which soname, with which exports and symbol versions. Because: probes,
//! loaders and runtimes depend on all of these, and one static archive cannot have them. Does not: start programs.
//!
//! `target/sim/cuda12` and `cuda13` are whole installations, `bare` is one without CUPTI, `hip` is AMD's. A program
//! uses one by `LD_LIBRARY_PATH`.

use crate::sh;
use anyhow::{Context, Result, bail};
use object::read::archive::ArchiveFile;
use object::{Object, ObjectSymbol};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// One library.
struct Library {
    soname: &'static str,
    folders: &'static [&'static str],
    /// Prefixes of its function names.
    exports: &'static [&'static str],
    /// Functions that this version lacks.
    lacks: &'static [&'static str],
    /// Symbols have the soname as their version.
    versioned: bool,
}

const LIBRARIES: &[Library] = &[
    Library {
        soname: "libcuda.so.1",
        folders: &["cuda12", "cuda13", "bare"],
        exports: &["cu"],
        lacks: &["cuda", "cupti"],
        versioned: false,
    },
    Library {
        soname: "libcudart.so.12",
        folders: &["cuda12"],
        exports: &["cuda", "__cuda"],
        lacks: &[],
        versioned: true,
    },
    Library {
        soname: "libcudart.so.13",
        folders: &["cuda13", "bare"],
        exports: &["cuda", "__cuda"],
        lacks: &[],
        versioned: true,
    },
    Library {
        soname: "libcupti.so.12",
        folders: &["cuda12"],
        exports: &["cupti"],
        lacks: &[
            "cuptiSubscribe_v2",
            "cuptiGetTimestamp_v2",
            "cuptiActivityEnable_v2",
            "cuptiActivityEnableAndDump_v2",
            "cuptiActivityDisable_v2",
            "cuptiActivityRegisterCallbacks_v2",
            "cuptiActivityGetNextRecord_v2",
            "cuptiActivityGetNumDroppedRecords_v2",
            "cuptiActivitySetAttribute_v2",
        ],
        versioned: true,
    },
    Library {
        soname: "libcupti.so.13",
        folders: &["cuda13"],
        exports: &["cupti"],
        lacks: &[],
        versioned: true,
    },
    Library {
        soname: "libnccl.so.2",
        folders: &["cuda12", "cuda13"],
        exports: &["nccl", "pnccl"],
        lacks: &[],
        versioned: false,
    },
    Library {
        soname: "libamdhip64.so.6",
        folders: &["hip"],
        exports: &["hip", "__hip"],
        lacks: &[],
        versioned: false,
    },
];

/// The output folder.
pub(crate) fn folder() -> PathBuf {
    sh::target_dir().join("sim")
}

/// The collector.
pub(crate) fn collector() -> PathBuf {
    sh::target_dir().join("debug/libdeepctx_collector.so")
}

/// Rebuilds everything older than its sources.
pub(crate) fn run() -> Result<()> {
    sh::run(sh::command("cargo").args(["build", "--locked", "--quiet", "-p", "deepctx-collector"]))?;
    // Functions of the vendors' libraries begin with a push, which makes probes cheap; with frame pointers, so do
    // these. A separate folder, because builds with other flags would always rebuild.
    let builds = folder().join("build");
    let mut cargo = sh::command("cargo");
    cargo.env("RUSTFLAGS", "-C force-frame-pointers=yes").env("CARGO_TARGET_DIR", &builds);
    // Otherwise the measurements would be dominated by a slow simulated device.
    cargo.args(["--config", "profile.dev.package.deepctx-sim.opt-level=3"]);
    sh::run(cargo.args(["build", "--locked", "--quiet", "-p", "deepctx-sim"]))?;
    let archive = builds.join("debug/libdeepctx_sim.a");
    let functions = functions(&archive)?;
    let age = |path: &Path| path.metadata().and_then(|data| data.modified()).ok();
    for library in LIBRARIES {
        for name in library.folders {
            let folder = folder().join(name);
            std::fs::create_dir_all(&folder)?;
            let to = folder.join(library.soname);
            if age(&to) < age(&archive) {
                link(library, &functions, &archive, &to)?;
            }
        }
    }
    eprintln!("    the libraries lie in {}", folder().display());
    Ok(())
}

/// Names of all functions in the archive.
fn functions(archive: &Path) -> Result<BTreeSet<String>> {
    let bytes = std::fs::read(archive).with_context(|| format!("cannot read {}", archive.display()))?;
    let file = ArchiveFile::parse(bytes.as_slice())?;
    let mut names = BTreeSet::new();
    for member in file.members() {
        let Ok(object) = object::File::parse(member?.data(bytes.as_slice())?) else { continue };
        let defined = object.symbols().filter(|symbol| symbol.is_global() && symbol.is_definition());
        names.extend(defined.filter_map(|symbol| symbol.name().ok()).map(str::to_owned));
    }
    Ok(names)
}

fn link(library: &Library, functions: &BTreeSet<String>, archive: &Path, to: &Path) -> Result<()> {
    let begins = |name: &str, list: &[&str]| list.iter().any(|prefix| name.starts_with(prefix));
    let exports: Vec<&str> = functions
        .iter()
        .map(String::as_str)
        .filter(|name| begins(name, library.exports) && !begins(name, library.lacks))
        .collect();
    if exports.is_empty() {
        bail!("the archive has no function for {}", library.soname);
    }
    let version = if library.versioned { library.soname } else { "" };
    let script = to.with_extension("map");
    std::fs::write(&script, format!("{version} {{ global: {}; local: *; }};\n", exports.join("; ")))?;
    let mut linker = sh::command("cc");
    linker.args(["-shared", "-o"]).arg(to).arg(format!("-Wl,-soname,{}", library.soname));
    linker.arg(format!("-Wl,--version-script,{}", script.display()));
    linker.arg("-Wl,--whole-archive").arg(archive).arg("-Wl,--no-whole-archive");
    linker.args([
        "-Wl,--gc-sections",
        "-Wl,-S",
        "-Wl,-z,relro,-z,now",
        "-lgcc_s",
        "-lpthread",
        "-ldl",
        "-lm",
    ]);
    sh::run(&mut linker)?;
    std::fs::remove_file(script)?;
    Ok(())
}
