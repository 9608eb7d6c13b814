//! Choice of the instruction of a function that gets the probe.
//!
//! Owns: the choice, and why. Because: the kernel emulates a few instructions when a probe on them is hit; every other
//! one is executed out of line under a single-step trap, with 15 to 20 times the measured cost (10 µs instead of 0.6).
//! Functions of `libcuda` begin with a comparison that is stepped, and a jump that is not. Does not: know what the
//! function is for, beyond the registers that must still be as the caller left them.
//!
//! Source of the emulated and refused instructions: Linux, `arch/x86/kernel/uprobes.c` (`branch_setup_xol_ops`,
//! `push_setup_xol_ops`, `is_prefix_bad`).

use std::fmt;

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    OpKind,
};

use crate::abi::{Argument, Register};

/// Maximum bytes from the entry to a probe: a prologue is shorter.
const REACH_BYTES: usize = 64;
/// Maximum bytes of a function that are searched for jumps back to its start.
pub const FUNCTION_BYTES_MAX: u64 = 64 << 10;
/// Bytes searched if the symbol has no size.
const UNSIZED_BYTES: usize = 512;
/// Maximum frame that a skipped instruction may allocate.
const FRAME_BYTES_MAX: u64 = 32 << 10;

/// Abilities of the running kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Major and minor version.
    pub version: (u32, u32),
}

impl Kernel {
    /// Emulates NOPs of more than one byte.
    const fn emulates_long_nops(self) -> bool {
        self.version.0 > 6 || (self.version.0 == 6 && self.version.1 >= 18)
    }
}

/// An instruction that the kernel emulates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "they are their names")]
pub enum EmulatedInstruction {
    Nop,
    LongNop,
    Push,
    Jump,
    ConditionalJump,
    Call,
}

/// Why no cheaper instruction was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NotEmulated {
    /// None of the first instructions is emulated.
    NoneInReach,
    /// The function ends before there is one.
    Leaves,
    /// An argument is overwritten before there is one.
    Overwritten(Register),
    /// The stack pointer moves in a way that is not tracked.
    StackMoves,
    /// Arguments on the stack, or in memory, may be written before there is one.
    MemoryWritten,
    /// A later jump leads to a position between the entry and it: calls would be counted more than once.
    JumpedBackTo,
}

/// Position of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProbePoint {
    /// Bytes after the function's entry.
    pub offset: u16,
    /// Bytes by which the stack pointer is lower there than at the entry: arguments on the stack are that much farther.
    pub frame: u16,
    /// How the kernel executes the instruction.
    pub cost: ProbeCost,
}

/// How the kernel executes the probed instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProbeCost {
    /// Cheaply, by emulation.
    Emulated(EmulatedInstruction),
    /// By a single-step trap.
    Stepped(NotEmulated),
}

impl fmt::Display for ProbePoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.cost {
            ProbeCost::Emulated(EmulatedInstruction::Nop) => "nop",
            ProbeCost::Emulated(EmulatedInstruction::LongNop) => "long nop",
            ProbeCost::Emulated(EmulatedInstruction::Push) => "push",
            ProbeCost::Emulated(EmulatedInstruction::Jump) => "jmp",
            ProbeCost::Emulated(EmulatedInstruction::ConditionalJump) => "jcc",
            ProbeCost::Emulated(EmulatedInstruction::Call) => "call",
            ProbeCost::Stepped(because) => {
                return match because {
                    NotEmulated::NoneInReach => f.write_str("stepped: nothing cheaper in reach"),
                    NotEmulated::Leaves => f.write_str("stepped: it leaves before anything cheaper"),
                    NotEmulated::Overwritten(register) => {
                        write!(f, "stepped: {} is overwritten before anything cheaper", register.name())
                    }
                    NotEmulated::StackMoves => {
                        f.write_str("stepped: the stack moves before anything cheaper")
                    }
                    NotEmulated::MemoryWritten => {
                        f.write_str("stepped: arguments may be written before anything cheaper")
                    }
                    NotEmulated::JumpedBackTo => f.write_str("stepped: it jumps back to anything cheaper"),
                };
            }
        };
        match self.offset {
            0 => write!(f, "{what}"),
            offset => write!(f, "{what} at +{offset}"),
        }
    }
}

/// Why no instruction can be probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoProbePoint {
    /// The bytes are not an instruction.
    #[error("there is no valid instruction")]
    NotAnInstruction,
    /// The kernel refuses the first instruction, and there is no other.
    #[error("the kernel does not allow a probe on the first instruction")]
    Refused,
}

