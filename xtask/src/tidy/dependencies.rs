//! The table of allowed dependencies in ARCHITECTURE.md against cargo's metadata.
//!
//! Owns: reading the table, comparing both ways. Because: the dependencies between crates *are* the architecture; a new
//! edge must be a deliberate edit of the document. Does not: judge versions or licences (see deny.toml).

use crate::sh;
use anyhow::{Context, Result, bail};
use cargo_metadata::{DependencyKind, Metadata, MetadataCommand};
use std::collections::{BTreeMap, BTreeSet};

type Names = BTreeSet<String>;

/// The allowed or actual dependencies of one crate.
#[derive(Debug, Default, PartialEq)]
struct Edges {
    inside: Names,
    outside: Names,
    tests: Names,
}

/// Compares the document with every manifest.
pub(super) fn check(broken: &mut Vec<String>) -> Result<()> {
    let path = sh::root().join("ARCHITECTURE.md");
    let document = std::fs::read_to_string(&path).context("cannot read ARCHITECTURE.md")?;
    let allowed = parse(&document)?;
    let mut actual = BTreeMap::new();
    for manifest in ["Cargo.toml", "ebpf/Cargo.toml"] {
        let manifest = sh::root().join(manifest);
        if manifest.exists() {
            let metadata = MetadataCommand::new().manifest_path(&manifest).no_deps().exec()?;
            collect(&metadata, &mut actual);
        }
    }
    compare(&allowed, &actual, broken);
    Ok(())
}

/// Folder name of a crate, as used in the document.
fn short(name: &str) -> &str {
    name.strip_prefix("deepctx-").unwrap_or(name)
}

fn collect(metadata: &Metadata, into: &mut BTreeMap<String, Edges>) {
    for package in metadata.workspace_packages() {
        let edges = into.entry(short(&package.name).to_owned()).or_default();
        for dependency in &package.dependencies {
            let set = match (dependency.kind, dependency.path.is_some()) {
                (DependencyKind::Development, _) => &mut edges.tests,
                (_, true) => &mut edges.inside,
                (_, false) => &mut edges.outside,
            };
            set.insert(short(&dependency.name).to_owned());
        }
    }
}

/// Parses the rows between the document's two markers.
fn parse(document: &str) -> Result<BTreeMap<String, Edges>> {
    let table = document
        .split_once("<!-- dependencies: begin -->")
        .and_then(|(_, rest)| rest.split_once("<!-- dependencies: end -->"))
        .map(|(table, _)| table)
        .context(
            "ARCHITECTURE.md has no table between the markers `dependencies: begin` and `dependencies: end`",
        )?;
    let mut rows = BTreeMap::new();
    for line in table.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let &[name, inside, outside, tests, _never_sees] = cells.as_slice() else {
            bail!("this row of the dependency table has not five columns: {line}");
        };
        let edges = Edges { inside: names(inside), outside: names(outside), tests: names(tests) };
        rows.insert(name.trim_matches('`').to_owned(), edges);
    }
    Ok(rows)
}

/// The words between backticks.
fn names(cell: &str) -> Names {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Compares in both directions: an edge that is not in the table, and a row without an edge.
fn compare(allowed: &BTreeMap<String, Edges>, actual: &BTreeMap<String, Edges>, broken: &mut Vec<String>) {
    for (name, edges) in actual {
        let Some(row) = allowed.get(name) else {
            broken.push(format!("ARCHITECTURE.md: the crate {name} is not in the dependency table"));
            continue;
        };
        let columns = [
            ("inside", &edges.inside, &row.inside),
            ("outside", &edges.outside, &row.outside),
            ("only in tests", &edges.tests, &row.tests),
        ];
        for (column, used, listed) in columns {
            for extra in used.difference(listed) {
                broken.push(format!(
                    "{name}/Cargo.toml: uses {extra}, which ARCHITECTURE.md does not allow ({column})"
                ));
            }
            for unused in listed.difference(used) {
                broken.push(format!("ARCHITECTURE.md: {name} may use {unused} ({column}), but does not"));
            }
        }
    }
    for name in allowed.keys().filter(|name| !actual.contains_key(*name)) {
        broken.push(format!("ARCHITECTURE.md: the dependency table names {name}, which is no crate"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = "before\n<!-- dependencies: begin -->\n| crate | inside | outside | only in tests | never sees |\n|---|---|---|---|---|\n\
        | `walk` | `common` | – | `proptest` | std |\n<!-- dependencies: end -->\n| `other` | a table |\n";

    fn edges(inside: &[&str], outside: &[&str], tests: &[&str]) -> Edges {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Edges { inside: set(inside), outside: set(outside), tests: set(tests) }
    }

    #[test]
    fn only_the_marked_table_is_read() {
        let rows = parse(DOCUMENT).unwrap();
        assert_eq!(rows, BTreeMap::from([("walk".to_owned(), edges(&["common"], &[], &["proptest"]))]));
        assert!(parse("no table here").is_err());
    }

    #[test]
    fn the_table_and_the_manifests_are_compared_both_ways() {
        let check = |actual: Edges, expect: &[&str]| {
            let mut broken = Vec::new();
            compare(&parse(DOCUMENT).unwrap(), &BTreeMap::from([("walk".to_owned(), actual)]), &mut broken);
            assert_eq!(broken, expect);
        };
        check(edges(&["common"], &[], &["proptest"]), &[]);
        check(
            edges(&["common"], &["libc"], &["proptest"]),
            &["walk/Cargo.toml: uses libc, which ARCHITECTURE.md does not allow (outside)"],
        );
        check(
            edges(&["common"], &[], &[]),
            &["ARCHITECTURE.md: walk may use proptest (only in tests), but does not"],
        );
    }
}
