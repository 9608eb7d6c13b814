//! Capture arguments: the options that `record` and `live` have in common.
//!
//! Owns: which processes are captured and how, as clap reads it. Because: both commands must take the same options with
//! the same names. Does not: turn them into a configuration (`target`).

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
    /// Process to profile, by its id in this pid namespace; repeat it for several.
    #[arg(short, long, value_name = "N", env = "DEEPCTX_PID", value_delimiter = ',', value_parser = process_id)]
    pub pid: Vec<u32>,
    /// Every process of this name (as in /proc/PID/comm).
    #[arg(long, value_name = "NAME", env = "DEEPCTX_COMM", value_delimiter = ',')]
    pub comm: Vec<String>,
    /// Every process in this cgroup and below it (a path, from /sys/fs/cgroup or absolute).
    #[arg(long, value_name = "PATH", env = "DEEPCTX_CGROUP")]
    pub cgroup: Option<PathBuf>,
    /// Every process of this container (its id or the beginning of it).
    #[arg(long, value_name = "ID", env = "DEEPCTX_CONTAINER")]
    pub container: Option<String>,
    /// The whole system. The default of `live` when nothing else is named.
    #[arg(short, long, env = "DEEPCTX_ALL", action = ArgAction::SetTrue, value_parser = FalseyValueParser::new())]
    pub all: bool,
    /// Leave out processes that the targets start.
    #[arg(long, env = "DEEPCTX_NO_CHILDREN", action = ArgAction::SetTrue, value_parser = FalseyValueParser::new())]
    pub no_children: bool,
}

/// How to capture.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Capture")]
pub(crate) struct CaptureArgs {
    /// Samples per second and CPU.
    #[arg(short = 'F', long, value_name = "HZ", env = "DEEPCTX_FREQ", default_value_t = 99,
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub freq: u32,
    /// What makes a CPU take a sample: the kernel's timer, which every machine has, or hardware cycles, which also see
    /// code that runs with interrupts disabled.
    #[arg(long, value_name = "EVENT", env = "DEEPCTX_EVENT", default_value = "cpu-clock")]
    pub event: Clock,
    /// Which frames to record; leave one out to lower the overhead.
    #[arg(long, value_name = "LIST", env = "DEEPCTX_CONTEXT", value_delimiter = ',', value_parser = FrameSources,
          default_values = DEFAULT_CONTEXT)]
    pub context: Vec<FrameSource>,
    /// What else to record, beside the frames of `--context`; several add up. Most of them attach probes to libraries.
    #[arg(long, value_name = "LIST", env = "DEEPCTX_PROBE", value_delimiter = ',')]
    pub probe: Vec<ProbeFeature>,
    /// Read source lines and inlined calls of native code from debug information, unless a file has more of it than
    /// this (like 512M or 2G; `off` reads none, which saves memory).
    #[arg(long, value_name = "SIZE|off", env = "DEEPCTX_DEBUG_INFO", default_value = "512M", value_parser = debug_info::parse)]
    pub debug_info: DebugInfo,
    /// Ask debuginfod servers for debug information that files lack: those of `DEBUGINFOD_URLS`, else those of
    /// `/etc/debuginfod`, or the servers given as a value. The build-ids of sampled files leave the machine, and
    /// nothing else does. Needs `curl`.
    #[arg(long, value_name = "URLS|system|off", env = "DEEPCTX_DEBUGINFOD", num_args = 0..=1, require_equals = true,
          default_missing_value = "system", value_parser = debuginfod::parse)]
    pub debuginfod: Option<debuginfod::ServerChoice>,
    /// How often to read what the machine does: its CPUs, pressure, memory, disks, networks, GPUs (by NVIDIA's
    /// management library), and limits of the targets' cgroups (100ms to 1m; `off` reads nothing).
    #[arg(long, value_name = "TIME|off", env = "DEEPCTX_SYSTEM_METRICS", default_value = "500ms",
          value_parser = system_metrics)]
    pub system_metrics: Interval,
    /// Measure time off the CPU too: blocked or waiting for one, with the stack and the reason.
    #[arg(long, env = "DEEPCTX_OFF_CPU", action = ArgAction::SetTrue, value_parser = FalseyValueParser::new())]
    pub off_cpu: bool,
    /// With `--probe ranges`: what ends a training step. A range whose name begins so (`ProfilerStep#`), or each call
    /// of a library's function (`libmine.so*:train_step`). Repeat it for several.
    #[arg(long, value_name = "NAME|LIBRARY:FUNCTION", env = "DEEPCTX_STEP_MARKER", default_value = STEP_MARKER,
          value_parser = step_marker::parse)]
    pub step_marker: Vec<String>,
    /// How many calls of accelerators' libraries (launches, copies, waits) get a stack; all are counted in any case.
    #[arg(long, value_name = "all|N/s|off", env = "DEEPCTX_LAUNCH_STACKS", default_value = "all")]
    pub launch_stacks: StackRate,
    /// With `--probe operators` or `--shapes`: how many operators get a stack as they begin; all are counted in any
    /// case. Default: 100/s. Without `native` frames it is none: operators are then seen in other stacks only.
    #[arg(long, value_name = "all|N/s|off", env = "DEEPCTX_OPERATOR_STACKS")]
    pub operator_stacks: Option<StackRate>,
    /// Record the sizes and types of these PyTorch operators' tensors, and the work and memory traffic that a model
    /// derives from them: names such as `aten::addmm,aten::convolution`, or `hottest` (`hottest:3`) for those that
    /// most samples are in.
    #[arg(long, value_name = "OPERATORS", env = "DEEPCTX_SHAPES", value_delimiter = ',')]
    pub shapes: Vec<TensorShapes>,
    /// Probe functions of other libraries too, listed in this TOML file (see docs/probes.md).
    #[arg(long, value_name = "FILE", env = "DEEPCTX_PROBE_FILE")]
    pub probe_file: Option<PathBuf>,
    /// The former name of `--probe-file`.
    #[arg(long, hide = true, value_name = "FILE", value_parser = renamed_probes)]
    pub probes: Option<PathBuf>,
    /// Most CPU time of the program, in percent of its own, that the probes of `--probe`, `--shapes` and
    /// `--probe-file` may take together. Where they would take more they are duty-cycled: attached for a part of the
    /// time, and results are of that part.
    #[arg(long, value_name = "PERCENT", env = "DEEPCTX_PROBE_BUDGET")]
    pub probe_budget: Option<Budget>,
    /// Attach no probes to the libraries of accelerators, and do not ask NVIDIA's driver about its GPUs.
    #[arg(long, env = "DEEPCTX_NO_GPU", action = ArgAction::SetTrue, value_parser = FalseyValueParser::new())]
    pub no_gpu: bool,
    /// Also copy the records as captured into this file, for replay and tests.
    #[arg(long, value_name = "FILE", env = "DEEPCTX_RECORD_RAW", hide = true)]
    pub raw: Option<PathBuf>,
}

