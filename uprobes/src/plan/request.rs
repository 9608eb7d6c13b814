//! What is requested beside the calls of accelerators.
//!
//! Owns: [`ProbeRequest`], and what a profile lacks where a request cannot be met. Because: such probes cost the
//! program time at each operator or allocation, so none is placed that was not requested. Does not: know which
//! functions a request needs.

use deepctx_events::{Event, OperatorEvent, RangeEvent, TensorEvent};

/// What is requested of frameworks and of the program itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProbeRequest {
    /// Which operator an autograd node belongs to.
    pub backward: bool,
    /// Which named ranges of the program a thread is in, and the training steps that follow from them.
    pub ranges: bool,
    /// Who allocated the memory of tensors.
    pub memory: bool,
    /// Who started the parallel region that a thread of OpenMP works for.
    pub openmp: bool,
    /// Which operators begin, within which.
    pub operators: bool,
    /// Operators whose tensors are recorded, as schemas name them: `aten::addmm`; without an overload all of them.
    pub tensors: Vec<String>,
    /// More of these will be added, once it is known which take most time.
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

/// What a profile lacks where this event cannot be probed; `None` of an event that no request needs.
pub fn missing(event: Event) -> Option<&'static str> {
    match event {
        Event::Autograd(_) => Some("the backward pass stays where it runs"),
        Event::Range(RangeEvent::Named | RangeEvent::Begins | RangeEvent::Ends) => {
            Some("ranges and training steps are not recorded")
        }
        Event::Operator(OperatorEvent::Begins | OperatorEvent::Named) => {
            Some("where operators begin is not recorded")
        }
        Event::Operator(OperatorEvent::Tensors) => Some("tensors of an operator are not recorded"),
        Event::Tensor(TensorEvent::Alloc | TensorEvent::Free) => {
            Some("memory of tensors on the host is not recorded")
        }
        Event::OpenMp(_) => Some("work of OpenMP's threads stays where it runs"),
        Event::Xla(_) => Some("thunks of XLA go by their types"),
        Event::Tensor(TensorEvent::Request) => {
            Some("how much was requested of CUDA's allocator is not recorded")
        }
        _ => None,
    }
}
