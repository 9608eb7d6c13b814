//! Threads: one drains the ring, one scans processes.
//!
//! Owns: the two loops and the data that passes between them. Because: building tables takes long, and the ring must
//! be drained meanwhile. Does not: decode records beyond what requests a scan.

use std::collections::HashSet;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, Select, Sender, TrySendError, bounded};
use deepctx_common::Plain as _;
use deepctx_common::end::WalkEnd;
use deepctx_common::memory::MemoryUse;
use deepctx_common::record::{ProcessEvent, RecordHeader, StackSample, kind};
use deepctx_pipeline::input::Refusals;
use deepctx_symbolizer::accountable_user;
use libbpf_rs::{MapCore as _, MapHandle};
use rustc_hash::FxHashSet;

use super::clock::monotonic_ns;
use super::error::CaptureError;
use super::kernel_counts::{KernelCounters, SiteCounts};
use super::last_samples::LastSamples;
use super::message::Message;
use super::named_targets::NamedTargets;
use super::probes::ScanQueue;
use super::processes::{Processes, ScanCounters, ScanResult};
use super::rings::{BATCH_BYTES_MAX, Ring};
use super::scan_job::ScanReading;
use super::scan_readers::{READERS, ReadOutcome, ScanReaders};
use super::supervisor::{self, EarlyEnd, EndCause, Heartbeat, Supervisor};
use super::tables::TableError;
use super::unsent_notices::UnsentNotices;
use super::unsent_scans::UnsentScans;
use super::waiting_scans::{Urgency, WaitingScans};

/// A request of the drain thread to the scan thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ScanRequest {
    /// Samples hit unknown code.
    Unknown(u32),
    /// A child that begins with its parent's address space.
    Forked { parent: u32, child: u32 },
    /// A process runs another program.
    Executed(u32),
    /// A process mapped code.
    Mapped(u32),
    /// A process is gone.
    Exited(u32),
}

/// Requests that may wait. One without room is dropped and counted: the next sample of that process asks again.
const REQUESTS_MAX: usize = 4096;

/// Where scans are requested.
#[derive(Debug)]
pub(super) struct ScanRequests {
    sender: Sender<ScanRequest>,
    /// Requests for which there was no room.
    dropped: Arc<AtomicU64>,
    /// Who was sampled, for when the tables are full.
    samples: Arc<LastSamples>,
}

impl ScanRequests {
    /// Requests a scan; false if there is no room.
    fn request(&self, request: ScanRequest) -> bool {
        let is_full = matches!(self.sender.try_send(request), Err(TrySendError::Full(_)));
        self.dropped.fetch_add(u64::from(is_full), Ordering::Relaxed);
        !is_full
    }
}

/// Scans that may fail because of a defect; with one more the capture ends.
const SCAN_DEFECTS_MAX: u32 = 8;

/// Longest wait for pending scans at the end of a capture.
const LAST_SCANS_NS: u64 = 1_000_000_000;

/// How often counters are sent while scans wait without end.
const REPORT_EVERY_NS: u64 = 1_000_000_000;

/// Longest wait for room for the last counters.
const LAST_REPORT: Duration = Duration::from_secs(1);

/// How often interpreters that were not ready are checked again.
const UNREADY_EVERY: Duration = Duration::from_millis(100);

/// How often unnoticed processes are looked for.
const SWEEP_EVERY_NS: u64 = 10_000_000_000;

/// Name of the thread that drains the ring, and what a capture lacks without it.
const DRAIN: &str = "drain";
const WITHOUT_DRAIN: &str = "nothing is recorded any more";

/// Rounds with an unreadable ring after which the capture ends: two seconds and more.
const UNREAD_MAX: u32 = 40;

/// How often the drain thread looks for named processes that ended without a record.
const LOOK_EVERY_NS: u64 = 10_000_000_000;

/// Rounds of the drain thread after which counters are sent.
const COUNTERS_EVERY: u32 = 20;

impl From<ScanResult> for Message {
    fn from(scanned: ScanResult) -> Self {
        Self::Space { pid: scanned.pid, time_ns: scanned.time_ns, maps: scanned.maps }
    }
}

