//! JSON: tables for programs.
//!
//! Owns: [`write()`]. Because: scripts read it; what its fields mean is stated in `docs/formats.md`. Does not: choose
//! fields: the values say which they have.

use std::io::{self, Write};

use serde::Serialize;

/// Writes any value of this crate as one document.
///
/// # Errors
/// Those of `out`.
pub fn write(value: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    writeln!(out)?;
    out.flush()
}
