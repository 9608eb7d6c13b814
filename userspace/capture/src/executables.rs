//! Executables: which files have their unwind tables in the kernel.
//!
//! Owns: the path from an open file to an [`ExecutableId`], with the disk cache in between, many files at a time.
//! Because: a training process maps hundreds of libraries with millions of rows, and the first complete stack must
//! not wait for them one after another. Does not: know processes or addresses in them.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::File;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use deepctx_common::memory::table_bytes;
use deepctx_common::unwind::executable_flag;
use deepctx_symbolizer::elf::ElfFacts;
use deepctx_symbolizer::maps::{self, Backing, DeviceNumber, Mapping};
use deepctx_symbolizer::shares::ROOT;
use deepctx_symbolizer::unwind_rows::UnwindTable;
use deepctx_symbolizer::unwind_rows::builder::{self, BuiltTable, NotBuilt};
use deepctx_symbolizer::unwind_rows::cache::{Cache, Key};
use deepctx_symbolizer::{FileKey, FileOffset, FileVersion, NoSymbol};
use rayon::prelude::*;

use super::generated::{GeneratedCodeCache, GeneratedMapping, ProcessView};
pub(crate) use super::no_executable::NoExecutable;
use super::no_executable::RETRY_AFTER;
use super::rows::{NotPlaced, Table};
use super::tables::{ExecutableId, Tables};

/// A file whose table is in the kernel, or the reason why it has none.
#[derive(Clone, Debug)]
struct KnownExecutable {
    facts: ElfFacts,
    table: Result<ExecutableId, NoExecutable>,
    /// When that was found.
    at: Instant,
}

impl KnownExecutable {
    /// Whether another attempt may give a table, and is not too early.
    fn is_due(&self, now: Instant) -> bool {
        let is_for_now = self.table.as_ref().is_err_and(NoExecutable::is_for_now);
        is_for_now && now.saturating_duration_since(self.at) >= RETRY_AFTER
    }
}

/// Most files that are remembered; beyond it those without a table are forgotten. The kernel has room for the tables of
/// fewer.
const KNOWN_MAX: usize = 1 << 16;
/// From this many files on they are read in parallel.
const PARALLEL_FROM: usize = 16;

/// The known files. A table is never shared by two versions of a file during a capture; between captures there is more
/// to tell apart, see [`Key::of_file`].
pub(crate) struct Executables {
    files: Files,
    vdso: Option<ExecutableId>,
    generated: GeneratedCodeCache,
}

/// Opens the files of processes and builds the tables of new ones. Clones share their results; none waits for the files
/// that another one reads.
#[derive(Clone)]
pub(crate) struct Files {
    known: Arc<Mutex<HashMap<FileKey, KnownExecutable>>>,
    cache: Option<Arc<Cache>>,
}

/// A file that was read, with its table, which is not placed yet.
struct NewExecutable {
    key: FileKey,
    facts: ElfFacts,
    table: Result<Table, NoExecutable>,
    /// The key of its table on disk.
    stored_as: Option<Key>,
}

/// The files of a process, and the tables of those that were new when opened.
pub(crate) struct OpenedFiles {
    /// By mapping.
    opened: Vec<Result<OpenedFile, NoSymbol>>,
    new: Vec<NewExecutable>,
    /// Files that are not ELF files.
    other: HashSet<FileKey>,
}

/// One file, however often it is mapped.
#[derive(Clone)]
struct OpenedFile {
    key: FileKey,
    file: Arc<File>,
}

impl OpenedFile {
    fn open(pid: u32, mapping: &Mapping) -> Result<Self, NoSymbol> {
        let file = maps::open(pid, mapping)?;
        let key = FileKey::of(&file.metadata().map_err(|e| NoSymbol::from_io(&e))?);
        Ok(Self { key, file: Arc::new(file) })
    }
}

