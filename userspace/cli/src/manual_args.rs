//! Options for generating the manual.
//!
//! Owns: the supported shells. Because: the list of sub-commands needs these options, and the manual is generated
//! from that list. Does not: write anything.

use clap::{Args, ValueEnum};
use clap_complete as generator;

use super::common_args::CommonArgs;

/// Options of `completions`.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    pub shell: Shell,
    /// What every sub-command takes.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// A shell that completes options.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    /// GNU Bash.
    Bash,
    /// Z shell.
    Zsh,
    /// fish.
    Fish,
}

impl From<Shell> for generator::Shell {
    fn from(shell: Shell) -> Self {
        match shell {
            Shell::Bash => Self::Bash,
            Shell::Zsh => Self::Zsh,
            Shell::Fish => Self::Fish,
        }
    }
}

/// Options of `manual-pages`.
#[derive(Debug, Args)]
pub(crate) struct ManualPagesArgs {
    /// What every sub-command takes.
    #[command(flatten)]
    pub common: CommonArgs,
}
