//! Options: the command line, one structure per sub-command.
//!
//! Owns: names, defaults, environment variables and help texts. Because: help and manual must agree, and the help is
//! what people read. Does not: act on any of it.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{FalseyValueParser, PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use deepctx_analysis::diff::GrowthLimit;
use deepctx_analysis::over_time::{Edit, Steps};
use deepctx_profile::units::Nanos;
use deepctx_storage::export::Format;

use super::capture_args::{
    CaptureArgs, DEFAULT_CONTEXT, FrameSources, ProbeChoice, TargetArgs, renamed_context, renamed_probes,
};
pub(crate) use super::common_args::TextOrJson;
pub(crate) use super::record_args::RecordArgs;

use super::common_args::CommonArgs;
use super::control_args::ControlArgs;
use super::debug_info;
use super::demo_args::DemoArgs;
use super::duration;
use super::experiment_args::ExperimentArgs;
use super::fail_on::FailCondition;
use super::failure::EXIT_CODES;
use super::flight_args::FlightArgs;
use super::manual_args::{CompletionsArgs, ManualPagesArgs};
use super::model_args::ModelArgs;
use super::record_args::percent;
use super::selection::{GroupBy, SelectionArgs, StoredSelectionArgs, View};
use super::tui_args::TuiArgs;
use deepctx_capture::FrameSource;
use deepctx_capture::config::TensorShapes;
use deepctx_symbolizer::native::DebugInfo;

/// Calling-context profiler: native, kernel and Python stacks of running processes, from eBPF.
#[derive(Debug, Parser)]
#[command(
    name = "deepctx-bpf",
    version,
    args_conflicts_with_subcommands = true,
    before_help = "  sudo deepctx-bpf --pid 4711\n  sudo deepctx-bpf record --pid 4711 --duration 10s -o run.dctx",
    after_long_help = EXIT_CODES
)]
pub(crate) struct Cli {
    /// The command to run (default: `live`).
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Options of `live`, for the short form.
    #[command(flatten)]
    pub live: LiveArgs,
}

