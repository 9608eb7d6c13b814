//! Thread-local variables, read where a function requests their address.
//!
//! Owns: recognizing a function that reads such a variable, and where to probe it. Because: a probe cannot compute the
//! address of a thread's block, but at the call of `__tls_get_addr` the module's index is in a register. Does not: know
//! what the variable means.

use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register as Iced};

use super::instruction::{EmulatedInstruction, ProbeCost, ProbePoint};

/// Instructions before the call: a landing pad, one that makes a frame, the argument.
const BEFORE_CALL_MAX: usize = 4;

/// The instruction of such a function to probe: its call, before which the first argument's register points to the
/// module's `tls_index`.
pub(crate) fn probe_point(code: &[u8]) -> Option<ProbePoint> {
    let Accessor { call, frame, .. } = Accessor::of(code, 0)?;
    Some(ProbePoint { offset: call, frame, cost: ProbeCost::Emulated(EmulatedInstruction::Call) })
}

/// The facts about a function that reads a thread-local variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Accessor {
    /// Offset of its call of `__tls_get_addr`.
    call: u16,
    /// Bytes by which the stack pointer is lower there.
    frame: u16,
    /// Stated address of the argument: the `tls_index` of the module.
    pub(crate) module: u64,
    /// Offset of the variable in the module's block.
    pub(crate) offset: i16,
}

impl Accessor {
    /// Follows a function at a stated address that begins with `lea index(%rip), %rdi; call __tls_get_addr; mov
    /// offset(%rax), …` after making a frame.
    pub(crate) fn of(code: &[u8], svma: u64) -> Option<Self> {
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
                    if instruction.op0_register() == Iced::RSP
                        && instruction.op1_kind() != OpKind::Register =>
                {
                    frame += u16::try_from(instruction.try_immediate(1).ok()?).ok()?;
                }
                Mnemonic::Lea
                    if instruction.op0_register() == Iced::RDI && instruction.is_ip_rel_memory_operand() =>
                {
                    module = Some(instruction.ip_rel_memory_address());
                }
                // Without prefixes, which the kernel would single-step: the form for a variable among others of its
                // module.
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
                    return (loads && offset >= 0).then_some(Self { call, frame, module, offset });
                }
                _ => return None,
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// `get_and_increment` and `currentThreadId` of PyTorch 2.15.0, at their stated addresses.
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
    #[test]
    fn accessors_of_a_release_share_one_thread_local_block() {
        let sequence = Accessor::of(GET_AND_INCREMENT.1, GET_AND_INCREMENT.0).unwrap();
        let thread = Accessor::of(CURRENT_THREAD_ID.1, CURRENT_THREAD_ID.0).unwrap();
        assert_eq!(sequence, Accessor { call: 11, frame: 8, module: 0x14eb_c598, offset: 0x1d0 });
        assert_eq!((thread.module, thread.offset), (0x14eb_c598, 0x22b0));
        let point = probe_point(GET_AND_INCREMENT.1).unwrap();
        assert_eq!(point.to_string(), "call at +11");
    }

    #[test]
    fn code_of_another_form_gives_nothing() {
        for (what, code) in [
            ("nothing", &[][..]),
            ("mov %fs:0x10,%rax; ret", &[0x64, 0x48, 0x8b, 0x04, 0x25, 0x10, 0, 0, 0, 0xc3]),
            ("lea 0(%rip),%rdi; ret", &[0x48, 0x8d, 0x3d, 0, 0, 0, 0, 0xc3]),
            ("call without an argument", &[0xe8, 0, 0, 0, 0, 0x48, 0x8b, 0x40, 0x10]),
            // The form for a single variable: `data16 lea; data16 data16 rex.W call`.
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
            assert_eq!(Accessor::of(code, 0), None, "{what}");
        }
    }

    proptest! {
        #[test]
        fn the_call_is_within_the_code(code in proptest::collection::vec(any::<u8>(), 0..100), svma: u64) {
            if let Some(found) = Accessor::of(&code, svma) {
                prop_assert!(usize::from(found.call) < code.len());
            }
        }
    }
}
