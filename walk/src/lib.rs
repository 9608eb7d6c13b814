//! Stack walkers, shared by the kernel programs, unit tests, fuzzers and offline replay.
//!
//! Owns: one step of a native unwind, one step of a Python walk, and how the two interleave.
//! Because: code that runs where nothing can be debugged must be the very code that was tested where all can.
//! Does not: use `std`, know maps, helpers or processes. Memory comes through [`memory::Memory`], unwind tables
//! through [`interleave::Tables`]; every loop is the caller's, and bounded.
#![no_std]

mod called;
mod chain;
mod frame_pointer;
mod generated;
pub mod interleave;
pub mod memory;
pub mod python;
pub mod quick;
pub mod short;
mod state;
pub mod unwind_row;
mod words;
