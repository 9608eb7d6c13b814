//! JAX, as it is published or as a library of its form, under a capture.
//!
//! Owns: the list of what is tested, one module for each question. Because: one program links once. Does not: test.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../cli_support/mod.rs"]
mod cli_support;
mod compiled;
#[path = "../frameworks/mod.rs"]
mod frameworks;
mod library_thunks;
mod thunks;
