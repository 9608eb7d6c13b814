//! `probes`: which probes would be attached where, and which are missing and why.
//!
//! Owns: reading the options into a plan, and how the plan is printed. Because: a user who misses launches in a
//! profile should see at once whether the library lacks the function, or the profiler a privilege. Does not: attach
//! anything.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use deepctx_profile::units::{counted, counted_as};
use deepctx_uprobes::locate::instruction::ProbeCost;
use deepctx_uprobes::plan;
use deepctx_uprobes::{Contents, Library, PlannedFile, Planner, Site};
use serde_json::{Value, json};

use super::capture_args::TargetArgs;
use super::failure::{Completion, Failure, one_line};
use super::options::{Layers, ProbesArgs, TextOrJson};
use super::user_rows::user_rows;
use super::{auto_probes, output, target};
use deepctx_capture::running_kernel;
use deepctx_capture::{CaptureConfig, find_processes};

/// Runs the command.
///
/// # Errors
/// A target, a library or the probe file cannot be read.
pub(crate) fn run(arguments: &ProbesArgs) -> Result<Completion, Failure> {
    let user = match &arguments.probe_file {
        Some(path) => user_rows(path)?,
        None => Vec::new(),
    };
    let layers = match arguments.layers {
        Layers::Lowest => plan::Layers::Lowest,
        Layers::All => plan::Layers::All,
    };
    let pids = if arguments.library.is_empty() { processes(&arguments.target)? } else { Vec::new() };
    let config = CaptureConfig {
        probe: auto_probes::of_files(&arguments.probe, &arguments.library, &pids),
        shapes: arguments.shapes.clone(),
        ..CaptureConfig::default()
    };
    let mut planner = Planner::new(user, layers, running_kernel()).with_request(true, config.probe_request());
    let mut seen = ScanTotals::default();
    for path in &arguments.library {
        let library = Library::of_file(path).map_err(|error| Failure::io(path.display(), &error))?;
        planner.add_libraries(vec![library]);
    }
    for pid in pids {
        seen.processes += 1;
        // Some end meanwhile, and most cannot be read without privileges: both are counted and shown.
        if planner.add_process(pid).is_err() {
            seen.unreadable += 1;
        }
    }
    output::write(Path::new("-"), false, |out| match arguments.format {
        TextOrJson::Text => text(&planner, seen, arguments.common.verbose > 0, out),
        TextOrJson::Json => json_of(&planner, seen, out),
    })?;
    Ok(Completion::Fully)
}

/// Numbers of scanned processes.
#[derive(Clone, Copy, Debug, Default)]
struct ScanTotals {
    processes: usize,
    unreadable: usize,
}

impl ScanTotals {
    /// The processes of a file: none for a file of `--library`, which was opened through our own.
    fn of(self, pids: &[u32]) -> &[u32] {
        if self.processes > 0 { pids } else { &[] }
    }
}

fn processes(arguments: &TargetArgs) -> Result<Vec<u32>, Failure> {
    find_processes(&target::targets(arguments, false), !arguments.no_children)
        .map_err(|error| Failure::new(error).hint("list processes with `ps -e`"))
}

fn text(planner: &Planner, seen: ScanTotals, verbose: bool, out: &mut dyn Write) -> io::Result<()> {
    for planned in planner.planned() {
        heading(planned, seen, out)?;
        table(&planned.sites, verbose, out)?;
        for (because, symbols) in by_reason(planned) {
            writeln!(out, "  missing {}: {because}", symbols.len())?;
            wrapped(&symbols, out)?;
        }
        writeln!(out)?;
    }
    let probes: usize = planner.planned().iter().map(|planned| planned.sites.len()).sum();
    let files = planner.planned().len();
    write!(out, "{} in {}", counted(probes as u64, "probe"), counted(files as u64, "file"))?;
    if seen.processes > 0 {
        write!(out, " of {}", counted_as(seen.processes as u64, "process", "processes"))?;
    }
    if seen.unreadable > 0 {
        write!(out, " ({} could not be read)", seen.unreadable)?;
    }
    writeln!(out)?;
    let absent: Vec<_> = planner.absent().iter().map(ToString::to_string).collect();
    if !absent.is_empty() {
        writeln!(out, "not found: {}", absent.join(", "))?;
    }
    Ok(())
}

fn heading(planned: &PlannedFile, seen: ScanTotals, out: &mut dyn Write) -> io::Result<()> {
    let what = match planned.contents {
        Contents::Library(family) => family.to_string(),
        Contents::RuntimeInside => "CUDA runtime linked in".to_owned(),
        Contents::User => "your probe file".to_owned(),
        Contents::Collector => match &planned.collector {
            Some(Err(because)) => format!("deepctx collector, unusable: {because}"),
            _ => "deepctx collector".to_owned(),
        },
    };
    writeln!(
        out,
        "{}  ({what}; {}{}, {} missing)",
        one_line(&planned.library.mapping.path().to_string_lossy()),
        written(seen.of(&planned.pids)),
        counted(planned.sites.len() as u64, "probe"),
        planned.missing.len(),
    )
}

/// The processes of a file, for its heading.
fn written(pids: &[u32]) -> String {
    if pids.is_empty() {
        return String::new();
    }
    let shown: Vec<_> = pids.iter().take(8).map(ToString::to_string).collect();
    match pids.len().saturating_sub(8) {
        0 => format!("pid {}; ", shown.join(", ")),
        more => format!("pid {} and {more} more; ", shown.join(", ")),
    }
}

