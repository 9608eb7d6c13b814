//! Stack walkers, shared by the kernel programs, unit tests, fuzzers and offline replay.
//!
//! Owns: one step of a native unwind, one step of a Python walk, and the interleaving of both.
//! Because: the kernel programs cannot be debugged, so they must run exactly the code that was tested in user space.
//! Does not: use `std`, know maps, helpers or processes. Memory comes through [`memory::Memory`], unwind tables through
//! [`interleave::Tables`]. The loop over frames belongs to the caller, who bounds it.
//!
//! One step with a row that says "the CFA is 16 bytes above the stack pointer":
//!
//! ```
//! use deepctx_common::unwind::{Rule, rule_kind};
//! use deepctx_walk::memory::Slice;
//! use deepctx_walk::unwind_row::x86_64::{Registers, step};
//!
//! let stack: Vec<u8> = [0_u64, 0x40_2000].iter().flat_map(|word| word.to_le_bytes()).collect();
//! let memory = Slice { begin: 0x7000, bytes: &stack };
//! let mut registers = Registers { pc: 0x40_1000, sp: 0x7000, exact: 1, ..Registers::default() };
//! step(&mut registers, &Rule { cfa: rule_kind::SP, cfa_offset: 16, ..Rule::default() }, &memory)?;
//! assert_eq!((registers.pc, registers.sp), (0x40_2000, 0x7010), "the caller");
//! # Ok::<(), deepctx_common::end::WalkEnd>(())
//! ```
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
