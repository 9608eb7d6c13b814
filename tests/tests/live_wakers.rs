//! Who woke a thread, in the trace of a real program.
//!
//! Owns: the test from the kernel's `sched_waking` to the stored event. Because: the critical path continues with the
//! waker, and no other tool's trace would expose an error. Does not: test a single stage. Needs root and BPF.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cli_support;

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cli_support::{can_capture, program};
use deepctx_profile::intern::Id;
use deepctx_profile::trace::{RankTrace, Thread, Waker};

/// Byte exchanges with the program: each wakes its main thread once.
const EXCHANGES: usize = 200;

/// The real Python: `python3` may be a script that starts other programs first.
fn python() -> PathBuf {
    let words = ["-c", "import os, sys; print(os.path.realpath(sys.executable), end='')"];
    let said = Command::new("python3").args(words).output().unwrap();
    String::from_utf8(said.stdout).unwrap().into()
}

/// The trace of `handoff.py` from start to end, with its thread ids.
fn traced(output: &Path) -> BTreeMap<String, u32> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads/handoff.py");
    let mut record = program();
    record.args(["record", "--off-cpu", "--trace", "10m", "-o"]).arg(output).args([
        "--".into(),
        python(),
        script,
    ]);
    let mut record = record.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut input, output) = (record.stdin.take().unwrap(), record.stdout.take().unwrap());
    let mut output = BufReader::new(output);
    let mut threads = String::new();
    output.read_line(&mut threads).unwrap();
    for _ in 0..EXCHANGES {
        input.write_all(b".").unwrap();
        output.read_exact(&mut [0]).unwrap();
    }
    drop(input);
    assert!(record.wait().unwrap().success());
    serde_json::from_str(&threads).unwrap()
}

/// The wakers of this thread from waits with this name, with counts; a wake-up lies within its wait.
fn wakers(rank: &RankTrace, thread: u32, wait: &str) -> BTreeMap<String, usize> {
    let trace = &rank.trace;
    let number = |thread: Id<Thread>| trace.name(trace.threads()[thread.index()].thread).to_owned();
    let mut wakers = BTreeMap::new();
    for (_, event) in trace.wake_ups.iter() {
        let op = trace.host.get(event.ends).unwrap();
        assert!(op.begin <= event.at && event.at <= op.end(), "{event:?} {op:?}");
        if number(op.thread) == thread.to_string() && trace.name(op.name).contains(wait) {
            let by = match event.by {
                Waker::Thread(by) => format!("thread {}", number(by)),
                Waker::OtherProcess { pid, .. } => format!("process {pid}"),
                other => format!("{other:?}"),
            };
            *wakers.entry(by).or_default() += 1;
        }
    }
    wakers
}

#[test]
fn a_trace_names_who_woke_each_thread() {
    if !can_capture() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("run.dctx");
    let threads = traced(&output);
    let job = deepctx_storage::open_traces(&[output]).unwrap();
    let [rank] = job.ranks() else { panic!("one process was traced") };
    let check = |thread: &str, wait: &str, expect: String| {
        let wakers = wakers(rank, threads[thread], wait);
        let (all, right) = (wakers.values().sum::<usize>(), wakers.get(&expect).copied().unwrap_or(0));
        assert!(all > EXCHANGES / 10 && right * 100 >= all * 99, "{thread}: {wakers:?}, expected {expect}");
    };
    check("main", "pipe", format!("process {}", std::process::id()));
    check("handed", "pipe", format!("thread {}", threads["timed"]));
    check("timed", "sleep", "Interrupt".to_owned());
}
