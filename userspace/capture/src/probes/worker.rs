//! Worker: the thread that attaches probes to the libraries of the targets.
//!
//! Owns: its loop, the links, and the order of detaching at the end. Because: a library may be mapped at any time,
//! scanning it takes milliseconds, and samples must not wait for that. Does not: choose functions (`deepctx_uprobes`)
//! or read what probes record.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, SendTimeoutError, Sender};
use deepctx_common::activity::probe;
use deepctx_common::call;
use deepctx_events::Family;
use deepctx_symbolizer::guard::catch_faults;
use deepctx_symbolizer::shares::ROOT;
use deepctx_symbolizer::{GONE_USER, NoSymbol, accountable_user, start_ticks};
use deepctx_uprobes::locate::collector::Collector;
use deepctx_uprobes::{Contents, FileKey, Layers, NoProbe, PlanId, PlannedFile, Planner, ProbeRequest, plan};

use super::BudgetedState;
use super::files::{FileId, ProbedFiles};
use super::installed::running_kernel;
use super::points::{FilePoints, SiteOptions};
use super::programs::{Programs, refusal};
use super::requests::Request;
use super::setup::Setup;
use super::site_table::SiteTable;
use super::unused::UnusedFiles;
use super::waiting_calls::WaitingCalls;
use crate::budget::ProbeHold;
use crate::clock::monotonic_ns;
use crate::duty_cycle::{Change, DutyCycle, feature_of};
use crate::links::{self, AttachMethod, ProbeSide, ProbeSite};
use crate::message::Message;
use crate::probe_counters::ProbeCounters;
use crate::sites;
use crate::supervisor::{Heartbeat, defect_for_tests};

/// How long collectors are still read after calls are muted: they report ten times a second, and CUPTI has each record
/// ready at most that much later.
const DRAIN_GRACE: Duration = Duration::from_millis(250);
/// Files of one process whose parsing may fail by a defect; beyond that the rest get no probes either.
const DEFECTS_MAX: u32 = 16;
/// How often files that no process has any more are looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(5);
/// Files that were refused for lack of room and are remembered, to be retried when there is room, and how many of them
/// at once.
const REFUSED_MAX: usize = 1024;
const RETRIED_MOST: usize = 64;

/// State of the thread.
pub(super) struct ProbeWorker {
    programs: Programs,
    attach_method: AttachMethod,
    planner: Planner,
    request: ProbeRequest,
    operator_stacks: u32,
    call_returns: bool,
    steps_stay: bool,
    other_collections: bool,
    instruction_samples: bool,
    sites: SiteTable,
    files: ProbedFiles,
    links: HashMap<FileId, Links>,
    unused: UnusedFiles,
    swept_ns: u64,
    waiting_calls: WaitingCalls,
    /// Files for which there was no room, each with a process that maps it.
    refused: VecDeque<(FileKey, u32)>,
    /// The probes that have a budget.
    duty_cycle: Option<DutyCycle>,
    /// The latest request for them, possibly made before there are any.
    hold: ProbeHold,
    budgeted: BudgetedState,
    counters: ProbeCounters,
    reported: ProbeCounters,
    /// Requests for which there was no room.
    dropped: Arc<AtomicU32>,
    messages: Sender<Message>,
    ending: Arc<AtomicBool>,
}

/// The links of a file's probes. Those of calls are closed first; collectors report on calls later.
#[derive(Debug, Default)]
struct Links {
    calls: Vec<OwnedFd>,
    messages: Vec<OwnedFd>,
}

/// The program of a probe.
#[derive(Clone, Copy)]
enum Program {
    Call,
    Return,
    Message,
}

