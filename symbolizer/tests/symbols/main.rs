//! Names of real code in real processes, against what `addr2line` and the sources say; and files made to hurt.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up should fail where that happens")]

mod compared;
mod hostile;
mod named;
mod program;