/// How often something is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interval(pub Option<Duration>);

/// Shorter intervals cost more than they show: the kernel counts CPU time in ticks of 10 ms.
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

/// Values that `--context` took when it also named what attaches probes, and those of `--probe` that replace them.
const MOVED: [(&str, ProbeFeature); 7] = [
    ("operator", ProbeFeature::Operators),
    ("module", ProbeFeature::Modules),
    ("backward", ProbeFeature::Backward),
    ("step", ProbeFeature::Ranges),
    ("memory", ProbeFeature::Memory),
    ("team", ProbeFeature::Openmp),
    ("async", ProbeFeature::Async),
];

/// Reads a source of frames, and answers values that are not sources any more with the option that replaces them.
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
        "--context: expected python, native or kernel, found '{old}'\nhint: write `--probe {new}`; it adds to the frames \
         of --context\n"
    );
    clap::Error::raw(ErrorKind::InvalidValue, message).with_cmd(command)
}

/// Answers the former name of `--probe-file`.
pub(super) fn renamed_probes(_: &str) -> Result<PathBuf, String> {
    Err("the option for a file of probes is `--probe-file` now; `--probe` names what to record".into())
}

/// Answers `probes --context`.
pub(super) fn renamed_context(_: &str) -> Result<String, String> {
    let names = MOVED.map(|(old, new)| format!("{old}: {}", value_name(new))).join(", ");
    Err(format!("the option is `--probe` now, and its values have other names ({names})"))
}

/// How a value of an option is written.
fn value_name(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// A process id; a name is not one, but there is an option for it.
fn process_id(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("not a process id; --comm {text} selects processes by name"))
}
