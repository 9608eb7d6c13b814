//! Store sink: writes the profile to disk at intervals.
//!
//! Owns: when to flush, and the thread that merges files. Because: what was flushed survives a crash, and merging may
//! take a second, for which records must not wait. Does not: know the format, see [`deepctx_storage::store`].

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use deepctx_storage::store::{Merged, Writer};

use super::{Sink, SinkError, State};

/// Keeps the profile in a folder.
#[derive(Debug)]
pub struct StoreSink {
    writer: Writer,
    interval: Duration,
    next_flush: Instant,
    /// Files that are being merged into fewer ones.
    merging: Option<JoinHandle<Merged>>,
}

impl StoreSink {
    /// Writes through `writer` once per `interval`.
    pub fn new(writer: Writer, interval: Duration) -> Self {
        Self { writer, interval, next_flush: Instant::now() + interval, merging: None }
    }

    /// Takes over the merged file if it is ready, or waits for it.
    fn adopt_merged(&mut self, wait: bool) {
        if let Some(merging) = self.merging.take_if(|merging| wait || merging.is_finished())
            && let Ok(merged) = merging.join()
        {
            self.writer.adopt(merged);
        }
    }

    /// Starts to merge files, if there are enough of them and no merge is running.
    fn start_merging(&mut self) {
        if self.merging.is_none()
            && let Some(due) = self.writer.due()
        {
            // Without a thread the files stay as they are until the next flush.
            let thread = std::thread::Builder::new().name("merge".into());
            self.merging = thread.spawn(move || due.run()).ok();
        }
    }
}

impl Sink for StoreSink {
    fn on_tick(&mut self, state: &State<'_>) -> Result<(), SinkError> {
        if Instant::now() < self.next_flush {
            return Ok(());
        }
        self.adopt_merged(false);
        let flushed = self.writer.flush(state.profile, state.newest);
        self.start_merging();
        // Counted from now, not from when it was due: a slow disk must not be written to without pause.
        self.next_flush = Instant::now() + self.interval;
        Ok(flushed?)
    }

    fn on_finish(&mut self, state: &State<'_>) -> Result<(), SinkError> {
        self.adopt_merged(true);
        Ok(self.writer.finish(state.profile, state.newest)?)
    }
}
