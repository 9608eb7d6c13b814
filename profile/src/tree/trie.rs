//! The bare shape of a tree: nodes with a parent and a key.
//!
//! Owns: finding and making the child of a node with a key. Because: the calling context tree and the trees merged
//! from it for a view have the same shape and must be equally fast. Does not: hold values, or limit its size.

use std::hash::BuildHasher as _;

use deepctx_common::memory::table_bytes;
use hashbrown::HashTable;
use rustc_hash::FxBuildHasher;

use crate::intern::Id;

/// A tree of numbered nodes; 0 is the root. A parent's number is below its children's.
#[derive(Clone, Debug)]
pub(crate) struct Trie<K> {
    links: Vec<Link<K>>,
    /// All children but the first, by parent and key, which stand in their links: a table with keys of its own would
    /// be three times as large.
    others: HashTable<u32>,
}

#[derive(Debug)]
struct Link<K> {
    parent: u32,
    key: Id<K>,
    /// [`NONE`] when there is no child yet.
    first_child: u32,
}

impl<K> Clone for Link<K> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<K> Copy for Link<K> {}

/// No first child: the root is never a child.
const NONE: u32 = 0;

impl<K> Trie<K> {
    pub(crate) fn new(root: Id<K>) -> Self {
        Trie { links: vec![Link { parent: 0, key: root, first_child: NONE }], others: HashTable::new() }
    }

    #[inline]
    pub(crate) fn find(&self, parent: u32, key: Id<K>) -> Option<u32> {
        let first = self.links[parent as usize].first_child;
        // Read before the test for NONE, so that descending an existing stack has one branch that is always taken.
        if self.links[first as usize].key == key && first != NONE {
            return Some(first);
        }
        self.find_other(parent, key, first)
    }

    #[inline]
    fn find_other(&self, parent: u32, key: Id<K>, first: u32) -> Option<u32> {
        if first == NONE {
            return None;
        }
        let is_child = |node: &u32| {
            let link = &self.links[*node as usize];
            link.parent == parent && link.key == key
        };
        self.others.find(hash(parent, key), is_child).copied()
    }

    /// Makes a child that [`Trie::find`] did not find.
    pub(crate) fn insert(&mut self, parent: u32, key: Id<K>) -> u32 {
        // Callers keep the tree below this bound; beyond it, sums would still be right, at the root.
        let Ok(node) = u32::try_from(self.links.len()) else { return 0 };
        self.links.push(Link { parent, key, first_child: NONE });
        let first = &mut self.links[parent as usize].first_child;
        if *first == NONE {
            *first = node;
        } else {
            let links = &self.links;
            let hash_of = |node: &u32| hash(links[*node as usize].parent, links[*node as usize].key);
            self.others.insert_unique(hash(parent, key), node, hash_of);
        }
        node
    }

    pub(crate) fn find_or_insert(&mut self, parent: u32, key: Id<K>) -> u32 {
        match self.find(parent, key) {
            Some(node) => node,
            None => self.insert(parent, key),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.links.len()
    }

    /// Bytes in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.links.capacity() * size_of::<Link<K>>() + table_bytes(self.others.capacity(), size_of::<u32>())
    }

    #[inline]
    pub(crate) fn parent(&self, node: u32) -> u32 {
        self.links[node as usize].parent
    }

    #[inline]
    pub(crate) fn key(&self, node: u32) -> Id<K> {
        self.links[node as usize].key
    }
}

#[inline]
fn hash<K>(parent: u32, key: Id<K>) -> u64 {
    FxBuildHasher.hash_one(u64::from(parent) << 32 | u64::from(key.number()))
}
