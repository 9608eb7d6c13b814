//! Source: the one door by which input enters the pipeline, and the shelf on which its bytes wait.
//!
//! Owns: [`Input`], the [`Source`] trait, and [`Shelf`], which keeps the bytes of a batch until its last record is used.
//! Because: rings, capture files and test vectors must be indistinguishable behind this point, and records wait in the
//! ordering stage, so their words are borrowed from the batch instead of being copied one by one.
//! Does not: open, read or wait for anything; those who implement [`Source`] do, outside `pipeline/`.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use deepctx_common::end::Counter;
use deepctx_events::{Event, Family, Role};
use serde::{Deserialize, Serialize};

/// Values of the kernel programs' counters, summed over the CPUs, by [`Counter`] number.
pub type KernelCounters = [u64; Counter::ALL.len()];

/// One thing that enters the pipeline. `M` describes an address space; the [`super::symbols::Symbols`] in use names it.
#[derive(Clone, Debug, PartialEq)]
pub enum Input<M> {
    /// Records as the kernel programs wrote them, one after the other. CPUs may be mixed, order is not promised.
    Records(Vec<u8>),
    /// The address space of a process as it was at a time.
    Space(SpaceUpdate<M>),
    /// The kernel programs' counters so far. Later values replace earlier ones.
    Counters(KernelCounters),
    /// Probes that were placed since the last time: what their calls mean.
    Sites(Vec<SiteInfo>),
    /// Calls of each probe so far, by index, counted before a record can be lost. Later values replace earlier ones.
    SiteCounts(Vec<u64>),
    /// Calls of accelerators are not watched any more from this time on, `CLOCK_MONOTONIC` nanoseconds; their activities
    /// still come, late as ever.
    CallsEnd(u64),
    /// Names of kernels that were found in processes since the last time, not told by calls.
    Recovered(Vec<RecoveredKernel>),
    /// Lines of device code that was read since the last time.
    Lines(Vec<CubinLines>),
    /// Probes that are watched in turns begin to be, or cease.
    Turn(Turn),
}

impl<M> Input<M> {
    /// The same with another description of address spaces; `admit` gets the process and its mappings.
    pub fn with_maps<N>(self, admit: impl FnOnce(u32, M) -> N) -> Input<N> {
        match self {
            Input::Records(bytes) => Input::Records(bytes),
            Input::Space(SpaceUpdate { pid, time_ns, name, maps }) => {
                Input::Space(SpaceUpdate { pid, time_ns, name, maps: admit(pid, maps) })
            }
            Input::Counters(counters) => Input::Counters(counters),
            Input::Sites(sites) => Input::Sites(sites),
            Input::SiteCounts(counts) => Input::SiteCounts(counts),
            Input::CallsEnd(time_ns) => Input::CallsEnd(time_ns),
            Input::Recovered(kernels) => Input::Recovered(kernels),
            Input::Lines(lines) => Input::Lines(lines),
            Input::Turn(turn) => Input::Turn(turn),
        }
    }
}

/// What calls of a probe mean: the part of a `deepctx_common::call::Site` that the kernel programs need not know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteInfo {
    /// Its index, which its records carry.
    pub site: u32,
    /// What a call means.
    pub event: Event,
    /// Name of the function, as it is exported.
    pub symbol: String,
    /// The library that it belongs to.
    pub family: Family,
    /// What each fetched argument means, in the order in which they are fetched.
    pub roles: Vec<Role>,
}

/// A turn of the probes that have a budget begins or ends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Turn {
    /// When: `CLOCK_MONOTONIC`, nanoseconds. All of them are there from a beginning on, and until an end.
    pub time_ns: u64,
    /// It begins.
    pub watched: bool,
    /// The budget, as the user would write it.
    pub budget: String,
    /// What is told by these probes, for people: `operators, backward`.
    pub what: String,
}

/// A handle that was launched and that no call named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnnamedKernel {
    /// The process, in the pid namespace of the profiler.
    pub pid: u32,
    /// The handle.
    pub handle: u64,
    /// When it was launched: `CLOCK_MONOTONIC`, nanoseconds.
    pub asked_ns: u64,
}

/// The kernel of a handle, as it was found in the process: its name stands in the process's memory, and its code in the
/// device code that the process has; or it is the name of the host stub that stands for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RecoveredKernel {
    /// The process, in the pid namespace of the profiler.
    pub pid: u32,
    /// The handle with which it is launched.
    pub handle: u64,
    /// The launch that it was looked for: [`UnnamedKernel::asked_ns`].
    pub asked_ns: u64,
    /// When it had been read from the process: `CLOCK_MONOTONIC`, nanoseconds.
    pub read_ns: u64,
    /// Its name as the compiler wrote it.
    pub name: String,
    /// What its code says, as far as that is known.
    pub code: CodeFacts,
}

/// What the device code of a kernel says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CodeFacts {
    /// The architecture that it is for: 80 for `sm_80`.
    pub arch: Option<u32>,
    /// Registers of a thread.
    pub registers: Option<u32>,
    /// Static shared memory of a block, bytes.
    pub static_shared: Option<u32>,
}

/// Device code in a process, whose lines are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnreadCubin {
    /// The process, in the pid namespace of the profiler.
    pub pid: u32,
    /// What samples call it.
    pub crc: u64,
    /// Where it is in the process.
    pub address: u64,
    /// Its bytes.
    pub bytes: u64,
    /// When it was told of: `CLOCK_MONOTONIC`, nanoseconds.
    pub asked_ns: u64,
}

