//! Native stacks: complete without frame pointers, and the same as a debugger's.

use std::process::Command;

use deepctx_common::end::WalkEnd;

use crate::support::{Names, Target, can_capture, capture_samples, compile, has_program, options, workload};

#[test]
fn stacks_without_frame_pointers_reach_the_start_of_the_thread() {
    if !can_capture() || !has_program("g++") {
        return;
    }
    let (_folder, program) = compile(&workload("deep_native.cpp"), &[]);
    for depth in [1usize, 60, 400] {
        let mut target = Target::start(Command::new(&program).args([depth.to_string().as_str(), "2", "0"]));
        // Until then it loads libraries: samples in a newly mapped one are incomplete and marked.
        target.line();
        let captured = capture_samples(options(target.pid(), 499), 200);
        let mut names = Names::of(target.pid());
        let mut deep = 0;
        for sample in captured.of(target.pid()) {
            assert_eq!(
                sample.native_end(),
                WalkEnd::Complete,
                "{:#x} of {:?}",
                sample.fixed.stop_pc,
                names.functions(sample)
            );
            let functions = names.functions(sample);
            let descends = functions.iter().filter(|f| f.contains("descend")).count();
            assert!(descends <= depth, "{functions:?}");
            deep += usize::from(descends == depth);
        }
        let all = captured.of(target.pid()).count();
        assert!(deep * 100 >= all * 95, "{deep} of {all} samples have all {depth} frames");
    }
}

#[test]
fn a_stack_is_the_one_that_a_debugger_shows() {
    if !can_capture() || !has_program("g++") || !has_program("gdb") {
        return;
    }
    let (_folder, program) = compile(&workload("deep_native.cpp"), &[]);
    let target = Target::start(Command::new(&program).args(["30", "1", "0"]));
    let captured = capture_samples(options(target.pid(), 499), 100);
    let mut names = Names::of(target.pid());
    let mut ours: Vec<Vec<String>> = captured.of(target.pid()).map(|s| names.functions(s)).collect();
    for stack in &mut ours {
        simplify(stack);
    }
    let output = Command::new("gdb")
        .args(["-nx", "-batch", "-p", &target.pid().to_string(), "-ex", "thread apply all bt"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).replace("(anonymous namespace)::", "");
    let mut theirs: Vec<Vec<String>> = Vec::new();
    for line in text.lines() {
        if line.starts_with("Thread ") {
            theirs.push(Vec::new());
        } else if line.starts_with('#')
            && let Some(stack) = theirs.last_mut()
        {
            // `#1  0x… in name (args) at file:line`, `#0  name (args)`
            let rest = line.split_once(" in ").map_or_else(
                || line.trim_start_matches(|c: char| c == '#' || c.is_ascii_digit()).trim(),
                |(_, rest)| rest,
            );
            stack.push(rest.split([' ', '(']).next().unwrap_or_default().to_owned());
        }
    }
    for stack in &mut theirs {
        simplify(stack);
    }
    let worker = theirs.iter().find(|s| s.iter().any(|f| f == "descend")).unwrap_or_else(|| panic!("{text}"));
    assert!(ours.contains(worker), "gdb: {worker:?}\nours: {:?}", ours.first());
}

/// Plain names, without differences between tools: parameters, namespaces, template arguments, the leaf (it moves), and
/// libc's frames below the thread's function (their debug names differ from their exported ones).
fn simplify(stack: &mut Vec<String>) {
    for name in stack.iter_mut() {
        let plain = name.replace("(anonymous namespace)::", "");
        *name = plain
            .split(['(', '<'])
            .next()
            .unwrap_or_default()
            .rsplit("::")
            .next()
            .unwrap_or_default()
            .to_owned();
    }
    let from = stack.iter().position(|f| f == "descend").unwrap_or(0);
    let to = stack.iter().rposition(|f| f == "descend").map_or(stack.len(), |at| at + 1);
    *stack = stack[from..to].to_vec();
}

#[test]
fn a_library_that_is_loaded_later_is_unwound_too() {
    if !can_capture() || !has_program("g++") || !has_program("python3") {
        return;
    }
    let script = "import sys, time\nprint('ready', flush=True)\nsys.stdin.readline()\n\
                  import ctypes, zlib, hashlib\nprint('loaded', flush=True)\n\
                  while True: hashlib.pbkdf2_hmac('sha256', b'a', b'b', 200000)\n";
    let mut target = Target::start(Command::new("python3").args(["-c", script]));
    target.line();
    let pid = target.pid();
    let mut stdin = target.child.stdin.take();
    let captured = crate::support::capture_until(options(pid, 299), |c| {
        // Once sampling runs, let it load; then wait until stacks are complete again.
        if let Some(mut pipe) = stdin.take() {
            std::io::Write::write_all(&mut pipe, b"go\n").unwrap();
        }
        let complete = c.of(pid).rev_complete();
        complete >= 100
    });
    let last: Vec<_> = captured.of(pid).collect();
    let tail = &last[last.len().saturating_sub(50)..];
    assert!(tail.len() == 50, "{} samples", last.len());
    for sample in tail {
        assert_eq!(sample.native_end(), WalkEnd::Complete, "stopped at {:#x}", sample.fixed.stop_pc);
    }
}

trait TrailingComplete {
    /// Number of complete samples at the end.
    fn rev_complete(self) -> usize;
}

impl<'a, I: Iterator<Item = &'a crate::support::Sample>> TrailingComplete for I {
    fn rev_complete(self) -> usize {
        self.fold(0, |run, sample| if sample.native_end() == WalkEnd::Complete { run + 1 } else { 0 })
    }
}
