//! Config: defaults from a TOML file whose keys are option names.
//!
//! Owns: finding the file, and turning its values into defaults of the options. Because: the command line takes
//! precedence, then the environment, then this file, then the built-in default, and the argument parser already
//! implements and checks that. Does not: know what any option means.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, Command};

use super::failure::Failure;

/// Maximum size of a configuration file.
const SIZE_MAX: u64 = 1 << 20;

/// The file named by `--config` or `DEEPCTX_CONFIG`, if any. Runs before all other parsing.
pub(crate) fn file_named_in(arguments: &[OsString], environment: Option<OsString>) -> Option<PathBuf> {
    let ours = arguments.iter().take_while(|argument| *argument != "--");
    let mut named = None;
    let mut previous_was_name = false;
    for argument in ours {
        if previous_was_name {
            named = Some(argument.clone());
        } else if let Some(path) = argument.to_str().and_then(|text| text.strip_prefix("--config=")) {
            named = Some(OsString::from(path));
        }
        previous_was_name = argument == "--config";
    }
    named.or(environment).map(PathBuf::from)
}

/// Reads the file and makes its values the defaults of `command` and its sub-commands.
pub(crate) fn apply(command: Command, path: &Path) -> Result<Command, Failure> {
    let size = std::fs::metadata(path).map_err(|error| Failure::io(path.display(), &error))?.len();
    if size > SIZE_MAX {
        return Err(Failure::new(format_args!(
            "{}: expected a small TOML file, found {size} bytes",
            path.display()
        )));
    }
    let text = std::fs::read_to_string(path).map_err(|error| Failure::io(path.display(), &error))?;
    defaults_from(command, &text).map_err(|message| {
        Failure::new(format_args!("{}: {message}", path.display()))
            .hint("write options as in --help, without the dashes: freq = 49")
    })
}

fn defaults_from(command: Command, text: &str) -> Result<Command, String> {
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| syntax(text, &error))?;
    let mut command = command;
    for (key, value) in &table {
        let options = options_of(&command, key);
        if options.is_empty() || key == "config" {
            return Err(format!("'{key}' is not an option that a file can set"));
        }
        let values = words(value)
            .ok_or_else(|| format!("'{key}' must be text, a number, a boolean or a list of these"))?;
        if !options.iter().any(|option| takes(option, &values)) {
            let expected = known_values(&options).into_iter().collect::<Vec<_>>().join(", ");
            return Err(format!("'{key}' is '{}' for no command: expected {expected}", values.join(",")));
        }
        command = with_default(command, key, &values);
    }
    Ok(command)
}

/// The options of this name, of all commands, that a file can set.
fn options_of<'c>(command: &'c Command, long: &str) -> Vec<&'c Arg> {
    let commands = std::iter::once(command).chain(command.get_subcommands());
    let options = commands.flat_map(Command::get_arguments);
    options.filter(|option| option.get_long() == Some(long) && can_be_set(option)).collect()
}

/// Whether an option takes these values. One of the same name may take others with another command: `format`.
fn takes(option: &Arg, values: &[String]) -> bool {
    let known = option.get_possible_values();
    let is_known = |value: &str| known.iter().any(|it| it.matches(value, option.is_ignore_case_set()));
    known.is_empty()
        || values.iter().all(|value| match option.get_value_delimiter() {
            Some(delimiter) => value.split(delimiter).all(is_known),
            None => is_known(value),
        })
}

/// What options take that have a list of values.
fn known_values(options: &[&Arg]) -> BTreeSet<String> {
    let values = options.iter().flat_map(|option| option.get_possible_values());
    values.filter(|value| !value.is_hide_set()).map(|value| value.get_name().to_owned()).collect()
}

/// The error in a text that is no TOML, and its line.
pub(super) fn syntax(text: &str, error: &toml::de::Error) -> String {
    let begin = error.span().map_or(0, |span| span.start);
    let line = 1 + text.bytes().take(begin).filter(|byte| *byte == b'\n').count();
    format!("line {line}: {}", error.message())
}

/// Whether a file can set an option: those that a variable can set. `output` and `force`, meant for `record`, would
/// make `report` replace the profile that it reads.
fn can_be_set(option: &Arg) -> bool {
    option.get_env().is_some()
}

fn words(value: &toml::Value) -> Option<Vec<String>> {
    Some(match value {
        toml::Value::String(text) => vec![text.clone()],
        toml::Value::Integer(number) => vec![number.to_string()],
        toml::Value::Float(number) => vec![number.to_string()],
        toml::Value::Boolean(truth) => vec![truth.to_string()],
        toml::Value::Array(items) => items.iter().map(words).collect::<Option<Vec<_>>>()?.concat(),
        toml::Value::Datetime(_) | toml::Value::Table(_) => return None,
    })
}

