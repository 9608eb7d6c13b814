//! Rings: the only reader of memory shared with the kernel.
//!
//! Owns: draining the ring buffer into batches. Because: whatever else is slow, the ring must be emptied.
//! Does not: look into records.

use std::cell::RefCell;
use std::os::fd::{AsFd as _, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use libbpf_rs::{MapHandle, RingBuffer, RingBufferBuilder};
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventFlags};

/// Largest batch: what does not fit stays in the ring until the next drain.
pub(crate) const BATCH_BYTES_MAX: usize = 4 << 20;

/// Stops a drain when the batch is full; any negative number that no system call returns here.
const BATCH_FULL: i32 = -libc::ENOBUFS;

/// Reads the records of one ring buffer.
pub(crate) struct Ring {
    buffer: RingBuffer<'static>,
    wakeups: OwnedFd,
    batch: Rc<RefCell<Vec<u8>>>,
}

impl Ring {
    /// A reader of the ring behind `map`.
    pub(crate) fn new(map: &MapHandle) -> Result<Self, libbpf_rs::Error> {
        let batch = Rc::new(RefCell::new(Vec::new()));
        let sink = Rc::clone(&batch);
        let mut builder = RingBufferBuilder::new();
        builder.add(map, move |record| {
            let mut batch = sink.borrow_mut();
            batch.extend_from_slice(record);
            if batch.len() >= BATCH_BYTES_MAX { BATCH_FULL } else { 0 }
        })?;
        let buffer = builder.build()?;
        Ok(Self { buffer, wakeups: wakeups(map)?, batch })
    }

    /// Waits until a record that is urgent was written, at most [`Ring::INTERVAL`].
    pub(crate) fn wait(&self) {
        let timeout = Timespec { tv_sec: 0, tv_nsec: Self::INTERVAL.subsec_nanos().into() };
        let mut event = [epoll::Event { flags: EventFlags::empty(), data: epoll::EventData::new_u64(0) }];
        // Interrupted by a signal is as good as woken.
        let _ = epoll::wait(&self.wakeups, &mut event[..], Some(&timeout));
    }

    /// All records that are there now, one after another, up to about [`BATCH_BYTES_MAX`]; empty when there are none.
    pub(crate) fn drain(&self) -> Vec<u8> {
        // The callback's own stop signal is not an error, and nothing else fails: the ring is only memory.
        let _ = self.buffer.consume_raw();
        std::mem::take(&mut self.batch.borrow_mut())
    }

    /// How often to drain when nothing is urgent: often enough that a ring for a second of samples is never a quarter
    /// full, seldom enough to cost nothing.
    pub(crate) const INTERVAL: Duration = Duration::from_millis(50);
}

/// Wake-ups of the ring as events of their own. Edge-triggered: that there is something to read is no event, since
/// there nearly always is.
fn wakeups(map: &MapHandle) -> Result<OwnedFd, libbpf_rs::Error> {
    let error = |e: rustix::io::Errno| libbpf_rs::Error::from(std::io::Error::from(e));
    let events = epoll::create(CreateFlags::CLOEXEC).map_err(error)?;
    let flags = EventFlags::IN | EventFlags::ET;
    epoll::add(&events, map.as_fd(), epoll::EventData::new_u64(0), flags).map_err(error)?;
    Ok(events)
}
