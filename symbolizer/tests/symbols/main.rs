//! Names of real code in real processes, compared with `addr2line` and the sources; and malicious files.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up should fail where that happens")]

mod compared;
mod hostile;
mod named;
mod program;
