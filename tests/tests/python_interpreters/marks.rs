//! Calls of a function that marks steps, told by watchpoints, against what the program says of each.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::process::Command;

use deepctx_common::record::word;
use deepctx_profile::frame::Frame;
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Profile;
use deepctx_profile::store;
use deepctx_userspace::capture::watch::has_watchpoints;
use deepctx_userspace::pipeline::decode::{Event, records};
use deepctx_userspace::pipeline::source::{Input, Source as _};
use deepctx_userspace::raw::RawReader;
use serde_json::Value;

use crate::support::{Python, Target, profiler, programs, row, workload};

/// Times of one process: by thread, `CLOCK_MONOTONIC` nanoseconds, ascending.
type Times = BTreeMap<u32, Vec<u64>>;

/// What a capture told.
struct Captured {
    /// Uses of the function, by process.
    uses: BTreeMap<u32, Times>,
    profile: Profile,
    /// What was said on standard error.
    said: String,
}

fn capture(profiler: &Path, pids: &[u32], seconds: u32, markers: &[&str]) -> Captured {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let (stored, raw) = (file("run.dctx"), file("raw"));
    let mut command = Command::new(profiler);
    command.args(["record", "-F", "499", "-o", &stored, "--raw", &raw, "--context", "python,native,step"]);
    command.args(["--duration", &format!("{seconds}s")]);
    for marker in markers {
        command.args(["--step-marker", marker]);
    }
    for pid in pids {
        command.args(["--pid", &pid.to_string()]);
    }
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let mut uses = BTreeMap::<u32, Times>::new();
    let mut reader = RawReader::new(File::open(&raw).unwrap()).unwrap();
    while let Some(input) = reader.next_input().unwrap() {
        let Input::Records(bytes) = input else { continue };
        for slot in records(&bytes) {
            let Ok(Event::Call(sample, arguments)) = slot.event else { continue };
            // Another stage's, or read by native code.
            let code = arguments.values.iter().next();
            let is_python = |word: &u64| word::tag(*word) == word::PYTHON;
            let innermost = sample.user.iter().find(is_python).map(|word| word & word::PAYLOAD);
            let evaluated = sample.user.iter().next().is_some_and(|word| is_python(&word));
            if arguments.call.site == 0 && (evaluated || innermost == code) {
                let fixed = sample.fixed;
                uses.entry(fixed.pid).or_default().entry(fixed.tid).or_default().push(fixed.header.time_ns);
            }
        }
    }
    uses.values_mut().flat_map(BTreeMap::values_mut).for_each(|times| times.sort_unstable());
    Captured { uses, profile: store::open(stored.as_ref()).unwrap().profile, said }
}

/// When the program made its calls.
fn calls(target: &mut Target) -> Times {
    let pid = target.pid().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let mut calls = Times::new();
    for line in target.lines_until_ready() {
        let said: Value = serde_json::from_str(&line).unwrap();
        let number = |key: &str| said[key].as_u64().unwrap();
        calls.entry(number("tid") as u32).or_default().push(number("ns"));
    }
    calls
}

/// Steps of a process at the place where its main thread makes them: how many, and their time in all.
fn steps(profile: &Profile, pid: u32) -> (u64, u64) {
    let text = |id| profile.strings.get(id);
    let (mut count, mut sum) = (0, 0);
    for (node, cell) in profile.tree.cells(Metric::StepTime) {
        let stack = profile.tree.stack(node);
        let frames: Vec<Frame> = stack.iter().map(|frame| profile.frames.get(*frame)).collect();
        let of_process =
            frames.iter().any(|frame| matches!(frame, Frame::Process { pid: of, .. } if *of == pid));
        let [.., Frame::Python { function, .. }, Frame::Range { name }] = frames[..] else { continue };
        if of_process && text(function) == "main" {
            assert!(text(name).ends_with(":Trainer.step"), "{}", text(name));
            (count, sum) = (count + cell.count, sum + cell.sum);
        }
    }
    (count, sum)
}

