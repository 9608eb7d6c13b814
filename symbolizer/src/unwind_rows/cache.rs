//! The disk cache of unwind tables.
//!
//! Owns: the key of an executable, and eviction. Because: attaching to a process with torch loaded needs millions of
//! rows, and reading them is many times faster than building them. Does not: choose the directory, or share it
//! between users: it must belong to the user of this process alone.
//!
//! One file per table ([`super::stored`]), `KEY.rows`, written under a temporary name and renamed, so that readers
//! never see an incomplete file. A corrupt file is removed, counted, and built again.

use std::fs::{self, File, OpenOptions};
use std::hash::Hasher as _;
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use rustc_hash::FxHasher;
use rustix::fs::OFlags;

use super::elf::{BUILD_ID_MAX, build_id};
pub use super::stored::{BLOCK_BYTES, BlockChecksum, SUM_AT, StoredTable, checksum, decode, encode};
use super::{NoTable, UnwindTable};

/// Suffix of a table.
const SUFFIX: &str = "rows";
/// Prefix of a file being written.
const TEMPORARY: &str = ".writing-";
/// Age after which a temporary file was left by a killed process.
const TEMPORARY_MAX_AGE: Duration = Duration::from_secs(600);
/// Resolution of the time of last use: a write for each use would be too expensive.
const USE_RESOLUTION: Duration = Duration::from_secs(600);
/// Most files examined while evicting: a machine has some thousand libraries.
const FILES_MAX: usize = 1 << 16;
/// Default bound of the directory: some hundred big libraries; torch and jax need 30 MB together.
pub const DEFAULT_BYTES: u64 = 512 << 20;

/// Identifies an executable by its content.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key(String);

impl Key {
    /// The key of an ELF file: its build-id and size, or a hash of all of its bytes and size when it has none.
    ///
    /// The size is part of the key because a stripped file keeps the build-id but may lose `.debug_frame`.
    pub fn of_elf(bytes: &[u8]) -> Self {
        match build_id(bytes) {
            Some(id) => Self::of_build_id(id, bytes.len() as u64),
            None => {
                let mut hasher = FxHasher::default();
                hasher.write(bytes);
                // Each hash is weak; together they have 96 bits.
                Self(format!("c{:016x}{:08x}-{:x}", hasher.finish(), crc32fast::hash(bytes), bytes.len()))
            }
        }
    }

    /// The key of a file with a build-id, without reading the file again.
    pub fn of_build_id(id: &[u8], file_bytes: u64) -> Self {
        use std::fmt::Write as _;
        let mut key = String::with_capacity(2 * id.len() + 18);
        key.push('b');
        for byte in id.iter().take(BUILD_ID_MAX) {
            // Writing to a string cannot fail.
            let _ = write!(key, "{byte:02x}");
        }
        let _ = write!(key, "-{file_bytes:x}");
        Self(key)
    }

    /// The key of a file without a build-id: a hash of its content, and its modification time, because the hash of a
    /// big file covers only parts of it.
    pub fn of_content(hash: u64, file_bytes: u64, modified_ns: i128) -> Self {
        Self(format!("h{hash:016x}-{file_bytes:x}-{modified_ns:x}"))
    }

    fn file_name(&self) -> String {
        format!("{}.{SUFFIX}", self.0)
    }
}

/// Counters since a cache was opened.
#[derive(Debug, Default)]
struct Counters {
    hits: AtomicU64,
    misses: AtomicU64,
    corrupt: AtomicU64,
    evicted: AtomicU64,
    failed: AtomicU64,
}

/// Values of the counters of a [`Cache`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounts {
    /// Tables read.
    pub hits: u64,
    /// Tables not found.
    pub misses: u64,
    /// Corrupt files removed.
    pub corrupt: u64,
    /// Files removed to stay within the bound.
    pub evicted: u64,
    /// Tables that could not be read or written (permissions, full disk, larger than the bound).
    pub failed: u64,
}

/// A directory of tables with a bound on its size. Several processes may use it at the same time.
#[derive(Debug)]
pub struct Cache {
    directory: PathBuf,
    max_bytes: u64,
    counters: Counters,
    /// Bytes of all tables, once counted. Locked while counting, so that threads do not count the same files.
    total: Mutex<Option<u64>>,
}

impl Cache {
    /// Opens (and creates, for this user only) a directory that holds at most `max_bytes` of tables.
    pub fn open(directory: &Path, max_bytes: u64) -> io::Result<Self> {
        use std::os::unix::fs::DirBuilderExt as _;
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let counters = Counters::default();
        Ok(Self { directory: directory.to_owned(), max_bytes, counters, total: Mutex::new(None) })
    }

