//! Lists: what a thread was within, under a number.
//!
//! Owns: [`Lists`]. Because: the same stack means something else within other steps or ranges, so whoever remembers stacks
//! must tell such lists apart, cheaply. Does not: know what is listed.

use std::hash::Hash;

use rustc_hash::FxHashMap;

/// Lists that are remembered: as many as there are operators, and some more for checkpoints.
const LISTS_MAX: usize = 1 << 17;

/// The number of a list. A number is never used for another list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ListId(u32);

/// Lists by number, and numbers by list.
#[derive(Debug)]
pub(crate) struct Lists<T> {
    numbers: FxHashMap<Box<[T]>, ListId>,
    lists: FxHashMap<ListId, Box<[T]>>,
    given: u32,
}

impl<T> Default for Lists<T> {
    fn default() -> Self {
        Self { numbers: FxHashMap::default(), lists: FxHashMap::default(), given: 0 }
    }
}

impl<T: Copy + Eq + Hash> Lists<T> {
    /// The number of a list; `None` of an empty one, or when all numbers were given.
    pub(crate) fn id(&mut self, list: &[T]) -> Option<ListId> {
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
        let id = ListId(self.given);
        self.given = self.given.checked_add(1)?;
        self.numbers.insert(list.into(), id);
        self.lists.insert(id, list.into());
        Some(id)
    }

    /// The list of a number; `None` when it was forgotten.
    pub(crate) fn get(&self, id: ListId) -> Option<&[T]> {
        self.lists.get(&id).map(|list| &**list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_numbers_of_their_own() {
        let mut lists = Lists::default();
        let one = lists.id(&[1]).unwrap();
        let two = lists.id(&[1, 2]).unwrap();
        assert_ne!(one, two);
        assert_eq!(lists.id(&[1]), Some(one));
        assert_eq!(lists.id(&[]), None);
        assert_eq!(lists.get(two), Some(&[1, 2][..]));
    }

    #[test]
    fn a_number_outlives_its_list_and_is_not_given_again() {
        let mut lists = Lists::default();
        let first = lists.id(&[0]).unwrap();
        for n in 1..=LISTS_MAX {
            lists.id(&[n]);
        }
        assert_eq!(lists.get(first), None);
        assert_ne!(lists.id(&[0]), Some(first));
    }
}
