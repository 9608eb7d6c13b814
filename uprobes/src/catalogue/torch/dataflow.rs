//! How the code of an operator's function reads its arguments.
//!
//! Owns: tracking arguments through the branch-free part of the function, up to its reads of each tensor's dispatch
//! keys. Because: the mangled name is trusted only if the code agrees with it. Does not: know which operator it is.
//!
//! | argument | what the code does with it |
//! |---|---|
//! | `Tensor const&` | reads the keys through the pointer that it points to |
//! | `std::optional<Tensor> const&` | compares the byte after that pointer with zero first |
//! | `ArrayRef<Tensor>` | reads the keys through the pointers that it points to |
//! | `IListRef<Tensor> const&` | compares its tag, at offset 16, with those of other kinds; what is left is an `ArrayRef` at its beginning |

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    OpKind, Register as Iced,
};
use rustc_hash::FxHashMap;

use crate::abi::Register;

/// Offsets of the keys in the implementation of a tensor, by version.
pub(super) const KEYS: [i16; 3] = [0xb8, 0xb0, 0xa8];
/// Offset of the presence flag in an optional tensor.
pub(super) const PRESENT: i16 = 8;
/// Offset of the tag of a list of several kinds (`c10::IListRef`: a union of 16 bytes, then the tag; 1.13 to 2.15).
const TAG: u64 = 16;

/// Reads of arguments in a function's code.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ArgumentReads {
    /// The registers at its entry through which keys are read, and how many pointers are in between.
    pub(super) reads: Vec<(Register, u8)>,
    /// Offset of the keys. `None` if no offset, or more than one, is read.
    pub(super) keys: Option<i16>,
    /// The registers at its entry through which the code checks whether an optional tensor is present.
    pub(super) presence_checks: Vec<Register>,
    /// The jump at which a list of several kinds is known to be an array.
    pub(super) array: Option<ArrayBranch>,
}

/// A conditional jump that is reached exactly if a list of several kinds is an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ArrayBranch {
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

/// Location of a tracked value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Slot {
    Register(Iced),
    /// In the frame, this many bytes from the stack pointer at the entry.
    Frame(i64),
}

/// A tracked value: an argument, or one reached from it through pointers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TrackedValue {
    /// The register at the entry.
    register: Register,
    /// How many pointers were followed.
    depth: u8,
}

/// Registers that a called function may overwrite.
const CHANGED_BY_CALLS: [Iced; 9] =
    [Iced::RAX, Iced::RCX, Iced::RDX, Iced::RSI, Iced::RDI, Iced::R8, Iced::R9, Iced::R10, Iced::R11];
/// Maximum number of followed pointers: list, array, tensor.
const DEPTH_MAX: u8 = 2;

/// State of a list's tag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ListTag {
    #[default]
    Nothing,
    /// Loaded into this register, from the list in that one.
    In(Iced, Register),
    /// Just compared with zero.
    Compared(Iced, Register),
    /// Known to be zero: an array.
    Zero(Register),
}

impl ArgumentReads {
    /// Tracks the arguments through the straight-line part of a function.
    pub(super) fn of(code: &[u8]) -> Self {
        let mut dataflow = Dataflow::new();
        let mut decoder = Decoder::with_ip(64, code, 0, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        while decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            let ends = matches!(
                instruction.flow_control(),
                FlowControl::Return | FlowControl::UnconditionalBranch | FlowControl::IndirectBranch
            );
            if instruction.is_invalid() || ends || !dataflow.visit(&instruction) {
                break;
            }
        }
        let Dataflow { read, presence_checks, array, .. } = dataflow;
        let keys = read.first().map(|(_, keys)| *keys);
        let one = keys.filter(|keys| read.iter().all(|(_, other)| other == keys));
        let mut reads: Vec<(Register, u8)> =
            read.into_iter().map(|(value, _)| (value.register, value.depth)).collect();
        reads.sort_unstable();
        reads.dedup();
        Self { reads, keys: one, presence_checks, array }
    }
}

