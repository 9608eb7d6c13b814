//! PyTorch's libraries: what each request needs of them.
//!
//! Owns: one file for each request: rows, or probes at instructions found in the file's own code. Because: each probe
//! costs time, so only requested functions are probed, and a request that cannot be met does not affect the others.
//! Does not: choose requests ([`crate::plan`]).
//!
//! | file | library | request |
//! |---|---|---|
//! | `backward.rs` | `libtorch_cpu.so` | which operator an autograd node belongs to |
//! | `ranges.rs` | `libtorch_cpu.so` | named ranges, and the training steps derived from them |
//! | `operators.rs` | `libtorch_cpu.so` | which operators begin |
//! | `tensors.rs`, with `signature.rs` and `dataflow.rs` | `libtorch_cpu.so` | sizes and types of their tensors |
//! | `allocator.rs` | `libc10.so` | memory of tensors |
//! | `memory.rs` | `libc10_cuda.so` | how much of it was requested |

pub(in crate::catalogue) mod allocator;
pub(crate) mod backward;
mod dataflow;
pub(crate) mod memory;
pub(crate) mod operators;
pub(crate) mod ranges;
mod signature;
pub(crate) mod tensors;
