//! Running other programs: print the command, fail with its name.
//!
//! Owns: command lines, root rights, paths of the checkout. Because: every task is a list of commands, and the reader
//! of a log must see which one failed. Does not: know any task.

use anyhow::{Context, Result, anyhow, bail};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};

/// Root of the checkout.
pub(crate) fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest).to_owned()
}

/// Cargo's output folder; honors `CARGO_TARGET_DIR`. Absolute, because chores run cargo in the project's folder and
/// other programs elsewhere.
pub(crate) fn target_dir() -> PathBuf {
    root().join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// Path of this program. Read once at start ([`remember_own_program`]): cargo may replace the file later, and the
/// kernel then appends `(deleted)` to its name.
static OWN_PROGRAM: LazyLock<std::io::Result<PathBuf>> = LazyLock::new(std::env::current_exe);

/// Stores the path of this program.
pub(crate) fn remember_own_program() {
    LazyLock::force(&OWN_PROGRAM);
}

/// Path of this program, or of its replacement.
pub(crate) fn own_program() -> Result<&'static Path> {
    OWN_PROGRAM.as_deref().map_err(|error| anyhow!("cannot tell where this program lies: {error}"))
}

/// Folder for large files that all checkouts share.
pub(crate) fn cache_dir() -> Result<PathBuf> {
    let own = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = own("XDG_CACHE_HOME").or_else(|| own("HOME").map(|home| home.join(".cache")));
    Ok(cache.context("neither XDG_CACHE_HOME nor HOME is set")?.join("deepctx-bpf"))
}

/// True when this process may load BPF programs and install packages without `sudo`.
pub(crate) fn is_root() -> bool {
    std::fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|text| text.lines().find_map(|line| line.strip_prefix("Uid:").map(str::to_owned)))
        .and_then(|ids| ids.split_whitespace().nth(1).map(|effective| effective == "0"))
        .unwrap_or(false)
}

/// True if nothing may be skipped: `CI=true`.
pub(crate) fn in_ci() -> bool {
    std::env::var_os("CI").is_some_and(|value| value == "true")
}

/// A command in the root of the checkout.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root());
    command
}

/// A variable for a command.
pub(crate) type Variable = (&'static str, OsString);

/// Those of our variables that are set.
pub(crate) fn kept(names: &[&'static str]) -> Vec<Variable> {
    names.iter().filter_map(|name| Some((*name, std::env::var_os(name)?))).collect()
}

/// This program again, as root.
pub(crate) fn own_program_as_root() -> Result<Command> {
    Ok(as_root(own_program()?, &kept(&["PATH", "HOME", "CARGO_TARGET_DIR"])))
}

/// A command that runs as root: directly if we are root, else through `sudo`, which passes only the variables named
/// here.
pub(crate) fn as_root(program: impl AsRef<OsStr>, variables: &[Variable]) -> Command {
    if is_root() {
        let mut command = command(program);
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        return command;
    }
    let mut sudo = command("sudo");
    for (name, value) in variables {
        let mut assignment = OsString::from(format!("{name}="));
        assignment.push(value);
        sudo.arg(assignment);
    }
    sudo.arg("--").arg(program);
    sudo
}

/// The command line as a user would type it.
pub(crate) fn words(command: &Command) -> String {
    let mut line = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args() {
        let word = argument.to_string_lossy();
        line.push(' ');
        if word.contains(char::is_whitespace) {
            line.push_str(&format!("'{word}'"));
        } else {
            line.push_str(&word);
        }
    }
    line
}

/// Prints the command, runs it with our own output, and fails when it fails.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    eprintln!("  $ {}", words(command));
    if run_status(command)? {
        return Ok(());
    }
    bail!("`{}` failed", words(command))
}

/// Runs the command with our own output; true when it succeeded.
pub(crate) fn run_status(command: &mut Command) -> Result<bool> {
    let status = command.status().with_context(|| format!("cannot start `{}`", words(command)))?;
    Ok(status.success())
}

/// Runs the command silently and returns its standard output; fails with its standard error.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start `{}`", words(command)))?;
    if !output.status.success() {
        bail!("`{}` failed: {}", words(command), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}

/// Runs a command with a time limit; returns its output.
pub(crate) fn finished(mut command: Command, what: &str, longest: Duration) -> Result<String> {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {what}"))?;
    let reader = |pipe: Option<Box<dyn std::io::Read + Send>>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            // Unreadable output is only missing in a message.
            let _ = pipe.map(|mut pipe| pipe.read_to_end(&mut bytes));
            String::from_utf8_lossy(&bytes).into_owned()
        })
    };
    let output = reader(child.stdout.take().map(|pipe| Box::new(pipe) as Box<_>));
    let errors = reader(child.stderr.take().map(|pipe| Box::new(pipe) as Box<_>));
    if !ends_within(&mut child, longest)? {
        child.kill()?;
        child.wait()?;
        bail!("{what} took longer than {longest:?}");
    }
    let status = child.wait()?;
    let (output, errors) = (output.join().unwrap_or_default(), errors.join().unwrap_or_default());
    if !status.success() {
        let last: Vec<&str> = errors.lines().rev().take(4).collect();
        bail!("{what} ended with {status}: {}", last.into_iter().rev().collect::<Vec<_>>().join(" / "));
    }
    Ok(output)
}