fn table(sites: &[Site], verbose: bool, out: &mut dyn Write) -> io::Result<()> {
    let rows: Vec<[String; 5]> = sites
        .iter()
        .map(|site| {
            let returns = if site.row.returns.is_needed() { site.row.returns.name() } else { "-" };
            [
                site.row.event.to_string(),
                one_line(&names(site)),
                format!("{:#x}", site.offset.0),
                site.point.to_string(),
                returns.to_owned(),
            ]
        })
        .collect();
    if rows.is_empty() {
        return Ok(());
    }
    let heads = ["event", "symbol", "file offset", "probe on", "return"].map(str::to_owned);
    let width =
        |column: usize| rows.iter().chain([&heads]).map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..5).map(width).collect();
    let mut line = |cells: &[String; 5]| {
        let padded: Vec<_> =
            cells.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}")).collect();
        writeln!(out, "  {}", padded.join("  ").trim_end())
    };
    line(&heads)?;
    for (row, site) in rows.iter().zip(sites) {
        line(row)?;
        if verbose && !site.row.arguments().is_empty() {
            let arguments = site.row.arguments();
            let arguments: Vec<_> = arguments.iter().map(|a| format!("{}={}", a.name, a.location)).collect();
            line(&[String::new(), arguments.join(" "), String::new(), String::new(), String::new()])?;
        }
    }
    Ok(())
}

/// The symbol and its aliases.
fn names(site: &Site) -> String {
    match &site.aliases[..] {
        [] => site.symbol.clone(),
        aliases => format!("{} = {}", site.symbol, aliases.join(" = ")),
    }
}

/// Missing functions by reason.
fn by_reason(planned: &PlannedFile) -> BTreeMap<String, Vec<String>> {
    let mut reasons: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for missing in &planned.missing {
        reasons.entry(missing.because.to_string()).or_default().push(one_line(&missing.symbol));
    }
    reasons
}

fn wrapped(words: &[String], out: &mut dyn Write) -> io::Result<()> {
    const WIDTH: usize = 100;
    let mut line = String::new();
    for word in words {
        if !line.is_empty() && line.len() + word.len() + 1 > WIDTH {
            writeln!(out, "    {line}")?;
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    writeln!(out, "    {line}")
}

fn json_of(planner: &Planner, seen: ScanTotals, out: &mut dyn Write) -> io::Result<()> {
    let files: Vec<Value> = planner.planned().iter().map(|planned| file_json(planned, seen)).collect();
    let absent: Vec<_> = planner.absent().iter().map(ToString::to_string).collect();
    let all = json!({
        "files": files,
        "not-found": absent,
        "processes": seen.processes,
        "processes-unreadable": seen.unreadable,
    });
    serde_json::to_writer_pretty(&mut *out, &all)?;
    writeln!(out)
}

fn file_json(planned: &PlannedFile, seen: ScanTotals) -> Value {
    let contents = match planned.contents {
        Contents::Library(family) => family.to_string(),
        Contents::RuntimeInside => "runtime-inside".to_owned(),
        Contents::User => "user".to_owned(),
        Contents::Collector => "collector".to_owned(),
    };
    let missing: Vec<Value> = planned
        .missing
        .iter()
        .map(|missing| {
            json!({
                "symbol": missing.symbol,
                "event": missing.row.event.to_string(),
                "reason": missing.because.reason().key,
                "because": missing.because.to_string(),
            })
        })
        .collect();
    json!({
        "path": planned.library.mapping.path().to_string_lossy(),
        "attach-path": planned.library.attach_path().to_string_lossy(),
        "contents": contents,
        "pids": seen.of(&planned.pids),
        "probes": planned.sites.iter().map(site_json).collect::<Vec<_>>(),
        "missing": missing,
    })
}

fn site_json(site: &Site) -> Value {
    let arguments: Vec<Value> = site
        .row
        .arguments()
        .iter()
        .map(|argument| {
            json!({
                "name": argument.name,
                "bytes": argument.scalar.bytes,
                "signed": argument.scalar.signed,
                "place": argument.location.to_string(),
            })
        })
        .collect();
    json!({
        "event": site.row.event.to_string(),
        "symbol": site.symbol,
        "aliases": site.aliases,
        "version": site.version,
        "entry": site.entry.0,
        "offset": site.offset.0,
        "frame": site.point.frame,
        "probe-on": site.point.to_string(),
        "single-stepped": matches!(site.point.cost, ProbeCost::Stepped(_)),
        "return": site.row.returns.name(),
        "arguments": arguments,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_named_is_of_no_process() {
        let scanned = ScanTotals { processes: 1, unreadable: 0 };
        assert_eq!(written(scanned.of(&[4711, 4712])), "pid 4711, 4712; ");
        assert_eq!(written(ScanTotals::default().of(&[4711])), "");
        let many: Vec<u32> = (1..=10).collect();
        assert_eq!(written(&many), "pid 1, 2, 3, 4, 5, 6, 7, 8 and 2 more; ");
    }

    #[test]
    fn words_are_wrapped_and_none_is_lost() {
        let words: Vec<String> = (0..40).map(|i| format!("cuFunctionNumber{i}")).collect();
        let mut out = Vec::new();
        wrapped(&words, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.lines().count() > 3 && text.lines().all(|line| line.len() <= 104));
        assert_eq!(text.split_whitespace().collect::<Vec<_>>(), words);
    }
}
