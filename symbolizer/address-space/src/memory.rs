//! The memory of a live process.
//!
//! Owns: the open memory of an address space, and which of its mappings must not be touched. Because: every reader of
//! memory needs the same precautions, however often it reads. Does not: interpret bytes.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use deepctx_common::reason::Reason;

use crate::maps::{self, LineFilter};
use crate::read_error::ReadError;
use crate::reader::{self, Subject};
use crate::served;

/// How long the list of FUSE mappings is valid. For later mappings the reader's deadline applies.
const FRESH: Duration = Duration::from_secs(10);

/// Reads refused because they would have touched a user's FUSE file.
static USER_FILE_READS: AtomicU64 = AtomicU64::new(0);

/// The memory of a live process, read through `/proc/PID/mem`.
///
/// The open file stays bound to the address space that the process had when it was opened: after an exec, an exit or a
/// reuse of the pid, reads fail with [`ReadError::Gone`] and never return the bytes of another program.
///
/// Once a [`reader`] is installed, no [`read`](ProcessMemory::read) takes longer than its deadline, whatever the
/// process maps.
#[derive(Debug)]
pub struct ProcessMemory {
    pid: u32,
    mem: File,
    subject: Subject,
    answered: AtomicBool,
    untouched: Mutex<Option<UserServedMappings>>,
}

/// Mappings of files on a user's FUSE server.
#[derive(Debug)]
struct UserServedMappings {
    read: Instant,
    ranges: Arc<[Range<u64>]>,
}

impl ProcessMemory {
    /// Opens the memory of `pid` (as seen from the pid namespace of this process).
    ///
    /// # Errors
    /// [`ReadError::Gone`] when there is no such process, [`ReadError::Denied`] without the right to ptrace it.
    pub fn open(pid: u32) -> Result<Self, ReadError> {
        let mem = File::open(format!("/proc/{pid}/mem")).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => ReadError::Denied,
            _ => ReadError::Gone,
        })?;
        let (subject, answered) = (Subject::of(pid), AtomicBool::new(false));
        Ok(Self { pid, mem, subject, answered, untouched: Mutex::default() })
    }

    /// Fills `into` with the bytes at `address`. On failure the content of `into` is unspecified.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn read(&self, address: u64, into: &mut [u8]) -> Result<(), ReadError> {
        self.check(address, into.len())?;
        let answered = self.answered.load(Ordering::Relaxed);
        reader::read_memory(&self.subject, &self.mem, address, into, answered)?;
        self.answered.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Has the reader walk through this memory: what its [`Walk`](reader::Walk) answers to a question. `None` without a
    /// reader.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn walk(&self, question: &[u8]) -> Option<Result<Vec<u8>, ReadError>> {
        reader::is_installed().then(|| {
            let avoided = self.untouched();
            let answered = self.answered.load(Ordering::Relaxed);
            let found = reader::walk_memory(&self.subject, &self.mem, &avoided, question, answered);
            match found {
                Ok(_) => self.answered.store(true, Ordering::Relaxed),
                Err(ReadError::UserFile) => count_user_file_read(),
                Err(_) => {}
            }
            found
        })
    }

    /// Like [`ProcessMemory::read`], but without the reader once the process has answered it. No deadline applies then:
    /// not for a thread that others wait for.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn read_here(&self, address: u64, into: &mut [u8]) -> Result<(), ReadError> {
        if !self.answered.load(Ordering::Relaxed) {
            return self.read(address, into);
        }
        self.check(address, into.len())?;
        reader::read_memory_here(&self.subject, &self.mem, address, into)
    }

    fn check(&self, address: u64, length: usize) -> Result<(), ReadError> {
        if reader::is_installed() && self.is_untouched(address, length) {
            count_user_file_read();
            return Err(ReadError::UserFile);
        }
        Ok(())
    }

    fn is_untouched(&self, address: u64, length: usize) -> bool {
        let end = address.saturating_add(length as u64);
        self.untouched().iter().any(|range| range.start < end && address < range.end)
    }

    /// The FUSE mappings, as read at most [`FRESH`] ago.
    fn untouched(&self) -> Arc<[Range<u64>]> {
        let mut untouched = self.untouched.lock().unwrap_or_else(PoisonError::into_inner);
        match &*untouched {
            Some(untouched) if untouched.read.elapsed() < FRESH => Arc::clone(&untouched.ranges),
            _ => {
                let ranges: Arc<[Range<u64>]> = of_users(self.pid).into();
                *untouched = Some(UserServedMappings { read: Instant::now(), ranges: Arc::clone(&ranges) });
                ranges
            }
        }
    }
}

fn count_user_file_read() {
    USER_FILE_READS.fetch_add(1, Ordering::Relaxed);
}

/// Number of reads refused because they would have touched a user's FUSE file.
pub fn user_file_reads() -> (&'static Reason, u64) {
    (ReadError::UserFile.reason(), USER_FILE_READS.load(Ordering::Relaxed))
}

/// The FUSE mappings of a process. Usually there is no user's FUSE server, and nothing has to be read.
fn of_users(pid: u32) -> Vec<Range<u64>> {
    if !served::any() {
        return Vec::new();
    }
    let maps = maps::read(pid, LineFilter::All).unwrap_or_default();
    let mapped = maps.mappings.iter().filter(|m| m.inode != 0 && served::is_served_by_user(m.device));
    mapped.map(|m| m.begin.0..m.end.0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_u64(memory: &ProcessMemory, address: u64) -> Result<u64, ReadError> {
        let mut bytes = [0; 8];
        memory.read(address, &mut bytes).map(|()| u64::from_le_bytes(bytes))
    }

    #[test]
    fn own_memory_is_readable() {
        let value = 0x1122_3344_5566_7788_u64;
        let memory = ProcessMemory::open(std::process::id()).unwrap();
        assert_eq!(read_u64(&memory, std::ptr::from_ref(&value) as u64), Ok(value));
    }

    #[test]
    fn an_unmapped_address_is_unmapped_not_gone() {
        let memory = ProcessMemory::open(std::process::id()).unwrap();
        for address in [0, 8, u64::MAX, u64::MAX - 7, 1 << 63, 0xffff_8000_0000_0000] {
            assert_eq!(read_u64(&memory, address), Err(ReadError::Unmapped), "{address:#x}");
        }
    }

    #[test]
    fn the_memory_of_an_exited_process_is_gone() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let memory = ProcessMemory::open(child.id()).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(read_u64(&memory, 0x1000), Err(ReadError::Gone));
        assert_eq!(ProcessMemory::open(child.id()).err(), Some(ReadError::Gone));
    }
}
