//! Rows of the library `greenlet` up to 1.x, which is written in C.
//!
//! Owns: finding where in `g_initialstub` a new greenlet's stack begins. Because: the function is called on the stack
//! of the switching greenlet, switches stacks halfway through, and continues in the new greenlet, where it never
//! returns: no separate function is the outermost. Does not: know later releases ([`super::greenlet`]).
//!
//! ```text
//!   call g_switchstack
//!   cmp  $1,%eax       ◀─ 1: in the new greenlet
//!   je   ─────────────▶ call PyObject_Call …     all that is reached from here is the new greenlet's, and none of it
//!   …                                            returns
//!   ret                ◀─ in the one that switched, later
//! ```

use std::ops::Range;

use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, Register};

use super::instructions::instructions;

/// Instructions between the call and the test of its result: compilers clear a register there.
const BETWEEN_MAX: usize = 3;

/// The parts of the function that run on the new greenlet's stack, ascending; none if unclear.
pub(super) fn new_stack(code: &[u8], begin: u64) -> Vec<Range<u64>> {
    let all: Vec<Instruction> = instructions(code, begin).take_while(|now| !now.is_invalid()).collect();
    let branches = all.windows(2).enumerate().filter_map(|(at, pair)| branch(&all[..at], pair));
    let is_return = |now: &&Instruction| now.flow_control() == FlowControl::Return;
    let returns = |parts: &Vec<Range<u64>>| {
        all.iter().filter(is_return).any(|now| parts.iter().any(|part| part.contains(&now.ip())))
    };
    branches.filter_map(|target| reached(&all, target)).find(|parts| !returns(parts)).unwrap_or_default()
}

/// Where execution continues if the preceding call returned 1.
fn branch(before: &[Instruction], pair: &[Instruction]) -> Option<u64> {
    let [compares, jumps] = pair else { return None };
    let with_one = compares.mnemonic() == Mnemonic::Cmp
        && compares.op0_kind() == OpKind::Register
        && compares.op0_register() == Register::EAX
        && compares.try_immediate(1).is_ok_and(|value| value == 1);
    let calls =
        |now: &Instruction| now.mnemonic() == Mnemonic::Call && now.op0_kind() == OpKind::NearBranch64;
    if !with_one || !before.iter().rev().take(BETWEEN_MAX).any(calls) {
        return None;
    }
    match jumps.mnemonic() {
        Mnemonic::Je => Some(jumps.near_branch_target()),
        Mnemonic::Jne => Some(jumps.next_ip()),
        _ => None,
    }
}

/// All code reachable from an instruction within the function, ascending; `None` if some of it is unknown.
pub(super) fn reached(all: &[Instruction], from: u64) -> Option<Vec<Range<u64>>> {
    let position = |address| all.binary_search_by_key(&address, Instruction::ip).ok();
    let mut is_reached = vec![false; all.len()];
    let mut waiting = vec![position(from)?];
    while let Some(at) = waiting.pop() {
        if std::mem::replace(&mut is_reached[at], true) {
            continue;
        }
        let now = &all[at];
        // A split-off part is elsewhere.
        let jumps_to = || position(now.near_branch_target());
        match now.flow_control() {
            FlowControl::IndirectBranch => return None,
            FlowControl::UnconditionalBranch => waiting.extend(jumps_to()),
            FlowControl::ConditionalBranch => {
                waiting.extend(jumps_to());
                waiting.extend(position(now.next_ip()));
            }
            FlowControl::Return | FlowControl::Exception => {}
            // A call that does not return is followed by other code, or none.
            _ => waiting.extend(position(now.next_ip())),
        }
    }
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for now in all.iter().zip(&is_reached).filter_map(|(now, is_reached)| is_reached.then_some(now)) {
        match ranges.last_mut() {
            Some(last) if last.end == now.ip() => last.end = now.next_ip(),
            _ => ranges.push(now.ip()..now.next_ip()),
        }
    }
    Some(ranges)
}

#[cfg(test)]
mod tests {
    use super::new_stack;

    /// Like `g_initialstub` of greenlet 1.1.3, without the irrelevant instructions.
    #[rustfmt::skip]
    const CODE: [u8; 35] = [
        0xe8, 0x10, 0, 0, 0, // 1000: call 1015
        0x66, 0x0f, 0xef, 0xc0, // 1005: pxor %xmm0,%xmm0
        0x83, 0xf8, 0x01, // 1009: cmp $1,%eax
        0x74, 0x05, // 100c: je 1013
        0x48, 0x83, 0xc4, 0x58, // 100e: add $0x58,%rsp
        0xc3, // 1012: ret
        0x48, 0x89, 0xdf, // 1013: mov %rbx,%rdi
        0x74, 0x04, // 1016: je 101c
        0xff, 0xc0, // 1018: inc %eax
        0xeb, 0xf7, // 101a: jmp 1013
        0xe8, 0, 0, 0, 0, // 101c: call 1021
        0x0f, 0x0b, // 1021: ud2
    ];

    /// Expects one part, or none.
    fn check(change: &[(usize, u8)], expect: Option<std::ops::Range<u64>>) {
        let mut code = CODE;
        for &(at, byte) in change {
            code[at] = byte;
        }
        assert_eq!(new_stack(&code, 0x1000), Vec::from_iter(expect), "{change:?}");
    }

    #[test]
    fn parts_behind_the_switch_are_found() {
        check(&[], Some(0x1013..0x1023));
        // Inverted: `jne 1022` is followed by the code that does not return.
        check(&[(0x0c, 0x75), (0x0d, 0x14), (0x12, 0x90)], Some(0x100e..0x1023));
    }

    #[test]
    fn code_that_returns_or_compares_otherwise_has_none() {
        // Another result, another register, a branch to code that returns, no call before.
        check(&[(0x0b, 0x02)], None);
        // With memory instead: `nop; cmp (%rbx),%eax`.
        check(&[(0x09, 0x90), (0x0a, 0x3b), (0x0b, 0x03)], None);
        check(&[(0x0a, 0xf9)], None);
        check(&[(0x0d, 0x00)], None);
        check(&[(0x00, 0xb8)], None);
        // One path returns, or leads to an unknown address.
        check(&[(0x21, 0xc3), (0x22, 0x90)], None);
        check(&[(0x18, 0xff), (0x19, 0xe0)], None);
        // A branch into the middle of an instruction.
        check(&[(0x0d, 0x06)], None);
        for cut in 0..CODE.len() - 2 {
            let parts = new_stack(&CODE[..cut], 0x1000);
            assert!(parts.iter().all(|part| part.end <= 0x1000 + cut as u64), "{cut}: {parts:?}");
        }
    }
}
