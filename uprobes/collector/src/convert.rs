//! CUPTI's records into ours.
//!
//! Owns: what becomes of each record. Because: CUPTI's records change with its versions, and listeners must not depend
//! on them. Does not: know where members are ([`deepctx_common::cupti`]), read beyond the buffer, or follow a pointer.
//!
//! Offsets are compared with the headers of 12.9 and 13.5 by the tests.

use deepctx_common::activity::{Activity, flag, kind as ours};
use deepctx_common::cupti::{self, DEFAULT_STREAM, DETAIL, FILLED, of_copy, of_kernel};

/// Result of a conversion.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ConvertedRecord {
    /// An activity; for a kernel, with the address of its name.
    Activity(Activity, u64),
    /// Its kind was not enabled.
    Unknown,
    /// The record is shorter than its structure.
    Short,
}

/// A number in a record.
pub(crate) fn at<const N: usize>(record: &[u8], offset: usize) -> [u8; N] {
    record.get(offset..offset + N).and_then(|bytes| bytes.try_into().ok()).unwrap_or([0; N])
}

pub(crate) fn u32_at(record: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(at(record, offset))
}

pub(crate) fn u64_at(record: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(at(record, offset))
}

/// Three consecutive numbers.
fn three(record: &[u8], offset: usize) -> [u32; 3] {
    [0, 4, 8].map(|more| u32_at(record, offset + more))
}

/// Converts a record; `record` is the rest of its buffer.
pub(crate) fn convert(record: &[u8]) -> ConvertedRecord {
    // API calls are not enabled.
    let layout = cupti::layout(u32_at(record, 0)).filter(|layout| **layout != cupti::API);
    let Some(layout) = layout else { return ConvertedRecord::Unknown };
    if record.len() < layout.bytes {
        return ConvertedRecord::Short;
    }
    let member = |offset: usize| if offset == 0 { 0 } else { u32_at(record, offset) };
    let mut activity = Activity {
        kind: layout.kind,
        correlation: member(layout.correlation),
        start_ns: u64_at(record, layout.start),
        end_ns: u64_at(record, layout.end),
        device: member(layout.device),
        context: member(layout.context),
        stream: member(layout.stream),
        graph: member(layout.graph),
        node: if layout.node == 0 { 0 } else { u64_at(record, layout.node) },
        ..Activity::default()
    };
    // CUPTI sets 0 when it has no time. An end before the start is invalid as well.
    if activity.start_ns == 0 || activity.end_ns < activity.start_ns {
        (activity.start_ns, activity.end_ns) = (0, 0);
        activity.flags |= flag::NO_TIMES;
    }
    if layout.stream != 0 && activity.stream == DEFAULT_STREAM {
        activity.flags |= flag::DEFAULT_STREAM;
    }
    let mut name = 0;
    match layout.kind {
        ours::KERNEL => {
            activity.registers = u16::from_le_bytes(at(record, of_kernel::REGISTERS)).into();
            activity.grid = three(record, of_kernel::GRID);
            activity.block = three(record, of_kernel::BLOCK);
            activity.static_shared = u32_at(record, of_kernel::STATIC_SHARED);
            activity.dynamic_shared = u32_at(record, of_kernel::DYNAMIC_SHARED);
            activity.queued_ns = u64_at(record, of_kernel::QUEUED);
            name = u64_at(record, of_kernel::NAME);
        }
        ours::COPY | ours::PEER_COPY => {
            let [kind, from, to] = [of_copy::KIND, of_copy::FROM, of_copy::TO].map(|member| record[member]);
            activity.detail = kind;
            activity.memory = from & 0xf | to << 4;
            activity.bytes = u64_at(record, of_copy::BYTES);
            if layout.kind == ours::PEER_COPY {
                activity.peer = u32_at(record, of_copy::PEER);
            }
        }
        ours::FILL => {
            activity.bytes = u64_at(record, of_copy::BYTES);
            activity.memory = (u16::from_le_bytes(at(record, FILLED)) & 0xff) as u8;
        }
        ours::SYNC => activity.detail = u32_at(record, DETAIL) as u8,
        // CUPTI's overhead numbers have a kind in the upper half and a value in the lower half.
        ours::OVERHEAD => activity.detail = (u32_at(record, DETAIL) >> 16) as u8,
        _ => {}
    }
    ConvertedRecord::Activity(activity, name)
}

#[cfg(test)]
pub(crate) mod tests {
    use deepctx_common::cupti::{COPY, FILL, GRAPH, KERNEL, Layout, OVERHEAD, PEER_COPY, SYNC};

    use super::*;

