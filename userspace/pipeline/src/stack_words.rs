//! Stack words: decodes the words of a stack one by one.
//!
//! Owns: the forms of user and kernel words, and moving runs of Python frames where only the whole stack shows which
//! evaluation loop they belong to. Because: all readers of words need the same decoding. Does not: know names.
//!
//! ```text
//!  words, leaf first:  kernel… | native  PYTHON PYTHON  native(eval loop)  native …  GAP
//!                                           ▲ one run of Python frames belongs to the native frame after it
//! ```
//!
//! A native frame of the evaluation loop without a run gets a marker in its place, with the reason
//! ([`user_stack_words`]).

use deepctx_common::end::{PythonEnd, WalkEnd};
use deepctx_common::reason::Reason;
use deepctx_common::record::word;
use deepctx_profile::frame::Role;

use crate::decode::Words;
use crate::symbols::{AwaitChainId, CodeAddress, ModuleReference, Name, PythonReference, SpaceId};

/// A decoded word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Code {
    /// Native code in user space.
    Native { space: SpaceId, address: CodeAddress, role: Role },
    /// A Python frame.
    Python { space: SpaceId, code: u64, detail: u64 },
    /// Kernel code.
    Kernel { address: CodeAddress },
    /// Tasks and coroutines that await.
    AwaitChain(AwaitChainId),
    /// A module that is called.
    Module { space: SpaceId, module: ModuleReference },
}

impl Code {
    pub(crate) fn address(&self) -> Option<CodeAddress> {
        match self {
            Code::Native { address, .. } | Code::Kernel { address } => Some(*address),
            Code::Python { .. } | Code::AwaitChain(_) | Code::Module { .. } => None,
        }
    }

    pub(crate) fn reference(&self) -> Option<PythonReference> {
        let Code::Python { code, detail, .. } = *self else { return None };
        Some(python_reference(code, detail))
    }

    pub(crate) fn await_chain(&self) -> Option<AwaitChainId> {
        if let Code::AwaitChain(chain) = self { Some(*chain) } else { None }
    }

    pub(crate) fn module(&self) -> Option<ModuleReference> {
        if let Code::Module { module, .. } = self { Some(*module) } else { None }
    }

    pub(crate) fn role(&self) -> Role {
        match self {
            Code::Native { role, .. } => *role,
            Code::Python { .. } | Code::Kernel { .. } | Code::AwaitChain(_) | Code::Module { .. } => {
                Role::Code
            }
        }
    }

