//! Transfer: what a copy, a memset or a collective moves.
//!
//! Owns: extracting bytes, direction and kind of host memory from a call's arguments. Because: each vendor and each
//! API generation passes them differently. Does not: know times.

use deepctx_events::{Direction, Family, Role};

use super::memory::{Memory, Side};
use super::sites::CallArguments;

/// Where bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Host,
    Device,
    Array,
    /// Determined by the pointer.
    ByPointer,
}

/// A copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Transfer {
    /// Bytes; `None` if the call does not give them.
    pub(super) bytes: Option<u64>,
    /// Its label: `memcpy HtoD`.
    pub(super) label: &'static str,
    /// It copies to the host: once a blocking one has returned, earlier work in the stream is complete.
    pub(super) to_host: bool,
}

/// The transfer of a copy call. `host_memory_known`: all of the process's pinned memory was seen being allocated.
pub(super) fn copy(
    direction: Direction,
    given: &CallArguments<'_>,
    memory: &Memory,
    host_memory_known: bool,
) -> Transfer {
    if direction == Direction::Batch {
        return Transfer { bytes: None, label: "memcpy batch", to_host: false };
    }
    let bytes = given.get(Role::Bytes).or_else(|| area(given));
    let address = |plain, of_device| {
        given.get(plain).filter(|address| *address != 0).or_else(|| given.get(of_device)).unwrap_or(0)
    };
    let from = address(Role::Source, Role::DeviceSource);
    let to = address(Role::Destination, Role::DeviceDestination);
    if direction == Direction::Peer {
        return Transfer { bytes, label: "memcpy PtoP", to_host: false };
    }
    let (source, destination) = ends(direction, given);
    let source = by_pointer(source, from, memory);
    let destination = by_pointer(destination, to, memory);
    let host = match (source, destination) {
        (End::Host, End::Device | End::Array) => Some(from),
        (End::Device | End::Array, End::Host) => Some(to),
        _ => None,
    };
    let pinned = host.and_then(|address| match memory.side(address) {
        Some(Side::Pinned) => Some(true),
        _ => host_memory_known.then_some(false),
    });
    let label = match (source, destination, pinned) {
        (End::Host, End::Device, Some(true)) => "memcpy HtoD pinned",
        (End::Host, End::Device, Some(false)) => "memcpy HtoD pageable",
        (End::Host, End::Device, None) => "memcpy HtoD",
        (End::Device, End::Host, Some(true)) => "memcpy DtoH pinned",
        (End::Device, End::Host, Some(false)) => "memcpy DtoH pageable",
        (End::Device, End::Host, None) => "memcpy DtoH",
        (End::Device, End::Device, _) => "memcpy DtoD",
        (End::Host, End::Host, _) => "memcpy HtoH",
        (End::Host, End::Array, _) => "memcpy HtoA",
        (End::Array, End::Host, _) => "memcpy AtoH",
        (End::Device, End::Array, _) => "memcpy DtoA",
        (End::Array, End::Device, _) => "memcpy AtoD",
        (End::Array, End::Array, _) => "memcpy AtoA",
        (End::ByPointer, ..) | (_, End::ByPointer, _) => "memcpy unified",
    };
    Transfer { bytes, label, to_host: destination == End::Host }
}

/// Bytes of lines and planes. A factor that a call does not have counts as one.
fn area(given: &CallArguments<'_>) -> Option<u64> {
    let width = given.get(Role::Width)?;
    let times = |role| given.get(role).unwrap_or(1);
    Some(width.saturating_mul(times(Role::Height)).saturating_mul(times(Role::Depth)))
}

