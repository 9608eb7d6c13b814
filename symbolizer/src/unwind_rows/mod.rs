//! Native unwind tables: from the call frame information of an ELF file to the rows that the kernel searches.
//!
//! Owns: [`UnwindTable`], which has the exact layout of the BPF maps (pages, blocks of rows, rules), and building,
//! searching and caching it. Because: a correct stack needs correct rows and a correct walker (`walk`). Does not:
//! know processes, mappings, BPF maps, or where a file is.
//!
//! ```text
//! ELF bytes ─elf─▶ sections ─frames─▶ slices of frames ─assemble─▶ UnwindTable ─cache─▶ disk
//!                               └ program ─ rules      ├ uncovered ─ derived
//!                                                      ├ runtimes
//!                                                      ├ exceptions
//!                                                      └ lazy_binding
//! ```
//! Addresses are those stated in the file (SVMA). A vdso image read from memory is an ELF file like any other. All
//! input is untrusted: every list has a limit ([`Limits`]), defects are counted ([`BuildStats`]), and a file without
//! a table has a reason ([`NoTable`]).

mod assemble;
mod bolt;
pub mod builder;
pub mod cache;
pub mod derived;
mod elf;
mod error;
mod exceptions;
mod frames;
mod go;
mod go_code;
mod greenlet;
mod greenlet_c;
mod instructions;
mod lazy_binding;
mod new_rows;
mod program;
mod rules;
mod runtimes;
mod sections;
pub mod sparse;
mod stats;
mod stored;
#[cfg(test)]
mod tests;
mod uncovered;

use std::sync::atomic::AtomicUsize;

use deepctx_address_space::Arch;
use deepctx_common::unwind::{
    BLOCKS_PER_SHARD, PAGE_SHIFT, PAGES_MAX, Page, ROWS_PER_BLOCK, RowBlock, Rule, SHARDS_MAX, fp_kind, row,
    rule_kind, unsupported,
};
use gimli::{BaseAddresses, EndianSlice, LittleEndian};

pub use assemble::ENTRY_BYTES;
pub use error::NoTable;
pub use stats::{BuildStats, COUNT_NAMES, COUNTS, Count};
pub use uncovered::PADDING_MAX;
pub use uncovered::ReadAt;

use elf::{FrameSection, Image};
use frames::Source;
use runtimes::Runtimes;
use stored::StoredTable;
use uncovered::UncoveredCode;

/// Bytes as gimli reads them: all machines of [`Arch`] are little-endian.
type Bytes<'d> = EndianSlice<'d, LittleEndian>;

/// Limits on the cost of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Decompressed size of one section. The largest seen is below 20 MB.
    pub section_bytes: u64,
    /// Frame descriptions of one section. The largest seen has 0.4 million.
    pub frames: usize,
    /// Rows of all frames, and of the table; a table that fills all shards of the BPF maps could not be loaded.
    pub rows: usize,
    /// Pages from the first to the last.
    pub pages: usize,
    /// Different rules; a row has 16 bits for them.
    pub rules: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            section_bytes: 512 << 20,
            frames: 4 << 20,
            rows: SHARDS_MAX as usize * BLOCKS_PER_SHARD as usize * ROWS_PER_BLOCK,
            pages: PAGES_MAX as usize,
            rules: u16::MAX as usize,
        }
    }
}

/// The unwind table of one executable, ready to be copied into the BPF maps.
///
/// [`Page::first_block`] counts from the first block of this table and [`Page::shard`] is 0; the loader adds a base
/// and sets the shard for each page ([`UnwindTable::page_blocks`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnwindTable {
    first_page: u32,
    pages: Vec<Page>,
    blocks: Vec<RowBlock>,
    rules: Vec<Rule>,
    stats: BuildStats,
}

