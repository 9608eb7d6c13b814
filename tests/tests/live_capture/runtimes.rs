//! Runtimes that switch stacks by hand, or have code without unwind rows: their stacks are complete, too.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use deepctx_common::end::{PythonEnd, WalkEnd};

use crate::support::{
    Names, PythonNames, Sample, Target, can_capture, capture_samples, capture_until, compile, has_program,
    options, workload,
};

/// Samples per program.
const SAMPLES: usize = 1000;

/// Samples the program when it is ready; `at_most` of a thousand stacks may be incomplete.
/// Returns the functions of each stack, leaf first.
pub(crate) fn check(input: &str, command: &mut Command, at_most: usize, within: &[&str]) -> Vec<Vec<String>> {
    let mut target = Target::start(command);
    target.line();
    check_running(input, &target, at_most, within)
}

/// The same for a program that is ready.
pub(crate) fn check_running(
    input: &str,
    target: &Target,
    at_most: usize,
    within: &[&str],
) -> Vec<Vec<String>> {
    check_process(input, target.pid(), at_most, within)
}

/// The same for a process of a program.
pub(crate) fn check_process(input: &str, pid: u32, at_most: usize, within: &[&str]) -> Vec<Vec<String>> {
    let captured = capture_samples(options(pid, 997), SAMPLES);
    let mut ends: BTreeMap<&str, (usize, Vec<String>)> = BTreeMap::new();
    let mut names = Names::of(pid);
    let mut stacks = Vec::new();
    for sample in captured.of(pid) {
        let functions = names.functions(sample);
        let end = sample.native_end();
        if end != WalkEnd::Complete {
            let (count, example) = ends.entry(end.key()).or_default();
            *count += 1;
            example.clone_from(&functions);
        }
        stacks.push(functions);
    }
    let incomplete: usize = ends.values().map(|(count, _)| count).sum();
    let all = stacks.len();
    assert!(
        incomplete * 1000 <= all * at_most,
        "{input}: {incomplete} of {all} stacks are incomplete: {ends:#?}"
    );
    for function in within {
        let is_found = stacks.iter().flatten().any(|name| name.contains(function));
        assert!(is_found, "{input}: no stack has {function}");
    }
    stacks
}

#[test]
fn stacks_through_builtins_of_v8_are_whole() {
    if !can_capture() || !has_program("node") {
        return;
    }
    check("Node.js", Command::new("node").arg(workload("builtins.js")), 1, &["node::Start"]);

    // It writes a map of its compiled code, and a log to its working folder.
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("node");
    command.arg("--perf-basic-prof").arg(workload("builtins.js")).current_dir(folder.path());
    let mut target = Target::start(&mut command);
    let _map = tempfile::TempPath::try_from_path(format!("/tmp/perf-{}.map", target.pid())).unwrap();
    target.line();
    check_running("Node.js with a map", &target, 1, &["node::Start", "JS:*descend"]);
}

/// Name of a function that V8 interprets.
const INTERPRETED: &str = "[interpreted JavaScript]";
/// Frames of the workload's recursion, including its end.
const JAVASCRIPT_FRAMES: usize = 21;

#[test]
fn each_interpreted_function_of_javascript_is_a_labelled_frame() {
    if !can_capture() || !has_program("node") {
        return;
    }
    let mut command = Command::new("node");
    // Nothing is compiled, so all JavaScript functions are interpreted.
    command.args(["--no-opt", "--no-sparkplug"]).arg(workload("builtins.js"));
    let stacks = check("Node.js, interpreted", &mut command, 1, &["node::Start"]);
    let frames = |stack: &Vec<String>| stack.iter().filter(|name| *name == INTERPRETED).count();
    let deep = stacks.iter().filter(|stack| frames(stack) > JAVASCRIPT_FRAMES).count();
    // `turn` calls `descend` and similarly expensive functions; the rest of the time is V8's own.
    assert!(
        deep * 20 > stacks.len(),
        "{deep} of {}: {:?}",
        stacks.len(),
        stacks.iter().max_by_key(|s| frames(s))
    );
}

