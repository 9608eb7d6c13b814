//! The probes for one file, and the missing ones.
//!
//! Owns: [`PlannedFile`], and the rows that apply to a file. Because: a file is planned once, however many processes
//! map it. Does not: know processes ([`super::Planner`]).

use std::fs::File;

use deepctx_address_space::{FileVersion, NoSymbol};
use deepctx_events::Family;

use super::PlanId;
use super::request::ProbeRequest;
use crate::catalogue::user::UserRow;
use crate::catalogue::{allocator_rows, openmp_rows, range_rows, rows, torch, xla};
use crate::locate::collector::{self, Collector};
use crate::locate::elf::Image;
use crate::locate::instruction::Kernel;
use crate::locate::libraries::Library;
use crate::locate::reason::NoProbe;
use crate::locate::resolve::{LinkedRuntime, Resolution, linked_runtime, resolve};
use crate::locate::site::{MissingProbe, ProbePlan, Site};
use crate::row::Row;

/// Which of two layers of the same call get a probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layers {
    /// Only the lowest: one call is one event.
    #[default]
    Lowest,
    /// All; readers of the events must know that they overlap.
    All,
}

/// Kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// A library of the catalogue, by its name.
    Library(Family),
    /// A file with the CUDA runtime linked into it.
    RuntimeInside,
    /// Matched only by a user's rows.
    User,
    /// Our own collector.
    Collector,
}

/// The probes for one file, and the missing ones.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedFile {
    /// Its number in the planner.
    pub id: PlanId,
    /// The file, as mapped by its first user.
    pub library: Library,
    /// The file that was searched: the process may map another one there later. `None` if it could not be opened.
    pub version: Option<FileVersion>,
    /// It could not be opened through its first user, for a reason that says nothing of the next one.
    pub others_may_open: bool,
    /// What it is to the plan.
    pub contents: Contents,
    /// The processes that have it mapped, ascending.
    pub pids: Vec<u32>,
    /// Its probes, by offset in the file.
    pub sites: Vec<Site>,
    /// Functions without a probe.
    pub missing: Vec<MissingProbe>,
    /// For a collector: its messages, or why it cannot be used.
    pub collector: Option<Result<Collector, NoProbe>>,
}

/// Probes to search for in every file.
#[derive(Debug)]
pub(super) struct Search {
    pub(super) user: Vec<UserRow>,
    pub(super) layers: Layers,
    /// Whether to search libraries of accelerators.
    pub(super) accelerators: bool,
    pub(super) request: ProbeRequest,
    pub(super) kernel: Kernel,
}

/// An image, or why there is none.
type ParsedImage<'a, 's> = Result<&'a Image<'s, File>, NoProbe>;

impl Search {
    /// Whether any row of this family is searched for.
    pub(super) fn wants(&self, family: Family) -> bool {
        match family {
            Family::Torch => self.request.needs_libtorch_cpu(),
            Family::Nvtx | Family::TorchPython | Family::Roctx | Family::RoctxSdk => self.request.ranges,
            Family::C10 | Family::C10Cuda => self.request.memory,
            Family::GnuOpenMp | Family::LlvmOpenMp | Family::IntelOpenMp => self.request.openmp,
            Family::Jax | Family::XlaExtension => self.request.operators,
            _ => self.accelerators,
        }
    }

    /// The plan for a file that was opened; `None` if nothing is searched for in it.
    pub(super) fn plan(&self, library: Library, file: Result<File, NoSymbol>) -> Option<PlannedFile> {
        let version = file.as_ref().ok().and_then(|file| FileVersion::of(file).ok());
        let others_may_open = file.as_ref().is_err_and(|because| is_of_process(*because));
        let file = file.map_err(NoProbe::File);
        let image = file.as_ref().map_err(|because| *because);
        let image = image.and_then(|file| Image::parse(file).map_err(NoProbe::File));
        let image = image.as_ref().map_err(|because| *because);
        let user: Vec<Row> = self
            .user
            .iter()
            .filter(|row| row.is_in(library.mapping.path()))
            .map(|user| user.row.clone())
            .collect();
        let runtime = match (library.family(), image) {
            (None, Ok(image)) if self.accelerators => linked_runtime(image),
            _ => LinkedRuntime::Absent,
        };
        let (contents, mut probes) = match library.family().filter(|family| self.wants(*family)) {
            Some(family) => (Contents::Library(family), self.library(family, image)?),
            None if runtime != LinkedRuntime::Absent => {
                (Contents::RuntimeInside, ProbePlan::of_rows(of_family(Family::CudaRuntime)))
            }
            None if !user.is_empty() => (Contents::User, ProbePlan::default()),
            None if self.accelerators && library.is_collector() => {
                (Contents::Collector, ProbePlan::default())
            }
            None => return None,
        };
        probes.rows.extend(user);
        let mut planned = PlannedFile {
            id: PlanId::default(),
            pids: vec![library.pid],
            library,
            version,
            others_may_open,
            contents,
            sites: probes.sites,
            missing: probes.missing,
            collector: None,
        };
        if contents == Contents::Collector {
            planned.collector = Some(image.and_then(|image| collector::find(image, self.kernel)));
            return Some(planned);
        }
        let image = if runtime == LinkedRuntime::Stripped { Err(NoProbe::Stripped) } else { image };
        match image {
            Ok(image) => {
                for resolution in resolve(image, &probes.rows, self.kernel) {
                    planned.add(resolution, self.layers);
                }
            }
            Err(because) => planned.add_missing(&probes.rows, because),
        }
        planned.sites.sort_by_key(|site| site.offset);
        Some(planned)
    }

