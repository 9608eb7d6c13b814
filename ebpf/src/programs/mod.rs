//! One file per group of programs.

mod call;
mod message;
mod off_cpu;
mod process;
mod sample;
mod state;

pub use state::{Bucket, InFlight, Launched, Limiter};
