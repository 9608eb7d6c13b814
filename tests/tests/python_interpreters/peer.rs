//! A peer on the same processes: where it supports the version, it must see the same frames.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::support::{Python, Target, chains, pythons};

/// The newest `3.n` that the peer reads.
const NEWEST_MINOR: u8 = 14;

/// The peer, from `DEEPCTX_PY_SPY`; `cargo xtask test python` fetches it.
fn peer() -> Option<PathBuf> {
    let path = std::env::var_os("DEEPCTX_PY_SPY").map(PathBuf::from).filter(|path| path.exists());
    if path.is_none() {
        println!("skipped: DEEPCTX_PY_SPY names no py-spy");
    }
    path
}

/// (name, file, line) of each frame, leaf first.
fn frames(thread: &Value, file: &str, keys: [&str; 2]) -> Vec<(String, String, u64)> {
    let frame = |frame: &Value| {
        let text = |key: &str| frame[key].as_str().unwrap_or_default().to_owned();
        (text(keys[0]), text(file), frame[keys[1]].as_u64().unwrap_or(0))
    };
    thread["frames"].as_array().into_iter().flatten().map(frame).collect()
}

/// Threads on which both agree, and all that were compared; `None` when the peer cannot read the process.
fn agreement(peer: &PathBuf, target: &Target, scenarios: &[Value]) -> Option<(usize, Vec<String>)> {
    let pid = target.pid().to_string();
    let said = Command::new(peer).args(["dump", "--json", "--pid", &pid]).output().unwrap();
    let threads: Vec<Value> = serde_json::from_slice(&said.stdout).ok()?;
    let (mut equal, mut different) = (0, Vec::new());
    for scenario in scenarios {
        let theirs = threads.iter().find(|thread| thread["thread_id"] == scenario["ident"]);
        let theirs = theirs.map(|thread| frames(thread, "filename", ["name", "line"]));
        if theirs.as_ref() == Some(&frames(scenario, "file", ["name", "line"])) {
            equal += 1;
        } else {
            different.push(scenario["scenario"].as_str().unwrap().to_owned());
        }
    }
    Some((equal, different))
}

/// CPU time of the peer for each stack that it took, microseconds, while it samples a hundred times a second.
fn cost(peer: &PathBuf, target: &Target) -> Option<f64> {
    let folder = tempfile::tempdir().unwrap();
    let raw = folder.path().join("raw");
    let line = "TIMEFORMAT='%U %S'; time \"$0\" record --pid \"$1\" --duration 2 --rate 100 --format raw --output \"$2\"";
    let said =
        Command::new("bash").args(["-c", line]).arg(peer).arg(target.pid().to_string()).arg(&raw).output();
    let said = String::from_utf8(said.ok()?.stderr).ok()?;
    let seconds: f64 = said.lines().last()?.split_whitespace().filter_map(|n| n.parse::<f64>().ok()).sum();
    let raw = std::fs::read_to_string(raw).ok()?;
    let stacks: f64 = raw.lines().filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum();
    (stacks > 0.0).then(|| seconds * 1e6 / stacks)
}

/// Whether the peer sees most threads as the program itself does.
fn check(peer: &PathBuf, python: &Python) -> bool {
    let (target, scenarios) = chains(python);
    // Where both see the same as the program itself, they agree with each other: the other tests say what we see.
    let Some((equal, different)) = agreement(peer, &target, &scenarios) else {
        println!("| {:<32} | py-spy cannot read it", python.name);
        return false;
    };
    let cost = cost(peer, &target).map_or("not measured".to_owned(), |cost| format!("{cost:.0} µs"));
    println!(
        "| {:<32} | py-spy: {equal} of {} threads equal, CPU for each stack {cost}; others: {}",
        python.name,
        scenarios.len(),
        different.join(" "),
    );
    equal * 2 > scenarios.len()
}

#[test]
fn a_peer_sees_the_same_threads_where_it_knows_the_version() {
    let Some(peer) = peer() else { return };
    // It does not read every build of a version that it knows: the table says which.
    let known: Vec<_> = pythons().into_iter().filter(|python| python.minor <= NEWEST_MINOR).collect();
    let agreeing = known.iter().filter(|python| check(&peer, python)).count();
    println!("the peer agrees on {agreeing} of {} interpreters", known.len());
    assert!(agreeing > 0, "the peer agrees on none of {} interpreters", known.len());
}
