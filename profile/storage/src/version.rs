//! Version of the format of stored profiles.
//!
//! Owns: [`FormatVersion`], and which one this program writes. Because: a reader must know whether a profile may
//! contain more than this version understands. Does not: know the version of the program; a program keeps a format
//! for many releases.

use std::fmt;

/// Version of the format of a stored profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FormatVersion {
    /// Raised when older programs would misread a profile; they refuse it.
    pub major: u64,
    /// Raised with additions that older programs may ignore.
    pub minor: u64,
}

impl FormatVersion {
    /// The version written. All versions with this major number can be read.
    pub const CURRENT: FormatVersion = FormatVersion { major: 1, minor: 7 };
}

impl fmt::Display for FormatVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}
