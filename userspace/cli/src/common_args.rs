//! Options that every sub-command takes.
//!
//! Owns: logging, the file with defaults, and output formats. Because: every sub-command has them, and the list of
//! sub-commands is not the place for shared options. Does not: act on any of it.

use std::path::PathBuf;

use clap::{ArgAction, Args, ValueEnum};

/// What every sub-command takes.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Common")]
pub(crate) struct CommonArgs {
    /// Log more. Repeat it for even more.
    #[arg(short, long, action = ArgAction::Count, env = "DEEPCTX_VERBOSE")]
    pub verbose: u8,
    /// Log format.
    #[arg(long, value_name = "FORMAT", env = "DEEPCTX_LOG_FORMAT", default_value = "text")]
    pub log_format: LogFormat,
    /// File with default options, as TOML (`freq = 49`).
    #[arg(long, value_name = "FILE", env = "DEEPCTX_CONFIG")]
    pub config: Option<PathBuf>,
}

/// For people or for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TextOrJson {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// Log format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}
