//! What XLA left of the modules that a process compiled or loaded.
//!
//! Owns: which files are read when, and which module a piece of code belongs to. Because: XLA tells debuggers the name and the
//! code of each kernel, but not the module; the dump and the cache have the same code byte for byte. Does not: parse
//! (`hlo`), or decide between modules that have the same kernel and mean different things by it.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::folder::Folder;
use super::hlo::{self, Hlo};
use super::{Answer, Kernel, NoKernel, Settings};
use crate::jit::{Piece, functions};

/// Largest text of a module that is read.
const TEXT_BYTES_MAX: u64 = 64 << 20;
/// Largest object file that is read.
const OBJECT_BYTES_MAX: u64 = 16 << 20;
/// Largest entry of the cache that is read, packed.
const ENTRY_BYTES_MAX: u64 = 32 << 20;
/// Largest entry of the cache, unpacked.
const UNPACKED_BYTES_MAX: u64 = 256 << 20;
/// Most files read at one look; the next look goes on.
const FILES_TOGETHER: usize = 1024;
/// Most entries of the cache read, the newest first: a cache holds the programs of years.
const ENTRIES_MAX: usize = 256;
/// Most bytes of the cache read, unpacked.
const CACHE_BYTES_MAX: u64 = 256 << 20;
/// Most modules of one process.
const UNITS_MAX: usize = 1 << 14;
/// Most pieces of code that are remembered of the files.
const CODES_MAX: usize = 1 << 18;
/// Shortest time between two looks at the folders.
const LOOK_NS: u64 = 1_000_000_000;
/// How far the neighbours of a piece are looked at for one that only one module has.
const NEIGHBOURS_MAX: usize = 4096;

/// Parts of the names of files in a dump.
const OBJECT: &str = ".obj-file.";
const TEXTS: [&str; 2] = [".cpu_after_optimizations.txt", "gpu_after_optimizations.txt"];
const BINARIES: [&str; 1] = [".cpu_after_optimizations.hlo.pb"];

/// A module of which something is known.
#[derive(Debug)]
struct Unit {
    /// Beginning of its files' names in the dump.
    prefix: String,
    /// Names of its kernels.
    kernels: FxHashSet<String>,
    /// Read when it is first asked for.
    hlo: Option<Option<Arc<Hlo>>>,
}

/// What is known of one process.
#[derive(Debug)]
pub(super) struct Process {
    dump: Option<Folder>,
    cache: Option<Folder>,
    units: Vec<Unit>,
    by_prefix: FxHashMap<String, usize>,
    /// Modules that have a function, by [`crate::jit::Function::code`].
    by_code: FxHashMap<u64, Vec<usize>>,
    seen: FxHashSet<String>,
    entries_read: usize,
    bytes_read: u64,
    looked_at_ns: Option<u64>,
}

impl Process {
    pub(super) fn new(pid: u32, settings: &Settings) -> Self {
        let open =
            |path: &Option<_>| path.as_ref().and_then(|path: &std::path::PathBuf| Folder::open(pid, path));
        Self {
            dump: open(&settings.dump),
            cache: open(&settings.cache),
            units: Vec::new(),
            by_prefix: FxHashMap::default(),
            by_code: FxHashMap::default(),
            seen: FxHashSet::default(),
            entries_read: 0,
            bytes_read: 0,
            looked_at_ns: None,
        }
    }

