//! Reads of user memory in the kernel, with read-ahead, because each call of the helper costs as much as two frames.
//!
//! Owns: the read-ahead windows. Because: the cost of the helper hardly depends on the size of the read (measured: 60
//! to 80 ns, for 8 bytes as for 512). Does not: read ahead again into a page that was absent before: a fault costs more
//! than a call.

use core::mem::MaybeUninit;

use aya_ebpf::helpers::generated::bpf_probe_read_user;
use deepctx_walk::memory::Memory;

use super::Kernel;
use super::lasting::WordCache;

/// Words of a [`Window`]: thirty frames of CPython, or a hundred small native ones. At most a page, so that a window
/// touches no more than two pages.
const WINDOW_WORDS: usize = 512;
const WINDOW_BYTES: u64 = WINDOW_WORDS as u64 * 8;
/// Size of the smallest page, bytes.
const PAGE: u64 = 4096;
/// Number of absent pages that a window remembers: ends of stacks, beginnings of an interpreter's memory blocks.
const ABSENT: usize = 16;

/// Data that belongs to a scratch slot and does not fit into it.
#[repr(C)]
pub struct ReadAhead {
    /// Read-ahead of the stack.
    pub stack: Window,
    /// Read-ahead of interpreter frames, or of a structure behind a pointer.
    pub frames: Window,
    /// Words that are cached across walks.
    lasting: WordCache,
}

const _: () = assert!(size_of::<ReadAhead>() <= 32 << 10);

/// User memory that was read ahead. The walked thread does not run in the meantime.
#[repr(C)]
pub struct Window {
    /// Address of the first word.
    begin: u64,
    /// Number of valid bytes; 0 if the window is empty.
    bytes: u64,
    /// Pages on which a read-ahead failed, each in the slot given by its page number. A stale entry costs one more call
    /// of the helper, nothing else.
    absent: [u64; ABSENT],
    words: [u64; WINDOW_WORDS],
}

const _: () = assert!(WINDOW_BYTES <= PAGE);

impl Window {
    /// Copies the words at `address`, if the window holds them.
    #[inline(always)]
    fn copy_to(&self, address: u64, words: &mut [u64]) -> bool {
        let offset = address.wrapping_sub(self.begin);
        if offset & 7 != 0 || offset >= self.bytes {
            return false;
        }
        // The kernel's verifier must see the bound on the register that is used as index.
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

    /// The word at `address`, if the window holds it.
    #[inline(always)]
    pub fn peek(&self, address: u64) -> Option<u64> {
        let mut word = [0; 1];
        self.copy_to(address, &mut word).then_some(word[0])
    }

    /// The word at `address`, which is a multiple of 8; reads ahead if the window does not hold it.
    #[inline(always)]
    pub fn word(&mut self, address: u64) -> Option<u64> {
        let held = self.peek(address);
        if held.is_some() || fill_above(self, address) == 0 {
            return held;
        }
        self.peek(address)
    }

    /// Fills the window with memory from `address` on.
    #[inline(always)]
    fn fill_above(&mut self, address: u64) -> bool {
        let next = (address & !(PAGE - 1)).wrapping_add(PAGE);
        let here = next.wrapping_sub(address);
        if here >= WINDOW_BYTES {
            return self.fill(address, WINDOW_BYTES);
        }
        if *self.absent(next) == next {
            return self.fill(address, here);
        }
        if self.fill(address, WINDOW_BYTES) {
            return true;
        }
        *self.absent(next) = next;
        self.fill(address, here)
    }

    /// Fills the window with `bytes` bytes at `address` and the memory before them.
    #[inline(always)]
    fn fill_below(&mut self, address: u64, bytes: u64) -> bool {
        let end = address.wrapping_add(bytes);
        let begin = end.wrapping_sub(WINDOW_BYTES);
        let page = address & !(PAGE - 1);
        if begin >= page {
            return self.fill(begin, WINDOW_BYTES);
        }
        let before = page.wrapping_sub(PAGE);
        let here = end.wrapping_sub(page);
        if *self.absent(before) == before {
            return self.fill(page, here);
        }
        if self.fill(begin, WINDOW_BYTES) {
            return true;
        }
        *self.absent(before) = before;
        self.fill(page, here)
    }

    /// Slot that records whether this page is absent.
    #[inline(always)]
    fn absent(&mut self, page: u64) -> &mut u64 {
        let place = core::hint::black_box((page / PAGE) as usize) & (ABSENT - 1);
        &mut self.absent[place]
    }

    /// Empties the window.
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

/// [`Window::fill_above`] as a separate function, so that the kernel verifies it once and its stack usage does not add
/// to that of a step.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn fill_above(window: *mut Window, address: u64) -> u32 {
    if window.is_null() {
        return 0;
    }
    // SAFETY: the callers pass a window that they hold.
    unsafe { &mut *window }.fill_above(address) as u32
}

/// [`Window::fill_below`], for the same reason.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn fill_below(window: *mut Window, address: u64, bytes: u64) -> u32 {
    if window.is_null() {
        return 0;
    }
    // SAFETY: as above.
    unsafe { &mut *window }.fill_below(address, bytes) as u32
}

