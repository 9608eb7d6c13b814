//! Store thread: waits for the disk that a profile is written to.
//!
//! Owns: the thread, and the one writer of a store, which is either here or there. Because: a disk may hang, and
//! neither records nor the end of a capture may wait for it. Does not: decide when to write; [`super::StoreSink`] does.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use deepctx_capture::cost::ThreadClock;
use deepctx_capture::supervisor::{defect_for_tests, message};
use deepctx_storage::store::{Delta, MergeResult, StoreError, Writer};

use crate::ending::EndingThread;

/// A task of the thread.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) writer: Writer,
    /// Adopted first, if a merge is ready.
    pub(super) merged: Option<MergeResult>,
    pub(super) delta: Delta,
    /// Nothing follows.
    pub(super) complete: bool,
}

/// Result of a task.
#[derive(Debug)]
pub(super) enum FlushOutcome {
    /// The writer is free again.
    Done(Box<Writer>, Result<(), StoreError>),
    /// The thread panicked with this message, and the writer is gone.
    Defect(String),
}

/// The thread.
#[derive(Debug)]
pub(super) struct StoreThread {
    orders: Sender<Order>,
    written: Receiver<FlushOutcome>,
    clock: ThreadClock,
    /// Since when it writes.
    since: Option<Instant>,
    /// Its progress, once the capture ends.
    ending: Option<EndingThread>,
}

impl StoreThread {
    /// Starts it. It ends when this is dropped, without a join.
    pub(super) fn start() -> io::Result<Self> {
        // There is one writer, so there is never more than one of either.
        let (orders, ordered) = bounded(1);
        let (done, written) = bounded(1);
        let thread = std::thread::Builder::new().name("store".into()).spawn(move || run(&ordered, &done))?;
        Ok(Self { orders, written, clock: ThreadClock::of(&thread), since: None, ending: None })
    }

    /// Writes; asks for the result with [`StoreThread::take`].
    pub(super) fn write(&mut self, order: Order) {
        self.since = Some(Instant::now());
        // A thread that is gone is detected when its result is taken.
        _ = self.orders.try_send(order);
    }

    /// Whether the result of the last order is there.
    pub(super) fn has_written(&self) -> bool {
        !self.written.is_empty()
    }

    /// The result of the last order, if it is there.
    pub(super) fn take(&mut self) -> Option<FlushOutcome> {
        let written = self.written.try_recv().ok()?;
        self.since = None;
        Some(written)
    }

    /// The end of the capture: since the first call the thread has to make progress. The time without adds up over all
    /// orders.
    pub(super) fn ending(&mut self) -> &mut EndingThread {
        self.ending.get_or_insert_with(|| EndingThread::new(self.clock, 0))
    }

    /// How long it has been writing.
    pub(super) fn busy(&self) -> Duration {
        self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

/// Printed when a merge could not be written.
pub(super) const UNMERGED: &str =
    "files of the profile stay as they are, and nothing is missing: merging them failed";

fn run(orders: &Receiver<Order>, done: &Sender<FlushOutcome>) {
    for Order { mut writer, merged, delta, complete } in orders {
        let write = || {
            defect_for_tests("store");
            if let Some(merged) = merged
                && let Err(error) = writer.adopt(merged)
            {
                tracing::warn!(%error, "{UNMERGED}");
            }
            let result = writer.commit(delta, complete);
            FlushOutcome::Done(Box::new(writer), result)
        };
        // Nothing that a write owned is used after its defect.
        let written = catch_unwind(AssertUnwindSafe(write))
            .unwrap_or_else(|panic| FlushOutcome::Defect(message(panic.as_ref())));
        let is_over = matches!(written, FlushOutcome::Defect(_));
        if done.send(written).is_err() || is_over {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ending::{END_LONGEST, LOOK_EVERY};

    #[test]
    fn a_thread_that_computes_at_the_end_does_not_hang() {
        let ((orders, _ordered), (done, written)) = (bounded(1), bounded(1));
        let thread = std::thread::spawn(move || {
            let began = Instant::now();
            while began.elapsed() < END_LONGEST + Duration::from_secs(1) {
                std::hint::spin_loop();
            }
            done.send(FlushOutcome::Defect("over".into())).unwrap();
        });
        let clock = ThreadClock::of(&thread);
        let mut store = StoreThread { orders, written, clock, since: None, ending: None };
        assert!(store.take().is_none());
        while !store.has_written() && store.ending().goes_on(0) {
            std::thread::sleep(LOOK_EVERY);
        }
        assert!(store.take().is_some());
        thread.join().unwrap();
    }
}
