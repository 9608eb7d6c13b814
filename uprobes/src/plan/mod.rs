//! The probes to attach in some processes, and the missing ones.
//!
//! Owns: [`Planner`], which plans each file once. Because: many processes map the same file, and searching a library of
//! half a gigabyte takes time. Does not: attach, or decide when to drop a file.

mod file;
mod request;

use deepctx_address_space::NoSymbol;
use deepctx_events::Family;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::catalogue::user::UserRow;
use crate::locate::instruction::Kernel;
use crate::locate::libraries::{self, FileKey, Library};
pub use file::{Contents, Layers, PlannedFile};
use file::{Search, is_of_process};
pub use request::{NotRecorded, ProbeRequest, missing};

/// Maximum files remembered as having nothing to probe: eight thousand processes with a few dozen files of their own
/// each. The least recently seen ones are dropped first, and searched again if they come back.
pub const FILES_MAX: usize = 1 << 18;
/// Maximum files remembered as impossible to open through a process.
const UNOPENED_MAX: usize = 1 << 12;

/// Number of a planned file. Numbers of removed files are not reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PlanId(u64);

/// Plans what to attach to, process by process; later calls only plan new files.
#[derive(Debug)]
pub struct Planner {
    search: Search,
    /// Files that are in `planned`.
    known: FxHashMap<FileKey, PlanId>,
    empty: EmptyFiles,
    /// Files that could not be opened through this process, which had ended or maps another file by now. Through
    /// another process they may be.
    unopened: FxHashSet<(FileKey, u32)>,
    /// By ascending number.
    planned: Vec<PlannedFile>,
    ids: u64,
}

/// Files without anything to probe, so that they are not searched at each scan. There are two generations: the older is
/// dropped when the younger is full.
#[derive(Debug, Default)]
struct EmptyFiles {
    young: FxHashSet<FileKey>,
    old: FxHashSet<FileKey>,
}

impl EmptyFiles {
    fn contains(&mut self, key: &FileKey) -> bool {
        if self.young.contains(key) {
            return true;
        }
        let known = self.old.take(key);
        let is_known = known.is_some();
        if let Some(key) = known {
            self.insert(key);
        }
        is_known
    }

    fn insert(&mut self, key: FileKey) {
        if self.young.len() >= FILES_MAX / 2 {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key);
    }

    fn remove(&mut self, key: &FileKey) {
        self.young.remove(key);
        self.old.remove(key);
    }
}

impl Planner {
    /// Searches for calls of accelerators and for a user's rows.
    pub fn new(user: Vec<UserRow>, layers: Layers, kernel: Kernel) -> Self {
        let request = ProbeRequest::default();
        Self {
            search: Search { user, layers, accelerators: true, request, kernel },
            known: FxHashMap::default(),
            empty: EmptyFiles::default(),
            unopened: FxHashSet::default(),
            planned: Vec::new(),
            ids: 0,
        }
    }

    /// Sets what to search for besides the user's rows.
    pub fn with_request(self, accelerators: bool, request: ProbeRequest) -> Self {
        Self { search: Search { accelerators, request, ..self.search }, ..self }
    }

    /// Plans the files of a process, which no longer has any others. Returns the numbers of new ones.
    ///
    /// # Errors
    /// [`NoSymbol::ProcessGone`] or [`NoSymbol::PermissionDenied`].
    pub fn add_process(&mut self, pid: u32) -> Result<Vec<PlanId>, NoSymbol> {
        let libraries = libraries::of_process(pid)?;
        let mapped: FxHashSet<PlanId> =
            libraries.iter().filter_map(|library| self.known.get(&library.key()).copied()).collect();
        for planned in self.planned.iter_mut().filter(|planned| !mapped.contains(&planned.id)) {
            planned.remove_process(pid);
        }
        Ok(self.add_libraries(libraries))
    }

    /// Plans files that a process has mapped.
    pub fn add_libraries(&mut self, libraries: Vec<Library>) -> Vec<PlanId> {
        let mut new = Vec::new();
        for library in libraries {
            let key = library.key();
            if let Some(id) = self.known.get(&key).copied() {
                if let Some(planned) = self.get_mut(id)
                    && let Err(at) = planned.pids.binary_search(&library.pid)
                {
                    planned.pids.insert(at, library.pid);
                }
                continue;
            }
            if self.empty.contains(&key) || self.is_unopened(&key, library.pid) {
                continue;
            }
            let file = library.open();
            // Marked before it is parsed: if that panics and a caller continues, it is not parsed again.
            match &file {
                Err(because) if is_of_process(*because) => self.note_unopened(key.clone(), library.pid),
                Ok(_) | Err(_) => self.empty.insert(key.clone()),
            }
            if let Some(planned) = self.search.plan(library, file) {
                self.empty.remove(&key);
                self.ids += 1;
                let id = PlanId(self.ids);
                self.known.insert(key, id);
                self.planned.push(PlannedFile { id, ..planned });
                new.push(id);
            }
        }
        new
    }

