//! The tensors that an operator is given: their sizes and types.
//!
//! Owns: the rows for the operators that are asked for, and the offsets in them, taken from each function's own code. Because:
//! an operator's function reads of each tensor which keys it is dispatched by, and where those stand is what differs between
//! versions. Does not: guess: parameters that the code and the mangled name do not agree on give no row.
//!
//! The keys stand behind what is wanted at distances that are the same in 1.13 to 2.15 (c10/core/TensorImpl.h; `0xb8` up to
//! 2.2, `0xb0` up to 2.12, `0xa8` since):
//!
//! | field | bytes before the keys |
//! |---|---|
//! | number of sizes | `0x70` |
//! | sizes, five of them in place | `0x68` |
//! | type of the elements | `0x08` |

use deepctx_symbolizer::framework;
use deepctx_symbolizer::native::demangle::demangled;
use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    OpKind, Register as Iced,
};
use rustc_hash::FxHashMap;

use super::signature::{At, Kind, parameters};
use crate::abi::{Argument, Place, Register};
use crate::catalogue::Row;
use crate::event::Event;
use crate::image::{Image, Source};
use crate::reason::NoProbe;
use crate::role::{Role, Scalar};
use crate::torch::{Answers, argument};

/// Most operators that are watched: all overloads of some dozen.
const OPERATORS_MAX: usize = 256;
/// Tensors that are read of one operator.
const TENSORS_MAX: usize = 3;
/// Sizes that stand in place.
const SIZES: i16 = 5;
/// Most dimensions of a convolution, without batch and channels.
const SPATIAL: i16 = 3;
/// Where the keys are, by version; in the first, types are numbered as in 1.13.
const KEYS: [i16; 3] = [0xb8, 0xb0, 0xa8];
const KEYS_OLD: i16 = KEYS[0];
/// Bytes of a function that are followed: all tensors are read before the first call of another one.
const CODE_BYTES: u64 = 1024;

/// The rows of operators, and those that have none, with the reason.
///
/// # Errors
/// The file has no symbols.
pub(super) fn rows<S: Source + ?Sized>(image: &Image<'_, S>, names: &[String]) -> Result<Answers, NoProbe> {
    let mut answers = Answers::default();
    let begins: Vec<Vec<String>> = names
        .iter()
        .map(|name| framework::identifiers(name).iter().map(|id| begin_of(id)).collect())
        .collect();
    let all: Vec<String> = begins.iter().flatten().cloned().collect();
    let found = image.exported_code(&all, OPERATORS_MAX).map_err(NoProbe::File)?;
    for (name, begins) in names.iter().zip(&begins) {
        if !found.iter().any(|(symbol, _)| begins.iter().any(|begin| symbol.starts_with(begin))) {
            answers.lacking.push((unplaced(name), NoProbe::NotExported));
        }
    }
    for (name, symbol) in found {
        let length = if symbol.size > 0 { symbol.size.min(CODE_BYTES) } else { CODE_BYTES };
        let placed = image.code(symbol.svma, length).and_then(|(_, code)| placed(&name, &code));
        match placed {
            Some(placed) => answers.rows.push(Row::calibrated_as(Event::OperatorTensors, name, placed)),
            None => {
                let row = Row::calibrated_as(Event::OperatorTensors, name, Vec::new());
                answers.lacking.push((row, NoProbe::NotCalibrated));
            }
        }
    }
    Ok(answers)
}

/// A row for an operator that is not there.
pub(super) fn unplaced(name: &str) -> Row {
    Row::calibrated_as(Event::OperatorTensors, name.to_owned(), Vec::new())
}

/// How the mangled name of an operator's function begins.
fn begin_of(identifier: &str) -> String {
    format!("_ZN2at4_ops{}{identifier}4callE", identifier.len())
}

/// What is read of an operator with this mangled name and code.
fn placed(symbol: &str, code: &[u8]) -> Option<Vec<Argument>> {
    let name = demangled(symbol);
    let read = Followed::of(code);
    let keys = read.keys?;
    // Results that are objects are written to where the first register says.
    let shifts = [1, 0].map(|first| parameters(&name, first));
    let parameters = shifts.into_iter().find(|parameters| agree(parameters, &read.of))?;
    let mut out = Vec::new();
    let identifier = name.strip_prefix("at::_ops::").and_then(|name| name.split("::").next())?;
    let of_convolution = matches!(identifier, "convolution" | "conv1d" | "conv2d" | "conv3d");
    let tensors = parameters.iter().filter_map(|parameter| match parameter {
        (Kind::Tensor, At::Register(register)) => Some(*register),
        _ => None,
    });
    for register in tensors.take(if of_convolution { 2 } else { TENSORS_MAX }) {
        tensor(register, keys, &mut out);
    }
    if out.is_empty() {
        return None;
    }
    if of_convolution {
        convolution(&parameters, &mut out);
    }
    Some(out)
}