impl ProbeWorker {
    /// Attaches to the libraries and processes of the setup. `dropped` counts requests without room; `budgeted` is set
    /// while the probes that have a budget are attached.
    pub(super) fn new(setup: Setup, dropped: Arc<AtomicU32>, budgeted: BudgetedState) -> Self {
        let planner = Planner::new(setup.user_rows, Layers::Lowest, running_kernel())
            .with_request(setup.accelerators, setup.request.clone());
        let mut worker = Self {
            programs: Programs::new(setup.object, setup.duty_cycled),
            attach_method: setup.attach_method,
            planner,
            request: setup.request,
            operator_stacks: setup.operator_stacks,
            call_returns: setup.call_returns,
            steps_stay: setup.steps_stay,
            other_collections: setup.other_collections,
            instruction_samples: setup.instruction_samples,
            sites: SiteTable::new(setup.sites, setup.site_counts, setup.sites_used),
            files: ProbedFiles::default(),
            links: HashMap::new(),
            unused: UnusedFiles::default(),
            swept_ns: monotonic_ns(),
            waiting_calls: setup.waiting_calls,
            refused: VecDeque::new(),
            duty_cycle: None,
            hold: ProbeHold::default(),
            budgeted,
            counters: ProbeCounters::default(),
            reported: ProbeCounters::default(),
            dropped,
            messages: setup.messages,
            ending: setup.ending,
        };
        let new = worker.planner.add_libraries(setup.libraries);
        worker.attach_all(new);
        worker.scan(&setup.pids);
        let ProbeCounters { files, probes, .. } = worker.counters;
        tracing::info!(files, probes, "the probes are in place");
        worker
    }

    /// Loads the programs, if not tried yet; returns whether they are loaded.
    fn load(&mut self) -> bool {
        match self.programs.load() {
            Ok(Some(mut duty_cycle)) => {
                duty_cycle.hold(self.hold);
                self.duty_cycle = Some(duty_cycle);
            }
            Ok(None) => {}
            Err(error) => self.notice(refusal(error)),
        }
        self.programs.loaded().is_some()
    }

