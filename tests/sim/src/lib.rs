//! Look-alikes of accelerators' libraries: `libcuda`, `libcudart`, `libcupti`, `libamdhip64`, `libnccl`.
//!
//! Owns: a device that exists on paper only (streams, engines, events, graphs, memory), and the C interfaces to it with
//! the vendors' symbols, calling conventions and structures. Because: launches, copies, activity records and everything
//! that can go wrong with them must be testable on a machine without an accelerator. Does not: compute anything; a
//! kernel takes as long as its name says. Copies and fills do move bytes.
//!
//! Each module named after a library becomes that library (`cargo xtask sim`); the libraries find one another as the
//! real ones do, by `dlopen` and by functions that they hand out, and share nothing else.

#![allow(non_snake_case, reason = "the functions have the vendors' names")]

mod api;
mod cuda;
mod cudart;
mod cupti;
mod device;
mod hip;
mod link;
mod nccl;
mod symbols;