/// The sub-commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Watch running processes in the terminal.
    #[command(
        before_help = "  sudo deepctx-bpf live --pid 4711\n  sudo deepctx-bpf live --all --once --duration 5s"
    )]
    Live(LiveArgs),
    /// Capture to a profile on disk.
    #[command(
        before_help = "  sudo deepctx-bpf record --pid 4711 --duration 30s -o run.dctx\n  sudo deepctx-bpf record -o run.dctx -- python train.py"
    )]
    Record(RecordArgs),
    /// Record a command with several values of a parameter, compare the step times, and name the best value.
    #[command(
        before_help = "  sudo deepctx-bpf experiment --values batch=1,2,4,8 -- python train.py --batch {batch}\n  sudo deepctx-bpf experiment --values batch=8,16 --repeat 3 --latency-target 50ms -- python serve.py {batch}"
    )]
    Experiment(Box<ExperimentArgs>),
    /// Show where every thread of a process is now and what it is waiting for, without stopping the process.
    #[command(
        before_help = "  sudo deepctx-bpf dump --pid 4711\n  sudo deepctx-bpf dump --comm python --format json -o hang.json"
    )]
    Dump(DumpArgs),
    /// Query or change a running capture: its status, its sampling frequency, its probes.
    #[command(
        before_help = "  sudo deepctx-bpf control /run/deepctx.sock status\n  sudo deepctx-bpf control /run/deepctx.sock freq 999"
    )]
    Control(ControlArgs),
    /// View a stored profile in the terminal.
    #[command(
        before_help = "  deepctx-bpf view run.dctx\n  deepctx-bpf view run.dctx --once --tab callers --view python"
    )]
    View(ViewArgs),
    /// Print the findings, hotspots and losses of a stored profile.
    #[command(
        before_help = "  deepctx-bpf report run.dctx\n  deepctx-bpf report run.dctx --format json -o report.json"
    )]
    Report(ReportArgs),
    /// Analyze a stored profile: what is slow, why, and the possible gain.
    #[command(
        before_help = "  deepctx-bpf analyze run.dctx\n  deepctx-bpf analyze run.dctx --fail-on slow-data-loader:medium"
    )]
    Analyze(AnalyzeArgs),
    /// Analyze a trace over time: idle devices, launches, overlap, critical path, late ranks.
    #[command(
        before_help = "  deepctx-bpf timeline trace.json.gz\n  deepctx-bpf timeline ranks/ --format json -o timeline.json"
    )]
    Timeline(TimelineArgs),
    /// Write a stored profile in another format.
    #[command(
        before_help = "  deepctx-bpf export run.dctx --format html -o run.html\n  deepctx-bpf export run.dctx --format pprof -o run.pb.gz"
    )]
    Export(ExportArgs),
    /// Compare two stored profiles by calling context.
    #[command(
        before_help = "  deepctx-bpf diff before.dctx after.dctx\n  deepctx-bpf diff before.dctx after.dctx --format svg -o diff.svg\n  deepctx-bpf diff --events before.json.gz after.json.gz"
    )]
    Diff(DiffArgs),
    /// Convert a raw capture (`record --raw`) to a profile.
    #[command(
        hide = true,
        before_help = "  deepctx-bpf replay-raw run.raw -o run.dctx\n  deepctx-bpf replay-raw run.raw -o run.dctx --force"
    )]
    ReplayRaw(ReplayRawArgs),
    /// Check whether this machine can profile, and show how to fix what is missing.
    #[command(before_help = "  sudo deepctx-bpf doctor --fix\n  deepctx-bpf doctor --format json")]
    Doctor(DoctorArgs),
    /// Show which probes would be attached, where, and why others would not.
    #[command(
        before_help = "  sudo deepctx-bpf probes --pid 4711\n  deepctx-bpf probes --library /usr/lib/x86_64-linux-gnu/libcuda.so.1 --format json"
    )]
    Probes(ProbesArgs),
    /// Start an example program and show where its time goes.
    #[command(before_help = "  sudo deepctx-bpf demo\n  sudo deepctx-bpf demo --print 5s")]
    Demo(DemoArgs),
    /// Print a shell completion script.
    #[command(
        before_help = "  deepctx-bpf completions bash > ~/.local/share/bash-completion/completions/deepctx-bpf\n  deepctx-bpf completions fish > ~/.config/fish/completions/deepctx-bpf.fish"
    )]
    Completions(CompletionsArgs),
    /// Print the manual pages as one JSON object that maps file names to text.
    #[command(
        hide = true,
        before_help = "  deepctx-bpf manual-pages > pages.json\n  deepctx-bpf manual-pages | jq -r '.[\"deepctx-bpf.1\"]' | man -l -"
    )]
    ManualPages(ManualPagesArgs),
}

impl Command {
    /// The options that every sub-command takes.
    pub(crate) fn common(&self) -> &CommonArgs {
        match self {
            Command::Live(arguments) => &arguments.common,
            Command::Record(arguments) => &arguments.common,
            Command::Experiment(arguments) => &arguments.record.common,
            Command::Dump(arguments) => &arguments.common,
            Command::Control(arguments) => &arguments.common,
            Command::View(arguments) => &arguments.common,
            Command::Report(arguments) => &arguments.common,
            Command::Analyze(arguments) => &arguments.common,
            Command::Timeline(arguments) => &arguments.common,
            Command::Export(arguments) => &arguments.common,
            Command::Diff(arguments) => &arguments.common,
            Command::ReplayRaw(arguments) => &arguments.common,
            Command::Doctor(arguments) => &arguments.common,
            Command::Probes(arguments) => &arguments.common,
            Command::Demo(arguments) => &arguments.common,
            Command::Completions(arguments) => &arguments.common,
            Command::ManualPages(arguments) => &arguments.common,
        }
    }
}

