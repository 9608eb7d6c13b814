//! The file format of unwind tables.
//!
//! Owns: the format, and reading it in two parts: first the header, which says how much room the rows need, then the
//! rows, directly into the memory of the BPF maps. Because: a process that trains a model has 16 MB of rows, and each
//! copy of them costs more than reading the disk. Does not: choose names or folders ([`super::cache`]).
//!
//! ```text
//! magic 8 │ format u32 │ first page u32 │ pages u32 │ blocks u32 │ rules u32 │ CRC-32 of the rest │
//! counters COUNTS × u64 │ rules × 16 │ pages × 8 │ blocks × 64            (little-endian)
//! ```

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt as _;

use crc32fast::Hasher;
use deepctx_common::Plain;
use deepctx_common::unwind::{
    BLOCKS_PER_SHARD, PAGES_MAX, Page, ROWS_PER_BLOCK, RowBlock, Rule, SHARDS_MAX, row,
};

use super::UnwindTable;
use super::stats::{BuildStats, COUNTS};

/// The first bytes of a file.
const MAGIC: [u8; 8] = *b"dctxrows";
/// Version of the format and of the meaning of rows; a change of either invalidates old files.
const FORMAT: u32 = 13;
/// Bytes before the counters.
const HEADER_BYTES: usize = 32;
/// Offset of the checksum, the last field of the header (public for tests).
pub const SUM_AT: usize = HEADER_BYTES - 4;
/// Bytes of a block.
pub const BLOCK_BYTES: usize = size_of::<RowBlock>();
/// Blocks of a page with a row at each address.
const MAX_PAGE_BLOCKS: u16 = ((1 << 16) / ROWS_PER_BLOCK) as u16;

/// A table whose rows have not been read yet.
#[derive(Debug)]
pub struct StoredTable {
    file: File,
    header: Header,
}

/// A file read from its start, independent of its position.
struct FileBytes<'f> {
    file: &'f File,
    at: u64,
}

impl Read for FileBytes<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(into, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

/// The file except for the rows.
#[derive(Debug)]
struct Header {
    first_page: u32,
    rules: Vec<Rule>,
    pages: Vec<Page>,
    stats: BuildStats,
    blocks: u32,
    /// Bytes before the blocks.
    bytes: usize,
    /// The checksum in the file.
    expected_sum: u32,
    /// The checksum of the header.
    sum: Hasher,
}

/// The checksum of valid blocks that were read, for [`StoredTable::is_complete`].
#[derive(Clone, Debug)]
pub struct BlockChecksum(Hasher);

impl StoredTable {
    /// Reads the file except for the rows. `None`: the file is corrupt, or has another format.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn open(file: File) -> io::Result<Option<Self>> {
        let mut fixed = [0; HEADER_BYTES];
        let length = file.metadata()?.len();
        if length < HEADER_BYTES as u64 {
            return Ok(None);
        }
        file.read_exact_at(&mut fixed, 0)?;
        let Some((bytes, blocks)) = lengths(&fixed) else { return Ok(None) };
        if length != bytes as u64 + u64::from(blocks) * BLOCK_BYTES as u64 {
            return Ok(None);
        }
        let mut header = vec![0; bytes];
        file.read_exact_at(&mut header, 0)?;
        Ok(Header::read(&header).map(|header| Self { file, header }))
    }

    /// Stated address of the first page, >> [`deepctx_common::unwind::PAGE_SHIFT`].
    pub fn first_page(&self) -> u32 {
        self.header.first_page
    }

    /// Pages, as [`UnwindTable::pages`].
    pub fn pages(&self) -> &[Page] {
        &self.header.pages
    }

    /// Rules, as [`UnwindTable::rules`].
    pub fn rules(&self) -> &[Rule] {
        &self.header.rules
    }

    /// Bytes of the whole file.
    pub(super) fn length(&self) -> u64 {
        self.header.bytes as u64 + u64::from(self.header.blocks) * BLOCK_BYTES as u64
    }

    /// All bytes of the file, from the first.
    pub(super) fn bytes(&self) -> impl Read {
        FileBytes { file: &self.file, at: 0 }
    }

    /// Reads as many blocks as fit into `into`, from the block `first` on. `None`: they cannot be read or are corrupt.
    pub fn read_blocks(&self, first: u32, into: &mut [u8]) -> Option<BlockChecksum> {
        let at = self.header.bytes as u64 + u64::from(first) * BLOCK_BYTES as u64;
        self.file.read_exact_at(into, at).ok()?;
        self.header.check(into)
    }

    /// Whether these parts, in this order, are exactly the stored rows.
    pub fn is_complete<'p>(&self, parts: impl IntoIterator<Item = &'p BlockChecksum>) -> bool {
        self.header.is_complete(parts)
    }

    /// The complete table; `None` when the rows are corrupt.
    pub(super) fn into_table(self) -> Option<UnwindTable> {
        let mut bytes = vec![0; self.header.blocks as usize * BLOCK_BYTES];
        let part = self.read_blocks(0, &mut bytes)?;
        self.header.is_complete([&part]).then(|| self.header.with_rows(&bytes))
    }
}

