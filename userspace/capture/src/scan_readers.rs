//! Scan readers: threads that read processes for their scans.
//!
//! Owns: how many processes are read at a time, and how a panic there is handled. Because: a thread that waits for
//! one process cannot scan another. Does not: choose processes, or change tables.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crossbeam_channel::{Receiver, Sender, bounded};

use super::scan_job::{ScanJob, ScanReading};
use super::supervisor::{Heartbeat, Supervisor, defect_for_tests};

/// Processes that are read at a time, each of another user.
pub(super) const READERS: usize = 4;

/// The panic of a reader, because of a defect.
type Panic = Box<dyn Any + Send>;

/// A process that was read, or at which a reader panicked.
pub(super) struct ReadOutcome {
    pub(super) pid: u32,
    /// Its user when the read began: it may have changed since.
    pub(super) user: u32,
    pub(super) read: Result<ScanReading, Panic>,
}

/// The threads; they end when this is dropped.
pub(super) struct ScanReaders {
    jobs: Sender<(ScanJob, u32)>,
    ended: Receiver<ReadOutcome>,
}

impl ScanReaders {
    /// Starts them.
    ///
    /// # Errors
    /// No thread can be made.
    pub(super) fn start(supervisor: &Supervisor) -> io::Result<Self> {
        let (jobs, waiting) = bounded::<(ScanJob, u32)>(READERS);
        let (sender, ended) = bounded(READERS);
        for _ in 0..READERS {
            let (waiting, sender) = (waiting.clone(), sender.clone());
            let body = move |heartbeat: &Heartbeat| {
                for (job, user) in waiting {
                    heartbeat.beat();
                    let pid = job.pid;
                    let read = catch_unwind(AssertUnwindSafe(|| {
                        defect_for_tests("scan-read");
                        job.read()
                    }));
                    heartbeat.idle();
                    if sender.send(ReadOutcome { pid, user, read }).is_err() {
                        return;
                    }
                }
            };
            supervisor.spawn("reader", "new code has no unwind rows", body)?;
        }
        Ok(Self { jobs, ended })
    }

    /// Reads a process of this user. At most [`READERS`] may be outstanding.
    pub(super) fn read(&self, job: ScanJob, user: u32) {
        // The channel has room for all of them, and the readers live as long as this.
        let _ = self.jobs.send((job, user));
    }

    /// Receiver of finished reads.
    pub(super) fn ended(&self) -> &Receiver<ReadOutcome> {
        &self.ended
    }
}
