//! The files that processes map, each kept once.
//!
//! Owns: the table of modules, their identity and segments, and open files for later reading. Because: hundreds of
//! processes map the same few files, by different names and in different namespaces, and may be gone when a name is
//! needed. Does not: read symbols.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use deepctx_address_space::elf::{ElfFacts, ModuleId};
use deepctx_address_space::maps::{self, Backing, Mapping};
use deepctx_address_space::{FileKey, FileVersion, NoSymbol, Svma};
use deepctx_common::memory::table_bytes;
use rustc_hash::{FxHashMap, FxHashSet};
use rustix::fs::MemfdFlags;

use crate::cache::BoundedCache;

/// Most modules kept; handles are never reused, because stored stacks refer to them.
const MODULES_MAX: usize = 1 << 16;
/// Most files kept open for modules; the usual limit of a process is 1024 descriptors.
const FILES_MAX: usize = 256;
/// Most files whose module is remembered; an evicted file is examined again.
const KNOWN_MAX: usize = 1 << 17;
/// Most files remembered as unusable, so that they are not opened again at each read of a maps file.
const REFUSED_MAX: usize = 4096;

/// A module, valid for the table that returned it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModuleHandle(u32);

impl ModuleHandle {
    /// Index in the table, from 0 without gaps.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// One file.
#[derive(Debug)]
pub struct Module {
    id: ModuleId,
    name: Arc<str>,
    path: Arc<str>,
    facts: ElfFacts,
    key: FileKey,
    file: Option<Arc<File>>,
    /// Paths by which the file can be opened again after it was closed.
    origins: Vec<PathBuf>,
}

impl Module {
    /// Identity of the content.
    pub const fn id(&self) -> ModuleId {
        self.id
    }

    /// File name without folders (`libc.so.6`), or `[vdso]`.
    pub const fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Path as the first process that mapped it sees it.
    pub const fn path(&self) -> &Arc<str> {
        &self.path
    }

    /// Segments and sections.
    pub const fn facts(&self) -> &ElfFacts {
        &self.facts
    }

    /// Text for an address without a name: `libc.so.6+0x1234`.
    pub fn label(&self, address: Svma) -> String {
        format!("{}+{:#x}", self.name, address.0)
    }
}

/// Counters of [`Modules`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModuleCounters {
    /// Files examined.
    pub examined: u64,
    /// Files that were known under another name.
    pub shared: u64,
    /// Mappings whose file could not be used.
    pub refused: u64,
    /// Files closed to stay within the bound, or since nobody maps them.
    pub closed: u64,
    /// Files opened again.
    pub reopened: u64,
}

/// All modules.
#[derive(Debug)]
pub struct Modules {
    modules: Vec<Module>,
    by_key: BoundedCache<FileKey, ModuleHandle>,
    /// By identity, size and the one user who wrote the file.
    by_id: FxHashMap<(ModuleId, u64, u32), ModuleHandle>,
    refused: BoundedCache<FileKey, NoSymbol>,
    /// All processes have the same.
    vdso: Option<ModuleHandle>,
    /// Modules with an open file, oldest first.
    open: VecDeque<ModuleHandle>,
    /// Those of them that no process mapped at the last look.
    unmapped: FxHashSet<ModuleHandle>,
    counters: ModuleCounters,
}

impl Default for Modules {
    fn default() -> Self {
        Self {
            modules: Vec::new(),
            by_key: BoundedCache::new(KNOWN_MAX),
            vdso: None,
            by_id: FxHashMap::default(),
            refused: BoundedCache::new(REFUSED_MAX),
            open: VecDeque::new(),
            unmapped: FxHashSet::default(),
            counters: ModuleCounters::default(),
        }
    }
}

impl Modules {
    /// Without modules.
    pub fn new() -> Self {
        Self::default()
    }

    /// The module of a mapping and the bias (AVMA − SVMA, modulo 2⁶⁴). Opens and examines the file when it is new.
    ///
    /// # Errors
    /// The reason why the mapping has no usable file.
    pub fn open_mapping(&mut self, pid: u32, mapping: &Mapping) -> Result<(ModuleHandle, u64), NoSymbol> {
        let found = match mapping.backing {
            Backing::Vdso => self.open_vdso(mapping),
            _ => self.open_file(pid, mapping),
        };
        let module = found.inspect_err(|_| self.counters.refused += 1)?;
        let facts = &self.modules[module.index()].facts;
        let segment = facts.segment_at(mapping.offset).ok_or(NoSymbol::OutsideSegments)?;
        Ok((module, mapping.begin.0.wrapping_sub(segment.svma_of(mapping.offset).0)))
    }

