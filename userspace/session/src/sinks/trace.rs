//! Trace sink: writes single events to disk while the capture runs.
//!
//! Owns: the thread that writes, how many events may wait for it, and the gap that marks dropped ones. Because: a
//! second of events takes the disk tens of milliseconds, for which the pipeline's thread must not wait; and a loss
//! must show in its lane and time, not in the whole window. Does not: know the format, see
//! [`deepctx_storage::store`], or record.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};
use deepctx_capture::cost::ThreadClock;
use deepctx_capture::job::{ProcessRank, rank_of};
use deepctx_capture::supervisor::{defect_for_tests, message, standstill_for_tests};
use deepctx_profile::trace::{
    NotTraced, RecordedAccount, RecordedBatch, RecordedEvent, RecordedGaps, RecordedKind,
};
use deepctx_storage::store::TraceWriter;
use deepctx_symbolizer::start_ticks;
use rustc_hash::FxHashMap;

use crate::ending::{END_LONGEST, EndingThread, LOOK_EVERY, has_ended};
use crate::lock;

/// Events that may wait for the disk: half a second of a million a second, about 52 MiB.
const WAITING_MAX: usize = 1 << 19;
/// Events of one file: about 2 MiB on disk, and 26 MiB while they are encoded.
const FILE_EVENTS: usize = 1 << 18;
/// Processes that may wait to be asked for their rank. One without room is asked when it maps more code.
const PROCESSES_MAX: usize = 1 << 14;
/// How often a process is asked for its rank: a shell that execs a launcher that execs a program has three answers.
const RANK_ASKED_MAX: u32 = 8;
/// Processes for which that is remembered; when full, all are asked anew.
const REMEMBERED_MAX: usize = 1 << 16;
/// The most that a crash can lose.
const FLUSH: Duration = Duration::from_secs(1);

/// Writes single events, on a thread of its own.
#[derive(Debug)]
pub struct TraceSink {
    orders: Sender<Order>,
    /// Closed when the thread has ended.
    end: Receiver<()>,
    /// Of the thread.
    clock: ThreadClock,
    shared: Arc<SharedState>,
    /// Lanes of rejected batches, which later events need.
    held: Option<RecordedBatch>,
    /// Events of rejected batches, by lane.
    lost: RecordedGaps,
    behind: u64,
}

/// A task of the thread.
#[derive(Debug)]
enum Order {
    Write(RecordedBatch),
    /// This process runs, or has become another program.
    Process(u32),
    Finish(RecordedAccount),
}

#[derive(Debug, Default)]
struct SharedState {
    /// Events that wait.
    waiting: AtomicUsize,
    /// Processes that wait to be asked for their rank.
    processes: AtomicUsize,
    /// Events that could not be written.
    unwritten: AtomicU64,
    error: Mutex<Option<String>>,
}

