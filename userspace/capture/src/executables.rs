//! Executables: which files have their unwind table in the kernel.
//!
//! Owns: the way from an open file to an [`ExecutableId`], with the disk cache in between, many files at a time.
//! Because: a process that trains a model maps hundreds of libraries with millions of rows, and the first complete
//! stack must not wait for them one after another. Does not: know processes or addresses in them.

use std::collections::HashMap;
use std::fs::File;

use deepctx_common::memory::table_bytes;
use deepctx_common::unwind::executable_flag;
use deepctx_symbolizer::elf::ElfFacts;
use deepctx_symbolizer::maps::{self, Backing, Mapping};
use deepctx_symbolizer::unwind_rows::builder::{self, BuiltTable, NotBuilt};
use deepctx_symbolizer::unwind_rows::cache::{Cache, Key};
use deepctx_symbolizer::unwind_rows::{NoTable, UnwindTable};
use deepctx_symbolizer::{FileKey, FileOffset, FileVersion, NoSymbol};
use rayon::prelude::*;

use super::generated::{Generated, GeneratedMapping, ProcessView};
pub(crate) use super::no_executable::NoExecutable;
use super::rows::{NotPlaced, Table};
use super::table_shares::ROOT;
use super::tables::{ExecutableId, Tables};

/// A file of which the kernel has the table, or of which it is known why not.
#[derive(Clone, Debug)]
struct KnownExecutable {
    facts: ElfFacts,
    table: Result<ExecutableId, NoExecutable>,
}

impl KnownExecutable {
    /// Whether there may be a table when it is asked for again.
    fn is_for_now(&self) -> bool {
        use NoExecutable::{OverShare, Room, Table};
        matches!(self.table, Err(Table(NoTable::ShareSpent) | Room(_) | OverShare(_)))
    }
}

/// Most files that are remembered; beyond it all are forgotten (tables in use stay loaded).
const KNOWN_MAX: usize = 1 << 16;

/// What is known of files. No table is shared by more than one version of one file while the capture goes on; between
/// captures there is more to tell apart, see [`Key::of_file`].
pub(crate) struct Executables {
    known: HashMap<FileKey, KnownExecutable>,
    vdso: Option<ExecutableId>,
    generated: Generated,
    cache: Option<Cache>,
}

/// A file that was looked at, and its table, which is not placed yet.
struct NewExecutable {
    key: FileKey,
    facts: ElfFacts,
    table: Result<Table, NoExecutable>,
    /// Under which its table is on disk.
    stored_as: Option<Key>,
}

/// Where a mapping's code has its rows.
#[derive(Clone, Debug)]
pub(crate) struct MappingRows {
    /// AVMA − SVMA.
    pub bias: u64,
    /// Its table, or the reason for having none.
    pub table: Result<ExecutableId, NoExecutable>,
}

impl Executables {
    /// With nothing known; tables are cached on disk when `cache` is given.
    pub(crate) fn new(cache: Option<Cache>) -> Self {
        Self { known: HashMap::new(), vdso: None, generated: Generated::default(), cache }
    }

    /// Bytes in this process's memory.
    pub(crate) fn held_bytes(&self) -> usize {
        let segments = self.known.values().map(|known| size_of_val(&*known.facts.segments));
        segments.sum::<usize>() + table_bytes(self.known.capacity(), size_of::<(FileKey, KnownExecutable)>())
    }

