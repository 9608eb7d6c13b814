//! Names of kernels that a live process loaded before the profiler attached, by their handles.
//!
//! Owns: the order in which a process is searched, the budget for it, and when a text is accepted as a name. Because:
//! a wrong name is worse than no name. Does not: decide when to search; it may take seconds, so callers run it in the
//! background.
//!
//! A handle is either the address of a host stub in a file of the program, whose symbol gives the name
//! ([`super::stub`]), or an object of the driver, which leads to texts ([`super::handle`]). The path to the name is
//! inferred ([`super::evidence`]) from texts that are names of kernels whose code was found in the files or the
//! memory of the process.

use std::os::unix::fs::MetadataExt as _;

use deepctx_address_space::maps::{self, Backing, DeviceNumber, LineFilter, Mapping};
use deepctx_address_space::{GONE_USER, accountable_user};
use rustc_hash::{FxHashMap, FxHashSet};

use super::evidence::NameEvidence;
use super::names::{KernelFacts, KernelNames};
use super::reader::CodeReader;
use super::scan::{self, PageMap};
use crate::memory::{ProcessMemory, ReadError, TargetMemory};

/// Most bytes decompressed of the files of a process.
const DECOMPRESS_MAX: u64 = 1 << 30;
/// Most bytes read of the memory of a process in total.
const SCAN_MAX: u64 = 8 << 30;
/// Files with at most this much device code are searched before larger ones.
const SMALL_FILE: u64 = 64 << 20;
/// Most files of a process searched.
const FILES_MAX: usize = 1024;

/// A handle whose kernel was identified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedHandle {
    /// The handle.
    pub handle: u64,
    /// Mangled name of the kernel.
    pub name: String,
    /// Facts from the code of the kernel.
    pub facts: KernelFacts,
}

/// The search state of a process.
#[derive(Debug)]
pub struct ProcessKernels {
    pid: u32,
    /// The user who answers for it.
    user: u32,
    memory: ProcessMemory,
    evidence: NameEvidence,
    /// Kernels found in memory: those that are loaded.
    in_memory: KernelNames,
    /// Kernels found in files: those that can be loaded.
    in_files: KernelNames,
    /// Files already searched, by device and inode.
    files: FxHashSet<(u64, u64)>,
    /// Bytes that may still be decompressed.
    decompress_budget: u64,
    /// Bytes of memory that may still be read.
    scan_budget: u64,
}

