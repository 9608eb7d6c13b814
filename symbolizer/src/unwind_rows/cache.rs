//! The disk cache of unwind tables.
//!
//! Owns: the key of a file, and eviction. Because: attaching to a process with torch loaded needs millions of
//! rows, and reading them is many times faster than building them. Does not: choose the directory, or share it
//! between users: it must belong to the user of this process alone.
//!
//! One file per table ([`super::stored`]), `KEY.rows`, written under a temporary name and renamed, so that readers
//! never see an incomplete file. A corrupt file is removed, counted, and built again.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use deepctx_address_space::FileVersion;
use rustix::fs::OFlags;

use super::UnwindTable;
use super::builder::BuiltTable;
pub use super::stored::{BLOCK_BYTES, BlockChecksum, SUM_AT, StoredTable, checksum, decode, encode};

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

/// Identifies one version of one file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key(String);

impl Key {
    /// The key of a file.
    ///
    /// Not its build-id: anyone who maps a copy of a library with other unwind data could leave a table for the
    /// real one. Nor a hash of its frame sections: rows are also derived from code and headers, and hashing all of a
    /// big library takes longer than building its table. The [version](FileVersion) costs no read, and nobody but the
    /// owner of a file can make one that equals it. Copies have tables of their own.
    pub fn of_file(version: &FileVersion) -> Self {
        let FileVersion { device, inode, size, modified_ns, changed_ns, owner, foreign, .. } = version;
        let mut key = format!("v{owner:x}-{inode:x}-{size:x}-{modified_ns:x}-{changed_ns:x}");
        // The other disks' numbers change from boot to boot and from container to container, and add nothing.
        if *foreign {
            use std::fmt::Write as _;
            // Writing to a string cannot fail.
            let _ = write!(key, "-f{device:x}");
        }
        Self(key)
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
        let bytes = encode(table);
        self.write(key, bytes.len() as u64, &mut bytes.as_slice())
    }

    /// As [`Self::store`]. Whether its rows are whole shows when it is read.
    pub fn store_built(&self, key: &Key, table: &BuiltTable) -> io::Result<()> {
        match table {
            BuiltTable::Here(table) => self.store(key, table),
            BuiltTable::Sealed(table) => self.write(key, table.length(), &mut table.bytes()),
        }
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

    fn write(&self, key: &Key, length: u64, bytes: &mut impl Read) -> io::Result<()> {
        self.try_write(key, length, bytes).inspect_err(|_| {
            self.counters.failed.fetch_add(1, Ordering::Relaxed);
        })
    }

    fn try_write(&self, key: &Key, length: u64, bytes: &mut impl Read) -> io::Result<()> {
        if length > self.max_bytes {
            return Err(io::Error::other("a table larger than the cache"));
        }
        static WRITTEN: AtomicU64 = AtomicU64::new(0);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.as_nanos());
        let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
        let temporary = self.directory.join(format!("{TEMPORARY}{}-{number}-{now:x}", std::process::id()));
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        let written = io::copy(bytes, &mut file)
            .and_then(|_| fs::rename(&temporary, self.directory.join(key.file_name())));
        if let Err(error) = written {
            let _ = fs::remove_file(&temporary);
            return Err(error);
        }
        let mut total = self.total.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // Counted at the first write and when the bound is exceeded; other processes count their own writes.
        *total = match total.map(|total| total + length) {
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
