//! Symbolic execution of short getter functions.
//!
//! Owns: the few x86-64 instructions that compilers use in `return thread_local;`, `pthread_getspecific` and the
//! like. Because: where such functions read is documented nowhere; it depends on the compiler, libc and linking. Does
//! not: know what is searched for. An unsupported instruction gives an unknown value, never a guess.

use iced_x86::{
    ConditionCode, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register,
};

use crate::memory::TargetMemory;

/// Most instructions executed.
const INSTRUCTIONS_MAX: usize = 96;
/// Deepest chain of loads kept.
const DEPTH_MAX: u32 = 6;

/// A value, as far as it is known without running the function in a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// Not known.
    Unknown,
    /// The same number in every thread.
    Constant(u64),
    /// The base plus a constant.
    Sum(Base, i64),
}

/// A value that differs from thread to thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Base {
    /// The thread pointer (`fsbase`).
    ThreadPointer,
    /// The u64 at base + offset.
    Loaded(Box<Base>, i64),
}

impl Base {
    fn depth(&self) -> u32 {
        match self {
            Self::ThreadPointer => 0,
            Self::Loaded(base, _) => base.depth() + 1,
        }
    }
}

/// How the execution ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It returned this in rax.
    Returned(Value),
    /// It called or jumped to another function with this first argument.
    Passed(Value),
    /// It reads a pointer of its own module that is still 0, such as an entry of the global offset table that the
    /// dynamic loader has not filled yet: what the function will do is not decided.
    Unset,
    /// It did something unsupported.
    Unsupported,
}

/// A function to execute.
pub(super) struct Function<'a, 'm> {
    /// Its bytes.
    pub(super) text: &'a [u8],
    /// Address of the first byte, in the process.
    pub(super) address: u64,
    /// For constants: global offset tables, flags.
    pub(super) memory: &'m dyn TargetMemory,
    /// The first argument.
    pub(super) argument: Value,
}

/// What to do at a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Calls {
    /// The first call is the outcome.
    End,
    /// Every call is taken as `__tls_get_addr`, whose result is computed by the ABI.
    TlsGetAddr,
}

impl Function<'_, '_> {
    /// Executes the function until it ends. Branches that depend on values of a thread are not taken: compilers place
    /// the paths for errors and unset values behind them.
    pub(super) fn follow(&self, calls: Calls) -> Outcome {
        let mut machine = Machine {
            memory: self.memory,
            registers: vec![Value::Unknown; 16],
            compared: None,
            read_unset: false,
        };
        machine.set(Register::RDI, self.argument.clone());
        let mut decoder = Decoder::with_ip(64, self.text, self.address, DecoderOptions::NONE);
        for _ in 0..INSTRUCTIONS_MAX {
            if machine.read_unset {
                return Outcome::Unset;
            }
            if !decoder.can_decode() {
                return Outcome::Unsupported;
            }
            let instruction = decoder.decode();
            let jump = match instruction.flow_control() {
                FlowControl::Next => {
                    machine.execute(&instruction);
                    continue;
                }
                FlowControl::Return => return Outcome::Returned(machine.get(Register::RAX)),
                FlowControl::Call | FlowControl::IndirectCall => {
                    if calls == Calls::End {
                        return Outcome::Passed(machine.get(Register::RDI));
                    }
                    machine.tls_get_addr();
                    continue;
                }
                FlowControl::IndirectBranch => return Outcome::Passed(machine.get(Register::RDI)),
                FlowControl::UnconditionalBranch => true,
                FlowControl::ConditionalBranch => machine.taken(instruction.condition_code()),
                _ => return Outcome::Unsupported,
            };
            if jump {
                let target = instruction.near_branch_target();
                match target.checked_sub(self.address).and_then(|at| usize::try_from(at).ok()) {
                    Some(at) if at < self.text.len() => {
                        if decoder.set_position(at).is_err() {
                            return Outcome::Unsupported;
                        }
                        decoder.set_ip(target);
                    }
                    _ => return Outcome::Passed(machine.get(Register::RDI)),
                }
            }
        }
        Outcome::Unsupported
    }
}

