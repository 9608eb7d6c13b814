//! Damaged interpreters and memory full of garbage: always an answer or a reason, within limited time.

use std::path::PathBuf;

use deepctx_symbolizer::maps::{self, LineFilter, Mapping};
use deepctx_symbolizer::memory::{ProcessMemory, ReadError, TargetMemory};
use deepctx_symbolizer::python::{Interpreter, Module, NoInterpreter, locate, locate_process};

use crate::support::{Python, Target, pythons};

/// A splitmix-style generator: the tests need reproducible garbage, not good randomness.
fn garbage(seed: u64) -> u64 {
    let mixed = (seed ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ mixed >> 29).wrapping_mul(0x94d0_49bb_1331_11eb) ^ mixed >> 32
}

/// Memory in which each word is garbage, partly unreadable.
struct Garbage(u64);

impl TargetMemory for Garbage {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), ReadError> {
        if garbage(self.0 ^ address >> 12).is_multiple_of(5) {
            return Err(ReadError::Unmapped);
        }
        for (n, byte) in into.iter_mut().enumerate() {
            *byte = garbage(self.0 ^ address.wrapping_add(n as u64)) as u8;
        }
        Ok(())
    }
}

fn is_program(path: &str) -> bool {
    path.contains("bin/python") || path.ends_with("/python")
}

/// A process's mappings of its interpreter and libc, with their files.
fn files(target: &Target) -> Vec<(Mapping, Vec<u8>)> {
    let mappings = maps::read(target.pid(), LineFilter::Executable).unwrap().mappings;
    let wanted = |mapping: &Mapping| {
        let path = mapping.path().to_string_lossy().into_owned();
        path.contains("libpython") || is_program(&path) || path.contains("/libc.so.6")
    };
    let read = |mapping: Mapping| {
        let bytes = std::fs::read(PathBuf::from(mapping.path())).unwrap();
        (mapping, bytes)
    };
    mappings.into_iter().filter(wanted).map(read).collect()
}

fn ask(memory: &dyn TargetMemory, files: &[(Mapping, Vec<u8>)]) -> Result<Interpreter, NoInterpreter> {
    let modules = files.iter().map(|(mapping, bytes)| Module {
        begin: mapping.begin.0,
        file_offset: mapping.offset.0,
        is_program: is_program(&mapping.path().to_string_lossy()),
        data: &**bytes,
    });
    locate(memory, modules)
}

/// A process of the first interpreter, its memory and its files.
fn process(python: &Python) -> (Target, ProcessMemory, Vec<(Mapping, Vec<u8>)>) {
    let mut target = Target::start(python, &["-c", "print('{\"ready\"', flush=True); input()"]);
    target.lines_until_ready();
    let memory = ProcessMemory::open(target.pid()).unwrap();
    let files = files(&target);
    (target, memory, files)
}

#[test]
fn garbage_memory_gives_a_reason_or_a_bounded_answer() {
    for python in pythons() {
        let (_target, memory, files) = process(&python);
        assert!(ask(&memory, &files).is_ok(), "{python:?}");
        for seed in 0..8 {
            let _ = ask(&Garbage(seed), &files);
        }
    }
}

#[test]
fn a_damaged_file_gives_a_reason_or_a_bounded_answer() {
    let python = pythons().into_iter().find(|python| python.minor >= 11).unwrap();
    let (_target, memory, mut files) = process(&python);
    let mut answers = 0;
    for round in 0..300_u64 {
        let file = (garbage(round) % files.len() as u64) as usize;
        let bytes = &mut files[file].1;
        // Headers and tables are at the beginning, section headers at the end; sometimes anywhere.
        let range = match round % 3 {
            0 => 0..0x400,
            1 => bytes.len() - 0x1000..bytes.len(),
            _ => 0..bytes.len(),
        };
        let mut undo = Vec::new();
        for n in 0..8 {
            let at = range.start + (garbage(round << 8 | n) as usize) % range.len();
            undo.push((at, bytes[at]));
            bytes[at] = [0, 0xff, 0x80, garbage(round ^ n) as u8][n as usize % 4];
        }
        answers += u32::from(ask(&memory, &files).is_ok());
        for (at, byte) in undo.into_iter().rev() {
            files[file].1[at] = byte;
        }
    }
    assert!(ask(&memory, &files).is_ok(), "the damage was undone");
    println!("{answers} of 300 damaged files still answered");
}

#[test]
fn truncated_file_gives_a_reason_or_a_bounded_answer() {
    let python = pythons().into_iter().find(|python| python.minor >= 11).unwrap();
    let (_target, memory, files) = process(&python);
    for eighths in 0..8 {
        let cut = files
            .iter()
            .map(|(mapping, bytes)| (mapping.clone(), bytes[..bytes.len() * eighths / 8].to_vec()));
        let _ = ask(&memory, &cut.collect::<Vec<_>>());
    }
}

#[test]
fn future_version_is_reported_and_not_guessed() {
    let python = pythons().into_iter().find(|python| python.minor >= 11).unwrap();
    let (_target, memory, mut files) = process(&python);
    let version = ask(&memory, &files).unwrap().version;
    // `PY_VERSION_HEX` of a final release, wherever it is.
    let now = [0xf0, version[2], version[1], version[0]];
    for (_, bytes) in &mut files {
        while let Some(at) = bytes.windows(4).position(|window| window == now) {
            bytes[at + 2] = 99;
        }
    }
    assert_eq!(ask(&memory, &files).err(), Some(NoInterpreter::UnsupportedVersion(3, 99)));
}

/// Process memory in which the interpreter's own description is altered.
struct AlteredMemory<'m> {
    memory: &'m ProcessMemory,
    at: u64,
    byte: u8,
}

impl TargetMemory for AlteredMemory<'_> {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), ReadError> {
        self.memory.read(address, into)?;
        if let Some(byte) = self.at.checked_sub(address).and_then(|n| into.get_mut(n as usize)) {
            *byte = self.byte;
        }
        Ok(())
    }
}

#[test]
fn a_build_that_describes_another_layout_is_not_walked() {
    for python in pythons().iter().filter(|python| python.minor >= 13) {
        let (_target, memory, files) = process(python);
        let runtime = ask(&memory, &files).unwrap().runtime;
        let ask_with =
            |at: u64, byte: u8| ask(&AlteredMemory { memory: &memory, at: runtime + at, byte }, &files).err();
        assert_eq!(ask_with(0, b'y'), Some(NoInterpreter::NoDebugOffsets), "{}: cookie", python.name);
        assert_eq!(ask_with(10, 99), Some(NoInterpreter::NoDebugOffsets), "{}: version", python.name);
        // The stated offset of a thread state's current frame.
        let place = if python.minor == 13 { 184 } else { 208 };
        let differs = ask_with(place, 1);
        assert!(matches!(differs, Some(NoInterpreter::LayoutDiffers { .. })), "{}: {differs:?}", python.name);
    }
}

#[test]
fn a_process_without_an_interpreter_has_none() {
    let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
    // Until the exec, the child is this test.
    let exe = format!("/proc/{}/exe", child.id());
    while !std::fs::read_link(&exe).is_ok_and(|path| path.ends_with("sleep")) {
        std::thread::yield_now();
    }
    let mappings = maps::read(child.id(), LineFilter::Executable).unwrap().mappings;
    let found = locate_process(child.id(), &mappings);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(found.err(), Some(NoInterpreter::NotPython));
    let gone = locate_process(child.id(), &mappings);
    assert_eq!(gone.err(), Some(NoInterpreter::Memory(ReadError::Gone)));
}
