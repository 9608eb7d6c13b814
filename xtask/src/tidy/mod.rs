//! `cargo xtask tidy`: rules that compilers and lints do not check.
//!
//! Owns: the list of rules. Because: code drifts away from a rule that is only written down. Does not: change a file,
//! except tables generated from the sources (`--write`); it names the file, the line and the rule.

mod declarations;
mod dependencies;
mod figures;
mod modules;
mod pages;
mod prose;
mod reasons;
mod shape;
mod sources;
mod syntax;
mod tree;
mod unused;

use crate::{ebpf, sh};
use anyhow::{Result, bail};
use std::path::PathBuf;

/// Options of `cargo xtask tidy`.
#[derive(clap::Args, Default)]
pub(crate) struct Options {
    /// Print counts instead: lines and files by crate, long functions, circles of files, words of the old vocabulary.
    #[arg(long)]
    figures: bool,
    /// List each place that is counted: long functions, words, names and files of the old vocabulary.
    #[arg(long, requires = "figures")]
    list: bool,
    /// Write what is made from the sources anew: the tables of reasons in docs, and the one in the profile crate.
    #[arg(long, conflicts_with = "figures")]
    write: bool,
    /// Count in this checkout instead of the one that this program was built in.
    #[arg(long, value_name = "FOLDER", requires = "figures")]
    root: Option<PathBuf>,
    /// Show the counts of this checkout beside them.
    #[arg(long, value_name = "FOLDER", requires = "figures")]
    before: Option<PathBuf>,
}

/// Runs every rule and fails when any is broken.
pub(crate) fn run(options: &Options) -> Result<()> {
    let root = sh::root();
    if options.figures {
        let root = options.root.as_deref().unwrap_or(&root);
        figures::print(root, options.before.as_ref(), options.list);
        return Ok(());
    }
    let mut broken = Vec::new();
    let crates = tree::crates(&root);
    dependencies::check(&mut broken)?;
    unused::check(&root, &crates, &mut broken)?;
    shape::check(&crates, &mut broken);
    prose::check(&root, &crates, &mut broken);
    pages::check(&root, &mut broken);
    reasons::check(&root, &crates, options.write, &mut broken)?;
    sources::check(&root, &mut broken);
    figures::check(&root, &mut broken);
    licences(&mut broken);
    objects(&mut broken);
    if let Err(error) = ebpf::sources_match() {
        broken.push(format!("ebpf/prebuilt: {error:#}"));
    }
    for line in &broken {
        eprintln!("{line}");
    }
    if broken.is_empty() {
        return Ok(());
    }
    bail!("{} broken rules", broken.len())
}

/// The committed objects must not contain a folder name of the build machine.
fn objects(broken: &mut Vec<String>) {
    for path in sh::files_below(&sh::root().join("ebpf/prebuilt"), ".o") {
        let bytes = std::fs::read(&path).unwrap_or_default();
        if let Some(place) = ebpf::place_of_this_machine(&bytes) {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            broken.push(format!("ebpf/prebuilt/{name}: names {place}, a place of the machine that built it"));
        }
    }
}

/// Both licence texts must exist, and the kernel programs must declare the licence that the kernel requires.
fn licences(broken: &mut Vec<String>) {
    for (file, must) in [("LICENSE-MIT", "MIT License"), ("LICENSE-APACHE", "Apache License")] {
        let text = std::fs::read_to_string(sh::root().join(file)).unwrap_or_default();
        if !text.contains(must) {
            broken.push(format!("{file}: does not hold the {must}"));
        }
    }
    let programs = sh::files_below(&sh::root().join("ebpf/src"), ".rs");
    let stated = |path: &std::path::PathBuf| {
        std::fs::read_to_string(path).is_ok_and(|text| text.contains("Dual MIT/GPL"))
    };
    if !programs.iter().any(stated) {
        broken.push(
            "ebpf/src: no licence \"Dual MIT/GPL\", without which the kernel refuses most helpers".to_owned(),
        );
    }
}
