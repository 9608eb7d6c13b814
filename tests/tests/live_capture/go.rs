//! Go changes stacks all the time: for the clock, for the heap, and for C.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::runtimes::{check, installed};
use crate::support::{can_capture, has_program, workload};

/// Compiles a Go workload offline. The standard library is compiled once.
fn compile_go(go: &Path, folder: &Path, source: &str, arguments: &[&str]) -> PathBuf {
    let program = folder.join("program");
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("go-cache");
    let status = Command::new(go)
        .args(["build", "-o"])
        .arg(&program)
        .args(arguments)
        .arg(workload(source))
        .envs([("GOFLAGS", "-mod=mod"), ("GOTOOLCHAIN", "local"), ("GOPROXY", "off"), ("CGO_ENABLED", "1")])
        .env("GOCACHE", cache)
        .current_dir(folder)
        .status()
        .unwrap();
    assert!(status.success(), "the Go workload does not compile");
    program
}

/// The system's linker puts tables with relocations among other data, without a symbol.
const EXTERNAL: &str = "-ldflags=-s -w -linkmode=external";
const STRIPPED: &str = "-ldflags=-s -w";

/// The system's Go, whose functions without locals keep no frame pointers, and the current one.
fn compilers() -> Vec<PathBuf> {
    if !can_capture() || !has_program("go") {
        return Vec::new();
    }
    [PathBuf::from("go")].into_iter().chain(installed("TEST_GO")).collect()
}

/// Checks the workload with each compiler and each of these arguments, then its stacks.
fn check_go(
    source: &str,
    arguments: &[&[&str]],
    within: &[&str],
    check_stacks: impl Fn(&str, &[Vec<String>]),
) {
    let folder = tempfile::tempdir().unwrap();
    for go in compilers() {
        for arguments in arguments {
            let program = compile_go(&go, folder.path(), source, arguments);
            let input = format!("{} {source} {arguments:?}", go.display());
            let stacks = check(&input, &mut Command::new(program), 1, within);
            check_stacks(&input, &stacks);
        }
    }
}

fn count(stack: &[String], function: &str) -> usize {
    stack.iter().filter(|name| *name == function).count()
}

fn has(stack: &[String], function: &str) -> bool {
    count(stack, function) > 0
}

#[test]
fn stacks_of_goroutines_are_whole() {
    // The system release's tables contain the text address; those of the current one do not.
    let arguments = [&[][..], &[STRIPPED], &["-buildmode=pie"], &["-buildmode=pie", EXTERNAL]];
    check_go("goroutines.go", &arguments, &["main.descend", "runtime.goexit"], |_, _| ());
}

#[test]
fn clocks_on_the_system_stack_lead_to_their_goroutine() {
    check_go("goroutines_clock.go", &[&[], &[STRIPPED]], &["runtime.nanotime1"], |input, stacks| {
        let mut asked = 0;
        for stack in stacks.iter().filter(|stack| has(stack, "time.Since") || has(stack, "time.now")) {
            let frames = count(stack, "main.descend");
            assert!([0, 21].contains(&frames), "{input}: {stack:?}");
            assert_eq!(stack.last().map(String::as_str), Some("runtime.goexit"), "{input}: {stack:?}");
            asked += usize::from(frames > 0);
        }
        assert!(asked * 2 > stacks.len(), "{input}: {asked} of {} stacks", stacks.len());
    });
}

#[test]
fn the_runtime_on_its_own_stack_leads_to_its_goroutine() {
    check_go("goroutines_heap.go", &[&[], &[STRIPPED]], &["runtime.systemstack"], |input, stacks| {
        let switched: Vec<_> = stacks.iter().filter(|stack| has(stack, "runtime.systemstack")).collect();
        let followed = switched.iter().filter(|stack| count(stack, "main.descend") == 41).count();
        // Before Go 1.21, no frame pointer leads back, and the stack ends there.
        if input.starts_with("go ") {
            assert!(switched.iter().all(|stack| stack.last().unwrap() == "runtime.systemstack"), "{input}");
        } else {
            assert!(followed > 0, "{input}: {:?}", switched.first());
            let is_ended = |stack: &&&Vec<String>| stack.last().unwrap() == "runtime.systemstack";
            assert_eq!(switched.iter().find(is_ended), None, "{input}");
        }
    });
}

/// The runtime runs its own code on a separate stack.
fn is_ended(stack: &[String]) -> bool {
    let outermost = ["runtime.mcall", "runtime.morestack", "runtime.systemstack", "gogo"];
    stack.last().is_some_and(|last| outermost.contains(&last.as_str()))
}

#[test]
fn calls_of_c_from_go_and_back_are_whole() {
    check_go("goroutines_c.go", &[&[], &[STRIPPED]], &["runtime.asmcgocall"], |input, stacks| {
        let frames_in_c = if input.contains("-s -w") { 0 } else { 6 };
        let (mut from_go, mut from_c) = (0, 0);
        for stack in stacks.iter().filter(|stack| has(stack, "main.grow") && !is_ended(stack)) {
            assert_eq!(count(stack, "descendInC"), frames_in_c, "{input}: {stack:?}");
            if has(stack, "start_thread") {
                assert!(!has(stack, "main.descend"), "{input}: {stack:?}");
                from_c += 1;
            } else {
                assert_eq!(count(stack, "runtime.asmcgocall"), 1, "{input}: {stack:?}");
                assert_eq!(count(stack, "main.descend"), 6, "{input}: {stack:?}");
                assert_eq!(stack.last().map(String::as_str), Some("runtime.goexit"), "{input}: {stack:?}");
                from_go += 1;
            }
        }
        assert!(from_go > 0 && from_c > 0, "{input}: {from_go} from Go, {from_c} from C");
    });
}
