//! Run: a capture and its session from beginning to end.
//!
//! Owns: the loop that waits for signals, the clock, the command and the screen, and the order in which things stop.
//! Because: a capture that any of these stops at any moment must keep its data. Does not: know where the data goes;
//! its callers do.

mod signals;
mod start;

use std::future::Future;
use std::io;
use std::ops::ControlFlow;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use deepctx_capture::Capture;
use deepctx_capture::clock::monotonic_ns;
use deepctx_capture::supervisor::{EarlyEnd, EndCause, STALL_MIN};
use deepctx_session::{Session, SessionResult, Status, Trigger};
use deepctx_symbolizer::worker::end_answers;

use super::command::exit_code;
use super::control::{CaptureControl, ControlSocket};
use super::failure::Failure;
use super::finisher::{FinishTask, Finisher};
use super::flight_recorder::ProfileRequesters;
use super::level_switch::LevelSwitch;
use super::on_finding::Actions;
use super::progress::Progress;
use super::standstill::Standstill;
use signals::{Requests, Signals, Stop, came};
pub(crate) use start::{SessionSinks, meta, refused, start_capture, start_session, window};

/// Polling interval for everything without events.
const TICK: Duration = Duration::from_millis(100);
/// Interval between measurements of the profiler's own cost.
const COST_INTERVAL: Duration = Duration::from_millis(500);

/// How long the pipeline may be stalled before a report; the slowest disk and the largest library take less.
const STANDSTILL: Duration = Duration::from_secs(10);
/// How long the end may be stalled. A signal or `-d` must end the program, whatever a target did to it.
const END_STANDSTILL: Duration = Duration::from_secs(5);
/// How long the end may take after a second signal; it usually takes less, and nothing is lost. A third signal ends it
/// at once.
const SIGNALLED_AGAIN: Duration = Duration::from_secs(2);
/// How long the end waits for symbol names.
const END_ANSWERS: Duration = Duration::from_secs(15);
/// Maximum duration of the end.
const END_LONGEST: Duration = Duration::from_secs(30);

/// What ends a capture.
#[derive(Debug, Default)]
pub(crate) struct EndConditions {
    /// After this time.
    pub duration: Option<Duration>,
    /// When this command ends.
    pub child: Option<Child>,
    /// When all processes given by pid have ended.
    pub targets_end: bool,
    /// When the user quits the screen; set by its thread.
    pub left: Arc<AtomicBool>,
    /// Notified once signals are handled; before that, a signal would end the program at once.
    pub handles_signals: Option<Sender<()>>,
    /// Set at the end, to close the screen.
    pub stop_screen: Option<Arc<AtomicBool>>,
    /// How profiles are requested from the flight recorder, if there is one.
    pub flight: Option<ProfileRequesters>,
    /// Whether SIGUSR2 begins a window of single events.
    pub traces_on_signal: bool,
    /// Actions for findings.
    pub actions: Actions,
    /// Socket for control requests.
    pub control: Option<ControlSocket>,
    /// Switches probe sets and measures them, if requested.
    pub levels: Option<LevelSwitch>,
}

/// How a capture ended.
#[derive(Debug)]
pub(crate) struct CaptureEnd {
    /// The result.
    pub finished: SessionResult,
    /// Duration.
    pub elapsed: Duration,
    /// Exit code of the command, if there was one and it has ended.
    pub command: Option<u8>,
    /// A finding ended it, or would have.
    pub stopped_by_finding: bool,
    /// A signal requested the end.
    pub signalled: bool,
    /// Measurements per probe set, if sets were switched.
    pub levels: Option<LevelSwitch>,
}

