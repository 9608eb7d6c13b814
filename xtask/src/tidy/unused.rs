//! Dependencies that no code names.
//!
//! Owns: the comparison of manifests with code. Because: everyone who builds compiles all declared dependencies. Does
//! not: check features of a dependency.

use super::tree::Crate;
use anyhow::{Context, Result};
use cargo_metadata::{DependencyKind, MetadataCommand, Package, Target};
use std::collections::BTreeSet;
use std::path::Path;

/// Checks every manifest of the checkout, and the workspace's shared table.
pub(super) fn check(root: &Path, crates: &[Crate], broken: &mut Vec<String>) -> Result<()> {
    let manifest = root.join("Cargo.toml");
    let mut declared = BTreeSet::new();
    for package in packages(&manifest)? {
        declared.extend(package.dependencies.iter().map(|dependency| dependency.name.clone()));
    }
    // Packages with a separate workspace are read one by one.
    let mut checked = BTreeSet::new();
    let manifests = std::iter::once(manifest.clone())
        .chain(crates.iter().map(|one| root.join(&one.folder).join("Cargo.toml")));
    for manifest in manifests {
        if checked.contains(&manifest) {
            continue;
        }
        for package in packages(&manifest)? {
            let folder = name_below(root, package.manifest_path.as_std_path().parent().unwrap_or(root));
            checked.insert(package.manifest_path.clone().into_std_path_buf());
            if let Some(one) = crates.iter().find(|one| one.folder == folder) {
                of_package(root, &package, one, broken);
            }
        }
    }
    let text = std::fs::read_to_string(&manifest).context("cannot read Cargo.toml")?;
    for name in shared(&text).filter(|name| !declared.contains(*name)) {
        broken.push(format!("Cargo.toml: [workspace.dependencies] has {name}, which no crate uses"));
    }
    Ok(())
}

/// The packages of a manifest's workspace.
fn packages(manifest: &Path) -> Result<Vec<Package>> {
    let metadata = MetadataCommand::new().manifest_path(manifest).no_deps().exec()?;
    Ok(metadata.workspace_packages().into_iter().cloned().collect())
}

fn name_below(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).to_string_lossy().into_owned()
}

/// Source folders of libraries and programs, each with a trailing slash. Test sources are included.
fn source_folders(root: &Path, package: &Package) -> Vec<String> {
    let of_tests = |target: &&Target| {
        target.is_test() || target.is_example() || target.is_bench() || target.is_custom_build()
    };
    let targets = package.targets.iter().filter(|target| !of_tests(target));
    let folders = targets.filter_map(|target| target.src_path.as_std_path().parent());
    folders.map(|folder| format!("{}/", name_below(root, folder))).collect()
}

fn of_package(root: &Path, package: &Package, one: &Crate, broken: &mut Vec<String>) {
    let sources = source_folders(root, package);
    let is_product = |name: &str| {
        sources.iter().any(|source| name.starts_with(source.as_str())) && !name.ends_with("tests.rs")
    };
    let product = || one.files.iter().filter(|file| is_product(&file.name));
    for dependency in &package.dependencies {
        let name = dependency.rename.as_ref().unwrap_or(&dependency.name).replace('-', "_");
        let used = match dependency.kind {
            DependencyKind::Build | DependencyKind::Development => {
                one.files.iter().any(|file| names(&file.code, &name))
            }
            _ => product().any(|file| names(file.product(), &name)),
        };
        if !used {
            let kind = if dependency.kind == DependencyKind::Development { "tests" } else { "product" };
            broken.push(format!(
                "{}/Cargo.toml: {} is named by no code of its {kind}",
                one.folder, dependency.name
            ));
        }
    }
}

/// Whether code has a path that starts with this crate.
fn names(code: &str, name: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(name).any(|(at, _)| {
        let (before, behind) = (&code[..at], &code[at + name.len()..]);
        let begins = !before.ends_with(is_word) && (!before.ends_with("::") || before.ends_with(" ::"));
        begins && (behind.starts_with("::") || before.ends_with("use ") && !behind.starts_with(is_word))
    })
}

/// Names in the table `[workspace.dependencies]`.
fn shared(manifest: &str) -> impl Iterator<Item = &str> {
    let table = manifest.split_once("[workspace.dependencies]").map_or("", |(_, rest)| rest);
    let lines = table.lines().take_while(|line| !line.starts_with('['));
    lines.filter_map(|line| Some(line.split_once('=')?.0.trim())).filter(|name| !name.starts_with('#'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_is_named_where_a_path_begins_with_it() {
        let check = |code: &str, expect| assert_eq!(names(code, "libc"), expect, "{code}");
        check("use libc::c_int;", true);
        check("use libc;", true);
        check("unsafe { libc::read() }", true);
        check("::libc::read", false);
        check("let x = ::libc::read", true);
        check("mylibc::read; rustix::libc::x; libc_of()", false);
    }

    #[test]
    fn the_shared_table_ends_with_the_next() {
        let text = "[workspace]\na = 1\n[workspace.dependencies]\nb = \"1\"\n# why = x\nc = { path = \"c\" }\n\n[profile.dev]\nd = 1\n";
        assert_eq!(shared(text).collect::<Vec<_>>(), ["b", "c"]);
    }
}
