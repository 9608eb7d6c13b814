//! Refusals: processes that the kernel programs got no unwind data of, and that the pipeline does not know of yet.
//!
//! Owns: which error means which refusal, and how many wait. Because: kernel programs only see that they do not know a
//! process, and who reads its stacks must learn that this will not pass by itself. Does not: refuse or evict, or send.

use std::collections::HashMap;

use deepctx_common::memory::table_bytes;
use deepctx_common::unwind::PROCESSES_MAX;
use deepctx_pipeline::input::{ProcessRefusal, RefusedProcess};

use super::table_error::TableError;

/// Processes that may wait: as many as the kernel programs can know.
const WAITING_MAX: usize = PROCESSES_MAX as usize;

/// Those that wait.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    waiting: HashMap<u32, RefusedProcess>,
    /// Refusals for which there was no room.
    left_out: u64,
}

impl Refusals {
    /// A process found no room when its mappings were read at this time.
    pub(crate) fn refused(&mut self, pid: u32, read_ns: u64, error: &TableError) {
        let refusal = match error {
            TableError::OverShare { .. } => ProcessRefusal::OverShare,
            TableError::HeldBack { .. } => ProcessRefusal::GaveWay,
            // The kernel refuses an entry where its map is full.
            TableError::Full { .. } | TableError::Map { .. } | TableError::Load(_) => ProcessRefusal::NoRoom,
        };
        self.add(RefusedProcess { pid, since_ns: read_ns, refusal });
    }

    /// A process was evicted.
    pub(crate) fn evicted(&mut self, pid: u32, now_ns: u64) {
        self.add(RefusedProcess { pid, since_ns: now_ns, refusal: ProcessRefusal::GaveWay });
    }

    /// A process was accepted, has ended, or runs another program.
    pub(crate) fn forget(&mut self, pid: u32) {
        self.waiting.remove(&pid);
    }

    /// Hands over all that wait, and how many were left out; they go on waiting if `take` returns false.
    pub(crate) fn hand_on(&mut self, take: impl FnOnce(Vec<RefusedProcess>, u64) -> bool) {
        let are_any = !self.waiting.is_empty() || self.left_out > 0;
        if are_any && take(self.waiting.values().copied().collect(), self.left_out) {
            *self = Self::default();
        }
    }

    /// Bytes in this process's memory.
    pub(crate) fn held_bytes(&self) -> usize {
        table_bytes(self.waiting.capacity(), size_of::<(u32, RefusedProcess)>())
    }

    /// One without room comes again with its next scan.
    fn add(&mut self, refused: RefusedProcess) {
        if let Some(waiting) = self.waiting.get_mut(&refused.pid) {
            // It has had no data since the first time.
            waiting.refusal = refused.refusal;
        } else if self.waiting.len() < WAITING_MAX {
            self.waiting.insert(refused.pid, refused);
        } else {
            self.left_out += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::room::Room;
    use super::*;

    #[test]
    fn refusals_wait_until_they_are_taken() {
        let mut refusals = Refusals::default();
        refusals.hand_on(|_, _| panic!("nothing waits"));
        refusals.evicted(7, 100);
        refusals.evicted(8, 100);
        refusals.forget(8);
        // It is refused again while it waits: the latest reason counts, since the first time.
        let error = TableError::OverShare { room: Room::Mappings, user: 1000, percent: 80 };
        refusals.refused(7, 200, &error);
        let expect = RefusedProcess { pid: 7, since_ns: 100, refusal: ProcessRefusal::OverShare };
        for is_taken in [false, true] {
            refusals.hand_on(|refused, left_out| {
                assert_eq!((&refused[..], left_out), (&[expect][..], 0));
                is_taken
            });
        }
        refusals.hand_on(|_, _| panic!("it was taken"));
    }

    #[test]
    fn only_so_many_refusals_wait() {
        let mut refusals = Refusals::default();
        let most = PROCESSES_MAX;
        (0..most + 3).for_each(|pid| refusals.evicted(pid, 100));
        // It waits already.
        refusals.evicted(0, 200);
        refusals.hand_on(|refused, left_out| {
            assert_eq!((refused.len(), left_out), (WAITING_MAX, 3));
            true
        });
    }
}
