//! Requests beyond the calls of accelerators.
//!
//! Owns: [`ProbeRequest`], and what is missing from a profile if a request cannot be met. Because: such probes cost the
//! program time at each operator or allocation, so only requested ones are placed. Does not: know which functions a
//! request needs.

use deepctx_common::reasons;
use deepctx_events::{Event, OperatorEvent, RangeEvent, TensorEvent};

/// Data requested from frameworks and from the program itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProbeRequest {
    /// The operator of each autograd node.
    pub backward: bool,
    /// Named ranges that a thread is in, and the training steps derived from them.
    pub ranges: bool,
    /// The allocating context of tensor memory.
    pub memory: bool,
    /// The caller of the parallel region that an OpenMP thread works for.
    pub openmp: bool,
    /// Starts of operators, and their nesting.
    pub operators: bool,
    /// Operators whose tensors are recorded, as schemas name them: `aten::addmm`; without an overload all of them.
    pub tensors: Vec<String>,
    /// More of these will be added, once the most expensive operators are known.
    pub more_tensors: bool,
}

impl ProbeRequest {
    /// Whether anything is requested.
    pub fn is_any(&self) -> bool {
        self.needs_libtorch_cpu() || self.memory || self.openmp
    }

    /// Whether anything is requested that needs `libtorch_cpu.so`: operators, and the lines that call them.
    pub fn needs_libtorch_cpu(&self) -> bool {
        self.backward || self.ranges || self.operators || self.wants_tensors()
    }

    /// Whether tensors are requested, or will be.
    pub fn wants_tensors(&self) -> bool {
        self.more_tensors || !self.tensors.is_empty()
    }
}

reasons! {
    class Unprobed, page "probes.md";
    /// Data that a profile lacks if a request cannot be fulfilled.
    pub enum NotRecorded {
        Backward, "backward-not-probed", "the backward pass stays where it runs";
        Ranges, "ranges-not-probed", "ranges and training steps are not recorded";
        Operators, "operators-not-probed", "where operators begin is not recorded";
        Tensors, "tensors-not-probed", "tensors of an operator are not recorded";
        HostMemory, "host-memory-not-probed", "memory of tensors on the host is not recorded";
        DeviceMemory, "device-memory-not-probed", "how much was requested of CUDA's allocator is not recorded";
        OpenMp, "openmp-not-probed", "work of OpenMP's threads stays where it runs";
        Xla, "xla-not-probed", "thunks of XLA go by their types";
    }
}

/// The data that a profile lacks if this event cannot be probed; `None` for an event that no request needs.
pub fn missing(event: Event) -> Option<NotRecorded> {
    match event {
        Event::Autograd(_) => Some(NotRecorded::Backward),
        Event::Range(RangeEvent::Named | RangeEvent::Begins | RangeEvent::Ends) => Some(NotRecorded::Ranges),
        Event::Operator(OperatorEvent::Begins | OperatorEvent::Named) => Some(NotRecorded::Operators),
        Event::Operator(OperatorEvent::Tensors) => Some(NotRecorded::Tensors),
        Event::Tensor(TensorEvent::Alloc | TensorEvent::Free) => Some(NotRecorded::HostMemory),
        Event::Tensor(TensorEvent::Request) => Some(NotRecorded::DeviceMemory),
        Event::OpenMp(_) => Some(NotRecorded::OpenMp),
        Event::Xla(_) => Some(NotRecorded::Xla),
        _ => None,
    }
}
