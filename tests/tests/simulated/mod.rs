//! A program on the simulated device, recorded from its start to its end.
//!
//! Owns: setup of the libraries, the collector and the device's own account, and queries on the stored profile. Does
//! not: test.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use deepctx_profile::device::activity::GpuProcess;
use deepctx_profile::frame::Frame;
use deepctx_profile::ledger::CheckTime;
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Profile;
use deepctx_profile::trace::Job;

use crate::cli_support::recording::{Recording, RecordingOutcome};
use crate::cli_support::{can_capture, program};

/// Setup of a program run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Setting {
    /// Folder of the libraries.
    pub(crate) libraries: &'static str,
    /// Whether the collector is loaded.
    pub(crate) collector: bool,
    /// Faults of CUPTI.
    pub(crate) misbehaves: &'static str,
    /// Additional environment variables of the program.
    pub(crate) variables: &'static [(&'static str, &'static str)],
    /// Profiler options, before the command.
    pub(crate) words: &'static [&'static str],
}

impl Setting {
    /// Environment variables of the program.
    pub(crate) fn variables(self, log: &Path) -> Vec<(&'static str, String)> {
        let libraries = libraries(self.libraries);
        let mut variables = vec![
            ("LD_LIBRARY_PATH", libraries.display().to_string()),
            ("DEEPCTX_SIM_LOG", log.display().to_string()),
            ("DEEPCTX_SIM_CUPTI", self.misbehaves.to_owned()),
        ];
        variables.extend(self.variables.iter().map(|&(name, value)| (name, value.to_owned())));
        if self.collector {
            variables.push(("CUDA_INJECTION64_PATH", collector().display().to_string()));
        }
        variables
    }
}

/// One line of the device's log.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) what: String,
    pub(crate) thread: u32,
    pub(crate) correlation: u32,
    pub(crate) stream: u64,
    /// By the host's clock, within the call.
    pub(crate) submitted: u64,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) bytes: u64,
    pub(crate) node: u64,
    pub(crate) name: String,
}

/// Results of a run.
pub(crate) struct Capture {
    pub(crate) profile: Profile,
    pub(crate) account: Vec<Line>,
    /// Samples by kernel, offset and reason, from the device's log; without a kernel, the fate of other samples. Empty
    /// without sampling.
    pub(crate) samples: BTreeMap<(String, u64, String), u64>,
    /// Individual events, if recorded.
    pub(crate) job: Option<Job>,
}

/// Folder of build outputs: `target/debug`.
fn built() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().to_owned()
}

/// A folder of simulated libraries.
pub(crate) fn libraries(name: &str) -> PathBuf {
    built().with_file_name("sim").join(name)
}

/// The collector.
pub(crate) fn collector() -> PathBuf {
    built().join("libdeepctx_collector.so")
}

pub(crate) fn is_built() -> bool {
    if built().with_file_name("sim").join("cuda13/libcupti.so.13").exists() {
        return true;
    }
    assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "the simulated libraries are not built");
    println!("skipped: the simulated libraries are not built (cargo xtask sim)");
    false
}

fn workload(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads").join(name)
}

/// A command for a Python workload.
pub(crate) fn python(name: &str) -> Vec<String> {
    vec!["python3".into(), workload(name).to_str().unwrap().into()]
}

/// The compiled launcher; `None` without a compiler.
pub(crate) fn launcher() -> Option<Vec<String>> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    PROGRAM
        .get_or_init(|| compiled("gpu_launch", &[]))
        .as_ref()
        .map(|path| vec![path.to_str().unwrap().to_owned()])
}

/// The program whose kernels are loaded before the attach, compiled with real device code.
pub(crate) fn latecomer() -> Option<Vec<String>> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("symbolizer/tests/fixtures/cubin");
    let define = |name: &str, file: &str| format!("-D{name}=\"{}\"", fixtures.join(file).display());
    let words = [define("FATBIN", "zstd.fatbin"), define("CUBIN", "cuda13.cubin")];
    PROGRAM
        .get_or_init(|| compiled("gpu_late", &words))
        .as_ref()
        .map(|path| vec![path.to_str().unwrap().to_owned()])
}

/// The program whose kernels have a line table, compiled with it.
pub(crate) fn sampled() -> Option<Vec<String>> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("symbolizer/tests/fixtures/cubin");
    let words = [format!("-DCUBIN=\"{}\"", fixtures.join("lines13.cubin").display())];
    PROGRAM
        .get_or_init(|| compiled("gpu_samples", &words))
        .as_ref()
        .map(|path| vec![path.to_str().unwrap().to_owned()])
}

