//! Unwind tables on disk.
//!
//! Owns: the key of an executable, the file format, what is evicted. Because: attaching to a process with torch
//! loaded needs millions of rows; reading them back is many times faster than building them.
//! Does not: choose the directory, share it between users: it must belong to the user of this process alone.
//!
//! One file per table, `KEY.rows`, written under a temporary name and renamed, so that readers see all or nothing:
//! ```text
//! magic 8 │ format u32 │ first page u32 │ pages u32 │ blocks u32 │ rules u32 │ CRC-32 of the rest │
//! counters COUNTS × u64 │ rules × 16 │ pages × 8 │ blocks × 64            (little-endian)
//! ```
//! A file that is damaged in any way is removed, counted, and built anew.

use std::fs::{self, OpenOptions};
use std::hash::Hasher as _;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use deepctx_common::Plain;
use deepctx_common::unwind::{
    BLOCKS_PER_SHARD, PAGES_MAX, Page, ROWS_PER_BLOCK, RowBlock, Rule, SHARDS_MAX, row,
};
use rustc_hash::FxHasher;
use rustix::fs::OFlags;

use super::elf::{BUILD_ID_MAX, build_id};
use super::stats::{BuildStats, COUNTS};
use super::{NoTable, UnwindTable};

/// First bytes of a file.
const MAGIC: [u8; 8] = *b"dctxrows";
/// Format of the file and meaning of rows; raised when either changes, which makes old files useless.
const FORMAT: u32 = 2;
/// Bytes before the counters.
const HEADER_BYTES: usize = 32;
/// Where the checksum stands, the last of the header (for tests that want to come past it).
pub const SUM_AT: usize = HEADER_BYTES - 4;
/// Suffix of a table.
const SUFFIX: &str = "rows";
/// Prefix of a file being written.
const TEMPORARY: &str = ".writing-";
/// Age after which a file being written is what a killed process left.
const TEMPORARY_MAX_AGE: Duration = Duration::from_secs(600);
/// Most files looked at while evicting: a table has at least 200 bytes, a machine some thousand libraries.
const FILES_MAX: usize = 1 << 16;
/// Default bound of the directory: some hundred big libraries; torch and jax need 30 MB together.
pub const DEFAULT_BYTES: u64 = 512 << 20;

/// Names an executable by what it contains.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key(String);

impl Key {
    /// The key of an ELF file: its build-id and size, or a hash of all of its bytes and size when it has none.
    ///
    /// The size is part of it because a stripped file keeps the build-id but may lose `.debug_frame`.
    pub fn of_elf(bytes: &[u8]) -> Self {
        match build_id(bytes) {
            Some(id) => Self::of_build_id(id, bytes.len() as u64),
            None => {
                let mut hasher = FxHasher::default();
                hasher.write(bytes);
                // Neither is meant for much on its own; together they are 96 bits.
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

    fn file_name(&self) -> String {
        format!("{}.{SUFFIX}", self.0)
    }
}

/// What happened to a cache since it was opened.
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
    /// Tables looked for in vain.
    pub misses: u64,
    /// Damaged files removed.
    pub corrupt: u64,
    /// Files removed to keep the bound.
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
    /// Held while evicting, so that threads do not count the same files.
    evicting: Mutex<()>,
}

impl Cache {
    /// Opens (and creates, for this user only) a directory that holds at most `max_bytes` of tables.
    pub fn open(directory: &Path, max_bytes: u64) -> io::Result<Self> {
        use std::os::unix::fs::DirBuilderExt as _;
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let cache = Self {
            directory: directory.to_owned(),
            max_bytes,
            counters: Counters::default(),
            evicting: Mutex::new(()),
        };
        cache.evict()?;
        Ok(cache)
    }

    /// The table of an ELF file, read or else built and stored. A cache that fails costs time, never a table.
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
        let path = self.directory.join(key.file_name());
        let bytes = match self.read(&path) {
            Ok(bytes) => bytes,
            Err(error) => {
                let counter = match error.kind() {
                    ErrorKind::NotFound => &self.counters.misses,
                    _ => &self.counters.failed,
                };
                counter.fetch_add(1, Ordering::Relaxed);
                return None;
            }
        };
        let table = decode(&bytes);
        if table.is_some() {
            self.counters.hits.fetch_add(1, Ordering::Relaxed);
        } else {
            self.counters.corrupt.fetch_add(1, Ordering::Relaxed);
            // Another process may have removed it first.
            let _ = fs::remove_file(&path);
        }
        table
    }

    /// Stores a table, atomically; removes the tables that were not used for longest when the bound is exceeded.
    pub fn store(&self, key: &Key, table: &UnwindTable) -> io::Result<()> {
        self.write(key, table).inspect_err(|_| {
            self.counters.failed.fetch_add(1, Ordering::Relaxed);
        })
    }

    /// What happened since the cache was opened.
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

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        // Neither follow a link out of the directory nor wait for the writer of a pipe.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() || metadata.len() > self.max_bytes {
            return Err(io::Error::other("not a cached table"));
        }
        let mut bytes = Vec::with_capacity(metadata.len() as usize);
        // It may grow while it is read.
        (&file).take(self.max_bytes).read_to_end(&mut bytes)?;
        // Its age says when it was last used; a cache that may only be read still works.
        let _ = file.set_modified(SystemTime::now());
        Ok(bytes)
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
        self.evict()
    }

    /// Removes what was not used for longest until the bound holds, and what killed writers left.
    fn evict(&self) -> io::Result<()> {
        let _alone = self.evicting.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
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
            return Ok(());
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
        Ok(())
    }
}

