//! Capture: the kernel programs, loaded, attached and read.
//!
//! Owns: the kernel side of a session and the messages that come out of it. Because: only here meet BPF, perf events
//! and `/proc`. Does not: name anything or build profiles.
//!
//! ```text
//!  samplers ─▶ ring ─▶ drain thread ──records──▶ messages ──▶ pipeline
//!                          │ fork, exec, exit, unknown PCs        ▲
//!                          ▼                                      │ mappings
//!                      scan thread ─▶ tables in the kernel ───────┘
//! ```

mod arch;
pub mod arena;
pub mod attach;
mod below;
pub mod budget;
pub mod called;
pub mod clock;
pub mod column;
pub mod config;
pub mod cost;
pub mod doctor;
mod error;
pub mod executables;
mod generated;
pub mod kernel_offsets;
pub mod links;
pub mod load;
mod no_executable;
pub mod perf_event;
pub mod probes;
pub mod processes;
pub mod rings;
pub mod rows;
pub mod shared_array;
pub mod sites;
mod table_error;
pub mod tables;
pub mod targets;
mod threads;
mod turns;

use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, bounded};
use deepctx_common::config::{Config, config_flag, map};
use deepctx_common::end::Counter;
use deepctx_common::process::{Target, WAITS_WALKED_PER_SECOND, target_flag};
use deepctx_symbolizer::maps::Maps;
use deepctx_symbolizer::python::all_layouts;
use deepctx_symbolizer::unwind_rows::cache::{Cache, DEFAULT_BYTES};
use libbpf_rs::Link;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use attach::Samplers;
use called::CalledMap;
use clock::monotonic_ns;
pub use config::{CaptureConfig, FrameSource, ProbeFeature};
use cost::OwnCost;
use deepctx_pipeline::input::{DutyWindow, SiteInfo};
pub use error::CaptureError;
use executables::Executables;
use kernel_offsets::Facts;
use links::Way;
use load::Loaded;
pub use perf_event::Clock;
use probes::{ProbeCounters, Probes, TensorWishes};
use processes::{Processes, ScanCounters, Scanned};
use tables::Tables;
pub use targets::Targets;
use threads::KernelCounters;

/// What the kernel side tells.
#[derive(Debug)]
pub enum Message {
    /// Records, one after the other.
    Records(Vec<u8>),
    /// The executable mappings of a process at a time (`CLOCK_MONOTONIC`, nanoseconds).
    Space {
        /// The process.
        pid: u32,
        /// When the mappings were read.
        time_ns: u64,
        /// The mappings.
        maps: Maps,
    },
    /// Totals of the kernel programs' counters, by [`Counter`] number.
    Counters([u64; Counter::ALL.len()]),
    /// What the scans of processes found and missed so far.
    Scans(ScanCounters),
    /// Probes that are about to be attached: what their calls mean.
    Sites(Vec<SiteInfo>),
    /// Calls of each site so far, those included whose records were lost.
    SiteCounts(Vec<u64>),
    /// Calls are not watched any more from this time on, `CLOCK_MONOTONIC` nanoseconds.
    CallsEnd(u64),
    /// Probes that have a budget begin to be watched, or cease.
    DutyWindow(DutyWindow),
    /// What is attached so far.
    Probes(ProbeCounters),
    /// A process that was named as a target has ended.
    TargetGone {
        /// The process.
        pid: u32,
    },
    /// Something the user should know.
    Notice(String),
}

/// Messages that may wait for the pipeline, beyond those about the first processes. Records come in batches of at most
/// [`rings::BATCH_BYTES_MAX`]: 64 MiB in all. When it is full, records stay in the ring, and what the ring cannot hold
/// the kernel counts.
const MESSAGES_MAX: usize = 16;

/// Calls a second that the ring is made for, when there may be any: twice the rate of training that launches without a
/// pause is rare, and it is drained twenty times a second, and whenever it fills.
const CALLS_PER_SECOND: u32 = 4_000;

/// Most native frames of one walk.
const FRAMES_MAX: u32 = 512;

/// Inode number of the initial pid namespace (`PROC_PID_INIT_INO`, include/linux/proc_ns.h).
const INIT_PIDNS: u64 = 0xEFFF_FFFC;

