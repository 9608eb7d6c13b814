//! Listeners: starts and ends collections.
//!
//! Owns: the one thread, which polls the counter of listeners. Because: without a listener, CUPTI must not be used at
//! all. Does not: read records.
//!
//! Without a listener, the thread wakes ten times a second, reads two bytes and sleeps again.
//!
//! A program that a profiler started is different: there the collection begins within `cuInit`, before there is a
//! context, as NVIDIA's own tools that are loaded this way do. A program was seen to die with CUPTI 13.0 as it made its
//! first launch while another thread subscribed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Builder;
use std::time::{Duration, Instant};

use deepctx_common::activity::{RECORDER_VARIABLE, state};

use crate::cupti::Error;
use crate::session::{Collection, CollectionStart};
use crate::{clock, devices, fork, guard, names, probe, sampling, session};

/// How often the counter is polled.
const POLL: Duration = Duration::from_millis(100);
/// How often the clocks are compared and names reported again.
const CLOCK: Duration = Duration::from_secs(1);
/// How often to retry when another tool uses CUPTI.
const RETRY: Duration = Duration::from_secs(1);
/// How long `cuInit` waits for the profiler that started the program. It attaches its probes once it sees this library
/// mapped, milliseconds later.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(1);
const ATTACH_POLL: Duration = Duration::from_millis(1);

/// Starts the thread, once. Starts the collection first if the profiler that started the program listens.
pub(crate) fn start() {
    static STARTED: AtomicBool = AtomicBool::new(false);
    if STARTED.swap(true, Ordering::Relaxed) {
        return;
    }
    fork::watch();
    sampling::prepare();
    // SAFETY: the function lives as long as the process: the driver does not unload us.
    unsafe { libc::atexit(at_exit) };
    let thread = Builder::new().name("deepctx".to_owned()).stack_size(256 << 10);
    let status = if recorder_lives() { first_collection() } else { Status::Idle };
    let begun = match &status {
        Status::Collecting(collection) => Some(Arc::clone(collection)),
        Status::Idle | Status::Refused(_) => None,
    };
    // Without a thread there is no collection, and the program runs unaffected.
    if !start_thread(thread, || guard(|| watch(status)))
        && let Some(collection) = begun
    {
        end(&collection);
    }
}

/// Starts a thread that never takes the program's signals. False if there can be none.
fn start_thread(thread: Builder, body: impl FnOnce() + Send + 'static) -> bool {
    let before = block_signals();
    let started = thread.spawn(body).is_ok();
    restore_signals(&before);
    started
}

/// Whether the profiler that started the program still runs. In another pid namespace it cannot be found; the
/// collection then begins when the thread sees a listener.
fn recorder_lives() -> bool {
    let pid: Option<u32> = std::env::var(RECORDER_VARIABLE).ok().and_then(|pid| pid.parse().ok());
    pid.is_some_and(|pid| std::path::Path::new(&format!("/proc/{pid}")).exists())
}

/// Waits for the profiler's probes, then begins. CUPTI's threads must not take the program's signals.
fn first_collection() -> Status {
    let end = Instant::now() + ATTACH_TIMEOUT;
    while probe::listeners() == 0 && Instant::now() < end {
        std::thread::sleep(ATTACH_POLL);
    }
    if probe::listeners() == 0 {
        return Status::Idle;
    }
    let before = block_signals();
    let status = begin(CollectionStart::DriverStart);
    restore_signals(&before);
    status
}

/// Runs when the program ends: reports what CUPTI still has.
extern "C" fn at_exit() {
    if !fork::is_child() && probe::listeners() > 0 {
        guard(session::finish);
    }
}

/// State of the thread.
enum Status {
    Idle,
    Collecting(Arc<Collection>),
    /// CUPTI refused; retried at that time, or never.
    Refused(Option<Instant>),
}

