//! The files that processes map, each kept once.
//!
//! Owns: which files are one module, which of them are open, and when a module is forgotten. Because: hundreds of
//! processes map the same few files, by different names and in different namespaces, and may be gone when a name is
//! needed. Does not: read symbols.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use deepctx_address_space::elf::{ElfFacts, ModuleId};
use deepctx_address_space::maps::{self, Backing, Mapping};
use deepctx_address_space::{FileKey, FileVersion, GONE_USER, NoSymbol, accountable_user};
use deepctx_common::memory::table_bytes;
use rustc_hash::{FxHashMap, FxHashSet};
use rustix::fs::MemfdFlags;

use super::module_table::{Module, ModuleHandle, ModuleTable};
use crate::cache::BoundedCache;

/// The user who is charged for the vdso.
const ROOT: u32 = 0;
/// Most modules kept.
const MODULES_MAX: usize = 1 << 16;
/// Most modules kept that no process maps anymore: a program that runs again finds its own. A build of a big program
/// maps some thousand files.
const UNMAPPED_MAX: usize = 4096;
/// Most files kept open for modules; the usual limit of a process is 1024 descriptors.
const FILES_MAX: usize = 256;
/// Most files whose module is remembered; an evicted file is examined again.
const KNOWN_MAX: usize = 1 << 17;
/// Most files remembered as unusable, so that they are not opened again at each read of a maps file.
const REFUSED_MAX: usize = 4096;

/// Counters of [`Modules`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModuleCounters {
    /// Files examined.
    pub examined: u64,
    /// Files that were known under another name.
    pub shared: u64,
    /// Mappings whose file could not be used.
    pub refused: u64,
    /// Files closed to stay within the bound, or because no process maps them.
    pub closed: u64,
    /// Files opened again.
    pub reopened: u64,
    /// Modules forgotten since nobody maps them.
    pub forgotten: u64,
}

/// All modules.
#[derive(Debug)]
pub struct Modules {
    modules: ModuleTable,
    by_key: BoundedCache<FileKey, ModuleHandle>,
    /// By identity, size and the only user who can write the file.
    by_id: FxHashMap<(ModuleId, u64, u32), ModuleHandle>,
    refused: BoundedCache<FileKey, NoSymbol>,
    /// All processes have the same.
    vdso: Option<ModuleHandle>,
    /// Modules with an open file, oldest first.
    open: VecDeque<ModuleHandle>,
    /// Modules that no process maps, by the look at which that began.
    unmapped: FxHashMap<ModuleHandle, u64>,
    /// Looks at which modules are mapped.
    looks: u64,
    unmapped_max: usize,
    counters: ModuleCounters,
}

impl Default for Modules {
    fn default() -> Self {
        Self {
            modules: ModuleTable::new(MODULES_MAX),
            by_key: BoundedCache::new(KNOWN_MAX),
            vdso: None,
            by_id: FxHashMap::default(),
            refused: BoundedCache::new(REFUSED_MAX),
            open: VecDeque::new(),
            unmapped: FxHashMap::default(),
            looks: 0,
            unmapped_max: UNMAPPED_MAX,
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
        let facts = &self.modules.get(module).ok_or(NoSymbol::ModuleMissing)?.facts;
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
        let user = accountable_user(pid).unwrap_or(GONE_USER);
        self.examine(file, key, user, mapping.path(), vec![link, mapping.path().to_path_buf()])
    }

    /// Reopens a file that is mapped again after no process mapped it: its path may lead to another one by now.
    fn open_again(&mut self, module: ModuleHandle, key: FileKey, pid: u32, mapping: &Mapping) {
        let is_closed = self.modules.get(module).is_some_and(|of| of.file.is_none() && of.key == key);
        if is_closed
            && self.open.len() < FILES_MAX
            && let Ok(file) = maps::open(pid, mapping)
            && file.metadata().is_ok_and(|meta| FileKey::of(&meta) == key)
        {
            self.counters.reopened += 1;
            self.keep_open(module, Arc::new(file));
        }
    }

    /// Closes files that no process maps, now and at the look before, and forgets the modules that were unmapped first
    /// where there are many. Files are opened again when they are needed, if they are still where they were.
    pub fn end_unmapped(&mut self, mapped: &FxHashSet<ModuleHandle>) {
        self.looks += 1;
        let Self { modules, open, unmapped, looks, counters, .. } = self;
        unmapped.retain(|handle, _| !mapped.contains(handle));
        // A file without origins (the vdso) cannot be opened again.
        let reopens = |module: &Module| !module.origins.is_empty();
        for (handle, _) in modules.since(0).filter(|(of, module)| reopens(module) && !mapped.contains(of)) {
            unmapped.entry(handle).or_insert(*looks);
        }
        let is_lasting = |handle: &ModuleHandle| unmapped.get(handle).is_some_and(|since| since < looks);
        open.retain(|handle| {
            let closes = is_lasting(handle);
            if closes && let Some(module) = modules.get_mut(*handle) {
                module.file = None;
                counters.closed += 1;
            }
            !closes
        });
        self.forget_unmapped();
    }

    /// Keeps only so many of the modules that nobody maps.
    fn forget_unmapped(&mut self) {
        let excess = self.unmapped.len().saturating_sub(self.unmapped_max);
        if excess == 0 {
            return;
        }
        let mut first: Vec<_> = self.unmapped.iter().map(|(handle, since)| (*since, *handle)).collect();
        first.sort_unstable();
        // What was mapped until now may have samples that are on their way.
        let lasting = first.into_iter().filter(|(since, _)| *since < self.looks);
        let gone: FxHashSet<ModuleHandle> = lasting.take(excess).map(|(_, handle)| handle).collect();
        for handle in &gone {
            self.counters.forgotten += u64::from(self.modules.forget(*handle).is_some());
        }
        self.unmapped.retain(|handle, _| !gone.contains(handle));
        self.open.retain(|handle| !gone.contains(handle));
        self.by_id.retain(|_, handle| !gone.contains(handle));
    }

    /// The vdso has no file: its bytes are copied to a file in memory, so that all modules are read in the same way.
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
        let module = self.examine(file, key, ROOT, Path::new("[vdso]"), Vec::new())?;
        self.vdso = Some(module);
        Ok(module)
    }

