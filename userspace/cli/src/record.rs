//! `record`: a capture without a screen, kept on disk.
//!
//! Owns: the order of its steps, so that nothing is left behind when one fails. Does not: capture or write.

use std::ffi::OsString;
use std::fs;
use std::io::{self, BufWriter};
use std::path::Path;
use std::time::Duration;

use deepctx_profile::units::{Count, Nanos};
use deepctx_storage::store::{self, Writer};

use super::command::Waiting;
use super::failure::{Done, Failure, store_failure};
use super::options::RecordArgs;
use super::progress::Progress;
use super::run::{Ended, Until, meta, start_capture, start_session, until_end};
use super::target::{self, Target};
use super::{collector, memory_reader, output};
use deepctx_capture::clock::monotonic_ns;
use deepctx_capture::{Capture, Targets};
use deepctx_session::{RawSink, Session, Sink, StoreSink};

/// Longest that a command waits for probes in installed libraries: they take a few milliseconds each.
const PROBES_LONGEST: Duration = Duration::from_secs(2);

/// Runs it.
///
/// # Errors
/// What stopped it.
pub fn run(arguments: &RecordArgs) -> Result<Done, Failure> {
    let asked_ns = monotonic_ns();
    let output = arguments.output.as_path();
    if output == Path::new("-") {
        return Err(Failure::new("-o -: expected a file name, a profile is a folder of files")
            .hint("record to a file, then `deepctx-bpf export FILE --format folded -o -`"));
    }
    refuse_or_check_old(output, arguments.force)?;
    memory_reader::install();
    let waiting = start_command(arguments)?;
    let mut target = target::of_record(arguments)?;
    target.config.targets.extend(waiting.as_ref().map(|waiting| Targets::Pids(vec![waiting.pid()])));

    let mut capture = start_capture(&target)?;
    let session = start_storing(&mut capture, &target, arguments)?;
    if waiting.is_some() {
        capture.wait_for_probes(PROBES_LONGEST);
    }
    let child = match waiting.map(Waiting::go).transpose() {
        Ok(child) => child,
        Err(failure) => {
            capture.stop();
            // The profile of a command that never ran is of no use to anyone.
            let _ = session.finish(None);
            let _ = fs::remove_dir_all(output);
            return Err(failure);
        }
    };
    let until =
        Until { duration: arguments.duration, targets_end: child.is_none(), child, ..Until::default() };
    let progress = Progress::of_capture(arguments.common.verbose > 0, asked_ns);
    let ended = until_end(capture, session, until, Some(progress))?;

    summarize(output, &ended);
    let status = &ended.finished.status;
    if let Some(error) = &status.write_error {
        return Err(Failure::new(error)
            .hint("what was written before can be opened; free some space and record again"));
    }
    if arguments.pack {
        pack(output)?;
    }
    Ok(done(ended.command, status.lost_share, arguments.max_loss))
}

/// Starts the command, if there is one, stopped before its first instruction.
fn start_command(arguments: &RecordArgs) -> Result<Option<Waiting>, Failure> {
    if arguments.command.is_empty() {
        return Ok(None);
    }
    let collects = arguments.gpu_activity || arguments.sampling.pc_sampling.is_some();
    let collector = collects.then(collector::variable).transpose()?;
    let variables = collector.into_iter().chain(arguments.sampling.variables());
    Waiting::start(&arguments.command, variables.collect()).map(Some)
}

/// Starts the session that writes the profile, and the raw copy if there is to be one.
fn start_storing(capture: &mut Capture, target: &Target, arguments: &RecordArgs) -> Result<Session, Failure> {
    let meta = meta(target);
    let raw = arguments.capture.raw.as_deref().map(raw_sink).transpose()?;
    let output = arguments.output.as_path();
    if arguments.force {
        remove_old(output)?;
    }
    let writer = Writer::create(output, &meta).map_err(|error| store_failure(&error))?;
    let mut sinks: Vec<Box<dyn Sink>> = vec![Box::new(StoreSink::new(writer, arguments.flush))];
    sinks.extend(raw);
    start_session(capture, &target.config, &arguments.target.pid, meta, sinks)
}

/// A raw copy of the capture in a new file.
fn raw_sink(path: &Path) -> Result<Box<dyn Sink>, Failure> {
    let failed = |error: io::Error| Failure::io(path.display(), &error);
    let file = fs::File::create(path).map_err(failed)?;
    Ok(Box::new(RawSink::new(BufWriter::new(file)).map_err(failed)?))
}

/// Says on standard error what was recorded.
fn summarize(output: &Path, ended: &Ended) {
    let status = &ended.finished.status;
    let elapsed = Nanos(u64::try_from(ended.elapsed.as_nanos()).unwrap_or(u64::MAX));
    let complete = status
        .complete_share
        .map_or(String::new(), |share| format!(", {:.2} % of stacks complete", share * 100.0));
    let mut progress = Progress::new(false);
    progress.say(&format!(
        "{}: {} samples in {elapsed}, {} lost{complete}",
        output.display(),
        Count(status.samples),
        Count(status.lost)
    ));
    if let Some(turns) = ended.finished.profile.ledger.watched_in_turns() {
        progress.say(turns);
    }
    if status.samples == 0 {
        progress.say("note: no samples were taken: the targets used no CPU time, or none of them is running");
    }
}

