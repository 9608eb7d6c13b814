//! Owners of profiles and outputs, and who may read them.
//!
//! Owns: modes and owners of everything that the program writes, as root and below `sudo`. Does not: test how a file is
//! created.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;

use super::cli_support::{Busy, can_capture, program, stderr};

/// User, group and mode.
fn owner(path: &Path) -> (u32, u32, u32) {
    let is = fs::symlink_metadata(path).unwrap();
    (is.uid(), is.gid(), is.mode() & 0o777)
}

fn succeed(command: &mut Command, sudo: [Option<&str>; 2], arguments: &[&str]) {
    for (name, value) in ["SUDO_UID", "SUDO_GID"].into_iter().zip(sudo) {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let output = command.args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}\n{}", stderr(&output));
}

/// Checks the owner of everything that the program writes, with these `sudo` variables.
fn check(sudo: [Option<&str>; 2], user: u32, group: u32) {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (busy, profile, packed, raw) =
        (Busy::start(), path("run.dctx"), path("packed.dctx"), path("run.raw"));
    let pid = busy.pid();
    let record = ["record", "--pid", &pid, "-d", "500ms", "-o"];
    succeed(&mut program(), sudo, &[&record[..], &[&profile, "--raw", &raw]].concat());
    succeed(&mut program(), sudo, &[&record[..], &[&packed, "--pack"]].concat());
    succeed(&mut program(), sudo, &["export", &profile, "--format", "folded", "-o", &path("out.folded")]);
    succeed(&mut program(), sudo, &["report", &profile, "-o", &path("out.txt")]);
    succeed(&mut program(), sudo, &["replay-raw", &raw, "-o", &path("again.dctx")]);
    for folder in [profile, path("again.dctx")] {
        assert_eq!(owner(folder.as_ref()), (user, group, 0o700), "{folder}");
        for file in fs::read_dir(&folder).unwrap() {
            let file = file.unwrap().path();
            assert_eq!(owner(&file), (user, group, 0o600), "{file:?}");
        }
    }
    for file in [packed, raw, path("out.folded"), path("out.txt")] {
        assert_eq!(owner(file.as_ref()), (user, group, 0o600), "{file}");
    }
}

#[test]
fn what_is_written_below_sudo_belongs_to_its_caller() {
    if can_capture() {
        check([Some("1234"), Some("1235")], 1234, 1235);
    }
}

#[test]
fn nonsense_in_variables_of_sudo_is_ignored() {
    if can_capture() {
        for sudo in [[None, None], [Some("1234"), None], [Some("-1"), Some("x")]] {
            check(sudo, 0, 0);
        }
    }
}
