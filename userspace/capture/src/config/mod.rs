//! Config: everything that defines what a capture records, as one value.
//!
//! Owns: [`CaptureConfig`], the types of its fields, and the list of options that a profile stores. Because: a
//! profile must say how it was made, and an option that is listed in two places gets forgotten in one. Does not: read
//! command lines, or look anything up.

mod values;

use std::path::PathBuf;
use std::time::Duration;

use deepctx_symbolizer::native::ServerUrl;
use deepctx_uprobes::{ProbeRequest, UserRow};
use serde::{Deserialize, Serialize};

use super::budget::Budget;
use super::perf_event::Clock;
use super::targets::{Targets, selectors};
pub use deepctx_pipeline::TraceLevel;

pub use values::{Bytes, HangFactor, Hertz, SamplingPeriod, StackRate, TensorShapes, TraceWindow};
use values::{negated, seconds};

/// What a capture records. Serialized, its keys are the names of the command's options.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct CaptureConfig {
    /// The processes; selectors add up.
    #[serde(flatten, with = "selectors")]
    pub targets: Vec<Targets>,
    /// Follow the processes that the targets start.
    #[serde(rename = "no-children", with = "negated")]
    pub follow_children: bool,
    /// How often each CPU is sampled.
    #[serde(rename = "freq")]
    pub frequency: Hertz,
    /// The event that takes samples.
    #[serde(rename = "event")]
    pub clock: Clock,
    /// Which frames are recorded.
    pub context: Vec<FrameSource>,
    /// What else is observed by probes in the targets' libraries.
    pub probe: Vec<ProbeFeature>,
    /// Largest debug information of a file that is read for lines and inlined calls; 0 reads none.
    pub debug_info: Bytes,
    /// Servers for debug information that files lack; none by default.
    #[serde(with = "values::servers")]
    pub debuginfod: Vec<ServerUrl>,
    /// How often the machine's own figures are read; `None`: not at all.
    #[serde(with = "seconds::or_off")]
    pub system_metrics: Option<Duration>,
    /// Follow threads while they are off their CPUs.
    pub off_cpu: bool,
    /// Ranges, or functions of libraries (`LIBRARY:FUNCTION`), that end a training step.
    #[serde(rename = "step-marker")]
    pub step_markers: Vec<String>,
    /// Calls of accelerators' libraries that get a stack; all are counted.
    pub launch_stacks: StackRate,
    /// Operators that get a stack; `None`: [`OPERATOR_STACKS`] if native frames are recorded, otherwise none.
    pub operator_stacks: Option<StackRate>,
    /// When single calls and the work that they launch are kept; `None`: never.
    pub trace: Option<TraceWindow>,
    /// Which single events are recorded.
    pub trace_level: TraceLevel,
    /// How much of the end is kept in memory, to be written on request; `None`: all is written.
    #[serde(with = "seconds::optional")]
    pub keep: Option<Duration>,
    /// Write the kept part when a training step takes this multiple of the usual time.
    pub on_hang: Option<HangFactor>,
    /// Actions for findings of rules, as given in the options.
    pub on_finding: Vec<String>,
    /// File of the rules' parameters, and of the user's own rules.
    pub rules: Option<PathBuf>,
    /// PyTorch operators whose tensors are recorded.
    pub shapes: Vec<TensorShapes>,
    /// File of probe rows that the user wrote.
    pub probe_file: Option<PathBuf>,
    /// The rows of [`Self::probe_file`], and those of step markers that are functions.
    #[serde(skip)]
    pub probe_rows: Vec<UserRow>,
    /// Share of the targets' CPU time that probes of features may take; above it they are duty-cycled.
    pub probe_budget: Option<Budget>,
    /// Ends of training steps are handed out while the capture runs; their probes have no budget.
    #[serde(skip)]
    pub hands_out_steps: bool,
    /// Probe the libraries of accelerators, and read what GPUs' driver says of them.
    #[serde(rename = "no-gpu", with = "negated")]
    pub accelerators: bool,
    /// A command that is about to start loads the collector, which measures what its devices do.
    pub gpu_activity: bool,
    /// Have collectors sample instructions of kernels.
    #[serde(with = "values::pc_sampling")]
    pub pc_sampling: Option<SamplingPeriod>,
    /// How kernels run while their instructions are sampled.
    pub pc_sampling_mode: SamplingMode,
    /// How long to capture; `None`: until it is stopped.
    #[serde(with = "seconds::optional")]
    pub duration: Option<Duration>,
    /// How often the profile is written to disk.
    #[serde(with = "seconds")]
    pub flush: Duration,
    /// The user that a command was to run as; `None` is the default, the caller of `sudo`.
    pub user: Option<String>,
    /// A command is about to start: also attach to installed drivers and runtimes that no process has mapped yet, so
    /// that its first calls are seen. Other processes that map them pay for the traps.
    #[serde(skip)]
    pub starts_command: bool,
    /// Folder in which unwind tables are kept between runs.
    #[serde(skip)]
    pub cache: Option<PathBuf>,
    /// Size of the ring buffer, a power of two of pages; `None`: chosen from the CPUs and the frequency.
    #[serde(skip)]
    pub ring: Option<Bytes>,
}

