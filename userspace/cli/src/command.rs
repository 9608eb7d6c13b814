//! Command: the program that `record` starts and captures from its first instruction.
//!
//! Owns: starting it stopped, resuming it once the capture runs, and its exit code. Because: what a program does
//! first (imports, initialization) is often what the user wants to see. Does not: capture.

use std::ffi::OsString;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus};
use std::thread::JoinHandle;

use deepctx_storage::owner::Owner;

use super::command_user::CommandUser;
use super::failure::Failure;

/// A child that exists and waits before its `exec`.
#[derive(Debug)]
pub(crate) struct SuspendedChild {
    pid: u32,
    go: PipeWriter,
    spawned: JoinHandle<io::Result<Child>>,
    name: String,
}

impl SuspendedChild {
    /// Forks a child that will become the command, with these additional variables, as this user.
    ///
    /// # Errors
    /// The process could not be created.
    pub(crate) fn start(
        command: &[OsString],
        variables: Vec<(&str, OsString)>,
        user: Option<CommandUser>,
    ) -> Result<Self, Failure> {
        let Some((program, arguments)) = command.split_first() else {
            return Err(Failure::new("expected a command after --").hint("for example: -- python train.py"));
        };
        let name = program.to_string_lossy().into_owned();
        let failed = |error: io::Error| Failure::io(&name, &error);
        let (mut told_pid, tell_pid) = io::pipe().map_err(failed)?;
        let (may_go, go) = io::pipe().map_err(failed)?;
        let mut child = Command::new(program);
        child.args(arguments);
        if let Some(user) = &user {
            user.set_environment(&mut child);
        }
        child.envs(variables);
        hold_before_exec(&mut child, tell_pid, may_go, go.as_fd().as_raw_fd(), user);
        // `spawn` returns only after the exec, so it needs its own thread.
        let spawned =
            std::thread::Builder::new().name("spawn".into()).spawn(move || child.spawn()).map_err(failed)?;
        let mut pid = [0; 4];
        match told_pid.read_exact(&mut pid) {
            Ok(()) => Ok(Self { pid: u32::from_ne_bytes(pid), go, spawned, name }),
            // The fork itself failed: the thread has the error.
            Err(error) => Err(match spawned.join() {
                Ok(Err(cause)) => Failure::io(&name, &cause),
                _ => Failure::io(&name, &error),
            }),
        }
    }

    /// The child's process id.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Lets the child exec the command.
    ///
    /// # Errors
    /// The program does not exist or may not be run.
    pub(crate) fn go(mut self) -> Result<Child, Failure> {
        let name = self.name;
        self.go.write_all(&[1]).map_err(|error| Failure::io(&name, &error))?;
        drop(self.go);
        match self.spawned.join() {
            Ok(Ok(child)) => Ok(child),
            Ok(Err(error)) if error.kind() == io::ErrorKind::NotFound => {
                let hint = where_to_look(&name, Owner::behind_sudo().is_some());
                Err(Failure::new(format_args!("command not found: {name}")).hint(hint))
            }
            Ok(Err(error)) => Err(Failure::io(&name, &error)),
            Err(_) => Err(Failure::new(format_args!("{name}: could not be started"))),
        }
    }
}

/// Advice for a program that was not found: `sudo` drops the `PATH` of its caller, and a virtual environment with it.
fn where_to_look(name: &str, by_sudo: bool) -> String {
    match by_sudo && !name.contains('/') {
        true => format!("`sudo` has its own PATH: give the program's path, as in `-- $(which {name}) …`"),
        false => "check the spelling, or give its path".to_owned(),
    }
}

/// Makes the child report its pid, wait for a byte, and change to the user, between fork and exec.
fn hold_before_exec(
    child: &mut Command,
    tell_pid: PipeWriter,
    may_go: PipeReader,
    go: i32,
    user: Option<CommandUser>,
) {
    let (tell_pid, may_go) = (OwnedFd::from(tell_pid), OwnedFd::from(may_go));
    let hold = move || {
        let pid = rustix::process::getpid().as_raw_nonzero().get().unsigned_abs();
        rustix::io::write(&tell_pid, &pid.to_ne_bytes())?;
        // The child also holds a copy of the write end; unless closed, the pipe would never reach its end.
        // SAFETY: closes a descriptor number of this process; nothing in the child uses it any more.
        unsafe { libc::close(go) };
        let mut byte = [0];
        loop {
            match rustix::io::read(&may_go, &mut byte) {
                Ok(1) => return user.as_ref().map_or(Ok(()), CommandUser::enter),
                // The profiler has exited: do not run without it.
                Ok(_) => return Err(io::ErrorKind::Interrupted.into()),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    };
    // SAFETY: between fork and exec the closure only makes the system calls getpid, write, close, read, setgroups,
    // setresgid and setresuid; it neither allocates nor takes locks.
    unsafe { child.pre_exec(hold) };
}

/// The exit code to pass on: the command's own, or 128 + signal, as in shells.
pub(crate) fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code & 0xff).ok()).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(command: &[&str]) -> Vec<OsString> {
        command.iter().map(OsString::from).collect()
    }

    #[test]
    fn command_waits_to_start_and_its_exit_code_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let mark = folder.path().join("ran");
        let script = format!("touch {}; exit 7", mark.display());
        let waiting = SuspendedChild::start(&words(&["sh", "-c", &script]), Vec::new(), None).unwrap();
        let status = std::fs::read_to_string(format!("/proc/{}/stat", waiting.pid())).unwrap();
        assert!(!status.is_empty() && !mark.exists());
        let pid = waiting.pid();
        let mut child = waiting.go().unwrap();
        assert_eq!(child.id(), pid);
        assert_eq!(exit_code(child.wait().unwrap()), 7);
        assert!(mark.exists());
    }

    #[test]
    fn a_command_that_does_not_exist_is_named() {
        let failure = SuspendedChild::start(&words(&["no-such-program-here"]), Vec::new(), None)
            .unwrap()
            .go()
            .unwrap_err();
        assert!(failure.to_string().contains("command not found: no-such-program-here"), "{failure}");
    }

    #[test]
    fn below_sudo_a_program_is_named_by_its_path() {
        assert!(where_to_look("python", true).ends_with("`-- $(which python) …`"));
        for (name, by_sudo) in [("python", false), ("./train.sh", true)] {
            assert_eq!(where_to_look(name, by_sudo), "check the spelling, or give its path");
        }
    }

    #[test]
    fn a_command_that_is_never_let_go_does_not_run() {
        let waiting = SuspendedChild::start(&words(&["true"]), Vec::new(), None).unwrap();
        let SuspendedChild { go, spawned, .. } = waiting;
        drop(go);
        assert!(spawned.join().unwrap().is_err());
    }

    #[test]
    fn a_signal_is_passed_on_as_shells_do() {
        let mut child = SuspendedChild::start(&words(&["sh", "-c", "kill -9 $$"]), Vec::new(), None)
            .unwrap()
            .go()
            .unwrap();
        assert_eq!(exit_code(child.wait().unwrap()), 137);
    }
}