/// Waits for a child; false when it still runs after `longest`.
pub(crate) fn ends_within(child: &mut Child, longest: Duration) -> Result<bool> {
    let end = Instant::now() + longest;
    while child.try_wait()?.is_none() {
        if Instant::now() > end {
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(true)
}

/// True when the command can be started and succeeds; prints nothing.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Finds a program in `PATH` (and in the administrators' folders).
pub(crate) fn which(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

/// `PATH` with additional folders in front.
pub(crate) fn path_with(folders: &[&Path]) -> Result<OsString> {
    let rest = std::env::var_os("PATH").unwrap_or_default();
    let first = folders.iter().map(|folder| folder.to_path_buf());
    std::env::join_paths(first.chain(std::env::split_paths(&rest)))
        .with_context(|| format!("{folders:?} cannot stand in PATH"))
}

/// Prints a step and its reason.
pub(crate) fn step(what: &str, because: &str) {
    step_is_over();
    eprintln!("==> {what}\n    because {because}");
    if let Ok(mut begun) = STEP.lock() {
        *begun = Some(Instant::now());
    }
}

/// When the current step began.
static STEP: Mutex<Option<Instant>> = Mutex::new(None);
/// A step that took less says no time.
const WORTH_SAYING: Duration = Duration::from_secs(1);

/// Prints how long the current step took, if it was long. The next step does so, too.
pub(crate) fn step_is_over() {
    let begun = STEP.lock().ok().and_then(|mut begun| begun.take());
    if let Some(took) = begun.map(|begun| begun.elapsed()).filter(|took| *took >= WORTH_SAYING) {
        eprintln!("    done in {:.0} s", took.as_secs_f64());
    }
}

/// Removes a folder with its contents, if it exists.
pub(crate) fn remove(folder: &Path) -> Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

/// Recreates a folder unless it was made for the same list.
pub(crate) fn unless_made(folder: &Path, list: &str, make: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let made: PathBuf = folder.join("made-of");
    if std::fs::read_to_string(&made).is_ok_and(|found| found == list) {
        return Ok(());
    }
    remove(folder)?;
    make(folder)?;
    // Last, so that an interrupted one is made again.
    Ok(std::fs::write(made, list)?)
}

/// All files below `folder` whose name ends with `suffix`, sorted; skips build output and hidden folders.
pub(crate) fn files_below(folder: &Path, suffix: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && name != "target" && !name.starts_with('.') => open.push(path),
                Ok(kind) if kind.is_file() && name.ends_with(suffix) => found.push(path),
                _ => {}
            }
        }
    }
    found.sort();
    found
}
