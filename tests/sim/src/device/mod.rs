//! The device: streams that keep order, engines that run side by side, and a clock.
//!
//! Owns: when each piece of work begins and ends. Because: a profiler's answers can only be checked against a device
//! whose own account of the same work is known. Does not: know vendors' interfaces.
//!
//! A piece of work starts when what it waits for has ended and an engine is free, and takes as long as [`timing`] says.
//! So its times are known as soon as those of what it waits for are, mostly when it is submitted; a thread only carries
//! out what has come to its end by the real clock. Only functions of the host take as long as they take, and hold up
//! what comes after them.

mod engine;
pub(crate) mod log;
pub(crate) mod memory;
pub(crate) mod timing;
pub(crate) mod work;

use std::cell::Cell;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub(crate) use engine::{DEFAULT, FinishedWork, Op, Tags, Ticket};
use engine::{DueWork, State};
use work::Work;

/// Maximum pending work; submitters wait beyond it, as with the real queues.
const QUEUE_MAX: usize = 4096;

/// Number of a stream within a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Lane(pub(crate) u32);

/// One device.
pub(crate) struct Device {
    /// Its number.
    pub(crate) number: u32,
    state: Mutex<State>,
    /// Signals new work to the executor.
    wake: Condvar,
    /// Signals finished work.
    done: Condvar,
    /// Called for all finished work.
    tell: fn(&FinishedWork),
}

impl Device {
    /// A device whose clock only advances explicitly; for tests.
    pub(crate) fn still(number: u32, tell: fn(&FinishedWork)) -> Self {
        Self { number, state: Mutex::new(State::new()), wake: Condvar::new(), done: Condvar::new(), tell }
    }

    /// A device with its threads, which live as long as the process.
    pub(crate) fn running(number: u32, tell: fn(&FinishedWork)) -> Arc<Self> {
        let device = Arc::new(Self::still(number, tell));
        let (to_host, host_calls) = channel::<Op>();
        let executor = device.clone();
        std::thread::spawn(move || executor.execute(&to_host));
        let caller = device.clone();
        std::thread::spawn(move || {
            for op in host_calls {
                if let Work::Host(call) = &op.work {
                    call.run();
                }
                caller.resolve(op, monotonic_ns());
            }
        });
        device
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a stream; a non-blocking one is outside of the default-stream order.
    pub(crate) fn open(&self, blocking: bool) -> Lane {
        self.lock().open(blocking)
    }

    /// Closes a stream once its work is done.
    pub(crate) fn close(&self, lane: Lane) {
        self.lock().close(lane);
    }

    /// Appends work to a stream.
    pub(crate) fn submit(&self, lane: Lane, work: Work, tags: Tags) -> Ticket {
        let mut state = self.lock();
        while state.outstanding >= QUEUE_MAX {
            state = self.done.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let ticket = state.submit(lane, work, tags, monotonic_ns());
        self.nudge(&state);
        ticket
    }

    /// Appends a graph to a stream: each node with the indexes of its dependencies, all of them earlier.
    pub(crate) fn submit_graph(
        &self,
        lane: Lane,
        nodes: Vec<(Work, Tags, Vec<usize>)>,
        tags: Tags,
    ) -> Ticket {
        let mut state = self.lock();
        while state.outstanding >= QUEUE_MAX {
            state = self.done.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let ticket = state.submit_graph(lane, nodes, tags, monotonic_ns());
        self.nudge(&state);
        ticket
    }

    /// Makes later work of the stream wait for this.
    pub(crate) fn wait_for(&self, lane: Lane, ticket: Ticket) {
        self.lock().wait_for(lane, ticket);
    }

    /// The end of all work submitted to a stream so far.
    pub(crate) fn tail(&self, lane: Lane) -> Ticket {
        self.lock().tail(lane)
    }

    /// The ends of all streams.
    pub(crate) fn tails(&self) -> Vec<Ticket> {
        self.lock().tails()
    }

    /// Blocks until the work is done.
    pub(crate) fn wait(&self, ticket: &Ticket) {
        let mut state = self.lock();
        while !ticket.is_done() {
            state = self.done.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Wakes the executor if the submitted work ends before its next wake-up.
    fn nudge(&self, state: &State) {
        if state.next_due().is_some_and(|at| at < state.sleeps_until) {
            self.wake.notify_one();
        }
    }

    /// Handles a host function that returned.
    fn resolve(&self, op: Op, now: u64) {
        (self.tell)(&op.finished(now));
        let mut state = self.lock();
        state.resolve(&op.ticket, now);
        self.nudge(&state);
        self.wake.notify_one();
        self.done.notify_all();
    }

    fn execute(&self, to_host: &Sender<Op>) {
        let mut batch = Vec::new();
        loop {
            let mut state = self.lock();
            loop {
                let now = monotonic_ns();
                state.take_due(now, &mut batch);
                if !batch.is_empty() {
                    break;
                }
                let next = state.next_due();
                state.sleeps_until = next.unwrap_or(u64::MAX);
                state = match next {
                    Some(at) => {
                        let time = Duration::from_nanos(at.saturating_sub(now));
                        self.wake.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner).0
                    }
                    None => {
                        drop(state);
                        log::flush();
                        let state = self.lock();
                        if state.next_due().is_some() {
                            state
                        } else {
                            self.wake.wait(state).unwrap_or_else(PoisonError::into_inner)
                        }
                    }
                };
                state.sleeps_until = 0;
            }
            drop(state);
            self.carry_out(&mut batch, Some(to_host));
        }
    }

    /// Executes due work, reports it, and wakes its waiters.
    fn carry_out(&self, batch: &mut Vec<DueWork>, to_host: Option<&Sender<Op>>) {
        let mut ended = Vec::with_capacity(batch.len());
        for due in batch.drain(..) {
            match (due.op, to_host) {
                (op @ Op { work: Work::Host(_), .. }, Some(to_host)) => {
                    // The receiver lives as long as the process.
                    let _ = to_host.send(op);
                }
                (op, _) => {
                    op.work.carry_out();
                    (self.tell)(&op.finished(op.ticket.end_ns().unwrap_or(due.at)));
                    ended.push(op.ticket);
                }
            }
        }
        let mut state = self.lock();
        state.outstanding -= ended.len();
        for ticket in ended {
            ticket.mark_done();
        }
        drop(state);
        self.done.notify_all();
    }
}

/// `CLOCK_MONOTONIC`.
pub(crate) fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one `timespec`.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// The kernel's id of the calling thread.
pub(crate) fn thread_number() -> u32 {
    thread_local!(static NUMBER: Cell<(u32, u32)> = const { Cell::new((0, 0)) });
    let process = std::process::id();
    match NUMBER.get() {
        (of, number) if of == process => number,
        _ => {
            // SAFETY: takes nothing, always succeeds.
            let number = unsafe { libc::gettid() }.cast_unsigned();
            NUMBER.set((process, number));
            number
        }
    }
}

#[cfg(test)]
mod tests;