/// Options of `live`.
#[derive(Debug, Args)]
pub(crate) struct LiveArgs {
    /// Whom to profile.
    #[command(flatten)]
    pub target: TargetArgs,
    /// How to capture.
    #[command(flatten)]
    pub capture: CaptureArgs,
    /// What is kept, to be written on request.
    #[command(flatten)]
    pub flight: FlightArgs,
    /// How to look at it.
    #[command(flatten)]
    pub selection: SelectionArgs,
    /// What the terminal view opens with.
    #[command(flatten)]
    pub tui: TuiArgs,
    /// Accept `control` requests on this socket, from root and the user who started the capture.
    #[arg(long, value_name = "SOCKET", env = "DEEPCTX_CONTROL")]
    pub control: Option<PathBuf>,
    /// Print one snapshot after the duration (default: 2s) instead of the live view.
    #[arg(long, env = "DEEPCTX_ONCE", action = ArgAction::SetTrue, value_parser = FalseyValueParser::new())]
    pub once: bool,
    /// Rule parameters and your own rules, for the findings in the overview (the TOML file of `analyze --rules`).
    #[arg(long, value_name = "FILE", env = "DEEPCTX_RULES")]
    pub rules: Option<PathBuf>,
    /// Quit after this time.
    ///
    /// A time is a number with `ms`, `s`, `m` or `h`, as in `30s` or `1h30m`; a number alone is seconds.
    #[arg(short, long, value_name = "TIME", env = "DEEPCTX_DURATION", value_parser = duration::parse)]
    pub duration: Option<Duration>,
    /// Exit with code 1 if more than this percentage of the samples was lost.
    #[arg(long, value_name = "PERCENT", env = "DEEPCTX_MAX_LOSS", value_parser = percent)]
    pub max_loss: Option<f64>,
    /// What every sub-command takes.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// Options of `dump`.
#[derive(Debug, Args)]
pub(crate) struct DumpArgs {
    /// Whose threads.
    #[command(flatten)]
    pub target: TargetArgs,
    /// Which frames to show.
    #[arg(long, value_name = "LIST", env = "DEEPCTX_CONTEXT", value_delimiter = ',', value_parser = FrameSources,
          default_values = DEFAULT_CONTEXT)]
    pub context: Vec<FrameSource>,
    /// Show every rank on this host of the distributed job that the process belongs to, or that it started. Start with
    /// a summary of where each rank is, outliers first.
    #[arg(long, env = "DEEPCTX_DUMP_ALL_RANKS", action = ArgAction::SetTrue, value_parser = FalseyValueParser::new(),
          requires = "pid", conflicts_with_all = ["comm", "cgroup", "container", "all"])]
    pub all_ranks: bool,
    /// Do not merge threads with equal stacks.
    #[arg(long, env = "DEEPCTX_DUMP_EACH", action = ArgAction::SetTrue, value_parser = FalseyValueParser::new())]
    pub each: bool,
    /// Read source lines and inlined calls of native code from debug information, except from files with more of it
    /// than this (such as 512M or 2G). `off` reads none, which is faster.
    #[arg(long, value_name = "SIZE|off", env = "DEEPCTX_DEBUG_INFO", default_value = "512M", value_parser = debug_info::parse)]
    pub debug_info: DebugInfo,
    /// Output format.
    #[arg(long, value_name = "FORMAT", env = "DEEPCTX_DUMP_FORMAT", default_value = "text")]
    pub format: TextOrJson,
    /// Where it goes.
    #[command(flatten)]
    pub output: OutputArgs,
    /// What every sub-command takes.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// Options of `view`.
#[derive(Debug, Args)]
pub(crate) struct ViewArgs {
    /// The profile. Other tools' formats work too: pprof, Kineto or Chrome traces, `perf script` output, folded stacks.
    pub profile: PathBuf,
    /// How to look at it.
    #[command(flatten)]
    pub selection: SelectionArgs,
    /// What the terminal view opens with.
    #[command(flatten)]
    pub tui: TuiArgs,
    /// Print one snapshot instead of opening the terminal view.
    #[arg(long, env = "DEEPCTX_ONCE", action = ArgAction::SetTrue, value_parser = FalseyValueParser::new())]
    pub once: bool,
    /// What every sub-command takes.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// Where output goes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// File to write (`-` for standard output).
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    pub output: PathBuf,
    /// Replace the output if it exists.
    #[arg(long, action = ArgAction::SetTrue, value_parser = FalseyValueParser::new())]
    pub force: bool,
}

/// Options of `report`.
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// The profile. Other tools' formats work too: pprof, Kineto or Chrome traces, `perf script` output, folded stacks.
    pub profile: PathBuf,
    /// Output format.
    #[arg(long, value_name = "FORMAT", env = "DEEPCTX_REPORT_FORMAT", default_value = "text")]
    pub format: ReportFormat,
    /// Maximum number of rows in each table.
    #[arg(long, value_name = "N", env = "DEEPCTX_REPORT_LIMIT", default_value_t = 20)]
    pub limit: usize,
    /// Print every table as text instead of one screen.
    #[arg(long, env = "DEEPCTX_REPORT_ALL", action = ArgAction::SetTrue, value_parser = FalseyValueParser::new())]
    pub all: bool,
    /// Print full names as text, however long; short ones keep what differs.
    #[arg(long, env = "DEEPCTX_REPORT_FULL_NAMES", action = ArgAction::SetTrue,
          value_parser = FalseyValueParser::new())]
    pub full_names: bool,
    /// Tables of the model.
    #[command(flatten)]
    pub model: ModelArgs,
    /// How to look at it.
    #[command(flatten)]
    pub selection: StoredSelectionArgs,
    /// Group stacks by.
    #[arg(long, value_name = "LIST", env = "DEEPCTX_GROUP_BY", value_delimiter = ',', default_values_t = [GroupBy::Process])]
    pub group_by: Vec<GroupBy>,
    /// Where it goes.
    #[command(flatten)]
    pub output: OutputArgs,
    /// What every sub-command takes.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// Options of `analyze`.
