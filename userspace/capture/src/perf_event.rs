//! Perf events: opening one.
//!
//! Owns: the system call and its attribute, and choosing between hardware cycles and the CPU clock. Because: the
//! event decides what a sample's period means. Does not: attach programs to events, or read them.

use std::ffi::CStr;
use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd};

use super::cpus::online_cpus;

/// What makes a CPU take a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum Clock {
    /// The kernel's timer; a sample stands for time.
    #[default]
    CpuClock,
    /// Hardware cycles; a sample stands for cycles.
    Cycles,
}

/// `struct perf_event_attr` up to its second published size (`PERF_ATTR_SIZE_VER1`), include/uapi/linux/perf_event.h.
#[repr(C)]
#[derive(Default)]
struct PerfEventAttr {
    kind: u32,
    size: u32,
    config: u64,
    sample_frequency: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    config1: u64,
    config2: u64,
}

const PERF_TYPE_HARDWARE: u32 = 0;
const PERF_TYPE_SOFTWARE: u32 = 1;
const PERF_COUNT_HW_CPU_CYCLES: u64 = 0;
const PERF_COUNT_SW_CPU_CLOCK: u64 = 0;
/// `PERF_FLAG_FD_CLOEXEC`.
const FLAG_CLOEXEC: libc::c_ulong = 1 << 3;
const FLAG_EXCLUDE_IDLE: u64 = 1 << 7;
const FLAG_FREQUENCY: u64 = 1 << 10;

/// True if the machine can sample by cycles.
pub(crate) fn has_cycles() -> bool {
    open_sampler(Clock::Cycles, first_of(online_cpus()), 1).is_ok()
}

/// True if the kernel refuses any event to this process, whatever it would count.
pub(crate) fn is_refused() -> bool {
    let opened = open_sampler(Clock::CpuClock, first_of(online_cpus()), 1);
    opened.is_err_and(|error| error.raw_os_error() == Some(libc::EACCES))
}

/// The first online CPU: the kernel opens no event on one that is offline, which may be CPU 0.
fn first_of(online: io::Result<Vec<u32>>) -> u32 {
    online.ok().and_then(|cpus| cpus.first().copied()).unwrap_or(0)
}

/// Opens an event of type `kind` that fires at byte `offset` of the file at `path`, in every process.
pub(super) fn open_uprobe(kind: u32, config: u64, path: &CStr, offset: u64) -> io::Result<OwnedFd> {
    let attr = PerfEventAttr {
        kind,
        size: size_of::<PerfEventAttr>() as u32,
        config,
        // `uprobe_path` and `probe_offset` share their places with these.
        config1: path.as_ptr() as u64,
        config2: offset,
        ..PerfEventAttr::default()
    };
    // A uprobe belongs to no CPU, but an event must: any that is online.
    perf_event_open(&attr, *online_cpus()?.first().unwrap_or(&0))
}

/// Opens an event that fires on a CPU, `frequency` times a second.
pub(super) fn open_sampler(clock: Clock, cpu: u32, frequency: u32) -> io::Result<OwnedFd> {
    let (kind, config) = match clock {
        Clock::CpuClock => (PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK),
        Clock::Cycles => (PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES),
    };
    let attr = PerfEventAttr {
        kind,
        size: size_of::<PerfEventAttr>() as u32,
        config,
        sample_frequency: u64::from(frequency),
        flags: FLAG_EXCLUDE_IDLE | FLAG_FREQUENCY,
        ..PerfEventAttr::default()
    };
    perf_event_open(&attr, cpu)
}

/// Every process on one CPU.
fn perf_event_open(attr: &PerfEventAttr, cpu: u32) -> io::Result<OwnedFd> {
    let cpu = i32::try_from(cpu).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    // SAFETY: the attribute is borrowed, has the size it states, and what it points to outlives the call in the
    // callers; the other arguments are scalars: every process (-1), no group (-1).
    let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, attr, -1, cpu, -1, FLAG_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_tried_on_a_cpu_that_is_online() {
        assert_eq!(first_of(Ok(vec![2, 3])), 2);
        assert_eq!(first_of(Ok(Vec::new())), 0);
        assert_eq!(first_of(Err(io::ErrorKind::NotFound.into())), 0);
    }
}
