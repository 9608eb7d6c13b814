//! Reading another process's memory.
//!
//! Owns: the trait that every reader of a target goes through, and recorded memory.
//! Because: the decoders must run the same on a live process, on recorded bytes and under a fuzzer.
//! Does not: know what the bytes mean.

use std::collections::BTreeMap;

/// Why an address could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum ReadError {
    /// The process, or the address space that it had when the reader was made, is gone.
    #[error("the process or its address space is gone")]
    Gone,
    /// The range is not mapped, or not wholly.
    #[error("the address is not mapped")]
    Unmapped,
    /// The kernel refuses to let this process read the target.
    #[error("not permitted to read the memory of the process")]
    Denied,
}

/// Memory of one address space. Little-endian, 64 bits.
pub trait TargetMemory: Send {
    /// Fills all of `into` with the bytes at `address`, or fails; on failure the content of `into` is unspecified.
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), ReadError>;

    /// The u64 at `address`.
    fn read_u64(&self, address: u64) -> Result<u64, ReadError> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// `length` bytes at `address`. The caller bounds `length`: memory for it is taken before anything is read.
    fn read_vec(&self, address: u64, length: usize) -> Result<Vec<u8>, ReadError> {
        let mut bytes = vec![0; length];
        self.read(address, &mut bytes)?;
        Ok(bytes)
    }

    /// A section of this name that one of the interpreter's files states, as it is there; `None` also where files are not
    /// known.
    fn section(&self, _name: &str) -> Option<Vec<u8>> {
        None
    }
}

/// Recorded memory: some regions with their bytes. For replay, tests and fuzzers.
#[derive(Clone, Debug, Default)]
pub struct RecordedMemory {
    regions: BTreeMap<u64, Vec<u8>>,
}

impl RecordedMemory {
    /// Adds a region; one that begins at the same address is replaced. Reads do not cross from one to the next.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_memory_reads_inside_one_region_only() {
        let mut memory = RecordedMemory::default();
        memory.insert(0x1000, vec![1; 8]);
        memory.insert(0x1008, vec![2; 8]);
        assert_eq!(memory.read_u64(0x1000), Ok(0x0101_0101_0101_0101));
        for address in [0xfff, 0x1001, 0x1010, u64::MAX] {
            assert_eq!(memory.read_u64(address), Err(ReadError::Unmapped), "{address:#x}");
        }
    }
}
