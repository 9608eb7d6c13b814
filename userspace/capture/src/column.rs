//! Column: an array of the kernel programs that is written occasionally.
//!
//! Owns: pending writes to one array map. Because: tables are prepared while the programs are still being loaded, and
//! a map that stays mapped counts its memory twice. Does not: order columns or publish them.

use std::io;

use deepctx_common::Plain;
use libbpf_rs::MapHandle;

use super::shared_array::SharedArray;

/// Elements for an array map.
pub(crate) struct Column<T> {
    waiting: Vec<(u32, Vec<T>)>,
}

impl<T> Default for Column<T> {
    fn default() -> Self {
        Self { waiting: Vec::new() }
    }
}

impl<T: Plain> Column<T> {
    /// Queues these elements, from `first` on, for the next [`Column::flush`].
    pub(crate) fn write(&mut self, first: u32, elements: Vec<T>) {
        if !elements.is_empty() {
            self.waiting.push((first, elements));
        }
    }

    /// Writes the queued elements. Nothing may point at them yet: see [`SharedArray`].
    pub(crate) fn flush(&mut self, map: &MapHandle) -> io::Result<()> {
        let first = self.waiting.iter().map(|(first, _)| *first).min();
        let end = self.waiting.iter().map(|(first, elements)| first + elements.len() as u32).max();
        let (Some(first), Some(end)) = (first, end) else { return Ok(()) };
        let mut array = SharedArray::map(map, first..end)?;
        for (first, elements) in self.waiting.drain(..) {
            for (slot, element) in (first..).zip(elements) {
                array.set(slot, element);
            }
        }
        Ok(())
    }
}
