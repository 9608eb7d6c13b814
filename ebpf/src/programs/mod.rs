//! One file per group of programs.

mod off_cpu;
mod process;
mod sample;

pub use off_cpu::Bucket;
