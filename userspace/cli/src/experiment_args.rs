//! Experiment arguments: the values of an experiment, and how it is judged.
//!
//! Owns: these options, the placeholders of a command, and the combinations of values. Because: a value that the
//! command does not use, or two values with the same file name, must be refused before the first run. Does not: run
//! the command.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::FalseyValueParser;
use clap::{Arg, ArgAction, Args};
use deepctx_analysis::experiment::LEVEL;
use deepctx_capture::{FrameSource, ProbeFeature};

use super::capture_args::{ProbeChoice, TargetArgs};
use super::common_args::TextOrJson;
use super::duration;
use super::failure::Failure;
use super::level_switch::LevelPlan;
use super::record_args::{RecordArgs, percent_up_to};

/// Maximum runs of one experiment: more would take days and make an unreadable table.
const RUNS_MAX: usize = 1000;
/// Maximum characters of a value in a profile's name.
const NAME_MAX: usize = 64;

/// Options of `experiment`: its own, and those of `record` for each run.
#[derive(Clone, Debug, Args)]
#[command(
    mut_arg("output", |option| option
        .value_name("FOLDER")
        .env("DEEPCTX_EXPERIMENT_OUTPUT")
        .default_value("experiment")
        .help("Folder for the profiles, one for each run (run-batch=4-1.dctx)")
        .long_help(None)),
    mut_arg("command", |words| words.help("Command to run, with a placeholder such as {batch} for each name of --values")
        .long_help(None)),
    mut_arg("pid", refused),
    mut_arg("comm", refused),
    mut_arg("cgroup", refused),
    mut_arg("container", refused),
    mut_arg("all", refused),
    mut_arg("keep", refused),
    mut_arg("on_hang", refused),
    mut_arg("raw", refused),
)]
pub(crate) struct ExperimentArgs {
    /// Values of a placeholder: each in turn replaces `{batch}` in the command. Repeatable; all combinations of several
    /// placeholders are run, and throughput is computed from the first.
    #[arg(long, value_name = "NAME=VALUE,…", env = "DEEPCTX_EXPERIMENT_VALUES", required_unless_present = "levels",
          value_parser = placeholder, help_heading = "Experiment")]
    pub values: Vec<Placeholder>,
    /// Run each value with nested sets of probes, and show what each set adds to the step time: samples without Python
    /// functions, calls of accelerator libraries, operators, Python functions.
    #[arg(long, env = "DEEPCTX_EXPERIMENT_LEVELS", action = ArgAction::SetTrue,
          value_parser = FalseyValueParser::new(), help_heading = "Experiment")]
    pub levels: bool,
    /// With `--levels`: switch sets of probes while the command runs. Each round has one window of steps per set: step
    /// ends only, samples, and the probes of `--probe`, `--shapes` and `--probe-file` (default: operators). All other
    /// options apply to every set.
    #[arg(long, env = "DEEPCTX_EXPERIMENT_IN_PROCESS", action = ArgAction::SetTrue, requires = "levels",
          value_parser = FalseyValueParser::new(), help_heading = "Experiment")]
    pub in_process: bool,
    /// With `--in-process`: minimum number of steps in a window.
    #[arg(long, value_name = "STEPS", env = "DEEPCTX_EXPERIMENT_WINDOW", default_value_t = 20,
          value_parser = number_to::<10_000>, help_heading = "Experiment")]
    pub window: u32,
    /// With `--in-process`: number of windows per set. Afterwards the command continues without probes.
    #[arg(long, value_name = "N", env = "DEEPCTX_EXPERIMENT_ROUNDS", default_value_t = 10,
          value_parser = number_to::<100>, help_heading = "Experiment")]
    pub rounds: u32,
    /// Number of runs per value.
    #[arg(long, value_name = "N", env = "DEEPCTX_EXPERIMENT_REPEAT", default_value_t = 1,
          value_parser = number_to::<100>, help_heading = "Experiment")]
    pub repeat: u32,
    /// Choose the largest value whose training step meets this latency (such as 50ms).
    #[arg(long, value_name = "TIME", env = "DEEPCTX_EXPERIMENT_LATENCY_TARGET", value_parser = duration::parse,
          help_heading = "Experiment")]
    pub latency_target: Option<Duration>,
    /// Otherwise choose the smallest value for which doubling gains at most this much throughput.
    #[arg(long, value_name = "PERCENT", env = "DEEPCTX_EXPERIMENT_GAIN", default_value_t = 5.0,
          value_parser = share, help_heading = "Experiment")]
    pub gain: f64,
    /// Percentage of the runs of a value that is trimmed at each end before averaging.
    #[arg(long, value_name = "PERCENT", env = "DEEPCTX_EXPERIMENT_TRIM", default_value_t = 20.0,
          value_parser = share, help_heading = "Experiment")]
    pub trim: f64,
    /// Output format.
    #[arg(
        long,
        value_name = "FORMAT",
        env = "DEEPCTX_EXPERIMENT_FORMAT",
        default_value = "text",
        help_heading = "Experiment"
    )]
    pub format: TextOrJson,
    /// How each run is recorded.
    #[command(flatten)]
    pub record: RecordArgs,
}

