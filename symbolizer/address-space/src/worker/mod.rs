//! Workers: unprivileged processes of this program that handle untrusted input.
//!
//! Owns: starting them, dropping every privilege in them, request deadlines, and the descriptors passed with a
//! request. Because: the author of a file or mapping controls what it costs to parse, and could exploit a bug in the
//! parser. Does not: know what the requests are; see [`crate::reader`].

mod deadline;
mod descriptors;
mod pool;
mod sandbox;
#[cfg(test)]
pub(crate) mod signalled;
mod started;

pub use deadline::{Deadline, end_answers, work_in_progress};
pub use descriptors::{receive, send};
pub use pool::{Author, Launch, NoAnswer, Pool, Terms, Worker, WorkerFailure, ready};
pub use sandbox::{Bounds, begin, give_up_privileges, limit_memory, refuse_programs_and_sockets};
pub use started::{STARTED_MAX, StartedWorker, started_after};
