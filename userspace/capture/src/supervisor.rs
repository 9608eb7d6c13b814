//! Supervisor: threads that must live as long as the capture.
//!
//! Owns: starting them, some of them twice, recording which one ended first and why, and noticing which one hangs.
//! Because: a capture without its scans or its probes looks healthy but gives wrong results; its caller must learn of
//! that, keep the data, and end. Does not: stop the capture, or restart a thread whose state is lost with it.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use super::clock::monotonic_ns;

/// A thread that ended before the capture did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EarlyEnd {
    /// Name of the thread.
    pub thread: &'static str,
    /// What is missing from then on.
    pub missing: &'static str,
    /// Why it ended.
    pub because: EndCause,
}

/// Why a thread ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndCause {
    /// It panicked with this message.
    Defect(String),
    /// The system refused something essential.
    System(String),
}

impl std::fmt::Display for EndCause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Defect(panic) => write!(f, "a defect ({panic})"),
            Self::System(error) => f.write_str(error),
        }
    }
}

impl std::fmt::Display for EarlyEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { thread, missing, because } = self;
        write!(f, "the thread {thread:?} stopped because of {because}: {missing}")
    }
}

/// A thread that ended because of a defect, and was started again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restart {
    /// Name of the thread.
    pub thread: &'static str,
    /// Message of its panic.
    pub panic: String,
}

impl std::fmt::Display for Restart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { thread, panic } = self;
        write!(f, "the thread {thread:?} was started again after a defect ({panic}); please report this")
    }
}

/// How long one piece of work may take before a report: attaching to thousands of functions takes less.
pub const STALL_MIN: Duration = Duration::from_secs(20);

/// A thread that has been at one piece of work for too long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stall {
    /// Name of the thread.
    pub thread: &'static str,
    /// What is missing until it is done.
    pub missing: &'static str,
    /// How long it has been at it.
    pub lasted: Duration,
}

impl std::fmt::Display for Stall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { thread, missing, lasted } = self;
        write!(f, "the thread {thread:?} has made no progress for {} s: {missing}", lasted.as_secs())
    }
}

/// Records when a thread began its present piece of work. Clones share the record.
#[derive(Clone, Debug)]
pub struct Heartbeat {
    thread: &'static str,
    /// On the monotonic clock; [`WAITING`] while the thread waits for work.
    began_ns: Arc<AtomicU64>,
}

const WAITING: u64 = 0;

impl Heartbeat {
    fn new(thread: &'static str) -> Self {
        Self { thread, began_ns: Arc::new(AtomicU64::new(WAITING)) }
    }

    /// The thread begins a piece of work.
    pub fn beat(&self) {
        self.began_ns.store(monotonic_ns().max(1), Ordering::Relaxed);
        standstill_for_tests(self.thread);
    }

    /// The thread waits for work.
    pub fn idle(&self) {
        self.began_ns.store(WAITING, Ordering::Relaxed);
    }
}

/// A started thread.
#[derive(Debug)]
struct Supervised {
    missing: &'static str,
    heartbeat: Heartbeat,
    /// Beginning of the piece of work that was last reported as a stall.
    reported_ns: u64,
}

#[derive(Debug, Default)]
struct Record {
    first_end: Option<EarlyEnd>,
    /// Restarts since they were last asked for.
    restarts: Vec<Restart>,
    threads: Vec<Supervised>,
}

/// Starts threads and records their early ends and their stalls. Clones share the record.
#[derive(Clone, Debug, Default)]
pub struct Supervisor(Arc<Mutex<Record>>);

impl Supervisor {
    /// Starts a thread. `missing`: what a capture lacks without it. Its body calls the heartbeat when it begins a piece
    /// of work, and when it waits.
    ///
    /// # Errors
    /// No thread can be made.
    pub fn spawn(
        &self,
        thread: &'static str,
        missing: &'static str,
        body: impl FnOnce(&Heartbeat) + Send + 'static,
    ) -> io::Result<JoinHandle<()>> {
        // Nothing that the body owned is used again.
        let run = move |heartbeat: &Heartbeat| panic_of(thread, heartbeat, body);
        self.spawn_by(Builder::new(), thread, missing, run)
    }

