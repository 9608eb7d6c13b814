//! Code: what a call of NVIDIA's management library returns.
//!
//! Owns: [`Code`] and its names. Because: the number says what is wrong, and people search for the name. Does not: call
//! anything.

use std::fmt;

/// A `nvmlReturn_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Code(pub(super) u32);

/// Names by number (`nvml.h`).
const NAMES: [&str; 31] = [
    "NVML_SUCCESS",
    "NVML_ERROR_UNINITIALIZED",
    "NVML_ERROR_INVALID_ARGUMENT",
    "NVML_ERROR_NOT_SUPPORTED",
    "NVML_ERROR_NO_PERMISSION",
    "NVML_ERROR_ALREADY_INITIALIZED",
    "NVML_ERROR_NOT_FOUND",
    "NVML_ERROR_INSUFFICIENT_SIZE",
    "NVML_ERROR_INSUFFICIENT_POWER",
    "NVML_ERROR_DRIVER_NOT_LOADED",
    "NVML_ERROR_TIMEOUT",
    "NVML_ERROR_IRQ_ISSUE",
    "NVML_ERROR_LIBRARY_NOT_FOUND",
    "NVML_ERROR_FUNCTION_NOT_FOUND",
    "NVML_ERROR_CORRUPTED_INFOROM",
    "NVML_ERROR_GPU_IS_LOST",
    "NVML_ERROR_RESET_REQUIRED",
    "NVML_ERROR_OPERATING_SYSTEM",
    "NVML_ERROR_LIB_RM_VERSION_MISMATCH",
    "NVML_ERROR_IN_USE",
    "NVML_ERROR_MEMORY",
    "NVML_ERROR_NO_DATA",
    "NVML_ERROR_VGPU_ECC_NOT_SUPPORTED",
    "NVML_ERROR_INSUFFICIENT_RESOURCES",
    "NVML_ERROR_FREQ_NOT_SUPPORTED",
    "NVML_ERROR_ARGUMENT_VERSION_MISMATCH",
    "NVML_ERROR_DEPRECATED",
    "NVML_ERROR_NOT_READY",
    "NVML_ERROR_GPU_NOT_FOUND",
    "NVML_ERROR_INVALID_STATE",
    "NVML_ERROR_RESET_TYPE_NOT_SUPPORTED",
];

impl Code {
    pub(super) const SUCCESS: Self = Self(0);
    pub(super) const NOT_SUPPORTED: Self = Self(3);
    pub(super) const FUNCTION_NOT_FOUND: Self = Self(13);
    pub(super) const GPU_IS_LOST: Self = Self(15);
    pub(super) const NO_DATA: Self = Self(21);

    /// `Ok` for success.
    pub(super) const fn check(self) -> Result<(), Self> {
        if self.0 == Self::SUCCESS.0 { Ok(()) } else { Err(self) }
    }

    /// Whether it means that a GPU, or its driver, does not have this figure.
    pub(super) const fn is_absence(self) -> bool {
        matches!(self, Self::NOT_SUPPORTED | Self::FUNCTION_NOT_FOUND | Self::NO_DATA)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.0 {
            999 => Some("NVML_ERROR_UNKNOWN"),
            number => NAMES.get(number as usize).copied(),
        };
        match name {
            Some(name) => write!(f, "{name} ({})", self.0),
            None => write!(f, "error {}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use nvml_wrapper_sys::bindings::*;

    use super::*;

    #[test]
    fn names_are_those_of_the_header() {
        for (number, expect) in [
            (nvmlReturn_enum_NVML_SUCCESS, "NVML_SUCCESS (0)"),
            (nvmlReturn_enum_NVML_ERROR_NO_PERMISSION, "NVML_ERROR_NO_PERMISSION (4)"),
            (nvmlReturn_enum_NVML_ERROR_DRIVER_NOT_LOADED, "NVML_ERROR_DRIVER_NOT_LOADED (9)"),
            (nvmlReturn_enum_NVML_ERROR_GPU_IS_LOST, "NVML_ERROR_GPU_IS_LOST (15)"),
            (nvmlReturn_enum_NVML_ERROR_NOT_READY, "NVML_ERROR_NOT_READY (27)"),
            (nvmlReturn_enum_NVML_ERROR_RESET_TYPE_NOT_SUPPORTED, "NVML_ERROR_RESET_TYPE_NOT_SUPPORTED (30)"),
            (nvmlReturn_enum_NVML_ERROR_UNKNOWN, "NVML_ERROR_UNKNOWN (999)"),
            (77, "error 77"),
        ] {
            assert_eq!(Code(number).to_string(), expect);
        }
        for (code, number) in [
            (Code::NOT_SUPPORTED, nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED),
            (Code::FUNCTION_NOT_FOUND, nvmlReturn_enum_NVML_ERROR_FUNCTION_NOT_FOUND),
            (Code::GPU_IS_LOST, nvmlReturn_enum_NVML_ERROR_GPU_IS_LOST),
            (Code::NO_DATA, nvmlReturn_enum_NVML_ERROR_NO_DATA),
        ] {
            assert_eq!(code.0, number);
        }
    }
}
