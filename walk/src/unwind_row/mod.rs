//! One step of a native unwind: registers of a frame and its unwind rule give the registers of its caller.
//!
//! Owns: which architecture's step a walk takes. Because: what a register set is, where a call leaves its return
//! address and what the kernel saves for a signal handler are the architecture's; all else of a walk is not.
//! Does not: find rules, bound the number of frames, know Python.
//!
//! Every architecture's step is compiled and tested everywhere. Each offers `Registers` (with `pc`, `exact` and
//! `lookup_pc`), `step`, `peek` for ordinary frames, and `rare_step` for kinds of rules that few functions have;
//! [`native`] are those of the machine whose threads are walked.

pub mod aarch64;
pub mod x86_64;

// Kernel programs have no machine of their own: theirs is the one that they are built for.
#[cfg(any(target_arch = "aarch64", bpf_target_arch = "aarch64"))]
pub use aarch64 as native;
#[cfg(any(target_arch = "x86_64", bpf_target_arch = "x86_64"))]
pub use x86_64 as native;

pub use native::{Caller, Registers, is_rare, peek, rare_step, step};