struct Dataflow {
    values: FxHashMap<Slot, TrackedValue>,
    /// Bytes by which the stack pointer is lower than at the entry.
    depth: i64,
    /// The same for the frame pointer, once there is one.
    frame: Option<i64>,
    read: Vec<(TrackedValue, i16)>,
    presence_checks: Vec<Register>,
    tag: ListTag,
    array: Option<ArrayBranch>,
    info: InstructionInfoFactory,
}

impl Dataflow {
    fn new() -> Self {
        let value =
            |register: Register| (Slot::Register(register.iced()), TrackedValue { register, depth: 0 });
        let values = Register::ARGUMENTS.into_iter().map(value).collect();
        Self {
            values,
            depth: 0,
            frame: None,
            read: Vec::new(),
            presence_checks: Vec::new(),
            tag: ListTag::Nothing,
            array: None,
            info: InstructionInfoFactory::new(),
        }
    }

    /// Visits one instruction; false if the frame can no longer be tracked.
    fn visit(&mut self, instruction: &Instruction) -> bool {
        let value = self.value_read(instruction);
        self.visit_checks(instruction);
        let is_rsp = |register| register == Iced::RSP;
        match instruction.code() {
            Code::Push_r64 | Code::Push_rm64 | Code::Pushq_imm8 | Code::Pushq_imm32 => {
                self.depth = self.depth.wrapping_add(8);
            }
            Code::Pop_r64 => {
                self.depth = self.depth.wrapping_sub(8);
                self.forget(instruction.op0_register());
            }
            // Allocating 128 bytes by adding -128 is the shorter encoding.
            _ if matches!(instruction.mnemonic(), Mnemonic::Sub | Mnemonic::Add)
                && is_rsp(instruction.op0_register()) =>
            {
                return self.move_stack(instruction);
            }
            _ if instruction.op0_register() == Iced::RBP && is_rsp(instruction.op1_register()) => {
                self.frame = Some(self.depth);
                self.forget(Iced::RBP);
            }
            Code::Mov_r64_rm64 | Code::Mov_rm64_r64 => self.assign(instruction, value),
            _ if instruction.flow_control() == FlowControl::Call => {
                CHANGED_BY_CALLS.into_iter().for_each(|register| self.forget(register));
            }
            _ => return self.overwrite(instruction),
        }
        true
    }

    /// Adds a constant to the stack pointer, or subtracts one; false if it is not a constant.
    fn move_stack(&mut self, instruction: &Instruction) -> bool {
        let Ok(bytes) = instruction.try_immediate(1) else { return false };
        let bytes = bytes.cast_signed();
        self.depth = match instruction.mnemonic() {
            Mnemonic::Sub => self.depth.wrapping_add(bytes),
            _ => self.depth.wrapping_sub(bytes),
        };
        true
    }

    /// A value is copied to a register or a slot of the frame.
    fn assign(&mut self, instruction: &Instruction, value: Option<TrackedValue>) {
        let to = match instruction.op0_kind() {
            OpKind::Register => Some(Slot::Register(instruction.op0_register().full_register())),
            _ => self.slot(instruction),
        };
        match (to, value) {
            (Some(to), Some(value)) => drop(self.values.insert(to, value)),
            (Some(to), None) => drop(self.values.remove(&to)),
            (None, _) => {}
        }
    }

    /// Another instruction writes registers; false if the stack pointer is among them.
    fn overwrite(&mut self, instruction: &Instruction) -> bool {
        let writes = |access| {
            matches!(
                access,
                OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
            )
        };
        let used = self.info.info(instruction).used_registers().iter();
        let written = used.filter(|used| writes(used.access())).map(|used| used.register().full_register());
        let written: Vec<Iced> = written.collect();
        if written.contains(&Iced::RSP) {
            return false;
        }
        written.into_iter().for_each(|register| self.forget(register));
        true
    }

    /// Forgets the value of a register.
    fn forget(&mut self, register: Iced) {
        self.values.remove(&Slot::Register(register.full_register()));
    }

    /// The slot of the frame addressed by the memory operand.
    fn slot(&self, instruction: &Instruction) -> Option<Slot> {
        let from = match instruction.memory_base() {
            Iced::RSP => self.depth,
            Iced::RBP => self.frame?,
            _ => return None,
        };
        let plain = instruction.memory_index() == Iced::None;
        let displacement = instruction.memory_displacement64().cast_signed();
        plain.then(|| Slot::Frame(displacement.wrapping_sub(from)))
    }

