//! Why the frames of some code cannot be walked in the kernel.
//!
//! Owns: [`NoExecutable`]. Because: files and code that was generated at run time have the same answers. Does not: look for
//! tables.

use deepctx_symbolizer::NoSymbol;
use deepctx_symbolizer::unwind_rows::NoTable;

/// Why an executable has no table.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum NoExecutable {
    /// Its file cannot be read.
    #[error("{}", .0.sentence())]
    File(NoSymbol),
    /// It has no usable call frame information.
    #[error("{0}")]
    Table(NoTable),
    /// It was generated at run time, and nothing beside it says how to unwind it.
    #[error("generated code without call frame information")]
    Generated,
    /// There was no room for its table.
    #[error("{0}")]
    Room(String),
}