    /// Answers requests until one ends the thread, or all senders are gone.
    pub(super) fn run(&mut self, requests: &Receiver<Request>, heartbeat: &Heartbeat) {
        loop {
            heartbeat.beat();
            self.sweep();
            self.report();
            let wait = self.duty_cycle.as_ref().and_then(DutyCycle::next_check);
            heartbeat.idle();
            let received = requests.recv_timeout(wait.unwrap_or(SWEEP_EVERY).min(SWEEP_EVERY));
            heartbeat.beat();
            let first = match received {
                Ok(first) => first,
                Err(RecvTimeoutError::Timeout) => {
                    self.check_budget();
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let mut pids = HashSet::new();
            for request in std::iter::once(first).chain(requests.try_iter()) {
                match request {
                    Request::Scan(pid) => drop(pids.insert(pid)),
                    Request::Tensors(names) => self.record_tensors(names),
                    Request::Hold(hold) => {
                        self.hold = hold;
                        if let Some(duty_cycle) = &mut self.duty_cycle {
                            duty_cycle.hold(hold);
                        }
                    }
                    Request::End => return self.end(),
                }
            }
            self.scan(&pids.into_iter().collect::<Vec<_>>());
            self.check_budget();
        }
    }

    /// Attaches or detaches the probes that have a budget, if due, and publishes whether they are attached.
    fn check_budget(&mut self) {
        if let Some(change) = self.duty_cycle.as_mut().and_then(DutyCycle::check) {
            self.follow_budget(change);
        }
        if let Some(attached) = self.duty_cycle.as_ref().and_then(DutyCycle::attached) {
            self.budgeted.set(attached);
        }
    }

    fn follow_budget(&mut self, change: Change) {
        let detach = !change.window.watched;
        // The pipeline must know before they are detached, and after they are attached.
        self.send(Message::DutyWindow(change.window));
        if let Some(duty_cycle) = self.duty_cycle.as_mut().filter(|_| detach) {
            duty_cycle.detach();
        }
        if let Some(notice) = change.notice {
            self.notice(notice);
        }
        for (file, refused) in change.refused {
            let planned = self.files.plan_of(file).and_then(|plan| self.planner.get(plan)).cloned();
            if let Some(planned) = planned {
                self.count_refused(&planned, &refused);
            }
        }
    }

    /// Mutes all calls at one moment, and then drains collectors: they still report on earlier launches.
    fn end(&mut self) {
        defect_for_tests("detach");
        let now_ns = monotonic_ns();
        // Without room before, they are sent now.
        if self.counters != self.reported {
            self.send(Message::Probes(self.counters));
        }
        self.sites.mute_calls();
        // A launch gets its id before it returns.
        thread::sleep(Duration::from_millis(1));
        self.sites.mute_correlations();
        let drained_ns = now_ns.saturating_add(DRAIN_GRACE.as_nanos() as u64);
        links::close(self.links.values_mut().flat_map(|links| links.calls.drain(..)).collect());
        // Dropped, its links would be closed one after another.
        if let Some(mut duty_cycle) = self.duty_cycle.take() {
            duty_cycle.detach();
        }
        let is_read = |planned: &&PlannedFile| matches!(planned.collector, Some(Ok(_)));
        let mut pids = self.planner.planned().iter().filter(is_read).flat_map(|planned| &planned.pids);
        // A process that ends sends everything before.
        let lives = pids.any(|pid| Path::new(&format!("/proc/{pid}")).exists());
        if lives && self.send(Message::CallsEnd(now_ns)) {
            thread::sleep(Duration::from_nanos(drained_ns.saturating_sub(monotonic_ns())));
        }
        links::close(self.links.values_mut().flat_map(|links| links.messages.drain(..)).collect());
    }

    /// Removes the probes of files that no process has any more, and gives their places to others.
    fn sweep(&mut self) {
        let now_ns = monotonic_ns();
        if now_ns.saturating_sub(self.swept_ns) < SWEEP_EVERY.as_nanos() as u64 {
            return;
        }
        self.swept_ns = now_ns;
        for pid in self.unused.gone(self.planner.planned()) {
            self.planner.remove_process(pid);
        }
        self.refused.retain(|(_, pid)| start_ticks(*pid).is_some());
        let scarce = !self.refused.is_empty();
        let expired = self.unused.expired(self.planner.planned(), now_ns, scarce);
        self.release(&expired);
        let left = self.waiting_calls.sweep();
        self.counters.calls_over_share += left.over_share as u64;
        let freed = self.sites.settle(now_ns);
        if !freed.is_empty() && self.send(Message::SitesFreed(freed.clone())) {
            self.sites.reset_counts(&freed);
            self.retry_refused();
        }
        if expired.len() + left.ended + left.over_share + freed.len() > 0 {
            tracing::debug!(files = expired.len(), ?left, freed = freed.len(), "swept what probes left");
        }
    }

    /// Detaches the probes of these files.
    fn release(&mut self, plans: &[PlanId]) {
        let mut closed = Vec::new();
        let mut files = Vec::new();
        for plan in plans {
            self.planner.remove(*plan);
            let Some(file) = self.files.remove_plan(*plan) else { continue };
            let Links { calls, messages } = self.links.remove(&file).unwrap_or_default();
            closed.extend(calls.into_iter().chain(messages));
            if let Some(duty_cycle) = &mut self.duty_cycle {
                closed.extend(duty_cycle.remove_file(file));
            }
            files.push(file);
        }
        links::close(closed);
        // Only from now on nothing more is recorded.
        let now_ns = monotonic_ns();
        for file in files {
            self.sites.give(file, now_ns);
        }
    }

    /// Remembers a file for whose probes there was no room.
    fn note_refused(&mut self, planned: &PlannedFile) {
        if self.refused.len() >= REFUSED_MAX {
            self.refused.pop_front();
        }
        self.refused.push_back((planned.library.key(), planned.library.pid));
    }

    /// Plans files again for whose probes there was no room.
    fn retry_refused(&mut self) {
        let most = self.refused.len().min(RETRIED_MOST);
        let retried: Vec<(FileKey, u32)> = self.refused.drain(..most).collect();
        let mut pids: Vec<u32> = retried.iter().map(|(_, pid)| *pid).collect();
        pids.sort_unstable();
        pids.dedup();
        for (key, _) in &retried {
            self.planner.retry(key);
        }
        // Those refused again are counted already.
        let counted = self.sites.refused();
        self.scan(&pids);
        self.sites.set_refused(counted);
        self.take_refused();
    }

    /// Scans processes for libraries, and attaches to the new ones.
    fn scan(&mut self, pids: &[u32]) {
        for &pid in pids {
            if self.is_ending() {
                break;
            }
            let began_ns = monotonic_ns();
            let new = match self.plan(pid) {
                Ok(new) => new,
                Err(reason) => {
                    tracing::debug!(pid, reason = reason.sentence(), "not scanned for libraries");
                    self.counters.unreadable += 1;
                    if reason == NoSymbol::ProcessGone {
                        self.planner.remove_process(pid);
                    }
                    continue;
                }
            };
            self.counters.planning_ns += monotonic_ns().saturating_sub(began_ns);
            self.attach_all(new);
        }
        if let Some(duty_cycle) = &mut self.duty_cycle {
            let has_some = |planned: &&PlannedFile| {
                planned.sites.iter().any(|site| feature_of(site.row.event).is_some())
            };
            let planned = self.planner.planned().iter().filter(has_some);
            duty_cycle.add_processes(planned.flat_map(|planned| planned.pids.iter().copied()));
        }
        self.counters.put_off = u64::from(self.dropped.load(Ordering::Relaxed));
        self.take_refused();
        self.report();
    }

    /// Whether the capture ends: what is attached from then on only has to be detached again, and the end waits for it.
    fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Acquire)
    }