/// Waits for the end of the capture, then stops and finishes it. Shows `progress` meanwhile.
///
/// # Errors
/// The session failed. What was flushed is on disk.
pub(crate) fn until_end(
    capture: Capture,
    session: Session,
    until: EndConditions,
    progress: Option<Progress>,
) -> Result<CaptureEnd, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::io("the event loop", &error))?;
    let finisher = Finisher::start().map_err(|error| Failure::io("a thread for the end", &error))?;
    let ended = runtime.block_on(Run { capture, session, finisher, until, progress }.until_over());
    // Unfinished tasks are not waited for here either.
    runtime.shutdown_background();
    ended
}

struct Run {
    capture: Capture,
    session: Session,
    finisher: Finisher,
    until: EndConditions,
    progress: Option<Progress>,
}

impl Run {
    async fn until_over(mut self) -> Result<CaptureEnd, Failure> {
        let failed = |error: io::Error| Failure::io("signals", &error);
        let mut signals = Signals::new().map_err(failed)?;
        let requests = Requests::new(&self.until).map_err(failed)?;
        // The receiver may be gone, which is detected elsewhere.
        let _ = self.until.handles_signals.take().map(|waiting| waiting.send(()));
        let started = tokio::time::Instant::now();
        let command = self.wait(started, &mut signals, requests).await;
        let elapsed = started.elapsed();
        self.finish(elapsed, command, &mut signals).await
    }

    /// Waits for a signal, the command's end, or another end condition. Returns the exit code of a command that has
    /// ended.
    async fn wait(
        &mut self,
        started: tokio::time::Instant,
        signals: &mut Signals,
        mut requests: Requests,
    ) -> Option<u8> {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        let mut next_cost = started;
        let mut signalled_before = false;
        let mut standstill = Standstill::new(self.session.watch());
        loop {
            tokio::select! {
                stop = signals.next() => {
                    let child = self.until.child.as_ref()?;
                    // The terminal sends Ctrl-C to the command as well, and the capture ends with the command. A second
                    // signal ends it at once.
                    if signalled_before {
                        return None;
                    }
                    signalled_before = true;
                    if stop == Stop::Terminate {
                        terminate(child);
                    }
                }
                true = came(&mut requests.write_kept) => self.ask_for_kept(Trigger::Signal),
                true = came(&mut requests.begin_trace) => self.session.request_trace(monotonic_ns()),
                _ = ticks.tick() => {
                    if tokio::time::Instant::now() >= next_cost {
                        next_cost = tokio::time::Instant::now() + COST_INTERVAL;
                        self.session.set_cost(self.capture.cost());
                        self.capture.follow_cpus();
                        for stall in self.capture.newly_stalled(STALL_MIN) {
                            self.session.notice(stall.to_string());
                        }
                        self.pass_on_restarts();
                    }
                    if let Some(lasted) = standstill.lasted(STANDSTILL) {
                        self.session.notice(format!(
                            "the pipeline has made no progress for {} s: samples taken meanwhile may be lost",
                            lasted.as_secs()
                        ));
                    }
                    if let ControlFlow::Break(command) = self.tick(started) {
                        return command;
                    }
                }
            }
        }
    }

    /// Reports to the session which threads of the capture were started again since the last call.
    fn pass_on_restarts(&self) {
        self.capture.newly_restarted().iter().for_each(|restart| self.session.on_restart(restart));
    }

    /// Polls all sources. Breaks at the end of the capture, as [`Self::wait`] returns.
    fn tick(&mut self, started: tokio::time::Instant) -> ControlFlow<Option<u8>> {
        let status = self.session.status();
        if let Some(progress) = &mut self.progress {
            progress.show(&status);
        }
        self.pass_on_key();
        let ends = self.answer_requests(&status, started.elapsed()) || self.switch_level();
        if ends || self.act_on_findings() {
            return ControlFlow::Break(None);
        }
        if let Some(child) = &mut self.until.child
            && let Ok(Some(status)) = child.try_wait()
        {
            return ControlFlow::Break(Some(exit_code(status)));
        }
        if self.until.is_over(&status, started.elapsed())
            || self.session.is_over()
            || status.unstored
            || status.ended_early.is_some()
            || self.capture.ended_early().is_some()
        {
            return ControlFlow::Break(None);
        }
        ControlFlow::Continue(())
    }

