//! Rows: unwind rows in the kernel's shards.
//!
//! Owns: the shards, which blocks of them are in use, and filling them, many tables at a time. Because: rows are
//! nearly all of the data read and written before the first sample; they go from the file straight into the kernel's
//! memory. Does not: know executables or processes; rows are invisible to the kernel programs until a table entry
//! points to them.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd as _, AsRawFd as _};

use deepctx_common::Plain as _;
use deepctx_common::config::map;
use deepctx_common::unwind::{BLOCKS_PER_SHARD, Page, RowBlock, Rule, SHARDS_MAX};
use deepctx_symbolizer::unwind_rows::UnwindTable;
use deepctx_symbolizer::unwind_rows::builder::BuiltTable;
use deepctx_symbolizer::unwind_rows::cache::{BlockChecksum, StoredTable};
use libbpf_rs::{MapCore as _, MapFlags, MapHandle, MapType};
use rayon::prelude::*;

use super::arena::Arena;
use super::room::Room;
use super::shared_array::SharedArray;
use super::table_error::{TableError, map_error};
use super::table_shares::Slots;

/// A table, with its rows in memory or in a file.
#[derive(Debug)]
pub(crate) enum Table {
    /// In memory.
    Built(Box<UnwindTable>),
    /// In a file.
    Stored(Box<StoredTable>),
}

impl From<BuiltTable> for Table {
    fn from(table: BuiltTable) -> Self {
        match table {
            BuiltTable::Here(table) => Self::Built(table),
            BuiltTable::Sealed(table) => Self::Stored(table),
        }
    }
}

impl From<UnwindTable> for Table {
    fn from(table: UnwindTable) -> Self {
        Self::Built(Box::new(table))
    }
}

impl Table {
    /// Stated address of the first page.
    pub(crate) fn first_page(&self) -> u32 {
        match self {
            Self::Built(table) => table.first_page(),
            Self::Stored(table) => table.first_page(),
        }
    }

    /// Its pages.
    pub(crate) fn pages(&self) -> &[Page] {
        match self {
            Self::Built(table) => table.pages(),
            Self::Stored(table) => table.pages(),
        }
    }

    /// Its rules.
    pub(crate) fn rules(&self) -> &[Rule] {
        match self {
            Self::Built(table) => table.rules(),
            Self::Stored(table) => table.rules(),
        }
    }

    /// Slots that it takes.
    pub(crate) fn slots(&self) -> Slots {
        let (pages, rules) = (self.pages(), self.rules());
        let blocks = pages.iter().map(|page| usize::from(page.blocks)).sum();
        Slots::new([
            (Room::Executables, 1),
            (Room::Pages, pages.len()),
            (Room::Rules, rules.len()),
            (Room::Rows, blocks),
        ])
    }

    fn fill(&self, first: u32, into: &mut [u8]) -> FillOutcome {
        match self {
            Self::Built(table) => {
                table.copy_blocks(first, into);
                FillOutcome::Copied
            }
            Self::Stored(table) => {
                table.read_blocks(first, into).map_or(FillOutcome::Damaged, FillOutcome::Read)
            }
        }
    }

    /// Whether the copied rows are those of the table. Parts are in order.
    fn is_whole(&self, parts: &[FillOutcome]) -> bool {
        let read = parts.iter().filter_map(|part| match part {
            FillOutcome::Read(part) => Some(part),
            FillOutcome::Copied | FillOutcome::Damaged => None,
        });
        match self {
            Self::Built(_) => true,
            Self::Stored(table) => table.is_complete(read),
        }
    }
}

/// Result of filling a run of blocks.
#[derive(Debug)]
enum FillOutcome {
    Copied,
    Read(BlockChecksum),
    Damaged,
}

/// Why the rows of a table were not placed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotPlaced {
    /// There is no room, or the kernel refuses.
    #[error(transparent)]
    Tables(#[from] TableError),
    /// They are damaged: the table must be built again.
    #[error("the stored rows are damaged")]
    Damaged,
}

