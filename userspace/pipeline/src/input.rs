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

/// One input of the pipeline. `M` describes an address space; see [`super::symbols::Symbols::Space`].
#[derive(Clone, Debug, PartialEq)]
pub enum Input<M> {
    /// Records as the kernel programs wrote them, one after the other. CPUs may be mixed, in any order.
    Records(Vec<u8>),
    /// The address space of a process at a time.
    Space(SpaceUpdate<M>),
    /// Processes that the kernel programs got no unwind data of, since the last time. One that is accepted later has
    /// an [`Input::Space`] then.
    Refused(Refusals),
    /// The kernel programs' counters so far. Later values replace earlier ones.
    Counters(KernelCounters),
    /// Probes attached since the last time: the meaning of their calls.
    Sites(Vec<SiteInfo>),
    /// Numbers of detached probes whose calls' records have all come: new probes will reuse them.
    SitesFreed(Vec<u32>),
    /// Calls of each probe so far, by index, counted before a record can be lost. Later values replace earlier ones.
    SiteCounts(Vec<u64>),
    /// Accelerator calls are not watched from this time on, `CLOCK_MONOTONIC` nanoseconds; their activities still
    /// arrive, as late as ever.
    CallsEnd(u64),
    /// Names of kernels found in process memory since the last time, not reported by calls.
    Recovered(Vec<RecoveredKernel>),
    /// Lines of device code read since the last time.
    Lines(Vec<CubinLines>),
    /// A duty window begins or ends.
    DutyWindow(DutyWindow),
    /// Resource usage of the machine since the last time.
    System(SystemSample),
}

impl<M> Input<M> {
    /// The same with another description of address spaces; `admit` receives the process and its mappings.
    pub fn with_maps<N>(self, admit: impl FnOnce(u32, M) -> N) -> Input<N> {
        match self {
            Input::Records(bytes) => Input::Records(bytes),
            Input::Space(SpaceUpdate { pid, time_ns, name, maps }) => {
                Input::Space(SpaceUpdate { pid, time_ns, name, maps: admit(pid, maps) })
            }
            Input::Refused(refusals) => Input::Refused(refusals),
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

/// The meaning of a probe's calls: the part of a `deepctx_common::call::Site` that the kernel programs do not need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteInfo {
    /// Its index, which its records carry.
    pub site: u32,
    /// What a call means.
    pub event: Event,
    /// Exported name of the function.
    pub symbol: String,
    /// The library that exports it.
    pub family: Family,
    /// The meaning of each fetched argument, in the order in which they are fetched.
    pub roles: Vec<Role>,
}

/// The beginning or end of a duty window of the probes that have a budget.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DutyWindow {
    /// When: `CLOCK_MONOTONIC`, nanoseconds. All of these probes are attached from a beginning until an end.
    pub time_ns: u64,
    /// It begins.
    pub watched: bool,
    /// The budget, as the user would write it.
    pub budget: String,
    /// What these probes record, for display: `operators, backward`.
    pub what: String,
}

/// A launched handle that no call named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnnamedKernel {
    /// The process, in the pid namespace of the profiler.
    pub pid: u32,
    /// The handle.
    pub handle: u64,
    /// When it was launched: `CLOCK_MONOTONIC`, nanoseconds.
    pub asked_ns: u64,
}

/// The kernel of a handle, found in the process: its name in process memory and its code in the loaded device code; or
/// the name of its host stub.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RecoveredKernel {
    /// The process, in the pid namespace of the profiler.
    pub pid: u32,
    /// The handle with which it is launched.
    pub handle: u64,
    /// The launch that prompted the search: [`UnnamedKernel::asked_ns`].
    pub asked_ns: u64,
    /// When it was read from the process: `CLOCK_MONOTONIC`, nanoseconds.
    pub read_ns: u64,
    /// Its mangled name.
    pub name: String,
    /// Facts from its code, as far as known.
    pub code: CodeFacts,
}

