//! How fast traces are written, read and looked into: `trace_rate write FOLDER EVENTS`, `read FOLDER`, `tables FOLDER`,
//! `critical-path FOLDER`, `import FILE`, `perfetto FILE OUT`. One line `events seconds bytes peak` each: bytes on
//! disk, and the peak of resident memory in bytes.
//!
//! Owns: a made-up trace of four threads that launch kernels, wait for their streams and have ranges and steps.
//! Because: the figures must not hang on a device, and the peak of one process is that of one way. Does not: say how
//! fast a real disk is: what is written stays in the page cache.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use deepctx_analysis::OverTime;
use deepctx_analysis::over_time::{CriticalPath, Steps};
use deepctx_profile::frame::Frame;
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::{Limits, Meta, Profile};
use deepctx_profile::trace::{
    Basis, Cause, End, Lane, RecordedAccount, RecordedBatch, RecordedEvent, RecordedKind,
};
use deepctx_profile::tree::NodeId;
use deepctx_profile::units::{Nanos, Time};
use deepctx_profile::view::Selection;
use deepctx_storage::export::{Events, Format, Source};
use deepctx_storage::store::{TraceWriter, Writer};

const PID: u32 = 4711;
const THREADS: u32 = 4;
/// Events of one file, as the sink writes them.
const FILE_EVENTS: usize = 1 << 18;
/// Kernels of a step.
const STEP_KERNELS: u64 = 500;
/// Different kernels, each at a place of its own.
const PLACES: u64 = 64;

/// Made-up events, in the order in which a recorder has them.
struct Program {
    /// For differences between lengths; no two runs differ.
    random: u64,
    /// Where each thread and its stream are, nanoseconds.
    now: [(u64, u64); THREADS as usize],
    kernels: [u64; THREADS as usize],
    call: u64,
    launches: Vec<NodeId>,
    works: Vec<NodeId>,
    sync: NodeId,
    step: NodeId,
    events: Vec<RecordedEvent>,
}

impl Program {
    fn new(profile: &mut Profile) -> Self {
        let mut node = |of: &mut dyn FnMut(&mut Profile) -> Frame, parent: NodeId| {
            let frame = of(profile);
            let frame = profile.frame(frame);
            profile.tree.child(parent, frame)
        };
        let step = node(&mut |profile| Frame::Range { name: profile.text("train_step") }, NodeId::ROOT);
        let launches: Vec<NodeId> = (0..PLACES)
            .map(|place| {
                let around = format!("aten::operator_{place}");
                let operator =
                    node(&mut |profile| Frame::Operator { name: profile.text(&around) }, NodeId::ROOT);
                node(&mut |profile| Frame::GpuApi { name: profile.text("cuLaunchKernel") }, operator)
            })
            .collect();
        let work = |(place, launch): (usize, &NodeId)| {
            let name = format!("kernel_{place}");
            node(&mut |profile| Frame::GpuKernel { name: profile.text(&name) }, *launch)
        };
        let works = launches.iter().enumerate().map(work).collect();
        let sync =
            node(&mut |profile| Frame::GpuApi { name: profile.text("cuStreamSynchronize") }, NodeId::ROOT);
        let (now, kernels) = ([(0, 0); THREADS as usize], [0; THREADS as usize]);
        Self { random: 1, now, kernels, call: 0, launches, works, sync, step, events: Vec::new() }
    }

    fn lanes() -> Vec<Lane> {
        let thread = |n| Lane::Thread { pid: PID, tid: PID + n };
        let stream = |n| Lane::Stream { pid: PID, device: 0, context: 1, stream: 7 + n };
        (0..THREADS).map(thread).chain((0..THREADS).map(stream)).collect()
    }

    /// Between half a length and one and a half of it.
    fn about(&mut self, length: u64) -> u64 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        length / 2 + (self.random >> 33) % length
    }

    fn event(kind: RecordedKind, lane: u32, (start, length): (u64, u64), node: NodeId) -> RecordedEvent {
        let end = End::After(Nanos(length));
        RecordedEvent { kind, end, node, ..RecordedEvent::gap(lane, Nanos(start), Nanos(start), 0) }
    }

    /// A launch and its work; now and then a wait, or the end of a step.
    fn go_on(&mut self, thread: u32) {
        let at = thread as usize;
        self.kernels[at] += 1;
        let (kernels, place) = (self.kernels[at], (self.kernels[at] % PLACES) as usize);
        let (host, device) = self.now[at];
        let (took, ran, idle) = (self.about(5_000), self.about(12_000), self.about(4_000));
        self.call += 1;
        let (call, stream) = (self.call, u64::from(0x55aa_0000 + thread));
        let launch = Self::event(RecordedKind::Launch, thread, (host, took), self.launches[place]);
        self.events.push(RecordedEvent { id: call, stream, position: kernels, ..launch });
        let begin = device.max(host + took);
        let work = Self::event(RecordedKind::Kernel, THREADS + thread, (begin, ran), self.works[place]);
        let cause = Some(Cause { id: call, basis: Basis::Exact });
        self.events.push(RecordedEvent { cause, correlation: call as u32, ..work });
        self.now[at] = (host + took + idle, begin + ran);
        if kernels.is_multiple_of(16) {
            let (host, device) = self.now[at];
            self.call += 1;
            let end = device.max(host) + self.about(2_000);
            let sync = Self::event(RecordedKind::StreamSync, thread, (host, end - host), self.sync);
            let cause = Some(Cause { id: call, basis: Basis::ByOrder });
            self.events.push(RecordedEvent { id: self.call, stream, position: kernels, cause, ..sync });
            self.now[at].0 = end;
        }
        if thread == 0 && kernels.is_multiple_of(STEP_KERNELS) {
            let number = kernels / STEP_KERNELS;
            let length = STEP_KERNELS * 14_000;
            let end = self.now[0].0;
            let start = end.saturating_sub(length);
            let step = Self::event(RecordedKind::Step, 0, (start, end - start), self.step);
            self.events.push(RecordedEvent { position: number, ..step });
        }
    }
}