/// Path of a library with the functions of NVTX; `None` without a compiler.
pub(crate) fn nvtx() -> Option<String> {
    library("nvtx/libnvToolsExt.so.1", "marked_ranges.c", &["-x", "c", "-DNVTX"])
}

/// Path of a library whose operators launch kernels; `None` without a compiler.
pub(crate) fn operators() -> Option<String> {
    library("operators/libtorch_cpu.so", "gpu_operators.cpp", &["-fomit-frame-pointer"])
}

/// A workload's library, compiled into a file below `target/sim`.
fn library(file: &str, source: &str, words: &[&str]) -> Option<String> {
    let to = built().with_file_name("sim").join(file);
    std::fs::create_dir_all(to.parent().unwrap()).unwrap();
    let mut compiler = Command::new("c++");
    compiler.args(words).args(["-O2", "-fPIC", "-shared", "-o"]).arg(&to);
    match compiler.arg(workload(source)).status() {
        Ok(status) => {
            assert!(status.success(), "{source} does not compile");
            Some(to.to_str().unwrap().to_owned())
        }
        Err(error) => {
            assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "no compiler: {error}");
            println!("skipped: no compiler: {error}");
            None
        }
    }
}

/// A compiled C++ workload; `None` without a compiler.
fn compiled(name: &str, words: &[String]) -> Option<PathBuf> {
    let to = built().with_file_name("sim").join(name);
    std::fs::create_dir_all(to.parent().unwrap()).unwrap();
    let mut compiler = Command::new("c++");
    compiler.args(["-O2", "-fomit-frame-pointer", "-pthread"]).args(words).arg("-o").arg(&to);
    match compiler.arg(workload(&format!("{name}.cpp"))).arg("-ldl").status() {
        Ok(status) => {
            assert!(status.success(), "{name} does not compile");
            Some(to)
        }
        Err(error) => {
            assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "no C++ compiler: {error}");
            println!("skipped: no C++ compiler: {error}");
            None
        }
    }
}

/// Records the command from start to end.
pub(crate) fn record(setting: Setting, command: &[String], arguments: &[&str]) -> Option<Capture> {
    recorded(setting, command, arguments, &[], |_| {})
}

/// The same for a command that runs until its input ends, once the profiler has logged this.
pub(crate) fn record_and_wait(
    setting: Setting,
    command: &[String],
    arguments: &[&str],
    logged: Option<&str>,
) -> Option<Capture> {
    // One level more verbose than usual recordings.
    let words = if logged.is_some() { &["-v"][..] } else { &[] };
    recorded(setting, command, arguments, words, |recording| {
        if let Some(text) = logged {
            recording.wait_for(text);
        }
    })
}

/// The same for a command that runs until its input ends, once the growing profile meets the condition.
pub(crate) fn record_until(
    setting: Setting,
    command: &[String],
    arguments: &[&str],
    holds: impl Fn(&Capture) -> bool,
) -> Option<Capture> {
    recorded(setting, command, arguments, &[], |recording| {
        recording.wait_until(|file| holds(&Capture::so_far(file.as_ref())));
    })
}

/// Excludes other collector listeners, in this program and others, until dropped.
#[derive(Debug)]
pub(crate) struct Isolation {
    _in_this_program: MutexGuard<'static, ()>,
    _file: File,
}

/// Waits until there is no other listener.
///
/// A collector counts its listeners in every process with the same file. A listener that arrives just as another one
/// leaves is noticed up to a second late, and these tests are exact. Programs of several groups run concurrently.
pub(crate) fn alone() -> Isolation {
    static ONE_LISTENS: Mutex<()> = Mutex::new(());
    let in_this_program = ONE_LISTENS.lock().unwrap_or_else(PoisonError::into_inner);
    let file = File::create(built().with_file_name("sim").join("one-listens.lock")).unwrap();
    file.lock().unwrap();
    Isolation { _in_this_program: in_this_program, _file: file }
}

/// Records the command from start to end; its input stays open until `over` returns.
fn recorded(
    setting: Setting,
    command: &[String],
    arguments: &[&str],
    words: &[&str],
    over: impl FnOnce(&Recording),
) -> Option<Capture> {
    let folder = record_into(setting, command, arguments, words, over)?;
    let (output, log) = (folder.path().join(OUTPUT), folder.path().join(LOG));
    let opened = deepctx_storage::open(&output).unwrap();
    assert!(opened.is_complete(), "{:?}", opened.notes);
    let job = setting.words.contains(&"--trace").then(|| deepctx_storage::open_traces(&[output]).unwrap());
    Some(Capture { profile: opened.profile, account: account(&log), samples: samples_of(&log), job })
}

