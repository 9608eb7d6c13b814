//! Stacks: raw words seen before → the context they led to.
//!
//! Owns: a bounded cache from the bytes of a stack, in its thread and address space, to a node of the tree. Because:
//! most samples repeat a stack, and comparing half a kilobyte is cheaper than sixty look-ups. Does not: trust a hash:
//! the bytes are kept and compared.
//!
//! Two generations bound it: new entries go to the young one; when that is full it becomes the old one, whose entries
//! return to the young one when they are used again and are forgotten otherwise.

use std::hash::{Hash as _, Hasher as _};

use deepctx_profile::tree::NodeId;
use rustc_hash::{FxHashMap, FxHasher};

use super::backward::{Stand, Within};
use super::decode::Sample;
use super::lists::ListId;
use super::symbols::{AwaitingId, SpaceId};
use super::teams::TeamPart;
use super::thunks::ThunkPart;

/// Everything besides the words that decides what a stack means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    thread: NodeId,
    space: SpaceId,
    /// Number of kernel words, ends of the two walks, flags, kind of the record.
    rest: [u8; 6],
    /// The coroutine among the words that is a task's, and who awaits that task.
    awaiting: Option<(u64, AwaitingId)>,
    /// The steps of a backward pass that the thread may be in.
    steps: Within,
    /// The ranges of the program that the thread is in.
    ranges: Option<ListId>,
    /// The work that the thread has a part in, if it is in a team.
    team: Option<ListId>,
    /// The steps of compiled modules that the thread may be in.
    thunks: Option<ListId>,
}

impl Head {
    /// The head of a sample whose thread and space are known.
    pub fn new(
        thread: NodeId,
        space: SpaceId,
        sample: &Sample<'_>,
        awaiting: Option<(u64, AwaitingId)>,
    ) -> Self {
        let fixed = &sample.fixed;
        let [low, high] = fixed.kernel_words.to_ne_bytes();
        // Kinds of records are few.
        let kind = fixed.header.kind as u8;
        let rest = [low, high, fixed.native_end, fixed.kernel_end, fixed.flags, kind];
        let steps = Within::Uncertain;
        Self { thread, space, rest, awaiting, steps, ranges: None, team: None, thunks: None }
    }

    /// The same within steps of a backward pass, within ranges of the program, and with a part in the work of a team.
    pub fn within(self, steps: Within, ranges: Option<ListId>, team: Option<ListId>) -> Self {
        Self { steps, ranges, team, ..self }
    }

    /// The same with steps of compiled modules that the thread may be in.
    pub fn within_thunks(self, thunks: Option<ListId>) -> Self {
        Self { thunks, ..self }
    }

    /// The steps of a backward pass that the thread may be in.
    pub fn steps(&self) -> Within {
        self.steps
    }

    /// The ranges of the program that the thread is in.
    pub fn ranges(&self) -> Option<ListId> {
        self.ranges
    }

    /// The work that the thread has a part in, if it is in a team.
    pub fn team(&self) -> Option<ListId> {
        self.team
    }

    /// The steps of compiled modules that the thread may be in.
    pub fn thunks(&self) -> Option<ListId> {
        self.thunks
    }

    /// The coroutine that is a task's, and who awaits that task.
    pub fn awaiting(&self) -> Option<(u64, AwaitingId)> {
        self.awaiting
    }

    /// The thread's node.
    pub fn thread(&self) -> NodeId {
        self.thread
    }

    /// The address space.
    pub fn space(&self) -> SpaceId {
        self.space
    }
}

/// Hash of a whole stack.
pub fn hash(head: &Head, sample: &Sample<'_>) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(sample.words);
    hasher.write_u32(head.thread.number());
    hasher.write_u32(head.space.0);
    hasher.write(&head.rest);
    if let Some((_, chain)) = head.awaiting {
        hasher.write_u32(chain.0);
    }
    let within = (head.steps, head.ranges, head.team, head.thunks);
    if within != (Within::Uncertain, None, None, None) {
        within.hash(&mut hasher);
    }
    hasher.finish()
}

