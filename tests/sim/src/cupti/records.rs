//! The records themselves.
//!
//! Owns: their layout in CUPTI 12.9 and 13.5. Because: clients read them by fixed offsets. Does not: fill in what the
//! device does not simulate: those members are 0.
//!
//! Of each kind, the layout of 12.9 is how that of 13.5 begins, so one structure serves both. `tests/layouts.rs`
//! compares them with the headers.

use std::ffi::c_char;

use super::{Version, misbehaviour, version};
use crate::cuda::context;
use crate::link::{Record, kind};

/// Maximum record length, including future versions.
pub(crate) const SIZE_MAX: usize = 384;
/// Bytes that a future version adds to each record.
const SKEW: usize = 64;
/// A kind of a future version.
const UNKNOWN: u32 = 61;

macro_rules! record {
    ($(#[$meta:meta])* $name:ident { $($field:ident: $kind:ty,)* }) => {
        $(#[$meta])*
        #[repr(C)]
        #[derive(Clone, Copy)]
        pub(crate) struct $name { $(pub(crate) $field: $kind,)* }

        impl Default for $name {
            fn default() -> Self {
                // SAFETY: integers, arrays of them and raw pointers: all zeroes are a valid value.
                unsafe { std::mem::zeroed() }
            }
        }

        #[cfg(test)]
        impl $name {
            /// Member, offset.
            pub(crate) const FIELDS: &'static [(&'static str, usize)] =
                &[$((stringify!($field), std::mem::offset_of!($name, $field)),)*];
        }
    };
}

record!(
    /// `CUpti_ActivityKernel13`.
    Kernel {
        kind: u32,
        cacheConfig: u8,
        sharedMemoryConfig: u8,
        registersPerThread: u16,
        partitionedGlobalCacheRequested: u32,
        partitionedGlobalCacheExecuted: u32,
        start: u64,
        end: u64,
        completed: u64,
        deviceId: u32,
        contextId: u32,
        streamId: u32,
        gridX: u32,
        gridY: u32,
        gridZ: u32,
        blockX: u32,
        blockY: u32,
        blockZ: u32,
        staticSharedMemory: u32,
        dynamicSharedMemory: u32,
        localMemoryPerThread: u32,
        localMemoryTotal: u32,
        correlationId: u32,
        gridId: i64,
        name: *const c_char,
        reserved0: usize,
        queued: u64,
        submitted: u64,
        launchType: u8,
        isSharedMemoryCarveoutRequested: u8,
        sharedMemoryCarveoutRequested: u8,
        padding: u8,
        sharedMemoryExecuted: u32,
        graphNodeId: u64,
        shmemLimitConfig: u32,
        graphId: u32,
        pAccessPolicyWindow: usize,
        channelID: u32,
        channelType: u32,
        clusterX: u32,
        clusterY: u32,
        clusterZ: u32,
        clusterSchedulingPolicy: u32,
        localMemoryTotal_v2: u64,
        maxPotentialClusterSize: u32,
        maxActiveClusters: u32,
        isDeviceLaunched: u8,
        padding3: [u8; 7],
        priority: i32,
        padding4: u32,
        executionModel: u32,
        padding5: u32,
        sourceGraphId: u32,
        padding6: u32,
        sourceGraphNodeId: u64,
    }
);
record!(
    /// `CUpti_ActivityMemcpy7`.
    Copy {
        kind: u32,
        copyKind: u8,
        srcKind: u8,
        dstKind: u8,
        flags: u8,
        bytes: u64,
        start: u64,
        end: u64,
        deviceId: u32,
        contextId: u32,
        streamId: u32,
        correlationId: u32,
        runtimeCorrelationId: u32,
        pad: u32,
        reserved0: usize,
        graphNodeId: u64,
        graphId: u32,
        channelID: u32,
        channelType: u32,
        isDeviceLaunched: u8,
        pad2: [u8; 3],
        copyCount: u64,
        sourceGraphId: u32,
        pad3: u32,
        sourceGraphNodeId: u64,
    }
);
record!(
    /// `CUpti_ActivityMemcpyPtoP4`.
    PeerCopy {
        kind: u32,
        copyKind: u8,
        srcKind: u8,
        dstKind: u8,
        flags: u8,
        bytes: u64,
        start: u64,
        end: u64,
        deviceId: u32,
        contextId: u32,
        streamId: u32,
        srcDeviceId: u32,
        srcContextId: u32,
        dstDeviceId: u32,
        dstContextId: u32,
        correlationId: u32,
        reserved0: usize,
        graphNodeId: u64,
        graphId: u32,
        channelID: u32,
        channelType: u32,
    }
);
record!(
    /// `CUpti_ActivityMemset5`.
    Fill {
        kind: u32,
        value: u32,
        bytes: u64,
        start: u64,
        end: u64,
        deviceId: u32,
        contextId: u32,
        streamId: u32,
        correlationId: u32,
        flags: u16,
        memoryKind: u16,
        pad: u32,
        reserved0: usize,
        graphNodeId: u64,
        graphId: u32,
        channelID: u32,
        channelType: u32,
        isDeviceLaunched: u8,
        pad2: [u8; 3],
        sourceGraphId: u32,
        pad3: u32,
        sourceGraphNodeId: u64,
    }
);
record!(
    /// `CUpti_ActivitySynchronization2`.
    Sync {
        kind: u32,
        r#type: u32,
        start: u64,
        end: u64,
        correlationId: u32,
        contextId: u32,
        streamId: u32,
        cudaEventId: u32,
        cudaEventSyncId: u64,
        returnValue: u32,
        pad: u32,
    }
);
record!(
    /// `CUpti_ActivityAPI`.
    Call {
        kind: u32,
        cbid: u32,
        start: u64,
        end: u64,
        processId: u32,
        threadId: u32,
        correlationId: u32,
        returnValue: u32,
    }
);
record!(
    /// `CUpti_ActivityGraphTrace2`.
    Graph {
        kind: u32,
        correlationId: u32,
        start: u64,
        end: u64,
        deviceId: u32,
        graphId: u32,
        contextId: u32,
        streamId: u32,
        reserved: usize,
        endDeviceId: u32,
        endContextId: u32,
    }
);

