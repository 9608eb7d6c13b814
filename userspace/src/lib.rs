//! The profiler as a library: capture, pipeline, session and command line of `deepctx-bpf`.
//!
//! Owns: the meeting of all other crates. Because: the binary, the tests and the benchmarks drive the same code.
//! Does not: walk, symbolize, model or draw; it calls those who do.

mod awaiting;
pub mod capture;
pub mod cli;
mod cubins;
mod hottest;
mod layers;
mod origin;
pub mod pipeline;
pub mod raw;
mod reason;
mod recovery;
pub mod resolver;
pub mod session;
mod tasks;
