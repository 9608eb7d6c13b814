//! Duty cycle: the probes with a budget, attached while it lasts and detached when it is spent.
//!
//! Owns: where these probes are placed, what they cost the targets so far, and whether they are attached. Because: an
//! attached probe costs a trap per call, however little its program does. Does not: decide when ([`super::budget`]).

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use deepctx_events::{Event, OperatorEvent};
use deepctx_symbolizer::maps::{self, LineFilter};
use rustix::time::{ClockId, clock_gettime};

use super::budget::{Budget, Decision, Figures, Governor, ProbeHold};
use super::clock::monotonic_ns;
use super::cost::{Runs, count_runs, process_cpu_ns};
use super::error::CaptureError;
use super::links::{self, AttachMethod, ProbeSide, ProbeSite};
use super::load::{LoadError, LoadedPrograms, ProbeObject};
use super::probes::FileId;
use deepctx_pipeline::input::DutyWindow;

/// Cost of a trap if it cannot be measured, nanoseconds.
const TRAP_NS: u64 = 1_000;
/// Cost of a trap in a working program, relative to one in an empty loop, in eighths: the kernel's code for it is not
/// in the caches, and evicts the program's.
const AT_WORK_EIGHTHS: u64 = 14;

/// The feature of a probe that has a budget, for display; `None` for one that is always attached: without the calls of
/// accelerator libraries no device time is known.
pub(super) fn feature_of(event: Event) -> Option<&'static str> {
    Some(match event {
        Event::Operator(OperatorEvent::Begins | OperatorEvent::Named) => "operators",
        Event::Operator(OperatorEvent::Tensors) => "tensors",
        Event::Autograd(_) => "backward",
        Event::Range(_) => "ranges and steps",
        Event::Tensor(_) => "memory",
        Event::Xla(_) => "thunks of XLA",
        Event::OpenMp(_) => "parallel regions of OpenMP",
        Event::User => "functions of your own",
        Event::Gpu(_) | Event::Cupti(_) => return None,
    })
}

/// A second instance of the program of probes, not loaded yet, so that its cost is counted by itself.
pub(super) struct DutyCyclePrograms {
    object: ProbeObject,
    method: AttachMethod,
    budget: Budget,
}

impl DutyCyclePrograms {
    /// # Errors
    /// The cost of probes cannot be measured, so no budget can be kept.
    pub(super) fn new(
        loaded: &LoadedPrograms,
        method: AttachMethod,
        budget: Budget,
    ) -> Result<Self, CaptureError> {
        count_runs().map_err(|source| CaptureError::ProbeCost { source })?;
        let object = loaded.probe_object(method)?;
        Ok(Self { object, method, budget })
    }
}

/// Probes of one file.
#[derive(Debug)]
struct AttachedFile {
    file: FileId,
    path: PathBuf,
    points: Vec<ProbeSite>,
    /// Those of them that were refused as a window opened, each reported once.
    refused: Vec<ProbeSite>,
    /// Open while they are attached.
    links: Vec<OwnedFd>,
}

/// Result of adding probes.
#[derive(Debug, Default)]
pub(super) struct AttachOutcome {
    /// Those that the kernel refused.
    pub(super) refused: RefusedProbes,
    /// The first window, if they opened it.
    pub(super) first_window: Option<DutyWindow>,
}

/// A window that opens or closes.
#[derive(Debug)]
pub(super) struct Change {
    /// What to report.
    pub(super) window: DutyWindow,
    /// A notice for the user.
    pub(super) notice: Option<String>,
    /// By file: the probes that the kernel refused for the first time.
    pub(super) refused: Vec<(FileId, RefusedProbes)>,
}

/// Probes that the kernel refused, and why.
pub(super) type RefusedProbes = Vec<(ProbeSite, io::Error)>;

/// The probes that have a budget.
#[derive(Debug)]
pub(super) struct DutyCycle {
    /// An instance of its own, so that its cost is that of these probes.
    program: OwnedFd,
    method: AttachMethod,
    budget: Budget,
    /// Set with the first probe.
    governor: Option<Governor>,
    placed: Vec<AttachedFile>,
    what: BTreeSet<&'static str>,
    /// Open while the probes are attached: the kernel counts runs of programs meanwhile.
    counting: Option<OwnedFd>,
    trap_ns: u64,
    runs: Runs,
    cost_ns: u64,
    /// CPU time of each target at the last check, nanoseconds.
    cpu: HashMap<u32, u64>,
    cpu_ns: u64,
    /// A notice explained why the probes were detached for the first time.
    explained: bool,
    /// The latest request, possibly made before there are probes.
    hold: ProbeHold,
}

