//! The program exists and says who it is.
//!
//! Because: with a test of this package, cargo builds the program in the same run as all tests of the workspace, and
//! those in other packages that run it (`tests/tests/cli_*.rs`) need not build everything again.

use std::process::Command;

#[test]
fn the_program_says_its_name_and_version() {
    let said = Command::new(env!("CARGO_BIN_EXE_deepctx-bpf")).arg("--version").output().unwrap();
    assert!(said.status.success());
    let expect = concat!("deepctx-bpf ", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!(String::from_utf8_lossy(&said.stdout), expect);
}