#[derive(Debug, Args)]
pub(crate) struct AnalyzeArgs {
    /// The profile. Other tools' formats work too: pprof, Kineto or Chrome traces, `perf script` output, folded stacks.
    pub profile: PathBuf,
    /// Rule parameters as TOML (`[small-kernels]`, `max_us = 20`), with your own rules as queries (`[[rule]]`); or your
    /// own rules in Python (`my_rules.py`). See docs/findings.md, docs/query.md and docs/python.md.
    #[arg(long, value_name = "FILE", env = "DEEPCTX_ANALYZE_RULES")]
    pub rules: Option<PathBuf>,
    /// Run only these rules.
    #[arg(long, value_name = "RULES", env = "DEEPCTX_ANALYZE_ONLY", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Skip these rules.
    #[arg(long, value_name = "RULES", env = "DEEPCTX_ANALYZE_SKIP", value_delimiter = ',')]
    pub skip: Vec<String>,
    /// Exit with code 1 if this rule has a finding, optionally of at least this severity (`low`, `medium`, `high`).
    #[arg(long, value_name = "RULE[:SEVERITY]", env = "DEEPCTX_ANALYZE_FAIL_ON", value_delimiter = ',',
          value_parser = FailCondition::parse)]
    pub fail_on: Vec<FailCondition>,
    /// Output format.
    #[arg(long, value_name = "FORMAT", env = "DEEPCTX_ANALYZE_FORMAT", default_value = "text")]
    pub format: ReportFormat,
    /// Print full names as text, however long; short ones keep what differs.
    #[arg(long, env = "DEEPCTX_ANALYZE_FULL_NAMES", action = ArgAction::SetTrue,
          value_parser = FalseyValueParser::new())]
    pub full_names: bool,
    /// How to look at it.
    #[command(flatten)]
    pub selection: StoredSelectionArgs,
    /// Where it goes.
    #[command(flatten)]
    pub output: OutputArgs,
    /// What every sub-command takes.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// Options of `timeline`.
#[derive(Debug, Args)]
pub(crate) struct TimelineArgs {
    /// Traces with timestamped events (Kineto, rocprofv3 JSON, XPlane, Perfetto, Nsight Systems SQLite): files, or
    /// folders with one file per rank.
    #[arg(required = true, value_name = "TRACE")]
    pub traces: Vec<PathBuf>,
    /// Output format.
    #[arg(long, value_name = "FORMAT", env = "DEEPCTX_TIMELINE_FORMAT", default_value = "text")]
    pub format: TextOrJson,
    /// Maximum number of rows in each table of the text output.
    #[arg(long, value_name = "N", env = "DEEPCTX_TIMELINE_LIMIT", default_value_t = 8)]
    pub limit: usize,
    /// Only work launched from the start of training step A to the start of step B (`A..B`, `A..` or `..B`).
    #[arg(long, value_name = "A..B", value_parser = steps)]
    pub steps: Option<Steps>,
    /// Read only this part of a deepctx-bpf trace, measured from its first event (`10s..12s`), with the work launched
    /// in it. Use it for traces too large to load whole.
    #[arg(long, value_name = "FROM..TO", value_parser = between, conflicts_with = "steps")]
    pub between: Option<TimeRange>,
    /// Predict the duration if this were changed: `kernel:TEXT=FACTOR`, `operator:TEXT=FACTOR`, `host:TEXT=FACTOR`,
    /// `launch-delay=FACTOR`, `no-wait:TEXT`. Several changes are shown both separately and combined.
    #[arg(long, value_name = "EDIT")]
    pub what_if: Vec<Edit>,
    /// Where it goes.
    #[command(flatten)]
    pub output: OutputArgs,
    /// What every sub-command takes.
    #[command(flatten)]
    pub common: CommonArgs,
}

