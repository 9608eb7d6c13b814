//! `live`: a capture and the terminal view over it.
//!
//! Owns: which thread runs what (the screen has its own, the capture loop has the main one), and saving what was
//! recorded. Does not: capture or draw.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use deepctx_profile::profile::Meta;
use deepctx_profile::units::Time;
use deepctx_profile::view::Request;
use deepctx_storage::store::Writer;
use deepctx_tui::{Options as TuiOptions, Outcome};

use super::control::ControlSocket;
use super::destination::Destination;
use super::failure::{Completion, Failure, store_failure};
use super::files::{Files, Places, SourceFileSnapshots};
use super::flight_recorder::{self, FlightFiles, ProfileRequesters};
use super::held_signal::WRITE_KEPT;
use super::options::LiveArgs;
use super::progress::Progress;
use super::record::done;
use super::run::{CaptureEnd, EndConditions, SessionSinks, meta, start_capture, start_session, until_end};
use super::{output, rules_file, screen, selection, target, view, workers};
use deepctx_analysis::conclude;
use deepctx_analysis::findings::Settings;
use deepctx_capture::Capture;
use deepctx_capture::clock::monotonic_ns;
use deepctx_capture::supervisor::{defect_for_tests, message};
use deepctx_session::{LiveSnapshots, Session, Sink, SnapshotSink};

/// Default sampling time of a single snapshot.
const ONCE: Duration = Duration::from_secs(2);

/// Runs the command.
///
/// # Errors
/// What stopped the command.
pub(crate) fn run(arguments: &LiveArgs) -> Result<Completion, Failure> {
    if !arguments.once {
        screen::require_terminal("the live view", "`record` and `report`")?;
    }
    let files = flight_files(arguments)?;
    let requesters = files.is_some().then(ProfileRequesters::default);
    if requesters.is_some() {
        WRITE_KEPT.hold()?;
    }
    workers::install();
    let rules = rules_file::of_capture(arguments.rules.as_deref())?;
    let target = target::of_live(arguments)?;
    let control = arguments.control.as_deref().map(ControlSocket::create).transpose()?;
    let request = arguments.tui.request(
        selection::selection(&arguments.selection, selection::measured(target.config.clock)),
        arguments.selection.filter.clone(),
    );
    let mut capture = start_capture(&target)?;
    let meta = meta(&target);
    let live_rules = rules.clone();
    let (sink, snapshots) =
        SnapshotSink::pair(move |profile, elapsed| conclude(profile, elapsed, &live_rules));
    let sinks: Vec<Box<dyn Sink>> = if arguments.once { Vec::new() } else { vec![Box::new(sink)] };
    let flight_recorder = files
        .zip(requesters.as_ref())
        .map(|(files, requesters)| flight_recorder::options(arguments.flight, requesters, files, false));
    let takers = SessionSinks { sinks, flight_recorder, ..SessionSinks::default() };
    let session = start_session(&mut capture, &target.config, &arguments.target.pid, meta.clone(), takers)?;
    session.set_auto_probes(target.auto_probes);
    target.probes_note.into_iter().for_each(|note| session.notice(note));
    let ended = if arguments.once {
        let until = EndConditions {
            duration: Some(arguments.duration.unwrap_or(ONCE)),
            targets_end: true,
            flight: requesters,
            control,
            ..EndConditions::default()
        };
        let ended = until_end(capture, session, until, None)?;
        print_once(arguments, &ended, &meta, request, &rules)?;
        ended
    } else {
        let running = RunningCapture { capture, session, requesters, control };
        watch(arguments, running, snapshots, request, &meta)?
    };
    Ok(done(None, ended.finished.status.lost_share, arguments.max_loss))
}

/// Where the flight recorder writes, on request. Without `--keep`, a screen has one, too, for its key that writes the
/// capture so far; but a folder in which nothing can be written does not end the view.
fn flight_files(arguments: &LiveArgs) -> Result<Option<FlightFiles>, Failure> {
    let is_kept = arguments.flight.keep.is_some();
    if arguments.once && !is_kept {
        return Ok(None);
    }
    let first = output::free_name(Path::new(""), "live").and_then(|path| Destination::of(&path, false));
    match first {
        Ok(first) => Ok(Some(FlightFiles::new(first, false))),
        Err(failure) if is_kept => Err(failure),
        Err(_) => Ok(None),
    }
}

