//! Stack cache: raw words seen before → the node they resolved to.
//!
//! Owns: a bounded cache from the bytes of a stack, with its thread, address space and scopes, to a node of the tree.
//! Because: most samples repeat a stack, and comparing half a kilobyte is cheaper than sixty look-ups. Does not:
//! trust a hash (the bytes are kept and compared), or know the meaning of a stage's scopes and notes.
//!
//! Two generations bound it. New entries go into the young one; when that is full, it becomes the old one. An entry
//! of the old generation moves back to the young one when it is hit, and is evicted otherwise.

use std::hash::{Hash as _, Hasher as _};

use deepctx_common::memory::table_bytes;
use deepctx_profile::tree::NodeId;
use rustc_hash::{FxHashMap, FxHasher};

use crate::account::MissingFrames;
use crate::decode::Sample;
use crate::input::ProcessRefusal;
use crate::stages::{Notes, Scopes};
use crate::symbols::{AwaitChainId, SpaceId};

/// Everything besides the words that determines the context of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StackKey {
    /// The thread's node.
    pub(crate) thread: NodeId,
    /// The address space.
    pub(crate) space: SpaceId,
    /// Number of kernel words, ends of the two walks, flags, kind of the record.
    walk: [u8; 6],
    /// The frame of the coroutine that is a task's, and the chain that awaits that task.
    pub(crate) await_chain: Option<(u64, AwaitChainId)>,
    /// Why the kernel programs did not know its process: the same words may mean another reason at another time.
    pub(crate) refusal: Option<ProcessRefusal>,
    /// The scopes that the thread is in.
    pub(crate) scopes: Scopes,
}

impl StackKey {
    /// The key of a stack whose thread and space are known, in no scope, of a process that was not refused.
    pub(crate) fn new(
        thread: NodeId,
        space: SpaceId,
        sample: &Sample<'_>,
        await_chain: Option<(u64, AwaitChainId)>,
    ) -> Self {
        let fixed = &sample.fixed;
        let [low, high] = fixed.kernel_words.to_ne_bytes();
        // Kinds of records are few.
        let kind = fixed.header.kind as u8;
        let walk = [low, high, fixed.native_end, fixed.kernel_end, fixed.flags, kind];
        Self { thread, space, walk, await_chain, refusal: None, scopes: Scopes::default() }
    }

    fn has_kernel_words(&self) -> bool {
        let [low, high, ..] = self.walk;
        [low, high] != [0, 0]
    }

    /// Hash of the key and the words.
    pub(crate) fn hash(&self, words: &[u8]) -> u64 {
        let mut hasher = FxHasher::default();
        hasher.write(words);
        hasher.write_u32(self.thread.number());
        hasher.write_u32(self.space.0);
        hasher.write(&self.walk);
        if let Some((_, chain)) = self.await_chain {
            hasher.write_u32(chain.0);
        }
        if let Some(refusal) = self.refusal {
            refusal.hash(&mut hasher);
        }
        if self.scopes != Scopes::default() {
            self.scopes.hash(&mut hasher);
        }
        hasher.finish()
    }
}

/// The cached result of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CachedStack {
    /// The context.
    pub(crate) node: NodeId,
    /// What is missing in it.
    pub(crate) missing: MissingFrames,
    /// The stages' conclusions.
    pub(crate) notes: Notes,
}

/// The cache.
#[derive(Debug)]
pub(crate) struct StackCache {
    young: Generation,
    old: Generation,
    generation_bytes: usize,
    hits: u64,
    misses: u64,
}

#[derive(Debug, Default)]
struct Generation {
    entries: FxHashMap<u64, Entry>,
    words: Vec<u8>,
}

/// Size of an entry besides its words.
const ENTRY_BYTES: usize = size_of::<(u64, Entry)>();

#[derive(Clone, Copy, Debug)]
struct Entry {
    key: StackKey,
    begin: u32,
    len: u32,
    stack: CachedStack,
}

impl Generation {
    /// Bytes in use.
    fn bytes(&self) -> usize {
        self.words.len() + self.entries.len() * ENTRY_BYTES
    }

    fn get(&self, hash: u64, key: &StackKey, words: &[u8]) -> Option<CachedStack> {
        let entry = self.entries.get(&hash)?;
        let same = entry.key == *key && self.words[entry.begin as usize..][..entry.len as usize] == *words;
        same.then_some(entry.stack)
    }
}

impl StackCache {
    /// A cache of at most this many bytes: words and results.
    pub(crate) fn new(bytes: usize) -> Self {
        // Offsets are 32-bit.
        let generation_bytes = (bytes / 2).min(u32::MAX as usize);
        Self {
            young: Generation::default(),
            old: Generation::default(),
            generation_bytes,
            hits: 0,
            misses: 0,
        }
    }

