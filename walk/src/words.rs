//! The output of a walk.
//!
//! Owns: the trait, and a plain buffer. Because: in the kernel the output is the record itself. Does not: know the
//! meaning of a word.

/// The output of a walk. Not part of [`crate::interleave::Walk`], because in the kernel it is the record itself.
pub trait Words {
    /// Stores `word` at `index`; false when there is no room.
    fn put(&mut self, index: u32, word: u64) -> bool;
}

/// A plain buffer of words.
#[derive(Debug)]
pub struct WordBuffer<'a>(pub &'a mut [u64]);

impl Words for WordBuffer<'_> {
    fn put(&mut self, index: u32, word: u64) -> bool {
        match self.0.get_mut(index as usize) {
            Some(slot) => {
                *slot = word;
                true
            }
            None => false,
        }
    }
}
