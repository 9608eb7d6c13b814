//! Why there is no probe.
//!
//! Owns: [`NoProbe`], its keys and sentences. Because: "not attached" alone is misleading: a function may be newer than
//! the library, stripped, or not code. Does not: describe failures of the profiler.

use std::fmt;

use deepctx_address_space::NoSymbol;
use deepctx_common::reasons;
use deepctx_events::Family;

use super::instruction::NoProbePoint;
use crate::row::Version;

/// Why a function of the catalogue gets no probe in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NoProbe {
    /// All exports of the library are older than this function.
    NewerThanLibrary {
        /// The newest version of its exports.
        library: Version,
    },
    /// The library is new enough, but has no such symbol.
    NotExported,
    /// The runtime is linked into the file, and its symbols were stripped.
    Stripped,
    /// The symbol exists with the parameters of another major version.
    OtherMajor,
    /// The parameters changed between versions, and the symbol is not versioned.
    VersionUnknown,
    /// The symbol is a function chosen at run time (`STT_GNU_IFUNC`).
    Indirect,
    /// The symbol is not in an executable segment of the file.
    NotCode,
    /// The bytes at the symbol are not an instruction.
    NotAnInstruction,
    /// The kernel refuses probes on the instruction at the entry, and no later one is suitable.
    Refused,
    /// More symbols of this name than are probed.
    TooMany,
    /// The same call appears again in a lower library, where it is counted.
    SeenAgainIn(Family),
    /// The code from which offsets are read has an unknown form.
    NotCalibrated,
    /// The file has no USDT probe of this name.
    NotMarked,
    /// The file could not be read, or is not an ELF file.
    File(NoSymbol),
}

impl NoProbe {
    reasons! {
        class Unprobed, page "probes.md";
        /// Its key and its general sentence; [`Display`](fmt::Display) adds versions and names.
        pub fn reason(self) {
            Self::NewerThanLibrary { .. } => "newer-than-library", "the function is newer than this library";
            Self::NotExported => "not-exported", "the library has newer functions but not this one";
            Self::Stripped => "stripped", "the runtime is linked into this file and its symbols were stripped";
            Self::OtherMajor => "other-major", "this name has other parameters in this major version";
            Self::VersionUnknown => "version-unknown", "its parameters differ between versions, and the symbol names none";
            Self::Indirect => "indirect", "the symbol is a resolver that chooses the function at run time";
            Self::NotCode => "not-code", "the symbol is not in an executable segment of the file";
            Self::NotAnInstruction => "not-an-instruction", "there is no valid instruction at the symbol";
            Self::Refused => "refused", "the kernel does not allow a probe on its first instruction";
            Self::TooMany => "too-many", "more functions have this name than are probed";
            Self::SeenAgainIn(_) => "seen-again", "not needed: the same call is counted in a lower library";
            Self::NotCalibrated => "not-calibrated",
                "the library's code does not show where its fields are: it is of an unknown version";
            Self::NotMarked => "not-marked",
                "the file has no USDT probe of this name: it is older, or was built without them";
        } or {
            Self::File(symbol) => symbol.reason();
        }
    }
}

impl fmt::Display for NoProbe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NewerThanLibrary { library } => {
                write!(f, "newer than this library, which has nothing newer than {library}")
            }
            Self::SeenAgainIn(family) => write!(f, "not needed: the same call is counted in {family}"),
            _ => self.reason().fmt(f),
        }
    }
}

impl std::error::Error for NoProbe {}

impl From<NoProbePoint> for NoProbe {
    fn from(none: NoProbePoint) -> Self {
        match none {
            NoProbePoint::NotAnInstruction => Self::NotAnInstruction,
            NoProbePoint::Refused => Self::Refused,
        }
    }
}
