//! Registers of an x86-64 thread, as the kernel saves them.

use core::mem::offset_of;

use aya_ebpf::bindings::{bpf_user_pt_regs_t, pt_regs};
use deepctx_common::config::Config;
use deepctx_walk::unwind_row::x86_64::{Registers, dwarf};

use super::Mode;

/// The kernel's saved registers of a thread: the whole of `struct pt_regs`.
pub type UserRegs = pt_regs;

/// Offsets of the third, fourth and fifth argument of a system call.
pub const LAST_ARGUMENTS: [usize; 3] =
    [offset_of!(UserRegs, rdx), offset_of!(UserRegs, r10), offset_of!(UserRegs, r8)];

/// Offset of the number of the current system call; its low half is all ones outside of one.
pub const SYSTEM_CALL: usize = offset_of!(UserRegs, orig_rax);

/// Bytes that a return pops off the stack.
pub const RETURN_ADDRESS_BYTES: u64 = 8;

/// Position of a thread after the system call in the kernel's return trampoline, by the offset of its PC in that code.
/// Gives whether the real return address is certainly back on the stack, and its distance above the stack pointer in
/// bytes. It is uncertain while the thread is in the system call or has just left it.
///
/// Source: `uretprobe_trampoline_entry` (arch/x86/kernel/uprobes.c, Linux 6.11 to 6.18): `push %rax; push %rcx; push
/// %r11; mov $N, %rax; syscall; pop %r11; pop %rcx; ret`. Before 6.11 it is a one-byte breakpoint.
#[inline(always)]
pub fn behind_trampoline(offset: u64) -> Option<(bool, u64)> {
    match offset {
        13 => Some((false, 16)),
        15 => Some((true, 8)),
        16 => Some((true, 0)),
        _ => None,
    }
}

/// The general register with this DWARF number in the frame where a walk begins.
#[inline(always)]
pub fn register(registers: &Registers, _: &UserRegs, number: u8) -> u64 {
    registers.general[usize::from(number) & (dwarf::COUNT - 1)]
}

/// The first three arguments of a function (rdi, rsi, rdx) at its entry.
#[inline(always)]
pub fn arguments(r: &bpf_user_pt_regs_t) -> [u64; 3] {
    // SAFETY: fields of a borrowed context.
    unsafe {
        [
            (&raw const r.rdi).read_volatile(),
            (&raw const r.rsi).read_volatile(),
            (&raw const r.rdx).read_volatile(),
        ]
    }
}

/// Return value of a function (rax).
#[inline(always)]
pub fn result(r: &bpf_user_pt_regs_t) -> u64 {
    // SAFETY: as above.
    unsafe { (&raw const r.rax).read_volatile() }
}

/// True if the CPU was in the kernel: the privilege level is in the low two bits of `cs`.
#[inline(always)]
pub fn in_kernel(regs: &bpf_user_pt_regs_t) -> bool {
    regs.cs & 3 == 0
}

/// Copies registers out of a program's context, field by field: the copy of the whole may become a call, and the
/// kernel's verifier lets no function read a context at a computed offset.
#[inline(always)]
pub fn copy(to: &mut UserRegs, r: &bpf_user_pt_regs_t) {
    macro_rules! fields {
        ($($field:ident)*) => {
            // One after the other: all at once would need as much of the kernel's stack.
            // SAFETY: each is a field of a borrowed context and of a borrowed value.
            $(unsafe { (&raw mut to.$field).write_volatile((&raw const r.$field).read_volatile()) };)*
        };
    }
    fields!(r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags rsp ss);
}

/// True if the thread is in a system call: `orig_rax` is −1 otherwise.
#[inline(always)]
pub fn in_system_call(regs: &UserRegs) -> bool {
    regs.orig_rax as i64 != -1
}

/// Number and arguments of the thread's current system call.
#[inline(always)]
pub fn system_call(regs: &UserRegs) -> (u64, [u64; 6]) {
    (regs.orig_rax, [regs.rdi, regs.rsi, regs.rdx, regs.r10, regs.r8, regs.r9])
}

/// The mode in which the registers were saved: `__USER_CS` is 0x33, `__USER32_CS` 0x23
/// (arch/x86/include/asm/segment.h).
#[inline(always)]
pub fn mode(regs: &UserRegs) -> Mode {
    if regs.cs == 0x23 {
        Mode::Compat
    } else if regs.cs & 3 != 3 {
        Mode::Kernel
    } else {
        Mode::User
    }
}

/// Sets up the first frame of a walk.
#[inline(always)]
pub fn begin(registers: &mut Registers, r: &UserRegs, _: &Config) {
    registers.pc = r.rip;
    registers.sp = r.rsp;
    registers.bp = r.rbp;
    registers.exact = 1;
    registers.bp_known = 1;
    let general = &mut registers.general;
    general[dwarf::RAX] = r.rax;
    general[dwarf::RDX] = r.rdx;
    general[dwarf::RCX] = r.rcx;
    general[dwarf::RBX] = r.rbx;
    general[dwarf::RSI] = r.rsi;
    general[dwarf::RDI] = r.rdi;
    general[dwarf::RBP] = r.rbp;
    general[dwarf::RSP] = r.rsp;
    general[8] = r.r8;
    general[9] = r.r9;
    general[10] = r.r10;
    general[11] = r.r11;
    general[12] = r.r12;
    general[13] = r.r13;
    general[14] = r.r14;
    general[15] = r.r15;
}
