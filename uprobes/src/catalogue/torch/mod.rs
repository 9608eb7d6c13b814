//! PyTorch's libraries: what each request needs of them.
//!
//! Owns: one file for each request: rows, or probes whose instruction the code of the very file shows. Because: none of
//! it is free, so nothing is probed that was not requested, and where one request cannot be met the others still are.
//! Does not: choose requests ([`crate::plan`]).
//!
//! | file | library | request |
//! |---|---|---|
//! | `backward.rs` | `libtorch_cpu.so` | which operator an autograd node belongs to |
//! | `ranges.rs` | `libtorch_cpu.so` | named ranges, and the training steps that follow from them |
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
