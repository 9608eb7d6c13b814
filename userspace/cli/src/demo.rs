//! `demo`: starts an example program and shows where its time goes.
//!
//! Owns: the example, and ending it. Because: users who have just installed a package see within seconds what the
//! profiler shows, without a program of their own. Does not: do anything that the printed commands would not do as
//! well.

use std::env;
use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io::IsTerminal as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Child;

use clap::{CommandFactory as _, FromArgMatches as _};
use tempfile::TempDir;

use super::command::SuspendedChild;
use super::command_user::CommandUser;
use super::demo_args::DemoArgs;
use super::failure::{Completion, Failure};
use super::options::Cli;
use super::progress::Progress;
use super::run::refused;
use super::{output, variables};

/// The example: a training loop in plain Python with typical bottlenecks.
const PROGRAM: &str = include_str!("demo/training.py");
/// Its file name, as it appears in frames.
const FILE: &str = "training.py";
/// Interpreter names to try.
const INTERPRETERS: [&str; 2] = ["python3", "python"];

/// Runs the command.
///
/// # Errors
/// What stopped the command.
pub(crate) fn run(arguments: &DemoArgs) -> Result<Completion, Failure> {
    let terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    let watches = arguments.print.is_none() && terminal;
    if watches && arguments.output.is_some() {
        return Err(Failure::new("-o: the live view of the demo writes no profile")
            .hint("add --print to record one and print its report"));
    }
    // Before the example starts: it would run for nothing.
    deepctx_capture::require_capabilities().map_err(|error| refused(&error))?;
    let example = Example::start()?;
    let pid = example.child.id().to_string();
    if watches {
        return command(&["live", "--pid", &pid]);
    }
    let seconds = format!("{}s", arguments.print.unwrap_or(DemoArgs::PRINT).as_secs_f64());
    let output = match &arguments.output {
        Some(output) => output.clone(),
        None if arguments.force => PathBuf::from("demo.dctx"),
        None => output::free_name(Path::new(""), "demo")?,
    };
    let output = output.to_string_lossy().into_owned();
    let mut record = vec!["record", "--pid", &pid, "--duration", &seconds, "-o", &output];
    record.extend(arguments.force.then_some("--force"));
    command(&record)?;
    // The process that opens the profile drops the privilege to end the example.
    drop(example);
    command(&["report", &output])
}

/// Runs one of our own commands and echoes it.
fn command(words: &[&str]) -> Result<Completion, Failure> {
    Progress::new(false).say(&echo(words));
    let words: Vec<OsString> = std::iter::once(&"deepctx-bpf").chain(words).map(OsString::from).collect();
    let matches = variables::parse(&Cli::command(), &words);
    let cli = matches.and_then(|matches| Cli::from_arg_matches(&matches));
    super::run(cli.map_err(|error| Failure::new(error.to_string()))?)
}

/// A command of ours as users type it.
fn echo(words: &[&str]) -> String {
    let captures = words.first().is_some_and(|command| ["live", "record"].contains(command));
    format!("$ {}deepctx-bpf {}", if captures { "sudo " } else { "" }, words.join(" "))
}

/// The example program while it runs.
struct Example {
    child: Child,
    /// Keeps its folder alive.
    _folder: TempDir,
}

impl Example {
    /// Starts it as the caller of `sudo`: it needs no privileges.
    fn start() -> Result<Self, Failure> {
        let interpreter = interpreter(env::var_os("PATH"))?;
        let failed = |error| Failure::io("the example program", &error);
        // The caller of `sudo` reads it.
        let folder = tempfile::Builder::new()
            .prefix("deepctx-demo-")
            .permissions(Permissions::from_mode(0o755))
            .tempdir()
            .map_err(failed)?;
        let file = folder.path().join(FILE);
        fs::write(&file, PROGRAM).map_err(failed)?;
        fs::set_permissions(&file, Permissions::from_mode(0o644)).map_err(failed)?;
        let words = [interpreter.into_os_string(), file.into_os_string()];
        let child = SuspendedChild::start(&words, Vec::new(), CommandUser::choose(None)?)?.go()?;
        Progress::new(false)
            .say(&format!("the example, a training loop in plain Python, runs as process {}", child.id()));
        Ok(Self { child, _folder: folder })
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Finds an interpreter in these folders.
fn interpreter(folders: Option<OsString>) -> Result<PathBuf, Failure> {
    let folders: Vec<_> = env::split_paths(&folders.unwrap_or_default()).collect();
    let in_order = INTERPRETERS.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    let executable = |path: &PathBuf| {
        fs::metadata(path).is_ok_and(|facts| facts.is_file() && facts.permissions().mode() & 0o111 != 0)
    };
    { in_order }.find(executable).ok_or_else(|| {
        Failure::new("the example needs Python: there is no python3 in PATH")
            .hint("install python3, or profile one of your own processes: `sudo deepctx-bpf --pid PID`")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_echoed_as_they_are_typed() {
        assert_eq!(echo(&["live", "--pid", "7"]), "$ sudo deepctx-bpf live --pid 7");
        assert_eq!(echo(&["report", "demo.dctx"]), "$ deepctx-bpf report demo.dctx");
    }

    #[test]
    fn python3_comes_before_python_and_must_be_executable() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let put = |path: PathBuf, mode| {
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            path
        };
        put(one.path().join("python3"), 0o644);
        put(one.path().join("python"), 0o755);
        let wanted = put(two.path().join("python3"), 0o755);
        let folders = env::join_paths([one.path(), two.path()]).unwrap();
        assert_eq!(interpreter(Some(folders)).unwrap(), wanted);
    }

    #[test]
    fn without_python_the_demo_says_what_to_do() {
        let empty = tempfile::tempdir().unwrap();
        for folders in [None, Some(empty.path().into())] {
            let failure = interpreter(folders).unwrap_err().to_string();
            assert!(failure.contains("no python3 in PATH"), "{failure}");
        }
    }
}
