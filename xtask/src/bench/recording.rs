//! One program recorded by us and by perf at the same time: size of a recording on disk, and time to convert it to
//! text.
//!
//! Owns: the figure `recording`. Because: sums by context and single samples store different things, and their costs
//! compare only on the same program. Does not: compare the stacks; `completeness` does.

use super::Options;
use super::figure::Figure;
use super::profiler::{Kind, Profilers};
use super::rates::example;
use super::report::Report;
use crate::{sh, workloads};
use anyhow::{Context, Result, bail};
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const MILLION: f64 = 1e6;

pub(super) fn run(profilers: &Profilers, options: &Options) -> Result<()> {
    if !profilers.has(Kind::PerfFramePointer) {
        bail!("there is no perf to compare with");
    }
    let collapse = example("deepctx-storage", "tree_rate")?;
    let running = workloads::mixed()?.start()?;
    let mut ours = profilers.attach(Kind::Ours, running.pid(), options.freq)?;
    ours.sampling(1)?;
    let mut perf = profilers.attach(Kind::PerfFramePointer, running.pid(), options.freq)?;
    std::thread::sleep(Duration::from_secs(options.seconds * 4));
    perf.alive()?;
    ours.alive()?;
    perf.finish()?;
    ours.finish()?;
    drop(running);

    let (profile, recorded) = (profilers.file("run.dctx"), profilers.file("perf.data"));
    let (script, folded) = (profilers.file("perf.script"), profilers.file("run.folded"));
    let export = |format: &str, to: &Path| {
        let mut command = Command::new(&profilers.ours);
        command.args(["export", "--force", "--format", format, "-o"]).arg(to).arg(&profile);
        seconds(&mut command)
    };
    let (mut ours, mut perf_script, mut inferno) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..options.runs {
        ours.push(export("folded", &folded)?);
        let mut command = Command::new("perf");
        command.args(["script", "-f", "-i"]).arg(&recorded).stdout(File::create(&script)?);
        perf_script.push(seconds(command.stderr(Stdio::null()))?);
        let said = sh::output(Command::new(&collapse).arg("collapse").arg(&script))?;
        inferno.push(said.trim().parse::<f64>().context("inferno's time is no number")?);
    }
    let (samples, _) = Report::of(&profilers.ours, &profile)?.walked_and_cut()?;
    let samples = samples as f64;
    let of_perf = samples_in(&fs::read_to_string(&script)?);
    let pprof = profilers.file("run.pb.gz");
    export("pprof", &pprof)?;

    let per_million = |bytes: u64, samples: f64| vec![bytes as f64 / samples];
    let length = |path: &Path| fs::metadata(path).map(|found| found.len());
    let folder: u64 = fs::read_dir(&profile)?.map(|entry| Ok(entry?.metadata()?.len())).sum::<Result<_>>()?;
    // A byte per sample is a megabyte per million samples.
    Figure::new("recording", "size on disk of a million samples", "MB", per_million(folder, samples))
        .peer("perf.data, frame pointers", &per_million(length(&recorded)?, of_perf))
        .peer("pprof", &per_million(length(&pprof)?, samples))
        .note("samples", samples)
        .note("samples_of_perf", of_perf)
        .print();
    let each = |runs: &[f64], samples: f64| -> Vec<f64> {
        runs.iter().map(|seconds| seconds / samples * MILLION).collect()
    };
    let both: Vec<f64> = perf_script.iter().zip(&inferno).map(|(script, fold)| script + fold).collect();
    Figure::new("recording", "a million samples to folded stacks", "s", each(&ours, samples))
        .peer("perf script", &each(&perf_script, of_perf))
        .peer("perf script and inferno", &each(&both, of_perf))
        .print();
    Ok(())
}

/// Duration of a command, which must succeed.
fn seconds(command: &mut Command) -> Result<f64> {
    let start = Instant::now();
    let status = command.status().with_context(|| format!("cannot start `{}`", sh::words(command)))?;
    if !status.success() {
        bail!("`{}` ended with {status}", sh::words(command));
    }
    Ok(start.elapsed().as_secs_f64())
}

/// Samples in perf's text: their headers are not indented.
fn samples_in(script: &str) -> f64 {
    script.lines().filter(|line| line.starts_with(|c: char| !c.is_whitespace())).count() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_counted_by_their_heads() {
        let script = "a 1 2.0: 5 cpu-clock:\n\tff f (x)\n\tfe g (x)\n\na 1 3.0: 5 cpu-clock:\n\tff f (x)\n\n";
        assert_eq!(samples_in(script), 2.0);
    }
}
