//! A folder with everything that the checks need on another machine.
//!
//! Owns: its contents. Because: a machine with a GPU is often available for minutes only, without a compiler, a network
//! or a checkout. Does not: check.
//!
//! ```text
//! xtask   deepctx-bpf   libdeepctx_collector.so   deepctx-gpu-cudarc     FOLDER/xtask gpu-check --product FOLDER/deepctx-bpf
//! ```

use super::rust;
use crate::{setup, sh};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// Name of the product in the folder.
const PRODUCT: &str = "deepctx-bpf";
const COLLECTOR: &str = "libdeepctx_collector.so";

/// Builds the program without libraries that a bare machine may lack, and copies it and this program into the folder.
pub(super) fn make(folder: &Path, product: Option<&Path>) -> Result<()> {
    let product = match product {
        Some(product) => product.to_owned(),
        None => built()?,
    };
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let ours = sh::own_program()?.to_owned();
    let files = [
        (ours, "xtask"),
        (product.with_file_name(COLLECTOR), COLLECTOR),
        (product, PRODUCT),
        (rust::built()?, rust::PROGRAM),
    ];
    for (from, name) in files {
        let to = folder.join(name);
        // Without debug sections, they are a third as large.
        sh::run(sh::command("strip").arg("-o").arg(std::path::absolute(&to)?).arg(from))?;
    }
    println!("there: {0}/xtask gpu-check --product {0}/{PRODUCT} --keep RESULTS", folder.display());
    Ok(())
}

fn built() -> Result<PathBuf> {
    setup::run(&setup::Options { yes: true, tests: false })?;
    sh::step("build deepctx-bpf for another machine", "it must need no library but the C library");
    let words = ["build", "--locked", "--quiet", "--release"];
    let mut cargo = sh::command("cargo");
    cargo.args(words).args(["--package", "deepctx-bpf", "--features", "static"]);
    // libelf and zlib from the system's static libraries; xz from its crate.
    let libraries = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"];
    sh::run(cargo.env("LIBBPF_SYS_LIBRARY_PATH", libraries.join(":")).env("LZMA_API_STATIC", "1"))?;
    sh::run(sh::command("cargo").args(words).args(["--package", "deepctx-collector"]))?;
    Ok(sh::target_dir().join("release").join(PRODUCT))
}
