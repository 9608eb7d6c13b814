//! Cost of a trace of single events: writing, reading and analysis.
//!
//! Owns: the figure `trace`. Because: a trace has an event for each call, so its cost is per event, in bytes, memory
//! and time; other tools are measured on the same files. Does not: record: see `trace_overhead.rs`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::Options;
use super::figure::{Figure, Target, median};
use super::rates::{example, lines};
use crate::{sh, validators};

/// Number of events to write.
const WRITTEN: u64 = 10_000_000;
/// Number of events for the tables.
const LOOKED_INTO: u64 = 1_000_000;
const MIB: f64 = 1024.0 * 1024.0;

/// Runs one mode of `trace_rate`: events, seconds, bytes on disk, peak memory.
fn measured(
    program: &Path,
    runs: usize,
    words: &[&str],
    prepare: impl Fn() -> Result<()>,
) -> Result<Vec<[f64; 4]>> {
    let one = |_| {
        prepare()?;
        let text = sh::output(Command::new(program).args(words))?;
        let line = lines(&text, 4)?.into_iter().next().context("it said nothing")?.0;
        <[f64; 4]>::try_from(line).map_err(|line| anyhow::anyhow!("it said {line:?}"))
    };
    (0..runs).map(one).collect()
}

fn each(runs: &[[f64; 4]], figure: impl Fn(&[f64; 4]) -> f64) -> Vec<f64> {
    runs.iter().map(figure).collect()
}

/// Events written and read back per second, their size, and the memory use.
pub(super) fn run(options: &Options) -> Result<()> {
    let program = example("deepctx-analysis", "trace_rate")?;
    let folder = sh::target_dir().join("bench/trace");
    std::fs::create_dir_all(&folder)?;
    let path = |events: u64| folder.join(format!("{events}.dctx"));
    let text = |path: &Path| path.display().to_string();
    let write = |events: u64| {
        let to = path(events);
        let prepare = || sh::remove(&to);
        measured(&program, options.runs, &["write", &text(&to), &events.to_string()], prepare)
    };
    let written = write(WRITTEN)?;
    Figure::new("trace", "write", "events/s", each(&written, |run| run[0] / run[1]))
        .note("events", WRITTEN)
        .print();
    Figure::new("trace", "on disk", "bytes/event", each(&written, |run| run[2] / run[0]))
        .target(Target::AtMost(10.0))
        .print();
    Figure::new("trace", "peak of memory, writing 10 M events", "MiB", each(&written, |run| run[3] / MIB))
        .target(Target::AtMost(300.0))
        .print();
    let read = measured(&program, options.runs, &["read", &text(&path(WRITTEN))], || Ok(()))?;
    Figure::new("trace", "read and link", "events/s", each(&read, |run| run[0] / run[1]))
        .note("events", WRITTEN)
        .print();
    Figure::new("trace", "peak of memory, reading 10 M events", "MiB", each(&read, |run| run[3] / MIB))
        .target(Target::AtMost(300.0))
        .print();
    sh::remove(&path(WRITTEN))?;
    write(LOOKED_INTO)?;
    let case = "all tables of 1 M events, critical path among them";
    in_memory(&program, options, "tables", case, &path(LOOKED_INTO))?;
    in_memory(&program, options, "critical-path", "critical path of 1 M events", &path(LOOKED_INTO))?;
    sh::remove(&path(LOOKED_INTO))?;
    import(&program, options)
}

/// Time to compute tables of a trace that is in memory.
fn in_memory(program: &Path, options: &Options, way: &str, case: &str, trace: &Path) -> Result<()> {
    let runs = measured(program, options.runs, &[way, &trace.display().to_string()], || Ok(()))?;
    Figure::new("trace", case, "s", each(&runs, |run| run[1]))
        .target(Target::AtMost(2.0))
        .note("peak_mib", median(&each(&runs, |run| run[3] / MIB)))
        .print();
    Ok(())
}

