//! Strings: each distinct text is stored once and referred to by a handle.
//!
//! Owns: [`Strings`]. Because: a capture sees the same names billions of times; equality must be one integer
//! comparison. Does not: forget anything.
//!
//! Bounded, since names come from processes that may be hostile or generate code without end. At the bound, new texts
//! become one labeled stand-in and are counted; existing texts are still found.

use std::collections::HashMap;
use std::sync::Arc;

use deepctx_common::memory::{shared_text_bytes, table_bytes};

use crate::intern::Id;
use crate::owner::{Owner, OwnerShares};

/// Handle of an interned text.
pub type StrId = Id<str>;

/// Longest text kept, in bytes. The longest demangled names in common machine-learning libraries stay below it.
pub const TEXT_MAX: usize = 8 * 1024;

impl StrId {
    /// The empty text, which also stands for "unknown".
    pub const EMPTY: StrId = StrId::from_number(0);
    /// Stands for texts that were refused because the table was full.
    pub const FULL: StrId = StrId::from_number(1);
}

/// Interned texts.
#[derive(Clone, Debug)]
pub struct Strings {
    texts: Vec<Arc<str>>,
    // The default hasher is keyed: texts are foreign, and a target could aim for collisions of a fixed one.
    ids: HashMap<Arc<str>, StrId>,
    bytes: usize,
    bytes_max: usize,
    shares: OwnerShares,
    cut: u64,
}

impl Strings {
    /// A table for at most `bytes_max` bytes of text.
    pub fn new(bytes_max: usize) -> Self {
        let mut strings = Strings {
            texts: Vec::new(),
            ids: HashMap::new(),
            bytes: 0,
            bytes_max: usize::MAX,
            shares: OwnerShares::default(),
            cut: 0,
        };
        strings.intern("");
        strings.intern("[names full]");
        strings.bytes_max = bytes_max;
        strings
    }

    /// The handle of `text`. Text above [`TEXT_MAX`] is cut and ends in `…`.
    pub fn intern(&mut self, text: &str) -> StrId {
        // Every second text: an unknown module or file. It exists from the beginning.
        if text.is_empty() && !self.texts.is_empty() {
            return StrId::EMPTY;
        }
        if text.len() > TEXT_MAX {
            self.cut += 1;
            let end = text.floor_char_boundary(TEXT_MAX - '…'.len_utf8());
            return self.intern_short(&format!("{}…", &text[..end]));
        }
        self.intern_short(text)
    }

    fn intern_short(&mut self, text: &str) -> StrId {
        if let Some(&id) = self.ids.get(text) {
            return id;
        }
        // All numbers are in use long after all bytes are.
        let most = if u32::try_from(self.texts.len()).is_ok() { self.bytes_max } else { 0 };
        if self.shares.take(self.bytes, text.len(), most).is_err() {
            return StrId::FULL;
        }
        let number = self.texts.len() as u32;
        let (id, text) = (StrId::from_number(number), Arc::<str>::from(text));
        self.bytes += text.len();
        self.texts.push(Arc::clone(&text));
        self.ids.insert(text, id);
        id
    }

    /// The text of a handle; the empty text for a handle of another table.
    pub fn get(&self, id: StrId) -> &str {
        self.texts.get(id.index()).map_or("", |text| text)
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        // Texts are 8 bytes beyond a multiple of 16 on average.
        self.texts.capacity() * size_of::<Arc<str>>()
            + table_bytes(self.ids.capacity(), size_of::<(Arc<str>, StrId)>())
            + self.bytes
            + self.texts.len() * shared_text_bytes(0)
    }

    /// How many texts there are.
    pub fn len(&self) -> usize {
        self.texts.len()
    }

    /// Never true: the empty text always exists.
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    /// Calls of [`Strings::intern`] answered with [`StrId::FULL`] because the table was full.
    pub fn refused(&self) -> u64 {
        self.shares.full()
    }

    /// The same because the text's owner had enough of it.
    pub(crate) fn share_refused(&self) -> u64 {
        self.shares.refused()
    }

    /// From now on, new texts count as this owner's.
    #[inline]
    pub(crate) fn grow_for(&mut self, owner: Owner) {
        self.shares.grow_for(owner);
    }

    /// Calls of [`Strings::intern`] whose text was cut at [`TEXT_MAX`].
    pub fn cut(&self) -> u64 {
        self.cut
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_string_table_finds_old_texts_and_counts_refusals() {
        let mut strings = Strings::new(20);
        let kept = strings.intern("12345678");
        assert_eq!(strings.intern("123456789"), StrId::FULL);
        assert_eq!(strings.intern("12345678"), kept);
        assert_eq!(strings.get(StrId::FULL), "[names full]");
        assert_eq!(strings.refused(), 1);
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let mut strings = Strings::new(usize::MAX);
        let id = strings.intern(&"é".repeat(TEXT_MAX));
        let text = strings.get(id);
        assert!(text.len() <= TEXT_MAX && text.ends_with("é…"));
        assert_eq!(strings.cut(), 1);
        assert_eq!(strings.intern(&"é".repeat(TEXT_MAX)), id);
    }

    #[test]
    fn a_new_table_has_the_empty_text() {
        assert_eq!(Strings::new(0).get(StrId::EMPTY), "");
    }
}
