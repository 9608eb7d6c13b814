//! Scanning the memory of a process for device code.
//!
//! Owns: which pages are read, and finding complete images in them. Because: code compiled at run time is in no file,
//! and drivers keep the images that they have loaded. Does not: read pages that the process never used, because that
//! would allocate them.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use deepctx_address_space::maps::{Backing, Mapping};
use object::elf::SHT_NOBITS;

use super::fatbin::IMAGE_MAX;
use super::{EM_CUDA, PAGE};
use crate::memory::TargetMemory;

/// Bytes per read.
const PIECE: u64 = 1 << 20;
/// The first seven bytes of a 64-bit little-endian ELF file.
const ELF: u64 = u64::from_le_bytes(*b"\x7fELF\x02\x01\x01\0");
const ELF_MASK: u64 = u64::MAX >> 8;

/// Says which pages of a process are resident.
pub trait ResidentPages {
    /// For each page from this address on, whether it is resident; fewer than `count` when that is not known.
    fn pages(&self, begin: u64, count: usize) -> Vec<bool>;
}

/// `/proc/PID/pagemap`.
#[derive(Debug)]
pub struct PageMap(File);

impl PageMap {
    /// Opens the page map of a process; `None` without permission.
    pub fn open(pid: u32) -> Option<Self> {
        File::open(format!("/proc/{pid}/pagemap")).ok().map(Self)
    }
}

impl ResidentPages for PageMap {
    fn pages(&self, begin: u64, count: usize) -> Vec<bool> {
        let mut bytes = vec![0; count * 8];
        let read = self.0.read_at(&mut bytes, begin / PAGE * 8).unwrap_or(0);
        // The highest bit: the page is resident. Swapped pages are not read.
        bytes[..read].chunks_exact(8).map(|entry| entry[7] & 0x80 != 0).collect()
    }
}

/// Passes all images in the anonymous memory of these mappings to `add`, while there is `budget` for bytes to read;
/// `add` says whether the bytes are an image. Returns the number of images found.
pub fn add_loaded(
    memory: &dyn TargetMemory,
    resident: &dyn ResidentPages,
    mappings: &[Mapping],
    budget: &mut u64,
    add: &mut dyn FnMut(&[u8]) -> bool,
) -> usize {
    let own = |mapping: &&Mapping| {
        let heap = mapping.backing == Backing::Special && &*mapping.path == "[heap]";
        mapping.readable && (mapping.backing == Backing::Anonymous || heap)
    };
    let mut found = 0;
    for mapping in mappings.iter().filter(own) {
        let mut at = mapping.begin.0;
        while at < mapping.end.0 {
            let piece = PIECE.min(mapping.end.0 - at);
            let pages = resident.pages(at, (piece / PAGE) as usize);
            for (begin, length) in runs(&pages) {
                let Some(left) = budget.checked_sub(length) else { return found };
                *budget = left;
                let Ok(bytes) = memory.read_vec(at + begin, length as usize) else { continue };
                for offset in image_starts(&bytes) {
                    found += usize::from(add_image(memory, at + begin + offset, mapping.end.0, budget, add));
                }
            }
            at += piece;
        }
    }
    found
}

/// Runs of resident pages: offset and length in bytes.
fn runs(pages: &[bool]) -> Vec<(u64, u64)> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for (offset, _) in (0u64..).step_by(PAGE as usize).zip(pages).filter(|(_, resident)| **resident) {
        match runs.last_mut() {
            Some((begin, length)) if *begin + *length == offset => *length += PAGE,
            _ => runs.push((offset, PAGE)),
        }
    }
    runs
}

/// Possible starts of images, which are aligned like all allocations.
fn image_starts(bytes: &[u8]) -> impl Iterator<Item = u64> {
    let words = bytes.chunks_exact(8).filter_map(|word| word.try_into().ok()).map(u64::from_le_bytes);
    (0u64..).step_by(8).zip(words).filter(|(_, word)| word & ELF_MASK == ELF & ELF_MASK).map(|(at, _)| at)
}

/// Passes the image at this address on, if there is one.
fn add_image(
    memory: &dyn TargetMemory,
    at: u64,
    end: u64,
    budget: &mut u64,
    add: &mut dyn FnMut(&[u8]) -> bool,
) -> bool {
    let Some(length) = image_length(memory, at, budget) else { return false };
    let inside = at.checked_add(length).is_some_and(|image_end| image_end <= end);
    let Some(left) = budget.checked_sub(length).filter(|_| inside) else { return false };
    let Ok(length) = usize::try_from(length) else { return false };
    *budget = left;
    memory.read_vec(at, length).is_ok_and(|image| add(&image))
}