record!(
    /// `CUpti_ActivityDevice6`.
    Device {
        kind: u32,
        flags: u32,
        globalMemoryBandwidth: u64,
        globalMemorySize: u64,
        constantMemorySize: u32,
        l2CacheSize: u32,
        numThreadsPerWarp: u32,
        coreClockRate: u32,
        numMemcpyEngines: u32,
        numMultiprocessors: u32,
        maxIPC: u32,
        maxWarpsPerMultiprocessor: u32,
        maxBlocksPerMultiprocessor: u32,
        maxSharedMemoryPerMultiprocessor: u32,
        maxRegistersPerMultiprocessor: u32,
        maxRegistersPerBlock: u32,
        maxSharedMemoryPerBlock: u32,
        maxThreadsPerBlock: u32,
        maxBlockDimX: u32,
        maxBlockDimY: u32,
        maxBlockDimZ: u32,
        maxGridDimX: u32,
        maxGridDimY: u32,
        maxGridDimZ: u32,
        computeCapabilityMajor: u32,
        computeCapabilityMinor: u32,
        id: u32,
        eccEnabled: u32,
        uuid: [u8; 16],
        name: *const c_char,
        isCudaVisible: u8,
        isMigEnabled: u8,
        reserved: [u8; 6],
        gpuInstanceId: u32,
        computeInstanceId: u32,
        migUuid: [u8; 16],
        isNumaNode: u32,
        numaId: u32,
        numTpcs: u32,
        reserved0: u32,
    }
);

/// Bytes of a record of this kind in this version.
pub(crate) fn size_of(kind: u32) -> Option<usize> {
    let twelve = version() == Version::Twelve;
    let either = |old: usize, new: usize| if twelve { old } else { new };
    let size = match kind {
        kind::KERNEL | kind::CONCURRENT_KERNEL => either(208, size_of::<Kernel>()),
        kind::COPY => either(96, size_of::<Copy>()),
        kind::PEER_COPY => size_of::<PeerCopy>(),
        kind::FILL => either(88, size_of::<Fill>()),
        kind::SYNC => size_of::<Sync>(),
        kind::DRIVER | kind::RUNTIME => size_of::<Call>(),
        kind::GRAPH => size_of::<Graph>(),
        kind::DEVICE => either(184, size_of::<Device>()),
        UNKNOWN if misbehaviour::get().skew => 24,
        _ => return None,
    };
    return Some(if misbehaviour::get().skew { size + SKEW } else { size });

    const fn size_of<T>() -> usize {
        std::mem::size_of::<T>()
    }
}

