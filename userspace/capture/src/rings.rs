//! Rings: the only reader of memory shared with the kernel.
//!
//! Owns: draining the ring buffer into batches. Because: the ring must be drained even if everything else is slow;
//! and memory that stays mapped counts as this process's although it is already the kernel's, so only the unread part
//! is mapped, while it is read. Does not: look into records.
//!
//! Layout of the map, and the access rules (kernel/bpf/ringbuf.c): a page with the consumer position, which only user
//! space writes; a page with the producer position, which only the kernel writes; the data, mapped twice in a row, so
//! that no record is split at the end.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventFlags};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Largest batch: the rest stays in the ring until the next drain.
pub(crate) const BATCH_BYTES_MAX: usize = 4 << 20;

/// Most that is read before the kernel may write there again, unless one record is longer: a tenth of a millisecond of
/// copying.
const WINDOW_BYTES_MAX: u64 = 512 << 10;

/// Bits of a record's header (`BPF_RINGBUF_BUSY_BIT`, `BPF_RINGBUF_DISCARD_BIT`, include/uapi/linux/bpf.h); the others
/// are its length.
const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;
/// A header (`BPF_RINGBUF_HDR_SZ`): records begin at multiples of it.
const HEADER_BYTES: u64 = 8;

/// Reads the records of one ring buffer.
#[derive(Debug)]
pub(crate) struct Ring {
    map: OwnedFd,
    wakeups: OwnedFd,
    /// The consumer position.
    read: MappedRegion,
    /// The producer position.
    written: MappedRegion,
    /// Bytes of the ring, a power of two.
    size: u64,
    /// Bytes of the ring behind the consumer position that were looked at.
    looked_at: u64,
}

impl Ring {
    /// A reader of the ring of `size` bytes behind `map`.
    ///
    /// # Errors
    /// It is not a ring buffer, or the system refuses to map it.
    pub(crate) fn new(map: &impl AsFd, size: u32) -> io::Result<Self> {
        let page = page_bytes();
        let map = map.as_fd().try_clone_to_owned()?;
        let read = MappedRegion::new(&map, 0, page, ProtFlags::READ | ProtFlags::WRITE)?;
        let written = MappedRegion::new(&map, page, page, ProtFlags::READ)?;
        Ok(Self { wakeups: wakeups(&map)?, map, read, written, size: u64::from(size), looked_at: 0 })
    }

    /// Waits for an urgent record, at most [`Ring::INTERVAL`].
    pub(crate) fn wait(&self) {
        let timeout = Timespec { tv_sec: 0, tv_nsec: Self::INTERVAL.subsec_nanos().into() };
        let mut event = [epoll::Event { flags: EventFlags::empty(), data: epoll::EventData::new_u64(0) }];
        // An interruption by a signal counts as a wake-up.
        let _ = epoll::wait(&self.wakeups, &mut event[..], Some(&timeout));
    }

    /// All records in the ring, one after another, up to about [`BATCH_BYTES_MAX`]; empty if there are none.
    ///
    /// # Errors
    /// The system lacks the memory to map unread data; it stays in the ring.
    pub(crate) fn drain(&mut self) -> io::Result<Vec<u8>> {
        read_all(|batch| self.drain_window(batch))
    }

    /// Records that no earlier call has returned and that stay in the ring, up to about [`BATCH_BYTES_MAX`]; empty if
    /// there are none. [`Ring::drain`] returns them again, in the same order.
    ///
    /// # Errors
    /// As for [`Ring::drain`].
    pub(crate) fn look_ahead(&mut self) -> io::Result<Vec<u8>> {
        read_all(|batch| {
            let (begin, unread) = self.unread();
            let (from, rest) = (begin.wrapping_add(self.looked_at), unread.saturating_sub(self.looked_at));
            let read = self.next_window(from, rest, batch)?;
            self.looked_at += read;
            Ok(read > 0)
        })
    }

    /// Reads one window of data; false if there is nothing, or a record is being written.
    fn drain_window(&mut self, batch: &mut Vec<u8>) -> io::Result<bool> {
        let (begin, unread) = self.unread();
        let read = self.next_window(begin, unread, batch)?;
        // The copy must be complete before the kernel writes there again.
        self.read.position().store(begin.wrapping_add(read), Ordering::Release);
        self.looked_at = self.looked_at.saturating_sub(read);
        Ok(read > 0)
    }