/// The lines of device code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CubinLines {
    /// The process, in the pid namespace of the profiler.
    pub pid: u32,
    /// What samples call it.
    pub crc: u64,
    /// Why they could not be read; empty when they were.
    pub because: String,
    /// Paths of source files.
    pub files: Vec<String>,
    /// By function, as the compiler wrote its name: offset, place of the file, and line or 0, ascending by offset.
    pub functions: BTreeMap<String, Vec<(u32, u32, u32)>>,
}

impl CubinLines {
    /// File and line of an instruction.
    pub fn at(&self, function: &str, offset: u64) -> Option<(&str, NonZeroU32)> {
        let rows = self.functions.get(function)?;
        let offset = u32::try_from(offset).ok()?;
        let (_, file, line) = rows[..rows.partition_point(|(begin, ..)| *begin <= offset)].last()?;
        Some((self.files.get(*file as usize)?, NonZeroU32::new(*line)?))
    }
}

/// What was learnt about a process outside the record stream.
#[derive(Clone, Debug, PartialEq)]
pub struct SpaceUpdate<M> {
    /// The process, in the pid namespace of the profiler.
    pub pid: u32,
    /// When it was true: `CLOCK_MONOTONIC`, nanoseconds.
    pub time_ns: u64,
    /// Name of the process (of its main thread); empty when it could not be read.
    pub name: String,
    /// Its mappings.
    pub maps: M,
}

/// Where input comes from: live rings, a capture file, or a test vector.
pub trait Source<M> {
    /// Why reading can fail.
    type Error;

    /// The next input; `None` at the end of the stream.
    fn next_input(&mut self) -> Result<Option<Input<M>>, Self::Error>;
}

/// A test vector, or anything else that is already in memory.
impl<M, I: Iterator<Item = Input<M>>> Source<M> for I {
    type Error = std::convert::Infallible;

    fn next_input(&mut self) -> Result<Option<Input<M>>, Self::Error> {
        Ok(self.next())
    }
}

/// Where a record lies on the [`Shelf`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    batch: u32,
    offset: u32,
    size: u32,
}

/// Batches whose records are not all used yet. A batch leaves with its last record; its buffer is used again.
#[derive(Debug, Default)]
pub struct Shelf {
    batches: Vec<Held>,
    free: Vec<u32>,
    /// Emptied buffers, at most [`SPARE_BUFFERS`].
    spare: Vec<Vec<u8>>,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Held {
    bytes: Vec<u8>,
    waiting: u32,
}

/// Buffers kept for reuse: what two threads need to pass full and empty ones back and forth.
const SPARE_BUFFERS: usize = 8;

impl Shelf {
    /// Puts a batch on the shelf and returns its number. It holds one reference until [`Shelf::seal`].
    pub fn put(&mut self, bytes: Vec<u8>) -> u32 {
        self.bytes += bytes.len();
        let held = Held { bytes, waiting: 1 };
        match self.free.pop() {
            Some(n) => {
                self.batches[n as usize] = held;
                n
            }
            None => {
                self.batches.push(held);
                self.batches.len() as u32 - 1
            }
        }
    }

    /// Takes the bytes of a batch off the shelf for a moment. [`Shelf::give_back`] must follow.
    pub fn lend(&mut self, batch: u32) -> Vec<u8> {
        std::mem::take(&mut self.batches[batch as usize].bytes)
    }

    /// Puts lent bytes back.
    pub fn give_back(&mut self, batch: u32, bytes: Vec<u8>) {
        self.batches[batch as usize].bytes = bytes;
    }

    /// Refers to a record of the batch, which then stays until [`Shelf::release`] of that place.
    pub fn refer(&mut self, batch: u32, offset: usize, size: usize) -> Place {
        self.batches[batch as usize].waiting += 1;
        Place { batch, offset: offset as u32, size: size as u32 }
    }

    /// All records of the batch that will ever be referred to have been: gives up the reference taken by `put`.
    pub fn seal(&mut self, batch: u32) {
        self.drop_reference(batch);
    }

    /// The bytes of a record.
    pub fn record(&self, place: Place) -> &[u8] {
        &self.batches[place.batch as usize].bytes[place.offset as usize..][..place.size as usize]
    }

    /// The record is used.
    pub fn release(&mut self, place: Place) {
        self.drop_reference(place.batch);
    }

    /// Bytes on the shelf.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// An emptied buffer, to be filled and fed again.
    pub fn take_spare(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    fn drop_reference(&mut self, batch: u32) {
        let held = &mut self.batches[batch as usize];
        held.waiting -= 1;
        if held.waiting == 0 {
            let mut bytes = std::mem::take(&mut held.bytes);
            self.bytes -= bytes.len();
            self.free.push(batch);
            if self.spare.len() < SPARE_BUFFERS {
                bytes.clear();
                self.spare.push(bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_leaves_with_its_last_record_and_its_number_is_used_again() {
        let mut shelf = Shelf::default();
        let batch = shelf.put(vec![1, 2, 3, 4]);
        let first = shelf.refer(batch, 0, 2);
        let second = shelf.refer(batch, 2, 2);
        shelf.seal(batch);
        assert_eq!(shelf.record(second), [3, 4]);
        shelf.release(second);
        assert_eq!(shelf.bytes(), 4);
        shelf.release(first);
        assert_eq!(shelf.bytes(), 0);
        assert!(shelf.take_spare().capacity() >= 4);
        assert_eq!(shelf.put(vec![9]), batch);
    }

    #[test]
    fn a_batch_without_usable_records_leaves_when_sealed() {
        let mut shelf = Shelf::default();
        let batch = shelf.put(vec![0; 100]);
        shelf.seal(batch);
        assert_eq!(shelf.bytes(), 0);
    }
}