/// Ends the threads of a capture once they have told everything.
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// A running capture. Sampling ends when it goes.
pub struct Capture {
    messages: Receiver<Message>,
    counters: KernelCounters,
    samplers: Samplers,
    tracepoints: Vec<Link>,
    probes: Option<Probes>,
    called: Option<CalledMap>,
    stop: StopOnDrop,
    shard_bytes: Arc<AtomicU64>,
    loaded: Loaded,
}

impl Capture {
    /// Loads the programs, prepares every target, and begins to sample.
    ///
    /// # Errors
    /// A line that says what is missing, and what the user can do about it.
    pub fn start(options: CaptureConfig) -> Result<Self, CaptureError> {
        // Targets first: a mistyped pid should not be answered by a missing privilege. Children come later.
        let named = targets::find(&options.targets, false)?;
        doctor::privileges()?;
        raise_open_files();

        let began_ns = monotonic_ns();
        // The programs are loaded while their tables are prepared.
        let (loaded, ahead) = thread::scope(|scope| {
            let ahead = scope.spawn(|| Ahead::prepare(&options, &named));
            (load(&options), ahead.join())
        });
        let (mut loaded, way) = loaded?;
        let Ahead { mut processes, mut scanned } =
            ahead.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        note(began_ns, "programs loaded, processes prepared");
        let layouts: Vec<_> = all_layouts()
            .iter()
            .map(|l| {
                (l.index(), if options.frames().coroutines { l.kernel_with_coroutines() } else { l.kernel })
            })
            .collect();
        tables::set_layouts(&loaded, &layouts)?;
        processes.tables().connect(&loaded)?;

        // Children that start from now on are followed by the programs; those that are there are found after that, and
        // so are processes that began another program in the meantime.
        let mut tracepoints = loaded.attach_process_events()?;
        let flags = if options.follow_children { target_flag::FOLLOW } else { 0 };
        for &pid in &named {
            processes.tables().add_target(pid, Target { flags })?;
        }
        let (flushed, found) = rayon::join(
            || processes.tables().flush(),
            || targets::find(&options.targets, options.follow_children),
        );
        flushed?;
        let found = found?;
        for &pid in &found {
            processes.tables().add_target(pid, Target { flags })?;
            if !processes.is_scanned(pid) {
                processes.exec(pid);
                match processes.scan(pid, monotonic_ns()) {
                    Ok(scan) => scanned.push(scan),
                    Err(error) if is_named(&options, pid) => return Err(error.into()),
                    Err(error) => tracing::debug!(%error, "not prepared"),
                }
            }
        }
        let (sender, messages) = bounded(MESSAGES_MAX + scanned.len() + 1);
        for scan in scanned {
            // There is room: one message for each scan, and one for all.
            drop(sender.try_send(scan.into()));
        }
        drop(sender.try_send(Message::Scans(processes.counters())));
        note(began_ns, "targets prepared");

        let samplers = attach::attach_samplers(&mut loaded, options.clock, options.frequency.0)
            .map_err(|error| CaptureError::sampling(error, options.clock))?;
        match loaded.attach_mapped() {
            Ok(link) => tracepoints.push(link),
            // Needs tracefs and system call tracepoints. Without: new libraries are found when samples meet them.
            Err(error) => tracing::debug!(%error, "new libraries are found late"),
        }
        if options.off_cpu {
            tracepoints.push(loaded.attach_off_cpu()?);
        }
        let stop = Arc::new(AtomicBool::new(false));
        let counters = KernelCounters::new(loaded.map(map::COUNTERS)?);
        let events = loaded.map(map::EVENTS)?;
        let shard_bytes = Arc::new(AtomicU64::new(processes.tables().shard_bytes()));
        let sites = Arc::new(AtomicU32::new(0));
        let probes = match way {
            Some(way) => {
                let setup = probes::Setup {
                    way,
                    sites: loaded.map(map::SITES)?,
                    user: options.probe_rows.clone(),
                    borrow: !options.has_own_collector(),
                    samples: options.pc_sampling.is_some(),
                    accelerators: options.accelerators,
                    request: options.probe_request(),
                    operator_stacks: options.operator_stacks.unwrap_or(config::OPERATOR_STACKS).per_second(),
                    next: Arc::clone(&sites),
                    messages: sender.clone(),
                    ending: Arc::default(),
                };
                let ahead = if options.starts_command { probes::installed() } else { Vec::new() };
                let object = loaded.probe_object(way)?;
                let in_turns =
                    options.probe_budget.map(|budget| turns::Ahead::new(&loaded, way, budget)).transpose()?;
                let started = Probes::start((object, in_turns), setup, ahead, found.clone());
                Some(
                    started
                        .map_err(|source| CaptureError::Io { what: "the thread of the probes", source })?,
                )
            }
            None => None,
        };
        let looks = probes.as_ref().map(Probes::looks);
        let scan_requests = threads::spawn_scan(
            processes,
            sender.clone(),
            looks.clone(),
            Arc::clone(&shard_bytes),
            Arc::clone(&stop),
        );
        let named = if options.targets.contains(&Targets::All) { Vec::new() } else { found };
        // What was mapped between the first look at them and the attachment, nobody told.
        threads::look_again(&scan_requests, &named);
        let asked = threads::Asked { scans: scan_requests, looks };
        let site_counts = match probes.is_some() {
            true => {
                let map = Arc::new(loaded.map(map::SITE_COUNTS)?);
                Some(threads::SiteCounts { map, sites })
            }
            false => None,
        };
        let counted = (counters.clone(), site_counts);
        threads::spawn_drain(events, counted, sender, asked, named, Arc::clone(&stop))?;
        let called = options.frames().modules.then(|| loaded.map(map::CALLED)).transpose();
        let called = called?.map(CalledMap);
        let stop = StopOnDrop(stop);
        note(began_ns, "sampling");
        Ok(Self { messages, counters, samplers, tracepoints, probes, called, stop, shard_bytes, loaded })
    }