/// Unwind rows of a mapping's code.
#[derive(Clone, Debug)]
pub(crate) struct MappingRows {
    /// AVMA − SVMA.
    pub bias: u64,
    /// Its table, or the reason why it has none.
    pub table: Result<ExecutableId, NoExecutable>,
}

impl Files {
    fn known(&self) -> MutexGuard<'_, HashMap<FileKey, KnownExecutable>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_wanted(&self, key: &FileKey) -> bool {
        self.known().get(key).is_none_or(|known| known.is_due(Instant::now()))
    }

    /// Opens the files of a process like [`Self::open`], and runs something else meanwhile if that takes long.
    pub(crate) fn open_beside<R: Send>(
        &self,
        pid: u32,
        mappings: &[Mapping],
        other: impl FnOnce() -> R + Send,
    ) -> (OpenedFiles, R) {
        if mappings.len() < PARALLEL_FROM {
            return (self.open(pid, mappings), other());
        }
        rayon::join(|| self.open(pid, mappings), other)
    }

    /// Opens the files of a process while it exists, and finds or builds the tables of new ones.
    fn open(&self, pid: u32, mappings: &[Mapping]) -> OpenedFiles {
        // A process may map one file a thousand times.
        let mut first: HashMap<MappedFile<'_>, usize> = HashMap::new();
        let mut files: Vec<&Mapping> = Vec::new();
        let of_mapping: Vec<usize> = mappings
            .iter()
            .map(|mapping| {
                *first.entry(mapped_file(mapping)).or_insert_with(|| {
                    files.push(mapping);
                    files.len() - 1
                })
            })
            .collect();
        let opened: Vec<_> = mapped(&files, |mapping| OpenedFile::open(pid, mapping));
        let mut wanted: HashMap<FileKey, &File> = HashMap::new();
        for OpenedFile { key, file } in opened.iter().flatten() {
            if self.is_wanted(key) {
                wanted.entry(*key).or_insert(file);
            }
        }
        let wanted: Vec<_> = wanted.into_iter().collect();
        let (mut new, mut other) = (Vec::new(), HashSet::new());
        for found in mapped(&wanted, |(key, file)| find(*key, file, self.cache.as_deref()).ok_or(*key)) {
            match found {
                Ok(found) => new.push(found),
                Err(key) => drop(other.insert(key)),
            }
        }
        OpenedFiles { opened: of_mapping.into_iter().map(|file| opened[file].clone()).collect(), new, other }
    }
}

/// Identifies the files of a process before they are opened. Inode numbers are not enough: subvolumes reuse them under
/// the same device number.
type MappedFile<'m> = (DeviceNumber, u64, &'m OsStr, Backing);

fn mapped_file(mapping: &Mapping) -> MappedFile<'_> {
    (mapping.device, mapping.inode, &mapping.path, mapping.backing)
}

/// Maps a function over a slice, in parallel if it is long.
fn mapped<T: Sync, R: Send>(all: &[T], of: impl Fn(&T) -> R + Sync + Send) -> Vec<R> {
    if all.len() < PARALLEL_FROM { all.iter().map(of).collect() } else { all.par_iter().map(of).collect() }
}

impl Executables {
    /// An empty set; tables are cached on disk if `cache` is given.
    pub(crate) fn new(cache: Option<Cache>) -> Self {
        let files = Files { known: Arc::default(), cache: cache.map(Arc::new) };
        Self { files, vdso: None, generated: GeneratedCodeCache::default() }
    }

    /// The opener of files, for readers of processes.
    pub(crate) fn files(&self) -> Files {
        self.files.clone()
    }

    /// Bytes in this process's memory.
    pub(crate) fn held_bytes(&self) -> usize {
        let known = self.files.known();
        let segments = known.values().map(|known| size_of_val(&*known.facts.segments));
        segments.sum::<usize>() + table_bytes(known.capacity(), size_of::<(FileKey, KnownExecutable)>())
    }

