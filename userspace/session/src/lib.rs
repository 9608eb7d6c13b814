//! Session: one capture from its first message to a finished profile.
//!
//! Owns: the pipeline's thread, the resolver that answers its questions, the raw copy and its replay, and what is written
//! while a capture runs. Because: naming and writing are slow, and the command line, the tests and the benchmarks
//! drive the same code. Does not: load kernel programs, parse options or draw.

mod awaiting;
mod cubins;
pub mod hottest;
mod layers;
mod origin;
pub mod raw;
mod reason;
mod recovery;
pub mod resolver;
pub mod session;
mod tasks;
