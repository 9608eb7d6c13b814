//! CPython built like the standalone builds that installers such as `uv` fetch.
//!
//! Owns: the recipe of such a build, and the files that tests start. Because: optimization at link time and BOLT split,
//! merge and move the functions by which Python frames are found. Does not: run for every change; it takes too long to
//! compile (`cargo xtask test python-optimized`).

use super::compiled::{CPYTHON_3_14, CPYTHON_3_15, Recipe, Sources};
use super::{Interpreters, script};
use crate::{setup, sh};
use anyhow::Result;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The versions that can have a function per opcode.
const VERSIONS: [&Sources; 2] = [&CPYTHON_3_14, &CPYTHON_3_15];

/// The tools of one LLVM release: its profiles and its bitcode work only with each other.
const LLVM: &str = "/usr/lib/llvm-19/bin";

/// Configured like the standalone builds, all in one program, except for the compiler's own profile, which would
/// compile everything again. BOLT has a profile, and splits functions by it.
const OPTIONS: [&str; 3] = ["--with-tail-call-interp", "--with-lto=thin", "--enable-bolt"];

/// No debug information, which `configure` enables with link-time optimization.
const FOR_MAKE: [&str; 1] = ["CFLAGS_NODIST=-g0"];

/// Workload for BOLT's profile: a small part of CPython's own selection, which would take as long as everything else.
const PROFILE_TASK: &str = "-m test --pgo test_collections test_generators test_re test_sort";

/// Build results of `make`, and their names: BOLT starts from the linker's output.
const PROGRAMS: [(&str, &str); 2] = [("python.prebolt", "lto"), ("python", "lto-bolt")];

/// Compiles missing interpreters. Unavailable ones are listed and are no failure.
pub(crate) fn fetch() -> Result<Interpreters> {
    setup::optimized_python()?;
    let folder = super::folder()?;
    let mut found = Interpreters::default();
    for sources in VERSIONS {
        match programs(sources, &folder) {
            Ok(programs) => found.programs.extend(programs),
            Err(error) => found.missing.push(format!("optimized-{}: {error:#}", sources.minor)),
        }
    }
    found.leave_out_broken();
    Ok(found)
}

/// The programs of one version, stripped.
fn programs(sources: &Sources, folder: &Path) -> Result<Vec<PathBuf>> {
    let tool = |name: &str| OsString::from(format!("{LLVM}/{name}"));
    let variables = [
        ("CC", tool("clang")),
        ("CFLAGS", "-g0".into()),
        ("OPT", "-O3 -DNDEBUG".into()),
        ("LDFLAGS", "-fuse-ld=lld".into()),
        ("LLVM_AR", tool("llvm-ar")),
        ("LLVM_BOLT", tool("llvm-bolt")),
        ("MERGE_FDATA", tool("merge-fdata")),
        ("PROFILE_TASK", PROFILE_TASK.into()),
    ];
    let recipe = Recipe {
        kind: "-optimized",
        because: "installers of Python fetch builds like this, which are not published as packages",
        takes: "ten to twenty minutes",
        options: &OPTIONS,
        variables: &variables,
        for_make: &FOR_MAKE,
    };
    let build = sources.compiled(folder, &recipe)?;
    let mut programs = Vec::new();
    for (program, kind) in PROGRAMS {
        // Next to the files by which it finds its library.
        let stripped = build.join(format!("{program}-stripped"));
        if !stripped.exists() {
            let mut strip = Command::new(tool("llvm-strip"));
            sh::output(strip.arg("--strip-all").arg("-o").args([&stripped, &build.join(program)]))?;
        }
        let name = format!("optimized-{}-{kind}", sources.minor);
        let line = format!("exec {} \"$@\"", stripped.display());
        programs.push(script(&folder.join("bin").join(name), &line)?);
    }
    Ok(programs)
}
