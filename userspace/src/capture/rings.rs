//! Rings: the only reader of memory shared with the kernel.
//!
//! Owns: draining the ring buffer into batches. Because: whatever else is slow, the ring must be emptied.
//! Does not: look into records.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use libbpf_rs::{MapHandle, RingBuffer, RingBufferBuilder};

/// Largest batch: what does not fit stays in the ring until the next drain.
pub const BATCH_BYTES_MAX: usize = 4 << 20;

/// Stops a drain when the batch is full; any negative number that no system call returns here.
const BATCH_FULL: i32 = -libc::ENOBUFS;

/// Reads the records of one ring buffer.
pub struct Ring {
    buffer: RingBuffer<'static>,
    batch: Rc<RefCell<Vec<u8>>>,
}

impl Ring {
    /// A reader of the ring behind `map`.
    pub fn new(map: &MapHandle) -> Result<Self, libbpf_rs::Error> {
        let batch = Rc::new(RefCell::new(Vec::new()));
        let sink = Rc::clone(&batch);
        let mut builder = RingBufferBuilder::new();
        builder.add(map, move |record| {
            let mut batch = sink.borrow_mut();
            batch.extend_from_slice(record);
            if batch.len() >= BATCH_BYTES_MAX { BATCH_FULL } else { 0 }
        })?;
        Ok(Self { buffer: builder.build()?, batch })
    }

    /// All records that are there now, one after another, up to about [`BATCH_BYTES_MAX`]; empty when there are none.
    pub fn drain(&self) -> Vec<u8> {
        // The callback's own stop signal is not an error, and nothing else fails: the ring is only memory.
        let _ = self.buffer.consume_raw();
        std::mem::take(&mut self.batch.borrow_mut())
    }

    /// How often to drain a ring of `ring_bytes`: often enough that it is not a quarter full at the rate expected,
    /// seldom enough to cost nothing.
    pub const INTERVAL: Duration = Duration::from_millis(50);
}