    /// Finds, builds and places the tables of all mappings of a process, in the order of the mappings. The user
    /// `account` answers for those that are new.
    ///
    /// Ids may be freed by [`Tables::remove_process`] and the like; then call [`Executables::forget`].
    pub(crate) fn locate(
        &mut self,
        pid: u32,
        mappings: &[Mapping],
        tables: &mut Tables,
        account: u32,
        now_ns: u64,
    ) -> Vec<MappingRows> {
        if self.known.len() > KNOWN_MAX {
            self.known.clear();
        }
        // Opening is cheap and must be done while the process is there; building is not, and can be done in parallel.
        let opened: Vec<_> = mappings.par_iter().map(|m| open(pid, m)).collect();
        let mut wanted: HashMap<FileKey, &File> = HashMap::new();
        for (key, file) in opened.iter().flatten() {
            if self.known.get(key).is_none_or(KnownExecutable::is_for_now) {
                wanted.entry(*key).or_insert(file);
            }
        }
        let cache = self.cache.as_ref();
        let mut found: Vec<NewExecutable> =
            wanted.par_iter().filter_map(|(key, file)| find(*key, file, cache)).collect();
        // The order of placement decides which tables share a shard: keep it the same from run to run.
        found.sort_by_key(|found| found.key);
        let tables_found: Vec<_> =
            found.iter().filter_map(|found| Some((found.table.as_ref().ok()?, 0))).collect();
        let mut placed = tables.add_executables(&tables_found, account, now_ns).into_iter();
        for NewExecutable { key, facts, table, stored_as } in found {
            let table = table.and_then(|_| match placed.next() {
                Some(Err(NotPlaced::Damaged)) => {
                    if let (Some(cache), Some(stored_as)) = (cache, &stored_as) {
                        cache.discard(stored_as);
                    }
                    let file = wanted.get(&key).ok_or(NoExecutable::File(NoSymbol::ModuleMissing))?;
                    place(tables, &built(file, cache.zip(stored_as.as_ref()))?.into(), 0, account, now_ns)
                }
                Some(placed) => placed.map_err(NoExecutable::from),
                None => Err(NoExecutable::File(NoSymbol::ModuleMissing)),
            });
            self.known.insert(key, KnownExecutable { facts, table });
        }
        let mut surroundings = None;
        let located = opened.into_iter().zip(mappings).map(|(file, m)| match m.backing {
            Backing::Vdso => self.vdso(m, tables, now_ns),
            Backing::Anonymous => {
                // Read once, and only for a process that has generated code.
                let all = surroundings.get_or_insert_with(|| ProcessView::read(pid));
                self.generated(pid, m, all.as_ref(), tables, now_ns)
            }
            _ => self.in_file(m, file),
        });
        located.collect()
    }

    fn in_file(&self, mapping: &Mapping, file: Result<(FileKey, File), NoSymbol>) -> MappingRows {
        let known = match file {
            Ok((key, _)) => self.known.get(&key),
            Err(reason) => return MappingRows { bias: 0, table: Err(NoExecutable::File(reason)) },
        };
        let Some(known) = known else {
            return MappingRows { bias: 0, table: Err(NoExecutable::File(NoSymbol::NotElf)) };
        };
        let svma = known.facts.segment_at(mapping.offset).map(|s| s.svma_of(mapping.offset).0);
        let bias = mapping.begin.0.wrapping_sub(svma.unwrap_or(mapping.offset.0));
        MappingRows { bias, table: known.table.clone() }
    }

    /// Generated code stands where it was stated: its addresses are those in the process.
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
                self.generated.placed(pid, mapping, hash, placed.clone());
                placed
            }
        };
        MappingRows { bias: 0, table }
    }

    /// The vdso is one and the same for all 64-bit processes of a boot, and has no file.
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

    /// Forgets executables whose tables were freed, and which ones had no room: there is some again.
    pub(crate) fn forget(&mut self, gone: &[ExecutableId]) {
        if !gone.is_empty() {
            self.known.retain(|_, known| match &known.table {
                Ok(id) => !gone.contains(id),
                Err(reason) => !matches!(reason, NoExecutable::Room(_) | NoExecutable::OverShare(_)),
            });
        }
    }

    /// Forgets what was known of a process's generated code.
    pub(crate) fn forget_process(&mut self, pid: u32) {
        self.generated.forget_process(pid);
    }

    /// The file offset at which a mapping would show `offset`; for messages only.
    pub(crate) fn describe(mapping: &Mapping) -> String {
        let FileOffset(offset) = mapping.offset;
        format!("{} at file offset {offset:#x}", mapping.path().display())
    }
}

fn open(pid: u32, mapping: &Mapping) -> Result<(FileKey, File), NoSymbol> {
    let file = maps::open(pid, mapping)?;
    let key = FileKey::of(&file.metadata().map_err(|e| NoSymbol::from_io(&e))?);
    Ok((key, file))
}

fn find(key: FileKey, file: &File, cache: Option<&Cache>) -> Option<NewExecutable> {
    // Mapped files that are no ELF (data mapped executable) are remembered as such by their absence.
    let facts = ElfFacts::read(file).ok()?;
    let stored_as = cache.and_then(|_| Some(Key::of_file(&FileVersion::of(file).ok()?)));
    let stored = cache.zip(stored_as.as_ref()).and_then(|(cache, stored_as)| cache.open_table(stored_as));
    let table = match stored {
        Some(table) => Ok(Table::Stored(Box::new(table))),
        None => built(file, cache.zip(stored_as.as_ref())).map(Table::from),
    };
    Some(NewExecutable { key, facts, table, stored_as })
}

/// The table of the vdso. Its bytes are the kernel's, so that no builder is needed.
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
