//! Registers of an aarch64 thread, as the kernel saves them.

use core::mem::offset_of;

use aya_ebpf::bindings::{bpf_user_pt_regs_t, user_pt_regs};
use deepctx_common::config::Config;
use deepctx_walk::unwind_row::aarch64::{Registers, address_mask, dwarf};

use super::Mode;

/// The beginning of the kernel's saved registers of a thread (`struct pt_regs`, arch/arm64/include/asm/ptrace.h).
#[repr(C)]
pub struct UserRegs {
    user: user_pt_regs,
    orig_x0: u64,
    /// [`NO_SYSTEM_CALL`] unless the thread is in a system call.
    system_call: i32,
    /// Padding, or interrupt state of the kernel.
    _other: u32,
}

/// Offsets of the third, fourth and fifth argument of a system call: x2, x3, x4.
pub const LAST_ARGUMENTS: [usize; 3] = [2 * 8, 3 * 8, 4 * 8];

/// Offset of the number of the current system call: [`NO_SYSTEM_CALL`] outside of one.
pub const SYSTEM_CALL: usize = offset_of!(UserRegs, system_call);

/// `NO_SYSCALL`
const NO_SYSTEM_CALL: i32 = -1;
/// `PSR_MODE_MASK`: 0 in user mode, 32-bit or 64-bit.
const MODE_MASK: u64 = 0xf;
/// `PSR_MODE32_BIT`
const MODE_32_BIT: u64 = 0x10;

/// Bytes that a return pops off the stack: none, because the address is in a register.
pub const RETURN_ADDRESS_BYTES: u64 = 0;

/// Always `None`: the kernel's code at a probed return is a breakpoint.
#[inline(always)]
pub fn behind_trampoline(_: u64) -> Option<(bool, u64)> {
    None
}

/// The general register with this DWARF number in the frame where a walk begins; 0 if there is none.
#[inline(always)]
pub fn register(_: &Registers, regs: &UserRegs, number: u8) -> u64 {
    let number = usize::from(number) & 31;
    if number < regs.user.regs.len() { regs.user.regs[number] } else { 0 }
}

/// The first three arguments of a function (x0, x1, x2) at its entry.
#[inline(always)]
pub fn arguments(r: &bpf_user_pt_regs_t) -> [u64; 3] {
    // SAFETY: fields of a borrowed context.
    unsafe {
        [
            (&raw const r.regs[0]).read_volatile(),
            (&raw const r.regs[1]).read_volatile(),
            (&raw const r.regs[2]).read_volatile(),
        ]
    }
}

/// Return value of a function (x0).
#[inline(always)]
pub fn result(r: &bpf_user_pt_regs_t) -> u64 {
    // SAFETY: as above.
    unsafe { (&raw const r.regs[0]).read_volatile() }
}

/// True if the CPU was in the kernel.
#[inline(always)]
pub fn in_kernel(regs: &bpf_user_pt_regs_t) -> bool {
    regs.pstate & MODE_MASK != 0
}

/// Copies registers out of a program's context, field by field: the copy of the whole may become a call, and the
/// kernel's verifier lets no function read a context at a computed offset.
#[inline(always)]
pub fn copy(to: &mut UserRegs, r: &bpf_user_pt_regs_t) {
    macro_rules! read {
        // SAFETY: each is a field of a borrowed context.
        ($place:expr) => {
            unsafe { (&raw const $place).read_volatile() }
        };
    }
    macro_rules! general {
        ($($number:literal)*) => { $(to.user.regs[$number] = read!(r.regs[$number]);)* };
    }
    general!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30);
    to.user.sp = read!(r.sp);
    to.user.pc = read!(r.pc);
    to.user.pstate = read!(r.pstate);
}

/// True if the thread is in a system call.
#[inline(always)]
pub fn in_system_call(regs: &UserRegs) -> bool {
    regs.system_call != NO_SYSTEM_CALL
}

/// Number and arguments of the thread's current system call. The first argument is saved in `orig_x0`, because x0 takes
/// the result.
#[inline(always)]
pub fn system_call(regs: &UserRegs) -> (u64, [u64; 6]) {
    let r = &regs.user.regs;
    (regs.system_call as u64, [regs.orig_x0, r[1], r[2], r[3], r[4], r[5]])
}

/// The mode in which the registers were saved.
#[inline(always)]
pub fn mode(regs: &UserRegs) -> Mode {
    if regs.user.pstate & MODE_MASK != 0 {
        Mode::Kernel
    } else if regs.user.pstate & MODE_32_BIT != 0 {
        Mode::Compat
    } else {
        Mode::User
    }
}

/// Sets up the first frame of a walk.
#[inline(always)]
pub fn begin(registers: &mut Registers, r: &UserRegs, config: &Config) {
    registers.pc = r.user.pc;
    registers.sp = r.user.sp;
    registers.fp = r.user.regs[dwarf::FP];
    registers.address_mask = address_mask(config.address_bits);
    registers.exact = 1;
    registers.fp_known = 1;
    registers.sp_known = 1;
    let mut number = 0;
    while number < dwarf::COUNT {
        registers.general[number] = r.user.regs[number];
        number += 1;
    }
}
