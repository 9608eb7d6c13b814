//! Memory of devices, and pinned memory of the host: both are plain memory of this process.
//!
//! Owns: what is allocated. Because: copies really copy, a free of what was never allocated is an error, and the kind
//! of memory decides how long a copy takes. Does not: keep devices' memory apart.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::work::MemoryKind;
use crate::api::Code;

/// Memory of a device.
pub(crate) const TOTAL: u64 = 16 << 30;
/// CUDA's guaranteed alignment.
const ALIGN: usize = 256;

#[derive(Clone, Copy, Debug)]
struct Block {
    bytes: u64,
    place: MemoryKind,
    /// False for memory registered by the program: it is not ours to free.
    owned: bool,
}

/// Everything that is allocated.
#[derive(Debug)]
pub(crate) struct Memory(Mutex<BTreeMap<u64, Block>>);

impl Memory {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    fn blocks(&self) -> MutexGuard<'_, BTreeMap<u64, Block>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Used device memory in bytes.
    pub(crate) fn used(&self) -> u64 {
        self.blocks().values().filter(|block| !block.place.is_host()).map(|block| block.bytes).sum()
    }

    pub(crate) fn allocate(&self, bytes: u64, place: MemoryKind) -> Result<u64, Code> {
        if bytes == 0 {
            return Err(Code::INVALID_VALUE);
        }
        if !place.is_host() && bytes > TOTAL - self.used().min(TOTAL) {
            return Err(Code::OUT_OF_MEMORY);
        }
        let size = usize::try_from(bytes).map_err(|_| Code::OUT_OF_MEMORY)?;
        let layout = Layout::from_size_align(size, ALIGN).map_err(|_| Code::OUT_OF_MEMORY)?;
        // SAFETY: the size is not zero.
        let address = unsafe { alloc_zeroed(layout) };
        if address.is_null() {
            return Err(Code::OUT_OF_MEMORY);
        }
        let address = address.expose_provenance() as u64;
        self.blocks().insert(address, Block { bytes, place, owned: true });
        Ok(address)
    }

    /// Registers memory that the program allocated itself.
    pub(crate) fn register(&self, address: u64, bytes: u64) -> Result<(), Code> {
        let mut blocks = self.blocks();
        if address == 0 || bytes == 0 {
            return Err(Code::INVALID_VALUE);
        }
        if blocks.contains_key(&address) {
            return Err(Code::ALREADY_REGISTERED);
        }
        blocks.insert(address, Block { bytes, place: MemoryKind::Pinned, owned: false });
        Ok(())
    }

    pub(crate) fn unregister(&self, address: u64) -> Result<(), Code> {
        let mut blocks = self.blocks();
        match blocks.get(&address) {
            Some(block) if !block.owned => {
                blocks.remove(&address);
                Ok(())
            }
            _ => Err(Code::NOT_REGISTERED),
        }
    }

    pub(crate) fn free(&self, address: u64) -> Result<(), Code> {
        if address == 0 {
            return Ok(());
        }
        let mut blocks = self.blocks();
        match blocks.get(&address) {
            Some(block) if block.owned => {
                let size = block.bytes as usize;
                blocks.remove(&address);
                drop(blocks);
                if let Ok(layout) = Layout::from_size_align(size, ALIGN) {
                    let at = std::ptr::with_exposed_provenance_mut(address as usize);
                    // SAFETY: allocated above with this very layout, and removed from the list once.
                    unsafe { dealloc(at, layout) };
                }
                Ok(())
            }
            _ => Err(Code::INVALID_VALUE),
        }
    }

    /// The block that contains an address: its start, size and kind.
    pub(crate) fn find(&self, address: u64) -> Option<(u64, u64, MemoryKind)> {
        let blocks = self.blocks();
        let (&begin, block) = blocks.range(..=address).next_back()?;
        (address - begin < block.bytes).then_some((begin, block.bytes, block.place))
    }

    /// The kind of memory at an address; unknown addresses are the program's own.
    pub(crate) fn place(&self, address: u64) -> MemoryKind {
        self.find(address).map_or(MemoryKind::Pageable, |(_, _, place)| place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_never_allocated_cannot_be_freed() {
        let memory = Memory::new();
        let address = memory.allocate(1000, MemoryKind::Device).unwrap();
        assert_eq!(memory.free(address + 1), Err(Code::INVALID_VALUE));
        assert_eq!(memory.free(address), Ok(()));
        assert_eq!(memory.free(address), Err(Code::INVALID_VALUE));
        assert_eq!(memory.free(0), Ok(()));
    }

    #[test]
    fn more_than_there_is_cannot_be_had() {
        let memory = Memory::new();
        assert_eq!(memory.allocate(TOTAL + 1, MemoryKind::Device), Err(Code::OUT_OF_MEMORY));
        assert_eq!(memory.allocate(0, MemoryKind::Device), Err(Code::INVALID_VALUE));
        assert_eq!(memory.used(), 0);
    }

    #[test]
    fn memory_kind_is_known_in_the_middle_of_a_block() {
        let memory = Memory::new();
        let address = memory.allocate(4096, MemoryKind::Pinned).unwrap();
        assert_eq!(memory.place(address + 4095), MemoryKind::Pinned);
        assert_eq!(memory.place(address + 4096), MemoryKind::Pageable);
        assert_eq!(memory.free(address), Ok(()));
    }
}
