//! Command line: from what the user typed to a finished command and an exit code.
//!
//! Owns: options, error messages, exit codes, progress, output files. Because: this is the product's user interface,
//! and it must be testable as a whole. Does not: capture, resolve, model or draw; it calls the crates that do.
//!
//! Its entry point is [`main`], for a program of another name and for tests of whole commands.
//!
//! ```
//! let arguments = ["deepctx-bpf", "--version"].map(Into::into).to_vec();
//! assert_eq!(deepctx_cli::main(arguments), std::process::ExitCode::SUCCESS);
//! ```

mod analyze;
mod ascii;
mod auto_probes;
mod capture_args;
mod collector;
mod command;
mod command_user;
mod common_args;
mod config;
mod confinement;
mod control;
mod control_args;
mod debug_info;
mod debuginfod;
mod demo;
mod demo_args;
mod destination;
mod diff;
mod doctor;
#[cfg(test)]
mod documented;
mod dump;
mod duration;
mod environment;
mod experiment;
mod experiment_args;
mod export;
mod fail_on;
mod failure;
mod familiar;
mod files;
mod finisher;
mod flight_args;
mod flight_recorder;
mod held_signal;
mod lanes;
mod level_switch;
mod live;
mod manual;
mod manual_args;
mod model_args;
mod nearest;
mod on_finding;
mod open;
mod options;
mod out_of_memory;
mod output;
mod probes;
mod progress;
mod python_rules;
mod record;
mod record_args;
mod replay_raw;
mod report;
mod rules_file;
mod run;
mod sampling;
mod screen;
mod selection;
mod short_help;
mod standstill;
mod step_marker;
mod target;
mod timeline;
mod tui_args;
mod unused;
mod user_rows;
mod variables;
mod view;
mod workers;

use std::ffi::OsString;
use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};

use tracing_subscriber::filter::LevelFilter;

use common_args::{CommonArgs, LogFormat};
use confinement::Confinement;
use failure::{COULD_NOT_RUN, Completion, Failure};
use options::{Cli, Command};
pub use out_of_memory::Allocator;
use progress::Progress;

/// Runs the program: parses arguments, runs the command, reports errors, returns the exit code.
pub fn main(arguments: Vec<OsString>) -> ExitCode {
    // Before anything else: it drops privileges while it has one thread and no open files.
    if let Some(serve) = workers::asked_for(&arguments) {
        return workers::run(serve);
    }
    let cli = match parse(&arguments) {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    held_signal::survive_file_limits();
    match run(cli) {
        Ok(done) => done.into(),
        Err(failure) => failure.report(),
    }
}

fn parse(arguments: &[OsString]) -> Result<Cli, ExitCode> {
    environment::refuse_renamed(arguments, |name| std::env::var_os(name).is_some())
        .map_err(|failure| failure.report())?;
    let mut command = short_help::shorten(Cli::command(), arguments);
    if let Some(path) = config::file_named_in(arguments, std::env::var_os("DEEPCTX_CONFIG")) {
        command = config::apply(command, &path).map_err(|failure| failure.report())?;
    }
    let matches = variables::parse(&command, arguments).map_err(|error| shown(&error))?;
    let cli = Cli::from_arg_matches(&matches).map_err(|error| shown(&error))?;
    unused::sentences(&matches).into_iter().for_each(note);
    Ok(cli)
}

/// Shows why there is no command to run: help, version, or wrong usage.
fn shown(error: &clap::Error) -> ExitCode {
    // Help and version are successful output; a closed pipe is no failure.
    if ascii::is_needed(&std::io::stdout()) || ascii::is_needed(&std::io::stderr()) {
        let text = error.render().to_string();
        let _ = match error.use_stderr() {
            true => std::io::stderr().write_all(ascii::shown(&text, &std::io::stderr()).as_bytes()),
            false => std::io::stdout().write_all(ascii::shown(&text, &std::io::stdout()).as_bytes()),
        };
    } else {
        let _ = error.print();
    }
    if let Some(hint) = familiar::hint(error) {
        let text = format!("hint: {hint}\n");
        let _ = std::io::stderr().write_all(ascii::shown(&text, &std::io::stderr()).as_bytes());
    }
    ExitCode::from(if error.use_stderr() { COULD_NOT_RUN } else { 0 })
}

fn run(cli: Cli) -> Result<Completion, Failure> {
    let command = cli.command.unwrap_or(Command::Live(cli.live));
    log(command.common());
    if let Some(confinement) = Confinement::of(&command) {
        confinement.enter_and_log();
    }
    match command {
        Command::Live(arguments) => live::run(&arguments),
        Command::Record(arguments) => record::run(&arguments),
        Command::Experiment(arguments) => experiment::run(&arguments),
        Command::View(arguments) => view::run(&arguments),
        Command::Report(arguments) => report::run(&arguments),
        Command::Analyze(arguments) => analyze::run(&arguments),
        Command::Timeline(arguments) => timeline::run(&arguments),
        Command::Export(arguments) => export::run(&arguments),
        Command::Diff(arguments) => diff::run(&arguments),
        Command::ReplayRaw(arguments) => replay_raw::run(&arguments),
        Command::Dump(arguments) => dump::run(&arguments),
        Command::Control(arguments) => control::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Probes(arguments) => probes::run(&arguments),
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Completions(arguments) => manual::completions(&arguments),
        Command::ManualPages(arguments) => manual::manual_pages(&arguments),
    }
}

/// Sends log lines to standard error: warnings, plus more with each `-v`.
fn log(common: &CommonArgs) {
    let level = match common.verbose {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let builder = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        // A log whose reader went away (`2>&1 | head`) is lost. To say so on standard error would end the thread that
        // logs, and with it the capture.
        .log_internal_errors(false);
    // A second call in one process (tests) keeps the first one's subscriber.
    let _ = match common.log_format {
        LogFormat::Text => builder.without_time().try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
    tracing::debug!("deepctx-bpf {}", env!("CARGO_PKG_VERSION"));
}

/// Prints a note on standard error, beside the output.
fn note(text: impl std::fmt::Display) {
    Progress::new(false).say(&format!("note: {text}"));
}