/// File names of the profile and of the device's log in their folder.
const OUTPUT: &str = "run.dctx";
const LOG: &str = "device.tsv";

/// Records the command from start to end. Returns the file with its folder.
pub(crate) fn record_file(
    setting: Setting,
    command: &[String],
    arguments: &[&str],
) -> Option<(tempfile::TempDir, String)> {
    let folder = record_into(setting, command, arguments, &[], |_| {})?;
    let file = folder.path().join(OUTPUT).display().to_string();
    Some((folder, file))
}

/// Records the command into a folder.
fn record_into(
    setting: Setting,
    command: &[String],
    arguments: &[&str],
    words: &[&str],
    over: impl FnOnce(&Recording),
) -> Option<tempfile::TempDir> {
    if !can_capture() || !is_built() {
        return None;
    }
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let (output, log) = (folder.path().join(OUTPUT), folder.path().join(LOG));
    let variables: Vec<String> =
        setting.variables(&log).into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    let mut all = [words, setting.words, &["--", "env"]].concat();
    all.extend(variables.iter().map(String::as_str));
    all.extend(command.iter().map(String::as_str));
    all.extend(arguments);
    let mut recording = Recording::of_file(&output, program().stdin(Stdio::piped()), &all);
    over(&recording);
    // Waiting closes its input, which the command inherits.
    let RecordingOutcome { status, said } = recording.ended();
    assert!(status.success(), "{all:?}\n{said}");
    Some(folder)
}

fn samples_of(log: &Path) -> BTreeMap<(String, u64, String), u64> {
    let text = std::fs::read_to_string(log.with_extension("tsv.pc")).unwrap_or_default();
    let row = |line: &str| {
        let [kernel, offset, reason, samples] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{line}");
        };
        ((kernel.to_owned(), offset.parse().unwrap(), reason.to_owned()), samples.parse().unwrap())
    };
    text.lines().skip(1).map(row).collect()
}

fn account(log: &Path) -> Vec<Line> {
    let text = std::fs::read_to_string(log).unwrap();
    let lines = text.lines().skip(1).map(|line| {
        let fields: Vec<&str> = line.split('\t').collect();
        Line {
            what: fields[0].into(),
            thread: fields[2].parse().unwrap(),
            correlation: fields[3].parse().unwrap(),
            stream: fields[6].parse().unwrap(),
            submitted: fields[7].parse().unwrap(),
            start: fields[8].parse().unwrap(),
            end: fields[9].parse().unwrap(),
            bytes: fields[10].parse().unwrap(),
            node: fields[12].parse().unwrap(),
            name: fields[13].into(),
        }
    });
    lines.collect()
}

impl Capture {
    /// Reads a profile that is still growing.
    pub(crate) fn so_far(profile: &Path) -> Self {
        let profile = deepctx_storage::open(profile).unwrap().profile;
        Self { profile, account: Vec::new(), samples: BTreeMap::new(), job: None }
    }

    /// Reads a profile and the device's log.
    pub(crate) fn of(profile: &Path, log: &Path) -> Self {
        Self {
            profile: deepctx_storage::open(profile).unwrap().profile,
            account: account(log),
            samples: samples_of(log),
            job: None,
        }
    }

    /// The only process that used a device.
    pub(crate) fn process(&self) -> &GpuProcess {
        let used: Vec<_> = self.profile.gpu.processes.iter().filter(|process| process.is_used()).collect();
        let [process] = used[..] else { panic!("{used:?}") };
        process
    }

    pub(crate) fn text(&self, frame: Frame) -> String {
        let text = |id| self.profile.strings.get(id).to_owned();
        match frame {
            Frame::Python { function, .. } => text(function),
            Frame::Native { symbol, .. } => text(symbol),
            Frame::GpuApi { name } | Frame::GpuKernel { name } | Frame::Operator { name } => text(name),
            _ => String::new(),
        }
    }