impl TraceSink {
    /// Begins to write through `writer`.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn new(writer: TraceWriter) -> io::Result<Self> {
        // Bounded by `WAITING_MAX` events, which batches of any size share, and `PROCESSES_MAX`.
        let (orders, incoming) = unbounded();
        let (ended, end) = bounded(0);
        let shared = Arc::<SharedState>::default();
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("trace".into()).spawn(move || {
            let _ended: Sender<()> = ended;
            let files = Files {
                writer,
                shared: Arc::clone(&of_thread),
                batch: RecordedBatch::default(),
                lost: RecordedGaps::default(),
                asked: AskedProcesses::default(),
            };
            let run = || {
                defect_for_tests("trace");
                standstill_for_tests("trace");
                files.run(&incoming);
            };
            // Nothing that it owned is used again; events that wait for it are counted at the end.
            if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
                let because = message(panic.as_ref());
                let error = format!("the thread \"trace\" stopped because of a defect ({because})");
                lock(&of_thread.error).get_or_insert(error);
            }
        })?;
        let clock = ThreadClock::of(&thread);
        Ok(Self { orders, end, clock, shared, held: None, lost: RecordedGaps::default(), behind: 0 })
    }

    /// Notes that a process runs; its rank can be read while it does.
    pub(crate) fn note_process(&self, pid: u32) {
        if self.shared.processes.load(Ordering::Acquire) < PROCESSES_MAX {
            self.shared.processes.fetch_add(1, Ordering::AcqRel);
            // A thread that is gone has left its error.
            _ = self.orders.send(Order::Process(pid));
        }
    }

    /// Queues events to be written; those without room become a gap.
    pub(crate) fn take(&mut self, batch: RecordedBatch) {
        let mut batch = match self.held.take() {
            Some(mut held) => {
                held.lanes.extend(batch.lanes);
                RecordedBatch { events: batch.events, ..held }
            }
            None => batch,
        };
        if self.shared.waiting().saturating_add(batch.events.len()) > WAITING_MAX {
            batch.events.drain(..).for_each(|event| self.lose(&event));
            self.held = Some(batch);
            return;
        }
        batch.events.extend(self.lost.take());
        self.shared.waiting.fetch_add(batch.events.len(), Ordering::AcqRel);
        // A thread that is gone has left its error.
        _ = self.orders.send(Order::Write(batch));
    }

    fn lose(&mut self, event: &RecordedEvent) {
        // The events of a gap are in the account already.
        self.behind += u64::from(event.kind != RecordedKind::Gap);
        self.lost.add(event);
    }

    /// Why events could not be written, if any.
    pub(crate) fn error(&self) -> Option<String> {
        lock(&self.shared.error).clone()
    }

    /// Queues the remaining events and the account.
    pub(crate) fn finish(mut self, mut account: RecordedAccount) -> EndingTrace {
        let gaps = self.lost.take().collect();
        let last = RecordedBatch { events: gaps, ..self.held.take().unwrap_or_default() };
        if !last.lanes.is_empty() || !last.events.is_empty() {
            self.shared.waiting.fetch_add(last.events.len(), Ordering::AcqRel);
            _ = self.orders.send(Order::Write(last));
        }
        account.leave_out(NotTraced::WriterBehind, self.behind);
        account.kept = account.kept.saturating_sub(self.behind);
        _ = self.orders.send(Order::Finish(account));
        let thread = EndingThread::new(self.clock, self.shared.waiting());
        EndingTrace { account, end: self.end, thread, shared: self.shared }
    }
}

impl SharedState {
    fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }
}

/// The last events on their way to the disk.
#[derive(Debug)]
pub(crate) struct EndingTrace {
    account: RecordedAccount,
    end: Receiver<()>,
    thread: EndingThread,
    shared: Arc<SharedState>,
}

impl EndingTrace {
    /// Whether events are still written, and there is progress.
    pub(crate) fn is_writing(&mut self) -> bool {
        !has_ended(&self.end) && self.thread.goes_on(self.shared.waiting())
    }

    /// Waits until all is written, or there is no progress; returns the account and the last error.
    pub(crate) fn wait(mut self) -> (RecordedAccount, Option<String>) {
        while self.is_writing() {
            std::thread::sleep(LOOK_EVERY);
        }
        let Self { mut account, end, shared, .. } = self;
        if !has_ended(&end) {
            let lasted = END_LONGEST.as_secs();
            let error = format!("the disk did not take the last part within {lasted} s: it ends before that");
            *lock(&shared.error) = Some(error);
        }
        let abandoned = shared.waiting.swap(0, Ordering::AcqRel) as u64;
        shared.unwritten.fetch_add(abandoned, Ordering::AcqRel);
        move_unwritten(&mut account, &shared);
        (account, lock(&shared.error).take())
    }
}

/// Moves unwritten events from kept to lost in the account.
fn move_unwritten(account: &mut RecordedAccount, shared: &SharedState) {
    let unwritten = shared.unwritten.load(Ordering::Acquire);
    account.kept = account.kept.saturating_sub(unwritten);
    account.leave_out(NotTraced::WriterBehind, unwritten);
}

