//! What the code of an operator's function tells of its arguments.
//!
//! Owns: following them through the straight part of the function, up to where it reads which keys each tensor is dispatched by.
//! Because: what the mangled name says is believed only where the code does the same. Does not: know which operator it is.
//!
//! | argument | what the code does with it |
//! |---|---|
//! | `Tensor const&` | reads the keys behind the pointer behind it |
//! | `std::optional<Tensor> const&` | compares the byte behind that pointer with zero first |
//! | `ArrayRef<Tensor>` | reads the keys behind the pointers behind it |
//! | `IListRef<Tensor> const&` | compares its tag, 16 bytes behind, with those of other kinds; what is left is an `ArrayRef` at its beginning |

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    OpKind, Register as Iced,
};
use rustc_hash::FxHashMap;

use crate::abi::Register;

/// Where the keys of a tensor stand, behind its implementation, by version.
pub(super) const KEYS: [i16; 3] = [0xb8, 0xb0, 0xa8];
/// Where an optional tensor says whether it is there: behind the pointer to it.
pub(super) const THERE: i16 = 8;
/// Where a list of several kinds says which it is (`c10::IListRef`: a union of 16 bytes, then the tag; 1.13 to 2.15).
const TAG: u64 = 16;

/// What a function's code tells of its arguments.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Followed {
    /// The registers at its entry behind which keys are read, and how many pointers stand between.
    pub(super) of: Vec<(Register, u8)>,
    /// Where the keys are. `None` when nothing, or more than one place, is read.
    pub(super) keys: Option<i16>,
    /// The registers at its entry behind which it is asked whether an optional tensor is there.
    pub(super) asked: Vec<Register>,
    /// Where a list of several kinds is known to be an array.
    pub(super) array: Option<Array>,
}

/// A conditional jump that is reached exactly when a list of several kinds is an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Array {
    /// The register at the function's entry with the list's address.
    pub(super) parameter: Register,
    /// Bytes from the entry to the jump.
    pub(super) offset: u16,
    /// Bytes by which the stack pointer is lower there.
    pub(super) frame: u16,
    /// The register with the list's address, there.
    pub(super) list: Register,
    /// The register with the address of the array, there.
    pub(super) items: Register,
}

/// Where a value is held while it is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Held {
    Register(Iced),
    /// In the frame, this many bytes from the stack pointer at the entry.
    Frame(i64),
}

/// A value that is followed: what an argument is, or what it points to, or what that points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Value {
    /// The register at the entry.
    of: Register,
    /// How many pointers were followed.
    depth: u8,
}

/// Most pointers that are followed: list, array, tensor.
const DEPTH_MAX: u8 = 2;

/// What is known of a list's tag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Tag {
    #[default]
    Nothing,
    /// It is in this register, that of the list in that one.
    In(Iced, Register),
    /// It was compared with zero just now.
    Compared(Iced, Register),
    /// It is zero: an array.
    Zero(Register),
}

impl Followed {
    /// Follows the arguments through the straight part of a function.
    pub(super) fn of(code: &[u8]) -> Self {
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
        let Follower { read, asked, array, .. } = follower;
        let keys = read.first().map(|(_, keys)| *keys);
        let one = keys.filter(|keys| read.iter().all(|(_, other)| other == keys));
        let mut of: Vec<(Register, u8)> =
            read.into_iter().map(|(value, _)| (value.of, value.depth)).collect();
        of.sort_unstable();
        of.dedup();
        Self { of, keys: one, asked, array }
    }
}

struct Follower {
    values: FxHashMap<Held, Value>,
    /// Bytes by which the stack pointer is lower than at the entry.
    depth: i64,
    /// The same of the frame pointer, once there is one.
    frame: Option<i64>,
    read: Vec<(Value, i16)>,
    asked: Vec<Register>,
    tag: Tag,
    array: Option<Array>,
    info: InstructionInfoFactory,
}

impl Follower {
    fn new() -> Self {
        const REGISTERS: [Iced; 6] = [Iced::RDI, Iced::RSI, Iced::RDX, Iced::RCX, Iced::R8, Iced::R9];
        let values = REGISTERS
            .into_iter()
            .zip(Register::ARGUMENTS)
            .map(|(held, register)| (Held::Register(held), Value { of: register, depth: 0 }))
            .collect();
        Self {
            values,
            depth: 0,
            frame: None,
            read: Vec::new(),
            asked: Vec::new(),
            tag: Tag::Nothing,
            array: None,
            info: InstructionInfoFactory::new(),
        }
    }

