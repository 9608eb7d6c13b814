//! What would be attached where in some processes, and what is missing.
//!
//! Owns: putting rows, files and reasons together, each file looked at once. Because: the same file is mapped by many
//! processes, and several names of one function are one probe: two would count every call twice. Does not: attach.

use std::path::PathBuf;

use deepctx_address_space::NoSymbol;
use deepctx_events::Family;
use rustc_hash::FxHashMap;

use crate::catalogue::{Row, allocator_rows, range_rows, rows, team_rows};
use crate::collector::{self, Collector};
use crate::entry::Kernel;
use crate::image::{Image, Source};
use crate::libraries::{self, FileKey, Library};
use crate::reason::NoProbe;
use crate::resolve::{Inside, Resolution, resolve, runtime_inside};
pub use crate::site::{Missing, Site};
use crate::torch::{self, Questions};
use crate::user::UserRow;
use crate::xla;

/// Most files that are kept track of, those without anything to probe included: eight thousand processes with a few
/// dozen files of their own each. Beyond it, files are counted and left alone.
pub const FILES_MAX: usize = 1 << 18;

/// Which of two layers that see the same call get a probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layers {
    /// Only the lowest: one call is one event.
    #[default]
    Lowest,
    /// All; whoever reads the events must know that they overlap.
    All,
}

/// What a file was looked at for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// It is a library of the catalogue, by its name.
    Library(Family),
    /// The CUDA runtime is linked into it.
    RuntimeInside,
    /// Only a user's rows name it.
    User,
    /// It is our own collector.
    Collector,
}

/// One file.
#[derive(Clone, Debug, PartialEq)]
pub struct Planned {
    /// The file, as its first user has it.
    pub library: Library,
    /// Path by which to attach.
    pub attach_path: PathBuf,
    /// What it was looked at for.
    pub contents: Contents,
    /// The processes that have it mapped, ascending.
    pub pids: Vec<u32>,
    /// Its probes, by place in the file.
    pub sites: Vec<Site>,
    /// What it does not have.
    pub missing: Vec<Missing>,
    /// Of a collector: its messages, or why it cannot be heard.
    pub collector: Option<Result<Collector, NoProbe>>,
}

/// Collects what to attach to, process by process; later calls only look at what is new.
#[derive(Debug)]
pub struct Planner {
    user: Vec<UserRow>,
    layers: Layers,
    accelerators: bool,
    questions: Questions,
    kernel: Kernel,
    /// Where a file stands in `planned`; `None` when it has nothing.
    seen: FxHashMap<FileKey, Option<usize>>,
    planned: Vec<Planned>,
    left_out: u64,
}

impl Planner {
    /// Nothing yet.
    pub fn new(user: Vec<UserRow>, layers: Layers, kernel: Kernel) -> Self {
        Self {
            user,
            layers,
            accelerators: true,
            questions: Questions::default(),
            kernel,
            seen: FxHashMap::default(),
            planned: Vec::new(),
            left_out: 0,
        }
    }

    /// Chooses what is looked for besides the user's rows: libraries of accelerators (they are unless this says otherwise),
    /// and what answers questions to PyTorch (there are none).
    pub fn watching(self, accelerators: bool, questions: Questions) -> Self {
        Self { accelerators, questions, ..self }
    }

    /// Looks at the files of a process. Gives the places in [`Planner::planned`] of those that are new.
    ///
    /// # Errors
    /// [`NoSymbol::ProcessGone`] or [`NoSymbol::PermissionDenied`].
    pub fn add_process(&mut self, pid: u32) -> Result<Vec<usize>, NoSymbol> {
        Ok(self.add_libraries(libraries::of_process(pid)?))
    }

