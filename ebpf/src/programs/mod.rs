//! One file per group of programs.

mod process;
mod sample;
