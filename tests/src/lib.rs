//! Tests that cross crate borders, and what they share with the command line of the developers.
//!
//! Owns: comparisons with independent oracles. Because: they run both as tests and over any files a developer names.
//! Does not: contain anything that the product needs.

pub mod unwind_oracle;
