//! NVIDIA's CUDA: the driver, and the runtime above it.
//!
//! Owns: nothing but the two tables. Because: one call of the runtime is seen again as a call of the driver, so a
//! reader compares them side by side. Does not: decide which of the two is probed ([`crate::row::Row::seen_again_in`]).

mod driver;
mod runtime;

pub(super) use driver::ROWS as DRIVER;
pub(super) use runtime::ROWS as RUNTIME;
