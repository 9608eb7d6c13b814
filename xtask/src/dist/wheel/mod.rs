//! Wheels: the program and the Python module, for users who only have `pip`.
//!
//! Owns: the format of a wheel, and the metadata that `pip` reads. Because: people who train models install everything
//! with `pip`, often without root. Does not: compile. `maturin` would compile the module separately, and the shared
//! crates twice; here one run of cargo builds both, for the same C library.

pub(super) mod module;
pub(super) mod program;

use super::epoch;
use super::tree::{Tree, put};
use crate::sh;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};

/// Writes the list of files with checksums, and packs.
const TOOLS: &[&str] = &["wheel==0.48.0", "packaging==26.3"];
/// Included in every wheel.
const LICENCES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];

/// Metadata that `pip` shows.
struct Description<'a> {
    /// Name for `pip install NAME`.
    name: &'a str,
    summary: &'a str,
    /// The oldest supported CPython.
    python: &'a str,
    /// Interpreter, ABI and platform tags.
    tag: String,
    /// Additional lines: classifiers, URLs.
    more: &'a str,
    /// Markdown.
    description: String,
    /// All linked crates, as CycloneDX.
    components: String,
}

impl Description<'_> {
    /// Stem of file and folder names: name and version.
    fn stem(&self, tree: &Tree) -> String {
        format!("{}-{}", self.name.replace('-', "_"), tree.version)
    }

    fn metadata(&self, tree: &Tree) -> String {
        let licences: String = LICENCES.iter().map(|name| format!("License-File: {name}\n")).collect();
        format!(
            "Metadata-Version: 2.4\nName: {}\nVersion: {}\nSummary: {}\n\
             License-Expression: MIT OR Apache-2.0\n{licences}Requires-Python: >={}\n\
             Classifier: Operating System :: POSIX :: Linux\n\
             Classifier: Topic :: Software Development :: Debuggers\n{}\
             Description-Content-Type: text/markdown\n\n{}",
            self.name, tree.version, self.summary, self.python, self.more, self.description
        )
    }
}

/// Adds the metadata to the files in `folder` and packs them.
fn pack(folder: &Path, about: &Description<'_>, tree: &Tree, output: &Path) -> Result<PathBuf> {
    let (stem, tag) = (about.stem(tree), &about.tag);
    let info = folder.join(format!("{stem}.dist-info"));
    put(
        &info.join("WHEEL"),
        &format!("Wheel-Version: 1.0\nGenerator: deepctx-bpf\nRoot-Is-Purelib: false\nTag: {tag}\n"),
    )?;
    put(&info.join("METADATA"), &about.metadata(tree))?;
    for name in LICENCES {
        let text = fs::read_to_string(sh::root().join(name)).context(name)?;
        put(&info.join("licenses").join(name), &text)?;
    }
    put(&info.join("sboms").join(format!("{}.cdx.json", about.name)), &about.components)?;
    let tools = super::build::tools("wheel-tools", TOOLS)?;
    let mut pack = sh::command(tools.join("bin/python"));
    pack.args(["-m", "wheel", "pack"]).arg(folder).arg("--dest-dir").arg(output);
    sh::run(pack.env("SOURCE_DATE_EPOCH", epoch()?))?;
    let path = output.join(format!("{stem}-{tag}.whl"));
    ensure!(path.is_file(), "{} was not made", path.display());
    Ok(path)
}
