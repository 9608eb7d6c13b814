//! `record`: a capture without a screen, kept on disk.
//!
//! Owns: the order of its steps, so that nothing is left behind when one fails. Does not: capture or write.

use std::ffi::OsString;
use std::fs;
use std::io::{self, BufWriter};
use std::path::Path;
use std::time::Duration;

use clap::ValueEnum as _;

use deepctx_profile::store::{self, Writer};
use deepctx_profile::units::{Count, Nanos};

use super::command::Waiting;
use super::failure::{Done, Failure, store_failure};
use super::options::RecordArgs;
use super::progress::Progress;
use super::run::{Until, meta, start_capture, start_session, until_end};
use super::{collector, output, target};
use deepctx_capture::clock::monotonic_ns;
use deepctx_session::raw::RawWriter;

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
    let samples = arguments.sampling.pc_sampling.is_some();
    let collects = arguments.gpu_activity || samples;
    let waiting = if arguments.command.is_empty() {
        None
    } else {
        let collector = collects.then(collector::variable).transpose()?;
        let variables = collector.into_iter().chain(arguments.sampling.variables());
        Some(Waiting::start(&arguments.command, variables.collect())?)
    };
    let words = arguments.command.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    let mut target =
        target::resolve(&arguments.target, &arguments.capture, waiting.as_ref().map(|_| words.as_str()))?;
    if let Some(probes) = &mut target.options.probes {
        // What our collector reads it tells by itself.
        probes.borrow = !(collects && waiting.is_some());
        probes.samples = samples;
    }
    target.options.pids.extend(waiting.as_ref().map(Waiting::pid));

    let mut capture = start_capture(&target)?;
    let meta = meta(&target, options(arguments));
    let raw = match &arguments.capture.raw {
        Some(path) => {
            let file = fs::File::create(path).map_err(|error| Failure::io(path.display(), &error))?;
            Some(RawWriter::new(BufWriter::new(file)).map_err(|error| Failure::io(path.display(), &error))?)
        }
        None => None,
    };
    if arguments.force {
        remove_old(output)?;
    }
    let writer = Writer::create(output, &meta).map_err(|error| store_failure(&error))?;
    let session = start_session(
        &mut capture,
        &arguments.capture,
        &arguments.target.pid,
        meta,
        Some((writer, arguments.flush)),
        raw,
    )?;
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

    let status = &ended.finished.status;
    let elapsed = Nanos(u64::try_from(ended.elapsed.as_nanos()).unwrap_or(u64::MAX));
    let complete = status
        .complete_share
        .map_or(String::new(), |share| format!(", {:.2} % of stacks complete", share * 100.0));
    let summary = format!(
        "{}: {} samples in {elapsed}, {} lost{complete}",
        output.display(),
        Count(status.samples),
        Count(status.lost)
    );
    Progress::new(false).say(&summary);
    if let Some(turns) = ended.finished.profile.ledger.watched_in_turns() {
        Progress::new(false).say(turns);
    }
    if status.samples == 0 {
        Progress::new(false)
            .say("note: no samples were taken: the targets used no CPU time, or none of them is running");
    }
    if let Some(error) = &status.write_error {
        return Err(Failure::new(error)
            .hint("what was written before can be opened; free some space and record again"));
    }
    if arguments.pack {
        pack(output)?;
    }
    Ok(done(ended.command, status.lost_share, arguments.max_loss))
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

/// Options in force, for the profile.
fn options(arguments: &RecordArgs) -> Vec<(String, String)> {
    let context: Vec<_> = arguments.capture.context.iter().map(ToString::to_string).collect();
    vec![
        ("freq".into(), arguments.capture.freq.to_string()),
        ("context".into(), context.join(",")),
        (
            "event".into(),
            arguments
                .capture
                .event
                .to_possible_value()
                .map_or_else(String::new, |value| value.get_name().to_owned()),
        ),
        ("launch-stacks".into(), arguments.capture.launch_stacks.to_string()),
        (
            "operator-stacks".into(),
            arguments.capture.operator_stacks.map_or_else(String::new, |stacks| stacks.to_string()),
        ),
        ("shapes".into(), arguments.capture.shapes.join(",")),
        (
            "probe-budget".into(),
            arguments.capture.probe_budget.map_or_else(String::new, |budget| budget.to_string()),
        ),
        ("gpu-activity".into(), arguments.gpu_activity.to_string()),
        ("pc-sampling".into(), arguments.sampling.describe()),
        ("off-cpu".into(), arguments.capture.off_cpu.to_string()),
        ("no-children".into(), arguments.target.no_children.to_string()),
    ]
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
    fn a_packed_profile_takes_the_place_of_its_folder_and_can_be_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("run.dctx");
        let profile = deepctx_profile::Profile::new(Default::default(), Default::default());
        Writer::create(&output, &profile.meta).unwrap().finish(&profile, Default::default()).unwrap();
        pack(&output).unwrap();
        assert!(output.is_file() && store::open(&output).unwrap().is_complete());
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
}