    /// Looks at files that a process has mapped.
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
            let planned = self.look(library).map(|planned| {
                self.planned.push(planned);
                new.push(self.planned.len() - 1);
                self.planned.len() - 1
            });
            self.seen.insert(key, planned);
        }
        new
    }

    /// The tensors of these operators are asked for, too, if they are not yet. Gives what is to be added to files that were
    /// looked at before; those of later ones are as of the others.
    pub fn ask_for_tensors(&mut self, names: Vec<String>) -> Vec<Planned> {
        let new: Vec<String> =
            names.into_iter().filter(|name| !self.questions.tensors.contains(name)).collect();
        let alone = Self {
            user: Vec::new(),
            seen: FxHashMap::default(),
            planned: Vec::new(),
            questions: Questions { tensors: new.clone(), ..Questions::default() },
            ..*self
        };
        self.questions.tensors.extend(new);
        let of_torch = |planned: &&Planned| planned.contents == Contents::Library(Family::Torch);
        let known = self.planned.iter().filter(of_torch);
        known.filter_map(|known| alone.look(known.library.clone())).collect()
    }

    /// The files that have something, or should have.
    pub fn planned(&self) -> &[Planned] {
        &self.planned
    }

    /// Files that were not looked at because there are more than [`FILES_MAX`].
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
        Family::ALL.into_iter().filter(|family| self.wants(*family) && !has(*family)).collect()
    }

    fn wants(&self, family: Family) -> bool {
        match family {
            Family::Torch => self.questions.of_operators(),
            Family::Nvtx | Family::TorchPython | Family::Roctx | Family::RoctxSdk => self.questions.ranges,
            Family::C10 | Family::C10Cuda => self.questions.memory,
            Family::GnuOpenMp | Family::LlvmOpenMp | Family::IntelOpenMp => self.questions.teams,
            Family::Jax | Family::XlaExtension => self.questions.operators,
            _ => self.accelerators,
        }
    }

    /// The rows for ranges that a file has, if they are asked for: of the others nothing is said, since what was compiled into
    /// a library is any part of them.
    fn ranges<S: Source + ?Sized>(&self, family: Family, image: &Image<'_, S>) -> Vec<Row> {
        if !self.questions.ranges {
            return Vec::new();
        }
        let mut rows = range_rows(family).into_owned();
        let wanted: Vec<&str> =
            rows.iter().map(|row| row.names.first().map_or("", |name| &name.symbol)).collect();
        let found = image.find(&wanted).unwrap_or_default();
        let mut is_there = found.iter().map(|symbols| !symbols.is_empty());
        rows.retain(|_| is_there.next() == Some(true));
        rows
    }

    fn look(&self, library: Library) -> Option<Planned> {
        let user: Vec<&UserRow> = self.user.iter().filter(|row| row.is_in(library.mapping.path())).collect();
        let file = library.open();
        let image = file.as_ref().map_err(|reason| *reason).and_then(Image::parse);
        let inside = match (library.family(), &image) {
            (None, Ok(image)) if self.accelerators => runtime_inside(image),
            _ => Inside::No,
        };
        let mut torch = torch::Answers::default();
        let (contents, mut rows) = match library.family().filter(|family| self.wants(*family)) {
            Some(Family::Torch) => {
                let image = image.as_ref().map_err(|reason| NoProbe::File(*reason));
                torch = torch::look(image, &self.questions);
                (Contents::Library(Family::Torch), torch.rows.iter().collect())
            }
            Some(Family::C10) => (Contents::Library(Family::C10), allocator_rows().iter().collect()),
            Some(family) if family.is_openmp() => {
                torch.rows = team_rows(family).into_owned();
                (Contents::Library(family), torch.rows.iter().collect())
            }
            Some(Family::C10Cuda) => {
                let image = image.as_ref().map_err(|reason| NoProbe::File(*reason));
                torch = torch::memory::look(image, self.kernel);
                (Contents::Library(Family::C10Cuda), Vec::new())
            }
            Some(family @ (Family::Jax | Family::XlaExtension)) => {
                let image = image.as_ref().map_err(|reason| NoProbe::File(*reason));
                torch.take(image.and_then(|image| xla::rows(image, family)), || xla::unplaced(family));
                (Contents::Library(family), torch.rows.iter().collect())
            }
            Some(family @ (Family::Nvtx | Family::TorchPython | Family::Roctx | Family::RoctxSdk)) => {
                torch.rows = self.ranges(family, image.as_ref().ok()?);
                if torch.rows.is_empty() {
                    return None;
                }
                (Contents::Library(family), torch.rows.iter().collect())
            }
            Some(family) => {
                torch.rows = image.as_ref().map_or_else(|_| Vec::new(), |image| self.ranges(family, image));
                (Contents::Library(family), of_family(family).into_iter().chain(&torch.rows).collect())
            }
            None if inside != Inside::No => (Contents::RuntimeInside, of_family(Family::CudaRuntime)),
            None if !user.is_empty() => (Contents::User, Vec::new()),
            None if self.accelerators && library.is_collector() => (Contents::Collector, Vec::new()),
            None => return None,
        };
        rows.extend(user.into_iter().map(|user| &user.row));
        let mut planned = Planned {
            attach_path: library.attach_path(),
            pids: vec![library.pid],
            library: library.clone(),
            contents,
            sites: torch.sites,
            missing: torch.lacking.into_iter().map(|(row, because)| Missing::of(row, because)).collect(),
            collector: None,
        };
        if contents == Contents::Collector {
            let image = image.as_ref().map_err(|reason| NoProbe::File(*reason));
            planned.collector = Some(image.and_then(|image| collector::find(image, self.kernel)));
            return Some(planned);
        }
        let image = match inside {
            Inside::Stripped => Err(NoProbe::Stripped),
            _ => image.map_err(NoProbe::File),
        };
        match image {
            Ok(image) => {
                for resolution in resolve(&image, rows, self.kernel) {
                    planned.take(resolution, self.layers);
                }
            }
            Err(because) => {
                for (row, name) in rows.iter().flat_map(|row| row.names.iter().map(move |name| (row, name))) {
                    let symbol = name.symbol.clone().into_owned();
                    planned.missing.push(Missing { row: (*row).clone(), symbol, because });
                }
            }
        }
        planned.sites.sort_by_key(|site| site.offset);
        Some(planned)
    }
}

fn of_family(family: Family) -> Vec<&'static Row> {
    rows().iter().filter(|row| row.family == family).collect()
}

impl Planned {
    fn take(&mut self, resolution: Resolution<'_>, layers: Layers) {
        let Resolution { row, name, places } = resolution;
        let symbol = name.symbol.clone().into_owned();
        let miss = |because| Missing { row: row.clone(), symbol: symbol.clone(), because };
        let places = match (places, row.seen_again_in()) {
            (Ok(_), Some(family)) if layers == Layers::Lowest => {
                self.missing.push(miss(NoProbe::SeenAgainIn(family)));
                return;
            }
            (Ok(places), _) => places,
            (Err(because), _) => {
                self.missing.push(miss(because));
                return;
            }
        };
        for place in places {
            match self.sites.iter_mut().find(|site| site.entry == place.entry) {
                Some(site) => site.aliases.push(symbol.clone()),
                None => self.sites.push(Site {
                    row: row.clone(),
                    symbol: symbol.clone(),
                    aliases: Vec::new(),
                    offset: place.probe(),
                    version: place.version,
                    svma: place.svma,
                    entry: place.entry,
                    point: place.point,
                    counter: None,
                }),
            }
        }
    }
}
