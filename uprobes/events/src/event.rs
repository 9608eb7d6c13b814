//! The meaning of a call, independent of the library it belongs to.
//!
//! Owns: [`Event`], one enumeration for each family of events, and their numbers on the wire. Because: kernel programs
//! and stored captures carry these numbers, so they never change; a stage of the pipeline matches the enumeration of
//! its own family and no other. Does not: know symbols or arguments.

use std::fmt;

use crate::gpu::{
    CollectiveCall, CollectiveOperation, ContextCall, Direction, GpuCall, GraphCall, LaunchCall, MemoryCall,
    MemoryKind, ModuleCall, StreamCall, SyncScope, Timing, TransferCall,
};

/// What a call means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Event {
    /// A call of an accelerator's library.
    Gpu(GpuCall),
    /// A call of CUPTI, by our collector or another tool.
    Cupti(CuptiEvent),
    /// PyTorch's autograd engine.
    Autograd(AutogradEvent),
    /// Ranges that the program names, and its training steps.
    Range(RangeEvent),
    /// A framework's allocator.
    Tensor(TensorEvent),
    /// A framework's operators.
    Operator(OperatorEvent),
    /// A runtime of OpenMP.
    OpenMp(OpenMpEvent),
    /// XLA's runtime on the CPU.
    Xla(XlaEvent),
    /// A function that a user's row lists without a meaning.
    User,
}

/// What is done with CUPTI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CuptiEvent {
    /// A tool subscribes.
    Subscribe,
    /// A tool unsubscribes.
    Unsubscribe,
    /// A tool registers the callbacks that provide and take back buffers of activity records.
    Callbacks,
    /// A kind of record is enabled.
    KindOn,
    /// A kind of record is disabled.
    KindOff,
    /// Complete buffers are flushed.
    Flush,
    /// A reader goes from one record to the next.
    Record,
}

/// What the autograd engine does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AutogradEvent {
    /// An autograd node gets its sequence number, within the operator that creates it.
    NodeCreated,
    /// An autograd node begins.
    NodeBegins,
    /// A backward pass begins.
    BackwardBegins,
}

/// What happens to ranges and training steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RangeEvent {
    /// The name of a range that is about to begin.
    Named,
    /// A named range begins: the record that identifies it at its end.
    Begins,
    /// A range ends.
    Ends,
    /// A range begins; the next [`RangeEvent::Popped`] of its thread and domain ends it.
    Pushed,
    /// The most recently pushed range ends.
    Popped,
    /// The part of the run that is to be profiled begins.
    ProfilerStart,
    /// The part of the run that is to be profiled ends.
    ProfilerStop,
    /// A training step ends and the next one begins.
    TrainingStep,
}

/// What a framework's allocator does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TensorEvent {
    /// It allocates.
    Alloc,
    /// It frees.
    Free,
    /// It allocates or frees, by the sign of the size, and reports its totals.
    Report,
    /// The size that was requested, for memory that another event reports.
    Request,
}

/// What an operator of a framework does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OperatorEvent {
    /// It begins: the return address of its dispatch.
    Begins,
    /// It is about to begin: its name, because its function serves several operators.
    Named,
    /// It is about to begin: its tensors.
    Tensors,
}

/// What a thread does with a runtime of OpenMP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OpenMpEvent {
    /// A parallel region begins: the thread shares work with others.
    ParallelBegins,
}

/// What XLA's runtime does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum XlaEvent {
    /// A thunk begins: its index and its module.
    ThunkBegins,
}

