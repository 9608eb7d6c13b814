//! Session: a pipeline on its own thread, from the messages of a capture to a profile.
//!
//! Owns: that thread, the moments at which the pipeline is advanced, pictures are made and the disk is written. Because:
//! naming and writing are slow and must never hold up the thread that drains the rings. Does not: capture, draw, or
//! decide when to stop.

use std::fs::File;
use std::io::{self, BufWriter};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::{Executable, Meta, Profile};
use deepctx_profile::snapshot::{Header, Snapshot};
use deepctx_profile::units::{Bytes, Time};
use deepctx_profile::view::{Request, Resolution, Viewer};
use deepctx_storage::store::{Merged, Writer};
use deepctx_symbolizer::maps::Maps;
use deepctx_symbolizer::native::DebugInfo;

use crate::cubins::Cubins;
use crate::hottest::Hottest;
use crate::raw::RawWriter;
use crate::recovery::Recovery;
use crate::resolver::Resolver;
use deepctx_capture::Message;
use deepctx_capture::called::CalledMap;
use deepctx_capture::clock::monotonic_ns;
use deepctx_capture::cost::OwnCost;
use deepctx_capture::probes::ProbeCounters;
use deepctx_pipeline::STEP_MARKER;
use deepctx_pipeline::input::{Input, KernelCounters, SpaceUpdate, UnreadCubin};
use deepctx_pipeline::symbols::NoName;
use deepctx_pipeline::{Config, Pipeline};

/// How often the pipeline is advanced: seldom enough that unknown addresses come together, often enough to look live.
const TICK: Duration = Duration::from_millis(100);
/// Records of different CPUs are at most this far apart in one ring: a walk of the deepest stack takes less than a
/// millisecond, the rest is for a virtual CPU that was not scheduled.
pub const SKEW_NS: u64 = 100_000_000;
/// Without records the clock goes on; a record that is older than this when it arrives was held up by a stopped reader.
const IDLE_NS: u64 = 1_000_000_000;
/// Longest wait for a capture that was stopped to say its last and to close the channel. A full ring takes a second.
const DRAIN_MAX: Duration = Duration::from_secs(10);
/// Longest wait for lines of device code at the end.
const LINES_MAX: Duration = Duration::from_secs(2);
/// Pictures take at most this part of the pipeline's time; only the answer to a new request is made at once.
const PICTURE_PART: u32 = 10;
/// How fine pictures are: a ten-thousandth of the total is less than a character on any screen.
const RESOLUTION: Resolution = Resolution { least_share: 1e-4, rows: 2_000 };

/// What a session needs to know.
#[derive(Debug)]
pub struct Options {
    /// What was asked for, and where.
    pub meta: Meta,
    /// Bounds of the pipeline.
    pub config: Config,
    /// Where to look for names and lines.
    pub debug_info: DebugInfo,
    /// Processes that were named: when all have ended, there is nothing left to see.
    pub named: Vec<u32>,
    /// Where to tell the function whose calls are layers; `None` when nobody asks for layers.
    pub layers: Option<CalledMap>,
    /// Chooses the operators whose tensors are told, if that is asked for.
    pub hottest: Option<Hottest>,
    /// Where to keep the profile, and how often to flush it.
    pub store: Option<(Writer, Duration)>,
    /// Where to copy what was captured.
    pub raw: Option<RawWriter<BufWriter<File>>>,
}

/// How it goes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Status {
    /// Samples in the profile.
    pub samples: u64,
    /// Samples per second over the last second or so.
    pub samples_per_second: f64,
    /// Launches of kernels and graphs in the profile.
    pub launches: u64,
    /// Launches per second over the last second or so.
    pub launches_per_second: f64,
    /// Records lost so far, for all reasons.
    pub lost: u64,
    /// Lost records as a share of all; `None` before the first.
    pub lost_share: Option<f64>,
    /// Share of walked stacks that reach the start of their thread; `None` before the first.
    pub complete_share: Option<f64>,
    /// When the first stack was taken that reaches the start of its thread; `CLOCK_MONOTONIC`, nanoseconds.
    pub first_complete_ns: Option<u64>,
    /// Targets that have ended.
    pub targets_gone: Vec<u32>,
    /// What is attached in the libraries of the targets.
    pub probes: ProbeCounters,
    /// All named targets have ended.
    pub over: bool,
    /// What the capture wants the user to know, newest last.
    pub notices: Vec<String>,
    /// The store or the raw copy could not be written; capture goes on in memory.
    pub write_error: Option<String>,
    /// CPU time of the profiler as a share of one CPU, over the last second or so.
    pub own_cpu_share: f64,
    /// Memory of the profiler, bytes.
    pub own_memory_bytes: u64,
}

