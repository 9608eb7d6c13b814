//! Command line: from what a user typed to a command that ran, and an exit code.
//!
//! Owns: options, errors as people read them, exit codes, progress, output files. Because: this is the product's face,
//! and it must be testable as a whole. Does not: capture, resolve, model or draw; it calls those who do.

pub mod config;
pub mod duration;
pub mod failure;
pub mod options;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};

use failure::{COULD_NOT_RUN, Done, Failure};
use options::{Cli, Command};

/// Runs the program: parses, acts, says what went wrong, gives the exit code.
pub fn main(arguments: Vec<OsString>) -> ExitCode {
    let cli = match parse(arguments) {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    match run(cli) {
        Ok(done) => done.into(),
        Err(failure) => failure.report(),
    }
}

fn parse(arguments: Vec<OsString>) -> Result<Cli, ExitCode> {
    let mut command = Cli::command();
    if let Some(path) = config::file_named_in(&arguments, std::env::var_os("DEEPCTX_CONFIG")) {
        command = config::apply(command, &path).map_err(|failure| failure.report())?;
    }
    command.try_get_matches_from(arguments).and_then(|matches| Cli::from_arg_matches(&matches)).map_err(
        |error| {
            // Help and version are answers; a reader that goes away early is no failure.
            let _ = error.print();
            ExitCode::from(if error.use_stderr() { COULD_NOT_RUN } else { 0 })
        },
    )
}

fn run(cli: Cli) -> Result<Done, Failure> {
    match cli.command {
        Some(Command::Record(_)) | None => Err(Failure::new("this build cannot capture yet")),
        Some(_) => Err(Failure::new("this build cannot read profiles yet")),
    }
}
