//! Manual: documentation that a package installs with the program, generated from the options.
//!
//! Owns: manual pages, and shell completions. Because: a handwritten page describes options that are gone. Does not:
//! know where a package puts them.

use std::collections::BTreeMap;
use std::io::{self, Write as _};

use clap::CommandFactory as _;
use clap_complete as generator;
use clap_mangen::Man;

use super::failure::{Completion, Failure};
use super::manual_args::{CompletionsArgs, ManualPagesArgs};
use super::options::Cli;

/// Prints the completions for a shell.
///
/// # Errors
/// Standard output cannot be written.
pub(crate) fn completions(arguments: &CompletionsArgs) -> Result<Completion, Failure> {
    let mut script = Vec::new();
    let shell = generator::Shell::from(arguments.shell);
    generator::generate(shell, &mut Cli::command(), "deepctx-bpf", &mut script);
    print(&script)
}

/// Prints a page for the program and one for each sub-command.
///
/// # Errors
/// Standard output cannot be written.
pub(crate) fn manual_pages(_arguments: &ManualPagesArgs) -> Result<Completion, Failure> {
    let pages = pages().and_then(|pages| Ok(serde_json::to_vec(&pages)?));
    print(&pages.map_err(|error| Failure::io("manual pages", &error))?)
}

fn print(text: &[u8]) -> Result<Completion, Failure> {
    let printed = io::stdout().lock().write_all(text);
    printed.map_err(|error| Failure::io("standard output", &error)).map(|()| Completion::Fully)
}

/// The pages by file name.
fn pages() -> io::Result<BTreeMap<String, String>> {
    let mut program = Cli::command();
    program.build();
    let shown =
        program.get_subcommands().filter(|command| !command.is_hide_set() && command.get_name() != "help");
    let commands = shown.map(|command| {
        let name = format!("{}-{}", program.get_name(), command.get_name());
        command.clone().name(name.clone()).bin_name(name)
    });
    std::iter::once(program.clone())
        .chain(commands)
        .map(|command| {
            let name = format!("{}.1", command.get_name());
            let mut page = Vec::new();
            Man::new(command).manual("deepctx-bpf").render(&mut page)?;
            Ok((name, String::from_utf8(page).map_err(io::Error::other)?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shown_command_has_a_page_with_its_options() {
        let pages = pages().unwrap();
        let expected = Cli::command().get_subcommands().filter(|command| !command.is_hide_set()).count() + 1;
        assert_eq!(pages.len(), expected);
        assert!(pages["deepctx-bpf.1"].contains("deepctx\\-bpf\\-record(1)"));
        assert!(pages["deepctx-bpf-record.1"].contains("\\-\\-off\\-cpu"));
    }
}
