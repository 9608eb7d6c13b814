//! Signals: those that end a capture, and those that request something of it.
//!
//! Owns: which signals the loop waits for, and how many have requested the end. Because: a second one means something
//! else than the first, and the same set applies while the capture runs and while it ends. Does not: act on them.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::EndConditions;
use crate::held_signal::{BEGIN_TRACE, HeldSignal, WRITE_KEPT};

/// Signals that end a capture.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// `None` under `nohup`.
    hang_up: Option<Signal>,
    /// Number of signals received.
    pub(super) came: u32,
}

/// The kind of end that a signal requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    Interrupt,
    Terminate,
}

impl Signals {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: if ignores_hang_up() { None } else { Some(signal(SignalKind::hangup())?) },
            came: 0,
        })
    }

    pub(super) async fn next(&mut self) -> Stop {
        let stop = tokio::select! {
            _ = self.interrupt.recv() => Stop::Interrupt,
            _ = self.terminate.recv() => Stop::Terminate,
            true = came(&mut self.hang_up) => Stop::Terminate,
        };
        self.came += 1;
        stop
    }
}

/// Waits for a signal; never returns if it is not handled.
pub(super) async fn came(signal: &mut Option<Signal>) -> bool {
    match signal {
        Some(signal) => signal.recv().await.is_some(),
        None => std::future::pending().await,
    }
}

/// Request signals; `None` where nothing handles them.
pub(super) struct Requests {
    /// Requests the data that the flight recorder keeps.
    pub(super) write_kept: Option<Signal>,
    /// Begins a window of single events.
    pub(super) begin_trace: Option<Signal>,
}

impl Requests {
    pub(super) fn new(until: &EndConditions) -> io::Result<Self> {
        let take = |wanted: bool, kind: SignalKind, held: HeldSignal| {
            let taken = wanted.then(|| signal(kind)).transpose()?;
            if wanted {
                held.release()?;
            }
            io::Result::Ok(taken)
        };
        Ok(Self {
            write_kept: take(until.flight.is_some(), SignalKind::user_defined1(), WRITE_KEPT)?,
            begin_trace: take(until.traces_on_signal, SignalKind::user_defined2(), BEGIN_TRACE)?,
        })
    }
}

/// Whether the program was started to survive the terminal.
fn ignores_hang_up() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored =
        status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    // Bit n is signal n + 1; SIGHUP is 1.
    ignored.is_some_and(|ignored| ignored & 1 != 0)
}