    /// Takes one instruction in; false when the frame cannot be followed any further.
    fn step(&mut self, instruction: &Instruction) -> bool {
        let value = self.value_read(instruction);
        self.kinds(instruction);
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
        let value = *self.values.get(&Held::Register(instruction.memory_base()))?;
        if displacement == 0 {
            let behind = Value { depth: value.depth + 1, ..value };
            return (copies && value.depth < DEPTH_MAX).then_some(behind);
        }
        let keys = KEYS.into_iter().find(|keys| i64::from(*keys) == displacement.cast_signed());
        self.read.extend(keys.filter(|_| value.depth > 0).map(|keys| (value, keys)));
        None
    }

    /// Takes note of what is asked of an optional tensor, and of a list that may be of several kinds.
    fn kinds(&mut self, instruction: &Instruction) {
        let behind = self.values.get(&Held::Register(instruction.memory_base())).copied();
        let argument = behind.filter(|value| value.depth == 0 && instruction.memory_index() == Iced::None);
        let to = instruction.op0_register();
        match (instruction.code(), argument) {
            (Code::Cmp_rm8_imm8, Some(of))
                if instruction.memory_displacement64() == THERE as u64 && instruction.immediate8() == 0 =>
            {
                self.asked.push(of.of);
            }
            (Code::Mov_r32_rm32, Some(of)) if instruction.memory_displacement64() == TAG => {
                self.tag = Tag::In(to.full_register(), of.of);
                return;
            }
            _ => {}
        }
        self.tag = match (self.tag, instruction.mnemonic()) {
            (Tag::In(tag, of), Mnemonic::Test)
                if to.full_register() == tag && instruction.op1_register() == to =>
            {
                Tag::Compared(tag, of)
            }
            (Tag::Compared(_, of), Mnemonic::Jne) => Tag::Zero(of),
            (Tag::Compared(tag, of), _) | (Tag::In(tag, of), _) => {
                // What writes the register is something else; a comparison writes none.
                let writes = instruction.op0_kind() == OpKind::Register && to.full_register() == tag;
                let compares = matches!(instruction.mnemonic(), Mnemonic::Cmp | Mnemonic::Test);
                let calls = instruction.flow_control() == FlowControl::Call;
                if calls || writes && !compares { Tag::Nothing } else { Tag::In(tag, of) }
            }
            (Tag::Zero(of), _) if instruction.flow_control() == FlowControl::ConditionalBranch => {
                // One back is a loop's, and is reached more than once.
                let forward = instruction.near_branch_target() > instruction.ip();
                self.array = self.array.or_else(|| self.array_here(of, instruction).filter(|_| forward));
                Tag::Nothing
            }
            (tag, _) => tag,
        };
    }

    /// The jump at which a list's address and that of its array are both in registers.
    fn array_here(&self, of: Register, jump: &Instruction) -> Option<Array> {
        let held = |depth| {
            REGISTERS.into_iter().find_map(|(held, register)| {
                (self.values.get(&Held::Register(held)) == Some(&Value { of, depth })).then_some(register)
            })
        };
        Some(Array {
            parameter: of,
            offset: u16::try_from(jump.ip()).ok()?,
            frame: u16::try_from(self.depth).ok()?,
            list: held(0)?,
            items: held(1)?,
        })
    }
}

/// General registers, but for the stack pointer.
const REGISTERS: [(Iced, Register); 15] = [
    (Iced::RAX, Register::Rax),
    (Iced::RBX, Register::Rbx),
    (Iced::RCX, Register::Rcx),
    (Iced::RDX, Register::Rdx),
    (Iced::RSI, Register::Rsi),
    (Iced::RDI, Register::Rdi),
    (Iced::RBP, Register::Rbp),
    (Iced::R8, Register::R8),
    (Iced::R9, Register::R9),
    (Iced::R10, Register::R10),
    (Iced::R11, Register::R11),
    (Iced::R12, Register::R12),
    (Iced::R13, Register::R13),
    (Iced::R14, Register::R14),
    (Iced::R15, Register::R15),
];
