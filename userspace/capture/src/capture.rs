//! Capture: a running capture, from its start to its final counters.
//!
//! Owns: the order in which programs are loaded, targets prepared, probes and samplers attached, and threads started.
//! Because: each step depends on the one before, and a sample must find its tables. Does not: perform any of these
//! steps.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use deepctx_common::config::map;
use deepctx_common::end::Counter;
use deepctx_symbolizer::python::all_layouts;
use libbpf_rs::Link;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::attach::{self, Samplers};
use super::budget::ProbeHold;
use super::called_functions::CalledFunctionMap;
use super::clock::{log_progress, monotonic_ns};
use super::config::{CaptureConfig, OPERATOR_STACKS, TraceLevel};
use super::cost::{self, OwnCost};
use super::cpus::online_cpus;
use super::doctor;
use super::duty_cycle::DutyCyclePrograms;
use super::error::CaptureError;
use super::job::{self, Job};
use super::kernel_counts::{KernelCounters, SiteCounts};
use super::links::AttachMethod;
use super::load::LoadedPrograms;
use super::message::Message;
use super::named_targets::NamedTargets;
use super::prepare::PreparedProcesses;
use super::probes::{self, Probes, TensorRequests, WaitingCalls};
use super::programs::Programs;
use super::supervisor::{EarlyEnd, Restart, Stall, Supervisor};
use super::system;
use super::tables;
use super::target_map::TargetMap;
use super::targets::{self, Targets};
use super::threads::{self, DrainSetup, ScanMemory, Scans};
use super::waiting_threads;

/// Messages that may wait for the pipeline, besides those about the first processes. Records come in batches of at most
/// [`super::rings::BATCH_BYTES_MAX`]: 64 MiB in all. When the channel is full, records stay in the ring, and the kernel
/// counts those that the ring cannot hold.
const MESSAGES_MAX: usize = 16;

/// Asks the threads of a capture to stop once they have read and sent everything.
struct StopGuard(Arc<AtomicBool>);

impl Drop for StopGuard {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// A running capture. Sampling ends when it is dropped.
pub struct Capture {
    messages: Receiver<Message>,
    counters: KernelCounters,
    samplers: Samplers,
    tracepoints: Vec<Link>,
    probes: Option<Probes>,
    called: Option<CalledFunctionMap>,
    /// The threads that read machine metrics and keep users within their shares of waiting threads end when this is
    /// dropped.
    _services: [Option<Sender<()>>; 2],
    stop: StopGuard,
    scan_memory: Arc<ScanMemory>,
    supervisor: Supervisor,
    loaded: LoadedPrograms,
}

impl Capture {
    /// Loads the programs, prepares every target, and begins to sample. The whole sequence is in one place: the order
    /// of attaching and finding decides whether anything is missed in between.
    ///
    /// # Errors
    /// A missing target, a missing privilege, or a refusal of the kernel: see [`CaptureError`].
    pub fn start(config: CaptureConfig) -> Result<Self, CaptureError> {
        // Targets first: a mistyped pid should not be reported as a missing privilege. Children come later.
        let named = targets::find(&config.targets, false)?;
        require_capabilities()?;
        require_limits()?;
        prepare_this_process();

        let began_ns = monotonic_ns();
        let (Programs { mut loaded, attach_method }, mut prepared) = load_and_prepare(&config, &named)?;
        log_progress(began_ns, "programs loaded, processes prepared");
        tables::set_layouts(&loaded, &python_layouts(&config))?;
        prepared.processes.tables().connect(&loaded)?;
        // The programs follow children that start from now on; existing ones are found after that.
        let mut tracepoints = loaded.attach_process_events()?;
        let found = prepared.add_targets(&config, &named, &TargetMap::new(&loaded, &config)?)?;
        let (sender, messages) = bounded(MESSAGES_MAX + prepared.messages());
        let mut processes = prepared.report(&sender);
        log_progress(began_ns, "targets prepared");

        let samplers = attach::attach_samplers(&mut loaded, config.clock, config.frequency.0, &sender)
            .map_err(|error| CaptureError::sampling(error, config.clock))?;
        tracepoints.extend(attach_tracepoints(&mut loaded, config.off_cpu)?);
        let stop = StopGuard(Arc::default());
        let counters = KernelCounters::new(loaded.map(map::COUNTERS)?);
        let scan_memory = Arc::new(ScanMemory::of(&mut processes));
        let supervisor = Supervisor::default();
        let probes = start_probes(&config, &loaded, attach_method, &sender, &found, &supervisor)?;
        let scan_queue = probes.as_ref().map(|(probes, _)| probes.scan_queue());
        let scans = Scans {
            processes,
            messages: sender.clone(),
            scan_queue: scan_queue.clone(),
            memory: Arc::clone(&scan_memory),
            stop: Arc::clone(&stop.0),
        };
        let scans = threads::spawn_scan(scans, &supervisor)?;
        let system = start_system(&config, &found, &sender, &supervisor)?;
        let services = [system, start_waits(&config, &loaded, &sender, &supervisor)?];
        let named = if config.targets.contains(&Targets::All) { Vec::new() } else { found };
        // Mappings made between the first scans and the attachment were not reported.
        threads::request_rescans(&scans, &named);
        let (probes, site_counts) = probes.unzip();
        let drain = DrainSetup {
            counters: counters.clone(),
            site_counts,
            messages: sender,
            scans,
            scan_queue,
            named: NamedTargets::new(named),
            stop: Arc::clone(&stop.0),
        };
        threads::spawn_drain(loaded.map(map::EVENTS)?, drain, &supervisor)?;
        log_progress(began_ns, "sampling");
        Ok(Self {
            messages,
            counters,
            samplers,
            tracepoints,
            probes,
            called: called_functions(&config, &loaded)?,
            _services: services,
            stop,
            scan_memory,
            supervisor,
            loaded,
        })
    }