fn ends(direction: Direction, given: &CallArguments<'_>) -> (End, End) {
    match direction {
        Direction::HostToDevice => (End::Host, End::Device),
        Direction::DeviceToHost => (End::Device, End::Host),
        Direction::DeviceToDevice => (End::Device, End::Device),
        Direction::HostToArray => (End::Host, End::Array),
        Direction::ArrayToHost => (End::Array, End::Host),
        Direction::DeviceToArray => (End::Device, End::Array),
        Direction::ArrayToDevice => (End::Array, End::Device),
        Direction::ArrayToArray => (End::Array, End::Array),
        Direction::ByKind => by_kind(given),
        Direction::ByParameters => match (given.get(Role::SourceKind), given.get(Role::DestinationKind)) {
            (Some(source), Some(destination)) => (memory_type(source), memory_type(destination)),
            _ => by_kind(given),
        },
        Direction::ByPointers | Direction::Batch | Direction::Peer => (End::ByPointer, End::ByPointer),
    }
}

/// `cudaMemcpyKind` and `hipMemcpyKind`, which agree.
fn by_kind(given: &CallArguments<'_>) -> (End, End) {
    match given.get(Role::Kind) {
        Some(0) => (End::Host, End::Host),
        Some(1) => (End::Host, End::Device),
        Some(2) => (End::Device, End::Host),
        Some(3) => (End::Device, End::Device),
        _ => (End::ByPointer, End::ByPointer),
    }
}

/// `CUmemorytype`, and `hipMemoryType` as far as it agrees (from HIP 6 on).
fn memory_type(number: u64) -> End {
    match number {
        1 => End::Host,
        2 => End::Device,
        3 => End::Array,
        _ => End::ByPointer,
    }
}

fn by_pointer(end: End, address: u64, memory: &Memory) -> End {
    match (end, memory.side(address)) {
        (End::ByPointer, Some(Side::Device)) => End::Device,
        (End::ByPointer, Some(Side::Pinned)) => End::Host,
        (end, _) => end,
    }
}

/// Bytes set by a fill with elements of `element` bytes.
pub(super) fn fill_bytes(element: u8, given: &CallArguments<'_>) -> Option<u64> {
    let element = u64::from(element);
    given
        .get(Role::Bytes)
        .or_else(|| given.get(Role::Count).map(|count| count.saturating_mul(element)))
        .or_else(|| area(given).map(|area| area.saturating_mul(element)))
}

/// Bytes set by a node of a graph; `None` if it is not a fill.
pub(super) fn node_fill_bytes(given: &CallArguments<'_>) -> Option<u64> {
    let element = given.get(Role::ElementBytes)?;
    area(given).map(|area| area.saturating_mul(element))
}

/// Bytes that a rank contributes to a collective: the number of elements times their size.
pub(super) fn collective_bytes(family: Family, given: &CallArguments<'_>) -> Option<u64> {
    let count = given.get(Role::Count)?;
    let size = match family {
        Family::Nccl | Family::Rccl => element_bytes(given.get(Role::DataType)?)?,
        _ => 1,
    };
    Some(count.saturating_mul(size))
}

