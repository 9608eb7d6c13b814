//! Probes: what is attached in the libraries of the targets, and when.
//!
//! Owns: the handle of the thread that attaches them. Because: starting and stopping a capture should not depend on
//! how probes are attached. Does not: attach (`worker`), or choose functions (`deepctx_uprobes`).

mod files;
mod installed;
mod points;
mod programs;
mod requests;
mod setup;
mod site_numbers;
mod site_table;
mod unused;
mod waiting_calls;
mod worker;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};

pub(super) use files::FileId;
pub(super) use installed::installed;
pub use installed::running_kernel;
pub(super) use requests::ScanQueue;
pub use requests::TensorRequests;
pub(super) use setup::Setup;
pub(super) use waiting_calls::WaitingCalls;
use worker::ProbeWorker;

use super::budget::ProbeHold;
use super::links;
use super::message::Message;
use super::supervisor::{Heartbeat, Supervisor};

/// Longest wait for the thread at the end while it detaches no probe.
const END_LONGEST: Duration = Duration::from_secs(5);
/// How often the end is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Whether the probes that have a budget are attached: set by their thread, read by others.
#[derive(Clone, Debug, Default)]
struct BudgetedState(Arc<AtomicU8>);

impl BudgetedState {
    const ATTACHED: u8 = 1;
    const DETACHED: u8 = 2;

    fn set(&self, attached: bool) {
        self.0.store(if attached { Self::ATTACHED } else { Self::DETACHED }, Ordering::Release);
    }

    fn get(&self) -> Option<bool> {
        match self.0.load(Ordering::Acquire) {
            Self::ATTACHED => Some(true),
            Self::DETACHED => Some(false),
            _ => None,
        }
    }
}

/// The thread that attaches probes.
#[derive(Debug)]
pub(super) struct Probes {
    scan_queue: ScanQueue,
    thread: JoinHandle<()>,
    /// Closed when the thread has detached everything, or panics.
    ended: Receiver<()>,
    ending: Arc<AtomicBool>,
    messages: Sender<Message>,
    /// Closed once the libraries and processes of the setup have their probes.
    first_scan: Receiver<()>,
    /// Whether some probes have a budget.
    has_budget: bool,
    /// Whether those are attached.
    budgeted: BudgetedState,
}

impl Probes {
    /// Starts the thread: it attaches to the libraries and processes of the setup, then answers requests.
    ///
    /// # Errors
    /// No thread can be made.
    pub(super) fn start(setup: Setup, supervisor: &Supervisor) -> io::Result<Self> {
        let (scan_queue, requests) = ScanQueue::new();
        let dropped = scan_queue.dropped();
        let (ending, messages) = (Arc::clone(&setup.ending), setup.messages.clone());
        let has_budget = setup.duty_cycled.is_some();
        let (scanning, first_scan) = bounded(0);
        let (running, ended) = bounded(0);
        let budgeted = BudgetedState::default();
        let of_worker = budgeted.clone();
        let body = move |heartbeat: &Heartbeat| {
            let _running: Sender<()> = running;
            heartbeat.beat();
            let mut worker = ProbeWorker::new(setup, dropped, of_worker);
            drop(scanning);
            worker.run(&requests, heartbeat);
        };
        let thread = supervisor.spawn("probes", "new libraries are not probed", body)?;
        Ok(Self { scan_queue, thread, ended, ending, messages, first_scan, has_budget, budgeted })
    }

    /// Where scans of processes are requested.
    pub(super) fn scan_queue(&self) -> ScanQueue {
        self.scan_queue.clone()
    }

    /// Where tensors are requested.
    pub(super) fn tensor_requests(&self) -> TensorRequests {
        self.scan_queue.tensor_requests()
    }

    /// Requests to attach or detach the probes that have a budget; false if there are none.
    pub(super) fn hold(&self, hold: ProbeHold) -> bool {
        self.has_budget && self.scan_queue.hold(hold)
    }

    /// Whether the probes that have a budget are attached; `None` before there are any.
    pub(super) fn budgeted_attached(&self) -> Option<bool> {
        self.budgeted.get()
    }

    /// Waits until the libraries and processes of the setup have their probes, for at most `longest`.
    pub(super) fn wait(&self, longest: Duration) {
        // The channel is only closed, never sent to.
        let _ = self.first_scan.recv_timeout(longest);
    }

    /// Detaches all probes. A thread that waits for a file on a disk that hangs is abandoned: the kernel detaches its
    /// probes when this process ends.
    pub(super) fn stop(self) {
        let (mut closed, mut since) = (links::closed(), Instant::now());
        self.ending.store(true, Ordering::Release);
        self.scan_queue.end(END_LONGEST);
        // Nothing is ever sent. The supervisor reports a defect.
        while self.ended.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
            let now_closed = links::closed();
            if now_closed != closed {
                (closed, since) = (now_closed, Instant::now());
            } else if since.elapsed() >= END_LONGEST {
                let lasted = END_LONGEST.as_secs();
                let text = format!(
                    "the thread \"probes\" did not end within {lasted} s: the last calls may be missing"
                );
                let _ = self.messages.try_send(Message::Notice(text));
                return;
            }
        }
        // All that it does now is to report a panic, for which the supervisor is asked next.
        let _ = self.thread.join();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes its time when dropped.
    struct Slow;

    impl Drop for Slow {
        fn drop(&mut self) {
            std::thread::sleep(LOOK_EVERY);
        }
    }

    #[test]
    fn a_panic_while_probes_are_detached_is_known_afterwards() {
        let supervisor = Supervisor::default();
        let (scan_queue, requests) = ScanQueue::new();
        let ((running, ended), (messages, _received)) = (bounded(0), bounded(1));
        let detach = move |_: &Heartbeat| {
            // Dropped last, when nobody waits for the channel any more.
            let _slow = Slow;
            let _running: Sender<()> = running;
            assert!(requests.recv().is_err(), "no rows");
        };
        let thread = supervisor.spawn("probes", "new libraries are not probed", detach).unwrap();
        let (ending, first_scan) = (Arc::default(), bounded(0).1);
        let (has_budget, budgeted) = (false, BudgetedState::default());
        Probes { scan_queue, thread, ended, ending, messages, first_scan, has_budget, budgeted }.stop();
        assert_eq!(supervisor.ended_early().map(|end| end.thread), Some("probes"));
    }
}