struct Machine<'m> {
    memory: &'m dyn TargetMemory,
    registers: Vec<Value>,
    /// Operands of the last comparison, when both are constants.
    compared: Option<(u64, u64)>,
    /// A pointer at a fixed address was 0.
    read_unset: bool,
}

impl Machine<'_> {
    fn get(&self, register: Register) -> Value {
        match number(register) {
            Some(n) if register.size() >= 4 => match (&self.registers[n], register.size()) {
                (Value::Constant(c), 4) => Value::Constant(c & 0xffff_ffff),
                (Value::Sum(..), 4) => Value::Unknown,
                (value, _) => value.clone(),
            },
            _ => Value::Unknown,
        }
    }

    fn set(&mut self, register: Register, value: Value) {
        if let Some(n) = number(register) {
            self.registers[n] = match (value, register.size()) {
                (value, 8) => value,
                (Value::Constant(c), 4) => Value::Constant(c & 0xffff_ffff),
                _ => Value::Unknown,
            };
        }
    }

    fn execute(&mut self, i: &Instruction) {
        match i.mnemonic() {
            Mnemonic::Endbr64 | Mnemonic::Nop | Mnemonic::Push => {}
            Mnemonic::Cmp | Mnemonic::Test => self.compare(i),
            Mnemonic::Mov if i.op0_kind() == OpKind::Register => {
                let value = self.operand(i, 1);
                self.set(i.op0_register(), value);
            }
            // A store changes no register.
            Mnemonic::Mov => {}
            Mnemonic::Lea => {
                let value = self.address(i);
                self.set(i.op0_register(), value);
            }
            _ if i.op0_kind() == OpKind::Register => {
                let (a, b) = (self.operand(i, 0), self.operand(i, 1));
                self.compared = None;
                let same = i.op_count() == 2
                    && i.op1_kind() == OpKind::Register
                    && i.op0_register() == i.op1_register();
                self.set(i.op0_register(), compute(i.mnemonic(), a, b, same));
            }
            _ => {}
        }
    }

    fn compare(&mut self, i: &Instruction) {
        self.compared = match (i.mnemonic(), self.operand(i, 0), self.operand(i, 1)) {
            (Mnemonic::Cmp, Value::Constant(a), Value::Constant(b)) => Some((a, b)),
            // `test r, r` compares r with 0, as far as equality goes.
            (Mnemonic::Test, Value::Constant(a), Value::Constant(b)) => Some((a & b, 0)),
            _ => None,
        };
    }

    fn taken(&self, condition: ConditionCode) -> bool {
        let Some((a, b)) = self.compared else { return false };
        match condition {
            ConditionCode::e => a == b,
            ConditionCode::ne => a != b,
            ConditionCode::a => a > b,
            ConditionCode::ae => a >= b,
            ConditionCode::b => a < b,
            ConditionCode::be => a <= b,
            _ => false,
        }
    }

    fn operand(&mut self, i: &Instruction, n: u32) -> Value {
        if n >= i.op_count() {
            return Value::Unknown;
        }
        match i.op_kind(n) {
            OpKind::Register => self.get(i.op_register(n)),
            OpKind::Memory => {
                let size = i.memory_size().size();
                let value = self.load(self.address(i), size);
                self.read_unset |= size == 8 && i.is_ip_rel_memory_operand() && value == Value::Constant(0);
                value
            }
            OpKind::Immediate8
            | OpKind::Immediate8to32
            | OpKind::Immediate8to64
            | OpKind::Immediate16
            | OpKind::Immediate32
            | OpKind::Immediate32to64
            | OpKind::Immediate64 => Value::Constant(i.immediate(n)),
            _ => Value::Unknown,
        }
    }

    /// The address of the memory operand, with the thread pointer for the fs segment.
    fn address(&self, i: &Instruction) -> Value {
        if i.is_ip_rel_memory_operand() {
            return Value::Constant(i.ip_rel_memory_address());
        }
        let mut sum = match i.memory_segment() {
            Register::FS => Value::Sum(Base::ThreadPointer, 0),
            _ => Value::Constant(0),
        };
        if i.memory_base() != Register::None {
            sum = add(sum, self.get(i.memory_base()));
        }
        if i.memory_index() != Register::None {
            let index = match self.get(i.memory_index()) {
                Value::Constant(c) => Value::Constant(c.wrapping_mul(u64::from(i.memory_index_scale()))),
                value if i.memory_index_scale() == 1 => value,
                _ => Value::Unknown,
            };
            sum = add(sum, index);
        }
        add(sum, Value::Constant(i.memory_displacement64()))
    }

    fn load(&self, address: Value, size: usize) -> Value {
        match address {
            Value::Constant(at) if matches!(size, 4 | 8) => {
                let mut bytes = [0; 8];
                match self.memory.read(at, &mut bytes[..size]) {
                    Ok(()) => Value::Constant(u64::from_le_bytes(bytes)),
                    Err(_) => Value::Unknown,
                }
            }
            // `%fs:0x10` is the thread pointer itself, by the ABI of glibc's thread control block; so is `%fs:0`.
            Value::Sum(Base::ThreadPointer, 0 | 0x10) if size == 8 => Value::Sum(Base::ThreadPointer, 0),
            Value::Sum(base, offset) if size == 8 && base.depth() < DEPTH_MAX => {
                Value::Sum(Base::Loaded(Box::new(base), offset), 0)
            }
            _ => Value::Unknown,
        }
    }

    /// `__tls_get_addr({module, offset})` = `dtv[module].block + offset`, with the dtv at thread pointer + 8 and
    /// 16 bytes for each module.
    fn tls_get_addr(&mut self) {
        let result = match self.get(Register::RDI) {
            Value::Constant(index) => {
                match (self.memory.read_u64(index), self.memory.read_u64(index.wrapping_add(8))) {
                    // Modules are numbered from 1.
                    (Ok(0), _) => {
                        self.read_unset = true;
                        Value::Unknown
                    }
                    (Ok(module @ 1..=0xffff), Ok(offset)) => {
                        let dtv = Base::Loaded(Box::new(Base::ThreadPointer), 8);
                        let block = Base::Loaded(Box::new(dtv), module.cast_signed() * 16);
                        Value::Sum(block, offset.cast_signed())
                    }
                    _ => Value::Unknown,
                }
            }
            _ => Value::Unknown,
        };
        // A call may change these registers: they become unknown, except for the result.
        for register in
            [Register::RCX, Register::RDX, Register::RSI, Register::RDI, Register::R8, Register::R9]
        {
            self.set(register, Value::Unknown);
        }
        self.set(Register::RAX, result);
    }
}