    /// As [`Self::spawn`], for a body that may run a second time: whatever piece of work it panicked at, what it keeps
    /// between them stays valid. The second panic ends the thread.
    ///
    /// # Errors
    /// No thread can be made.
    pub fn spawn_restartable(
        &self,
        thread: &'static str,
        missing: &'static str,
        mut body: impl FnMut(&Heartbeat) + Send + 'static,
    ) -> io::Result<JoinHandle<()>> {
        let supervisor = self.clone();
        let run = move |heartbeat: &Heartbeat| {
            let panic = panic_of(thread, heartbeat, &mut body)?;
            supervisor.record().restarts.push(Restart { thread, panic });
            panic_of(thread, heartbeat, &mut body)
        };
        self.spawn_by(Builder::new(), thread, missing, run)
    }

    /// `run` returns the message of the panic that ended the thread.
    fn spawn_by(
        &self,
        builder: Builder,
        thread: &'static str,
        missing: &'static str,
        run: impl FnOnce(&Heartbeat) -> Option<String> + Send + 'static,
    ) -> io::Result<JoinHandle<()>> {
        let first = self.clone();
        let heartbeat = Heartbeat::new(thread);
        let supervised = Supervised { missing, heartbeat: heartbeat.clone(), reported_ns: WAITING };
        let started = builder.name(thread.into()).spawn(move || {
            if let Some(panic) = run(&heartbeat) {
                first.report(EarlyEnd { thread, missing, because: EndCause::Defect(panic) });
            }
        })?;
        // Whoever cannot start a thread may try again and again.
        self.record().threads.push(supervised);
        Ok(started)
    }

    /// Records that a thread ended early.
    pub fn report(&self, end: EarlyEnd) {
        self.record().first_end.get_or_insert(end);
    }

    /// The first thread that ended early, if any.
    pub fn ended_early(&self) -> Option<EarlyEnd> {
        self.record().first_end.clone()
    }

    /// Threads that were started again since the last call.
    pub fn newly_restarted(&self) -> Vec<Restart> {
        std::mem::take(&mut self.record().restarts)
    }

    /// Threads that have been at one piece of work for longer than `limit`, each piece once.
    pub fn newly_stalled(&self, limit: Duration) -> Vec<Stall> {
        let now_ns = monotonic_ns();
        let mut record = self.record();
        let stalled = record.threads.iter_mut().filter_map(|supervised| {
            let Supervised { missing, heartbeat, reported_ns } = supervised;
            let began_ns = heartbeat.began_ns.load(Ordering::Relaxed);
            let lasted = Duration::from_nanos(now_ns.saturating_sub(began_ns));
            if began_ns == WAITING || began_ns == *reported_ns || lasted < limit {
                return None;
            }
            *reported_ns = began_ns;
            Some(Stall { thread: heartbeat.thread, missing, lasted })
        });
        stalled.collect()
    }

    fn record(&self) -> MutexGuard<'_, Record> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs the body of a thread. Returns the message of its panic.
fn panic_of(thread: &str, heartbeat: &Heartbeat, body: impl FnOnce(&Heartbeat)) -> Option<String> {
    let body = || {
        defect_for_tests(thread);
        body(heartbeat);
    };
    let ended = catch_unwind(AssertUnwindSafe(body));
    // A thread that has ended does not hang.
    heartbeat.idle();
    ended.err().map(|panic| message(panic.as_ref()))
}

/// Panics in a debug build if a test wants this thread to stop: only so can the effect on a capture be tested. With
/// `THREAD:once`, the first time only.
pub fn defect_for_tests(thread: &str) {
    static WAS_ONCE: AtomicBool = AtomicBool::new(false);
    let is_wanted = || {
        let wanted = std::env::var("DEEPCTX_TEST_DEFECT").unwrap_or_default();
        match wanted.strip_suffix(":once") {
            Some(wanted) => wanted == thread && !WAS_ONCE.swap(true, Ordering::Relaxed),
            None => wanted == thread,
        }
    };
    assert!(!cfg!(debug_assertions) || !is_wanted(), "a test wants it");
}

/// Waits forever in a debug build if a test wants this thread to hang.
pub fn standstill_for_tests(thread: &str) {
    while cfg!(debug_assertions)
        && std::env::var("DEEPCTX_TEST_STANDSTILL").is_ok_and(|wanted| wanted == thread)
    {
        std::thread::park();
    }
}

/// The message of a panic; the standard library and `panic!` use text.
pub fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_panics_is_reported_with_its_message() {
        let supervisor = Supervisor::default();
        let number = 7;
        let thread = supervisor.spawn("scan", "new code has no rows", move |_| panic!("number {number}"));
        thread.unwrap().join().unwrap();
        let end = supervisor.clone().ended_early().unwrap();
        let said = "the thread \"scan\" stopped because of a defect (number 7): new code has no rows";
        assert_eq!(end.to_string(), said);
    }

