//! Which file of a crate uses which: the paths in its code, resolved to the files that define the names.
//!
//! Owns: modules by file, re-exports, cycles. Because: files that use each other in a cycle are one file in several
//! pieces, and nobody can read one of them alone. Does not: expand macros; a path inside one counts if it is written
//! out.
//!
//! A file's use of its parent module (`super::Shared`) does not count as a cycle: the files of a folder build on the
//! declarations of the folder's own file.

use super::syntax;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// One module, that is, one file.
#[derive(Default)]
struct Module {
    /// Path of the file from the root of the checkout.
    file: String,
    /// Paths used outside of `use`.
    paths: Vec<Vec<String>>,
    /// Imports by `use`: local name, path.
    imports: Vec<(String, Vec<String>)>,
    /// Paths of glob imports.
    globs: Vec<Vec<String>>,
}

type ModulePath = Vec<String>;
/// Modules of a crate, by path.
type Crate = BTreeMap<ModulePath, Module>;

/// Maximum depth of followed re-exports.
const REEXPORTS_MAX: usize = 8;

/// Groups of files with cyclic dependencies, sorted; `files` are path and text of all files of one crate.
pub(super) fn circles(folder: &str, files: &[(String, String)]) -> Vec<Vec<String>> {
    let modules: Crate = files
        .iter()
        .filter_map(|(file, text)| Some((module_path(folder, file)?, module(file, text))))
        .collect();
    let edges = modules
        .iter()
        .map(|(path, module)| (module.file.clone(), used(&modules, path, module)))
        .collect::<BTreeMap<_, _>>();
    connected(&edges)
}

/// The module of a file below `src`: `src/a/b.rs` and `src/a/b/mod.rs` are `a::b`.
fn module_path(folder: &str, file: &str) -> Option<ModulePath> {
    let below = file.strip_prefix(folder)?.trim_start_matches('/').strip_prefix("src/")?;
    let stem = Path::new(below).with_extension("");
    let mut path: Vec<String> =
        stem.components().map(|part| part.as_os_str().to_string_lossy().into_owned()).collect();
    if path.last().is_some_and(|last| last == "mod") || path == ["lib"] || path == ["main"] {
        path.pop();
    }
    Some(path)
}

fn module(file: &str, text: &str) -> Module {
    let code = syntax::code_of(text);
    let code = syntax::product_of(&code);
    let mut module = Module { file: file.to_owned(), ..Module::default() };
    let mut rest = String::new();
    for statement in code.split_inclusive(';') {
        // `use` starts a statement, after a bracket, attributes or a visibility.
        match statement.match_indices("use ").find(|(at, _)| opens_statement(&statement[..*at])) {
            Some((at, _)) => {
                rest.push_str(&statement[..at]);
                let tree: String = statement[at + 4..]
                    .trim_end_matches(';')
                    .split_whitespace()
                    .collect::<Vec<_>>()
                    .join(" ");
                tree_into(&tree, &[], &mut module);
            }
            None => rest.push_str(statement),
        }
    }
    module.paths = paths(&rest);
    module
}

fn opens_statement(before: &str) -> bool {
    let mut before = before.trim_end();
    if let Some(open) = before.rfind("pub(").filter(|_| before.ends_with(')')) {
        before = &before[..open];
    }
    let before = before.trim_end().trim_end_matches("pub").trim_end();
    before.is_empty() || before.ends_with(['{', '}', ']'])
}

