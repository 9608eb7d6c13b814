//! `cargo xtask gpu-check`: everything that only a machine with a GPU can show, in one command.
//!
//! Owns: the list of checks, which machine they run on, and the Markdown table of results. Because: time on such a
//! machine is short, and nobody remembers all open checks. Does not: contain product code; it compares a program's own
//! counts with its profile.
//!
//! The same list runs on the simulated device, which proves without a device that it works, and that it fails when
//! something is wrong.

mod bundle;
mod compare;
mod parts;
mod python;
mod reported;
mod row;
mod rust;
mod slowdown;
mod stage;

use crate::{setup, sh, sim};
use anyhow::{Context, Result, bail};
use parts::PARTS;
use python::Python;
use row::{Row, Verdict};
use stage::Stage;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Maximum time of one program run, and of one answer.
const LONGEST: Duration = Duration::from_secs(150);
/// Exit code without a GPU: neither passed nor failed.
const SKIPPED: i32 = 77;

/// Options of `cargo xtask gpu-check`.
#[derive(clap::Args, Default)]
pub(crate) struct Options {
    /// Parts to run; all of them when none is named.
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(PARTS.iter().map(|part| part.name)))]
    parts: Vec<String>,
    /// Run on the simulated device.
    #[arg(long)]
    simulated: bool,
    /// With --simulated: what CUPTI does wrong (docs/simulator.md).
    #[arg(long, requires = "simulated", default_value = "")]
    misbehaves: String,
    /// Check nothing: put all that another machine needs into this folder, one without a compiler, a network or a
    /// checkout.
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["simulated", "itself"])]
    bundle: Option<PathBuf>,
    /// A program that is built already, its collector beside it; nothing is installed then.
    #[arg(long, value_name = "FILE")]
    product: Option<PathBuf>,
    /// The Python interpreter that has PyTorch; looked for when it is not named.
    #[arg(long, value_name = "FILE")]
    python: Option<PathBuf>,
    /// Install PyTorch with CUDA where none is found (some gigabytes).
    #[arg(long)]
    install: bool,
    /// Check the list itself: on the simulated device it holds, and it fails where that misbehaves.
    #[arg(long, requires = "product")]
    itself: bool,
    /// Keep what programs and profiler leave in this folder, and the table as far as it goes (`table.md`).
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
}

/// Runs the chore.
pub(crate) fn run(options: &Options) -> Result<()> {
    if let (true, Some(product)) = (options.itself, &options.product) {
        return simulated(product);
    }
    if let Some(folder) = &options.bundle {
        return bundle::make(folder, options.product.as_deref());
    }
    if !options.simulated
        && let Some(because) = no_gpu()
    {
        println!("skipped, no GPU: {because}");
        println!("  with --simulated the same list runs on the simulated device");
        std::process::exit(SKIPPED);
    }
    if !sh::is_root() {
        bail!("expected root: programs are loaded into the kernel");
    }
    let product = match &options.product {
        Some(product) => product.clone(),
        None => built(options.simulated)?,
    };
    let of_ours = || std::env::temp_dir().join(format!("deepctx-gpu-check-{}", std::process::id()));
    let folder = options.keep.clone().unwrap_or_else(of_ours);
    let rows = rows_of(options, &product, &folder);
    if options.keep.is_none() {
        // Cleanup errors are ignored.
        let _ = std::fs::remove_dir_all(&folder);
    }
    let rows = rows?;
    println!("\n{}", row::table(&rows));
    let count = |verdict| rows.iter().filter(|row| row.verdict == verdict).count();
    let (ok, failed, lacks) = (count(Verdict::Ok), count(Verdict::Failed), count(Verdict::Lacks));
    println!("{ok} hold, {failed} failed, {lacks} could not be looked at");
    if failed > 0 {
        std::process::exit(1);
    }
    Ok(())
}