    fn known(&mut self, key: FileKey) -> Option<Result<ModuleHandle, NoSymbol>> {
        let module = self.by_key.get(key).filter(|module| self.modules.get(*module).is_some());
        let module = module.or_else(|| self.known_while_open(key));
        module.map(Ok).or_else(|| self.refused.get(key).map(Err))
    }

    /// The module of an open file of which only the time of the last change differs: package managers link, unlink and
    /// chmod files that are in use.
    fn known_while_open(&mut self, key: FileKey) -> Option<ModuleHandle> {
        let handle = self.by_key.get(key.while_open())?;
        let module = self.modules.get_mut(handle)?;
        // The open one may be another file with the same content.
        if module.file.is_none() || module.key.while_open() != key.while_open() {
            return None;
        }
        module.key = key;
        self.by_key.insert(key, handle);
        Some(handle)
    }

    fn examine(
        &mut self,
        file: File,
        key: FileKey,
        user: u32,
        path: &Path,
        origins: Vec<PathBuf>,
    ) -> Result<ModuleHandle, NoSymbol> {
        // A user without room does not have files read again at each scan.
        if !self.modules.allows(user) {
            return Err(NoSymbol::TooManyModules);
        }
        self.counters.examined += 1;
        let facts = ElfFacts::read(&file).and_then(|facts| Ok((facts.identity(&file)?, facts)));
        let (id, facts) = facts.inspect_err(|reason| self.refused.insert(key, *reason))?;
        // The author of a file chooses its build-id: a copy of libc with other names must not provide those of the real
        // one. So it counts only among files of one user, who can deceive nobody else, and with equal segments.
        let author = FileVersion::of(&file).ok().and_then(|version| version.author());
        let shared_as = author.map(|author| (id, facts.size, author));
        if let Some(module) = shared_as.and_then(|shared_as| self.by_id.get(&shared_as)).copied()
            && self.modules.get(module).is_some_and(|known| known.facts == facts)
        {
            self.counters.shared += 1;
            self.by_key.insert(key, module);
            return Ok(module);
        }
        let text = path.to_string_lossy();
        let name = path.file_name().map_or_else(|| text.clone(), |name| name.to_string_lossy());
        let (name, path) = (name.as_ref().into(), text.as_ref().into());
        let module = self.modules.insert(Module { id, name, path, facts, key, user, file: None, origins })?;
        if let Some(shared_as) = shared_as {
            self.by_id.entry(shared_as).or_insert(module);
        }
        self.by_key.insert(key, module);
        // Only of the file that is kept open, not of others that share its module.
        self.by_key.insert(key.while_open(), module);
        self.keep_open(module, Arc::new(file));
        Ok(module)
    }

