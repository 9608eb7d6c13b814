//! Decoding the FDEs of a section.
//!
//! Owns: finding the frame descriptions and running their programs, in slices on several threads. Because: entries
//! are independent, so a big library can use all cores. Does not: sort frames by address, or form pages
//! ([`super::assemble`]).

use std::collections::hash_map::Entry;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use gimli::{BaseAddresses, UnwindSection};
use rayon::prelude::*;
use rustc_hash::FxHashMap;

use super::elf::Image;
use super::program::{Cie, Machine};
use super::rules::{Interner, SIGNAL};
use super::stats::{BuildStats, Count};
use super::{Bytes, Limits, NoTable};

/// Frames per slice: a few milliseconds of work.
const SLICE_FRAMES: usize = 8192;

/// Frame descriptions of one slice of a section.
#[derive(Debug)]
pub(super) struct Slice {
    /// In the order of the section.
    pub(super) frames: Vec<Frame>,
    /// `address << 16 | rule`, see [`pack`].
    pub(super) rows: Vec<u64>,
    /// Rules by the numbers in `rows`.
    pub(super) rules: Vec<deepctx_common::unwind::Rule>,
    pub(super) stats: BuildStats,
}

/// One frame description: `begin..end` and its rows. The first row is at `begin`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) begin: u64,
    pub(super) end: u64,
    pub(super) first_row: u32,
    pub(super) rows: u32,
}

impl Frame {
    pub(super) fn rows(&self) -> Range<usize> {
        let first = self.first_row as usize;
        first..first + self.rows as usize
    }
}

/// Packs a row before pages are formed. Addresses are below [`ADDRESS_MAX`].
#[inline]
pub(super) fn pack(address: u64, rule: u16) -> u64 {
    address << 16 | u64::from(rule)
}

/// Address and rule of a packed row.
#[inline]
pub(super) fn unpack(row: u64) -> (u64, u16) {
    (row >> 16, row as u16)
}

/// Limit of addresses that can be packed. No file has higher ones: the user space of x86-64 has 2^47 bytes.
pub(super) const ADDRESS_MAX: u64 = 1 << 47;

/// The offsets of the frame descriptions of a section.
#[derive(Debug, Default)]
struct Offsets {
    offsets: Vec<usize>,
    terminators: u64,
    truncated: bool,
}

/// Scans the entries of a section by their lengths. Zero-length entries are skipped: linking relocatable objects leaves
/// terminators in the middle.
fn offsets(
    data: &[u8],
    is_eh_frame: bool,
    ends_at_terminator: bool,
    limits: &Limits,
) -> Result<Offsets, NoTable> {
    let u32_at = |at: usize| Some(u32::from_le_bytes(*data.get(at..)?.first_chunk()?));
    let u64_at = |at: usize| Some(u64::from_le_bytes(*data.get(at..)?.first_chunk()?));
    let mut found = Offsets::default();
    let mut at = 0;
    while at < data.len() {
        let entry = || -> Option<(usize, usize, bool)> {
            let length = u32_at(at)?;
            let (body, length, is_cie) = if length == u32::MAX {
                let body = at + 12;
                // Only .debug_frame widens the CIE id with the length.
                let is_cie = if is_eh_frame { u32_at(body)? == 0 } else { u64_at(body)? == u64::MAX };
                (body, u64_at(at + 4)?, is_cie)
            } else {
                let body = at + 4;
                let is_cie = length != 0 && u32_at(body)? == if is_eh_frame { 0 } else { u32::MAX };
                (body, u64::from(length), is_cie)
            };
            let end = body.checked_add(usize::try_from(length).ok()?)?;
            (end <= data.len()).then_some((body, end, is_cie))
        };
        let Some((body, end, is_cie)) = entry() else {
            found.truncated = true;
            break;
        };
        if body == end {
            found.terminators += 1;
            if ends_at_terminator {
                break;
            }
        } else if !is_cie {
            if found.offsets.len() == limits.frames {
                return Err(NoTable::TooManyFrames(limits.frames));
            }
            found.offsets.push(at);
        }
        at = end;
    }
    Ok(found)
}

/// A section with the data needed to decode it.
pub(super) struct Source<'i, S> {
    pub(super) section: S,
    pub(super) bases: BaseAddresses,
    pub(super) image: &'i Image<'i>,
    pub(super) limits: &'i Limits,
}

