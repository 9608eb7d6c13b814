//! Rates of single parts, measured by small programs beside them: unwind rows per second, stacks per second,
//! big trees.
//!
//! Owns: the figures `unwind-rows`, `pipeline` and `tree`. Because: those parts are libraries, and xtask has no access
//! to product code; each part has an example that times itself on one core. Does not: need root.

use super::Options;
use super::figure::{Figure, Target, median};
use crate::{sh, workloads};
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

/// Minimum rows of a file for a meaningful rate.
const ROWS_MIN: f64 = 100_000.0;
/// Samples of one run of the pipeline.
const SAMPLES: u32 = 1_000_000;

/// Builds an example with the `dist` profile and returns its path.
pub(super) fn example(package: &str, name: &str) -> Result<PathBuf> {
    sh::run(sh::command("cargo").args([
        "build",
        "--profile",
        "dist",
        "--locked",
        "--package",
        package,
        "--example",
        name,
    ]))?;
    Ok(sh::target_dir().join("dist/examples").join(name))
}

/// The numbers at the start of each line, and the rest of the line.
pub(super) fn lines(text: &str, numbers: usize) -> Result<Vec<(Vec<f64>, String)>> {
    let parse = |line: &str| -> Option<(Vec<f64>, String)> {
        let mut words = line.splitn(numbers + 1, ' ');
        let values =
            words.by_ref().take(numbers).map(|word| word.parse().ok()).collect::<Option<Vec<f64>>>()?;
        (values.len() == numbers).then(|| (values, words.next().unwrap_or_default().to_owned()))
    };
    text.lines().map(|line| parse(line).with_context(|| format!("cannot read the line {line:?}"))).collect()
}

/// Rows per second of `UnwindTable::from_elf` on one core, for each large installed library.
pub(super) fn unwind_rows(options: &Options) -> Result<()> {
    let program = example("deepctx-symbolizer", "unwind_rows")?;
    let mut files = workloads::libraries();
    files.push(program.clone());
    if files.is_empty() {
        bail!("no library to build a table for");
    }
    let text = sh::output(Command::new(&program).arg(options.runs.to_string()).args(&files))?;
    let mut by_file: BTreeMap<String, Vec<Vec<f64>>> = BTreeMap::new();
    for (numbers, file) in lines(&text, 3)? {
        by_file.entry(file).or_default().push(numbers);
    }
    by_file.retain(|_, runs| runs[0][0] >= ROWS_MIN);
    for (file, runs) in &by_file {
        let name = file.rsplit('/').next().unwrap_or(file);
        Figure::new("unwind-rows", name, "rows/s", runs.iter().map(|run| run[0] / run[1]).collect())
            .target(Target::AtLeast(8e6))
            .note("rows", runs[0][0])
            .note("table_bytes", runs[0][2])
            .note("seconds", median(&runs.iter().map(|run| run[1]).collect::<Vec<_>>()))
            .print();
    }
    if by_file.is_empty() {
        bail!("no installed library has {ROWS_MIN} rows");
    }
    Ok(())
}

/// Stacks of 60 frames per second through all stages on one core.
pub(super) fn pipeline(options: &Options) -> Result<()> {
    let program = example("deepctx-session", "pipeline_rate")?;
    for (case, distinct) in [("1000 different stacks", 1_000), ("every stack new", SAMPLES)] {
        let numbers = [u32::try_from(options.runs)?, SAMPLES, distinct].map(|number| number.to_string());
        let runs = lines(&sh::output(Command::new(&program).args(numbers))?, 3)?;
        let rates = runs.iter().map(|(run, _)| run[0] / run[1]).collect();
        let mut figure = Figure::new("pipeline", format!("60 frames, {case}"), "stacks/s", rates);
        if distinct < SAMPLES {
            figure = figure.target(Target::AtLeast(1e6));
        }
        figure.note("tree_nodes", runs.first().map_or(0.0, |(run, _)| run[2])).print();
    }
    Ok(())
}

/// Nodes of the large tree.
const NODES: u32 = 1_000_000;

/// A tree with a million nodes: redraw, fold to text (compared with inferno), write to disk.
pub(super) fn tree(options: &Options) -> Result<()> {
    let program = example("deepctx-storage", "tree_rate")?;
    let folder = sh::target_dir().join("bench");
    std::fs::create_dir_all(&folder)?;
    let numbers = [options.runs.to_string(), NODES.to_string()];
    let runs = lines(&sh::output(Command::new(&program).args(numbers).arg(&folder))?, 11)?;
    let each = |figure: fn(&[f64]) -> f64| -> Vec<f64> { runs.iter().map(|(run, _)| figure(run)).collect() };
    Figure::new("tree", "redraw of the flame view", "ms", each(|run| run[1] * 1e3))
        .target(Target::AtMost(16.0))
        .note("nodes", runs.first().map_or(0.0, |(run, _)| run[0]))
        .print();
    let (ours, inferno) = (each(|run| run[2] / run[4]), each(|run| run[2] / run[7]));
    let ratio = ours.iter().zip(&inferno).map(|(ours, inferno)| ours / inferno).collect();
    Figure::new("tree", "fold to text, times inferno's collapse rate", "ratio", ratio)
        .target(Target::AtLeast(1.5))
        .note("stacks_per_second", median(&ours))
        .note("inferno_stacks_per_second", median(&inferno))
        .note("text_bytes_per_second", median(&each(|run| run[3] / run[4])))
        .print();
    // Bytes before encoding: a smaller file of the same rows does not mean a slower store.
    Figure::new("tree", "write to disk", "MB/s", each(|run| run[8] / run[6] / 1e6))
        .target(Target::AtLeast(200.0))
        .note("row_bytes", median(&each(|run| run[8])))
        .note("disk_bytes", median(&each(|run| run[5])))
        .note("disk_mb_per_second", median(&each(|run| run[5] / run[6] / 1e6)))
        .note("seconds", median(&each(|run| run[6])))
        .note("seconds_of_encoding", median(&each(|run| run[10])))
        .note("seconds_to_read_back", median(&each(|run| run[9])))
        .print();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_numbers_and_a_rest_that_may_hold_spaces() {
        let check =
            |text: &str, expect: &[(Vec<f64>, String)]| assert_eq!(lines(text, 2).unwrap(), expect, "{text}");
        check("1 2.5 /a b.so\n", &[(vec![1.0, 2.5], "/a b.so".to_owned())]);
        check("1 2\n", &[(vec![1.0, 2.0], String::new())]);
        assert!(lines("one 2 x", 2).is_err());
        assert!(lines("1", 2).is_err());
    }
}
