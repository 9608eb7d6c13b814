//! Communicators: which ranks exchange data, and the number of each collective among their exchanges.
//!
//! Owns: the communicators of a process by their handles. Because: a handle is meaningful within its process only,
//! while the ranks of a job share an id: that id and the collective's number match collectives across ranks. Does
//! not: know communicators that were created before the profiler attached, or those of a single process
//! (`ncclCommInitAll`): their collectives have no number.

use rustc_hash::FxHashMap;

/// Communicators of a process that are remembered: frameworks have a few dozen. Beyond it, new ones are unknown.
const COMMUNICATORS_MAX: usize = 1 << 12;

/// A communicator as seen by one of its ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Communicator {
    /// The same on all of its ranks.
    pub(super) id: u64,
    /// Number of ranks; 0 if unknown.
    pub(super) ranks: u32,
    /// The own rank; 0 if `ranks` is.
    pub(super) rank: u32,
    /// Collectives so far.
    collectives: u64,
    /// Communicators split from it so far.
    splits: u64,
}

impl Communicator {
    /// A communicator identified by these words, with this many ranks.
    pub(super) fn new(id: impl IntoIterator<Item = u64>, ranks: u32, rank: u32) -> Self {
        Communicator { id: hash(id), ranks, rank, collectives: 0, splits: 0 }
    }
}

/// A collective of a communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Exchange {
    pub(super) of: Communicator,
    /// Number of earlier collectives of its communicator.
    pub(super) ordinal: u64,
}

/// The communicators of one process.
#[derive(Debug, Default)]
pub(super) struct Communicators(FxHashMap<u64, Communicator>);

impl Communicators {
    /// A communicator was made. False if there is no room for it.
    pub(super) fn made(&mut self, handle: u64, communicator: Communicator) -> bool {
        let has_room = self.0.len() < COMMUNICATORS_MAX || self.0.contains_key(&handle);
        if has_room {
            self.0.insert(handle, communicator);
        }
        has_room
    }

    /// A communicator is gone.
    pub(super) fn destroyed(&mut self, handle: u64) {
        self.0.remove(&handle);
    }

    /// The communicator that a rank gets by splitting another one with a color. All ranks take part in a split, so its
    /// number identifies it.
    pub(super) fn split(&mut self, parent: u64, color: u64) -> Option<Communicator> {
        let parent = self.0.get_mut(&parent)?;
        parent.splits += 1;
        Some(Communicator::new([parent.id, parent.splits, color], 0, 0))
    }

    /// The next collective of a communicator.
    pub(super) fn collective(&mut self, handle: u64) -> Option<Exchange> {
        let of = self.0.get_mut(&handle)?;
        let exchange = Exchange { of: *of, ordinal: of.collectives };
        of.collectives += 1;
        Some(exchange)
    }
}

/// FNV-1a over the bytes of words: the same in each run and on each host.
fn hash(words: impl IntoIterator<Item = u64>) -> u64 {
    let bytes = words.into_iter().flat_map(u64::to_le_bytes);
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_agree_on_communicators_and_numbers() {
        let rank = |rank: u32, handle: u64, color: u64| {
            let mut known = Communicators::default();
            known.made(handle, Communicator::new([1, 2, 3], 2, rank));
            let first: Vec<_> = (0..2).filter_map(|_| known.collective(handle)).collect();
            let split = known.split(handle, color).unwrap();
            known.made(handle + 2, split);
            let of_split = known.collective(handle + 2).unwrap();
            (first.iter().map(|of| (of.of.id, of.of.ranks, of.ordinal)).collect::<Vec<_>>(), of_split)
        };
        let ((a, split_a), (b, split_b)) = (rank(0, 0x10, 0), rank(1, 0x77, 0));
        assert_eq!(a, b);
        assert_eq!(
            a.iter().map(|(_, ranks, ordinal)| (*ranks, *ordinal)).collect::<Vec<_>>(),
            [(2, 0), (2, 1)]
        );
        assert_eq!((split_a.of.id, split_a.ordinal), (split_b.of.id, 0));
        let other_color = rank(1, 0x77, 5).1;
        assert_ne!(other_color.of.id, split_a.of.id);
        assert_ne!(split_a.of.id, a[0].0);
    }

    #[test]
    fn a_communicator_without_room_is_refused() {
        let mut known = Communicators::default();
        let made = |known: &mut Communicators, handle| known.made(handle, Communicator::new([handle], 1, 0));
        let most = COMMUNICATORS_MAX as u64;
        assert!((0..most).all(|handle| made(&mut known, handle)));
        assert!(!made(&mut known, most) && made(&mut known, 0), "a known handle has room");
        known.destroyed(0);
        assert!(made(&mut known, most));
    }

    #[test]
    fn what_was_not_seen_has_no_number() {
        let mut known = Communicators::default();
        assert_eq!((known.collective(7), known.split(7, 0)), (None, None));
        known.made(7, Communicator::new([1], 1, 0));
        known.destroyed(7);
        assert_eq!(known.collective(7), None);
    }
}
