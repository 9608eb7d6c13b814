//! `cargo xtask soak`: a capture of the whole machine for hours, while processes and libraries come and go.
//!
//! Owns: the load beside the profiler, and the figures that must not grow. Because: leaks of a profiler show after
//! hours, on somebody else's machine. Does not: measure speed.

mod curve;
mod reading;
mod tables;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::figure::{Figure, Target, median};
use super::profiler::{Profilers, RunningProfiler};
use super::report::Report;
use super::{Profile, product};
use crate::sh;
use crate::workloads::{self, RunningProgram};
use reading::Reading;
use tables::{Fill, TableReader, most_growth};

/// Options of `cargo xtask soak`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// How long, hours.
    #[arg(long, default_value_t = 2.0)]
    hours: f64,
    /// Samples per second and CPU.
    #[arg(long, default_value_t = 99)]
    freq: u32,
    /// Processes started a second.
    #[arg(long, default_value_t = 100)]
    forks: u32,
    /// An already built deepctx-bpf, instead of a fresh build with the profile `release`.
    #[arg(long, value_name = "FILE")]
    profiler: Option<PathBuf>,
    /// Where the curves are drawn, as SVG.
    #[arg(long, value_name = "FILE")]
    curves: Option<PathBuf>,
}

/// Readings of one run.
const READINGS: u32 = 180;
/// Minimum interval between readings.
const APART_MIN: Duration = Duration::from_secs(2);
/// Number of libraries that are replaced.
const LIBRARIES: usize = 8;
/// Maximum memory of the profiler, including locked kernel memory, in MiB.
const MEMORY_MAX: f64 = 150.0;
/// Maximum growth of memory from the second third of a run to the last: allocators retain memory.
const GROWTH_MAX: f64 = 0.05;
/// Maximum growth of open descriptors: a worker or a segment may be open at the time.
const DESCRIPTORS_MAX: f64 = 8.0;
/// Maximum growth of a kernel table, as a share of its capacity: the processes of the moment vary.
const FILL_GROWTH_MAX: f64 = 0.01;
/// Maximum number of files of the profile: 8 tables, each with 5 levels of at most 8 segments, since 8 of a level are
/// merged into one of the next (`profile/storage/src/store/merge.rs`), and the manifest.
const FILES_MAX: f64 = 321.0;
/// Minimum share of samples with complete stacks: the others belong to programs that end before they are read.
const COMPLETE_MIN: f64 = 0.8;
/// Maximum time to end after SIGINT.
const END_MAX: Duration = Duration::from_secs(5);

/// Runs the chore for ten minutes, as root: long enough to detect what each process or library leaves behind.
pub(crate) fn ten_minutes() -> Result<()> {
    // Build outputs must not belong to root.
    let ours = product(Profile::Release)?;
    let mut soak = sh::own_program_as_root()?;
    sh::run(soak.args(["soak", "--hours", "0.17", "--profiler"]).arg(ours))
}