    /// Places the tables of all mappings of a process whose files were opened, in the order of the mappings. The user
    /// `account` is charged for new ones.
    ///
    /// [`Tables::remove_process`] and the like may free ids; then call [`Executables::forget`].
    pub(crate) fn locate(
        &mut self,
        pid: u32,
        mappings: &[Mapping],
        files: OpenedFiles,
        tables: &mut Tables,
        account: u32,
        now_ns: u64,
    ) -> Vec<MappingRows> {
        if self.files.known().len() > KNOWN_MAX {
            // One user's many files must not have those of others read and placed once more.
            self.files.known().retain(|_, known| known.table.is_ok());
        }
        let files = self.look_again(files);
        self.place_new(&files.opened, files.new, tables, account, now_ns);
        let is_news = |m: &Mapping| m.backing == Backing::Anonymous && !self.generated.knows(pid, m);
        let has_news = mappings.iter().any(is_news);
        let mut surroundings = None;
        let located = files.opened.into_iter().zip(mappings).map(|(file, m)| match m.backing {
            Backing::Vdso => self.vdso(m, tables, now_ns),
            Backing::Anonymous => {
                // Read once, and only for a process with generated code.
                let all = surroundings.get_or_insert_with(|| ProcessView::read(pid, has_news));
                self.generated(pid, m, all.as_ref(), tables, now_ns)
            }
            _ => self.in_file(m, file),
        });
        located.collect()
    }

    /// Reads files that were known when opened, and no longer are.
    fn look_again(&self, mut files: OpenedFiles) -> OpenedFiles {
        let OpenedFiles { opened, new, other } = &mut files;
        // A process may map tens of thousands of files, all of them new.
        let mut looked_at: HashSet<FileKey> = new.iter().map(|found| found.key).collect();
        for OpenedFile { key, file } in opened.iter().flatten() {
            if other.contains(key) || looked_at.contains(key) || self.files.known().contains_key(key) {
                continue;
            }
            match find(*key, file, self.files.cache.as_deref()) {
                Some(found) => {
                    looked_at.insert(*key);
                    new.push(found);
                }
                None => drop(other.insert(*key)),
            }
        }
        // The order of placement decides which tables share a shard: keep it the same from run to run.
        new.sort_by_key(|found| found.key);
        files
    }

    /// Places the tables of files that are still new.
    fn place_new(
        &self,
        opened: &[Result<OpenedFile, NoSymbol>],
        mut new: Vec<NewExecutable>,
        tables: &mut Tables,
        account: u32,
        now_ns: u64,
    ) {
        let cache = self.files.cache.as_deref();
        // Another process may have placed them since they were opened.
        new.retain(|found| self.files.is_wanted(&found.key));
        let found_tables: Vec<_> =
            new.iter().filter_map(|found| Some((found.table.as_ref().ok()?, 0))).collect();
        let mut placed = tables.add_executables(&found_tables, account, now_ns).into_iter();
        for NewExecutable { key, facts, table, stored_as } in new {
            let table = table.and_then(|_| match placed.next() {
                Some(Err(NotPlaced::Damaged)) => {
                    if let (Some(cache), Some(stored_as)) = (cache, &stored_as) {
                        cache.discard(stored_as);
                    }
                    let file = opened.iter().flatten().find(|opened| opened.key == key);
                    let file = file.ok_or(NoExecutable::File(NoSymbol::ModuleMissing))?;
                    let table = built(&file.file, cache.zip(stored_as.as_ref()))?;
                    place(tables, &table.into(), 0, account, now_ns)
                }
                Some(placed) => placed.map_err(NoExecutable::from),
                None => Err(NoExecutable::File(NoSymbol::ModuleMissing)),
            });
            self.files.known().insert(key, KnownExecutable { facts, table, at: Instant::now() });
        }
    }

