//! Stack facts read from the instructions of Go functions.
//!
//! Owns: where a function saves its caller's frame pointer; in which part of it rbp leads to its own frame, whatever
//! stack it is on; what it leaves on the stack when it calls C. Because: offsets in Go's structures differ from
//! release to release; the compiled function is authoritative. Does not: know which functions to examine
//! ([`super::go`]): one that does not look as expected gives no answer.

use std::ops::Range;

use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, Register};

use super::instructions::instructions;

/// Largest function whose instructions are followed: those of the runtime that switch stacks have some hundred bytes.
const FUNCTION_BYTES_MAX: usize = 4096;

/// The location of the caller's frame pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FramePointer {
    /// In rbp.
    Unchanged,
    /// Right below the return address, from this address on.
    SavedFrom(u64),
    /// Unknown.
    Unknown,
}

/// `push %rbp; mov %rsp,%rbp`, since Go 1.21; the depth changes after the first.
const PUSH_AND_MOVE: [u8; 4] = [0x55, 0x48, 0x89, 0xe5];
/// `mov %rbp,disp8(%rsp)` and `mov %rbp,disp32(%rsp)`, without the offset.
const STORE_NEAR: [u8; 4] = [0x48, 0x89, 0x6c, 0x24];
const STORE_FAR: [u8; 4] = [0x48, 0x89, 0xac, 0x24];

/// Where the function with this code saves its caller's frame pointer. It has first taken `depth` bytes of the stack
/// after `at` bytes of code.
pub(super) fn frame_pointer(code: &[u8], begin: u64, at: usize, depth: u32) -> FramePointer {
    let pushed = at.checked_sub(1).and_then(|push| code.get(push..)).unwrap_or_default();
    if depth == 8 && pushed.starts_with(&PUSH_AND_MOVE) {
        return FramePointer::SavedFrom(begin + at as u64);
    }
    let store = code.get(at..).unwrap_or_default();
    let stored = if let Some(rest) = store.strip_prefix(&STORE_NEAR) {
        rest.first().map(|&offset| (u32::from(offset), 5)).filter(|&(offset, _)| offset < 0x80)
    } else if let Some(rest) = store.strip_prefix(&STORE_FAR) {
        rest.first_chunk().map(|&offset| (u32::from_le_bytes(offset), 8))
    } else {
        None
    };
    match stored {
        Some((offset, bytes)) if depth.checked_sub(8) == Some(offset) => {
            FramePointer::SavedFrom(begin + at as u64 + bytes)
        }
        _ if keeps_rbp(code, begin) => FramePointer::Unchanged,
        _ => FramePointer::Unknown,
    }
}

/// Whether rbp has its caller's value at every instruction, since only saved values are restored to it.
fn keeps_rbp(code: &[u8], begin: u64) -> bool {
    let mut slots = Vec::new();
    code.len() <= FUNCTION_BYTES_MAX
        && instructions(code, begin).all(|instruction| {
            if let Some(slot) = stores_rbp(&instruction) {
                slots.push(slot);
            }
            let first = instruction.op0_register().full_register() == Register::RBP;
            let reads = matches!(instruction.mnemonic(), Mnemonic::Push | Mnemonic::Cmp | Mnemonic::Test);
            let swaps = instruction.mnemonic() == Mnemonic::Xchg
                && instruction.op1_register().full_register() == Register::RBP;
            let restores = loads_rbp(&instruction).is_some_and(|slot| slots.contains(&slot));
            !instruction.is_invalid() && !swaps && (!first || reads || restores)
        })
}

/// `mov %rbp,slot(%rsp)`.
fn stores_rbp(instruction: &Instruction) -> Option<i32> {
    stored(instruction, Register::RBP)
}

/// `mov slot(%rsp),%rbp`.
fn loads_rbp(instruction: &Instruction) -> Option<i32> {
    (instruction.mnemonic() == Mnemonic::Mov
        && instruction.op0_register() == Register::RBP
        && instruction.op1_kind() == OpKind::Memory
        && is_at_rsp(instruction))
    .then_some(instruction.memory_displacement64() as i32)
}

