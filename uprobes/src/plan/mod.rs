//! What would be attached where in some processes, and what is missing.
//!
//! Owns: [`Planner`], which plans each file once. Because: the same file is mapped by many processes, and looking
//! through a library of half a gigabyte takes time. Does not: attach.

mod file;
mod request;

use deepctx_address_space::NoSymbol;
use deepctx_events::Family;
use rustc_hash::FxHashMap;

use crate::catalogue::user::UserRow;
use crate::locate::instruction::Kernel;
use crate::locate::libraries::{self, FileKey, Library};
use file::Search;
pub use file::{Contents, Layers, PlannedFile};
pub use request::{ProbeRequest, missing};

/// Most files that are kept track of, those without anything to probe included: eight thousand processes with a few
/// dozen files of their own each. Beyond it, files are counted and left alone.
pub const FILES_MAX: usize = 1 << 18;

/// Collects what to attach to, process by process; later calls only plan what is new.
#[derive(Debug)]
pub struct Planner {
    search: Search,
    /// Where a file is in `planned`; `None` when it has nothing.
    seen: FxHashMap<FileKey, Option<usize>>,
    planned: Vec<PlannedFile>,
    left_out: u64,
}

impl Planner {
    /// Searches for calls of accelerators and for a user's rows.
    pub fn new(user: Vec<UserRow>, layers: Layers, kernel: Kernel) -> Self {
        let request = ProbeRequest::default();
        Self {
            search: Search { user, layers, accelerators: true, request, kernel },
            seen: FxHashMap::default(),
            planned: Vec::new(),
            left_out: 0,
        }
    }

    /// Chooses what is searched for beside the user's rows.
    pub fn with_request(self, accelerators: bool, request: ProbeRequest) -> Self {
        Self { search: Search { accelerators, request, ..self.search }, ..self }
    }

    /// Plans the files of a process. Returns the indices in [`Planner::planned`] of those that are new.
    ///
    /// # Errors
    /// [`NoSymbol::ProcessGone`] or [`NoSymbol::PermissionDenied`].
    pub fn add_process(&mut self, pid: u32) -> Result<Vec<usize>, NoSymbol> {
        Ok(self.add_libraries(libraries::of_process(pid)?))
    }

    /// Plans files that a process has mapped.
    pub fn add_libraries(&mut self, libraries: Vec<Library>) -> Vec<usize> {
        let mut new = Vec::new();
        for library in libraries {
            let key = library.key();
            if let Some(known) = self.seen.get(&key) {
                if let Some(planned) = known.and_then(|at| self.planned.get_mut(at))
                    && let Err(at) = planned.pids.binary_search(&library.pid)
                {
                    planned.pids.insert(at, library.pid);
                }
                continue;
            }
            if self.seen.len() == FILES_MAX {
                self.left_out += 1;
                continue;
            }
            // Known before it is parsed: where that panics, and a caller goes on, it is not parsed again.
            let place = self.seen.entry(key).or_insert(None);
            *place = self.search.plan(library).map(|planned| {
                self.planned.push(planned);
                new.push(self.planned.len() - 1);
                self.planned.len() - 1
            });
        }
        new
    }

    /// Requests the tensors of these operators, too. Returns what is to be added to files that were planned before;
    /// those of later ones are in their plans.
    pub fn request_tensors(&mut self, names: Vec<String>) -> Vec<PlannedFile> {
        let known = &mut self.search.request.tensors;
        let new: Vec<String> = names.into_iter().filter(|name| !known.contains(name)).collect();
        known.extend(new.iter().cloned());
        let Search { layers, accelerators, kernel, .. } = self.search;
        let request = ProbeRequest { tensors: new, ..ProbeRequest::default() };
        let alone = Search { user: Vec::new(), layers, accelerators, request, kernel };
        let of_torch = |planned: &&PlannedFile| planned.contents == Contents::Library(Family::Torch);
        let planned = self.planned.iter().filter(of_torch);
        planned.filter_map(|planned| alone.plan(planned.library.clone())).collect()
    }

    /// The files that have something to probe, or should have.
    pub fn planned(&self) -> &[PlannedFile] {
        &self.planned
    }

    /// Files that were not planned because there are more than [`FILES_MAX`].
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Families of which no file was found.
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
