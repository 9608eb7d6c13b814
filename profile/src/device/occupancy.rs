//! Occupancy: how many blocks of a kernel fit on a multiprocessor at once, and what limits them.
//!
//! Owns: the limits of the architectures, and the arithmetic. Because: a kernel that uses many registers leaves most
//! of a device idle, and this follows from its code and launch shape alone. Does not: measure: achieved occupancy is
//! at most this.
//!
//! Source: the tables of compute capabilities in the CUDA C++ Programming Guide, and how its occupancy calculator
//! rounds.

use std::fmt;

/// Threads of a warp.
const WARP: u32 = 32;
/// Registers are allocated in units of this size, for this many warps at a time.
const REGISTER_PORTION: u32 = 256;
const WARPS_TOGETHER: u32 = 4;

/// Resources of a multiprocessor of an architecture.
#[derive(Clone, Copy, Debug)]
struct Multiprocessor {
    warps: u32,
    blocks: u32,
    registers: u32,
    /// Bytes.
    shared: u32,
    /// Shared memory reserved by the system per block, and the allocation unit; bytes.
    reserved: u32,
    portion: u32,
}

impl Multiprocessor {
    /// The multiprocessor of an architecture: 80 for `sm_80`; `None` if unknown.
    fn of(arch: u32) -> Option<Self> {
        let (warps, blocks, shared_kib) = match arch {
            70 | 72 => (64, 32, 96),
            75 => (32, 16, 64),
            80 => (64, 32, 164),
            86 => (48, 16, 100),
            87 => (48, 16, 164),
            89 => (48, 24, 100),
            90 | 100 | 103 => (64, 32, 228),
            120 | 121 => (48, 24, 100),
            _ => return None,
        };
        let (reserved, portion) = if arch >= 80 { (1024, 128) } else { (0, 256) };
        Some(Self { warps, blocks, registers: 65_536, shared: shared_kib << 10, reserved, portion })
    }
}

/// What limits the number of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The number of warps.
    Warps,
    /// The number of blocks.
    Blocks,
    /// Registers.
    Registers,
    /// Shared memory.
    SharedMemory,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Limit::Warps => "warps",
            Limit::Blocks => "blocks",
            Limit::Registers => "registers",
            Limit::SharedMemory => "shared memory",
        })
    }
}

/// The share of a multiprocessor that a kernel can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occupancy {
    /// Blocks at once.
    pub blocks: u32,
    /// Their warps.
    pub warps: u32,
    /// Maximum of warps.
    pub warps_max: u32,
    /// The limiting resource.
    pub limit: Limit,
}

impl Occupancy {
    /// The occupancy of a kernel on an architecture: threads per block, registers per thread, shared memory per block
    /// in bytes. `None` if the architecture is unknown, or if not even one block fits.
    pub fn of(arch: u32, threads: u32, registers: u32, shared: u32) -> Option<Self> {
        let has = Multiprocessor::of(arch)?;
        let warps = threads.div_ceil(WARP);
        if warps == 0 {
            return None;
        }
        let of_a_warp = registers.saturating_mul(WARP).checked_next_multiple_of(REGISTER_PORTION)?;
        let by_registers = match has.registers.checked_div(of_a_warp) {
            Some(fit) => fit / WARPS_TOGETHER * WARPS_TOGETHER / warps,
            None => u32::MAX,
        };
        let of_a_block = shared.saturating_add(has.reserved).checked_next_multiple_of(has.portion)?;
        let by_shared = has.shared.checked_div(of_a_block).unwrap_or(u32::MAX);
        let limits = [
            (has.warps / warps, Limit::Warps),
            (by_registers, Limit::Registers),
            (by_shared, Limit::SharedMemory),
            (has.blocks, Limit::Blocks),
        ];
        let (blocks, limit) = limits.into_iter().min_by_key(|(blocks, _)| *blocks)?;
        (blocks > 0).then_some(Self { blocks, warps: blocks * warps, warps_max: has.warps, limit })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(arch: u32, [threads, registers, shared]: [u32; 3], expect: Option<(u32, u32, Limit)>) {
        let found = Occupancy::of(arch, threads, registers, shared);
        let found = found.map(|found| (found.blocks, found.warps, found.limit));
        assert_eq!(found, expect, "sm_{arch} {threads} {registers} {shared}");
    }

    #[test]
    fn the_scarcest_resource_limits_the_blocks() {
        check(80, [256, 32, 0], Some((8, 64, Limit::Warps)));
        check(80, [256, 64, 0], Some((4, 32, Limit::Registers)));
        check(80, [32, 16, 0], Some((32, 32, Limit::Blocks)));
        check(86, [128, 32, 48 << 10], Some((2, 8, Limit::SharedMemory)));
        check(90, [128, 168, 100 << 10], Some((2, 8, Limit::SharedMemory)));
        check(90, [128, 168, 0], Some((3, 12, Limit::Registers)));
        check(75, [1024, 40, 0], Some((1, 32, Limit::Warps)));
        check(80, [100, 0, 0], Some((16, 64, Limit::Warps)));
    }

    #[test]
    fn impossible_or_unknown_kernels_have_no_occupancy() {
        check(80, [1024, 255, 0], None);
        check(80, [32, 8, 200 << 10], None);
        check(80, [0, 8, 0], None);
        check(12, [32, 8, 0], None);
        check(80, [u32::MAX, u32::MAX, u32::MAX], None);
    }
}