    /// Answers control requests; true when one ends the capture.
    fn answer_requests(&mut self, status: &Status, elapsed: Duration) -> bool {
        let Some(control) = &self.until.control else { return false };
        let flight = self.until.flight.as_ref().map(|flight| &flight.requests);
        let (capture, session) = (&mut self.capture, &self.session);
        let traces = self.until.traces_on_signal;
        control.answer_all(&mut CaptureControl { capture, session, flight, traces, status, elapsed })
    }

    /// Attaches the next probe set when due; true when all have been measured.
    fn switch_level(&mut self) -> bool {
        let Some(levels) = &mut self.until.levels else { return false };
        let steps = self.session.ended_steps();
        if let Some(request) = levels.advance(monotonic_ns(), self.capture.budgeted_attached(), &steps) {
            let set = self.capture.set_frequency(request.frequency).map_err(|error| error.to_string());
            let held = self.capture.hold_probes(request.hold);
            let held = held.then_some(()).ok_or_else(|| "no probe can be attached here".to_owned());
            if let Err(sentence) = set.and(held) {
                levels.fail(sentence);
            }
        }
        levels.is_over()
    }

    fn ask_for_kept(&self, trigger: Trigger) {
        if let Some(flight) = &self.until.flight {
            flight.requests.request(trigger);
        }
    }

    /// Requests the kept data if the screen's key was pressed since the last call.
    fn pass_on_key(&self) {
        if self.until.flight.as_ref().is_some_and(|flight| flight.key.swap(false, Ordering::Relaxed)) {
            self.ask_for_kept(Trigger::Key);
        }
    }

    /// Acts on findings; true when one ends the capture.
    fn act_on_findings(&mut self) -> bool {
        let requests = self.until.actions.act(false);
        for notice in requests.notices {
            self.session.notice(notice);
        }
        if requests.keep {
            self.ask_for_kept(Trigger::Finding);
        }
        if requests.trace {
            self.session.request_trace(monotonic_ns());
        }
        requests.stop
    }

    /// Stops the capture, finishes the session, and waits for a running command.
    async fn finish(
        self,
        elapsed: Duration,
        mut command: Option<u8>,
        signals: &mut Signals,
    ) -> Result<CaptureEnd, Failure> {
        self.pass_on_restarts();
        let Self { capture, session, finisher, mut until, mut progress } = self;
        if let Some(stop) = &until.stop_screen {
            stop.store(true, Ordering::Relaxed);
        }
        if let Some(progress) = &mut progress {
            progress.clear();
        }
        session.set_cost(capture.cost());
        let supervisor = capture.supervisor();
        // On a busy machine, names may take longer than the end may; unnamed frames are marked as such.
        end_answers(Instant::now() + END_ANSWERS);
        let watch = session.watch();
        let detached = Arc::<AtomicBool>::default();
        let finishing = finisher.finish(FinishTask { capture, session, detached: Arc::clone(&detached) });
        let finished = end_of(finishing, signals, &mut Standstill::at_end(watch), &detached).await?;
        let finished = finished.map_err(|_| Failure::new("ending the capture failed because of a defect"))?;
        if let (Some(progress), Ok(finished)) = (&mut progress, &finished) {
            progress.end(&finished.status);
        }
        // Findings of the final run over the whole profile.
        for notice in until.actions.act(true).notices.into_iter().chain(until.actions.finish()) {
            super::note(&notice);
        }
        // The duration ends the capture, not the command.
        if let (None, Some(child)) = (command, &mut until.child) {
            if matches!(child.try_wait(), Ok(None)) {
                super::note(
                    "the capture has ended, the command has not; waiting for it (Ctrl-C twice: stop waiting)",
                );
            }
            command = wait_for_command(child, signals).await;
        }
        let finished = finished.map_err(Failure::new)?;
        // Asked now: a thread may also stop while it detaches its probes.
        match supervisor.ended_early().or_else(|| finished.status.ended_early.clone()) {
            Some(early) => Err(ended_early(early)),
            None => {
                let (stopped_by_finding, signalled) = (until.actions.stopped, signals.came > 0);
                Ok(CaptureEnd {
                    finished,
                    elapsed,
                    command,
                    stopped_by_finding,
                    signalled,
                    levels: until.levels,
                })
            }
        }
    }
}