/// Whether these are the parameters of whose tensors the code reads the keys: of each tensor in a register, and else only of
/// what may hold tensors.
fn agree(parameters: &[(Kind, At)], read: &[Register]) -> bool {
    let mut tensors = 0;
    let mut holders = Vec::new();
    for parameter in parameters {
        match parameter {
            (Kind::Tensor, At::Register(register)) if read.contains(register) => tensors += 1,
            (Kind::Tensor, At::Register(_)) => return false,
            (Kind::Holder, At::Register(register)) => holders.push(*register),
            _ => {}
        }
    }
    let of_holders = read.iter().filter(|register| holders.contains(register)).count();
    tensors > 0 && tensors + of_holders == read.len()
}

/// What is read of the tensor whose address is in a register.
fn tensor(register: Register, keys: i16, out: &mut Vec<Argument>) {
    let field = |role, before: i16, scalar| {
        let place = Place::BehindPointer { register, at: 0, offset: keys - before };
        Argument { scalar, ..argument(role, place) }
    };
    out.push(field(Role::TensorRank, 0x70, Scalar::U64));
    let kind = if keys == KEYS_OLD { Role::TensorTypeOld } else { Role::TensorType };
    out.push(field(kind, 0x08, Scalar::U16));
    out.extend((0..SIZES).map(|at| field(Role::TensorSize, 0x68 - 8 * at, Scalar::U64)));
}

/// What else the work of a convolution depends on: three lists of numbers, whether it is a transposed one, groups.
fn convolution(parameters: &[(Kind, At)], out: &mut Vec<Argument>) {
    let mut lists = parameters.iter().filter(|(kind, _)| *kind == Kind::Numbers).map(|(_, at)| *at);
    for role in [Role::Stride, Role::Padding, Role::Dilation] {
        let Some(at) = lists.next() else { return };
        let length = match at {
            At::Register(register) => {
                let next = Register::ARGUMENTS.into_iter().skip_while(|one| *one != register).nth(1);
                next.map_or(Place::Unreadable, |register| Place::Register { register, shift: 0 })
            }
            At::Stack(stack) => Place::Stack(stack + 8),
            At::Nowhere => Place::Unreadable,
        };
        out.push(argument(role, length));
        out.extend((0..SPATIAL).map(|n| argument(role, behind(at, 8 * n))));
    }
    for (kind, at) in parameters {
        match (kind, at) {
            (Kind::Flag, At::Register(register)) => {
                let place = Place::Register { register: *register, shift: 0 };
                out.push(Argument { scalar: Scalar::U8, ..argument(Role::Transposed, place) });
            }
            (Kind::Flag, At::Stack(at)) => {
                out.push(Argument { scalar: Scalar::U8, ..argument(Role::Transposed, Place::Stack(*at)) });
            }
            (Kind::Number, at) => out.push(argument(Role::Groups, behind(*at, 0))),
            _ => {}
        }
    }
}

/// Bytes behind the address that a parameter is.
fn behind(at: At, offset: i16) -> Place {
    match at {
        At::Register(register) => Place::BehindRegister { register, offset: i32::from(offset) },
        At::Stack(stack) => Place::BehindStack { stack, offset: i32::from(offset) },
        At::Nowhere => Place::Unreadable,
    }
}

/// What a function's code tells of its arguments.
#[derive(Debug, Default, PartialEq, Eq)]
struct Followed {
    /// The registers with addresses of pointers, at its entry, behind which the keys are read.
    of: Vec<Register>,
    /// Where the keys are. `None` when nothing, or more than one place, is read.
    keys: Option<i16>,
}

/// Where a value is held while it is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Held {
    Register(Iced),
    /// In the frame, this many bytes from the stack pointer at the entry.
    Frame(i64),
}

/// A value that is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    /// This register at the entry.
    Argument(Register),
    /// What that one points to.
    Pointer(Register),
}

impl Followed {
    /// Follows the arguments through the straight part of a function.
    fn of(code: &[u8]) -> Self {
        let mut follower = Follower::new();
        let mut decoder = Decoder::with_ip(64, code, 0, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        while decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            let ends = matches!(
                instruction.flow_control(),
                FlowControl::Return | FlowControl::UnconditionalBranch | FlowControl::IndirectBranch
            );
            if instruction.is_invalid() || ends || !follower.step(&instruction) {
                break;
            }
        }
        let Follower { mut read, .. } = follower;
        let keys = read.first().map(|(_, keys)| *keys);
        let one = keys.filter(|keys| read.iter().all(|(_, other)| other == keys));
        read.sort_unstable();
        read.dedup();
        Self { of: read.into_iter().map(|(register, _)| register).collect(), keys: one }
    }
}

