//! The tree: the contents of every package, in standard folders.
//!
//! ```text
//! bin/deepctx-bpf
//! lib/deepctx-bpf/libdeepctx_collector.so        found from bin by ../lib/deepctx-bpf
//! share/man/man1/*.1.gz
//! share/{bash-completion,fish,zsh}/…
//! share/doc/deepctx-bpf/…, with the pages that hints name in docs/
//! ```
//!
//! Owns: these names. Because: three package formats must have the same contents. Does not: pack it.

use super::needs::Needs;
use super::product::Product;
use crate::sh;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Name of the program and of its folders.
pub(super) const NAME: &str = "deepctx-bpf";
/// Loaded by NVIDIA's driver; must be where the program looks for it.
pub(super) const COLLECTOR: &str = "lib/deepctx-bpf/libdeepctx_collector.so";
/// The program.
pub(super) const PROGRAM: &str = "bin/deepctx-bpf";

/// Shells with the folders of their completions.
const SHELLS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/deepctx-bpf"),
    ("fish", "share/fish/vendor_completions.d/deepctx-bpf.fish"),
    ("zsh", "share/zsh/vendor-completions/_deepctx-bpf"),
];
/// Included documents, with the folder [`PAGES`].
const DOCUMENTS: [&str; 5] = ["README.md", "CHANGELOG.md", "SECURITY.md", "LICENSE-APACHE", "LICENSE-MIT"];

/// Folder of the pages to which hints and the README lead; the program looks for it beside itself.
pub(super) const PAGES: &str = "docs";

/// The files of all packages.
pub(super) struct Tree {
    /// The folder.
    pub(super) root: PathBuf,
    /// The library of the Python module, included only in its own wheel; `None` for musl.
    pub(super) module: Option<PathBuf>,
    /// A folder with the debug information of programs and libraries.
    pub(super) debug: PathBuf,
    pub(super) version: String,
    /// Stem of package names: program, version, machine.
    pub(super) stem: String,
}

impl Tree {
    /// Creates it below `folder`.
    pub(super) fn make(product: &Product, needs: &Needs, folder: &Path) -> Result<Self> {
        let (root, debug) = (folder.join("tree"), folder.join("debug"));
        let tools = Binutils::of(needs.machine);
        tools.split(&product.program, &root.join(PROGRAM), &debug, 0o755)?;
        tools.split(&product.collector, &root.join(COLLECTOR), &debug, 0o644)?;
        let module = product.module.as_ref().map(|library| {
            let module = folder.join("module").join(crate::module::LIBRARY);
            tools.split(library, &module, &debug, 0o644).map(|()| module)
        });
        let module = module.transpose()?;
        let ask = |arguments: &[&str]| sh::output(product.target.command(&product.program).args(arguments));
        let version = ask(&["--version"])?;
        let version = version.strip_prefix("deepctx-bpf ").context("it does not say its version")?.to_owned();
        for (shell, place) in SHELLS {
            put(&root.join(place), &(ask(&["completions", shell])? + "\n"))?;
        }
        let pages: BTreeMap<String, String> = serde_json::from_str(&ask(&["manual-pages"])?)?;
        for (name, text) in pages {
            let page = root.join("share/man/man1").join(name);
            put(&page, &text)?;
            compress(&page)?;
        }
        for name in DOCUMENTS {
            put(&root.join("share/doc").join(NAME).join(name), &fs::read_to_string(sh::root().join(name))?)?;
        }
        copy_pages(&root.join("share/doc").join(NAME))?;
        prune_links(&root.join("share/doc").join(NAME))?;
        let musl = if product.target.is_musl() { "-musl" } else { "" };
        let stem = format!("{NAME}-{version}-{}-linux{musl}", needs.machine);
        Ok(Self { root, module, debug, version, stem })
    }
}

/// Copies the pages with their pictures and examples.
fn copy_pages(documents: &Path) -> Result<()> {
    let from = sh::root().join(PAGES);
    for page in sh::files_below(&from, "") {
        put(&documents.join(PAGES).join(page.strip_prefix(&from)?), &fs::read_to_string(&page)?)?;
    }
    Ok(())
}

/// Makes plain text of those links of the README that lead to files which its folder does not have.
pub(super) fn prune_links(documents: &Path) -> Result<()> {
    let readme = documents.join("README.md");
    let text = fs::read_to_string(&readme)?;
    put(&readme, &without_dead_links(&text, |file| documents.join(file).exists()))
}

/// A text in Markdown with only those links to files for which `exists` is true; of the others, their words remain.
fn without_dead_links(text: &str, exists: impl Fn(&str) -> bool) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut left = text;
    while let Some((before, after)) = left.split_once("](") {
        let Some((target, rest)) = after.split_once(')') else { break };
        let file = target.split('#').next().unwrap_or_default();
        let leads = file.is_empty() || file.contains("://") || exists(file);
        match before.rsplit_once('[') {
            Some((before, words)) if !leads => kept.extend([before, words]),
            _ => kept.extend([before, "](", target, ")"]),
        }
        left = rest;
    }
    kept.push_str(left);
    kept
}

/// Writes a world-readable file and its parent folders.
pub(super) fn put(path: &Path, text: &str) -> Result<()> {
    fs::create_dir_all(path.parent().context("a file without a folder")?)?;
    fs::write(path, text)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o644))?;
    Ok(())
}

/// Replaces a file by its compressed form, without its name and time.
pub(super) fn compress(path: &Path) -> Result<()> {
    sh::output(sh::command("gzip").args(["-9", "--no-name"]).arg(path)).map(drop)
}

/// Programs that process ELF files of a machine.
struct Binutils {
    prefix: &'static str,
}

impl Binutils {
    fn of(machine: &str) -> Self {
        let foreign = machine != std::env::consts::ARCH;
        Self { prefix: if foreign && machine == "aarch64" { "aarch64-linux-gnu-" } else { "" } }
    }

    /// Copies a program to `to` and its debug information into a folder, linked with each other.
    fn split(&self, from: &Path, to: &Path, debug: &Path, mode: u32) -> Result<()> {
        let name = from.file_name().context("a program without a name")?;
        let debug_file = debug.join(format!("{}.debug", name.to_string_lossy()));
        for folder in [Some(debug), to.parent()].into_iter().flatten() {
            fs::create_dir_all(folder)?;
        }
        let from = std::path::absolute(from)?;
        let objcopy = || sh::command(format!("{}objcopy", self.prefix));
        sh::output(objcopy().arg("--only-keep-debug").arg(&from).arg(&debug_file))?;
        sh::output(sh::command(format!("{}strip", self.prefix)).arg("-o").arg(to).arg(&from))?;
        sh::output(objcopy().arg("--add-gnu-debuglink").arg(&debug_file).arg(to))?;
        fs::set_permissions(&debug_file, fs::Permissions::from_mode(0o644))?;
        fs::set_permissions(to, fs::Permissions::from_mode(mode))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_to_absent_files_become_their_words() {
        let check = |text: &str, expect: &str| {
            assert_eq!(without_dead_links(text, |file| file == "docs/gpu.md"), expect);
        };
        check("[A](A.md) says, [B](docs/gpu.md#b) too.", "A says, [B](docs/gpu.md#b) too.");
        let leads = "see [this](#below), [rustup](https://rustup.rs)";
        check(leads, leads);
        check("[no end](A.md", "[no end](A.md");
        check("", "");
    }
}
