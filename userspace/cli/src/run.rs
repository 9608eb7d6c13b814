//! Run: a capture and its session from the first to the last moment.
//!
//! Owns: the loop that waits for signals, the clock, the command and the screen, and the order in which things stop.
//! Because: a capture that is stopped at any moment, by any of these, must keep what it has. Does not: know where the
//! data goes; its callers do.

use std::future::Future;
use std::io;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use deepctx_profile::profile::Meta;
use deepctx_profile::units::Time;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::command::exit_code;
use super::failure::Failure;
use super::look;
use super::progress::Progress;
use super::step_marker;
use super::target::Target;
use deepctx_capture::clock::monotonic_ns;
use deepctx_capture::{Capture, CaptureConfig};
use deepctx_pipeline::Config;
use deepctx_session::{Finished, HottestOperators, Options, Session, Sink, Status};
use deepctx_symbolizer::native::DebugInfo;

/// Between two looks at everything that has no event of its own.
const TICK: Duration = Duration::from_millis(100);
/// Between two measurements of the profiler's own cost.
const COST_EVERY: Duration = Duration::from_millis(500);

/// What a capture ran for.
#[derive(Debug, Default)]
pub struct Until {
    /// At most so long.
    pub duration: Option<Duration>,
    /// Until this command ends.
    pub child: Option<Child>,
    /// Until all processes that were named have ended.
    pub targets_end: bool,
    /// Until the screen is left: set by whoever draws it.
    pub left: Arc<AtomicBool>,
    /// Set once it is over, to make the screen go.
    pub stop_screen: Option<Arc<AtomicBool>>,
}

/// Starts the session of a capture, as the options say. `sinks` consume its results.
///
/// # Errors
/// The pipeline's thread cannot be started.
pub fn start_session(
    capture: &mut Capture,
    how: &CaptureConfig,
    named: &[u32],
    meta: Meta,
    sinks: Vec<Box<dyn Sink>>,
) -> Result<Session, Failure> {
    let config = Config {
        off_cpu: how.off_cpu,
        timer: look::measured(how.clock),
        step_markers: step_marker::ranges(&how.step_markers),
        ..Config::default()
    };
    let options = Options {
        meta,
        config,
        debug_info: DebugInfo { bytes_max: how.debug_info.0, ..DebugInfo::default() },
        named: named.to_vec(),
        layers: capture.called(),
        hottest: how.hottest().and_then(|most| Some(HottestOperators::new(most, capture.tensor_wishes()?))),
        sinks,
    };
    Session::start(capture.messages(), options).map_err(|error| Failure::io("the pipeline's thread", &error))
}

/// How a capture ended.
#[derive(Debug)]
pub struct Ended {
    /// What was captured.
    pub finished: Finished,
    /// How long it took.
    pub elapsed: Duration,
    /// Exit code of the command, if there was one and it has ended.
    pub command: Option<u8>,
}

/// Signals that end a capture.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// None under `nohup`.
    hang_up: Option<Signal>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Interrupt,
    Terminate,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: if ignores_hang_up() { None } else { Some(signal(SignalKind::hangup())?) },
        })
    }

    async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.interrupt.recv() => Asked::Interrupt,
            _ = self.terminate.recv() => Asked::Terminate,
            true = hung_up(&mut self.hang_up) => Asked::Terminate,
        }
    }
}

async fn hung_up(hang_up: &mut Option<Signal>) -> bool {
    match hang_up {
        Some(hang_up) => hang_up.recv().await.is_some(),
        None => std::future::pending().await,
    }
}

/// Whether whoever started the program wants it to outlive the terminal.
fn ignores_hang_up() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored =
        status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    // Bit n stands for signal n + 1, and SIGHUP is 1.
    ignored.is_some_and(|ignored| ignored & 1 != 0)
}

/// What is told about a capture before it begins.
pub fn meta(target: &Target) -> Meta {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Meta {
        target: target.description.clone(),
        host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        started: Time::from_nanos(u64::try_from(since_1970.as_nanos()).unwrap_or(u64::MAX)),
        started_monotonic: Time::from_nanos(monotonic_ns()),
        frequency_hz: target.config.frequency.0,
        version: env!("CARGO_PKG_VERSION").into(),
        options: target.config.options(),
    }
}

