//! What a call means, whichever vendor's function it is.
//!
//! Owns: [`Event`] and why a return is watched. Because: a launch is a launch whether CUDA or HIP calls it, and
//! everything behind the probes should see it so. Does not: know symbols or arguments.

use std::fmt;

/// From where to where a copy goes, or where that is said.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// The driver tells by the pointers.
    ByPointers = 0,
    /// An argument says so ([`crate::role::Role::Kind`]).
    ByKind = 1,
    /// A structure says so.
    ByParameters = 2,
    /// Each element of an array says so.
    Batch = 3,
    /// Host to device.
    HostToDevice = 4,
    /// Device to host.
    DeviceToHost = 5,
    /// Within a device.
    DeviceToDevice = 6,
    /// Between devices or contexts.
    Peer = 7,
    /// Host to an array.
    HostToArray = 8,
    /// An array to the host.
    ArrayToHost = 9,
    /// Device to an array.
    DeviceToArray = 10,
    /// An array to device memory.
    ArrayToDevice = 11,
    /// Between arrays.
    ArrayToArray = 12,
}

impl Direction {
    /// All, in numeric order.
    pub const ALL: [Self; 13] = [
        Self::ByPointers,
        Self::ByKind,
        Self::ByParameters,
        Self::Batch,
        Self::HostToDevice,
        Self::DeviceToHost,
        Self::DeviceToDevice,
        Self::Peer,
        Self::HostToArray,
        Self::ArrayToHost,
        Self::DeviceToArray,
        Self::ArrayToDevice,
        Self::ArrayToArray,
    ];
}

/// Whether the caller waits.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Timing {
    /// The call may return before the work is done.
    Async = 0,
    /// The call returns when the work is done (or, of small copies from pageable memory, staged).
    Blocking = 1,
}

/// A kind of memory.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Memory {
    /// On the device.
    Device = 0,
    /// On the device, in the order of a stream.
    Async = 1,
    /// On either side, moved on demand.
    Managed = 2,
    /// On the host, pinned.
    Host = 3,
    /// On the host, pinned after it was allocated otherwise.
    Registered = 4,
    /// Addresses without memory.
    Reserved = 5,
    /// Memory without addresses.
    Physical = 6,
    /// Memory given to addresses.
    Mapped = 7,
}

impl Memory {
    /// All, in numeric order.
    pub const ALL: [Self; 8] = [
        Self::Device,
        Self::Async,
        Self::Managed,
        Self::Host,
        Self::Registered,
        Self::Reserved,
        Self::Physical,
        Self::Mapped,
    ];
}

/// What the host waits for.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// A stream.
    Stream = 0,
    /// An event.
    Event = 1,
    /// A context.
    Context = 2,
    /// A device.
    Device = 3,
}

impl Scope {
    /// All, in numeric order.
    pub const ALL: [Self; 4] = [Self::Stream, Self::Event, Self::Context, Self::Device];
}

/// What a collective does.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "they are their names")]
pub enum Operation {
    AllReduce = 0,
    Broadcast = 1,
    Reduce = 2,
    AllGather = 3,
    ReduceScatter = 4,
    AllToAll = 5,
    Gather = 6,
    Scatter = 7,
    Send = 8,
    Receive = 9,
    PutSignal = 10,
    Signal = 11,
    WaitSignal = 12,
}

impl Operation {
    /// All, in numeric order.
    pub const ALL: [Self; 13] = [
        Self::AllReduce,
        Self::Broadcast,
        Self::Reduce,
        Self::AllGather,
        Self::ReduceScatter,
        Self::AllToAll,
        Self::Gather,
        Self::Scatter,
        Self::Send,
        Self::Receive,
        Self::PutSignal,
        Self::Signal,
        Self::WaitSignal,
    ];
}