/// Writes the conversions between events and their numbers from one table: number, words, event.
macro_rules! events {
    ($($number:literal $words:literal $family:ident($($event:tt)+);)*) => {
        impl Event {
            /// The number of the event in records and stored captures: the group in the upper byte, the detail in the
            /// lower byte. Numbers are append-only.
            pub const fn number(self) -> u16 {
                match self {
                    Self::Gpu(GpuCall::Transfer(TransferCall::Copy(direction, timing))) => {
                        COPY << 8 | direction as u16 | (timing as u16) << 7
                    }
                    Self::Gpu(GpuCall::Transfer(TransferCall::Fill(bytes, timing))) => {
                        FILL << 8 | (bytes & 0x7f) as u16 | (timing as u16) << 7
                    }
                    Self::Gpu(GpuCall::Memory(MemoryCall::Alloc(memory))) => ALLOC << 8 | memory as u16,
                    Self::Gpu(GpuCall::Memory(MemoryCall::Free(memory))) => FREE << 8 | memory as u16,
                    Self::Gpu(GpuCall::Sync(scope)) => SYNC << 8 | scope as u16,
                    Self::Gpu(GpuCall::Collective(CollectiveCall::Operation(operation))) => {
                        COLLECTIVE << 8 | operation as u16
                    }
                    $(Self::$family($($event)+) => $number,)*
                    Self::User => USER,
                }
            }

            /// The event without parameters with this number.
            const fn plain(number: u16) -> Option<Self> {
                Some(match number {
                    $($number => Self::$family($($event)+),)*
                    USER => Self::User,
                    _ => return None,
                })
            }

            /// The name without its parameters.
            const fn words(self) -> &'static str {
                match self {
                    Self::Gpu(GpuCall::Transfer(TransferCall::Copy(..))) => "copy",
                    Self::Gpu(GpuCall::Transfer(TransferCall::Fill(..))) => "fill",
                    Self::Gpu(GpuCall::Memory(MemoryCall::Alloc(_))) => "alloc",
                    Self::Gpu(GpuCall::Memory(MemoryCall::Free(_))) => "free",
                    Self::Gpu(GpuCall::Sync(_)) => "sync",
                    Self::Gpu(GpuCall::Collective(CollectiveCall::Operation(_))) => "collective",
                    $(Self::$family($($event)+) => $words,)*
                    Self::User => "user",
                }
            }
        }
    };
}

/// Groups of events with a parameter in the lower byte of their numbers.
const COPY: u16 = 4;
const FILL: u16 = 6;
const ALLOC: u16 = 7;
const FREE: u16 = 8;
const SYNC: u16 = 9;
const COLLECTIVE: u16 = 13;
const USER: u16 = 255 << 8;

