//! Captures of real processes by the program as a user runs it. Needs root and BPF.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cli_support;
mod documented;

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use cli_support::recording::{Recording, RecordingOutcome, record_until};
use cli_support::{Busy, can_capture, expect_code, program, stderr};
use deepctx_profile::ledger::CheckTime;
use documented::Reader;

fn folded(profile: impl AsRef<Path>) -> String {
    cli_support::folded(profile.as_ref().to_str().unwrap(), "samples", &[])
}

/// A running capture with samples on disk.
fn recording(pid: &str) -> Recording {
    let recording = Recording::start(pid, &["--flush", "200ms"]);
    recording.wait_until(|file| !folded(file).is_empty());
    recording
}

#[test]
fn a_busy_process_is_recorded_by_pid() {
    if !can_capture() {
        return;
    }
    let busy = Busy::start();
    let (_folder, file) = recording(&busy.pid()).end();
    let stacks = folded(file);
    assert!(stacks.lines().all(|line| line.starts_with(&format!("sh-{}", busy.pid()))), "{stacks}");
}

#[test]
fn command_is_recorded_with_children_and_its_exit_code_returned() {
    if !can_capture() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("run.dctx");
    let script = "sh -c 'i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done'; exit 7";
    expect_code(7, &["record", "-o", output.to_str().unwrap(), "--", "sh", "-c", script]);
    assert!(folded(&output).contains("sh-"), "{}", folded(&output));
}