    fn take_refused(&mut self) {
        let refused = self.sites.refused();
        (self.counters.left_out, self.counters.over_share) = (refused.left_out, refused.over_share);
    }

    /// Sends the counters if there is room: totals are sent again.
    fn report(&mut self) {
        if self.counters != self.reported && self.messages.try_send(Message::Probes(self.counters)).is_ok() {
            self.reported = self.counters;
        }
    }

    /// Plans the files of a process; returns new ones. A file whose parsing shows a defect loses only its own probes.
    ///
    /// # Errors
    /// As of [`Planner::add_process`].
    fn plan(&mut self, pid: u32) -> Result<Vec<PlanId>, NoSymbol> {
        self.unused.begin(pid);
        let before = self.planner.planned().last().map(|planned| planned.id);
        let search = |planner: &mut Planner| {
            defect_for_tests("search");
            planner.add_process(pid)
        };
        for defects in 0..DEFECTS_MAX {
            match catch_faults(|| search(&mut self.planner)) {
                Ok(planned) => {
                    planned?;
                    break;
                }
                Err(fault) => {
                    tracing::warn!(pid, ?fault, "a file of it could not be searched for places to probe");
                    self.counters.unreadable += 1;
                    if defects == 0 {
                        self.notice(format!("process {pid}: files of it have no probes because of a defect"));
                    }
                }
            }
        }
        let ids = self.planner.planned().iter().map(|planned| planned.id);
        Ok(ids.filter(|id| Some(*id) > before).collect())
    }

    fn attach_all(&mut self, new: Vec<PlanId>) {
        for id in new {
            if self.is_ending() {
                break;
            }
            let Some(planned) = self.planner.get(id).cloned() else { continue };
            let refused = self.sites.refused();
            self.attach(&planned);
            if !self.keep(id) && self.sites.refused() != refused {
                self.note_refused(&planned);
            }
        }
    }

    /// Drops the parts of a plan that are not needed again, and plans without probes; returns whether it has some. A
    /// user who maps some hundred thousand files determines how much is planned, yet not how many have probes.
    fn keep(&mut self, id: PlanId) -> bool {
        let has_probes = self.files.reached_by(id).is_some_and(|file| self.sites.has(file));
        if has_probes {
            if let Some(planned) = self.planner.get_mut(id) {
                planned.missing = Vec::new();
            }
        } else {
            self.planner.shelve(id);
            self.release(&[id]);
        }
        has_probes
    }

