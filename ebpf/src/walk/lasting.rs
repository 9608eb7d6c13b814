//! Immutable words of an interpreter, cached across walks.
//!
//! Owns: how long a cached word is trusted. Because: in CPython up to 3.11 only its name distinguishes a code object
//! from a later one at the same addresses, and reading a name costs as much as the rest of a frame. A word is trusted
//! for a 64th of the time for which it is known to be unchanged, then read again. So names are read at every frame of a
//! program that keeps creating and dropping functions, and hardly ever in one that keeps its functions. Does not: know
//! the meaning of a word.

use aya_ebpf::helpers::generated::bpf_jiffies64;

/// Words of one table: enough for the functions that one thread runs over a while.
const WORDS: usize = 512;
/// Trusted fraction of the known age, as a shift.
const TRUST_SHIFT: u32 = 6;
/// Longest trust, in jiffies: 0.25 to 2.5 seconds, depending on the kernel's HZ.
const TRUST_MAX: u64 = 256;

/// Recently read words.
#[repr(C)]
pub struct WordCache([CachedWord; WORDS]);

/// One word.
#[repr(C)]
struct CachedWord {
    /// Number that distinguishes the holder from others; 0 means free.
    holder: u64,
    /// The word.
    word: u64,
    /// Time of the first and of the last read, in jiffies.
    since: u64,
    read: u64,
}

impl WordCache {
    /// The word of `holder`, cached or from `read`.
    #[inline(always)]
    pub fn word(&mut self, holder: u64, read: impl FnOnce() -> Option<u64>) -> Option<u64> {
        // SAFETY: a helper without arguments.
        let now = unsafe { bpf_jiffies64() };
        // The upper bits of the holder: the lower ones are those of an aligned address.
        let place = core::hint::black_box((holder >> 40) as usize) & (WORDS - 1);
        let entry = &mut self.0[place];
        let known = entry.holder == holder;
        let age = entry.read.wrapping_sub(entry.since);
        let trust = if age >> TRUST_SHIFT > TRUST_MAX { TRUST_MAX } else { age >> TRUST_SHIFT };
        if known && now.wrapping_sub(entry.read) < trust {
            return Some(entry.word);
        }
        let word = read()?;
        if !known || entry.word != word {
            entry.holder = holder;
            entry.word = word;
            entry.since = now;
        }
        entry.read = now;
        Some(word)
    }
}