fn with_default(command: Command, long: &str, values: &[String]) -> Command {
    let is_set =
        |option: &&Arg| option.get_long() == Some(long) && can_be_set(option) && takes(option, values);
    let id = command.get_arguments().find(is_set).map(|option| option.get_id().clone());
    let command = match id {
        Some(id) => command.mut_arg(id, |argument| match argument.get_action() {
            // A count takes no value; its default is the number.
            ArgAction::Append | ArgAction::Set | ArgAction::SetTrue | ArgAction::Count => argument
                .default_values(values.iter().map(|value| OsStr::new(value).to_owned()).collect::<Vec<_>>()),
            _ => argument,
        }),
        None => command,
    };
    let names: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    names
        .into_iter()
        .fold(command, |command, name| command.mut_subcommand(name, |sub| with_default(sub, long, values)))
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, FromArgMatches};

    use super::super::options::{Cli, Command as SubCommand, ReportFormat, TextOrJson};
    use super::*;
    use deepctx_capture::FrameSource;

    fn parsed(toml: &str, arguments: &[&str]) -> Cli {
        let command = defaults_from(Cli::command(), toml).unwrap();
        Cli::from_arg_matches(&command.try_get_matches_from(arguments).unwrap()).unwrap()
    }

    #[test]
    fn a_file_gives_defaults_and_the_command_line_overrules_them() {
        let toml = "freq = 49\ncontext = [\"native\"]\nall = true\nduration = \"3s\"";
        let SubCommand::Record(record) = parsed(toml, &["deepctx-bpf", "record"]).command.unwrap() else {
            panic!()
        };
        assert_eq!((record.capture.freq, record.target.all), (49, true));
        assert_eq!(record.capture.context, [FrameSource::Native]);
        assert_eq!(record.duration.unwrap().as_secs(), 3);
        assert_eq!(parsed(toml, &["deepctx-bpf", "--freq", "7"]).live.capture.freq, 7);
    }

    #[test]
    fn an_output_of_record_is_none_of_report() {
        let toml = "output = \"run.dctx\"\nforce = true";
        let Some(SubCommand::Record(record)) = parsed(toml, &["deepctx-bpf", "record"]).command else {
            panic!()
        };
        assert_eq!((record.output.as_deref(), record.force), (Some(Path::new("run.dctx")), true));
        let Some(SubCommand::Report(report)) = parsed(toml, &["deepctx-bpf", "report", "run.dctx"]).command
        else {
            panic!()
        };
        assert_eq!((report.output.output.as_path(), report.output.force), (Path::new("-"), false));
    }

    #[test]
    fn a_value_is_set_where_a_command_takes_it() {
        let report = parsed("format = \"html\"", &["deepctx-bpf", "report", "run.dctx"]).command;
        assert!(matches!(report, Some(SubCommand::Report(report)) if report.format == ReportFormat::Html));
        let dump = parsed("format = \"html\"", &["deepctx-bpf", "dump", "--pid", "1"]).command;
        assert!(matches!(dump, Some(SubCommand::Dump(dump)) if dump.format == TextOrJson::Text));
        let error = defaults_from(Cli::command(), "format = \"docx\"").unwrap_err();
        assert!(error.contains("'docx' for no command: expected chrome, "), "{error}");
        let error = defaults_from(Cli::command(), "context = \"native,pyton\"").unwrap_err();
        assert!(error.ends_with("expected kernel, native, python"), "{error}");
        assert!(defaults_from(Cli::command(), "context = \"native,python\"").is_ok());
    }

    #[test]
    fn a_file_with_an_unknown_name_is_refused() {
        assert!(defaults_from(Cli::command(), "frequency = 1").unwrap_err().contains("'frequency'"));
        assert!(defaults_from(Cli::command(), "freq = {}").unwrap_err().contains("must be text"));
        assert!(defaults_from(Cli::command(), "what-if = \"no-wait:x\"").unwrap_err().contains("'what-if'"));
    }

    #[test]
    fn a_file_that_is_no_toml_is_refused_by_line() {
        let error = defaults_from(Cli::command(), "freq = 49\nall = = true\n").unwrap_err();
        assert!(error.starts_with("line 2: "), "{error}");
        assert!(defaults_from(Cli::command(), "freq").unwrap_err().starts_with("line 1: "));
    }

    #[test]
    fn the_file_is_found_before_the_command_of_record() {
        let named = |arguments: &[&str]| {
            let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
            file_named_in(&arguments, Some("env.toml".into())).unwrap()
        };
        assert_eq!(named(&["x", "record", "--config", "a.toml"]), Path::new("a.toml"));
        assert_eq!(named(&["x", "--config=b.toml"]), Path::new("b.toml"));
        assert_eq!(named(&["x", "record", "--", "y", "--config", "c"]), Path::new("env.toml"));
    }
}