impl<'d, S> Source<'_, S>
where
    S: UnwindSection<Bytes<'d>> + Sync,
    S::Offset: From<usize>,
{
    /// Decodes all frames of the section. `row_count` bounds the rows of all sections together.
    pub(super) fn slices(
        &self,
        data: &[u8],
        is_eh_frame: bool,
        ends_at_terminator: bool,
        row_count: &AtomicUsize,
        stats: &mut BuildStats,
    ) -> Result<Vec<Slice>, NoTable> {
        let found = offsets(data, is_eh_frame, ends_at_terminator, self.limits)?;
        stats.add(Count::Terminators, found.terminators);
        stats.add(Count::TruncatedSections, u64::from(found.truncated));
        let slices: Vec<&[usize]> = found.offsets.chunks(SLICE_FRAMES).collect();
        match slices[..] {
            // Most libraries are small: no thread is woken for them.
            [] => Ok(Vec::new()),
            [slice] => Ok(vec![self.slice(slice, row_count)?]),
            _ => slices.par_iter().map(|slice| self.slice(slice, row_count)).collect(),
        }
    }

    fn slice(&self, offsets: &[usize], row_count: &AtomicUsize) -> Result<Slice, NoTable> {
        let mut out = Slice {
            frames: Vec::with_capacity(offsets.len()),
            rows: Vec::with_capacity(offsets.len() * 8),
            rules: Vec::new(),
            stats: BuildStats::default(),
        };
        let mut decoder = Decoder {
            source: self,
            cies: FxHashMap::default(),
            machine: Machine::new(),
            interner: Interner::new(self.limits.rules),
        };
        for &offset in offsets {
            let before = out.rows.len();
            decoder.frame(offset, &mut out)?;
            let more = out.rows.len() - before;
            if row_count.fetch_add(more, Ordering::Relaxed) + more > self.limits.rows {
                return Err(NoTable::rows(self.limits));
            }
        }
        out.stats.add(Count::FrameRows, out.rows.len() as u64);
        out.rules = decoder.interner.into_rules();
        Ok(out)
    }
}

type ParsedFrames<'d> = Option<(gimli::CommonInformationEntry<Bytes<'d>>, Option<Cie>)>;

struct Decoder<'s, 'i, 'd, S> {
    source: &'s Source<'i, S>,
    /// By offset; `None` for one that cannot be decoded.
    cies: FxHashMap<usize, ParsedFrames<'d>>,
    machine: Machine,
    interner: Interner,
}

impl<'d, S> Decoder<'_, '_, 'd, S>
where
    S: UnwindSection<Bytes<'d>>,
    S::Offset: From<usize>,
{
    /// Parses the description of a frame, with the common data in its CIE.
    fn description(
        &mut self,
        offset: usize,
    ) -> gimli::Result<(gimli::FrameDescriptionEntry<Bytes<'d>>, Option<Cie>)> {
        let Source { section, bases, image, .. } = self.source;
        let Self { cies, machine, .. } = self;
        let mut parts = None;
        let fde = section.fde_from_offset(bases, S::Offset::from(offset), |section, bases, at| {
            let parsed = match cies.entry(gimli::UnwindOffset::into(at)) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => {
                    // gimli does not dereference indirect addresses, which no linker writes.
                    let direct = |cie: &gimli::CommonInformationEntry<_>| {
                        !cie.fde_address_encoding().is_some_and(|encoding| encoding.is_indirect())
                    };
                    entry.insert(section.cie_from_offset(bases, at).ok().filter(direct).map(|cie| {
                        let parts = machine.initial(&cie, section, bases, image.arch).ok();
                        (cie, parts)
                    }))
                }
            };
            let (cie, of_cie) = parsed.as_ref().ok_or(gimli::Error::NoUnwindInfoForAddress)?;
            parts = *of_cie;
            Ok(cie.clone())
        })?;
        Ok((fde, parts))
    }

    fn frame(&mut self, offset: usize, out: &mut Slice) -> Result<(), NoTable> {
        let Ok((fde, parts)) = self.description(offset) else {
            out.stats.add(Count::BadFrames, 1);
            return Ok(());
        };
        let Source { section, bases, image, limits } = self.source;
        let Self { machine, interner, .. } = self;
        let begin = fde.initial_address();
        if fde.len() == 0 {
            out.stats.add(Count::EmptyFrames, 1);
            return Ok(());
        }
        // A signal frame starts one byte before its function, which may be the byte before the segment.
        let text_end = image.text_end(begin).or_else(|| image.text_end(begin.checked_add(1)?));
        let Some(text_end) = text_end.filter(|_| begin < ADDRESS_MAX) else {
            out.stats.add(Count::OutsideText, 1);
            return Ok(());
        };
        let end = begin.saturating_add(fde.len()).min(text_end).min(ADDRESS_MAX);
        let first_row = out.rows.len();
        let rows = &mut out.rows;
        let mut last = None;
        let mut emit = |address, rule| {
            let number = interner.number(rule)?;
            if last != Some(number) {
                if rows.len() - first_row >= limits.rows {
                    return Err(NoTable::rows(limits));
                }
                rows.push(pack(address, number));
                last = Some(number);
            }
            Ok(())
        };
        if fde.is_signal_trampoline() {
            out.stats.add(Count::SignalFrames, 1);
            emit(begin, SIGNAL)?;
        } else if let Some(parts) = parts {
            machine.rows(fde.instructions(section, bases), section, &parts, begin..end, emit)?;
        } else {
            emit(begin, super::rules::BAD_PROGRAM)?;
        }
        let rows = out.rows.len() - first_row;
        let fits = |value| u32::try_from(value).map_err(|_| NoTable::rows(limits));
        out.frames.push(Frame { begin, end, first_row: fits(first_row)?, rows: fits(rows)? });
        out.stats.add(Count::Frames, 1);
        Ok(())
    }
}