struct Follower {
    values: FxHashMap<Held, Value>,
    /// Bytes by which the stack pointer is lower than at the entry.
    depth: i64,
    /// The same of the frame pointer, once there is one.
    frame: Option<i64>,
    read: Vec<(Register, i16)>,
    info: InstructionInfoFactory,
}

impl Follower {
    fn new() -> Self {
        const REGISTERS: [Iced; 6] = [Iced::RDI, Iced::RSI, Iced::RDX, Iced::RCX, Iced::R8, Iced::R9];
        let values = REGISTERS
            .into_iter()
            .zip(Register::ARGUMENTS)
            .map(|(held, register)| (Held::Register(held), Value::Argument(register)))
            .collect();
        Self { values, depth: 0, frame: None, read: Vec::new(), info: InstructionInfoFactory::new() }
    }

    /// Takes one instruction in; false when the frame cannot be followed any further.
    fn step(&mut self, instruction: &Instruction) -> bool {
        let value = self.value_read(instruction);
        let held = |register: Iced| Held::Register(register.full_register());
        match instruction.code() {
            Code::Push_r64 | Code::Push_rm64 | Code::Pushq_imm8 | Code::Pushq_imm32 => {
                self.depth = self.depth.wrapping_add(8)
            }
            Code::Pop_r64 => {
                self.depth = self.depth.wrapping_sub(8);
                self.values.remove(&held(instruction.op0_register()));
            }
            _ if instruction.mnemonic() == Mnemonic::Sub && instruction.op0_register() == Iced::RSP => {
                match instruction.try_immediate(1) {
                    Ok(bytes) => self.depth = self.depth.wrapping_add(bytes.cast_signed()),
                    Err(_) => return false,
                }
            }
            // 128 bytes are taken by adding as many below zero, which is shorter.
            _ if instruction.mnemonic() == Mnemonic::Add && instruction.op0_register() == Iced::RSP => {
                match instruction.try_immediate(1) {
                    Ok(bytes) => self.depth = self.depth.wrapping_sub(bytes.cast_signed()),
                    Err(_) => return false,
                }
            }
            _ if instruction.op0_register() == Iced::RBP && instruction.op1_register() == Iced::RSP => {
                self.frame = Some(self.depth);
                self.values.remove(&Held::Register(Iced::RBP));
            }
            Code::Mov_r64_rm64 | Code::Mov_rm64_r64 => {
                let to = match instruction.op0_kind() {
                    OpKind::Register => Some(held(instruction.op0_register())),
                    _ => self.slot(instruction),
                };
                match (to, value) {
                    (Some(to), Some(value)) => drop(self.values.insert(to, value)),
                    (Some(to), None) => drop(self.values.remove(&to)),
                    (None, _) => {}
                }
            }
            _ if instruction.flow_control() == FlowControl::Call => {
                const CHANGED: [Iced; 9] = [
                    Iced::RAX,
                    Iced::RCX,
                    Iced::RDX,
                    Iced::RSI,
                    Iced::RDI,
                    Iced::R8,
                    Iced::R9,
                    Iced::R10,
                    Iced::R11,
                ];
                for register in CHANGED {
                    self.values.remove(&Held::Register(register));
                }
            }
            _ => {
                let written: Vec<Held> = self
                    .info
                    .info(instruction)
                    .used_registers()
                    .iter()
                    .filter(|used| {
                        matches!(
                            used.access(),
                            OpAccess::Write
                                | OpAccess::CondWrite
                                | OpAccess::ReadWrite
                                | OpAccess::ReadCondWrite
                        )
                    })
                    .map(|used| held(used.register()))
                    .collect();
                if written.contains(&Held::Register(Iced::RSP)) {
                    return false;
                }
                for held in written {
                    self.values.remove(&held);
                }
            }
        }
        true
    }

    /// The place of the memory operand in the frame.
    fn slot(&self, instruction: &Instruction) -> Option<Held> {
        let from = match instruction.memory_base() {
            Iced::RSP => self.depth,
            Iced::RBP => self.frame?,
            _ => return None,
        };
        let plain = instruction.memory_index() == Iced::None;
        let displacement = instruction.memory_displacement64().cast_signed();
        plain.then(|| Held::Frame(displacement.wrapping_sub(from)))
    }

