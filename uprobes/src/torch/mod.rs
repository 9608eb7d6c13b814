//! PyTorch's libraries: what it tells of itself, where somebody asks for it.
//!
//! Owns: which rows a question needs, a file for each question. Because: none of it is free, so nothing is watched that was not
//! asked for, and where one question cannot be answered the others still are. Does not: attach.

mod backward;
mod follow;
pub(crate) mod memory;
mod ranges;
mod signature;
mod starts;
mod tensors;

use deepctx_events::{Event, OperatorEvent, RangeEvent, Role, TensorEvent};

use crate::abi::{Argument, Place};
use crate::catalogue::Row;
use crate::image::{Image, Source};
use crate::reason::NoProbe;
use crate::site::Site;
use crate::types::Scalar;

pub(crate) use backward::thread_local_point;

/// What is asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Questions {
    /// Which operator a step of the backward pass belongs to.
    pub backward: bool,
    /// Which named ranges of the program a thread is in, and the steps of training that follow from them.
    pub ranges: bool,
    /// Who allocated the memory of tensors.
    pub memory: bool,
    /// Who handed work to the threads of a team: of OpenMP, which the framework does its own loops with.
    pub teams: bool,
    /// Which operators begin, within which.
    pub operators: bool,
    /// Of which operators the tensors are told, as schemas name them: `aten::addmm`; without an overload all of them.
    pub tensors: Vec<String>,
    /// More of these will be asked for, once it is known which take most time.
    pub more_tensors: bool,
}

impl Questions {
    /// Whether anything is asked.
    pub fn any(&self) -> bool {
        self.of_operators() || self.memory || self.teams
    }

    /// Whether anything is asked that `libtorch_cpu.so` answers, about operators and the lines that call them.
    pub fn of_operators(&self) -> bool {
        self.backward || self.ranges || self.operators || self.of_tensors()
    }

    /// Whether tensors are asked for, or will be.
    pub fn of_tensors(&self) -> bool {
        self.more_tensors || !self.tensors.is_empty()
    }
}

/// What answers the questions in one file.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    /// To be probed.
    pub(crate) rows: Vec<Row>,
    /// To be probed where the file itself says.
    pub(crate) sites: Vec<Site>,
    /// Cannot be, and why.
    pub(crate) lacking: Vec<(Row, NoProbe)>,
}

/// Looks for what answers the questions.
pub(crate) fn look<S: Source + ?Sized>(
    image: Result<&Image<'_, S>, NoProbe>,
    questions: &Questions,
) -> Answers {
    let mut answers = Answers::default();
    if questions.backward {
        answers.take(image.and_then(backward::rows), backward::unplaced);
    }
    if questions.ranges {
        answers.take(image.and_then(ranges::rows), ranges::unplaced);
    }
    if questions.operators {
        answers.take(image.and_then(starts::rows), starts::unplaced);
    }
    if let Some(first) = questions.tensors.first() {
        match image.and_then(|image| tensors::rows(image, &questions.tensors)) {
            Ok(found) => {
                answers.rows.extend(found.rows);
                answers.sites.extend(found.sites);
                answers.lacking.extend(found.lacking);
            }
            Err(because) => answers.lacking.push((tensors::unplaced(first), because)),
        }
    }
    answers
}

impl Answers {
    pub(crate) fn take(&mut self, rows: Result<Vec<Row>, NoProbe>, unplaced: impl FnOnce() -> Vec<Row>) {
        match rows {
            Ok(rows) => self.rows.extend(rows),
            Err(because) => self.lacking.extend(unplaced().into_iter().map(|row| (row, because))),
        }
    }
}

/// What a profile lacks where this event cannot be seen; `None` of an event that answers no question.
pub fn lacking(event: Event) -> Option<&'static str> {
    match event {
        Event::Autograd(_) => Some("the backward pass stays where it runs"),
        Event::Range(RangeEvent::Named | RangeEvent::Begins | RangeEvent::Ends) => {
            Some("ranges and steps are not told")
        }
        Event::Operator(OperatorEvent::Begins | OperatorEvent::Named) => {
            Some("operators are not told by their beginnings")
        }
        Event::Operator(OperatorEvent::Tensors) => Some("tensors of an operator are not told"),
        Event::Tensor(TensorEvent::Alloc | TensorEvent::Free) => {
            Some("memory of tensors on the host is not told")
        }
        Event::OpenMp(_) => Some("work of OpenMP's threads stays where it runs"),
        Event::Xla(_) => Some("thunks of XLA go by their types"),
        Event::Tensor(TensorEvent::Request) => Some("how much was asked for of CUDA's allocator is not told"),
        _ => None,
    }
}

pub(crate) fn argument(role: Role, place: Place) -> Argument {
    Argument { role, name: role.key().into(), scalar: Scalar::U64, place }
}
