//! `record`: a capture without a screen, stored on disk.
//!
//! Owns: the order of its steps, so that a failing one leaves nothing behind. Does not: capture or write.

use std::io::{self, BufWriter, IsTerminal};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use deepctx_analysis::findings::{Findings, Settings};
use deepctx_profile::ledger::Ledger;
use deepctx_profile::units::{Count, Nanos, counted};
use deepctx_profile::view::{complete_percent, most_common_gap};
use deepctx_storage::folder::Folder;

use super::command::SuspendedChild;
use super::command_user::CommandUser;
use super::control::ControlSocket;
use super::destination::Destination;
use super::failure::{Completion, Failure};
use super::flight_recorder::{self, FlightFiles, ProfileRequesters};
use super::held_signal::{BEGIN_TRACE, WRITE_KEPT};
use super::level_switch::LevelSwitch;
use super::on_finding::{self, ActionNeeds, Actions, RuleWatcher};
use super::options::RecordArgs;
use super::progress::Progress;
use super::run::{
    CaptureEnd, EndConditions, SessionSinks, meta, refused, start_capture, start_session, until_end, window,
};
use super::target::{self, Target};
use super::{collector, output, rules_file, workers};
use deepctx_capture::clock::monotonic_ns;
use deepctx_capture::config::TraceWindow;
use deepctx_capture::{Capture, Targets, find_processes};
use deepctx_session::{RawSink, Session, Sink, StoreSink, TraceSink};
use deepctx_storage::store::TraceWriter;

/// Maximum wait for probes in installed libraries; each takes a few milliseconds.
const PROBES_LONGEST: Duration = Duration::from_secs(2);

/// How a recording ended.
#[derive(Debug)]
pub(crate) struct RecordingEnd {
    /// The result.
    pub done: Completion,
    /// Exit code of the command, if there was one and it has ended.
    pub command: Option<u8>,
    /// From the command's start to its end or the capture's.
    pub elapsed: Duration,
    /// A signal requested the end.
    pub signalled: bool,
    /// Measurements per probe set, if sets were switched.
    pub levels: Option<LevelSwitch>,
}

/// Runs the command.
///
/// # Errors
/// What stopped the command.
pub(crate) fn run(arguments: &RecordArgs) -> Result<Completion, Failure> {
    record(arguments, None).map(|recorded| recorded.done)
}

/// Records once, switching probe sets if requested.
///
/// # Errors
/// What stopped the command.
pub(crate) fn record(arguments: &RecordArgs, levels: Option<LevelSwitch>) -> Result<RecordingEnd, Failure> {
    let asked_ns = monotonic_ns();
    // Workers read what the targets have mapped, and inherit which signals are held.
    let (askers, traces_on_signal) = hold_signals(arguments)?;
    workers::install();
    // Targets before destinations: a missing target is the first error to report.
    let mut target = target::of_record(arguments)?;
    target.config.hands_out_steps = levels.is_some();
    // The capture looks for them again: here, only a selector that matches nothing counts.
    find_processes(&target.config.targets, false).map_err(|error| refused(&error))?;
    let destination = destination_of(arguments)?;
    let path = destination.path().to_owned();
    let rules = rules_file::of_capture(arguments.rules.as_deref())?;
    let awaited = on_finding::settings(rules.clone(), &arguments.on_finding, means(arguments))?;
    let control = arguments.control.as_deref().map(ControlSocket::create).transpose()?;
    let waiting = start_command(arguments)?;
    target.config.targets.extend(waiting.as_ref().map(|waiting| Targets::Pids(vec![waiting.pid()])));

    let mut capture = start_capture(&target)?;
    let conditions = arguments.on_finding.iter().map(|of| of.condition.clone());
    let (watch, found) = RuleWatcher::new(awaited, conditions);
    let started = start_storing(&mut capture, &target, arguments, destination, askers.as_ref(), watch);
    let (session, output) = started?;
    if waiting.is_some() {
        capture.wait_for_probes(PROBES_LONGEST);
    }
    let child = match waiting.map(SuspendedChild::go).transpose() {
        Ok(child) => child,
        Err(failure) => {
            capture.stop();
            // The profile of a command that never ran is useless.
            let _ = session.finish(None);
            output.discard();
            return Err(failure);
        }
    };
    let mut pids = arguments.target.pid.clone();
    pids.extend(child.as_ref().map(std::process::Child::id));
    let until = EndConditions {
        duration: arguments.duration,
        targets_end: child.is_none(),
        actions: Actions::new(arguments.on_finding.clone(), found, pids, arguments.user.clone()),
        child,
        flight: askers,
        traces_on_signal,
        control,
        levels,
        ..EndConditions::default()
    };
    let mut progress = Progress::of_capture(arguments.common.verbose > 0, asked_ns);
    // A command shows itself that it runs, and ends the recording.
    if until.child.is_none() {
        progress.begin(&format!("recording {} to {}; Ctrl-C stops", target.description, path.display()));
    }
    let ended = until_end(capture, session, until, Some(progress))?;

    summarize(arguments, &path, &output, &ended);
    if arguments.rules.is_some() {
        say_findings(&ended, &rules);
    }
    end_of(arguments, output, ended)
}

