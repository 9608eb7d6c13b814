//! The programs, one file per group.

mod call;
mod message;
mod off_cpu;
mod process;
mod sample;
mod state;
mod threads;

pub use state::{Bucket, InFlight, Limiter};
