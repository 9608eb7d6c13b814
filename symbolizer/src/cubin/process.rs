//! The kernels of a live process by their handles, for who came after they were loaded.
//!
//! Owns: the order in which a process is searched, what may be spent on it, and when a text is a name. Because: a wrong name
//! is worse than none. Does not: decide when to look, or run while anybody waits for it.
//!
//! A handle is either the place of a host stub in a file of the program, which its symbol names ([`super::stub`]), or an
//! object of the driver's, which leads to texts ([`super::handle`]). By what road is learnt ([`super::evidence`]), from those
//! texts that are names of kernels whose code was found in the process: in its files, or in its memory.

use std::fs::File;
use std::os::unix::fs::MetadataExt as _;

use deepctx_address_space::maps::{self, Backing, Keep, Mapping};
use object::LittleEndian;
use object::elf::FileHeader64;
use object::read::elf::{FileHeader as _, SectionHeader as _};
use rustc_hash::{FxHashMap, FxHashSet};

use super::evidence::Evidence;
use super::names::{Facts, KernelNames};
use super::scan::{self, PageMap};
use super::stub;
use crate::guard;
use crate::python::ProcessMemory;
use crate::python::memory::{ReadError, TargetMemory};

/// Bytes that are unpacked of the files of a process.
const UNPACK_MAX: u64 = 1 << 30;
/// Bytes of a process's memory that are read, over its life.
const SCAN_MAX: u64 = 8 << 30;
/// Device code in a file that is unpacked before memory is searched; what is larger comes after that.
const SMALL_FILE: u64 = 64 << 20;
/// Files of a process that are looked into.
const FILES_MAX: usize = 1024;
/// Sections with device code.
const FAT_BINARIES: [&[u8]; 2] = [b".nv_fatbin", b"__nv_relfatbin"];

/// A kernel whose handle was looked into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// The handle.
    pub handle: u64,
    /// Its name as the compiler wrote it.
    pub name: String,
    /// What its code says.
    pub facts: Facts,
}

/// A process that is searched.
#[derive(Debug)]
pub struct ProcessKernels {
    pid: u32,
    memory: ProcessMemory,
    evidence: Evidence,
    /// What lies in memory: what was loaded.
    loaded: KernelNames,
    /// What lies in files: what can be loaded.
    carried: KernelNames,
    /// Files that were looked into, by device and inode.
    files: FxHashSet<(u64, u64)>,
    unpack: u64,
    scan: u64,
}