/// Puts the output files into their requested form and returns the result.
fn end_of(arguments: &RecordArgs, output: Output, ended: CaptureEnd) -> Result<RecordingEnd, Failure> {
    let status = &ended.finished.status;
    if let Some(error) = &status.write_error {
        return Err(Failure::new(error).hint(
            "the data written so far can be opened; record again on a working disk with enough space",
        ));
    }
    if arguments.pack {
        output.pack()?;
    }
    let done = match done(ended.command, status.lost_share, arguments.max_loss) {
        Completion::Fully if ended.stopped_by_finding => Completion::WithFindings,
        done => done,
    };
    let CaptureEnd { command, elapsed, signalled, levels, .. } = ended;
    Ok(RecordingEnd { done, command, elapsed, signalled, levels })
}

/// The destination of the profile, after checking that nothing would be overwritten.
fn destination_of(arguments: &RecordArgs) -> Result<Destination, Failure> {
    let named = arguments.output.as_deref();
    if named == Some(Path::new("-")) {
        return Err(Failure::new("-o -: expected a file name, since a profile is a folder of files")
            .hint("record to a file, then `deepctx-bpf export FILE --format folded -o -`"));
    }
    let destination = match named {
        Some(output) => Destination::of(output, arguments.force)?,
        None if arguments.force => Destination::of(Path::new("run.dctx"), true)?,
        None => Destination::of(&output::free_name(Path::new(""), "run")?, false)?,
    };
    if let Some(raw) = &arguments.capture.raw {
        output::refuse_existing_file(raw, arguments.force)?;
    }
    Ok(destination)
}

/// The features that actions need.
pub(crate) fn means(arguments: &RecordArgs) -> ActionNeeds {
    ActionNeeds {
        keeps: arguments.flight.keep.is_some(),
        traces: matches!(arguments.trace, Some(TraceWindow::OnSignal(_))),
        has_targets: !arguments.target.pid.is_empty() || !arguments.command.is_empty(),
    }
}

/// Blocks the request signals. Returns how the flight recorder is asked, and whether a signal begins a trace.
fn hold_signals(arguments: &RecordArgs) -> Result<(Option<ProfileRequesters>, bool), Failure> {
    let askers = arguments.flight.keep.is_some().then(ProfileRequesters::default);
    if askers.is_some() {
        WRITE_KEPT.hold()?;
    }
    let traces_on_signal = matches!(arguments.trace, Some(TraceWindow::OnSignal(_)));
    if traces_on_signal {
        BEGIN_TRACE.hold()?;
    }
    Ok((askers, traces_on_signal))
}

