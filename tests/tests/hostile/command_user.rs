//! The user that a recorded command runs as.
//!
//! Owns: user, groups, capabilities and environment of `record -- CMD`, as root and below `sudo`. Does not: test the
//! owner of profile files.

use std::process::Command;

use super::cli_support::{can_capture, program, stderr};

/// Prints the command's user, groups, effective capabilities, home, and the caller named by `sudo`.
const WHO: &str = "id -u; id -g; id -G; grep CapEff /proc/self/status; echo $HOME $USER ${SUDO_UID:-nobody}";

/// Records [`WHO`] with these options and `sudo` variables.
fn record(options: &[&str], sudo: Option<(&str, &str)>) -> (String, String) {
    let folder = tempfile::tempdir().unwrap();
    let profile = folder.path().join("run.dctx");
    let mut command: Command = program();
    for name in ["SUDO_UID", "SUDO_GID", "SUDO_USER", "SUDO_COMMAND"] {
        command.env_remove(name);
    }
    if let Some((user, group)) = sudo {
        command.env("SUDO_UID", user).env("SUDO_GID", group);
    }
    command.args(["record", "-o"]).arg(&profile).args(options).args(["--", "sh", "-c", WHO]);
    let output = command.env("HOME", "/root").env("USER", "root").output().unwrap();
    assert!(output.status.success(), "{options:?}\n{}", stderr(&output));
    let said = stderr(&output);
    (String::from_utf8(output.stdout).unwrap(), said)
}

#[track_caller]
fn check(options: &[&str], sudo: Option<(&str, &str)>, expect: &str, notice: Option<&str>) {
    let (printed, said) = record(options, sudo);
    let all_capabilities = std::fs::read_to_string("/proc/self/status").unwrap();
    let all_capabilities = all_capabilities.lines().find_map(|line| line.strip_prefix("CapEff:\t")).unwrap();
    assert_eq!(printed.replace("CapEff:\t", "").replace(all_capabilities, "all"), expect);
    match notice {
        Some(notice) => assert!(said.contains(notice), "{said}"),
        None => assert!(!said.contains("the command runs as"), "{said}"),
    }
}

const NONE: &str = "0000000000000000";

#[test]
fn a_command_below_sudo_runs_as_its_caller() {
    if can_capture() {
        let who = format!("65534\n65534\n65534\n{NONE}\n/nonexistent nobody nobody\n");
        let notice = "the command runs as nobody (uid 65534), who called sudo";
        check(&[], Some(("65534", "65534")), &who, Some(notice));
    }
}

#[test]
fn a_caller_without_an_entry_is_a_number() {
    if can_capture() {
        let who = format!("54321\n54322\n54322\n{NONE}\n/root root nobody\n");
        check(&[], Some(("54321", "54322")), &who, Some("the command runs as 54321 (uid 54321)"));
    }
}

#[test]
fn the_named_user_comes_before_the_caller_of_sudo() {
    if can_capture() {
        let who = "0\n0\n0\nall\n/root root 65534\n";
        check(&["--user", "root"], Some(("65534", "65534")), who, None);
        let who = format!("1\n1\n1\n{NONE}\n/usr/sbin daemon nobody\n");
        check(
            &["--user", "daemon"],
            Some(("65534", "65534")),
            &who,
            Some("the command runs as daemon (uid 1)"),
        );
    }
}

#[test]
fn a_command_of_root_itself_stays_root() {
    if can_capture() {
        check(&[], None, "0\n0\n0\nall\n/root root nobody\n", None);
    }
}
