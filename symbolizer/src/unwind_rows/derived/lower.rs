//! Lowering of instructions to operations on the stack.
//!
//! Owns: reducing an instruction to its effect on stack addresses and on control flow. Because: nine in ten
//! instructions affect neither, and the others are visited several times. Does not: know the values of registers.

use iced_x86::{
    Code, FlowControl, Instruction, InstructionInfoFactory, InstructionInfoOptions, Mnemonic, OpAccess,
    OpKind, Register as Iced,
};

/// A general register by its number in instructions: rax is 0, rsp 4, r15 15.
pub(super) type Register = usize;
/// rax.
const RAX: Register = 0;
/// The stack pointer.
pub(super) const RSP: Register = 4;
/// The frame pointer.
pub(super) const RBP: Register = 5;

/// The effect of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    /// `to` = `from` + `add`.
    Copy { to: Register, from: Register, add: i32 },
    /// The registers of `mask` become unknown.
    Clobber { mask: u16 },
    /// An address is aligned, or lowered by an unknown amount.
    Rebase { register: Register },
    /// Pushes a register, or something else.
    Push { from: Option<Register>, bytes: i32 },
    /// Pops to a register, or to memory.
    Pop { to: Option<Register>, bytes: i32 },
    /// `to` = the eight bytes at `base` + `add`.
    Load { to: Register, base: Register, add: i32 },
    /// Bytes at `base` + `add` = a register, or something else.
    Store { base: Register, add: i32, bytes: i32, from: Option<Register> },
    /// Calls a function, or (`local`) code of the same function.
    Call { local: bool },
    /// May continue at an offset of the same function.
    Branch { target: u32 },
    /// Continues at an offset of the same function.
    Jump { target: u32 },
    /// May continue (`always`: continues) at an address outside the function.
    Exit { target: u64, always: bool },
    /// Returns.
    Return,
    /// Continues at an unknown address, or not at all.
    Stop,
}

impl Op {
    /// Whether control never continues at the next instruction.
    pub(super) fn ends(&self) -> bool {
        matches!(self, Self::Jump { .. } | Self::Exit { always: true, .. } | Self::Return | Self::Stop)
    }
}

/// The number of a general register of any width.
fn general(register: Iced) -> Option<Register> {
    register.is_gpr().then(|| register.full_register().number())
}

/// The number of a 64-bit general register.
fn whole(register: Iced) -> Option<Register> {
    register.is_gpr64().then(|| register.number())
}

/// Base and displacement of the memory operand, if that is all of its address.
fn memory(instruction: &Instruction) -> Option<(Register, i32)> {
    let base = whole(instruction.memory_base())?;
    let plain = instruction.memory_index() == Iced::None && instruction.segment_prefix() == Iced::None;
    let add = i32::try_from(instruction.memory_displacement64().cast_signed()).ok()?;
    plain.then_some((base, add))
}

fn immediate(instruction: &Instruction) -> Option<i32> {
    match instruction.op1_kind() {
        OpKind::Immediate8to64 | OpKind::Immediate32to64 => {
            i32::try_from(instruction.immediate(1).cast_signed()).ok()
        }
        _ => None,
    }
}

/// Lowers the instructions of one function.
pub(super) struct Lowering {
    factory: InstructionInfoFactory,
    begin: u64,
    end: u64,
}

impl Lowering {
    /// For the function at `begin..end`.
    pub(super) fn new(begin: u64, end: u64) -> Self {
        Self { factory: InstructionInfoFactory::new(), begin, end }
    }

    /// Emits the effects of `instruction`, in order.
    #[inline]
    pub(super) fn lower(&mut self, instruction: &Instruction, mut emit: impl FnMut(Op)) {
        // Most instructions of numeric code write a vector register and nothing else.
        let first = instruction.op0_kind();
        if first == OpKind::Register
            && (instruction.op0_register().is_vector_register() || instruction.op0_register().is_k())
            && !is_odd_vector(instruction.mnemonic())
        {
            return;
        }
        match instruction.flow_control() {
            FlowControl::Next => self.straight(instruction, &mut emit),
            flow => self.control(instruction, flow, &mut emit),
        }
    }