    #[test]
    fn a_thread_that_cannot_be_made_is_not_supervised() {
        let supervisor = Supervisor::default();
        // No address space has room for this stack.
        let builder = Builder::new().stack_size(1 << 60);
        assert!(supervisor.spawn_by(builder, "scan", "new code has no rows", |_| None).is_err());
        assert!(supervisor.record().threads.is_empty());
        supervisor.spawn("scan", "new code has no rows", |_| {}).unwrap().join().unwrap();
        assert_eq!(supervisor.record().threads.len(), 1);
    }

    #[test]
    fn a_restartable_thread_survives_one_panic() {
        let check = |panics: u32, expect_runs: u32, expect_restarts: usize, expect_end: bool| {
            let supervisor = Supervisor::default();
            let (sender, runs) = crossbeam_channel::unbounded();
            let mut run = 0;
            let body = move |heartbeat: &Heartbeat| {
                heartbeat.beat();
                run += 1;
                sender.send(run).unwrap();
                assert!(run > panics, "run {run}");
            };
            supervisor.spawn_restartable("waits", "all", body).unwrap().join().unwrap();
            assert_eq!(runs.iter().last(), Some(expect_runs), "{panics}");
            assert_eq!(supervisor.newly_restarted().len(), expect_restarts, "{panics}");
            assert!(supervisor.newly_restarted().is_empty(), "each is reported once");
            assert_eq!(supervisor.ended_early().is_some(), expect_end, "{panics}");
            assert!(supervisor.newly_stalled(Duration::ZERO).is_empty(), "{panics}");
        };
        check(0, 1, 0, false);
        check(1, 2, 1, false);
        check(2, 2, 1, true);
    }

    #[test]
    fn a_restart_is_told_with_its_cause() {
        let restart = Restart { thread: "gpus", panic: "over".to_owned() };
        let said = "the thread \"gpus\" was started again after a defect (over); please report this";
        assert_eq!(restart.to_string(), said);
    }

    #[test]
    fn the_first_early_end_is_kept() {
        let supervisor = Supervisor::default();
        supervisor.spawn("good", "nothing", |_| {}).unwrap().join().unwrap();
        assert_eq!(supervisor.ended_early(), None);
        for thread in ["first", "second"] {
            supervisor.spawn(thread, "all", |_| panic!("over")).unwrap().join().unwrap();
        }
        assert_eq!(supervisor.ended_early().unwrap().thread, "first");
    }

    #[test]
    fn work_that_lasts_too_long_is_reported_once() {
        let supervisor = Supervisor::default();
        let (steps, next) = crossbeam_channel::bounded::<bool>(0);
        let (done, taken) = crossbeam_channel::bounded::<()>(0);
        let body = move |heartbeat: &Heartbeat| {
            for works in next {
                if works {
                    heartbeat.beat()
                } else {
                    heartbeat.idle()
                }
                done.send(()).unwrap();
            }
        };
        let thread = supervisor.spawn("scan", "new code has no rows", body).unwrap();
        let step = |works| {
            steps.send(works).unwrap();
            taken.recv().unwrap();
        };
        let names = |limit| -> Vec<&str> {
            supervisor.newly_stalled(limit).iter().map(|stall| stall.thread).collect()
        };
        // A thread that waits is not expected to do anything.
        assert!(names(Duration::ZERO).is_empty());
        step(true);
        assert!(names(Duration::MAX).is_empty());
        assert_eq!(names(Duration::ZERO), ["scan"]);
        assert!(names(Duration::ZERO).is_empty());
        step(true);
        assert_eq!(names(Duration::ZERO), ["scan"]);
        step(false);
        assert!(names(Duration::ZERO).is_empty());
        step(true);
        drop(steps);
        thread.join().unwrap();
        assert!(names(Duration::ZERO).is_empty());
    }

    #[test]
    fn a_thread_that_panicked_at_work_does_not_hang() {
        let supervisor = Supervisor::default();
        let thread = supervisor.spawn("scan", "new code has no rows", |heartbeat| {
            heartbeat.beat();
            panic!("over")
        });
        thread.unwrap().join().unwrap();
        assert!(supervisor.ended_early().is_some());
        assert!(supervisor.newly_stalled(Duration::ZERO).is_empty());
    }

    #[test]
    fn a_stall_says_what_is_missing() {
        let stall =
            Stall { thread: "drain", missing: "nothing is recorded", lasted: Duration::from_millis(20_400) };
        assert_eq!(
            stall.to_string(),
            "the thread \"drain\" has made no progress for 20 s: nothing is recorded"
        );
    }
}
