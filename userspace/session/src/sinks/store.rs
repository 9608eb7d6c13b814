//! Store sink: writes the profile to disk at intervals.
//!
//! Owns: when to flush, and the thread that merges files. Because: flushed data survives a crash, and merging may
//! take a second, for which records must not wait. Does not: know the format, see [`deepctx_storage::store`], or wait
//! for the disk, which [`super::store_thread`] does.

use std::io;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use deepctx_capture::supervisor::{defect_for_tests, message};
use deepctx_common::memory::MemoryUse;
use deepctx_common::reason::Reason;
use deepctx_storage::store::{MergeResult, StoreError, Writer};

use super::store_thread::{FlushOutcome, Order, StoreThread, UNMERGED};
use super::{Sink, SinkError, State, reason};
use crate::ending::{END_LONGEST, LOOK_EVERY};

/// A flush that takes longer counts as a hanging disk.
const STALLED: Duration = Duration::from_secs(5);
/// Unmerged files that double the interval of flushes, and so do as many more: each flush adds some ten, and lists all.
const UNMERGED_STEP: usize = 1024;
/// Most doublings.
const DOUBLINGS_MAX: usize = 10;

/// Keeps the profile in a folder.
#[derive(Debug)]
pub struct StoreSink {
    thread: StoreThread,
    /// `None` while the thread writes.
    writer: Option<Writer>,
    interval: Duration,
    next_flush: Instant,
    /// Files that are being merged into fewer ones.
    merging: Option<JoinHandle<MergeResult>>,
    /// Merges that stopped because of a defect.
    defects: usize,
    /// Files that are not merged, after the last flush.
    unmerged: usize,
    /// The last flush failed; the next one writes its data.
    behind: bool,
    /// A flush failed, and a later one has written everything.
    recovered: bool,
    /// Flushes left out while the disk hung.
    stalled: u64,
    /// The thread stopped because of a defect, which was reported.
    stopped: bool,
    /// The last data went to the thread, or could not be encoded.
    is_last: bool,
    held_bytes: usize,
}

/// After this many defects, files are no longer merged. The profile is complete anyway, in more files.
const DEFECTS_MAX: usize = 2;

impl StoreSink {
    /// Writes through `writer` once per `interval`.
    ///
    /// # Errors
    /// The thread that writes cannot be started.
    pub fn new(writer: Writer, interval: Duration) -> io::Result<Self> {
        Ok(Self {
            thread: StoreThread::start()?,
            writer: Some(writer),
            interval,
            next_flush: Instant::now() + interval,
            merging: None,
            defects: 0,
            unmerged: 0,
            behind: false,
            recovered: false,
            stalled: 0,
            stopped: false,
            is_last: false,
            held_bytes: 0,
        })
    }

    /// The merged file, if it is ready.
    fn merged(&mut self) -> Result<Option<MergeResult>, SinkError> {
        let Some(merging) = self.merging.take_if(|merging| merging.is_finished()) else { return Ok(None) };
        let merged = merging.join().map_err(|panic| {
            self.defects += 1;
            SinkError::Merge { because: message(panic.as_ref()) }
        })?;
        if let Some(error) = merged.error() {
            tracing::warn!(%error, "{UNMERGED}");
        }
        Ok(Some(merged))
    }

    /// Records the result of a flush or of the final write.
    fn wrote(&mut self, result: Result<(), StoreError>) -> Result<(), StoreError> {
        self.recovered |= self.behind && result.is_ok();
        self.behind = result.is_err();
        result
    }

    /// Takes the writer back if the thread is done.
    fn take_back(&mut self) -> Result<(), SinkError> {
        if self.writer.is_some() {
            return Ok(());
        }
        match self.thread.take() {
            Some(FlushOutcome::Done(writer, result)) => {
                self.held_bytes = writer.held_bytes();
                self.count_unmerged(writer.unmerged_files());
                self.writer = Some(*writer);
                Ok(self.wrote(result)?)
            }
            Some(FlushOutcome::Defect(because)) => {
                self.stopped = true;
                Err(SinkError::Stopped { thread: "store", because })
            }
            None => Ok(()),
        }
    }