/// What a stack led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// The context.
    pub node: NodeId,
    /// Number of the reason why one of its frames has no name ([`super::resolve::Resolve`]); 0 when all have.
    pub unnamed: u16,
    /// Steps of backward passes that it is in; [`super::backward::UNSURE`] when it does not tell.
    pub steps: u8,
    /// Where the context is by these.
    pub stand: Stand,
    /// The context ends with the operator that began there.
    pub operator: bool,
    /// What it is to a team that no context tells.
    pub team: TeamPart,
    /// What it is to steps of compiled modules.
    pub thunks: ThunkPart,
}

/// The cache.
#[derive(Debug)]
pub struct Stacks {
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

#[derive(Clone, Copy, Debug)]
struct Entry {
    head: Head,
    begin: u32,
    len: u32,
    known: Known,
}

impl Generation {
    fn get(&self, hash: u64, head: &Head, words: &[u8]) -> Option<Known> {
        let entry = self.entries.get(&hash)?;
        let same = entry.head == *head && self.words[entry.begin as usize..][..entry.len as usize] == *words;
        same.then_some(entry.known)
    }
}

impl Stacks {
    /// A cache that keeps the words of at most `bytes` bytes of stacks.
    pub fn new(bytes: usize) -> Self {
        // Places are 32-bit.
        let generation_bytes = (bytes / 2).min(u32::MAX as usize);
        Self {
            young: Generation::default(),
            old: Generation::default(),
            generation_bytes,
            hits: 0,
            misses: 0,
        }
    }

    /// What this very stack led to before.
    #[inline]
    pub fn get(&mut self, hash: u64, head: &Head, words: &[u8]) -> Option<Known> {
        if let Some(known) = self.young.get(hash, head, words) {
            self.hits += 1;
            return Some(known);
        }
        match self.old.get(hash, head, words) {
            Some(known) => {
                self.hits += 1;
                self.put(hash, head, words, known);
                Some(known)
            }
            None => {
                self.misses += 1;
                None
            }
        }
    }

    /// Remembers a stack. One with the same hash is forgotten.
    pub fn put(&mut self, hash: u64, head: &Head, words: &[u8], known: Known) {
        if words.len() > self.generation_bytes {
            return;
        }
        if self.young.words.len() + words.len() > self.generation_bytes {
            std::mem::swap(&mut self.young, &mut self.old);
            self.young.entries.clear();
            self.young.words.clear();
        }
        let (begin, len) = (self.young.words.len() as u32, words.len() as u32);
        self.young.words.extend_from_slice(words);
        self.young.entries.insert(hash, Entry { head: *head, begin, len, known });
    }

    /// Look-ups that were answered and that were not.
    pub fn hits_and_misses(&self) -> (u64, u64) {
        (self.hits, self.misses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(thread: u32) -> Head {
        Head {
            thread: NodeId::from_number(thread),
            space: SpaceId(0),
            rest: [0; 6],
            awaiting: None,
            steps: Within::Uncertain,
            ranges: None,
            team: None,
            thunks: None,
        }
    }

    fn known(node: u32) -> Known {
        Known {
            node: NodeId::from_number(node),
            unnamed: 0,
            steps: 0,
            stand: Stand::Own,
            operator: false,
            team: TeamPart::None,
            thunks: ThunkPart::Untold,
        }
    }

    #[test]
    fn equal_hashes_of_different_stacks_are_told_apart() {
        let mut stacks = Stacks::new(1 << 10);
        stacks.put(7, &head(1), b"words", known(3));
        assert_eq!(stacks.get(7, &head(1), b"words"), Some(known(3)));
        assert_eq!(stacks.get(7, &head(1), b"other"), None);
        assert_eq!(stacks.get(7, &head(2), b"words"), None);
    }

    #[test]
    fn what_is_used_survives_and_what_is_not_is_forgotten() {
        let mut stacks = Stacks::new(200);
        for n in 0..100u64 {
            stacks.put(n, &head(1), &[n as u8; 10], known(n as u32));
            assert_eq!(stacks.get(0, &head(1), &[0; 10]), Some(known(0)), "after {n}");
        }
        assert_eq!(stacks.get(1, &head(1), &[1; 10]), None);
        assert!(stacks.young.words.len() <= 100 && stacks.old.words.len() <= 100);
    }

    #[test]
    fn a_stack_larger_than_the_cache_is_not_kept() {
        let mut stacks = Stacks::new(20);
        stacks.put(1, &head(1), &[0; 11], known(1));
        assert_eq!(stacks.get(1, &head(1), &[0; 11]), None);
    }
}