/// What a call means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Event {
    /// A kernel is launched, with its shape as arguments.
    Launch,
    /// A kernel is launched, with its shape in a structure.
    LaunchEx,
    /// A kernel is launched whose blocks may wait for each other.
    LaunchCooperative,
    /// Kernels are launched on several devices at once.
    LaunchMultiDevice,
    /// A kernel is launched whose shape was set by earlier calls (CUDA 2).
    LaunchLegacy,
    /// A kernel is launched by function handle where the plain launch takes a host stub (HIP).
    LaunchFunction,
    /// The same with its shape in threads, not blocks (HIP).
    LaunchGlobal,
    /// A function of the host is put into a stream.
    HostFunction,
    /// A graph is launched.
    GraphLaunch,
    /// A graph is sent to the device ahead of its launch.
    GraphUpload,
    /// A stream begins to record a graph instead of working.
    CaptureBegin,
    /// It ends to.
    CaptureEnd,
    /// A graph is made launchable.
    GraphInstantiate,
    /// A launchable graph is changed.
    GraphUpdate,
    /// A launchable graph is gone.
    GraphRelease,
    /// A node is added to a graph by hand.
    GraphNode,
    /// A graph is copied; its nodes get new names.
    GraphClone,
    /// Bytes are copied.
    Copy(Direction, Timing),
    /// Memory is moved to where it will be needed.
    Prefetch,
    /// Elements of so many bytes are set.
    Fill(u8, Timing),
    /// Memory is taken.
    Alloc(Memory),
    /// Memory is given back.
    Free(Memory),
    /// The host waits.
    Sync(Scope),
    /// An event is recorded in a stream.
    EventRecord,
    /// A stream waits for an event.
    StreamWait,
    /// A stream is made.
    StreamCreate,
    /// A stream is gone.
    StreamDestroy,
    /// A stream waits for a value in memory, or writes one.
    StreamValue,
    /// Device code is loaded.
    ModuleLoad,
    /// Device code is unloaded.
    ModuleUnload,
    /// A kernel is asked for by name: the handle behind it has that name from now on.
    FunctionByName,
    /// A library's kernel is turned into a function of the current context.
    FunctionOfKernel,
    /// A library is turned into a module of the current context.
    ModuleOfLibrary,
    /// All kernels of a module are listed.
    FunctionList,
    /// The address of a driver function is asked for by name.
    ProcAddress,
    /// Device code in the program's own file is announced.
    FatBinary,
    /// It is withdrawn.
    FatBinaryUnload,
    /// A host stub is given the name of its kernel.
    FunctionStub,
    /// A host stub is turned into a kernel handle.
    KernelOfStub,
    /// A host stub is turned into a function handle.
    FunctionOfStub,
    /// A context is made.
    ContextCreate,
    /// A thread chooses its context.
    ContextCurrent,
    /// A context is gone.
    ContextDestroy,
    /// A thread chooses its device.
    DeviceCurrent,
    /// Ranks work on data together.
    Collective(Operation),
    /// Collectives are held back from now on.
    GroupBegin,
    /// What was held back is issued.
    GroupEnd,
    /// A communicator is made.
    CommunicatorCreate,
    /// A communicator is gone.
    CommunicatorDestroy,
    /// Someone subscribes to the profiling interface.
    ActivityClient,
    /// And leaves.
    ActivityClientGone,
    /// The functions that hand out and take buffers of activity records.
    ActivityCallbacks,
    /// A kind of record is switched on.
    ActivityKindOn,
    /// A kind of record is switched off.
    ActivityKindOff,
    /// Buffers are asked for.
    ActivityFlush,
    /// A reader goes from one record to the next.
    ActivityRecord,
    /// A number is given to a step of the backward pass, in the operator that it will be the backward of.
    StepCreated,
    /// A step of the backward pass begins.
    StepBegins,
    /// A backward pass begins.
    BackwardBegins,
    /// A range of the program is about to begin: its name.
    RangeNamed,
    /// It begins: the record by which its end is known.
    RangeBegins,
    /// A range ends.
    RangeEnds,
    /// A range begins, which the next [`Event::RangePopped`] of its thread and domain ends.
    RangePushed,
    /// The range that was pushed last ends.
    RangePopped,
    /// The part of the run begins that is meant to be profiled.
    ProfilerStart,
    /// And ends.
    ProfilerStop,
    /// A step of training ends and the next one begins.
    StepMarked,
    /// A framework's allocator gives memory out.
    TensorAlloc,
    /// And takes it back.
    TensorFree,
    /// It gives memory out or takes it back, by the sign of the size, and says its totals.
    TensorReport,
    /// How much was asked for, of memory that another event told already.
    TensorRequest,
    /// An operator of a framework begins: the address to which its dispatch returns.
    OperatorBegins,
    /// An operator is about to begin whose function serves many: its name.
    OperatorNamed,
    /// An operator is about to begin: its tensors.
    OperatorTensors,
    /// A thread hands work to its team.
    TeamBegins,
    /// A step of a module that a compiler made (a thunk of XLA) begins: which one.
    ThunkBegins,
    /// What a user's row stands for.
    User,
}

