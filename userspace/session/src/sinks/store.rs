//! Store sink: writes the profile to disk at intervals.
//!
//! Owns: when to flush, and the thread that merges files. Because: what was flushed survives a crash, and merging may
//! take a second, for which records must not wait. Does not: know the format, see [`deepctx_storage::store`].

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use deepctx_capture::supervisor::{defect_for_tests, message};
use deepctx_common::memory::MemoryUse;
use deepctx_storage::store::{MergeResult, StoreError, Writer};

use super::{Sink, SinkError, State};

/// Keeps the profile in a folder.
#[derive(Debug)]
pub struct StoreSink {
    writer: Writer,
    interval: Duration,
    next_flush: Instant,
    /// Files that are being merged into fewer ones.
    merging: Option<JoinHandle<MergeResult>>,
    /// Merges that stopped because of a defect.
    defects: usize,
    /// The last flush failed; what it was to write is written by the next one.
    behind: bool,
    /// A flush failed, and one after it has written everything.
    recovered: bool,
}

/// After so many defects, files are not merged any more. The profile is whole without it, in more files.
const DEFECTS_MAX: usize = 2;

impl StoreSink {
    /// Writes through `writer` once per `interval`.
    pub fn new(writer: Writer, interval: Duration) -> Self {
        Self {
            writer,
            interval,
            next_flush: Instant::now() + interval,
            merging: None,
            defects: 0,
            behind: false,
            recovered: false,
        }
    }

    /// Takes over the merged file if it is ready, or waits for it.
    fn adopt_merged(&mut self, wait: bool) -> Result<(), SinkError> {
        let Some(merging) = self.merging.take_if(|merging| wait || merging.is_finished()) else {
            return Ok(());
        };
        match merging.join() {
            Ok(merged) => self.writer.adopt(merged),
            Err(panic) => {
                self.defects += 1;
                return Err(SinkError::Merge { because: message(panic.as_ref()) });
            }
        }
        Ok(())
    }

    /// Takes account of what a flush or the end of the profile gave.
    fn wrote(&mut self, result: Result<(), StoreError>) -> Result<(), StoreError> {
        self.recovered |= self.behind && result.is_ok();
        self.behind = result.is_err();
        result
    }

    /// Starts to merge files, if there are enough of them and no merge is running.
    fn start_merging(&mut self) {
        if self.merging.is_none()
            && self.defects < DEFECTS_MAX
            && let Some(due) = self.writer.due()
        {
            // Without a thread the files stay as they are until the next flush.
            let thread = std::thread::Builder::new().name("merge".into());
            self.merging = thread
                .spawn(move || {
                    defect_for_tests("merge");
                    due.run()
                })
                .ok();
        }
    }
}

impl Sink for StoreSink {
    fn on_tick(&mut self, state: &State<'_>) -> Result<(), SinkError> {
        if Instant::now() < self.next_flush {
            return Ok(());
        }
        let merged = self.adopt_merged(false);
        let flushed = self.writer.flush(state.profile, state.newest);
        let flushed = self.wrote(flushed);
        self.start_merging();
        // Counted from now, not from when it was due: a slow disk must not be written to without pause.
        self.next_flush = Instant::now() + self.interval;
        flushed?;
        merged
    }

    fn has_recovered(&mut self) -> bool {
        std::mem::take(&mut self.recovered)
    }

    fn memory(&self) -> Option<MemoryUse> {
        Some(MemoryUse::new("what of the profile is on disk", self.writer.held_bytes()))
    }

    fn on_finish(&mut self, state: &State<'_>) -> Result<(), SinkError> {
        let merged = self.adopt_merged(true);
        let finished = self.writer.finish(state.profile, state.newest);
        self.wrote(finished)?;
        merged
    }
}

#[cfg(test)]
mod tests {
    use deepctx_profile::profile::Meta;

    use super::*;

    #[test]
    fn a_merge_that_stops_is_reported_and_tried_once_more() {
        let folder = tempfile::tempdir().unwrap();
        let writer = Writer::create(&folder.path().join("run.dctx"), &Meta::default()).unwrap();
        let mut sink = StoreSink::new(writer, Duration::from_secs(5));
        for defects in 1..=DEFECTS_MAX {
            sink.merging = Some(std::thread::spawn(|| panic!("row {}", 7)));
            let error = sink.adopt_merged(true).unwrap_err().to_string();
            assert!(error.contains("\"merge\" stopped because of a defect (row 7)"), "{error}");
            assert_eq!(sink.defects, defects);
        }
        assert!(sink.adopt_merged(true).is_ok());
    }
}
