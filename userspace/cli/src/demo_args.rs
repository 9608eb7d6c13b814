//! Options of `demo`.
//!
//! Owns: how long it records without a terminal. Because: the list of sub-commands needs these options, and the demo
//! runs sub-commands. Does not: start anything.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args};

use super::common_args::CommonArgs;
use super::duration;

/// Options of `demo`.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Record for this long (default: 10s) and print a report, even in a terminal.
    #[arg(long, value_name = "TIME", num_args = 0..=1, default_missing_value = "10s", value_parser = duration::parse)]
    pub print: Option<Duration>,
    /// The profile to write when no live view is shown (default: demo.dctx, or demo-2.dctx and so on if that exists).
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Replace the output if it exists.
    #[arg(long, action = ArgAction::SetTrue)]
    pub force: bool,
    /// What every sub-command takes.
    #[command(flatten)]
    pub common: CommonArgs,
}

impl DemoArgs {
    /// How long is recorded without a terminal.
    pub(crate) const PRINT: Duration = Duration::from_secs(10);
}
