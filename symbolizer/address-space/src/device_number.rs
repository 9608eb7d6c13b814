//! Device numbers: which file system a file is in.
//!
//! Owns: [`DeviceNumber`]. Because: two bare numbers are easily swapped. Does not: read it.

/// Device number, which identifies the file system on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceNumber {
    /// Major number; 0 for file systems without a device.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}