impl UnwindTable {
    /// Builds the table of an ELF file or vdso image from all of its bytes, on the threads of rayon's current pool.
    /// The file must be for the native architecture ([`Arch::NATIVE`]).
    ///
    /// `.eh_frame` takes precedence; `.debug_frame` fills its gaps. Rows of functions that neither covers are derived
    /// from their instructions ([`derived`]), on architectures with an instruction decoder.
    pub fn from_elf(bytes: &[u8]) -> Result<Self, NoTable> {
        Self::from_elf_within(bytes, &Limits::default())
    }

    /// As [`UnwindTable::from_elf`], but `bytes` contains only headers and call frame sections; symbols, and the code
    /// of functions without frames, are read from `file`.
    pub fn from_parts(bytes: &[u8], file: &dyn ReadAt) -> Result<Self, NoTable> {
        Self::build(bytes, file, Arch::NATIVE, &Limits::default())
    }

    /// As [`UnwindTable::from_elf`], with other limits.
    pub fn from_elf_within(bytes: &[u8], limits: &Limits) -> Result<Self, NoTable> {
        Self::build(bytes, &bytes, Arch::NATIVE, limits)
    }

    /// As [`UnwindTable::from_elf`], for a file for `arch`.
    pub fn from_elf_for(bytes: &[u8], arch: Arch) -> Result<Self, NoTable> {
        Self::build(bytes, &bytes, arch, &Limits::default())
    }

    fn build(bytes: &[u8], file: &dyn ReadAt, arch: Arch, limits: &Limits) -> Result<Self, NoTable> {
        let image = Image::read(bytes, arch, limits)?;
        let vendor = match arch {
            Arch::X86_64 => gimli::Vendor::Default,
            Arch::Aarch64 => gimli::Vendor::AArch64,
        };
        let mut stats = BuildStats::default();
        stats.add(Count::UnreadableSections, image.unreadable_sections);
        let row_count = AtomicUsize::new(0);
        let mut slices = assemble::Slices::default();
        for FrameSection { data, address, ends_at_terminator } in &image.eh_frames {
            let mut section = gimli::EhFrame::new(data, LittleEndian);
            section.set_vendor(vendor);
            let source = Source { section, bases: bases(&image, *address), image: &image, limits };
            let of_section = source.slices(data, true, *ends_at_terminator, &row_count, &mut stats)?;
            slices.eh_frame.extend(of_section);
        }
        for FrameSection { data, address, ends_at_terminator } in &image.debug_frames {
            let mut section = gimli::DebugFrame::new(data, LittleEndian);
            section.set_address_size(8);
            section.set_vendor(vendor);
            let source = Source { section, bases: bases(&image, *address), image: &image, limits };
            let of_section = source.slices(data, false, *ends_at_terminator, &row_count, &mut stats)?;
            slices.debug_frame.extend(of_section);
        }
        slices.entry = image.entry.and_then(|entry| Some((entry, image.text_end(entry)?)));
        slices.runtimes = Runtimes::read(bytes, file, &image, limits, &mut stats);
        let marked = &mut slices.runtimes.marked;
        *marked = marked
            .take()
            .or_else(|| exceptions::installing(bytes, file, &image))
            .or_else(|| lazy_binding::rows(&slices.eh_frame, bytes, file, &image))
            .or_else(|| bolt::rows(&slices.eh_frame, bytes, file, &image));
        slices.assemble(limits, UncoveredCode::new(bytes, file, &image), stats)
    }

    /// Stated address of the first page, >> [`PAGE_SHIFT`].
    pub fn first_page(&self) -> u32 {
        self.first_page
    }

    /// Pages from the first to the last that has a row; [`Page::first_block`] is an index into
    /// [`UnwindTable::blocks`].
    pub fn pages(&self) -> &[Page] {
        &self.pages
    }

    /// Rows of all pages, one page after the other.
    pub fn blocks(&self) -> &[RowBlock] {
        &self.blocks
    }

    /// Rules by the number in a row. Rule 0 is [`rule_kind::NONE`].
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The counters of the build.
    pub fn stats(&self) -> &BuildStats {
        &self.stats
    }

