//! Real programs, sampled by the real kernel programs, compared with independent sources of their stacks.
//!
//! Owns: the tests that need root and BPF. Because: only here do the verifier, the kernel's registers, real unwind
//! tables and real interpreters meet. Does not: check profiles (the pipeline's tests do); it reads raw samples.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[path = "../cli_support/mod.rs"]
mod cli_support;
mod go;
mod greenlets;
mod native;
mod overload;
mod processes;
mod python;
mod runtimes;
mod support;
mod web;
