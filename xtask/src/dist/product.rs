//! The product: a program and its accompanying files, before packing.
//!
//! Owns: which files these are. Because: they are built here or passed in. Does not: build them.

use super::target::Target;
use std::path::{Path, PathBuf};

/// File with the collector.
pub(super) const COLLECTOR: &str = "libdeepctx_collector.so";

/// A program to pack, with what goes along.
pub(super) struct Product {
    pub(super) target: Target,
    pub(super) program: PathBuf,
    pub(super) collector: PathBuf,
    /// The library of the Python module; none for musl, where none of the interpreters that we test with runs.
    pub(super) module: Option<PathBuf>,
    /// What linked it.
    pub(super) linker: String,
}

impl Product {
    /// One that somebody built, with the module's library.
    pub(super) fn given(program: &Path, module: &Path) -> Self {
        Self {
            target: Target::here(),
            program: program.to_owned(),
            collector: program.with_file_name(COLLECTOR),
            module: Some(module.to_owned()),
            linker: "elsewhere".to_owned(),
        }
    }
}
