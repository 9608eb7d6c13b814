//! Plain counting of traces that HTA does not read.
//!
//! Owns: the list of files, the counting of those that are not databases, and their rows of the comparison. Because: an
//! importer is credible if independent code gets the same counts and sums. Does not: share code with the importers: a
//! few lines of Python read the files.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::figures::Row;
use super::sql;
use crate::sh;

/// Count and nanoseconds of dispatches in a rocprofv3 JSON file.
const ROCPROF: &str = r"
import gzip, json, sys
with gzip.open(sys.argv[1]) as file:
    tools = json.load(file)['rocprofiler-sdk-tool']
rows = [row for tool in tools for row in tool['buffer_records']['kernel_dispatch']]
print(len(rows), sum(row['end_timestamp'] - row['start_timestamp'] for row in rows))
";

/// Count and nanoseconds of events on device streams in an XPlane file (`tsl/profiler/protobuf/xplane.proto`).
const XPLANE: &str = r"
import sys
def fields(bytes):
    at = 0
    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = bytes[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
    while at < len(bytes):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
            continue
        size = {1: 8, 5: 4}.get(key & 7) or varint()
        yield key >> 3, bytes[at:at + size]
        at += size
def of(bytes, number):
    return [value for field, value in fields(bytes) if field == number]
count = time = 0
for plane in of(open(sys.argv[1], 'rb').read(), 1):
    if not of(plane, 2)[0].startswith(b'/device:GPU'):
        continue
    for line in of(plane, 3):
        if not of(line, 2)[0].startswith(b'Stream #'):
            continue
        for event in of(line, 4):
            count += 1
            time += sum(of(event, 3)) / 1000
print(count, round(time))
";

/// How a kind of file is counted.
#[derive(Clone, Copy)]
enum CountMethod {
    Sql,
    /// By a script that prints count and nanoseconds of device work.
    Script(&'static str),
}

/// Kinds of files by name pattern, and their descriptions in the comparison.
const KINDS: [(&str, &str, CountMethod, &str); 4] = [
    ("nsys", ".sqlite", CountMethod::Sql, "HTA reads no export of Nsight Systems; plain SQL gives the same"),
    (
        "nsys",
        ".sqlite.gz",
        CountMethod::Sql,
        "HTA reads no export of Nsight Systems; plain SQL gives the same",
    ),
    (
        "rocprofv3",
        ".json.gz",
        CountMethod::Script(ROCPROF),
        "HTA reads no file of rocprofv3; plain counting gives the same",
    ),
    ("", ".xplane.pb", CountMethod::Script(XPLANE), "HTA reads no XPlane; plain counting gives the same"),
];

/// Results of counting one file.
pub(super) struct CountResult {
    /// The trace's name in the comparison.
    pub(super) name: String,
    /// Differences from our sums.
    pub(super) wrong: Vec<String>,
    /// Its rows of the comparison.
    pub(super) rows: Vec<Row>,
}

/// Counts all such files of a folder; `timeline` returns our figures of one.
pub(super) fn count(folder: &Path, timeline: impl Fn(&Path) -> Result<Value>) -> Result<Vec<CountResult>> {
    let mut all = Vec::new();
    for (prefix, suffix, counting, why) in KINDS {
        for file in sh::files_below(folder, suffix) {
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if !name.starts_with(prefix) {
                continue;
            }
            let ours = timeline(&file)?;
            let wrong = match counting {
                CountMethod::Sql => sql::against_sql(&ours, &file)?,
                CountMethod::Script(script) => against_script(&ours, &file, script)?,
            };
            let name = name.trim_end_matches(suffix).to_owned();
            all.push(CountResult { name, rows: rows(&ours, if wrong.is_empty() { why } else { "" }), wrong });
        }
    }
    Ok(all)
}

/// Differences between our sums of device work and a script's.
fn against_script(ours: &Value, file: &Path, script: &str) -> Result<Vec<String>> {
    let said =
        Command::new("python3").args(["-c", script]).arg(file).output().context("cannot run python3")?;
    ensure!(said.status.success(), "{}: {}", file.display(), String::from_utf8_lossy(&said.stderr));
    let text = String::from_utf8_lossy(&said.stdout);
    let counted: Option<Vec<u64>> = text.split_whitespace().map(|word| word.parse().ok()).collect();
    let counted = counted.filter(|counted| counted.len() == 2).context("the script said no two numbers")?;
    let (count, time_ns) = work(ours);
    // Starts and ends are rounded to whole nanoseconds.
    let near = time_ns.abs_diff(counted[1]) <= count;
    let differs = format!("work: {count}, {time_ns} ns instead of {}, {} ns", counted[0], counted[1]);
    Ok(if count == counted[0] && near { Vec::new() } else { vec![differs] })
}

/// Count and nanoseconds of device work.
fn work(ours: &Value) -> (u64, u64) {
    let traces = ours["traces"].as_array().into_iter().flatten();
    let sums = traces.flat_map(|trace| trace["sums"].as_array().into_iter().flatten());
    let work = sums.filter(|row| ["kernel", "copy", "fill"].iter().any(|kind| row["kind"] == *kind));
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    work.fold((0, 0), |(count, time), row| (count + number(&row["count"]), time + number(&row["time_ns"])))
}

fn rows(ours: &Value, why: &'static str) -> Vec<Row> {
    let (count, time_ns) = work(ours);
    let row = |analysis, ours| Row { analysis, ours, hta: "–".to_owned(), why };
    vec![
        row("kernels, copies and fills", count.to_string()),
        row("their sum, ms", format!("{:.3}", time_ns as f64 / 1e6)),
    ]
}
