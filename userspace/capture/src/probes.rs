//! Probes: what is attached in the libraries of the targets, and when.
//!
//! Owns: the thread that looks at processes for libraries, gives each probe its number, and keeps the links. Because: a
//! library may come at any time, looking through it takes milliseconds, and samples must not wait for that. Does not:
//! choose functions (`deepctx_uprobes`) or read what probes tell.

use std::collections::HashSet;
use std::collections::hash_map::{Entry, HashMap};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, SendTimeoutError, Sender, TrySendError, bounded};
use deepctx_common::Plain as _;
use deepctx_common::activity::probe;
use deepctx_common::call::{self, SITES_MAX, site_flag};
use deepctx_events::{AutogradEvent, CuptiEvent, Event, Family};
use deepctx_uprobes::plan;
use deepctx_uprobes::{
    Contents, Kernel, Layers, Library, NoProbe, PlannedFile, Planner, ProbeRequest, UserRow,
};
use libbpf_rs::{MapCore as _, MapFlags, MapHandle};

use super::Message;
use super::below::Below;
use super::clock::monotonic_ns;
use super::links::{self, Moment, Point, Way};
use super::load::{ProbeObject, ProbePrograms};
use super::sites;
use super::turns::{self, Turns, told_by};
use deepctx_pipeline::input::SiteInfo;

/// Requests that may wait. One that finds no room is dropped and counted: the next library of that process asks again.
const REQUESTS_MAX: usize = 4096;
/// How long collectors are still heard when calls are not watched any more: they tell what devices did ten times a
/// second, and CUPTI has each record ready that much later at most.
const LAST_WORDS: Duration = Duration::from_millis(250);

/// What is attached so far, and what could not be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbeCounters {
    /// Files with probes.
    pub files: u64,
    /// Functions with a probe.
    pub probes: u64,
    /// Functions whose return is probed.
    pub returns: u64,
    /// Functions of the catalogue that a file lacks, or where no probe can go.
    pub missing: u64,
    /// Places that the kernel refused.
    pub refused: u64,
    /// Functions left out because there are too many.
    pub left_out: u64,
    /// Processes that could not be looked at.
    pub unreadable: u64,
    /// Requests that found no room.
    pub put_off: u64,
    /// Collectors that are listened to.
    pub collectors: u64,
    /// Time spent looking through files, nanoseconds.
    pub planning_ns: u64,
    /// Time spent attaching, nanoseconds.
    pub attaching_ns: u64,
}

/// What is asked of the thread.
#[derive(Debug)]
enum Request {
    /// Look at a process.
    Look(u32),
    /// Tell the tensors of these operators, too.
    Tensors(Vec<String>),
    /// Let everything go and end.
    End,
}

/// The way to ask for a look at a process.
#[derive(Clone, Debug)]
pub(super) struct Looks(Sender<Request>, Arc<AtomicU32>);

