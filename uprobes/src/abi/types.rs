//! Types of parameters, as far as passing them is concerned.
//!
//! Owns: [`Type`], [`Scalar`]. Because: the type of an argument decides its location in the calling convention. Does
//! not: know what an argument means ([`deepctx_events::Role`]) or where it is ([`crate::abi`]).

/// Type of a parameter, as far as its passing depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// A pointer or a handle that is one.
    Pointer,
    /// 64 bits without a sign.
    U64,
    /// 64 bits with a sign.
    I64,
    /// 32 bits without a sign.
    U32,
    /// 32 bits with a sign.
    I32,
    /// 16 bits without a sign.
    U16,
    /// 8 bits without a sign.
    U8,
    /// A floating-point number: passed in a register that probes cannot read.
    Float,
    /// `dim3`: three times 32 bits.
    Dim3,
    /// `cudaExtent`, `hipExtent`: three times 64 bits.
    Extent,
    /// `cudaPitchedPtr`, `hipPitchedPtr`: a pointer and three sizes.
    PitchedPointer,
    /// A structure of integers, of this many bytes.
    Struct(u16),
}

/// One number, as it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Scalar {
    /// Bytes: 1, 2, 4 or 8.
    pub bytes: u8,
    /// To be extended by its sign.
    pub signed: bool,
    /// An address or handle, to be shown in hexadecimal.
    pub pointer: bool,
}

impl Scalar {
    /// A pointer or handle.
    pub const POINTER: Self = Self { bytes: 8, signed: false, pointer: true };
    /// One byte without a sign.
    pub const U8: Self = Self { bytes: 1, signed: false, pointer: false };
    /// Two bytes without a sign.
    pub const U16: Self = Self { bytes: 2, signed: false, pointer: false };
    /// Four bytes without a sign.
    pub const U32: Self = Self { bytes: 4, signed: false, pointer: false };
    /// Eight bytes without a sign.
    pub const U64: Self = Self { bytes: 8, signed: false, pointer: false };
}

impl Type {
    /// The readable number, if probes can read this type.
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
