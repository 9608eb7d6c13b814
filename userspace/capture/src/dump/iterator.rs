//! Iterator: the kernel's state of all threads of some processes, in one pass.
//!
//! Owns: loading just the one program that a dump needs, and reading its output. Because: captures need neither the
//! program nor a kernel that has such iterators. Does not: read memory of processes.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd};
use std::time::Duration;

use deepctx_common::Plain as _;
use deepctx_common::config::{Config, map};
use deepctx_common::process::Target;
use deepctx_common::thread::Thread;
use libbpf_rs::libbpf_sys::{
    BPF_TRACE_ITER, bpf_iter_create, bpf_iter_link_info, bpf_link_create, bpf_link_create_opts,
};
use libbpf_rs::{MapCore as _, MapFlags};

use crate::arch;
use crate::error::CaptureError;
use crate::kernel_offsets;
use crate::load::IteratorProgram;
use crate::programs;
use crate::table_error::map_error;

/// Bytes that one read may return: the kernel's buffer holds eight pages.
const READ_BYTES: usize = 64 << 10;
/// Most threads that are read: as many as a process may usually have (`threads-max` of a large machine is far above).
const THREADS_MAX: usize = 1 << 17;

/// A sleep after which this thread has just been switched in.
const ARRIVAL: Duration = Duration::from_micros(1);

/// Threads of the processes.
pub(super) struct AllThreads {
    pub(super) threads: Vec<Thread>,
    /// There are more than are read.
    pub(super) is_cut: bool,
}

/// The loaded program, and its links.
pub(super) struct ThreadIterator {
    program: IteratorProgram,
    /// One per process, or one for all tasks of the machine.
    links: Vec<OwnedFd>,
}

/// The tasks that the kernel iterates over.
#[derive(Clone, Copy)]
enum Tasks {
    /// All tasks of the machine; the program skips those of other processes.
    All,
    /// Those of one process (Linux 6.1).
    Process(u32),
    /// One (Linux 6.1).
    Thread(u32),
}

impl ThreadIterator {
    /// Loads the program for these processes.
    pub(super) fn load(pids: &[u32]) -> Result<Self, CaptureError> {
        let mut config = Config { address_bits: arch::address_bits(), ..Config::default() };
        let fields = kernel_offsets::fill_with_threads(&mut config)?;
        programs::set_namespace(&mut config);
        let program = IteratorProgram::load(&config, &fields).map_err(CaptureError::load)?;
        let targets = program.map(map::TARGETS)?;
        for pid in pids {
            let target = Target::default();
            targets
                .update(pid.as_bytes(), target.as_bytes(), MapFlags::ANY)
                .map_err(|error| CaptureError::from(map_error(map::TARGETS)(error)))?;
        }
        let of_each: io::Result<Vec<_>> =
            pids.iter().map(|pid| link(&program, Tasks::Process(*pid))).collect();
        let links = match of_each {
            Ok(links) => links,
            // A process that has just ended is missing either way.
            Err(_) => vec![link(&program, Tasks::All).map_err(failed)?],
        };
        Ok(Self { program, links })
    }

    /// All threads of the processes.
    pub(super) fn read(&self) -> Result<AllThreads, CaptureError> {
        // So that this thread was switched in just now, see `to_monotonic`.
        std::thread::sleep(ARRIVAL);
        let (mut threads, mut is_cut) = (Vec::new(), false);
        for link in &self.links {
            is_cut |= !read_into(link, &mut threads).map_err(failed)?;
        }
        to_monotonic(&mut threads);
        // A thread that began while the list was read may appear twice.
        let mut seen = HashSet::new();
        threads.retain(|thread: &Thread| thread.exit_state == 0 && seen.insert(thread.tid));
        Ok(AllThreads { threads, is_cut })
    }

    /// One thread; `None` if it is gone.
    pub(super) fn read_thread(&self, pid: u32, tid: u32) -> Result<Option<Thread>, CaptureError> {
        let mut threads = Vec::new();
        match link(&self.program, Tasks::Thread(tid)) {
            Ok(link) => _ = read_into(&link, &mut threads).map_err(failed)?,
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(None),
            Err(_) => {
                let all = self.read()?.threads;
                return Ok(all.into_iter().find(|thread| thread.pid == pid && thread.tid == tid));
            }
        }
        to_monotonic(&mut threads);
        Ok(threads
            .into_iter()
            .find(|thread| thread.pid == pid && thread.tid == tid && thread.exit_state == 0))
    }
}

