//! Control arguments: the options of `control`.
//!
//! Owns: [`ControlArgs`]. Because: the list of commands needs them, and the code that carries them out needs the
//! list. Does not: read requests.

use std::path::PathBuf;

use clap::Args;

use super::common_args::CommonArgs;

/// Options of `control`.
#[derive(Debug, Args)]
pub(crate) struct ControlArgs {
    /// The socket that the capture was given with `--control`.
    #[arg(value_name = "SOCKET")]
    pub socket: PathBuf,
    /// Request: `status`, `freq HZ`, `probes on|off|budget`, `keep`, `trace` or `stop`.
    #[arg(value_name = "REQUEST", required = true)]
    pub request: Vec<String>,
    /// What every sub-command takes.
    #[command(flatten)]
    pub common: CommonArgs,
}
