//! The pipeline on records written as text: a page of records in, a tree, a ledger and tables out.
//!
//! Owns: the list of tests, one module for each stage or promise. Because: one program links once. Does not: test.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod autograd;
mod calls;
mod calls_conservation;
mod conservation;
mod duty_cycle;
mod memory;
mod openmp;
mod own_work;
mod owners;
#[path = "../pipeline_programs/mod.rs"]
mod pipeline_programs;
#[path = "../pipeline_support/mod.rs"]
mod pipeline_support;
mod ranges;
mod replay;
mod samples;
mod stacks;
mod stages;
mod xla;