/// Facts from the device code of a kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CodeFacts {
    /// The target architecture: 80 for `sm_80`.
    pub arch: Option<u32>,
    /// Registers per thread.
    pub registers: Option<u32>,
    /// Static shared memory per block, bytes.
    pub static_shared: Option<u32>,
}

/// Device code in a process whose lines are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnreadCubin {
    /// The process, in the pid namespace of the profiler.
    pub pid: u32,
    /// Its id in samples.
    pub crc: u64,
    /// Its address in the process.
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
    /// Its id in samples.
    pub crc: u64,
    /// Why they could not be read; empty if they were.
    pub because: String,
    /// Paths of source files.
    pub files: Vec<String>,
    /// By mangled function name: offset, index of the file, and line or 0, ascending by offset.
    pub functions: BTreeMap<String, Vec<(u32, u32, u32)>>,
    /// By mangled function name: what its instructions wait for, ascending by offset.
    pub waits: BTreeMap<String, Vec<WaitRow>>,
    /// Waiting instructions that are not among these: there are too many.
    pub waits_left_out: u64,
}

/// An instruction that waits for others: its offset, theirs, and the number of a
/// [`NoProducer`](deepctx_common::samples::NoProducer) if they are not known or not all of them are; else 0.
pub type WaitRow = (u32, Vec<u32>, u8);

impl CubinLines {
    /// File and line of an instruction.
    pub fn at(&self, function: &str, offset: u64) -> Option<(&str, NonZeroU32)> {
        let rows = self.functions.get(function)?;
        let offset = u32::try_from(offset).ok()?;
        let (_, file, line) = rows[..rows.partition_point(|(begin, ..)| *begin <= offset)].last()?;
        Some((self.files.get(*file as usize)?, NonZeroU32::new(*line)?))
    }

    /// What an instruction waits for; `None` if for nothing that is known.
    pub fn waits_at(&self, function: &str, offset: u64) -> Option<&WaitRow> {
        let rows = self.waits.get(function)?;
        let offset = u32::try_from(offset).ok()?;
        rows.get(rows.binary_search_by_key(&offset, |(at, ..)| *at).ok()?)
    }
}

/// State of a process learned outside the record stream.
#[derive(Clone, Debug, PartialEq)]
pub struct SpaceUpdate<M> {
    /// The process, in the pid namespace of the profiler.
    pub pid: u32,
    /// The time it describes: `CLOCK_MONOTONIC`, nanoseconds.
    pub time_ns: u64,
    /// Name of the process (of its main thread); empty if it could not be read.
    pub name: String,
    /// Its mappings.
    pub maps: M,
}

/// Processes that the kernel programs got no unwind data of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Refusals {
    /// The processes, each once.
    pub processes: Vec<RefusedProcess>,
    /// Refusals that are not among these: too many came at once.
    pub left_out: u64,
}

/// A process that the kernel programs have no unwind data of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedProcess {
    /// The process, in the pid namespace of the profiler.
    pub pid: u32,
    /// Since when: `CLOCK_MONOTONIC`, nanoseconds.
    pub since_ns: u64,
    /// Why.
    pub refusal: ProcessRefusal,
}

/// Why the kernel programs were given no unwind data of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProcessRefusal {
    /// Their tables have no room for it.
    NoRoom,
    /// Its user has most of the tables, and others need the rest.
    OverShare,
    /// Its user had most of the tables, and gives way to others for a while: its data were evicted, or not taken.
    GaveWay,
}

/// A source of input: live rings, a capture file, or a test vector.
pub trait Source<M> {
    /// Why reading can fail.
    type Error;

    /// The next input; `None` at the end of the stream.
    fn next_input(&mut self) -> Result<Option<Input<M>>, Self::Error>;
}

/// A test vector, or any other input already in memory.
impl<M, I: Iterator<Item = Input<M>>> Source<M> for I {
    type Error = std::convert::Infallible;

    fn next_input(&mut self) -> Result<Option<Input<M>>, Self::Error> {
        Ok(self.next())
    }
}
