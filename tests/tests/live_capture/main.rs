//! Real programs, sampled by the real kernel programs, compared with what others know of their stacks.
//!
//! Owns: the tests that need root and BPF. Because: only here do the verifier, the kernel's registers, real unwind
//! tables and real interpreters meet. Does not: look at profiles (the pipeline's tests do); it reads raw samples.

mod native;
mod overload;
mod processes;
mod python;
mod support;
