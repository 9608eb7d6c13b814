//! Links autograd nodes to the operators whose backward pass they run.
//!
//! Owns: the rows for it, and the offsets in them, read from the code of the very file. Because: the framework numbers
//! autograd nodes as the forward pass creates them, in a variable of the thread and in each node's own object, and
//! their locations differ between versions. Does not: guess: code of unknown form gives no rows.
//!
//! | row | probe on | read there |
//! |---|---|---|
//! | [`AutogradEvent::NodeCreated`] | `at::sequence_number::get_and_increment`, its call of `__tls_get_addr` | the number that it is about to assign, and the thread as `at::RecordFunction::currentThreadId` counts it |
//! | [`AutogradEvent::NodeBegins`] | `torch::autograd::Engine::evaluate_function` | the same two in the node (third argument), and the stack pointer |
//! | [`AutogradEvent::BackwardBegins`] | `torch::autograd::Engine::execute_with_graph_task` | the stack pointer |
//!
//! Offsets within a node follow from one that `Engine::compute_dependencies` compares: `topological_nr_`, which is 8
//! bytes after `sequence_nr_` and 16 before `thread_id_` in every version (torch/csrc/autograd/function.h, 1.13 to
//! 2.15).

use deepctx_events::{AutogradEvent, Event, Family, Role};
use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register as Iced};

use crate::abi::{Argument, Location, Register};
use crate::locate::elf::{ByteSource, Image, SymbolKind};
use crate::locate::reason::NoProbe;
use crate::locate::thread_local::Accessor;
use crate::row::Row;

const SEQUENCE: &str = "_ZN2at15sequence_number17get_and_incrementEv";
const THREAD: &str = "_ZN2at14RecordFunction15currentThreadIdEv";
const DEPENDENCIES: &str = "_ZN5torch8autograd6Engine20compute_dependenciesEPNS0_4NodeERNS0_9GraphTaskEm";
const EVALUATE: &str = "_ZN5torch8autograd6Engine17evaluate_functionERSt10shared_ptrINS0_9GraphTaskEEPNS0_4NodeE\
                        RNS0_11InputBufferERKS2_INS0_10ReadyQueueEE";
/// From 2.13 or 2.14 on nodes are counted by `c10::intrusive_ptr`, before that by `std::shared_ptr`.
const EXECUTE: [&str; 2] = [
    "_ZN5torch8autograd6Engine23execute_with_graph_taskERKSt10shared_ptrINS0_9GraphTaskEEN3c1013intrusive_ptrI\
     NS0_4NodeENS7_6detail34intrusive_target_default_null_typeIS9_EEEEONS0_11InputBufferE",
    "_ZN5torch8autograd6Engine23execute_with_graph_taskERKSt10shared_ptrINS0_9GraphTaskEES2_INS0_4NodeEEONS0_\
     11InputBufferE",
];

/// Bytes read of a function: accessors have about forty, and the comparison is about 170 into its function.
const CODE_BYTES_MAX: u64 = 512;
/// Possible offsets of `topological_nr_`: after a virtual table, a reference count and eight bytes, at least.
const TOPOLOGICAL: std::ops::RangeInclusive<u32> = 0x18..=0x40;

/// The rows for this library.
///
/// # Errors
/// Why there are none: a function is missing, or its code has an unknown form.
pub(crate) fn rows<S: ByteSource + ?Sized>(image: &Image<'_, S>) -> Result<Vec<Row>, NoProbe> {
    let symbols = [SEQUENCE, THREAD, DEPENDENCIES, EVALUATE, EXECUTE[0], EXECUTE[1]];
    let found = image.find(&symbols).map_err(NoProbe::File)?;
    let code = |at: usize| {
        let symbol = found.get(at).and_then(|same| same.first()).ok_or(NoProbe::NotExported)?;
        if symbol.kind != SymbolKind::Code {
            return Err(NoProbe::NotCode);
        }
        let length = if symbol.size > 0 { symbol.size.min(CODE_BYTES_MAX) } else { CODE_BYTES_MAX };
        let (_, bytes) = image.code(symbol.svma, length).ok_or(NoProbe::NotCode)?;
        Ok((symbol.svma.0, bytes))
    };
    code(3)?;
    let execute = if code(4).is_ok() { EXECUTE[0] } else { code(5).map(|_| EXECUTE[1])? };
    let accessor = |at| code(at).and_then(|(at, code)| Accessor::of(&code, at).ok_or(NoProbe::NotCalibrated));
    let (sequence, thread) = (accessor(0)?, accessor(1)?);
    if sequence.module != thread.module {
        return Err(NoProbe::NotCalibrated);
    }
    let (_, dependencies) = code(2)?;
    let topological = compared(&dependencies).ok_or(NoProbe::NotCalibrated)?;

    let local = Location::ThreadLocal;
    let in_node = |offset| Location::BehindRegister { register: Register::Rdx, offset };
    let stack_pointer = || Argument::word(Role::StackPointer, Location::in_register(Register::Rsp));
    Ok(vec![
        Row::placed(
            Family::Torch,
            Event::Autograd(AutogradEvent::NodeCreated),
            SEQUENCE,
            vec![
                Argument::word(Role::Sequence, local(sequence.offset)),
                Argument::word(Role::ForwardThread, local(thread.offset)),
            ],
        ),
        Row::placed(
            Family::Torch,
            Event::Autograd(AutogradEvent::NodeBegins),
            EVALUATE,
            vec![
                Argument::word(Role::Sequence, in_node(topological - 8)),
                Argument::word(Role::ForwardThread, in_node(topological + 16)),
                stack_pointer(),
            ],
        ),
        Row::placed(
            Family::Torch,
            Event::Autograd(AutogradEvent::BackwardBegins),
            execute,
            vec![stack_pointer()],
        ),
    ])
}