/// A source of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum FrameSource {
    /// Python functions.
    Python,
    /// Native code in user space.
    Native,
    /// Kernel code.
    Kernel,
}

/// Something that probes, or more frames than functions have, can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum ProbeFeature {
    /// PyTorch operators. With `native` frames, each is counted when it starts, below its enclosing operators, and
    /// thunks of XLA modules on a CPU are named. Without `native` frames, stacks show operators instead of native
    /// functions, which has the lowest overhead.
    Operators,
    /// Calls of PyTorch modules, by name and class, next to Python functions.
    Modules,
    /// PyTorch's backward pass, below the operators of the forward pass that caused it, with native and Python
    /// functions.
    Backward,
    /// PyTorch's named ranges (`record_function`) and training steps, next to Python functions.
    Ranges,
    /// Allocations of PyTorch tensors: where they were made, how much is live, and what was live at the peak.
    Memory,
    /// Work of OpenMP threads (`libgomp`, `libomp`, `libiomp5`), below the code that started the parallel region.
    Openmp,
    /// Tasks that await the running asyncio task (CPython 3.11 and later), next to Python functions.
    Async,
}

/// Default interval of machine metrics.
pub const SYSTEM_METRICS_EVERY: Duration = Duration::from_millis(500);

/// Default rate of operators that get a stack.
pub const OPERATOR_STACKS: StackRate = StackRate::PerSecond(100);

/// How kernels run while their instructions are sampled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum SamplingMode {
    /// As the program launches them: kernels may overlap.
    #[default]
    Continuous,
    /// One at a time: slower, but each sample belongs to one launch.
    Serialized,
}

/// The frames that the kernel programs record: those of [`CaptureConfig::context`], and those that probe features need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frames {
    pub(super) python: bool,
    pub(super) native: bool,
    pub(super) kernel: bool,
    /// Native frames are not recorded, but walked as far as needed to see which operators run.
    pub(super) operators_alone: bool,
    pub(super) modules: bool,
    pub(super) coroutines: bool,
}

impl Default for CaptureConfig {
    fn default() -> Self {
        Self {
            targets: Vec::new(),
            follow_children: true,
            frequency: Hertz(99),
            clock: Clock::default(),
            context: vec![FrameSource::Python, FrameSource::Native, FrameSource::Kernel],
            probe: Vec::new(),
            debug_info: Bytes(512 << 20),
            debuginfod: Vec::new(),
            system_metrics: Some(SYSTEM_METRICS_EVERY),
            off_cpu: false,
            step_markers: vec![deepctx_pipeline::STEP_MARKER.to_owned()],
            launch_stacks: StackRate::All,
            operator_stacks: None,
            trace: None,
            trace_level: TraceLevel::default(),
            keep: None,
            on_hang: None,
            on_finding: Vec::new(),
            rules: None,
            shapes: Vec::new(),
            probe_file: None,
            probe_rows: Vec::new(),
            probe_budget: None,
            hands_out_steps: false,
            accelerators: true,
            gpu_activity: false,
            pc_sampling: None,
            pc_sampling_mode: SamplingMode::Continuous,
            duration: None,
            flush: Duration::from_secs(5),
            user: None,
            starts_command: false,
            cache: None,
            ring: None,
        }
    }
}

impl CaptureConfig {
    /// Every option in force, by its name, as a profile stores it. Lists are joined by commas; an option that is not
    /// set has an empty value.
    pub fn options(&self) -> Vec<(String, String)> {
        let value = serde_json::to_value(self).unwrap_or_default();
        let fields = value.as_object().into_iter().flatten();
        fields.map(|(name, value)| (name.clone(), values::text_of(value))).collect()
    }

    /// The requested probes of PyTorch's and OpenMP's libraries.
    pub fn probe_request(&self) -> ProbeRequest {
        let has = |feature| self.probe.contains(&feature);
        ProbeRequest {
            backward: has(ProbeFeature::Backward),
            ranges: has(ProbeFeature::Ranges),
            memory: has(ProbeFeature::Memory),
            openmp: has(ProbeFeature::Openmp),
            // Without native frames, operators are shown by stacks, unless stacks of operators are requested.
            operators: has(ProbeFeature::Operators)
                && (self.has_source(FrameSource::Native) || self.operator_stacks.is_some()),
            tensors: self.shapes.iter().filter_map(TensorShapes::operator).collect(),
            more_tensors: self.hottest().is_some(),
        }
    }

    /// How many operators are chosen by samples; `None` if the user named all.
    pub fn hottest(&self) -> Option<usize> {
        self.shapes.iter().find_map(|shapes| match shapes {
            TensorShapes::Hottest(most) => Some(*most),
            TensorShapes::Operator(_) => None,
        })
    }

    fn has_source(&self, source: FrameSource) -> bool {
        self.context.contains(&source)
    }

