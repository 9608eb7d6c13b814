//! Scopes that threads are in: ranges, autograd nodes, thunks, operators.
//!
//! Owns: the per-thread state of each stage, bounded and dropped with the process ([`OpenScopes`]); and a number for
//! each list of scopes ([`ScopeLists`]), since the same stack means something else within other scopes, and stack
//! caches must tell such lists apart cheaply. Because: four stages track the open scopes of a thread, and differ only
//! in what opens and closes one. Does not: know what a scope is, or when it ends ([`crate::loss_windows`] says when
//! an end may have been missed).

use std::hash::Hash;

use deepctx_common::record::StackSample;
use rustc_hash::FxHashMap;

use crate::by_process::ByProcess;

/// Threads with state: as many as may run on a big host. When full, the table is cleared for a new one.
const THREADS_MAX: usize = 1 << 16;
/// Cached lists: as many as there are operators, and some more for checkpoints.
const LISTS_MAX: usize = 1 << 17;

/// A stage's state of each thread, by process and thread id. A range may end in any thread of its process.
#[derive(Debug)]
pub(crate) struct OpenScopes<T>(ByProcess<u32, T, THREADS_MAX>);

impl<T> Default for OpenScopes<T> {
    fn default() -> Self {
        Self(ByProcess::default())
    }
}

impl<T: Default> OpenScopes<T> {
    /// The state of a record's thread, if it has any.
    #[inline]
    pub(crate) fn get(&self, who: &StackSample) -> Option<&T> {
        self.0.get(who.pid, &who.tid)
    }

    /// The same, mutable.
    #[inline]
    pub(crate) fn get_mut(&mut self, who: &StackSample) -> Option<&mut T> {
        self.0.get_mut(who.pid, &who.tid)
    }

    /// The same, mutable; created empty if needed.
    pub(crate) fn entry(&mut self, who: &StackSample) -> &mut T {
        self.0.get_or_insert_with(who.pid, who.tid, T::default)
    }

    /// Whether [`OpenScopes::entry`] clears the table for a record's thread.
    pub(crate) fn is_full_for(&self, who: &StackSample) -> bool {
        self.0.is_full() && self.get(who).is_none()
    }

    /// The state of the threads of a process.
    pub(crate) fn of_process(&mut self, pid: u32) -> impl Iterator<Item = &mut T> {
        self.0.of_process(pid)
    }

    /// The state of all threads.
    pub(crate) fn all(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.values_mut()
    }

    /// Drops the threads of a process.
    pub(crate) fn forget_process(&mut self, pid: u32) {
        self.0.remove(pid);
    }
}

/// The number of a list; never reused for another list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ScopeId(u32);

/// Lists by number, and numbers by list.
#[derive(Debug)]
pub(crate) struct ScopeLists<T> {
    numbers: FxHashMap<Box<[T]>, ScopeId>,
    lists: FxHashMap<ScopeId, Box<[T]>>,
    given: u32,
}

impl<T> Default for ScopeLists<T> {
    fn default() -> Self {
        Self { numbers: FxHashMap::default(), lists: FxHashMap::default(), given: 0 }
    }
}

impl<T: Copy + Eq + Hash> ScopeLists<T> {
    /// The number of a list; `None` for an empty one, or when all numbers are used up.
    pub(crate) fn id(&mut self, list: &[T]) -> Option<ScopeId> {
        if list.is_empty() {
            return None;
        }
        if let Some(id) = self.numbers.get(list) {
            return Some(*id);
        }
        if self.lists.len() >= LISTS_MAX {
            self.numbers.clear();
            self.lists.clear();
        }
        let id = ScopeId(self.given);
        self.given = self.given.checked_add(1)?;
        self.numbers.insert(list.into(), id);
        self.lists.insert(id, list.into());
        Some(id)
    }

    /// The list of a number; `None` if it was dropped.
    pub(crate) fn get(&self, id: ScopeId) -> Option<&[T]> {
        self.lists.get(&id).map(|list| &**list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(pid: u32, tid: u32) -> StackSample {
        StackSample { pid, tid, ..StackSample::default() }
    }

    #[test]
    fn a_full_table_keeps_its_threads_until_another_comes() {
        let mut scopes = OpenScopes::<u32>::default();
        for tid in 0..THREADS_MAX as u32 {
            *scopes.entry(&thread(tid % 7, tid)) = tid;
        }
        assert_eq!(*scopes.entry(&thread(3, 3)), 3);
        let threads_of_3 = scopes.of_process(3).count();
        scopes.forget_process(3);
        assert_eq!((scopes.get(&thread(3, 3)), scopes.get(&thread(4, 4))), (None, Some(&4)));
        assert_eq!((scopes.of_process(3).count(), scopes.all().count()), (0, THREADS_MAX - threads_of_3));
        // There is room again, until it is used up.
        (0..threads_of_3 as u32).for_each(|tid| *scopes.entry(&thread(9, tid)) = tid);
        assert_eq!(scopes.get(&thread(4, 4)), Some(&4));
        assert!(scopes.is_full_for(&thread(10, 1)) && !scopes.is_full_for(&thread(4, 4)));
        scopes.entry(&thread(10, 1));
        assert_eq!(scopes.get(&thread(4, 4)), None);
        assert_eq!(scopes.all().count(), 1);
    }

    #[test]
    fn lists_have_numbers_of_their_own() {
        let mut lists = ScopeLists::default();
        let one = lists.id(&[1]).unwrap();
        let two = lists.id(&[1, 2]).unwrap();
        assert_ne!(one, two);
        assert_eq!(lists.id(&[1]), Some(one));
        assert_eq!(lists.id(&[]), None);
        assert_eq!(lists.get(two), Some(&[1, 2][..]));
    }

    #[test]
    fn a_number_outlives_its_list_and_is_not_given_again() {
        let mut lists = ScopeLists::default();
        let first = lists.id(&[0]).unwrap();
        for n in 1..=LISTS_MAX {
            lists.id(&[n]);
        }
        assert_eq!(lists.get(first), None);
        assert_ne!(lists.id(&[0]), Some(first));
    }
}
