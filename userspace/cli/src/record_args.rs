//! Record arguments: the options of `record`.
//!
//! Owns: [`RecordArgs`]. Because: `experiment` records each of its runs with the same options. Does not: record.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::FalseyValueParser;
use clap::{ArgAction, Args, ValueEnum};
use deepctx_capture::config::{self, TraceWindow};

use super::capture_args::{CaptureArgs, TargetArgs};
use super::common_args::CommonArgs;
use super::duration;
use super::flight_args::FlightArgs;
use super::on_finding::FindingAction;
use super::sampling::SamplingArgs;

/// Options of `record`.
#[derive(Clone, Debug, Args)]
pub(crate) struct RecordArgs {
    /// Whom to profile.
    #[command(flatten)]
    pub target: TargetArgs,
    /// How to capture.
    #[command(flatten)]
    pub capture: CaptureArgs,
    /// The profile to write: run.dctx if not given, or run-2.dctx and so on where that exists.
    #[arg(short, long, value_name = "FILE", env = "DEEPCTX_RECORD_OUTPUT")]
    pub output: Option<PathBuf>,
    /// Replace the output if it exists.
    #[arg(long, env = "DEEPCTX_RECORD_FORCE", action = ArgAction::SetTrue, value_parser = FalseyValueParser::new())]
    pub force: bool,
    /// Make one file of the profile (a tar archive of its folder) when the capture has ended.
    #[arg(long, env = "DEEPCTX_PACK", action = ArgAction::SetTrue, value_parser = FalseyValueParser::new())]
    pub pack: bool,
    /// Stop after this time; without it: at Ctrl-C, or when the command or the last named process has ended.
    #[arg(short, long, value_name = "TIME", env = "DEEPCTX_DURATION", value_parser = duration::parse)]
    pub duration: Option<Duration>,
    /// Write what was captured to disk this often; at most so much is lost by a power cut.
    #[arg(long, value_name = "TIME", env = "DEEPCTX_FLUSH", default_value = "5s", value_parser = duration::parse)]
    pub flush: Duration,
    /// Exit with code 1 if more than this share of the samples was lost, in percent.
    #[arg(long, value_name = "PERCENT", env = "DEEPCTX_MAX_LOSS", value_parser = percent)]
    pub max_loss: Option<f64>,
    /// What every sub-command takes.
    #[command(flatten)]
    pub common: CommonArgs,
    /// Record single events too, for `timeline`: each call of accelerators' libraries, and the work that it launched.
    /// For this long from the start (`10s`; of a command, from its first launch, range, step, operator or time off the
    /// CPU), from one training step to another (`steps=5..8`, with `--probe ranges`), from one launch to another of a
    /// process (`launches=1000..2000`), or from SIGUSR2 on (`signal=10s`). The sums in the profile are of the whole
    /// capture in any case.
    #[arg(long, value_name = "TIME|STEPS|LAUNCHES|SIGNAL", env = "DEEPCTX_TRACE", value_parser = trace_window)]
    pub trace: Option<TraceWindow>,
    /// Which single events: `launches` (calls that give devices work, without their ends), `calls` (all that are probed
    /// of accelerators' libraries, with their ends), or `context` (operators as they begin as well, with `--probe
    /// operators`). The work of devices and calling contexts are in all of them.
    #[arg(
        long,
        value_name = "LEVEL",
        env = "DEEPCTX_TRACE_LEVEL",
        default_value = "calls",
        requires = "trace"
    )]
    pub trace_level: TraceLevel,
    /// What is kept, to be written on request.
    #[command(flatten)]
    pub flight: FlightArgs,
    /// Act when a rule of `analyze` finds something, of this severity at least: `keep` (write what `--keep` keeps),
    /// `trace` (begin the window of `--trace signal=TIME`), `stop` (end, with exit code 1), `signal:NAME` (to the
    /// targets), `run:COMMAND` (in a shell, with the rights of who called sudo). Each option acts once.
    #[arg(long, value_name = "RULE[:SEVERITY]=ACTION", env = "DEEPCTX_ON_FINDING")]
    pub on_finding: Vec<FindingAction>,
    /// Take requests of `deepctx-bpf control` on a socket at this path, of root and of who started the capture: to say
    /// how it is doing, to sample more or less often, to attach or detach the probes that have a budget, to write what
    /// `--keep` keeps, to begin the window of `--trace signal=TIME`, to end.
    #[arg(long, value_name = "SOCKET", env = "DEEPCTX_CONTROL")]
    pub control: Option<PathBuf>,
    /// Parameters of rules, and rules of your own as queries: the TOML file of `analyze --rules`. `--on-finding` may
    /// name its rules, and what all rules find is said when the capture has ended.
    #[arg(long, value_name = "FILE", env = "DEEPCTX_RULES")]
    pub rules: Option<PathBuf>,
    /// Have the command measure what its NVIDIA devices do: the driver loads the collector (CUDA_INJECTION64_PATH).
    /// Without it device times are bounded, not measured, unless the program collects them itself.
    #[arg(long, env = "DEEPCTX_GPU_ACTIVITY", action = ArgAction::SetTrue, value_parser = FalseyValueParser::new(), requires = "command")]
    pub gpu_activity: bool,
    /// Run the command as this user, given by name or number. Default: below sudo, the user who called sudo.
    #[arg(long, value_name = "NAME", env = "DEEPCTX_RECORD_USER", requires = "command")]
    pub user: Option<String>,
    /// Samples of instructions.
    #[command(flatten)]
    pub sampling: SamplingArgs,
    /// Command to start and capture with its children, from its first instruction; its exit code is passed on.
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<std::ffi::OsString>,
}

/// Which single events are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TraceLevel {
    /// Calls that give devices work.
    Launches,
    /// All calls, with their ends.
    Calls,
    /// Operators as they begin, too.
    Context,
}

impl TraceLevel {
    /// The level as a capture takes it.
    pub(super) fn config(self) -> config::TraceLevel {
        match self {
            TraceLevel::Launches => config::TraceLevel::Launches,
            TraceLevel::Calls => config::TraceLevel::Calls,
            TraceLevel::Context => config::TraceLevel::Context,
        }
    }
}

fn trace_window(text: &str) -> Result<TraceWindow, String> {
    TraceWindow::parse(text, duration::parse)
}

/// A share in percent.
pub(super) fn percent(text: &str) -> Result<f64, String> {
    percent_up_to(100.0, text)
}

/// A share in percent, of this at most.
pub(super) fn percent_up_to(most: f64, text: &str) -> Result<f64, String> {
    let number = text.trim().trim_end_matches('%').parse::<f64>();
    number
        .ok()
        .filter(|percent| (0.0..=most).contains(percent))
        .ok_or_else(|| format!("expected a percentage from 0 to {most}, found '{text}'"))
}