    pub(super) fn frames(&self) -> Frames {
        let has = |feature| self.probe.contains(&feature);
        let request = self.probe_request();
        let native = self.has_source(FrameSource::Native);
        let operators_alone = !native && (has(ProbeFeature::Operators) || request.wants_tensors());
        let (modules, coroutines) = (has(ProbeFeature::Modules), has(ProbeFeature::Async));
        Frames {
            python: self.has_source(FrameSource::Python)
                || coroutines
                || modules
                || request.needs_libtorch_cpu()
                || operators_alone,
            native: native || request.backward || request.openmp,
            kernel: self.has_source(FrameSource::Kernel),
            operators_alone,
            modules,
            coroutines,
        }
    }

    /// Whether there is anything to probe.
    pub(super) fn has_probes(&self) -> bool {
        self.accelerators || self.probe_request().is_any()
    }

    /// Whether every process that collects activity records has our own collector: then the records of other
    /// collections in the same processes are not read.
    pub(super) fn has_own_collector(&self) -> bool {
        self.starts_command && (self.gpu_activity || self.pc_sampling.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(context: &[FrameSource], probe: &[ProbeFeature]) -> CaptureConfig {
        CaptureConfig { context: context.to_vec(), probe: probe.to_vec(), ..CaptureConfig::default() }
    }

    #[test]
    fn a_config_survives_being_stored() {
        let config = CaptureConfig {
            targets: vec![Targets::Pids(vec![7, 8]), Targets::Comm("python".into())],
            follow_children: false,
            frequency: Hertz(49),
            probe: vec![ProbeFeature::Openmp, ProbeFeature::Async],
            operator_stacks: Some(StackRate::PerSecond(500)),
            shapes: vec![TensorShapes::Operator("aten::mm".into()), TensorShapes::Hottest(3)],
            probe_file: Some("rows.toml".into()),
            probe_budget: "2.5%".parse().ok(),
            debuginfod: ServerUrl::list("https://a.org http://b.org").unwrap(),
            pc_sampling: Some(SamplingPeriod::Log2Cycles(12)),
            duration: Some(Duration::from_millis(1500)),
            keep: Some(Duration::from_secs(60)),
            on_hang: "5x".parse().ok(),
            trace: Some(TraceWindow::Steps { from: 5, until: 8 }),
            trace_level: TraceLevel::Launches,
            system_metrics: None,
            ..CaptureConfig::default()
        };
        let text = serde_json::to_string(&config).unwrap();
        assert_eq!(serde_json::from_str::<CaptureConfig>(&text).unwrap(), config, "{text}");
        assert_eq!(serde_json::from_str::<CaptureConfig>("{}").unwrap(), CaptureConfig::default());
    }

    #[test]
    fn options_of_a_profile_are_names_and_texts() {
        let config = CaptureConfig {
            targets: vec![Targets::Pids(vec![7, 8])],
            probe: vec![ProbeFeature::Ranges, ProbeFeature::Memory],
            shapes: vec![TensorShapes::Hottest(3)],
            probe_budget: "10".parse().ok(),
            debuginfod: ServerUrl::list("https://me:secret@a.org http://b.org").unwrap(),
            keep: Some(Duration::from_secs(60)),
            on_hang: "7.5".parse().ok(),
            ..CaptureConfig::default()
        };
        let options = config.options();
        let of = |name: &str| options.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
        for (name, value) in [
            ("pid", "7,8"),
            ("comm", ""),
            ("all", "false"),
            ("no-children", "false"),
            ("freq", "99"),
            ("event", "cpu-clock"),
            ("context", "python,native,kernel"),
            ("probe", "ranges,memory"),
            ("debug-info", "536870912"),
            ("debuginfod", "https://a.org,http://b.org"),
            ("step-marker", "Optimizer.step#"),
            ("launch-stacks", "all"),
            ("system-metrics", "0.5s"),
            ("operator-stacks", ""),
            ("shapes", "hottest:3"),
            ("probe-budget", "10%"),
            ("pc-sampling", "off"),
            ("keep", "60s"),
            ("on-hang", "7.5x"),
            ("flush", "5s"),
        ] {
            assert_eq!(of(name), Some(value), "{name} of {options:?}");
        }
    }

    #[test]
    fn probe_features_add_the_frames_that_they_need() {
        use FrameSource::{Kernel, Native, Python};
        let none = with(&[Kernel], &[]).frames();
        assert!(none.kernel && !none.python && !none.native && !none.operators_alone);
        assert!(with(&[Kernel], &[ProbeFeature::Modules]).frames().python);
        assert!(with(&[Python], &[ProbeFeature::Openmp]).frames().native);
        let alone = with(&[Python], &[ProbeFeature::Operators]);
        assert!(alone.frames().operators_alone && !alone.frames().native && !alone.probe_request().operators);
        let counted = CaptureConfig { operator_stacks: Some(StackRate::Off), ..alone };
        assert!(counted.probe_request().operators);
        assert!(with(&[Python, Native], &[ProbeFeature::Operators]).probe_request().operators);
    }

    #[test]
    fn without_accelerators_only_features_are_probed() {
        let without = CaptureConfig { accelerators: false, ..CaptureConfig::default() };
        assert!(CaptureConfig::default().has_probes() && !without.has_probes());
        assert!(CaptureConfig { probe: vec![ProbeFeature::Memory], ..without }.has_probes());
    }
}
