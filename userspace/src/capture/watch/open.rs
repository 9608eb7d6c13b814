//! Open: one watchpoint for each thread of a process.
//!
//! Owns: reaching every thread once, those included that begin meanwhile. Because: a thread inherits the watchpoints of the one
//! that made it, and one that had two would tell each use twice. Does not: choose places, or limit what they cost.

use std::fs;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use deepctx_symbolizer::arch::Arch;
use deepctx_symbolizer::python::NoEntry;

use crate::capture::arch::HERE;
use crate::capture::links;
use crate::capture::perf_event::{enable, open_watchpoint, read_count, stop};

/// Most threads of a process that are watched, with two open files each.
const THREADS_MAX: usize = 2_048;
/// How often it is begun anew when a thread begins meanwhile.
const TRIES: usize = 8;

/// Why a place is not watched.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoWatch {
    /// There is no place that would tell.
    #[error("{0}")]
    Function(NoEntry),
    /// The kernel of this machine cannot be used so.
    #[error("on {0} the kernel does not step over a watchpoint that a program listens to")]
    Machine(Arch),
    /// Other places are watched already.
    #[error("too many functions are watched")]
    TooMany,
    /// More than [`THREADS_MAX`].
    #[error("the process has {0} threads, and {THREADS_MAX} can be watched")]
    Threads(usize),
    /// It has ended.
    #[error("the process has ended")]
    Gone,
    /// All are in use.
    #[error("all watchpoints of a thread are in use: there are four, and a debugger may have them")]
    InUse,
    /// This kernel or machine has none.
    #[error("this machine has no hardware watchpoints ({0})")]
    None(io::Error),
    /// Refused for another reason.
    #[error("the kernel refused: {0}")]
    Refused(io::Error),
}

impl From<io::Error> for NoWatch {
    fn from(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ESRCH) => Self::Gone,
            Some(libc::ENOSPC | libc::EBUSY) => Self::InUse,
            // Without support the type of event is unknown, or known and without registers.
            Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP) => Self::None(error),
            _ => Self::Refused(error),
        }
    }
}

/// Open watchpoints of one place. They go when this does.
#[derive(Debug)]
pub(super) struct Events {
    /// Each event, and the link of the program to it.
    events: Vec<(OwnedFd, OwnedFd)>,
    /// There may be threads without one.
    pub(super) incomplete: bool,
}

impl Events {
    /// Watches a byte in all threads of a process, those included that it makes from then on.
    pub(super) fn open(program: &OwnedFd, pid: u32, address: u64) -> Result<Self, NoWatch> {
        if !HERE.watches {
            return Err(NoWatch::Machine(HERE.arch));
        }
        let mut tries = 0;
        loop {
            tries += 1;
            let before = threads(pid)?;
            let mut events = Vec::with_capacity(before.len());
            for &thread in &before {
                let opened = open_watchpoint(thread, address).and_then(|event| {
                    let link = links::on_event(program.as_fd(), event.as_fd(), 0)?;
                    Ok((event, link))
                });
                match opened {
                    Ok(opened) => events.push(opened),
                    // It ended meanwhile.
                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            // One that is new may have inherited a watchpoint, or come before there was one to inherit.
            let incomplete = threads(pid)?.iter().any(|thread| before.binary_search(thread).is_err());
            if incomplete && tries < TRIES {
                continue;
            }
            if events.is_empty() {
                return Err(NoWatch::Gone);
            }
            for (event, _) in &events {
                enable(event)?;
            }
            return Ok(Self { events, incomplete });
        }
    }

    /// Threads that were there.
    pub(super) fn threads(&self) -> usize {
        self.events.len()
    }

    /// Ends it. Gives how often the byte was used, by all threads.
    pub(super) fn close(self) -> u64 {
        for (event, _) in &self.events {
            // One that cannot be stopped goes when it is closed.
            if let Err(error) = stop(event) {
                tracing::debug!(%error, "a watchpoint is not stopped");
            }
        }
        self.events.iter().filter_map(|(event, _)| read_count(event).ok()).fold(0, u64::saturating_add)
    }
}

/// The threads of a process, ascending.
fn threads(pid: u32) -> Result<Vec<u32>, NoWatch> {
    let folder = fs::read_dir(format!("/proc/{pid}/task")).map_err(|_| NoWatch::Gone)?;
    let mut threads: Vec<u32> =
        folder.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    if threads.len() > THREADS_MAX {
        return Err(NoWatch::Threads(threads.len()));
    }
    threads.sort_unstable();
    Ok(threads)
}

/// Whether this process can watch its own memory.
///
/// # Errors
/// Why not.
pub fn has_watchpoints() -> Result<(), String> {
    if !HERE.watches {
        return Err(NoWatch::Machine(HERE.arch).to_string());
    }
    let byte = 0_u8;
    let own = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
    let opened = open_watchpoint(own, (&raw const byte).addr() as u64);
    opened.map(drop).map_err(|error| NoWatch::from(error).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_by_its_kind() {
        let check = |error: i32, expect: &str| {
            let words = NoWatch::from(io::Error::from_raw_os_error(error)).to_string();
            assert!(words.starts_with(expect), "{words}");
        };
        check(libc::ENOSPC, "all watchpoints of a thread are in use");
        check(libc::EOPNOTSUPP, "this machine has no hardware watchpoints");
        check(libc::ESRCH, "the process has ended");
        check(libc::EACCES, "the kernel refused: Permission denied");
    }

    #[test]
    fn the_threads_of_this_process_are_listed_and_those_of_none_are_not() {
        let own = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
        assert!(threads(std::process::id()).unwrap().contains(&own));
        assert!(matches!(threads(u32::MAX), Err(NoWatch::Gone)));
    }
}
