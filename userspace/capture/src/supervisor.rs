//! Supervisor: threads that must live as long as the capture.
//!
//! Owns: starting them, and recording which one ended first, and why. Because: a capture without its scans or its
//! probes looks healthy but gives wrong results; its caller must learn of that, keep the data, and end. Does not:
//! stop the capture, or restart a thread: its state is lost.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

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

/// Starts threads and records their early ends. Clones share the record.
#[derive(Clone, Debug, Default)]
pub struct Supervisor(Arc<Mutex<Option<EarlyEnd>>>);

impl Supervisor {
    /// Starts a thread. `missing`: what a capture lacks without it.
    ///
    /// # Errors
    /// No thread can be made.
    pub fn spawn(
        &self,
        thread: &'static str,
        missing: &'static str,
        body: impl FnOnce() + Send + 'static,
    ) -> io::Result<JoinHandle<()>> {
        let first = self.clone();
        let body = move || {
            defect_for_tests(thread);
            body();
        };
        Builder::new().name(thread.into()).spawn(move || {
            // Nothing that the body owned is used again.
            if let Err(panic) = catch_unwind(AssertUnwindSafe(body)) {
                let because = EndCause::Defect(message(panic.as_ref()));
                first.report(EarlyEnd { thread, missing, because });
            }
        })
    }

    /// Records that a thread ended early.
    pub fn report(&self, end: EarlyEnd) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(end);
    }

    /// The first thread that ended early, if any.
    pub fn ended_early(&self) -> Option<EarlyEnd> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Panics in a debug build if a test wants this thread to stop: only so can the effect on a capture be tested.
pub fn defect_for_tests(thread: &str) {
    let is_wanted = || std::env::var("DEEPCTX_TEST_DEFECT").is_ok_and(|wanted| wanted == thread);
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
        let thread = supervisor.spawn("scan", "new code has no rows", move || panic!("number {number}"));
        thread.unwrap().join().unwrap();
        let end = supervisor.clone().ended_early().unwrap();
        let said = "the thread \"scan\" stopped because of a defect (number 7): new code has no rows";
        assert_eq!(end.to_string(), said);
    }

    #[test]
    fn the_first_early_end_is_kept() {
        let supervisor = Supervisor::default();
        supervisor.spawn("good", "nothing", || {}).unwrap().join().unwrap();
        assert_eq!(supervisor.ended_early(), None);
        for thread in ["first", "second"] {
            supervisor.spawn(thread, "all", || panic!("over")).unwrap().join().unwrap();
        }
        assert_eq!(supervisor.ended_early().unwrap().thread, "first");
    }
}
