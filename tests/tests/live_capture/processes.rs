//! Processes that start, change and end while they are sampled.

use std::collections::BTreeSet;
use std::process::Command;

use deepctx_common::end::WalkEnd;
use deepctx_common::record::kind;

use crate::cli_support::signal;
use crate::support::{Target, can_capture, capture_until, compile, has_program, options, workload};

#[test]
fn children_are_followed_through_fork_and_exec() {
    if !can_capture() || !has_program("g++") {
        return;
    }
    let (_folder, program) = compile(&workload("deep_native.cpp"), &[]);
    let script = format!("read go; {} 20 1 0; exit 0", program.display());
    let mut target = Target::start(Command::new("sh").args(["-c", &script]));
    let pid = target.pid();
    let mut stdin = target.child.stdin.take();
    let mut is_killed = false;
    let captured = capture_until(options(pid, 199), |c| {
        if let Some(mut pipe) = stdin.take() {
            std::io::Write::write_all(&mut pipe, b"go\n").unwrap();
        }
        let child = c.events.iter().find(|e| e.header.kind == kind::FORK && e.parent == pid);
        // It runs until there are enough samples.
        if let Some(child) = child.filter(|child| !is_killed && c.of(child.pid).count() > 500) {
            signal(&child.pid.to_string(), "TERM");
            is_killed = true;
        }
        c.events.iter().any(|e| e.header.kind == kind::EXIT && e.pid == pid)
    });
    let of_kind =
        |wanted| captured.events.iter().filter(move |e| e.header.kind == wanted).collect::<Vec<_>>();
    let forked = of_kind(kind::FORK);
    let child = forked.iter().find(|e| e.parent == pid).expect("the shell's child was seen").pid;
    assert!(of_kind(kind::EXEC).iter().any(|e| e.pid == child), "{:?}", captured.events);
    assert!(of_kind(kind::EXIT).iter().any(|e| e.pid == child), "{:?}", captured.events);
    let samples: Vec<_> = captured.of(child).collect();
    let complete = samples.iter().filter(|s| s.native_end() == WalkEnd::Complete).count();
    // Until the new program's mappings have been read, its samples are incomplete and marked.
    assert!(complete * 10 >= samples.len() * 9, "{complete} of {}", samples.len());
    let replaced_ns = of_kind(kind::EXEC).iter().find(|e| e.pid == child).expect("seen").header.time_ns;
    for sample in &samples {
        let end = sample.native_end();
        // While the kernel replaces the program, the registers are those of the old one.
        let is_being_replaced = sample.fixed.header.time_ns < replaced_ns;
        assert!(
            is_being_replaced
                || matches!(
                    end,
                    WalkEnd::Complete
                        | WalkEnd::UnknownProcess
                        | WalkEnd::NoMapping
                        | WalkEnd::NoTable
                        // Binding a function at its first call: the dynamic linker keeps its frame in `rbx`.
                        | WalkEnd::RegisterUnknown
                        // A thread that exits first frees its memory.
                        | WalkEnd::NoUserStack
                ),
            "{end:?} at {} ns, replaced at {replaced_ns} ns: {sample:x?}",
            sample.fixed.header.time_ns
        );
    }
}

#[test]
fn children_are_left_alone_when_they_are_not_wanted() {
    if !can_capture() {
        return;
    }
    let mut target = Target::start(
        Command::new("sh")
            .args(["-c", "read go; sh -c 'i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done'; exit 0"]),
    );
    let pid = target.pid();
    let mut stdin = target.child.stdin.take();
    let options = deepctx_capture::CaptureConfig { follow_children: false, ..options(pid, 999) };
    let captured = capture_until(options, |c| {
        if let Some(mut pipe) = stdin.take() {
            std::io::Write::write_all(&mut pipe, b"go\n").unwrap();
        }
        c.events.iter().any(|e| e.header.kind == kind::EXIT && e.pid == pid)
    });
    assert!(captured.samples.iter().all(|s| s.fixed.pid == pid));
    assert!(captured.events.iter().all(|e| e.header.kind != kind::FORK));
}

#[test]
fn a_target_that_is_killed_ends_the_capture_without_harm() {
    if !can_capture() {
        return;
    }
    let mut target = Target::start(Command::new("sh").args(["-c", "while :; do :; done"]));
    let pid = target.pid();
    let mut child = Some(&mut target.child);
    let captured = capture_until(options(pid, 499), |c| {
        if c.of(pid).count() >= 20
            && let Some(child) = child.take()
        {
            child.kill().unwrap();
        }
        c.events.iter().any(|e| e.header.kind == kind::EXIT && e.pid == pid)
    });
    assert!(captured.of(pid).count() >= 20);
    assert!(captured.events.iter().any(|e| e.header.kind == kind::EXIT && e.pid == pid));
}

/// A child of the target forks one process after another, until the capture has begun and for a hundred more; all end
/// together.
const FORKS_WHILE_CAPTURE_BEGINS: &str = "
import os, select, time
end, hold = os.pipe()
if os.fork() == 0:
    print('forking', flush=True)
    pids, more = [], 100
    while more:
        more -= more < 100 or bool(select.select([0], [], [], 0)[0])
        pid = os.fork()
        if pid == 0:
            os.close(hold)
            os.read(end, 1)
            os._exit(0)
        pids.append(pid)
        time.sleep(0.004)
    print(*pids, flush=True)
    os.close(hold)
    for pid in pids:
        os.waitpid(pid, 0)
    os._exit(0)
os.close(hold)
os.wait()
";

#[test]
fn grandchildren_forked_while_the_capture_begins_are_all_followed() {
    if !can_capture() || !has_program("python3") {
        return;
    }
    let mut target = Target::start(Command::new("python3").args(["-c", FORKS_WHILE_CAPTURE_BEGINS]));
    let pid = target.pid();
    assert_eq!(target.line(), "forking\n");
    let mut stdin = target.child.stdin.take();
    let captured = capture_until(options(pid, 49), |c| {
        if let Some(mut pipe) = stdin.take() {
            std::io::Write::write_all(&mut pipe, b"begun\n").unwrap();
        }
        c.events.iter().any(|e| e.header.kind == kind::EXIT && e.pid == pid)
    });
    let forked = target.line();
    let forked: BTreeSet<u32> = forked.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
    let ended = captured.events.iter().filter(|e| e.header.kind == kind::EXIT).map(|e| e.pid).collect();
    let missing: Vec<_> = forked.difference(&ended).collect();
    assert!(forked.len() > 100 && missing.is_empty(), "not followed: {missing:?} of {}", forked.len());
}
