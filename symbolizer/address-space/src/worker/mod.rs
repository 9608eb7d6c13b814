//! Workers: processes of this program that handle what others made, with nothing to lose.
//!
//! Owns: starting them, giving up every privilege in them, the deadline of a request, and the descriptors that go with
//! one. Because: whoever writes a file or maps memory chooses what it costs to look at, and a defect in what looks at
//! it would be theirs to use. Does not: know what is asked for; see [`crate::reader`].

mod descriptors;
mod pool;
mod sandbox;

pub use descriptors::{receive, send};
pub use pool::{
    Author, Deadline, Launch, NoAnswer, Pool, Terms, Worker, WorkerFailure, end_answers, ready,
    work_in_progress,
};
pub use sandbox::{
    Bounds, enter, give_up_privileges, limit_memory, limit_threads, refuse_programs_and_sockets,
};