/// User memory without read-ahead: for words whose neighbours will not be needed.
pub(super) struct DirectMemory;

impl Memory for DirectMemory {
    #[inline(always)]
    fn read_array<const N: usize>(&self, address: u64) -> Option<[u64; N]> {
        let mut words = MaybeUninit::<[u64; N]>::uninit();
        // SAFETY: destination and size agree; the helper writes all of it on success and zeroes it on failure.
        unsafe {
            let failed =
                bpf_probe_read_user(words.as_mut_ptr().cast(), (N * 8) as u32, address as *const _) != 0;
            if failed { None } else { Some(words.assume_init()) }
        }
    }

    #[inline(always)]
    fn read_words(&self, address: u64, words: &mut [u64]) -> bool {
        // SAFETY: destination and size agree; the helper checks the source and never faults.
        unsafe {
            bpf_probe_read_user(words.as_mut_ptr().cast(), (words.len() * 8) as u32, address as *const _) == 0
        }
    }
}

impl Memory for Kernel {
    #[inline(always)]
    fn read_array<const N: usize>(&self, address: u64) -> Option<[u64; N]> {
        DirectMemory.read_array(address)
    }

    #[inline(always)]
    fn read_stack<const N: usize>(&self, address: u64) -> Option<[u64; N]> {
        // SAFETY: the window belongs to the claimed slot, and nothing else borrowed refers to it.
        let window = unsafe { &mut (*self.ahead).stack };
        let mut words = [0; N];
        if window.copy_to(address, &mut words) {
            return Some(words);
        }
        if address & 7 == 0 && fill_above(window, address) != 0 && window.copy_to(address, &mut words) {
            return Some(words);
        }
        self.read_array(address)
    }

    #[inline(always)]
    fn read_ahead(&self, address: u64) -> Option<u64> {
        if address & 7 != 0 {
            return self.read_u64(address);
        }
        // SAFETY: as above; frames that the window held are read again when needed.
        unsafe { &mut (*self.ahead).frames }.word(address)
    }

    #[inline(always)]
    fn read_lasting(&self, address: u64, holder: u64) -> Option<u64> {
        // SAFETY: as above.
        unsafe { &mut (*self.ahead).lasting }.word(holder ^ self.process << 32, || self.read_u64(address))
    }

    #[inline(always)]
    fn peek_stack(&self, address: u64) -> Option<u64> {
        // SAFETY: as above.
        unsafe { &(*self.ahead).stack }.peek(address)
    }

    #[inline(always)]
    fn peek_below(&self, address: u64, words: &mut [u64]) -> bool {
        // SAFETY: as above.
        unsafe { &(*self.ahead).frames }.copy_to(address, words)
    }

    #[inline(always)]
    fn read_below(&self, address: u64, words: &mut [u64]) -> bool {
        // SAFETY: as above.
        let window = unsafe { &mut (*self.ahead).frames };
        if window.copy_to(address, words) {
            return true;
        }
        let filled = address & 7 == 0 && fill_below(window, address, words.len() as u64 * 8) != 0;
        filled && window.copy_to(address, words) || self.read_words(address, words)
    }

    #[inline(always)]
    fn read_words(&self, address: u64, words: &mut [u64]) -> bool {
        DirectMemory.read_words(address, words)
    }
}
