//! Captures of JAX, the published one or a look-alike library.
//!
//! Owns: the list of tests, one module for each question. Because: one program links once. Does not: test.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../cases/mod.rs"]
mod cases;
#[path = "../cli_support/mod.rs"]
mod cli_support;
mod compiled;
mod defects;
#[path = "../frameworks/mod.rs"]
mod frameworks;
mod library_thunks;
mod thunks;