/// Parses `a::{b as c, d::*}` below the path `base`.
fn tree_into(tree: &str, base: &[String], into: &mut Module) {
    let tree = tree.trim();
    if let Some(open) = tree.find('{') {
        let base = [base, &segments(tree[..open].trim_end_matches(':').trim_end_matches("::"))[..]].concat();
        let inner = tree[open + 1..].strip_suffix('}').unwrap_or(&tree[open + 1..]);
        let (mut depth, mut from) = (0, 0);
        for (at, byte) in inner.bytes().enumerate().chain([(inner.len(), b',')]) {
            match byte {
                b'{' => depth += 1,
                b'}' => depth -= 1,
                b',' if depth == 0 => {
                    if !inner[from..at].trim().is_empty() {
                        tree_into(&inner[from..at], &base, into);
                    }
                    from = at + 1;
                }
                _ => {}
            }
        }
        return;
    }
    let (path, name) = tree.split_once(" as ").map_or((tree, None), |(path, name)| (path, Some(name.trim())));
    let mut path = [base, &segments(path)[..]].concat();
    match path.last().map(String::as_str) {
        Some("*") => {
            path.pop();
            into.globs.push(path);
        }
        Some("self") if path.len() > 1 => {
            path.pop();
            let name = name.map(str::to_owned).or_else(|| path.last().cloned());
            into.imports.extend(name.map(|name| (name, path)));
        }
        Some(last) => into.imports.push((name.unwrap_or(last).to_owned(), path)),
        None => {}
    }
}

fn segments(path: &str) -> Vec<String> {
    path.split("::").map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect()
}

/// All paths with at least two names.
fn paths(code: &str) -> Vec<Vec<String>> {
    let word = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let mut found = BTreeSet::new();
    for piece in code.split(|c| !word(c)).filter(|piece| piece.contains("::")) {
        let path = segments(piece);
        if path.len() > 1 && !piece.starts_with("::") {
            found.insert(path);
        }
    }
    found.into_iter().collect()
}

/// Files whose definitions this module uses.
fn used(modules: &Crate, here: &ModulePath, module: &Module) -> BTreeSet<String> {
    let mut targets = BTreeSet::new();
    let own = |to: &ModulePath| to.len() < here.len() && here.starts_with(to);
    // A module imported by name is used if a path begins with it.
    let items = module.imports.iter().map(|(_, path)| path).chain(&module.paths);
    for path in items {
        let place = resolve(modules, here, path, REEXPORTS_MAX).filter(|place| !own(place.module()));
        if let Some(PathTarget::Item(to)) = place {
            targets.insert(modules[&to].file.clone());
        }
    }
    for glob in &module.globs {
        let place = resolve(modules, here, glob, REEXPORTS_MAX).filter(|place| !own(place.module()));
        if let Some(PathTarget::Module(to) | PathTarget::Item(to)) = place {
            targets.insert(modules[&to].file.clone());
        }
    }
    targets.remove(&module.file);
    targets
}

/// The target of a path.
#[derive(Clone, Debug, PartialEq)]
enum PathTarget {
    Module(ModulePath),
    /// Something that this module defines.
    Item(ModulePath),
}

impl PathTarget {
    fn module(&self) -> &ModulePath {
        match self {
            Self::Module(path) | Self::Item(path) => path,
        }
    }
}

/// Resolves a path in the module `here`; `None` when it leaves the crate.
fn resolve(modules: &Crate, here: &ModulePath, path: &[String], depth: usize) -> Option<PathTarget> {
    let depth = depth.checked_sub(1)?;
    let (first, mut rest) = path.split_first()?;
    let mut at = match first.as_str() {
        "crate" => Vec::new(),
        "self" => here.clone(),
        "super" => here.split_last()?.1.to_vec(),
        name => {
            let child = [&here[..], &[name.to_owned()]].concat();
            if modules.contains_key(&child) {
                child
            } else {
                let (_, import) = modules[here].imports.iter().find(|(known, _)| known == name)?;
                // A self-referencing name belongs to another crate.
                if import.first() == Some(first) {
                    return None;
                }
                match resolve(modules, here, import, depth)? {
                    PathTarget::Module(to) => to,
                    item => return Some(item),
                }
            }
        }
    };
    while let Some((name, behind)) = rest.split_first() {
        rest = behind;
        if name == "super" {
            at.pop()?;
            continue;
        }
        let child = [&at[..], std::slice::from_ref(name)].concat();
        if modules.contains_key(&child) {
            at = child;
            continue;
        }
        return Some(definition(modules, &at, name, depth));
    }
    modules.contains_key(&at).then_some(PathTarget::Module(at))
}

