//! Device numbers: which file system a file is in.
//!
//! Owns: [`DeviceNumber`]. Because: two bare numbers are easily swapped. Does not: read it.

/// Number of a device, which stands for the file system on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceNumber {
    /// Kind of the device; 0 for file systems without one.
    pub major: u32,
    /// Which of that kind.
    pub minor: u32,
}