    /// Removes a process that has ended.
    pub fn remove_process(&mut self, pid: u32) {
        for planned in &mut self.planned {
            planned.remove_process(pid);
        }
    }

    /// Removes a file. If a process has it, or maps it later, it is planned again.
    pub fn remove(&mut self, id: PlanId) -> Option<PlannedFile> {
        let at = self.planned.binary_search_by_key(&id, |planned| planned.id).ok()?;
        let planned = self.planned.remove(at);
        self.known.remove(&planned.library.key());
        Some(planned)
    }

    /// Treats a file as having nothing to probe, until it is retried; one that others may open, only as the process
    /// maps it through which that was tried.
    pub fn shelve(&mut self, id: PlanId) {
        let Some(planned) = self.remove(id) else { return };
        match planned.others_may_open {
            true => self.note_unopened(planned.library.key(), planned.library.pid),
            false => self.empty.insert(planned.library.key()),
        }
    }

    fn is_unopened(&self, key: &FileKey, pid: u32) -> bool {
        !self.unopened.is_empty() && self.unopened.contains(&(key.clone(), pid))
    }

    fn note_unopened(&mut self, key: FileKey, pid: u32) {
        if self.unopened.len() >= UNOPENED_MAX {
            self.unopened.clear();
        }
        self.unopened.insert((key, pid));
    }

    /// Forgets that a file has nothing to probe.
    pub fn retry(&mut self, key: &FileKey) {
        self.empty.remove(key);
    }

    /// Also requests the tensors of these operators. Returns the additions to files planned before; plans of later
    /// files include them.
    pub fn request_tensors(&mut self, names: Vec<String>) -> Vec<PlannedFile> {
        let known = &mut self.search.request.tensors;
        let new: Vec<String> = names.into_iter().filter(|name| !known.contains(name)).collect();
        known.extend(new.iter().cloned());
        let Search { layers, accelerators, kernel, .. } = self.search;
        let request = ProbeRequest { tensors: new, ..ProbeRequest::default() };
        let alone = Search { user: Vec::new(), layers, accelerators, request, kernel };
        let of_torch = |planned: &&PlannedFile| planned.contents == Contents::Library(Family::Torch);
        let plan = |planned: &PlannedFile| {
            let more = alone.plan(planned.library.clone(), planned.library.open())?;
            Some(PlannedFile { id: planned.id, pids: planned.pids.clone(), ..more })
        };
        self.planned.iter().filter(of_torch).filter_map(plan).collect()
    }

    /// The files that have something to probe, or should have.
    pub fn planned(&self) -> &[PlannedFile] {
        &self.planned
    }

    /// One of them; `None` if it was removed.
    pub fn get(&self, id: PlanId) -> Option<&PlannedFile> {
        let at = self.planned.binary_search_by_key(&id, |planned| planned.id).ok()?;
        self.planned.get(at)
    }

    /// One of them, mutable.
    pub fn get_mut(&mut self, id: PlanId) -> Option<&mut PlannedFile> {
        let at = self.planned.binary_search_by_key(&id, |planned| planned.id).ok()?;
        self.planned.get_mut(at)
    }

    /// Families without a file.
    pub fn absent(&self) -> Vec<Family> {
        let has = |family| {
            self.planned.iter().any(|planned| match planned.contents {
                Contents::Library(found) => found == family,
                Contents::RuntimeInside => family == Family::CudaRuntime,
                Contents::User | Contents::Collector => false,
            })
        };
        Family::ALL.into_iter().filter(|family| self.search.wants(*family) && !has(*family)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(inode: u64) -> FileKey {
        FileKey { device: Default::default(), inode, path: "/lib/one".into() }
    }

    #[test]
    fn files_without_probes_are_forgotten_when_there_are_too_many() {
        let mut empty = EmptyFiles::default();
        let half = FILES_MAX as u64 / 2;
        for inode in 0..half {
            empty.insert(key(inode));
        }
        // Seen again in the second generation: it stays.
        empty.insert(key(half));
        assert!(empty.contains(&key(0)));
        for inode in half..2 * half {
            empty.insert(key(inode));
        }
        assert!(empty.contains(&key(0)), "it was met since");
        assert!(!empty.contains(&key(1)), "nobody met it");
        assert!(empty.young.len() + empty.old.len() <= FILES_MAX);
    }
}
