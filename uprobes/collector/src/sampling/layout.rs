//! CUPTI's structures for samples of instructions, as far as they are used.
//!
//! Owns: their layout. Because: CUPTI reads and fills them in our memory. Does not: call anything.
//!
//! Source: `cupti_pcsampling.h` of CUPTI 12.1 to 13.5, which differ in one member: see [`PC_BYTES_OLD`].

use std::ffi::{c_char, c_void};

/// `CUpti_PCSamplingStallReason`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stall {
    /// CUPTI's number of the reason, for this device.
    pub(super) reason: u32,
    pub(super) samples: u32,
}

/// `CUpti_PCSamplingPCData`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Pc {
    pub(super) size: usize,
    pub(super) cubin: u64,
    pub(super) offset: u64,
    pub(super) function: u32,
    padding: u32,
    pub(super) name: *const c_char,
    pub(super) stalls: usize,
    /// Ours; CUPTI writes as many as reasons were chosen.
    pub(super) stall: *mut Stall,
    pub(super) correlation: u32,
}

/// Bytes of a [`Pc`] before 12.4: without the correlation id. They lie in a row, so CUPTI's idea of their size counts.
pub(super) const PC_BYTES_OLD: usize = 56;
/// CUPTI's version from which on they have it: 12.4.
pub(super) const WITH_CORRELATION: u32 = 22;

/// `CUpti_PCSamplingData`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Data {
    pub(super) size: usize,
    /// How many fit.
    pub(super) room: usize,
    /// Samples that were taken, whatever became of them.
    pub(super) total: u64,
    pub(super) dropped: u64,
    /// Instructions that were written.
    pub(super) pcs: usize,
    /// Instructions that are left with CUPTI.
    pub(super) remaining: usize,
    pub(super) range: u64,
    pub(super) pc: *mut Pc,
    /// Samples in kernels that are not the program's own.
    pub(super) elsewhere: u64,
    pub(super) full: u8,
}

/// `CUpti_PCSamplingConfigurationInfo`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Attribute {
    pub(super) kind: u32,
    pub(super) status: i32,
    /// A union; the largest are two words, and there is one of three that nobody uses.
    pub(super) value: [u64; 3],
}

/// `CUpti_PCSamplingConfigurationAttributeType`.
pub(super) mod attribute {
    pub(in super::super) const PERIOD: u32 = 1;
    pub(in super::super) const REASONS: u32 = 2;
    pub(in super::super) const MODE: u32 = 5;
    pub(in super::super) const BUFFER: u32 = 8;
}

/// `CUpti_PCSamplingCollectionMode`.
pub(super) mod mode {
    pub(in super::super) const CONTINUOUS: u64 = 1;
    pub(in super::super) const SERIALIZED: u64 = 2;
}

/// `CUpti_PCSamplingConfigurationInfoParams`.
#[repr(C)]
pub(super) struct Configuration {
    pub(super) size: usize,
    pub(super) private: *mut c_void,
    pub(super) context: usize,
    pub(super) count: usize,
    pub(super) attributes: *mut Attribute,
}

/// `CUpti_PCSamplingEnableParams` and `CUpti_PCSamplingDisableParams`.
#[repr(C)]
pub(super) struct OfContext {
    pub(super) size: usize,
    pub(super) private: *mut c_void,
    pub(super) context: usize,
}

/// `CUpti_PCSamplingGetDataParams`.
#[repr(C)]
pub(super) struct GetData {
    pub(super) size: usize,
    pub(super) private: *mut c_void,
    pub(super) context: usize,
    pub(super) data: *mut Data,
}

/// `CUpti_PCSamplingGetNumStallReasonsParams`.
#[repr(C)]
pub(super) struct CountReasons {
    pub(super) size: usize,
    pub(super) private: *mut c_void,
    pub(super) context: usize,
    pub(super) count: *mut usize,
}

/// `CUpti_PCSamplingGetStallReasonsParams`.
#[repr(C)]
pub(super) struct GetReasons {
    pub(super) size: usize,
    pub(super) private: *mut c_void,
    pub(super) context: usize,
    pub(super) count: usize,
    pub(super) numbers: *mut u32,
    /// Each leads to [`REASON_BYTES`].
    pub(super) names: *mut *mut c_char,
}

/// `CUPTI_STALL_REASON_STRING_SIZE`.
pub(super) const REASON_BYTES: usize = 128;

/// `CUpti_GetCubinCrcParams`.
#[repr(C)]
pub(super) struct Crc {
    pub(super) size: usize,
    pub(super) bytes: usize,
    pub(super) cubin: *const c_void,
    pub(super) crc: u64,
}