/// A placeholder and its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placeholder {
    /// The name between the braces in the command.
    pub name: String,
    /// The values, in run order.
    pub values: Vec<String>,
}

/// A set of probes; each includes the previous ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// Samples without Python functions, and step ends.
    Samples,
    /// Calls of accelerator libraries.
    Launches,
    /// Operator starts.
    Operators,
    /// Python functions.
    Python,
}

impl Level {
    /// Every level, the smallest first.
    pub(crate) const ALL: [Level; 4] = [Level::Samples, Level::Launches, Level::Operators, Level::Python];

    /// Its spelling.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Level::Samples => "samples",
            Level::Launches => "launches",
            Level::Operators => "operators",
            Level::Python => "python",
        }
    }

    /// Reduces a recording to this level.
    pub(crate) fn apply(self, record: &mut RecordArgs) {
        let capture = &mut record.capture;
        capture.probe.retain(|probe| *probe != ProbeChoice::Feature(ProbeFeature::Operators));
        if self == Level::Samples {
            capture.no_gpu = true;
            (record.gpu_activity, record.sampling.pc_sampling) = (false, None);
        }
        if matches!(self, Level::Operators | Level::Python) {
            capture.probe.push(ProbeFeature::Operators.into());
        }
        capture.context = [FrameSource::Native, FrameSource::Kernel].to_vec();
        if self == Level::Python {
            capture.context.insert(0, FrameSource::Python);
        }
    }
}

/// An option of `record` that an experiment refuses if it is typed. Its variable, meant for `record`, is not read.
fn refused(option: Arg) -> Arg {
    option.hide(true).env(None::<&'static str>)
}

fn share(text: &str) -> Result<f64, String> {
    percent_up_to(50.0, text)
}

/// A number from 1 to `MOST`.
fn number_to<const MOST: u32>(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| (1..=MOST).contains(number));
    number.ok_or_else(|| format!("expected a whole number from 1 to {MOST}"))
}

fn placeholder(text: &str) -> Result<Placeholder, String> {
    let expected = || format!("expected a name and values, as in batch=1,2,4, found '{text}'");
    let (name, values) = text.split_once('=').ok_or_else(expected)?;
    let is_name = |name: &str| {
        !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
    };
    let values: Vec<String> = values.split(',').map(|value| value.trim().to_owned()).collect();
    if !is_name(name) || values.iter().any(String::is_empty) {
        return Err(expected());
    }
    Ok(Placeholder { name: name.to_owned(), values })
}