/// Setup of the thread that drains the ring.
pub(super) struct DrainSetup {
    /// Totals of the kernel programs' counters.
    pub(super) counters: KernelCounters,
    /// Calls of each probe, where there are probes.
    pub(super) site_counts: Option<SiteCounts>,
    /// Receives records and counters.
    pub(super) messages: Sender<Message>,
    /// Receives requests for scans of processes.
    pub(super) scans: ScanRequests,
    /// Receives requests for scans of their libraries, if there are probes.
    pub(super) scan_queue: Option<ScanQueue>,
    /// Processes whose end is reported.
    pub(super) named: NamedTargets,
    /// Set when the ring is to be drained for the last time.
    pub(super) stop: Arc<AtomicBool>,
}

/// Starts the thread that drains the ring.
pub(super) fn spawn_drain(
    events: MapHandle,
    setup: DrainSetup,
    supervisor: &Supervisor,
) -> Result<(), TableError> {
    let map = deepctx_common::config::map::EVENTS;
    let error = |source| TableError::Map { map, source };
    let ring = Ring::new(&events, events.max_entries()).map_err(error)?;
    let for_drain = supervisor.clone();
    let body = |heartbeat: &Heartbeat| {
        let (pending, site_counts, looked_ns) = (Vec::new(), Vec::new(), monotonic_ns());
        let (supervisor, ahead) = (for_drain, 0);
        let sampled = FxHashSet::default();
        Drain { ring, setup, supervisor, pending, ahead, sampled, site_counts, unread: 0, looked_ns }
            .run(heartbeat);
    };
    supervisor.spawn(DRAIN, WITHOUT_DRAIN, body).map(drop).map_err(error)
}

struct Drain {
    ring: Ring,
    setup: DrainSetup,
    supervisor: Supervisor,
    /// Records for which the channel had no room.
    pending: Vec<u8>,
    /// Bytes of records in the ring whose scans were requested.
    ahead: usize,
    /// Processes whose samples were seen in this round.
    sampled: FxHashSet<u32>,
    /// Calls of each probe, as last read.
    site_counts: Vec<u64>,
    /// Consecutive rounds in which the ring could not be read.
    unread: u32,
    /// When named processes were last looked for.
    looked_ns: u64,
}

impl Drain {
    fn run(mut self, heartbeat: &Heartbeat) {
        let mut rounds = 0u32;
        loop {
            heartbeat.beat();
            // Read before the drain: everything written until the stop must be read after it.
            let last = self.setup.stop.load(Ordering::Acquire);
            self.drain();
            if self.setup.scans.samples.add(&self.sampled, monotonic_ns()) {
                self.sampled.clear();
            }
            self.report_ends();
            let sent = if last { self.send_all() } else { self.send() };
            rounds = rounds.wrapping_add(1);
            if sent && (last || rounds.is_multiple_of(COUNTERS_EVERY)) {
                // Not worth waiting for: totals are sent again.
                let _ = self.setup.messages.try_send(Message::Counters(self.setup.counters.totals()));
                self.send_site_counts(last);
            }
            if last || !sent {
                return;
            }
            heartbeat.idle();
            self.ring.wait();
        }
    }

    fn send_site_counts(&mut self, last: bool) {
        /// A receiver that takes longer has stopped receiving.
        const LONGEST: Duration = Duration::from_secs(2);
        let Some(counts) = &self.setup.site_counts else { return };
        counts.update(&mut self.site_counts);
        if self.site_counts.is_empty() {
            return;
        }
        let message = Message::SiteCounts(self.site_counts.clone());
        // Records are compared with the last ones.
        let wait = if last { LONGEST } else { Duration::ZERO };
        let _ = self.setup.messages.send_timeout(message, wait);
    }

    /// Reads the ring, unless the previous batch is still pending: then it only requests the scans.
    fn drain(&mut self) {
        if self.pending.len() >= BATCH_BYTES_MAX {
            self.look_ahead();
            return;
        }
        let batch = match self.ring.drain() {
            Ok(batch) => {
                self.unread = 0;
                batch
            }
            Err(error) => {
                self.report_unread(&error);
                Vec::new()
            }
        };
        let new = not_seen(&mut self.ahead, &batch);
        self.request_scans(new);
        if self.pending.is_empty() {
            self.pending = batch;
        } else {
            self.pending.extend_from_slice(&batch);
        }
    }