/// Makes one file of a profile's folder. At every moment one of them is whole.
fn pack(output: &Path) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::io(output.display(), &error);
    let beside = |what: &str| {
        let mut name = OsString::from(".");
        name.push(output.file_name().unwrap_or_default());
        name.push(format!(".{}.{what}", std::process::id()));
        output.with_file_name(name)
    };
    let (file, folder) = (beside("file"), beside("folder"));
    let written = fs::File::create_new(&file).map_err(failed).and_then(|created| {
        let mut out = BufWriter::new(created);
        store::pack(output, &mut out).map_err(|error| store_failure(&error))?;
        out.into_inner().map_err(|error| failed(error.into_error()))?.sync_all().map_err(failed)
    });
    let placed = written
        .and_then(|()| fs::rename(output, &folder).and_then(|()| fs::rename(&file, output)).map_err(failed));
    if let Err(failure) = placed {
        // The folder stays as it is; half a file is of no use.
        let _ = fs::remove_file(&file);
        return Err(failure.hint("the profile is complete as a folder"));
    }
    fs::remove_dir_all(&folder).map_err(failed)
}

/// The code of the command comes first, then losses.
pub fn done(command: Option<u8>, lost_share: Option<f64>, max_loss: Option<f64>) -> Done {
    match command {
        Some(code) if code != 0 => Done::Command(code),
        _ if max_loss.is_some_and(|most| lost_share.unwrap_or(0.0) * 100.0 > most) => Done::WithLosses,
        _ => Done::Fully,
    }
}

/// Refuses an output that exists, unless `force` is set and it is a profile.
///
/// # Errors
/// It exists, or there is no folder for it.
pub fn refuse_or_check_old(output: &Path, force: bool) -> Result<(), Failure> {
    output::refuse_existing(output, force)?;
    // Replacing means deleting a folder: it had better be a profile.
    let exists = fs::symlink_metadata(output).is_ok();
    if exists && !output.join("manifest.json").is_file() && !store::is_packed(output) {
        return Err(Failure::new(format_args!(
            "{}: expected a profile to replace, found something else",
            output.display()
        ))
        .hint("choose another name with -o"));
    }
    let folder = output.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !folder.is_dir() {
        return Err(Failure::new(format_args!(
            "{}: expected a folder for the profile, found none",
            folder.display()
        ))
        .hint("make it first, or choose another place with -o"));
    }
    Ok(())
}

/// Removes a profile that is about to be replaced.
///
/// # Errors
/// It cannot be removed.
pub fn remove_old(output: &Path) -> Result<(), Failure> {
    let removed = if store::is_packed(output) { fs::remove_file(output) } else { fs::remove_dir_all(output) };
    match removed {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Failure::io(output.display(), &error))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_of_the_command_comes_before_losses() {
        assert_eq!(done(None, None, None), Done::Fully);
        assert_eq!(done(None, Some(0.5), None), Done::Fully);
        assert_eq!(done(None, Some(0.02), Some(1.0)), Done::WithLosses);
        assert_eq!(done(None, Some(0.01), Some(1.0)), Done::Fully);
        assert_eq!(done(Some(0), Some(0.02), Some(1.0)), Done::WithLosses);
        assert_eq!(done(Some(3), Some(0.02), Some(1.0)), Done::Command(3));
    }

    #[test]
    fn packed_profile_replaces_its_folder_and_can_be_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("run.dctx");
        let profile = deepctx_profile::Profile::new(Default::default(), Default::default());
        Writer::create(&output, &profile.meta).unwrap().finish(&profile, Default::default()).unwrap();
        pack(&output).unwrap();
        assert!(output.is_file() && deepctx_storage::open(&output).unwrap().is_complete());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(refuse_or_check_old(&output, true).is_ok());
        remove_old(&output).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn only_a_profile_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("run.dctx");
        assert!(refuse_or_check_old(&output, false).is_ok());
        fs::create_dir(&output).unwrap();
        assert!(refuse_or_check_old(&output, false).unwrap_err().to_string().contains("--force"));
        assert!(refuse_or_check_old(&output, true).unwrap_err().to_string().contains("found something else"));
        fs::write(output.join("manifest.json"), "{}").unwrap();
        assert!(refuse_or_check_old(&output, true).is_ok());
        remove_old(&output).unwrap();
        assert!(!output.exists());
        assert!(refuse_or_check_old(&folder.path().join("no/run.dctx"), false).is_err());
    }

    #[test]
    fn a_profile_stores_every_option_of_record() {
        use clap::CommandFactory as _;

        // Where the profile and messages go, and what the exit code depends on, is no part of what was captured.
        const NOT_OF_THE_CAPTURE: [&str; 9] =
            ["output", "force", "pack", "max-loss", "raw", "verbose", "log-format", "config", "help"];
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