    /// What is read by an instruction that copies; takes note when it is the keys of a tensor.
    fn value_read(&mut self, instruction: &Instruction) -> Option<Value> {
        let copies = matches!(instruction.code(), Code::Mov_r64_rm64 | Code::Mov_rm64_r64);
        let reads_memory = (1..instruction.op_count()).any(|at| instruction.op_kind(at) == OpKind::Memory);
        if !reads_memory {
            let register = instruction.op1_register();
            return self.values.get(&Held::Register(register)).copied().filter(|_| copies);
        }
        if let Some(slot) = self.slot(instruction) {
            return self.values.get(&slot).copied().filter(|_| copies);
        }
        if instruction.memory_index() != Iced::None {
            return None;
        }
        let displacement = instruction.memory_displacement64();
        match *self.values.get(&Held::Register(instruction.memory_base()))? {
            Value::Argument(register) if displacement == 0 && copies => Some(Value::Pointer(register)),
            Value::Argument(_) => None,
            Value::Pointer(register) => {
                if let Some(keys) =
                    KEYS.into_iter().find(|keys| i64::from(*keys) == displacement.cast_signed())
                {
                    self.read.push((register, keys));
                }
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ADDMM: &str = "_ZN2at4_ops5addmm4callERKNS_6TensorES4_S4_RKN3c106ScalarES8_";
    /// Of `at::_ops::addmm::call` of PyTorch 2.15.0, what touches its arguments up to where all keys are read.
    const ADDMM_CODE: &[u8] = &[
        0x55, 0x48, 0x89, 0xe5, 0x41, 0x57, 0x4d, 0x89, 0xcf, 0x41, 0x56, 0x41, 0x55, 0x49, 0x89, 0xcd, 0x41,
        0x54, 0x49, 0x89, 0xd4, 0x53, 0x48, 0x89, 0xfb, 0x48, 0x81, 0xec, 0xa8, 0, 0, 0, 0x48, 0x89, 0xb5,
        0x58, 0xff, 0xff, 0xff, 0x4c, 0x89, 0x85, 0x38, 0xff, 0xff, 0xff, 0x48, 0x8b, 0x85, 0x58, 0xff, 0xff,
        0xff, 0x48, 0x8b, 0x00, 0x48, 0x8b, 0x80, 0xa8, 0, 0, 0, 0x49, 0x8b, 0x04, 0x24, 0x48, 0x8b, 0x80,
        0xa8, 0, 0, 0, 0x49, 0x8b, 0x45, 0x00, 0x48, 0x8b, 0x80, 0xa8, 0, 0, 0, 0xc3,
    ];

    #[test]
    fn the_code_of_an_operator_tells_which_registers_lead_to_tensors() {
        let followed = Followed::of(ADDMM_CODE);
        assert_eq!(followed.keys, Some(0xa8));
        assert_eq!(followed.of, [Register::Rcx, Register::Rdx, Register::Rsi]);
        let placed = placed(ADDMM, ADDMM_CODE).unwrap();
        let text: Vec<String> = placed.iter().map(|a| format!("{} {}", a.role.key(), a.place)).collect();
        assert_eq!(
            text[..4],
            [
                "tensor-rank [[rsi+0]+56]",
                "tensor-type [[rsi+0]+160]",
                "tensor-size [[rsi+0]+64]",
                "tensor-size [[rsi+0]+72]"
            ]
        );
        assert_eq!((text.len(), &*text[14]), (21, "tensor-rank [[rcx+0]+56]"));
    }

    #[test]
    fn code_and_name_that_do_not_agree_give_nothing() {
        // Two tensors in the name, three in the code; the code of another function; fields of two distances.
        assert_eq!(placed("_ZN2at4_ops2mm4callERKNS_6TensorES4_", ADDMM_CODE), None);
        assert_eq!(placed(ADDMM, &[0xc3]), None);
        assert_eq!(placed(ADDMM, &[0x48, 0x8b, 0x06, 0x48, 0x8b, 0x80, 0xa8, 0, 0, 0, 0xc3]), None);
        let mut mixed = ADDMM_CODE.to_vec();
        let last = mixed.len() - 5;
        mixed[last] = 0xb0;
        assert_eq!(Followed::of(&mixed).keys, None);
        // add $-0x80,%rsp; mov %rdi,0x8(%rsp); mov 0x8(%rsp),%rax; mov (%rax),%rax; mov 0xa8(%rax),%r13
        let frame = [
            0x48, 0x83, 0xc4, 0x80, 0x48, 0x89, 0x7c, 0x24, 0x08, 0x48, 0x8b, 0x44, 0x24, 0x08, 0x48, 0x8b,
            0, 0x4c, 0x8b, 0xa8, 0xa8, 0, 0, 0,
        ];
        assert_eq!(Followed::of(&frame), Followed { of: vec![Register::Rdi], keys: Some(0xa8) });
        // An in-place operator returns the address that it got.
        let one = [0x48, 0x8b, 0x07, 0x48, 0x8b, 0x80, 0xb0, 0, 0, 0, 0xc3];
        let text = placed("_ZN2at4_ops5relu_4callERNS_6TensorE", &one).unwrap()[0].place.to_string();
        assert_eq!(text, "[[rdi+0]+64]");
    }

    proptest! {
        #[test]
        fn whatever_the_bytes_nothing_breaks(code in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = placed(ADDMM, &code);
        }
    }
}
