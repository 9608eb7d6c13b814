//! Pages: memory of a process, with each page read once.
//!
//! Owns: pages read since the last look at the threads. Because: the walker needs single words, and a round trip to
//! the helper process that reads them takes longer than sending a whole page. Does not: know whether the data is
//! still valid; the thread's switch count shows that.

use std::cell::{Cell, RefCell};

use deepctx_symbolizer::memory::{ProcessMemory, ReadError};
use deepctx_walk::memory::Memory;
use rustc_hash::FxHashMap;

/// Smallest page of all machines: reading part of a larger page works too.
const PAGE_BYTES: usize = 4096;
/// Pages read at once from a stack pointer on: the stacks of most threads end there.
const STACK_PAGES: usize = 2;
/// Most cached pages: 256 MiB. Beyond it the cache is cleared.
const PAGES_MAX: usize = 1 << 16;

type Page = Box<[u8; PAGE_BYTES]>;

/// Memory of a process.
pub(super) struct Pages {
    memory: ProcessMemory,
    /// By address; `None` for an unreadable page.
    kept: RefCell<FxHashMap<u64, Option<Page>>>,
    /// Read on this thread.
    directly: Cell<bool>,
}

impl Pages {
    pub(super) fn open(pid: u32) -> Result<Self, ReadError> {
        Ok(Self { memory: ProcessMemory::open(pid)?, kept: RefCell::default(), directly: Cell::new(false) })
    }

    /// Clears the cache.
    pub(super) fn forget(&self) {
        self.kept.borrow_mut().clear();
    }

    /// Reads on this thread from now on, or through the reader again. Only for data that is valid for microseconds, of
    /// a process that has answered the reader before.
    pub(super) fn read_directly(&self, directly: bool) {
        self.directly.set(directly);
    }

    /// Prefetches the stack above a stack pointer.
    pub(super) fn read_stack_ahead(&self, sp: u64) {
        let page = page_of(sp);
        if self.kept.borrow().contains_key(&page) {
            return;
        }
        let mut bytes = vec![0; STACK_PAGES * PAGE_BYTES];
        // Near its end a stack has fewer: then each is read on request.
        if self.fetch(page, &mut bytes).is_ok() {
            for (n, bytes) in bytes.chunks_exact(PAGE_BYTES).enumerate() {
                self.keep(page + (n * PAGE_BYTES) as u64, bytes.try_into().ok().map(Box::new));
            }
        }
    }

    fn fetch(&self, address: u64, into: &mut [u8]) -> Result<(), ReadError> {
        if self.directly.get() {
            self.memory.read_here(address, into)
        } else {
            self.memory.read(address, into)
        }
    }

    fn keep(&self, page: u64, bytes: Option<Page>) {
        let mut kept = self.kept.borrow_mut();
        if kept.len() >= PAGES_MAX {
            kept.clear();
        }
        kept.insert(page, bytes);
    }

    /// Copies from one page; false if it cannot be read.
    fn copy(&self, address: u64, into: &mut [u8]) -> bool {
        let page = page_of(address);
        if !self.kept.borrow().contains_key(&page) {
            let mut bytes: Page = Box::new([0; PAGE_BYTES]);
            let read = self.fetch(page, &mut bytes[..]).is_ok();
            self.keep(page, read.then_some(bytes));
        }
        let kept = self.kept.borrow();
        let Some(Some(bytes)) = kept.get(&page) else { return false };
        let from = (address - page) as usize;
        into.copy_from_slice(&bytes[from..from + into.len()]);
        true
    }
}

fn page_of(address: u64) -> u64 {
    address & !(PAGE_BYTES as u64 - 1)
}

impl Memory for Pages {
    fn read_words(&self, address: u64, words: &mut [u64]) -> bool {
        // A word may lie across two pages.
        let mut bytes = vec![0; words.len() * 8];
        let mut done = 0;
        while done < bytes.len() {
            let Some(at) = address.checked_add(done as u64) else { return false };
            let here = (PAGE_BYTES - (at - page_of(at)) as usize).min(bytes.len() - done);
            if !self.copy(at, &mut bytes[done..done + here]) {
                return false;
            }
            done += here;
        }
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_across_pages_and_not_beyond_them() {
        let own = Pages::open(std::process::id()).unwrap();
        let values: Vec<u64> = (0..2000).collect();
        let begin = values.as_ptr() as u64;
        let check = |offset: u64, count: usize, expect: Option<Vec<u64>>| {
            let mut words = vec![0; count];
            let read = own.read_words(begin + offset, &mut words).then_some(words);
            assert_eq!(read, expect, "{count} words at {offset}");
        };
        check(0, 2000, Some(values.clone()));
        check(8 * 1000, 3, Some(vec![1000, 1001, 1002]));
        check(4, 1, Some(vec![1 << 32]));
        assert!(!own.read_words(8, &mut [0]) && !own.read_words(u64::MAX - 3, &mut [0]));
    }

    #[test]
    fn a_page_is_read_once_until_it_is_forgotten() {
        let own = Pages::open(std::process::id()).unwrap();
        let value = std::cell::Cell::new(1_u64);
        let read = || own.read_u64(value.as_ptr() as u64);
        assert_eq!(read(), Some(1));
        value.set(std::hint::black_box(2));
        assert_eq!(read(), Some(1));
        own.forget();
        assert_eq!(read(), Some(2));
    }
}
