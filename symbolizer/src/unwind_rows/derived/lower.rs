//! Owns: reducing an instruction to what it does to addresses on the stack and to the flow of control.
//! Because: nine in ten instructions do nothing to either, and what is left is looked at several times.
//! Does not: know what registers hold.

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

/// What an instruction does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    /// `to` = `from` + `add`.
    Copy { to: Register, from: Register, add: i32 },
    /// The registers of `mask` become unknown.
    Clobber { mask: u16 },
    /// An address is aligned, or lowered by an amount that is not known.
    Rebase { register: Register },
    /// Pushes a register, or something else.
    Push { from: Option<Register>, bytes: i32 },
    /// Pops to a register, or elsewhere.
    Pop { to: Option<Register>, bytes: i32 },
    /// `to` = the eight bytes at `base` + `add`.
    Load { to: Register, base: Register, add: i32 },
    /// Bytes at `base` + `add` = a register, or something else.
    Store { base: Register, add: i32, bytes: i32, from: Option<Register> },
    /// Calls a function, or (`local`) code of the same function.
    Call { local: bool },
    /// May go on at an offset of the same function.
    Branch { target: u32 },
    /// Goes on at an offset of the same function.
    Jump { target: u32 },
    /// May go on (`always`: goes on) at an address outside of the function.
    Exit { target: u64, always: bool },
    /// Returns.
    Return,
    /// Goes on at a place that is not known, or nowhere.
    Stop,
}

impl Op {
    /// Whether the instruction after it is reached in another way only.
    pub(super) fn ends(&self) -> bool {
        matches!(self, Self::Jump { .. } | Self::Exit { always: true, .. } | Self::Return | Self::Stop)
    }
}

/// The number of a general register of any width; also tells whether it is the whole of 64 bits.
fn general(register: Iced) -> Option<Register> {
    register.is_gpr().then(|| register.full_register().number())
}

/// The number of a whole general register.
fn whole(register: Iced) -> Option<Register> {
    register.is_gpr64().then(|| register.number())
}

/// Base and displacement of the memory operand, unless something that is not known is added.
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