    /// The value read by a copying instruction; records reads of a tensor's keys.
    fn value_read(&mut self, instruction: &Instruction) -> Option<TrackedValue> {
        let copies = matches!(instruction.code(), Code::Mov_r64_rm64 | Code::Mov_rm64_r64);
        let reads_memory = (1..instruction.op_count()).any(|at| instruction.op_kind(at) == OpKind::Memory);
        if !reads_memory {
            let register = instruction.op1_register();
            return self.values.get(&Slot::Register(register)).copied().filter(|_| copies);
        }
        if let Some(slot) = self.slot(instruction) {
            return self.values.get(&slot).copied().filter(|_| copies);
        }
        if instruction.memory_index() != Iced::None {
            return None;
        }
        let displacement = instruction.memory_displacement64();
        let value = *self.values.get(&Slot::Register(instruction.memory_base()))?;
        if displacement == 0 {
            let pointee = TrackedValue { depth: value.depth + 1, ..value };
            return (copies && value.depth < DEPTH_MAX).then_some(pointee);
        }
        let keys = KEYS.into_iter().find(|keys| i64::from(*keys) == displacement.cast_signed());
        self.read.extend(keys.filter(|_| value.depth > 0).map(|keys| (value, keys)));
        None
    }

    /// Records checks for an optional tensor, and for the kind of a list.
    fn visit_checks(&mut self, instruction: &Instruction) {
        let base = self.values.get(&Slot::Register(instruction.memory_base())).copied();
        let argument = base.filter(|value| value.depth == 0 && instruction.memory_index() == Iced::None);
        let to = instruction.op0_register();
        match (instruction.code(), argument) {
            (Code::Cmp_rm8_imm8, Some(of))
                if instruction.memory_displacement64() == PRESENT as u64 && instruction.immediate8() == 0 =>
            {
                self.presence_checks.push(of.register);
            }
            (Code::Mov_r32_rm32, Some(of)) if instruction.memory_displacement64() == TAG => {
                self.tag = ListTag::In(to.full_register(), of.register);
                return;
            }
            _ => {}
        }
        self.tag = match (self.tag, instruction.mnemonic()) {
            (ListTag::In(tag, of), Mnemonic::Test)
                if to.full_register() == tag && instruction.op1_register() == to =>
            {
                ListTag::Compared(tag, of)
            }
            (ListTag::Compared(_, of), Mnemonic::Jne) => ListTag::Zero(of),
            (ListTag::Compared(tag, of), _) | (ListTag::In(tag, of), _) => {
                // Other instructions that write the register end this; a comparison writes none.
                let writes = instruction.op0_kind() == OpKind::Register && to.full_register() == tag;
                let compares = matches!(instruction.mnemonic(), Mnemonic::Cmp | Mnemonic::Test);
                let calls = instruction.flow_control() == FlowControl::Call;
                if calls || writes && !compares { ListTag::Nothing } else { ListTag::In(tag, of) }
            }
            (ListTag::Zero(of), _) if instruction.flow_control() == FlowControl::ConditionalBranch => {
                // A backward jump is a loop's, and is reached more than once.
                let forward = instruction.near_branch_target() > instruction.ip();
                self.array = self.array.or_else(|| self.array_here(of, instruction).filter(|_| forward));
                ListTag::Nothing
            }
            (tag, _) => tag,
        };
    }

    /// The jump at which the addresses of a list and of its array are both in registers.
    fn array_here(&self, of: Register, jump: &Instruction) -> Option<ArrayBranch> {
        let held = |depth| {
            let value = TrackedValue { register: of, depth };
            let holds =
                |register: &Register| self.values.get(&Slot::Register(register.iced())) == Some(&value);
            Register::all().filter(|register| *register != Register::Rsp).find(holds)
        };
        Some(ArrayBranch {
            parameter: of,
            offset: u16::try_from(jump.ip()).ok()?,
            frame: u16::try_from(self.depth).ok()?,
            list: held(0)?,
            items: held(1)?,
        })
    }
}
