//! `cargo xtask tidy`: rules that compilers and lints do not know.
//!
//! Owns: the list of rules. Because: a rule that only stands in a document drifts away from the code.
//! Does not: change a file; it names the file, the line and the rule.

mod dependencies;
mod sources;

use crate::{ebpf, sh};
use anyhow::{Result, bail};

/// Runs every rule and fails when any is broken.
pub(crate) fn run() -> Result<()> {
    let mut broken = Vec::new();
    dependencies::check(&mut broken)?;
    sources::check(&sh::root(), &mut broken);
    licences(&mut broken);
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

/// Both licence texts are there, and the kernel programs say what the kernel asks for.
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
