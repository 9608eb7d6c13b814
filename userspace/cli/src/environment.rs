//! Environment: old variable names with several meanings, and their replacements.
//!
//! Owns: the list of old names. Because: `DEEPCTX_OUTPUT`, set for `record`, once made `report` overwrite a profile
//! with its text; users who still set it must see the new names, and not be ignored. Does not: read options; clap
//! does.

use std::ffi::OsString;

use super::failure::Failure;

/// Old names and their replacements.
const RENAMED: [(&str, &str); 7] = [
    ("DEEPCTX_OUTPUT", "DEEPCTX_RECORD_OUTPUT for `record`; other commands take -o only"),
    ("DEEPCTX_FORCE", "DEEPCTX_RECORD_FORCE for `record`; other commands take --force only"),
    ("DEEPCTX_FORMAT", "DEEPCTX_REPORT_FORMAT for `report`, DEEPCTX_DUMP_FORMAT for `dump` and so on"),
    ("DEEPCTX_LIMIT", "DEEPCTX_REPORT_LIMIT for `report`, DEEPCTX_DIFF_LIMIT for `diff` and so on"),
    ("DEEPCTX_LIBRARY", "DEEPCTX_PROBES_LIBRARY"),
    ("DEEPCTX_LAYERS", "DEEPCTX_PROBES_LAYERS"),
    ("DEEPCTX_PROBES", "DEEPCTX_PROBE_FILE"),
];

/// Names that were replaced for one command only.
const RENAMED_FOR: [(&str, &str, &str); 1] = [("export", "DEEPCTX_LINES", "DEEPCTX_EXPORT_LINES")];

/// Refuses to run while a variable with an old name is set. Help and version still work.
///
/// # Errors
/// Such a variable is set.
pub(crate) fn refuse_renamed(arguments: &[OsString], is_set: impl Fn(&str) -> bool) -> Result<(), Failure> {
    let mut ours = arguments.iter().skip(1).take_while(|argument| *argument != "--");
    if ours.any(|argument| ["-h", "--help", "-V", "--version", "help"].iter().any(|word| argument == word)) {
        return Ok(());
    }
    // The command comes first: options before it belong to `live`, and clap refuses them beside another command. The
    // first word that is a command's name may be a value (`--comm export`).
    let command = arguments.get(1).and_then(|argument| argument.to_str()).unwrap_or_default();
    let of_command = RENAMED_FOR.iter().filter(|(of, ..)| *of == command).map(|(_, old, new)| (old, new));
    let renamed = RENAMED.iter().map(|(old, new)| (old, new));
    match renamed.chain(of_command).find(|(old, _)| is_set(old)) {
        Some((old, new)) => Err(Failure::new(format_args!("{old}: no option reads this variable anymore"))
            .hint(format_args!("unset it; use {new} instead"))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use clap::CommandFactory as _;

    use super::super::options::Cli;
    use super::*;

    #[test]
    fn renamed_variable_is_refused_with_its_new_name() {
        let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        for (old, _) in RENAMED {
            let refused = refuse_renamed(&words(&["deepctx-bpf", "report", "x"]), |name| name == old);
            assert!(refused.unwrap_err().to_string().starts_with(&format!("error: {old}: ")));
        }
        let output = |arguments: &[&str]| refuse_renamed(&words(arguments), |name| name == "DEEPCTX_OUTPUT");
        assert!(
            output(&["deepctx-bpf", "record"]).unwrap_err().to_string().contains("DEEPCTX_RECORD_OUTPUT")
        );
        assert!(output(&["deepctx-bpf", "record", "--help"]).is_ok());
        assert!(output(&["deepctx-bpf", "record", "--", "sh", "--help"]).is_err());
        assert!(refuse_renamed(&words(&["deepctx-bpf", "report", "x"]), |_| false).is_ok());
        let lines =
            |command| refuse_renamed(&words(&["deepctx-bpf", command, "x"]), |name| name == "DEEPCTX_LINES");
        assert!(lines("export").unwrap_err().to_string().contains("DEEPCTX_EXPORT_LINES"));
        assert!(lines("view").is_ok(), "it reads that variable");
    }

    #[test]
    fn variables_of_formats_and_limits_name_their_command() {
        for command in Cli::command().get_subcommands() {
            for option in ["format", "limit"] {
                let found = command.get_arguments().find(|argument| argument.get_long() == Some(option));
                let Some(argument) = found else { continue };
                let expect = format!("DEEPCTX_{}_{}", command.get_name(), option).to_uppercase();
                assert_eq!(argument.get_env(), Some(std::ffi::OsStr::new(&expect)));
            }
        }
    }

    #[test]
    fn a_command_is_the_first_argument() {
        let words = ["deepctx-bpf", "--comm", "export"].map(OsString::from);
        assert!(refuse_renamed(&words, |name| name == "DEEPCTX_LINES").is_ok(), "that is `live`");
        for option in Cli::command().get_arguments() {
            assert!(!option.is_global_set(), "{option}");
            let long = option.get_long().map(|long| format!("--{long}"));
            let short = option.get_short().map(|short| format!("-{short}"));
            for flag in [long, short].into_iter().flatten() {
                let value = option.get_action().takes_values().then_some("1");
                let line = ["deepctx-bpf", &flag].into_iter().chain(value).chain(["export", "x"]);
                assert!(Cli::command().try_get_matches_from(line).is_err(), "{flag}");
            }
        }
        for command in Cli::command().get_subcommands() {
            assert_eq!(command.get_all_aliases().count(), 0, "{}", command.get_name());
        }
        // Commands have no short forms either.
        assert!(Cli::command().try_get_matches_from(["deepctx-bpf", "expor", "x"]).is_err());
    }

    #[test]
    fn each_variable_belongs_to_one_option_and_value_kind() {
        let command = Cli::command();
        let mut options: BTreeMap<String, (Option<String>, Option<String>)> = BTreeMap::new();
        for argument in command.get_subcommands().flat_map(clap::Command::get_arguments) {
            let Some(variable) = argument.get_env() else { continue };
            let variable = variable.to_string_lossy().into_owned();
            assert!(RENAMED.iter().all(|(old, _)| variable != *old), "{variable}");
            let value = argument.get_value_names().map(|names| names.join(" "));
            let option = (argument.get_long().map(str::to_owned), value);
            let known = options.entry(variable.clone()).or_insert_with(|| option.clone());
            assert_eq!(*known, option, "{variable}");
        }
        assert!(options.len() > 40);
    }
}