impl DutyCycle {
    /// Loads the program, and measures what a trap costs here.
    ///
    /// # Errors
    /// The kernel refuses the program.
    pub(super) fn new(ahead: DutyCyclePrograms) -> Result<Self, LoadError> {
        let DutyCyclePrograms { object, method, budget } = ahead;
        let program = object.load_call()?;
        let trap_ns = match trap_ns(&program, method) {
            Ok(trap_ns) => trap_ns * AT_WORK_EIGHTHS / 8,
            Err(error) => {
                tracing::warn!(%error, "the cost of a trap could not be measured");
                TRAP_NS
            }
        };
        tracing::debug!(trap_ns, "measured the cost of a trap");
        Ok(Self {
            runs: Runs::of(&program),
            program,
            method,
            budget,
            governor: None,
            placed: Vec::new(),
            what: BTreeSet::new(),
            counting: None,
            trap_ns,
            cost_ns: 0,
            cpu: HashMap::new(),
            cpu_ns: 0,
            explained: false,
            hold: ProbeHold::Budget,
        })
    }

    /// Adds probes of a file, and attaches them if a duty window is open. The very first probes open the first window.
    pub(super) fn add_file(
        &mut self,
        file: FileId,
        path: &Path,
        points: Vec<ProbeSite>,
        events: impl IntoIterator<Item = Event>,
    ) -> AttachOutcome {
        if points.is_empty() {
            return AttachOutcome::default();
        }
        self.what.extend(events.into_iter().filter_map(feature_of));
        let (refused, links) = (Vec::new(), Vec::new());
        let mut placed = AttachedFile { file, path: path.to_owned(), points, refused, links };
        let first = self.governor.is_none();
        if first {
            self.count();
        }
        let mut refused = Vec::new();
        if first || self.governor.as_ref().is_some_and(Governor::attached) {
            refused = self.attach(&mut placed);
            placed.points.retain(|point| !refused.iter().any(|(other, _)| other == point));
        }
        self.placed.push(placed);
        let first_window = first.then(|| {
            let now = self.figures();
            let mut governor = Governor::new(self.budget, now, now.now_ns);
            governor.hold(self.hold);
            self.governor = Some(governor);
            self.window(now.now_ns, true)
        });
        AttachOutcome { refused, first_window }
    }

    /// Adds processes that have these probes.
    pub(super) fn add_processes(&mut self, pids: impl Iterator<Item = u32>) {
        for pid in pids {
            self.cpu.entry(pid).or_insert_with(|| process_cpu_ns(pid).unwrap_or_default());
        }
    }

    /// Whether the probes are attached; `None` before there are any.
    pub(super) fn attached(&self) -> Option<bool> {
        self.governor.as_ref().map(Governor::attached)
    }

    /// How long until [`DutyCycle::check`] is due; `None` before there are probes.
    pub(super) fn next_check(&self) -> Option<Duration> {
        self.governor.as_ref().map(Governor::next_check)
    }

    /// Attaches or detaches the probes at the next check, whatever the balance.
    pub(super) fn hold(&mut self, hold: ProbeHold) {
        self.hold = hold;
        if let Some(governor) = &mut self.governor {
            governor.hold(hold);
        }
    }

    /// Checks the budget. When a window closes, the caller reports it before calling [`DutyCycle::detach`]; when one
    /// opens, its probes are attached already.
    pub(super) fn check(&mut self) -> Option<Change> {
        let now = self.figures();
        let governor = self.governor.as_mut()?;
        // The rate of the window that ends here.
        let rate = governor.rate();
        match governor.check(now) {
            Decision::Keep => None,
            Decision::Detach => {
                let share = rate.map_or(0.0, |rate| rate * 100.0);
                let requested = self.hold == ProbeHold::Detached;
                let notice = (!requested && !std::mem::replace(&mut self.explained, true)).then(|| {
                    format!(
                        "{} would take {share:.0} % of the program's own time: duty-cycled from now on (--probe-budget {})",
                        self.features(),
                        self.budget
                    )
                });
                tracing::debug!(share, "a duty window closes");
                Some(Change { window: self.window(now.now_ns, false), notice, refused: Vec::new() })
            }
            Decision::Attach => {
                self.count();
                let began_ns = monotonic_ns();
                let refused = self.attach_all();
                let now_ns = monotonic_ns();
                tracing::debug!(microseconds = (now_ns - began_ns) / 1000, "a duty window opens");
                Some(Change { window: self.window(now_ns, true), notice: None, refused })
            }
        }
    }