/// Starts the capture.
///
/// # Errors
/// What is missing, and how to mend it.
pub fn start_capture(target: &Target) -> Result<Capture, Failure> {
    Capture::start(target.config.clone()).map_err(|error| {
        let hint = error.hint();
        Failure::new(error)
            .hint(hint.as_deref().unwrap_or("`sudo deepctx-bpf doctor` checks what a capture needs"))
    })
}

/// Waits until it is time to stop, then stops and finishes. `progress`: shown meanwhile.
///
/// # Errors
/// The session broke. What was flushed is on disk.
pub fn until_end(
    capture: Capture,
    session: Session,
    until: Until,
    progress: Option<Progress>,
) -> Result<Ended, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::io("the event loop", &error))?;
    runtime.block_on(Run { capture, session, until, progress }.until_over())
}

struct Run {
    capture: Capture,
    session: Session,
    until: Until,
    progress: Option<Progress>,
}

impl Run {
    async fn until_over(self) -> Result<Ended, Failure> {
        let Self { capture, session, mut until, mut progress } = self;
        let mut signals = Signals::new().map_err(|error| Failure::io("signals", &error))?;
        let started = tokio::time::Instant::now();
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        let mut next_cost = started;
        let mut command = None;
        let mut asked_before = false;
        loop {
            tokio::select! {
                asked = signals.next() => {
                    let Some(child) = &until.child else { break };
                    // The terminal sends Ctrl-C to the command as well; its end is ours. Asked again, we do not wait.
                    if asked_before {
                        break;
                    }
                    asked_before = true;
                    if asked == Asked::Terminate {
                        terminate(child);
                    }
                }
                _ = ticks.tick() => {
                    if tokio::time::Instant::now() >= next_cost {
                        next_cost = tokio::time::Instant::now() + COST_EVERY;
                        session.set_cost(capture.cost());
                    }
                    let status = session.status();
                    if let Some(progress) = &mut progress {
                        progress.show(&status);
                    }
                    if let Some(child) = &mut until.child
                        && let Ok(Some(status)) = child.try_wait()
                    {
                        command = Some(exit_code(status));
                        break;
                    }
                    if until.is_over(&status, started.elapsed()) || session.is_over() {
                        break;
                    }
                }
            }
        }
        let elapsed = started.elapsed();
        if let Some(stop) = &until.stop_screen {
            stop.store(true, Ordering::Relaxed);
        }
        if let Some(progress) = &mut progress {
            progress.clear();
        }
        session.set_cost(capture.cost());
        let counters = capture.stop();
        let finishing = tokio::task::spawn_blocking(move || session.finish(Some(counters)));
        let finished = patiently(finishing, &mut signals).await.map_err(Failure::new)?;
        if let (Some(progress), Ok(finished)) = (&mut progress, &finished) {
            // What is known only now.
            progress.notice(&finished.status);
        }
        // A duration that is over ends the capture, not the command.
        if let (None, Some(child)) = (command, &mut until.child) {
            command = patiently_wait(child, &mut signals).await;
        }
        Ok(Ended { finished: finished.map_err(Failure::new)?, elapsed, command })
    }
}

impl Until {
    fn is_over(&self, status: &Status, elapsed: Duration) -> bool {
        self.duration.is_some_and(|duration| elapsed >= duration)
            || (self.targets_end && status.over)
            || self.left.load(Ordering::Relaxed)
    }
}

/// Waits for what will not take long, whatever signals come: the data is being written.
async fn patiently<T>(work: impl Future<Output = T>, signals: &mut Signals) -> T {
    tokio::pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return done,
            _ = signals.next() => {}
        }
    }
}

/// Waits for the command; a signal meanwhile ends the waiting.
async fn patiently_wait(child: &mut Child, signals: &mut Signals) -> Option<u8> {
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(exit_code(status));
        }
        tokio::select! {
            asked = signals.next() => {
                if asked == Asked::Terminate {
                    terminate(child);
                    return None;
                }
            }
            () = tokio::time::sleep(TICK) => {}
        }
    }
}

fn terminate(child: &Child) {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw) {
        // It may have ended meanwhile, which is what was wanted.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
}
