//! Devices: what is the same of one as long as it is there.
//!
//! Owns: the record that the collector writes of each, and where its members lie in CUPTI's. Because: a number of a
//! device means something within a process only (programs are shown some of a machine's devices, each in an order of
//! their own), while its UUID is the same everywhere. Does not: read anything.
//!
//! They are reported through [`crate::activity::probe::DEVICE`].

use crate::Plain;

/// Symbol of the function that carries them.
pub const SYMBOL: &str = "deepctx_collector_device";
/// Most bytes of a name: as much as the driver gives of it.
pub const NAME_MAX: usize = 96;

/// Bits of [`Device::flags`].
pub mod flag {
    /// It is an instance of a device that is divided (MIG), or a device that is.
    pub const DIVIDED: u32 = 1;
    /// It has numbers of an instance and a UUID of its own: what the program has is that part of a device.
    pub const INSTANCE: u32 = 2;
}

/// One device of a process.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its number in this process.
    pub number: u32,
    /// Bits of [`flag`].
    pub flags: u32,
    /// Compute capability: 9 and 0 for `sm_90`.
    pub capability: [u32; 2],
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Clock of these, kHz.
    pub clock_khz: u32,
    /// Of an instance: its number among those of the device, and that of the part of it which computes.
    pub instance: [u32; 2],
    /// Memory, bytes.
    pub memory: u64,
    /// UUID of the device.
    pub uuid: [u8; 16],
    /// UUID of the instance.
    pub instance_uuid: [u8; 16],
    /// Name, UTF-8, with zeroes behind it.
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

/// Where members lie in `CUpti_ActivityDevice4` (12.0) to `CUpti_ActivityDevice6` (13.5): later ones append. Source:
/// `cupti_activity.h`.
pub mod of_cupti {
    /// `CUpti_ActivityKind`.
    pub const KIND: u32 = 8;
    /// Bytes that are read: all of the oldest.
    pub const BYTES: usize = 176;
    /// Memory, 64 bits.
    pub const MEMORY: usize = 16;
    /// Clock, kHz.
    pub const CLOCK: usize = 36;
    /// Multiprocessors.
    pub const MULTIPROCESSORS: usize = 44;
    /// Compute capability: two numbers.
    pub const CAPABILITY: usize = 104;
    /// Number.
    pub const NUMBER: usize = 112;
    /// UUID.
    pub const UUID: usize = 120;
    /// Pointer to its name.
    pub const NAME: usize = 136;
    /// Whether it is divided, 8 bits.
    pub const DIVIDED: usize = 145;
    /// Of an instance: two numbers; all ones when it is none.
    pub const INSTANCE: usize = 152;
    /// UUID of the instance.
    pub const INSTANCE_UUID: usize = 160;
}
