//! The program exists, says who it is, and outlives the reader of its log.
//!
//! Because: with a test of this package, cargo builds the program in the same run as all tests of the workspace, and
//! those in other packages that run it (`tests/tests/cli_*.rs`) need not build everything again.

use std::process::{Command, Stdio};

#[test]
fn the_program_says_its_name_and_version() {
    let said = Command::new(env!("CARGO_BIN_EXE_deepctx-bpf")).arg("--version").output().unwrap();
    assert!(said.status.success());
    let expect = concat!("deepctx-bpf ", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!(String::from_utf8_lossy(&said.stdout), expect);
}

#[test]
fn a_log_that_nobody_reads_ends_nothing() {
    let (reader, log) = std::io::pipe().unwrap();
    drop(reader);
    let mut program = Command::new(env!("CARGO_BIN_EXE_deepctx-bpf"));
    // The second level logs at least the version.
    program.args(["completions", "bash", "-vv"]).stdout(Stdio::null()).stderr(log);
    let ended = program.status().unwrap();
    assert!(ended.success(), "{ended}");
}
