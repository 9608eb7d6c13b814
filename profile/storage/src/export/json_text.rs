//! JSON in pieces: what the writers of large documents share.
//!
//! Owns: lists and texts that are written as they come. Because: a profile of a million contexts must not be held a
//! second time as a tree of values. Does not: check that the pieces make a document; the formats' tests do.

use std::io::{self, Write};

use serde::Serialize;

/// Writes a list, calling `each` for every item, separated by commas and newlines.
pub(crate) fn list<T>(
    out: &mut dyn Write,
    items: impl IntoIterator<Item = T>,
    mut each: impl FnMut(&mut dyn Write, T) -> io::Result<()>,
) -> io::Result<()> {
    out.write_all(b"[")?;
    for (place, item) in items.into_iter().enumerate() {
        out.write_all(if place == 0 { b"\n" } else { b",\n" })?;
        each(out, item)?;
    }
    out.write_all(b"\n]")
}

/// Writes a value.
pub(crate) fn value(out: &mut dyn Write, value: &(impl Serialize + ?Sized)) -> io::Result<()> {
    serde_json::to_writer(out, value).map_err(io::Error::from)
}

/// Writes `"key":` and a value.
pub(crate) fn field(out: &mut dyn Write, key: &str, of: &(impl Serialize + ?Sized)) -> io::Result<()> {
    value(out, key)?;
    out.write_all(b":")?;
    value(out, of)
}