    /// The kernel of a function that the process registered; `pieces` are all of them in order.
    pub(super) fn kernel<'a>(
        &mut self,
        time_ns: u64,
        piece: Piece<'a>,
        pieces: impl DoubleEndedIterator<Item = Piece<'a>>,
    ) -> Answer {
        if self.dump.is_none() && self.cache.is_none() {
            return Err(NoKernel::NoFiles);
        }
        if !self.by_code.contains_key(&piece.code) {
            self.look(time_ns, piece.code);
        }
        let units = self.by_code.get(&piece.code).ok_or(NoKernel::NotThere)?.clone();
        let mut answers: Vec<(usize, Arc<Kernel>)> = Vec::new();
        for unit in units {
            if let Some(kernel) = self.hlo(unit).and_then(|hlo| {
                let kernels = self.units.get(unit).map(|unit| &unit.kernels)?;
                hlo.kernel(piece.name, &|name| kernels.contains(name))
            }) {
                answers.push((unit, Arc::new(kernel)));
            }
        }
        let (_, first) = answers.first().ok_or(NoKernel::NotThere)?;
        if answers.iter().all(|(_, kernel)| kernel == first) {
            return Ok(Arc::clone(first));
        }
        // A module registers all its code together: what stands before and after says which one it is.
        let pieces: Vec<Piece<'_>> = pieces.collect();
        let at = piece.order.min(pieces.len());
        let before = self.certain(pieces[..at].iter().rev());
        let after = self.certain(pieces[at..].iter());
        let unit = match (before, after) {
            (Some(before), Some(after)) if before == after => before,
            (Some(unit), None) | (None, Some(unit)) => unit,
            _ => return Err(NoKernel::Ambiguous),
        };
        let of_unit = answers.into_iter().find(|(of, _)| *of == unit);
        of_unit.map(|(_, kernel)| kernel).ok_or(NoKernel::Ambiguous)
    }

    /// The module of the first of these pieces that only one module has.
    fn certain<'a>(&self, pieces: impl Iterator<Item = &'a Piece<'a>>) -> Option<usize> {
        pieces.take(NEIGHBOURS_MAX).find_map(|piece| match self.by_code.get(&piece.code)?[..] {
            [unit] => Some(unit),
            _ => None,
        })
    }

    fn hlo(&mut self, unit: usize) -> Option<Arc<Hlo>> {
        let Unit { prefix, hlo, .. } = self.units.get_mut(unit)?;
        if hlo.is_none() {
            let folder = self.dump.as_ref()?;
            let read = |suffix: &str| folder.read(&format!("{prefix}{suffix}"), TEXT_BYTES_MAX);
            let text = TEXTS.iter().find_map(|suffix| read(suffix));
            let found = match text {
                Some(text) => hlo::parse_text(&String::from_utf8_lossy(&text)),
                None => {
                    BINARIES.iter().find_map(|suffix| hlo::find_modules(&read(suffix)?).into_iter().next())
                }
            };
            *hlo = Some(found.map(Arc::new));
        }
        hlo.clone()?
    }

    /// Reads what is new in the folders: first the dump, and the cache if that does not have the wanted code.
    fn look(&mut self, time_ns: u64, wanted: u64) {
        if self.looked_at_ns.is_some_and(|at| time_ns.saturating_sub(at) < LOOK_NS) {
            return;
        }
        self.looked_at_ns = Some(time_ns);
        if let Some(folder) = self.dump.take() {
            self.read_dump(&folder);
            self.dump = Some(folder);
        }
        if self.by_code.contains_key(&wanted) {
            return;
        }
        if let Some(folder) = self.cache.take() {
            self.read_cache(&folder);
            self.cache = Some(folder);
        }
    }

    fn read_dump(&mut self, folder: &Folder) {
        let fresh: Vec<String> = folder
            .names()
            .into_iter()
            .filter(|name| name.contains(OBJECT) && !self.seen.contains(name))
            .collect();
        for name in fresh.into_iter().take(FILES_TOGETHER) {
            let Some(object) = folder.read(&name, OBJECT_BYTES_MAX) else { continue };
            let Some((prefix, _)) = name.split_once(OBJECT) else { continue };
            if let Some(unit) = self.unit(prefix) {
                self.add_object(unit, &object);
            }
            self.seen.insert(name);
        }
    }

    fn unit(&mut self, prefix: &str) -> Option<usize> {
        if let Some(unit) = self.by_prefix.get(prefix) {
            return Some(*unit);
        }
        let unit = self.units.len();
        (unit < UNITS_MAX).then(|| {
            self.units.push(Unit { prefix: prefix.to_owned(), kernels: FxHashSet::default(), hlo: None });
            self.by_prefix.insert(prefix.to_owned(), unit);
            unit
        })
    }

    fn add_object(&mut self, unit: usize, object: &[u8]) {
        for function in functions(object) {
            if self.by_code.len() < CODES_MAX {
                let units = self.by_code.entry(function.code).or_default();
                if !units.contains(&unit) {
                    units.push(unit);
                }
                self.units[unit].kernels.insert(function.name);
            }
        }
    }

    /// Reads entries of the cache, the newest first. All that are read count: another module may have the same code.
    fn read_cache(&mut self, folder: &Folder) {
        let mut fresh: Vec<(i64, String)> = folder
            .names()
            .into_iter()
            .filter(|name| name.ends_with("-cache") && !self.seen.contains(name))
            .filter_map(|name| Some((folder.written(&name)?, name)))
            .collect();
        fresh.sort_unstable_by(|a, b| b.cmp(a));
        for (_, name) in fresh {
            if self.entries_read >= ENTRIES_MAX
                || self.bytes_read >= CACHE_BYTES_MAX
                || self.units.len() >= UNITS_MAX
            {
                break;
            }
            self.entries_read += 1;
            let entry = folder.read(&name, ENTRY_BYTES_MAX).and_then(|packed| unpacked(&packed));
            self.seen.insert(name);
            let Some(entry) = entry else { continue };
            self.bytes_read += entry.len() as u64;
            // One executable, one module.
            let Some(hlo) = hlo::find_modules(&entry).into_iter().next() else { continue };
            let unit = self.units.len();
            self.units.push(Unit {
                prefix: String::new(),
                kernels: FxHashSet::default(),
                hlo: Some(Some(Arc::new(hlo))),
            });
            for object in hlo::objects(&entry) {
                self.add_object(unit, object);
            }
        }
    }
}

/// The content of an entry of JAX's cache: packed by zlib or by zstd.
fn unpacked(packed: &[u8]) -> Option<Vec<u8>> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    if packed.starts_with(b"\x28\xb5\x2f\xfd") {
        let reader = ruzstd::decoding::StreamingDecoder::new(packed).ok()?;
        reader.take(UNPACKED_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    } else {
        flate2::read::ZlibDecoder::new(packed).take(UNPACKED_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    }
    Some(bytes)
}
