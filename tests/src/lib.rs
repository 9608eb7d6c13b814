//! Code shared by tests across crates and the developers' command line.
//!
//! Owns: comparisons with independent oracles, which run as tests and on any files that a developer names, and numbers
//! for synthetic input. Because: several tests use each of them. Does not: contain anything that the product needs.

pub mod numbers;
pub mod unwind_oracle;