/// Notices kept for whoever shows them.
const NOTICES_MAX: usize = 100;

/// A pipeline at work.
#[derive(Debug)]
pub struct Session {
    thread: JoinHandle<Finished>,
    finish: Sender<Option<KernelCounters>>,
    shared: Arc<Shared>,
}

/// What is left of a session.
#[derive(Debug)]
pub struct Finished {
    /// The profile.
    pub profile: Profile,
    /// How it went.
    pub status: Status,
}

#[derive(Debug)]
struct Shared {
    status: Mutex<Status>,
    cost: Mutex<OwnCost>,
    picture: Mutex<Picture>,
}

/// The door between the pipeline's thread and a screen: a wish, and the newest answer.
#[derive(Debug, Default)]
struct Picture {
    wish: Option<Request>,
    answer: Option<(Request, Arc<Snapshot>)>,
    over: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A thread that panicked leaves plain data behind.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session {
    /// Starts a session over the messages of a capture.
    ///
    /// # Errors
    /// When no thread can be made.
    pub fn start(messages: Receiver<Message>, options: Options) -> io::Result<Self> {
        let (finish, finish_asked) = bounded(1);
        let shared =
            Arc::new(Shared { status: Mutex::default(), cost: Mutex::default(), picture: Mutex::default() });
        let for_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("pipeline".into())
            .spawn(move || Worker::new(options, for_thread).run(&messages, &finish_asked))?;
        Ok(Self { thread, finish, shared })
    }

    /// How it goes.
    pub fn status(&self) -> Status {
        lock(&self.shared.status).clone()
    }

    /// Tells what the profiler itself used so far, for the header.
    pub fn set_cost(&self, cost: OwnCost) {
        *lock(&self.shared.cost) = cost;
    }

    /// True when the pipeline's thread has ended by itself, which only a defect makes it do.
    pub fn is_over(&self) -> bool {
        self.thread.is_finished()
    }

    /// Pictures for a screen.
    pub fn pictures(&self) -> Pictures {
        Pictures { shared: Arc::clone(&self.shared) }
    }

    /// Uses all that was captured, writes it out and ends. `counters` are the kernel's last ones.
    ///
    /// # Errors
    /// When the pipeline's thread panicked; what was flushed is on disk.
    pub fn finish(self, counters: Option<KernelCounters>) -> Result<Finished, PipelinePanicked> {
        // The thread may be gone already; joining tells.
        let _ = self.finish.send(counters);
        self.thread.join().map_err(|_| PipelinePanicked)
    }
}

/// The pipeline's thread panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the pipeline stopped because of a defect; what was flushed before is on disk")]
pub struct PipelinePanicked;

/// Pictures of a running session, for a screen.
#[derive(Debug)]
pub struct Pictures {
    shared: Arc<Shared>,
}

impl deepctx_profile::snapshot::Snapshots for Pictures {
    fn latest(&mut self, request: &Request) -> Option<Arc<Snapshot>> {
        let mut picture = lock(&self.shared.picture);
        picture.wish = Some(request.clone());
        match picture.answer.take() {
            Some((answered, snapshot)) if answered == *request => Some(snapshot),
            _ => None,
        }
    }

    fn live(&self) -> bool {
        !lock(&self.shared.picture).over
    }
}

/// The pipeline's thread.
struct Worker {
    pipeline: Pipeline<Resolver>,
    shared: Arc<Shared>,
    started: Instant,
    named: Vec<u32>,
    store: Option<Store>,
    raw: Option<RawWriter<BufWriter<File>>>,
    /// Made when it is first needed.
    recovery: Option<Recovery>,
    /// Likewise.
    cubins: Option<Cubins>,
    hottest: Option<Hottest>,
    viewer: Viewer,
    /// The request that was answered last, and when the next picture of it may be made.
    drawn: Option<(Request, Instant)>,
    rates: Rates,
}

struct Store {
    writer: Writer,
    every: Duration,
    next: Instant,
    /// Old files on their way to fewer ones: that may take a second, which the pipeline has not.
    merging: Option<JoinHandle<Merged>>,
}

impl Store {
    /// Takes in what was merged, if that is done or must be.
    fn adopt(&mut self, wait: bool) {
        if let Some(merging) = self.merging.take_if(|merging| wait || merging.is_finished())
            && let Ok(merged) = merging.join()
        {
            self.writer.adopt(merged);
        }
    }