/// Index of a general register; `None` for others.
fn number(register: Register) -> Option<usize> {
    register.is_gpr().then(|| register.full_register() as usize - Register::RAX as usize)
}

fn compute(mnemonic: Mnemonic, a: Value, b: Value, same: bool) -> Value {
    use Value::Constant;
    match (mnemonic, a, b) {
        (Mnemonic::Xor | Mnemonic::Sub, _, _) if same => Constant(0),
        (Mnemonic::Add, a, b) => add(a, b),
        (Mnemonic::Sub, a, Constant(b)) => add(a, Constant(b.wrapping_neg())),
        (Mnemonic::Shl, Constant(a), Constant(b)) => Constant(a.wrapping_shl(b as u32)),
        (Mnemonic::Shr, Constant(a), Constant(b)) => Constant(a.wrapping_shr(b as u32)),
        (Mnemonic::And, Constant(a), Constant(b)) => Constant(a & b),
        (Mnemonic::Or, Constant(a), Constant(b)) => Constant(a | b),
        _ => Value::Unknown,
    }
}

fn add(a: Value, b: Value) -> Value {
    match (a, b) {
        (Value::Constant(a), Value::Constant(b)) => Value::Constant(a.wrapping_add(b)),
        (Value::Sum(base, a), Value::Constant(b)) | (Value::Constant(b), Value::Sum(base, a)) => {
            Value::Sum(base, a.wrapping_add(b.cast_signed()))
        }
        _ => Value::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::RecordedMemory;

    const AT: u64 = 0x40_0000;

    fn check(text: &[u8], argument: Value, calls: Calls, memory: &RecordedMemory, expect: Outcome) {
        let function = Function { text, address: AT, memory, argument };
        assert_eq!(function.follow(calls), expect, "{text:02x?}");
    }

    fn thread_pointer() -> Box<Base> {
        Box::new(Base::ThreadPointer)
    }

    #[test]
    fn a_thread_local_of_the_executable_is_found() {
        // endbr64; mov rax, fs:[-0x18]; ret
        let text = [0xf3, 0x0f, 0x1e, 0xfa, 0x64, 0x48, 0x8b, 0x04, 0x25, 0xe8, 0xff, 0xff, 0xff, 0xc3];
        let expect = Value::Sum(Base::Loaded(thread_pointer(), -0x18), 0);
        check(
            &text,
            Value::Unknown,
            Calls::TlsGetAddr,
            &RecordedMemory::default(),
            Outcome::Returned(expect),
        );
    }

    #[test]
    fn thread_local_with_its_offset_in_the_got_is_found() {
        // mov rax, [rip + 0x1000]; mov rax, fs:[rax]; ret
        let text = [0x48, 0x8b, 0x05, 0, 0x10, 0, 0, 0x64, 0x48, 0x8b, 0, 0xc3];
        let mut memory = RecordedMemory::default();
        memory.insert(AT + 7 + 0x1000, (-0x40_i64).to_le_bytes().to_vec());
        let expect = Value::Sum(Base::Loaded(thread_pointer(), -0x40), 0);
        check(&text, Value::Unknown, Calls::TlsGetAddr, &memory, Outcome::Returned(expect));
    }

    #[test]
    fn a_thread_local_of_a_library_is_found() {
        // sub rsp, 8; lea rdi, [rip + 0x100]; call far away; mov rax, [rax + 8]; add rsp, 8; ret
        let text = [
            0x48, 0x83, 0xec, 8, 0x48, 0x8d, 0x3d, 0, 1, 0, 0, 0xe8, 0, 0x10, 0, 0, 0x48, 0x8b, 0x40, 8,
            0x48, 0x83, 0xc4, 8, 0xc3,
        ];
        let index = AT + 11 + 0x100;
        let mut memory = RecordedMemory::default();
        memory.insert(index, [3_u64.to_le_bytes(), 0x20_u64.to_le_bytes()].concat());
        let block = Base::Loaded(Box::new(Base::Loaded(thread_pointer(), 8)), 3 * 16);
        let expect = Value::Sum(Base::Loaded(Box::new(block), 0x28), 0);
        check(&text, Value::Unknown, Calls::TlsGetAddr, &memory, Outcome::Returned(expect));
        check(&text, Value::Unknown, Calls::End, &memory, Outcome::Passed(Value::Constant(index)));
        check(
            &text,
            Value::Unknown,
            Calls::TlsGetAddr,
            &RecordedMemory::default(),
            Outcome::Returned(Value::Unknown),
        );
    }

    #[test]
    fn a_slot_in_a_table_of_the_thread_is_found() {
        // As in musl: mov rax, fs:[0]; mov rax, [rax + 0x80]; mov edi, edi; mov rax, [rax + rdi * 8]; ret
        let text = [
            0x64, 0x48, 0x8b, 0x04, 0x25, 0, 0, 0, 0, 0x48, 0x8b, 0x80, 0x80, 0, 0, 0, 0x89, 0xff, 0x48,
            0x8b, 0x04, 0xf8, 0xc3,
        ];
        let table = Base::Loaded(thread_pointer(), 0x80);
        let expect = Value::Sum(Base::Loaded(Box::new(table), 5 * 8), 0);
        let memory = RecordedMemory::default();
        check(&text, Value::Constant(5), Calls::End, &memory, Outcome::Returned(expect));
        check(&text, Value::Unknown, Calls::End, &memory, Outcome::Returned(Value::Unknown));
    }

    #[test]
    fn only_branches_on_constants_are_taken() {
        // cmp edi, 31; ja +3; xor eax, eax; ret; mov eax, 7; ret
        let known = [0x83, 0xff, 31, 0x77, 3, 0x31, 0xc0, 0xc3, 0xb8, 7, 0, 0, 0, 0xc3];
        let memory = RecordedMemory::default();
        let returned = |n| Outcome::Returned(Value::Constant(n));
        check(&known, Value::Constant(31), Calls::End, &memory, returned(0));
        check(&known, Value::Constant(32), Calls::End, &memory, returned(7));
        check(&known, Value::Unknown, Calls::End, &memory, returned(0));
    }

    #[test]
    fn a_pointer_not_yet_relocated_is_unset() {
        // mov rax, [rip + 0x1000]; cmp qword [rax + 0x248], 0; je +12; lea rdi, [rax + 0x250]; jmp far away
        let key = [
            0x48, 0x8b, 0x05, 0, 0x10, 0, 0, 0x48, 0x83, 0xb8, 0x48, 2, 0, 0, 0, 0x74, 12, 0x48, 0x8d, 0xb8,
            0x50, 2, 0, 0, 0xe9, 0, 0x20, 0, 0,
        ];
        // mov rax, [rip + 0x1000]; mov rax, fs:[rax]; ret
        let variable = [0x48, 0x8b, 0x05, 0, 0x10, 0, 0, 0x64, 0x48, 0x8b, 0, 0xc3];
        // lea rdi, [rip + 0x1000]; call far away; mov rax, [rax + 8]; ret
        let library = [0x48, 0x8d, 0x3d, 0, 0x10, 0, 0, 0xe8, 0, 0x20, 0, 0, 0x48, 0x8b, 0x40, 8, 0xc3];
        let entry = AT + 7 + 0x1000;
        let mut before = RecordedMemory::default();
        before.insert(entry, vec![0; 16]);
        check(&key, Value::Unknown, Calls::End, &before, Outcome::Unset);
        check(&variable, Value::Unknown, Calls::TlsGetAddr, &before, Outcome::Unset);
        check(&library, Value::Unknown, Calls::TlsGetAddr, &before, Outcome::Unset);
        let mut after = RecordedMemory::default();
        after.insert(entry, 0x7f00_0000_0000_u64.to_le_bytes().to_vec());
        after.insert(0x7f00_0000_0248, 1_u64.to_le_bytes().to_vec());
        let passed = Outcome::Passed(Value::Constant(0x7f00_0000_0250));
        check(&key, Value::Unknown, Calls::End, &after, passed);
    }

    #[test]
    fn unsupported_code_has_no_outcome() {
        let memory = RecordedMemory::default();
        // A jump to itself, undefined instructions, nothing, text that ends.
        for text in [&[0xeb, 0xfe][..], &[0x0f, 0x0b], &[0xff; 16], &[], &[0x90; 7]] {
            check(text, Value::Unknown, Calls::End, &memory, Outcome::Unsupported);
        }
    }

    proptest::proptest! {
        #[test]
        fn execution_of_any_bytes_ends(text in proptest::collection::vec(proptest::num::u8::ANY, 0..256)) {
            let memory = RecordedMemory::default();
            for calls in [Calls::End, Calls::TlsGetAddr] {
                let function = Function { text: &text, address: AT, memory: &memory, argument: Value::Constant(3) };
                let _ = function.follow(calls);
            }
        }
    }
}