    /// The consumer position, and the bytes behind it.
    fn unread(&self) -> (u64, u64) {
        let begin = self.read.position().load(Ordering::Relaxed);
        // Makes data that the kernel wrote before it moved its position visible. Unread data cannot exceed the ring.
        let unread = self.written.position().load(Ordering::Acquire).wrapping_sub(begin).min(self.size);
        (begin, unread)
    }

    /// Reads the next window of the `unread` bytes from a position on; returns the bytes of the ring that its records
    /// took.
    fn next_window(&self, position: u64, unread: u64, batch: &mut Vec<u8>) -> io::Result<u64> {
        if unread == 0 {
            return Ok(0);
        }
        let read = self.read_window(position, unread.min(WINDOW_BYTES_MAX), batch)?;
        if read == 0 && unread > WINDOW_BYTES_MAX {
            return self.read_window(position, unread, batch);
        }
        Ok(read)
    }

    /// Reads the records within `length` bytes from a position on; returns the bytes of the ring that they took.
    fn read_window(&self, position: u64, length: u64, batch: &mut Vec<u8>) -> io::Result<u64> {
        let window = Window::of(self.size, position, length);
        let data =
            MappedRegion::new(&self.map, 2 * page_bytes() + window.offset, window.bytes, ProtFlags::READ)?;
        batch.reserve(length as usize);
        Ok(records(&data, &window, batch))
    }

    /// How often to drain if nothing is urgent: often enough that a ring for a second of samples is never a quarter
    /// full, seldom enough to cost nothing.
    pub(crate) const INTERVAL: Duration = Duration::from_millis(50);
}

/// Reads windows until there is none, or the batch is large enough. What was read before an error is not read again, so
/// it is kept; the next call meets the error again if it lasts.
fn read_all(mut window: impl FnMut(&mut Vec<u8>) -> io::Result<bool>) -> io::Result<Vec<u8>> {
    let mut batch = Vec::new();
    while batch.len() < BATCH_BYTES_MAX {
        match window(&mut batch) {
            Ok(true) => {}
            Err(error) if batch.is_empty() => return Err(error),
            Ok(false) | Err(_) => break,
        }
    }
    Ok(batch)
}

/// A part of the data, and the pages around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Window {
    /// Bytes from the beginning of the data to the first page.
    offset: u64,
    /// Bytes of all pages.
    bytes: u64,
    /// Offset of the first record in them.
    begin: u64,
    /// End of the window; a record that is cut there is read next time.
    end: u64,
}

impl Window {
    /// The window of a ring of `size` bytes: `length` from `position` on. The ring is mapped twice in a row, so no
    /// window ends beyond twice its size.
    fn of(size: u64, position: u64, length: u64) -> Self {
        let page = page_bytes();
        let place = position & (size - 1);
        let offset = place / page * page;
        let begin = place - offset;
        let end = begin + length;
        Self { offset, bytes: end.next_multiple_of(page), begin, end }
    }
}

/// Copies the records of a window one after another; returns how many bytes of the ring they took.
fn records(data: &MappedRegion, window: &Window, batch: &mut Vec<u8>) -> u64 {
    let mut at = window.begin;
    while at + HEADER_BYTES <= window.end {
        // Makes data that the kernel wrote before it cleared the busy bit visible.
        let header = data.header(at).load(Ordering::Acquire);
        let length = u64::from(header & !(BUSY | DISCARDED));
        let next = at + (HEADER_BYTES + length).next_multiple_of(HEADER_BYTES);
        if header & BUSY != 0 || next > window.end {
            break;
        }
        if header & DISCARDED == 0 {
            batch.extend_from_slice(data.bytes(at + HEADER_BYTES, length));
        }
        at = next;
    }
    at - window.begin
}

/// A part of the map in this process's memory.
#[derive(Debug)]
struct MappedRegion {
    base: NonNull<u8>,
    bytes: u64,
}

// SAFETY: the mapping belongs to this value alone; positions in it are only touched as atomics.
unsafe impl Send for MappedRegion {}

impl MappedRegion {
    fn new(map: &impl AsFd, offset: u64, bytes: u64, protection: ProtFlags) -> io::Result<Self> {
        let length = usize::try_from(bytes).map_err(io::Error::other)?;
        // SAFETY: a fresh shared mapping at an address of the kernel's choice.
        let base =
            unsafe { mmap(std::ptr::null_mut(), length, protection, MapFlags::SHARED, map.as_fd(), offset) }?;
        let base =
            NonNull::new(base.cast()).ok_or_else(|| io::Error::from(io::ErrorKind::AddrNotAvailable))?;
        Ok(Self { base, bytes })
    }

