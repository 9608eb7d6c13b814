//! Raw sink: copies the input of a session into a raw capture.
//!
//! Owns: the thread that writes the copy, how much may wait for it, and that a copy ends at its first failure.
//! Because: a disk may hang, and records must not wait for it, and a block that follows a half-written one cannot be
//! read. Does not: know the format, see [`crate::raw`].

use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};
use deepctx_capture::supervisor::{defect_for_tests, message};
use deepctx_common::memory::MemoryUse;
use deepctx_common::reason::Reason;
use deepctx_pipeline::input::Input;
use deepctx_symbolizer::maps::Maps;

use super::{Sink, SinkError, State, reason};
use crate::ending::has_ended;
use crate::lock;
use crate::raw::RawWriter;

/// Bytes that may wait for the disk: as many as records may wait for the pipeline.
const WAITING_MAX: usize = 64 << 20;
/// Longest wait for the disk at the end. A copy serves to find defects; the profile gets the other seconds.
const END_LONGEST: Duration = Duration::from_secs(1);

/// Copies all input to a file, to be replayed.
#[derive(Debug)]
pub struct RawSink {
    /// The encoder. `None` once a write has failed.
    writer: Option<RawWriter<Vec<u8>>>,
    blocks: Sender<Vec<u8>>,
    /// Closed when all is written.
    end: Receiver<()>,
    shared: Arc<SharedState>,
    /// Blocks dropped for lack of room.
    dropped: u64,
    /// Until when the end is waited for, once nothing follows.
    deadline: Option<Instant>,
}

/// State shared by the sink and its thread.
#[derive(Debug, Default)]
struct SharedState {
    /// Bytes that wait.
    waiting: AtomicUsize,
    error: Mutex<Option<SinkError>>,
}

impl RawSink {
    /// Begins a raw capture.
    ///
    /// # Errors
    /// The thread that writes cannot be started.
    pub fn new(out: impl Write + Send + 'static) -> io::Result<Self> {
        // Bounded by `WAITING_MAX` bytes, which blocks of any size share.
        let (blocks, incoming) = unbounded();
        let (ended, end) = bounded(0);
        let mut writer = RawWriter::new(Vec::new())?;
        let heading = writer.take();
        let shared = Arc::new(SharedState { waiting: heading.len().into(), ..SharedState::default() });
        let of_thread = Arc::clone(&shared);
        std::thread::Builder::new().name("raw".into()).spawn(move || {
            let _ended: Sender<()> = ended;
            let write = || {
                defect_for_tests("raw");
                write(&incoming, out, &of_thread.waiting).map_err(SinkError::Raw)
            };
            // Nothing that it owned is used again.
            let written = catch_unwind(AssertUnwindSafe(write)).unwrap_or_else(|panic| {
                Err(SinkError::Stopped { thread: "raw", because: message(panic.as_ref()) })
            });
            // What it leaves after a failure is dropped with the channel.
            of_thread.waiting.store(0, Ordering::Release);
            *lock(&of_thread.error) = written.err();
        })?;
        _ = blocks.send(heading);
        Ok(Self { writer: Some(writer), blocks, end, shared, dropped: 0, deadline: None })
    }

    /// Nothing follows. Returns until when the end is waited for.
    fn close(&mut self) -> Instant {
        *self.deadline.get_or_insert_with(|| {
            self.blocks = unbounded().0;
            Instant::now() + END_LONGEST
        })
    }

    /// The error of the thread, once.
    fn failed(&mut self) -> Result<(), SinkError> {
        match lock(&self.shared.error).take() {
            Some(error) => {
                self.writer = None;
                Err(error)
            }
            None => Ok(()),
        }
    }
}

/// The thread: writes blocks until the channel closes.
fn write(blocks: &Receiver<Vec<u8>>, mut out: impl Write, waiting: &AtomicUsize) -> io::Result<()> {
    for block in blocks {
        out.write_all(&block)?;
        waiting.fetch_sub(block.len(), Ordering::AcqRel);
    }
    out.flush()
}