    /// Requests the scans of records that stay in the ring. A new program behind megabytes of others' mappings has
    /// incomplete stacks until it is scanned, and the receiver of records may be slow.
    fn look_ahead(&mut self) {
        // Without memory to look, they are requested when the ring is drained.
        let records = self.ring.look_ahead().unwrap_or_default();
        self.ahead += records.len();
        self.request_scans(&records);
    }

    /// Reports named processes that have ended.
    fn report_ends(&mut self) {
        let now_ns = monotonic_ns();
        if now_ns.saturating_sub(self.looked_ns) >= LOOK_EVERY_NS {
            self.looked_ns = now_ns;
            self.setup.named.look();
        }
        self.setup.named.send(&self.setup.messages);
    }

    /// Counts a round with an unreadable ring. Written records stay there, and those without room are counted.
    fn report_unread(&mut self, error: &io::Error) {
        self.unread += 1;
        match self.unread {
            1 => tracing::warn!(%error, "the ring cannot be read now"),
            UNREAD_MAX => self.supervisor.report(EarlyEnd {
                thread: DRAIN,
                missing: WITHOUT_DRAIN,
                because: EndCause::System(format!("a ring that cannot be read ({error})")),
            }),
            _ => {}
        }
    }

    /// Sends the batch if there is room; false if the receiver is gone.
    fn send(&mut self) -> bool {
        if self.pending.is_empty() {
            return true;
        }
        match self.setup.messages.try_send(Message::Records(std::mem::take(&mut self.pending))) {
            Ok(()) => true,
            Err(TrySendError::Full(Message::Records(batch))) => {
                self.pending = batch;
                true
            }
            Err(TrySendError::Full(_)) => true,
            Err(TrySendError::Disconnected(_)) => false,
        }
    }

    /// Sends everything, and waits while there is a receiver.
    fn send_all(&mut self) -> bool {
        loop {
            if !self.pending.is_empty() {
                let batch = std::mem::take(&mut self.pending);
                if self.setup.messages.send(Message::Records(batch)).is_err() {
                    return false;
                }
            }
            self.drain();
            if self.pending.is_empty() {
                return true;
            }
        }
    }

    fn request_scans(&mut self, batch: &[u8]) {
        let mut asked = HashSet::new();
        let mut rest = batch;
        while let Some(header) = RecordHeader::read_from(rest) {
            self.sampled.extend(sampled(&header, rest));
            if let Some(request) = request(&header, rest)
                && asked.insert(request)
            {
                if let ScanRequest::Exited(pid) = request {
                    self.setup.named.ended(pid);
                }
                // In parallel with the scan: a library's first calls come soon, and its unwind table takes a while.
                if let (Some(queue), ScanRequest::Mapped(pid) | ScanRequest::Executed(pid)) =
                    (&self.setup.scan_queue, request)
                {
                    queue.request_scan(pid);
                }
                self.setup.scans.request(request);
            }
            let size = (header.size as usize).max(size_of::<RecordHeader>());
            rest = rest.get(size..).unwrap_or_default();
        }
    }
}

/// The records of a batch that were not seen before they left the ring; `ahead`: bytes of those seen.
fn not_seen<'b>(ahead: &mut usize, batch: &'b [u8]) -> &'b [u8] {
    let seen = batch.len().min(*ahead);
    *ahead -= seen;
    &batch[seen..]
}

/// The process that a record is a sample of.
fn sampled(header: &RecordHeader, record: &[u8]) -> Option<u32> {
    let is_sample = matches!(header.kind, kind::SAMPLE | kind::BLOCK | kind::CALL);
    is_sample.then(|| StackSample::read_from(record)).flatten().map(|sample| sample.pid)
}

