//! Exports: a profile in the formats of other tools.
//!
//! Owns: the writers. Because: people have viewers they know. Does not: open files; a writer is handed in.

pub mod folded;
pub mod svg;