impl Sink for RawSink {
    fn on_input(&mut self, input: &Input<Maps>) -> Result<(), SinkError> {
        self.failed()?;
        let Some(writer) = &mut self.writer else { return Ok(()) };
        writer.write(input).map_err(SinkError::Raw)?;
        let block = writer.take();
        if self.shared.waiting.load(Ordering::Acquire).saturating_add(block.len()) > WAITING_MAX {
            self.dropped += 1;
            return Ok(());
        }
        self.shared.waiting.fetch_add(block.len(), Ordering::AcqRel);
        // A thread that is gone has left its error.
        _ = self.blocks.send(block);
        Ok(())
    }

    fn memory(&self) -> Option<MemoryUse> {
        Some(MemoryUse::new("what waits for the raw copy", self.shared.waiting.load(Ordering::Relaxed)))
    }

    fn gaps(&self) -> Vec<(&'static Reason, u64)> {
        vec![(reason::RAW_STALLED, self.dropped)]
    }

    fn on_ending(&mut self, _state: &State<'_>) -> Result<(), SinkError> {
        self.close();
        Ok(())
    }

    fn is_writing(&mut self) -> bool {
        !has_ended(&self.end) && Instant::now() < self.close()
    }

    fn on_finish(&mut self, _state: &State<'_>) -> Result<(), SinkError> {
        let deadline = self.close();
        let ended = self.end.recv_deadline(deadline);
        self.failed()?;
        if ended == Err(RecvTimeoutError::Timeout) {
            return Err(SinkError::StalledAtEnd { what: "the raw copy", lasted: END_LONGEST });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use deepctx_profile::profile::{Limits, Meta, Profile};
    use deepctx_profile::units::Time;

    use super::*;
    use crate::Status;

    fn finish(sink: &mut RawSink) -> Result<(), SinkError> {
        let (profile, status) = (Profile::new(Meta::default(), Limits::default()), Status::default());
        let (newest, elapsed) = (Time::from_nanos(0), Duration::ZERO);
        sink.on_finish(&State { profile: &profile, newest, status: &status, elapsed })
    }

    /// Accepts this many bytes.
    #[derive(Debug)]
    struct FullDisk(usize);

    impl Write for FullDisk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn raw_copy_ends_with_its_first_error() {
        let mut sink = RawSink::new(FullDisk(24)).unwrap();
        let records = Input::Records(vec![0; 8]);
        sink.on_input(&records).unwrap();
        let failed = sink.end.recv().map_or_else(|_| sink.on_input(&records), Ok);
        assert!(matches!(failed, Err(SinkError::Raw(error)) if error.kind() == io::ErrorKind::StorageFull));
        assert_eq!(sink.memory().map(|memory| memory.bytes), Some(0), "nothing waits any more");
        assert!(sink.on_input(&records).is_ok() && finish(&mut sink).is_ok(), "reported once");
    }

    /// Accepts nothing.
    #[derive(Debug)]
    struct HungDisk(Receiver<()>);

    impl Write for HungDisk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            _ = self.0.recv();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_disk_that_hangs_costs_blocks_and_no_more_memory() {
        let (go_on, hangs) = bounded(0);
        let mut sink = RawSink::new(HungDisk(hangs)).unwrap();
        let records = Input::Records(vec![0; WAITING_MAX / 2]);
        for dropped in [0, 1, 2] {
            sink.on_input(&records).unwrap();
            assert_eq!(sink.gaps(), [(reason::RAW_STALLED, dropped)]);
        }
        assert!(sink.memory().is_some_and(|memory| memory.bytes <= WAITING_MAX as u64));
        assert!(matches!(finish(&mut sink), Err(SinkError::StalledAtEnd { .. })));
        drop(go_on);
        assert_eq!(sink.end.recv_timeout(Duration::from_secs(60)), Err(RecvTimeoutError::Disconnected));
        assert_eq!(sink.shared.waiting.load(Ordering::Relaxed), 0);
    }
}
