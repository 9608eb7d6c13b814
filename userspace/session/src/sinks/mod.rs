//! Sinks: where the input and the profile of a session go.
//!
//! Owns: the [`Sink`] trait, its errors, and three sinks: the [store](StoreSink), the [raw copy](RawSink) and the
//! [snapshots for a screen](SnapshotSink); and the [sink of single events](TraceSink), which sees nothing else.
//! Because: the session must not know who consumes its results, so that another consumer is one more implementation.
//! Does not: decide which sinks a session has; its caller does.

mod raw;
mod reason;
mod snapshots;
mod store;
mod store_thread;
mod trace;

use std::fmt::Debug;
use std::io;
use std::time::Duration;

use deepctx_common::memory::MemoryUse;
use deepctx_common::reason::Reason;
use deepctx_pipeline::input::Input;
use deepctx_profile::profile::Profile;
use deepctx_profile::units::{Time, clock};
use deepctx_storage::store::StoreError;
use deepctx_symbolizer::maps::Maps;

pub use raw::RawSink;
pub use snapshots::{AnalyzeFn, LiveSnapshots, SnapshotSink};
pub use store::StoreSink;
pub(crate) use trace::EndingTrace;
pub use trace::TraceSink;

use crate::status::Status;

/// A consumer of a session: it gets the input, and the profile about ten times a second.
///
/// All methods are called on the pipeline's thread. While one runs, records wait in the channel from the capture, so
/// work of more than a few milliseconds belongs on the sink's own thread, as does anything that waits for a disk, which
/// may hang.
pub trait Sink: Debug + Send {
    /// Takes input as the capture sent it, before the pipeline uses it: whole batches of records.
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

    /// Whether everything affected by its earlier errors has been written by now; true once.
    fn has_recovered(&mut self) -> bool {
        false
    }

    /// Memory held, for the profiler's own cost; `None` if negligible.
    fn memory(&self) -> Option<MemoryUse> {
        None
    }

    /// What it could not take so far, and how often.
    fn gaps(&self) -> Vec<(&'static Reason, u64)> {
        Vec::new()
    }

    /// Takes the finished profile, and starts to write what is left, or goes on with it. Called every 10 ms while any
    /// sink [is writing](Sink::is_writing): a disk that hangs is waited for once, however many write to it.
    ///
    /// # Errors
    /// As for [`Sink::on_input`], once each.
    fn on_ending(&mut self, state: &State<'_>) -> Result<(), SinkError> {
        let _ = state;
        Ok(())
    }

    /// Whether it still writes what is left, and makes progress; asked after each [`Sink::on_ending`].
    fn is_writing(&mut self) -> bool {
        false
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
    /// The status of the session.
    pub status: &'a Status,
    /// Time since the session began.
    pub elapsed: Duration,
}

/// Why a sink could not take its input.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SinkError {
    /// The raw copy could not be written; it ends here.
    #[error("the raw copy: {0}")]
    Raw(#[source] io::Error),
    /// The store could not be written; the next flush retries.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The disk accepts nothing for a while; pending data is written once it does.
    #[error("the disk has not taken what is written for {} s: recording goes on in memory", lasted.as_secs())]
    Stalled {
        /// Since when.
        lasted: Duration,
    },
    /// The disk accepted nothing at the end, and the wait timed out.
    #[error("the disk did not take the last part of {what} within {} s: it ends before that", lasted.as_secs())]
    StalledAtEnd {
        /// What was to be written.
        what: &'static str,
        /// The length of the wait.
        lasted: Duration,
    },
    /// A writing thread stopped: nothing is written any more.
    #[error("the thread {thread:?} stopped because of a defect ({because}): nothing is written any more")]
    Stopped {
        /// Its name.
        thread: &'static str,
        /// The message of its panic.
        because: String,
    },
    /// Files of the store could not be merged: the profile is complete, in more files than usual.
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
