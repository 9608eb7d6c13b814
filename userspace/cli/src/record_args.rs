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
    /// The profile to write (default: run.dctx, or run-2.dctx and so on if that exists).
    #[arg(short, long, value_name = "FILE", env = "DEEPCTX_RECORD_OUTPUT")]
    pub output: Option<PathBuf>,
    /// Replace the output if it exists.
    #[arg(long, env = "DEEPCTX_RECORD_FORCE", action = ArgAction::SetTrue, value_parser = FalseyValueParser::new())]
    pub force: bool,
    /// Pack the profile into one file, a tar archive of its folder, when the capture ends.
    #[arg(long, env = "DEEPCTX_PACK", action = ArgAction::SetTrue, value_parser = FalseyValueParser::new())]
    pub pack: bool,
    /// Stop after this time (default: on Ctrl-C, or when the command or the last named process ends).
    ///
    /// A time is a number with `ms`, `s`, `m` or `h`, as in `30s` or `1h30m`; a number alone is seconds.
    #[arg(short, long, value_name = "TIME", env = "DEEPCTX_DURATION", value_parser = duration::parse)]
    pub duration: Option<Duration>,
    /// Flush interval. A power failure loses at most this much.
    #[arg(long, value_name = "TIME", env = "DEEPCTX_FLUSH", default_value = "5s", value_parser = duration::parse)]
    pub flush: Duration,
    /// Exit with code 1 if more than this share of the samples was lost, in percent.
    #[arg(long, value_name = "PERCENT", env = "DEEPCTX_MAX_LOSS", value_parser = percent)]
    pub max_loss: Option<f64>,
    /// What every sub-command takes.
    #[command(flatten)]
    pub common: CommonArgs,
    /// Also record individual events, for `timeline`: each call of an accelerator library, and the work it launched.
    /// Record them for this long from the start (`10s`; for a command, from its first launch, range, step, operator or
    /// time off the CPU), between two training steps (`steps=5..8`, with `--probe ranges`), between two launches of a
    /// process (`launches=1000..2000`), or for this long after SIGUSR2 (`signal=10s`). The totals in the profile always
    /// cover the whole capture.
    #[arg(long, value_name = "TIME|STEPS|LAUNCHES|SIGNAL", env = "DEEPCTX_TRACE", value_parser = trace_window)]
    pub trace: Option<TraceWindow>,
    /// Which events to record: `launches` (calls that submit work to devices, without their ends), `calls` (all probed
    /// calls of accelerator libraries, with their ends), or `context` (also the starts of operators, with `--probe
    /// operators`). Each level includes device work and calling contexts.
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
    /// Act when a rule of `analyze` has a finding of at least this severity: `keep` (write the data that `--keep`
    /// holds), `trace` (start the window of `--trace signal=TIME`), `stop` (end with exit code 1), `signal:NAME` (to
    /// the targets), `run:COMMAND` (in a shell, as the user who called sudo). Each option acts once.
    #[arg(long, value_name = "RULE[:SEVERITY]=ACTION", env = "DEEPCTX_ON_FINDING")]
    pub on_finding: Vec<FindingAction>,
    /// Accept `control` requests on this socket, from root and the user who started the capture. Requests show the
    /// status, change the sampling frequency, attach or detach the probes that have a budget, write the data that
    /// `--keep` holds, start the window of `--trace signal=TIME`, or stop the capture.
    #[arg(long, value_name = "SOCKET", env = "DEEPCTX_CONTROL")]
    pub control: Option<PathBuf>,
    /// Rule parameters and your own rules (the TOML file of `analyze --rules`). `--on-finding` can name its rules. The
    /// findings of all rules are printed when the capture ends.
    #[arg(long, value_name = "FILE", env = "DEEPCTX_RULES")]
    pub rules: Option<PathBuf>,
    /// Measure device activity of the command through CUPTI: the NVIDIA driver loads a collector into it
    /// (CUDA_INJECTION64_PATH). Without it, device times are upper bounds, unless the program collects them itself.
    #[arg(long, env = "DEEPCTX_GPU_ACTIVITY", action = ArgAction::SetTrue, value_parser = FalseyValueParser::new(), requires = "command")]
    pub gpu_activity: bool,
    /// Run the command as this user, by name or number (default under sudo: the user who called sudo).
    #[arg(long, value_name = "NAME", env = "DEEPCTX_RECORD_USER", requires = "command")]
    pub user: Option<String>,
    /// Samples of instructions.
    #[command(flatten)]
    pub sampling: SamplingArgs,
    /// Command to start and capture with its children, from its first instruction. Its exit code is passed on.
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
    /// The level in the capture's configuration.
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

/// Parses a percentage.
pub(super) fn percent(text: &str) -> Result<f64, String> {
    percent_up_to(100.0, text)
}

/// Parses a percentage up to this maximum.
pub(super) fn percent_up_to(most: f64, text: &str) -> Result<f64, String> {
    let number = text.trim().trim_end_matches('%').parse::<f64>();
    number
        .ok()
        .filter(|percent| (0.0..=most).contains(percent))
        .ok_or_else(|| format!("expected a percentage from 0 to {most}, found '{text}'"))
}
