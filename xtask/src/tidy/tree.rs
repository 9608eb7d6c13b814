//! The sources of a checkout by crate.
//!
//! Owns: which file belongs to which crate, and what is product rather than test. Because: rules and figures must cover
//! the same files. Does not: judge them.

use super::syntax;
use crate::sh;
use std::collections::BTreeMap;
use std::path::Path;

/// A Rust file.
pub(super) struct File {
    /// Path from the root of the checkout.
    pub(super) name: String,
    pub(super) text: String,
    /// Its text without comments and strings.
    pub(super) code: String,
}

/// A crate: its folder from the root of the checkout, and its files.
pub(super) struct Crate {
    pub(super) folder: String,
    pub(super) files: Vec<File>,
}

impl File {
    /// True for test-only files.
    pub(super) fn is_test(&self) -> bool {
        is_test(&self.name)
    }

    /// Code without unit tests.
    pub(super) fn product(&self) -> &str {
        syntax::product_of(&self.code)
    }

    /// The file's header comment, as one line.
    pub(super) fn header(&self) -> String {
        let lines = self.text.lines().map_while(|line| line.strip_prefix("//!"));
        lines.map(str::trim).collect::<Vec<_>>().join(" ")
    }
}

impl Crate {
    /// True for test-only crates.
    pub(super) fn is_of_tests(&self) -> bool {
        self.folder.starts_with("tests")
    }

    /// Files of the product.
    pub(super) fn product(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| !file.is_test())
    }
}

/// Recognizes tests by path: test folders, and the test parts of modules.
pub(super) fn is_test(name: &str) -> bool {
    let part = |part: &str| name.starts_with(&format!("{part}/")) || name.contains(&format!("/{part}/"));
    name.ends_with("/tests.rs")
        || name.ends_with("_tests.rs")
        || part("tests")
        || part("examples")
        || part("benches")
}

/// All crates below `root`, ordered by folder.
pub(super) fn crates(root: &Path) -> Vec<Crate> {
    let name_of = |path: &Path| path.strip_prefix(root).unwrap_or(path).to_string_lossy().into_owned();
    let manifests = sh::files_below(root, "Cargo.toml");
    let is_package = |path: &&std::path::PathBuf| {
        std::fs::read_to_string(path).is_ok_and(|text| text.lines().any(|line| line.trim() == "[package]"))
    };
    let folders = manifests.iter().filter(is_package).filter_map(|path| path.parent()).map(name_of);
    let mut crates: BTreeMap<String, Vec<File>> = folders.map(|folder| (folder, Vec::new())).collect();
    for path in sh::files_below(root, ".rs") {
        let name = name_of(&path);
        let inside = |folder: &&String| name.starts_with(&format!("{folder}/"));
        let Some(folder) = crates.keys().filter(inside).max_by_key(|folder| folder.len()).cloned() else {
            continue;
        };
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        let code = syntax::code_of(&text);
        crates.entry(folder).or_default().push(File { name, text, code });
    }
    crates.into_iter().map(|(folder, files)| Crate { folder, files }).collect()
}
