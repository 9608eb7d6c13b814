//! Variables: which values of the environment apply to what was typed.
//!
//! Owns: parsing the arguments without the variables that conflict with them, or that need an option which is not
//! there. Because: a variable is set for all commands, and must not make one fail that has no use for it. Does not:
//! excuse what was typed, or a value that no command takes.

use std::collections::BTreeMap;
use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::{ArgMatches, Command};

/// Parses the arguments. Variables that do not apply count as not set.
///
/// # Errors
/// What was typed is refused, or the value of a variable.
pub(crate) fn parse(command: &Command, arguments: &[OsString]) -> Result<ArgMatches, clap::Error> {
    let error = match command.clone().try_get_matches_from(arguments) {
        Err(error) if may_be_of_a_variable(&error) => error,
        done => return done,
    };
    let with = |kept: &[OsString]| with_variables(command.clone(), kept).try_get_matches_from(arguments);
    let set = set_variables(command);
    let mut kept: Vec<OsString> = Vec::new();
    loop {
        let before = kept.len();
        for variable in &set {
            if kept.contains(variable) {
                continue;
            }
            kept.push(variable.clone());
            if with(&kept).is_err() {
                kept.pop();
            }
        }
        // One may need another that comes later.
        if kept.len() == before {
            break;
        }
    }
    with(&kept).map_err(|_| error)
}

fn may_be_of_a_variable(error: &clap::Error) -> bool {
    matches!(error.kind(), ErrorKind::ArgumentConflict | ErrorKind::MissingRequiredArgument)
}

/// The variables of options that are set. Where two conflict, the first one applies: that of fewer commands.
fn set_variables(command: &Command) -> Vec<OsString> {
    let mut commands: BTreeMap<OsString, usize> = BTreeMap::new();
    for one in std::iter::once(command).chain(command.get_subcommands()) {
        for variable in one.get_arguments().filter_map(clap::Arg::get_env) {
            *commands.entry(variable.to_owned()).or_default() += 1;
        }
    }
    let is_set = |variable: &OsString| std::env::var_os(variable).is_some();
    let mut set: Vec<OsString> = commands.keys().filter(|variable| is_set(variable)).cloned().collect();
    set.sort_by_key(|variable| commands[variable]);
    set
}

/// The command as it would be if only these variables were set.
fn with_variables(command: Command, kept: &[OsString]) -> Command {
    let command = command.mut_args(|option| {
        let is_kept = option.get_env().is_none_or(|variable| kept.iter().any(|kept| kept == variable));
        if is_kept { option } else { option.env(None::<&'static str>) }
    });
    command.mut_subcommands(|command| with_variables(command, kept))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use clap::{Arg, ArgAction};

    use super::*;

    /// A variable that is set wherever tests run.
    const SET: &str = "PATH";

    /// What a command with an option that reads the variable makes of some words: the value of the option.
    fn value(option: Arg, words: &[&str]) -> Result<Option<String>, ErrorKind> {
        let command = Command::new("x")
            .arg(option.long("option").env(SET))
            .arg(Arg::new("other").long("other").action(ArgAction::SetTrue));
        let words: Vec<OsString> = ["x"].iter().chain(words).map(OsString::from).collect();
        let matches = parse(&command, &words).map_err(|error| error.kind())?;
        Ok(matches.get_one::<String>("option").cloned())
    }

    #[test]
    fn a_variable_that_does_not_apply_is_not_set() {
        let path = std::env::var(SET).ok();
        let needing = || Arg::new("option").requires("other");
        assert_eq!(value(needing(), &[]), Ok(None));
        assert_eq!(value(needing(), &["--other"]), Ok(path.clone()));
        let conflicting = || Arg::new("option").conflicts_with("other");
        assert_eq!(value(conflicting(), &["--other"]), Ok(None));
        assert_eq!(value(conflicting(), &[]), Ok(path.clone()));
        // A variable stands for an option that must be there.
        assert_eq!(value(Arg::new("option").required(true), &["--other"]), Ok(path));
    }

    #[test]
    fn what_was_typed_is_refused() {
        let typed = ["--option", "typed"];
        let refused = value(Arg::new("option").requires("other"), &typed);
        assert_eq!(refused, Err(ErrorKind::MissingRequiredArgument));
        let both = [&typed[..], &["--other"]].concat();
        let refused = value(Arg::new("option").conflicts_with("other"), &both);
        assert_eq!(refused, Err(ErrorKind::ArgumentConflict));
        assert_eq!(value(Arg::new("option"), &["--unknown"]), Err(ErrorKind::UnknownArgument));
    }

    #[test]
    fn a_variable_of_fewer_commands_comes_first() {
        let option = |variable: &'static str| Arg::new(variable).long(variable).env(variable);
        let of_all = Command::new("x").arg(option(SET));
        let command = of_all.subcommand(Command::new("a").arg(option(SET)).arg(option("CARGO_PKG_NAME")));
        let set = set_variables(&command);
        assert_eq!(set.last().map(OsString::as_os_str), Some(OsStr::new(SET)), "{set:?}");
    }
}