/// The length of the image at this address, from its headers. These are read again, so they take of the budget too:
/// memory may be full of headers without an image.
fn image_length(memory: &dyn TargetMemory, at: u64, budget: &mut u64) -> Option<u64> {
    *budget = budget.checked_sub(PAGE)?;
    let header = memory.read_vec(at, 64).ok()?;
    let two = |at: usize| Some(u16::from_le_bytes(header.get(at..at + 2)?.try_into().ok()?));
    let eight = |at: usize| Some(u64::from_le_bytes(header.get(at..at + 8)?.try_into().ok()?));
    if two(18)? != EM_CUDA || two(58)? != 64 {
        return None;
    }
    let (segments, sections) = (eight(32)?, eight(40)?);
    let (segment_bytes, section_bytes) = (u64::from(two(56)?) * 56, u64::from(two(60)?) * 64);
    let mut end = segments.checked_add(segment_bytes)?.max(sections.checked_add(section_bytes)?);
    *budget = budget.checked_sub(section_bytes)?;
    let table = memory.read_vec(at.checked_add(sections)?, section_bytes as usize).ok()?;
    for section in table.chunks_exact(64) {
        let kind = u32::from_le_bytes(section[4..8].try_into().ok()?);
        let offset = u64::from_le_bytes(section[24..32].try_into().ok()?);
        let size = u64::from_le_bytes(section[32..40].try_into().ok()?);
        if kind != SHT_NOBITS.0 {
            end = end.max(offset.checked_add(size)?);
        }
    }
    (end <= IMAGE_MAX as u64).then_some(end)
}

#[cfg(test)]
mod tests {
    use super::super::names::KernelNames;
    use super::*;
    use crate::memory::RecordedMemory;
    use deepctx_address_space::maps::{self, LineFilter};

    const CUBIN: &[u8] = include_bytes!("../../tests/fixtures/cubin/cuda13.cubin");

    struct FixedPages(Vec<bool>);

    impl ResidentPages for FixedPages {
        fn pages(&self, begin: u64, count: usize) -> Vec<bool> {
            let first = ((begin - 0x10_0000) / PAGE) as usize;
            self.0.iter().copied().chain(std::iter::repeat(false)).skip(first).take(count).collect()
        }
    }

    fn scan(line: &str, place: usize, image: &[u8], pages: &[bool], mut budget: u64) -> (usize, usize) {
        let mut bytes = vec![0; 8 * PAGE as usize];
        bytes[place..place + image.len()].copy_from_slice(image);
        let mut memory = RecordedMemory::default();
        memory.insert(0x10_0000, bytes);
        let maps = maps::parse(line.as_bytes(), LineFilter::All);
        let mut names = KernelNames::default();
        let mut add = |image: &[u8]| names.add_cubin(image).is_ok();
        let found = add_loaded(&memory, &FixedPages(pages.to_vec()), &maps.mappings, &mut budget, &mut add);
        (found, names.len())
    }

    const OWN: &str = "100000-108000 rw-p 00000000 00:00 0\n";

    #[test]
    fn an_image_in_anonymous_memory_is_found() {
        let resident = [true; 8];
        assert_eq!(scan(OWN, 0x1238, CUBIN, &resident, 1 << 20), (1, 2));
        assert_eq!(
            scan("100000-108000 rw-p 00000000 00:00 0 [heap]\n", 0, CUBIN, &resident, 1 << 20),
            (1, 2)
        );
        // Memory of a file; not aligned; truncated; no budget left.
        assert_eq!(
            scan("100000-108000 rw-p 00000000 08:01 7 /tmp/file\n", 0, CUBIN, &resident, 1 << 20),
            (0, 0)
        );
        assert_eq!(scan(OWN, 0x1233, CUBIN, &resident, 1 << 20), (0, 0));
        assert_eq!(scan("100000-102000 rw-p 00000000 00:00 0\n", 0x1238, CUBIN, &resident, 1 << 20), (0, 0));
        assert_eq!(scan(OWN, 0x1238, CUBIN, &resident, 5000), (0, 0));
    }

    #[test]
    fn pages_that_are_not_resident_are_not_read() {
        let mut pages = [true; 8];
        pages[1] = false;
        assert_eq!(scan(OWN, 0x1238, CUBIN, &pages, 1 << 20), (0, 0));
        assert_eq!(runs(&[true, true, false, true]), [(0, 2 * PAGE), (3 * PAGE, PAGE)]);
    }

    #[test]
    fn headers_without_an_image_take_of_the_budget() {
        // The header of a file with one section, which ends beyond all addresses.
        let mut header = [0u8; 128];
        header[..7].copy_from_slice(&CUBIN[..7]);
        (header[18], header[40], header[58], header[60]) = (190, 64, 64, 1);
        (header[64 + 4], header[64 + 24]) = (1, 1);
        header[64 + 32..64 + 40].fill(0xff);
        let image = [&header.repeat(4)[..], CUBIN].concat();
        let scan = |budget: u64| scan(OWN, 0x1238, &image, &[true; 8], budget);
        assert_eq!(scan(1 << 20), (1, 2));
        assert_eq!(scan(8 * PAGE + 3 * PAGE + CUBIN.len() as u64), (0, 0));
    }

    #[test]
    fn an_image_with_an_impossible_size_is_ignored() {
        for (at, value) in [(40usize, u64::MAX), (40, 1 << 40), (32, u64::MAX - 5)] {
            let mut image = CUBIN.to_vec();
            image[at..at + 8].copy_from_slice(&value.to_le_bytes());
            assert_eq!(scan(OWN, 0x1238, &image, &[true; 8], 1 << 20), (0, 0));
        }
    }
}
