//! Clock: the time base of all events.
//!
//! Owns: reading `CLOCK_MONOTONIC`, which `bpf_ktime_get_ns` reads in the kernel, and the id of the boot that it counts
//! from. Because: user space must stamp what it finds (mappings) with the same clock as samples, and times of two
//! captures compare exactly if they are of one boot. Does not: convert between clocks.

use std::fs;

use rustix::time::{ClockId, clock_gettime};

/// Now, nanoseconds of `CLOCK_MONOTONIC`.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// The kernel's random id of this boot; `None` if it cannot be read.
pub fn boot_id() -> Option<String> {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").ok().and_then(|text| uuid_in(&text))
}

/// The UUID that is a text. One of zeros identifies nothing.
fn uuid_in(text: &str) -> Option<String> {
    let id = text.trim();
    let is_uuid = id.len() == 36 && id.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    let says_something = id.bytes().any(|byte| !matches!(byte, b'0' | b'-'));
    (is_uuid && says_something).then(|| id.to_owned())
}

/// Logs the time since the start: a user waits for it.
pub(super) fn log_progress(began_ns: u64, step: &str) {
    let milliseconds = monotonic_ns().saturating_sub(began_ns) as f64 / 1e6;
    tracing::debug!("start: {step} after {milliseconds:.1} ms");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boot_has_one_id_and_other_texts_are_none() {
        assert_eq!(boot_id(), boot_id());
        let id = "3f1c8a52-0d64-4b7e-9a1e-2c5d7f80b6a9";
        assert_eq!(uuid_in(&format!("{id}\n")).as_deref(), Some(id));
        let zeros = id.replace(|letter: char| letter != '-', "0");
        for text in [String::new(), "unknown".to_owned(), id[1..].to_owned(), id.replace('f', "x"), zeros] {
            assert_eq!(uuid_in(&text), None, "{text}");
        }
    }
}