    /// The position at the beginning of a page.
    fn position(&self) -> &AtomicU64 {
        // SAFETY: a page is larger, its beginning is aligned, and the kernel writes the position as one word.
        unsafe { self.base.cast::<AtomicU64>().as_ref() }
    }

    /// The first word of the header at an offset.
    ///
    /// # Panics
    /// When it is outside.
    fn header(&self, at: u64) -> &AtomicU32 {
        assert!(at.is_multiple_of(HEADER_BYTES) && at + HEADER_BYTES <= self.bytes, "header at {at}");
        // SAFETY: mapped and aligned, as was just asserted; the kernel writes it as one word.
        unsafe { self.base.add(at as usize).cast::<AtomicU32>().as_ref() }
    }

    /// Bytes of a record. The kernel has finished writing them, and does not reuse them before our position has passed.
    ///
    /// # Panics
    /// When they are outside.
    fn bytes(&self, at: u64, length: u64) -> &[u8] {
        assert!(at + length <= self.bytes, "{length} bytes at {at}");
        // SAFETY: mapped, as was just asserted, and nobody writes there as long as this is read.
        unsafe { std::slice::from_raw_parts(self.base.add(at as usize).as_ptr(), length as usize) }
    }
}

impl Drop for MappedRegion {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `new` and is not used any more.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes as usize) };
    }
}

fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

