//! Sinks: where the input and the profile of a session go.
//!
//! Owns: the [`Sink`] trait, its errors, and three sinks: the [store](StoreSink), the [raw copy](RawSink) and the
//! [snapshots for a screen](SnapshotSink); and the [sink of single events](TraceSink), which sees nothing else.
//! Because: the session must not know who consumes its results, so that another consumer is one more implementation.
//! Does not: decide which sinks a session has; its caller does.

mod raw;
mod snapshots;
mod store;
mod trace;

use std::fmt::Debug;
use std::io;
use std::time::Duration;

use deepctx_common::memory::MemoryUse;
use deepctx_pipeline::input::Input;
use deepctx_profile::profile::Profile;
use deepctx_profile::units::{Time, clock};
use deepctx_storage::store::StoreError;
use deepctx_symbolizer::maps::Maps;

pub use raw::RawSink;
pub use snapshots::{AnalyzeFn, LiveSnapshots, SnapshotSink};
pub use store::StoreSink;
pub use trace::TraceSink;

use crate::status::Status;

/// A consumer of a session: it sees the input, and the profile about ten times a second.
///
/// All methods are called on the pipeline's thread. While one runs, records wait in the channel from the capture, so
/// work that takes more than a few milliseconds belongs on a thread of the sink's own.
pub trait Sink: Debug + Send {
    /// Takes input as it came from the capture, before the pipeline uses it: whole batches of records.
    ///
    /// # Errors
    /// What could not be written. The session reports the error and goes on.
    fn on_input(&mut self, input: &Input<Maps>) -> Result<(), SinkError> {
        let _ = input;
        Ok(())
    }

    /// Takes the profile so far. Sinks are called in the order in which the session got them.
    ///
    /// # Errors
    /// As for [`Sink::on_input`].
    fn on_tick(&mut self, state: &State<'_>) -> Result<(), SinkError> {
        let _ = state;
        Ok(())
    }

    /// Whether nothing is missing any more because of the errors that it returned until now; true once.
    fn has_recovered(&mut self) -> bool {
        false
    }

    /// What it holds in memory, for the account of the profiler's own cost; `None` for next to nothing.
    fn memory(&self) -> Option<MemoryUse> {
        None
    }

    /// Takes the finished profile; nothing follows. Sinks are called in reverse order, so that the first one sees what
    /// the others reported.
    ///
    /// # Errors
    /// As for [`Sink::on_input`].
    fn on_finish(&mut self, state: &State<'_>) -> Result<(), SinkError>;
}

/// A session at the time of a tick.
#[derive(Clone, Copy, Debug)]
pub struct State<'a> {
    /// The profile so far, with its ledger up to date.
    pub profile: &'a Profile,
    /// Time of the newest record.
    pub newest: Time<clock::Monotonic>,
    /// How the session is doing.
    pub status: &'a Status,
    /// Time since the session began.
    pub elapsed: Duration,
}

/// Why a sink could not take what it was given.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SinkError {
    /// The raw copy could not be written; it ends here.
    #[error("the raw copy: {0}")]
    Raw(#[source] io::Error),
    /// The store could not be written; it is tried again with the next flush.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Files of the store could not be merged: the profile is whole, in more files than usual.
    #[error("the thread \"merge\" stopped because of a defect ({because}): the profile stays in many files")]
    Merge {
        /// The message of its panic.
        because: String,
    },
    /// A sink of another crate failed.
    #[error("{sink}: {source}")]
    Other {
        /// Name of the sink, as the user knows it.
        sink: &'static str,
        /// What failed.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}