    /// The plan for a library of the catalogue; `None` if it has no functions of it and needs no report.
    fn library(&self, family: Family, image: ParsedImage<'_, '_>) -> Option<ProbePlan> {
        Some(match family {
            Family::Torch => self.libtorch_cpu(image),
            Family::C10 => ProbePlan::of_rows(allocator_rows().iter().cloned()),
            Family::C10Cuda => torch::memory::plan(image, self.kernel),
            Family::GnuOpenMp | Family::LlvmOpenMp | Family::IntelOpenMp => {
                ProbePlan::of_rows(openmp_rows(family).into_owned())
            }
            Family::Jax | Family::XlaExtension => {
                let mut plan = ProbePlan::default();
                plan.add(image.and_then(|image| xla::rows(image, family)), || xla::unplaced(family));
                plan
            }
            Family::Nvtx | Family::TorchPython | Family::Roctx | Family::RoctxSdk => {
                let rows = self.ranges(family, image.ok()?);
                if rows.is_empty() {
                    return None;
                }
                ProbePlan::of_rows(rows)
            }
            _ => {
                let ranges = image.map_or_else(|_| Vec::new(), |image| self.ranges(family, image));
                ProbePlan::of_rows(of_family(family).chain(ranges))
            }
        })
    }

    /// The probes for requests that need `libtorch_cpu.so`.
    fn libtorch_cpu(&self, image: ParsedImage<'_, '_>) -> ProbePlan {
        let mut plan = ProbePlan::default();
        if self.request.backward {
            plan.add(image.and_then(torch::backward::rows), torch::backward::unplaced);
        }
        if self.request.ranges {
            plan.add(image.and_then(torch::ranges::rows), torch::ranges::unplaced);
        }
        if self.request.operators {
            plan.add(image.and_then(torch::operators::rows), torch::operators::unplaced);
        }
        if let Some(first) = self.request.tensors.first() {
            match image.and_then(|image| torch::tensors::plan(image, &self.request.tensors)) {
                Ok(tensors) => plan.merge(tensors),
                Err(because) => plan.missing.push(MissingProbe::of(torch::tensors::unplaced(first), because)),
            }
        }
        plan
    }

    /// The rows for ranges that a file has, if requested. The others are not reported as missing: a library may have
    /// any part of them compiled in.
    fn ranges(&self, family: Family, image: &Image<'_, File>) -> Vec<Row> {
        if !self.request.ranges {
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
}

/// Whether a file cannot be opened because of the process that maps it: it has ended, or maps another file by now. All
/// other reasons hold through any process.
pub(super) fn is_of_process(because: NoSymbol) -> bool {
    matches!(because, NoSymbol::ProcessGone | NoSymbol::ModuleMissing | NoSymbol::ModuleDeleted)
}

fn of_family(family: Family) -> impl Iterator<Item = Row> {
    rows().iter().filter(move |row| row.family == family).cloned()
}

impl PlannedFile {
    /// Removes a process that no longer maps it.
    pub(super) fn remove_process(&mut self, pid: u32) {
        if let Ok(at) = self.pids.binary_search(&pid) {
            self.pids.remove(at);
        }
    }

    /// Marks all of these rows as missing.
    fn add_missing(&mut self, rows: &[Row], because: NoProbe) {
        for (row, name) in rows.iter().flat_map(|row| row.names.iter().map(move |name| (row, name))) {
            let symbol = name.symbol.clone().into_owned();
            self.missing.push(MissingProbe { row: row.clone(), symbol, because });
        }
    }

    /// Adds the functions of one name. Several names of one function get one probe: two would count every call twice.
    fn add(&mut self, resolution: Resolution<'_>, layers: Layers) {
        let Resolution { row, name, functions } = resolution;
        let symbol = name.symbol.clone().into_owned();
        let missing = |because| MissingProbe { row: row.clone(), symbol: symbol.clone(), because };
        let functions = match (functions, row.seen_again_in()) {
            (Ok(_), Some(family)) if layers == Layers::Lowest => {
                self.missing.push(missing(NoProbe::SeenAgainIn(family)));
                return;
            }
            (Ok(functions), _) => functions,
            (Err(because), _) => {
                self.missing.push(missing(because));
                return;
            }
        };
        for function in functions {
            match self.sites.iter_mut().find(|site| site.entry == function.entry) {
                Some(site) => site.aliases.push(symbol.clone()),
                None => self.sites.push(Site {
                    row: row.clone(),
                    symbol: symbol.clone(),
                    aliases: Vec::new(),
                    offset: function.probe(),
                    version: function.version,
                    svma: function.svma,
                    entry: function.entry,
                    point: function.point,
                    counter: None,
                }),
            }
        }
    }
}