    /// Copies as many blocks as fit into `into`, from the block `first` on, in the form of the BPF maps.
    pub fn copy_blocks(&self, first: u32, into: &mut [u8]) {
        let blocks = self.blocks.get(first as usize..).unwrap_or_default();
        for (into, block) in into.as_chunks_mut::<{ size_of::<RowBlock>() }>().0.iter_mut().zip(blocks) {
            into.copy_from_slice(stored::bytes_of(block).as_flattened());
        }
    }

    /// The blocks of each page, in order. The blocks of a page (at most 4096) fit into one shard; pages without rows
    /// have none.
    pub fn page_blocks(&self) -> impl ExactSizeIterator<Item = &[RowBlock]> {
        self.pages.iter().map(|page| self.blocks_of(page))
    }

    /// The rule at a stated address, found as the kernel program does: the last block whose first row is at or below
    /// the address, then the row in it.
    ///
    /// `None` outside all pages and in pages without rows; [`rule_kind::NONE`] between frames. Both mean that there
    /// is no frame.
    pub fn lookup(&self, svma: u64) -> Option<Rule> {
        let page = (svma >> PAGE_SHIFT).checked_sub(u64::from(self.first_page))?;
        let page = self.pages.get(usize::try_from(page).ok()?)?;
        let blocks = self.blocks_of(page);
        let wanted = row::pack(svma as u16, u16::MAX);
        let block = blocks.partition_point(|block| block[0] <= wanted).checked_sub(1)?;
        let block = &blocks[block];
        let last = block.partition_point(|&row| row <= wanted).checked_sub(1)?;
        self.rules.get(usize::from(row::rule(block[last]))).copied()
    }

    /// Every row as (stated address, rule), ascending, including the copies at the start of pages.
    pub fn rows(&self) -> impl Iterator<Item = (u64, &Rule)> {
        self.pages.iter().enumerate().flat_map(move |(number, page)| {
            let base = (u64::from(self.first_page) + number as u64) << PAGE_SHIFT;
            let mut before = None;
            self.blocks_of(page).iter().flatten().filter_map(move |&packed| {
                // The last block is padded with copies of its last row.
                let repeated = before.replace(packed) == Some(packed);
                let rule = &self.rules[usize::from(row::rule(packed))];
                (!repeated).then_some((base + u64::from(row::pc_low(packed)), rule))
            })
        })
    }

    /// Number of rows by form.
    pub fn forms(&self) -> Forms {
        let mut forms = Forms::default();
        for (_, rule) in self.rows() {
            forms.cfa[usize::from(rule.cfa).min(CFA_KINDS - 1)] += 1;
            forms.fp[usize::from(rule.fp).min(FP_KINDS - 1)] += 1;
            if rule.cfa == rule_kind::UNSUPPORTED {
                forms.unsupported[usize::from(rule.detail).min(REASONS - 1)] += 1;
            }
        }
        forms
    }

    fn blocks_of(&self, page: &Page) -> &[RowBlock] {
        let first = page.first_block as usize;
        &self.blocks[first..first + usize::from(page.blocks)]
    }
}

/// Kinds of [`Rule::cfa`].
const CFA_KINDS: usize = rule_kind::COUNT;
/// Kinds of [`Rule::fp`].
const FP_KINDS: usize = fp_kind::X86_AT_SP as usize + 1;
/// Reasons of [`unsupported`].
const REASONS: usize = unsupported::SENTENCES.len();

/// Numbers of rows by form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forms {
    /// By [`rule_kind`].
    pub cfa: [u64; CFA_KINDS],
    /// By [`fp_kind`].
    pub fp: [u64; FP_KINDS],
    /// Rows of [`rule_kind::UNSUPPORTED`] by reason number of [`unsupported`].
    pub unsupported: [u64; REASONS],
}

fn bases(image: &Image<'_>, section: u64) -> BaseAddresses {
    BaseAddresses::default()
        .set_eh_frame(section)
        .set_eh_frame_hdr(image.eh_frame_hdr)
        .set_text(image.text_base)
        .set_got(image.got_base)
}