fn watch(mut status: Status) {
    // Listeners present when the collection begins need no second report.
    let mut known_listeners = if matches!(status, Status::Idle) { 0 } else { probe::listeners() };
    let mut sampled = 0;
    let mut clock_due = Instant::now();
    loop {
        if fork::is_child() {
            return;
        }
        let listeners = probe::listeners();
        if listeners > known_listeners {
            // A new listener has no names yet.
            names::forget();
            if let Status::Collecting(collection) = &status {
                probe::state(state::COLLECTING, collection.version().into());
            }
            clock_due = Instant::now();
        }
        known_listeners = listeners;
        status = match status {
            Status::Idle if listeners > 0 => begin(CollectionStart::Now),
            Status::Refused(Some(again)) if listeners > 0 && Instant::now() >= again => {
                begin(CollectionStart::Now)
            }
            Status::Collecting(collection) if listeners == 0 => {
                end(&collection);
                Status::Idle
            }
            Status::Refused(_) if listeners == 0 => Status::Idle,
            other => other,
        };
        let samplers = if matches!(status, Status::Collecting(_)) { probe::samplers() } else { 0 };
        if let Status::Collecting(collection) = &status {
            collection.sample(samplers, sampled);
            if Instant::now() >= clock_due {
                // A listener may have arrived while another left; the counter does not show that.
                names::forget();
                devices::report();
                clock::report(collection);
                clock_due = Instant::now() + CLOCK;
            }
            collection.report_losses();
        }
        sampled = samplers;
        std::thread::sleep(POLL);
    }
}

fn begin(since: CollectionStart) -> Status {
    match Collection::begin(since) {
        Ok(collection) => {
            probe::state(state::COLLECTING, collection.version().into());
            clock::report(&collection);
            Status::Collecting(collection)
        }
        Err(error @ Error::MULTIPLE_SUBSCRIBERS) => {
            probe::state(state::BUSY, number(error));
            Status::Refused(Some(Instant::now() + RETRY))
        }
        Err(error) => {
            probe::state(state::UNUSABLE, number(error));
            Status::Refused(None)
        }
    }
}

fn end(collection: &Collection) {
    collection.end();
    probe::state(state::IDLE, 0);
}

/// CUPTI's number; our own are negative, as 32 bits.
fn number(Error(error): Error) -> u64 {
    error.cast_unsigned().into()
}

/// Blocks signals, which belong to the program's own threads, except those that our own instructions would raise.
/// Returns the previous mask.
fn block_signals() -> libc::sigset_t {
    const OWN: [i32; 6] =
        [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];
    // SAFETY: all zeroes are a valid value; the calls get valid sets.
    unsafe {
        let (mut blocked, mut before): (libc::sigset_t, libc::sigset_t) = std::mem::zeroed();
        libc::sigfillset(&raw mut blocked);
        for signal in OWN {
            libc::sigdelset(&raw mut blocked, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const blocked, &raw mut before);
        before
    }
}

fn restore_signals(before: &libc::sigset_t) {
    // SAFETY: a set that `block_signals` returned.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const *before, std::ptr::null_mut()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether this thread takes no signals of the program.
    fn takes_none() -> bool {
        // SAFETY: all zeroes are a valid value; the calls get a valid set, and no new mask.
        unsafe {
            let mut mask: libc::sigset_t = std::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut mask);
            libc::sigismember(&raw const mask, libc::SIGTERM) == 1
        }
    }

    #[test]
    fn the_thread_never_takes_signals_of_the_program() {
        let (send, receive) = std::sync::mpsc::channel();
        assert!(start_thread(Builder::new(), move || send.send(takes_none()).unwrap()));
        assert_eq!((receive.recv(), takes_none()), (Ok(true), false));
    }

    #[test]
    fn without_a_thread_the_program_keeps_its_signals() {
        // No address space is that large.
        assert!(!start_thread(Builder::new().stack_size(1 << 48), || {}));
        assert!(!takes_none());
    }
}