fn steps(text: &str) -> Result<Steps, String> {
    let expected = || format!("expected two numbers of steps, as in 5..8, 5.. or ..8, found `{text}`");
    let (from, until) = text.split_once("..").ok_or_else(expected)?;
    let number = |text: &str| match text {
        "" => Ok(None),
        text => text.parse().map(Some).map_err(|_| expected()),
    };
    Ok(Steps { from: number(from)?, until: number(until)? })
}

/// A part of the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimeRange {
    pub from: Nanos,
    pub to: Nanos,
}

fn between(text: &str) -> Result<TimeRange, String> {
    let expected = || format!("expected two times, as in 10s..12s or 900ms..1s, found `{text}`");
    let (from, to) = text.split_once("..").ok_or_else(expected)?;
    let time = |text: &str| duration::parse(text).map(Nanos::from).map_err(|_| expected());
    let (from, to) = (time(from)?, time(to)?);
    if from < to { Ok(TimeRange { from, to }) } else { Err(expected()) }
}

/// Forms of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportFormat {
    /// For people.
    Text,
    /// For programs: every table.
    Json,
    /// One page for any browser: flame graphs, and every table as a tab.
    Html,
}

/// Options of `export`.
#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// The profile. Other tools' formats work too: pprof, Kineto or Chrome traces, `perf script` output, folded stacks.
    pub profile: PathBuf,
    /// Output format.
    #[arg(short, long, value_name = "FORMAT", env = "DEEPCTX_EXPORT_FORMAT", value_parser = formats())]
    pub format: Format,
    /// How to look at it.
    #[command(flatten)]
    pub selection: StoredSelectionArgs,
    /// Write totals by calling context to `chrome` and `perfetto` files, even if individual events are known.
    #[arg(long, env = "DEEPCTX_EXPORT_SUMS", action = ArgAction::SetTrue, value_parser = FalseyValueParser::new())]
    pub sums: bool,
    /// Draw every frame in `svg` and `html` files, including common roots, wrappers, and layers that differ only by a
    /// number.
    #[arg(long, env = "DEEPCTX_EXPORT_NO_FOLD", action = ArgAction::SetTrue, value_parser = FalseyValueParser::new())]
    pub no_fold: bool,
    /// Group stacks by.
    #[arg(long, value_name = "LIST", env = "DEEPCTX_GROUP_BY", value_delimiter = ',', default_values_t = [GroupBy::Process])]
    pub group_by: Vec<GroupBy>,
    /// Add line numbers to Python frames.
    #[arg(long, env = "DEEPCTX_EXPORT_LINES", action = ArgAction::SetTrue, value_parser = FalseyValueParser::new())]
    pub lines: bool,
    /// Where it goes.
    #[command(flatten)]
    pub output: OutputArgs,
    /// What every sub-command takes.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// Options of `diff`.
#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// The baseline profile.
    pub before: PathBuf,
    /// The profile to compare with the baseline.
    pub after: PathBuf,
    /// Output format.
    #[arg(long, value_name = "FORMAT", env = "DEEPCTX_DIFF_FORMAT", default_value = "text")]
    pub format: DiffFormat,
    /// Maximum number of functions, contexts, events or operators to list.
    #[arg(long, value_name = "N", env = "DEEPCTX_DIFF_LIMIT", default_value_t = 20)]
    pub limit: usize,
    /// Exit with code 1 if a function's share grew by more than this many percentage points (`+5%`), or the total grew
    /// by more than this percentage of the old total (`total+5%`). Changes within noise are ignored; any growth of a
    /// total from 0 exceeds every percentage.
    #[arg(long, value_name = "LIMIT", conflicts_with = "events", value_parser = clap::value_parser!(GrowthLimit))]
    pub fail_on: Vec<GrowthLimit>,
    /// Compare two traces event by event: which operators, calls and kernels were added or removed, or changed in
    /// number.
    #[arg(long, conflicts_with_all = ["view", "metric", "filter", "path"])]
    pub events: bool,
    /// With `--events`: only work launched from the start of training step A to the start of step B of the first trace.
    #[arg(long, value_name = "A..B", value_parser = steps, requires = "events")]
    pub steps_before: Option<Steps>,
    /// Like `--steps-before`, for the second trace.
    #[arg(long, value_name = "A..B", value_parser = steps, requires = "events")]
    pub steps_after: Option<Steps>,
    /// Compare a table instead of calling contexts: operators by name, with the kernels, times and memory of each.
    /// Works across frameworks, vendors and ranks.
    #[arg(long, value_name = "TABLE", env = "DEEPCTX_DIFF_TABLE",
          conflicts_with_all = ["events", "fail_on", "view", "metric"])]
    pub table: Option<DiffTable>,
    /// How to look at it.
    #[command(flatten)]
    pub selection: StoredSelectionArgs,
    /// Where it goes.
    #[command(flatten)]
    pub output: OutputArgs,
    /// What every sub-command takes.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// Tables of two profiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DiffTable {
    /// Operators of frameworks.
    Operators,
}