/// Programs installed by `cargo xtask test live`.
pub(crate) fn installed(variable: &str) -> Vec<PathBuf> {
    let programs = std::env::var_os(variable).unwrap_or_default();
    if programs.is_empty() {
        assert!(std::env::var_os("CI").is_none(), "this test needs {variable}");
        eprintln!("skipped: this test needs {variable}: `cargo xtask test live`");
        return Vec::new();
    }
    if can_capture() { std::env::split_paths(&programs).collect() } else { Vec::new() }
}

/// The function in which a greenlet starts, and the one that overwrites its own stack with the contents of the greenlet
/// that continues.
pub(crate) struct Greenlet {
    pub(crate) begins: &'static str,
    copies: &'static str,
}

/// From 2.0 on, in C++.
pub(crate) const GREENLET: Greenlet = Greenlet { begins: "inner_bootstrap", copies: "copy_heap_to_stack" };
/// Up to 1.x, in C.
const GREENLET_C: Greenlet = Greenlet { begins: "g_initialstub", copies: "slp_restore_state" };

/// Expects this function to be the outermost of each stack that it is in. Returns the number of these stacks.
pub(crate) fn end_where_they_begin(input: &str, stacks: &[Vec<String>], begins: &str) -> usize {
    let mut ended = 0;
    for stack in stacks.iter().filter(|stack| stack.iter().any(|name| name.contains(begins))) {
        let outermost = stack.last().unwrap();
        assert!(outermost.contains(begins), "{input}: {stack:?}");
        ended += 1;
    }
    ended
}

#[test]
fn stacks_of_greenlets_end_where_these_begin() {
    for python in installed("TEST_GREENLET_PYTHONS") {
        let input = python.display().to_string();
        let greenlet = if input.contains("greenlet-1/") { GREENLET_C } else { GREENLET };
        let workload = workload("greenlets.py");
        let stacks = check(&input, Command::new(&python).arg(&workload), 1, &[greenlet.begins]);
        end_where_they_begin(&input, &stacks, greenlet.begins);
        let mut switching = Command::new(&python);
        switching.arg(&workload).arg("switches");
        let stacks = check(&format!("{input} switches"), &mut switching, 1, &[greenlet.copies]);
        // Outer frames belong to another greenlet meanwhile, or to half of each.
        for stack in stacks.iter().filter(|stack| stack.iter().any(|name| name.contains(greenlet.copies))) {
            assert_eq!(stack.last().map(String::as_str), Some("slp_switch"), "{input}: {stack:?}");
        }
    }
}

/// Frames of the workload's recursion, including its end.
const NUMBA_FRAMES: usize = 11;
/// Consecutive samples that must be complete.
const WHOLE: usize = 500;

#[test]
fn stacks_through_code_of_numba_are_whole() {
    for python in installed("TEST_NUMBA_PYTHON") {
        let mut target = Target::start(Command::new(&python).arg(workload("numba_compiled.py")));
        target.line();
        check_running("numba", &target, 1, &["__main__.hot", "__main__.descend"]);

        // Code compiled during a capture gets its rows, too.
        let pid = target.pid();
        let mut compiled_ns = None;
        let captured = capture_until(options(pid, 997), |captured| {
            let Some(compiled_ns) = compiled_ns else {
                if captured.of(pid).count() > 0 {
                    target.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
                    compiled_ns = target.line().trim().strip_prefix("late ").unwrap().parse::<u64>().ok();
                }
                return false;
            };
            // Earlier ones do not count; some of them are only read now.
            let last = captured.samples.iter().rev().take(WHOLE);
            let is_whole =
                |s: &&Sample| s.fixed.header.time_ns > compiled_ns && s.native_end() == WalkEnd::Complete;
            last.filter(is_whole).count() == WHOLE
        });
        let mut names = Names::of(pid);
        let mut is_late = |sample: &Sample| {
            names.functions(sample).iter().filter(|name| *name == "__main__.late").count() == NUMBA_FRAMES
        };
        let mut python = PythonNames::of(pid);
        let mut late = 0;
        for sample in captured.samples.iter().rev().take(WHOLE).filter(|sample| is_late(sample)) {
            if sample.python_end() == PythonEnd::Complete {
                assert_eq!(python.functions(sample), ["<module>"], "numba");
            }
            late += 1;
        }
        assert!(late * 10 > WHOLE * 9, "{late} of {WHOLE} samples are whole, of {}", captured.samples.len());
    }
}