fn is_at_rsp(instruction: &Instruction) -> bool {
    instruction.memory_base() == Register::RSP
        && instruction.memory_index() == Register::None
        && instruction.segment_prefix() == Register::None
}

/// Whether it sets the stack pointer from elsewhere.
fn takes_rsp(instruction: &Instruction) -> bool {
    instruction.mnemonic() == Mnemonic::Mov && instruction.op0_register() == Register::RSP
}

/// The address after the first instruction that switches stacks.
pub(super) fn takes_stack(code: &[u8], begin: u64) -> Option<u64> {
    let code = code.get(..FUNCTION_BYTES_MAX).unwrap_or(code);
    instructions(code, begin).find(takes_rsp).map(|instruction| instruction.next_ip())
}

/// The ranges of a stack-switching function in which rbp leads to its frame on the caller's stack: between setting rbp
/// and restoring it. `None` if it switches no stacks, or sets no such frame.
pub(super) fn keeps_frame(code: &[u8], begin: u64) -> Option<Vec<Range<u64>>> {
    if code.len() > FUNCTION_BYTES_MAX {
        return None;
    }
    let (mut framed, mut left) = (None, Vec::new());
    let (mut is_set, mut switches) = (false, false);
    let mut before = Instruction::default();
    for now in instructions(code, begin) {
        if now.is_invalid() {
            return None;
        }
        if !is_set {
            is_set = sets_frame(&before, &now);
            framed = is_set.then_some(now.next_ip());
        } else if let Some(from) = framed {
            switches |= takes_rsp(&now);
            let is_pop = now.mnemonic() == Mnemonic::Pop && now.op0_register() == Register::RBP;
            if is_pop || loads_rbp(&now).is_some() {
                left.push(from..now.next_ip());
                framed = None;
            }
        } else if matches!(
            now.flow_control(),
            FlowControl::Return | FlowControl::UnconditionalBranch | FlowControl::IndirectBranch
        ) {
            // The following code is reached by a jump from code with a frame.
            framed = Some(now.next_ip());
        }
        before = now;
    }
    left.extend(framed.map(|from| from..begin + code.len() as u64));
    left.retain(|range| !range.is_empty());
    (switches && !left.is_empty()).then_some(left)
}

/// The end of a prologue: rbp now points to the caller's rbp.
fn sets_frame(before: &Instruction, now: &Instruction) -> bool {
    let is_rbp = now.op0_register() == Register::RBP;
    match (before.mnemonic(), now.mnemonic()) {
        (Mnemonic::Push, Mnemonic::Mov) => {
            before.op0_register() == Register::RBP && is_rbp && now.op1_register() == Register::RSP
        }
        (Mnemonic::Mov, Mnemonic::Lea) => {
            let slot = stores_rbp(before);
            slot.is_some() && is_rbp && is_at_rsp(now) && slot == Some(now.memory_displacement64() as i32)
        }
        _ => false,
    }
}

/// Values that a function keeps at its stack pointer while C runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CgoCalls {
    /// Offset of the goroutine, or of zero if it was on the thread's own stack.
    pub(super) goroutine: i32,
    /// Offset of the depth of its stack pointer below the end of its stack, or of the stack pointer.
    pub(super) depth: i32,
    /// Where both are valid: calls from a goroutine, and from the thread's own stack.
    pub(super) ranges: [Range<u64>; 2],
}

/// The values that `asmcgocall` keeps on the stack, if both of its calls use the same slots.
pub(super) fn calls_c(code: &[u8], begin: u64) -> Option<CgoCalls> {
    let code = code.get(..FUNCTION_BYTES_MAX).unwrap_or(code);
    let all: Vec<_> = instructions(code, begin).collect();
    let (of_goroutine, places) =
        all.windows(4).enumerate().find_map(|(at, window)| Some((at + 4, saves_goroutine(window)?)))?;
    let (of_thread, same) =
        all.windows(2).enumerate().find_map(|(at, window)| Some((at + 2, saves_no_goroutine(window)?)))?;
    if places != same {
        return None;
    }
    let range = |from: usize| {
        let until = all.get(from..)?.iter().find(|instruction| takes_rsp(instruction))?;
        Some(all.get(from)?.ip()..until.ip())
    };
    let (first, second) = (range(of_goroutine)?, range(of_thread)?);
    let (goroutine, depth) = places;
    (first.end <= second.start).then_some(CgoCalls { goroutine, depth, ranges: [first, second] })
}