    /// Contexts of a kernel, each with its frames from the outermost and its count.
    fn contexts_of(&self, kernel: &str) -> Vec<(Vec<Frame>, u64)> {
        let (tree, frames) = (&self.profile.tree, &self.profile.frames);
        let mut found = Vec::new();
        for (node, cell) in tree.cells(Metric::Kernels) {
            let stack: Vec<Frame> = tree.stack(node).into_iter().map(|id| frames.get(id)).collect();
            let is_it =
                |frame: &Frame| matches!(frame, Frame::GpuKernel { .. }) && self.text(*frame) == kernel;
            if stack.last().is_some_and(is_it) {
                found.push((stack, cell.sum));
            }
        }
        found
    }

    /// The names of all kernels.
    pub(crate) fn kernel_names(&self) -> BTreeSet<String> {
        let tree = &self.profile.tree;
        let frames =
            tree.cells(Metric::Kernels).map(|(node, _)| self.profile.frames.get(tree.node(node).frame));
        frames
            .filter(|frame| matches!(frame, Frame::GpuKernel { .. }))
            .map(|frame| self.text(frame))
            .collect()
    }

    /// The devices whose streams ran work, as labeled before the stream number.
    pub(crate) fn streams(&self) -> Vec<String> {
        let tree = &self.profile.tree;
        let frames = tree.cells(Metric::GpuTime).flat_map(|(node, _)| tree.stack(node));
        let labels = frames.filter_map(|id| {
            let frame = self.profile.frames.get(id);
            let label = frame.label(&self.profile.strings, false);
            let (device, _) = label.split_once(", stream ")?;
            matches!(frame, Frame::Stream { .. }).then(|| device.to_owned())
        });
        labels.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Number of runs of a kernel.
    pub(crate) fn kernels(&self, name: &str) -> u64 {
        self.contexts_of(name).iter().map(|(_, count)| count).sum()
    }

    /// The stacks above a kernel, outermost first, as text.
    pub(crate) fn stacks_of(&self, kernel: &str) -> Vec<Vec<String>> {
        let contexts = self.contexts_of(kernel).into_iter();
        contexts.map(|(stack, _)| stack.into_iter().map(|frame| self.text(frame)).collect()).collect()
    }

    /// Number of a kernel's runs below each of these functions, with its minimum and maximum blocks there.
    pub(crate) fn blocks_below<'f>(
        &self,
        kernel: &str,
        functions: &[&'f str],
    ) -> Vec<(&'f str, u64, [u32; 2])> {
        let (tree, frames) = (&self.profile.tree, &self.profile.frames);
        let below = |function: &'f str| {
            let (mut count, mut blocks) = (0, [u32::MAX, 0]);
            for (node, cell) in tree.cells(Metric::Kernels) {
                let stack: Vec<String> =
                    tree.stack(node).into_iter().map(|id| self.text(frames.get(id))).collect();
                let is_it = stack.last().is_some_and(|last| last == kernel);
                if is_it && stack.iter().any(|frame| frame.contains(function)) {
                    let shape = self.profile.gpu.shape_of(node).unwrap();
                    count += cell.sum;
                    blocks = [blocks[0].min(shape.grid[0].min), blocks[1].max(shape.grid[0].max)];
                }
            }
            (function, count, blocks)
        };
        functions.iter().map(|function| below(function)).collect()
    }

    /// Number of a kernel's runs below exactly these Python frames (`function:line`) of a file and one launching frame.
    pub(crate) fn kernels_below(&self, kernel: &str, file: &str, expect: &[String]) -> u64 {
        let mut sum = 0;
        for (stack, count) in self.contexts_of(kernel) {
            let python = stack.iter().filter_map(|frame| match frame {
                Frame::Python { function, file: of, line, .. }
                    if self.profile.strings.get(*of).ends_with(file) =>
                {
                    let line = line.map_or(0, std::num::NonZero::get);
                    Some(format!("{}:{line}", self.profile.strings.get(*function)))
                }
                _ => None,
            });
            let python: Vec<String> = python.collect();
            if python.split_last().is_some_and(|(_, above)| above == expect) {
                sum += count;
            }
        }
        sum
    }

    /// The total of a metric.
    pub(crate) fn total(&self, metric: Metric) -> u64 {
        self.profile.tree.total(metric).sum
    }

    /// The ledger's count of a gap.
    pub(crate) fn gap(&self, reason: &str) -> u64 {
        let rows = self.profile.ledger.rows();
        rows.iter().filter(|row| !row.lost && row.reason == reason).map(|row| row.count).sum()
    }

    pub(crate) fn adds_up(&self) {
        self.profile.ledger.check(CheckTime::Finished).unwrap();
    }
}
