//! Plain counting of SQLite exports, by SQL.
//!
//! Owns: the queries, and our figures that they verify. Because: an importer is credible if the database's own language
//! gets the same counts and sums. Does not: share code with the importer: Python's `sqlite3` reads the file.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// Prints by process: count and nanoseconds of each kind of event, and work whose call exists.
const COUNT: &str = r"
import gzip, json, sqlite3, sys
bytes = open(sys.argv[1], 'rb').read()
if bytes[:2] == b'\x1f\x8b':
    bytes = gzip.decompress(bytes)
db = sqlite3.connect(':memory:')
db.deserialize(bytes)
cupti = 'CUPTI_ACTIVITY_KIND_'
there = {name for name, in db.execute('select name from sqlite_master')}
work = {'kernel': 'KERNEL', 'copy': 'MEMCPY', 'fill': 'MEMSET', 'synchronisation': 'SYNCHRONIZATION'}
out = {}
def add(kind, table, pid):
    if table not in there:
        return
    rows = db.execute(f'select {pid} / 16777216 % 16777216, count(*), sum(end - start) from {table} group by 1')
    for pid, count, time in rows:
        out.setdefault(pid, {})[kind] = [count, time]
for kind, table in work.items():
    add(kind, cupti + table, 'globalPid')
add('runtime-call', cupti + 'RUNTIME', 'globalTid')
for kind, table in list(work.items())[:3]:
    if cupti + table not in there:
        continue
    rows = db.execute(f'''select globalPid / 16777216 % 16777216, count(*) from {cupti + table} w where exists (
        select 1 from {cupti}RUNTIME r where r.correlationId = w.correlationId
        and r.globalTid / 16777216 = w.globalPid / 16777216) group by 1''')
    for pid, count in rows:
        of = out[pid].setdefault('launches', [0, None])
        of[0] += count
first = min(out)
if 'NVTX_EVENTS' in there:
    rows = db.execute('''select globalTid / 16777216 % 16777216, count(*), sum(coalesce(end, start) - start) from NVTX_EVENTS
        where eventType in (59, 60) and end is not null or eventType = 34 group by 1''')
    for pid, count, time in rows:
        of = out[pid if pid in out else first].setdefault('range', [0, 0])
        of[0] += count
        of[1] += time
print(json.dumps([[pid, out[pid]] for pid in sorted(out)]))
";

/// Differences between our sums and plain SQL, by process.
pub(super) fn against_sql(ours: &Value, file: &Path) -> Result<Vec<String>> {
    let said =
        Command::new("python3").args(["-c", COUNT]).arg(file).output().context("cannot run python3")?;
    ensure!(said.status.success(), "{}: {}", file.display(), String::from_utf8_lossy(&said.stderr));
    let counted: Value = serde_json::from_slice(&said.stdout)?;
    let counted: Vec<&Value> = counted.as_array().into_iter().flatten().collect();
    let traces: Vec<&Value> = rows(ours, "traces").collect();
    ensure!(counted.len() == traces.len(), "{} traces instead of {}", traces.len(), counted.len());
    let mut wrong = Vec::new();
    for (counted, of) in counted.into_iter().zip(traces) {
        for (kind, figures) in counted[1].as_object().into_iter().flatten() {
            let expect = (figures[0].as_u64(), figures[1].as_u64());
            let found = if kind == "launches" {
                let launches = rows(ours, "launches").find(|row| row["rank"] == of["rank"]);
                (launches.and_then(|row| row["launches"].as_u64()), None)
            } else {
                sum_of(of, kind)
            };
            if found != expect {
                let pid = &counted[0];
                wrong.push(format!("process {pid}: {kind}: {found:?} instead of {expect:?}"));
            }
        }
    }
    Ok(wrong)
}

/// Total count and nanoseconds of what the queries cover.
fn sum_of(trace: &Value, kind: &str) -> (Option<u64>, Option<u64>) {
    let kinds: &[&str] = match kind {
        "range" => &["operator", "annotation", "step"],
        "runtime-call" => &["runtime-call", "driver-call"],
        other => &[other],
    };
    let of = rows(trace, "sums").filter(|row| kinds.iter().any(|kind| row["kind"] == **kind));
    let (count, time) = of.fold((0, 0), |(count, time), row| {
        (count + row["count"].as_u64().unwrap_or(0), time + row["time_ns"].as_u64().unwrap_or(0))
    });
    (Some(count), Some(time))
}

fn rows<'v>(of: &'v Value, field: &str) -> impl Iterator<Item = &'v Value> {
    of[field].as_array().into_iter().flatten()
}
