//! Capture arguments: the options that `record` and `live` have in common.
//!
//! Owns: which processes are captured and how, as clap options. Because: both commands must take the same options
//! with the same names. Does not: turn them into a configuration (`target`).

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{EnumValueParser, FalseyValueParser, PossibleValue, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, Args, ValueEnum};
use deepctx_capture::config::{StackRate, TensorShapes};
use deepctx_capture::{Budget, Clock, FrameSource, ProbeFeature};
use deepctx_pipeline::STEP_MARKER;
use deepctx_symbolizer::native::DebugInfo;

use super::duration;
use super::step_marker;
use super::{debug_info, debuginfod};

/// Which processes to profile. Selectors add up.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Target")]
pub(crate) struct TargetArgs {
    /// Process to profile, by its id in this pid namespace. Repeatable.
    #[arg(short, long, value_name = "N", env = "DEEPCTX_PID", value_delimiter = ',', value_parser = process_id)]
    pub pid: Vec<u32>,
    /// Every process with this name (as in /proc/PID/comm).
    #[arg(long, value_name = "NAME", env = "DEEPCTX_COMM", value_delimiter = ',')]
    pub comm: Vec<String>,
    /// Every process in this cgroup and below it (a path, from /sys/fs/cgroup or absolute).
    #[arg(long, value_name = "PATH", env = "DEEPCTX_CGROUP")]
    pub cgroup: Option<PathBuf>,
    /// Every process of this container (its id or a prefix of it).
    #[arg(long, value_name = "ID", env = "DEEPCTX_CONTAINER")]
    pub container: Option<String>,
    /// The whole system. This is the default of `live`, and of `record` without a command.
    #[arg(short, long, env = "DEEPCTX_ALL", action = ArgAction::SetTrue, value_parser = FalseyValueParser::new())]
    pub all: bool,
    /// Do not profile processes that the targets start.
    #[arg(long, env = "DEEPCTX_NO_CHILDREN", action = ArgAction::SetTrue, value_parser = FalseyValueParser::new())]
    pub no_children: bool,
}

