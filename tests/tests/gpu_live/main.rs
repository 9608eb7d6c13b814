//! Calls of libraries that look like an accelerator's, seen by real probes: which arrive, with what, and from where.
//!
//! Owns: the tests of the way from a probe to a record, as root. Because: only here do the kernel's probes, the places
//! chosen for them and the unwind tables meet. Does not: interpret calls (the pipeline's tests do).

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