    fn in_file(&self, mapping: &Mapping, file: Result<OpenedFile, NoSymbol>) -> MappingRows {
        let all = self.files.known();
        let known = match file {
            Ok(OpenedFile { key, .. }) => all.get(&key),
            Err(reason) => return MappingRows { bias: 0, table: Err(NoExecutable::File(reason)) },
        };
        let Some(known) = known else {
            return MappingRows { bias: 0, table: Err(NoExecutable::File(NoSymbol::NotElf)) };
        };
        let svma = known.facts.segment_at(mapping.offset).map(|s| s.svma_of(mapping.offset).0);
        let bias = mapping.begin.0.wrapping_sub(svma.unwrap_or(mapping.offset.0));
        MappingRows { bias, table: known.table.clone() }
    }

    /// Generated code has its run-time addresses as stated ones.
    fn generated(
        &mut self,
        pid: u32,
        mapping: &Mapping,
        surroundings: Option<&ProcessView>,
        tables: &mut Tables,
        now_ns: u64,
    ) -> MappingRows {
        let Some(surroundings) = surroundings else {
            return MappingRows { bias: 0, table: Err(NoExecutable::Generated) };
        };
        let table = match self.generated.find(pid, mapping, surroundings, |id| tables.has(id)) {
            GeneratedMapping::Resolved(table) => table,
            GeneratedMapping::New(hash, table) => {
                let placed = place(tables, &table.into(), 0, surroundings.user, now_ns);
                self.generated.placed(pid, surroundings.user, mapping, hash, placed.clone());
                placed
            }
        };
        MappingRows { bias: 0, table }
    }

    /// All 64-bit processes of a boot have the same vdso, and it has no file.
    fn vdso(&mut self, mapping: &Mapping, tables: &mut Tables, now_ns: u64) -> MappingRows {
        // Linked at 0 since 2014 (`vdso.lds.S`); the image is mapped as a whole.
        let bias = mapping.begin.0;
        if let Some(id) = self.vdso.filter(|&id| tables.has(id)) {
            return MappingRows { bias, table: Ok(id) };
        }
        let table = vdso_table(mapping)
            .and_then(|table| place(tables, &Table::from(table), executable_flag::VDSO, ROOT, now_ns));
        if let Ok(id) = table {
            self.vdso = Some(id);
        }
        MappingRows { bias, table }
    }

    /// Forgets executables whose tables were freed, and those without room: there is some again.
    pub(crate) fn forget(&mut self, gone: &[ExecutableId]) {
        if !gone.is_empty() {
            let gone: HashSet<ExecutableId> = gone.iter().copied().collect();
            self.files.known().retain(|_, known| match &known.table {
                Ok(id) => !gone.contains(id),
                Err(reason) => !matches!(reason, NoExecutable::Room(_) | NoExecutable::OverShare(_)),
            });
        }
    }

    /// Forgets a process's generated code.
    pub(crate) fn forget_process(&mut self, pid: u32) {
        self.generated.forget_process(pid);
    }

    /// The file and offset of a mapping, for messages.
    pub(crate) fn describe(mapping: &Mapping) -> String {
        let FileOffset(offset) = mapping.offset;
        format!("{} at file offset {offset:#x}", mapping.path().display())
    }
}

fn find(key: FileKey, file: &File, cache: Option<&Cache>) -> Option<NewExecutable> {
    // Mapped files that are not ELF (data mapped executable) are remembered by their absence.
    let facts = ElfFacts::read(file).ok()?;
    let stored_as = cache.and_then(|_| Some(Key::of_file(&FileVersion::of(file).ok()?)));
    let stored = cache.zip(stored_as.as_ref()).and_then(|(cache, stored_as)| cache.open_table(stored_as));
    let table = match stored {
        Some(table) => Ok(Table::Stored(Box::new(table))),
        None => built(file, cache.zip(stored_as.as_ref())).map(Table::from),
    };
    Some(NewExecutable { key, facts, table, stored_as })
}

/// The table of the vdso. Its bytes are the kernel's, so no worker process is needed.
pub(crate) fn vdso_table(mapping: &Mapping) -> Result<UnwindTable, NoExecutable> {
    let image = maps::vdso(mapping).map_err(NoExecutable::File)?;
    Ok(UnwindTable::from_elf(image).map_err(NotBuilt::Table)?)
}

