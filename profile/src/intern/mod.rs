//! Interning: each distinct frame, like each distinct text, is stored once and referred to by a handle.
//!
//! Owns: [`Frames`]. Because: a capture sees the same frames billions of times; equality must be one integer
//! comparison. Does not: forget anything, or know what a frame means.
//!
//! Bounded like [`Strings`]: at the bound, new entries become one labeled stand-in and are counted; existing entries
//! are still found.

mod id;
mod strings;

use deepctx_common::memory::table_bytes;
use rustc_hash::FxHashMap;

use crate::frame::Frame;
use crate::owner::{Owner, OwnerShares};
pub use id::Id;
pub use strings::{StrId, Strings, TEXT_MAX};

/// Handle of an interned frame.
pub type FrameId = Id<Frame>;

impl FrameId {
    /// The root of every tree.
    pub const ROOT: FrameId = FrameId::from_number(0);
    /// Stands for contexts that were refused because the tree was full.
    pub const TREE_FULL: FrameId = FrameId::from_number(1);
    /// Stands for frames that were refused because the table was full.
    pub const TABLE_FULL: FrameId = FrameId::from_number(2);
}

/// Interned frames.
#[derive(Clone, Debug)]
pub struct Frames {
    frames: Vec<Frame>,
    ids: FxHashMap<Frame, FrameId>,
    frames_max: usize,
    shares: OwnerShares,
}

impl Frames {
    /// A table of at most `frames_max` frames.
    pub fn new(frames_max: usize) -> Self {
        let mut frames = Frames {
            frames: Vec::new(),
            ids: FxHashMap::default(),
            frames_max: usize::MAX,
            shares: OwnerShares::default(),
        };
        for reserved in [Frame::Root, Frame::TreeFull, Frame::TableFull] {
            frames.intern(reserved);
        }
        frames.frames_max = frames_max;
        frames
    }

    /// The handle of `frame`.
    pub fn intern(&mut self, frame: Frame) -> FrameId {
        if let Some(&id) = self.ids.get(&frame) {
            return id;
        }
        let most = self.frames_max.min(u32::MAX as usize);
        if self.shares.take(self.frames.len(), 1, most).is_err() {
            return FrameId::TABLE_FULL;
        }
        let id = FrameId::from_number(self.frames.len() as u32);
        self.frames.push(frame);
        self.ids.insert(frame, id);
        id
    }

    /// From now on, new frames count as this owner's.
    #[inline]
    pub(crate) fn grow_for(&mut self, owner: Owner) {
        self.shares.grow_for(owner);
    }

    /// The frame of a handle; [`Frame::TableFull`] for a handle of another table.
    pub fn get(&self, id: FrameId) -> Frame {
        self.frames.get(id.index()).copied().unwrap_or(Frame::TableFull)
    }

    /// Every frame with its handle, oldest first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (FrameId, Frame)> + '_ {
        self.frames.iter().enumerate().map(|(number, &frame)| (FrameId::from_number(number as u32), frame))
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        self.frames.capacity() * size_of::<Frame>()
            + table_bytes(self.ids.capacity(), size_of::<(Frame, FrameId)>())
    }

    /// How many frames there are.
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Never true: the reserved frames always exist.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Calls of [`Frames::intern`] answered with [`FrameId::TABLE_FULL`] because the table was full.
    pub fn refused(&self) -> u64 {
        self.shares.full()
    }

    /// The same because the frame's owner had enough of it.
    pub(crate) fn share_refused(&self) -> u64 {
        self.shares.refused()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_frame_table_returns_its_stand_in() {
        let mut frames = Frames::new(4);
        let frame = |pid| Frame::Process { comm: StrId::EMPTY, pid };
        let kept = frames.intern(frame(1));
        assert_eq!(frames.intern(frame(2)), FrameId::TABLE_FULL);
        assert_eq!(frames.intern(frame(1)), kept);
        assert_eq!(frames.get(kept), frame(1));
        assert_eq!(frames.refused(), 1);
    }

    #[test]
    fn reserved_handles_mean_what_they_say() {
        let frames = Frames::new(100);
        assert_eq!(frames.get(FrameId::ROOT), Frame::Root);
        assert_eq!(frames.get(FrameId::TREE_FULL), Frame::TreeFull);
        assert_eq!(frames.get(FrameId::TABLE_FULL), Frame::TableFull);
        assert_eq!(frames.get(FrameId::from_number(999)), Frame::TableFull);
    }
}