/// Starts the command, if any, stopped before its first instruction.
fn start_command(arguments: &RecordArgs) -> Result<Option<SuspendedChild>, Failure> {
    if arguments.command.is_empty() {
        return Ok(None);
    }
    let collects = arguments.gpu_activity || arguments.sampling.pc_sampling.is_some();
    let collector = collects.then(collector::variables).transpose()?;
    let variables = collector.into_iter().flatten().chain(arguments.sampling.variables());
    let user = CommandUser::choose(arguments.user.as_deref())?;
    if let Some(user) = &user {
        Progress::new(false).say(&user.notice());
    }
    SuspendedChild::start(&arguments.command, variables.collect(), user).map(Some)
}

/// Starts the session that writes the profile and, if requested, the raw copy.
fn start_storing(
    capture: &mut Capture,
    target: &Target,
    arguments: &RecordArgs,
    destination: Destination,
    askers: Option<&ProfileRequesters>,
    watch: RuleWatcher,
) -> Result<(Session, Output), Failure> {
    let meta = meta(target);
    let raw = arguments.capture.raw.as_deref();
    let raw = raw.map(|path| raw_sink(path, arguments.force)).transpose()?;
    let mut takers = SessionSinks { sinks: raw.into_iter().collect(), ..SessionSinks::default() };
    let output = match askers {
        Some(askers) => {
            let files = FlightFiles::new(destination, arguments.pack);
            takers.flight_recorder = Some(flight_recorder::options(arguments.flight, askers, files, true));
            Output::Kept
        }
        None => {
            let writer = destination.create(&meta)?;
            let folder = writer.folder();
            let window = target.config.trace.map(|trace| window(trace, !arguments.command.is_empty()));
            let sink = window.map(|window| trace_sink(Arc::clone(&folder), window)).transpose()?;
            takers.trace = sink.zip(window);
            let failed = |error: io::Error| Failure::io("the thread of the store", &error);
            let store = StoreSink::new(writer, arguments.flush).map_err(failed)?;
            takers.sinks.insert(0, Box::new(store));
            Output::Growing(destination, folder)
        }
    };
    if !arguments.on_finding.is_empty() {
        takers.sinks.push(Box::new(watch));
    }
    let session = start_session(capture, &target.config, &arguments.target.pid, meta, takers)?;
    target.probes_note.iter().for_each(|note| session.notice(note.clone()));
    Ok((session, output))
}

/// Destination of the capture.
enum Output {
    /// Into one growing profile.
    Growing(Destination, Arc<Folder>),
    /// Into memory, until requested.
    Kept,
}

impl Output {
    /// Removes the output.
    fn discard(&self) {
        if let Output::Growing(destination, folder) = self {
            let _ = destination.discard(folder);
        }
    }

    /// Packs the profile into one file. Profiles of the flight recorder are packed already.
    fn pack(&self) -> Result<(), Failure> {
        match self {
            Output::Growing(destination, folder) => destination.pack(folder),
            Output::Kept => Ok(()),
        }
    }
}

/// Writes individual events to the profile's folder.
fn trace_sink(folder: Arc<Folder>, window: deepctx_pipeline::TraceWindow) -> Result<TraceSink, Failure> {
    let window = match window {
        deepctx_pipeline::TraceWindow::First(window) | deepctx_pipeline::TraceWindow::FromWork(window) => {
            Some(window)
        }
        deepctx_pipeline::TraceWindow::Steps { .. }
        | deepctx_pipeline::TraceWindow::Launches { .. }
        | deepctx_pipeline::TraceWindow::OnRequest(_) => None,
    };
    let writer = TraceWriter::create(folder, window).map_err(|error| Failure::new(&error))?;
    TraceSink::new(writer).map_err(|error| Failure::io("the thread of the trace", &error))
}

/// A raw copy of the capture in a new file.
fn raw_sink(path: &Path, force: bool) -> Result<Box<dyn Sink>, Failure> {
    let failed = |error: io::Error| Failure::io(path.display(), &error);
    let file = output::create(path, force)?;
    Ok(Box::new(RawSink::new(BufWriter::new(file)).map_err(failed)?))
}

