//! What ties a step of the backward pass to the operator that it is the backward of.
//!
//! Owns: the rows for it, and the offsets in them, taken from the code of the very file. Because: the framework numbers the
//! steps of the backward pass as the forward pass makes them, in a variable of the thread and in each step's own object,
//! and where these are differs between versions. Does not: guess: code of another form than is known gives no rows.
//!
//! | row | probe on | read there |
//! |---|---|---|
//! | [`AutogradEvent::NodeCreated`] | `at::sequence_number::get_and_increment`, its call of `__tls_get_addr` | the number that it is about to give, and the thread as `at::RecordFunction::currentThreadId` counts it |
//! | [`AutogradEvent::NodeBegins`] | `torch::autograd::Engine::evaluate_function` | the same two in the step (third argument), and the stack pointer |
//! | [`AutogradEvent::BackwardBegins`] | `torch::autograd::Engine::execute_with_graph_task` | the stack pointer |
//!
//! Offsets within a step follow from one that `Engine::compute_dependencies` compares: `topological_nr_`, which stands 8
//! bytes behind `sequence_nr_` and 16 before `thread_id_` in every version (torch/csrc/autograd/function.h, 1.13 to 2.15).

use deepctx_events::{AutogradEvent, Event, Role};
use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register as Iced};

use crate::abi::{Place, Register};
use crate::catalogue::Row;
use crate::entry::{Cost, Emulated, Point};
use crate::image::{Image, Kind, Source};
use crate::reason::NoProbe;
use crate::torch::argument;

const SEQUENCE: &str = "_ZN2at15sequence_number17get_and_incrementEv";
const THREAD: &str = "_ZN2at14RecordFunction15currentThreadIdEv";
const DEPENDENCIES: &str = "_ZN5torch8autograd6Engine20compute_dependenciesEPNS0_4NodeERNS0_9GraphTaskEm";
const EVALUATE: &str = "_ZN5torch8autograd6Engine17evaluate_functionERSt10shared_ptrINS0_9GraphTaskEEPNS0_4NodeE\
                        RNS0_11InputBufferERKS2_INS0_10ReadyQueueEE";
/// From 2.13 or 2.14 on steps are counted by `c10::intrusive_ptr`, before by `std::shared_ptr`.
const EXECUTE: [&str; 2] = [
    "_ZN5torch8autograd6Engine23execute_with_graph_taskERKSt10shared_ptrINS0_9GraphTaskEEN3c1013intrusive_ptrI\
     NS0_4NodeENS7_6detail34intrusive_target_default_null_typeIS9_EEEEONS0_11InputBufferE",
    "_ZN5torch8autograd6Engine23execute_with_graph_taskERKSt10shared_ptrINS0_9GraphTaskEES2_INS0_4NodeEEONS0_\
     11InputBufferE",
];

/// Bytes of a function that are looked at: the accessors have some forty, and the comparison stands some 170 into its.
const CODE_BYTES_MAX: u64 = 512;
/// Instructions before the call in an accessor: a landing pad, one that makes a frame, the argument.
const BEFORE_CALL_MAX: usize = 4;
/// Where `topological_nr_` can be: behind the virtual table, a count of references and a number of eight bytes at least.
const TOPOLOGICAL: std::ops::RangeInclusive<u32> = 0x18..=0x40;

/// The rows for this library.
///
/// # Errors
/// Why there are none: a function is missing, or its code has an unknown form.
pub(super) fn rows<S: Source + ?Sized>(image: &Image<'_, S>) -> Result<Vec<Row>, NoProbe> {
    let symbols = [SEQUENCE, THREAD, DEPENDENCIES, EVALUATE, EXECUTE[0], EXECUTE[1]];
    let found = image.find(&symbols).map_err(NoProbe::File)?;
    let code = |at: usize| {
        let symbol = found.get(at).and_then(|same| same.first()).ok_or(NoProbe::NotExported)?;
        if symbol.kind != Kind::Code {
            return Err(NoProbe::NotCode);
        }
        let length = if symbol.size > 0 { symbol.size.min(CODE_BYTES_MAX) } else { CODE_BYTES_MAX };
        let (_, bytes) = image.code(symbol.svma, length).ok_or(NoProbe::NotCode)?;
        Ok((symbol.svma.0, bytes))
    };
    code(3)?;
    let execute = if code(4).is_ok() { EXECUTE[0] } else { code(5).map(|_| EXECUTE[1])? };
    let accessor = |at| code(at).and_then(|(at, code)| accessor(&code, at).ok_or(NoProbe::NotCalibrated));
    let (sequence, thread) = (accessor(0)?, accessor(1)?);
    if sequence.module != thread.module {
        return Err(NoProbe::NotCalibrated);
    }
    let (_, dependencies) = code(2)?;
    let topological = compared(&dependencies).ok_or(NoProbe::NotCalibrated)?;

    let local = Place::ThreadLocal;
    let in_step = |offset| Place::BehindRegister { register: Register::Rdx, offset };
    let stack_pointer =
        || argument(Role::StackPointer, Place::Register { register: Register::Rsp, shift: 0 });
    Ok(vec![
        Row::calibrated(
            Event::Autograd(AutogradEvent::NodeCreated),
            &[SEQUENCE],
            vec![
                argument(Role::Sequence, local(sequence.offset)),
                argument(Role::ForwardThread, local(thread.offset)),
            ],
        ),
        Row::calibrated(
            Event::Autograd(AutogradEvent::NodeBegins),
            &[EVALUATE],
            vec![
                argument(Role::Sequence, in_step(topological - 8)),
                argument(Role::ForwardThread, in_step(topological + 16)),
                stack_pointer(),
            ],
        ),
        Row::calibrated(Event::Autograd(AutogradEvent::BackwardBegins), &[execute], vec![stack_pointer()]),
    ])
}

