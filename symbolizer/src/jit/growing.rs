//! Files of names that are read while they grow.
//!
//! Owns: where reading goes on, and noticing that a perf map was rewritten, replaced, or left by another process.
//! Because: perf maps have no header and no times, so only their place and content tell which code they name. Does not:
//! parse them.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::sync::Arc;
use std::time::Duration;

use deepctx_address_space::NoSymbol;

use super::names::NameSource;
use super::{DumpHeader, Jit, JitSymbol, Process, ReadTime, parse_perf_map, parse_records, perf_map};

/// Most bytes read of one file in total.
const FILE_BYTES_MAX: u64 = 256 << 20;
/// Bytes per read.
const READ_BYTES: usize = 1 << 20;
/// Shortest time between two looks at the path of a perf map that is open.
const REOPEN_INTERVAL: Duration = Duration::from_secs(10);
/// Bytes before the place where reading goes on that must be those read before. A line that is longer or shorter than
/// before moves all that follow, so they differ when an earlier part was rewritten.
const COMPARED_BYTES: usize = 4096;

/// A file that is read as it grows.
#[derive(Debug)]
pub(super) struct GrowingFile {
    file: File,
    offset: u64,
    /// Header of a jitdump; `None` for a perf map.
    header: Option<DumpHeader>,
    /// Nothing more is read of it.
    ended: bool,
    /// Most bytes read of it.
    bytes_max: u64,
    /// What stood before the offset of a perf map.
    last: Vec<u8>,
    /// Size and time of the last change when it was last looked at.
    seen: Option<Seen>,
    /// All of it was written before the process started.
    is_leftover: bool,
}

/// Size, and the last change in seconds and nanoseconds since 1970.
type Seen = (u64, (i64, i64));

fn seen(facts: &Metadata) -> Seen {
    (facts.len(), (facts.mtime(), facts.mtime_nsec()))
}

impl GrowingFile {
    /// A perf map, from its beginning.
    pub(super) fn map(file: File) -> Self {
        let (last, seen) = (Vec::new(), None);
        let bytes_max = FILE_BYTES_MAX;
        Self { file, offset: 0, header: None, ended: false, bytes_max, last, seen, is_leftover: false }
    }

    /// A perf map that an earlier process with the same number left. Of lines that are appended, only these are read:
    /// CPython appends, others rewrite the file.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn leftover(file: File) -> io::Result<Self> {
        let facts = file.metadata()?;
        let size = facts.len();
        let from = size.saturating_sub(COMPARED_BYTES as u64);
        let mut last = vec![0; (size - from) as usize];
        file.read_exact_at(&mut last, from)?;
        let seen = Some(seen(&facts));
        Ok(Self { offset: size, last, seen, is_leftover: true, ..Self::map(file) })
    }

    /// A jitdump, from behind its header.
    pub(super) fn dump(file: File, header: DumpHeader) -> Self {
        Self { offset: header.size.into(), header: Some(header), ..Self::map(file) }
    }

    /// Whether nothing in it is of this process.
    pub(super) const fn is_leftover(&self) -> bool {
        self.is_leftover
    }

    /// Whether it has no name anymore.
    fn is_deleted(&self) -> bool {
        self.file.metadata().is_ok_and(|facts| facts.nlink() == 0)
    }

    fn is(&self, other: &File) -> bool {
        let identity = |file: &File| file.metadata().ok().map(|facts| (facts.dev(), facts.ino()));
        identity(&self.file) == identity(other)
    }

    /// Whether a perf map is known to be rewritten without reading it: it is shorter than what was read, or was changed
    /// and is as long as before.
    fn is_rewritten(&mut self, facts: &Metadata) -> bool {
        let now = seen(facts);
        let before = self.seen.replace(now);
        let is_changed_in_place = before.is_some_and(|before| before.0 == now.0 && before.1 != now.1);
        self.header.is_none() && (facts.len() < self.offset || is_changed_in_place)
    }

    /// What follows, or `None` if what was read before stands there no longer. Both by one read, so that a rewrite
    /// between them cannot go unnoticed.
    fn read_on(&self) -> io::Result<Option<Vec<u8>>> {
        let mut buffer = vec![0; self.last.len() + READ_BYTES];
        let read = self.file.read_at(&mut buffer, self.offset.saturating_sub(self.last.len() as u64))?;
        buffer.truncate(read);
        if !buffer.starts_with(&self.last) {
            return Ok(None);
        }
        buffer.drain(..self.last.len());
        Ok(Some(buffer))
    }

    /// Goes on behind these bytes of a perf map.
    fn pass(&mut self, read: &[u8]) {
        self.offset += read.len() as u64;
        self.last.extend(&read[read.len().saturating_sub(COMPARED_BYTES)..]);
        self.last.drain(..self.last.len().saturating_sub(COMPARED_BYTES));
        self.is_leftover &= read.is_empty();
    }

    /// Nothing more is read of it.
    pub(super) const fn end(&mut self) {
        self.ended = true;
    }

    /// Back to the beginning of a perf map that was rewritten.
    fn restart(&mut self) {
        self.offset = 0;
        self.last.clear();
        (self.ended, self.is_leftover) = (false, false);
    }
}

