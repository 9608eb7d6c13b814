//! Why something has no place in the kernel's tables.
//!
//! Owns: [`TableError`]. Because: rows of unwind tables and what refers to them are kept by two files, and fail
//! alike. Does not: place anything.

use std::io;

use super::load::LoadError;

/// Why something could not be placed.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// One of the bounded stores is full.
    #[error("no room for {what}: {used} of {limit} in use")]
    Full {
        /// What there is no room for.
        what: &'static str,
        /// In use.
        used: u32,
        /// The bound.
        limit: u32,
    },
    /// A map could not be created, mapped or updated.
    #[error("kernel map {map}: {source}")]
    Map {
        /// The map.
        map: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// A map is missing from the object.
    #[error(transparent)]
    Load(#[from] LoadError),
}

/// An error of the library about a map, with the map.
pub(super) fn map_error(map: &'static str) -> impl FnOnce(libbpf_rs::Error) -> TableError {
    move |e| TableError::Map { map, source: io::Error::other(e.to_string()) }
}
