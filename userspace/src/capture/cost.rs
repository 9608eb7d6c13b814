//! Cost: what the profiler itself uses.
//!
//! Owns: CPU time, resident memory and locked map memory of this process, and giving back memory that is free. Because:
//! a profiler that claims to cost nothing shows what it costs. Does not: judge.

use std::os::fd::{AsFd, AsRawFd as _};
use std::time::Duration;

/// What this process used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnCost {
    /// User and system CPU time since its start.
    pub cpu: Duration,
    /// Resident set, bytes.
    pub resident_bytes: u64,
    /// Memory of the kernel maps, bytes.
    pub map_bytes: u64,
}

/// Measures now. `map_bytes` is what [`super::load::Loaded::locked_bytes`] and the tables said.
pub fn measure(map_bytes: u64) -> OwnCost {
    OwnCost { cpu: cpu_time(), resident_bytes: resident_bytes(), map_bytes }
}

fn cpu_time() -> Duration {
    // SAFETY: an all-zero rusage is a value of the type.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a local; RUSAGE_SELF needs nothing else.
    if unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) } != 0 {
        return Duration::ZERO;
    }
    let of = |t: libc::timeval| {
        Duration::from_secs(t.tv_sec.unsigned_abs()) + Duration::from_micros(t.tv_usec.unsigned_abs())
    };
    of(usage.ru_utime) + of(usage.ru_stime)
}

fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|text| text.split_ascii_whitespace().nth(1)?.parse::<u64>().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}

/// Has the allocator give back what is free. After the start that is most of what it has: tables were built, symbol
/// tables and debug information unpacked, on threads that will not need as much again.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes the allocator's own locks; nothing else is touched.
    let _ = unsafe { libc::malloc_trim(0) };
}

/// Bytes that the kernel charges for a map (`memlock` in its fdinfo); 0 when it does not say.
pub fn map_memlock(map: &impl AsFd) -> u64 {
    let path = format!("/proc/self/fdinfo/{}", map.as_fd().as_raw_fd());
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().find_map(|line| line.strip_prefix("memlock:")?.trim().parse().ok()).unwrap_or(0)
}
