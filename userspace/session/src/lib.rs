//! Session: one capture from its first message to a finished profile.
//!
//! Owns: the pipeline's thread, the resolver that answers its questions, the sinks that consume its results, and the
//! raw capture with its replay. Because: naming and writing are slow, and the command line, the tests and the
//! benchmarks drive the same code. Does not: load kernel programs, parse options or draw.
//!
//! A [`Session`] runs over the messages of a capture. [`Sink`]s get the input and the profile while it runs.
//! [`replay()`] makes a profile of a raw capture, without a process or the kernel:
//!
//! ```
//! use deepctx_profile::profile::Meta;
//! use deepctx_session::{RawReader, RawWriter, replay};
//!
//! let mut bytes = Vec::new();
//! RawWriter::new(&mut bytes)?.finish()?;
//!
//! let mut reader = RawReader::new(&bytes[..])?;
//! let replayed = replay(&mut reader, Meta::default(), Default::default())?;
//! assert_eq!(replayed.profile.ledger.lost(), 0);
//! # Ok::<(), deepctx_session::RawError>(())
//! ```

mod cubins;
mod device_code;
pub mod dump;
mod ending;
mod flight_recorder;
mod hang;
mod hottest;
mod memory_table;
mod options;
mod raw;
mod reason;
mod recovery;
mod replay;
mod resolver;
mod session;
mod sinks;
mod status;
mod time_share;
mod worker;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use flight_recorder::{FlightOptions, FlightRequests, Trigger, WriteKeptFn};
pub use hottest::HottestOperators;
pub use options::{Options, SessionResult};
pub use raw::{RawError, RawReader, RawWriter};
pub use replay::{ReplayResult, replay};
pub use session::{PipelinePanicked, ProgressWatch, Session};
pub use sinks::{
    AnalyzeFn, LiveSnapshots, RawSink, Sink, SinkError, SnapshotSink, State, StoreSink, TraceSink,
};
pub use status::Status;
pub use time_share::TimeShare;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The data stays valid when a thread panics.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