/// How to capture.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Capture")]
pub(crate) struct CaptureArgs {
    /// Samples per second on each CPU.
    #[arg(short = 'F', long, value_name = "HZ", env = "DEEPCTX_FREQ", default_value_t = 99,
          value_parser = frequency)]
    pub freq: u32,
    /// What triggers a sample: the kernel's timer, which every machine has, or hardware cycles, which also see code
    /// that runs with interrupts disabled.
    #[arg(long, value_name = "EVENT", env = "DEEPCTX_EVENT", default_value = "cpu-clock")]
    pub event: Clock,
    /// Which frames to record. Fewer sources lower the overhead.
    #[arg(long, value_name = "LIST", env = "DEEPCTX_CONTEXT", value_delimiter = ',', value_parser = FrameSources,
          default_values = DEFAULT_CONTEXT)]
    pub context: Vec<FrameSource>,
    /// What else to record, in addition to the frames of `--context`. Most features attach probes to libraries.
    ///
    /// `live` records what `auto` chooses, with a budget of 1%, unless this is given.
    #[arg(long, value_name = "LIST", env = "DEEPCTX_PROBE", value_delimiter = ',')]
    pub probe: Vec<ProbeChoice>,
    /// Read source lines and inlined calls of native code from debug information, except from files with more of it
    /// than this (such as 512M or 2G). `off` reads none, which saves memory.
    #[arg(long, value_name = "SIZE|off", env = "DEEPCTX_DEBUG_INFO", default_value = "512M", value_parser = debug_info::parse)]
    pub debug_info: DebugInfo,
    /// Ask debuginfod servers for missing debug information: those in `DEBUGINFOD_URLS`, else those in
    /// `/etc/debuginfod`, or those given as a value. Only the build-ids of sampled files leave the machine. Needs
    /// `curl`. Off by default.
    #[arg(long, value_name = "URLS|system|off", env = "DEEPCTX_DEBUGINFOD", num_args = 0..=1, require_equals = true,
          default_missing_value = "system", value_parser = debuginfod::parse)]
    pub debuginfod: Option<debuginfod::ServerChoice>,
    /// How often to read system metrics (100ms to 1m, or `off`): CPUs, pressure, memory, disks, networks, GPUs (through
    /// NVIDIA's management library), and the cgroup limits of the targets.
    #[arg(long, value_name = "TIME|off", env = "DEEPCTX_SYSTEM_METRICS", default_value = "500ms",
          value_parser = system_metrics)]
    pub system_metrics: Interval,
    /// Also measure time off the CPU, blocked or waiting for a CPU, with the stack and the reason.
    #[arg(long, env = "DEEPCTX_OFF_CPU", action = ArgAction::SetTrue, value_parser = FalseyValueParser::new())]
    pub off_cpu: bool,
    /// With `--probe ranges`: what ends a training step. Either a range whose name starts with this (`ProfilerStep#`),
    /// or a call of a library function (`libmine.so*:train_step`). Repeatable.
    #[arg(long, value_name = "NAME|LIBRARY:FUNCTION", env = "DEEPCTX_STEP_MARKER", default_value = STEP_MARKER,
          value_parser = step_marker::parse)]
    pub step_marker: Vec<String>,
    /// How many calls of accelerator libraries (launches, copies, waits) get a stack. All calls are counted regardless.
    #[arg(long, value_name = "all|N/s|off", env = "DEEPCTX_LAUNCH_STACKS", default_value = "all")]
    pub launch_stacks: StackRate,
    /// With `--probe operators` or `--shapes`: how many operators get a stack when they start. All operators are
    /// counted regardless. Default: 100/s, or none without `native` frames: operators then appear only in other stacks.
    #[arg(long, value_name = "all|N/s|off", env = "DEEPCTX_OPERATOR_STACKS")]
    pub operator_stacks: Option<StackRate>,
    /// Record the tensor sizes and types of these PyTorch operators, and estimate their work and memory traffic: names
    /// such as `aten::addmm,aten::convolution`, or `hottest` (`hottest:3`) for the operators with most samples.
    #[arg(long, value_name = "OPERATORS", env = "DEEPCTX_SHAPES", value_delimiter = ',')]
    pub shapes: Vec<TensorShapes>,
    /// Also probe functions of other libraries, listed in this TOML file (see docs/probes.md).
    #[arg(long, value_name = "FILE", env = "DEEPCTX_PROBE_FILE")]
    pub probe_file: Option<PathBuf>,
    /// The former name of `--probe-file`.
    #[arg(long, hide = true, value_name = "FILE", value_parser = renamed_probes)]
    pub probes: Option<PathBuf>,
    /// Limit for the CPU time of probes, in percent of the program's own (default: no limit, or 3% with `--probe
    /// auto`, or 1% if `live` chose the probes): the total of `--probe`, `--shapes` and `--probe-file`. Above the
    /// limit, probes are duty-cycled: they are attached for part of the time, and the results cover only that part.
    #[arg(long, value_name = "PERCENT", env = "DEEPCTX_PROBE_BUDGET")]
    pub probe_budget: Option<Budget>,
    /// Attach no probes to accelerator libraries, and do not query the NVIDIA driver.
    #[arg(long, env = "DEEPCTX_NO_GPU", action = ArgAction::SetTrue, value_parser = FalseyValueParser::new())]
    pub no_gpu: bool,
    /// Also write the captured records to this file, for replay and tests.
    #[arg(long, value_name = "FILE", env = "DEEPCTX_RECORD_RAW", hide = true)]
    pub raw: Option<PathBuf>,
}

impl CaptureArgs {
    /// Whether `--probe` names a feature. What `auto` chooses depends on the targets, so no option may rely on it.
    pub(crate) fn names(&self, feature: ProbeFeature) -> bool {
        self.probe.contains(&ProbeChoice::Feature(feature))
    }
}

/// A value of `--probe`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProbeChoice {
    /// This feature.
    Feature(ProbeFeature),
    /// The features for what the targets run.
    Auto,
    /// No features.
    None,
}

impl ProbeChoice {
    const VALUES: [Self; 9] = [
        Self::Feature(ProbeFeature::Operators),
        Self::Feature(ProbeFeature::Modules),
        Self::Feature(ProbeFeature::Backward),
        Self::Feature(ProbeFeature::Ranges),
        Self::Feature(ProbeFeature::Memory),
        Self::Feature(ProbeFeature::Openmp),
        Self::Feature(ProbeFeature::Async),
        Self::Auto,
        Self::None,
    ];
}

impl From<ProbeFeature> for ProbeChoice {
    fn from(feature: ProbeFeature) -> Self {
        Self::Feature(feature)
    }
}

