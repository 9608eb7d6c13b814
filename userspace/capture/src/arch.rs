//! Arch: what a capture must know about the architecture that it was compiled for.
//!
//! Owns: the compiled kernel programs for it, where its kernel keeps a thread pointer, and the width of its
//! addresses. Because: everything else here is the same on all architectures. Does not: load the programs.

use deepctx_common::thread::Thread;
use deepctx_symbolizer::Arch;
use deepctx_walk::unwind_row::Registers;
use flate2::{Decompress, FlushDecompress, Status};
use std::sync::LazyLock;

/// Differences between machines.
pub(super) struct Machine {
    /// Which one.
    pub(super) arch: Arch,
    /// Field of `task_struct` with the thread pointer of user space. For a running thread it has the value of the last
    /// switch-in, or that set by the kernel: C libraries set it before `main`.
    pub(super) thread_pointer: &'static str,
    /// Whether captures are tested on such a machine.
    pub(super) is_tested: bool,
}

/// The kernel programs for this machine, built by `cargo xtask ebpf` and committed, so that users need no BPF
/// toolchain; `build.rs` packs them. Unpacked once, on first use, and kept: libbpf reads them until they are loaded.
/// `None` if they are incomplete.
pub(super) fn object() -> Option<&'static [u8]> {
    static OBJECT: LazyLock<Option<AlignedBytes>> =
        LazyLock::new(|| AlignedBytes::unpack(include_bytes!(concat!(env!("OUT_DIR"), "/object.zlib"))));
    OBJECT.as_ref().map(AlignedBytes::bytes)
}

/// Bytes of the object, unpacked.
const OBJECT_BYTES: usize = include!(concat!(env!("OUT_DIR"), "/object_bytes"));

/// ELF structures are read in place, so the bytes must be aligned for them.
struct AlignedBytes {
    room: Box<[u8]>,
    begin: usize,
}

impl AlignedBytes {
    const ALIGNMENT: usize = 16;

    fn unpack(packed: &[u8]) -> Option<Self> {
        let mut room = vec![0; OBJECT_BYTES + Self::ALIGNMENT].into_boxed_slice();
        let begin = room.as_ptr().align_offset(Self::ALIGNMENT);
        let mut unpack = Decompress::new(true);
        let end =
            unpack.decompress(packed, room.get_mut(begin..begin + OBJECT_BYTES)?, FlushDecompress::Finish);
        let is_whole = matches!(end, Ok(Status::StreamEnd)) && unpack.total_out() == OBJECT_BYTES as u64;
        is_whole.then_some(Self { room, begin })
    }

    fn bytes(&self) -> &[u8] {
        &self.room[self.begin..self.begin + OBJECT_BYTES]
    }
}

/// The machine that this was compiled for.
#[cfg(target_arch = "x86_64")]
pub(super) static HERE: Machine =
    Machine { arch: Arch::X86_64, thread_pointer: "task_struct.thread.fsbase", is_tested: true };

/// The machine that this was compiled for.
#[cfg(target_arch = "aarch64")]
pub(super) static HERE: Machine =
    Machine { arch: Arch::Aarch64, thread_pointer: "task_struct.thread.uw.tp_value", is_tested: false };

/// Bits of an address in user space: kernels of aarch64 are configured for 36 to 52. The kernel puts the stack at the
/// top of the address space, with the name of the program first.
pub(super) fn address_bits() -> u32 {
    bits_of(rustix::param::linux_execfn().as_ptr() as u64)
}

/// Bits of addresses up to the power of two above `address`.
fn bits_of(address: u64) -> u32 {
    u64::BITS - address.leading_zeros()
}

/// The registers with which a thread left user mode: the start of a walk.
#[cfg(target_arch = "x86_64")]
pub(super) fn registers(thread: &Thread) -> Registers {
    use deepctx_walk::unwind_row::x86_64::dwarf;
    let mut general = [0; dwarf::COUNT];
    general.copy_from_slice(&thread.general[..dwarf::COUNT]);
    let bp = general[dwarf::RBP];
    Registers { pc: thread.pc, sp: thread.sp, bp, general, exact: 1, bp_known: 1 }
}

/// The registers with which a thread left user mode: the start of a walk.
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
    use flate2::Compression;
    use std::io::Write as _;

    #[cfg(target_arch = "x86_64")]
    const COMMITTED: &[u8] = include_bytes!("../../../ebpf/prebuilt/deepctx-x86_64.bpf.o");
    #[cfg(target_arch = "aarch64")]
    const COMMITTED: &[u8] = include_bytes!("../../../ebpf/prebuilt/deepctx-aarch64.bpf.o");

    #[test]
    fn the_object_is_the_committed_one_and_aligned() {
        let unpacked = object().expect("it is whole");
        assert!(unpacked == COMMITTED, "{} bytes, committed are {}", unpacked.len(), COMMITTED.len());
        assert_eq!(unpacked.as_ptr().align_offset(AlignedBytes::ALIGNMENT), 0);
    }

    #[test]
    fn a_packed_object_that_is_not_whole_is_refused() {
        let pack = |bytes: &[u8]| {
            let mut packed = flate2::write::ZlibEncoder::new(Vec::new(), Compression::fast());
            packed.write_all(bytes).unwrap();
            packed.finish().unwrap()
        };
        let packed = pack(COMMITTED);
        let changed_sum = [&packed[..packed.len() - 1], &[!packed[packed.len() - 1]]].concat();
        let check = |what, packed: &[u8], is_whole| {
            assert_eq!(AlignedBytes::unpack(packed).is_some(), is_whole, "{what}");
        };
        check("as it was packed", &packed, true);
        check("cut short", &packed[..packed.len() / 2], false);
        check("without its sum", &packed[..packed.len() - 4], false);
        check("with another sum", &changed_sum, false);
        check("one byte less", &pack(&COMMITTED[1..]), false);
        check("one byte more", &pack(&[COMMITTED, &[0]].concat()), false);
        check("nothing", &[], false);
    }

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