impl ExperimentArgs {
    /// Fails if the command, its values and the options of `record` conflict.
    ///
    /// # Errors
    /// A message for the user.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let TargetArgs { pid, comm, cgroup, container, all, no_children: _ } = &self.record.target;
        let named = !pid.is_empty() || !comm.is_empty() || cgroup.is_some() || container.is_some() || *all;
        if named || self.record.command.is_empty() {
            return Err(Failure::new("expected a command after --, and no other target")
                .hint("as in `sudo deepctx-bpf experiment --values batch=1,2 -- python train.py {batch}`"));
        }
        if self.record.flight.keep.is_some() || self.record.capture.raw.is_some() {
            return Err(Failure::new(
                "--keep and --raw cannot be used here: each run has a profile of its own",
            ));
        }
        if self.levels && self.values.iter().any(|of| of.name == LEVEL) {
            return Err(Failure::new(format_args!(
                "--values {LEVEL}: with --levels, that is the set of probes"
            )));
        }
        let words = || self.record.command.iter();
        if self.levels && self.record.capture.probe.contains(&ProbeChoice::Auto) {
            return Err(Failure::new("--probe auto cannot be used with --levels, which are sets of probes")
                .hint("name the features, as in `--probe operators,modules`"));
        }
        for (place, Placeholder { name, .. }) in self.values.iter().enumerate() {
            if self.values[..place].iter().any(|other| other.name == *name) {
                return Err(Failure::new(format_args!("--values {name}: given twice"))
                    .hint(format_args!("write all values at once: --values {name}=1,2,4")));
            }
            let holder = format!("{{{name}}}");
            if !words().any(|word| word.to_string_lossy().contains(&holder)) {
                return Err(Failure::new(format_args!("{holder} is nowhere in the command"))
                    .hint(format_args!("write {holder} where the value belongs")));
            }
        }
        let combinations = self.combinations();
        if combinations.len().saturating_mul(self.repeat as usize) > RUNS_MAX {
            return Err(Failure::new(format_args!("expected {RUNS_MAX} runs at most")));
        }
        let names: BTreeSet<PathBuf> = combinations.iter().map(|values| self.profile(values, 1)).collect();
        if names.len() < combinations.len() {
            return Err(Failure::new("two of the values have the same name of a file")
                .hint("leave out values that are given twice, or differ only in signs such as `/`"));
        }
        Ok(())
    }

    /// The varying dimensions: the placeholders, with levels last.
    pub(crate) fn dimensions(&self) -> Vec<Placeholder> {
        let names = || Level::ALL.iter().map(|level| level.name().to_owned()).collect();
        let between_runs = self.levels && !self.in_process;
        let levels = between_runs.then(|| Placeholder { name: LEVEL.to_owned(), values: names() });
        self.values.iter().cloned().chain(levels).collect()
    }

    /// The level of a run; `None` means the set from the options.
    pub(crate) fn level(&self, values: &[String]) -> Option<Level> {
        let name = values.last().filter(|_| self.levels && !self.in_process)?;
        Level::ALL.into_iter().find(|level| level.name() == name)
    }

    /// Every combination of values; the first placeholder changes slowest.
    pub(crate) fn combinations(&self) -> Vec<Vec<String>> {
        let start = vec![Vec::new()];
        self.dimensions().iter().fold(start, |known: Vec<Vec<String>>, of| {
            let with = |values: &Vec<String>| -> Vec<Vec<String>> {
                of.values
                    .iter()
                    .map(|value| [values.as_slice(), std::slice::from_ref(value)].concat())
                    .collect()
            };
            // The exact number of runs is checked later.
            known.iter().take(RUNS_MAX + 1).flat_map(with).collect()
        })
    }

    /// The folder of the profiles.
    pub(crate) fn folder(&self) -> &Path {
        self.record.output.as_deref().unwrap_or(Path::new("experiment"))
    }

    /// The path of a run's profile.
    pub(crate) fn profile(&self, values: &[String], repeat: usize) -> PathBuf {
        let part = |(of, value): (&Placeholder, &String)| format!("{}={}", of.name, file_name(value));
        let dimensions = self.dimensions();
        let parts = dimensions.iter().zip(values).map(part).chain([repeat.to_string()]);
        self.folder().join(format!("run-{}.dctx", parts.collect::<Vec<_>>().join("-")))
    }

    /// How probe sets are switched within a run, if they are.
    pub(crate) fn level_plan(&self) -> Option<LevelPlan> {
        self.in_process.then_some(LevelPlan {
            window: self.window as usize,
            rounds: self.rounds as usize,
            frequency: self.record.capture.freq,
        })
    }

    /// The recording options of a run: the user's, plus the program's steps.
    pub(crate) fn record_args(&self, values: &[String], output: PathBuf) -> RecordArgs {
        let mut record =
            RecordArgs { output: Some(output), command: self.command(values), ..self.record.clone() };
        if let Some(level) = self.level(values) {
            level.apply(&mut record);
        }
        let capture = &mut record.capture;
        // A run needs its steps, whatever else it leaves out.
        capture.probe.retain(|probe| *probe != ProbeChoice::None);
        if self.in_process {
            // The other features only add frames, or are not switched.
            let stays = [ProbeFeature::Ranges, ProbeFeature::Modules, ProbeFeature::Async];
            let stays = stays.map(ProbeChoice::Feature);
            let has_probes = capture.probe.iter().any(|probe| !stays.contains(probe));
            if !has_probes && capture.shapes.is_empty() && capture.probe_file.is_none() {
                capture.probe.push(ProbeFeature::Operators.into());
            }
            // Only probes with a budget can be detached; the budget itself must not detach them.
            capture.probe_budget = capture.probe_budget.or_else(|| "100%".parse().ok());
        }
        if !capture.names(ProbeFeature::Ranges) {
            capture.probe.push(ProbeFeature::Ranges.into());
        }
        record
    }

    /// The command with these values substituted.
    pub(crate) fn command(&self, values: &[String]) -> Vec<OsString> {
        let with_values = |word: &OsString| {
            let pairs = self.values.iter().zip(values);
            let bytes = word.as_bytes().to_vec();
            let replaced = pairs.fold(bytes, |word, (of, value)| {
                replace(&word, format!("{{{}}}", of.name).as_bytes(), value.as_bytes())
            });
            OsString::from_vec(replaced)
        };
        self.record.command.iter().map(with_values).collect()
    }
}