    fn straight(&mut self, instruction: &Instruction, emit: &mut impl FnMut(Op)) {
        let to = match instruction.op0_kind() {
            OpKind::Register => general(instruction.op0_register()),
            _ => None,
        };
        let to_whole = to.filter(|_| instruction.op0_register().is_gpr64());
        let second = || whole(instruction.op1_register());
        match (instruction.mnemonic(), to) {
            (Mnemonic::Nop | Mnemonic::Endbr64 | Mnemonic::Cmp | Mnemonic::Test, _) => {}
            (Mnemonic::Mov, Some(to)) => emit(match (to_whole, instruction.op1_kind()) {
                (Some(to), OpKind::Register) => match second() {
                    Some(from) => Op::Copy { to, from, add: 0 },
                    None => clobber(to),
                },
                (Some(to), OpKind::Memory) => match memory(instruction) {
                    Some((base, add)) => Op::Load { to, base, add },
                    None => clobber(to),
                },
                _ => clobber(to),
            }),
            // With a memory operand first and a vector register second there are only stores.
            (_, None)
                if instruction.op0_kind() == OpKind::Memory
                    && instruction.op1_kind() == OpKind::Register
                    && instruction.op1_register().is_vector_register() =>
            {
                self.store(instruction, None, emit);
            }
            (Mnemonic::Mov, None) if instruction.op0_kind() == OpKind::Memory => {
                let from = if instruction.op1_kind() == OpKind::Register { second() } else { None };
                self.store(instruction, from, emit);
            }
            (_, to) => match to.and_then(|to| arithmetic(instruction, to, to_whole)) {
                Some(op) => emit(op),
                None => self.stack(instruction, to_whole, emit),
            },
        }
    }

    /// Instructions that push and pop. `to`: the whole register that is written.
    fn stack(&mut self, instruction: &Instruction, to: Option<usize>, emit: &mut impl FnMut(Op)) {
        match instruction.mnemonic() {
            Mnemonic::Push => {
                let from = if instruction.op0_kind() == OpKind::Register {
                    whole(instruction.op0_register())
                } else {
                    None
                };
                emit(Op::Push { from, bytes: -instruction.stack_pointer_increment() });
            }
            Mnemonic::Pop => {
                emit(Op::Pop { to, bytes: instruction.stack_pointer_increment() });
                if to.is_none() {
                    self.other(instruction, 1 << RSP, emit);
                }
            }
            Mnemonic::Pushfq => emit(Op::Push { from: None, bytes: 8 }),
            Mnemonic::Popfq => emit(Op::Pop { to: None, bytes: 8 }),
            Mnemonic::Leave if instruction.code() == Code::Leaveq => {
                emit(Op::Copy { to: RSP, from: RBP, add: 0 });
                emit(Op::Pop { to: Some(RBP), bytes: 8 });
            }
            Mnemonic::Enter
                if instruction.code() == Code::Enterq_imm16_imm8 && instruction.immediate8_2nd() == 0 =>
            {
                emit(Op::Push { from: Some(RBP), bytes: 8 });
                emit(Op::Copy { to: RBP, from: RSP, add: 0 });
                emit(Op::Copy { to: RSP, from: RSP, add: -i32::from(instruction.immediate16()) });
            }
            _ => self.other(instruction, 0, emit),
        }
    }

    fn store(&self, instruction: &Instruction, from: Option<Register>, emit: &mut impl FnMut(Op)) {
        if let Some((base, add)) = memory(instruction) {
            // Sizes that depend on the CPU (XSAVE) are given as 0: up to a page.
            let bytes = match instruction.memory_size().size() {
                0 => 4096,
                bytes => i32::try_from(bytes).unwrap_or(4096),
            };
            emit(Op::Store { base, add, bytes, from });
        }
    }

    /// Every other instruction: the registers that it writes become unknown.
    #[cold]
    fn other(&mut self, instruction: &Instruction, except: u16, emit: &mut impl FnMut(Op)) {
        let info = self.factory.info_options(instruction, InstructionInfoOptions::NO_MEMORY_USAGE);
        let writes = |access| {
            matches!(
                access,
                OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
            )
        };
        let stores = (0..instruction.op_count())
            .any(|at| instruction.op_kind(at) == OpKind::Memory && writes(info.op_access(at)));
        let mask = info
            .used_registers()
            .iter()
            .filter(|used| writes(used.access()))
            .filter_map(|used| general(used.register()))
            .fold(0, |mask, register| mask | 1 << register)
            & !except;
        if stores {
            self.store(instruction, None, emit);
        }
        if mask != 0 {
            emit(Op::Clobber { mask });
        }
    }

