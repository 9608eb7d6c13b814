//! Whether anybody listens.
//!
//! Owns: the one thread, which looks at the counter of listeners and starts and ends collections. Because: nobody
//! listening, nothing may be asked of CUPTI. Does not: look at records.
//!
//! Nobody listening, the thread wakes ten times a second, reads two bytes and sleeps again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use deepctx_common::activity::state;

use crate::cupti::Error;
use crate::session::Collection;
use crate::{clock, devices, fork, guard, names, probe, sampling, session};

/// How often the counter is looked at.
const LOOK: Duration = Duration::from_millis(100);
/// How often the clocks are compared, and names told again.
const CLOCK: Duration = Duration::from_secs(1);
/// How often a CUPTI that another tool has is asked for again.
const RETRY: Duration = Duration::from_secs(1);

/// Starts the thread, once.
pub(crate) fn start() {
    static STARTED: AtomicBool = AtomicBool::new(false);
    if STARTED.swap(true, Ordering::Relaxed) {
        return;
    }
    fork::watch();
    sampling::prepare();
    // SAFETY: the function lives as long as the process: the driver does not unload us.
    unsafe { libc::atexit(at_exit) };
    let thread = std::thread::Builder::new().name("deepctx".to_owned()).stack_size(256 << 10);
    // Without a thread there is no collection; the program goes on as if we were not there.
    let _ = thread.spawn(|| guard(watch));
}

/// The program ends: what CUPTI still has is told.
extern "C" fn at_exit() {
    if !fork::is_child() && probe::listeners() > 0 {
        guard(session::finish);
    }
}

/// What is going on.
enum Now {
    Idle,
    Collecting(Arc<Collection>),
    /// Asked and refused; asked again at that time, or not at all.
    Refused(Option<Instant>),
}

fn watch() {
    block_signals();
    let mut now = Now::Idle;
    let mut heard = 0;
    let mut sampled = 0;
    let mut clock_due = Instant::now();
    loop {
        if fork::is_child() {
            return;
        }
        let listeners = probe::listeners();
        if listeners > heard {
            // Somebody new, who knows no names yet.
            names::forget();
            if let Now::Collecting(collection) = &now {
                probe::state(state::COLLECTING, collection.version().into());
            }
            clock_due = Instant::now();
        }
        heard = listeners;
        now = match now {
            Now::Idle if listeners > 0 => begin(),
            Now::Refused(Some(again)) if listeners > 0 && Instant::now() >= again => begin(),
            Now::Collecting(collection) if listeners == 0 => {
                collection.end();
                probe::state(state::IDLE, 0);
                Now::Idle
            }
            Now::Refused(_) if listeners == 0 => Now::Idle,
            other => other,
        };
        let samplers = if matches!(now, Now::Collecting(_)) { probe::samplers() } else { 0 };
        if let Now::Collecting(collection) = &now {
            collection.sample(samplers, sampled);
            if Instant::now() >= clock_due {
                // Somebody may have come in the moment in which another one went, which the counter does not show.
                names::forget();
                devices::tell();
                clock::tell(collection);
                clock_due = Instant::now() + CLOCK;
            }
            collection.tell_losses();
        }
        sampled = samplers;
        std::thread::sleep(LOOK);
    }
}

fn begin() -> Now {
    match Collection::begin() {
        Ok(collection) => {
            probe::state(state::COLLECTING, collection.version().into());
            clock::tell(&collection);
            Now::Collecting(collection)
        }
        Err(error @ Error::MULTIPLE_SUBSCRIBERS) => {
            probe::state(state::BUSY, number(error));
            Now::Refused(Some(Instant::now() + RETRY))
        }
        Err(error) => {
            probe::state(state::UNUSABLE, number(error));
            Now::Refused(None)
        }
    }
}

/// CUPTI's number; our own are those below 0, as 32 bits.
fn number(Error(error): Error) -> u64 {
    error.cast_unsigned().into()
}

/// Signals belong to the program's own threads; those that an instruction of ours would raise stay ours.
fn block_signals() {
    const OWN: [i32; 6] =
        [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];
    // SAFETY: all zeroes are a value of it; the calls get a valid set.
    unsafe {
        let mut blocked: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut blocked);
        for signal in OWN {
            libc::sigdelset(&raw mut blocked, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const blocked, std::ptr::null_mut());
    }
}