/// The rows without the facts that only the file has, for reporting what is missing.
pub(crate) fn unplaced() -> Vec<Row> {
    [
        (Event::Autograd(AutogradEvent::NodeCreated), SEQUENCE),
        (Event::Autograd(AutogradEvent::NodeBegins), EVALUATE),
        (Event::Autograd(AutogradEvent::BackwardBegins), EXECUTE[0]),
    ]
    .map(|(event, symbol)| Row::placed(Family::Torch, event, symbol, Vec::new()))
    .into()
}

/// Offset of the field that is compared, unsigned, with an argument, if there is exactly one such comparison.
fn compared(code: &[u8]) -> Option<i32> {
    let mut decoder = Decoder::with_ip(64, code, 0, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    let mut before: Option<i32> = None;
    let mut found = None;
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        if instruction.is_invalid() {
            break;
        }
        let is_below = matches!(instruction.mnemonic(), Mnemonic::Jb | Mnemonic::Jae);
        if let Some(offset) = before.take().filter(|_| is_below)
            && found.replace(offset).is_some_and(|other| other != offset)
        {
            return None;
        }
        let base = instruction.memory_base();
        let of_object = instruction.code() == Code::Cmp_rm64_r64
            && instruction.op0_kind() == OpKind::Memory
            && instruction.memory_index() == Iced::None
            && !matches!(base, Iced::RSP | Iced::RIP | Iced::None)
            && instruction.flow_control() == FlowControl::Next;
        let offset = u32::try_from(instruction.memory_displacement64()).ok();
        before = offset
            .filter(|offset| of_object && offset % 8 == 0 && TOPOLOGICAL.contains(offset))
            .map(u32::cast_signed);
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The code around the comparison in `compute_dependencies` of PyTorch 2.15.0.
    const COMPARISON: &[u8] = &[
        0x4c, 0x39, 0xe2, 0x0f, 0x84, 0x78, 0x05, 0, 0, 0x49, 0x8b, 0x5c, 0x24, 0xf8, 0x48, 0x8b, 0x7c, 0x24,
        0x10, 0x49, 0x83, 0xec, 0x08, 0xb8, 1, 0, 0, 0, 0xc6, 0x43, 0x20, 0x01, 0x48, 0x39, 0x7b, 0x18, 0x72,
        0xda, 0x80, 0x7c, 0x24, 0x2b, 0x00,
    ];

    #[test]
    fn the_field_that_is_compared_is_found() {
        assert_eq!(compared(COMPARISON), Some(0x18));
        // 2.12.1: cmp %rdi, 0x20(%r14); jb
        assert_eq!(compared(&[0x49, 0x39, 0x7e, 0x20, 0x72, 0xda]), Some(0x20));
    }

    #[test]
    fn code_of_another_form_gives_nothing() {
        // Two fields are compared: ambiguous.
        let two = [COMPARISON, &[0x48, 0x39, 0x7b, 0x20, 0x72, 0xda]].concat();
        assert_eq!(compared(&two), None);
        // A field of the frame, a signed comparison, a field at an impossible offset.
        for code in [
            [0x48, 0x39, 0x7c, 0x24, 0x18, 0x72],
            [0x48, 0x39, 0x7b, 0x18, 0x7c, 0],
            [0x48, 0x39, 0x7b, 0x08, 0x72, 0],
        ] {
            assert_eq!(compared(&code), None, "{code:02x?}");
        }
    }

    proptest! {
        #[test]
        fn whatever_the_bytes_nothing_breaks(code in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = compared(&code);
        }
    }
}