/// Compares a process's calls with what was told of them; gives how many of its main thread's were compared, or none where the
/// function was not met in time.
fn compare(python: &str, calls: &Times, uses: &Times, steps: (u64, u64), pid: u32) -> Option<u64> {
    let [said, told] = [calls, uses].map(|of| of.get(&pid));
    let (said, told) = (said?, told?);
    let (&began, &ended) = (told.first()?, told.last()?);
    // Each call is made before it says so, and after the one before it did.
    let mut entered = Vec::new();
    let within =
        said.windows(2).map(|pair| (pair[0], pair[1])).filter(|(from, to)| *from >= began && *to <= ended);
    for (from, to) in within {
        let mut between = told.iter().filter(|use_ns| (from..to).contains(*use_ns));
        entered.push(*between.next().unwrap_or_else(|| panic!("{python}: a call at {to} is not told")));
        assert_eq!(between.next(), None, "{python}: a call at {to} is told twice");
    }
    // Threads that began since inherit the watch.
    for (tid, said) in calls.iter().filter(|(tid, said)| **tid != pid && said[0] > began) {
        let told = uses.get(tid).map_or(0, Vec::len);
        let said = said.iter().filter(|said| **said < ended).count();
        assert!((said..=said + 1).contains(&told), "{python}: {told} of {said} calls in thread {tid}");
    }
    assert_eq!(steps, (told.len() as u64 - 1, ended - began), "{python}: steps, and their time");
    (entered.len() > 20).then_some(entered.len() as u64)
}

/// Why calls cannot be told in an interpreter.
fn refused(python: &Python) -> Option<&'static str> {
    if python.name.ends_with("-jit") {
        Some("compiles what runs often")
    } else if python.name.ends_with('t') && python.minor >= 14 {
        Some("each thread of a free-threaded interpreter has a copy")
    } else {
        None
    }
}

#[test]
fn every_call_of_a_function_that_marks_steps_is_told_once() {
    let Some(profiler) = profiler() else { return };
    if let Err(because) = has_watchpoints() {
        return println!("skipped: {because}");
    }
    let program = workload("python_steps.py");
    let mut pythons = programs();
    // One of each version and kind is enough.
    pythons.dedup_by_key(|python| (python.minor, refused(python)));
    // All at once; on a busy machine it takes long until each function is met.
    for seconds in [4, 15, 60] {
        let mut targets: Vec<_> =
            pythons.iter().map(|python| (python, Target::start(python, &[&program]))).collect();
        targets.iter_mut().for_each(|(_, target)| drop(target.lines_until_ready()));
        let pids: Vec<u32> = targets.iter().map(|(_, target)| target.pid()).collect();
        let captured = capture(&profiler, &pids, seconds, &["python_steps.py:Trainer.step"]);
        let mut met = true;
        for (python, target) in &mut targets {
            let (pid, none) = (target.pid(), Times::new());
            let (uses, said) = (captured.uses.get(&pid).unwrap_or(&none), calls(target));
            if let Some(because) = refused(python) {
                let notice = captured.said.lines().find(|line| line.contains(&format!("process {pid}:")));
                met &= notice.is_some();
                assert!(notice.is_none_or(|notice| notice.contains(because)), "{}: {notice:?}", python.name);
                assert!(uses.is_empty(), "{}: {uses:?}", python.name);
                continue;
            }
            let compared = compare(&python.name, &said, uses, steps(&captured.profile, pid), pid);
            met &= compared.is_some();
            let compared = compared.unwrap_or(0);
            row(&python.name, "calls that mark steps", said.len(), compared, compared, 0);
        }
        if met {
            return;
        }
        assert!(seconds < 60, "a function was not met: {}", captured.said);
    }
}

#[test]
fn a_function_that_is_called_too_often_is_let_go_and_one_that_is_not_there_is_said() {
    let Some(profiler) = profiler() else { return };
    if let Err(because) = has_watchpoints() {
        return println!("skipped: {because}");
    }
    let program = "
def often(n):
    return sum(range(200))
print('{\"ready\": true}', flush=True)
while True:
    often(1)
";
    let python = programs().into_iter().find(|python| refused(python).is_none()).unwrap();
    let mut target = Target::start(&python, &["-c", program]);
    target.lines_until_ready();
    for seconds in [2, 8, 30] {
        let captured = capture(&profiler, &[target.pid()], seconds, &["__main__:often", "no_such:step"]);
        let notice = captured.said.lines().find(|line| line.contains("--step-marker __main__:often"));
        if let Some(notice) =
            notice.filter(|notice| notice.contains("are told no more: they are more than 1000"))
        {
            assert!(captured.said.contains("--step-marker no_such:step ended no step"), "{}", captured.said);
            return println!("{notice}");
        }
        assert!(seconds < 30, "{}", captured.said);
    }
}
