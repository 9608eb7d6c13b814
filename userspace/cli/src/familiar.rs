//! Familiar words: commands of other profilers, and the commands here that do the same.
//!
//! Owns: the list of words. Because: a newcomer types what py-spy, perf or gdb call it, and "unrecognized subcommand"
//! does not say what it is called here. Does not: accept them: scripts should read the same everywhere.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Words that are no commands, and what to type instead.
const WORDS: [(&[&str], &str); 9] = [
    (&["top", "attach", "watch", "ps"], "`sudo deepctx-bpf --pid PID` watches a running process"),
    (
        &["flamegraph", "flame", "svg", "html", "speedscope", "script", "convert"],
        "`sudo deepctx-bpf record --pid PID -o run.dctx`, then `deepctx-bpf export run.dctx --format svg -o run.svg` \
         (or html, speedscope, …)",
    ),
    (
        &["run", "exec", "profile", "start"],
        "`sudo deepctx-bpf record -o run.dctx -- COMMAND` starts and records a command",
    ),
    (
        &["stack", "stacks", "bt", "backtrace", "pstack", "threads"],
        "`sudo deepctx-bpf dump --pid PID` shows where each thread is",
    ),
    (&["open", "show", "load", "tui", "ui"], VIEW),
    (
        &["stats", "stat", "summary", "print", "list"],
        "`deepctx-bpf report FILE` prints one screen of a profile",
    ),
    (&["compare", "regress"], "`deepctx-bpf diff BEFORE AFTER` compares two profiles"),
    (
        &["trace"],
        "`sudo deepctx-bpf record --trace 10s …` records single events, and `deepctx-bpf timeline` reads them",
    ),
    (&["check", "setup", "info", "env"], "`deepctx-bpf doctor` says what works on this machine"),
];

const VIEW: &str = "`deepctx-bpf view FILE` opens a profile in the terminal";

/// What to type instead of a word that is no command.
pub(crate) fn hint(error: &clap::Error) -> Option<String> {
    if error.kind() != ErrorKind::InvalidSubcommand {
        return None;
    }
    match error.get(ContextKind::InvalidSubcommand)? {
        ContextValue::String(word) => instead(word),
        _ => None,
    }
}

fn instead(word: &str) -> Option<String> {
    if !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(format!("`sudo deepctx-bpf --pid {word}` watches that process"));
    }
    if word.ends_with(".dctx") {
        return Some(VIEW.to_owned());
    }
    WORDS.iter().find(|(words, _)| words.contains(&word)).map(|(_, hint)| (*hint).to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::super::options::Cli;
    use super::*;

    #[test]
    fn words_of_other_profilers_lead_to_our_commands() {
        let check = |words: &[&str], expect: Option<&str>| {
            let error = Cli::command().try_get_matches_from([&["deepctx-bpf"], words].concat()).unwrap_err();
            let hint = hint(&error);
            let said = hint.as_deref().unwrap_or_default();
            assert!(said.contains(expect.unwrap_or_default()), "{words:?}: {hint:?}");
            assert_eq!(hint.is_some(), expect.is_some(), "{words:?}");
        };
        check(&["top"], Some("--pid PID"));
        check(&["flamegraph"], Some("export run.dctx --format svg"));
        check(&["nonsense"], None);
        // What is profiled, or was, without a command.
        check(&["4711"], Some("`sudo deepctx-bpf --pid 4711`"));
        check(&["run.dctx"], Some("deepctx-bpf view FILE"));
        // A command of ours, used wrongly.
        check(&["report", "--top"], None);
    }

    #[test]
    fn hints_that_capture_begin_with_sudo() {
        for (words, hint) in WORDS {
            for command in ["--pid", "record", "dump"] {
                assert!(!hint.contains(&format!("`deepctx-bpf {command}")), "{words:?}: {hint}");
            }
        }
    }

    #[test]
    fn no_familiar_word_is_a_command_of_ours() {
        let ours = Cli::command();
        for (words, _) in WORDS {
            for word in words {
                assert!(ours.find_subcommand(word).is_none(), "{word}");
            }
        }
    }
}