/// Forms of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DiffFormat {
    /// For people.
    Text,
    /// For programs.
    Json,
    /// A flame graph of the second profile, colored by what changed.
    Svg,
    /// For the summary of a CI job: changes beyond noise.
    Markdown,
}

/// Options of `replay-raw`.
#[derive(Debug, Args)]
pub(crate) struct ReplayRawArgs {
    /// The raw capture.
    pub raw: PathBuf,
    /// The profile to write.
    #[arg(short, long, value_name = "FILE", default_value = "run.dctx")]
    pub output: PathBuf,
    /// Replace the output if it exists.
    #[arg(long, action = ArgAction::SetTrue, value_parser = FalseyValueParser::new())]
    pub force: bool,
    /// What every sub-command takes.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// Options of `doctor`.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Output format.
    #[arg(long, value_name = "FORMAT", env = "DEEPCTX_DOCTOR_FORMAT", default_value = "text")]
    pub format: TextOrJson,
    /// Offer each fix, run those that you confirm with `y`, and check again.
    #[arg(long, env = "DEEPCTX_DOCTOR_FIX", action = ArgAction::SetTrue, value_parser = FalseyValueParser::new())]
    pub fix: bool,
    /// What every sub-command takes.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// The formats by name.
fn formats() -> impl TypedValueParser<Value = Format> {
    let shown = |format: &Format| PossibleValue::new(format.name()).help(format.about());
    PossibleValuesParser::new(Format::ALL.iter().map(shown)).try_map(|name| name.parse::<Format>())
}

/// Options of `probes`.
#[derive(Debug, Args)]
pub(crate) struct ProbesArgs {
    /// Whose libraries to look at.
    #[command(flatten)]
    pub target: TargetArgs,
    /// Inspect this library instead of processes. Repeatable.
    #[arg(long, value_name = "FILE", env = "DEEPCTX_PROBES_LIBRARY")]
    pub library: Vec<PathBuf>,
    /// Include functions of other libraries, listed in this TOML file (see docs/probes.md).
    #[arg(long, value_name = "FILE", env = "DEEPCTX_PROBE_FILE")]
    pub probe_file: Option<PathBuf>,
    /// The former name of `--probe-file`.
    #[arg(long, hide = true, value_name = "FILE", value_parser = renamed_probes)]
    pub probes: Option<PathBuf>,
    /// If two libraries see the same call, show only the lowest or all.
    #[arg(long, value_name = "WHICH", env = "DEEPCTX_PROBES_LAYERS", default_value = "lowest")]
    pub layers: Layers,
    /// Include the probes of these features.
    #[arg(long, value_name = "LIST", env = "DEEPCTX_PROBE", value_delimiter = ',')]
    pub probe: Vec<ProbeChoice>,
    /// The former name of `--probe`.
    #[arg(long, hide = true, value_name = "LIST", value_parser = renamed_context)]
    pub context: Option<String>,
    /// Include the probes that record the tensors of these PyTorch operators.
    #[arg(long, value_name = "OPERATORS", env = "DEEPCTX_SHAPES", value_delimiter = ',')]
    pub shapes: Vec<TensorShapes>,
    /// Output format.
    #[arg(long, value_name = "FORMAT", env = "DEEPCTX_PROBES_FORMAT", default_value = "text")]
    pub format: TextOrJson,
    /// What every sub-command takes.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// Which of two layers that see the same call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Layers {
    /// Only the lowest: one call is one event.
    Lowest,
    /// All.
    All,
}

macro_rules! displayed_by_value_name {
    ($($name:ty),*) => { $(
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.to_possible_value().as_ref().map_or("", |value| value.get_name()))
            }
        }
    )* };
}
displayed_by_value_name!(View, GroupBy);
