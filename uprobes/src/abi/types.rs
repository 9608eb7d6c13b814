//! Types of parameters, as far as passing them is concerned.
//!
//! Owns: [`Type`], [`Scalar`]. Because: the type of an argument decides its location in the calling convention. Does
//! not: know what an argument means ([`deepctx_events::Role`]) or where it is ([`crate::abi`]).

/// Type of a parameter, as far as it affects passing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// A pointer, or a handle that is one.
    Pointer,
    /// Unsigned, 64 bits.
    U64,
    /// Signed, 64 bits.
    I64,
    /// Unsigned, 32 bits.
    U32,
    /// Signed, 32 bits.
    I32,
    /// Unsigned, 16 bits.
    U16,
    /// Unsigned, 8 bits.
    U8,
    /// A floating-point number: passed in a register that probes cannot read.
    Float,
    /// `dim3`: three 32-bit values.
    Dim3,
    /// `cudaExtent`, `hipExtent`: three 64-bit values.
    Extent,
    /// `cudaPitchedPtr`, `hipPitchedPtr`: a pointer and three sizes.
    PitchedPointer,
    /// A structure of integers with this many bytes.
    Struct(u16),
}

/// How to read one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Scalar {
    /// Bytes: 1, 2, 4 or 8.
    pub bytes: u8,
    /// Whether it is sign-extended.
    pub signed: bool,
    /// An address or handle, shown in hexadecimal.
    pub pointer: bool,
}

impl Scalar {
    /// A pointer or handle.
    pub const POINTER: Self = Self { bytes: 8, signed: false, pointer: true };
    /// An unsigned byte.
    pub const U8: Self = Self { bytes: 1, signed: false, pointer: false };
    /// Two unsigned bytes.
    pub const U16: Self = Self { bytes: 2, signed: false, pointer: false };
    /// Four unsigned bytes.
    pub const U32: Self = Self { bytes: 4, signed: false, pointer: false };
    /// Eight unsigned bytes.
    pub const U64: Self = Self { bytes: 8, signed: false, pointer: false };
}

impl Type {
    /// How to read the number, if probes can read this type.
    pub const fn scalar(self) -> Option<Scalar> {
        let (bytes, signed) = match self {
            Self::Pointer => return Some(Scalar::POINTER),
            Self::U64 => (8, false),
            Self::I64 => (8, true),
            Self::U32 => (4, false),
            Self::I32 => (4, true),
            Self::U16 => (2, false),
            Self::U8 => (1, false),
            Self::Float | Self::Dim3 | Self::Extent | Self::PitchedPointer | Self::Struct(_) => return None,
        };
        Some(Scalar { bytes, signed, pointer: false })
    }
}