    /// Begins to merge, if there is something to merge.
    fn merge(&mut self) {
        if self.merging.is_none()
            && let Some(due) = self.writer.due()
        {
            // Without a thread the files stay as they are, until the next flush.
            let thread = std::thread::Builder::new().name("merge".into());
            self.merging = thread.spawn(move || due.run()).ok();
        }
    }
}

/// Figures a moment ago, for rates.
struct Rates {
    at: Instant,
    samples: u64,
    launches: u64,
    cpu: Duration,
}

impl Worker {
    fn new(options: Options, shared: Arc<Shared>) -> Self {
        let now = Instant::now();
        let store =
            options.store.map(|(writer, every)| Store { writer, every, next: now + every, merging: None });
        Self {
            pipeline: Pipeline::new(
                Resolver::new(options.debug_info).with_layers(options.layers),
                options.meta,
                options.config,
            ),
            shared,
            started: now,
            named: options.named,
            store,
            raw: options.raw,
            recovery: None,
            cubins: None,
            hottest: options.hottest,
            viewer: Viewer::new(),
            drawn: None,
            rates: Rates { at: now, samples: 0, launches: 0, cpu: Duration::ZERO },
        }
    }

    fn run(mut self, messages: &Receiver<Message>, finish: &Receiver<Option<KernelCounters>>) -> Finished {
        let mut next_tick = Instant::now() + TICK;
        let counters = loop {
            match messages.recv_deadline(next_tick) {
                Ok(message) => self.take(message),
                Err(RecvTimeoutError::Timeout) => {}
                // Nothing more will come: all there is to do is to wait for the word to finish.
                Err(RecvTimeoutError::Disconnected) => {
                    std::thread::sleep(next_tick.saturating_duration_since(Instant::now()))
                }
            }
            if Instant::now() >= next_tick {
                next_tick = Instant::now() + TICK;
                self.tick(messages.is_empty());
            }
            match finish.try_recv() {
                Ok(counters) => break counters,
                Err(crossbeam_channel::TryRecvError::Empty) => {}
                Err(crossbeam_channel::TryRecvError::Disconnected) => break None,
            }
        };
        // A capture that stopped still empties its ring, and closes the channel after the last record.
        let deadline = Instant::now() + DRAIN_MAX;
        while let Ok(message) = messages.recv_deadline(deadline) {
            self.take(message);
        }
        self.end(counters)
    }

    fn take(&mut self, message: Message) {
        let input = match message {
            Message::Records(bytes) => Input::Records(bytes),
            Message::Counters(counters) => Input::Counters(counters),
            Message::Space { pid, time_ns, maps } => {
                Input::Space(SpaceUpdate { pid, time_ns, name: process_name(pid), maps })
            }
            Message::TargetGone { pid } => {
                let mut status = lock(&self.shared.status);
                status.targets_gone.push(pid);
                status.over =
                    !self.named.is_empty() && self.named.iter().all(|pid| status.targets_gone.contains(pid));
                return;
            }
            Message::Notice(notice) => return self.notice(notice),
            Message::Probes(counters) => {
                lock(&self.shared.status).probes = counters;
                return;
            }
            Message::Sites(sites) => Input::Sites(sites),
            Message::SiteCounts(counts) => Input::SiteCounts(counts),
            Message::CallsEnd(time_ns) => Input::CallsEnd(time_ns),
            Message::DutyWindow(turn) => Input::DutyWindow(turn),
            Message::Scans(counters) => {
                let gaps = counters.gaps().map(|(key, sentence, n)| (NoName { key, sentence }, n));
                return self.pipeline.tables_lack(gaps.into());
            }
        };
        self.feed(input);
    }

    fn feed(&mut self, input: Input<Maps>) {
        if let Some(raw) = &mut self.raw
            && let Err(error) = raw.write(&input)
        {
            self.raw = None;
            self.write_failed(format!("the raw copy: {error}"));
        }
        let input = input.with_maps(|pid, maps| self.pipeline.symbols().admit(pid, maps));
        self.pipeline.feed(input);
        let unread = self.pipeline.unread_cubins();
        if !unread.is_empty() {
            self.read_lines(unread);
        }
    }

