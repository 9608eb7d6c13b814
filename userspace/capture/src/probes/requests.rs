//! Requests: what other threads request of the thread that attaches probes.
//!
//! Owns: the queue, and its two senders. Because: a full queue must never stop the thread that drains the ring. Does
//! not: answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};

use crate::budget::ProbeHold;

/// Requests that may wait. One without room is dropped and counted: the next library of that process asks again.
const REQUESTS_MAX: usize = 4096;

/// A request to the thread.
#[derive(Debug)]
pub(super) enum Request {
    /// Scan a process for libraries.
    Scan(u32),
    /// Also record the tensors of these operators.
    Tensors(Vec<String>),
    /// Attach or detach the probes that have a budget.
    Hold(ProbeHold),
    /// Detach everything and end.
    End,
}

/// Sender of requests to scan a process for libraries.
#[derive(Clone, Debug)]
pub(in super::super) struct ScanQueue {
    requests: Sender<Request>,
    dropped: Arc<AtomicU32>,
}

impl ScanQueue {
    /// A queue, and its reader.
    pub(super) fn new() -> (Self, Receiver<Request>) {
        let (requests, reader) = bounded(REQUESTS_MAX);
        (Self { requests, dropped: Arc::default() }, reader)
    }

    /// Asks for a scan.
    pub(in super::super) fn request_scan(&self, pid: u32) {
        if let Err(TrySendError::Full(_)) = self.requests.try_send(Request::Scan(pid)) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts the requests that found no room.
    pub(super) fn dropped(&self) -> Arc<AtomicU32> {
        Arc::clone(&self.dropped)
    }

    /// Requests the end of the thread; waits at most `longest` for room.
    pub(super) fn end(&self, longest: Duration) {
        // A thread that has ended needs no request, and one that takes none will not end.
        let _ = self.requests.send_timeout(Request::End, longest);
    }

    /// Requests to attach or detach the probes that have a budget; false if there is no room, or no thread.
    pub(super) fn hold(&self, hold: ProbeHold) -> bool {
        self.requests.try_send(Request::Hold(hold)).is_ok()
    }

    /// The other sender.
    pub(super) fn tensor_requests(&self) -> TensorRequests {
        TensorRequests(self.requests.clone())
    }
}

/// Sender of requests for the tensors of operators that were unknown when the capture began.
#[derive(Clone, Debug)]
pub struct TensorRequests(Sender<Request>);

impl TensorRequests {
    /// Requests the tensors of these operators, as schemas name them; false if there is no room, or no thread.
    #[must_use]
    pub fn ask(&self, names: Vec<String>) -> bool {
        self.0.try_send(Request::Tensors(names)).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_are_refused_without_room() {
        let (queue, reader) = ScanQueue::new();
        let tensors = queue.tensor_requests();
        (0..REQUESTS_MAX).for_each(|_| queue.request_scan(1));
        assert!(!tensors.ask(vec!["aten::mm".to_owned()]));
        assert!(matches!(reader.recv().unwrap(), Request::Scan(1)));
        assert!(tensors.ask(vec!["aten::mm".to_owned()]));
        drop(reader);
        assert!(!tensors.ask(vec!["aten::mm".to_owned()]));
    }
}