/// Reduces instructions of one function.
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

    /// Gives what `instruction` does, in order.
    #[inline]
    pub(super) fn lower(&mut self, instruction: &Instruction, mut give: impl FnMut(Op)) {
        // Most instructions of numeric code write a vector register and nothing else.
        let first = instruction.op0_kind();
        if first == OpKind::Register
            && (instruction.op0_register().is_vector_register() || instruction.op0_register().is_k())
            && !is_odd_vector(instruction.mnemonic())
        {
            return;
        }
        match instruction.flow_control() {
            FlowControl::Next => self.straight(instruction, &mut give),
            flow => self.control(instruction, flow, &mut give),
        }
    }

    fn straight(&mut self, instruction: &Instruction, give: &mut impl FnMut(Op)) {
        let clobber = |register: Register| Op::Clobber { mask: 1 << register };
        let to = match instruction.op0_kind() {
            OpKind::Register => general(instruction.op0_register()),
            _ => None,
        };
        let to_whole = to.filter(|_| instruction.op0_register().is_gpr64());
        let second = || whole(instruction.op1_register());
        match (instruction.mnemonic(), to) {
            (Mnemonic::Nop | Mnemonic::Endbr64 | Mnemonic::Cmp | Mnemonic::Test, _) => {}
            (Mnemonic::Mov, Some(to)) => give(match (to_whole, instruction.op1_kind()) {
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
                self.store(instruction, None, give);
            }
            (Mnemonic::Mov, None) if instruction.op0_kind() == OpKind::Memory => {
                let from = if instruction.op1_kind() == OpKind::Register { second() } else { None };
                self.store(instruction, from, give);
            }
            (
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
                | Mnemonic::Movsxd,
                Some(to),
            ) => give(clobber(to)),
            (Mnemonic::Lea, Some(to)) => give(match (to_whole, memory(instruction)) {
                (Some(to), Some((from, add))) => Op::Copy { to, from, add },
                _ => clobber(to),
            }),
            (Mnemonic::Add, Some(to)) => give(match (to_whole, immediate(instruction)) {
                (Some(to), Some(add)) => Op::Copy { to, from: to, add },
                _ => clobber(to),
            }),
            (Mnemonic::Sub, Some(to)) => {
                let less = immediate(instruction).and_then(i32::checked_neg);
                give(match (to_whole, less) {
                    (Some(to), Some(add)) => Op::Copy { to, from: to, add },
                    (Some(RSP), None) => Op::Rebase { register: RSP },
                    _ => clobber(to),
                });
            }
            (Mnemonic::And, Some(to)) => give(match (to_whole, immediate(instruction)) {
                (Some(to), Some(mask)) if mask < 0 => Op::Rebase { register: to },
                _ => clobber(to),
            }),
            (Mnemonic::Push, _) => {
                let from = if instruction.op0_kind() == OpKind::Register {
                    whole(instruction.op0_register())
                } else {
                    None
                };
                give(Op::Push { from, bytes: -instruction.stack_pointer_increment() });
            }
            (Mnemonic::Pop, _) => {
                give(Op::Pop { to: to_whole, bytes: instruction.stack_pointer_increment() });
                if to_whole.is_none() {
                    self.other(instruction, 1 << RSP, give);
                }
            }
            (Mnemonic::Pushfq, _) => give(Op::Push { from: None, bytes: 8 }),
            (Mnemonic::Popfq, _) => give(Op::Pop { to: None, bytes: 8 }),
            (Mnemonic::Leave, _) if instruction.code() == Code::Leaveq => {
                give(Op::Copy { to: RSP, from: RBP, add: 0 });
                give(Op::Pop { to: Some(RBP), bytes: 8 });
            }
            (Mnemonic::Enter, _)
                if instruction.code() == Code::Enterq_imm16_imm8 && instruction.immediate8_2nd() == 0 =>
            {
                give(Op::Push { from: Some(RBP), bytes: 8 });
                give(Op::Copy { to: RBP, from: RSP, add: 0 });
                give(Op::Copy { to: RSP, from: RSP, add: -i32::from(instruction.immediate16()) });
            }
            _ => self.other(instruction, 0, give),
        }
    }

    fn store(&self, instruction: &Instruction, from: Option<Register>, give: &mut impl FnMut(Op)) {
        if let Some((base, add)) = memory(instruction) {
            // Sizes that depend on the machine (XSAVE) are stated as 0: up to a page.
            let bytes = match instruction.memory_size().size() {
                0 => 4096,
                bytes => i32::try_from(bytes).unwrap_or(4096),
            };
            give(Op::Store { base, add, bytes, from });
        }
    }

    /// Every other instruction: whatever it writes is not known after it.
    #[cold]
    fn other(&mut self, instruction: &Instruction, except: u16, give: &mut impl FnMut(Op)) {
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
            self.store(instruction, None, give);
        }
        if mask != 0 {
            give(Op::Clobber { mask });
        }
    }

    fn control(&mut self, instruction: &Instruction, flow: FlowControl, give: &mut impl FnMut(Op)) {
        let is_direct = matches!(instruction.op0_kind(), OpKind::NearBranch64);
        let target = instruction.near_branch_target();
        let is_inside = is_direct && (self.begin..self.end).contains(&target);
        // Functions have fewer than 2^32 bytes, see `GROUP_BYTES_MAX`.
        let inside = target.wrapping_sub(self.begin) as u32;
        match flow {
            FlowControl::UnconditionalBranch if is_inside => give(Op::Jump { target: inside }),
            FlowControl::UnconditionalBranch if is_direct => give(Op::Exit { target, always: true }),
            FlowControl::ConditionalBranch if is_direct => {
                // LOOP counts before it decides.
                if !instruction.is_jcc_short_or_near() {
                    self.other(instruction, 0, give);
                }
                give(if is_inside {
                    Op::Branch { target: inside }
                } else {
                    Op::Exit { target, always: false }
                });
            }
            FlowControl::Call if is_direct && target == instruction.next_ip() => {
                give(Op::Push { from: None, bytes: 8 });
            }
            FlowControl::Call if is_direct => give(Op::Call { local: is_inside && target != self.begin }),
            FlowControl::IndirectCall if instruction.is_call_near_indirect() => {
                give(Op::Call { local: false })
            }
            FlowControl::Call if matches!(instruction.mnemonic(), Mnemonic::Syscall) => {
                give(Op::Clobber { mask: 1 << RAX });
                self.other(instruction, 0, give);
            }
            FlowControl::Return if instruction.mnemonic() == Mnemonic::Ret => give(Op::Return),
            FlowControl::Interrupt if instruction.mnemonic() == Mnemonic::Int => {
                give(Op::Clobber { mask: 1 << RAX });
            }
            // A transaction that is aborted goes on with the registers of its beginning.
            FlowControl::XbeginXabortXend => self.other(instruction, 0, give),
            _ => give(Op::Stop),
        }
    }

    /// The offset that a call within the function calls, which is no place to come to in another way.
    pub(super) fn local_callee(&self, instruction: &Instruction) -> Option<u32> {
        let target = instruction.near_branch_target();
        (instruction.is_call_near()
            && (self.begin..self.end).contains(&target)
            && target != self.begin
            && target != instruction.next_ip())
        .then(|| target.wrapping_sub(self.begin) as u32)
    }
}

/// Instructions whose first operand is a vector register and that write a general register or memory, too.
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