    /// Has lines of device code read, now: the process may end any time.
    fn read_lines(&mut self, unread: Vec<UnreadCubin>) {
        if self.cubins.is_none() {
            self.cubins = Cubins::start()
                .inspect_err(|error| tracing::warn!(%error, "lines of device code cannot be read"))
                .ok();
        }
        if let Some(cubins) = &mut self.cubins {
            cubins.ask(unread);
        }
    }

    /// Takes in lines of device code that were read; waits for so long for those that are being read.
    fn take_lines(&mut self, longest: Duration) {
        let Some(cubins) = &mut self.cubins else { return };
        let read = cubins.answers(longest);
        if !read.is_empty() {
            self.feed(Input::Lines(read));
        }
    }

    /// Says which of the user's step markers no range matched.
    fn notice_unseen(&self) {
        for name in self.pipeline.unseen_markers().filter(|name| *name != STEP_MARKER) {
            self.notice(format!(
                "--step-marker {name} ended no training step: no range ended whose name begins with it"
            ));
        }
    }

    /// Has kernels looked for that were launched without a name, and takes in what was found.
    fn recover_names(&mut self) {
        let unnamed = self.pipeline.unnamed_kernels();
        if !unnamed.is_empty() {
            if self.recovery.is_none() {
                self.recovery = Recovery::start()
                    .inspect_err(|error| tracing::warn!(%error, "names of kernels cannot be looked for"))
                    .ok();
            }
            if let Some(recovery) = &self.recovery {
                recovery.ask(unnamed);
            }
        }
        let found: Vec<_> = self.recovery.iter().flat_map(Recovery::answers).collect();
        found.into_iter().for_each(|kernels| self.feed(Input::Recovered(kernels)));
    }

    fn choose_hottest(&mut self) {
        if let Some(said) = self.hottest.as_mut().and_then(|hottest| hottest.look(self.pipeline.profile())) {
            self.hottest = None;
            self.notice(said);
        }
    }

    fn notice(&self, notice: String) {
        let mut status = lock(&self.shared.status);
        if status.notices.len() < NOTICES_MAX {
            status.notices.push(notice);
        }
    }

    fn tick(&mut self, idle: bool) {
        let newest = self.pipeline.newest_ns().saturating_sub(SKEW_NS);
        // With messages still waiting, the clock says nothing about what was already seen.
        let quiet = if idle { monotonic_ns().saturating_sub(IDLE_NS) } else { 0 };
        self.pipeline.advance(newest.max(quiet));
        self.recover_names();
        self.choose_hottest();
        self.take_lines(Duration::ZERO);
        self.measure();
        self.draw();
        if self.store.as_ref().is_some_and(|store| Instant::now() >= store.next) {
            self.flush();
        }
    }

    /// Adds the files that were met since the last time to the profile: later readers need their build-ids.
    fn note_executables(&mut self) {
        let known = self.pipeline.profile().executables.len();
        let modules = self.pipeline.symbols().symbolizer().modules();
        let new: Vec<Executable> = modules
            .iter()
            .skip(known)
            .map(|(_, module)| Executable {
                path: module.path().to_string(),
                build_id: module.facts().build_id.map(|id| id.to_string()).unwrap_or_default(),
                size: Bytes(module.facts().size),
            })
            .collect();
        self.pipeline.profile().executables.extend(new);
    }

    fn flush(&mut self) {
        self.note_executables();
        let Some(store) = &mut self.store else { return };
        let now = Time::from_nanos(self.pipeline.newest_ns());
        store.adopt(false);
        let flushed = store.writer.flush(self.pipeline.profile(), now);
        store.merge();
        // From now, not from when it was due: a slow disk must not be written to without pause.
        store.next = Instant::now() + store.every;
        if let Err(error) = flushed {
            self.write_failed(error.to_string());
        }
    }

    fn write_failed(&self, error: String) {
        lock(&self.shared.status).write_error = Some(error);
    }

