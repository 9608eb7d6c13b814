//! One file per group of programs.

mod call;
mod message;
mod off_cpu;
mod process;
mod sample;

pub use call::{InFlight, Launched, Limiter};
pub use off_cpu::Bucket;
