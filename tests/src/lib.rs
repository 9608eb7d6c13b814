//! Tests that cross crate borders, and what they share with the command line of the developers.
//!
//! Owns: comparisons with independent oracles, which run both as tests and over any files a developer names, and
//! numbers for made-up input. Because: each is one piece of code for several tests.
//! Does not: contain anything that the product needs.

pub mod numbers;
pub mod unwind_oracle;