    fn open_file(&mut self, pid: u32, mapping: &Mapping) -> Result<ModuleHandle, NoSymbol> {
        // The metadata identifies a known file; only a new one is opened.
        let link = maps::map_files_path(pid, mapping);
        let known = maps::metadata(pid, mapping).ok().map(|meta| FileKey::of(&meta));
        if let Some(answer) = known.and_then(|key| self.known(key)) {
            if let (Ok(module), Some(key)) = (answer, known) {
                self.open_again(module, key, pid, mapping);
            }
            return answer;
        }
        let file = maps::open(pid, mapping)?;
        let key = FileKey::of(&file.metadata().map_err(|e| NoSymbol::from_io(&e))?);
        if let Some(answer) = self.known(key) {
            return answer;
        }
        self.examine(file, key, mapping.path(), vec![link, mapping.path().to_path_buf()])
    }

    /// A file that is mapped again after nobody had it is opened again: its path may lead to another one by now.
    fn open_again(&mut self, module: ModuleHandle, key: FileKey, pid: u32, mapping: &Mapping) {
        let is_closed = self.modules.get(module.index()).is_some_and(|of| of.file.is_none() && of.key == key);
        if is_closed
            && self.open.len() < FILES_MAX
            && let Ok(file) = maps::open(pid, mapping)
            && file.metadata().is_ok_and(|meta| FileKey::of(&meta) == key)
        {
            self.counters.reopened += 1;
            self.keep_open(module, Arc::new(file));
        }
    }

    /// Closes files that no process maps, now and at the look before. They are opened again when they are needed, if
    /// they are still where they were.
    pub fn close_unmapped(&mut self, mapped: &FxHashSet<ModuleHandle>) {
        let Self { modules, open, unmapped, counters, .. } = self;
        let before = std::mem::take(unmapped);
        open.retain(|handle| {
            // A file without origins (the vdso) cannot be opened again.
            let Some(module) = modules.get_mut(handle.index()).filter(|module| !module.origins.is_empty())
            else {
                return true;
            };
            if mapped.contains(handle) {
                return true;
            }
            if !before.contains(handle) {
                unmapped.insert(*handle);
                return true;
            }
            module.file = None;
            counters.closed += 1;
            false
        });
    }

    /// The vdso has no file: its bytes are copied to a file in memory, so that all modules are read alike.
    fn open_vdso(&mut self, mapping: &Mapping) -> Result<ModuleHandle, NoSymbol> {
        let image = maps::vdso(mapping)?;
        if let Some(module) = self.vdso {
            return Ok(module);
        }
        let file =
            rustix::fs::memfd_create("vdso", MemfdFlags::CLOEXEC).map_err(|_| NoSymbol::ModuleUnreadable)?;
        let mut file = File::from(file);
        file.write_all(image).map_err(|e| NoSymbol::from_io(&e))?;
        let key = FileKey::of(&file.metadata().map_err(|e| NoSymbol::from_io(&e))?);
        let module = self.examine(file, key, Path::new("[vdso]"), Vec::new())?;
        self.vdso = Some(module);
        Ok(module)
    }

    fn known(&mut self, key: FileKey) -> Option<Result<ModuleHandle, NoSymbol>> {
        self.by_key.get(key).map(Ok).or_else(|| self.refused.get(key).map(Err))
    }

    fn examine(
        &mut self,
        file: File,
        key: FileKey,
        path: &Path,
        origins: Vec<PathBuf>,
    ) -> Result<ModuleHandle, NoSymbol> {
        self.counters.examined += 1;
        let facts = ElfFacts::read(&file).and_then(|facts| Ok((facts.identity(&file)?, facts)));
        let (id, facts) = facts.inspect_err(|reason| self.refused.insert(key, *reason))?;
        // A build-id is whatever its author wrote: a copy of libc with other names must not provide those of the real
        // one. So it counts only among files of one user, who can deceive nobody else, and with equal segments.
        let author = FileVersion::of(&file).ok().and_then(|version| version.author());
        let shared_as = author.map(|author| (id, facts.size, author));
        if let Some(module) = shared_as.and_then(|shared_as| self.by_id.get(&shared_as)).copied()
            && self.modules[module.index()].facts == facts
        {
            self.counters.shared += 1;
            self.by_key.insert(key, module);
            return Ok(module);
        }
        if self.modules.len() >= MODULES_MAX {
            return Err(NoSymbol::TooManyModules);
        }
        let module = ModuleHandle(u32::try_from(self.modules.len()).map_err(|_| NoSymbol::TooManyModules)?);
        let text = path.to_string_lossy();
        let name = path.file_name().map_or_else(|| text.clone(), |name| name.to_string_lossy());
        if let Some(shared_as) = shared_as {
            self.by_id.entry(shared_as).or_insert(module);
        }
        self.by_key.insert(key, module);
        self.modules.push(Module {
            id,
            name: name.as_ref().into(),
            path: text.as_ref().into(),
            facts,
            key,
            file: None,
            origins,
        });
        self.keep_open(module, Arc::new(file));
        Ok(module)
    }

