//! Devices: the properties of a device that stay constant.
//!
//! Owns: the record that the collector writes per device, and the member offsets in CUPTI's. Because: a device number
//! is valid within one process only (each program sees a subset of the machine's devices, in its own order), whereas
//! the UUID is the same everywhere. Does not: read anything.
//!
//! Devices are reported through [`crate::activity::probe::DEVICE`].

use crate::Plain;

/// Symbol of the function that carries devices.
pub const SYMBOL: &str = "deepctx_collector_device";
/// Limit on the bytes of a name: as many as the driver returns.
pub const NAME_MAX: usize = 96;

/// Bits of [`Device::flags`].
pub mod flag {
    /// The device is partitioned (MIG), or is an instance of such a device.
    pub const DIVIDED: u32 = 1;
    /// The record has instance numbers and an instance UUID: the program sees that instance, not the whole device.
    pub const INSTANCE: u32 = 2;
}

/// One device of a process.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// Number of the device in this process.
    pub number: u32,
    /// Bits of [`flag`].
    pub flags: u32,
    /// Compute capability: 9 and 0 for `sm_90`.
    pub capability: [u32; 2],
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Clock rate of the multiprocessors, kHz.
    pub clock_khz: u32,
    /// Instances: number of the GPU instance, and number of the compute instance within it.
    pub instance: [u32; 2],
    /// Memory, bytes.
    pub memory: u64,
    /// UUID of the device.
    pub uuid: [u8; 16],
    /// UUID of the instance.
    pub instance_uuid: [u8; 16],
    /// Name, UTF-8, zero-padded.
    pub name: [u8; NAME_MAX],
}

impl Default for Device {
    fn default() -> Self {
        Self {
            number: 0,
            flags: 0,
            capability: [0; 2],
            multiprocessors: 0,
            clock_khz: 0,
            instance: [0; 2],
            memory: 0,
            uuid: [0; 16],
            instance_uuid: [0; 16],
            name: [0; NAME_MAX],
        }
    }
}

// SAFETY: repr(C), integers only, no padding (asserted in `layout`).
unsafe impl Plain for Device {}

/// Member offsets in `CUpti_ActivityDevice4` (12.0) to `CUpti_ActivityDevice6` (13.5): later structures append. Source:
/// `cupti_activity.h`.
pub mod of_cupti {
    /// `CUpti_ActivityKind`.
    pub const KIND: u32 = 8;
    /// Number of bytes read: the whole of the oldest structure.
    pub const BYTES: usize = 176;
    /// Memory, 64 bits.
    pub const MEMORY: usize = 16;
    /// Clock, kHz.
    pub const CLOCK: usize = 36;
    /// Multiprocessors.
    pub const MULTIPROCESSORS: usize = 44;
    /// Compute capability: two numbers.
    pub const CAPABILITY: usize = 104;
    /// Device number.
    pub const NUMBER: usize = 112;
    /// UUID.
    pub const UUID: usize = 120;
    /// Pointer to the device's name.
    pub const NAME: usize = 136;
    /// Whether the device is partitioned, 8 bits.
    pub const DIVIDED: usize = 145;
    /// Instances: two numbers; all ones if the device is not an instance.
    pub const INSTANCE: usize = 152;
    /// UUID of the instance.
    pub const INSTANCE_UUID: usize = 160;
}
