//! Finisher: the thread that stops a capture and finishes its session.
//!
//! Owns: that thread, which is started when the capture begins. Because: finishing takes seconds during which signals
//! must be handled, and a machine that is out of memory for another thread is a reason to finish. Does not: decide
//! when.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use deepctx_capture::{Capture, priority};
use deepctx_session::{PipelinePanicked, Session, SessionResult};
use tokio::sync::oneshot;

/// What to finish.
pub(crate) struct FinishTask {
    pub capture: Capture,
    pub session: Session,
    /// Set when the kernel no longer holds a program of the capture.
    pub detached: Arc<AtomicBool>,
}

/// Ends that take longer log which part was slow.
const SLOW_END: Duration = Duration::from_secs(2);

type SessionOutcome = Result<SessionResult, PipelinePanicked>;

/// The thread; it ends when this is dropped, and is not joined.
pub(crate) struct Finisher(Sender<(FinishTask, oneshot::Sender<SessionOutcome>)>);

impl Finisher {
    /// Starts the thread.
    ///
    /// # Errors
    /// The thread could not be created.
    pub(crate) fn start() -> io::Result<Self> {
        let (order, ordered) = channel::<(FinishTask, oneshot::Sender<SessionOutcome>)>();
        let run = move || {
            let Ok((FinishTask { capture, session, detached }, done)) = ordered.recv() else { return };
            let began = Instant::now();
            priority::raise();
            let counters = capture.stop();
            let stopped = began.elapsed();
            detached.store(true, Ordering::Relaxed);
            let result = session.finish(Some(counters));
            let took = began.elapsed();
            if took >= SLOW_END {
                tracing::info!(kernel = ?stopped, profile = ?(took - stopped), "the end took long");
            }
            // A receiver that gave up has already reported it.
            let _ = done.send(result);
        };
        std::thread::Builder::new().name("finish".into()).spawn(run)?;
        Ok(Self(order))
    }

    /// Stops and finishes the session. The result arrives through the channel, which closes on a panic.
    pub(crate) fn finish(self, finishing: FinishTask) -> oneshot::Receiver<SessionOutcome> {
        let (done, finished) = oneshot::channel();
        // If the thread has ended, its end of the channel is dropped.
        let _ = self.0.send((finishing, done));
        finished
    }
}