/// The thread's side.
struct Files {
    writer: TraceWriter,
    shared: Arc<SharedState>,
    /// Contents of the next file.
    batch: RecordedBatch,
    /// Events of files that could not be written, by lane.
    lost: RecordedGaps,
    asked: AskedProcesses,
}

/// How often each process was asked for its rank.
#[derive(Debug, Default)]
struct AskedProcesses(FxHashMap<u32, AskedProcess>);

#[derive(Debug)]
struct AskedProcess {
    /// Its start: a later process may have the same number.
    started: Option<u64>,
    /// The maximum once its rank is known.
    times: u32,
}

impl AskedProcesses {
    /// Whether the process of this number that began then is to be asked once more.
    fn is_due(&mut self, pid: u32, started: Option<u64>) -> bool {
        if self.0.len() >= REMEMBERED_MAX && !self.0.contains_key(&pid) {
            self.0.clear();
        }
        let process = self.0.entry(pid).or_insert(AskedProcess { started, times: 0 });
        if process.started != started {
            *process = AskedProcess { started, times: 0 };
        }
        process.times = process.times.saturating_add(1);
        process.times <= RANK_ASKED_MAX
    }

    /// The rank of a process is known.
    fn is_known(&mut self, pid: u32) {
        if let Some(process) = self.0.get_mut(&pid) {
            process.times = RANK_ASKED_MAX;
        }
    }
}