    /// Detaches the probes.
    pub(super) fn detach(&mut self) {
        let began_ns = monotonic_ns();
        links::close(self.placed.iter_mut().flat_map(|placed| placed.links.drain(..)).collect());
        tracing::debug!(microseconds = (monotonic_ns() - began_ns) / 1000, "the probes are detached");
        // Calls since the check count too.
        self.figures();
        self.counting = None;
    }

    /// Forgets the probes of a file; returns the links to close if they are attached.
    pub(super) fn remove_file(&mut self, file: FileId) -> Vec<OwnedFd> {
        self.placed.extract_if(.., |placed| placed.file == file).flat_map(|placed| placed.links).collect()
    }

    fn features(&self) -> String {
        self.what.iter().copied().collect::<Vec<_>>().join(", ")
    }

    fn window(&self, time_ns: u64, watched: bool) -> DutyWindow {
        DutyWindow { time_ns, watched, budget: self.budget.to_string(), what: self.features() }
    }

    /// Makes the kernel count runs of programs, while a window is open.
    fn count(&mut self) {
        match count_runs() {
            Ok(counting) => self.counting = Some(counting),
            Err(error) => tracing::warn!(%error, "the kernel does not measure what probes cost"),
        }
    }

    /// Attaches the probes of all files. Those that are refused are tried again with the next window: the reason may
    /// have been a lack of memory. Returns those that were not refused before.
    fn attach_all(&mut self) -> Vec<(FileId, RefusedProbes)> {
        let mut placed = std::mem::take(&mut self.placed);
        let mut of_files = Vec::new();
        for placed in &mut placed {
            let mut refused = self.attach(placed);
            tracing::debug!(path = %placed.path.display(), refused = refused.len(), "attached again");
            refused.retain(|(point, _)| !placed.refused.contains(point));
            placed.refused.extend(refused.iter().map(|(point, _)| *point));
            if !refused.is_empty() {
                of_files.push((placed.file, refused));
            }
        }
        self.placed = placed;
        of_files
    }

    fn attach(&self, placed: &mut AttachedFile) -> RefusedProbes {
        let attached = links::attach(
            self.method,
            self.program.as_fd(),
            &placed.path,
            &placed.points,
            ProbeSide::Instruction,
        );
        placed.links.extend(attached.links);
        attached.refused
    }

    /// Totals so far.
    fn figures(&mut self) -> Figures {
        let runs = Runs::of(&self.program);
        let count = runs.count.saturating_sub(self.runs.count);
        let time_ns = runs.time_ns.saturating_sub(self.runs.time_ns);
        self.runs = runs;
        self.cost_ns =
            self.cost_ns.saturating_add(time_ns).saturating_add(count.saturating_mul(self.trap_ns));
        let mut used_ns = 0u64;
        self.cpu.retain(|pid, before_ns| {
            let Some(now_ns) = process_cpu_ns(*pid) else { return false };
            used_ns = used_ns.saturating_add(now_ns.saturating_sub(*before_ns));
            *before_ns = now_ns;
            true
        });
        self.cpu_ns = self.cpu_ns.saturating_add(used_ns);
        Figures { now_ns: monotonic_ns(), cost_ns: self.cost_ns, cpu_ns: self.cpu_ns }
    }
}

/// A function to measure a probe on. The kernel emulates its first instruction, so it takes one trap, as nearly all
/// probes do.
#[unsafe(naked)]
extern "C" fn tried() {
    core::arch::naked_asm!("nop", "ret")
}

