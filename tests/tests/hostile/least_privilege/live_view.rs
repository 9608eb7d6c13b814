//! The live view of a user who is not root.
//!
//! Owns: the view in a terminal, with the capabilities that `doctor` lists and with one less. Because: the view is a
//! capture of its own, with a screen and without a file. Does not: look at more of the screen than a name.

use super::super::cli_support::terminal::in_a_terminal;
use super::{Scene, can_test, needs, without};

/// The function of the target: the name of its file is in its command line, which is always shown.
const FUNCTION: &str = "read_zeroes";

/// Rows of `doctor` that are needed for all that a view of a Python program shows.
const FEATURES: [&str; 4] = ["for a capture", "for Python names", "for files elsewhere", "for kernel names"];

#[test]
fn a_live_view_needs_what_doctor_lists() {
    if !can_test() {
        return;
    }
    let scene = Scene::new();
    let needs = needs(&scene, &FEATURES);
    let needs: Vec<&str> = needs.iter().map(String::as_str).collect();
    let mut live = scene.command_with(&needs);
    live.args(["live", "--pid", &scene.target.pid()]).current_dir(&scene.theirs);
    let outcome = in_a_terminal(&live, FUNCTION);
    assert!([0, 1, 2].contains(&outcome.code) && outcome.drawn.contains(FUNCTION), "{outcome:?}");
}

#[test]
fn a_live_view_without_a_capability_says_what_doctor_says() {
    if !can_test() {
        return;
    }
    let scene = Scene::new();
    let needs = needs(&scene, &FEATURES);
    let needs: Vec<&str> = needs.iter().map(String::as_str).collect();
    for needed in scene.checks(&needs).needs("for a capture") {
        let held = without(&needs, &needed);
        let mut live = scene.command_with(&held);
        live.args(["live", "--pid", &scene.target.pid()]).current_dir(&scene.theirs);
        let outcome = in_a_terminal(&live, FUNCTION);
        assert_eq!(outcome.code, 2, "{needed}: {outcome:?}");
        for line in scene.checks(&held).refusal() {
            assert!(outcome.drawn.lines().any(|drawn| drawn.trim_end() == line), "{line}\n{outcome:?}");
        }
    }
}