/// Writes a record; returns its size. `difference` is added to the device's times.
#[expect(clippy::too_many_lines, reason = "one match with an arm for each kind of record")]
pub(crate) fn write(record: &Record, difference: u64, wild: bool, to: &mut [u8; SIZE_MAX]) -> usize {
    let (start, end) = match wild {
        true => (u64::MAX - 5, 3),
        false => (record.start_ns.wrapping_add(difference), record.end_ns.wrapping_add(difference)),
    };
    let flags = record.is_async;
    match record.kind {
        kind::KERNEL | kind::CONCURRENT_KERNEL => put(
            to,
            &Kernel {
                kind: record.kind,
                registersPerThread: record.registers as u16,
                start,
                end,
                deviceId: record.device,
                contextId: record.context,
                streamId: record.stream,
                gridX: record.grid[0],
                gridY: record.grid[1],
                gridZ: record.grid[2],
                blockX: record.block[0],
                blockY: record.block[1],
                blockZ: record.block[2],
                staticSharedMemory: record.static_shared,
                dynamicSharedMemory: record.dynamic_shared,
                correlationId: record.correlation,
                name: if wild { std::ptr::without_provenance(0x5151_5151) } else { record.name },
                graphNodeId: record.node,
                graphId: record.graph,
                sourceGraphId: record.source_graph,
                sourceGraphNodeId: record.source_node,
                ..Kernel::default()
            },
        ),
        kind::COPY => put(
            to,
            &Copy {
                kind: record.kind,
                copyKind: record.detail as u8,
                srcKind: record.from,
                dstKind: record.to,
                flags,
                bytes: record.bytes,
                start,
                end,
                deviceId: record.device,
                contextId: record.context,
                streamId: record.stream,
                correlationId: record.correlation,
                graphNodeId: record.node,
                graphId: record.graph,
                copyCount: 1,
                sourceGraphId: record.source_graph,
                sourceGraphNodeId: record.source_node,
                ..Copy::default()
            },
        ),
        kind::PEER_COPY => put(
            to,
            &PeerCopy {
                kind: record.kind,
                copyKind: record.detail as u8,
                srcKind: record.from,
                dstKind: record.to,
                flags,
                bytes: record.bytes,
                start,
                end,
                deviceId: record.device,
                contextId: record.context,
                streamId: record.stream,
                srcDeviceId: record.device,
                srcContextId: record.context,
                dstDeviceId: record.peer,
                correlationId: record.correlation,
                graphNodeId: record.node,
                graphId: record.graph,
                ..PeerCopy::default()
            },
        ),
        kind::FILL => put(
            to,
            &Fill {
                kind: record.kind,
                value: record.value,
                bytes: record.bytes,
                start,
                end,
                deviceId: record.device,
                contextId: record.context,
                streamId: record.stream,
                correlationId: record.correlation,
                flags: flags.into(),
                memoryKind: record.to.into(),
                graphNodeId: record.node,
                graphId: record.graph,
                sourceGraphId: record.source_graph,
                sourceGraphNodeId: record.source_node,
                ..Fill::default()
            },
        ),
        kind::SYNC => put(
            to,
            &Sync {
                kind: record.kind,
                r#type: record.detail,
                start,
                end,
                correlationId: record.correlation,
                contextId: record.context,
                streamId: record.stream,
                cudaEventId: record.event,
                ..Sync::default()
            },
        ),
        kind::GRAPH => put(
            to,
            &Graph {
                kind: record.kind,
                correlationId: record.correlation,
                start,
                end,
                deviceId: record.device,
                graphId: record.graph,
                contextId: record.context,
                streamId: record.stream,
                endDeviceId: record.device,
                endContextId: record.context,
                ..Graph::default()
            },
        ),
        _ => put(
            to,
            &Call {
                kind: record.kind,
                cbid: record.detail,
                start,
                end,
                processId: std::process::id(),
                threadId: record.thread,
                correlationId: record.correlation,
                returnValue: record.value,
            },
        ),
    }
    size_of(record.kind).unwrap_or(0)
}

