//! Order: sorts records that arrive almost in order into one stream by (time, CPU, sequence).
//!
//! Owns: the bounded heap, the point up to which records were released, and the count of records that came too late.
//! Because: a fork, an exec or a mapping must take effect before the samples that follow it, on any CPU. Does not:
//! know what it orders, or what time it is: the caller passes the watermark.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The sort key of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub(crate) time_ns: u64,
    /// CPU that wrote the record.
    pub(crate) cpu: u16,
    /// Its number on that CPU.
    pub(crate) sequence: u64,
}

/// The record is older than one already returned: accepting it would break the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LateRecord<T>(pub(crate) T);

/// Puts records in order.
#[derive(Debug)]
pub(crate) struct Order<T> {
    heap: BinaryHeap<Reverse<Entry<T>>>,
    capacity: usize,
    given_up_to: Option<Key>,
}

#[derive(Debug)]
struct Entry<T> {
    key: Key,
    item: T,
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl<T> Eq for Entry<T> {}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

impl<T> Order<T> {
    /// Bytes in memory.
    pub(crate) fn held_bytes(&self) -> usize {
        self.heap.capacity() * size_of::<Entry<T>>()
    }

    /// An empty stream that holds back at most `capacity` records: beyond it, the oldest is returned before its time.
    pub(crate) fn new(capacity: usize) -> Self {
        Self { heap: BinaryHeap::new(), capacity, given_up_to: None }
    }

    /// Adds a record, or returns it if its place in the stream has passed.
    pub(crate) fn push(&mut self, key: Key, item: T) -> Result<(), LateRecord<T>> {
        if self.given_up_to.is_some_and(|given| key < given) {
            return Err(LateRecord(item));
        }
        self.heap.push(Reverse(Entry { key, item }));
        Ok(())
    }

    /// The next record, if it is not newer than the watermark or the stream is over capacity.
    pub(crate) fn pop(&mut self, watermark_ns: u64) -> Option<(Key, T)> {
        let Reverse(oldest) = self.heap.peek()?;
        if oldest.key.time_ns > watermark_ns && self.heap.len() <= self.capacity {
            return None;
        }
        let Reverse(Entry { key, item }) = self.heap.pop()?;
        self.given_up_to = Some(key);
        Some((key, item))
    }

    /// Records held back.
    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }

    /// True if [`Order::pop`] would ignore the watermark.
    pub(crate) fn is_over_capacity(&self) -> bool {
        self.heap.len() > self.capacity
    }
}

#[cfg(test)]
mod tests;
