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

/// Threads with state: as many as may run on a big host. When full, the table is cleared.
const THREADS_MAX: usize = 1 << 16;
/// Cached lists: as many as there are operators, and some more for checkpoints.
const LISTS_MAX: usize = 1 << 17;

/// A stage's state of each thread, by process and thread id.
#[derive(Debug)]
pub(crate) struct OpenScopes<T>(FxHashMap<(u32, u32), T>);

impl<T> Default for OpenScopes<T> {
    fn default() -> Self {
        Self(FxHashMap::default())
    }
}

impl<T: Default> OpenScopes<T> {
    /// The state of a record's thread, if it has any.
    #[inline]
    pub(crate) fn get(&self, who: &StackSample) -> Option<&T> {
        self.0.get(&(who.pid, who.tid))
    }

    /// The same, mutable.
    #[inline]
    pub(crate) fn get_mut(&mut self, who: &StackSample) -> Option<&mut T> {
        self.0.get_mut(&(who.pid, who.tid))
    }

    /// The same, mutable; created empty if needed.
    pub(crate) fn entry(&mut self, who: &StackSample) -> &mut T {
        if self.0.len() >= THREADS_MAX {
            self.0.clear();
        }
        self.0.entry((who.pid, who.tid)).or_default()
    }

    /// The state of the threads of a process.
    pub(crate) fn of_process(&mut self, pid: u32) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut().filter(move |((of, _), _)| *of == pid).map(|(_, thread)| thread)
    }

    /// The state of all threads.
    pub(crate) fn all(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.values_mut()
    }

    /// Drops the threads of a process.
    pub(crate) fn forget_process(&mut self, pid: u32) {
        self.0.retain(|(of, _), _| *of != pid);
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