/// Time of a trap without its program, nanoseconds: the minimum of some rounds, on this process.
fn trap_ns(program: &OwnedFd, method: AttachMethod) -> io::Result<u64> {
    const ROUNDS: u32 = 5;
    const CALLS: u32 = 400;
    /// No valid site: the program returns at once.
    const NO_SITE: u64 = u32::MAX as u64;
    let round = || {
        let before = cpu_time_ns();
        for _ in 0..CALLS {
            std::hint::black_box(tried as extern "C" fn())();
        }
        (cpu_time_ns() - before) / u64::from(CALLS)
    };
    let least = |round: &dyn Fn() -> u64| (0..ROUNDS).map(|_| round()).min().unwrap_or_default();
    let alone = least(&round);
    let path = Path::new("/proc/self/exe");
    let point = ProbeSite { offset: offset_of_tried(path)?, cookie: NO_SITE, counter: 0 };
    let _counting = count_runs()?;
    let before = Runs::of(program);
    let mut attached = links::attach(method, program.as_fd(), path, &[point], ProbeSide::Instruction);
    if let Some((_, error)) = attached.refused.pop() {
        return Err(error);
    }
    let with = least(&round);
    let runs = Runs::of(program);
    let count = runs.count.saturating_sub(before.count);
    if count < u64::from(ROUNDS * CALLS) {
        return Err(io::Error::other("the probe did not run"));
    }
    Ok(with.saturating_sub(alone).saturating_sub((runs.time_ns - before.time_ns) / count))
}

/// Offset of that function in the program's file.
fn offset_of_tried(path: &Path) -> io::Result<u64> {
    let address = tried as extern "C" fn() as usize as u64;
    let inode = fs::metadata(path)?.ino();
    let maps = maps::parse(&fs::read("/proc/self/maps")?, LineFilter::Executable);
    let mapping = maps.mappings.iter().find(|m| (m.begin.0..m.end.0).contains(&address));
    let mapping = mapping.filter(|m| m.inode == inode);
    let mapping = mapping.ok_or_else(|| io::Error::other("its own code is in no file"))?;
    Ok(address - mapping.begin.0 + mapping.offset.0)
}

/// CPU time of this thread.
fn cpu_time_ns() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use deepctx_events::{CuptiEvent, GpuCall, GraphCall, LaunchCall, OpenMpEvent};

    use super::*;

    #[test]
    fn feature_probes_have_a_budget_and_device_calls_do_not() {
        let check = |event: Event, expect: bool| assert_eq!(feature_of(event).is_some(), expect, "{event:?}");
        check(Event::Operator(OperatorEvent::Begins), true);
        check(Event::OpenMp(OpenMpEvent::ParallelBegins), true);
        check(Event::User, true);
        check(Event::Gpu(GpuCall::Launch(LaunchCall::Kernel)), false);
        check(Event::Gpu(GpuCall::Graph(GraphCall::Launch)), false);
        check(Event::Cupti(CuptiEvent::Record), false);
    }

    #[test]
    fn probes_refused_as_a_window_opens_are_reported_once() {
        let budget: Budget = "10%".parse().unwrap();
        let points = vec![ProbeSite { offset: 64, cookie: 1, counter: 0 }];
        let (refused, links) = (Vec::new(), Vec::new());
        let file = AttachedFile { file: FileId(1), path: "/proc/self/exe".into(), points, refused, links };
        let mut probes = DutyCycle {
            // No program: the kernel refuses to attach it.
            program: fs::File::open("/dev/null").unwrap().into(),
            method: AttachMethod::Together,
            budget,
            governor: Some(Governor::new(budget, Figures::default(), 1)),
            placed: vec![file],
            what: BTreeSet::new(),
            counting: None,
            trap_ns: 0,
            runs: Runs::default(),
            cost_ns: 0,
            cpu: HashMap::new(),
            cpu_ns: 0,
            explained: false,
            hold: ProbeHold::Budget,
        };
        let mut reopened = || {
            probes.hold(ProbeHold::Detached);
            assert!(!probes.check().unwrap().window.watched);
            probes.detach();
            probes.hold(ProbeHold::Attached);
            let change = probes.check().unwrap();
            assert!(change.window.watched);
            change.refused.iter().map(|(file, refused)| (file.0, refused.len())).collect::<Vec<_>>()
        };
        assert_eq!(reopened(), [(1, 1)]);
        assert!(reopened().is_empty());
    }

    #[test]
    fn the_function_that_is_tried_is_in_this_programs_file() {
        let path = Path::new("/proc/self/exe");
        let offset = offset_of_tried(path).unwrap();
        let bytes = fs::read(path).unwrap();
        let nop: &[u8] = if cfg!(target_arch = "x86_64") { &[0x90, 0xc3] } else { &[0x1f, 0x20, 0x03, 0xd5] };
        assert!(bytes[usize::try_from(offset).unwrap()..].starts_with(nop));
        tried();
    }
}
