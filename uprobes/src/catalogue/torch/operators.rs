//! Operator starts, and the stack position of each.
//!
//! Owns: the rows for it. Because: every operator first checks whether a profiler listens; that check is one function,
//! which returns into the operator's own. Does not: know names: the return address gives them.
//!
//! | row | probe on | read there |
//! |---|---|---|
//! | [`OperatorEvent::Begins`] | `at::getStepCallbacksUnlessEmpty(RecordScope)` | the return address, the stack pointer, the scope (second argument: the first is where the result goes) |
//! | [`OperatorEvent::Named`] | `c10::Dispatcher::callBoxed(OperatorHandle const&, Stack*)` | the operator's name, which its handle points to |
//!
//! A handle is a pointer to an operator's entry, which begins with two `std::string`, name and overload
//! (aten/src/ATen/core/dispatch/OperatorEntry.h, 1.13 to 2.15). From 2.7 on the function is no longer exported, and
//! compiled without its object: the handle is then its first argument instead of its second.

use deepctx_events::{Event, Family, OperatorEvent, Role};
use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, OpKind, Register as Iced};

use crate::abi::{Argument, Location, Register, Scalar};
use crate::locate::elf::{ByteSource, Image, SymbolKind};
use crate::locate::reason::NoProbe;
use crate::row::Row;

const BEGINS: &str = "_ZN2at27getStepCallbacksUnlessEmptyENS_11RecordScopeE";
/// The entry function in both signatures: with its object, and without.
const BOXED: [&str; 2] = [
    "_ZNK3c1010Dispatcher9callBoxedERKNS_14OperatorHandleEPSt6vectorINS_6IValueESaIS5_EE",
    "_ZNK3c1010Dispatcher9callBoxedERKNS_14OperatorHandleEPSt6vectorINS_6IValueESaIS5_EE.isra.0",
];
/// Bytes of `std::string` (libstdc++): pointer, length, and room for fifteen bytes and a zero.
const STRING: i16 = 32;
/// Offsets of its length, and of the bytes of a short one.
const LENGTH: i16 = 8;
const SHORT: i16 = 16;
/// Bytes of a function within which the handle is read.
const CODE_BYTES: u64 = 96;

/// The rows for this library.
///
/// # Errors
/// Why there are none: the function is missing.
pub(crate) fn rows<S: ByteSource + ?Sized>(image: &Image<'_, S>) -> Result<Vec<Row>, NoProbe> {
    let found = image.find(&[BEGINS, BOXED[0], BOXED[1]]).map_err(NoProbe::File)?;
    let is_code = found[0].first().is_some_and(|symbol| symbol.kind == SymbolKind::Code);
    if !is_code {
        return Err(NoProbe::NotExported);
    }
    let mut rows = unplaced();
    for (symbol, same, register) in
        [(BOXED[0], &found[1], Register::Rsi), (BOXED[1], &found[2], Register::Rdi)]
    {
        let reads =
            |svma| image.code(svma, CODE_BYTES).is_some_and(|(_, code)| reads_handle(&code, register));
        if !same.is_empty() && same.iter().all(|symbol| reads(symbol.svma)) {
            rows.push(Row::placed(
                Family::Torch,
                Event::Operator(OperatorEvent::Named),
                symbol,
                name_behind(register),
            ));
        }
    }
    Ok(rows)
}

/// The row that the request requires.
pub(crate) fn unplaced() -> Vec<Row> {
    let arguments = vec![
        Argument::word(Role::ReturnAddress, Location::Stack(0)),
        Argument::word(Role::StackPointer, Location::in_register(Register::Rsp)),
        Argument::new(Role::Scope, Scalar::U8, Location::in_register(Register::Rsi)),
    ];
    vec![Row::placed(Family::Torch, Event::Operator(OperatorEvent::Begins), BEGINS, arguments)]
}

/// Location of an operator's name, given the register with its handle.
fn name_behind(register: Register) -> Vec<Argument> {
    let entry = |role, offset| Argument::word(role, Location::BehindPointer { register, at: 0, offset });
    vec![
        entry(Role::Name, 0),
        entry(Role::OverloadBytes, STRING + LENGTH),
        entry(Role::Overload, STRING + SHORT),
        entry(Role::Overload, STRING + SHORT + 8),
    ]
}

/// Whether a function reads a handle, the pointer that this register points to, before it overwrites the register.
fn reads_handle(code: &[u8], register: Register) -> bool {
    let register = register.iced();
    let mut decoder = Decoder::with_ip(64, code, 0, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    let mut holds = vec![register];
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        if instruction.is_invalid() || instruction.flow_control() != FlowControl::Next {
            return false;
        }
        let to = instruction.op0_register();
        match instruction.code() {
            Code::Mov_r64_rm64
                if instruction.op1_kind() == OpKind::Memory
                    && holds.contains(&instruction.memory_base())
                    && instruction.memory_index() == Iced::None =>
            {
                return instruction.memory_displacement64() == 0;
            }
            Code::Mov_r64_rm64 | Code::Mov_rm64_r64
                if instruction.op0_kind() == OpKind::Register
                    && instruction.op1_kind() == OpKind::Register
                    && holds.contains(&instruction.op1_register()) =>
            {
                holds.push(to);
            }
            _ if instruction.op0_kind() == OpKind::Register => {
                holds.retain(|held| *held != to.full_register())
            }
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_that_read_the_handle_first_are_recognized() {
        // 2.15.0: push; push; mov %rdi,%r14; …; mov %rsi,%rbp; …; sub; mov (%rdi),%r12
        let code = [
            0x41, 0x57, 0x41, 0x56, 0x49, 0x89, 0xfe, 0x41, 0x55, 0x41, 0x54, 0x55, 0x48, 0x89, 0xf5, 0x53,
            0x31, 0xdb, 0x48, 0x81, 0xec, 0x18, 0x02, 0, 0, 0x4c, 0x8b, 0x27, 0x4d, 0x8b, 0xbc, 0x24, 0x60,
            0x16, 0, 0,
        ];
        assert!(reads_handle(&code, Register::Rdi));
        assert!(!reads_handle(&code, Register::Rsi));
        // Through a copy; a field of the object; overwritten; left.
        assert!(reads_handle(&[0x49, 0x89, 0xfe, 0x4d, 0x8b, 0x26], Register::Rdi));
        assert!(!reads_handle(&[0x4c, 0x8b, 0x67, 0x08], Register::Rdi));
        assert!(!reads_handle(&[0x48, 0x89, 0xd7, 0x4c, 0x8b, 0x27], Register::Rdi));
        assert!(!reads_handle(&[0xc3, 0x4c, 0x8b, 0x27], Register::Rdi));
        assert!(!reads_handle(&[], Register::Rdi));
    }
}
