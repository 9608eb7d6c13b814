//! A peer on the same processes: if it supports the version, it must see the same frames.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::support::{Python, Target, chains, pythons};

/// The newest `3.n` that the peer supports.
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

/// Threads on which both agree, and all compared ones; `None` when the peer cannot read the process.
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

/// Whether the peer agrees with the program itself on most threads.
fn check(peer: &PathBuf, python: &Python) -> bool {
    let (target, scenarios) = chains(python);
    // Where both agree with the program itself, they agree with each other: the other tests check ours.
    let Some((equal, different)) = agreement(peer, &target, &scenarios) else {
        println!("| {:<32} | py-spy cannot read it", python.name);
        return false;
    };
    println!(
        "| {:<32} | py-spy: {equal} of {} threads equal; others: {}",
        python.name,
        scenarios.len(),
        different.join(" "),
    );
    equal * 2 > scenarios.len()
}

#[test]
fn peer_profiler_sees_the_same_threads_for_supported_versions() {
    let Some(peer) = peer() else { return };
    // It does not support every build of a supported version: the table shows which.
    let known: Vec<_> = pythons().into_iter().filter(|python| python.minor <= NEWEST_MINOR).collect();
    let agreeing = known.iter().filter(|python| check(&peer, python)).count();
    println!("the peer agrees on {agreeing} of {} interpreters", known.len());
    assert!(agreeing > 0, "the peer agrees on none of {} interpreters", known.len());
}
