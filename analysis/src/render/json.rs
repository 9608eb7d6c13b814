//! JSON: tables for programs.
//!
//! Owns: [`write()`], [`write_model`]. Because: scripts read it; `docs/formats.md` defines its fields. Does not: choose
//! fields: the values define them.

use std::io::{self, Write};

use serde::Serialize;

use crate::model::{ModelTable, ModelTables};

/// Writes any value of this crate as one document.
///
/// # Errors
/// Those of `out`.
pub fn write(value: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    writeln!(out)?;
    out.flush()
}

/// Writes the requested tables of a model, with their header.
///
/// # Errors
/// Those of `out`.
pub fn write_model(tables: &ModelTables, which: &[ModelTable], out: &mut dyn Write) -> io::Result<()> {
    let mut document = serde_json::to_value(tables)?;
    if let Some(fields) = document.as_object_mut() {
        let left_out = ModelTable::ALL.iter().filter(|table| !which.contains(table));
        left_out.for_each(|table| _ = fields.remove(table.field()));
    }
    write(&document, out)
}