/// Wake-ups of the ring as separate events. Edge-triggered: data in the ring is not an event, since there nearly always
/// is some.
fn wakeups(map: &OwnedFd) -> io::Result<OwnedFd> {
    let events = epoll::create(CreateFlags::CLOEXEC)?;
    let flags = EventFlags::IN | EventFlags::ET;
    epoll::add(&events, map, epoll::EventData::new_u64(0), flags)?;
    Ok(events)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt as _;

    use super::*;

    const SIZE: u64 = 1 << 21;

    /// A file may stand in for the map of a ring: both are mapped in pages.
    struct Kernel {
        file: File,
        written: u64,
    }

    impl Kernel {
        fn new(begin: u64) -> (Self, Ring) {
            let file = tempfile::tempfile().unwrap();
            file.set_len(2 * page_bytes() + 2 * SIZE).unwrap();
            let mut kernel = Self { file, written: begin };
            kernel.file.write_all_at(&begin.to_ne_bytes(), 0).unwrap();
            kernel.publish();
            let mapped = |offset, protection| {
                MappedRegion::new(&kernel.file, offset, page_bytes(), protection).unwrap()
            };
            let read = mapped(0, ProtFlags::READ | ProtFlags::WRITE);
            let written = mapped(page_bytes(), ProtFlags::READ);
            let map = OwnedFd::from(kernel.file.try_clone().unwrap());
            // Nobody waits here, and a file cannot be waited for.
            let wakeups = map.try_clone().unwrap();
            (kernel, Ring { map, wakeups, read, written, size: SIZE, looked_at: 0 })
        }

        fn publish(&mut self) {
            self.file.write_all_at(&self.written.to_ne_bytes(), page_bytes()).unwrap();
        }

        /// Writes a record, in both copies of the data.
        fn write(&mut self, record: &[u8], bits: u32) {
            let header = (record.len() as u32 | bits).to_ne_bytes();
            let whole = [&header[..], &[0; 4], record].concat();
            for (n, byte) in (0u64..).zip(&whole) {
                let place = (self.written + n) % SIZE;
                for copy in [place, place + SIZE] {
                    self.file.write_all_at(&[*byte], 2 * page_bytes() + copy).unwrap();
                }
            }
            self.written += (whole.len() as u64).next_multiple_of(HEADER_BYTES);
            self.publish();
        }

        fn position(&self) -> u64 {
            let mut word = [0; 8];
            self.file.read_exact_at(&mut word, 0).unwrap();
            u64::from_ne_bytes(word)
        }
    }

    #[test]
    fn records_come_whole_from_any_position() {
        // At the beginning, across a page, across the end, and long after the first round.
        for begin in [0, page_bytes() - 16, SIZE - 8, SIZE - 24, 5 * SIZE + 4000] {
            let (mut kernel, mut ring) = Kernel::new(begin);
            assert!(ring.drain().unwrap().is_empty(), "from {begin}");
            kernel.write(b"first", 0);
            kernel.write(b"dropped", DISCARDED);
            kernel.write(b"the second, which is longer", 0);
            assert_eq!(ring.drain().unwrap(), b"firstthe second, which is longer", "from {begin}");
            assert_eq!(kernel.position(), kernel.written, "from {begin}");
            kernel.write(b"third", 0);
            assert_eq!(ring.drain().unwrap(), b"third", "from {begin}");
        }
    }

    #[test]
    fn a_record_that_is_being_written_waits() {
        let (mut kernel, mut ring) = Kernel::new(0);
        kernel.write(b"done", 0);
        let before = kernel.written;
        kernel.write(b"busy", BUSY);
        kernel.write(b"done", 0);
        assert_eq!(ring.drain().unwrap(), b"done");
        assert_eq!(kernel.position(), before);
        kernel.written = before;
        kernel.write(b"busy", 0);
        kernel.written += 16;
        kernel.publish();
        assert_eq!(ring.drain().unwrap(), b"busydone");
    }

    #[test]
    fn who_looks_ahead_sees_each_record_once_and_takes_none() {
        for begin in [0, SIZE - 24] {
            let (mut kernel, mut ring) = Kernel::new(begin);
            assert!(ring.look_ahead().unwrap().is_empty(), "from {begin}");
            kernel.write(b"first", 0);
            kernel.write(b"dropped", DISCARDED);
            kernel.write(b"second", 0);
            assert_eq!(ring.look_ahead().unwrap(), b"firstsecond", "from {begin}");
            assert!(ring.look_ahead().unwrap().is_empty(), "from {begin}");
            kernel.write(b"third", 0);
            assert_eq!((ring.look_ahead().unwrap(), kernel.position()), (b"third".to_vec(), begin));
            assert_eq!(ring.drain().unwrap(), b"firstsecondthird", "from {begin}");
            kernel.write(b"fourth", 0);
            assert_eq!(ring.look_ahead().unwrap(), b"fourth", "from {begin}");
        }
    }

    #[test]
    fn records_looked_at_may_leave_one_by_one() {
        let (mut kernel, mut ring) = Kernel::new(SIZE - 24);
        kernel.write(b"first", 0);
        // A window long, so that each window has one record.
        let length = WINDOW_BYTES_MAX - HEADER_BYTES;
        kernel.write(b"", length as u32 | DISCARDED);
        kernel.written += length;
        let before = kernel.written;
        kernel.write(b"second", BUSY);
        assert_eq!(ring.look_ahead().unwrap(), b"first");
        kernel.written = before;
        kernel.write(b"second", 0);
        assert_eq!(ring.look_ahead().unwrap(), b"second");
        let mut batch = Vec::new();
        assert!(ring.drain_window(&mut batch).unwrap());
        assert_eq!(batch, b"first");
        assert!(ring.look_ahead().unwrap().is_empty());
        kernel.write(b"third", 0);
        assert_eq!(ring.look_ahead().unwrap(), b"third");
        assert_eq!(ring.drain().unwrap(), b"secondthird");
    }

    #[test]
    fn a_record_longer_than_a_window_is_read() {
        let (mut kernel, mut ring) = Kernel::new(SIZE - 100 * HEADER_BYTES);
        let long = vec![7; WINDOW_BYTES_MAX as usize + 100];
        kernel.write(b"short", 0);
        kernel.write(&long, 0);
        kernel.write(b"short", 0);
        let batch = ring.drain().unwrap();
        assert_eq!(batch.len(), long.len() + 10);
        assert!(batch.starts_with(b"short\x07") && batch.ends_with(b"\x07short"));
    }

    #[test]
    fn records_read_before_an_error_are_kept() {
        let refused = || io::Error::from(io::ErrorKind::OutOfMemory);
        let windows = |before: usize| {
            let mut left = before;
            read_all(|batch| {
                left = left.checked_sub(1).ok_or_else(refused)?;
                batch.extend_from_slice(b"record");
                Ok(true)
            })
        };
        assert_eq!(windows(2).unwrap(), b"recordrecord");
        assert_eq!(windows(0).unwrap_err().kind(), io::ErrorKind::OutOfMemory);
    }

    #[test]
    fn nothing_stays_mapped_but_the_positions() {
        let (mut kernel, mut ring) = Kernel::new(0);
        kernel.write(b"record", 0);
        assert_eq!(ring.drain().unwrap(), b"record");
        let inode = std::os::unix::fs::MetadataExt::ino(&kernel.file.metadata().unwrap()).to_string();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        assert_eq!(maps.lines().filter(|line| line.split_whitespace().nth(4) == Some(&inode)).count(), 2);
    }
}