/// Where a name in a module is defined: there, or at the target of its re-export.
fn definition(modules: &Crate, at: &ModulePath, name: &str, depth: usize) -> PathTarget {
    let here = PathTarget::Item(at.clone());
    let Some(module) = modules.get(at).filter(|_| depth > 0) else { return here };
    if let Some((_, path)) = module.imports.iter().find(|(known, _)| known == name) {
        return resolve(modules, at, path, depth).unwrap_or(here);
    }
    here
}

/// Groups of several files that can all reach each other.
fn connected(edges: &BTreeMap<String, BTreeSet<String>>) -> Vec<Vec<String>> {
    let reached = |from: &String| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(file) = open.pop() {
            for next in edges.get(file).into_iter().flatten() {
                if seen.insert(next.clone()) {
                    open.push(next);
                }
            }
        }
        seen
    };
    let all: BTreeMap<&String, BTreeSet<String>> = edges.keys().map(|file| (file, reached(file))).collect();
    let mut groups = BTreeSet::new();
    for (file, reach) in &all {
        let group: Vec<String> = reach
            .iter()
            .filter(|other| all.get(other).is_some_and(|back| back.contains(*file)))
            .cloned()
            .collect();
        if group.len() > 1 {
            groups.insert(group);
        }
    }
    groups.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(files: &[(&str, &str)], expect: &[&[&str]]) {
        let files: Vec<_> =
            files.iter().map(|(name, text)| (format!("c/src/{name}"), (*text).to_owned())).collect();
        let expect: Vec<Vec<String>> =
            expect.iter().map(|group| group.iter().map(|name| format!("c/src/{name}")).collect()).collect();
        assert_eq!(circles("c", &files), expect, "{files:?}");
    }

    #[test]
    fn files_that_use_each_other_are_a_circle() {
        let a = ("a.rs", "use crate::b::B; pub struct A;");
        let root = ("lib.rs", "mod a; mod b;");
        check(&[root, a, ("b.rs", "use super::a::A; pub struct B;")], &[&["a.rs", "b.rs"]]);
        check(&[root, a, ("b.rs", "fn f() { crate::a::A; }")], &[&["a.rs", "b.rs"]]);
        check(&[root, a, ("b.rs", "use crate::{a, x}; fn f() { a::A; }")], &[&["a.rs", "b.rs"]]);
        check(&[root, a, ("b.rs", "// crate::a::A\nfn f() { \"crate::a::A\" }")], &[]);
        check(&[root, a, ("b.rs", "pub struct B;\n#[cfg(test)]\nmod tests {\n use crate::a::A;\n}")], &[]);
    }

    #[test]
    fn a_re_export_leads_to_the_file_that_defines() {
        let lib = ("lib.rs", "mod a; mod b; pub(crate) use a::A; pub use b::B;");
        check(&[lib, ("a.rs", "pub struct A;"), ("b.rs", "use crate::A; pub struct B;")], &[]);
        let lib = ("lib.rs", "mod a; mod b; pub(crate) use a::A; pub use b::B;");
        let expect: &[&[&str]] = &[&["a.rs", "b.rs"]];
        check(
            &[lib, ("a.rs", "use crate::B; pub struct A;"), ("b.rs", "use super::A; pub struct B;")],
            expect,
        );
    }

    #[test]
    fn submodules_may_use_declarations_of_their_parent_file() {
        let own = ("lib.rs", "mod b; use b::{self, B}; pub struct Own;");
        check(&[own, ("b.rs", "use super::Own; pub struct B;")], &[]);
    }
}