impl ProcessKernels {
    /// Nothing is searched yet.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn open(pid: u32) -> Result<Self, ReadError> {
        Ok(Self {
            pid,
            memory: ProcessMemory::open(pid)?,
            evidence: Evidence::default(),
            loaded: KernelNames::default(),
            carried: KernelNames::default(),
            files: FxHashSet::default(),
            unpack: UNPACK_MAX,
            scan: SCAN_MAX,
        })
    }

    /// Whether the process, or the program that it ran, is gone: whatever has its number now is another one.
    pub fn is_gone(&self) -> bool {
        self.memory.read_u64(0) == Err(ReadError::Gone)
    }

    /// Names of these handles, as far as they can be told. May take seconds.
    pub fn recover(&mut self, handles: &[u64]) -> Vec<Recovered> {
        let Ok(maps) = maps::read(self.pid, Keep::All) else { return Vec::new() };
        let mappings = maps.mappings;
        let (stubs, objects): (Vec<u64>, Vec<u64>) =
            handles.iter().partition(|handle| file_of(&mappings, **handle).is_some());
        let mut found = self.stubs(&mappings, &stubs);
        let (memory, evidence) = (&self.memory, &mut self.evidence);
        let mut left: Vec<u64> =
            objects.into_iter().filter(|handle| evidence.read(memory, *handle)).collect();
        // Cheapest first; each only while there is something that it could name.
        for step in [Step::Known, Step::SmallFiles, Step::Memory, Step::LargeFiles] {
            if left.is_empty() {
                break;
            }
            self.search(step, &mappings);
            let is_kernel = |text: &str| self.loaded.get(text).or(self.carried.get(text)).is_some();
            let named = self.evidence.names(&left, is_kernel);
            left.retain(|handle| !named.contains_key(handle));
            found.extend(named);
        }
        let facts = |name: &str| self.loaded.get(name).or(self.carried.get(name)).unwrap_or_default();
        found.into_iter().map(|(handle, name)| Recovered { handle, facts: facts(&name), name }).collect()
    }

    /// Kernels of handles that are places in files.
    fn stubs(&self, mappings: &[Mapping], handles: &[u64]) -> Vec<(u64, String)> {
        /// A mapping of a file, and the handles in it with their places in the file.
        type Handles<'m> = (&'m Mapping, Vec<(u64, u64)>);
        let mut by_file: FxHashMap<(u32, u32, u64), Handles<'_>> = FxHashMap::default();
        for &handle in handles {
            if let Some(mapping) = file_of(mappings, handle) {
                let offset = handle - mapping.begin.0 + mapping.offset.0;
                let key = (mapping.device.0, mapping.device.1, mapping.inode);
                by_file.entry(key).or_insert_with(|| (mapping, Vec::new())).1.push((handle, offset));
            }
        }
        let mut found = Vec::new();
        for (mapping, places) in by_file.into_values() {
            let Ok(file) = maps::open(self.pid, mapping) else { continue };
            let offsets: Vec<u64> = places.iter().map(|(_, offset)| *offset).collect();
            let names = mapped(&file, |bytes| stub::kernels_at(bytes, &offsets)).unwrap_or_default();
            found.extend(
                places.into_iter().filter_map(|(handle, offset)| Some((handle, names.get(&offset)?.clone()))),
            );
        }
        found
    }

    fn search(&mut self, step: Step, mappings: &[Mapping]) {
        match step {
            Step::Known => {}
            Step::SmallFiles => self.search_files(mappings, SMALL_FILE),
            Step::LargeFiles => self.search_files(mappings, u64::MAX),
            Step::Memory => {
                if let Some(pages) = PageMap::open(self.pid) {
                    scan::add_loaded(&self.memory, &pages, mappings, &mut self.scan, &mut self.loaded);
                }
            }
        }
    }

    /// Looks into files that were not looked into yet and have at most so many bytes of device code.
    fn search_files(&mut self, mappings: &[Mapping], at_most: u64) {
        let mut seen = FxHashSet::default();
        let files = mappings.iter().filter(|mapping| is_file(mapping) && mapping.offset.0 == 0);
        for mapping in files.filter(|mapping| seen.insert((mapping.device, mapping.inode))) {
            let Ok(file) = maps::open(self.pid, mapping) else { continue };
            let Ok(metadata) = file.metadata() else { continue };
            let key = (metadata.dev(), metadata.ino());
            if self.files.contains(&key) || self.files.len() >= FILES_MAX {
                continue;
            }
            let unpack = self.unpack;
            let looked = mapped(&file, |bytes| {
                let sections = fat_binaries(bytes);
                if sections.iter().map(|section| section.len() as u64).fold(0, u64::saturating_add) > at_most
                {
                    return None;
                }
                let (mut names, mut left) = (KernelNames::default(), unpack);
                for section in sections {
                    names.add_fat_binaries(section, &mut left);
                }
                Some((names, left))
            });
            match looked {
                Some(None) => continue,
                Some(Some((names, left))) => {
                    self.unpack = left;
                    self.carried.merge(names);
                }
                // It cannot be read, now or later.
                None => {}
            }
            self.files.insert(key);
        }
    }
}

/// What is searched, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// What is known already.
    Known,
    SmallFiles,
    Memory,
    LargeFiles,
}

fn is_file(mapping: &Mapping) -> bool {
    matches!(mapping.backing, Backing::File | Backing::DeletedFile | Backing::Memfd)
}

/// The mapping of a file that an address lies in.
fn file_of(mappings: &[Mapping], address: u64) -> Option<&Mapping> {
    let at = mappings.partition_point(|mapping| mapping.end.0 <= address);
    mappings.get(at).filter(|mapping| mapping.begin.0 <= address && is_file(mapping))
}

/// Reads a file where it lies; `None` when it cannot be, or becomes shorter meanwhile.
fn mapped<T>(file: &File, read: impl FnOnce(&[u8]) -> T) -> Option<T> {
    // SAFETY: the file may change under the mapping; it is read as plain bytes by checked parsers, within a fence that
    // turns missing pages into an error.
    let map = unsafe { memmap2::Mmap::map(file) }.ok()?;
    guard::fenced(|| read(&map)).ok()
}

/// Sections of a file that hold device code.
fn fat_binaries(file: &[u8]) -> Vec<&[u8]> {
    let Ok(header) = FileHeader64::<LittleEndian>::parse(file) else { return Vec::new() };
    let Ok(endian) = header.endian() else { return Vec::new() };
    let Ok(sections) = header.sections(endian, file) else { return Vec::new() };
    let holds =
        |section: &&_| sections.section_name(endian, *section).is_ok_and(|n| FAT_BINARIES.contains(&n));
    sections.iter().filter(holds).filter_map(|section| section.data(endian, file).ok()).collect()
}

#[cfg(test)]
mod tests;