/// The bytes of the file that holds `table`.
pub fn encode(table: &UnwindTable) -> Vec<u8> {
    let size = HEADER_BYTES
        + COUNTS * 8
        + size_of_val(&table.rules[..])
        + size_of_val(&table.pages[..])
        + size_of_val(&table.blocks[..]);
    let mut bytes = Vec::with_capacity(size);
    bytes.extend(MAGIC);
    // All of them are limited far below 2^32 when a table is built.
    let counts = [table.pages.len(), table.blocks.len(), table.rules.len()].map(|count| count as u32);
    for word in [FORMAT, table.first_page].into_iter().chain(counts) {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend([0; 4]);
    bytes.extend(table.stats.words().iter().flat_map(|count| count.to_le_bytes()));
    // These are laid out for the kernel of this machine, which is little-endian x86-64.
    for rule in &table.rules {
        bytes.extend_from_slice(rule.as_bytes());
    }
    for page in &table.pages {
        bytes.extend_from_slice(page.as_bytes());
    }
    for block in &table.blocks {
        let mut of_block = [[0; 4]; ROWS_PER_BLOCK];
        for (bytes, row) in of_block.iter_mut().zip(block) {
            *bytes = row.to_le_bytes();
        }
        bytes.extend_from_slice(of_block.as_flattened());
    }
    let sum = checksum(&bytes).unwrap_or_default();
    bytes[SUM_AT..HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// CRC-32 of the header before the checksum and all that follows it; `None` when there is no whole header.
pub fn checksum(bytes: &[u8]) -> Option<u32> {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(bytes.get(..SUM_AT)?);
    hasher.update(bytes.get(HEADER_BYTES..)?);
    Some(hasher.finalize())
}

/// The table in the bytes of a file, if every part of it is sound: the kernel is given what is in here.
pub fn decode(bytes: &[u8]) -> Option<UnwindTable> {
    let word = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    if !bytes.starts_with(&MAGIC) || word(8)? != FORMAT || word(SUM_AT)? != checksum(bytes)? {
        return None;
    }
    let first_page = word(12)?;
    let [pages, blocks, rules] = [word(16)?, word(20)?, word(24)?];
    if pages > PAGES_MAX || blocks > SHARDS_MAX * BLOCKS_PER_SHARD || rules > u32::from(u16::MAX) + 1 {
        return None;
    }
    let mut rest = &bytes[HEADER_BYTES..];
    let mut take = |count: usize, size: usize| rest.split_off(..count.checked_mul(size)?);
    let mut counts = [0; COUNTS];
    for (count, bytes) in counts.iter_mut().zip(take(COUNTS, 8)?.as_chunks().0) {
        *count = u64::from_le_bytes(*bytes);
    }
    let rules = plain(take(rules as usize, size_of::<Rule>())?)?;
    let pages: Vec<Page> = plain(take(pages as usize, size_of::<Page>())?)?;
    let blocks: Vec<RowBlock> = take(blocks as usize, size_of::<RowBlock>())?
        .as_chunks::<{ size_of::<RowBlock>() }>()
        .0
        .iter()
        .map(|block| {
            let (rows, _) = block.as_chunks::<4>();
            std::array::from_fn(|at| u32::from_le_bytes(rows[at]))
        })
        .collect();
    let table = UnwindTable { first_page, pages, blocks, rules, stats: BuildStats::from_words(counts) };
    (rest.is_empty() && table.is_sound()).then_some(table)
}

fn plain<T: Plain>(bytes: &[u8]) -> Option<Vec<T>> {
    bytes.chunks_exact(size_of::<T>()).map(T::read_from).collect()
}

impl UnwindTable {
    /// Pages name blocks that exist, blocks follow one another, rows are sorted and name rules that exist.
    fn is_sound(&self) -> bool {
        let mut next = 0;
        for page in &self.pages {
            if page.first_block != next || page.shard != 0 || page.blocks > MAX_PAGE_BLOCKS {
                return false;
            }
            next += u32::from(page.blocks);
        }
        next as usize == self.blocks.len()
            && self.blocks.iter().all(|block| {
                block.is_sorted() && block.iter().all(|&row| usize::from(row::rule(row)) < self.rules.len())
            })
    }
}

/// Blocks of a page with a row at every address.
const MAX_PAGE_BLOCKS: u16 = ((1 << 16) / ROWS_PER_BLOCK) as u16;
