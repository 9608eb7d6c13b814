//! Words of an interpreter that last, remembered across walks.
//!
//! Owns: for how long one is trusted. Because: in CPython up to 3.11 only its name distinguishes a code object from
//! another that came to lie at the same addresses, and to read a name costs as much as the rest of a frame. What has
//! lasted goes on lasting: a word is read anew once a 64th of the time has passed for which it is known to stand. A
//! program that makes functions and drops them is read at every frame; one that keeps them, hardly ever. Does not: know
//! what a word means.

use aya_ebpf::helpers::generated::bpf_jiffies64;

/// Words of one table: the functions that one thread runs in a while.
const WORDS: usize = 512;
/// Part of its known age for which a word is trusted, as a shift.
const TRUST_SHIFT: u32 = 6;
/// Longest trust, in ticks of the kernel: a quarter of a second to two and a half, by how the kernel was built.
const TRUST_MAX: u64 = 256;

/// Words that were read recently.
#[repr(C)]
pub struct WordCache([CachedWord; WORDS]);

/// One word.
#[repr(C)]
struct CachedWord {
    /// What distinguishes its holder from others; 0 is free.
    holder: u64,
    /// The word.
    word: u64,
    /// When it was read first, and when last, in ticks.
    since: u64,
    read: u64,
}

impl WordCache {
    /// The word of `holder`, from here or by `read`.
    #[inline(always)]
    pub fn word(&mut self, holder: u64, read: impl FnOnce() -> Option<u64>) -> Option<u64> {
        // SAFETY: a helper without arguments.
        let now = unsafe { bpf_jiffies64() };
        // Its upper bits: the lower ones are those of an address, which is a multiple of something.
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