impl Event {
    /// A number for wire records: the kind in the upper byte, its detail in the lower one. Append-only.
    pub const fn number(self) -> u16 {
        let (kind, detail) = match self {
            Self::Launch => (1, 0),
            Self::LaunchEx => (1, 1),
            Self::LaunchCooperative => (1, 2),
            Self::LaunchMultiDevice => (1, 3),
            Self::LaunchLegacy => (1, 4),
            Self::LaunchFunction => (1, 5),
            Self::LaunchGlobal => (1, 6),
            Self::HostFunction => (2, 0),
            Self::GraphLaunch => (3, 0),
            Self::GraphUpload => (3, 1),
            Self::CaptureBegin => (3, 2),
            Self::CaptureEnd => (3, 3),
            Self::GraphInstantiate => (3, 4),
            Self::GraphUpdate => (3, 5),
            Self::GraphRelease => (3, 6),
            Self::GraphNode => (3, 7),
            Self::GraphClone => (3, 8),
            Self::Copy(direction, timing) => (4, direction as u16 | (timing as u16) << 7),
            Self::Prefetch => (5, 0),
            Self::Fill(bytes, timing) => (6, (bytes & 0x7f) as u16 | (timing as u16) << 7),
            Self::Alloc(memory) => (7, memory as u16),
            Self::Free(memory) => (8, memory as u16),
            Self::Sync(scope) => (9, scope as u16),
            Self::EventRecord => (10, 0),
            Self::StreamWait => (10, 1),
            Self::StreamCreate => (10, 2),
            Self::StreamDestroy => (10, 3),
            Self::StreamValue => (10, 4),
            Self::ModuleLoad => (11, 0),
            Self::ModuleUnload => (11, 1),
            Self::FunctionByName => (11, 2),
            Self::FunctionOfKernel => (11, 3),
            Self::ModuleOfLibrary => (11, 4),
            Self::FunctionList => (11, 5),
            Self::ProcAddress => (11, 6),
            Self::FatBinary => (11, 7),
            Self::FatBinaryUnload => (11, 8),
            Self::FunctionStub => (11, 9),
            Self::KernelOfStub => (11, 10),
            Self::FunctionOfStub => (11, 11),
            Self::ContextCreate => (12, 0),
            Self::ContextCurrent => (12, 1),
            Self::ContextDestroy => (12, 2),
            Self::DeviceCurrent => (12, 3),
            Self::Collective(operation) => (13, operation as u16),
            Self::GroupBegin => (14, 0),
            Self::GroupEnd => (14, 1),
            Self::CommunicatorCreate => (14, 2),
            Self::CommunicatorDestroy => (14, 3),
            Self::ActivityClient => (15, 0),
            Self::ActivityClientGone => (15, 1),
            Self::ActivityCallbacks => (15, 2),
            Self::ActivityKindOn => (15, 3),
            Self::ActivityKindOff => (15, 4),
            Self::ActivityFlush => (15, 5),
            Self::ActivityRecord => (15, 6),
            Self::StepCreated => (16, 0),
            Self::StepBegins => (16, 1),
            Self::BackwardBegins => (16, 2),
            Self::RangeNamed => (17, 0),
            Self::RangeBegins => (17, 1),
            Self::RangeEnds => (17, 2),
            Self::RangePushed => (17, 3),
            Self::RangePopped => (17, 4),
            Self::ProfilerStart => (17, 5),
            Self::ProfilerStop => (17, 6),
            Self::StepMarked => (17, 7),
            // (17, 8) is retired: raw captures of earlier versions may contain it.
            Self::TensorAlloc => (18, 0),
            Self::TensorFree => (18, 1),
            Self::TensorReport => (18, 2),
            Self::TensorRequest => (18, 3),
            Self::OperatorBegins => (19, 0),
            Self::OperatorNamed => (19, 1),
            Self::OperatorTensors => (19, 2),
            Self::TeamBegins => (20, 0),
            Self::ThunkBegins => (21, 0),
            Self::User => (255, 0),
        };
        kind << 8 | detail
    }

