//! Failure: the message and exit code of a command that could not do its work.
//!
//! Owns: the shape (one line that names the object and the expectation, then a `hint:` line) and the exit codes.
//! Because: errors are read at a bad moment, and scripts need numbers that mean something.
//! Does not: know any sub-command.

use std::fmt;
use std::io;
use std::process::ExitCode;

use deepctx_capture::doctor;
use deepctx_profile::frame::is_printable;
use deepctx_storage::OpenError;
use deepctx_storage::store::StoreError;

use super::ascii;

/// How a command ended that could run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// Everything was done: exit code 0.
    Fully,
    /// Done, but more was lost than `--max-loss` allows: exit code 1.
    WithLosses,
    /// Done, and a finding matches `--fail-on`: exit code 1.
    WithFindings,
    /// Done, and something grew by more than `--fail-on` allows: exit code 1.
    WithGrowth,
    /// Done, but runs of an experiment failed: exit code 2.
    WithFailedRuns,
    /// The recorded command ended with this code, which is passed on.
    Command(u8),
}

impl From<Completion> for ExitCode {
    fn from(done: Completion) -> Self {
        match done {
            Completion::Fully => ExitCode::SUCCESS,
            Completion::WithLosses | Completion::WithFindings | Completion::WithGrowth => ExitCode::from(1),
            Completion::WithFailedRuns => ExitCode::from(COULD_NOT_RUN),
            Completion::Command(code) => ExitCode::from(code),
        }
    }
}

/// Exit code of a command that could not run.
pub(crate) const COULD_NOT_RUN: u8 = 2;

/// What the exit codes mean, for the end of `--help`. The README has the same table.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0  Done.
  1  Done, but --max-loss, --fail-on or --on-finding RULE=stop applies.
  2  Not done, or not all of it: wrong usage, missing privileges, an error.
     doctor: something that a capture needs is missing. dump: every process
     had ended. experiment: a run failed.
`record -- COMMAND` passes on the code of its command if that is not 0
(128 + signal if a signal ended it); an error of the capture is still 2.
An interrupted experiment ends with the code of its command, or with 130.";

/// The error of a command that could not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    message: String,
    hint: Option<String>,
    quiet: bool,
}

impl Failure {
    /// A failure with a one-line message.
    pub(crate) fn new(message: impl fmt::Display) -> Self {
        Self { message: one_line(&message.to_string()), hint: None, quiet: false }
    }

    /// Adds a hint for the user.
    #[must_use]
    pub(crate) fn hint(mut self, hint: impl fmt::Display) -> Self {
        self.hint = Some(one_line(&doctor::with_installed_pages(&hint.to_string())));
        self
    }

    /// An I/O error of an object. A closed pipe (`| head`) is not reported.
    pub(crate) fn io(object: impl fmt::Display, error: &io::Error) -> Self {
        let failure = Self::new(format_args!("{object}: {error}"));
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self { quiet: true, ..failure },
            io::ErrorKind::PermissionDenied => {
                failure.hint("run it with sudo, or choose a path that you can write to")
            }
            io::ErrorKind::FileTooLarge => {
                failure.hint("the file is too large: check `ulimit -f`, and the file system of -o")
            }
            io::ErrorKind::StorageFull => failure.hint("free some space, or choose another path with -o"),
            _ if error.raw_os_error() == Some(libc::EMFILE) => failure.hint(doctor::OPEN_FILES_HINT),
            _ => failure,
        }
    }

    /// Prints the failure on standard error and returns the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        if self.quiet {
            return ExitCode::SUCCESS;
        }
        // Standard error may be closed as well.
        let text = format!("{self}\n");
        let _ = io::Write::write_all(&mut io::stderr().lock(), ascii::shown(&text, &io::stderr()).as_bytes());
        ExitCode::from(COULD_NOT_RUN)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Failure {}

/// A foreign text, or one with foreign names, as one line: names come from other processes and files, and must neither
/// control the terminal nor reorder what it shows.
pub(crate) fn one_line(text: &str) -> String {
    text.chars().map(|c| if is_printable(c) { c } else { ' ' }).collect()
}

/// Converts an error of the store to a message.
pub(crate) fn store_failure(error: &StoreError) -> Failure {
    match error {
        StoreError::AlreadyExists(_) => {
            Failure::new(error).hint("add --force to replace it, or choose another name with -o")
        }
        _ => hinted(error, error.hint()),
    }
}

/// Converts an error of opening a profile to a message.
pub(crate) fn open_failure(error: &OpenError) -> Failure {
    hinted(error, error.hint())
}

fn hinted(error: impl fmt::Display, hint: Option<String>) -> Failure {
    let failure = Failure::new(error);
    match hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_line_and_its_hint_another() {
        let failure =
            Failure::new("run.dctx: expected a profile,\nfound \x1b[31mtext").hint("record one first");
        assert_eq!(
            failure.to_string(),
            "error: run.dctx: expected a profile, found  [31mtext\nhint: record one first"
        );
        let failure = Failure::new("pay\u{202e}gpj.exe\u{2066}: not found");
        assert_eq!(failure.to_string(), "error: pay gpj.exe : not found");
    }

    #[test]
    fn a_reader_that_went_away_is_no_failure() {
        assert!(Failure::io("standard output", &io::ErrorKind::BrokenPipe.into()).quiet);
        assert!(!Failure::io("x", &io::ErrorKind::NotFound.into()).quiet);
    }
}