events! {
    0x0100 "launch" Gpu(GpuCall::Launch(LaunchCall::Kernel));
    0x0101 "launch-ex" Gpu(GpuCall::Launch(LaunchCall::KernelEx));
    0x0102 "launch-cooperative" Gpu(GpuCall::Launch(LaunchCall::Cooperative));
    0x0103 "launch-multi-device" Gpu(GpuCall::Launch(LaunchCall::MultiDevice));
    0x0104 "launch-legacy" Gpu(GpuCall::Launch(LaunchCall::Legacy));
    0x0105 "launch-function" Gpu(GpuCall::Launch(LaunchCall::Function));
    0x0106 "launch-global" Gpu(GpuCall::Launch(LaunchCall::Global));
    0x0200 "host-function" Gpu(GpuCall::HostFunction);
    0x0300 "graph-launch" Gpu(GpuCall::Graph(GraphCall::Launch));
    0x0301 "graph-upload" Gpu(GpuCall::Graph(GraphCall::Upload));
    0x0302 "capture-begin" Gpu(GpuCall::Graph(GraphCall::CaptureBegin));
    0x0303 "capture-end" Gpu(GpuCall::Graph(GraphCall::CaptureEnd));
    0x0304 "graph-instantiate" Gpu(GpuCall::Graph(GraphCall::Instantiate));
    0x0305 "graph-update" Gpu(GpuCall::Graph(GraphCall::Update));
    0x0306 "graph-release" Gpu(GpuCall::Graph(GraphCall::Release));
    0x0307 "graph-node" Gpu(GpuCall::Graph(GraphCall::Node));
    0x0308 "graph-clone" Gpu(GpuCall::Graph(GraphCall::Clone));
    0x0309 "graph-node-without-work" Gpu(GpuCall::Graph(GraphCall::NodeWithoutWork));
    0x030a "graph-add-dependencies" Gpu(GpuCall::Graph(GraphCall::AddDependencies));
    0x030b "graph-remove-dependencies" Gpu(GpuCall::Graph(GraphCall::RemoveDependencies));
    0x0500 "prefetch" Gpu(GpuCall::Transfer(TransferCall::Prefetch));
    0x0a00 "event-record" Gpu(GpuCall::Stream(StreamCall::EventRecord));
    0x0a01 "stream-wait" Gpu(GpuCall::Stream(StreamCall::Wait));
    0x0a02 "stream-create" Gpu(GpuCall::Stream(StreamCall::Create));
    0x0a03 "stream-destroy" Gpu(GpuCall::Stream(StreamCall::Destroy));
    0x0a04 "stream-value" Gpu(GpuCall::Stream(StreamCall::Value));
    0x0b00 "module-load" Gpu(GpuCall::Module(ModuleCall::Load));
    0x0b01 "module-unload" Gpu(GpuCall::Module(ModuleCall::Unload));
    0x0b02 "function-by-name" Gpu(GpuCall::Module(ModuleCall::FunctionByName));
    0x0b03 "function-of-kernel" Gpu(GpuCall::Module(ModuleCall::FunctionOfKernel));
    0x0b04 "module-of-library" Gpu(GpuCall::Module(ModuleCall::ModuleOfLibrary));
    0x0b05 "function-list" Gpu(GpuCall::Module(ModuleCall::FunctionList));
    0x0b06 "proc-address" Gpu(GpuCall::Module(ModuleCall::ProcAddress));
    0x0b07 "fat-binary" Gpu(GpuCall::Module(ModuleCall::FatBinary));
    0x0b08 "fat-binary-unload" Gpu(GpuCall::Module(ModuleCall::FatBinaryUnload));
    0x0b09 "function-stub" Gpu(GpuCall::Module(ModuleCall::FunctionStub));
    0x0b0a "kernel-of-stub" Gpu(GpuCall::Module(ModuleCall::KernelOfStub));
    0x0b0b "function-of-stub" Gpu(GpuCall::Module(ModuleCall::FunctionOfStub));
    0x0c00 "context-create" Gpu(GpuCall::Context(ContextCall::Create));
    0x0c01 "context-current" Gpu(GpuCall::Context(ContextCall::Current));
    0x0c02 "context-destroy" Gpu(GpuCall::Context(ContextCall::Destroy));
    0x0c03 "device-current" Gpu(GpuCall::Context(ContextCall::Device));
    0x0e00 "group-begin" Gpu(GpuCall::Collective(CollectiveCall::GroupBegin));
    0x0e01 "group-end" Gpu(GpuCall::Collective(CollectiveCall::GroupEnd));
    0x0e02 "communicator-create" Gpu(GpuCall::Collective(CollectiveCall::CommunicatorCreate));
    0x0e03 "communicator-destroy" Gpu(GpuCall::Collective(CollectiveCall::CommunicatorDestroy));
    0x0f00 "activity-client" Cupti(CuptiEvent::Subscribe);
    0x0f01 "activity-client-gone" Cupti(CuptiEvent::Unsubscribe);
    0x0f02 "activity-callbacks" Cupti(CuptiEvent::Callbacks);
    0x0f03 "activity-kind-on" Cupti(CuptiEvent::KindOn);
    0x0f04 "activity-kind-off" Cupti(CuptiEvent::KindOff);
    0x0f05 "activity-flush" Cupti(CuptiEvent::Flush);
    0x0f06 "activity-record" Cupti(CuptiEvent::Record);
    0x1000 "step-created" Autograd(AutogradEvent::NodeCreated);
    0x1001 "step-begins" Autograd(AutogradEvent::NodeBegins);
    0x1002 "backward-begins" Autograd(AutogradEvent::BackwardBegins);
    0x1100 "range-named" Range(RangeEvent::Named);
    0x1101 "range-begins" Range(RangeEvent::Begins);
    0x1102 "range-ends" Range(RangeEvent::Ends);
    0x1103 "range-pushed" Range(RangeEvent::Pushed);
    0x1104 "range-popped" Range(RangeEvent::Popped);
    0x1105 "profiler-start" Range(RangeEvent::ProfilerStart);
    0x1106 "profiler-stop" Range(RangeEvent::ProfilerStop);
    0x1107 "step-marked" Range(RangeEvent::TrainingStep);
    // 0x1108 is retired: raw captures of earlier versions may contain it.
    0x1200 "tensor-alloc" Tensor(TensorEvent::Alloc);
    0x1201 "tensor-free" Tensor(TensorEvent::Free);
    0x1202 "tensor-report" Tensor(TensorEvent::Report);
    0x1203 "tensor-request" Tensor(TensorEvent::Request);
    0x1300 "operator-begins" Operator(OperatorEvent::Begins);
    0x1301 "operator-named" Operator(OperatorEvent::Named);
    0x1302 "operator-tensors" Operator(OperatorEvent::Tensors);
    0x1400 "team-begins" OpenMp(OpenMpEvent::ParallelBegins);
    0x1500 "thunk-begins" Xla(XlaEvent::ThunkBegins);
}

