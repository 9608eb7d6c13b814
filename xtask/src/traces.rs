//! `cargo xtask traces`: our figures for real traces, beside plain counting and HolisticTraceAnalysis.
//!
//! Owns: the comparison, and the table in `docs/traces.md`, which the figures must equal. Because: an analysis over
//! time is credible if another tool, or counting, gives the same figure; a difference must have a reason, and a change
//! must be seen. Does not: hold traces; the folder has them, and `reference/NAME.hta.json` for each.

mod figures;
mod plain;
mod sql;

use crate::sh;
use anyhow::{Context, Result, ensure};
use figures::{Row, against_counting, against_hta, path, their_paths};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Options of `cargo xtask traces`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Folder with traces, or folders of ranks, and `reference/NAME.hta.json` for each.
    folder: PathBuf,
    /// An already built deepctx-bpf, instead of a build with the profile `release`.
    #[arg(long)]
    binary: Option<PathBuf>,
    /// Put the table into docs/traces.md, instead of comparing with the one there.
    #[arg(long)]
    write: bool,
}

/// Runs the chore.
pub(crate) fn run(options: &Options) -> Result<()> {
    let binary = match &options.binary {
        Some(binary) => binary.clone(),
        None => build()?,
    };
    let (mut table, mut wrong) = (String::new(), Vec::new());
    for name in names(&options.folder)? {
        let (rows, lines) = compared(&binary, &options.folder, &name)?;
        rows.iter().for_each(|row| table += &line_of(&name, row));
        println!("{name}: {}", if lines.is_empty() { "counts as plain counting does" } else { "see below" });
        wrong.extend(lines.into_iter().map(|line| format!("{name}: {line}")));
    }
    for counted in plain::count(&options.folder, |file| timeline(&binary, file, None))? {
        let plain::CountResult { name, wrong: lines, rows } = counted;
        println!("{name}: {}", if lines.is_empty() { "counts as plain counting does" } else { "see below" });
        wrong.extend(lines.into_iter().map(|line| format!("{name}: {line}")));
        rows.iter().for_each(|row| table += &line_of(&name, row));
    }
    if options.write {
        write(&table)?;
    } else {
        print!("{table}");
    }
    ensure!(wrong.is_empty(), "sums differ from plain counting:\n{}", wrong.join("\n"));
    if !options.write {
        let changed = changes(&fs::read_to_string(page())?, &table)?;
        ensure!(
            changed.is_empty(),
            "figures differ from docs/traces.md (`--write` puts them there):\n{}",
            changed.join("\n")
        );
    }
    Ok(())
}

/// A trace beside HTA, and its differences from plain counting.
fn compared(binary: &Path, folder: &Path, name: &str) -> Result<(Vec<Row>, Vec<String>)> {
    let reference = folder.join("reference").join(format!("{name}.hta.json"));
    let reference: Value = serde_json::from_str(&fs::read_to_string(&reference)?)?;
    let trace = [name.to_owned(), format!("{name}.json.gz"), format!("{name}.json")];
    let trace = trace.iter().map(|file| folder.join(file)).find(|path| path.exists());
    let trace = trace.with_context(|| format!("there is no trace {name}"))?;
    let of_steps = |steps: Option<String>| steps.map(|of| timeline(binary, &trace, Some(&of))).transpose();
    let (ours, hta) = (timeline(binary, &trace, None)?, &reference["hta"]);
    // HTA ignores the last step everywhere.
    let windowed = of_steps(last_step(&ours).map(|last| format!("..{last}")))?;
    let mut rows = against_hta(windowed.as_ref().unwrap_or(&ours), hta);
    for (of, theirs_us) in their_paths(hta) {
        let of_path = of_steps(of.steps())?;
        rows.extend(path(of_path.as_ref().unwrap_or(&ours), of, theirs_us));
    }
    Ok((rows, against_counting(&ours, &reference["raw"])))
}