    /// The event of a number that [`Event::number`] gave; `None` for one that no event of this version has.
    pub fn from_number(number: u16) -> Option<Self> {
        let detail = number & 0xff;
        let timing = || if detail & 0x80 == 0 { Timing::Async } else { Timing::Blocking };
        let of = |list: &[Self]| list.get(usize::from(detail)).copied();
        let event = match number >> 8 {
            4 => Self::Copy(*Direction::ALL.get(usize::from(detail & 0x7f))?, timing()),
            6 => Self::Fill((detail & 0x7f) as u8, timing()),
            7 => Self::Alloc(*Memory::ALL.get(usize::from(detail))?),
            8 => Self::Free(*Memory::ALL.get(usize::from(detail))?),
            9 => Self::Sync(*Scope::ALL.get(usize::from(detail))?),
            13 => Self::Collective(*Operation::ALL.get(usize::from(detail))?),
            255 if detail == 0 => Self::User,
            kind => of(Self::PLAIN.get(usize::from(kind))?)?,
        };
        Some(event)
    }

    /// The events without a parameter by the two parts of their number.
    const PLAIN: [&[Self]; 22] = [
        &[],
        &[
            Self::Launch,
            Self::LaunchEx,
            Self::LaunchCooperative,
            Self::LaunchMultiDevice,
            Self::LaunchLegacy,
            Self::LaunchFunction,
            Self::LaunchGlobal,
        ],
        &[Self::HostFunction],
        &[
            Self::GraphLaunch,
            Self::GraphUpload,
            Self::CaptureBegin,
            Self::CaptureEnd,
            Self::GraphInstantiate,
            Self::GraphUpdate,
            Self::GraphRelease,
            Self::GraphNode,
            Self::GraphClone,
        ],
        &[],
        &[Self::Prefetch],
        &[],
        &[],
        &[],
        &[],
        &[Self::EventRecord, Self::StreamWait, Self::StreamCreate, Self::StreamDestroy, Self::StreamValue],
        &[
            Self::ModuleLoad,
            Self::ModuleUnload,
            Self::FunctionByName,
            Self::FunctionOfKernel,
            Self::ModuleOfLibrary,
            Self::FunctionList,
            Self::ProcAddress,
            Self::FatBinary,
            Self::FatBinaryUnload,
            Self::FunctionStub,
            Self::KernelOfStub,
            Self::FunctionOfStub,
        ],
        &[Self::ContextCreate, Self::ContextCurrent, Self::ContextDestroy, Self::DeviceCurrent],
        &[],
        &[Self::GroupBegin, Self::GroupEnd, Self::CommunicatorCreate, Self::CommunicatorDestroy],
        &[
            Self::ActivityClient,
            Self::ActivityClientGone,
            Self::ActivityCallbacks,
            Self::ActivityKindOn,
            Self::ActivityKindOff,
            Self::ActivityFlush,
            Self::ActivityRecord,
        ],
        &[Self::StepCreated, Self::StepBegins, Self::BackwardBegins],
        &[
            Self::RangeNamed,
            Self::RangeBegins,
            Self::RangeEnds,
            Self::RangePushed,
            Self::RangePopped,
            Self::ProfilerStart,
            Self::ProfilerStop,
            Self::StepMarked,
        ],
        &[Self::TensorAlloc, Self::TensorFree, Self::TensorReport, Self::TensorRequest],
        &[Self::OperatorBegins, Self::OperatorNamed, Self::OperatorTensors],
        &[Self::TeamBegins],
        &[Self::ThunkBegins],
    ];