/// Rows of a table in the shards.
#[derive(Debug)]
pub(crate) struct PlacedRows {
    /// Pages that point into the shards.
    pub pages: Vec<Page>,
    /// Blocks in use, to be given back.
    pub blocks: Vec<Range<u32>>,
}

/// Consecutive blocks of a table that are consecutive in a shard too.
struct Run {
    table: usize,
    /// First block in the table.
    first: u32,
    slots: Range<u32>,
}

/// The shards.
pub(crate) struct Rows {
    shards: Vec<MapHandle>,
    /// Number of shards that the kernel programs know.
    published: usize,
    blocks: Arena,
}

impl Default for Rows {
    fn default() -> Self {
        Self { shards: Vec::new(), published: 0, blocks: Arena::segmented(BLOCKS_PER_SHARD) }
    }
}

impl Rows {
    /// Bytes of all shards.
    pub(crate) fn bytes(&self) -> u64 {
        self.shards.len() as u64 * u64::from(BLOCKS_PER_SHARD) * size_of::<RowBlock>() as u64
    }

    /// Frees blocks that were given back long enough ago.
    pub(crate) fn settle(&mut self, now_ns: u64) {
        self.blocks.settle(now_ns);
    }

    /// Gives blocks back.
    pub(crate) fn give(&mut self, blocks: Vec<Range<u32>>, now_ns: u64) {
        for run in blocks {
            self.blocks.give(run, now_ns);
        }
    }

    /// Publishes the new shards to the kernel programs, all at once: after each change of such a map the kernel waits
    /// until no program uses the old contents, which takes some ten milliseconds.
    pub(crate) fn publish(&mut self, shards: &MapHandle) -> Result<(), TableError> {
        let new = self.shards.get(self.published..).unwrap_or_default();
        if new.is_empty() {
            return Ok(());
        }
        let first = self.published as u32;
        let indices: Vec<u32> = (first..first + new.len() as u32).collect();
        let fds: Vec<u32> = new.iter().map(|shard| shard.as_fd().as_raw_fd() as u32).collect();
        let bytes = |words: &[u32]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>();
        let together = shards.update_batch(
            &bytes(&indices),
            &bytes(&fds),
            new.len() as u32,
            MapFlags::ANY,
            MapFlags::ANY,
        );
        if together.is_err() {
            // Kernels before 5.14 do not support it for maps of maps.
            for (index, fd) in indices.iter().zip(&fds) {
                shards
                    .update(index.as_bytes(), fd.as_bytes(), MapFlags::ANY)
                    .map_err(map_error(map::SHARDS))?;
            }
        }
        self.published = self.shards.len();
        Ok(())
    }

    /// Reserves room for the rows of tables and fills it, on all CPUs.
    pub(crate) fn place(&mut self, tables: &[&Table], now_ns: u64) -> Vec<Result<PlacedRows, NotPlaced>> {
        let mut runs = Vec::new();
        let mut placed: Vec<Result<PlacedRows, NotPlaced>> = tables
            .iter()
            .enumerate()
            .map(|(number, table)| Ok(self.reserve(number, table, &mut runs, now_ns)?))
            .collect();
        let filled = self.fill(tables, &mut runs);
        let mut parts: Vec<Vec<(u32, FillOutcome)>> = tables.iter().map(|_| Vec::new()).collect();
        match filled {
            Ok(filled) => {
                for (run, filled) in runs.iter().zip(filled) {
                    parts[run.table].push((run.first, filled));
                }
            }
            Err(error) => {
                // The same error for every table.
                let (map, text) = (map::SHARDS, error.to_string());
                for result in &mut placed {
                    let error = TableError::Map { map, source: io::Error::other(text.clone()) };
                    self.take_back(result, error.into(), now_ns);
                }
                return placed;
            }
        }
        for ((table, result), mut parts) in tables.iter().zip(&mut placed).zip(parts) {
            parts.sort_unstable_by_key(|(first, _)| *first);
            let parts: Vec<_> = parts.into_iter().map(|(_, filled)| filled).collect();
            let damaged = parts.iter().any(|part| matches!(part, FillOutcome::Damaged));
            if result.is_ok() && (damaged || !table.is_whole(&parts)) {
                self.take_back(result, NotPlaced::Damaged, now_ns);
            }
        }
        placed
    }

