//! `experiment`: records the same command over several values.
//!
//! Owns: the order of runs, and what happens to the others when one fails. Because: an hour of runs must not be lost
//! to the last one. Does not: capture ([`super::record`] does), judge or draw (`analysis` does), or read a profile:
//! names in it are untrusted, so a separate process does (`report`), which confines itself.

use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};

use deepctx_analysis::experiment::{Experiment, Judgement, LEVEL, Run, RunFigures};
use deepctx_analysis::render;
use deepctx_profile::units::Nanos;
use deepctx_storage::folder::Folder;

use super::common_args::TextOrJson;
use super::experiment_args::ExperimentArgs;
use super::failure::{Completion, Failure};
use super::level_switch::{LevelSwitch, SwitchedLevel};
use super::progress::Progress;
use super::{output, record};

/// Maximum bytes of a run's `report`; its totals take a few hundred.
const FIGURES_MAX: u64 = 1 << 20;

/// Runs the command.
///
/// # Errors
/// The command, its values and the options conflict, or nothing could be recorded.
pub(crate) fn run(arguments: &ExperimentArgs) -> Result<Completion, Failure> {
    arguments.check()?;
    make_folder(arguments.folder())?;
    let combinations = arguments.combinations();
    let repeats = 1..=arguments.repeat as usize;
    // Round by round, so that other load on the machine affects all values alike.
    let runs: Vec<(Vec<String>, usize)> =
        repeats.flat_map(|repeat| combinations.iter().map(move |values| (values.clone(), repeat))).collect();
    for (values, repeat) in &runs {
        output::refuse_existing(&arguments.profile(values, *repeat), arguments.record.force)?;
    }
    // Standard output is reserved for the table.
    let printed_elsewhere = StandardOutput::of_commands_to_standard_error()?;
    let (done, stopped) = run_all(arguments, &runs)?;
    drop(printed_elsewhere);
    let mut experiment = Experiment::of(command(arguments), names(arguments), judgement(arguments), done);
    experiment.in_process = arguments.in_process;
    output::write(Path::new("-"), false, |out| match arguments.format {
        TextOrJson::Text => render::text::write_experiment(&experiment, out),
        TextOrJson::Json => render::json::write(&experiment, out),
    })?;
    Ok(match stopped {
        Some(code) => Completion::Command(code),
        None if experiment.has_failures() => Completion::WithFailedRuns,
        None => Completion::Fully,
    })
}

fn command(arguments: &ExperimentArgs) -> String {
    let words: Vec<_> = arguments.record.command.iter().map(|word| word.to_string_lossy()).collect();
    words.join(" ")
}

fn names(arguments: &ExperimentArgs) -> Vec<String> {
    let levels = arguments.in_process.then(|| LEVEL.to_owned());
    arguments.dimensions().into_iter().map(|of| of.name).chain(levels).collect()
}

fn judgement(arguments: &ExperimentArgs) -> Judgement {
    Judgement {
        trim_percent: arguments.trim,
        gain_percent: arguments.gain,
        latency_target_ns: arguments.latency_target.map(|target| Nanos::from(target).0),
    }
}

/// Creates the folder of the profiles if needed.
fn make_folder(path: &Path) -> Result<(), Failure> {
    if path.is_dir() {
        return Ok(());
    }
    let made = Folder::of_parent(path).and_then(|(parent, name)| parent.make(&name).map(drop));
    made.map_err(|error| Failure::io(path.display(), &error))
}

/// Runs the command with all values. Returns an exit code if a signal ended it early.
fn run_all(
    arguments: &ExperimentArgs,
    runs: &[(Vec<String>, usize)],
) -> Result<(Vec<Run>, Option<u8>), Failure> {
    let mut done: Vec<Run> = Vec::new();
    for (number, (values, repeat)) in runs.iter().enumerate() {
        let profile = arguments.profile(values, *repeat);
        let words = arguments.dimensions();
        let words = words.iter().zip(values).map(|(of, value)| format!("{}={value}", of.name));
        let words: Vec<String> = words.collect();
        let label = if words.is_empty() { String::new() } else { format!(": {}", words.join(", ")) };
        Progress::new(false).say(&format!("run {} of {}{label}", number + 1, runs.len()));
        let mut run = Run {
            values: values.clone(),
            repeat: *repeat,
            profile: profile.display().to_string(),
            ..Run::default()
        };
        let levels = arguments.level_plan().map(LevelSwitch::new);
        let mut switched = None;
        let recorded = record::record(&arguments.record_args(values, profile.clone()), levels);
        let signalled = match recorded {
            // An error in the first run would recur in all others.
            Err(failure) if number == 0 => return Err(failure),
            Err(failure) => {
                run.failure = Some(failure.to_string());
                false
            }
            Ok(recorded) => {
                run.exit_code = recorded.command;
                run.wall_ns = Nanos::from(recorded.elapsed).0;
                run.failure = match recorded.command {
                    Some(0) => None,
                    Some(code) => Some(format!("the command ended with exit code {code}")),
                    None => Some("the capture ended before the command".to_owned()),
                };
                switched = recorded.levels;
                recorded.signalled
            }
        };
        match figures(&profile) {
            Ok(figures) => run.figures = Some(figures),
            Err(why) if run.failure.is_none() => run.failure = Some(why),
            Err(_) => {}
        }
        if let Some(failure) = &run.failure {
            Progress::new(false).say(&format!("run {}{label}: {failure}", number + 1));
        }
        if signalled {
            // An interrupted run says nothing about its value.
            let code = run.exit_code.filter(|code| *code != 0).unwrap_or(SIGNALLED);
            return Ok((done, Some(code)));
        }
        match arguments.in_process {
            true => done.extend(windows_of(&run, switched, arguments.rounds as usize)),
            false => done.push(run),
        }
    }
    Ok((done, None))
}

