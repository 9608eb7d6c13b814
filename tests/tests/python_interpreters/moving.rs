//! Stacks of a program that calls and returns all the time, against the call order that its source allows.
//!
//! The program marks each of its lines with the functions that it calls and with the C function between, see
//! `workloads/python_moving.py`. If a sample right at the beginning or end of an evaluation were paired one evaluation
//! off, it would show a Python frame next to the wrong C function.

use std::collections::{BTreeMap, BTreeSet};

use crate::cli_support::can_capture;
use crate::support::{
    Python, Stacks, Target, broken, captured, for_each, programs, row, total, ways, workload,
};

/// Line → callees, with the C function in between.
pub(crate) type Calls = BTreeMap<u32, (BTreeSet<String>, Option<String>)>;

/// The call marks in the program's source.
pub(crate) fn calls(source: &str) -> Calls {
    let marked = (1..).zip(source.lines()).filter_map(|(number, line)| {
        let mut words = line.split_once("# -> ")?.1.split_whitespace();
        let callees = words.next()?.split(',').map(str::to_owned).collect();
        Some((number, (callees, words.nth(1).map(str::to_owned))))
    });
    marked.collect()
}

/// Function and line of one of the program's Python frames.
fn python_frame(frame: &str) -> Option<(&str, u32)> {
    let (function, line) = frame.strip_prefix("python_moving.py:")?.rsplit_once(':')?;
    Some((function, line.parse().ok()?))
}

/// The error in a stack, root first, if any.
pub(crate) fn wrong(frames: &[String], calls: &Calls) -> Option<String> {
    let known: Vec<_> =
        frames.iter().enumerate().filter_map(|(at, frame)| Some((at, python_frame(frame)?))).collect();
    if known.first().is_none_or(|(_, (function, _))| *function != "<module>") {
        return Some("the module is not at the root".to_owned());
    }
    for pair in known.windows(2) {
        let [(at, (caller, line)), (next, (callee, _))] = pair else { continue };
        let vias: BTreeSet<_> = frames[at + 1..*next]
            .iter()
            .filter_map(|frame| frame.split(' ').next())
            .filter(|frame| frame.starts_with("via_"))
            .collect();
        let Some((callees, via)) = calls.get(line) else {
            return Some(format!("{caller} calls nothing on line {line}, yet {callee} is above it"));
        };
        if !callees.contains(*callee) || vias.into_iter().ne(via.as_deref()) {
            return Some(format!("{caller} on line {line} below {callee}"));
        }
    }
    // Opcode functions are the evaluation loop, which Python frames represent.
    let opcode = |pair: &[String]| python_frame(&pair[0]).is_some() && pair[1].starts_with("_TAIL_CALL_");
    frames.windows(2).any(opcode).then(|| "an opcode is shown".to_owned())
}

/// Whether a stack is one of the program: not of the thread that waits for the end of the input, or of the start of the
/// capture.
fn is_of_program(frames: &[String]) -> bool {
    frames.iter().any(|frame| frame.starts_with("python_moving.py:") || frame.starts_with("via_"))
}

/// Whether a stack is in code that a JIT has just generated: its memory is known once the profiler has run and reread
/// the mappings.
fn is_in_new_code(frames: &[String], python: &Python) -> bool {
    python.name.ends_with("-jit") && frames.iter().any(|frame| frame == "[unknown: no-mapping]")
}

/// Whether at most one sample of twenty is in new code. How many the first code costs depends on the load of the CPUs;
/// later there is little new code.
fn is_known(stacks: &Stacks, python: &Python) -> bool {
    let of = |is: &dyn Fn(&[String]) -> bool| -> u64 {
        let program = stacks.iter().filter(|(frames, _)| is_of_program(frames));
        program.filter(|(frames, _)| is(frames)).map(|(_, count)| count).sum()
    };
    of(&|frames| is_in_new_code(frames, python)) <= of(&|_| true) / 20
}

fn check(python: &Python, calls: &Calls) {
    let program = workload("python_moving.py");
    let mut target = Target::start(python, &[&program]);
    target.lines_until_ready();
    let is_enough = |stacks: &Stacks| total(stacks) > 2000 && is_known(stacks, python);
    let python_alone = calls.iter().map(|(line, (callees, _))| (*line, (callees.clone(), None))).collect();
    for (way, options) in ways(python) {
        let stacks = captured(target.pid(), 1999, ("full", options), is_enough);
        let calls = if options.is_empty() { calls } else { &python_alone };
        check_stacks(&stacks, python, &format!("moving{way}"), calls);
    }
}

fn check_stacks(stacks: &Stacks, python: &Python, what: &str, calls: &Calls) {
    let (mut compared, mut equal, mut gaps, mut not_yet_known) = (0, 0, 0, 0_u64);
    let mut complaints = Vec::new();
    let name = &python.name;
    for (frames, count) in stacks {
        if !is_of_program(frames) {
            continue;
        }
        compared += count;
        if is_in_new_code(frames, python) {
            not_yet_known += count;
            continue;
        }
        if broken(frames) {
            gaps += count;
            continue;
        }
        match wrong(frames, calls) {
            None => equal += count,
            Some(complaint) => complaints.push(format!("{complaint}, {count} times: {}", frames.join(";"))),
        }
    }
    row(&python.name, what, 1, compared, equal, gaps + not_yet_known);
    assert!(complaints.is_empty(), "{}, {what}: {complaints:#?}", python.name);
    assert!(is_known(stacks, python), "{name}, {what}: {not_yet_known} of {compared} in no known mapping");
    assert!(equal > 100 && gaps <= 10 + compared / 200, "{name}, {what}: {equal} equal, {gaps} gaps");
}

#[test]
fn short_lived_frames_appear_below_the_c_function_calling_them() {
    if !can_capture() {
        return;
    }
    let calls = calls(&std::fs::read_to_string(workload("python_moving.py")).unwrap());
    assert!(calls.len() >= 10);
    for_each(&programs(), |python| match &python.extension {
        Some(_) => check(python, &calls),
        None => println!("skipped: {} has no headers to build the extension with", python.name),
    });
}

#[test]
fn marks_and_stacks_are_read_as_they_are_meant() {
    let calls = calls("f()  # -> f\ng(h)  # -> h,k via via_g\n");
    let check = |stack: &str, expect: bool| {
        let frames: Vec<_> = stack.split(';').map(str::to_owned).collect();
        assert_eq!(wrong(&frames, &calls).is_none(), expect, "{stack}");
    };
    check("python_moving.py:<module>:1;eval;python_moving.py:f:2;via_g;eval;python_moving.py:h:9", true);
    check("python_moving.py:<module>:1;eval;python_moving.py:f:2;via_g;eval", true);
    check("python_moving.py:<module>:1;eval;python_moving.py:f:2;eval;python_moving.py:h:9", false);
    check("python_moving.py:<module>:1;via_g;python_moving.py:f:2", false);
    check("python_moving.py:<module>:2;via_g;python_moving.py:f:2", false);
    check("via_g;python_moving.py:f:2", false);
}
