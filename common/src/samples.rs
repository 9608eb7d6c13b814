//! Samples of instructions: where kernels stood on a device, and what they waited for.
//!
//! Owns: the records that the collector writes of them, and the variables that say how it samples. Because: the
//! collector, the kernel program and the decoder are built apart. Does not: know the names of reasons, which differ by
//! architecture: they are reported.
//!
//! They are reported through [`crate::activity::probe::SAMPLES`], whose first argument is one of [`part`] in the upper
//! half and a number in the lower.

use crate::Plain;
use crate::call::MESSAGE_BYTES_MAX;

/// Symbol of the function that carries them.
pub const SYMBOL: &str = "deepctx_collector_samples";
/// Symbol of its own counter of listeners, `u16`: while it is 0, nothing is sampled.
pub const LISTENERS: &str = "deepctx_collector_samplers";

/// Variable of the program with the period: the binary logarithm of a number of cycles, one of [`PERIODS`]. Without it,
/// CUPTI chooses.
pub const PERIOD_VARIABLE: &str = "DEEPCTX_PC_SAMPLING";
/// Variable of the program with the mode: `serialized`, or continuous.
pub const MODE_VARIABLE: &str = "DEEPCTX_PC_SAMPLING_MODE";
/// The mode in which kernels run one after the other, and samples have the correlation id of their kernel.
pub const SERIALIZED: &str = "serialized";
/// Periods that CUPTI takes: 32 cycles to 2 147 483 648.
pub const PERIODS: core::ops::RangeInclusive<u32> = 5..=31;

/// What the bytes of a message are.
pub mod part {
    /// Samples: [`super::Sample`], up to [`super::BATCH_MAX`].
    pub const BATCH: u32 = 1;
    /// The name that CUPTI gives the reason of this number; the number is the collector's own.
    pub const REASON: u32 = 2;
    /// Device code was loaded, and a copy of it can be read: one [`super::Cubin`].
    pub const CUBIN: u32 = 3;
}

/// Most samples of one message.
pub const BATCH_MAX: usize = MESSAGE_BYTES_MAX / size_of::<Sample>();

/// The number of [`crate::activity::state::SAMPLING`]: the period, and whether kernels are serialized.
pub const fn setting(period: u32, serialized: bool) -> u64 {
    (serialized as u64) << 32 | period as u64
}

/// So many samples at one instruction for one reason.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// The image of the code: [`Cubin::crc`].
    pub cubin: u64,
    /// The function: id of its name ([`crate::activity::probe::NAME`]); 0 when it cannot be read.
    pub function: u64,
    /// The instruction: bytes from the begin of the function.
    pub offset: u64,
    /// Correlation id of the launch; 0 when kernels are not serialized.
    pub correlation: u32,
    /// Number of the reason ([`part::REASON`]).
    pub reason: u32,
    /// How many.
    pub samples: u32,
    /// Context: CUPTI's number.
    pub context: u32,
}

/// A copy of device code within the process.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cubin {
    /// What CUPTI calls it in samples.
    pub crc: u64,
    /// Where the copy is. It stays while somebody samples.
    pub address: u64,
    /// Its bytes.
    pub bytes: u64,
}

// SAFETY: repr(C), integers only, no padding (asserted in `layout`).
unsafe impl Plain for Sample {}
// SAFETY: as above.
unsafe impl Plain for Cubin {}
