//! Return addresses and instructions that kernel probes displaced in a thread.
//!
//! Owns: finding the real return address, and the real address of an instruction that executes out of line. Because: a
//! return probe (`uretprobe`, ours or another tool's) replaces the return address by that of a trampoline in a
//! kernel-provided page, and instructions that cannot be emulated are single-stepped in the same page; a walk would end
//! there. Does not: read the displaced values from user memory: the kernel keeps them in structures of the thread.
//!
//! Source: Linux, `struct uprobe_task` and `struct return_instance` (include/linux/uprobes.h), `prepare_uretprobe` and
//! `pre_ssout` (kernel/events/uprobes.c).

use deepctx_common::config::Config;
use deepctx_walk::interleave::Walk;
use deepctx_walk::memory::Memory as _;
use deepctx_walk::unwind_row::Registers;

use super::memory::DirectMemory;
use crate::{arch, maps, task};

/// Limit on replaced return addresses of a thread (`MAX_URETPROBE_DEPTH`).
const DEPTH_MAX: u32 = 64;
/// Bytes by which the return trampoline (x86-64: three pushes before a system call) may have lowered the stack pointer
/// of a thread that was interrupted there.
const TRAMPOLINE_FRAME: u64 = 24;
/// Bytes in use of that page: at most the smallest page size.
const PAGE: u64 = 4096;
/// Length of the longest instruction, bytes.
const INSTRUCTION_MAX: u64 = 15;

const FOUND: u32 = 1;
const NOT_FOUND: u32 = 0;

/// Stores the real PC, and the stack pointer that goes with it, in the registers; false if nothing was displaced.
#[inline(always)]
pub(super) fn put_back(walk: &mut Walk) -> bool {
    put_back_checked(walk) == FOUND
}

/// A function of its own, so that the kernel verifies its loop once.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn put_back_checked(walk: *mut Walk) -> u32 {
    if walk.is_null() {
        return NOT_FOUND;
    }
    // SAFETY: the caller passes the walk of a claimed slot.
    let registers = unsafe { &mut (*walk).registers };
    let config = maps::config();
    if config.task_utask == 0 {
        return NOT_FOUND;
    }
    let mm = task::read::<u64>(task::current() + u64::from(config.task_mm));
    let area = task::read::<u64>(mm + u64::from(config.mm_xol_area));
    if area == 0 {
        return NOT_FOUND;
    }
    let page = task::read::<u64>(area + u64::from(config.xol_address));
    let utask = task::read::<u64>(task::current() + u64::from(config.task_utask));
    if registers.pc.wrapping_sub(page) >= PAGE || utask == 0 {
        return NOT_FOUND;
    }
    if registers.exact == 0 {
        return returned(config, utask, registers);
    }
    // The order matters: once the kernel has restored a return address, its return instance is gone, and that of the
    // caller's caller may be within reach.
    let behind = arch::behind_trampoline(registers.pc - page);
    if let Some((put_back, offset)) = behind
        && (put_back || returned(config, utask, registers) == NOT_FOUND)
    {
        return leaving(registers, offset);
    }
    if behind.is_some() || stepped(config, utask, registers) {
        return FOUND;
    }
    returned(config, utask, registers)
}

/// The thread has left the system call of the return trampoline: the real return address is back on the stack, `offset`
/// bytes above the stack pointer.
#[inline(always)]
fn leaving(registers: &mut Registers, offset: u64) -> u32 {
    let at = registers.sp.wrapping_add(offset);
    let Some(to) = DirectMemory.read_u64(at) else { return NOT_FOUND };
    registers.pc = to;
    registers.sp = at.wrapping_add(arch::RETURN_ADDRESS_BYTES);
    registers.exact = 0;
    FOUND
}

/// The thread is about to execute the out-of-line copy of an instruction, or just did.
#[inline(always)]
fn stepped(config: &Config, utask: u64, registers: &mut Registers) -> bool {
    let copy = task::read::<u64>(utask + u64::from(config.utask_xol_vaddr));
    let into = registers.pc.wrapping_sub(copy);
    if copy == 0 || into > INSTRUCTION_MAX {
        return false;
    }
    registers.pc = task::read::<u64>(utask + u64::from(config.utask_vaddr)) + into;
    true
}

/// The PC is in the page that replaced a return address.
#[inline(always)]
fn returned(config: &Config, utask: u64, registers: &mut Registers) -> u32 {
    let reach = if registers.exact != 0 { TRAMPOLINE_FRAME } else { 0 };
    let mut instance = task::read::<u64>(utask + u64::from(config.utask_returns));
    for _ in 0..DEPTH_MAX {
        if instance == 0 {
            break;
        }
        // The stack pointer after the return.
        let sp = task::read::<u64>(instance + u64::from(config.return_stack)) + arch::RETURN_ADDRESS_BYTES;
        if sp.wrapping_sub(registers.sp) <= reach {
            registers.pc = task::read::<u64>(instance + u64::from(config.return_address));
            registers.sp = sp;
            registers.exact = 0;
            return FOUND;
        }
        instance = task::read::<u64>(instance + u64::from(config.return_next));
    }
    NOT_FOUND
}
