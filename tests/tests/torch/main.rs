//! Captures of PyTorch, the published one or a look-alike library.
//!
//! Owns: the list of tests, one module for each question. Because: one program links once. Does not: test.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../cases/mod.rs"]
mod cases;
#[path = "../cli_support/mod.rs"]
mod cli_support;
mod collectives;
mod compiled;
mod defects;
#[path = "../documented/mod.rs"]
mod documented;
mod duty_cycle;
#[path = "../frameworks/mod.rs"]
mod frameworks;
mod loading;
mod marked_ranges;
mod memory;
mod openmp;
mod operators;
mod ranges;
#[allow(dead_code, reason = "shared with other tests, which use the rest of it")]
#[path = "../simulated/mod.rs"]
mod simulated;
mod starts;
mod tasks;
mod unusual;
mod without_native;