    /// Messages of the capture. The channel closes after the last message.
    pub fn messages(&self) -> Receiver<Message> {
        self.messages.clone()
    }

    /// The map of functions whose calls record their object, if modules are captured. Returned once.
    pub fn called(&mut self) -> Option<CalledFunctionMap> {
        self.called.take()
    }

    /// Queue of further operators whose tensors are to be recorded; `None` without probes.
    pub fn tensor_requests(&self) -> Option<TensorRequests> {
        self.probes.as_ref().map(Probes::tensor_requests)
    }

    /// The first of its threads that ended early, if any: the capture is unreliable from then on.
    pub fn ended_early(&self) -> Option<EarlyEnd> {
        self.supervisor.ended_early()
    }

    /// The record of its threads, which also shows what happens to them while the capture stops.
    pub fn supervisor(&self) -> Supervisor {
        self.supervisor.clone()
    }

    /// Threads that were started again since the last call.
    pub fn newly_restarted(&self) -> Vec<Restart> {
        self.supervisor.newly_restarted()
    }

    /// Threads that have been at one piece of work for longer than `limit`, each piece once.
    pub fn newly_stalled(&self, limit: Duration) -> Vec<Stall> {
        self.supervisor.newly_stalled(limit)
    }

    /// Number of sampled CPUs.
    pub fn cpus(&self) -> usize {
        self.samplers.cpus()
    }

    /// Samples CPUs that came online, and drops those that went offline. Call it about twice a second.
    pub fn follow_cpus(&mut self) {
        self.samplers.follow_cpus(&mut self.loaded);
    }

    /// Sampling frequency per CPU, in Hz.
    pub fn frequency(&self) -> u32 {
        self.samplers.frequency()
    }

    /// Samples at another frequency from now on.
    ///
    /// # Errors
    /// The kernel refuses it: then nothing changes.
    pub fn set_frequency(&mut self, frequency: u32) -> Result<(), CaptureError> {
        let clock = self.samplers.clock();
        self.samplers
            .set_frequency(&mut self.loaded, frequency)
            .map_err(|error| CaptureError::sampling(error, clock))
    }

    /// Attaches or detaches the probes that have a budget, until the next request. False if there are none.
    pub fn hold_probes(&self, hold: ProbeHold) -> bool {
        self.probes.as_ref().is_some_and(|probes| probes.hold(hold))
    }

    /// Whether the probes that have a budget are attached; `None` before there are any.
    pub fn budgeted_attached(&self) -> Option<bool> {
        self.probes.as_ref().and_then(Probes::budgeted_attached)
    }