/// The scan that a record requests.
fn request(header: &RecordHeader, record: &[u8]) -> Option<ScanRequest> {
    match header.kind {
        kind::SAMPLE | kind::BLOCK | kind::CALL => {
            let sample = StackSample::read_from(record)?;
            let end = WalkEnd::from_number(sample.native_end)?;
            // A broken chain of frame pointers is often due to code generated since the last scan.
            let unknown = WalkEnd::UnknownProcess as u8..=WalkEnd::NoTable as u8;
            // A complete walk records a PC in such code that it could leave anyway.
            let passed = end == WalkEnd::Complete && sample.stop_pc != 0;
            (unknown.contains(&sample.native_end) || end == WalkEnd::FramePointerEnd || passed)
                .then_some(ScanRequest::Unknown(sample.pid))
        }
        kind::FORK => {
            let ProcessEvent { pid: child, parent, .. } = ProcessEvent::read_from(record)?;
            Some(ScanRequest::Forked { parent, child })
        }
        kind::EXEC => Some(ScanRequest::Executed(ProcessEvent::read_from(record)?.pid)),
        kind::MAP => Some(ScanRequest::Mapped(ProcessEvent::read_from(record)?.pid)),
        kind::EXIT => Some(ScanRequest::Exited(ProcessEvent::read_from(record)?.pid)),
        _ => None,
    }
}

/// Memory held by the scan thread, bytes.
#[derive(Debug, Default)]
pub(super) struct ScanMemory {
    /// Row shards.
    rows: AtomicU64,
    /// Known processes and files in this process.
    processes: AtomicU64,
}

impl ScanMemory {
    /// Memory held now.
    pub(super) fn of(processes: &mut Processes) -> Self {
        let memory = Self::default();
        memory.measure(processes);
        memory
    }

    /// Updates the values.
    pub(super) fn measure(&self, processes: &mut Processes) {
        self.rows.store(processes.tables().shard_bytes(), Ordering::Relaxed);
        self.processes.store(processes.held_bytes() as u64, Ordering::Relaxed);
    }

    /// Row shards in the kernel, and known processes and files here.
    pub(super) fn held(&self) -> [MemoryUse; 2] {
        let bytes = |of: &AtomicU64| of.load(Ordering::Relaxed);
        [
            MemoryUse { by: "kernel: unwind rows", bytes: bytes(&self.rows) },
            MemoryUse { by: "tables of processes and files", bytes: bytes(&self.processes) },
        ]
    }
}

/// Setup of the thread that scans processes.
pub(super) struct Scans {
    pub(super) processes: Processes,
    /// Receives mappings, counters and notices.
    pub(super) messages: Sender<Message>,
    /// Receives requests for scans of their libraries, if there are probes.
    pub(super) scan_queue: Option<ScanQueue>,
    /// Memory of its tables, for the account of the profiler's own cost.
    pub(super) memory: Arc<ScanMemory>,
    /// Set when the capture ends.
    pub(super) stop: Arc<AtomicBool>,
}

/// Starts the thread that scans processes, and its readers; they end when the result is dropped.
///
/// # Errors
/// No thread can be made.
pub(super) fn spawn_scan(scans: Scans, supervisor: &Supervisor) -> Result<ScanRequests, CaptureError> {
    let (sender, requests) = bounded(REQUESTS_MAX);
    let dropped: Arc<AtomicU64> = Arc::default();
    let (counted, samples) = (Arc::clone(&dropped), Arc::clone(scans.processes.last_samples()));
    let spawned = ScanReaders::start(supervisor).and_then(|readers| {
        supervisor.spawn("scan", "new code has no unwind rows", move |heartbeat| {
            scans.run(&requests, &readers, counted, heartbeat);
        })
    });
    spawned.map_err(|source| CaptureError::Io { what: "the threads that scan processes", source })?;
    Ok(ScanRequests { sender, dropped, samples })
}

/// State of the scan thread between two rounds.
#[derive(Default)]
struct ScanRounds {
    waiting: WaitingScans,
    unsent: UnsentScans,
    notices: UnsentNotices,
    /// Processes being read.
    in_flight: usize,
    /// All senders are gone.
    closed: bool,
    defects: u32,
    swept_ns: u64,
    reported_ns: u64,
    /// When interpreters that were not ready were last looked for.
    unready_ns: u64,
    sent: ScanCounters,
    /// Requests that never came, since there was no room for them.
    dropped: Arc<AtomicU64>,
}

