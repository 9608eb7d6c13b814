//! Names are read by an unprivileged, replaceable process.
//!
//! Owns: recordings in which the symbol readers are killed, stopped, and crashed by their input. Because: the author of
//! a mapped file controls its symbol tables. Does not: test the names.

use std::fs;
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::{Command, Stdio};

use super::cli_support::victim::harms_nobody;
use super::cli_support::{can_capture, folded, program, signal};
use super::worker_support::{compiled, is_gone, recorded_while_killing, worker_of};
use super::{OTHER, OtherUserProcess, open_folder};

#[test]
fn a_lost_symbol_reader_without_privileges_is_replaced() {
    if !can_capture() {
        return;
    }
    let folder = open_folder();
    let profile = recorded_while_killing("symbol-reader", folder.path());
    let stacks = folded(profile.to_str().unwrap(), "samples", &[]);
    for function in ["first_spin", "later", "second_spin"] {
        assert!(stacks.contains(&format!(";main;{function}")), "{stacks}");
    }
}

#[test]
fn a_silent_symbol_reader_costs_that_file_only() {
    if !can_capture() {
        return;
    }
    let folder = open_folder();
    let (theirs, ours) = (compiled(folder.path(), "their_spin"), compiled(folder.path(), "our_spin"));
    // Their file has a separate reader.
    chown(&theirs, Some(OTHER), Some(OTHER)).unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (go, done, profile) = (at("go"), at("done"), at("run.dctx"));
    let script = format!("{ours} {done} & {theirs} {go} /bin/true; touch {done}; wait");
    let mut record = program();
    record.args(["record", "--freq", "499", "-o", &profile, "--", "sh", "-c", &script]);
    let mut recording = record.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();

    let maps_theirs = |process: &Path| {
        fs::read_to_string(process.join("maps")).is_ok_and(|maps| maps.contains("/their_spin"))
    };
    let reader = worker_of(&recording, "symbol-reader", maps_theirs);
    signal(&reader, "STOP");
    fs::write(&go, "").unwrap();

    assert!(recording.wait().unwrap().success());
    is_gone(&reader);
    let stacks = folded(&profile, "samples", &[]);
    // Code that was looked up then has only its file offset.
    assert!(stacks.contains("their_spin+0x") && !stacks.contains("later"), "{stacks}");
    let ours: Vec<&str> = stacks.lines().filter(|line| line.starts_with("our_spin-")).collect();
    let named = ours.iter().filter(|line| line.contains(";main;our_spin")).count();
    assert!(named > 0 && !ours.iter().any(|line| line.contains("our_spin+0x")), "{stacks}");
}

/// Debug information of `later`: a function with more nested inlined calls than any stack holds.
const NESTED: &str = r#"
        .section .debug_abbrev,"",%progbits
        .uleb128 1, 0x11
        .byte 1
        .uleb128 0x11, 1, 0x12, 7, 0, 0
        .uleb128 2, 0x2e
        .byte 1
        .uleb128 3, 8, 0x11, 1, 0x12, 7, 0, 0
        .uleb128 3, 0x1d
        .byte 1
        .uleb128 0x11, 1, 0x12, 7, 0, 0
        .byte 0
        .section .debug_info,"",%progbits
        .4byte end - start
start:  .2byte 4
        .4byte 0
        .byte 8
        .uleb128 1
        .8byte later, 4096
        .uleb128 2
        .asciz "later"
        .8byte later, 4096
        .rept 300000
        .uleb128 3
        .8byte later, 4096
        .endr
        .fill 300002, 1, 0
end:
"#;

/// The program with that debug information.
fn nested(folder: &Path) -> String {
    let (plain, debug) = (compiled(folder, "nested_spin"), folder.join("nested.s"));
    fs::write(&debug, NESTED).unwrap();
    let source = format!("{plain}.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-no-pie", "-DSPIN=nested_spin", "-o", &plain, &source]).arg(&debug);
    assert!(compiler.status().unwrap().success());
    plain
}

#[test]
fn debug_information_that_ends_its_reader_harms_nobody() {
    if !can_capture() {
        return;
    }
    let folder = open_folder();
    // It runs until a file appears that never does.
    let mut command = Command::new(nested(folder.path()));
    let theirs = OtherUserProcess::start(command.arg("/none").stdin(Stdio::null()));
    let own = format!("-{};", theirs.pid());
    harms_nobody("debug information without a bottom", &["--pid", &theirs.pid()], |file| {
        let stacks = folded(file, "samples", &[]);
        stacks.lines().any(|line| line.contains(&own) && line.contains(";main;nested_spin"))
    });
}

#[test]
fn debug_information_that_ends_its_reader_costs_lines_only() {
    if !can_capture() {
        return;
    }
    let folder = open_folder();
    let (plain, profile) = (nested(folder.path()), folder.path().join("run.dctx"));

    let mut record = program();
    record.args(["record", "--freq", "499", "-o"]).arg(&profile).args(["--", &plain, "/", "/bin/true"]);
    assert!(record.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success());
    let stacks = folded(profile.to_str().unwrap(), "samples", &[]);
    for function in ["nested_spin", "later"] {
        assert!(stacks.contains(&format!(";main;{function}")), "{stacks}");
    }
}