impl ValueEnum for ProbeChoice {
    fn value_variants<'a>() -> &'a [Self] {
        &Self::VALUES
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        match self {
            Self::Feature(feature) => feature.to_possible_value(),
            Self::Auto => Some(PossibleValue::new("auto").help(
                "Those of `operators`, `modules`, `ranges` and `openmp` whose libraries the targets have loaded when \
                 the capture starts, or that a command will load. `--probe-budget` is 3% unless it is given",
            )),
            Self::None => Some(PossibleValue::new("none").help("Nothing. It cannot stand beside others")),
        }
    }
}

/// Bounds of the sampling frequency.
pub(super) const FREQUENCIES: RangeInclusive<u32> = 1..=10_000;

fn frequency(text: &str) -> Result<u32, String> {
    let frequency = text.parse().ok().filter(|frequency| FREQUENCIES.contains(frequency));
    frequency.ok_or_else(|| "expected 1 to 10000 samples a second".to_owned())
}

/// Interval of a periodic action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interval(pub Option<Duration>);

/// Bounds of the interval. Shorter ones cost more than they show: the kernel counts CPU time in ticks of 10 ms.
const SYSTEM_METRICS: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(60);

fn system_metrics(text: &str) -> Result<Interval, String> {
    if text == "off" {
        return Ok(Interval(None));
    }
    let interval = duration::parse(text)?;
    match SYSTEM_METRICS.contains(&interval) {
        true => Ok(Interval(Some(interval))),
        false => Err("expected 100ms to 1m, or off".to_owned()),
    }
}

/// Frames of `--context` when it is not given.
pub(super) const DEFAULT_CONTEXT: [&str; 3] = ["python", "native", "kernel"];

/// Former values of `--context` that attach probes, and the `--probe` values that replace them.
const MOVED: [(&str, ProbeFeature); 7] = [
    ("operator", ProbeFeature::Operators),
    ("module", ProbeFeature::Modules),
    ("backward", ProbeFeature::Backward),
    ("step", ProbeFeature::Ranges),
    ("memory", ProbeFeature::Memory),
    ("team", ProbeFeature::Openmp),
    ("async", ProbeFeature::Async),
];

/// Parses a frame source. Former values get an error that names the option that replaces them.
#[derive(Clone)]
pub(super) struct FrameSources;

impl TypedValueParser for FrameSources {
    type Value = FrameSource;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<FrameSource, clap::Error> {
        match MOVED.iter().find(|(old, _)| value == *old) {
            Some((old, new)) => Err(moved(command, old, *new)),
            None => EnumValueParser::<FrameSource>::new().parse_ref(command, argument, value),
        }
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let values = FrameSource::value_variants().iter().filter_map(ValueEnum::to_possible_value);
        Some(Box::new(values))
    }
}

fn moved(command: &clap::Command, old: &str, new: ProbeFeature) -> clap::Error {
    let new = value_name(new);
    let message = format!(
        "--context: expected python, native or kernel, found '{old}'\nhint: use `--probe {new}`; it adds to the frames \
         of --context\n"
    );
    clap::Error::raw(ErrorKind::InvalidValue, message).with_cmd(command)
}

/// Rejects the former name of `--probe-file`.
pub(super) fn renamed_probes(_: &str) -> Result<PathBuf, String> {
    Err("this option is now `--probe-file`; `--probe` selects what to record".into())
}

/// Rejects `probes --context`.
pub(super) fn renamed_context(_: &str) -> Result<String, String> {
    let names = MOVED.map(|(old, new)| format!("{old}: {}", value_name(new))).join(", ");
    Err(format!("this option is now `--probe`, with new names for its values ({names})"))
}

/// The spelling of an option's value.
pub(super) fn value_name(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// Parses a process id; for a name, the error points to the right option.
fn process_id(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("not a process id; --comm {text} selects processes by name"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_feature_is_a_value_beside_auto_and_none() {
        let values: Vec<String> = ProbeChoice::VALUES.map(value_name).to_vec();
        let features = ProbeFeature::value_variants().iter().map(|feature| value_name(*feature));
        let expect: Vec<String> = features.chain(["auto", "none"].map(str::to_owned)).collect();
        assert_eq!(values, expect);
    }

    #[test]
    fn frequencies_have_bounds_in_words() {
        assert_eq!(frequency("99"), Ok(99));
        for wrong in ["", "0", "10001", "-1", "99Hz"] {
            assert_eq!(frequency(wrong), Err("expected 1 to 10000 samples a second".to_owned()), "{wrong}");
        }
    }
}