    /// True when kernels run because of it.
    pub const fn is_launch(self) -> bool {
        self.number() >> 8 == 1
    }
}

/// Lower case with hyphens: `copy host-to-device async`.
impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = |text: &str| kebab(f, text);
        match self {
            Self::Copy(direction, timing) => words(&format!("Copy({direction:?}, {timing:?})")),
            Self::Fill(bytes, timing) => words(&format!("Fill({bytes}, {timing:?})")),
            other => words(&format!("{other:?}")),
        }
    }
}

/// Writes the debug form of an enumeration in words.
fn kebab(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    let mut inside_word = false;
    for c in text.chars() {
        match c {
            '(' | ',' => f.write_str(if c == '(' { " " } else { "" })?,
            ')' => {}
            'A'..='Z' if inside_word => write!(f, "-{}", c.to_ascii_lowercase())?,
            c => write!(f, "{}", c.to_ascii_lowercase())?,
        }
        inside_word = c.is_ascii_lowercase();
    }
    Ok(())
}

macro_rules! returns {
    ($($variant:ident, $key:literal, $sentence:literal;)*) => {
        /// Whether the return of a call must be seen too, and why.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Return { $(#[doc = $sentence] $variant,)* }

        impl Return {
            /// Stable name for machines, kebab-case.
            pub const fn key(self) -> &'static str {
                match self { $(Return::$variant => $key,)* }
            }

            /// One sentence for people.
            pub const fn sentence(self) -> &'static str {
                match self { $(Return::$variant => $sentence,)* }
            }
        }
    };
}

returns! {
    NotNeeded, "not-needed", "everything is known when the function is entered";
    Blocking, "blocking", "the host waits inside: the time until the return is what is asked for";
    OutPointer, "out-pointer", "the result is written behind a pointer, and is there when the function returns";
    Returned, "returned", "the result is what the function returns";
    Status, "status", "only the status that it returns tells whether it was done";
}

impl Return {
    /// True when a probe on the return is needed.
    pub const fn is_needed(self) -> bool {
        !matches!(self, Self::NotNeeded)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::catalogue::rows;

    #[test]
    fn events_have_numbers_of_their_own() {
        let mut numbers = HashMap::new();
        for row in rows() {
            let other = numbers.insert(row.event.number(), row.event);
            assert!(other.is_none_or(|other| other == row.event), "{:?} {other:?}", row.event);
        }
    }

    #[test]
    fn a_number_leads_back_to_its_event_and_no_other_number_does() {
        for row in rows() {
            assert_eq!(Event::from_number(row.event.number()), Some(row.event));
        }
        for number in 0..=u16::MAX {
            assert!(Event::from_number(number).is_none_or(|event| event.number() == number), "{number}");
        }
        assert_eq!(Event::from_number(Event::User.number()), Some(Event::User));
    }

    #[test]
    fn retired_numbers_are_not_reused() {
        assert_eq!(Event::from_number(17 << 8 | 8), None);
    }

    #[test]
    fn an_event_is_shown_in_words() {
        for (event, expect) in [
            (Event::Launch, "launch"),
            (Event::Copy(Direction::HostToDevice, Timing::Async), "copy host-to-device async"),
            (Event::Fill(4, Timing::Blocking), "fill 4 blocking"),
            (Event::Sync(Scope::Stream), "sync stream"),
            (Event::Collective(Operation::AllReduce), "collective all-reduce"),
        ] {
            assert_eq!(event.to_string(), expect);
        }
    }

    #[test]
    fn launches_never_need_a_probe_on_their_return() {
        assert!(rows().iter().all(|row| !row.event.is_launch() || !row.returns.is_needed()));
    }
}