    fn control(&mut self, instruction: &Instruction, flow: FlowControl, emit: &mut impl FnMut(Op)) {
        let is_direct = matches!(instruction.op0_kind(), OpKind::NearBranch64);
        let target = instruction.near_branch_target();
        let is_inside = is_direct && (self.begin..self.end).contains(&target);
        // Functions have fewer than 2^32 bytes, see `GROUP_BYTES_MAX`.
        let inside = target.wrapping_sub(self.begin) as u32;
        match flow {
            FlowControl::UnconditionalBranch if is_inside => emit(Op::Jump { target: inside }),
            FlowControl::UnconditionalBranch if is_direct => emit(Op::Exit { target, always: true }),
            FlowControl::ConditionalBranch if is_direct => {
                // LOOP decrements rcx before it branches.
                if !instruction.is_jcc_short_or_near() {
                    self.other(instruction, 0, emit);
                }
                emit(if is_inside {
                    Op::Branch { target: inside }
                } else {
                    Op::Exit { target, always: false }
                });
            }
            FlowControl::Call if is_direct && target == instruction.next_ip() => {
                emit(Op::Push { from: None, bytes: 8 });
            }
            FlowControl::Call if is_direct => emit(Op::Call { local: is_inside && target != self.begin }),
            FlowControl::IndirectCall if instruction.is_call_near_indirect() => {
                emit(Op::Call { local: false })
            }
            FlowControl::Call if matches!(instruction.mnemonic(), Mnemonic::Syscall) => {
                emit(Op::Clobber { mask: 1 << RAX });
                self.other(instruction, 0, emit);
            }
            FlowControl::Return if instruction.mnemonic() == Mnemonic::Ret => emit(Op::Return),
            FlowControl::Interrupt if instruction.mnemonic() == Mnemonic::Int => {
                emit(Op::Clobber { mask: 1 << RAX });
            }
            // An aborted transaction continues with the registers of its start.
            FlowControl::XbeginXabortXend => self.other(instruction, 0, emit),
            _ => emit(Op::Stop),
        }
    }

    /// The offset that a call within the function calls.
    pub(super) fn local_callee(&self, instruction: &Instruction) -> Option<u32> {
        let target = instruction.near_branch_target();
        (instruction.is_call_near()
            && (self.begin..self.end).contains(&target)
            && target != self.begin
            && target != instruction.next_ip())
        .then(|| target.wrapping_sub(self.begin) as u32)
    }
}

fn clobber(register: Register) -> Op {
    Op::Clobber { mask: 1 << register }
}

/// What an instruction that computes does to the register `to`; `to_whole`: the same, where all of it is written.
/// `None` for any other.
fn arithmetic(instruction: &Instruction, to: Register, to_whole: Option<Register>) -> Option<Op> {
    Some(match instruction.mnemonic() {
        Mnemonic::Xor
        | Mnemonic::Or
        | Mnemonic::Shl
        | Mnemonic::Shr
        | Mnemonic::Sar
        | Mnemonic::Inc
        | Mnemonic::Dec
        | Mnemonic::Neg
        | Mnemonic::Movzx
        | Mnemonic::Movsx
        | Mnemonic::Movsxd => clobber(to),
        Mnemonic::Lea => match (to_whole, memory(instruction)) {
            (Some(to), Some((from, add))) => Op::Copy { to, from, add },
            _ => clobber(to),
        },
        Mnemonic::Add => match (to_whole, immediate(instruction)) {
            (Some(to), Some(add)) => Op::Copy { to, from: to, add },
            _ => clobber(to),
        },
        Mnemonic::Sub => {
            let less = immediate(instruction).and_then(i32::checked_neg);
            match (to_whole, less) {
                (Some(to), Some(add)) => Op::Copy { to, from: to, add },
                (Some(RSP), None) => Op::Rebase { register: RSP },
                _ => clobber(to),
            }
        }
        Mnemonic::And => match (to_whole, immediate(instruction)) {
            (Some(to), Some(mask)) if mask < 0 => Op::Rebase { register: to },
            _ => clobber(to),
        },
        _ => return None,
    })
}

/// Instructions whose first operand is a vector register and that also write a general register or memory.
fn is_odd_vector(mnemonic: Mnemonic) -> bool {
    matches!(
        mnemonic,
        Mnemonic::Pcmpestri
            | Mnemonic::Pcmpistri
            | Mnemonic::Pcmpestri64
            | Mnemonic::Vpcmpestri
            | Mnemonic::Vpcmpistri
            | Mnemonic::Vpcmpestri64
    )
}