/// Bytes before the blocks and number of blocks, from the fixed header; `None` when it is invalid.
fn lengths(header: &[u8; HEADER_BYTES]) -> Option<(usize, u32)> {
    let word = |at: usize| Some(u32::from_le_bytes(*header.get(at..)?.first_chunk()?));
    if !header.starts_with(&MAGIC) || word(8)? != FORMAT {
        return None;
    }
    let [pages, blocks, rules] = [word(16)?, word(20)?, word(24)?];
    if pages > PAGES_MAX || blocks > SHARDS_MAX * BLOCKS_PER_SHARD || rules > u32::from(u16::MAX) + 1 {
        return None;
    }
    let bytes =
        HEADER_BYTES + COUNTS * 8 + rules as usize * size_of::<Rule>() + pages as usize * size_of::<Page>();
    Some((bytes, blocks))
}

impl Header {
    /// Parses the start of a file.
    fn read(file: &[u8]) -> Option<Self> {
        let fixed = file.first_chunk::<HEADER_BYTES>()?;
        let (bytes, blocks) = lengths(fixed)?;
        let header = file.get(..bytes)?;
        let word = |at: usize| Some(u32::from_le_bytes(*fixed.get(at..)?.first_chunk()?));
        let mut rest = &header[HEADER_BYTES..];
        let mut take = |count: usize, size: usize| rest.split_off(..count.checked_mul(size)?);
        let mut counts = [0; COUNTS];
        for (count, bytes) in counts.iter_mut().zip(take(COUNTS, 8)?.as_chunks().0) {
            *count = u64::from_le_bytes(*bytes);
        }
        let rules = plain(take(word(24)? as usize, size_of::<Rule>())?)?;
        let pages: Vec<Page> = plain(take(word(16)? as usize, size_of::<Page>())?)?;
        // Pages refer to existing blocks, without gaps.
        let mut next = 0;
        for page in &pages {
            if page.first_block != next || page.shard != 0 || page.blocks > MAX_PAGE_BLOCKS {
                return None;
            }
            next += u32::from(page.blocks);
        }
        let stats = BuildStats::from_words(counts);
        let (first_page, expected_sum, sum) = (word(12)?, word(SUM_AT)?, sum_without_field(header)?);
        (next == blocks).then_some(Self { first_page, rules, pages, stats, blocks, bytes, expected_sum, sum })
    }