    fn take_back(&mut self, result: &mut Result<PlacedRows, NotPlaced>, error: NotPlaced, now_ns: u64) {
        if let Ok(placed) = result {
            self.give(std::mem::take(&mut placed.blocks), now_ns);
            *result = Err(error);
        }
    }

    /// Reserves room for the rows of one table, page by page: no page is in two shards.
    fn reserve(
        &mut self,
        number: usize,
        table: &Table,
        runs: &mut Vec<Run>,
        now_ns: u64,
    ) -> Result<PlacedRows, TableError> {
        let before = runs.len();
        let mut pages = table.pages().to_vec();
        for page in pages.iter_mut().filter(|page| page.blocks != 0) {
            let slots = loop {
                match self.blocks.take(u32::from(page.blocks)) {
                    Some(slots) => break slots,
                    None => {
                        if let Err(error) = self.add_shard() {
                            for run in runs.drain(before..) {
                                self.blocks.give(run.slots, now_ns);
                            }
                            return Err(error);
                        }
                    }
                }
            };
            let first = page.first_block;
            page.shard = (slots.start / BLOCKS_PER_SHARD) as u16;
            page.first_block = slots.start % BLOCKS_PER_SHARD;
            match runs[before..].last_mut() {
                Some(run)
                    if run.slots.end == slots.start
                        && run.first + run.slots.len() as u32 == first
                        && !slots.start.is_multiple_of(BLOCKS_PER_SHARD) =>
                {
                    run.slots.end = slots.end
                }
                _ => runs.push(Run { table: number, first, slots }),
            }
        }
        Ok(PlacedRows { pages, blocks: runs[before..].iter().map(|run| run.slots.clone()).collect() })
    }

    /// Fills all runs, after sorting them by place. Shards are mapped only meanwhile.
    fn fill(&self, tables: &[&Table], runs: &mut [Run]) -> io::Result<Vec<FillOutcome>> {
        runs.sort_unstable_by_key(|run| run.slots.start);
        let shard_of = |run: &Run| run.slots.start / BLOCKS_PER_SHARD;
        let of_shards: Vec<&[Run]> = runs.chunk_by(|a, b| shard_of(a) == shard_of(b)).collect();
        let mut shards = of_shards
            .par_iter()
            .map(|runs| {
                SharedArray::<RowBlock>::map(&self.shards[shard_of(&runs[0]) as usize], 0..BLOCKS_PER_SHARD)
            })
            .collect::<io::Result<Vec<_>>>()?;
        let memory = of_shards.iter().zip(&mut shards).flat_map(|(runs, shard)| {
            let first = shard_of(&runs[0]) * BLOCKS_PER_SHARD;
            let within = runs.iter().map(|run| run.slots.start - first..run.slots.end - first);
            runs.iter().zip(shard.runs(within))
        });
        let memory: Vec<(&Run, &mut [u8])> = memory.collect();
        Ok(memory.into_par_iter().map(|(run, into)| tables[run.table].fill(run.first, into)).collect())
    }

    fn add_shard(&mut self) -> Result<(), TableError> {
        let index = self.shards.len() as u32;
        if index == SHARDS_MAX {
            let (used, limit) = (self.blocks.used(), self.blocks.size());
            return Err(TableError::Full { room: Room::Rows, used, limit });
        }
        let options = libbpf_rs::libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_rs::libbpf_sys::bpf_map_create_opts>() as u64,
            map_flags: libbpf_rs::libbpf_sys::BPF_F_MMAPABLE,
            ..Default::default()
        };
        let value = size_of::<RowBlock>() as u32;
        let shard =
            MapHandle::create(MapType::Array, Some("unwind_rows"), 4, value, BLOCKS_PER_SHARD, &options)
                .map_err(map_error(map::SHARDS))?;
        self.shards.push(shard);
        self.blocks.grow();
        Ok(())
    }
}