/// A line of the table.
fn line_of(name: &str, row: &Row) -> String {
    let Row { analysis, ours, hta, why } = row;
    format!("| `{name}` | {analysis} | {ours} | {hta} | {why} |\n")
}

fn build() -> Result<PathBuf> {
    sh::step("build deepctx-bpf (release)", "the comparison runs the program as users do");
    sh::run(sh::command("cargo").args(["build", "--release", "-p", "deepctx-bpf"]))?;
    Ok(sh::target_dir().join("release/deepctx-bpf"))
}

fn names(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder.join("reference"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        names.extend(name.strip_suffix(".hta.json").map(str::to_owned));
    }
    names.sort();
    Ok(names)
}

fn timeline(binary: &Path, trace: &Path, steps: Option<&str>) -> Result<Value> {
    let mut command = Command::new(binary);
    command.arg("timeline").arg(trace).args(["--format", "json"]);
    if let Some(steps) = steps {
        command.args(["--steps", steps]);
    }
    let said = command.output().with_context(|| format!("cannot run {}", binary.display()))?;
    ensure!(said.status.success(), "{}: {}", trace.display(), String::from_utf8_lossy(&said.stderr));
    Ok(serde_json::from_slice(&said.stdout)?)
}

/// The last step of a trace with several.
fn last_step(ours: &Value) -> Option<u64> {
    let numbers = ours["steps"].as_array()?.iter().filter_map(|step| step["step"].as_u64());
    let mut numbers: Vec<u64> = numbers.collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers.last().copied().filter(|_| numbers.len() > 1)
}

const BEGIN: &str = "<!-- comparison: begin -->\n";
const END: &str = "<!-- comparison: end -->";
const HEADER: &str = "| trace | figure | ours | HTA | why they differ |\n|---|---|---|---|---|\n";

fn page() -> PathBuf {
    sh::root().join("docs/traces.md")
}

/// The page before its table, the table with its header, and the page after it.
fn parts(page: &str) -> Result<(&str, &str, &str)> {
    let (head, rest) = page.split_once(BEGIN).context("docs/traces.md has no begin of the comparison")?;
    let (table, tail) = rest.split_once(END).context("docs/traces.md has no end of the comparison")?;
    Ok((head, table, tail))
}

fn write(table: &str) -> Result<()> {
    let path = page();
    let page = fs::read_to_string(&path)?;
    let (head, _, tail) = parts(&page)?;
    fs::write(&path, format!("{head}{BEGIN}{HEADER}{table}{END}{tail}"))?;
    Ok(())
}

/// Lines that only the page's table (`-`) or only this one (`+`) has.
fn changes(page: &str, table: &str) -> Result<Vec<String>> {
    let (_, before, _) = parts(page)?;
    let before = before.strip_prefix(HEADER).context("the comparison in docs/traces.md has no header")?;
    let only = |sign: char, of: &str, other: &str| -> Vec<String> {
        let other: Vec<&str> = other.lines().collect();
        of.lines().filter(|line| !other.contains(line)).map(|line| format!("{sign} {line}")).collect()
    };
    let mut changed = only('-', before, table);
    changed.extend(only('+', table, before));
    if changed.is_empty() && before != table {
        changed.push("the order of the lines".to_owned());
    }
    Ok(changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_figure_is_a_difference_from_the_page() {
        let page = |table: &str| format!("# Traces\n{BEGIN}{HEADER}{table}{END}\n");
        let changes = |table: &str| changes(&page("| a | 1 |\n| b | 2 |\n"), table).unwrap();
        assert_eq!(changes("| a | 1 |\n| b | 2 |\n"), [""; 0]);
        assert_eq!(changes("| a | 1 |\n| b | 3 |\n"), ["- | b | 2 |", "+ | b | 3 |"]);
        assert_eq!(changes("| a | 1 |\n"), ["- | b | 2 |"]);
        assert_eq!(changes("| b | 2 |\n| a | 1 |\n"), ["the order of the lines"]);
        assert!(super::changes("# Traces\n", "").is_err(), "a page without the table has nothing to equal");
    }
}
