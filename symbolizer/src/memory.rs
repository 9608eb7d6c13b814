//! Reading the memory of another process.
//!
//! Owns: the trait for reading target memory, its implementation for live processes, and recorded memory. Because:
//! decoders must run the same on a live process, on recorded bytes and under a fuzzer. Does not: interpret the bytes.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use deepctx_common::reasons;

reasons! {
    class Unread, page "loss.md";
    /// Why an address could not be read.
    pub enum ReadError {
        /// The process, or the address space that it had when its memory was opened.
        Gone, "memory-gone", "the process or its address space is gone";
        /// The range is not mapped, or not completely.
        Unmapped, "memory-unmapped", "the address is not mapped";
        /// The kernel refuses.
        Denied, "memory-denied", "not permitted to read the memory of the process", helps "run the profiler as root";
    }
}

impl std::error::Error for ReadError {}

/// Memory of one address space. Little-endian, 64 bits.
pub trait TargetMemory: Send {
    /// Fills `into` with the bytes at `address`. On failure the content of `into` is unspecified.
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), ReadError>;

    /// The u64 at `address`.
    fn read_u64(&self, address: u64) -> Result<u64, ReadError> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// `length` bytes at `address`. The caller bounds `length`: the buffer is allocated before anything is read.
    fn read_vec(&self, address: u64, length: usize) -> Result<Vec<u8>, ReadError> {
        let mut bytes = vec![0; length];
        self.read(address, &mut bytes)?;
        Ok(bytes)
    }

    /// The content of a section of this name, from the files of the process; `None` where files are not known.
    fn section(&self, _name: &str) -> Option<Vec<u8>> {
        None
    }
}

/// Recorded memory: regions with their bytes. For replay, tests and fuzzers.
#[derive(Clone, Debug, Default)]
pub struct RecordedMemory {
    regions: BTreeMap<u64, Vec<u8>>,
}

impl RecordedMemory {
    /// Adds a region, replacing one that begins at the same address. Reads do not cross from one region to the next.
    pub fn insert(&mut self, address: u64, bytes: Vec<u8>) {
        self.regions.insert(address, bytes);
    }
}

impl TargetMemory for RecordedMemory {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), ReadError> {
        let (begin, bytes) = self.regions.range(..=address).next_back().ok_or(ReadError::Unmapped)?;
        let from = usize::try_from(address - begin).map_err(|_| ReadError::Unmapped)?;
        let to = from.checked_add(into.len()).ok_or(ReadError::Unmapped)?;
        into.copy_from_slice(bytes.get(from..to).ok_or(ReadError::Unmapped)?);
        Ok(())
    }
}

/// The memory of a live process, read through `/proc/PID/mem`.
///
/// The open file stays bound to the address space that the process had when it was opened: after an exec, an exit or a
/// reuse of the pid, reads fail with [`ReadError::Gone`] and never return the bytes of another program.
#[derive(Debug)]
pub struct ProcessMemory {
    mem: File,
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
        Ok(Self { mem })
    }
}

impl TargetMemory for ProcessMemory {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), ReadError> {
        // File offsets are signed: user addresses are far below this, and the kernel would return EINVAL.
        if address > i64::MAX as u64 {
            return Err(ReadError::Unmapped);
        }
        let mut done = 0;
        while done < into.len() {
            let Some(at) = address.checked_add(done as u64) else { return Err(ReadError::Unmapped) };
            match self.mem.read_at(&mut into[done..], at) {
                // End of file at any address means that the address space has no users any more.
                Ok(0) => return Err(ReadError::Gone),
                Ok(n) => done += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    return Err(ReadError::Denied);
                }
                Err(_) => return Err(ReadError::Unmapped),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_memory_reads_within_one_region_only() {
        let mut memory = RecordedMemory::default();
        memory.insert(0x1000, vec![1; 8]);
        memory.insert(0x1008, vec![2; 8]);
        assert_eq!(memory.read_u64(0x1000), Ok(0x0101_0101_0101_0101));
        for address in [0xfff, 0x1001, 0x1010, u64::MAX] {
            assert_eq!(memory.read_u64(address), Err(ReadError::Unmapped), "{address:#x}");
        }
    }

    #[test]
    fn own_memory_is_readable() {
        let value = 0x1122_3344_5566_7788_u64;
        let memory = ProcessMemory::open(std::process::id()).unwrap();
        assert_eq!(memory.read_u64(std::ptr::from_ref(&value) as u64), Ok(value));
    }

    #[test]
    fn an_unmapped_address_is_unmapped_not_gone() {
        let memory = ProcessMemory::open(std::process::id()).unwrap();
        for address in [0, 8, u64::MAX, u64::MAX - 7, 1 << 63, 0xffff_8000_0000_0000] {
            assert_eq!(memory.read_u64(address), Err(ReadError::Unmapped), "{address:#x}");
        }
    }

    #[test]
    fn the_memory_of_an_exited_process_is_gone() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let memory = ProcessMemory::open(child.id()).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(memory.read_u64(0x1000), Err(ReadError::Gone));
        assert_eq!(ProcessMemory::open(child.id()).err(), Some(ReadError::Gone));
    }
}