    /// The result of exactly this stack.
    #[inline]
    pub(crate) fn get(&mut self, hash: u64, key: &StackKey, words: &[u8]) -> Option<CachedStack> {
        if let Some(stack) = self.young.get(hash, key, words) {
            self.hits += 1;
            return Some(stack);
        }
        match self.old.get(hash, key, words) {
            Some(stack) => {
                self.hits += 1;
                self.put(hash, key, words, stack);
                Some(stack)
            }
            None => {
                self.misses += 1;
                None
            }
        }
    }

    /// Caches a stack, replacing one with the same hash.
    pub(crate) fn put(&mut self, hash: u64, key: &StackKey, words: &[u8], stack: CachedStack) {
        let bytes = words.len() + ENTRY_BYTES;
        if bytes > self.generation_bytes {
            return;
        }
        if self.young.bytes() + bytes > self.generation_bytes {
            std::mem::swap(&mut self.young, &mut self.old);
            self.young.entries.clear();
            self.young.words.clear();
        }
        let (begin, len) = (self.young.words.len() as u32, words.len() as u32);
        self.young.words.extend_from_slice(words);
        self.young.entries.insert(hash, Entry { key: *key, begin, len, stack });
    }

    /// Forgets the stacks with kernel words.
    pub(crate) fn forget_kernel(&mut self) {
        for generation in [&mut self.young, &mut self.old] {
            generation.entries.retain(|_, entry| !entry.key.has_kernel_words());
        }
    }

    /// Bytes in memory.
    pub(crate) fn held_bytes(&self) -> usize {
        let held = |of: &Generation| of.words.capacity() + table_bytes(of.entries.capacity(), ENTRY_BYTES);
        held(&self.young) + held(&self.old)
    }

    /// Look-ups that hit and that missed.
    pub(crate) fn hits_and_misses(&self) -> (u64, u64) {
        (self.hits, self.misses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(thread: u32) -> StackKey {
        StackKey {
            thread: NodeId::from_number(thread),
            space: SpaceId(0),
            walk: [0; 6],
            await_chain: None,
            refusal: None,
            scopes: Scopes::default(),
        }
    }

    fn stack(node: u32) -> CachedStack {
        CachedStack {
            node: NodeId::from_number(node),
            missing: MissingFrames::default(),
            notes: Notes::default(),
        }
    }

    #[test]
    fn equal_hashes_of_different_stacks_are_told_apart() {
        let mut stacks = StackCache::new(1 << 12);
        stacks.put(7, &key(1), b"words", stack(3));
        assert_eq!(stacks.get(7, &key(1), b"words"), Some(stack(3)));
        assert_eq!(stacks.get(7, &key(1), b"other"), None);
        assert_eq!(stacks.get(7, &key(2), b"words"), None);
    }

    #[test]
    fn what_is_used_survives_and_what_is_not_is_forgotten() {
        let generation_bytes = 10 * (10 + ENTRY_BYTES);
        let mut stacks = StackCache::new(2 * generation_bytes);
        for n in 0..100u64 {
            stacks.put(n, &key(1), &[n as u8; 10], stack(n as u32));
            assert_eq!(stacks.get(0, &key(1), &[0; 10]), Some(stack(0)), "after {n}");
        }
        assert_eq!(stacks.get(1, &key(1), &[1; 10]), None);
        assert!(stacks.young.bytes() <= generation_bytes && stacks.old.bytes() <= generation_bytes);
    }

    #[test]
    fn only_stacks_with_kernel_words_are_forgotten_with_the_kernel() {
        let mut stacks = StackCache::new(1 << 12);
        let in_kernel = StackKey { walk: [0, 1, 0, 0, 0, 0], ..key(1) };
        stacks.put(7, &in_kernel, b"words", stack(3));
        stacks.put(8, &key(1), b"words", stack(4));
        stacks.forget_kernel();
        assert_eq!(stacks.get(7, &in_kernel, b"words"), None);
        assert_eq!(stacks.get(8, &key(1), b"words"), Some(stack(4)));
    }

    #[test]
    fn a_stack_larger_than_the_cache_is_not_kept() {
        let mut stacks = StackCache::new(2 * (10 + ENTRY_BYTES));
        stacks.put(1, &key(1), &[0; 11], stack(1));
        assert_eq!(stacks.get(1, &key(1), &[0; 11]), None);
        stacks.put(1, &key(1), &[0; 10], stack(1));
        assert_eq!(stacks.get(1, &key(1), &[0; 10]), Some(stack(1)));
    }
}
