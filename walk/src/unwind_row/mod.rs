//! One step of a native unwind: the registers of a frame and its unwind rule give the registers of its caller.
//!
//! Owns: the choice of the architecture's step. Because: the register set, the location of the return address and the
//! layout of a signal frame depend on the architecture; the rest of a walk does not.
//! Does not: find rules, bound the number of frames, know Python.
//!
//! The steps of all architectures are compiled and tested everywhere. Each offers `Registers` (with `pc`, `exact` and
//! `lookup_pc`), `step`, `peek` for ordinary frames, and `rare_step` for rule kinds that few functions have; [`native`]
//! are those of the machine whose threads are walked.

pub mod aarch64;
pub mod x86_64;

// Kernel programs are compiled for the BPF target; `bpf_target_arch` names the machine they run on.
#[cfg(any(target_arch = "aarch64", bpf_target_arch = "aarch64"))]
pub use aarch64 as native;
#[cfg(any(target_arch = "x86_64", bpf_target_arch = "x86_64"))]
pub use x86_64 as native;

pub use native::{Caller, Registers, is_rare, peek, rare_step, step};