/// Prints the rules' findings of an ended capture on standard error.
fn say_findings(ended: &CaptureEnd, rules: &Settings) {
    let elapsed = Nanos::from(ended.elapsed);
    let found = Findings::of_profile(&ended.finished.profile, elapsed, rules);
    let mut progress = Progress::new(false);
    on_finding::lines(&found).iter().for_each(|line| progress.say(line));
}

/// Prints a summary of the recording on standard error.
fn summarize(arguments: &RecordArgs, path: &Path, output: &Output, ended: &CaptureEnd) {
    let status = &ended.finished.status;
    let ledger = &ended.finished.profile.ledger;
    let elapsed = Nanos::from(ended.elapsed);
    let complete = status
        .complete_share
        .map_or(String::new(), |share| format!(", {} % of stacks complete", complete_percent(share)));
    let mut progress = Progress::new(false);
    let path = path.display().to_string();
    let path = path.as_str();
    let what = match output {
        Output::Growing(..) => path,
        Output::Kept => "captured",
    };
    let lost = lost_in_words(status.lost, ledger.received());
    let samples = counted(status.samples, "sample");
    progress.say(&format!("{what}: {samples} in {elapsed}, {lost}{complete}"));
    if let Some(gap) = main_gap(status.complete_share, ledger) {
        progress.say(&gap);
    }
    if let Some(sentence) = ledger.duty_cycled() {
        progress.say(sentence);
    }
    if let Some(traced) = &status.traced {
        progress.say(&of_trace(traced.kept, traced.lost(), path));
    }
    if status.samples == 0 {
        let waiting = match arguments.capture.off_cpu {
            true => "",
            false => " (--off-cpu shows what they wait for)",
        };
        progress.say(&format!(
            "note: no samples were taken: the targets used no CPU time{waiting}, or none of them is running"
        ));
    } else if matches!(output, Output::Growing(..))
        && status.write_error.is_none()
        && io::stderr().is_terminal()
    {
        progress.say(&format!("next: deepctx-bpf report {}", quoted(path)));
    }
}

/// The single events of a recording, and the command that shows them.
fn of_trace(kept: u64, lost: u64, path: &str) -> String {
    let kept = counted(kept, "event");
    format!("trace: {kept}, {lost} lost; `deepctx-bpf timeline {}` shows them", quoted(path))
}

/// The main cause of incomplete stacks, if there are many.
fn main_gap(complete: Option<f64>, ledger: &Ledger) -> Option<String> {
    /// Programs that end before they are read have incomplete stacks, and a machine may start many of them.
    const FEW: f64 = 0.2;
    let (reason, stacks) =
        most_common_gap(ledger).filter(|_| complete.is_some_and(|share| share < 1.0 - FEW))?;
    Some(format!("most incomplete stacks, {}: {} ({})", Count(stacks), reason.sentence, reason.key))
}

/// The losses as a count of records: samples are only one kind of them.
fn lost_in_words(lost: u64, received: u64) -> String {
    match lost as f64 * 100.0 / received.max(1) as f64 {
        _ if lost == 0 => "no record lost".to_owned(),
        percent if percent < 0.005 => format!("less than 0.01 % of {} lost", counted(received, "record")),
        percent => format!("{percent:.2} % of {} lost", counted(received, "record")),
    }
}

/// A path quoted as one shell word.
fn quoted(path: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+=:@%,".contains(c);
    match path.chars().all(is_plain) {
        true => path.to_owned(),
        false => format!("'{}'", path.replace('\'', r"'\''")),
    }
}

/// The command's exit code takes precedence over losses.
pub(crate) fn done(command: Option<u8>, lost_share: Option<f64>, max_loss: Option<f64>) -> Completion {
    match command {
        Some(code) if code != 0 => Completion::Command(code),
        _ if max_loss.is_some_and(|most| lost_share.unwrap_or(0.0) * 100.0 > most) => Completion::WithLosses,
        _ => Completion::Fully,
    }
}

