//! Session: a pipeline on its own thread, from the messages of a capture to a profile.
//!
//! Owns: that thread, and the handle through which its owner watches and finishes it. Because: naming and writing are
//! slow and must never hold up the thread that drains the rings. Does not: capture, draw, or decide when to stop.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, bounded};
use deepctx_capture::Message;
use deepctx_capture::cost::OwnCost;
use deepctx_capture::supervisor::{Restart, defect_for_tests};
use deepctx_pipeline::EndedStep;
use deepctx_pipeline::input::KernelCounters;
use deepctx_symbolizer::worker::work_in_progress;

use crate::lock;
use crate::options::{Options, SessionResult, SharedState};
use crate::status::Status;
use crate::worker::Worker;

/// A running pipeline.
#[derive(Debug)]
pub struct Session {
    thread: JoinHandle<SessionResult>,
    finish: Sender<Option<KernelCounters>>,
    shared: Arc<SharedState>,
}

/// Shows whether the pipeline's thread makes progress; outlives the session.
#[derive(Clone, Debug, Default)]
pub struct ProgressWatch(Arc<SharedState>);

impl ProgressWatch {
    /// A number that changes as long as the thread makes progress, or waits for a reader that does.
    pub fn progress(&self) -> u64 {
        self.0.progress.load(Ordering::Relaxed).wrapping_add(work_in_progress())
    }
}

/// The pipeline's thread panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the pipeline stopped because of a defect; what was flushed before is on disk")]
pub struct PipelinePanicked;

impl Session {
    /// Starts a session over the messages of a capture.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(messages: Receiver<Message>, options: Options) -> io::Result<Self> {
        let (finish, finish_requested) = bounded(1);
        let shared = Arc::<SharedState>::default();
        let for_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("pipeline".into()).spawn(move || {
            defect_for_tests("pipeline");
            Worker::new(options, for_thread).run(&messages, &finish_requested)
        })?;
        Ok(Self { thread, finish, shared })
    }

    /// The status of the session.
    pub fn status(&self) -> Status {
        lock(&self.shared.status).clone()
    }

    /// Sets the profiler's own resource usage, for the status.
    pub fn set_cost(&self, cost: OwnCost) {
        *lock(&self.shared.cost) = cost;
    }

    /// Sets the features that `--probe auto` chose, for the status.
    pub fn set_auto_probes(&self, names: Vec<String>) {
        *lock(&self.shared.auto_probes) = names;
    }

    /// True if the pipeline's thread has ended by itself, which only a defect can cause.
    pub fn is_over(&self) -> bool {
        self.thread.is_finished()
    }

    /// The progress of the pipeline's thread.
    pub fn watch(&self) -> ProgressWatch {
        ProgressWatch(Arc::clone(&self.shared))
    }

    /// Shows a notice with those of the capture, even while the pipeline's thread is stuck.
    pub fn notice(&self, text: String) {
        lock(&self.shared.status).add_notice(text.clone());
        lock(&self.shared.notices).push(text);
    }

    /// Shows that a thread of the capture was started again, and counts it in the profile.
    pub fn on_restart(&self, restart: &Restart) {
        self.shared.restarts.fetch_add(1, Ordering::Relaxed);
        self.notice(restart.to_string());
    }

    /// Requests single events from a time on, `CLOCK_MONOTONIC` nanoseconds, if the session is configured for requests.
    /// A notice reports whether they are recorded.
    pub fn request_trace(&self, at_ns: u64) {
        lock(&self.shared.trace_requests).push(at_ns);
    }

    /// Training steps that ended since the last call, if the configuration hands them out, about a second after their
    /// end. If nobody takes them, only some are kept.
    pub fn ended_steps(&self) -> Vec<EndedStep> {
        std::mem::take(&mut lock(&self.shared.ended_steps))
    }

    /// Uses all captured input, finishes all sinks and ends. `counters` are the last ones of the kernel programs.
    ///
    /// # Errors
    /// The pipeline's thread panicked. What was flushed is on disk.
    pub fn finish(self, counters: Option<KernelCounters>) -> Result<SessionResult, PipelinePanicked> {
        // If the thread is gone already, joining it gives the reason.
        let _ = self.finish.send(counters);
        self.thread.join().map_err(|_| PipelinePanicked)
    }
}
