//! CUPTI's structures for samples of instructions, as far as they are used.
//!
//! Owns: their layout. Because: CUPTI reads and fills them in our memory. Does not: call anything.
//!
//! Source: `cupti_pcsampling.h` of CUPTI 12.1 to 13.5, which differ in one member: see [`PC_BYTES_OLD`].

use std::ffi::{c_char, c_void};

/// `CUpti_PCSamplingStallReason`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stall {
    /// CUPTI's number of the reason on this device.
    pub(crate) reason: u32,
    pub(crate) samples: u32,
}

/// `CUpti_PCSamplingPCData`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pc {
    pub(crate) size: usize,
    pub(crate) cubin: u64,
    pub(crate) offset: u64,
    pub(crate) function: u32,
    padding: u32,
    pub(crate) name: *const c_char,
    pub(crate) stalls: usize,
    /// Our buffer; CUPTI writes as many entries as reasons were configured.
    pub(crate) stall: *mut Stall,
    pub(crate) correlation: u32,
}

/// Bytes of a [`Pc`] before 12.4, which has no correlation id. They form an array, so CUPTI's size is the stride.
pub(crate) const PC_BYTES_OLD: usize = 56;
/// First CUPTI version with correlation ids: 12.4.
pub(crate) const WITH_CORRELATION: u32 = 22;

/// `CUpti_PCSamplingData`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Data {
    pub(crate) size: usize,
    /// Capacity.
    pub(crate) room: usize,
    /// Samples taken, including dropped ones.
    pub(crate) total: u64,
    pub(crate) dropped: u64,
    /// Instructions written.
    pub(crate) pcs: usize,
    /// Instructions that CUPTI still holds.
    pub(crate) remaining: usize,
    pub(crate) range: u64,
    pub(crate) pc: *mut Pc,
    /// Samples in kernels that do not belong to the program.
    pub(crate) elsewhere: u64,
    pub(crate) full: u8,
}

/// `CUpti_PCSamplingConfigurationInfo`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attribute {
    pub(crate) kind: u32,
    pub(crate) status: i32,
    /// A union; the largest members are two words, except for an unused one of three.
    pub(crate) value: [u64; 3],
}

/// `CUpti_PCSamplingConfigurationAttributeType`.
pub(crate) mod attribute {
    pub(crate) const PERIOD: u32 = 1;
    pub(crate) const REASONS: u32 = 2;
    pub(crate) const MODE: u32 = 5;
    pub(crate) const BUFFER: u32 = 8;
}

/// `CUpti_PCSamplingCollectionMode`.
pub(crate) mod mode {
    pub(crate) const CONTINUOUS: u64 = 1;
    pub(crate) const SERIALIZED: u64 = 2;
}

/// `CUpti_PCSamplingConfigurationInfoParams`.
#[repr(C)]
pub(crate) struct Configuration {
    pub(crate) size: usize,
    pub(crate) private: *mut c_void,
    pub(crate) context: usize,
    pub(crate) count: usize,
    pub(crate) attributes: *mut Attribute,
}

/// `CUpti_PCSamplingEnableParams` and `CUpti_PCSamplingDisableParams`.
#[repr(C)]
pub(crate) struct ContextParameters {
    pub(crate) size: usize,
    pub(crate) private: *mut c_void,
    pub(crate) context: usize,
}

/// `CUpti_PCSamplingGetDataParams`.
#[repr(C)]
pub(crate) struct GetDataParameters {
    pub(crate) size: usize,
    pub(crate) private: *mut c_void,
    pub(crate) context: usize,
    pub(crate) data: *mut Data,
}

/// `CUpti_PCSamplingGetNumStallReasonsParams`.
#[repr(C)]
pub(crate) struct CountReasons {
    pub(crate) size: usize,
    pub(crate) private: *mut c_void,
    pub(crate) context: usize,
    pub(crate) count: *mut usize,
}

/// `CUpti_PCSamplingGetStallReasonsParams`.
#[repr(C)]
pub(crate) struct GetReasonsParameters {
    pub(crate) size: usize,
    pub(crate) private: *mut c_void,
    pub(crate) context: usize,
    pub(crate) count: usize,
    pub(crate) numbers: *mut u32,
    /// Each points to [`REASON_BYTES`].
    pub(crate) names: *mut *mut c_char,
}

/// `CUPTI_STALL_REASON_STRING_SIZE`.
pub(crate) const REASON_BYTES: usize = 128;

/// `CUpti_GetCubinCrcParams`.
#[repr(C)]
pub(crate) struct Crc {
    pub(crate) size: usize,
    pub(crate) bytes: usize,
    pub(crate) cubin: *const c_void,
    pub(crate) crc: u64,
}

/// `CUpti_ModuleResourceData`.
#[repr(C)]
pub(crate) struct Module {
    pub(crate) number: u32,
    pub(crate) bytes: usize,
    pub(crate) cubin: *const u8,
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    /// Version, structure, member, offset: the layout that a C compiler gives the headers.
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
    #[expect(clippy::too_many_lines, reason = "a table of inputs and what is expected of them")]
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
            check(
                structure,
                &[
                    ("ctx", offset_of!(ContextParameters, context)),
                    ("sizeof", size_of::<ContextParameters>()),
                ],
            );
        }
        check(
            "CUpti_PCSamplingGetDataParams",
            &[
                ("pcSamplingData", offset_of!(GetDataParameters, data)),
                ("sizeof", size_of::<GetDataParameters>()),
            ],
        );
        check(
            "CUpti_PCSamplingGetNumStallReasonsParams",
            &[("numStallReasons", offset_of!(CountReasons, count)), ("sizeof", size_of::<CountReasons>())],
        );
        check(
            "CUpti_PCSamplingGetStallReasonsParams",
            &[
                ("numStallReasons", offset_of!(GetReasonsParameters, count)),
                ("stallReasonIndex", offset_of!(GetReasonsParameters, numbers)),
                ("stallReasons", offset_of!(GetReasonsParameters, names)),
                ("sizeof", size_of::<GetReasonsParameters>()),
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