/// `mov %rdi,goroutine(%rsp); mov 8(%rdi),%rdi; sub %rdx,%rdi; mov %rdi,depth(%rsp)`.
fn saves_goroutine(window: &[Instruction]) -> Option<(i32, i32)> {
    let [save, end, below, store] = window else { return None };
    let is_end = end.mnemonic() == Mnemonic::Mov
        && end.op0_register() == Register::RDI
        && end.memory_base() == Register::RDI
        && end.memory_index() == Register::None
        && end.memory_displacement64() == 8;
    let is_below = below.mnemonic() == Mnemonic::Sub
        && below.op0_register() == Register::RDI
        && below.op1_register() == Register::RDX;
    let places = (stored(save, Register::RDI)?, stored(store, Register::RDI)?);
    (is_end && is_below).then_some(places)
}

/// `movq $0,goroutine(%rsp); mov %rdx,depth(%rsp)`.
fn saves_no_goroutine(window: &[Instruction]) -> Option<(i32, i32)> {
    let [save, store] = window else { return None };
    let is_zero = save.op1_kind() == OpKind::Immediate32to64 && save.immediate32to64() == 0;
    let places = (stored(save, Register::None)?, stored(store, Register::RDX)?);
    is_zero.then_some(places)
}

/// The offset from rsp at which an instruction stores this register.
fn stored(instruction: &Instruction, register: Register) -> Option<i32> {
    let is_store = instruction.mnemonic() == Mnemonic::Mov
        && instruction.op0_kind() == OpKind::Memory
        && is_at_rsp(instruction)
        && instruction.op1_register() == register;
    is_store.then_some(instruction.memory_displacement64() as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `asmcgocall` of Go 1.27 and 1.19.
    const CALLS_C: [&[u8]; 2] = [
        &[
            0x55, 0x48, 0x89, 0xe5, 0x64, 0x48, 0x8b, 0x3c, 0x25, 0xf8, 0xff, 0xff, 0xff, 0x48, 0x83, 0xff,
            0x00, 0x74, 0x70, 0x4c, 0x8b, 0x47, 0x30, 0x49, 0x8b, 0x70, 0x48, 0x48, 0x39, 0xf7, 0x74, 0x63,
            0x49, 0x8b, 0x30, 0x48, 0x39, 0xf7, 0x74, 0x5b, 0x48, 0x8b, 0x44, 0x24, 0x10, 0x48, 0x8b, 0x5c,
            0x24, 0x18, 0x48, 0x89, 0xe2, 0xe8, 0x46, 0xe0, 0xff, 0xff, 0x64, 0x48, 0x89, 0x34, 0x25, 0xf8,
            0xff, 0xff, 0xff, 0x48, 0x8b, 0x66, 0x38, 0x48, 0x83, 0xec, 0x10, 0x48, 0x83, 0xe4, 0xf0, 0x48,
            0x89, 0x7c, 0x24, 0x08, 0x48, 0x8b, 0x7f, 0x08, 0x48, 0x29, 0xd7, 0x48, 0x89, 0x3c, 0x24, 0xe8,
            0x7c, 0xff, 0xff, 0xff, 0x48, 0x8b, 0x7c, 0x24, 0x08, 0x48, 0x8b, 0x77, 0x08, 0x48, 0x2b, 0x34,
            0x24, 0x64, 0x48, 0x89, 0x3c, 0x25, 0xf8, 0xff, 0xff, 0xff, 0x48, 0x89, 0xf4, 0x89, 0x44, 0x24,
            0x20, 0x5d, 0xc3, 0x48, 0x8b, 0x44, 0x24, 0x10, 0x48, 0x8b, 0x5c, 0x24, 0x18, 0x48, 0x89, 0xe2,
            0x48, 0x83, 0xec, 0x10, 0x48, 0x83, 0xe4, 0xf0, 0x48, 0xc7, 0x44, 0x24, 0x08, 0x00, 0x00, 0x00,
            0x00, 0x48, 0x89, 0x14, 0x24, 0xe8, 0x36, 0xff, 0xff, 0xff, 0x48, 0x8b, 0x34, 0x24, 0x48, 0x89,
            0xf4, 0x89, 0x44, 0x24, 0x20, 0x5d, 0xc3,
        ],
        &[
            0x48, 0x8b, 0x44, 0x24, 0x08, 0x48, 0x8b, 0x5c, 0x24, 0x10, 0x48, 0x89, 0xe2, 0x64, 0x48, 0x8b,
            0x3c, 0x25, 0xf8, 0xff, 0xff, 0xff, 0x48, 0x83, 0xff, 0x00, 0x74, 0x67, 0x4c, 0x8b, 0x47, 0x30,
            0x49, 0x8b, 0x70, 0x50, 0x48, 0x39, 0xf7, 0x74, 0x5a, 0x49, 0x8b, 0x30, 0x48, 0x39, 0xf7, 0x74,
            0x52, 0xe8, 0x6a, 0xd3, 0xff, 0xff, 0x64, 0x48, 0x89, 0x34, 0x25, 0xf8, 0xff, 0xff, 0xff, 0x48,
            0x8b, 0x66, 0x38, 0x48, 0x83, 0xec, 0x40, 0x48, 0x83, 0xe4, 0xf0, 0x48, 0x89, 0x7c, 0x24, 0x30,
            0x48, 0x8b, 0x7f, 0x08, 0x48, 0x29, 0xd7, 0x48, 0x89, 0x7c, 0x24, 0x28, 0x48, 0x89, 0xdf, 0x48,
            0x89, 0xd9, 0xff, 0xd0, 0x48, 0x8b, 0x7c, 0x24, 0x30, 0x48, 0x8b, 0x77, 0x08, 0x48, 0x2b, 0x74,
            0x24, 0x28, 0x64, 0x48, 0x89, 0x3c, 0x25, 0xf8, 0xff, 0xff, 0xff, 0x48, 0x89, 0xf4, 0x89, 0x44,
            0x24, 0x18, 0xc3, 0x48, 0x83, 0xec, 0x40, 0x48, 0x83, 0xe4, 0xf0, 0x48, 0xc7, 0x44, 0x24, 0x30,
            0x00, 0x00, 0x00, 0x00, 0x48, 0x89, 0x54, 0x24, 0x28, 0x48, 0x89, 0xdf, 0x48, 0x89, 0xd9, 0xff,
            0xd0, 0x48, 0x8b, 0x74, 0x24, 0x28, 0x48, 0x89, 0xf4, 0x89, 0x44, 0x24, 0x18, 0xc3,
        ],
    ];
    /// `nanotime1` of the same versions.
    const CLOCK: [&[u8]; 2] = [
        &[
            0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x10, 0x49, 0x89, 0xe4, 0x49, 0x8b, 0x5e, 0x30, 0x48,
            0x8b, 0x8b, 0x88, 0x03, 0x00, 0x00, 0x48, 0x8b, 0x93, 0x80, 0x03, 0x00, 0x00, 0x48, 0x89, 0x0c,
            0x24, 0x48, 0x89, 0x54, 0x24, 0x08, 0x48, 0x8d, 0x54, 0x24, 0x20, 0x48, 0x8b, 0x4a, 0xf8, 0x48,
            0x89, 0x8b, 0x88, 0x03, 0x00, 0x00, 0x48, 0x89, 0x93, 0x80, 0x03, 0x00, 0x00, 0x4c, 0x3b, 0xb3,
            0xb8, 0x00, 0x00, 0x00, 0x75, 0x07, 0x48, 0x8b, 0x13, 0x48, 0x8b, 0x62, 0x38, 0x48, 0x83, 0xec,
            0x10, 0x48, 0x83, 0xe4, 0xf0, 0xbf, 0x01, 0x00, 0x00, 0x00, 0x48, 0x8d, 0x34, 0x24, 0x48, 0x8b,
            0x05, 0x43, 0x37, 0x11, 0x00, 0x48, 0x83, 0xf8, 0x00, 0x74, 0x3a, 0xff, 0xd0, 0x48, 0x8b, 0x04,
            0x24, 0x48, 0x8b, 0x54, 0x24, 0x08, 0x4c, 0x89, 0xe4, 0x48, 0x8b, 0x4c, 0x24, 0x08, 0x48, 0x89,
            0x8b, 0x80, 0x03, 0x00, 0x00, 0x48, 0x8b, 0x0c, 0x24, 0x48, 0x89, 0x8b, 0x88, 0x03, 0x00, 0x00,
            0x48, 0x69, 0xc0, 0x00, 0xca, 0x9a, 0x3b, 0x48, 0x01, 0xd0, 0x48, 0x89, 0x44, 0x24, 0x20, 0x48,
            0x83, 0xc4, 0x10, 0x5d, 0xc3, 0xb8, 0xe4, 0x00, 0x00, 0x00, 0x0f, 0x05, 0xeb, 0xbf,
        ],
        &[
            0x48, 0x83, 0xec, 0x18, 0x48, 0x89, 0x6c, 0x24, 0x10, 0x48, 0x8d, 0x6c, 0x24, 0x10, 0x49, 0x89,
            0xe4, 0x49, 0x8b, 0x5e, 0x30, 0x48, 0x8b, 0x8b, 0x28, 0x03, 0x00, 0x00, 0x48, 0x8b, 0x93, 0x20,
            0x03, 0x00, 0x00, 0x48, 0x89, 0x0c, 0x24, 0x48, 0x89, 0x54, 0x24, 0x08, 0x48, 0x8d, 0x54, 0x24,
            0x20, 0x48, 0x8b, 0x4a, 0xf8, 0x48, 0x89, 0x8b, 0x28, 0x03, 0x00, 0x00, 0x48, 0x89, 0x93, 0x20,
            0x03, 0x00, 0x00, 0x4c, 0x3b, 0xb3, 0xc0, 0x00, 0x00, 0x00, 0x75, 0x07, 0x48, 0x8b, 0x13, 0x48,
            0x8b, 0x62, 0x38, 0x48, 0x83, 0xec, 0x10, 0x48, 0x83, 0xe4, 0xf0, 0xbf, 0x01, 0x00, 0x00, 0x00,
            0x48, 0x8d, 0x34, 0x24, 0x48, 0x8b, 0x05, 0x9d, 0xa9, 0x0f, 0x00, 0x48, 0x83, 0xf8, 0x00, 0x74,
            0x3e, 0xff, 0xd0, 0x48, 0x8b, 0x04, 0x24, 0x48, 0x8b, 0x54, 0x24, 0x08, 0x4c, 0x89, 0xe4, 0x48,
            0x8b, 0x4c, 0x24, 0x08, 0x48, 0x89, 0x8b, 0x20, 0x03, 0x00, 0x00, 0x48, 0x8b, 0x0c, 0x24, 0x48,
            0x89, 0x8b, 0x28, 0x03, 0x00, 0x00, 0x48, 0x69, 0xc0, 0x00, 0xca, 0x9a, 0x3b, 0x48, 0x01, 0xd0,
            0x48, 0x89, 0x44, 0x24, 0x20, 0x48, 0x8b, 0x6c, 0x24, 0x10, 0x48, 0x83, 0xc4, 0x18, 0xc3, 0x48,
            0xc7, 0xc0, 0xe4, 0x00, 0x00, 0x00, 0x0f, 0x05, 0xeb, 0xb9,
        ],
    ];

    #[test]
    fn the_part_of_a_function_with_a_frame_is_found() {
        // The caller's frame pointer is restored before the last instructions.
        let end = CLOCK.map(|code| 0x1000 + code.len() as u64);
        assert_eq!(keeps_frame(CLOCK[0], 0x1000), Some(vec![0x1004..0x10a4, 0x10a5..end[0]]));
        assert_eq!(keeps_frame(CLOCK[1], 0x1000), Some(vec![0x100e..0x10aa, 0x10af..end[1]]));
        assert_eq!(keeps_frame(CALLS_C[0], 0x1000), Some(vec![0x1004..0x1082, 0x1083..0x10b6]));
    }

    #[test]
    fn a_function_without_such_a_frame_has_none() {
        assert_eq!(keeps_frame(CALLS_C[1], 0x1000), None, "it saves no frame pointer");
        // push %rbp; mov %rsp,%rbp; call; pop %rbp; ret
        let code = [0x55, 0x48, 0x89, 0xe5, 0xe8, 0, 0, 0, 0, 0x5d, 0xc3];
        assert_eq!(keeps_frame(&code, 0x1000), None, "it changes no stacks");
        assert_eq!(keeps_frame(&CLOCK[0][..0x4a], 0x1000), None, "cut off within an instruction");
    }

    #[test]
    fn what_a_call_of_c_leaves_is_found() {
        let ranges = [0x105f..0x107a, 0x10a5..0x10ae];
        assert_eq!(calls_c(CALLS_C[0], 0x1000), Some(CgoCalls { goroutine: 8, depth: 0, ranges }));
        let ranges = [0x105c..0x107b, 0x1099..0x10a6];
        assert_eq!(calls_c(CALLS_C[1], 0x1000), Some(CgoCalls { goroutine: 48, depth: 40, ranges }));
    }

    #[test]
    fn calls_of_c_that_differ_are_refused() {
        for cut in 0..CALLS_C[0].len() - 12 {
            assert_eq!(calls_c(&CALLS_C[0][..cut], 0x1000), None, "{cut} bytes");
        }
        // The goroutine elsewhere in one of the two, another field of it, another register.
        for at in [0x53, 0x57, 0x5a, 0x9c] {
            let mut code = CALLS_C[0].to_vec();
            code[at] ^= 0x10;
            assert_eq!(calls_c(&code, 0x1000), None, "byte {at:#x}");
        }
    }

    #[test]
    fn frame_pointers_are_where_a_prologue_puts_them() {
        let check = |code: &[u8], at: usize, depth: u32, expect: FramePointer| {
            assert_eq!(frame_pointer(code, 0x1000, at, depth), expect, "{code:x?}");
        };
        check(CLOCK[0], 1, 8, FramePointer::SavedFrom(0x1001));
        check(CLOCK[1], 4, 24, FramePointer::SavedFrom(0x1009));
        check(CLOCK[1], 4, 32, FramePointer::Unknown);
        // sub $0x408,%rsp; mov %rbp,0x400(%rsp)
        let far = [0x48, 0x81, 0xec, 8, 4, 0, 0, 0x48, 0x89, 0xac, 0x24, 0, 4, 0, 0];
        check(&far, 7, 0x408, FramePointer::SavedFrom(0x100f));
        // sub $16,%rsp; mov %rbp,8(%rsp); mov 8(%rsp),%rbp; ret, and a load from elsewhere
        check(&[0x48, 0x83, 0xec, 16, 0x50, 0xc3], 4, 16, FramePointer::Unchanged);
        let restored = [0x50, 0x48, 0x89, 0x6c, 0x24, 8, 0x48, 0x8b, 0x6c, 0x24, 8, 0xc3];
        check(&restored, 1, 8, FramePointer::Unchanged);
        let mut other = restored;
        other[10] = 16;
        check(&other, 1, 8, FramePointer::Unknown);
        check(&[], 0, 8, FramePointer::Unchanged);
    }

    #[test]
    fn a_resumed_goroutine_has_its_stack_behind_one_instruction() {
        // mov %rdx,%r14; mov (%rbx),%rsp; jmp *%rbx
        let code = [0x49, 0x89, 0xd6, 0x48, 0x8b, 0x23, 0xff, 0xe3];
        assert_eq!(takes_stack(&code, 0x1000), Some(0x1006));
        assert_eq!(takes_stack(&code[..3], 0x1000), None);
    }
}
