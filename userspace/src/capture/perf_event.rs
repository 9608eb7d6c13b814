//! Perf events: asking the kernel for one.
//!
//! Owns: the system call and its attribute, and choosing between hardware cycles and the CPU clock. Because: the event decides
//! what a sample's period means. Does not: attach programs to events, or read them.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

/// What makes a CPU take a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    /// The kernel's high-resolution timer: works everywhere; a sample stands for nanoseconds.
    #[default]
    CpuClock,
    /// Hardware cycles: also sees code that runs with interrupts disabled; a sample stands for cycles.
    Cycles,
}

/// The online CPUs.
pub fn online_cpus() -> io::Result<Vec<u32>> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online")?;
    parse_cpu_list(text.trim())
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("unexpected list {text:?}")))
}

/// Parses a list such as `0-3,8,10-11`.
fn parse_cpu_list(text: &str) -> Option<Vec<u32>> {
    /// More CPUs than any kernel is built for.
    const CPUS_MAX: u32 = 1 << 16;
    let mut cpus = Vec::new();
    for part in text.split(',').filter(|p| !p.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
        if first > last || last >= CPUS_MAX {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
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
const PERF_TYPE_BREAKPOINT: u32 = 5;
/// `HW_BREAKPOINT_RW`: x86 has none for reading alone.
const READ_OR_WRITTEN: u32 = 3;
const PERF_COUNT_HW_CPU_CYCLES: u64 = 0;
const PERF_COUNT_SW_CPU_CLOCK: u64 = 0;
/// `PERF_FLAG_FD_CLOEXEC`.
const FLAG_CLOEXEC: libc::c_ulong = 1 << 3;
const FLAG_EXCLUDE_IDLE: u64 = 1 << 7;
const FLAG_FREQUENCY: u64 = 1 << 10;
const FLAG_DISABLED: u64 = 1;
const FLAG_INHERIT: u64 = 1 << 1;
const FLAG_EXCLUDE_KERNEL: u64 = 1 << 5;
const FLAG_EXCLUDE_HYPERVISOR: u64 = 1 << 6;
/// With [`FLAG_INHERIT`]: by threads, not by processes (Linux 5.13).
const FLAG_INHERIT_THREAD: u64 = 1 << 35;
/// It goes with the program (Linux 5.13).
const FLAG_REMOVE_ON_EXEC: u64 = 1 << 36;
/// `PERF_EVENT_IOC_ENABLE`, `PERF_EVENT_IOC_DISABLE`: with all that inherited it.
const ENABLE: libc::c_ulong = 0x2400;
const DISABLE: libc::c_ulong = 0x2401;

/// True when the machine counts cycles in a way that can be sampled.
pub fn has_cycles() -> bool {
    open_sampler(Clock::Cycles, 0, 1).is_ok()
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
    // A place belongs to no CPU, but an event must: any that is online.
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

/// Opens an event that fires each time that a thread, or one that it makes, uses a byte of its memory from user space; once
/// it is enabled.
pub(super) fn open_watchpoint(thread: u32, address: u64) -> io::Result<OwnedFd> {
    let attr = PerfEventAttr {
        kind: PERF_TYPE_BREAKPOINT,
        size: size_of::<PerfEventAttr>() as u32,
        // Each time.
        sample_frequency: 1,
        flags: FLAG_DISABLED
            | FLAG_INHERIT
            | FLAG_INHERIT_THREAD
            | FLAG_REMOVE_ON_EXEC
            | FLAG_EXCLUDE_KERNEL
            | FLAG_EXCLUDE_HYPERVISOR,
        breakpoint_type: READ_OR_WRITTEN,
        // `bp_addr` and `bp_len` share their places with these.
        config1: address,
        config2: 1,
        ..PerfEventAttr::default()
    };
    let thread = i32::try_from(thread).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
    open_for(&attr, thread, -1)
}

/// Lets an event fire, and those that were inherited from it.
pub(super) fn enable(event: &OwnedFd) -> io::Result<()> {
    control(event, ENABLE)
}

/// Ends that.
pub(super) fn stop(event: &OwnedFd) -> io::Result<()> {
    control(event, DISABLE)
}

fn control(event: &OwnedFd, request: libc::c_ulong) -> io::Result<()> {
    // SAFETY: these requests take a number and touch no memory.
    match unsafe { libc::ioctl(event.as_raw_fd(), request as _, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// How often an event fired, and those that were inherited from it.
pub(super) fn read_count(event: &OwnedFd) -> io::Result<u64> {
    let mut count = [0; 8];
    rustix::io::read(event, &mut count)?;
    Ok(u64::from_ne_bytes(count))
}

/// Every process on one CPU.
fn perf_event_open(attr: &PerfEventAttr, cpu: u32) -> io::Result<OwnedFd> {
    let cpu = i32::try_from(cpu).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    open_for(attr, -1, cpu)
}

fn open_for(attr: &PerfEventAttr, thread: i32, cpu: i32) -> io::Result<OwnedFd> {
    // SAFETY: the attribute is borrowed, has the size it states, and what it points to outlives the call in the callers;
    // the other arguments are scalars: no group (-1).
    let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, attr, thread, cpu, -1, FLAG_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

#[cfg(test)]
mod tests {
    use super::parse_cpu_list;

    #[test]
    fn lists_of_cpus_are_ranges_and_singles() {
        let check = |text: &str, expect: Option<&[u32]>| {
            assert_eq!(parse_cpu_list(text).as_deref(), expect, "{text}")
        };
        check("0", Some(&[0]));
        check("0-3", Some(&[0, 1, 2, 3]));
        check("0-1,4,6-7", Some(&[0, 1, 4, 6, 7]));
        check("", Some(&[]));
        check("3-1", None);
        check("0-99999999", None);
        check("a", None);
    }
}