    fn count_unmerged(&mut self, files: usize) {
        if files / UNMERGED_STEP > self.unmerged / UNMERGED_STEP {
            tracing::warn!(
                files,
                "files of the profile are not merged: it is written less often from now on"
            );
        }
        self.unmerged = files;
    }

    /// Hands new data to the thread, and merged files that are ready, unless it still writes. The profile may grow
    /// meanwhile.
    fn flush(&mut self, state: &State<'_>, complete: bool) -> Result<(), SinkError> {
        let Some(writer) = self.writer.take() else { return Ok(()) };
        let (merged, defect) = match self.merged() {
            Ok(merged) => (merged, Ok(())),
            Err(defect) => (None, Err(defect)),
        };
        match writer.delta(state.profile, state.newest) {
            Ok(delta) => {
                self.thread.write(Order { writer, merged, delta, complete });
                defect
            }
            Err(error) => {
                self.writer = Some(writer);
                Ok(self.wrote(Err(error))?)
            }
        }
    }

    /// A flush is due, and the last one has not ended.
    fn is_behind(&mut self) -> Result<(), SinkError> {
        let lasted = self.thread.busy();
        if lasted < STALLED {
            return Ok(());
        }
        self.stalled += 1;
        self.behind = true;
        Err(SinkError::Stalled { lasted })
    }

