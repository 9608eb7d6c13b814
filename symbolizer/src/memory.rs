//! Reading the memory of another process.
//!
//! Owns: the trait for reading target memory, and recorded memory. Because: decoders must run the same on a live
//! process, on recorded bytes and under a fuzzer. Does not: interpret the bytes, or read live processes
//! ([`ProcessMemory`]).

use std::collections::BTreeMap;

use deepctx_address_space::user_file_reads;
pub use deepctx_address_space::{ProcessMemory, ReadError, reader};
use deepctx_common::reason::Reason;

/// Failed reads of process memory so far, given up so that others are not delayed.
pub fn gaps() -> [(&'static Reason, u64); 3] {
    let [silent, refused] = reader::gaps();
    [silent, refused, user_file_reads()]
}

/// Memory of one address space. Little-endian, 64 bits.
pub trait TargetMemory: Send + Sync {
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

    /// Has the memory reader walk from object to object: its answer to a question ([`ProcessMemory::walk`]). `None`
    /// without a reader.
    fn walk(&self, _question: &[u8]) -> Option<Result<Vec<u8>, ReadError>> {
        None
    }

    /// The content of a section of this name, from the files of the process; `None` if files are unknown.
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

impl TargetMemory for ProcessMemory {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), ReadError> {
        Self::read(self, address, into)
    }

    fn walk(&self, question: &[u8]) -> Option<Result<Vec<u8>, ReadError>> {
        Self::walk(self, question)
    }
}

impl TargetMemory for reader::WalkedMemory<'_> {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), ReadError> {
        Self::read(self, address, into)
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
}
