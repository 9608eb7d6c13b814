//! Act: carries out the action of `--on-finding`.
//!
//! Owns: the commands that it started, and the user they run as. Because: the profiler runs as root, and a
//! notification command must not. Does not: decide when; its owner polls about ten times a second.
//!
//! A command gets the finding as JSON on its standard input, and `FINDING_RULE`, `FINDING_SEVERITY`, `FINDING_TITLE`,
//! `FINDING_ADVICE` in its environment.

use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use deepctx_analysis::findings::Finding;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open, pidfd_send_signal};

use super::super::command_user::CommandUser;
use super::{Action, FindingAction, PendingFindings};

/// How long the end of a recording waits for started commands.
const END_LONGEST: Duration = Duration::from_secs(5);

/// What the capture has to do about a finding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Requests {
    /// Have the flight recorder write what it keeps.
    pub keep: bool,
    /// Begin the window of single events.
    pub trace: bool,
    /// End the capture.
    pub stop: bool,
    /// Notices for the user.
    pub notices: Vec<String>,
}

/// Runs the actions for findings.
#[derive(Debug, Default)]
pub(crate) struct Actions {
    on: Vec<FindingAction>,
    found: PendingFindings,
    /// Processes that get signals: another one with the number of one that ended gets none.
    processes: Vec<OwnedFd>,
    /// Some were given, whether they still ran or not.
    has_targets: bool,
    /// The user that commands run as: `--user`, else the caller of sudo.
    user: Option<String>,
    running: Vec<(String, Child)>,
    /// A finding ended the capture.
    pub stopped: bool,
}

impl Actions {
    /// Acts on what `found` delivers, by index into these options. Signals go to the processes that have these numbers
    /// now.
    pub(crate) fn new(
        on: Vec<FindingAction>,
        found: PendingFindings,
        pids: Vec<u32>,
        user: Option<String>,
    ) -> Self {
        let opened = |pid: u32| {
            let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
            pidfd_open(pid, PidfdFlags::empty()).ok()
        };
        let has_targets = !pids.is_empty();
        let processes = pids.into_iter().filter_map(opened).collect();
        Actions { on, found, processes, has_targets, user, running: Vec::new(), stopped: false }
    }

    /// Acts on findings since the last call. After the capture, no window can begin any more.
    pub(crate) fn act(&mut self, is_over: bool) -> Requests {
        let mut requests = Requests::default();
        for (place, finding) in self.found.take() {
            let Some(of) = self.on.get(place).cloned() else { continue };
            let done = match &of.action {
                Action::Keep => {
                    requests.keep = true;
                    Ok("; writing the kept data".to_owned())
                }
                Action::Trace if is_over => Ok("; too late to record individual events".to_owned()),
                Action::Trace => {
                    requests.trace = true;
                    Ok("; recording individual events from now on".to_owned())
                }
                Action::Stop => {
                    (requests.stop, self.stopped) = (true, true);
                    Ok("; the capture ends".to_owned())
                }
                Action::Signal(signal) => self.signal(*signal).map(|()| format!("; sent {}", of.action)),
                Action::Run(command) => self.start(command, &finding).map(|()| format!("; runs `{command}`")),
            };
            let done = done.unwrap_or_else(|error| format!("; `{}` failed: {error}", of.action));
            let (rule, severity, title) = (&finding.rule, finding.severity, &finding.title);
            requests.notices.push(format!("finding {rule} ({severity}): {title}{done}"));
        }
        self.reap(&mut requests.notices);
        requests
    }

    fn signal(&self, signal: rustix::process::Signal) -> io::Result<()> {
        if self.has_targets && self.processes.is_empty() {
            return Err(Errno::SRCH.into());
        }
        // A process that has ended does not keep the others from getting the signal.
        let mut outcome = Ok(());
        for process in &self.processes {
            outcome = pidfd_send_signal(process, signal).map_err(io::Error::from).and(outcome);
        }
        outcome
    }

    fn start(&mut self, text: &str, finding: &Finding) -> io::Result<()> {
        let mut input = File::from(memfd_create("finding", MemfdFlags::CLOEXEC)?);
        serde_json::to_writer(&mut input, finding)?;
        input.write_all(b"\n")?;
        input.rewind()?;
        let mut command = Command::new("sh");
        command.arg("-c").arg(text).stdin(Stdio::from(input));
        let user = CommandUser::choose(self.user.as_deref());
        if let Some(user) = user.map_err(|failure| io::Error::other(failure.to_string()))? {
            user.set_environment(&mut command);
            // SAFETY: between fork and exec, `enter` only makes system calls and allocates nothing.
            unsafe { command.pre_exec(move || user.enter()) };
        }
        command
            .env("FINDING_RULE", &finding.rule)
            .env("FINDING_SEVERITY", finding.severity.to_string())
            .env("FINDING_TITLE", &finding.title)
            .env("FINDING_ADVICE", &finding.advice);
        self.running.push((text.to_owned(), command.spawn()?));
        Ok(())
    }

    /// Reports ended commands that failed.
    fn reap(&mut self, notices: &mut Vec<String>) {
        self.running.retain_mut(|(text, child)| match child.try_wait() {
            Ok(None) => true,
            Ok(Some(status)) => {
                if !status.success() {
                    notices.push(format!("`{text}` ended with {status}"));
                }
                false
            }
            Err(_) => false,
        });
    }

    /// Waits for running commands, as long as a recording's end may take. Returns notices about them.
    pub(crate) fn finish(&mut self) -> Vec<String> {
        let (began, mut notices) = (Instant::now(), Vec::new());
        loop {
            self.reap(&mut notices);
            if self.running.is_empty() {
                return notices;
            }
            if began.elapsed() >= END_LONGEST {
                let left = self.running.drain(..);
                notices
                    .extend(left.map(|(text, _)| format!("`{text}` is still running; not waiting for it")));
                return notices;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;

    use rustix::process::Signal;

    use super::*;

    fn actions(pid: u32) -> Actions {
        Actions::new(Vec::new(), PendingFindings::default(), vec![pid], None)
    }

    fn outcome(actions: &Actions) -> Result<(), Option<i32>> {
        actions.signal(Signal::CONT).map_err(|error| error.raw_os_error())
    }

    #[test]
    fn a_signal_that_reaches_no_process_fails() {
        let gone = Err(Some(Errno::SRCH.raw_os_error()));
        // The number of no process, now or later.
        assert_eq!(outcome(&actions(i32::MAX as u32)), gone);
        let nobody = Actions::new(Vec::new(), PendingFindings::default(), Vec::new(), None);
        assert_eq!(outcome(&nobody), Ok(()));
    }

    #[test]
    fn a_signal_goes_to_the_process_not_its_number() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let actions = actions(child.id());
        let before = outcome(&actions);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(before, Ok(()));
        // A descriptor of a process stays that of the one that ended, whoever has its number by now.
        assert_eq!(outcome(&actions), Err(Some(Errno::SRCH.raw_os_error())));
        let [process] = &actions.processes[..] else { panic!("{actions:?}") };
        let facts = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", process.as_raw_fd())).unwrap();
        assert!(facts.lines().any(|line| line == "Pid:\t-1"), "{facts}");
    }
}