impl Scans {
    fn run(
        mut self,
        requests: &Receiver<ScanRequest>,
        readers: &ScanReaders,
        dropped: Arc<AtomicU64>,
        heartbeat: &Heartbeat,
    ) {
        let (now_ns, sent) = (monotonic_ns(), self.processes.counters());
        let (swept_ns, reported_ns) = (now_ns, now_ns);
        let mut rounds = ScanRounds { swept_ns, reported_ns, sent, dropped, ..ScanRounds::default() };
        let mut ended_ns = None;
        // A round waits for 100 ms at most.
        heartbeat.beat();
        while self.round(requests, readers, &mut rounds) {
            heartbeat.beat();
            rounds.notices.send(&self.messages);
            self.send_refusals();
            let now_ns = monotonic_ns();
            if self.stop.load(Ordering::Acquire)
                && now_ns.saturating_sub(*ended_ns.get_or_insert(now_ns)) > LAST_SCANS_NS
            {
                break;
            }
            if now_ns.saturating_sub(rounds.swept_ns) > SWEEP_EVERY_NS {
                rounds.swept_ns = now_ns;
                self.processes.sweep(now_ns);
            }
            self.rescan_unready(&mut rounds, now_ns);
            while rounds.in_flight < READERS
                && !rounds.unsent.is_full()
                && let Some((pid, user)) = rounds.waiting.begin(monotonic_ns())
            {
                rounds.in_flight += 1;
                readers.read(self.processes.begin(pid), user);
            }
            if rounds.waiting.is_empty() || now_ns.saturating_sub(rounds.reported_ns) > REPORT_EVERY_NS {
                self.report(&mut rounds, Duration::ZERO);
            }
        }
        self.report(&mut rounds, LAST_REPORT);
        // There may be room again.
        rounds.notices.send(&self.messages);
        self.send_refusals();
    }

    /// Sends which processes got no unwind data; without room in the channel they wait.
    fn send_refusals(&mut self) {
        let Self { processes, messages, .. } = self;
        if !messages.is_full() {
            processes.refusals().hand_on(|processes, left_out| {
                messages.try_send(Message::Refused(Refusals { processes, left_out })).is_ok()
            });
        }
    }

    /// Waits for a request, for a finished read, or for room in the channel, and handles it. False if all senders are
    /// gone and all work is done, or if the receiver is gone.
    fn round(
        &mut self,
        requests: &Receiver<ScanRequest>,
        readers: &ScanReaders,
        rounds: &mut ScanRounds,
    ) -> bool {
        let messages = self.messages.clone();
        let mut select = Select::new();
        let request = (!rounds.closed).then(|| select.recv(requests));
        let ended = select.recv(readers.ended());
        if !rounds.unsent.is_empty() {
            select.send(&messages);
        }
        match select.select_timeout(UNREADY_EVERY) {
            Ok(ready) if Some(ready.index()) == request => match ready.recv(requests) {
                Ok(first) => {
                    let all = std::iter::once(first).chain(requests.try_iter());
                    take_in(all, &mut self.processes, &mut rounds.waiting);
                }
                Err(_) => rounds.closed = true,
            },
            Ok(ready) if ready.index() == ended => {
                // Without readers nothing is read any more; the supervisor reports their end.
                let Ok(ended) = ready.recv(readers.ended()) else { return false };
                self.ended(ended, rounds);
            }
            Ok(ready) => {
                if let Some(scanned) = rounds.unsent.pop()
                    && ready.send(&messages, scanned.into()).is_err()
                {
                    return false;
                }
            }
            Err(_) => {}
        }
        !(rounds.closed && rounds.waiting.is_empty() && rounds.unsent.is_empty())
    }

    /// Requests scans of processes whose interpreter was not ready. By the clock: on a machine that starts programs all
    /// the time, there is no round without a request.
    fn rescan_unready(&mut self, rounds: &mut ScanRounds, now_ns: u64) {
        if Duration::from_nanos(now_ns.saturating_sub(rounds.unready_ns)) < UNREADY_EVERY {
            return;
        }
        rounds.unready_ns = now_ns;
        for pid in self.processes.unready(now_ns) {
            add(&mut self.processes, &mut rounds.waiting, pid, Urgency::Rescan);
        }
    }

