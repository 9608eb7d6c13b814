//! From frames to pages of rows.
//!
//! Owns: sorting frames by address, resolving overlaps, and forming pages of rows. Because: the kernel program's
//! search needs rows that are sorted, disjoint and complete within each page. Does not: decode anything.
//!
//! ```text
//!   frames (any order, overlapping) ──cover──▶ pieces (sorted, disjoint) ──fill gaps from .debug_frame──▶ pages
//! ```
//! Where frames overlap, the one that starts last holds, as in the binary search of the C runtime; of two that start
//! at the same address the shorter, of two equal ones the first in the file. Where the inner frame ends, the outer
//! one holds again.

use std::cmp::Reverse;

use deepctx_common::unwind::{PAGE_SHIFT, Page, ROWS_PER_BLOCK, RowBlock, row};

use super::frames::{Frame, Slice, pack, unpack};
use super::rules::{END, Interner, NONE};
use super::runtimes::Runtimes;
use super::stats::{BuildStats, Count};
use super::uncovered::{PADDING_MAX, UncoveredCode};
use super::{Limits, NoTable, UnwindTable};

/// Bytes after the entry point that are marked as outermost when it has no frame description: `_start` of every C
/// library calls its first function well within them.
pub const ENTRY_BYTES: u64 = 64;

/// A part of a frame, used for `from..to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    from: u64,
    to: u64,
    slice: u32,
    frame: u32,
}

/// All slices of a file, by their source.
#[derive(Debug, Default)]
pub(super) struct Slices {
    pub(super) eh_frame: Vec<Slice>,
    pub(super) debug_frame: Vec<Slice>,
    /// The entry point of the program and the end of its text segment.
    pub(super) entry: Option<(u64, u64)>,
    /// Rows from the runtime that the file belongs to.
    pub(super) runtimes: Runtimes,
}

impl Slices {
    /// Forms the table.
    pub(super) fn assemble(
        self,
        limits: &Limits,
        uncovered: Option<UncoveredCode<'_>>,
        mut stats: BuildStats,
    ) -> Result<UnwindTable, NoTable> {
        for slice in self.eh_frame.iter().chain(&self.debug_frame) {
            stats.absorb(&slice.stats);
        }
        let of_debug = self.debug_frame.iter().map(|slice| slice.stats.get(Count::Frames)).sum();
        stats.add(Count::DebugFrames, of_debug);

        let (pieces, slices) = self.into_pieces(uncovered, &mut stats)?;
        table_of(&pieces, &slices, limits, stats)
    }

    /// The pieces of all sources, sorted and disjoint, and their slices.
    fn into_pieces(
        self,
        uncovered: Option<UncoveredCode<'_>>,
        stats: &mut BuildStats,
    ) -> Result<(Vec<Piece>, Vec<Slice>), NoTable> {
        let mut pieces = cover(&self.eh_frame, 0, stats);
        let mut slices = self.eh_frame;
        if !self.debug_frame.is_empty() {
            let more = cover(&self.debug_frame, slices.len(), stats);
            pieces = fill(&pieces, &more);
            slices.extend(self.debug_frame);
        }
        pieces = with_runtimes(self.runtimes, pieces, &mut slices, stats);
        let mut has_frames = !pieces.is_empty();
        if let Some((entry, text_end)) = self.entry.filter(|&(entry, _)| !covers(&pieces, entry)) {
            let end = entry.saturating_add(ENTRY_BYTES).min(text_end);
            slices.push(entry_slice(entry, end));
            let piece = Piece { from: entry, to: end, slice: (slices.len() - 1) as u32, frame: 0 };
            pieces = fill(&pieces, &[piece]);
            stats.add(Count::EntryMarked, 1);
        }
        let covered = pieces.iter().map(|piece| piece.from..piece.to);
        if let Some(slice) = uncovered.and_then(|uncovered| uncovered.frames(covered, stats)) {
            let derived = cover(std::slice::from_ref(&slice), slices.len(), stats);
            has_frames |= !derived.is_empty();
            pieces = fill(&pieces, &derived);
            slices.push(slice);
        }
        // The entry point alone does not make a table.
        if !has_frames || pieces.is_empty() {
            return Err(NoTable::NoFrames);
        }
        Ok((pieces, slices))
    }
}