#[test]
fn a_command_that_outlives_the_duration_is_waited_for() {
    if !can_capture() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut record = program();
    record.args(["record", "-d", "200ms", "-o", folder.path().join("run.dctx").to_str().unwrap()]);
    record.args(["--", "sh", "-c", "read line; exit 7"]);
    let mut record = record.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(record.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(said.any(|line| line.contains("the capture has ended, the command has not")));
    record.stdin.take().unwrap().write_all(b"\n").unwrap();
    said.for_each(drop);
    assert_eq!(record.wait().unwrap().code(), Some(7));
}

#[test]
fn a_command_that_cannot_start_leaves_no_profile() {
    if !can_capture() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("run.dctx");
    let said = expect_code(2, &["record", "-o", output.to_str().unwrap(), "--", "no-such-program-here"]);
    assert!(said.contains("command not found: no-such-program-here"), "{said}");
    assert!(!output.exists());
}

#[test]
fn repeated_interrupts_end_a_capture_cleanly_and_keep_its_data() {
    if !can_capture() {
        return;
    }
    for (name, times) in [("INT", 1), ("INT", 2), ("TERM", 1)] {
        let busy = Busy::start();
        let mut recording = recording(&busy.pid());
        for _ in 0..times {
            recording.signal(name);
        }
        let RecordingOutcome { status, said } = recording.ended();
        assert_eq!(status.code(), Some(0), "{name}: {said}");
        assert!(said.contains("; Ctrl-C stops") && said.contains("samples in"), "{said}");
        let manifest = fs::read_to_string(Path::new(&recording.file()).join("manifest.json")).unwrap();
        let manifest: serde_json::Value = serde_json::from_str(&manifest).unwrap();
        assert_eq!(manifest["complete"], true);
        assert!(!folded(recording.file()).is_empty());
    }
}

#[test]
fn what_was_flushed_survives_a_kill() {
    if !can_capture() {
        return;
    }
    let busy = Busy::start();
    let mut recording = recording(&busy.pid());
    recording.signal("KILL");
    recording.ended();
    assert!(!folded(recording.file()).is_empty());
    let report = program().args(["report", &recording.file()]).output().unwrap();
    assert!(stderr(&report).contains("did not end well"), "{}", stderr(&report));
}

#[test]
fn a_thread_that_stops_early_ends_the_capture() {
    if !can_capture() {
        return;
    }
    let busy = Busy::start();
    for thread in ["scan", "reader", "drain", "probes", "system"] {
        // Nothing else ends it.
        let mut program = program();
        let defective = program.env("DEEPCTX_TEST_DEFECT", thread);
        let mut recording = Recording::by(defective, &["--pid", &busy.pid()]);
        let RecordingOutcome { status, said } = recording.ended();
        assert_eq!(status.code(), Some(2), "{thread}: {said}");
        assert!(said.contains(&format!("\"{thread}\" stopped because of a defect")), "{said}");
        // Its data is complete, and what is missing is counted.
        folded(recording.file());
        let profile = deepctx_storage::open(recording.file()).unwrap().profile;
        let checked = profile.ledger.check(CheckTime::Finished);
        checked.unwrap_or_else(|error| panic!("{thread}: {error}"));
    }
}

#[test]
fn a_file_that_cannot_be_searched_costs_its_probes() {
    if !can_capture() {
        return;
    }
    let busy = Busy::start();
    let mut program = program();
    let mut recording = Recording::by(program.env("DEEPCTX_TEST_DEFECT", "search"), &["--pid", &busy.pid()]);
    recording.wait_until(|file| !folded(file).is_empty());
    let RecordingOutcome { status, said } = recording.interrupted();
    assert_eq!(status.code(), Some(0), "{said}");
    assert!(said.contains("have no probes because of a defect"), "{said}");
}

#[test]
fn a_trace_writer_that_stops_is_reported() {
    if !can_capture() {
        return;
    }
    let busy = Busy::start();
    let options = ["--pid", &busy.pid(), "--trace", "1s"];
    let mut recording = Recording::by(program().env("DEEPCTX_TEST_DEFECT", "trace"), &options);
    recording.wait_until(|file| !folded(file).is_empty());
    let RecordingOutcome { status, said } = recording.interrupted();
    assert_eq!(status.code(), Some(2), "{said}");
    assert!(said.contains("\"trace\" stopped because of a defect"), "{said}");
    // The capture's own data is complete.
    assert!(!folded(recording.file()).is_empty());
}

#[test]
fn a_capture_ends_with_the_last_process_that_was_named() {
    if !can_capture() {
        return;
    }
    let busy = Busy::start();
    let mut recording = recording(&busy.pid());
    drop(busy);
    let RecordingOutcome { status, said } = recording.ended();
    assert_eq!(status.code(), Some(0), "{said}");
}

#[test]
fn two_captures_at_once_do_not_disturb_each_other() {
    if !can_capture() {
        return;
    }
    let busy = Busy::start();
    let both = [(); 2].map(|()| recording(&busy.pid()));
    for (_folder, file) in both.map(Recording::end) {
        assert!(!folded(file).is_empty());
    }
}

#[test]
fn a_still_picture_of_a_busy_process_is_printed() {
    if !can_capture() {
        return;
    }
    let busy = Busy::start();
    let picture = expect_code(0, &["--pid", &busy.pid(), "--once", "--duration", "1s"]);
    assert!(picture.contains(&format!("(pid {})", busy.pid())), "{picture}");
}

#[test]
fn a_raw_copy_is_replayed_to_the_same_stacks() {
    if !can_capture() {
        return;
    }
    let (folder, busy) = (tempfile::tempdir().unwrap(), Busy::start());
    let raw = folder.path().join("run.raw");
    let raw = raw.to_str().unwrap();
    let is_enough = |file: &str| !folded(file).is_empty();
    let (_folder, recorded) = record_until(&busy.pid(), &["--raw", raw], is_enough);
    let replayed = folder.path().join("replayed.dctx");
    expect_code(0, &["replay-raw", raw, "-o", replayed.to_str().unwrap()]);
    assert_eq!(folded(&replayed), folded(recorded));
}

const TWO_FUNCTIONS: &str = "volatile unsigned long sink;
    __attribute__((noinline)) void first(void) { for (int i = 0; i < 1000; i++) sink += i; }
    __attribute__((noinline)) void second(void) { for (int i = 0; i < 1000; i++) sink *= 3; }
    int main(void) { for (;;) first(), second(); }";

#[test]
fn a_stripped_program_has_one_row_for_each_function() {
    if !can_capture() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (source, binary) = (folder.path().join("two.c"), folder.path().join("two"));
    fs::write(&source, TWO_FUNCTIONS).unwrap();
    assert!(Command::new("cc").arg("-O2").arg("-o").args([&binary, &source]).status().unwrap().success());
    let symbols = Command::new("nm").arg(&binary).output().unwrap();
    let symbols = String::from_utf8(symbols.stdout).unwrap();
    let row = |function: &str| {
        let line = symbols.lines().find(|line| line.ends_with(&format!(" {function}"))).unwrap();
        format!("two+{:#x}", u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap())
    };
    let expect = BTreeSet::from(["_start", "main", "first", "second"].map(row));
    assert!(Command::new("strip").arg(&binary).status().unwrap().success());

    let busy = Busy::of(&mut Command::new(&binary));
    let recording = Recording::start(&busy.pid(), &["--flush", "200ms"]);
    let count = |line: &str| line.rsplit_once(' ').map_or(0, |(_, count)| count.parse::<u64>().unwrap());
    recording.wait_until(|file| folded(file).lines().map(count).sum::<u64>() > 200);
    let (_folder, file) = recording.end();
    let stacks = folded(file);
    let frames = stacks.lines().flat_map(|line| line.rsplit_once(' ').unwrap_or_default().0.split(';'));
    let rows: BTreeSet<_> = frames.filter(|frame| frame.starts_with("two+")).map(str::to_owned).collect();
    assert_eq!(rows, expect, "{stacks}");
}

#[test]
fn off_cpu_time_is_recorded_with_stack_and_reason() {
    if !can_capture() {
        return;
    }
    let sleeper = Busy::shell("while :; do sleep 0.01; done");
    let waits = |file: &str| cli_support::folded(file, "off-cpu-time", &[]);
    let (_folder, file) = record_until(&sleeper.pid(), &["--off-cpu"], |file| {
        let stacks = waits(file);
        let has = |is_it: fn(&str) -> bool, reason: &str| {
            stacks.lines().any(|line| is_it(line) && line.contains(reason))
        };
        // The shell waits for its child, which is followed and sleeps.
        has(|line| line.starts_with("sh-"), "[off-cpu: child]")
            && has(|line| line.contains("nanosleep"), "[off-cpu: sleep]")
    });
    drop(sleeper);
    let stacks = waits(&file);
    assert!(!stacks.contains("bpf_prog_"), "our own program is no part of a wait: {stacks}");
}

/// The rows of the machine in a report.
fn system_rows(profile: &str) -> Vec<serde_json::Value> {
    let report = expect_code(0, &["report", profile, "--format", "json", "--limit", "10000"]);
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    report["system"].as_array().unwrap().clone()
}

#[test]
fn what_the_machine_does_is_recorded_beside_a_busy_process() {
    if !can_capture() {
        return;
    }
    let busy = Busy::start();
    let of = |rows: &[serde_json::Value], figure: &str| -> Vec<serde_json::Value> {
        rows.iter().filter(|row| row["figure"] == figure).cloned().collect()
    };
    let cpus = std::thread::available_parallelism().unwrap().get();
    let busy_cpus = |rows: &[serde_json::Value]| -> Vec<f64> {
        let single = |row: &serde_json::Value| row["resource"].as_str().unwrap().starts_with("cpu ");
        let rows = of(rows, "cpu-busy-time").into_iter().filter(single);
        rows.filter_map(|row| row["mean"].as_f64()).collect()
    };
    let (_folder, file) = record_until(&busy.pid(), &["--system-metrics", "200ms"], |file| {
        let rows = system_rows(file);
        busy_cpus(&rows).len() >= cpus && !of(&rows, "memory-used-bytes").is_empty()
    });
    let rows = system_rows(&file);
    let busy_cpus = busy_cpus(&rows);
    // One process is always busy; how much CPU time a virtual machine gets is outside of our control.
    assert!(busy_cpus.iter().sum::<f64>() > 40.0, "{busy_cpus:?}");
    let memory = of(&rows, "memory-used-bytes");
    let memory = memory.iter().find(|row| row["resource"] == "machine").unwrap();
    assert!(memory["unit"] == "bytes" && memory["mean"].as_f64().unwrap() > 1e6, "{memory}");

    let options = ["--system-metrics", "off"];
    let (_folder, without) = record_until(&busy.pid(), &options, |file| !folded(file).is_empty());
    assert!(system_rows(&without).is_empty());
}

#[test]
fn cycles_are_counted_or_reported_as_unavailable() {
    if !can_capture() {
        return;
    }
    let (folder, busy) = (tempfile::tempdir().unwrap(), Busy::start());
    let output = folder.path().join("run.dctx");
    let arguments = [
        "record",
        "--pid",
        &busy.pid(),
        "--event",
        "cycles",
        "--duration",
        "1s",
        "-o",
        output.to_str().unwrap(),
    ];
    let outcome = cli_support::run(&arguments);
    if outcome.status.success() {
        let report = expect_code(0, &["report", output.to_str().unwrap()]);
        assert!(report.starts_with("cycles of "), "{report}");
    } else {
        assert_eq!(outcome.status.code(), Some(2));
        let message = stderr(&outcome);
        assert!(message.contains("cannot open a sampling event"), "{message}");
        assert!(message.contains("hint: this machine counts no cycles"), "{message}");
        assert!(!output.exists(), "nothing is left behind");
    }
}

#[test]
fn the_demo_records_its_example_and_ends_it() {
    if !can_capture() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // Of an earlier run: it stays.
    fs::create_dir(folder.path().join("demo.dctx")).unwrap();
    let output = folder.path().join("demo-2.dctx");
    let mut demo = program();
    demo.current_dir(folder.path()).args(["demo", "--print", "2s"]).stdin(Stdio::null());
    let demo = demo.output().unwrap();
    let (said, report) =
        (String::from_utf8_lossy(&demo.stderr), String::from_utf8_lossy(&demo.stdout).into_owned());
    assert!(demo.status.success(), "{said}");
    assert!(report.contains("training.py:") && said.contains("$ deepctx-bpf report "), "{said}\n{report}");
    let stacks = folded(&output);
    assert!(stacks.contains("training.py:train_step"), "{stacks}");
    let pid = said.split("runs as process ").nth(1).and_then(|rest| rest.lines().next()).unwrap();
    assert!(!Path::new("/proc").join(pid).exists(), "{pid} is still there");
}

/// A program in a cgroup with a Docker-style name and in separate namespaces; killed on drop.
struct ContainedProgram {
    cgroup: PathBuf,
    child: Child,
}

impl ContainedProgram {
    /// `None` without a writable cgroup v2.
    fn start(id: &str) -> Option<Self> {
        let roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(Path::new);
        let root = roots.into_iter().find(|root| root.join("cgroup.controllers").exists())?;
        let cgroup = root.join(format!("docker-{id}.scope"));
        fs::create_dir(&cgroup).ok()?;
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads/serve.py");
        let script = "echo $$ > \"$0\"; exec unshare --pid --mount --fork --mount-proc python3 \"$1\"";
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).args([cgroup.join("cgroup.procs"), program]).stdout(Stdio::piped());
        let mut contained = Self { cgroup, child: shell.spawn().unwrap() };
        let mut line = String::new();
        BufReader::new(contained.child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Some(contained)
    }
}

impl Drop for ContainedProgram {
    fn drop(&mut self) {
        let _ = fs::write(self.cgroup.join("cgroup.kill"), "1");
        let _ = self.child.wait();
        // The folder can be removed once the last process has ended; if it stays, it is empty.
        let _ = (0..500).find(|_| {
            sleep(Duration::from_millis(20));
            fs::remove_dir(&self.cgroup).is_ok()
        });
    }
}

#[test]
fn doctor_fix_runs_what_was_answered_with_yes() {
    if !can_capture() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let rate = folder.path().join("rate");
    let rate = rate.to_str().unwrap();
    // A kernel parameter in one mount namespace: the machine's own is unchanged.
    let script = "mount --bind \"$0\" /proc/sys/kernel/perf_event_max_sample_rate && exec \"$@\"";
    let doctor = |answer: &str| {
        fs::write(rate, "50\n").unwrap();
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script, rate]).arg(cli_support::binary());
        command.args(["doctor", "--fix"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(answer.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let said = stderr(&output);
        let offer = "$ sudo sysctl kernel.perf_event_max_sample_rate=10000\nrun it? [y/N] ";
        assert!(said.contains(offer), "{said}");
        let row = cli_support::stdout(&output)
            .lines()
            .find(|row| row.contains("sampling rate"))
            .unwrap()
            .to_owned();
        (row, output.status.code(), fs::read_to_string(rate).unwrap().trim().to_owned())
    };
    let (row, code, left) = doctor("n\n");
    assert!(row.starts_with("MISSING") && row.ends_with(" 50 Hz"), "{row}");
    assert_eq!((code, &*left), (Some(2), "50"));
    let (row, code, left) = doctor("y\n");
    assert!(row.starts_with("ok") && row.ends_with(" 10000 Hz"), "{row}");
    assert_eq!((code, &*left), (Some(0), "10000"));
}

#[test]
fn the_page_on_containers_is_true() {
    if !can_capture() {
        return;
    }
    let id = format!("{:012x}", u64::from(std::process::id()) << 16 | 0xc0de);
    let Some(_container) = ContainedProgram::start(&format!("{id:0<64}")) else {
        assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "no cgroup v2 can be made");
        println!("skipped: no cgroup v2 can be made");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let instead = [("4c01db0b339c", &*id)];
    let reader = Reader { folder: Some(folder.path()), instead: &instead, ..Reader::default() };
    reader.follows("profile-a-container.md");
}

#[test]
fn a_recording_without_a_name_takes_a_free_one() {
    if !can_capture() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("run.dctx")).unwrap();
    let record = |words: &[&str]| {
        let mut command = program();
        let output = command.current_dir(folder.path()).arg("record").args(words).output().unwrap();
        (output.status.code(), stderr(&output))
    };
    let (code, said) = record(&["--comm", "no-such-program"]);
    assert!(code == Some(2) && said.contains("no process is named"), "{said}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    let (code, said) = record(&["--", "true"]);
    assert!(code == Some(0) && said.contains("run-2.dctx: "), "{said}");
    assert!(folder.path().join("run-2.dctx/manifest.json").exists(), "{said}");
}
