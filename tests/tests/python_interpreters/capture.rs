//! Stacks captured by the kernel programs, against the chains that the program itself recorded.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::support::{Python, Target, chains, pythons};

/// Python frames that a sample surely has room for; deeper stacks keep those nearest to the leaf.
const FRAMES_RECORDED: usize = 500;
/// Most captures of one process.
const CAPTURES_MAX: u32 = 10;

/// The profiler that was built beside this test, or why it cannot capture here.
fn profiler() -> Result<PathBuf, String> {
    let test = std::env::current_exe().map_err(|error| error.to_string())?;
    let folder = test.parent().and_then(Path::parent).ok_or("the test lies in no folder")?;
    let path =
        std::env::var_os("TEST_BINARY_DEEPCTX_BPF").map_or_else(|| folder.join("deepctx-bpf"), PathBuf::from);
    if !path.exists() {
        return Err(format!("{} is not built: cargo build -p deepctx-userspace", path.display()));
    }
    let user = Command::new("id").arg("-u").output().map_err(|error| error.to_string())?.stdout;
    if user.trim_ascii() != b"0" {
        return Err("needs root, to load programs into the kernel".to_owned());
    }
    Ok(path)
}

/// Root first, as folded stacks have it: `file:function:line` joined by semicolons.
fn folded(scenario: &Value) -> String {
    let text = |frame: &Value, key: &str| frame[key].as_str().unwrap().replace(';', ":");
    let frame = |frame: &Value| {
        let file = text(frame, "file");
        let file = file.rsplit('/').next().unwrap();
        format!("{file}:{}:{}", text(frame, "qualname"), frame["line"])
    };
    let frames: Vec<String> = scenario["frames"].as_array().unwrap().iter().rev().map(frame).collect();
    frames.join(";")
}

fn run(profiler: &Path, arguments: &[&str]) -> String {
    let output = Command::new(profiler).args(arguments).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// Captures the workload in one interpreter, until each of its threads was seen; gives how many samples were compared.
fn check(profiler: &Path, python: &Python) -> u64 {
    let (target, scenarios): (Target, Vec<Value>) = chains(python);
    let spinning = scenarios.iter().filter(|scenario| scenario["state"] == "spinning");
    let expected: HashMap<String, &str> =
        spinning.map(|scenario| (folded(scenario), scenario["scenario"].as_str().unwrap())).collect();
    let mut seen = HashMap::new();
    // The interpreter's lock is not fair: on a busy machine a thread may wait for seconds.
    for _ in 0..CAPTURES_MAX {
        capture(profiler, target.pid(), &expected, &mut seen);
        if seen.len() == expected.len() {
            return seen.values().sum();
        }
    }
    panic!("{}: not every thread was seen: {seen:?}", python.path.display());
}

/// Captures for a while, and counts the samples of each scenario.
fn capture<'e>(
    profiler: &Path,
    pid: u32,
    expected: &HashMap<String, &'e str>,
    seen: &mut HashMap<&'e str, u64>,
) {
    let folder = tempfile::tempdir().unwrap();
    let profile = folder.path().join("run.dctx");
    let profile = profile.to_str().unwrap();
    run(profiler, &["record", "--pid", &pid.to_string(), "--duration", "3s", "--freq", "199", "-o", profile]);
    let format = ["--format", "folded", "--view", "python", "--lines", "--metric", "samples", "-o", "-"];
    let stacks = run(profiler, &[&["export", profile][..], &format].concat());
    for line in stacks.lines() {
        let (stack, count) = line.rsplit_once(' ').unwrap();
        let (_, frames) = stack.split_once(';').unwrap_or((stack, ""));
        let deep = frames.split(';').count() >= FRAMES_RECORDED;
        // A stack that was cut at its root keeps the frames nearest to the leaf, on a frame's border.
        let found = expected.get(frames).or_else(|| {
            let cut = expected.iter().find(|(chain, _)| deep && chain.ends_with(&format!(";{frames}")));
            cut.map(|(_, scenario)| scenario)
        });
        let scenario =
            found.unwrap_or_else(|| panic!("no thread has the stack {line}; they have {expected:#?}"));
        *seen.entry(*scenario).or_insert(0) += count.parse::<u64>().unwrap();
    }
}

#[test]
fn every_captured_stack_is_one_that_the_program_says_it_has() {
    let profiler = match profiler() {
        Ok(profiler) => profiler,
        Err(missing) => {
            assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{missing}");
            println!("skipped: {missing}");
            return;
        }
    };
    for python in pythons() {
        let samples = check(&profiler, &python);
        println!("{}: {samples} samples, all equal", python.path.display());
        assert!(samples > 0);
    }
}