impl Jit {
    /// Opens the perf map of a process, again if its path leads to another file by now: the names of the one before may
    /// be of code that is gone.
    pub(super) fn open_perf_map(&mut self, pid: u32, now: ReadTime, process: &mut Process) {
        let is_late = process.perf_map_opened_at.is_none_or(|at| at.is_before(now, REOPEN_INTERVAL));
        let is_due = |map: &GrowingFile| is_late || map.is_deleted();
        if !process.perf_map.as_ref().is_none_or(is_due) {
            return;
        }
        process.perf_map_opened_at = Some(now);
        let found = perf_map::open(pid).and_then(|found| {
            if process.perf_map.as_ref().is_some_and(|map| map.is(&found.file)) {
                return Ok(None);
            }
            let map = match found.is_leftover {
                true => GrowingFile::leftover(found.file).map_err(|error| NoSymbol::from_io(&error))?,
                false => GrowingFile::map(found.file),
            };
            Ok(Some(map))
        });
        match found {
            Ok(Some(map)) => {
                if process.perf_map.replace(map).is_some() {
                    self.forget_perf_map(process);
                }
            }
            Ok(None) | Err(NoSymbol::ModuleMissing | NoSymbol::ProcessGone) => {}
            Err(_) => self.counters.refused += 1,
        }
    }