/// `CUpti_ModuleResourceData`.
#[repr(C)]
pub(super) struct Module {
    pub(super) number: u32,
    pub(super) bytes: usize,
    pub(super) cubin: *const u8,
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    /// Version, structure, member, offset: as a C compiler lays the headers out.
    const LAYOUTS: &str = include_str!("../../../../tests/sim/fixtures/layouts.tsv");

    fn check(structure: &str, members: &[(&str, usize)]) {
        for (member, ours) in members {
            let of = |line: &&str| {
                line.split_once('\t')
                    .is_some_and(|(_, row)| row.starts_with(&format!("{structure}\t{member}\t")))
            };
            let rows: Vec<_> = LAYOUTS.lines().filter(of).collect();
            assert!(rows.len() >= 2, "{structure}.{member} is not in both headers");
            for row in rows {
                let offset = row.rsplit('\t').next().unwrap().parse();
                assert_eq!(offset, Ok(*ours), "{row}");
            }
        }
    }

    #[test]
    fn structures_are_as_the_headers_have_them() {
        check(
            "CUpti_PCSamplingStallReason",
            &[
                ("pcSamplingStallReasonIndex", offset_of!(Stall, reason)),
                ("samples", offset_of!(Stall, samples)),
                ("size", 8),
            ],
        );
        check(
            "CUpti_PCSamplingPCData",
            &[
                ("cubinCrc", offset_of!(Pc, cubin)),
                ("pcOffset", offset_of!(Pc, offset)),
                ("functionIndex", offset_of!(Pc, function)),
                ("functionName", offset_of!(Pc, name)),
                ("stallReasonCount", offset_of!(Pc, stalls)),
                ("stallReason", offset_of!(Pc, stall)),
                ("correlationId", offset_of!(Pc, correlation)),
                ("sizeof", size_of::<Pc>()),
            ],
        );
        assert_eq!(offset_of!(Pc, correlation), PC_BYTES_OLD);
        check(
            "CUpti_PCSamplingData",
            &[
                ("collectNumPcs", offset_of!(Data, room)),
                ("totalSamples", offset_of!(Data, total)),
                ("droppedSamples", offset_of!(Data, dropped)),
                ("totalNumPcs", offset_of!(Data, pcs)),
                ("remainingNumPcs", offset_of!(Data, remaining)),
                ("rangeId", offset_of!(Data, range)),
                ("pPcData", offset_of!(Data, pc)),
                ("nonUsrKernelsTotalSamples", offset_of!(Data, elsewhere)),
                ("hardwareBufferFull", offset_of!(Data, full)),
                ("sizeof", size_of::<Data>()),
            ],
        );
        check(
            "CUpti_PCSamplingConfigurationInfo",
            &[
                ("attributeStatus", offset_of!(Attribute, status)),
                ("attributeData", offset_of!(Attribute, value)),
                ("size", size_of::<Attribute>()),
            ],
        );
        check(
            "CUpti_PCSamplingConfigurationInfoParams",
            &[
                ("ctx", offset_of!(Configuration, context)),
                ("numAttributes", offset_of!(Configuration, count)),
                ("pPCSamplingConfigurationInfo", offset_of!(Configuration, attributes)),
                ("sizeof", size_of::<Configuration>()),
            ],
        );
        for structure in ["CUpti_PCSamplingEnableParams", "CUpti_PCSamplingDisableParams"] {
            check(structure, &[("ctx", offset_of!(OfContext, context)), ("sizeof", size_of::<OfContext>())]);
        }
        check(
            "CUpti_PCSamplingGetDataParams",
            &[("pcSamplingData", offset_of!(GetData, data)), ("sizeof", size_of::<GetData>())],
        );
        check(
            "CUpti_PCSamplingGetNumStallReasonsParams",
            &[("numStallReasons", offset_of!(CountReasons, count)), ("sizeof", size_of::<CountReasons>())],
        );
        check(
            "CUpti_PCSamplingGetStallReasonsParams",
            &[
                ("numStallReasons", offset_of!(GetReasons, count)),
                ("stallReasonIndex", offset_of!(GetReasons, numbers)),
                ("stallReasons", offset_of!(GetReasons, names)),
                ("sizeof", size_of::<GetReasons>()),
            ],
        );
        check(
            "CUpti_GetCubinCrcParams",
            &[
                ("cubinSize", offset_of!(Crc, bytes)),
                ("cubin", offset_of!(Crc, cubin)),
                ("cubinCrc", offset_of!(Crc, crc)),
                ("sizeof", size_of::<Crc>()),
            ],
        );
        check(
            "CUpti_ModuleResourceData",
            &[
                ("cubinSize", offset_of!(Module, bytes)),
                ("pCubin", offset_of!(Module, cubin)),
                ("size", size_of::<Module>()),
            ],
        );
    }
}