/// Writes a trace. Gives how many events it has.
fn write(folder: &Path, wanted: usize) -> Result<usize, String> {
    let mut profile = Profile::new(Meta::default(), Limits::default());
    let mut program = Program::new(&mut profile);
    let mut writer = Writer::create(folder, &profile.meta).map_err(|error| error.to_string())?;
    let mut trace = TraceWriter::create(writer.folder(), None).map_err(|error| error.to_string())?;
    let (mut written, mut thread, mut lanes) = (0, 0, Program::lanes());
    while written < wanted {
        while program.events.len() < FILE_EVENTS.min(wanted - written) {
            program.go_on(thread);
            thread = (thread + 1) % THREADS;
        }
        let mut events = std::mem::take(&mut program.events);
        // A program goes on by more than one event; a reader refuses one too many.
        events.truncate(wanted - written);
        written += events.len();
        let mut batch = RecordedBatch { lanes: std::mem::take(&mut lanes), first_lane: 0, events };
        trace.append(&mut batch).map_err(|error| error.to_string())?;
        program.events = batch.events;
        program.events.clear();
    }
    let account = RecordedAccount::new(written as u64, written as u64);
    trace.finish(&account).map_err(|error| error.to_string())?;
    writer.finish(&profile, Time::from_nanos(1)).map_err(|error| error.to_string())?;
    Ok(written)
}

/// Bytes of the events of a recorded profile.
fn bytes(folder: &Path) -> u64 {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let of_trace = files.filter(|file| file.file_name().to_string_lossy().starts_with("trace"));
    of_trace.filter_map(|file| file.metadata().ok()).map(|of| of.len()).sum()
}

/// The peak of this process's resident memory, bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}

/// Nothing is measured by computing nothing.
fn has_one(paths: &[CriticalPath]) -> Result<(), String> {
    if paths.is_empty() { Err("the trace has no critical path".to_owned()) } else { Ok(()) }
}

fn run(words: &[&str]) -> Result<(), String> {
    let begin = Instant::now();
    let (events, seconds, path) = match *words {
        ["write", folder, events] => {
            let events = events.parse().map_err(|_| format!("`{events}` is no number"))?;
            (write(Path::new(folder), events)?, begin.elapsed(), folder)
        }
        [way @ ("read" | "tables" | "critical-path" | "import"), path] => {
            let job =
                deepctx_storage::open_traces(&[PathBuf::from(path)]).map_err(|error| error.to_string())?;
            let events = job.ranks().iter().map(|rank| rank.trace.len()).sum();
            let mut seconds = begin.elapsed();
            let begin = Instant::now();
            match way {
                "tables" => {
                    let tables = OverTime::compute(&job, Steps::default());
                    seconds = begin.elapsed();
                    has_one(&tables.critical_paths)?;
                }
                "critical-path" => {
                    let paths = CriticalPath::compute(&job, Steps::default());
                    seconds = begin.elapsed();
                    has_one(&paths)?;
                }
                _ => {}
            }
            (events, seconds, path)
        }
        ["perfetto", path, out] => {
            let job =
                deepctx_storage::open_traces(&[PathBuf::from(path)]).map_err(|error| error.to_string())?;
            let file = std::fs::File::create(out).map_err(|error| error.to_string())?;
            let begin = Instant::now();
            let mut file = std::io::BufWriter::new(file);
            let events = Events::of(&job, |_| 0);
            let profile = Profile::new(Meta::default(), Limits::default());
            let source = Source {
                profile: &profile,
                selection: Selection::of(Metric::GpuTime),
                elapsed: Nanos(0),
                folds: true,
            };
            Format::Perfetto.write_events(&source, &events, &mut file).map_err(|error| error.to_string())?;
            (job.ranks().iter().map(|rank| rank.trace.len()).sum(), begin.elapsed(), out)
        }
        _ => {
            let ways = "write FOLDER EVENTS | read FOLDER | tables FOLDER | critical-path FOLDER";
            return Err(format!("trace_rate {ways} | import FILE | perfetto FILE OUT"));
        }
    };
    println!("{events} {} {} {}", seconds.as_secs_f64(), bytes(Path::new(path)), peak());
    Ok(())
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match run(&words.iter().map(String::as_str).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("trace_rate: {error}");
            ExitCode::FAILURE
        }
    }
}