#[cfg(test)]
mod tests {
    use deepctx_common::end::WalkEnd;
    use deepctx_profile::ledger::Stage;

    use super::*;

    #[test]
    fn the_code_of_the_command_comes_before_losses() {
        assert_eq!(done(None, None, None), Completion::Fully);
        assert_eq!(done(None, Some(0.5), None), Completion::Fully);
        assert_eq!(done(None, Some(0.02), Some(1.0)), Completion::WithLosses);
        assert_eq!(done(None, Some(0.01), Some(1.0)), Completion::Fully);
        assert_eq!(done(Some(0), Some(0.02), Some(1.0)), Completion::WithLosses);
        assert_eq!(done(Some(3), Some(0.02), Some(1.0)), Completion::Command(3));
    }

    #[test]
    fn many_incomplete_stacks_say_their_main_reason() {
        let mut ledger = Ledger::default();
        ledger.gap(Stage::Resolve, WalkEnd::NoRow.reason(), 3);
        ledger.gap(Stage::Resolve, WalkEnd::UnknownProcess.reason(), 4_711);
        ledger.gap(Stage::Resolve, WalkEnd::LeftOut.reason(), 9_999);
        let check = |complete, expect: Option<&str>| {
            assert_eq!(main_gap(complete, &ledger).as_deref(), expect, "{complete:?}");
        };
        check(None, None);
        check(Some(0.99), None);
        check(
            Some(0.5),
            Some("most incomplete stacks, 4711: the process has no unwind data loaded yet (unknown-process)"),
        );
        assert_eq!(main_gap(Some(0.5), &Ledger::default()), None);
    }

    #[test]
    fn losses_are_a_share_of_all_records() {
        for (lost, received, expect) in [
            (0, 0, "no record lost"),
            (0, 7, "no record lost"),
            (55, 738_404, "0.01 % of 738404 records lost"),
            (1, 738_404, "less than 0.01 % of 738404 records lost"),
            (5, 10, "50.00 % of 10 records lost"),
            (1, 1, "100.00 % of 1 record lost"),
        ] {
            assert_eq!(lost_in_words(lost, received), expect);
        }
    }

    #[test]
    fn the_command_for_a_trace_can_be_pasted() {
        assert_eq!(
            of_trace(1, 0, "my run.dctx"),
            "trace: 1 event, 0 lost; `deepctx-bpf timeline 'my run.dctx'` shows them"
        );
    }

    #[test]
    fn paths_are_one_word_of_a_shell() {
        for (path, expect) in
            [("/tmp/run-2.dctx", "/tmp/run-2.dctx"), ("my run.dctx", "'my run.dctx'"), ("a'b", r"'a'\''b'")]
        {
            assert_eq!(quoted(path), expect);
        }
    }

    #[test]
    fn a_profile_stores_every_option_of_record() {
        use clap::CommandFactory as _;

        // Options for output, messages, the exit code and requests do not describe the capture.
        const NOT_OF_THE_CAPTURE: [&str; 10] = [
            "control",
            "output",
            "force",
            "pack",
            "max-loss",
            "raw",
            "verbose",
            "log-format",
            "config",
            "help",
        ];
        let mut command = super::super::options::Cli::command();
        command.build();
        let record = command.find_subcommand("record").unwrap();
        let options = record.get_arguments().filter(|argument| !argument.is_hide_set());
        let mut options: Vec<&str> = options.filter_map(|argument| argument.get_long()).collect();
        options.retain(|option| !NOT_OF_THE_CAPTURE.contains(option));
        options.sort_unstable();
        let stored = deepctx_capture::CaptureConfig::default().options();
        let mut stored: Vec<&str> = stored.iter().map(|(name, _)| name.as_str()).collect();
        stored.sort_unstable();
        assert_eq!(stored, options);
    }
}