impl ProcessKernels {
    /// Opens the memory of a process; nothing is searched yet.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn open(pid: u32) -> Result<Self, ReadError> {
        Ok(Self {
            pid,
            user: accountable_user(pid).unwrap_or(GONE_USER),
            memory: ProcessMemory::open(pid)?,
            evidence: NameEvidence::default(),
            in_memory: KernelNames::default(),
            in_files: KernelNames::default(),
            files: FxHashSet::default(),
            decompress_budget: DECOMPRESS_MAX,
            scan_budget: SCAN_MAX,
        })
    }

    /// Whether the process or its program is gone, so that the pid belongs to another one.
    pub fn is_gone(&self) -> bool {
        self.memory.read_u64(0) == Err(ReadError::Gone)
    }

    /// Identifies the kernels of these handles where possible; `reader` parses device code. May take seconds.
    pub fn identify(&mut self, handles: &[u64], reader: &mut CodeReader) -> Vec<NamedHandle> {
        let Ok(maps) = maps::read(self.pid, LineFilter::All) else { return Vec::new() };
        let mappings = maps.mappings;
        let (stubs, objects): (Vec<u64>, Vec<u64>) =
            handles.iter().partition(|handle| file_mapping(&mappings, **handle).is_some());
        let mut found = self.stubs(&mappings, &stubs, reader);
        let (memory, evidence) = (&self.memory, &mut self.evidence);
        let mut left: Vec<u64> =
            objects.into_iter().filter(|handle| evidence.read(memory, *handle)).collect();
        // Only while some handle has no name.
        for phase in SearchPhase::ALL {
            if left.is_empty() {
                break;
            }
            self.search(phase, &mappings, reader);
            let is_kernel = |text: &str| self.in_memory.get(text).or(self.in_files.get(text)).is_some();
            let named = self.evidence.names(&left, is_kernel);
            left.retain(|handle| !named.contains_key(handle));
            found.extend(named);
        }
        let facts = |name: &str| self.in_memory.get(name).or(self.in_files.get(name)).unwrap_or_default();
        found.into_iter().map(|(handle, name)| NamedHandle { handle, facts: facts(&name), name }).collect()
    }

    /// Kernels of handles that are addresses in mapped files.
    fn stubs(&self, mappings: &[Mapping], handles: &[u64], reader: &mut CodeReader) -> Vec<(u64, String)> {
        /// A mapping of a file, and the handles in it with their file offsets.
        type Handles<'m> = (&'m Mapping, Vec<(u64, u64)>);
        let mut by_file: FxHashMap<(DeviceNumber, u64), Handles<'_>> = FxHashMap::default();
        for &handle in handles {
            if let Some(mapping) = file_mapping(mappings, handle) {
                let offset = handle - mapping.begin.0 + mapping.offset.0;
                let key = (mapping.device, mapping.inode);
                by_file.entry(key).or_insert_with(|| (mapping, Vec::new())).1.push((handle, offset));
            }
        }
        let mut found = Vec::new();
        for (mapping, handles) in by_file.into_values() {
            let Ok(file) = maps::open(self.pid, mapping) else { continue };
            let offsets: Vec<u64> = handles.iter().map(|(_, offset)| *offset).collect();
            let names = reader.stubs(&file, &offsets).unwrap_or_else(|error| {
                tracing::debug!(self.pid, %error, "no kernels of host stubs");
                FxHashMap::default()
            });
            found.extend(
                handles
                    .into_iter()
                    .filter_map(|(handle, offset)| Some((handle, names.get(&offset)?.clone()))),
            );
        }
        found
    }

    fn search(&mut self, phase: SearchPhase, mappings: &[Mapping], reader: &mut CodeReader) {
        match phase {
            SearchPhase::Cached => {}
            SearchPhase::SmallFiles => self.search_files(mappings, SMALL_FILE, reader),
            SearchPhase::LargeFiles => self.search_files(mappings, u64::MAX, reader),
            SearchPhase::Memory => {
                let Some(pages) = PageMap::open(self.pid) else { return };
                let Self { user, memory, in_memory, scan_budget, .. } = self;
                let mut add = |image: &[u8]| match reader.image(*user, image) {
                    Ok(names) => {
                        in_memory.merge(names);
                        true
                    }
                    Err(_) => false,
                };
                scan::add_loaded(memory, &pages, mappings, scan_budget, &mut add);
            }
        }
    }

    /// Searches new files with at most this many bytes of device code.
    fn search_files(&mut self, mappings: &[Mapping], most_bytes: u64, reader: &mut CodeReader) {
        let mut seen = FxHashSet::default();
        let files = mappings.iter().filter(|mapping| is_file(mapping) && mapping.offset.0 == 0);
        for mapping in files.filter(|mapping| seen.insert((mapping.device, mapping.inode))) {
            let Ok(file) = maps::open(self.pid, mapping) else { continue };
            let Ok(metadata) = file.metadata() else { continue };
            let key = (metadata.dev(), metadata.ino());
            if self.files.contains(&key) || self.files.len() >= FILES_MAX {
                continue;
            }
            match reader.fat_binaries(&file, most_bytes, &mut self.decompress_budget) {
                Ok(None) => continue,
                Ok(Some(names)) => self.in_files.merge(names),
                // It is not tried again.
                Err(error) => {
                    tracing::debug!(self.pid, path = ?mapping.path, %error, "no device code of a file")
                }
            }
            self.files.insert(key);
        }
    }
}

/// The phases of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SearchPhase {
    /// The kernels known already.
    Cached,
    /// What the driver has loaded: of PyTorch on an H200, 3,924 kernels in 0.6 s. Its files gave 3,585 of all those
    /// that it may load in 3.4 s, and none of the ones that ran.
    Memory,
    SmallFiles,
    LargeFiles,
}

impl SearchPhase {
    /// Loaded images come before those that may be loaded, and cheap ones before expensive ones.
    const ALL: [Self; 4] = [Self::Cached, Self::Memory, Self::SmallFiles, Self::LargeFiles];
}

fn is_file(mapping: &Mapping) -> bool {
    matches!(mapping.backing, Backing::File | Backing::DeletedFile | Backing::Memfd)
}

/// The file mapping that contains an address.
fn file_mapping(mappings: &[Mapping], address: u64) -> Option<&Mapping> {
    let at = mappings.partition_point(|mapping| mapping.end.0 <= address);
    mappings.get(at).filter(|mapping| mapping.begin.0 <= address && is_file(mapping))
}

#[cfg(test)]
mod tests;
