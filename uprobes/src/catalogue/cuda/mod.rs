//! NVIDIA's CUDA: the driver, and the runtime above it.
//!
//! Owns: nothing but the two tables. Because: one runtime call appears again as a driver call, so readers compare the
//! tables side by side. Does not: decide which of the two is probed ([`crate::row::Row::seen_again_in`]).

mod driver;
mod runtime;

pub(super) use driver::ROWS as DRIVER;
pub(super) use runtime::ROWS as RUNTIME;
