//! The kernel's side of reading user memory: ahead, since each call of the helper costs as much as two frames.
//!
//! Owns: the windows. Because: the helper's cost does not depend on how much it reads (measured: 60 to 80 ns for 8
//! bytes as for 512). Does not: ask for a page that the walk did not ask for: a fault costs more than a call.

use core::mem::MaybeUninit;

use aya_ebpf::helpers::generated::bpf_probe_read_user;
use deepctx_walk::memory::Memory;

use super::Kernel;
use crate::maps::LASTING;

/// Words of a [`Window`]: fifteen frames of CPython, or sixty small native ones.
const WINDOW_WORDS: usize = 256;
const WINDOW_BYTES: u64 = WINDOW_WORDS as u64 * 8;

/// User memory that was read ahead. The thread that is walked does not run meanwhile.
#[repr(C)]
pub struct Window {
    /// Address of the first word.
    begin: u64,
    /// Bytes that are valid; 0 when it holds nothing.
    bytes: u64,
    words: [u64; WINDOW_WORDS],
}

impl Window {
    /// Copies the words at `address`, when the window holds them.
    #[inline(always)]
    fn copy_to(&self, address: u64, words: &mut [u64]) -> bool {
        let offset = address.wrapping_sub(self.begin);
        if offset & 7 != 0 || offset >= self.bytes {
            return false;
        }
        // The kernel's verifier must see the bound on the very register that is used.
        let first = core::hint::black_box(offset >> 3) as usize;
        if first > WINDOW_WORDS - words.len() || (first + words.len()) as u64 * 8 > self.bytes {
            return false;
        }
        let mut i = 0;
        while i < words.len() {
            words[i] = self.words[first + i];
            i += 1;
        }
        true
    }

    /// The word at `address`, a multiple of 8; reads ahead when it does not hold it.
    #[inline(always)]
    pub fn word(&mut self, address: u64) -> Option<u64> {
        let mut word = [0; 1];
        if self.copy_to(address, &mut word) {
            return Some(word[0]);
        }
        let ahead = to_page_end(address);
        let filled = self.fill(address, if ahead > WINDOW_BYTES { WINDOW_BYTES } else { ahead });
        (filled && self.copy_to(address, &mut word)).then_some(word[0])
    }

    /// Forgets what it holds.
    #[inline(always)]
    pub fn clear(&mut self) {
        self.bytes = 0;
    }

    /// Fills the window with `bytes` bytes at `begin`.
    #[inline(always)]
    fn fill(&mut self, begin: u64, bytes: u64) -> bool {
        self.begin = begin;
        self.bytes = 0;
        if bytes > WINDOW_BYTES {
            return false;
        }
        // SAFETY: the size was checked; the helper checks the source and never faults.
        let failed =
            unsafe { bpf_probe_read_user((&raw mut self.words).cast(), bytes as u32, begin as *const _) }
                != 0;
        if !failed {
            self.bytes = bytes;
        }
        !failed
    }
}

/// Bytes from an address to the end of its page: who reads on to there asks for no page that was not asked for.
#[inline(always)]
fn to_page_end(address: u64) -> u64 {
    4096 - (address & 4095)
}

impl Memory for Kernel {
    #[inline(always)]
    fn read_array<const N: usize>(&self, address: u64) -> Option<[u64; N]> {
        let mut words = MaybeUninit::<[u64; N]>::uninit();
        // SAFETY: destination and size agree; when the helper succeeds it has written all of it, and a failed one
        // clears it.
        unsafe {
            let failed =
                bpf_probe_read_user(words.as_mut_ptr().cast(), (N * 8) as u32, address as *const _) != 0;
            if failed { None } else { Some(words.assume_init()) }
        }
    }

    #[inline(always)]
    fn read_stack<const N: usize>(&self, address: u64) -> Option<[u64; N]> {
        // SAFETY: part of the claimed slot, and of nothing else that is borrowed.
        let window = unsafe { &mut *self.stack };
        let mut words = [0; N];
        if window.copy_to(address, &mut words) {
            return Some(words);
        }
        let ahead = to_page_end(address);
        let bytes = if ahead > WINDOW_BYTES { WINDOW_BYTES } else { ahead };
        if address & 7 != 0 || bytes < (N * 8) as u64 || !window.fill(address, bytes) {
            return self.read_array(address);
        }
        window.copy_to(address, &mut words).then_some(words)
    }

    #[inline(always)]
    fn read_ahead(&self, address: u64) -> Option<u64> {
        if address & 7 != 0 {
            return self.read_u64(address);
        }
        // SAFETY: as above; the frames that it was for are read anew when they are asked for.
        unsafe { &mut *self.frames }.word(address)
    }

    #[inline(always)]
    fn read_lasting(&self, address: u64, holder: u64) -> Option<u64> {
        let Some(words) = LASTING.get_ptr_mut(self.slot) else { return self.read_u64(address) };
        // SAFETY: it belongs to the claimed slot, and to nothing else that is borrowed.
        unsafe { &mut *words }.word(holder ^ self.process << 32, || self.read_u64(address))
    }

    #[inline(always)]
    fn peek_stack(&self, address: u64) -> Option<u64> {
        let mut word = [0; 1];
        // SAFETY: as above.
        unsafe { &*self.stack }.copy_to(address, &mut word).then_some(word[0])
    }

    #[inline(always)]
    fn read_below(&self, address: u64, words: &mut [u64]) -> bool {
        // SAFETY: as above.
        let window = unsafe { &mut *self.frames };
        if window.copy_to(address, words) {
            return true;
        }
        let bytes = words.len() as u64 * 8;
        let end = address.wrapping_add(bytes);
        let page = address & !4095;
        let lowest = end.wrapping_sub(WINDOW_BYTES);
        let begin = if lowest < page { page } else { lowest };
        if address & 7 != 0 || to_page_end(address) < bytes || !window.fill(begin, end.wrapping_sub(begin)) {
            return self.read_words(address, words);
        }
        window.copy_to(address, words)
    }

    #[inline(always)]
    fn read_words(&self, address: u64, words: &mut [u64]) -> bool {
        // SAFETY: destination and size agree; the helper checks the source and never faults.
        unsafe {
            bpf_probe_read_user(words.as_mut_ptr().cast(), (words.len() * 8) as u32, address as *const _) == 0
        }
    }
}
