//! Memory: the live allocations of a process, and their contexts.
//!
//! Owns: live ranges with the context that allocated them. Because: a free passes only an address, while size and
//! allocating context are kept with the allocation, and so is whether the host memory of a copy is pinned. Does not:
//! see memory that was allocated before the profiler attached.

use deepctx_events::MemoryKind as Kind;
use deepctx_profile::tree::NodeId;

use crate::address_map::{AddressMap, Insertion};

/// Ranges remembered per process: an allocator that asks the driver for each tensor has some ten thousand.
const RANGES_MAX: usize = 1 << 18;

/// An allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) bytes: u64,
    pub(super) kind: Kind,
    /// The context that allocated it.
    pub(super) node: NodeId,
}

/// The kind of memory at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Device,
    Managed,
    Pinned,
}

/// The allocations of one process.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// By address. Reservations are not included: they cover the ranges mapped into them.
    ranges: AddressMap<Range, RANGES_MAX>,
    /// Memory without addresses, by handle.
    physical: AddressMap<Range, RANGES_MAX>,
    reserved: AddressMap<Range, RANGES_MAX>,
}

impl Memory {
    fn of(&mut self, kind: Kind) -> &mut AddressMap<Range, RANGES_MAX> {
        match kind {
            Kind::Physical => &mut self.physical,
            Kind::Reserved => &mut self.reserved,
            _ => &mut self.ranges,
        }
    }

    /// Memory was allocated. False if there is no room for the entry.
    pub(super) fn allocated(&mut self, address: u64, range: Range) -> bool {
        self.of(range.kind).put(address, range) != Insertion::Full
    }

    /// Memory was freed: returns its entry.
    pub(super) fn freed(&mut self, address: u64, kind: Kind) -> Option<Range> {
        self.of(kind).take(address)
    }

    /// The kind of memory at an address; `None` if unknown.
    pub(super) fn side(&self, address: u64) -> Option<Side> {
        let (begin, range) = self.ranges.at_or_before(address)?;
        if address - begin >= range.bytes {
            return None;
        }
        Some(match range.kind {
            Kind::Managed => Side::Managed,
            Kind::Host | Kind::Registered => Side::Pinned,
            Kind::Device | Kind::Async | Kind::Mapped | Kind::Reserved | Kind::Physical => Side::Device,
        })
    }
}

/// Whether memory of this kind counts as allocated bytes: the others are addresses, or memory that existed already.
pub(super) fn counts(kind: Kind) -> bool {
    match kind {
        Kind::Device | Kind::Async | Kind::Managed | Kind::Host | Kind::Physical => true,
        Kind::Registered | Kind::Reserved | Kind::Mapped => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_in_the_range_that_covers_it() {
        let mut memory = Memory::default();
        let range = |bytes, kind| Range { bytes, kind, node: NodeId::ROOT };
        for (address, bytes, kind) in [
            (1000, 100, Kind::Device),
            (2000, 50, Kind::Host),
            (3000, 10, Kind::Managed),
            (1000, 4096, Kind::Reserved),
            (1050, 7, Kind::Physical),
        ] {
            assert!(memory.allocated(address, range(bytes, kind)));
        }
        for (address, expect) in [
            (999, None),
            (1000, Some(Side::Device)),
            (1099, Some(Side::Device)),
            (1100, None),
            (2049, Some(Side::Pinned)),
            (3005, Some(Side::Managed)),
            (u64::MAX, None),
        ] {
            assert_eq!(memory.side(address), expect, "{address}");
        }
        assert_eq!(memory.freed(1000, Kind::Device).map(|range| range.bytes), Some(100));
        assert_eq!(memory.side(1000), None);
        assert_eq!(memory.freed(1000, Kind::Device), None);
        assert_eq!(memory.freed(1000, Kind::Reserved).map(|range| range.bytes), Some(4096));
    }
}