    /// A module of this table.
    pub fn get(&self, module: ModuleHandle) -> Option<&Module> {
        self.modules.get(module.index())
    }

    /// All modules with their handles.
    pub fn iter(&self) -> impl Iterator<Item = (ModuleHandle, &Module)> {
        (0..).map(ModuleHandle).zip(&self.modules)
    }

    /// The file of a module. It stays readable while the result is held, even if the process exits or the path changes.
    ///
    /// # Errors
    /// [`NoSymbol::ModuleMissing`] when the file was closed to save descriptors and is gone or changed since.
    pub fn open(&mut self, handle: ModuleHandle) -> Result<Arc<File>, NoSymbol> {
        let module = self.modules.get(handle.index()).ok_or(NoSymbol::ModuleMissing)?;
        if let Some(file) = &module.file {
            return Ok(Arc::clone(file));
        }
        let same = |file: &File| file.metadata().is_ok_and(|meta| FileKey::of(&meta) == module.key);
        let found = module.origins.iter().find_map(|path| maps::open_path(path).ok().filter(same));
        let file = Arc::new(found.ok_or(NoSymbol::ModuleMissing)?);
        self.counters.reopened += 1;
        self.keep_open(handle, Arc::clone(&file));
        Ok(file)
    }

    fn keep_open(&mut self, handle: ModuleHandle, file: Arc<File>) {
        if self.open.len() >= FILES_MAX {
            // A file without origins (the vdso) cannot be opened again.
            let oldest = self.open.iter().position(|m| !self.modules[m.index()].origins.is_empty());
            if let Some(oldest) = oldest.and_then(|at| self.open.remove(at)) {
                self.modules[oldest.index()].file = None;
                self.counters.closed += 1;
            }
        }
        self.modules[handle.index()].file = Some(file);
        self.open.push_back(handle);
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        let of = |module: &Module| {
            let ElfFacts { segments, .. } = &module.facts;
            let origins = module.origins.iter().map(|path| path.as_os_str().len() + size_of::<PathBuf>());
            size_of_val(&**segments) + module.path.len() + module.name.len() + origins.sum::<usize>()
        };
        self.modules.capacity() * size_of::<Module>()
            + self.modules.iter().map(of).sum::<usize>()
            + self.by_key.bytes()
            + self.refused.bytes()
            + table_bytes(self.by_id.capacity(), size_of::<((ModuleId, u64, u32), ModuleHandle)>())
    }

    /// The counters so far.
    pub const fn counters(&self) -> ModuleCounters {
        self.counters
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn unmapped_files_are_closed_and_opened_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::copy(std::env::current_exe().unwrap(), &path).unwrap();
        let mut modules = Modules::new();
        let file = File::open(&path).unwrap();
        let key = FileKey::of(&file.metadata().unwrap());
        let module = modules.examine(file, key, &path, vec![path.clone()]).unwrap();
        let mapped = FxHashSet::from_iter([module]);
        let is_open = |modules: &Modules| modules.get(module).unwrap().file.is_some();
        for (mapped, expect) in [(&mapped, true), (&FxHashSet::default(), true), (&mapped, true)] {
            modules.close_unmapped(mapped);
            assert_eq!(is_open(&modules), expect);
        }
        (0..2).for_each(|_| modules.close_unmapped(&FxHashSet::default()));
        assert!(!is_open(&modules), "unmapped twice in a row");
        assert!(modules.open(module).is_ok() && is_open(&modules));
        (0..2).for_each(|_| modules.close_unmapped(&FxHashSet::default()));
        fs::copy("/proc/self/exe", folder.path().join("new")).unwrap();
        fs::rename(folder.path().join("new"), &path).unwrap();
        assert_eq!(modules.open(module).err(), Some(NoSymbol::ModuleMissing));
    }

    #[test]
    fn only_files_of_one_author_are_one_module() {
        let folder = tempfile::tempdir().unwrap();
        let mut modules = Modules::new();
        let mut module = |name: &str, mode| {
            let path = folder.path().join(name);
            fs::copy(std::env::current_exe().unwrap(), &path).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let file = File::open(&path).unwrap();
            let (key, version) = (FileKey::of(&file.metadata().unwrap()), FileVersion::of(&file).unwrap());
            let module = modules.examine(file, key, &path, Vec::new()).unwrap();
            assert_eq!(modules.known(key), Some(Ok(module)));
            (module, version)
        };
        // The user who can write the first file may have put other names into it.
        let (writable, _) = module("writable", 0o666);
        let (one, version) = module("one", 0o644);
        let (two, _) = module("two", 0o644);
        let (again, _) = module("writable too", 0o646);
        assert_eq!(one == two, version.author().is_some());
        assert!(writable != one && again != one && again != writable);
    }
}
