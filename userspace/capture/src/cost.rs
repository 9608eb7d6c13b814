//! Cost: what the profiler uses, of its own and of the targets' time.
//!
//! Owns: CPU time, resident memory and locked map memory of this process, how its allocator keeps and returns memory;
//! CPU time of its threads, of other processes, and of programs in the kernel. Because: a profiler that claims low
//! overhead must show it. Does not: judge, or know what the parts of the profiler hold.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::thread::JoinHandleExt as _;
use std::thread::JoinHandle;
use std::time::Duration;

use deepctx_common::memory::MemoryUse;
use libbpf_rs::libbpf_sys::{BPF_STATS_RUN_TIME, bpf_enable_stats};

/// Resource usage of this process so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnCost {
    /// User and system CPU time since its start.
    pub cpu: Duration,
    /// Resident set, bytes.
    pub resident_bytes: u64,
    /// Memory of the kernel maps, by purpose.
    pub maps: Vec<MemoryUse>,
    /// What this crate keeps about processes and their files, besides the kernel's maps.
    pub processes: MemoryUse,
}

impl OwnCost {
    /// Memory of all kernel maps, bytes.
    pub fn map_bytes(&self) -> u64 {
        self.maps.iter().map(|held| held.bytes).sum()
    }
}

/// Measures now. `maps`: from [`super::load::LoadedPrograms::locked`] and the tables.
pub(crate) fn measure(maps: Vec<MemoryUse>, processes: MemoryUse) -> OwnCost {
    OwnCost { cpu: cpu_time(), resident_bytes: resident_bytes(), maps, processes }
}

/// Resident memory of this process by origin, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResidentMemory {
    /// Pages of files, including the program itself, and of shared memory.
    pub files: u64,
    /// Everything else.
    pub anonymous: u64,
    /// Bytes allocated; not all of them need be resident.
    pub allocated: u64,
}

impl ResidentMemory {
    /// Measures now.
    pub fn now() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let bytes = |name: &str| {
            let rest = status.lines().find_map(|line| line.strip_prefix(name))?;
            Some(rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
        };
        let bytes = |name| bytes(name).unwrap_or_default();
        let files = bytes("RssFile:") + bytes("RssShmem:");
        Self { files, anonymous: bytes("RssAnon:"), allocated: allocated_bytes() }
    }
}

fn allocated_bytes() -> u64 {
    #[cfg(target_env = "gnu")]
    {
        // glibc has it since 2.33, and the packages run with 2.31, where nothing else counts beyond 2 GiB.
        // SAFETY: the name is a C string; the lookup changes nothing.
        let symbol = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"mallinfo2".as_ptr()) };
        if symbol.is_null() {
            return 0;
        }
        // SAFETY: a function of this name in the C library has this type (malloc.h).
        let mallinfo2: extern "C" fn() -> libc::mallinfo2 = unsafe { std::mem::transmute(symbol) };
        // It takes the allocator's own locks.
        let info = mallinfo2();
        (info.uordblks + info.hblkhd) as u64
    }
    #[cfg(not(target_env = "gnu"))]
    0
}

/// User and system CPU time of this process since its start.
pub fn cpu_time() -> Duration {
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

/// From now on, large blocks of memory are returned when freed, and threads share two heaps. By default the allocator
/// keeps blocks of up to 64 MiB once it has seen one freed (`mallopt(3)`, `M_MMAP_THRESHOLD`), in eight heaps per CPU;
/// but large blocks are rare here: batches of records after a pause, growing tables.
pub fn bound_allocator() {
    #[cfg(target_env = "gnu")]
    for (parameter, value) in
        [(libc::M_MMAP_THRESHOLD, 256 << 10), (libc::M_TRIM_THRESHOLD, 256 << 10), (libc::M_ARENA_MAX, 2)]
    {
        // SAFETY: takes two numbers; where it refuses one, the allocator goes on as before.
        let _ = unsafe { libc::mallopt(parameter, value) };
    }
}

/// Makes the allocator return free memory. After the start that is most of its memory: tables were built, symbol tables
/// and debug information unpacked, on threads that will not need as much again.
pub fn malloc_trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes the allocator's own locks; nothing else is touched.
    let _ = unsafe { libc::malloc_trim(0) };
}

/// Bytes that the kernel charges for a map (`memlock` in its fdinfo); 0 if not reported.
pub fn map_memlock(map: &impl AsFd) -> u64 {
    let path = format!("/proc/self/fdinfo/{}", map.as_fd().as_raw_fd());
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().find_map(|line| line.strip_prefix("memlock:")?.trim().parse().ok()).unwrap_or(0)
}

/// CPU time of a process and all its threads, including ended ones, nanoseconds; `None` if there is no such process.
pub fn process_cpu_ns(pid: u32) -> Option<u64> {
    let mut clock: libc::clockid_t = 0;
    // SAFETY: the pointer is to a local.
    if unsafe { libc::clock_getcpuclockid(libc::pid_t::try_from(pid).ok()?, &raw mut clock) } != 0 {
        return None;
    }
    clock_ns(clock)
}

/// CPU time of one thread of this process.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThreadClock(Option<libc::clockid_t>);

impl ThreadClock {
    /// The clock of a thread; without one if it has ended.
    pub fn of<T>(thread: &JoinHandle<T>) -> Self {
        let mut clock: libc::clockid_t = 0;
        let thread = thread.as_pthread_t() as libc::pthread_t;
        // SAFETY: the thread is not joined while there is a handle, and the pointer is to a local.
        let error = unsafe { libc::pthread_getcpuclockid(thread, &raw mut clock) };
        Self((error == 0).then_some(clock))
    }

    /// User and system CPU time of the thread since its start; zero once it has ended.
    pub fn now(self) -> Duration {
        Duration::from_nanos(self.0.and_then(clock_ns).unwrap_or_default())
    }
}

/// Time on a CPU clock, nanoseconds; `None` if its process or thread has ended.
fn clock_ns(clock: libc::clockid_t) -> Option<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a local. A clock of what has ended meanwhile is refused.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return None;
    }
    Some(time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs())
}

/// Runs of a kernel program, counted while [`count_runs`] is active.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Runs {
    /// Number of runs.
    pub count: u64,
    /// Their time, nanoseconds.
    pub time_ns: u64,
}

impl Runs {
    /// The runs of a loaded program so far; zero if the kernel does not report them.
    pub fn of(program: &impl AsFd) -> Self {
        let path = format!("/proc/self/fdinfo/{}", program.as_fd().as_raw_fd());
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let number = |key: &str| {
            text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok()).unwrap_or_default()
        };
        Self { count: number("run_cnt:"), time_ns: number("run_time_ns:") }
    }
}

/// Makes the kernel count the runs of all BPF programs on the machine, until this is closed. Each run then reads the
/// clock twice more.
///
/// # Errors
/// The kernel refuses (it asks for `CAP_SYS_ADMIN`), or is older than 5.8.
pub fn count_runs() -> io::Result<OwnedFd> {
    // SAFETY: takes a number and gives a descriptor.
    let fd = unsafe { bpf_enable_stats(BPF_STATS_RUN_TIME) };
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