    /// Version, structure, member, offset: the layout that a C compiler gives the headers.
    const LAYOUTS: &str = include_str!("../../../tests/sim/fixtures/layouts.tsv");

    /// Compares offsets with the headers.
    pub(crate) fn check(structure: &str, members: &[(&str, usize)]) {
        for (member, ours) in members {
            let rows = LAYOUTS.lines().filter_map(|line| line.split_once('\t'));
            let mut found = 0;
            for (version, row) in rows {
                if let Some(offset) = row.strip_prefix(&format!("{structure}\t{member}\t")) {
                    assert_eq!(offset.parse(), Ok(*ours), "{structure}.{member} of {version}");
                    found += 1;
                }
            }
            assert!(found > 0, "{structure}.{member} is in no header");
        }
    }

    fn common(layout: &Layout) -> [(&'static str, usize); 8] {
        [
            ("start", layout.start),
            ("end", layout.end),
            ("correlationId", layout.correlation),
            ("deviceId", layout.device),
            ("contextId", layout.context),
            ("streamId", layout.stream),
            ("graphId", layout.graph),
            ("graphNodeId", layout.node),
        ]
    }

    #[test]
    fn members_are_where_the_headers_have_them() {
        for structure in ["CUpti_ActivityKernel9", "CUpti_ActivityKernel13"] {
            check(structure, &common(&KERNEL));
            check(
                structure,
                &[
                    ("registersPerThread", of_kernel::REGISTERS),
                    ("gridX", of_kernel::GRID),
                    ("gridZ", of_kernel::GRID + 8),
                    ("blockX", of_kernel::BLOCK),
                    ("staticSharedMemory", of_kernel::STATIC_SHARED),
                    ("dynamicSharedMemory", of_kernel::DYNAMIC_SHARED),
                    ("name", of_kernel::NAME),
                    ("queued", of_kernel::QUEUED),
                ],
            );
        }
        for structure in ["CUpti_ActivityMemcpy6", "CUpti_ActivityMemcpy7"] {
            check(structure, &common(&COPY));
            check(structure, &[("copyKind", of_copy::KIND), ("bytes", of_copy::BYTES)]);
            check(structure, &[("srcKind", of_copy::FROM), ("dstKind", of_copy::TO)]);
        }
        check("CUpti_ActivityMemcpyPtoP4", &common(&PEER_COPY));
        check("CUpti_ActivityMemcpyPtoP4", &[("dstDeviceId", of_copy::PEER), ("bytes", of_copy::BYTES)]);
        for structure in ["CUpti_ActivityMemset4", "CUpti_ActivityMemset5"] {
            check(structure, &common(&FILL));
            check(structure, &[("memoryKind", FILLED), ("bytes", of_copy::BYTES)]);
        }
        let sync = [("type", DETAIL), ("start", SYNC.start), ("end", SYNC.end), ("streamId", SYNC.stream)];
        check("CUpti_ActivitySynchronization2", &sync);
        let sync = [("correlationId", SYNC.correlation), ("contextId", SYNC.context)];
        check("CUpti_ActivitySynchronization2", &sync);
        let overhead = [("overheadKind", DETAIL), ("start", OVERHEAD.start), ("end", OVERHEAD.end)];
        check("CUpti_ActivityOverhead3", &overhead);
        check("CUpti_ActivityOverhead3", &[("correlationId", OVERHEAD.correlation)]);
        check("CUpti_ActivityGraphTrace2", &common(&GRAPH)[..7]);
    }

    #[test]
    fn whatever_the_bytes_there_is_an_answer() {
        let mut noise = 1u64;
        for length in 0..300 {
            for kind in 0..64u32 {
                let mut record: Vec<u8> = (0..length)
                    .map(|_| {
                        noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        (noise >> 56) as u8
                    })
                    .collect();
                for (to, from) in record.iter_mut().zip(kind.to_le_bytes()) {
                    *to = from;
                }
                if let ConvertedRecord::Activity(activity, _) = convert(&record) {
                    assert!(activity.end_ns >= activity.start_ns);
                }
            }
        }
    }

    #[test]
    fn a_time_that_runs_backwards_is_none() {
        let mut record = [0u8; 208];
        record[0] = 10;
        record[16..24].copy_from_slice(&9u64.to_le_bytes());
        record[24..32].copy_from_slice(&8u64.to_le_bytes());
        let ConvertedRecord::Activity(activity, _) = convert(&record) else { panic!() };
        assert_eq!((activity.flags, activity.start_ns, activity.end_ns), (flag::NO_TIMES, 0, 0));
    }
}