/// Compiles the workload and its library, as a `cc` with lazy binding does.
fn compile_lazy(folder: &Path) -> PathBuf {
    let program = folder.join("program");
    let library = ["-shared", "-fPIC", "-DLIBRARY", "-o", "libmany.so"];
    for arguments in [&library[..], &["-Wl,-z,lazy", "-Wl,-rpath,$ORIGIN", "-o", "program"]] {
        let mut compiler = Command::new("gcc");
        compiler.args(["-O2", "-fomit-frame-pointer"]).args(arguments).arg(workload("lazy_binding.c"));
        if arguments != library {
            compiler.args(["-L.", "-lmany"]);
        }
        let status = compiler.current_dir(folder).status().unwrap();
        assert!(status.success(), "the workload does not compile with {arguments:?}");
    }
    program
}

#[test]
fn stacks_of_functions_that_are_being_bound_are_whole() {
    if !can_capture() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(compile_lazy(folder.path()));
    let stacks = check("lazy binding", &mut command, 1, &["main"]);
    // `call_all` calls the resolver in the linker, which calls the symbol lookup.
    let depth = |stack: &Vec<String>| stack.iter().position(|name| name == "call_all");
    let binding = stacks.iter().filter(|stack| depth(stack) >= Some(2)).count();
    assert!(binding * 20 > stacks.len(), "{binding} of {}: {:?}", stacks.len(), stacks.first());
}

/// Functions of GCC's runtime that end by installing the registers of the catching frame.
const INSTALLING: [&str; 2] = ["_Unwind_RaiseException", "_Unwind_Resume"];

#[test]
fn stacks_of_thrown_exceptions_lead_to_who_catches() {
    if !can_capture() {
        return;
    }
    let check = |argument: &str| {
        let (_folder, program) = compile(&workload("exceptions.cpp"), &[argument]);
        let mut target = Target::start(&mut Command::new(program));
        target.line();
        let pid = target.pid();
        let captured = capture_samples(options(pid, 3989), 6 * SAMPLES);
        let mut names = Names::of(pid);
        let (mut whole, mut ended) = (0, 0);
        for sample in captured.of(pid) {
            let functions = names.functions(sample);
            let is_installing =
                |at: usize| functions.get(at).is_some_and(|name| INSTALLING.contains(&name.as_str()));
            if sample.native_end() == WalkEnd::Complete {
                // The function that overwrites the stack has no symbol.
                if is_installing(1) && functions[0] == "?" {
                    assert!(functions.iter().any(|name| name == "catcher"), "{argument}: {functions:?}");
                    whole += 1;
                }
            } else {
                // Its caller's last instructions, when a handler has replaced a return address.
                assert!(is_installing(0), "{argument}: {:?} {functions:?}", sample.native_end());
                ended += 1;
            }
        }
        let all = captured.of(pid).count();
        assert!(whole > 0, "{argument}: no sample while registers are installed");
        assert!(ended * 1000 <= all, "{argument}: {ended} of {all} stacks are incomplete");
    };
    check("-fomit-frame-pointer");
    check("-fno-omit-frame-pointer");
}
