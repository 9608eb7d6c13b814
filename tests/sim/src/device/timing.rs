//! How long things take.
//!
//! Owns: the rules. Because: a test must be able to say how long a kernel runs, and that needs no more than its name.
//! Does not: look at what a kernel would do.

/// From the call to the start on an idle device.
pub(crate) const LAUNCH_NS: u64 = 2_000;
/// Fixed cost of every copy and fill.
const BASE_NS: u64 = 1_000;
/// Duration of a kernel whose name does not state one.
const KERNEL_NS: u64 = 5_000;

/// Kernel names such as `gemm_25us`, `scan_800ns` or `wait_3ms` end with the duration. Others take 5 µs.
pub(crate) fn kernel_ns(name: &str) -> u64 {
    // Mangled C++ names continue after it: `_Z9gemm_25usPfS_i`.
    let mut found = None;
    for (i, _) in name.match_indices('_') {
        let rest = &name[i + 1..];
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let unit = &rest[digits..];
        let scale = [("ns", 1), ("us", 1_000), ("ms", 1_000_000)];
        let scale = scale.into_iter().find(|(word, _)| unit.starts_with(word)).map(|(_, scale)| scale);
        if let (Ok(number), Some(scale)) = (rest[..digits].parse::<u64>(), scale) {
            found = number.checked_mul(scale);
        }
    }
    found.unwrap_or(KERNEL_NS)
}

/// Duration of a copy at this rate.
pub(crate) const fn transfer_ns(bytes: u64, bytes_per_us: u64) -> u64 {
    BASE_NS + bytes.saturating_mul(1_000) / bytes_per_us
}

/// Bytes per microsecond over the bus from pinned memory.
pub(crate) const PINNED: u64 = 25_000;
/// Over the bus from pageable memory.
pub(crate) const PAGEABLE: u64 = 6_000;
/// Within the device.
pub(crate) const ON_DEVICE: u64 = 500_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_how_long_a_kernel_takes() {
        let check = |name, expect| assert_eq!(kernel_ns(name), expect, "{name}");
        check("gemm_25us", 25_000);
        check("scan_800ns", 800);
        check("wait_3ms", 3_000_000);
        check("_Z9gemm_25usPfS_i", 25_000);
        check("layer_2_gemm_7us", 7_000);
        check("gemm", 5_000);
        check("gemm_us", 5_000);
        check("gemm_99999999999999999999us", 5_000);
        check("", 5_000);
    }

    #[test]
    fn a_copy_takes_as_long_as_its_bytes_need() {
        assert_eq!(transfer_ns(0, PINNED), 1_000);
        assert_eq!(transfer_ns(25_000, PINNED), 2_000);
    }
}
