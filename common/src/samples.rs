//! PC samples: at which instructions device kernels stood, and what they stalled on.
//!
//! Owns: the sample records that the collector writes, and the environment variables that configure sampling. Because:
//! the collector, the kernel program and the decoder are built separately. Does not: know the names of stall reasons,
//! which differ by architecture: the collector reports them.
//!
//! Samples arrive through [`crate::activity::probe::SAMPLES`], whose first argument has one of [`part`] in the upper
//! half and a number in the lower half.

use crate::call::MESSAGE_BYTES_MAX;
use crate::{Plain, reasons};

/// Symbol of the function that carries samples.
pub const SYMBOL: &str = "deepctx_collector_samples";
/// Symbol of the separate listener counter, `u16`: nothing is sampled while it is 0.
pub const LISTENERS: &str = "deepctx_collector_samplers";

/// Environment variable of the program: the sampling period as the binary logarithm of a number of cycles, one of
/// [`PERIODS`]. If unset, CUPTI chooses.
pub const PERIOD_VARIABLE: &str = "DEEPCTX_PC_SAMPLING";
/// Environment variable of the program: the sampling mode, `serialized` or continuous.
pub const MODE_VARIABLE: &str = "DEEPCTX_PC_SAMPLING_MODE";
/// The mode in which kernels run one after the other, and samples carry the correlation id of their kernel.
pub const SERIALIZED: &str = "serialized";
/// Periods that CUPTI accepts: 32 cycles to 2 147 483 648.
pub const PERIODS: core::ops::RangeInclusive<u32> = 5..=31;

reasons! {
    class Gap, page "gpu.md";
    /// Why it is not known what an instruction waits for.
    pub enum NoProducer: u8 {
        BeforeBlock = 1, "producer-before-block",
            "instructions wait for something that was issued before their basic block: paths of the code meet there";
        UnknownTargets = 2, "producer-unknown-targets",
            "instructions are of kernels whose code does not say where its branches go: basic blocks are not known";
    }
}

/// Content of the message bytes.
pub mod part {
    /// Samples: [`super::Sample`], up to [`super::BATCH_MAX`].
    pub const BATCH: u32 = 1;
    /// CUPTI's name for the stall reason with this number; the collector assigns the number.
    pub const REASON: u32 = 2;
    /// Device code was loaded, and a copy of it can be read: one [`super::Cubin`].
    pub const CUBIN: u32 = 3;
}

/// Limit on samples per message.
pub const BATCH_MAX: usize = MESSAGE_BYTES_MAX / size_of::<Sample>();

/// Number of a [`crate::activity::state::SAMPLING`]: the period, and whether kernels are serialized.
pub const fn setting(period: u32, serialized: bool) -> u64 {
    (serialized as u64) << 32 | period as u64
}

/// A count of samples at one instruction for one stall reason.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Image of the code: [`Cubin::crc`].
    pub cubin: u64,
    /// Function: id of its name ([`crate::activity::probe::NAME`]); 0 if the name cannot be read.
    pub function: u64,
    /// Instruction: offset in bytes from the beginning of the function.
    pub offset: u64,
    /// Correlation id of the launch; 0 unless kernels are serialized.
    pub correlation: u32,
    /// Number of the stall reason ([`part::REASON`]).
    pub reason: u32,
    /// Number of samples.
    pub samples: u32,
    /// Context, as CUPTI numbers it.
    pub context: u32,
}

/// A copy of device code within the process.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cubin {
    /// CUPTI's identifier of the image in samples.
    pub crc: u64,
    /// Address of the copy, valid while anybody samples.
    pub address: u64,
    /// Size of the copy in bytes.
    pub bytes: u64,
}

// SAFETY: repr(C), integers only, no padding (asserted in `layout`).
unsafe impl Plain for Sample {}
// SAFETY: as above.
unsafe impl Plain for Cubin {}