    /// A module of this table.
    pub fn get(&self, module: ModuleHandle) -> Option<&Module> {
        self.modules.get(module)
    }

    /// Modules opened since, and including, the one of this number ([`ModuleHandle::number`]), in that order.
    pub fn since(&self, number: u32) -> impl Iterator<Item = (ModuleHandle, &Module)> {
        self.modules.since(number)
    }

    /// The file of a module. It stays readable while the result is held, even if the process exits or the path changes.
    ///
    /// # Errors
    /// [`NoSymbol::ModuleMissing`] when the file was closed to save descriptors and is gone or changed since.
    pub fn open(&mut self, handle: ModuleHandle) -> Result<Arc<File>, NoSymbol> {
        let module = self.modules.get(handle).ok_or(NoSymbol::ModuleMissing)?;
        if let Some(file) = &module.file {
            return Ok(Arc::clone(file));
        }
        let same = |file: &File| file.metadata().is_ok_and(|meta| FileKey::of(&meta) == module.key);
        // Links and modes change the key of a file whose content stays.
        let shares = |file: &File| same(file) || self.shares(handle, module, file);
        let found = module.origins.iter().find_map(|path| maps::open_path(path).ok().filter(shares));
        let file = Arc::new(found.ok_or(NoSymbol::ModuleMissing)?);
        let key = FileKey::of(&file.metadata().map_err(|e| NoSymbol::from_io(&e))?);
        for key in [key, key.while_open()] {
            self.by_key.insert(key, handle);
        }
        if let Some(module) = self.modules.get_mut(handle) {
            module.key = key;
        }
        self.counters.reopened += 1;
        self.keep_open(handle, Arc::clone(&file));
        Ok(file)
    }

    /// Whether a file would share a module by its build-id and author.
    fn shares(&self, handle: ModuleHandle, module: &Module, file: &File) -> bool {
        let ModuleId::BuildId(_) = module.id else { return false };
        let Some(author) = FileVersion::of(file).ok().and_then(|version| version.author()) else {
            return false;
        };
        self.by_id.get(&(module.id, module.facts.size, author)) == Some(&handle)
            && ElfFacts::read(file).is_ok_and(|facts| facts == module.facts)
    }

    fn keep_open(&mut self, handle: ModuleHandle, file: Arc<File>) {
        let Self { modules, open, counters, .. } = self;
        if open.len() >= FILES_MAX {
            // A file without origins (the vdso) cannot be opened again.
            let reopens =
                |of: &ModuleHandle| modules.get(*of).is_none_or(|module| !module.origins.is_empty());
            let oldest = open.iter().position(reopens).and_then(|at| open.remove(at));
            if let Some(oldest) = oldest.and_then(|handle| modules.get_mut(handle)) {
                oldest.file = None;
                counters.closed += 1;
            }
        }
        if let Some(module) = modules.get_mut(handle) {
            module.file = Some(file);
            open.push_back(handle);
        }
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        self.modules.bytes()
            + self.by_key.bytes()
            + self.refused.bytes()
            + table_bytes(self.by_id.capacity(), size_of::<((ModuleId, u64, u32), ModuleHandle)>())
            + table_bytes(self.unmapped.capacity(), size_of::<(ModuleHandle, u64)>())
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
        let module = modules.examine(file, key, ROOT, &path, vec![path.clone()]).unwrap();
        let mapped = FxHashSet::from_iter([module]);
        let is_open = |modules: &Modules| modules.get(module).unwrap().file.is_some();
        for (mapped, expect) in [(&mapped, true), (&FxHashSet::default(), true), (&mapped, true)] {
            modules.end_unmapped(mapped);
            assert_eq!(is_open(&modules), expect);
        }
        (0..2).for_each(|_| modules.end_unmapped(&FxHashSet::default()));
        assert!(!is_open(&modules), "unmapped twice in a row");
        assert!(modules.open(module).is_ok() && is_open(&modules));
        (0..2).for_each(|_| modules.end_unmapped(&FxHashSet::default()));
        fs::copy("/bin/true", folder.path().join("new")).unwrap();
        fs::rename(folder.path().join("new"), &path).unwrap();
        assert_eq!(modules.open(module).err(), Some(NoSymbol::ModuleMissing));
    }

