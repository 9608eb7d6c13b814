//! Short help: what `-h` shows.
//!
//! Owns: the options that a newcomer needs. Because: the first minute needs a dozen of them, and 150 lines scroll those
//! out of sight. Does not: leave anything out of `--help`, the manual pages or the completions.

use std::ffi::OsString;

use clap::Command;

/// Options that `-h` shows of the commands that capture.
const SHOWN: [&str; 13] = [
    "pid",
    "comm",
    "container",
    "all",
    "probe",
    "off_cpu",
    "gpu_activity",
    "trace",
    "output",
    "duration",
    "command",
    "help",
    "version",
];
/// The commands that capture. The options of the program itself are those of `live`.
const CAPTURING: [&str; 2] = ["live", "record"];

/// Leaves rarer options and all environment variables out of `-h`.
pub(crate) fn shorten(command: Command, arguments: &[OsString]) -> Command {
    if !arguments.iter().any(|argument| argument == "-h") {
        return command;
    }
    with_few_options(command).mut_subcommands(|command| {
        if CAPTURING.contains(&command.get_name()) {
            with_few_options(command)
        } else {
            without_variables(command)
        }
    })
}

fn with_few_options(command: Command) -> Command {
    without_variables(command).mut_args(|option| {
        let shown = SHOWN.contains(&option.get_id().as_str());
        option.hide_short_help(!shown)
    })
}

fn without_variables(command: Command) -> Command {
    command.mut_args(|option| option.hide_env(true))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::super::options::Cli;
    use super::*;

    /// Help as printed for these words.
    fn help(words: &[&str]) -> String {
        let arguments: Vec<OsString> =
            std::iter::once(&"deepctx-bpf").chain(words).map(OsString::from).collect();
        let command = shorten(Cli::command(), &arguments);
        command.try_get_matches_from(arguments).unwrap_err().to_string()
    }

    #[test]
    fn short_help_of_a_capture_fits_on_a_screen() {
        for words in [&["-h"][..], &["live", "-h"], &["record", "-h"]] {
            let help = help(words);
            assert!(help.lines().count() <= 48, "{words:?}: {}\n{help}", help.lines().count());
            for part in ["--pid", "--probe", "--off-cpu", "see more with '--help'"] {
                assert!(help.contains(part), "{words:?}: {part}\n{help}");
            }
            assert!(!help.contains("[env:"), "{help}");
        }
    }

    #[test]
    fn long_help_leaves_nothing_out() {
        let help = help(&["record", "--help"]);
        assert!(help.contains("--operator-stacks") && help.contains("[env: DEEPCTX_PROBE=]"), "{help}");
    }

    #[test]
    fn long_help_says_how_times_are_written() {
        for command in CAPTURING {
            let help = help(&[command, "--help"]);
            assert!(help.contains("1h30m"), "{help}");
        }
    }

    #[test]
    fn long_help_ends_with_the_exit_codes() {
        let long = help(&["--help"]);
        let (_, codes) = long.split_once("\nExit codes:\n").unwrap();
        assert!(codes.starts_with("  0  Done.\n  1  ") && !codes.contains("--help"), "{codes}");
        assert!(!help(&["-h"]).contains("Exit codes"));
    }

    #[test]
    fn every_shown_option_exists() {
        let command = Cli::command();
        let commands = CAPTURING.map(|name| command.find_subcommand(name).unwrap());
        for shown in SHOWN.iter().filter(|shown| !["help", "version"].contains(shown)) {
            let exists = |command: &&Command| command.get_arguments().any(|option| option.get_id() == shown);
            assert!(commands.iter().any(exists), "{shown}");
        }
    }
}