/// The rows without what only the file tells, to say what is missing.
pub(super) fn unplaced() -> Vec<Row> {
    [
        (Event::Autograd(AutogradEvent::NodeCreated), SEQUENCE),
        (Event::Autograd(AutogradEvent::NodeBegins), EVALUATE),
        (Event::Autograd(AutogradEvent::BackwardBegins), EXECUTE[0]),
    ]
    .map(|(event, symbol)| Row::calibrated(event, &[symbol], Vec::new()))
    .into()
}

/// The instruction of an accessor to probe: its call, before which the module's index is where it is handed over.
pub(crate) fn thread_local_point(code: &[u8]) -> Option<Point> {
    let Accessor { call, frame, .. } = accessor(code, 0)?;
    Some(Point { offset: call, frame, cost: Cost::Emulated(Emulated::Call) })
}

/// What a function does that reads a variable of the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Accessor {
    /// Bytes to its call of `__tls_get_addr`.
    call: u16,
    /// Bytes by which the stack pointer is lower there.
    frame: u16,
    /// Stated address of what it hands over: the `tls_index` of the module.
    module: u64,
    /// Where the variable is in the module's block.
    offset: i16,
}

/// Follows a function at a stated address that begins with `lea index(%rip), %rdi; call __tls_get_addr; mov
/// offset(%rax), …` after making a frame.
fn accessor(code: &[u8], svma: u64) -> Option<Accessor> {
    let mut decoder = Decoder::with_ip(64, code, svma, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    let mut frame = 0;
    let mut module = None;
    for _ in 0..=BEFORE_CALL_MAX {
        decoder.decode_out(&mut instruction);
        let at = instruction.ip().wrapping_sub(svma);
        match instruction.mnemonic() {
            Mnemonic::Endbr64 => {}
            Mnemonic::Push => frame += 8,
            Mnemonic::Sub
                if instruction.op0_register() == Iced::RSP && instruction.op1_kind() != OpKind::Register =>
            {
                frame += u16::try_from(instruction.try_immediate(1).ok()?).ok()?;
            }
            Mnemonic::Lea
                if instruction.op0_register() == Iced::RDI && instruction.is_ip_rel_memory_operand() =>
            {
                module = Some(instruction.ip_rel_memory_address());
            }
            // Without prefixes, which the kernel would step over: the form for a variable among others of its module.
            Mnemonic::Call if instruction.code() == Code::Call_rel32_64 && instruction.len() == 5 => {
                let (module, call) = (module?, u16::try_from(at).ok()?);
                decoder.decode_out(&mut instruction);
                let loads = instruction.mnemonic() == Mnemonic::Mov
                    && instruction.op1_kind() == OpKind::Memory
                    && instruction.op0_register().is_gpr64()
                    && instruction.memory_base() == Iced::RAX
                    && instruction.memory_index() == Iced::None
                    && instruction.segment_prefix() == Iced::None;
                let offset = i16::try_from(instruction.memory_displacement64().cast_signed()).ok()?;
                return (loads && offset >= 0).then_some(Accessor { call, frame, module, offset });
            }
            _ => return None,
        }
    }
    None
}

/// Where the number is that is compared, without a sign, with an argument, when there is one such comparison.
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

    /// `get_and_increment` and `currentThreadId` of PyTorch 2.15.0, at the addresses that the file states.
    const GET_AND_INCREMENT: (u64, &[u8]) = (
        0x195_8090,
        &[
            0x48, 0x83, 0xec, 0x08, 0x48, 0x8d, 0x3d, 0xfd, 0x44, 0x56, 0x13, 0xe8, 0xd0, 0xcc, 0x68, 0xff,
            0x48, 0x8b, 0x90, 0xd0, 0x01, 0x00, 0x00, 0x48, 0x8d, 0x4a, 0x01, 0x48, 0x89, 0x88, 0xd0, 0x01,
            0x00, 0x00, 0x48, 0x89, 0xd0, 0x48, 0x83, 0xc4, 0x08, 0xc3,
        ],
    );
    const CURRENT_THREAD_ID: (u64, &[u8]) = (
        0x1b9_28b0,
        &[
            0x48, 0x83, 0xec, 0x08, 0x48, 0x8d, 0x3d, 0xdd, 0x9c, 0x32, 0x13, 0xe8, 0xb0, 0x24, 0x45, 0xff,
            0x48, 0x8b, 0x90, 0xb0, 0x22, 0x00, 0x00, 0x48, 0x85, 0xd2, 0x74, 0x0c,
        ],
    );
    /// Around the comparison in `compute_dependencies` of PyTorch 2.15.0.
    const COMPARISON: &[u8] = &[
        0x4c, 0x39, 0xe2, 0x0f, 0x84, 0x78, 0x05, 0, 0, 0x49, 0x8b, 0x5c, 0x24, 0xf8, 0x48, 0x8b, 0x7c, 0x24,
        0x10, 0x49, 0x83, 0xec, 0x08, 0xb8, 1, 0, 0, 0, 0xc6, 0x43, 0x20, 0x01, 0x48, 0x39, 0x7b, 0x18, 0x72,
        0xda, 0x80, 0x7c, 0x24, 0x2b, 0x00,
    ];

    #[test]
    fn the_accessors_of_a_release_lead_to_one_block_of_the_thread() {
        let sequence = accessor(GET_AND_INCREMENT.1, GET_AND_INCREMENT.0).unwrap();
        let thread = accessor(CURRENT_THREAD_ID.1, CURRENT_THREAD_ID.0).unwrap();
        assert_eq!(sequence, Accessor { call: 11, frame: 8, module: 0x14eb_c598, offset: 0x1d0 });
        assert_eq!((thread.module, thread.offset), (0x14eb_c598, 0x22b0));
        let point = thread_local_point(GET_AND_INCREMENT.1).unwrap();
        assert_eq!(point.to_string(), "call at +11");
    }

    #[test]
    fn the_field_that_is_compared_is_found() {
        assert_eq!(compared(COMPARISON), Some(0x18));
        // 2.12.1: cmp %rdi, 0x20(%r14); jb
        assert_eq!(compared(&[0x49, 0x39, 0x7e, 0x20, 0x72, 0xda]), Some(0x20));
    }

    #[test]
    fn code_of_another_form_gives_nothing() {
        for (what, code) in [
            ("nothing", &[][..]),
            ("mov %fs:0x10,%rax; ret", &[0x64, 0x48, 0x8b, 0x04, 0x25, 0x10, 0, 0, 0, 0xc3]),
            ("lea 0(%rip),%rdi; ret", &[0x48, 0x8d, 0x3d, 0, 0, 0, 0, 0xc3]),
            ("call without an argument", &[0xe8, 0, 0, 0, 0, 0x48, 0x8b, 0x40, 0x10]),
            // The form for a variable alone: `data16 lea; data16 data16 rex.W call`.
            (
                "prefixes",
                &[
                    0x66, 0x48, 0x8d, 0x3d, 0, 0, 0, 0, 0x66, 0x66, 0x48, 0xe8, 0, 0, 0, 0, 0x48, 0x8b, 0,
                    0xc3,
                ],
            ),
            (
                "an offset below the block",
                &[0x48, 0x8d, 0x3d, 0, 0, 0, 0, 0xe8, 0, 0, 0, 0, 0x48, 0x8b, 0x40, 0xf8],
            ),
        ] {
            assert_eq!(accessor(code, 0), None, "{what}");
        }
        // Two fields are compared: which is meant?
        let two = [COMPARISON, &[0x48, 0x39, 0x7b, 0x20, 0x72, 0xda]].concat();
        assert_eq!(compared(&two), None);
        // A field of the frame, a signed comparison, a field where none can be.
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
        fn whatever_the_bytes_nothing_breaks(code in proptest::collection::vec(any::<u8>(), 0..100), svma: u64) {
            let _ = compared(&code);
            if let Some(found) = accessor(&code, svma) {
                prop_assert!(usize::from(found.call) < code.len());
            }
        }
    }
}
