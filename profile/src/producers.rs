//! Producers: the instructions of kernels that sampled ones wait for.
//!
//! Owns: [`Producers`]. Because: a stall reason belongs to the instruction that waits, and what can be changed is the
//! load that it waits for. Does not: decode instructions; what is known of them is modelled from the code.

use std::collections::BTreeMap;

use crate::intern::FrameId;

/// Waiting instructions with producers: those sampled first, which are the ones sampled most.
pub const INSTRUCTIONS_MAX: usize = 1 << 12;
/// Candidates of an instruction: three, and the reason why there may be others.
pub const CANDIDATES_MAX: usize = 4;

/// What sampled instructions wait for. Both are frames: [`Frame::Instruction`](crate::Frame::Instruction), or, of what
/// is not known, [`Frame::Unresolved`](crate::Frame::Unresolved) with the reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Producers {
    of: BTreeMap<FrameId, Vec<FrameId>>,
    /// How often there was no room for an instruction.
    refused: u64,
}

impl Producers {
    /// Adds a candidate, after those that are there already: code of one name may have several versions.
    pub fn add(&mut self, waiting: FrameId, producer: FrameId) {
        if self.of.len() >= INSTRUCTIONS_MAX && !self.of.contains_key(&waiting) {
            self.refused = self.refused.saturating_add(1);
            return;
        }
        let known = self.of.entry(waiting).or_default();
        if known.len() < CANDIDATES_MAX && !known.contains(&producer) {
            known.push(producer);
        }
    }

    /// What an instruction waits for, the nearest candidate first; empty if that is not known.
    pub fn of(&self, waiting: FrameId) -> &[FrameId] {
        self.of.get(&waiting).map_or(&[], Vec::as_slice)
    }

    /// Every waiting instruction with its candidates.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (FrameId, &[FrameId])> {
        self.of.iter().map(|(waiting, producers)| (*waiting, producers.as_slice()))
    }

    /// Adds those of another profile; `frame` maps its frames.
    pub fn merge(&mut self, other: &Producers, frame: impl Fn(FrameId) -> FrameId) {
        for (waiting, producers) in other.iter() {
            for producer in producers {
                self.add(frame(waiting), frame(*producer));
            }
        }
        self.refused = self.refused.saturating_add(other.refused);
    }

    /// How often there was no room for an instruction.
    pub fn refused(&self) -> u64 {
        self.refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_are_kept_once_and_in_their_order() {
        let frame = FrameId::from_number;
        let mut producers = Producers::default();
        for producer in [9, 8, 9, 7, 6, 5] {
            producers.add(frame(10), frame(producer));
        }
        assert_eq!(producers.of(frame(10)), [9, 8, 7, 6].map(frame));
        assert!(producers.of(frame(9)).is_empty());
        let mut merged = Producers::default();
        merged.merge(&producers, |id| frame(id.number() + 100));
        assert_eq!(merged.of(frame(110)), [109, 108, 107, 106].map(frame));
    }

    #[test]
    fn waiting_instructions_are_bounded_and_counted() {
        let frame = FrameId::from_number;
        let mut producers = Producers::default();
        for waiting in 0..INSTRUCTIONS_MAX as u32 + 2 {
            producers.add(frame(waiting), frame(0));
        }
        assert_eq!((producers.iter().len(), producers.refused()), (INSTRUCTIONS_MAX, 2));
        producers.add(frame(1), frame(3));
        assert_eq!(producers.of(frame(1)), [0, 3].map(frame));
    }
}