/// The largest trace of another tool in the folder `DEEPCTX_TRACES`.
fn import(program: &Path, options: &Options) -> Result<()> {
    let Some(folder) = std::env::var_os("DEEPCTX_TRACES") else {
        eprintln!("import is not measured: DEEPCTX_TRACES names no folder of traces");
        return Ok(());
    };
    let files = sh::files_below(Path::new(&folder), ".json.gz");
    let size = |path: &PathBuf| path.metadata().map_or(0, |data| data.len());
    let Some(largest) = files.into_iter().max_by_key(size) else { bail!("DEEPCTX_TRACES has no .json.gz") };
    let runs = measured(program, options.runs, &["import", &largest.display().to_string()], || Ok(()))?;
    let name = largest.file_name().unwrap_or_default().to_string_lossy();
    let peers = Peers::fetch();
    let file = largest.display().to_string();
    let figure = Figure::new("trace", format!("import of {name}"), "s", each(&runs, |run| run[1]))
        .target(Target::AtMost(1.0))
        .note("events", median(&each(&runs, |run| run[0])))
        .note("bytes", size(&largest))
        .note("peak_mib", median(&each(&runs, |run| run[3] / MIB)));
    peers.beside(figure, Peer::HtaImport, &file).print();
    // Theirs is the critical path of the first step alone; ours is every table of all steps.
    let tables = measured(program, options.runs, &["tables", &file], || Ok(()))?;
    let case = format!("all tables of {name}; peer: one critical path");
    let figure = Figure::new("trace", case, "s", each(&tables, |run| run[1]))
        .note("peak_mib", median(&each(&tables, |run| run[3] / MIB)));
    peers.beside(figure, Peer::HtaCriticalPath, &file).print();
    let packets = sh::target_dir().join("bench/trace/peer.pftrace");
    let packets = packets.display().to_string();
    measured(program, 1, &["perfetto", &file, &packets], || Ok(()))?;
    let ours = measured(program, options.runs, &["import", &packets], || Ok(()))?;
    let case = format!("import of {name} as Perfetto's packets");
    let figure = Figure::new("trace", case, "s", each(&ours, |run| run[1]))
        .note("peak_mib", median(&each(&ours, |run| run[3] / MIB)));
    peers.beside(figure, Peer::PerfettoParse, &packets).print();
    Ok(std::fs::remove_file(packets)?)
}

/// What another tool does with a file.
#[derive(Clone, Copy)]
enum Peer {
    HtaImport,
    HtaCriticalPath,
    PerfettoParse,
}

impl Peer {
    /// Its Python environment, the script's argument, and its display name.
    const fn words(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::HtaImport => ("traces", "import", "hta"),
            Self::HtaCriticalPath => ("traces", "critical-path", "hta"),
            Self::PerfettoParse => ("python", "perfetto", "perfetto classes, parsing alone"),
        }
    }
}

/// Other tools, run once each: they take a hundred times as long. Without them, only our figures are shown.
struct Peers {
    environments: Result<PathBuf>,
    script: PathBuf,
}

impl Peers {
    fn fetch() -> Self {
        let script = sh::root().join("xtask/src/bench/trace_peers.py");
        Self { environments: validators::fetch_python(), script }
    }

    /// Our figure with the other tool's time.
    fn beside(&self, figure: Figure, peer: Peer, file: &str) -> Figure {
        match self.ask(peer, file) {
            Ok(run) => figure
                .peer(peer.words().2, &[run[1]])
                .note("peer_events", run[0])
                .note("peer_peak_mib", run[3] / MIB),
            Err(error) => {
                eprintln!("{}: {error:#}", peer.words().2);
                figure.note("peer", "not measured")
            }
        }
    }

    fn ask(&self, peer: Peer, file: &str) -> Result<[f64; 4]> {
        let (environment, way, _) = peer.words();
        let environments = self.environments.as_ref().map_err(|error| anyhow::anyhow!("{error:#}"))?;
        let python = environments.join(environment).join("bin/python");
        let text = sh::output(Command::new(python).arg(&self.script).args([way, file]))?;
        let last = text.lines().last().with_context(|| format!("{way}: it said nothing"))?;
        let line = lines(last, 4)?.into_iter().next().context("it said nothing")?.0;
        <[f64; 4]>::try_from(line).map_err(|line| anyhow::anyhow!("it said {line:?}"))
    }
}
