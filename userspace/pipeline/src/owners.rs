//! Owners: the user of a process → the number by which the profile's tables know them.
//!
//! Owns: these numbers, and a bounded cache by process. Because: what a process adds to the profile counts as its
//! user's, and asking the system for each record would cost more than the record. Does not: limit anything.

use deepctx_common::memory::table_bytes;
use deepctx_profile::owner::{OWNERS_MAX, Owner};
use rustc_hash::FxHashMap;

use crate::symbols::ProcessFacts;

/// Cached processes; when full, the cache is cleared and refilled.
const PROCESSES_MAX: usize = 1 << 16;

/// The owners so far.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    of_process: FxHashMap<u32, Owner>,
    /// By user; processes whose user is not known have one of their own. Users without a number share the last one.
    of_user: FxHashMap<Option<u32>, Owner>,
}

impl Owners {
    /// The owner of what a process adds.
    #[inline]
    pub(crate) fn of(&mut self, pid: u32, facts: &mut impl ProcessFacts) -> Owner {
        match self.of_process.get(&pid) {
            Some(owner) => *owner,
            None => self.learn(pid, facts),
        }
    }

    #[cold]
    fn learn(&mut self, pid: u32, facts: &mut impl ProcessFacts) -> Owner {
        let user = facts.accountable_user(pid);
        // The first number is that of the capture itself.
        let next = Owner::from_number(self.of_user.len() + 1);
        let owner = match self.of_user.get(&user) {
            Some(owner) => *owner,
            None if self.of_user.len() >= OWNERS_MAX => next,
            None => *self.of_user.entry(user).or_insert(next),
        };
        if self.of_process.len() >= PROCESSES_MAX {
            self.of_process.clear();
        }
        self.of_process.insert(pid, owner);
        owner
    }

    /// A process begins, or executes another program: its user may be another one than that of its number before.
    pub(crate) fn forget(&mut self, pid: u32) {
        self.of_process.remove(&pid);
    }

    /// Bytes in memory.
    pub(crate) fn held_bytes(&self) -> usize {
        table_bytes(self.of_process.capacity(), size_of::<(u32, Owner)>())
            + table_bytes(self.of_user.capacity(), size_of::<(Option<u32>, Owner)>())
    }
}
