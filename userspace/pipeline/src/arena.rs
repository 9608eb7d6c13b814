//! Arena: holds the bytes of records until each has been used.
//!
//! Owns: batches of records, and references to single records. Because: records wait to be ordered, and copying each
//! would cost more than decoding it again. Does not: know what a record contains.

/// The place of a record in the [`RecordArena`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordRef {
    batch: u32,
    offset: u32,
    size: u32,
}

/// Batches that still have unused records. A batch is freed with its last record.
#[derive(Debug, Default)]
pub(crate) struct RecordArena {
    batches: Vec<HeldBatch>,
    free: Vec<u32>,
    bytes: usize,
}

#[derive(Debug, Default)]
struct HeldBatch {
    bytes: Vec<u8>,
    waiting: u32,
}

impl RecordArena {
    /// Puts a batch into the arena and returns its number. It holds one reference until [`RecordArena::seal`].
    pub(crate) fn put(&mut self, bytes: Vec<u8>) -> u32 {
        self.bytes += bytes.len();
        let held = HeldBatch { bytes, waiting: 1 };
        match self.free.pop() {
            Some(n) => {
                self.batches[n as usize] = held;
                n
            }
            None => {
                self.batches.push(held);
                self.batches.len() as u32 - 1
            }
        }
    }

    /// Takes the bytes of a batch out of the arena. [`RecordArena::put_back`] must follow.
    pub(crate) fn lend(&mut self, batch: u32) -> Vec<u8> {
        std::mem::take(&mut self.batches[batch as usize].bytes)
    }

    /// Puts lent bytes back.
    pub(crate) fn put_back(&mut self, batch: u32, bytes: Vec<u8>) {
        self.batches[batch as usize].bytes = bytes;
    }

    /// Adds a reference to a record of the batch. The batch stays until [`RecordArena::release`] of that place.
    pub(crate) fn refer(&mut self, batch: u32, offset: usize, size: usize) -> RecordRef {
        self.batches[batch as usize].waiting += 1;
        RecordRef { batch, offset: offset as u32, size: size as u32 }
    }

    /// No further record of the batch will be referred to: drops the reference taken by `put`.
    pub(crate) fn seal(&mut self, batch: u32) {
        self.drop_reference(batch);
    }

    /// The bytes of a record.
    pub(crate) fn record(&self, place: RecordRef) -> &[u8] {
        &self.batches[place.batch as usize].bytes[place.offset as usize..][..place.size as usize]
    }

    /// Drops the reference to a record.
    pub(crate) fn release(&mut self, place: RecordRef) {
        self.drop_reference(place.batch);
    }

    /// Bytes in the arena.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes allocated, including unused capacity.
    pub(crate) fn held_bytes(&self) -> usize {
        let buffers = self.batches.iter().map(|held| held.bytes.capacity()).sum::<usize>();
        buffers + self.batches.capacity() * size_of::<HeldBatch>() + self.free.capacity() * size_of::<u32>()
    }

    fn drop_reference(&mut self, batch: u32) {
        let held = &mut self.batches[batch as usize];
        held.waiting -= 1;
        if held.waiting == 0 {
            self.bytes -= std::mem::take(&mut held.bytes).len();
            self.free.push(batch);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batch_leaves_with_its_last_record_and_frees_its_number() {
        let mut arena = RecordArena::default();
        let batch = arena.put(vec![1, 2, 3, 4]);
        let first = arena.refer(batch, 0, 2);
        let second = arena.refer(batch, 2, 2);
        arena.seal(batch);
        assert_eq!(arena.record(second), [3, 4]);
        arena.release(second);
        assert_eq!(arena.bytes(), 4);
        arena.release(first);
        assert_eq!(arena.bytes(), 0);
        assert_eq!(arena.put(vec![9]), batch);
    }

    #[test]
    fn a_batch_without_usable_records_leaves_when_sealed() {
        let mut arena = RecordArena::default();
        let batch = arena.put(vec![0; 100]);
        arena.seal(batch);
        assert_eq!(arena.bytes(), 0);
    }
}
