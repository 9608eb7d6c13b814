//! `Memory`: how a walker reads the memory of its target.
//!
//! Owns: the trait. Because: this is the only difference between the kernel, a stopped process, a core file and a test
//! vector. Does not: say why a read failed; a walker only needs to know that it failed.

/// Memory of the walked thread, in little-endian words of 8 bytes. Every read may fail; none may block.
pub trait Memory {
    /// Reads `words.len()` words at `address`, which need not be aligned. On failure the content of `words` is
    /// unspecified.
    fn read_words(&self, address: u64, words: &mut [u64]) -> bool;

    /// The `N` words at `address`, in one access.
    #[inline(always)]
    fn read_array<const N: usize>(&self, address: u64) -> Option<[u64; N]> {
        let mut words = [0; N];
        self.read_words(address, &mut words).then_some(words)
    }

    /// Like [`Self::read_array`], for a stack that is walked towards higher addresses: the implementation may read
    /// ahead.
    #[inline(always)]
    fn read_stack<const N: usize>(&self, address: u64) -> Option<[u64; N]> {
        self.read_array(address)
    }

    /// The word at `address` of a stack, if a read-ahead covers it.
    #[inline(always)]
    fn peek_stack(&self, _address: u64) -> Option<u64> {
        None
    }

    /// Like [`Self::read_u64`], for a structure whose later fields will be read next: the implementation may read
    /// ahead.
    #[inline(always)]
    fn read_ahead(&self, address: u64) -> Option<u64> {
        self.read_u64(address)
    }

    /// Like [`Self::read_words`], for frames whose callers lie at lower addresses: the implementation may read further
    /// below.
    #[inline(always)]
    fn read_below(&self, address: u64, words: &mut [u64]) -> bool {
        self.read_words(address, words)
    }

    /// Like [`Self::read_below`], but only if a read-ahead covers the words.
    #[inline(always)]
    fn peek_below(&self, _address: u64, _words: &mut [u64]) -> bool {
        false
    }

    /// The word at `address`.
    #[inline(always)]
    fn read_u64(&self, address: u64) -> Option<u64> {
        self.read_array(address).map(|[word]| word)
    }

    /// Like [`Self::read_u64`], for a word that is constant while its `holder` lives. The number `holder` distinguishes
    /// it from most others. The implementation may cache the word for a small fraction of the time since its first
    /// read.
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