impl Looks {
    /// Asks for a look at a process.
    pub(super) fn look(&self, pid: u32) {
        if let Err(TrySendError::Full(_)) = self.0.try_send(Request::Look(pid)) {
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The way to ask for the tensors of operators that were not known when the capture began.
#[derive(Clone, Debug)]
pub struct TensorWishes(Sender<Request>);

impl TensorWishes {
    /// Asks for the tensors of these operators, as schemas name them.
    pub fn ask(&self, names: Vec<String>) {
        // As long as there is a capture there is room, or looks at processes are put off anyway.
        if self.0.try_send(Request::Tensors(names)).is_err() {
            tracing::warn!("there was no room to ask for tensors");
        }
    }
}

/// Probes at work.
#[derive(Debug)]
pub(super) struct Probes {
    looks: Looks,
    thread: JoinHandle<()>,
    ending: Arc<AtomicBool>,
    /// Closed after the first look.
    looked: Receiver<()>,
}

/// What probes are made with.
pub(super) struct Setup {
    /// How the kernel is asked.
    pub(super) way: Way,
    /// `SITES`.
    pub(super) sites: MapHandle,
    /// Read the records of other collections.
    pub(super) borrow: bool,
    /// Have collectors sample instructions.
    pub(super) samples: bool,
    /// Watch the libraries of accelerators.
    pub(super) accelerators: bool,
    /// What is asked of PyTorch.
    pub(super) request: ProbeRequest,
    /// Operators that get a stack, per second: 0 for none.
    pub(super) operator_stacks: u32,
    /// Rows of the user's own.
    pub(super) user: Vec<UserRow>,
    /// Sites given so far.
    pub(super) next: Arc<AtomicU32>,
    /// Where names of sites and counters go.
    pub(super) messages: Sender<Message>,
    /// Set when nobody may listen any more.
    pub(super) ending: Arc<AtomicBool>,
}

impl Probes {
    /// Starts the thread, which loads the programs, then looks at the files in `ahead`, then at `pids`. `in_turns`: when some
    /// have a budget.
    ///
    /// # Errors
    /// No thread can be made.
    pub(super) fn start(
        (object, in_turns): (ProbeObject, Option<turns::Ahead>),
        setup: Setup,
        ahead: Vec<Library>,
        pids: Vec<u32>,
    ) -> io::Result<Self> {
        let (sender, requests) = bounded(REQUESTS_MAX);
        let put_off = Arc::new(AtomicU32::new(0));
        let looks = Looks(sender, put_off);
        let ending = Arc::clone(&setup.ending);
        let (next, put_off) = (Arc::clone(&setup.next), Arc::clone(&looks.1));
        let (looking, looked) = bounded(0);
        let body = move || {
            let loaded =
                object.load().and_then(|programs| Ok((programs, in_turns.map(Turns::new).transpose()?)));
            let (programs, turns) = match loaded {
                Ok(loaded) => loaded,
                Err(error) => return notice(&setup.messages, format!("nothing can be probed: {error}")),
            };
            let mut attached = Attached {
                programs,
                planner: Planner::new(setup.user.clone(), Layers::Lowest, running_kernel())
                    .with_request(setup.accelerators, setup.request.clone()),
                setup,
                files: HashMap::new(),
                below: HashSet::new(),
                links: Links::default(),
                turns,
                placed: Vec::new(),
                correlating: Vec::new(),
                next,
                told: ProbeCounters::default(),
                counters: ProbeCounters::default(),
                put_off,
            };
            let new = attached.planner.add_libraries(ahead);
            attached.attach_all(new);
            attached.look(&pids);
            let ProbeCounters { files, probes, .. } = attached.counters;
            tracing::info!(files, probes, "the probes are in place");
            drop(looking);
            attached.run(&requests);
        };
        let thread = thread::Builder::new().name("probes".into()).spawn(body)?;
        Ok(Self { looks, thread, ending, looked })
    }

    /// A way to ask for looks.
    pub(super) fn looks(&self) -> Looks {
        self.looks.clone()
    }

    /// A way to ask for tensors.
    pub(super) fn tensor_wishes(&self) -> TensorWishes {
        TensorWishes(self.looks.0.clone())
    }

    /// Waits for the end of the first look, for at most `longest`.
    pub(super) fn wait(&self, longest: Duration) {
        // Nothing is ever sent: the end of the channel is the word.
        let _ = self.looked.recv_timeout(longest);
    }

    /// Takes all probes away.
    pub(super) fn stop(self) {
        self.ending.store(true, Ordering::Release);
        if self.looks.0.send(Request::End).is_ok() && self.thread.join().is_err() {
            tracing::error!("the thread of the probes stopped because of a defect");
        }
    }
}

/// Drivers and runtimes where loaders look for them: folders that the environment names, and the usual ones.
pub(super) fn installed() -> Vec<Library> {
    const USUAL: [&str; 6] = [
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib64",
        "/usr/lib",
        // Where containers get the driver.
        "/usr/local/nvidia/lib64",
        "/usr/local/cuda/lib64",
        "/opt/rocm/lib",
    ];
    /// Entries of a folder that are looked at: far more than system folders have.
    const ENTRIES_MAX: usize = 1 << 16;
    let named = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let folders = std::env::split_paths(&named).filter(|folder| folder.is_absolute());
    let folders: Vec<PathBuf> = folders.chain(USUAL.map(PathBuf::from)).collect();
    let mut paths: Vec<PathBuf> = Vec::new();
    for entries in folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok()) {
        let ours = entries.flatten().take(ENTRIES_MAX).filter(|entry| {
            let name = entry.file_name();
            Family::ALL.into_iter().any(|family| family.is_named(name.as_bytes()))
        });
        // Several names lead to one file.
        paths.extend(ours.filter_map(|entry| std::fs::canonicalize(entry.path()).ok()));
    }
    paths.sort_unstable();
    paths.dedup();
    paths.iter().filter_map(|path| Library::of_file(path).ok()).collect()
}

/// Version of the running kernel; one that cannot be read counts as old.
pub fn running_kernel() -> Kernel {
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy();
    let mut parts = release.split(['.', '-']).map(|part| part.parse().unwrap_or(0));
    Kernel { version: (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) }
}

/// What the thread holds.
struct Attached {
    programs: ProbePrograms,
    planner: Planner,
    setup: Setup,
    /// Files that have probes, by device and inode. They stay open, so that no other file gets their number: one that is
    /// met again by another path must not get its probes twice.
    files: HashMap<(u64, u64), File>,
    /// The same files where they lie below overlays.
    below: HashSet<Below>,
    links: Links,
    /// Those that have a budget.
    turns: Option<Turns>,
    /// Sites of calls, for when a collector comes.
    placed: Vec<(u32, call::Site, Event)>,
    /// Sites at which collectors give calls their ids.
    correlating: Vec<(u32, call::Site)>,
    next: Arc<AtomicU32>,
    told: ProbeCounters,
    counters: ProbeCounters,
    put_off: Arc<AtomicU32>,
}

/// What keeps probes where they are: calls go first, what is told of them later.
#[derive(Default)]
struct Links {
    calls: Vec<OwnedFd>,
    messages: Vec<OwnedFd>,
}

impl Attached {
    fn run(&mut self, requests: &Receiver<Request>) {
        loop {
            let wait = self.turns.as_ref().and_then(Turns::next_look);
            let next = match wait {
                Some(wait) => requests.recv_timeout(wait),
                None => requests.recv().map_err(RecvTimeoutError::from),
            };
            let first = match next {
                Ok(first) => first,
                Err(RecvTimeoutError::Timeout) => {
                    self.take_turns();
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let mut pids = HashSet::new();
            for request in std::iter::once(first).chain(requests.try_iter()) {
                match request {
                    Request::Look(pid) => drop(pids.insert(pid)),
                    Request::Tensors(names) => self.tell_tensors(names),
                    Request::End => return self.end(),
                }
            }
            self.look(&pids.into_iter().collect::<Vec<_>>());
            self.take_turns();
        }
    }

    /// Begins or ends a turn of the probes that have a budget, if it is time.
    fn take_turns(&mut self) {
        let Some((turn, why)) = self.turns.as_mut().and_then(Turns::look) else { return };
        let over = !turn.watched;
        // Whoever concludes from their calls must know before they are gone, and is told that they are back when they are.
        self.tell(Message::DutyWindow(turn));
        if let Some(turns) = self.turns.as_mut().filter(|_| over) {
            turns.rest();
        }
        if let Some(why) = why {
            self.notice(why);
        }
    }

    /// Ends the watch of calls at one moment, and hears collectors out: what was launched until then is still to be told.
    fn end(&mut self) {
        let now_ns = monotonic_ns();
        let calls: Vec<_> = self.placed.iter().map(|(index, site, _)| (*index, *site)).collect();
        self.mute(&calls);
        // A launch is given its id before it returns.
        thread::sleep(Duration::from_millis(1));
        self.mute(&self.correlating);
        let heard_until_ns = now_ns.saturating_add(LAST_WORDS.as_nanos() as u64);
        links::close(&mut self.links.calls);
        self.turns = None;
        let is_heard = |planned: &&PlannedFile| matches!(planned.collector, Some(Ok(_)));
        let mut pids = self.planner.planned().iter().filter(is_heard).flat_map(|planned| &planned.pids);
        // Who ends says all before.
        if pids.any(|pid| Path::new(&format!("/proc/{pid}")).exists()) && self.tell(Message::CallsEnd(now_ns))
        {
            thread::sleep(Duration::from_nanos(heard_until_ns.saturating_sub(monotonic_ns())));
        }
    }

    fn mute(&self, sites: &[(u32, call::Site)]) {
        for (index, site) in sites {
            let muted = call::Site { flags: site.flags | site_flag::MUTE, ..*site };
            if let Err(error) = self.setup.sites.update(index.as_bytes(), muted.as_bytes(), MapFlags::ANY) {
                tracing::warn!(%error, index, "a site cannot be muted");
            }
        }
    }

    fn look(&mut self, pids: &[u32]) {
        for &pid in pids {
            let began_ns = monotonic_ns();
            let new = match self.planner.add_process(pid) {
                Ok(new) => new,
                Err(reason) => {
                    tracing::debug!(pid, reason = reason.sentence(), "not looked at for probes");
                    self.counters.unreadable += 1;
                    continue;
                }
            };
            self.counters.planning_ns += monotonic_ns().saturating_sub(began_ns);
            self.attach_all(new);
        }
        if let Some(turns) = &mut self.turns {
            let has_some =
                |planned: &&PlannedFile| planned.sites.iter().any(|site| told_by(site.row.event).is_some());
            turns.processes(
                self.planner.planned().iter().filter(has_some).flat_map(|of| of.pids.iter().copied()),
            );
        }
        self.counters.put_off = u64::from(self.put_off.load(Ordering::Relaxed));
        if self.counters != self.told && self.setup.messages.try_send(Message::Probes(self.counters)).is_ok()
        {
            self.told = self.counters;
        }
    }

    fn attach_all(&mut self, new: Vec<usize>) {
        for at in new {
            if let Some(planned) = self.planner.planned().get(at).cloned() {
                self.attach(&planned);
            }
        }
    }

    /// Tells tensors of more operators, in the files that are there and in those that come.
    fn tell_tensors(&mut self, names: Vec<String>) {
        let operators = names.join(",");
        for planned in self.planner.request_tensors(names) {
            self.tell_missing(&planned);
            let file = planned.library.open().ok().and_then(|file| file.metadata().ok());
            let kept = file.and_then(|file| self.files.get(&(file.dev(), file.ino())));
            if let Some(path) = kept.map(path_of) {
                self.attach_calls(&planned, &path);
            }
        }
        tracing::info!(operators, "tensors are recorded from now on");
    }

    /// Says what a file lacks.
    fn tell_missing(&mut self, planned: &PlannedFile) {
        self.counters.missing += planned.missing.len() as u64;
        let mut lacking: Vec<(&str, NoProbe)> = planned
            .missing
            .iter()
            .filter_map(|missing| Some((plan::missing(missing.row.event)?, missing.because)))
            .collect();
        lacking.dedup_by_key(|(what, _)| *what);
        for (what, because) in lacking {
            let path = planned.library.mapping.path().display();
            self.notice(format!("{path}: {what}: {because}"));
        }
    }

    fn attach(&mut self, planned: &PlannedFile) {
        self.tell_missing(planned);
        let Some(path) = self.is_new(planned) else { return };
        let began_ns = monotonic_ns();
        let before = (self.counters.probes, self.counters.refused);
        match &planned.collector {
            Some(Ok(collector)) => {
                // First who wants samples: a collector that begins asks at once.
                let (samplers, samples) = (&collector.sample_listeners, &collector.sample_message);
                let samples = self.setup.samples.then_some((samples, samplers));
                let messages = collector.messages.iter().map(|message| (message, &collector.listeners));
                let sites = samples
                    .into_iter()
                    .chain(messages)
                    .map(|(message, counter)| ((message.offset.0, counter.0), sites::message(message.what)));
                self.attach_messages(planned, &path, &sites.collect::<Vec<_>>());
                self.hear_correlations();
                self.counters.collectors += 1;
            }
            Some(Err(because)) => {
                let path = planned.library.mapping.path().display();
                self.notice(format!("{path}: the collector cannot be heard: {because}"));
                return;
            }
            None => self.attach_calls(planned, &path),
        }
        self.counters.files += 1;
        self.counters.attaching_ns += monotonic_ns().saturating_sub(began_ns);
        tracing::debug!(
            path = %planned.library.mapping.path().display(),
            probes = self.counters.probes - before.0,
            refused = self.counters.refused - before.1,
            milliseconds = monotonic_ns().saturating_sub(began_ns) as f64 / 1e6,
            "attached"
        );
    }

    /// Remembers a file, and gives a path that leads to it whatever becomes of its own; `None` when it has its probes
    /// already, or nothing to probe.
    fn is_new(&mut self, planned: &PlannedFile) -> Option<PathBuf> {
        let more = self.setup.request.more_tensors && planned.contents == Contents::Library(Family::Torch);
        if planned.sites.is_empty() && planned.collector.is_none() && !more {
            return None;
        }
        let path = planned.library.mapping.path().display();
        let opened = planned.library.open().map_err(|reason| reason.sentence().to_owned());
        let opened = opened.and_then(|file| Ok((file.metadata().map_err(|e| e.to_string())?, file)));
        match opened {
            Ok((metadata, file)) => {
                let below = Below::of(&file, &metadata);
                if below.is_among(&self.below) {
                    tracing::debug!(%path, "its probes are there: an overlay shows the same file twice");
                    return None;
                }
                let path = path_of(&file);
                match self.files.entry((metadata.dev(), metadata.ino())) {
                    Entry::Occupied(_) => None,
                    Entry::Vacant(entry) => {
                        entry.insert(file);
                        self.below.insert(below);
                        Some(path)
                    }
                }
            }
            Err(because) => {
                self.notice(format!("{path}: no probes: {because}"));
                None
            }
        }
    }

    fn attach_calls(&mut self, planned: &PlannedFile, path: &Path) {
        let mut calls = Vec::new();
        let (mut in_turns, mut events) = (Vec::new(), Vec::new());
        let mut returns = Vec::new();
        let mut messages = Vec::new();
        let mut last = Vec::new();
        let mut names: Vec<SiteInfo> = Vec::new();
        let collected = !self.setup.borrow || self.is_collected(planned);
        for site in &planned.sites {
            if collected && site.row.event == Event::Cupti(CuptiEvent::Record) {
                continue;
            }
            let Some(index) = self.number() else { continue };
            let (mut kernel, name) = sites::describe(index, site);
            if self.counters.collectors > 0 {
                kernel = sites::with_correlation(kernel, name.event);
            }
            kernel = sites::of_operator(kernel, name.event, &self.setup.request, self.setup.operator_stacks);
            if !self.tell_kernel(index, &kernel) {
                continue;
            }
            let counter = site.counter.map_or(0, |counter| counter.0);
            let point = Point { offset: site.offset.0, cookie: u64::from(index), counter };
            if kernel.flags & site_flag::MESSAGE != 0 {
                messages.push(point);
            } else {
                // What is watched until it returns would be left waiting.
                let of_turns = self.turns.is_some() && kernel.flags & site_flag::RETURN == 0;
                if of_turns && told_by(name.event).is_some() {
                    in_turns.push(point);
                    events.push(name.event);
                } else {
                    calls.push(point);
                }
                self.placed.push((index, kernel, name.event));
            }
            if kernel.flags & site_flag::RETURN != 0 {
                // Where nothing was pushed yet the return address is still where the kernel looks for it, and one
                // breakpoint serves both.
                let offset = if site.point.frame == 0 { site.offset.0 } else { site.entry.0 };
                returns.push(Point { offset, ..point });
            }
            if let Event::Autograd(event @ (AutogradEvent::NodeBegins | AutogradEvent::BackwardBegins)) =
                name.event
            {
                last.push((u64::from(index), event == AutogradEvent::BackwardBegins));
            }
            names.push(name);
        }
        // Who is told of a backward pass must know that no step in it will be missed, nor what was before a step.
        for points in [&mut calls, &mut in_turns] {
            points.sort_by_key(|point| {
                last.iter().find(|(cookie, _)| *cookie == point.cookie).map(|(_, end)| *end)
            });
        }
        // Before the first record that needs it.
        if !self.tell(Message::Sites(names)) {
            return;
        }
        // First the returns: a call that is waited for must be seen to return.
        self.place(planned, path, &returns, Program::Return);
        self.counters.returns += returns.len() as u64;
        self.place(planned, path, &calls, Program::Call);
        self.place(planned, path, &messages, Program::Message);
        self.counters.probes += (calls.len() + in_turns.len() + messages.len()) as u64;
        if let Some(turns) = self.turns.as_mut().filter(|_| !in_turns.is_empty()) {
            turns.processes(planned.pids.iter().copied());
            let (refused, first) = turns.place(path, in_turns, events);
            self.refused(planned, &refused);
            if let Some(first) = first {
                self.tell(Message::DutyWindow(first));
            }
        }
    }

    /// Whether our own collector is in a process with this file: the records that it reads need not be read along, at
    /// the price of a trap for each.
    fn is_collected(&self, planned: &PlannedFile) -> bool {
        let collectors = self.planner.planned().iter().filter(|other| other.collector.is_some());
        collectors.flat_map(|collector| &collector.pids).any(|pid| planned.pids.contains(pid))
    }

    /// Tells what must not be lost; false when nobody listens any more.
    fn tell(&self, message: Message) -> bool {
        let mut message = message;
        loop {
            match self.setup.messages.send_timeout(message, Duration::from_millis(200)) {
                Ok(()) => return true,
                Err(SendTimeoutError::Disconnected(_)) => return false,
                Err(SendTimeoutError::Timeout(_)) if self.setup.ending.load(Ordering::Acquire) => {
                    return false;
                }
                Err(SendTimeoutError::Timeout(back)) => message = back,
            }
        }
    }

    fn attach_messages(&mut self, planned: &PlannedFile, path: &Path, wanted: &[((u64, u64), call::Site)]) {
        let mut points = Vec::new();
        for ((offset, counter), site) in wanted {
            let Some(index) = self.number() else { continue };
            if self.tell_kernel(index, site) {
                points.push(Point { offset: *offset, cookie: u64::from(index), counter: *counter });
                if site.event == probe::CORRELATION {
                    self.correlating.push((index, *site));
                }
            }
        }
        self.place(planned, path, &points, Program::Message);
        self.counters.probes += points.len() as u64;
    }

    /// From now on launches are remembered until their id comes.
    fn hear_correlations(&mut self) {
        let placed = std::mem::take(&mut self.placed);
        for (index, site, event) in &placed {
            self.tell_kernel(*index, &sites::with_correlation(*site, *event));
        }
        self.placed = placed;
    }

    fn place(&mut self, planned: &PlannedFile, path: &Path, points: &[Point], program: Program) {
        let programs = &self.programs;
        let (fd, moment) = match program {
            Program::Call => (&programs.call, Moment::Place),
            Program::Return => (&programs.call_return, Moment::Return),
            Program::Message => (&programs.message, Moment::Place),
        };
        let attached = links::attach(self.setup.way, fd.as_fd(), path, points, moment);
        let links = match program {
            Program::Call | Program::Return => &mut self.links.calls,
            Program::Message => &mut self.links.messages,
        };
        links.extend(attached.links);
        self.refused(planned, &attached.refused);
    }

    fn refused(&mut self, planned: &PlannedFile, refused: &[(Point, io::Error)]) {
        self.counters.refused += refused.len() as u64;
        if let [(point, error), others @ ..] = refused {
            let path = planned.library.mapping.path().display();
            let symbol = planned.sites.iter().find(|site| site.offset.0 == point.offset);
            let symbol = symbol.map_or("a function", |site| &site.symbol);
            self.notice(format!("{path}: no probe on {symbol} and {} more: {error}", others.len()));
        }
    }

    /// A number for a site.
    fn number(&mut self) -> Option<u32> {
        let index = self.next.load(Ordering::Relaxed);
        if index >= SITES_MAX {
            self.counters.left_out += 1;
            return None;
        }
        self.next.store(index + 1, Ordering::Relaxed);
        Some(index)
    }

    fn tell_kernel(&mut self, index: u32, site: &call::Site) -> bool {
        let told = self.setup.sites.update(index.as_bytes(), site.as_bytes(), MapFlags::ANY);
        if let Err(error) = &told {
            self.counters.left_out += 1;
            tracing::warn!(%error, index, "a site cannot be told to the kernel");
        }
        told.is_ok()
    }

    fn notice(&self, text: String) {
        notice(&self.setup.messages, text);
    }
}

/// A path that leads to an open file whatever becomes of its own.
fn path_of(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

fn notice(messages: &Sender<Message>, text: String) {
    tracing::warn!("{text}");
    let _ = messages.try_send(Message::Notice(text));
}

#[derive(Clone, Copy)]
enum Program {
    Call,
    Return,
    Message,
}