/// Size of an element of `ncclDataType_t` (`nccl.h` 2.32 and `rccl.h` 2.13, which agree).
fn element_bytes(data_type: u64) -> Option<u64> {
    Some(match data_type {
        0 | 1 | 10 | 11 => 1,
        6 | 9 => 2,
        2 | 3 | 7 => 4,
        4 | 5 | 8 => 8,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use deepctx_common::call::Call;
    use deepctx_events::{Direction, Event, Family, MemoryKind as Kind, Role};
    use deepctx_profile::tree::NodeId;

    use super::super::memory::Range;
    use super::super::sites::Sites;
    use super::*;
    use crate::decode::{Arguments, Words};
    use crate::input::SiteInfo;

    const DEVICE: u64 = 0x7000;
    const PINNED: u64 = 0x9000;
    const HEAP: u64 = 0x1000;

    fn with_given<T>(
        arguments: &[(Role, u64)],
        family: Family,
        then: impl FnOnce(&CallArguments<'_>) -> T,
    ) -> T {
        let mut sites = Sites::default();
        let roles = arguments.iter().map(|(role, _)| *role).collect();
        sites.learn(vec![SiteInfo { site: 0, event: Event::User, symbol: "f".into(), family, roles }]);
        let words: Vec<u8> = arguments.iter().flat_map(|(_, value)| value.to_ne_bytes()).collect();
        let call = Call { arguments: arguments.len() as u16, ..Call::default() };
        then(&sites.given(&Arguments { call, values: Words::of(&words), text: b"" }))
    }

    fn check(direction: Direction, arguments: &[(Role, u64)], expect: (Option<u64>, &str)) {
        let mut memory = Memory::default();
        memory.allocated(DEVICE, Range { bytes: 4096, kind: Kind::Device, node: NodeId::ROOT });
        memory.allocated(PINNED, Range { bytes: 4096, kind: Kind::Host, node: NodeId::ROOT });
        let found = with_given(arguments, Family::CudaDriver, |given| copy(direction, given, &memory, false));
        assert_eq!((found.bytes, found.label), expect);
    }

    #[test]
    fn a_copy_says_where_from_where_to_and_how_much() {
        use Role::*;
        let (from, to, bytes) = ((Source, HEAP), (Destination, DEVICE), (Bytes, 64));
        check(Direction::HostToDevice, &[to, from, bytes], (Some(64), "memcpy HtoD"));
        check(Direction::HostToDevice, &[to, (Source, PINNED + 8), bytes], (Some(64), "memcpy HtoD pinned"));
        check(Direction::ByKind, &[to, from, bytes, (Kind, 2)], (Some(64), "memcpy DtoH"));
        check(Direction::ByKind, &[to, from, bytes, (Kind, 4)], (Some(64), "memcpy unified"));
        check(Direction::ByKind, &[to, (Source, PINNED), bytes, (Kind, 4)], (Some(64), "memcpy HtoD pinned"));
        check(Direction::ByPointers, &[to, (Source, DEVICE + 9), bytes], (Some(64), "memcpy DtoD"));
        check(Direction::Peer, &[to, from, bytes], (Some(64), "memcpy PtoP"));
        check(Direction::Batch, &[(Count, 3)], (None, "memcpy batch"));
    }

    #[test]
    fn structured_copy_size_is_the_product_of_its_extents() {
        use Role::*;
        let lines = [(Width, 100), (Height, 3)];
        let driver = [&[(SourceKind, 1), (DestinationKind, 2)][..], &lines].concat();
        check(Direction::ByParameters, &driver, (Some(300), "memcpy HtoD"));
        let array = [&[(SourceKind, 3), (DestinationKind, 2)][..], &lines].concat();
        check(Direction::ByParameters, &array, (Some(300), "memcpy AtoD"));
        let runtime = [&[(Kind, 1), (Depth, 2)][..], &lines].concat();
        check(Direction::ByParameters, &runtime, (Some(600), "memcpy HtoD"));
        check(Direction::ByParameters, &[(Width, u64::MAX), (Height, 2)], (Some(u64::MAX), "memcpy unified"));
    }

    #[test]
    fn host_memory_is_labelled_pageable_only_with_all_pinned_known() {
        let arguments = [(Role::Source, HEAP), (Role::Bytes, 1)];
        for (known, label) in [(true, "memcpy HtoD pageable"), (false, "memcpy HtoD")] {
            let found = with_given(&arguments, Family::CudaDriver, |given| {
                copy(Direction::HostToDevice, given, &Memory::default(), known)
            });
            assert_eq!(found.label, label);
        }
    }

    #[test]
    fn fills_and_collectives_count_elements() {
        let fill = |element, arguments: &[(Role, u64)]| {
            with_given(arguments, Family::CudaDriver, |given| fill_bytes(element, given))
        };
        assert_eq!(fill(1, &[(Role::Bytes, 7)]), Some(7));
        assert_eq!(fill(4, &[(Role::Count, 7)]), Some(28));
        assert_eq!(fill(2, &[(Role::Width, 7), (Role::Height, 3)]), Some(42));
        assert_eq!(fill(2, &[]), None);
        let collective = |arguments: &[(Role, u64)]| {
            with_given(arguments, Family::Nccl, |given| collective_bytes(Family::Nccl, given))
        };
        assert_eq!(collective(&[(Role::Count, 10), (Role::DataType, 9)]), Some(20));
        assert_eq!(collective(&[(Role::Count, 10), (Role::DataType, 99)]), None);
    }
}
