//! Arch: what a capture must know of the machine that it was compiled for.
//!
//! Owns: the compiled kernel programs of that machine, where its kernel keeps a thread pointer, how long its addresses
//! are. Because: everything else here is the same on all of them. Does not: load the programs.

use deepctx_common::thread::Thread;
use deepctx_symbolizer::Arch;
use deepctx_walk::unwind_row::Registers;

/// What differs between machines.
pub(super) struct Machine {
    /// Which one.
    pub(super) arch: Arch,
    /// The kernel programs, built by `cargo xtask ebpf` and committed, so that users need no BPF toolchain.
    pub(super) object: &'static [u8],
    /// Where `task_struct` keeps the thread pointer of user space. Of a running thread it is the one with which it was
    /// last switched in, or set by the kernel: C libraries set it before `main`.
    pub(super) thread_pointer: &'static str,
    /// Whether captures are tested on such a machine.
    pub(super) is_tested: bool,
}

/// ELF structures are read in place, so the bytes must stand where a structure may.
#[repr(align(16))]
struct AlignedBytes<T: ?Sized>(T);

/// The machine that this was compiled for.
#[cfg(target_arch = "x86_64")]
pub(super) static HERE: Machine = Machine {
    arch: Arch::X86_64,
    object: {
        static OBJECT: &AlignedBytes<[u8]> =
            &AlignedBytes(*include_bytes!("../../../ebpf/prebuilt/deepctx-x86_64.bpf.o"));
        &OBJECT.0
    },
    thread_pointer: "task_struct.thread.fsbase",
    is_tested: true,
};

/// The machine that this was compiled for.
#[cfg(target_arch = "aarch64")]
pub(super) static HERE: Machine = Machine {
    arch: Arch::Aarch64,
    object: {
        static OBJECT: &AlignedBytes<[u8]> =
            &AlignedBytes(*include_bytes!("../../../ebpf/prebuilt/deepctx-aarch64.bpf.o"));
        &OBJECT.0
    },
    thread_pointer: "task_struct.thread.uw.tp_value",
    is_tested: false,
};

/// Bits of an address in user space: kernels of aarch64 are configured for 36 to 52. The kernel gives addresses out
/// from the top, where it puts the stack, and first of all on it the name of the program.
pub(super) fn address_bits() -> u32 {
    bits_of(rustix::param::linux_execfn().as_ptr() as u64)
}

/// Bits of addresses up to the power of two above `address`.
fn bits_of(address: u64) -> u32 {
    u64::BITS - address.leading_zeros()
}

/// The registers with which a thread left user mode, where a walk begins.
#[cfg(target_arch = "x86_64")]
pub(super) fn registers(thread: &Thread) -> Registers {
    use deepctx_walk::unwind_row::x86_64::dwarf;
    let mut general = [0; dwarf::COUNT];
    general.copy_from_slice(&thread.general[..dwarf::COUNT]);
    let bp = general[dwarf::RBP];
    Registers { pc: thread.pc, sp: thread.sp, bp, general, exact: 1, bp_known: 1 }
}

/// The registers with which a thread left user mode, where a walk begins.
#[cfg(target_arch = "aarch64")]
pub(super) fn registers(thread: &Thread) -> Registers {
    use deepctx_walk::unwind_row::aarch64::{address_mask, dwarf};
    let mut general = [0; dwarf::COUNT];
    general.copy_from_slice(&thread.general[..dwarf::COUNT]);
    Registers {
        pc: thread.pc,
        sp: thread.sp,
        fp: general[dwarf::FP],
        general,
        address_mask: address_mask(address_bits()),
        exact: 1,
        fp_known: 1,
        sp_known: 1,
        reserved: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_size_follows_from_the_top_of_the_stack() {
        let check = |address, bits| assert_eq!(bits_of(address), bits, "{address:#x}");
        check(0xffff_d4a1_bfe8, 48);
        check(0x7f_e3a1_bfe8, 39);
        check(0x7ffd_3a1f_bfe8, 47);
        if HERE.arch == Arch::X86_64 {
            assert!([47, 56].contains(&address_bits()), "4 or 5 levels of page tables");
        }
    }
}