/// Chooses the instruction. `code` begins at the entry and ends with the function, if its size is known (`sized`).
///
/// # Errors
/// [`NoProbePoint`].
pub fn choose(
    code: &[u8],
    sized: bool,
    arguments: &[Argument],
    kernel: Kernel,
) -> Result<ProbePoint, NoProbePoint> {
    let mut walk = Walk::new(arguments);
    let mut decoder = Decoder::with_ip(64, code, 0, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    let mut refused = false;
    let because = loop {
        if !decoder.can_decode() || decoder.position() >= REACH_BYTES {
            break NotEmulated::NoneInReach;
        }
        let at = decoder.position();
        decoder.decode_out(&mut instruction);
        let bytes = code.get(at..decoder.position()).unwrap_or_default();
        if instruction.is_invalid() {
            if at == 0 {
                return Err(NoProbePoint::NotAnInstruction);
            }
            break NotEmulated::NoneInReach;
        }
        refused |= at == 0 && is_refused(bytes, &instruction);
        if let Some(emulated) = emulated(bytes, kernel).filter(|e| walk.allows(*e, bytes)) {
            if at > 0 && is_jumped_to(code, sized, at) {
                break NotEmulated::JumpedBackTo;
            }
            let (Ok(offset), Ok(frame)) = (u16::try_from(at), u16::try_from(walk.frame)) else {
                break NotEmulated::NoneInReach;
            };
            return Ok(ProbePoint { offset, frame, cost: ProbeCost::Emulated(emulated) });
        }
        if let Err(because) = walk.skip(&instruction) {
            break because;
        }
    };
    if refused {
        return Err(NoProbePoint::Refused);
    }
    Ok(ProbePoint { offset: 0, frame: 0, cost: ProbeCost::Stepped(because) })
}

/// Effect of the skipped instructions on the arguments.
struct Walk {
    needed: Vec<Register>,
    stack_needed: bool,
    /// Bytes that the stack pointer moved down.
    frame: u64,
    /// Something was stored, possibly below the stack pointer.
    stored: bool,
    info: InstructionInfoFactory,
}

impl Walk {
    fn new(arguments: &[Argument]) -> Self {
        Self {
            needed: arguments.iter().filter_map(|argument| argument.location.register()).collect(),
            stack_needed: arguments.iter().any(|argument| argument.location.is_on_stack()),
            frame: 0,
            stored: false,
            info: InstructionInfoFactory::new(),
        }
    }

    /// From 6.18 on, kernels turn a probed NOP of five bytes into a call, which (until 7.1) writes below the stack
    /// pointer; data that a function has stored there would be lost.
    fn allows(&self, emulated: EmulatedInstruction, bytes: &[u8]) -> bool {
        !(emulated == EmulatedInstruction::LongNop && bytes.len() == 5 && self.stored)
    }

    /// Skips an instruction, if the arguments are unchanged after it.
    fn skip(&mut self, instruction: &Instruction) -> Result<(), NotEmulated> {
        if instruction.flow_control() != FlowControl::Next {
            return Err(NotEmulated::Leaves);
        }
        let moves = frame_of(instruction);
        let info = self.info.info(instruction);
        let writes = |access| {
            matches!(
                access,
                OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
            )
        };
        for used in info.used_registers().iter().filter(|used| writes(used.access())) {
            let full = used.register().full_register();
            if full == iced_x86::Register::RSP && moves.is_none() {
                return Err(NotEmulated::StackMoves);
            }
            if let Some(register) = self.needed.iter().find(|register| register.iced() == full) {
                return Err(NotEmulated::Overwritten(*register));
            }
        }
        for memory in info.used_memory().iter().filter(|memory| writes(memory.access())) {
            self.stored = true;
            let base = memory.base().full_register();
            let above = base == iced_x86::Register::RSP
                && memory.displacement().cast_signed() < self.frame.cast_signed();
            // A store into the own frame leaves the caller's memory alone; any other may overwrite an argument.
            if !above && (self.stack_needed || self.needed.iter().any(|register| register.iced() == base)) {
                return Err(NotEmulated::MemoryWritten);
            }
        }
        self.frame += moves.unwrap_or(0);
        if self.frame > FRAME_BYTES_MAX {
            return Err(NotEmulated::StackMoves);
        }
        Ok(())
    }
}

/// Bytes by which a frame-allocating instruction moves the stack pointer down.
fn frame_of(instruction: &Instruction) -> Option<u64> {
    let is_rsp = |operand: u32| {
        instruction.op_kind(operand) == OpKind::Register
            && instruction.op_register(operand) == iced_x86::Register::RSP
    };
    match instruction.mnemonic() {
        Mnemonic::Sub if is_rsp(0) && instruction.op1_kind() != OpKind::Register => {
            instruction.try_immediate(1).ok().filter(|bytes| *bytes <= FRAME_BYTES_MAX)
        }
        _ => None,
    }
}

/// How the kernel emulates it, if it does.
fn emulated(bytes: &[u8], kernel: Kernel) -> Option<EmulatedInstruction> {
    match *bytes {
        [0x90] | [0x66, 0x90] => Some(EmulatedInstruction::Nop),
        [0x50..=0x57] | [0x41, 0x50..=0x57] => Some(EmulatedInstruction::Push),
        [0xeb, _] | [0xe9, _, _, _, _] => Some(EmulatedInstruction::Jump),
        [0xe8, _, _, _, _] => Some(EmulatedInstruction::Call),
        [0x70..=0x7f, _] | [0x0f, 0x80..=0x8f, _, _, _, _] => Some(EmulatedInstruction::ConditionalJump),
        _ if kernel.emulates_long_nops() && LONG_NOPS.contains(&bytes) => Some(EmulatedInstruction::LongNop),
        _ => None,
    }
}

/// The forms of NOP that assemblers write and the kernel recognizes; longer ones have a prefix that it refuses.
const LONG_NOPS: [&[u8]; 7] = [
    &[0x0f, 0x1f, 0x00],
    &[0x0f, 0x1f, 0x40, 0x00],
    &[0x0f, 0x1f, 0x44, 0x00, 0x00],
    &[0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00],
    &[0x0f, 0x1f, 0x80, 0, 0, 0, 0],
    &[0x0f, 0x1f, 0x84, 0x00, 0, 0, 0, 0],
    &[0x66, 0x0f, 0x1f, 0x84, 0x00, 0, 0, 0, 0],
];

/// Instructions on which the kernel allows no probe.
fn is_refused(bytes: &[u8], instruction: &Instruction) -> bool {
    let prefixes = bytes
        .iter()
        .take_while(|b| matches!(b, 0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3));
    let bad_prefix = prefixes.clone().any(|b| matches!(b, 0x26 | 0x2e | 0x36 | 0x3e | 0xf0));
    // Vendors interpret a branch with an operand size prefix differently.
    let is_branch = !matches!(instruction.flow_control(), FlowControl::Next | FlowControl::Return);
    let bad_branch = is_branch && prefixes.clone().any(|b| *b == 0x66);
    bad_prefix
        || bad_branch
        || instruction.is_privileged()
        || matches!(
            instruction.code(),
            Code::Int3 | Code::Int1 | Code::Int_imm8 | Code::Syscall | Code::Sysenter
        )
}

/// True if a direct jump of the function leads to a place after its entry, up to and including `to`.
fn is_jumped_to(code: &[u8], sized: bool, to: usize) -> bool {
    let code = if sized { code } else { &code[..code.len().min(UNSIZED_BYTES)] };
    let mut decoder = Decoder::with_ip(64, code, 0, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        let is_jump = matches!(
            instruction.flow_control(),
            FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch
        );
        if is_jump && (1..=to as u64).contains(&instruction.near_branch_target()) {
            return true;
        }
        if !sized && instruction.flow_control() == FlowControl::Return {
            break;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use deepctx_events::Role;
    use proptest::prelude::*;

    use super::*;
    use crate::abi::Location;
    use crate::abi::Scalar;

    const OLD: Kernel = Kernel { version: (6, 1) };
    const NEW: Kernel = Kernel { version: (6, 18) };

    fn arguments(locations: &[Location]) -> Vec<Argument> {
        locations.iter().map(|location| Argument::new(Role::Function, Scalar::U64, *location)).collect()
    }

    fn all_registers() -> Vec<Argument> {
        let places: Vec<_> =
            Register::ARGUMENTS.iter().map(|&register| Location::Register { register, shift: 0 }).collect();
        arguments(&places)
    }

    #[track_caller]
    fn check(code: &[u8], kernel: Kernel, expect: &str) {
        let found = choose(code, true, &all_registers(), kernel);
        let found = found.map_or_else(|none| format!("{none:?}"), |point| point.to_string());
        assert_eq!(found, expect, "{code:02x?}");
    }

    #[test]
    fn the_first_instruction_is_taken_when_it_is_emulated() {
        check(&[0x55, 0x48, 0x89, 0xe5], OLD, "push");
        check(&[0x41, 0x57], OLD, "push");
        check(&[0x90, 0xc3], OLD, "nop");
        check(&[0xe9, 0, 0, 0, 0], OLD, "jmp");
        check(&[0xe8, 0, 0, 0, 0], OLD, "call");
        check(&[0x0f, 0x1f, 0x44, 0, 0, 0xc3], NEW, "long nop");
    }

    #[test]
    fn a_driver_stub_is_probed_at_its_jump() {
        // cmpl $0x321cba00, x(%rip); je +9; jmp *x(%rip)
        let stub = [0x81, 0x3d, 1, 2, 3, 4, 0, 0xba, 0x1c, 0x32, 0x74, 0x0c, 0xff, 0x25, 0, 0, 0, 0];
        check(&stub, OLD, "jcc at +10");
    }

    #[test]
    fn a_landing_pad_is_passed_over() {
        check(&[0xf3, 0x0f, 0x1e, 0xfa, 0x55], OLD, "push at +4");
        // Old kernels step a long NOP.
        check(&[0xf3, 0x0f, 0x1e, 0xfa, 0x0f, 0x1f, 0x44, 0, 0, 0x55], OLD, "push at +9");
        check(&[0xf3, 0x0f, 0x1e, 0xfa, 0x0f, 0x1f, 0x44, 0, 0, 0x55], NEW, "long nop at +4");
    }

    #[test]
    fn an_argument_that_is_overwritten_ends_the_search() {
        // mov $1, %edi; push %rbp
        check(&[0xbf, 1, 0, 0, 0, 0x55], OLD, "stepped: rdi is overwritten before anything cheaper");
        // mov %rdi, %rax; push %rbp
        check(&[0x48, 0x89, 0xf8, 0x55], OLD, "push at +3");
        // ret; push %rbp
        check(&[0xc3, 0x55], OLD, "stepped: it leaves before anything cheaper");
        // pop %rax; push %rbp
        check(&[0x58, 0x55], OLD, "stepped: the stack moves before anything cheaper");
    }

    #[test]
    fn the_frame_is_added_to_locations_on_the_stack() {
        // sub $0x58, %rsp; call
        let code = [0x48, 0x83, 0xec, 0x58, 0xe8, 0, 0, 0, 0];
        let point = choose(&code, true, &arguments(&[Location::Stack(8)]), OLD).unwrap();
        assert_eq!((point.offset, point.frame), (4, 0x58));
        // mov %rax, 8(%rsp): before the frame it could hit an argument; after it, it is in the own frame.
        let store = [0x48, 0x89, 0x44, 0x24, 0x08];
        let stack = arguments(&[Location::Stack(8)]);
        let before = [&store[..], &code].concat();
        let after = [&code[..4], &store, &code[4..]].concat();
        let cost = |code: &[u8]| choose(code, true, &stack, OLD).unwrap().cost;
        assert_eq!(cost(&before), ProbeCost::Stepped(NotEmulated::MemoryWritten));
        assert_eq!(cost(&after), ProbeCost::Emulated(EmulatedInstruction::Call));
    }

    #[test]
    fn instructions_that_are_jumped_back_to_are_avoided() {
        // xor %eax,%eax; L: push %rbp; jmp L
        check(&[0x31, 0xc0, 0x55, 0xeb, 0xfd], OLD, "stepped: it jumps back to anything cheaper");
    }

    #[test]
    fn probes_avoid_five_byte_nops_in_red_zone_code() {
        // mov %rax, -8(%rsp); nopl 0(%rax,%rax); push %rbp
        let code = [0x48, 0x89, 0x44, 0x24, 0xf8, 0x0f, 0x1f, 0x44, 0, 0, 0x55];
        check(&code, NEW, "push at +10");
    }

    #[test]
    fn refused_instructions_are_not_probed() {
        check(&[0xcc], OLD, "Refused");
        check(&[0xf0, 0x48, 0x0f, 0xb1, 0x0f, 0xc3], OLD, "Refused");
        check(&[0x2e, 0x66, 0x90], OLD, "Refused");
        check(&[0x06], OLD, "NotAnInstruction");
        check(&[], OLD, "stepped: nothing cheaper in reach");
    }

    proptest! {
        #[test]
        fn the_probe_is_within_the_code(code in proptest::collection::vec(any::<u8>(), 1..200), sized: bool) {
            if let Ok(point) = choose(&code, sized, &all_registers(), NEW) {
                prop_assert!(usize::from(point.offset) < code.len());
                prop_assert!(usize::from(point.offset) < REACH_BYTES);
            }
        }
    }
}