    /// What it tells. The channel is closed after the last message.
    pub fn messages(&self) -> Receiver<Message> {
        self.messages.clone()
    }

    /// Where functions are told whose calls are to tell what they are made on, if modules are asked for. Once.
    pub fn called(&mut self) -> Option<CalledMap> {
        self.called.take()
    }

    /// Where more operators are named whose tensors are to be told; `None` without probes.
    pub fn tensor_wishes(&self) -> Option<TensorWishes> {
        self.probes.as_ref().map(Probes::tensor_wishes)
    }

    /// Number of CPUs that are sampled.
    pub fn cpus(&self) -> usize {
        self.samplers.cpus()
    }

    /// Waits until what could be attached at once is attached, for at most `longest`. Someone must read the messages
    /// meanwhile.
    pub fn wait_for_probes(&self, longest: Duration) {
        if let Some(probes) = &self.probes {
            probes.wait(longest);
        }
    }

    /// Stops sampling and gives the last counters. What is still in the ring comes as messages, until the channel is
    /// closed.
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

    /// What the profiler itself used so far.
    pub fn cost(&self) -> OwnCost {
        cost::measure(self.loaded.locked_bytes() + self.shard_bytes.load(Ordering::Relaxed))
    }
}

/// What can be done while the programs are loaded.
struct Ahead {
    processes: Processes,
    scanned: Vec<Scanned>,
}

impl Ahead {
    /// Prepares processes. The tables wait to be connected.
    fn prepare(options: &CaptureConfig, pids: &[u32]) -> Result<Self, CaptureError> {
        let began_ns = monotonic_ns();
        let cache = options.cache.as_ref().and_then(|folder| match Cache::open(folder, DEFAULT_BYTES) {
            Ok(cache) => Some(cache),
            Err(error) => {
                tracing::warn!(%error, folder = %folder.display(), "unwind tables are not kept between runs");
                None
            }
        });
        let mut processes =
            Processes::new(Tables::default(), Executables::new(cache), options.frames().python);
        let mut scanned = Vec::new();
        for &pid in pids {
            match processes.scan(pid, monotonic_ns()) {
                Ok(scan) => scanned.push(scan),
                Err(error) if is_named(&options, pid) => return Err(error.into()),
                Err(error) => tracing::debug!(%error, "not prepared"),
            }
        }
        note(began_ns, "processes prepared");
        Ok(Self { processes, scanned })
    }
}

