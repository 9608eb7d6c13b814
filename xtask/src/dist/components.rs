//! The list of components: every linked crate, with version and licence, as CycloneDX.
//!
//! Owns: the format. Because: users who run a program as root want to know its contents, and whether a vulnerable crate
//! affects it. Does not: judge licences; `cargo deny` does.

use super::tree::{NAME, Tree};
use crate::sh;
use anyhow::Result;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Writes the components of the program, including the collector.
pub(super) fn list(tree: &Tree, output: &Path) -> Result<PathBuf> {
    let path = output.join(format!("{}.cdx.json", tree.stem));
    std::fs::write(&path, of_program(&tree.version)?)?;
    Ok(path)
}

/// The components of the program, including the collector.
pub(super) fn of_program(version: &str) -> Result<String> {
    document(NAME, "application", &[NAME, "deepctx-collector"], version)
}

/// The components of some workspace packages, distributed as `name`.
pub(super) fn document(name: &str, kind: &str, packages: &[&str], version: &str) -> Result<String> {
    let mut tree = sh::command("cargo");
    tree.args(["tree", "--locked", "--edges", "normal", "--prefix", "none", "--no-dedupe"]);
    tree.args(packages.iter().flat_map(|package| ["--package", package]));
    let lines = sh::output(tree.args(["--format", "{p}|{l}"]))?;
    let components: BTreeSet<Component> = lines.lines().filter_map(Component::read).collect();
    let components: Vec<Value> = components.iter().map(Component::json).collect();
    let document = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {"type": kind, "name": name, "version": version}},
        "components": components,
    });
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Component {
    name: String,
    version: String,
    licence: String,
    /// One of our own crates.
    own: bool,
}

impl Component {
    /// Parses a line such as `clap v4.6.1|MIT OR Apache-2.0`, or `deepctx-walk v0.1.0 (FOLDER)|…`.
    fn read(line: &str) -> Option<Self> {
        let (package, licence) = line.split_once('|')?;
        let mut words = package.split(' ');
        let (name, version) = (words.next()?, words.next()?.strip_prefix('v')?);
        let own = words.next().is_some_and(|word| word.starts_with("(/"));
        Some(Self { name: name.to_owned(), version: version.to_owned(), licence: licence.to_owned(), own })
    }

    fn json(&self) -> Value {
        let mut component = json!({
            "type": "library",
            "name": self.name,
            "version": self.version,
            "licenses": [{"expression": self.licence.replace('/', " OR ")}],
        });
        if !self.own {
            component["purl"] = Value::from(format!("pkg:cargo/{}@{}", self.name, self.version));
        }
        component
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_of_others_have_a_package_url() {
        let check = |line: &str, expect: &Value| {
            assert_eq!(
                Component::read(line).map(|component| component.json()["purl"].clone()).as_ref(),
                Some(expect)
            );
        };
        check("clap v4.6.1|MIT OR Apache-2.0", &json!("pkg:cargo/clap@4.6.1"));
        check("darling_macro v0.24.1 (proc-macro)|MIT", &json!("pkg:cargo/darling_macro@0.24.1"));
        check("deepctx-walk v0.1.0 (/somewhere/walk)|MIT", &Value::Null);
        assert!(Component::read("").is_none());
    }
}