    /// Starts to merge files, if there are enough of them and no merge is running.
    fn start_merging(&mut self) {
        if self.merging.is_none()
            && self.defects < DEFECTS_MAX
            && let Some(due) = self.writer.as_mut().and_then(Writer::due)
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

/// The interval of flushes with this many unmerged files: where every merge fails, they must not pile up for weeks.
fn stretched(interval: Duration, unmerged: usize) -> Duration {
    interval.saturating_mul(1 << (unmerged / UNMERGED_STEP).min(DOUBLINGS_MAX))
}

impl Sink for StoreSink {
    fn on_tick(&mut self, state: &State<'_>) -> Result<(), SinkError> {
        let was_writing = self.writer.is_none();
        let written = self.take_back();
        if was_writing {
            self.start_merging();
        }
        if Instant::now() < self.next_flush {
            return written;
        }
        // Counted from now, not from when it was due: a slow disk must not be written to without pause.
        self.next_flush = Instant::now() + stretched(self.interval, self.unmerged);
        if self.writer.is_none() {
            return written.and_then(|()| self.is_behind());
        }
        written.and(self.flush(state, false))
    }

    fn has_recovered(&mut self) -> bool {
        std::mem::take(&mut self.recovered)
    }

    fn memory(&self) -> Option<MemoryUse> {
        Some(MemoryUse::new("what of the profile is on disk", self.held_bytes))
    }

    fn gaps(&self) -> Vec<(&'static Reason, u64)> {
        vec![(reason::STALLED, self.stalled)]
    }

    fn on_ending(&mut self, state: &State<'_>) -> Result<(), SinkError> {
        if self.stopped || self.is_last {
            return Ok(());
        }
        let patience = self.thread.ending().patience();
        // The last flush writes what an earlier one could not.
        if let Err(error @ SinkError::Stopped { .. }) = self.take_back() {
            return Err(error);
        }
        // Files that are not merged by then stay as they are; the last flush needs the rest of the time.
        let merges = self.merging.as_ref().is_some_and(|merging| !merging.is_finished());
        if self.writer.is_none() || (merges && patience > END_LONGEST / 2) {
            return Ok(());
        }
        self.is_last = true;
        let began = Instant::now();
        let flushed = self.flush(state, true);
        // New data is encoded here, and the thread has nothing to do meanwhile.
        self.thread.ending().excuse(began.elapsed());
        flushed
    }

    fn is_writing(&mut self) -> bool {
        let is_over = self.stopped || (self.is_last && (self.writer.is_some() || self.thread.has_written()));
        !is_over && self.thread.ending().goes_on(0)
    }

    fn on_finish(&mut self, state: &State<'_>) -> Result<(), SinkError> {
        let mut begun = self.on_ending(state);
        while self.is_writing() {
            std::thread::sleep(LOOK_EVERY);
            begun = begun.and(self.on_ending(state));
        }
        if self.stopped {
            return begun;
        }
        self.take_back()?;
        match self.is_last && self.writer.is_some() {
            true => begun,
            false => Err(SinkError::StalledAtEnd { what: "the profile", lasted: END_LONGEST }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use crossbeam_channel::bounded;
    use deepctx_profile::profile::{Limits, Meta, Profile};
    use deepctx_profile::units::Time;

    use super::*;
    use crate::Status;

    #[test]
    fn a_merge_that_stops_is_reported_and_tried_once_more() {
        let folder = tempfile::tempdir().unwrap();
        let writer = Writer::create(&folder.path().join("run.dctx"), &Meta::default()).unwrap();
        let mut sink = StoreSink::new(writer, Duration::from_secs(5)).unwrap();
        for defects in 1..=DEFECTS_MAX {
            let merging: JoinHandle<MergeResult> = std::thread::spawn(|| panic!("row {}", 7));
            while !merging.is_finished() {
                std::thread::yield_now();
            }
            sink.merging = Some(merging);
            let error = sink.merged().unwrap_err().to_string();
            assert!(error.contains("\"merge\" stopped because of a defect (row 7)"), "{error}");
            assert_eq!(sink.defects, defects);
        }
        assert!(sink.merged().unwrap().is_none());
    }

    #[test]
    fn many_unmerged_files_make_flushes_rare() {
        let check = |unmerged: usize, expect: u64| {
            let seconds = Duration::from_secs;
            assert_eq!(stretched(seconds(5), unmerged), seconds(expect), "{unmerged}");
        };
        check(0, 5);
        check(UNMERGED_STEP - 1, 5);
        check(UNMERGED_STEP, 10);
        check(3 * UNMERGED_STEP, 40);
        check(usize::MAX, 5 << 10);
    }

    #[test]
    fn a_long_merge_leaves_time_for_the_last_flush() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.dctx");
        let writer = Writer::create(&path, &Meta::default()).unwrap();
        let mut sink = StoreSink::new(writer, Duration::from_secs(5)).unwrap();
        let (_goes_on, waits) = bounded::<()>(0);
        sink.merging = Some(std::thread::spawn(move || {
            _ = waits.recv();
            panic!("it is never over")
        }));
        let (profile, status) = (Profile::new(Meta::default(), Limits::default()), Status::default());
        let (newest, elapsed) = (Time::from_nanos(0), Duration::ZERO);
        sink.on_finish(&State { profile: &profile, newest, status: &status, elapsed }).unwrap();
        let manifest = fs::read_to_string(path.join("manifest.json")).unwrap();
        assert!(manifest.contains("\"complete\": true"), "{manifest}");
    }

    #[test]
    fn a_disk_that_hangs_is_waited_for_once() {
        let folder = tempfile::tempdir().unwrap();
        let writer = Writer::create(&folder.path().join("run.dctx"), &Meta::default()).unwrap();
        let mut sink = StoreSink::new(writer, Duration::from_secs(5)).unwrap();
        // As if the thread had it: nothing comes back.
        sink.writer = None;
        let (profile, status) = (Profile::new(Meta::default(), Limits::default()), Status::default());
        let (newest, elapsed) = (Time::from_nanos(0), Duration::ZERO);
        let state = State { profile: &profile, newest, status: &status, elapsed };
        let began = Instant::now();
        sink.on_ending(&state).unwrap();
        // Meanwhile others are waited for.
        std::thread::sleep(END_LONGEST / 2);
        assert!(matches!(sink.on_finish(&state), Err(SinkError::StalledAtEnd { .. })));
        assert!(began.elapsed() < END_LONGEST * 3 / 2, "{:?}", began.elapsed());
    }
}
