//! Table error: why something does not fit into the kernel's tables.
//!
//! Owns: [`TableError`]. Because: two files hold the rows of unwind tables and the references to them, and both fail
//! for the same reasons. Does not: place anything.

use std::io;

use super::load::LoadError;
use super::room::Room;

/// Why something could not be placed.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// One of the bounded stores is full.
    #[error("no room for {room}: {used} of {limit} in use")]
    Full {
        /// The table.
        room: Room,
        /// In use.
        used: u32,
        /// The bound.
        limit: u32,
    },
    /// Others need the free slots.
    #[error("no room for more {room} of user {user}, who has {percent} % of all")]
    OverShare {
        /// The table.
        room: Room,
        /// The user charged for the process.
        user: u32,
        /// That user's share.
        percent: usize,
    },
    /// Others found no room, since this user had most of it.
    #[error("user {user} had most of the kernel's {room}, and others needed some")]
    HeldBack {
        /// The table that was full.
        room: Room,
        /// The user charged for the process.
        user: u32,
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
