//! Why there is no probe.
//!
//! Owns: [`NoProbe`], its keys and sentences. Because: "not attached" alone sends people looking in the wrong place: a
//! function may be newer than the library, stripped, or not code. Does not: describe failures of the profiler.

use std::fmt;

use deepctx_address_space::NoSymbol;
use deepctx_events::Family;

use crate::catalogue::Version;

/// Why a function of the catalogue gets no probe in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NoProbe {
    /// Everything the library exports is older than this function.
    NewerThanLibrary {
        /// The newest version of which the library exports something.
        library: Version,
    },
    /// The library is new enough, and has no such symbol.
    NotExported,
    /// The runtime is linked into the file, and its symbols were stripped.
    Stripped,
    /// The symbol exists with the parameters of another major version.
    OtherMajor,
    /// The parameters changed between versions, and the symbol does not say its version.
    VersionUnknown,
    /// The symbol stands for a function that is chosen at run time (`STT_GNU_IFUNC`).
    Indirect,
    /// The symbol is not in an executable segment of the file.
    NotCode,
    /// The bytes at the symbol are no instruction.
    NotAnInstruction,
    /// The kernel refuses probes on the instruction at the entry, and nothing later will do.
    Refused,
    /// More symbols of this name than are probed.
    TooMany,
    /// The same call is seen again in a lower library, where it is counted.
    SeenAgainIn(Family),
    /// The code from which offsets are taken has another form than any that is known.
    NotCalibrated,
    /// The file has no mark of this name for probes.
    NotMarked,
    /// The file could not be read, or is no ELF file.
    File(NoSymbol),
}

impl NoProbe {
    /// Stable name for machines, kebab-case.
    pub const fn key(self) -> &'static str {
        match self {
            Self::NewerThanLibrary { .. } => "newer-than-library",
            Self::NotExported => "not-exported",
            Self::Stripped => "stripped",
            Self::OtherMajor => "other-major",
            Self::VersionUnknown => "version-unknown",
            Self::Indirect => "indirect",
            Self::NotCode => "not-code",
            Self::NotAnInstruction => "not-an-instruction",
            Self::Refused => "refused",
            Self::TooMany => "too-many",
            Self::SeenAgainIn(_) => "seen-again",
            Self::NotCalibrated => "not-calibrated",
            Self::NotMarked => "not-marked",
            Self::File(reason) => reason.key(),
        }
    }
}

/// One sentence for people.
impl fmt::Display for NoProbe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NewerThanLibrary { library } => {
                return write!(f, "newer than this library, which has nothing newer than {library}");
            }
            Self::SeenAgainIn(family) => {
                return write!(f, "not needed: the same call is counted in {family}");
            }
            Self::NotExported => "the library has newer functions but not this one",
            Self::Stripped => "the runtime is linked into this file and its symbols were stripped",
            Self::OtherMajor => "this name has other parameters in this major version",
            Self::VersionUnknown => "its parameters differ between versions, and the symbol names none",
            Self::Indirect => "the symbol is a resolver that chooses the function at run time",
            Self::NotCode => "the symbol is not in an executable segment of the file",
            Self::NotAnInstruction => "there is no valid instruction at the symbol",
            Self::Refused => "the kernel does not allow a probe on its first instruction",
            Self::TooMany => "more functions have this name than are probed",
            Self::NotCalibrated => {
                "the library's code does not show where its fields are: it is of an unknown version"
            }
            Self::NotMarked => "the file has no mark of this name: it is older, or was built without marks",
            Self::File(reason) => reason.sentence(),
        })
    }
}