/// Configures and loads the programs; says how probes are to be attached, if any are wanted.
fn load(options: &CaptureConfig) -> Result<(Loaded, Option<Way>), CaptureError> {
    let began_ns = monotonic_ns();
    let (config, facts) = kernel_config(options)?;
    note(began_ns, "kernel types read");
    let way = match options.has_probes().then(|| Way::of_kernel(facts.uprobe_multi)) {
        Some(Ok(way)) => Some(way),
        Some(Err(error)) => {
            tracing::warn!(%error, "this kernel has no probes in user space: accelerators are not watched");
            None
        }
        None => None,
    };
    let ring_bytes = options.ring.and_then(|ring| u32::try_from(ring.0).ok()).unwrap_or_else(|| {
        let waits = if options.off_cpu { WAITS_WALKED_PER_SECOND } else { 0 };
        let calls = if way.is_some() { CALLS_PER_SECOND } else { 0 };
        ring_bytes(options.frequency.0.saturating_add(waits), calls)
    });
    let loaded = Loaded::new(config, ring_bytes, options.off_cpu).map_err(CaptureError::load)?;
    note(began_ns, "programs loaded");
    Ok((loaded, way))
}

/// Whether the user named this process by its id.
fn is_named(options: &CaptureConfig, pid: u32) -> bool {
    options.targets.iter().any(|target| matches!(target, Targets::Pids(pids) if pids.contains(&pid)))
}

/// Says how long the start took so far: a user waits for it.
fn note(began_ns: u64, step: &str) {
    let milliseconds = monotonic_ns().saturating_sub(began_ns) as f64 / 1e6;
    tracing::debug!("start: {step} after {milliseconds:.1} ms");
}

/// The configuration of the programs for this kernel and these options.
fn kernel_config(options: &CaptureConfig) -> Result<(Config, Facts), CaptureError> {
    let mut config =
        Config { frames_max: FRAMES_MAX, address_bits: arch::address_bits(), ..Config::default() };
    let frames = options.frames();
    let flags = [
        (options.targets.contains(&Targets::All), config_flag::ALL),
        (frames.kernel, config_flag::KERNEL),
        (frames.native, config_flag::NATIVE),
        (frames.operators_alone, config_flag::OPERATORS),
        (frames.python, config_flag::PYTHON),
        (frames.modules, config_flag::OBJECTS),
    ];
    config.flags = flags.iter().filter(|(on, _)| *on).map(|(_, flag)| flag).sum();
    config.stacks_per_second = if options.has_probes() { options.launch_stacks.per_second() } else { 0 };
    let facts = kernel_offsets::fill(&mut config)?;
    let pidns = std::fs::metadata("/proc/self/ns/pid").map(|m| m.ino()).unwrap_or(INIT_PIDNS);
    config.profiler_pidns = pidns as u32;
    if pidns == INIT_PIDNS {
        config.flags |= config_flag::INIT_PIDNS;
    }
    if let Some(cgroup) = targets::selected_cgroup(&options.targets)? {
        config.flags |= config_flag::CGROUP;
        config.cgroup_id = cgroup.id;
        config.cgroup_level = cgroup.level;
    }
    Ok((config, facts))
}

/// Lets this process open as many files as it may: one for each CPU, shard and library that is named, where the usual
/// soft limit is 1024.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        tracing::debug!(%error, "the limit of open files stays");
    }
}

/// Size of the ring buffer: what all CPUs may write in a second at 1 KiB a sample (60 mixed frames), so that a reader
/// that is kept away for that long loses nothing; and `calls` a second in all. Between 1 and 64 MiB; a power of two, as
/// the kernel wants it. It counts three times: its pages are locked, and mapped twice in a row so that no record is cut.
fn ring_bytes(frequency_hz: u32, calls: u32) -> u32 {
    const SAMPLE_BYTES: u64 = 1 << 10;
    let cpus = perf_event::online_cpus().map_or(1, |cpus| cpus.len()) as u64;
    let wanted = (cpus * u64::from(frequency_hz) + u64::from(calls)) * SAMPLE_BYTES;
    wanted.next_power_of_two().clamp(1 << 20, 64 << 20) as u32
}
