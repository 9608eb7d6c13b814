//! The product: a program and its accompanying files, before packing.
//!
//! Owns: which files these are. Because: they are built here or passed in. Does not: build them.

use super::target::Target;
use std::path::{Path, PathBuf};

/// File name of the collector.
pub(super) const COLLECTOR: &str = "libdeepctx_collector.so";

/// A program to pack, with its libraries.
pub(super) struct Product {
    pub(super) target: Target,
    pub(super) program: PathBuf,
    pub(super) collector: PathBuf,
    /// The library of the Python module; `None` for musl, where our test interpreters do not run.
    pub(super) module: Option<PathBuf>,
    /// The linker used.
    pub(super) linker: String,
}

impl Product {
    /// A given build, with the module's library.
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