    /// A process was read.
    fn ended(&mut self, ended: ReadOutcome, rounds: &mut ScanRounds) {
        let ReadOutcome { pid, user, read } = ended;
        let finished = read.and_then(|reading| catch_unwind(AssertUnwindSafe(|| self.finish(reading))));
        rounds.in_flight -= 1;
        rounds.waiting.end(user, monotonic_ns());
        rounds.notices.add(self.processes.take_notices());
        match finished {
            Ok(scanned) => scanned.into_iter().for_each(|scanned| rounds.unsent.push(user, scanned)),
            // One process that cannot be scanned is no reason to stop scanning.
            Err(panic) if rounds.defects < SCAN_DEFECTS_MAX => {
                rounds.defects += 1;
                rounds.notices.add([self.scan_failed(pid, panic.as_ref())]);
            }
            Err(panic) => resume_unwind(panic),
        }
        rounds.notices.send(&self.messages);
    }

    /// Measures memory, and sends changed counters; waits at most `longest` for room. Totals are sent again.
    fn report(&mut self, rounds: &mut ScanRounds, longest: Duration) {
        self.memory.measure(&mut self.processes);
        rounds.reported_ns = monotonic_ns();
        let mut counters = self.processes.counters();
        counters.put_off += rounds.dropped.load(Ordering::Relaxed);
        if counters != rounds.sent && self.messages.send_timeout(Message::Scans(counters), longest).is_ok() {
            rounds.sent = counters;
        }
    }

    /// A scan panicked: the process is forgotten. Returns a notice.
    fn scan_failed(&mut self, pid: u32, panic: &(dyn std::any::Any + Send)) -> String {
        self.processes.remove(pid, monotonic_ns());
        let because = supervisor::message(panic);
        format!("process {pid}: a scan failed because of a defect ({because})")
    }

    /// Publishes the reading of a process; returns the result to send.
    fn finish(&mut self, reading: ScanReading) -> Option<ScanResult> {
        let (pid, before) = (reading.pid, self.processes.changes());
        let scanned = self.processes.finish(reading);
        // The process has ended, which the kernel reports, or there is no room, which one notice reports.
        let scanned = scanned.inspect_err(|error| tracing::debug!(%error, "not prepared")).ok()?;
        if let Some(queue) = self.scan_queue.as_ref().filter(|_| self.processes.changes() != before) {
            queue.request_scan(pid);
        }
        Some(scanned)
    }
}

/// Requests a scan of each of these. One without room is requested by its next incomplete sample.
pub(super) fn request_rescans(scans: &ScanRequests, pids: &[u32]) {
    for &pid in pids {
        if !scans.request(ScanRequest::Mapped(pid)) {
            return;
        }
    }
}

/// Accepts requests.
fn take_in(
    requests: impl Iterator<Item = ScanRequest>,
    processes: &mut Processes,
    waiting: &mut WaitingScans,
) {
    let now_ns = monotonic_ns();
    for request in requests {
        match request {
            ScanRequest::Unknown(pid) if !waiting.contains(pid) && !processes.may_scan(pid, now_ns) => {}
            ScanRequest::Unknown(pid) => add(processes, waiting, pid, Urgency::Sampled),
            ScanRequest::Forked { parent, child } => {
                processes.forked(parent, child);
                add(processes, waiting, child, Urgency::Rescan);
            }
            ScanRequest::Mapped(pid) => add(processes, waiting, pid, Urgency::Rescan),
            ScanRequest::Executed(pid) => {
                processes.exec(pid);
                add(processes, waiting, pid, Urgency::Sampled);
            }
            ScanRequest::Exited(pid) => {
                processes.remove(pid, now_ns);
                waiting.remove(pid);
            }
        }
    }
}

/// Adds a process to the queue, unless it is gone: the kernel reports its end.
fn add(processes: &mut Processes, waiting: &mut WaitingScans, pid: u32, urgency: Urgency) {
    let Some(user) = accountable_user(pid) else { return };
    if !waiting.add(pid, user, urgency) {
        processes.put_off();
    }
}

#[cfg(test)]
mod tests;