impl Event {
    /// The event with this number; `None` if this version has no such event.
    pub fn from_number(number: u16) -> Option<Self> {
        let detail = usize::from(number & 0xff);
        let timing = if detail & 0x80 == 0 { Timing::Async } else { Timing::Blocking };
        let gpu = match number >> 8 {
            COPY => {
                let direction = *Direction::ALL.get(detail & 0x7f)?;
                GpuCall::Transfer(TransferCall::Copy(direction, timing))
            }
            FILL => GpuCall::Transfer(TransferCall::Fill((detail & 0x7f) as u8, timing)),
            ALLOC => GpuCall::Memory(MemoryCall::Alloc(*MemoryKind::ALL.get(detail)?)),
            FREE => GpuCall::Memory(MemoryCall::Free(*MemoryKind::ALL.get(detail)?)),
            SYNC => GpuCall::Sync(*SyncScope::ALL.get(detail)?),
            COLLECTIVE => {
                GpuCall::Collective(CollectiveCall::Operation(*CollectiveOperation::ALL.get(detail)?))
            }
            _ => return Self::plain(number),
        };
        Some(Self::Gpu(gpu))
    }

    /// True for calls that start kernels.
    pub const fn is_launch(self) -> bool {
        matches!(self, Self::Gpu(GpuCall::Launch(_)))
    }
}

/// Lower case with hyphens: `copy host-to-device async`.
impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())?;
        let Self::Gpu(call) = self else { return Ok(()) };
        match call {
            GpuCall::Transfer(TransferCall::Copy(direction, timing)) => {
                write!(f, " {} {}", kebab(direction), kebab(timing))
            }
            GpuCall::Transfer(TransferCall::Fill(bytes, timing)) => write!(f, " {bytes} {}", kebab(timing)),
            GpuCall::Memory(MemoryCall::Alloc(memory) | MemoryCall::Free(memory)) => {
                write!(f, " {}", kebab(memory))
            }
            GpuCall::Sync(scope) => write!(f, " {}", kebab(scope)),
            GpuCall::Collective(CollectiveCall::Operation(operation)) => write!(f, " {}", kebab(operation)),
            _ => Ok(()),
        }
    }
}

/// The name of a variant in lower case with hyphens: `host-to-device` of `HostToDevice`.
fn kebab(variant: &impl fmt::Debug) -> String {
    let mut words = String::new();
    for c in format!("{variant:?}").chars() {
        if c.is_ascii_uppercase() && !words.is_empty() {
            words.push('-');
        }
        words.push(c.to_ascii_lowercase());
    }
    words
}

#[cfg(test)]
mod tests;