/// Converts the scheduler's times to the clock of the records. This thread was switched in just before it read the
/// first of them, so the smallest difference is that of the clocks.
fn to_monotonic(threads: &mut [Thread]) {
    let ahead = |thread: &Thread| thread.time_ns.wrapping_sub(thread.reader_arrived_ns).cast_signed();
    let Some(difference) = threads.iter().map(ahead).min() else { return };
    for thread in threads.iter_mut().filter(|thread| thread.arrived_ns != 0) {
        thread.arrived_ns = thread.arrived_ns.saturating_add_signed(difference);
    }
}

fn failed(source: io::Error) -> CaptureError {
    CaptureError::Io { what: "the kernel's iterator over threads (Linux 5.15)", source }
}

fn link(program: &IteratorProgram, tasks: Tasks) -> io::Result<OwnedFd> {
    let mut info = bpf_iter_link_info::default();
    match tasks {
        Tasks::All => {}
        Tasks::Process(pid) => info.task.pid = pid,
        Tasks::Thread(tid) => info.task.tid = tid,
    }
    let mut options =
        bpf_link_create_opts { sz: size_of::<bpf_link_create_opts>() as _, ..Default::default() };
    if !matches!(tasks, Tasks::All) {
        options.iter_info = &raw mut info;
        options.iter_info_len = size_of::<bpf_iter_link_info>() as u32;
    }
    // SAFETY: the options are borrowed for the call, and what they point to outlives it.
    let link = unsafe { bpf_link_create(program.fd().as_raw_fd(), 0, BPF_TRACE_ITER, &raw const options) };
    owned(link)
}

/// A new descriptor, or the error in its place.
fn owned(fd: i32) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Reads the threads of a link; false if there are more than are kept.
fn read_into(link: &OwnedFd, threads: &mut Vec<Thread>) -> io::Result<bool> {
    // SAFETY: a call with an open descriptor.
    let file = File::from(owned(unsafe { bpf_iter_create(link.as_fd().as_raw_fd()) })?);
    read_up_to(THREADS_MAX, file, threads)
}

fn read_up_to(most: usize, mut file: impl io::Read, threads: &mut Vec<Thread>) -> io::Result<bool> {
    let mut bytes = vec![0; READ_BYTES];
    let mut kept = 0;
    loop {
        let read = match file.read(&mut bytes[kept..]) {
            Ok(0) => return Ok(true),
            Ok(_) if threads.len() >= most => return Ok(false),
            Ok(read) => read,
            Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {
                continue;
            }
            Err(error) => return Err(error),
        };
        let whole = (kept + read) / size_of::<Thread>() * size_of::<Thread>();
        threads.extend(bytes[..whole].chunks_exact(size_of::<Thread>()).filter_map(Thread::read_from));
        bytes.copy_within(whole..kept + read, 0);
        kept = kept + read - whole;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_threads_than_are_kept_are_noticed() {
        let check = |read: usize, most: usize, expect: (bool, usize)| {
            let (bytes, mut threads) = (vec![0_u8; read * size_of::<Thread>()], Vec::new());
            let is_whole = read_up_to(most, &bytes[..], &mut threads).unwrap();
            assert_eq!((is_whole, threads.len()), expect, "{read} {most}");
        };
        let at_once = READ_BYTES / size_of::<Thread>();
        check(3, 3, (true, 3));
        check(at_once, at_once, (true, at_once));
        // More than one read returns.
        check(2 * at_once, at_once, (false, at_once));
    }

    #[test]
    fn scheduler_times_move_to_the_clock_of_records() {
        let thread = |time_ns, arrived_ns| {
            let zeros = Thread::read_from(&[0; size_of::<Thread>()]).unwrap();
            Thread { time_ns, arrived_ns, reader_arrived_ns: 400, ..zeros }
        };
        let mut threads = [thread(1000, 100), thread(1050, 0)];
        to_monotonic(&mut threads);
        assert_eq!(threads.map(|thread| thread.arrived_ns), [700, 0]);
    }
}
