//! Calls of look-alike accelerator libraries, seen by real probes: which arrive, with which arguments and stacks.
//!
//! Owns: the tests from a probe to a record, as root. Because: only here do the kernel's probes, their probe sites and
//! the unwind tables meet. Does not: interpret calls (the pipeline's tests do).

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod calls;
mod driver;
mod gaps;
mod messages;
mod scene;
#[path = "../live_capture/support.rs"]
#[allow(dead_code, reason = "shared with other tests, which use more of it")]
mod support;
mod vendors;