    fn measure(&mut self) {
        let samples = self.pipeline.accounts().samples();
        let launches = self.pipeline.launches();
        let (walked, complete) = self.pipeline.accounts().walked_and_complete();
        let first_complete_ns = self.pipeline.accounts().first_complete_ns();
        let ledger = &self.pipeline.profile().ledger;
        let (lost, lost_share) = (ledger.lost(), ledger.lost_share());
        let cost = *lock(&self.shared.cost);
        let mut status = lock(&self.shared.status);
        (status.samples, status.launches) = (samples, launches);
        (status.lost, status.lost_share) = (lost, lost_share);
        status.complete_share = (walked > 0).then(|| complete as f64 / walked as f64);
        status.first_complete_ns = first_complete_ns;
        status.own_memory_bytes = cost.resident_bytes + cost.map_bytes;
        let passed = self.rates.at.elapsed();
        if passed >= Duration::from_secs(1) {
            status.samples_per_second = (samples - self.rates.samples) as f64 / passed.as_secs_f64();
            status.launches_per_second = (launches - self.rates.launches) as f64 / passed.as_secs_f64();
            status.own_cpu_share =
                cost.cpu.saturating_sub(self.rates.cpu).as_secs_f64() / passed.as_secs_f64();
            self.rates = Rates { at: Instant::now(), samples, launches, cpu: cost.cpu };
        }
    }

    /// Makes the picture that a screen wishes for, once it has taken the one before.
    fn draw(&mut self) {
        let wish = {
            let picture = lock(&self.shared.picture);
            match (&picture.wish, &picture.answer) {
                (Some(wish), Some((answered, _))) if wish == answered => None,
                (wish, _) => wish.clone(),
            }
        };
        let too_early = |wish: &Request| {
            self.drawn.as_ref().is_some_and(|(drawn, next)| drawn == wish && Instant::now() < *next)
        };
        if let Some(request) = wish.filter(|wish| !too_early(wish)) {
            let start = Instant::now();
            let snapshot = Arc::new(self.snapshot(&request));
            self.drawn = Some((request.clone(), Instant::now() + start.elapsed() * (PICTURE_PART - 1)));
            let mut picture = lock(&self.shared.picture);
            // The next one is made when it is wished for again.
            picture.wish = None;
            picture.answer = Some((request, snapshot));
        }
    }

    fn snapshot(&mut self, request: &Request) -> Snapshot {
        let status = lock(&self.shared.status).clone();
        let profile = self.pipeline.profile();
        let header = header(&profile.meta, &status, self.started.elapsed(), request.selection.metric);
        self.viewer.answer(profile, request, header, RESOLUTION)
    }

    fn end(mut self, counters: Option<KernelCounters>) -> Finished {
        if let Some(counters) = counters {
            self.take(Message::Counters(counters));
        }
        self.take_lines(LINES_MAX);
        self.pipeline.finish();
        self.notice_unseen();
        self.note_executables();
        if let Some(raw) = self.raw.take()
            && let Err(error) = raw.finish()
        {
            self.write_failed(format!("the raw copy: {error}"));
        }
        let now = Time::from_nanos(self.pipeline.newest_ns());
        if let Some(store) = &mut self.store {
            store.adopt(true);
            if let Err(error) = store.writer.finish(self.pipeline.profile(), now) {
                self.write_failed(error.to_string());
            }
        }
        self.measure();
        let wish = lock(&self.shared.picture).wish.take();
        let wish = wish.or_else(|| self.drawn.take().map(|(request, _)| request));
        let last = wish.map(|request| (request.clone(), Arc::new(self.snapshot(&request))));
        {
            let mut picture = lock(&self.shared.picture);
            picture.over = true;
            picture.answer = last;
        }
        let status = lock(&self.shared.status).clone();
        Finished { profile: self.pipeline.into_profile(), status }
    }
}

/// The header of a picture of a session.
pub fn header(meta: &Meta, status: &Status, elapsed: Duration, metric: Metric) -> Header {
    Header {
        target: meta.target.clone(),
        elapsed_ns: u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX),
        frequency_hz: meta.frequency_hz,
        samples: status.samples,
        samples_per_second: status.samples_per_second,
        lost: status.lost,
        complete_share: status.complete_share,
        own_cpu_share: status.own_cpu_share,
        own_memory_bytes: status.own_memory_bytes,
        metric: metric.name(),
        unit: metric.unit(),
        notice: status
            .write_error
            .clone()
            .or_else(|| status.over.then(|| "the target has ended".to_owned()))
            .or_else(|| status.notices.last().cloned()),
    }
}

/// Name of a process's main thread; empty when it is gone.
fn process_name(pid: u32) -> String {
    let name = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(&name).trim_end_matches('\n').to_owned()
}