impl Files {
    fn run(mut self, orders: &Receiver<Order>) {
        let mut next_flush = Instant::now() + FLUSH;
        loop {
            match orders.recv_deadline(next_flush) {
                Ok(Order::Write(more)) => {
                    if self.batch.lanes.is_empty() {
                        self.batch.first_lane = more.first_lane;
                    }
                    self.batch.lanes.extend(more.lanes);
                    self.batch.events.extend(more.events);
                }
                Ok(Order::Process(pid)) => {
                    self.note_rank(pid);
                    self.shared.processes.fetch_sub(1, Ordering::AcqRel);
                }
                Ok(Order::Finish(mut account)) => {
                    self.flush();
                    // When events were lost takes less room than they do.
                    self.flush();
                    move_unwritten(&mut account, &self.shared);
                    let finished = self.writer.finish(&account);
                    return self.note(finished.err().map(|error| error.to_string()));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return self.flush(),
            }
            if self.batch.events.len() >= FILE_EVENTS || Instant::now() >= next_flush {
                self.flush();
                next_flush = Instant::now() + FLUSH;
            }
        }
    }

    /// Reads a process's rank: again after an exec, since its environment may have changed.
    fn note_rank(&mut self, pid: u32) {
        if self.asked.is_due(pid, start_ticks(pid))
            && let Some(ProcessRank { rank, size }) = rank_of(pid)
        {
            self.asked.is_known(pid);
            self.writer.set_rank(pid, rank, size);
        }
    }

    fn flush(&mut self) {
        let waited = self.batch.events.len();
        self.batch.events.extend(self.lost.take());
        if self.batch.events.is_empty() {
            return;
        }
        match self.writer.append(&mut self.batch) {
            Ok(()) => self.batch.lanes.clear(),
            Err(error) => {
                // Lanes are tried again: later events need them. The events of a gap are in the account already.
                let events = self.batch.events.iter().filter(|event| event.kind != RecordedKind::Gap).count();
                self.shared.unwritten.fetch_add(events as u64, Ordering::AcqRel);
                self.batch.events.iter().for_each(|event| self.lost.add(event));
                self.note(Some(error.to_string()));
            }
        }
        self.batch.events.clear();
        self.shared.waiting.fetch_sub(waited, Ordering::AcqRel);
    }

    fn note(&self, error: Option<String>) {
        if let Some(error) = error {
            *lock(&self.shared.error) = Some(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use deepctx_profile::profile::Meta;
    use deepctx_profile::trace::{End, Lane};
    use deepctx_profile::tree::NodeId;
    use deepctx_profile::units::Nanos;
    use deepctx_storage::store::Writer;

    use super::*;

    fn event(number: u64) -> RecordedEvent {
        RecordedEvent {
            kind: RecordedKind::Launch,
            end: End::After(Nanos(1)),
            id: number,
            node: NodeId::ROOT,
            ..RecordedEvent::gap(0, Nanos(number), Nanos(number), 0)
        }
    }

    fn batch(events: u64) -> RecordedBatch {
        let lanes = vec![Lane::Thread { pid: 7, tid: 8 }];
        RecordedBatch { lanes, first_lane: 0, events: (0..events).map(event).collect() }
    }

    #[test]
    fn events_are_written_or_counted() {
        let check = |batches: &[u64], kept: u64, behind: u64| {
            let folder = std::env::temp_dir().join(format!("deepctx-trace-{}-{kept}", std::process::id()));
            _ = std::fs::remove_dir_all(&folder);
            let profile = Writer::create(&folder, &Meta::default()).unwrap();
            let mut sink =
                TraceSink::new(TraceWriter::create(profile.folder(), Some(Nanos(9))).unwrap()).unwrap();
            for events in batches {
                sink.take(batch(*events));
            }
            let all = batches.iter().sum();
            let account = RecordedAccount::new(all, all);
            let (account, error) = sink.finish(account).wait();
            std::fs::remove_dir_all(&folder).unwrap();
            assert_eq!(error, None);
            assert_eq!((account.kept, account.left_out(NotTraced::WriterBehind)), (kept, behind));
            assert_eq!(account.received, account.kept + account.lost());
        };
        check(&[3], 3, 0);
        check(&[WAITING_MAX as u64 + 1], 0, WAITING_MAX as u64 + 1);
    }

    #[test]
    fn events_of_a_failed_write_become_a_gap() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = temporary.path().join("run.dctx");
        let profile = Writer::create(&folder, &Meta::default()).unwrap();
        // A folder in the file's place simulates a full disk.
        std::fs::create_dir(folder.join("trace-000000.parquet")).unwrap();
        let writer = TraceWriter::create(profile.folder(), Some(Nanos(9))).unwrap();
        let mut sink = TraceSink::new(writer).unwrap();
        sink.take(batch(3));
        let (account, error) = sink.finish(RecordedAccount::new(3, 3)).wait();
        assert!(error.is_some());
        assert_eq!((account.kept, account.left_out(NotTraced::WriterBehind)), (0, 3));
        let list = std::fs::read(folder.join("trace.json")).unwrap();
        let list: serde_json::Value = serde_json::from_slice(&list).unwrap();
        let written = list["segments"].as_array().unwrap().iter().map(|file| (&file["file"], &file["rows"]));
        let written: Vec<String> = written.map(|(file, rows)| format!("{file} {rows}")).collect();
        assert_eq!(written, [r#""trace-lanes-000001.parquet" 1"#, r#""trace-000001.parquet" 1"#]);
    }

    #[test]
    fn a_process_with_a_number_used_again_is_asked_anew() {
        let mut asked = AskedProcesses::default();
        let mut asks = |started| (0..20).filter(|_| asked.is_due(7, Some(started))).count();
        let most = RANK_ASKED_MAX as usize;
        assert_eq!([asks(100), asks(100), asks(200)], [most, 0, most]);
        asked.is_due(7, Some(300));
        asked.is_known(7);
        assert!(!asked.is_due(7, Some(300)) && asked.is_due(7, Some(400)));
    }

    #[test]
    fn only_so_many_processes_wait_for_the_disk() {
        let ((orders, incoming), (_ended, end)) = (unbounded(), bounded(0));
        let (clock, shared, lost) = (ThreadClock::default(), Arc::default(), RecordedGaps::default());
        let sink = TraceSink { orders, end, clock, shared, held: None, lost, behind: 0 };
        (0..2 * PROCESSES_MAX as u32).for_each(|pid| sink.note_process(pid));
        assert_eq!(incoming.len(), PROCESSES_MAX);
    }
}