/// Writes a device; returns the record's size. `number` determines its number and, if partitioned, its instance.
pub(crate) fn write_device(number: u32, to: &mut [u8; SIZE_MAX]) -> usize {
    let attribute = |number| context::attribute(number).unwrap_or(0).cast_unsigned();
    let divided = context::divided();
    let instance = |number: u32| if divided { number } else { u32::MAX };
    let mut instance_uuid = *b"deepctx-sim-mig0";
    instance_uuid[15] += number as u8;
    put(
        to,
        &Device {
            kind: kind::DEVICE,
            globalMemorySize: crate::device::memory::TOTAL,
            l2CacheSize: attribute(38),
            numThreadsPerWarp: attribute(10),
            coreClockRate: attribute(13),
            numMultiprocessors: attribute(16),
            maxThreadsPerBlock: attribute(1),
            computeCapabilityMajor: attribute(75),
            computeCapabilityMinor: attribute(76),
            id: number,
            // All instances belong to one device.
            uuid: context::uuid(if divided { 0 } else { number }),
            name: context::name().as_ptr(),
            isCudaVisible: 1,
            isMigEnabled: divided.into(),
            gpuInstanceId: instance(number + 7),
            computeInstanceId: instance(0),
            migUuid: if divided { instance_uuid } else { [0; 16] },
            ..Device::default()
        },
    );
    size_of(kind::DEVICE).unwrap_or(0)
}

/// Writes a record of a kind that no client knows; returns its size.
pub(crate) fn write_unknown(to: &mut [u8; SIZE_MAX]) -> usize {
    to.fill(0xa5);
    to[..4].copy_from_slice(&UNKNOWN.to_le_bytes());
    size_of(UNKNOWN).unwrap_or(0)
}

fn put<T: std::marker::Copy>(to: &mut [u8; SIZE_MAX], record: &T) {
    const { assert!(size_of_of::<T>() + SKEW <= SIZE_MAX) };
    // SAFETY: `to` has room, as just asserted, and `T` consists of integers and pointers without padding between them.
    unsafe { to.as_mut_ptr().cast::<T>().write_unaligned(*record) };

    const fn size_of_of<T>() -> usize {
        std::mem::size_of::<T>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUTS: &str = include_str!("../../fixtures/layouts.tsv");

    /// Structures of both versions' headers: version, structure, member (or `size`), offset.
    fn check(ours: &[(&str, usize)], size: usize, version: &str, structure: &str) {
        let mut members = 0;
        for line in LAYOUTS.lines() {
            let [of, name, member, offset] = line.split('\t').collect::<Vec<_>>()[..] else {
                panic!("{line}")
            };
            // Padding differs if a later version uses it.
            if (of, name) != (version, structure) || member.starts_with("pad") {
                continue;
            }
            members += 1;
            let offset: usize = offset.parse().unwrap();
            if member == "size" {
                assert_eq!(size, offset, "{structure} of {version}");
                continue;
            }
            let found = ours.iter().find(|(field, _)| field.trim_start_matches("r#") == member);
            assert_eq!(found.map(|(_, at)| *at), Some(offset), "{structure}.{member} of {version}");
        }
        assert!(members > 5, "{structure} of {version} is not in the fixture");
    }

    #[test]
    fn records_are_laid_out_as_in_the_headers() {
        use std::mem::size_of;
        check(Kernel::FIELDS, 208, "12.9", "CUpti_ActivityKernel9");
        check(Kernel::FIELDS, size_of::<Kernel>(), "13.5", "CUpti_ActivityKernel13");
        check(Copy::FIELDS, 96, "12.9", "CUpti_ActivityMemcpy6");
        check(Copy::FIELDS, size_of::<Copy>(), "13.5", "CUpti_ActivityMemcpy7");
        check(Device::FIELDS, 184, "12.9", "CUpti_ActivityDevice5");
        check(Device::FIELDS, size_of::<Device>(), "13.5", "CUpti_ActivityDevice6");
        check(Fill::FIELDS, 88, "12.9", "CUpti_ActivityMemset4");
        check(Fill::FIELDS, size_of::<Fill>(), "13.5", "CUpti_ActivityMemset5");
        for version in ["12.9", "13.5"] {
            check(PeerCopy::FIELDS, size_of::<PeerCopy>(), version, "CUpti_ActivityMemcpyPtoP4");
            check(Sync::FIELDS, size_of::<Sync>(), version, "CUpti_ActivitySynchronization2");
            check(Call::FIELDS, size_of::<Call>(), version, "CUpti_ActivityAPI");
            check(Graph::FIELDS, size_of::<Graph>(), version, "CUpti_ActivityGraphTrace2");
        }
    }
}
