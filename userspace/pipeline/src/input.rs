//! Input: everything that enters the pipeline.
//!
//! Owns: [`Input`] and the [`Source`] trait. Because: rings, raw captures and test vectors must be indistinguishable
//! from here on. Does not: open, read or wait for anything; implementations of [`Source`], which are outside this
//! crate, do.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use deepctx_common::end::Counter;
use deepctx_events::{Event, Family, Role};
use serde::{Deserialize, Serialize};

use super::system::SystemSample;

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
    /// Numbers of probes that were taken away, and of whose calls no record is expected any more: others will have
    /// them.
    SitesFreed(Vec<u32>),
    /// Calls of each probe so far, by index, counted before a record can be lost. Later values replace earlier ones.
    SiteCounts(Vec<u64>),
    /// Calls of accelerators are not watched any more from this time on, `CLOCK_MONOTONIC` nanoseconds; their
    /// activities still come, late as ever.
    CallsEnd(u64),
    /// Names of kernels that were found in processes since the last time, not reported by calls.
    Recovered(Vec<RecoveredKernel>),
    /// Lines of device code that was read since the last time.
    Lines(Vec<CubinLines>),
    /// A duty window begins or ends.
    DutyWindow(DutyWindow),
    /// What the machine did since the last time.
    System(SystemSample),
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
            Input::SitesFreed(numbers) => Input::SitesFreed(numbers),
            Input::SiteCounts(counts) => Input::SiteCounts(counts),
            Input::CallsEnd(time_ns) => Input::CallsEnd(time_ns),
            Input::Recovered(kernels) => Input::Recovered(kernels),
            Input::Lines(lines) => Input::Lines(lines),
            Input::DutyWindow(window) => Input::DutyWindow(window),
            Input::System(sample) => Input::System(sample),
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

/// A duty window of the probes that have a budget begins or ends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DutyWindow {
    /// When: `CLOCK_MONOTONIC`, nanoseconds. All of them are there from a beginning on, and until an end.
    pub time_ns: u64,
    /// It begins.
    pub watched: bool,
    /// The budget, as the user would write it.
    pub budget: String,
    /// What these probes record, for people: `operators, backward`.
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
    /// When it was reported: `CLOCK_MONOTONIC`, nanoseconds.
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
