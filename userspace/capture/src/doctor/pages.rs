//! Pages: the documentation that a package installs, by the paths that hints name.
//!
//! Owns: finding it beside the program. Because: a hint such as `docs/probes.md` leads whoever installed a package
//! nowhere, since that is a path in the repository. Does not: open a page.

use std::path::{Path, PathBuf};

/// Start of a page's path in the repository.
const PREFIX: &str = "docs/";
/// End of a page's path.
const SUFFIX: &str = ".md";

/// The text, with the installed path of each page that it names. Without a package it stays as it is.
pub fn with_installed_pages(text: &str) -> String {
    match installed(std::env::current_exe().ok().as_deref()) {
        Some(folder) => with_pages_of(text, &folder),
        None => text.to_owned(),
    }
}

/// The folder that holds `docs`, beside the program: `bin/../share/doc/deepctx-bpf`.
fn installed(program: Option<&Path>) -> Option<PathBuf> {
    let folder = program?.parent()?.parent()?.join("share/doc/deepctx-bpf");
    folder.join(PREFIX).is_dir().then_some(folder)
}

fn with_pages_of(text: &str, folder: &Path) -> String {
    let mut with_pages = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(PREFIX) {
        let (before, page) = rest.split_at(at);
        with_pages.push_str(before);
        let name_len = page[PREFIX.len()..].find(|c: char| c != '-' && !c.is_ascii_lowercase());
        let end = PREFIX.len() + name_len.unwrap_or(page.len() - PREFIX.len());
        // The end of an absolute path is no path of the repository.
        let is_page =
            page[end..].starts_with(SUFFIX) && !before.ends_with(|c: char| c == '/' || c.is_alphanumeric());
        if is_page {
            with_pages.push_str(&folder.join(&page[..end]).to_string_lossy());
        } else {
            with_pages.push_str(&page[..end]);
        }
        rest = &page[end..];
    }
    with_pages + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_named_where_a_package_installed_them() {
        let check = |text: &str, expect: &str| {
            assert_eq!(with_pages_of(text, Path::new("/usr/share/doc/deepctx-bpf")), expect);
        };
        check("", "");
        check("no page", "no page");
        check("see docs/findings.md", "see /usr/share/doc/deepctx-bpf/docs/findings.md");
        check(
            "docs/a.md lists, (docs/without-root.md)",
            "/usr/share/doc/deepctx-bpf/docs/a.md lists, (/usr/share/doc/deepctx-bpf/docs/without-root.md)",
        );
        // Named before, or something else.
        check("/usr/share/doc/x/docs/findings.md", "/usr/share/doc/x/docs/findings.md");
        check("mydocs/findings.md docs/ docs/é.md docs", "mydocs/findings.md docs/ docs/é.md docs");
    }

    #[test]
    fn only_a_package_has_installed_pages() {
        let package = tempfile::tempdir().unwrap();
        let program = package.path().join("bin/deepctx-bpf");
        assert_eq!(installed(Some(&program)), None);
        assert_eq!(installed(None), None);
        let folder = package.path().join("share/doc/deepctx-bpf");
        std::fs::create_dir_all(folder.join("docs")).unwrap();
        assert_eq!(installed(Some(&program)), Some(folder));
    }
}