/// A value as part of a file name.
fn file_name(value: &str) -> String {
    let is_plain = |letter: &char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | '+');
    value.chars().take(NAME_MAX).map(|letter| if is_plain(&letter) { letter } else { '_' }).collect()
}

/// Replaces text in a word, which need not be UTF-8.
fn replace(word: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut left = word;
    let mut replaced = Vec::with_capacity(word.len());
    while let Some(first) = left.first() {
        if let Some(behind) = left.strip_prefix(from) {
            replaced.extend_from_slice(to);
            left = behind;
        } else {
            replaced.push(*first);
            left = &left[1..];
        }
    }
    replaced
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::super::options::{Cli, Command};
    use super::*;

    fn parsed(arguments: &str) -> Result<ExperimentArgs, String> {
        let arguments = format!("deepctx-bpf experiment {arguments}");
        let cli = Cli::try_parse_from(arguments.split_whitespace()).map_err(|error| error.to_string())?;
        let Some(Command::Experiment(of)) = cli.command else { return Err("another command".into()) };
        of.check().map_err(|failure| failure.to_string())?;
        Ok(*of)
    }

    #[test]
    fn every_combination_of_values_is_a_run_of_its_own() {
        let of =
            parsed("--values batch=1,2 --values mode=a/b -o out -- run {mode} --n={batch}x{batch} {other}");
        let of = of.unwrap();
        let runs = of.combinations();
        assert_eq!(runs, [["1", "a/b"], ["2", "a/b"]]);
        assert_eq!(of.command(&runs[1]), ["run", "a/b", "--n=2x2", "{other}"]);
        assert_eq!(of.profile(&runs[1], 3), PathBuf::from("out/run-batch=2-mode=a_b-3.dctx"));
        assert_eq!(parsed("--values n=1 -- run {n}").unwrap().folder(), Path::new("experiment"));
    }

    #[test]
    fn values_that_make_no_sense_are_refused() {
        for (arguments, expect) in [
            ("-- true", "--values"),
            ("--values batch -- true {batch}", "as in batch=1,2,4"),
            ("--values batch=1,,2 -- true {batch}", "as in batch=1,2,4"),
            ("--values =1 -- true {}", "as in batch=1,2,4"),
            ("--values batch=1 -- true", "{batch} is nowhere"),
            ("--values batch=1 --values batch=2 -- true {batch}", "given twice"),
            ("--values batch=1,1 -- true {batch}", "the same name"),
            ("--values batch=1", "expected a command"),
            ("--values batch=1 --pid 1 -- true {batch}", "no other target"),
            ("--values batch=1 --keep 10s -- true {batch}", "--keep"),
            ("--values batch=1,2 --repeat 0 -- true {batch}", "expected a whole number from 1 to 100"),
            ("--values batch=1,2 --repeat few -- true {batch}", "expected a whole number from 1 to 100"),
            ("--values batch=1 --trim 60 -- true {batch}", "from 0 to 50"),
            ("--values level=1 --levels -- true {level}", "the set of probes"),
            ("--values n=1 --in-process -- true {n}", "--levels"),
            ("--levels --probe memory,auto -- true", "--probe auto cannot be used with --levels"),
            ("--levels --in-process --window 0 -- true", "expected a whole number from 1 to 10000"),
            ("--levels --in-process --rounds 101 -- true", "--rounds"),
        ] {
            let error = parsed(arguments).unwrap_err();
            assert!(error.contains(expect), "{arguments}: {error}");
        }
    }

    #[test]
    fn variables_of_refused_options_are_not_read() {
        use clap::CommandFactory as _;

        let command = Cli::command();
        let experiment = command.find_subcommand("experiment").unwrap();
        for id in ["pid", "comm", "cgroup", "container", "all", "keep", "on_hang", "raw"] {
            let option = experiment.get_arguments().find(|option| option.get_id() == id).unwrap();
            assert_eq!(option.get_env(), None, "{id}");
        }
    }

    #[test]
    fn levels_hold_what_those_before_them_do() {
        let of = parsed("--values n=1 --levels --probe memory,operators --gpu-activity -- run {n}").unwrap();
        let runs = of.combinations();
        assert_eq!(runs[1], ["1", "launches"]);
        assert_eq!(of.profile(&runs[1], 1), PathBuf::from("experiment/run-n=1-level=launches-1.dctx"));
        let parts = |values: &Vec<String>| {
            let mut record = of.record.clone();
            of.level(values).unwrap().apply(&mut record);
            let capture = record.capture;
            (capture.no_gpu, record.gpu_activity, capture.probe.len(), capture.context.len())
        };
        let expect = [(true, false, 1, 2), (false, true, 1, 2), (false, true, 2, 2), (false, true, 2, 3)];
        assert_eq!(runs.iter().map(parts).collect::<Vec<_>>(), expect);
        assert_eq!(parsed("--levels -- true").unwrap().combinations().len(), 4);
    }

    #[test]
    fn levels_within_a_run_have_one_profile() {
        let check = |options: &str, probe: &[ProbeFeature], budget: &str| {
            let of = parsed(&format!("--levels --in-process {options} -- true")).unwrap();
            assert_eq!(of.combinations(), [Vec::<String>::new()]);
            let output = of.profile(&[], 2);
            assert_eq!(output, PathBuf::from("experiment/run-2.dctx"));
            let capture = of.record_args(&[], output).capture;
            let probe: Vec<ProbeChoice> = probe.iter().copied().map(ProbeChoice::from).collect();
            assert_eq!((capture.probe, capture.probe_budget), (probe, budget.parse().ok()), "{options}");
            assert_eq!(of.level_plan().unwrap().frequency, 99);
        };
        check("", &[ProbeFeature::Operators, ProbeFeature::Ranges], "100%");
        check("--probe none", &[ProbeFeature::Operators, ProbeFeature::Ranges], "100%");
        check("--probe memory --probe-budget 5%", &[ProbeFeature::Memory, ProbeFeature::Ranges], "5%");
        check("--probe ranges", &[ProbeFeature::Ranges, ProbeFeature::Operators], "100%");
        check(
            "--probe modules",
            &[ProbeFeature::Modules, ProbeFeature::Operators, ProbeFeature::Ranges],
            "100%",
        );
        check("--probe-file rows.toml", &[ProbeFeature::Ranges], "100%");
    }

    #[test]
    fn more_runs_than_anybody_waits_for_are_refused() {
        let many: Vec<String> = (0..100).map(|value| value.to_string()).collect();
        let many = many.join(",");
        let three = format!("--values a={many} --values b={many} --values c={many} -- true {{a}}{{b}}{{c}}");
        assert!(parsed(&three).unwrap_err().contains("1000 runs"));
    }
}
