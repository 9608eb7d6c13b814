//! Why there is no probe.
//!
//! Owns: [`NoProbe`], its keys and sentences. Because: "not attached" alone sends people looking in the wrong place: a
//! function may be newer than the library, stripped, or not code. Does not: describe failures of the profiler.

use deepctx_address_space::NoSymbol;
use deepctx_events::Family;

use super::instruction::NoProbePoint;
use crate::row::Version;

/// Why a function of the catalogue gets no probe in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum NoProbe {
    /// Everything that the library exports is older than this function.
    #[error("newer than this library, which has nothing newer than {library}")]
    NewerThanLibrary {
        /// The newest version of which the library exports something.
        library: Version,
    },
    /// The library is new enough, and has no such symbol.
    #[error("the library has newer functions but not this one")]
    NotExported,
    /// The runtime is linked into the file, and its symbols were stripped.
    #[error("the runtime is linked into this file and its symbols were stripped")]
    Stripped,
    /// The symbol exists with the parameters of another major version.
    #[error("this name has other parameters in this major version")]
    OtherMajor,
    /// The parameters changed between versions, and the symbol does not say its version.
    #[error("its parameters differ between versions, and the symbol names none")]
    VersionUnknown,
    /// The symbol stands for a function that is chosen at run time (`STT_GNU_IFUNC`).
    #[error("the symbol is a resolver that chooses the function at run time")]
    Indirect,
    /// The symbol is not in an executable segment of the file.
    #[error("the symbol is not in an executable segment of the file")]
    NotCode,
    /// The bytes at the symbol are no instruction.
    #[error("there is no valid instruction at the symbol")]
    NotAnInstruction,
    /// The kernel refuses probes on the instruction at the entry, and nothing later will do.
    #[error("the kernel does not allow a probe on its first instruction")]
    Refused,
    /// More symbols of this name than are probed.
    #[error("more functions have this name than are probed")]
    TooMany,
    /// The same call is seen again in a lower library, where it is counted.
    #[error("not needed: the same call is counted in {0}")]
    SeenAgainIn(Family),
    /// The code from which offsets are read has another form than any that is known.
    #[error("the library's code does not show where its fields are: it is of an unknown version")]
    NotCalibrated,
    /// The file has no USDT probe of this name.
    #[error("the file has no USDT probe of this name: it is older, or was built without them")]
    NotMarked,
    /// The file could not be read, or is no ELF file.
    #[error(transparent)]
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

impl From<NoProbePoint> for NoProbe {
    fn from(none: NoProbePoint) -> Self {
        match none {
            NoProbePoint::NotAnInstruction => Self::NotAnInstruction,
            NoProbePoint::Refused => Self::Refused,
        }
    }
}
