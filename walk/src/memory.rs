//! `Memory`: how a walker reads its target.
//!
//! Owns: the trait. Because: the kernel, a stopped process, a core file and a test vector differ in nothing else.
//! Does not: say why a read failed; a walker only needs to know that it did.

/// Memory of the walked thread, in little-endian words of 8 bytes. Every read may fail; none may block.
pub trait Memory {
    /// Reads `words.len()` words at `address`, which need not be aligned. On failure the content is unspecified.
    fn read_words(&self, address: u64, words: &mut [u64]) -> bool;

    /// The `N` words at `address`, in one access.
    #[inline(always)]
    fn read_array<const N: usize>(&self, address: u64) -> Option<[u64; N]> {
        let mut words = [0; N];
        self.read_words(address, &mut words).then_some(words)
    }

    /// Like [`Self::read_array`], of a stack that is walked towards higher addresses: an implementer may read ahead.
    #[inline(always)]
    fn read_stack<const N: usize>(&self, address: u64) -> Option<[u64; N]> {
        self.read_array(address)
    }

    /// The word at `address` of a stack, if it was read ahead.
    #[inline(always)]
    fn peek_stack(&self, _address: u64) -> Option<u64> {
        None
    }

    /// Like [`Self::read_u64`], of a structure from which more will be asked for, at higher addresses: an implementer
    /// may read ahead.
    #[inline(always)]
    fn read_ahead(&self, address: u64) -> Option<u64> {
        self.read_u64(address)
    }

    /// Like [`Self::read_words`], of frames whose callers lie at lower addresses: an implementer may read more there.
    #[inline(always)]
    fn read_below(&self, address: u64, words: &mut [u64]) -> bool {
        self.read_words(address, words)
    }

    /// Like [`Self::read_below`], if it was read ahead.
    #[inline(always)]
    fn peek_below(&self, _address: u64, _words: &mut [u64]) -> bool {
        false
    }

    /// The word at `address`.
    #[inline(always)]
    fn read_u64(&self, address: u64) -> Option<u64> {
        self.read_array(address).map(|[word]| word)
    }

    /// Like [`Self::read_u64`], of a word that stays as it is for as long as its `holder` lives, which is distinguished
    /// from most others by this number: an implementer may trust what it read for a small part of the time since it
    /// first did.
    #[inline(always)]
    fn read_lasting(&self, address: u64, _holder: u64) -> Option<u64> {
        self.read_u64(address)
    }
}

/// Bytes at an address: the memory of a test, or a recorded stack.
#[derive(Clone, Copy, Debug)]
pub struct Slice<'a> {
    /// Address of the first byte.
    pub begin: u64,
    /// The bytes.
    pub bytes: &'a [u8],
}

impl Memory for Slice<'_> {
    fn read_words(&self, address: u64, words: &mut [u64]) -> bool {
        let Some(start) = address.checked_sub(self.begin).and_then(|s| usize::try_from(s).ok()) else {
            return false;
        };
        let Some(bytes) = start.checked_add(words.len() * 8).and_then(|end| self.bytes.get(start..end))
        else {
            return false;
        };
        for (word, chunk) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = chunk.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte));
        }
        true
    }
}