    /// Waits until the probes of already mapped libraries are attached, for at most `longest`. Messages must be
    /// received meanwhile.
    pub fn wait_for_probes(&self, longest: Duration) {
        if let Some(probes) = &self.probes {
            probes.wait(longest);
        }
    }

    /// Stops sampling and returns the last counters. Records still in the ring come as messages, until the channel
    /// closes.
    pub fn stop(self) -> [u64; Counter::ALL.len()] {
        let Self { samplers, tracepoints, probes, counters, stop, .. } = self;
        drop(samplers);
        drop(tracepoints);
        if let Some(probes) = probes {
            probes.stop();
        }
        let totals = counters.totals();
        drop(stop);
        totals
    }

    /// The profiler's own resource usage so far.
    pub fn cost(&self) -> OwnCost {
        let [rows, processes] = self.scan_memory.held();
        let mut maps = self.loaded.locked();
        maps.push(rows);
        cost::measure(maps, processes)
    }
}

/// The processes that the selectors match now, with their descendants if children are followed.
///
/// # Errors
/// A selector matches nothing, or processes cannot be listed.
pub fn find_processes(targets: &[Targets], follow_children: bool) -> Result<Vec<u32>, CaptureError> {
    Ok(targets::find(targets, follow_children)?)
}

/// The job that has a process, or else one of its descendants, as a rank.
///
/// # Errors
/// There is no such process, it has no rank, or processes cannot be listed.
pub fn find_job(pid: u32) -> Result<Job, CaptureError> {
    job::of_process(pid)?.ok_or(CaptureError::NoRank { pid })
}

/// Loads the programs while scanning the targets.
fn load_and_prepare(
    config: &CaptureConfig,
    named: &[u32],
) -> Result<(Programs, PreparedProcesses), CaptureError> {
    let (programs, prepared) = thread::scope(|scope| {
        let prepared = scope.spawn(|| PreparedProcesses::new(config, named));
        (Programs::load(config), prepared.join())
    });
    let programs = programs?;
    let prepared = prepared.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    Ok((programs, prepared))
}

/// Field offsets of each interpreter version, by number.
fn python_layouts(config: &CaptureConfig) -> Vec<(u32, deepctx_common::python::PythonLayout)> {
    let coroutines = config.frames().coroutines;
    let layout = |l: &deepctx_symbolizer::python::Layout| {
        if coroutines { l.kernel_with_coroutines() } else { l.kernel }
    };
    all_layouts().iter().map(|l| (l.index(), layout(l))).collect()
}

/// Attaches the programs that follow new mappings and threads off their CPUs.
fn attach_tracepoints(loaded: &mut LoadedPrograms, off_cpu: bool) -> Result<Vec<Link>, CaptureError> {
    let mut links = Vec::new();
    match loaded.attach_mapped() {
        Ok(link) => links.push(link),
        // Needs tracefs and system call tracepoints. Without: new libraries are found when samples hit them.
        Err(error) => tracing::debug!(%error, "new libraries are found late"),
    }
    if off_cpu {
        links.extend(loaded.attach_off_cpu()?);
    }
    Ok(links)
}

/// Map in which kernel programs look up the functions that call PyTorch modules, if modules are recorded.
fn called_functions(
    config: &CaptureConfig,
    loaded: &LoadedPrograms,
) -> Result<Option<CalledFunctionMap>, CaptureError> {
    let map = config.frames().modules.then(|| loaded.map(map::CALLED)).transpose()?;
    Ok(map.map(CalledFunctionMap))
}

/// Starts the thread that attaches probes to the libraries of these and later processes, if there is anything to
/// attach.
fn start_probes(
    config: &CaptureConfig,
    loaded: &LoadedPrograms,
    attach_method: Option<AttachMethod>,
    messages: &Sender<Message>,
    pids: &[u32],
    supervisor: &Supervisor,
) -> Result<Option<(Probes, SiteCounts)>, CaptureError> {
    let Some(attach_method) = attach_method else { return Ok(None) };
    let sites = Arc::new(AtomicU32::new(0));
    let duty_cycled = config
        .probe_budget
        .map(|budget| DutyCyclePrograms::new(loaded, attach_method, budget))
        .transpose()?;
    let setup = probes::Setup {
        object: loaded.probe_object(attach_method)?,
        duty_cycled,
        attach_method,
        sites: loaded.map(map::SITES)?,
        site_counts: loaded.map(map::SITE_COUNTS)?,
        waiting_calls: WaitingCalls { returns: loaded.map(map::IN_FLIGHT)?, ids: loaded.map(map::LAUNCHED)? },
        sites_used: Arc::clone(&sites),
        user_rows: config.probe_rows.clone(),
        other_collections: !config.has_own_collector(),
        instruction_samples: config.pc_sampling.is_some(),
        accelerators: config.accelerators,
        request: config.probe_request(),
        steps_stay: config.hands_out_steps,
        call_returns: config.trace.is_some() && config.trace_level > TraceLevel::Launches,
        operator_stacks: config.operator_stacks.unwrap_or(OPERATOR_STACKS).per_second(),
        libraries: if config.starts_command { probes::installed() } else { Vec::new() },
        pids: pids.to_vec(),
        messages: messages.clone(),
        ending: Arc::default(),
    };
    let probes = Probes::start(setup, supervisor)
        .map_err(|source| CaptureError::Io { what: "the thread of the probes", source })?;
    Ok(Some((probes, SiteCounts { map: Arc::new(loaded.map(map::SITE_COUNTS)?), sites })))
}

/// Starts the thread that reads machine metrics; it ends when the result is dropped.
fn start_system(
    config: &CaptureConfig,
    pids: &[u32],
    messages: &Sender<Message>,
    supervisor: &Supervisor,
) -> Result<Option<Sender<()>>, CaptureError> {
    let spawn = |interval| system::spawn(interval, pids, config.accelerators, messages.clone(), supervisor);
    let what = "the thread that reads what the machine does";
    config.system_metrics.map(spawn).transpose().map_err(|source| CaptureError::Io { what, source })
}

/// Starts the thread that keeps users within their shares of waiting threads, if these are followed; it ends when the
/// result is dropped.
fn start_waits(
    config: &CaptureConfig,
    loaded: &LoadedPrograms,
    messages: &Sender<Message>,
    supervisor: &Supervisor,
) -> Result<Option<Sender<()>>, CaptureError> {
    if !config.off_cpu {
        return Ok(None);
    }
    let started = waiting_threads::spawn(loaded.map(map::BLOCKED)?, messages.clone(), supervisor);
    started.map(Some).map_err(|source| CaptureError::Io { what: "the thread of waiting threads", source })
}

/// Requires the privileges of a capture.
///
/// # Errors
/// Those that this process lacks.
pub fn require_capabilities() -> Result<(), CaptureError> {
    match doctor::missing_capabilities() {
        missing if missing.is_empty() => Ok(()),
        capabilities => Err(CaptureError::NotPrivileged { capabilities }),
    }
}

/// Address space that a capture takes: a later allocation failure would end the program.
const ADDRESS_SPACE_MIB: u64 = 512;

/// Checks the resource limits of this process.
fn require_limits() -> Result<(), CaptureError> {
    require_address_space()?;
    require_open_files()
}

fn require_address_space() -> Result<(), CaptureError> {
    let Some(most) = getrlimit(Resource::As).current else { return Ok(()) };
    let most_mib = most >> 20;
    if most_mib < ADDRESS_SPACE_MIB {
        return Err(CaptureError::TooLittleAddressSpace { needed_mib: ADDRESS_SPACE_MIB, most_mib });
    }
    Ok(())
}

/// Minimum of files that a capture holds open: programs, maps, readers, and a small target's probes.
const OPEN_FILES: u64 = 256;

/// Files for each CPU: its sampling event, and that of counting probes.
const OPEN_FILES_PER_CPU: u64 = 2;

fn require_open_files() -> Result<(), CaptureError> {
    let Some(most) = getrlimit(Resource::Nofile).maximum else { return Ok(()) };
    let cpus = online_cpus().map_or(1, |cpus| cpus.len());
    let needed = OPEN_FILES + OPEN_FILES_PER_CPU * cpus as u64;
    if most < needed {
        return Err(CaptureError::TooFewOpenFiles { needed, most });
    }
    Ok(())
}

/// Sets process-wide options.
fn prepare_this_process() {
    raise_open_files();
    cost::bound_allocator();
}

/// Raises the limit of open files to its maximum: one for each CPU, shard and named library, where the usual soft limit
/// is 1024.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        tracing::debug!(%error, "the limit of open files stays");
    }
}