    pub(crate) fn unnamed(&self, reason: &'static Reason) -> Name<'static> {
        match self {
            Code::Native { address: CodeAddress::Exact(offset) | CodeAddress::Return(offset), .. } => {
                Name::NativeUnnamed { module: "", offset: *offset, reason }
            }
            Code::Python { .. } | Code::AwaitChain(_) | Code::Module { .. } => Name::PythonUnnamed { reason },
            Code::Kernel { .. } => Name::KernelUnnamed { reason },
        }
    }
}

/// Words of equal groups are resolved in one call.
pub(crate) fn group(code: &Code) -> (u8, u32) {
    match code {
        Code::Kernel { .. } => (0, 0),
        Code::Native { space, .. } => (1, space.0),
        Code::Python { space, .. } => (2, space.0),
        Code::AwaitChain(_) => (3, 0),
        Code::Module { space, .. } => (4, space.0),
    }
}

/// The reference that the two words of a Python frame make.
pub(crate) fn python_reference(code: u64, detail: u64) -> PythonReference {
    let instruction = Some(detail as u32).filter(|instruction| *instruction != u32::MAX);
    PythonReference { code, checksum: (detail >> 32) as u32, instruction }
}

/// One element of a user stack, as its words encode it.
pub(crate) enum StackWord {
    Code(Code),
    Gap(WalkEnd),
    PythonGap(PythonEnd),
    /// The frame of a coroutine whose caller comes next.
    Coroutine(u64),
    Malformed,
}

/// The elements of user words, leaf first.
pub(crate) fn user_stack_words(
    space: SpaceId,
    words: impl Iterator<Item = u64>,
) -> impl Iterator<Item = StackWord> {
    let mut words = words;
    let mut after_python = false;
    std::iter::from_fn(move || {
        let current = words.next()?;
        let payload = current & word::PAYLOAD;
        let mut native = |address| {
            let role = if std::mem::take(&mut after_python) { Role::Interpreter } else { Role::Code };
            StackWord::Code(Code::Native { space, address, role })
        };
        Some(match word::tag(current) {
            word::RETURN => native(CodeAddress::Return(payload)),
            word::EXACT => native(CodeAddress::Exact(payload)),
            word::PYTHON => match words.next() {
                Some(detail) => {
                    after_python = true;
                    StackWord::Code(Code::Python { space, code: payload, detail })
                }
                None => StackWord::Malformed,
            },
            word::GAP => {
                after_python = payload & word::PYTHON_GAP != 0;
                gap_word(payload)
            }
            word::COROUTINE => StackWord::Coroutine(payload),
            word::OBJECT => match words.next() {
                Some(of_type) => StackWord::Code(Code::Module {
                    space,
                    module: ModuleReference { object: payload, of_type },
                }),
                None => StackWord::Malformed,
            },
            _ => StackWord::Malformed,
        })
    })
}

fn gap_word(payload: u64) -> StackWord {
    let number = |payload| u8::try_from(payload).ok();
    let gap = if payload & word::PYTHON_GAP == 0 {
        number(payload).and_then(WalkEnd::from_number).map(StackWord::Gap)
    } else {
        number(payload & !word::PYTHON_GAP).and_then(PythonEnd::from_number).map(StackWord::PythonGap)
    };
    gap.unwrap_or(StackWord::Malformed)
}

const MISSING: u64 = word::tagged(word::GAP, word::PYTHON_GAP | PythonEnd::ChainShort as u64);

/// The words with each run of Python frames moved to its evaluation loop. Up to 3.10 the stack does not link the two,
/// so the walk gives the first run to the innermost evaluation, and the outermost ones have none. But the innermost
/// ones lack theirs: one that has not linked its frame into the chain yet, or those of a sub-interpreter. `None` when
/// nothing has to be moved.
pub(crate) fn repaired(words: Words<'_>) -> Option<Vec<u64>> {
    let missing = words.iter().filter(|word| *word == MISSING).count();
    if missing == 0 {
        return None;
    }
    let mut runs = std::collections::VecDeque::with_capacity(missing);
    // The first gets none. One missing run is an evaluation that is just beginning or ending: no gap is shown.
    let end = if missing == 1 { PythonEnd::Complete } else { PythonEnd::OtherState };
    runs.extend(std::iter::repeat_n(vec![word::tagged(word::GAP, word::PYTHON_GAP | end as u64)], missing));
    let (mut out, mut run) = (Vec::with_capacity(words.len()), Vec::new());
    let mut words = words.iter();
    while let Some(current) = words.next() {
        match word::tag(current) {
            word::PYTHON | word::OBJECT => run.extend(std::iter::once(current).chain(words.next())),
            _ if current == MISSING => {
                out.extend(runs.pop_front().unwrap_or_default());
            }
            _ => {
                if !run.is_empty() {
                    runs.push_back(std::mem::take(&mut run));
                    out.extend(runs.pop_front().unwrap_or_default());
                }
                out.push(current);
            }
        }
    }
    out.extend(run);
    Some(out)
}

/// The elements of kernel words, leaf first. All but the interrupted instruction are return addresses.
pub(crate) fn kernel_stack_words(words: Words<'_>) -> impl Iterator<Item = Code> + '_ {
    words.iter().enumerate().map(|(n, word)| Code::Kernel {
        address: if n == 0 { CodeAddress::Exact(word) } else { CodeAddress::Return(word) },
    })
}