/// The table of these pieces: at least one.
fn table_of(
    pieces: &[Piece],
    slices: &[Slice],
    limits: &Limits,
    mut stats: BuildStats,
) -> Result<UnwindTable, NoTable> {
    let mut interner = Interner::new(limits.rules);
    let mut numbers = Vec::with_capacity(slices.len());
    for slice in slices {
        let of_slice: Result<Vec<u16>, NoTable> =
            slice.rules.iter().map(|&rule| interner.number(rule)).collect();
        numbers.push(of_slice?);
    }
    let rows = slices.iter().map(|slice| slice.rows.len()).sum();
    let mut pages = Pages::new(pieces[0].from, rows, limits);
    let mut covered = pieces[0].from;
    for piece in pieces {
        if piece.from - covered > PADDING_MAX {
            pages.push(covered, NONE)?;
        }
        let slice = &slices[piece.slice as usize];
        let frame = &slice.frames[piece.frame as usize];
        pages.piece(piece, frame, &slice.rows[frame.rows()], &numbers[piece.slice as usize])?;
        covered = piece.to;
    }
    pages.end(covered)?;
    stats.add(Count::Rows, pages.rows as u64);
    Ok(UnwindTable {
        first_page: pages.first_page,
        pages: pages.pages,
        blocks: pages.blocks,
        rules: interner.into_rules(),
        stats,
    })
}

/// `pieces` with the stated rows of runtimes in their gaps, and the marked ones in place of theirs.
fn with_runtimes(
    Runtimes { marked, stated }: Runtimes,
    mut pieces: Vec<Piece>,
    slices: &mut Vec<Slice>,
    stats: &mut BuildStats,
) -> Vec<Piece> {
    if let Some(slice) = stated {
        let stated = cover(std::slice::from_ref(&slice), slices.len(), stats);
        pieces = fill(&pieces, &stated);
        slices.push(slice);
    }
    if let Some(slice) = marked {
        let marked = cover(std::slice::from_ref(&slice), slices.len(), stats);
        pieces = fill(&marked, &pieces);
        slices.push(slice);
    }
    pieces
}

fn entry_slice(entry: u64, end: u64) -> Slice {
    Slice {
        frames: vec![Frame { begin: entry, end, first_row: 0, rows: 1 }],
        rows: vec![pack(entry, 0)],
        rules: vec![END],
        stats: BuildStats::default(),
    }
}

/// Sorted, disjoint pieces of all frames of `slices`; the first slice has the number `first_slice`.
fn cover(slices: &[Slice], first_slice: usize, stats: &mut BuildStats) -> Vec<Piece> {
    let frames = slices.iter().map(|slice| slice.frames.len()).sum();
    let mut pieces = Vec::with_capacity(frames);
    for (number, slice) in slices.iter().enumerate() {
        pieces.extend(slice.frames.iter().enumerate().map(|(index, frame)| Piece {
            from: frame.begin,
            to: frame.end,
            slice: (first_slice + number) as u32,
            frame: index as u32,
        }));
    }
    if !pieces.is_sorted_by_key(|piece| piece.from) {
        pieces.sort_unstable_by_key(order);
    }
    if pieces.windows(2).all(|pair| pair[0].to <= pair[1].from) {
        return pieces;
    }
    pieces.sort_unstable_by_key(order);
    resolve(&pieces, stats)
}

/// Outer frames before inner ones; of equal ones the first in the file comes last, so that it prevails.
fn order(piece: &Piece) -> (u64, Reverse<u64>, Reverse<(u32, u32)>) {
    (piece.from, Reverse(piece.to), Reverse((piece.slice, piece.frame)))
}

/// Splits overlapping pieces, sorted by [`order`], so that the last one prevails. Linear: each piece is pushed and
/// popped once, and each iteration emits at most one piece.
fn resolve(sorted: &[Piece], stats: &mut BuildStats) -> Vec<Piece> {
    let mut out: Vec<Piece> = Vec::with_capacity(sorted.len() + 16);
    let mut open: Vec<Piece> = Vec::new();
    let mut at = 0;
    let mut emit_until = |open: &mut Vec<Piece>, at: &mut u64, until: u64| {
        while *at < until
            && let Some(top) = open.last()
        {
            let to = top.to.min(until);
            if to > *at {
                out.push(Piece { from: *at, to, ..*top });
                *at = to;
            }
            if top.to <= *at {
                open.pop();
            }
        }
    };
    for piece in sorted {
        emit_until(&mut open, &mut at, piece.from);
        at = piece.from;
        if open.iter().next_back().is_some_and(|top| top.to > at) {
            stats.add(Count::Overlapping, 1);
        }
        open.push(*piece);
    }
    emit_until(&mut open, &mut at, u64::MAX);
    out
}