    /// Validates complete blocks: rows are sorted and refer to existing rules.
    fn check(&self, blocks: &[u8]) -> Option<BlockChecksum> {
        let (blocks, rest) = blocks.as_chunks::<BLOCK_BYTES>();
        // Without branches, so that the compiler vectorizes it.
        let (mut sorted, mut last_rule) = (true, 0);
        for block in blocks {
            let rows = rows_of(block);
            for at in 1..ROWS_PER_BLOCK {
                sorted &= rows[at - 1] <= rows[at];
            }
            for row in rows {
                last_rule = last_rule.max(row & u32::from(u16::MAX));
            }
        }
        let known = blocks.is_empty() || (last_rule as usize) < self.rules.len();
        if !rest.is_empty() || !sorted || !known {
            return None;
        }
        let mut sum = Hasher::new();
        sum.update(blocks.as_flattened());
        Some(BlockChecksum(sum))
    }

    fn is_complete<'p>(&self, parts: impl IntoIterator<Item = &'p BlockChecksum>) -> bool {
        let mut sum = self.sum.clone();
        for BlockChecksum(part) in parts {
            sum.combine(part);
        }
        sum.finalize() == self.expected_sum
    }

    fn with_rows(self, blocks: &[u8]) -> UnwindTable {
        let blocks = blocks.as_chunks::<BLOCK_BYTES>().0.iter().map(rows_of).collect();
        let Self { first_page, rules, pages, stats, .. } = self;
        UnwindTable { first_page, pages, blocks, rules, stats }
    }
}

fn rows_of(block: &[u8; BLOCK_BYTES]) -> RowBlock {
    let (rows, _) = block.as_chunks::<4>();
    std::array::from_fn(|at| u32::from_le_bytes(rows[at]))
}

const _: () = assert!(row::pack(0, u16::MAX) == u16::MAX as u32, "a row's rule is its low half");

/// The bytes of the file that holds `table`.
pub fn encode(table: &UnwindTable) -> Vec<u8> {
    let size = HEADER_BYTES
        + COUNTS * 8
        + size_of_val(&table.rules[..])
        + size_of_val(&table.pages[..])
        + size_of_val(&table.blocks[..]);
    let mut bytes = Vec::with_capacity(size);
    bytes.extend(MAGIC);
    // The limits of a table are far below 2^32.
    let counts = [table.pages.len(), table.blocks.len(), table.rules.len()].map(|count| count as u32);
    for word in [FORMAT, table.first_page].into_iter().chain(counts) {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend([0; 4]);
    bytes.extend(table.stats.words().iter().flat_map(|count| count.to_le_bytes()));
    // These have the layout of the BPF maps, which is little-endian.
    for rule in &table.rules {
        bytes.extend_from_slice(rule.as_bytes());
    }
    for page in &table.pages {
        bytes.extend_from_slice(page.as_bytes());
    }
    for block in &table.blocks {
        bytes.extend_from_slice(bytes_of(block).as_flattened());
    }
    let sum = checksum(&bytes).unwrap_or_default();
    bytes[SUM_AT..HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// A block as in the file and the BPF maps.
pub(super) fn bytes_of(block: &RowBlock) -> [[u8; 4]; ROWS_PER_BLOCK] {
    block.map(u32::to_le_bytes)
}

/// CRC-32 of the file without the checksum field; `None` when the header is incomplete.
pub fn checksum(bytes: &[u8]) -> Option<u32> {
    Some(sum_without_field(bytes)?.finalize())
}

fn sum_without_field(bytes: &[u8]) -> Option<Hasher> {
    let mut hasher = Hasher::new();
    hasher.update(bytes.get(..SUM_AT)?);
    hasher.update(bytes.get(HEADER_BYTES..)?);
    Some(hasher)
}

/// The table in the bytes of a file, if all of it is valid: it is loaded into the kernel as it is.
pub fn decode(bytes: &[u8]) -> Option<UnwindTable> {
    let header = Header::read(bytes)?;
    let rows = &bytes[header.bytes..];
    if rows.len() != header.blocks as usize * BLOCK_BYTES {
        return None;
    }
    let part = header.check(rows)?;
    header.is_complete([&part]).then(|| header.with_rows(rows))
}

fn plain<T: Plain>(bytes: &[u8]) -> Option<Vec<T>> {
    bytes.chunks_exact(size_of::<T>()).map(T::read_from).collect()
}
