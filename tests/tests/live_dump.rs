//! Dumps of all threads of real processes, by the program as a user runs it. Needs root and BPF.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cli_support;
mod documented;

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use cli_support::{Busy, can_capture, expect_code, run, stdout};
use documented::Reader;
use serde_json::Value;

/// A program whose threads wait, with its folder; killed on drop.
struct WaitingProgram {
    child: Child,
    folder: tempfile::TempDir,
}

impl WaitingProgram {
    /// The example with waiting threads, freshly compiled.
    fn start(threads: usize) -> Self {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads/waiting.cpp");
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("waiting");
        let mut compiler = Command::new("g++");
        compiler.args(["-O1", "-g", "-fomit-frame-pointer", "-pthread", "-o"]).arg(&program).arg(&source);
        assert!(compiler.status().unwrap().success(), "{} does not compile", source.display());
        let mut command = Command::new(program);
        let mut child = command.arg(threads.to_string()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("ready"), "{line}");
        Self { child, folder }
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }

    fn dump(&self, more: &[&str]) -> Vec<Value> {
        threads(&[&["dump", "--pid", &self.pid(), "--no-children", "--format", "json"][..], more].concat())
    }
}

impl Drop for WaitingProgram {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The threads of the first process of a dump.
fn threads(arguments: &[&str]) -> Vec<Value> {
    let dump: Value = serde_json::from_str(&expect_code(0, arguments)).unwrap();
    assert_eq!(dump["schema_version"], 1);
    dump["processes"][0]["threads"].as_array().unwrap().clone()
}

fn functions(thread: &Value) -> Vec<&str> {
    let frames = thread["frames"].as_array().unwrap();
    frames.iter().map(|frame| frame["function"].as_str().unwrap()).collect()
}

/// Whether a stack from the start of a thread or the program contains this function.
fn is_whole(thread: &Value, through: &str) -> bool {
    let functions = functions(thread);
    let begins = functions.last().is_some_and(|root| root.contains("clone") || root.contains("_start"));
    begins && functions.iter().any(|function| function.starts_with(through))
}

#[test]
fn a_thousand_threads_are_read_while_they_wait() {
    if !can_capture() {
        return;
    }
    let waiting = WaitingProgram::start(1000);
    let threads = waiting.dump(&[]);
    assert_eq!(threads.len(), 1006);
    for thread in threads.iter().filter(|thread| thread["name"] == "barrier") {
        assert!(is_whole(thread, "meet_at_barrier"), "{thread:#}");
        assert_eq!((&thread["state"], &thread["system_call"]), (&"sleeping".into(), &"futex".into()));
        assert_eq!(thread["wait"]["used_for"], "barrier", "{thread:#}");
    }
    let text = expect_code(0, &["dump", "--pid", &waiting.pid()]);
    let group = text.lines().find(|line| line.starts_with("1000 threads (barrier ")).unwrap_or(&text);
    assert!(group.contains("waits for a barrier (futex 0x"), "{group}");
}

#[test]
fn what_each_thread_waits_for_is_said() {
    if !can_capture() {
        return;
    }
    let waiting = WaitingProgram::start(2);
    let threads = waiting.dump(&[]);
    let check = |name: &str, through: &str, expect: &dyn Fn(&Value) -> bool| {
        let thread = threads.iter().find(|thread| thread["name"] == name).unwrap();
        assert!(is_whole(thread, through), "{thread:#}");
        assert!(expect(&thread["wait"]), "{name}: {thread:#}");
        let off_cpu = thread["off_cpu_ns"].as_u64().unwrap();
        assert!(off_cpu > 0 && off_cpu < 600_000_000_000, "{off_cpu}");
    };
    check("mutex", "wait_for_mutex", &|wait| wait["used_for"] == "mutex");
    check("condition", "wait_for_condition", &|wait| wait["used_for"] == "condition");
    check("sleep", "sleep_long", &|wait| wait["kind"] == "sleep");
    check("pipe", "read_pipe", &|wait| {
        wait["call"] == "read" && wait["opened"].as_str().is_some_and(|opened| opened.starts_with("pipe:["))
    });
    check("waiting", "main", &|wait| wait["used_for"] == "thread-end");
}

#[test]
fn a_running_thread_is_read_while_its_cpu_is_borrowed() {
    if !can_capture() {
        return;
    }
    let waiting = WaitingProgram::start(1);
    let threads = waiting.dump(&[]);
    let spinning = threads.iter().find(|thread| thread["name"] == "spin").unwrap();
    assert!(["running", "waits-for-cpu"].contains(&spinning["state"].as_str().unwrap()), "{spinning:#}");
    assert!(spinning["wait"].is_null());
    assert!(spinning["no_stack"].is_null() && is_whole(spinning, "spin"), "{spinning:#}");
}

#[test]
fn only_the_frames_that_were_asked_for_are_there() {
    if !can_capture() {
        return;
    }
    let waiting = WaitingProgram::start(1);
    for (context, kind) in [("native", "native"), ("kernel", "kernel")] {
        let threads = waiting.dump(&["--context", context]);
        let frames: Vec<&Value> = threads.iter().flat_map(|t| t["frames"].as_array().unwrap()).collect();
        assert!(!frames.is_empty() && frames.iter().all(|frame| frame["kind"] == kind), "{frames:#?}");
    }
}

#[test]
fn a_process_that_is_gone_is_an_error() {
    let said = expect_code(2, &["dump", "--pid", "4194304"]);
    assert!(said.contains("no process with pid 4194304") && said.contains("hint: "), "{said}");
    let said = expect_code(2, &["dump"]);
    assert!(said.contains("no process is selected") && said.contains("--pid"), "{said}");
}

/// Threads start and end all the time: each listed one is shown, or reported as ended.
#[test]
fn threads_that_end_meanwhile_are_no_failure() {
    if !can_capture() {
        return;
    }
    let busy = Busy::of(Command::new("python3").args([
        "-c",
        "import threading\nwhile True:\n t = [threading.Thread(target=str) for _ in range(8)]\n \
         [x.start() for x in t]\n [x.join() for x in t]",
    ]));
    for _ in 0..5 {
        let output = run(&["dump", "--pid", &busy.pid()]);
        assert!(output.status.success(), "{}", stdout(&output));
        assert!(stdout(&output).contains(&format!("(pid {})", busy.pid())), "{}", stdout(&output));
    }
}

#[test]
fn processes_that_end_meanwhile_are_no_failure() {
    if !can_capture() {
        return;
    }
    let busy = Busy::shell("while :; do sleep 0.01; done");
    for _ in 0..5 {
        // The shell stays; its children start and end.
        let output = run(&["dump", "--pid", &busy.pid()]);
        assert!(output.status.success(), "{}", stdout(&output));
    }
}

/// A Python workload, once ready.
fn python(workload: &str, arguments: &[&str]) -> WaitingProgram {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads").join(workload);
    let mut command = Command::new("python3");
    command.arg(program).args(arguments).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let output = child.stdout.take().unwrap();
    let waiting = WaitingProgram { child, folder: tempfile::tempdir().unwrap() };
    assert!(BufReader::new(output).lines().any(|line| line.unwrap() == "ready"));
    waiting
}

#[test]
fn ranks_of_a_job_are_found_from_any_of_them() {
    if !can_capture() {
        return;
    }
    let _other_job = python("ranks.py", &["0"]);
    let job = python("ranks.py", &["2"]);
    let dump = |pid: &str, more: &[&str]| -> Value {
        let words = [&["dump", "--pid", pid, "--all-ranks", "--format", "json"][..], more].concat();
        serde_json::from_str(&expect_code(0, &words)).unwrap()
    };
    let whole = dump(&job.pid(), &[]);
    assert_eq!((&whole["job"]["launcher"], &whole["job"]["size"]), (&"torchrun".into(), &4.into()));
    let processes = whole["processes"].as_array().unwrap();
    let mut ranks: Vec<u64> = processes.iter().map(|process| process["rank"].as_u64().unwrap()).collect();
    ranks.sort_unstable();
    assert_eq!(ranks, [0, 1, 2, 3]);
    for process in processes {
        assert_eq!(process["is_main_of_rank"], true);
        let main =
            process["threads"].as_array().unwrap().iter().find(|thread| thread["tid"] == process["pid"]);
        let expect = if process["rank"] == 2 { "load" } else { "all_reduce" };
        assert!(functions(main.unwrap()).contains(&expect), "{process:#}");
    }
    let pids = |dump: &Value| -> Vec<Value> {
        dump["processes"].as_array().unwrap().iter().map(|process| process["pid"].clone()).collect()
    };
    assert_eq!(pids(&dump(&processes[1]["pid"].to_string(), &[])), pids(&whole));
}

#[test]
fn a_process_without_a_rank_says_how_ranks_are_found() {
    if !can_capture() {
        return;
    }
    let busy = Busy::shell("while :; do sleep 0.01; done");
    let said = expect_code(2, &["dump", "--pid", &busy.pid(), "--all-ranks"]);
    assert!(said.contains("has no rank") && said.contains("torchrun, mpirun or srun"), "{said}");
}

#[test]
fn the_page_on_a_late_rank_is_true() {
    if !can_capture() {
        return;
    }
    let job = python("ranks.py", &["2"]);
    Reader { folder: Some(job.folder.path()), pid: job.pid(), ..Reader::default() }
        .follows("rank-is-late.md");
}

#[test]
fn the_page_on_jobs_that_hang_is_true() {
    if !can_capture() {
        return;
    }
    let waiting = python("hanging.py", &[]);
    let folder = waiting.folder.path();
    Reader { folder: Some(folder), pid: waiting.pid(), ..Reader::default() }.follows("hang.md");
}