    /// Reads what was added to a file.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn read_growth(&mut self, growing: &mut GrowingFile, process: &mut Process) -> io::Result<()> {
        let facts = growing.file.metadata()?;
        let size = facts.len().min(growing.bytes_max);
        let mut is_lost = false;
        let mut is_restarted = growing.is_rewritten(&facts);
        if is_restarted {
            growing.restart();
            self.forget_perf_map(process);
        }
        while growing.offset < size && !growing.ended {
            let Some(buffer) = growing.read_on()? else {
                growing.restart();
                self.forget_perf_map(process);
                // A file that is rewritten all the time is read by the next lookup.
                if std::mem::replace(&mut is_restarted, true) {
                    break;
                }
                continue;
            };
            let before = growing.offset;
            match growing.header {
                None => {
                    let map = parse_perf_map(&buffer);
                    self.counters.malformed += map.malformed;
                    growing.pass(&buffer[..map.consumed]);
                    for entry in map.entries {
                        self.add(process, 0, entry.begin, entry.size, &entry.name);
                    }
                }
                Some(header) => {
                    let records = parse_records(&buffer, header);
                    self.counters.malformed += records.malformed;
                    growing.offset = growing.offset.saturating_add(records.next);
                    growing.ended = records.ended;
                    is_lost = records.ended && !records.closed;
                    for event in records.events {
                        self.apply(process, event);
                    }
                }
            }
            if growing.offset == before {
                // An incomplete line or record: the rest is not written yet. A full buffer without a line end stays
                // incomplete.
                is_lost |= buffer.len() == READ_BYTES;
                self.counters.malformed += u64::from(is_lost);
                break;
            }
        }
        let is_too_long = !growing.ended && facts.len() > size && growing.offset >= size;
        if is_lost || is_too_long {
            if is_too_long {
                process.left_out.add_anywhere();
            }
            self.give_up(growing, process);
        }
        Ok(())
    }

    /// Reads no more of a file, and drops its names: the rest may name other code at the same addresses, and samples
    /// from before its last record have been named.
    fn give_up(&mut self, growing: &mut GrowingFile, process: &mut Process) {
        growing.end();
        // Once: a process may rewrite its map as often as it likes.
        if !std::mem::replace(&mut process.is_loss_reported, true) {
            tracing::warn!(
                user = process.user(),
                read_bytes = growing.offset,
                "a file of names of generated code is too long or damaged; from now on its code has no names"
            );
        }
        self.forget_file(process, growing.header.is_some_and(|header| header.monotonic));
    }

    /// Drops the names from a perf map.
    fn forget_perf_map(&mut self, process: &mut Process) {
        self.forget_file(process, false);
    }

    /// Drops the names from a file. A perf map has no times, unlike a jitdump; registered and cached functions have
    /// their own names.
    fn forget_file(&mut self, process: &mut Process, has_times: bool) {
        let names = &self.names;
        let is_of_file = |since_ns, symbol: JitSymbol| {
            let source = names.get(symbol).map(|entry| entry.source);
            (since_ns != 0) == has_times && matches!(source, Some(NameSource::File))
        };
        let dropped =
            Arc::make_mut(&mut process.table).retain(|since_ns, symbol| !is_of_file(since_ns, symbol));
        self.release_ranges(process, dropped);
    }

    /// Gives back the room of ranges that were dropped.
    pub(super) fn release_ranges(&mut self, process: &mut Process, dropped: usize) {
        process.is_renamed |= dropped > 0;
        self.give_ranges(process, dropped);
    }

    /// Gives back the room of ranges that other code may have replaced.
    pub(super) fn give_ranges(&mut self, process: &mut Process, dropped: usize) {
        process.ranges = process.ranges.saturating_sub(dropped);
        self.range_shares.give(process.user(), dropped);
        self.names.release(dropped);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    /// Expects this name of the code at 0x1000, which the file named first, after more was written behind that.
    #[track_caller]
    fn check(behind: &[u8], bytes_max: u64, expect: Option<&str>) {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"1000 10 first\n").unwrap();
        let (mut jit, mut process) = (Jit::new(), Process::default());
        let mut growing = GrowingFile { bytes_max, ..GrowingFile::map(file.try_clone().unwrap()) };
        jit.read_growth(&mut growing, &mut process).unwrap();
        assert_eq!(process.ranges, 1);
        file.write_all(behind).unwrap();
        jit.read_growth(&mut growing, &mut process).unwrap();
        let found = process.table.lookup(0x1008, 0);
        assert_eq!(found.and_then(|symbol| jit.name(symbol)), expect);
        assert_eq!(process.ranges, process.table.len());
    }

    #[test]
    fn a_file_not_read_to_its_end_names_nothing() {
        check(b"2000 10 second\n", FILE_BYTES_MAX, Some("first"));
        check(b"1000 10 second\n1000 1", FILE_BYTES_MAX, Some("second"));
        // Behind a line without an end, or beyond the bound, there may be another name of this code.
        check(&vec![b'x'; READ_BYTES + 1], FILE_BYTES_MAX, None);
        check(b"2000 10 second\n", 20, None);
    }

    #[test]
    fn a_file_that_is_given_up_is_reported_once() {
        let (mut jit, mut process) = (Jit::new(), Process::default());
        let mut growing = GrowingFile::map(tempfile::tempfile().unwrap());
        jit.read_growth(&mut growing, &mut process).unwrap();
        assert!(!process.is_loss_reported && !growing.ended);
        growing.file.set_len(READ_BYTES as u64 + 1).unwrap();
        jit.read_growth(&mut growing, &mut process).unwrap();
        assert!(process.is_loss_reported && growing.ended);
    }
}