    /// The table of an ELF file: read from the cache, or else built and stored. A failing cache costs time, never a
    /// table.
    pub fn load_or_build(&self, bytes: &[u8]) -> Result<UnwindTable, NoTable> {
        let key = Key::of_elf(bytes);
        if let Some(table) = self.load(&key) {
            return Ok(table);
        }
        let table = UnwindTable::from_elf(bytes)?;
        if let Err(error) = self.store(&key, &table) {
            tracing::debug!(%error, ?key, "unwind table not cached");
        }
        Ok(table)
    }

    /// The table stored under `key`.
    pub fn load(&self, key: &Key) -> Option<UnwindTable> {
        let table = self.open_table(key)?.into_table();
        if table.is_none() {
            self.discard(key);
        }
        table
    }

    /// The table stored under `key`, without its rows.
    pub fn open_table(&self, key: &Key) -> Option<StoredTable> {
        match self.open_file(key).and_then(StoredTable::open) {
            Ok(Some(table)) => {
                self.counters.hits.fetch_add(1, Ordering::Relaxed);
                return Some(table);
            }
            Ok(None) => self.discard(key),
            Err(error) => {
                let counter = match error.kind() {
                    ErrorKind::NotFound => &self.counters.misses,
                    _ => &self.counters.failed,
                };
                counter.fetch_add(1, Ordering::Relaxed);
            }
        }
        None
    }

    /// Removes a corrupt table.
    pub fn discard(&self, key: &Key) {
        self.counters.corrupt.fetch_add(1, Ordering::Relaxed);
        // Another process may have removed it first.
        let _ = fs::remove_file(self.directory.join(key.file_name()));
    }

    /// Stores a table atomically; removes the least recently used tables when the bound is exceeded.
    pub fn store(&self, key: &Key, table: &UnwindTable) -> io::Result<()> {
        self.write(key, table).inspect_err(|_| {
            self.counters.failed.fetch_add(1, Ordering::Relaxed);
        })
    }

    /// The counters since the cache was opened.
    pub fn counts(&self) -> CacheCounts {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CacheCounts {
            hits: get(&self.counters.hits),
            misses: get(&self.counters.misses),
            corrupt: get(&self.counters.corrupt),
            evicted: get(&self.counters.evicted),
            failed: get(&self.counters.failed),
        }
    }

    fn open_file(&self, key: &Key) -> io::Result<File> {
        // Neither follow a link out of the directory nor wait for a FIFO.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let path = self.directory.join(key.file_name());
        let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() || metadata.len() > self.max_bytes {
            return Err(io::Error::other("not a cached table"));
        }
        // The modification time is the time of last use; a read-only cache still works.
        if metadata.modified().is_ok_and(|at| at.elapsed().is_ok_and(|age| age > USE_RESOLUTION)) {
            let _ = file.set_modified(SystemTime::now());
        }
        Ok(file)
    }

    fn write(&self, key: &Key, table: &UnwindTable) -> io::Result<()> {
        let bytes = encode(table);
        if bytes.len() as u64 > self.max_bytes {
            return Err(io::Error::other("a table larger than the cache"));
        }
        static WRITTEN: AtomicU64 = AtomicU64::new(0);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.as_nanos());
        let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
        let temporary = self.directory.join(format!("{TEMPORARY}{}-{number}-{now:x}", std::process::id()));
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        let written = file
            .write_all(&bytes)
            .and_then(|()| fs::rename(&temporary, self.directory.join(key.file_name())));
        if let Err(error) = written {
            let _ = fs::remove_file(&temporary);
            return Err(error);
        }
        let mut total = self.total.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // Counted at the first write and when the bound is exceeded; other processes count their own writes.
        *total = match total.map(|total| total + bytes.len() as u64) {
            Some(total) if total <= self.max_bytes => Some(total),
            _ => Some(self.evict()?),
        };
        Ok(())
    }

    /// Removes the least recently used tables until the bound holds, and temporary files of killed writers. Returns the
    /// remaining bytes.
    fn evict(&self) -> io::Result<u64> {
        let mut total = 0;
        let mut tables = Vec::new();
        for entry in fs::read_dir(&self.directory)?.take(FILES_MAX) {
            let entry = entry?;
            let (path, name) = (entry.path(), entry.file_name());
            let Ok(metadata) = entry.metadata() else { continue };
            if !metadata.is_file() {
                continue;
            }
            let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            if path.extension().is_some_and(|suffix| suffix == SUFFIX) {
                total += metadata.len();
                tables.push((modified, metadata.len(), path));
            } else if name.to_string_lossy().starts_with(TEMPORARY)
                && modified.elapsed().is_ok_and(|age| age > TEMPORARY_MAX_AGE)
            {
                let _ = fs::remove_file(path);
            }
        }
        if total <= self.max_bytes {
            return Ok(total);
        }
        tables.sort_unstable_by_key(|(modified, ..)| *modified);
        for (_, bytes, path) in tables {
            if total <= self.max_bytes {
                break;
            }
            if fs::remove_file(path).is_ok() {
                self.counters.evicted.fetch_add(1, Ordering::Relaxed);
            }
            total -= bytes;
        }
        Ok(total)
    }
}