    #[test]
    fn a_new_link_leaves_a_file_its_module() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::copy(std::env::current_exe().unwrap(), &path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let mut modules = Modules::new();
        let key = || FileKey::of(&fs::metadata(&path).unwrap());
        let (first, file) = (key(), File::open(&path).unwrap());
        let author = FileVersion::of(&file).unwrap().author();
        let module = modules.examine(file, first, ROOT, &path, vec![path.clone()]).unwrap();
        let has_build = matches!(modules.get(module).unwrap().id(), ModuleId::BuildId(_));
        let link = |name: &str| {
            // The kernel's clock of files has a resolution of some milliseconds.
            std::thread::sleep(std::time::Duration::from_millis(50));
            fs::hard_link(&path, folder.path().join(name)).unwrap();
        };
        link("second");
        assert_ne!(key(), first);
        assert_eq!(modules.known(key()), Some(Ok(module)));
        link("third");
        let close = |modules: &mut Modules| {
            (0..2).for_each(|_| modules.end_unmapped(&FxHashSet::default()));
            assert!(modules.get(module).unwrap().file.is_none());
        };
        close(&mut modules);
        assert_eq!(modules.known(key()), None, "its number may be that of another file");
        // Where everybody may have written the file, its build-id says nothing.
        assert_eq!(modules.open(module).is_ok(), author.is_some() && has_build);
        close(&mut modules);
        link("fourth");
        fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        assert_eq!(modules.open(module).err(), Some(NoSymbol::ModuleMissing));
    }

    /// Files that nobody shares.
    struct Files {
        folder: tempfile::TempDir,
        made: usize,
    }

    impl Files {
        /// Opens a new file, charged to this user.
        fn open(&mut self, modules: &mut Modules, user: u32) -> Result<ModuleHandle, NoSymbol> {
            self.made += 1;
            let path = self.folder.path().join(self.made.to_string());
            fs::copy("/bin/true", &path).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
            let file = File::open(&path).unwrap();
            let key = FileKey::of(&file.metadata().unwrap());
            modules.examine(file, key, user, &path, vec![path.clone()])
        }
    }

    fn with_room(modules_max: usize, unmapped_max: usize) -> (Modules, Files) {
        let files = Files { folder: tempfile::tempdir().unwrap(), made: 0 };
        (Modules { modules: ModuleTable::new(modules_max), unmapped_max, ..Modules::default() }, files)
    }

    #[test]
    fn files_that_come_and_go_never_fill_the_table() {
        let (mut modules, mut files) = with_room(40, 10);
        let stays = files.open(&mut modules, 7).unwrap();
        let mut before = Vec::new();
        for round in 0..50 {
            let handles: Vec<_> = (0..5).map(|_| files.open(&mut modules, 7).unwrap()).collect();
            assert!(handles.iter().all(|handle| handle.number() > 5 * round), "no handle is used twice");
            modules.end_unmapped(&handles.iter().copied().chain([stays]).collect());
            assert!(before.iter().all(|handle| modules.get(*handle).is_some()), "just unmapped");
            before = handles;
        }
        assert!(modules.get(stays).is_some());
        assert_eq!(modules.since(0).count() as u64 + modules.counters().forgotten, 251);
        assert!(modules.since(0).count() <= 1 + 10 + 10, "{}", modules.since(0).count());
        let first = FileKey::of(&fs::metadata(files.folder.path().join("2")).unwrap());
        assert_eq!(modules.known(first), None, "a forgotten file is examined again");
    }

    #[test]
    fn a_user_with_many_files_leaves_room_for_others() {
        let (mut modules, mut files) = with_room(40, 10);
        let mapped: FxHashSet<_> = (0..50).map_while(|_| files.open(&mut modules, 7).ok()).collect();
        assert_eq!(mapped.len(), 32, "four fifths");
        assert_eq!(files.open(&mut modules, 7), Err(NoSymbol::TooManyModules));
        assert!(files.open(&mut modules, 8).is_ok());
        for mapped in [&mapped, &FxHashSet::default(), &FxHashSet::default()] {
            modules.end_unmapped(mapped);
        }
        assert!(files.open(&mut modules, 7).is_ok(), "room is given back");
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
            let module = modules.examine(file, key, ROOT, &path, Vec::new()).unwrap();
            assert_eq!(modules.known(key), Some(Ok(module)));
            (module, version)
        };
        // A user who can write the first file may have put other names into it.
        let (writable, _) = module("writable", 0o666);
        let (one, version) = module("one", 0o644);
        let (two, _) = module("two", 0o644);
        let (again, _) = module("writable too", 0o646);
        assert_eq!(one == two, version.author().is_some());
        assert!(writable != one && again != one && again != writable);
    }
}
