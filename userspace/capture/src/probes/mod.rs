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
use std::time::Duration;

use crossbeam_channel::{Receiver, bounded};

pub(super) use files::FileId;
pub(super) use installed::installed;
pub use installed::running_kernel;
pub(super) use requests::ScanQueue;
pub use requests::TensorRequests;
pub(super) use setup::Setup;
pub(super) use waiting_calls::WaitingCalls;
use worker::ProbeWorker;

use super::budget::ProbeHold;
use super::supervisor::{Heartbeat, Supervisor};

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
    ending: Arc<AtomicBool>,
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
        let ending = Arc::clone(&setup.ending);
        let has_budget = setup.duty_cycled.is_some();
        let (scanning, first_scan) = bounded(0);
        let budgeted = BudgetedState::default();
        let of_worker = budgeted.clone();
        let body = move |heartbeat: &Heartbeat| {
            heartbeat.beat();
            let mut worker = ProbeWorker::new(setup, dropped, of_worker);
            drop(scanning);
            worker.run(&requests, heartbeat);
        };
        let thread = supervisor.spawn("probes", "new libraries are not probed", body)?;
        Ok(Self { scan_queue, thread, ending, first_scan, has_budget, budgeted })
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

    /// Detaches all probes.
    pub(super) fn stop(self) {
        self.ending.store(true, Ordering::Release);
        if self.scan_queue.end() {
            // The supervisor reports a defect.
            let _ = self.thread.join();
        }
    }
}