/// Runs the chore.
pub(crate) fn run(options: &Options) -> Result<()> {
    ensure!(options.hours > 0.0 && options.forks > 0, "--hours and --forks must be more than 0");
    let ours = options.profiler.clone().map_or_else(|| product(Profile::Release), Ok)?;
    if !sh::is_root() {
        bail!(
            "soak: expected root, which captures the whole machine\nhint: sudo cargo xtask soak --profiler FILE"
        );
    }
    let profilers = Profilers::new(&ours)?;
    let libraries = Libraries::new(&profilers.file("soak-libraries"))?;
    let tables = TableReader::built()?;
    let mut targets = vec![
        ("processes that come and go", workloads::churn(options.forks, &libraries.paths)?.start()?),
        ("torch", workloads::torch()?.start()?),
        ("the simulated device", workloads::simulated_launches()?.start()?),
    ];
    let profile = profilers.file("soak.dctx");
    let mut attached = profilers.attach_to_machine(&profile, options.freq)?;
    let readings = read(options, &mut attached, &profile, &libraries, &tables)?;
    if let Some(path) = &options.curves {
        fs::write(path, curve::svg(&readings)).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let gone = |(name, target): &mut (&'static str, RunningProgram)| (!target.is_alive()).then_some(*name);
    let gone: Vec<_> = targets.iter_mut().filter_map(gone).collect();
    let asked = Instant::now();
    let log = attached.log().to_owned();
    let code = attached.finish()?;
    let ended_after = asked.elapsed();
    let said = fs::read_to_string(&log).with_context(|| format!("cannot read {}", log.display()))?;
    // The owners of its memory, at the end of its output.
    said.lines().skip_while(|line| !line.starts_with("own memory")).for_each(|line| eprintln!("    {line}"));
    drop(targets);
    judge(&ours, &profile, &readings, &gone, code, ended_after)
}

/// Reads the profiler's resource use at equal intervals, and replaces a library before each reading.
fn read(
    options: &Options,
    attached: &mut RunningProfiler,
    profile: &Path,
    libraries: &Libraries,
    tables: &TableReader,
) -> Result<Vec<Reading>> {
    let whole = Duration::from_secs_f64(options.hours * 3600.0);
    let apart = (whole / READINGS).max(APART_MIN);
    let (begun, mut readings) = (Instant::now(), Vec::new());
    while begun.elapsed() < whole {
        std::thread::sleep(apart.min(whole.saturating_sub(begun.elapsed())));
        attached.alive()?;
        libraries.replace(readings.len())?;
        readings.push(Reading::of(attached.pid(), profile, tables, begun.elapsed())?);
        if let Some(last) = readings.last() {
            eprintln!("    {last}");
        }
    }
    Ok(readings)
}

/// The figures of a run, and an error if one misses its target.
fn judge(
    ours: &Path,
    profile: &Path,
    readings: &[Reading],
    gone: &[&str],
    code: Option<i32>,
    ended_after: Duration,
) -> Result<()> {
    ensure!(readings.len() >= 6, "too short: {} readings, and 6 are needed", readings.len());
    let report = Report::of(ours, profile)?;
    let imbalances = report.imbalances();
    let losses: u64 = report.stages.iter().flat_map(|stage| stage.dropped.values()).sum();
    let (walked, cut) = report.walked_and_cut()?;
    let complete = 1.0 - cut.values().sum::<u64>() as f64 / walked.max(1) as f64;
    let mut figures = Vec::from(figures_of_growth(readings));
    figures.extend([
        Figure::new(
            "soak",
            "places where the ledger does not add up",
            "places",
            vec![imbalances.len() as f64],
        )
        .target(Target::AtMost(0.0))
        .note("received", report.stage("kernel")?.received)
        .note("lost", losses)
        .note("imbalances", serde_json::json!(imbalances)),
        Figure::new("soak", "records missing without a reason", "records", vec![report.unexplained() as f64])
            .target(Target::AtMost(0.0)),
        Figure::new("soak", "stacks to the thread's start", "share of samples", vec![complete])
            .target(Target::AtLeast(COMPLETE_MIN))
            .note("samples", walked)
            .note("cut", serde_json::json!(cut)),
        Figure::new("soak", "time to end after SIGINT", "s", vec![ended_after.as_secs_f64()])
            .target(Target::AtMost(END_MAX.as_secs_f64())),
    ]);
    figures.iter().for_each(Figure::print);
    ensure!(gone.is_empty(), "ended before the capture did: {}", gone.join(", "));
    ensure!(code == Some(0), "the profiler ended with {code:?}");
    let missed = figures.iter().filter(|figure| figure.line()["met"] == false).count();
    ensure!(missed == 0, "{missed} figures are not met");
    Ok(())
}

/// What must level off: the last third of the readings beside the second.
fn figures_of_growth(readings: &[Reading]) -> [Figure; 5] {
    let thirds: Vec<&[Reading]> = readings.chunks(readings.len().div_ceil(3)).collect();
    let middle =
        |part: usize, of: fn(&Reading) -> f64| median(&thirds[part].iter().map(of).collect::<Vec<_>>());
    let most = |of: fn(&Reading) -> f64| readings.iter().map(of).fold(0.0, f64::max);
    let before = middle(1, Reading::memory_mib);
    let growth = (middle(2, Reading::memory_mib) - before) / before;
    let descriptors = middle(2, |reading| reading.descriptors) - middle(1, |reading| reading.descriptors);
    let hours = readings.last().map_or(0.0, |reading| reading.at.as_secs_f64() / 3600.0);
    let fill = |part: usize| thirds[part].iter().map(|reading| &reading.tables).collect::<Vec<&Fill>>();
    let (table, filled) = most_growth(&fill(1), &fill(2));
    [
        Figure::new("soak", "resident and locked memory, most", "MiB", vec![most(Reading::memory_mib)])
            .target(Target::AtMost(MEMORY_MAX))
            .note("hours", hours)
            .note("workers_mib", middle(2, |reading| reading.workers_mib)),
        Figure::new("soak", "memory, last third beside the second", "share", vec![growth])
            .target(Target::AtMost(GROWTH_MAX)),
        Figure::new("soak", "descriptors, last third beside the second", "descriptors", vec![descriptors])
            .target(Target::AtMost(DESCRIPTORS_MAX)),
        Figure::new("soak", "fill of kernel tables, last third beside the second", "share", vec![filled])
            .target(Target::AtMost(FILL_GROWTH_MAX))
            .note("table", table)
            .note("fullest", most(Reading::fullest)),
        Figure::new("soak", "files of the profile, most", "files", vec![most(|reading| reading.files)])
            .target(Target::AtMost(FILES_MAX))
            .note("mib", middle(2, |reading| reading.profile_mib)),
    ]
}

/// Libraries that are replaced while in use, as in an upgrade: each time by another file of the same name.
struct Libraries {
    paths: Vec<PathBuf>,
    original: PathBuf,
}

impl Libraries {
    fn new(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let found =
            sh::output(Command::new("sh").args(["-c", "ldd /bin/sh | awk '/libc\\.so/ { print $3 }'"]))?;
        let original = Path::new(found.trim()).with_file_name("libm.so.6");
        let paths = (0..LIBRARIES).map(|n| folder.join(format!("libchurn{n}.so"))).collect();
        let libraries = Self { paths, original };
        (0..LIBRARIES).try_for_each(|n| libraries.replace(n))?;
        Ok(libraries)
    }

    /// Replaces one of them by a new file.
    fn replace(&self, n: usize) -> Result<()> {
        let (path, new) = (&self.paths[n % LIBRARIES], self.paths[0].with_file_name("new"));
        fs::copy(&self.original, &new).with_context(|| format!("cannot copy {}", self.original.display()))?;
        fs::rename(&new, path)?;
        Ok(())
    }
}
