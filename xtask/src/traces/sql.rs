//! Plain counting of SQLite exports, by SQL.
//!
//! Owns: the queries, and what of ours they are held against. Because: an importer is believed where a database's own
//! language comes to the same counts and sums. Does not: use what the importer uses: Python's `sqlite3` reads the file.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::sh;

/// Prints, by process: count and nanoseconds of each kind of event, and work whose call is there.
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
add('range', '(select * from NVTX_EVENTS where eventType in (59, 60))' if 'NVTX_EVENTS' in there else '', 'globalTid')
print(json.dumps(out))
";

/// Where our sums are not those of plain SQL, by process.
pub(super) fn against_sql(ours: &Value, file: &Path) -> Result<Vec<String>> {
    let said = Command::new("python3").args(["-c", COUNT]).arg(file).output().context("cannot run python3")?;
    ensure!(said.status.success(), "{}: {}", file.display(), String::from_utf8_lossy(&said.stderr));
    let counted: Value = serde_json::from_slice(&said.stdout)?;
    let mut wrong = Vec::new();
    for ((pid, kinds), of) in counted.as_object().into_iter().flatten().zip(rows(ours, "traces")) {
        for (kind, figures) in kinds.as_object().into_iter().flatten() {
            let expect = (figures[0].as_u64(), figures[1].as_u64());
            let found = if kind == "launches" {
                let launches = rows(ours, "launches").find(|row| row["rank"] == of["rank"]);
                (launches.and_then(|row| row["launches"].as_u64()), None)
            } else {
                let sum = rows(of, "sums").find(|row| row["kind"] == **kind);
                (sum.and_then(|row| row["count"].as_u64()), sum.and_then(|row| row["time_ns"].as_u64()))
            };
            if found != expect {
                wrong.push(format!("process {pid}: {kind}: {found:?} instead of {expect:?}"));
            }
        }
    }
    let (processes, traces) = (counted.as_object().map_or(0, serde_json::Map::len), rows(ours, "traces").count());
    if processes != traces {
        wrong.push(format!("{traces} traces instead of {processes}"));
    }
    Ok(wrong)
}

fn rows<'v>(of: &'v Value, field: &str) -> impl Iterator<Item = &'v Value> {
    of[field].as_array().into_iter().flatten()
}

/// The exports of a folder.
pub(super) fn exports(folder: &Path) -> Result<Vec<std::path::PathBuf>> {
    sh::files_in(folder)
}