/// Prints one snapshot: like the screen, it shows the time of a device that was busy.
fn print_once(
    arguments: &LiveArgs,
    ended: &CaptureEnd,
    meta: &Meta,
    mut request: Request,
    rules: &Settings,
) -> Result<(), Failure> {
    let finished = &ended.finished;
    let follows_device = arguments.selection.metric.is_none();
    let snapshot = view::following_device(&mut request, follows_device, |request| {
        let header = finished.status.header(meta, ended.elapsed, request.selection.metric);
        view::snapshot(&finished.profile, header, request, rules.clone())
    });
    screen::print(&snapshot, request, &arguments.tui, places(meta))
}

/// A capture that has begun.
struct RunningCapture {
    capture: Capture,
    session: Session,
    /// How a profile can be requested, if there is a flight recorder.
    requesters: Option<ProfileRequesters>,
    control: Option<ControlSocket>,
}

/// Runs the screen on a separate thread and the capture's loop here.
fn watch(
    arguments: &LiveArgs,
    running: RunningCapture,
    snapshots: LiveSnapshots,
    request: Request,
    meta: &Meta,
) -> Result<CaptureEnd, Failure> {
    let RunningCapture { capture, session, requesters, control } = running;
    let (left, stop) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let files = Files::start(places(meta)).map_err(|error| Failure::io("the files' thread", &error))?;
    let mut snapshots = SourceFileSnapshots { pictures: snapshots, files };
    let (tab, signs) = (arguments.tui.tab(), arguments.tui.signs());
    let follows_device = arguments.selection.metric.is_none();
    let for_screen = (Arc::clone(&left), Arc::clone(&stop));
    let (handles_signals, signals_handled) = crossbeam_channel::bounded(1);
    let save_kept = requesters.as_ref().map(|requesters| Arc::clone(&requesters.key));
    let drawing = thread::Builder::new().name("screen".into()).spawn(move || {
        let (left, stop) = for_screen;
        let options = TuiOptions {
            request,
            tab,
            signs,
            can_save: true,
            save_kept,
            follows_device,
            stop,
            ..TuiOptions::default()
        };
        // Also set on a panic: otherwise no key could end the capture.
        let _leaving = DropFlag(left);
        defect_for_tests("screen");
        // Once the screen is visible, the user may close the terminal; the program must be able to clean up first.
        if signals_handled.recv().is_err() {
            return Ok(Outcome::Quit { save: false });
        }
        screen::show(&mut snapshots, &options)
    });
    let drawing = drawing.map_err(|error| Failure::io("the screen's thread", &error))?;
    // The last snapshot stays on screen after the target has ended; only the user, a signal or the duration ends it.
    let until = EndConditions {
        duration: arguments.duration,
        left,
        handles_signals: Some(handles_signals),
        stop_screen: Some(stop),
        flight: requesters,
        control,
        ..EndConditions::default()
    };
    let ended = until_end(capture, session, until, None);
    let outcome = drawing.join();
    let ended = ended?;
    for notice in &ended.finished.status.notices {
        super::note(notice);
    }
    keep(outcome, &ended, meta)?;
    Ok(ended)
}

/// Saves the capture if the user chose to, or could not choose because the screen failed.
fn keep(
    outcome: thread::Result<Result<Outcome, Failure>>,
    ended: &CaptureEnd,
    meta: &Meta,
) -> Result<(), Failure> {
    let outcome = outcome.map_err(|panic| {
        let because = message(panic.as_ref());
        let saved = save(ended, meta);
        let failure = Failure::new(format_args!("the screen stopped because of a defect ({because})"));
        saved.err().map_or(failure, |error| error)
    })??;
    if outcome == (Outcome::Quit { save: true }) {
        save(ended, meta)?;
    }
    Ok(())
}

/// Sets a flag when dropped.
struct DropFlag(Arc<AtomicBool>);

impl Drop for DropFlag {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Where to find source files: as the processes see them.
fn places(meta: &Meta) -> Places {
    Places { running: true, began_ns: meta.started.as_nanos() }
}

/// Saves the capture under the first free name.
fn save(ended: &CaptureEnd, meta: &Meta) -> Result<(), Failure> {
    let path = output::free_name(Path::new(""), "live")?;
    let mut writer = Writer::create(&path, meta).map_err(|error| store_failure(&error))?;
    let now = Time::from_nanos(monotonic_ns());
    writer.finish(&ended.finished.profile, now).map_err(|error| store_failure(&error))?;
    Progress::new(false).say(&format!("{}: saved; open it with `deepctx-bpf view {0}`", path.display()));
    Ok(())
}