    /// Records tensors of more operators, in existing and future files.
    fn record_tensors(&mut self, names: Vec<String>) {
        let operators = names.join(",");
        for planned in self.planner.request_tensors(names) {
            self.report_missing(&planned);
            if let Some((file, path)) = self.files.of_plan(&planned) {
                self.attach_calls(&planned, file, &path);
            }
        }
        tracing::info!(operators, "tensors are recorded from now on");
    }

    /// Counts the functions that a file lacks, and sends a notice about the features it lacks.
    fn report_missing(&mut self, planned: &PlannedFile) {
        self.counters.missing += planned.missing.len() as u64;
        let mut missing: Vec<(plan::NotRecorded, NoProbe)> = planned
            .missing
            .iter()
            .filter_map(|missing| Some((plan::missing(missing.row.event)?, missing.because)))
            .collect();
        missing.dedup_by_key(|(what, _)| *what);
        for (what, because) in missing {
            self.notice(format!("{}: {what}: {because}", path_of(planned)));
        }
    }

    fn attach(&mut self, planned: &PlannedFile) {
        self.report_missing(planned);
        let more = self.request.more_tensors && planned.contents == Contents::Library(Family::Torch);
        if planned.sites.is_empty() && planned.collector.is_none() && !more || !self.load() {
            return;
        }
        let (file, path) = match self.files.add(planned) {
            Ok(Some(added)) => added,
            Ok(None) => return,
            Err(because) => {
                // Another process that maps the file may give access to it.
                if let Some(planned) = self.planner.get_mut(planned.id) {
                    planned.others_may_open = true;
                }
                return self.notice(format!("{}: no probes: {because}", path_of(planned)));
            }
        };
        let began_ns = monotonic_ns();
        let before = self.counters;
        match &planned.collector {
            Some(Ok(collector)) => self.attach_collector(planned, collector, file, &path),
            Some(Err(because)) => {
                return self.notice(format!(
                    "{}: messages of the collector are not recorded: {because}",
                    path_of(planned)
                ));
            }
            // Reserves a place for the tensors that will be requested.
            None if planned.sites.is_empty() => _ = self.sites.number(file, account_of(planned)),
            None => self.attach_calls(planned, file, &path),
        }
        self.counters.files += 1;
        self.counters.attaching_ns += monotonic_ns().saturating_sub(began_ns);
        tracing::debug!(
            path = %path_of(planned),
            probes = self.counters.probes - before.probes,
            refused = self.counters.refused - before.refused,
            milliseconds = monotonic_ns().saturating_sub(began_ns) as f64 / 1e6,
            "attached"
        );
    }

    /// Attaches to the functions through which a collector sends messages.
    fn attach_collector(&mut self, planned: &PlannedFile, collector: &Collector, file: FileId, path: &Path) {
        // First the function that asks for samples: a collector asks as soon as it begins.
        let (samplers, samples) = (&collector.sample_listeners, &collector.sample_message);
        let samples = self.instruction_samples.then_some((samples, samplers));
        let messages = collector.messages.iter().map(|message| (message, &collector.listeners));
        let (mut points, account) = (Vec::new(), account_of(planned));
        for (message, counter) in samples.into_iter().chain(messages) {
            let Some(index) = self.sites.number(file, account) else { continue };
            let site: call::Site = sites::message(message.what);
            if !self.sites.write(index, &site) {
                continue;
            }
            points.push(ProbeSite { offset: message.offset.0, cookie: u64::from(index), counter: counter.0 });
            if site.event == probe::CORRELATION {
                self.sites.add_correlation(index, site);
            }
        }
        self.place(planned, file, path, &points, Program::Message);
        self.counters.probes += points.len() as u64;
        self.sites.expect_correlations();
        self.counters.collectors += 1;
    }