fn rows_of(options: &Options, product: &Path, folder: &Path) -> Result<Vec<Row>> {
    let stage = if options.simulated {
        Stage::simulated(product, &sim::folder().join("cuda13"), &options.misbehaves, folder)?
    } else {
        Stage::real(product, &Python::find(options.python.as_deref(), options.install)?, folder)?
    };
    let chosen: Vec<&str> = options.parts.iter().map(String::as_str).collect();
    // An interrupted run keeps its results.
    let table = stage.file("table.md");
    list(&stage, &chosen, |rows| {
        std::fs::write(&table, row::table(rows)).with_context(|| format!("cannot write {}", table.display()))
    })
}

/// Runs parts one after another; failures do not stop the others. `so_far` gets the rows after each part.
fn list(stage: &Stage, chosen: &[&str], so_far: impl Fn(&[Row]) -> Result<()>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for part in PARTS.iter().filter(|part| chosen.is_empty() || chosen.contains(&part.name)) {
        eprintln!("==> {}: {}", part.name, part.about);
        let begin = Instant::now();
        let of_part = (part.run)(stage).unwrap_or_else(|error| vec![Row::broken(part.name, &error)]);
        of_part.iter().for_each(|row| eprintln!("    {row}"));
        eprintln!("    {:.1} s", begin.elapsed().as_secs_f64());
        rows.extend(of_part);
        so_far(&rows)?;
    }
    Ok(rows)
}

/// Why nothing can be checked here; `None` with a GPU. `/dev/nvidiactl` is no proof: the driver's library creates it
/// for root, whatever the kernel has.
fn no_gpu() -> Option<String> {
    let is_device =
        |name: &str| name.strip_prefix("nvidia").is_some_and(|number| number.parse::<u32>().is_ok());
    let mut names = std::fs::read_dir("/dev").into_iter().flatten().flatten().map(|entry| entry.file_name());
    let found = names.any(|name| name.to_str().is_some_and(is_device));
    (!found).then(|| "this machine has no NVIDIA device (/dev/nvidia0, …)".to_owned())
}

/// Builds the programs of checks that are not scripts.
pub(crate) fn build_programs() -> Result<()> {
    rust::built().map(drop)
}

/// Builds the product, the collector and, if needed, the simulated libraries.
fn built(simulated: bool) -> Result<PathBuf> {
    setup::run(&setup::Options { yes: true, tests: false })?;
    if simulated {
        sim::run()?;
    }
    sh::step("build deepctx-bpf", "it is what is checked");
    let packages = ["--package", "deepctx-bpf", "--package", "deepctx-collector"];
    sh::run(sh::command("cargo").args(["build", "--locked", "--quiet"]).args(packages))?;
    Ok(sh::target_dir().join("debug/deepctx-bpf"))
}

/// Checks the list itself: on the simulated device it passes. It must fail when the device's interface loses records,
/// denies sampling or reports no devices, and when the program reports other times than it got.
fn simulated(product: &Path) -> Result<()> {
    /// Each fault and the part that must detect it.
    const SEEN: [(&str, &str); 6] = [
        ("lose=50", "launches"),
        ("lose=50", "rust"),
        ("lose=7", "memory"),
        ("no-devices", "device"),
        ("unsampled=35", "instructions"),
        (stage::STRETCHED, "times"),
    ];
    let libraries = sim::folder().join("cuda13");
    let folder = std::env::temp_dir().join(format!("deepctx-gpu-list-{}", std::process::id()));
    let failed = |wrong: &str, chosen: &[&str]| -> Result<Vec<String>> {
        let rows = list(&Stage::simulated(product, &libraries, wrong, &folder)?, chosen, |_| Ok(()))?;
        Ok(rows.iter().filter(|row| row.verdict == Verdict::Failed).map(Row::to_string).collect())
    };
    let outcome = || -> Result<()> {
        let mut wrong = failed("", &[])?;
        if !wrong.is_empty() {
            // Other load may have caused a failure; a real one repeats.
            wrong = failed("", &[])?;
        }
        if !wrong.is_empty() {
            bail!("on the simulated device: {}", wrong.join(" "));
        }
        for (wrong, part) in SEEN {
            if failed(wrong, &[part])?.is_empty() {
                bail!("`{part}` holds where it cannot: {wrong}");
            }
        }
        Ok(())
    };
    let outcome = outcome();
    // Cleanup errors are ignored.
    let _ = std::fs::remove_dir_all(&folder);
    outcome
}
