//! `cargo xtask traces`: our figures for real traces, beside plain counting and HolisticTraceAnalysis.
//!
//! Owns: the comparison, and the table in `docs/traces.md`. Because: an analysis over time is credible if another tool,
//! or counting, gives the same figure, and a difference must have a reason. Does not: hold traces; the folder has them,
//! and `reference/NAME.hta.json` for each.

mod figures;
mod plain;
mod sql;

use crate::sh;
use anyhow::{Context, Result, ensure};
use figures::{Row, against_counting, against_hta};
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
    /// Put the table into docs/traces.md.
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
        let reference = options.folder.join("reference").join(format!("{name}.hta.json"));
        let reference: Value = serde_json::from_str(&fs::read_to_string(&reference)?)?;
        let trace = [name.clone(), format!("{name}.json.gz"), format!("{name}.json")];
        let trace = trace.iter().map(|file| options.folder.join(file)).find(|path| path.exists());
        let trace = trace.with_context(|| format!("there is no trace {name}"))?;
        let ours = timeline(&binary, &trace, None)?;
        wrong.extend(
            against_counting(&ours, &reference["raw"]).into_iter().map(|line| format!("{name}: {line}")),
        );
        // HTA ignores the last step everywhere.
        let last = last_step(&ours);
        let windowed = last.map(|last| timeline(&binary, &trace, Some(last))).transpose()?;
        for row in against_hta(windowed.as_ref().unwrap_or(&ours), &reference["hta"]) {
            table += &line_of(&name, &row);
        }
        println!("{name}: {}", if wrong.is_empty() { "counts as plain counting does" } else { "see below" });
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
    Ok(())
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

fn timeline(binary: &Path, trace: &Path, until: Option<u64>) -> Result<Value> {
    let mut command = Command::new(binary);
    command.arg("timeline").arg(trace).args(["--format", "json"]);
    if let Some(until) = until {
        command.args(["--steps", &format!("..{until}")]);
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

fn write(table: &str) -> Result<()> {
    let path = sh::root().join("docs/traces.md");
    let page = fs::read_to_string(&path)?;
    let (head, rest) = page.split_once(BEGIN).context("docs/traces.md has no begin of the comparison")?;
    let (_, tail) = rest.split_once(END).context("docs/traces.md has no end of the comparison")?;
    let header = "| trace | figure | ours | HTA | why they differ |\n|---|---|---|---|---|\n";
    fs::write(&path, format!("{head}{BEGIN}{header}{table}{END}{tail}"))?;
    Ok(())
}