/// Builds the table of a file, and stores it for the next time.
pub(crate) fn built(file: &File, cache: Option<(&Cache, &Key)>) -> Result<BuiltTable, NoExecutable> {
    let table = builder::build(file)?;
    if let Some((cache, stored_as)) = cache
        && let Err(error) = cache.store_built(stored_as, &table)
    {
        tracing::debug!(%error, "unwind table not cached");
    }
    Ok(table)
}

fn place(
    tables: &mut Tables,
    table: &Table,
    flags: u32,
    account: u32,
    now_ns: u64,
) -> Result<ExecutableId, NoExecutable> {
    let placed = tables.add_executables(&[(table, flags)], account, now_ns).pop();
    placed.unwrap_or(Err(NotPlaced::Damaged)).map_err(NoExecutable::from)
}

#[cfg(test)]
mod tests {
    use deepctx_symbolizer::elf::Sections;
    use deepctx_symbolizer::unwind_rows::NoTable;

    use super::*;

    fn no_facts() -> ElfFacts {
        ElfFacts { size: 0, segments: Vec::new(), build_id: None, sections: Sections::default() }
    }

    /// Keys of this many files: each is of another length.
    fn keys(file: &File, count: usize) -> Vec<FileKey> {
        let key = |length| {
            file.set_len(length).unwrap();
            FileKey::of(&file.metadata().unwrap())
        };
        (0..count as u64).map(key).collect()
    }

    #[test]
    fn new_files_of_a_process_are_not_read_again() {
        let file = Arc::new(tempfile::tempfile().unwrap());
        let keys = keys(&file, 60_000);
        let opened = keys.iter().map(|key| Ok(OpenedFile { key: *key, file: Arc::clone(&file) })).collect();
        let new = keys.iter().map(|key| NewExecutable {
            key: *key,
            facts: no_facts(),
            table: Err(NoExecutable::Generated),
            stored_as: None,
        });
        let files = OpenedFiles { opened, new: new.collect(), other: HashSet::new() };
        let OpenedFiles { new, other, .. } = Executables::new(None).look_again(files);
        // One that was read again would be among the others: this file is no ELF file.
        assert_eq!((new.len(), other.len()), (keys.len(), 0));
    }

    #[test]
    fn files_with_tables_stay_known_however_many_have_none() {
        let mut executables = Executables::new(None);
        let known = |table| KnownExecutable { facts: no_facts(), table, at: Instant::now() };
        let keys = keys(&tempfile::tempfile().unwrap(), KNOWN_MAX + 1);
        for key in &keys {
            executables.files.known().insert(*key, known(Err(NoExecutable::Generated)));
        }
        executables.files.known().insert(keys[0], known(Ok(ExecutableId(1))));
        let none = OpenedFiles { opened: Vec::new(), new: Vec::new(), other: HashSet::new() };
        executables.locate(1, &[], none, &mut Tables::default(), 1000, 0);
        let left: Vec<FileKey> = executables.files.known().keys().copied().collect();
        assert_eq!(left, [keys[0]]);
    }

    #[test]
    fn a_file_without_a_builder_is_tried_again_later() {
        let at = Instant::now();
        let facts = no_facts();
        let check = |table: Result<ExecutableId, NoExecutable>, is_due: bool| {
            let known = KnownExecutable { facts: facts.clone(), table, at };
            assert!(!known.is_due(at), "each scan would start a process for it");
            assert_eq!(known.is_due(at + RETRY_AFTER), is_due);
        };
        check(Err(NoExecutable::Table(NoTable::NoBuilder)), true);
        check(Err(NoExecutable::Room("it is full".to_owned())), true);
        check(Err(NoExecutable::Generated), false);
        check(Ok(ExecutableId(1)), false);
    }
}
