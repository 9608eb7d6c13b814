//! Python stacks and names, read from outside, against each interpreter's own account.

use std::path::Path;

use crate::support::{Target, chains, pythons};
use deepctx_symbolizer::memory::TargetMemory;
use deepctx_symbolizer::python::code::read_identity;
use deepctx_symbolizer::python::locate::{SlotSource, VersionSource};
use deepctx_symbolizer::python::names::NoPythonName;
use deepctx_symbolizer::python::{Interpreter, PythonFrame, PythonSymbols};
use deepctx_walk::memory::Memory;
use deepctx_walk::python::{Buffers, NO_INSTRUCTION, belongs_to_thread, chain, read_frame, thread_state};
use serde_json::Value;

/// Maximum number of followed frames, more than any scenario has.
const FRAMES_MAX: usize = 2000;

/// The target's memory in the form that the kernel programs' walker needs.
struct Words<'a>(&'a dyn TargetMemory);

impl Memory for Words<'_> {
    fn read_words(&self, address: u64, words: &mut [u64]) -> bool {
        let mut bytes = vec![0; words.len() * 8];
        let read = self.0.read(address, &mut bytes).is_ok();
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.try_into().unwrap());
        }
        read
    }
}

/// The Python frames of the thread with this `pthread_self`, leaf first, by the walker's own steps.
fn walk(
    pid: u32,
    thread: u64,
    state: u64,
    interpreter: &Interpreter,
    memory: &dyn TargetMemory,
    symbols: &mut PythonSymbols,
) -> Vec<(u64, Result<PythonFrame, NoPythonName>)> {
    let memory = Words(memory);
    let layout = &interpreter.layout.kernel;
    assert_eq!(thread_state(&memory, thread, &interpreter.process, layout), state, "thread state");
    assert!(belongs_to_thread(&memory, state, thread, layout), "the state is the thread's");
    let mut frames = Vec::new();
    let mut buffers = Buffers::default();
    let mut at = chain(&memory, state, layout).unwrap().frame;
    for _ in 0..FRAMES_MAX {
        if at == 0 {
            return frames;
        }
        let frame = read_frame(&memory, at, layout, &mut buffers).unwrap();
        if frame.code != 0 {
            frames.push((frame.code, symbols.frame(pid, frame.code, frame.checksum, frame.instruction)));
        }
        at = frame.previous;
    }
    panic!("the chain of frames does not end");
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap()
}

#[test]
fn every_thread_is_walked_as_the_program_itself_sees_it() {
    for python in pythons() {
        let (target, scenarios) = chains(&python);
        target.stop();
        let (interpreter, memory, mut symbols) = target.attach();
        assert_eq!(interpreter.layout.minor, python.minor);
        let source = if python.minor < 11 { VersionSource::Text } else { VersionSource::Constant };
        assert_eq!(interpreter.version_source, source);
        let source = if python.minor < 15 { SlotSource::Followed } else { SlotSource::Variable };
        assert_eq!(interpreter.slot_source, source, "{python:?}");
        let mut compared = 0;
        for scenario in &scenarios {
            let label = format!("{} {}", python.path.display(), text(scenario, "scenario"));
            let [thread, state] = ["ident", "tstate"].map(|key| scenario[key].as_u64().unwrap());
            let walked = walk(target.pid(), thread, state, &interpreter, &*memory, &mut symbols);
            let expected = scenario["frames"].as_array().unwrap();
            for (depth, ((code, frame), expect)) in walked.iter().zip(expected).enumerate() {
                let frame = frame.as_ref().unwrap_or_else(|reason| panic!("{label} frame {depth}: {reason}"));
                let found = (
                    *code,
                    &*frame.name,
                    &*frame.qualname,
                    &*frame.file,
                    u64::from(frame.first_line),
                    frame.line.map(u64::from),
                );
                let expect = (
                    expect["code"].as_u64().unwrap(),
                    text(expect, "name"),
                    text(expect, "qualname"),
                    text(expect, "file"),
                    expect["first_line"].as_u64().unwrap(),
                    expect["line"].as_u64(),
                );
                assert_eq!(found, expect, "{label}, frame {depth}");
                compared += 1;
            }
            assert_eq!(walked.len(), expected.len(), "{label}: number of frames");
        }
        println!("{}: {} threads, {compared} frames equal", python.path.display(), scenarios.len());
    }
}

#[test]
fn standard_library_code_objects_have_the_interpreters_names() {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python_interpreters/codes.py");
    for python in pythons() {
        let mut target = Target::start(&python, &[program.to_str().unwrap()]);
        let lines = target.lines_until_ready();
        let (interpreter, memory, mut symbols) = target.attach();
        let mut instructions = 0;
        for line in &lines {
            let code: Value = serde_json::from_str(line).unwrap();
            let number = |n: usize| code[n].as_u64().unwrap() as u32;
            let address = code[0].as_u64().unwrap();
            let identity =
                read_identity(&*memory, interpreter.layout, interpreter.code_type, address).unwrap();
            let checksum = identity.checksum;
            let frame = |symbols: &mut PythonSymbols, at| symbols.frame(target.pid(), address, checksum, at);
            let named =
                frame(&mut symbols, NO_INSTRUCTION).unwrap_or_else(|reason| panic!("{line}: {reason}"));
            let shown = |n: usize| code[n].as_str().unwrap().replace('\t', "\\t");
            assert_eq!(
                (&*named.name, &*named.qualname, &*named.file, named.first_line, named.line),
                (&*shown(5), &*shown(6), &*shown(7), number(4), None),
                "{python:?}"
            );
            let runs = code[8].as_array().unwrap();
            for (n, run) in runs.iter().enumerate() {
                let begin = run[0].as_u64().unwrap() as u32;
                let end = runs.get(n + 1).map_or(begin + 2, |next| next[0].as_u64().unwrap() as u32);
                for at in (begin..end).step_by(2) {
                    let line = frame(&mut symbols, at).unwrap().line;
                    assert_eq!(
                        line.map_or(-1, i64::from),
                        run[1].as_i64().unwrap(),
                        "{python:?} {line:?} {code} at {at}"
                    );
                    instructions += 1;
                }
            }
        }
        let counters = symbols.counters();
        assert_eq!(counters.requested, counters.hits + counters.read + counters.failed.iter().sum::<u64>());
        println!(
            "{}: {} code objects, {instructions} instructions equal",
            python.path.display(),
            lines.len()
        );
        assert!(lines.len() > 3000);
    }
}