/// The windows of an in-process run as separate runs; windows of one round share its number. A set without windows is
/// a failure.
fn windows_of(run: &Run, levels: Option<LevelSwitch>, rounds: usize) -> Vec<Run> {
    let with_level = |level: SwitchedLevel| {
        let values = run.values.iter().cloned().chain([level.name().to_owned()]).collect();
        Run { values, figures: None, ..run.clone() }
    };
    let failed = |why: &str| {
        SwitchedLevel::ALL.map(|level| Run { failure: Some(why.to_owned()), ..with_level(level) }).to_vec()
    };
    let windows = match (&run.failure, levels) {
        (Some(failure), _) => return failed(failure),
        (None, None) => return failed("it was not recorded"),
        (None, Some(levels)) => levels.into_windows(),
    };
    let windows = match windows {
        Ok(windows) => windows,
        Err(why) => return failed(&why),
    };
    let mut runs = Vec::new();
    for level in SwitchedLevel::ALL {
        let of_level = windows.iter().filter(|window| window.level == level);
        runs.extend(of_level.map(|window| Run {
            repeat: (run.repeat - 1) * rounds + window.round + 1,
            wall_ns: window.wall_ns,
            figures: Some(RunFigures { step_times: window.step_times(), ..RunFigures::default() }),
            ..with_level(level)
        }));
        if !windows.iter().any(|window| window.level == level) {
            let why = "never attached: the command mapped no library with functions that these probes watch";
            runs.push(Run { failure: Some(why.to_owned()), ..with_level(level) });
        }
    }
    runs
}

/// Exit code after SIGINT, as in shells.
const SIGNALLED: u8 = 130;

/// The `report` figures of a profile.
fn figures(profile: &Path) -> Result<RunFigures, String> {
    let mut report = Command::new("/proc/self/exe");
    report.args(["report", "--table", "totals", "--format", "json", "--limit", "1", "--"]).arg(profile);
    // The user's settings for `report` are for text output.
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("DEEPCTX_")) {
        report.env_remove(name);
    }
    let failed = |error: io::Error| format!("its profile could not be read: {error}");
    let mut reader = report.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(failed)?;
    let mut text = Vec::new();
    let read = match reader.stdout.take() {
        Some(out) => out.take(FIGURES_MAX).read_to_end(&mut text),
        None => Ok(0),
    };
    let status = reader.wait().map_err(failed)?;
    read.map_err(failed)?;
    if !status.success() {
        return Err("its profile could not be read".to_owned());
    }
    serde_json::from_slice(&text).map_err(|error| format!("its profile could not be read: {error}"))
}

/// Saved standard output, while commands print to standard error.
struct StandardOutput(OwnedFd);

impl StandardOutput {
    fn of_commands_to_standard_error() -> Result<Self, Failure> {
        let failed = |error: io::Error| Failure::io("standard output", &error);
        let kept = io::stdout().as_fd().try_clone_to_owned().map_err(failed)?;
        redirect(libc::STDERR_FILENO).map_err(failed)?;
        Ok(Self(kept))
    }
}

impl Drop for StandardOutput {
    fn drop(&mut self) {
        use std::os::fd::AsRawFd as _;
        let _ = io::stdout().flush();
        let _ = redirect(self.0.as_raw_fd());
    }
}

/// Redirects standard output to another descriptor.
fn redirect(to: i32) -> io::Result<()> {
    // SAFETY: dup2 takes two descriptor numbers; both are open here, and no object owns standard output.
    match unsafe { libc::dup2(to, libc::STDOUT_FILENO) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_set_that_was_never_attached_is_a_failure() {
        use deepctx_pipeline::EndedStep;
        use deepctx_profile::tree::NodeId;

        use super::super::level_switch::LevelPlan;

        let mut switch = LevelSwitch::new(LevelPlan { window: 1, rounds: 2, frequency: 99 });
        for now_ns in 1..100 {
            let step = EndedStep { place: NodeId::from_number(1), began_ns: now_ns, took_ns: 7 };
            let _ = switch.advance(now_ns, None, &[step]);
        }
        let run = Run { values: vec!["8".into()], repeat: 3, ..Run::default() };
        let found: Vec<_> = windows_of(&run, Some(switch), 2)
            .into_iter()
            .map(|run| (run.values.join(" "), run.repeat, run.failure.is_none(), run.figures.is_some()))
            .collect();
        let window = |level: &str, repeat| (format!("8 {level}"), repeat, true, true);
        let expect = [
            window("markers", 5),
            window("markers", 6),
            window("samples", 5),
            window("samples", 6),
            ("8 probes".to_owned(), 3, false, false),
        ];
        assert_eq!(found, expect);
        let failed = Run { failure: Some("exit code 1".into()), ..run };
        let found = windows_of(&failed, None, 2);
        assert!(found.len() == 3 && found.iter().all(|run| run.failure.as_deref() == Some("exit code 1")));
    }

    #[test]
    fn the_folder_is_made_once_and_private() {
        use std::os::unix::fs::PermissionsExt as _;

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("experiment");
        make_folder(&path).unwrap();
        make_folder(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        fs::write(folder.path().join("file"), "").unwrap();
        assert!(make_folder(&folder.path().join("file")).is_err());
        assert!(make_folder(&folder.path().join("no/such")).is_err());
    }
}
