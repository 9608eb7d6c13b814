//! Readers of exports: other tools, and their results for a file.
//!
//! Owns: finding them, and running PyTorch's validator and the script that gets the totals of each. Because: an export
//! is credible if another tool finds the same. Does not: know the contents of a file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Totals by name.
pub(crate) type Totals = BTreeMap<String, u64>;

/// Folder of the readers, if fetched.
pub(crate) fn validators() -> Option<PathBuf> {
    let found = std::env::var_os("TEST_VALIDATORS").map(PathBuf::from);
    if found.is_none() {
        missing("the readers were not fetched: run `cargo xtask test exports`");
    }
    found
}

/// Skips, or fails if nothing may be missing.
pub(crate) fn missing(because: &str) {
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{because}");
    println!("skipped: {because}");
}

/// Runs a program that must succeed; returns its output.
pub(crate) fn output(command: &mut Command) -> String {
    let said = command.output().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
    let (out, error) = (String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
    assert!(said.status.success(), "{command:?} failed:\n{out}\n{error}");
    out.into_owned()
}

/// Totals as computed by a reader of the format.
pub(crate) fn read(validators: &Path, reader: &str, file: &Path) -> Totals {
    let environment = if reader == "hta" { "traces" } else { "python" };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("validators/totals.py");
    let schema = validators.join("node/node_modules/speedscope/dist/release/file-format-schema.json");
    let mut python = Command::new(validators.join(environment).join("bin/python"));
    python.arg("-W").arg("ignore").arg(script).arg(reader).arg(file);
    if reader == "speedscope" {
        python.arg(schema);
    }
    let said = output(&mut python);
    // Some readers print more; the totals come last.
    serde_json::from_str(said.lines().last().unwrap_or_default()).unwrap()
}

/// A Python with PyTorch; without one, prints the skip.
pub(crate) fn torch_python() -> Option<PathBuf> {
    let found = std::env::var_os("TEST_TORCH_PYTHON").map(PathBuf::from).filter(|python| python.exists());
    if found.is_none() {
        println!("skipped: no Python with torch (cargo xtask test exports installs one)");
    }
    found
}

/// Checks that PyTorch's own validator accepts a trace.
pub(crate) fn torch_accepts(python: &Path, trace: &Path) {
    let check = "import sys\nfrom torch.profiler._trace_validator import validate_trace\n\
                 accepted, violations = validate_trace(sys.argv[1])\n\
                 assert accepted, violations";
    let libraries = std::env::var_os("TEST_TORCH_LIBRARIES").unwrap_or_default();
    let mut python = Command::new(python);
    output(python.env("LD_LIBRARY_PATH", libraries).args(["-W", "ignore", "-c", check]).arg(trace));
}