    /// Attaches to the calls of a library.
    fn attach_calls(&mut self, planned: &PlannedFile, file: FileId, path: &Path) {
        let options = SiteOptions {
            request: &self.request,
            operator_stacks: self.operator_stacks,
            call_returns: self.call_returns,
            correlate: self.counters.collectors > 0,
            other_collections: self.other_collections && !self.is_collected(planned),
            duty_cycle: self.duty_cycle.is_some(),
            steps_stay: self.steps_stay,
            file,
            account: account_of(planned),
        };
        let points = FilePoints::new(&planned.sites, &options, &mut self.sites);
        // Sent before the first record that needs it.
        if !self.send(Message::Sites(points.infos)) {
            return;
        }
        // First the returns: a pending call must be seen to return.
        self.place(planned, file, path, &points.returns, Program::Return);
        self.counters.returns += points.returns.len() as u64;
        self.place(planned, file, path, &points.calls, Program::Call);
        self.place(planned, file, path, &points.messages, Program::Message);
        let probes = points.calls.len() + points.duty_cycled.len() + points.messages.len();
        self.counters.probes += probes as u64;
        if let Some(duty_cycle) = self.duty_cycle.as_mut().filter(|_| !points.duty_cycled.is_empty()) {
            duty_cycle.add_processes(planned.pids.iter().copied());
            let added = duty_cycle.add_file(file, path, points.duty_cycled, points.duty_cycled_events);
            self.count_refused(planned, &added.refused);
            if let Some(first) = added.first_window {
                self.send(Message::DutyWindow(first));
            }
        }
    }

    /// Whether our own collector is in a process with this file: then the records that the process itself reads are not
    /// read, which would cost a trap each.
    fn is_collected(&self, planned: &PlannedFile) -> bool {
        let collectors = self.planner.planned().iter().filter(|other| other.collector.is_some());
        collectors.flat_map(|collector| &collector.pids).any(|pid| planned.pids.contains(pid))
    }

    fn place(
        &mut self,
        planned: &PlannedFile,
        file: FileId,
        path: &Path,
        points: &[ProbeSite],
        program: Program,
    ) {
        let Some(programs) = self.programs.loaded() else { return };
        let (fd, side) = match program {
            Program::Call => (&programs.call, ProbeSide::Instruction),
            Program::Return => (&programs.call_return, ProbeSide::Return),
            Program::Message => (&programs.message, ProbeSide::Instruction),
        };
        let attached = links::attach(self.attach_method, fd.as_fd(), path, points, side);
        let links = self.links.entry(file).or_default();
        let links = match program {
            Program::Call | Program::Return => &mut links.calls,
            Program::Message => &mut links.messages,
        };
        links.extend(attached.links);
        self.count_refused(planned, &attached.refused);
    }

    fn count_refused(&mut self, planned: &PlannedFile, refused: &[(ProbeSite, io::Error)]) {
        self.counters.refused += refused.len() as u64;
        if let [(point, error), others @ ..] = refused {
            let symbol = planned.sites.iter().find(|site| site.offset.0 == point.offset);
            let symbol = symbol.map_or("a function", |site| &site.symbol);
            let (path, others) = (path_of(planned), others.len());
            self.notice(format!("{path}: no probe on {symbol} and {others} more: {error}"));
        }
    }

    /// Sends a message that must not be lost; false if the receiver is gone.
    fn send(&self, message: Message) -> bool {
        let mut message = message;
        loop {
            match self.messages.send_timeout(message, Duration::from_millis(200)) {
                Ok(()) => return true,
                Err(SendTimeoutError::Disconnected(_)) => return false,
                Err(SendTimeoutError::Timeout(_)) if self.is_ending() => return false,
                Err(SendTimeoutError::Timeout(back)) => message = back,
            }
        }
    }

    /// Sends a notice to the user, if there is room.
    fn notice(&self, text: String) {
        tracing::warn!("{text}");
        let _ = self.messages.try_send(Message::Notice(text));
    }
}

/// The user charged for the probes of a file: its owner if that is root, otherwise the user who mapped it first.
fn account_of(planned: &PlannedFile) -> u32 {
    if planned.version.is_some_and(|version| version.owner == ROOT) {
        return ROOT;
    }
    accountable_user(planned.library.pid).unwrap_or(GONE_USER)
}

fn path_of(planned: &PlannedFile) -> std::path::Display<'_> {
    planned.library.mapping.path().display()
}