/// The error of a capture that ended early.
fn ended_early(early: EarlyEnd) -> Failure {
    let hint = match early.because {
        EndCause::Defect(_) => "the data captured so far is intact and can be opened; please report this",
        EndCause::System(_) => "the data captured so far is intact and can be opened",
    };
    Failure::new(early).hint(hint)
}

impl EndConditions {
    fn is_over(&self, status: &Status, elapsed: Duration) -> bool {
        self.duration.is_some_and(|duration| elapsed >= duration)
            || (self.targets_end && status.over)
            || self.left.load(Ordering::Relaxed)
    }
}

/// Waits for the end. A second signal or a stall soon stops the waiting: flushed data is complete, and the user must
/// not wait for something that may never come.
async fn end_of<T>(
    work: impl Future<Output = T>,
    signals: &mut Signals,
    standstill: &mut Standstill,
    detached: &AtomicBool,
) -> Result<T, Failure> {
    tokio::pin!(work);
    let mut ticks = tokio::time::interval(TICK);
    let began = Instant::now();
    let mut signalled_again: Option<Instant> = None;
    let because = loop {
        tokio::select! {
            done = &mut work => return Ok(done),
            // The first signal may have been meant for the capture, which has just ended.
            _ = signals.next() => match signals.came {
                0 | 1 => {}
                2 => signalled_again = Some(Instant::now()),
                _ => break "when it was signaled again".to_owned(),
            },
            _ = ticks.tick() => {
                if signalled_again.is_some_and(|at| at.elapsed() >= SIGNALLED_AGAIN) {
                    break "when it was signaled again".to_owned();
                }
                if standstill.lasted(END_STANDSTILL).is_some() || began.elapsed() >= END_LONGEST {
                    break format!("within {} s", began.elapsed().as_secs());
                }
            }
        }
    };
    let part = match detached.load(Ordering::Relaxed) {
        true => "the pipeline and its profile",
        false => "the kernel programs and their probes",
    };
    Err(Failure::new(format_args!("{part} did not end {because}"))
        .hint("the data written so far is intact and can be opened; -v shows more"))
}

/// Waits for the command or a signal.
async fn wait_for_command(child: &mut Child, signals: &mut Signals) -> Option<u8> {
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(exit_code(status));
        }
        tokio::select! {
            stop = signals.next() => {
                if stop == Stop::Terminate {
                    terminate(child);
                    return None;
                }
                // After two signals, do not wait for a command that ignores them.
                if signals.came >= 2 {
                    return None;
                }
            }
            () = tokio::time::sleep(TICK) => {}
        }
    }
}

fn terminate(child: &Child) {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw) {
        // It may have ended already.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
}

#[cfg(test)]
mod tests {
    use deepctx_session::ProgressWatch;

    use super::*;

    #[test]
    fn the_second_signal_ends_what_never_ends() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let ended = runtime.block_on(async {
            let mut signals = Signals::new().unwrap();
            // The first one ended the capture.
            signals.came = 1;
            let (mut standstill, detached) =
                (Standstill::new(ProgressWatch::default()), AtomicBool::new(true));
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM).unwrap();
            end_of(std::future::pending::<()>(), &mut signals, &mut standstill, &detached).await
        });
        let failure = ended.unwrap_err().to_string();
        assert!(
            failure.contains("the pipeline and its profile did not end when it was signaled"),
            "{failure}"
        );
    }
}
