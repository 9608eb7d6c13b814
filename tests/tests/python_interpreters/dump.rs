//! Dumps of running programs, against the chains that the program itself recorded.

use serde_json::Value;

use crate::cli_support::{can_capture, expect_code};
use crate::support::{chains, for_each, programs};

/// (name, file, line) of a frame.
type FrameLine = (String, String, u64);

fn place(frame: &Value, name: &str) -> FrameLine {
    let text = |key: &str| frame[key].as_str().unwrap_or_default().to_owned();
    (text(name), text("file"), frame["line"].as_u64().unwrap_or(0))
}

/// The frames of a scenario, leaf first.
fn expected(scenario: &Value) -> Vec<FrameLine> {
    scenario["frames"].as_array().unwrap().iter().map(|frame| place(frame, "qualname")).collect()
}

/// The Python frames of a dumped thread, without await frames, which are between the names of two tasks.
fn dumped(thread: &Value) -> Vec<FrameLine> {
    let frames = thread["frames"].as_array().unwrap().iter().filter(|frame| frame["kind"] == "python");
    let mut awaits = false;
    let mut places = Vec::new();
    for frame in frames {
        if frame["function"].as_str().is_some_and(|function| function.starts_with("[task")) {
            awaits = !awaits;
        } else if !awaits {
            places.push(place(frame, "function"));
        }
    }
    places
}

fn is_labelled(thread: &Value) -> bool {
    let frames = thread["frames"].as_array().unwrap();
    !thread["no_stack"].is_null() || frames.iter().any(|frame| frame["kind"] == "unknown")
}

/// Nothing is stopped: most threads wait for the interpreter lock, one runs, some sleep.
#[test]
fn a_dump_shows_threads_as_the_program_itself_does() {
    if !can_capture() {
        return;
    }
    for_each(&programs(), |python| {
        let (target, scenarios) = chains(python);
        let pid = target.pid().to_string();
        let dump = expect_code(0, &["dump", "--pid", &pid, "--format", "json"]);
        let dump: Value = serde_json::from_str(&dump).unwrap();
        let threads = dump["processes"][0]["threads"].as_array().unwrap();
        let (mut equal, mut labelled) = (0, 0);
        for scenario in scenarios.iter().filter(|scenario| scenario["tid"] != 0) {
            let thread = threads.iter().find(|thread| thread["tid"] == scenario["tid"]).unwrap();
            let name = scenario["scenario"].as_str().unwrap();
            // It also shows what it knows of the calling interpreter.
            if is_labelled(thread) || !scenario["outer"].is_null() {
                labelled += 1;
                continue;
            }
            assert_eq!(dumped(thread), expected(scenario), "{} {name}: {thread:#}", python.name);
            equal += 1;
            let wait = &thread["wait"];
            match name {
                "locked" => assert_eq!(wait["used_for"], "python-lock", "{} {thread:#}", python.name),
                "reading" => assert_eq!(wait["call"], "read", "{} {thread:#}", python.name),
                "foreign-sleep" => assert_eq!(wait["kind"], "sleep", "{} {thread:#}", python.name),
                _ => {}
            }
        }
        println!("{}: {equal} threads equal, {labelled} say that frames are missing", python.name);
        assert!(equal > labelled, "{}: {equal} of {}", python.name, scenarios.len());
    });
}