/// `first`, with its gaps filled from `second`. Both are sorted and disjoint.
fn fill(first: &[Piece], second: &[Piece]) -> Vec<Piece> {
    let mut out = Vec::with_capacity(first.len() + second.len());
    let mut remaining = first.iter().peekable();
    for piece in second {
        let mut at = piece.from;
        while let Some(&&next) = remaining.peek() {
            if next.from >= piece.to {
                break;
            }
            if at < next.from {
                out.push(Piece { from: at, to: next.from, ..*piece });
            }
            if next.to > piece.to {
                // It may cover further pieces of `second`, too.
                at = piece.to;
                break;
            }
            at = at.max(next.to);
            out.push(next);
            remaining.next();
        }
        if at < piece.to {
            out.push(Piece { from: at, to: piece.to, ..*piece });
        }
    }
    out.extend(remaining);
    out
}

fn covers(pieces: &[Piece], address: u64) -> bool {
    let after = pieces.partition_point(|piece| piece.from <= address);
    after.checked_sub(1).is_some_and(|last| address < pieces[last].to)
}

/// Builds pages from rows with ascending addresses.
struct Pages {
    first_page: u32,
    pages: Vec<Page>,
    blocks: Vec<RowBlock>,
    /// Rows of the current page.
    open: Vec<u32>,
    /// The current rule.
    rule: u16,
    /// Number of the current page.
    page: u64,
    rows: usize,
    limits: Limits,
}

impl Pages {
    fn new(begin: u64, rows: usize, limits: &Limits) -> Self {
        let page = begin >> PAGE_SHIFT;
        Self {
            // Addresses are below 2^47, see `frames::ADDRESS_MAX`.
            first_page: page as u32,
            pages: Vec::new(),
            // Each page wastes half a block on average; doubling the capacity would waste half of the memory.
            blocks: Vec::with_capacity(rows / ROWS_PER_BLOCK + rows / 256 + 1),
            open: Vec::new(),
            rule: NONE,
            page,
            rows: 0,
            limits: *limits,
        }
    }

    /// Adds the rows of `piece`: those of its frame, from the one that holds at its start.
    fn piece(&mut self, piece: &Piece, frame: &Frame, rows: &[u64], numbers: &[u16]) -> Result<(), NoTable> {
        let first = if piece.from == frame.begin {
            0
        } else {
            rows.partition_point(|&row| unpack(row).0 <= piece.from).saturating_sub(1)
        };
        for &row in &rows[first..] {
            let (address, rule) = unpack(row);
            if address >= piece.to {
                break;
            }
            self.push(address.max(piece.from), numbers[usize::from(rule)])?;
        }
        Ok(())
    }

    /// From `address` on, `rule` holds.
    #[inline]
    fn push(&mut self, address: u64, rule: u16) -> Result<(), NoTable> {
        if rule == self.rule {
            return Ok(());
        }
        if address >> PAGE_SHIFT != self.page {
            self.advance_to(address >> PAGE_SHIFT)?;
        }
        let low = address as u16;
        if self.open.is_empty() && low > 0 {
            self.add(row::pack(0, self.rule))?;
        }
        self.rule = rule;
        self.add(row::pack(low, rule))
    }

    #[inline]
    fn add(&mut self, row: u32) -> Result<(), NoTable> {
        self.rows += 1;
        if self.rows > self.limits.rows {
            return Err(NoTable::rows(&self.limits));
        }
        self.open.push(row);
        Ok(())
    }

    /// Closes the current page and all up to `page`, which becomes the current one.
    #[cold]
    fn advance_to(&mut self, page: u64) -> Result<(), NoTable> {
        if page - u64::from(self.first_page) >= self.limits.pages as u64 {
            return Err(NoTable::TooManyPages(self.limits.pages));
        }
        while self.page < page {
            self.close()?;
        }
        Ok(())
    }

    fn close(&mut self) -> Result<(), NoTable> {
        if self.open.is_empty() && self.rule != NONE {
            self.add(row::pack(0, self.rule))?;
        }
        let first_block = self.blocks.len() as u32;
        for rows in self.open.chunks(ROWS_PER_BLOCK) {
            let mut block = [rows[rows.len() - 1]; ROWS_PER_BLOCK];
            block[..rows.len()].copy_from_slice(rows);
            self.blocks.push(block);
        }
        self.open.clear();
        // A page has at most 2^16 rows: one per address.
        let blocks = (self.blocks.len() - first_block as usize) as u16;
        self.pages.push(Page { first_block, shard: 0, blocks });
        self.page += 1;
        Ok(())
    }

    /// No rule holds from `address` on.
    fn end(&mut self, address: u64) -> Result<(), NoTable> {
        let last = (address - 1) >> PAGE_SHIFT;
        if last != self.page {
            self.advance_to(last)?;
        }
        if address >> PAGE_SHIFT == last {
            self.push(address, NONE)?;
        }
        self.close()
    }
}
