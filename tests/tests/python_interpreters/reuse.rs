//! Freed code objects, and others at the same address: functions must not get each other's names.

use crate::cli_support::can_capture;
use crate::support::{Stacks, Target, captured, for_each, programs, row, total, workload};

/// Function of a program's Python frame, with the number in its name.
fn numbered(frame: &str, file: &str, prefix: &str) -> Option<u32> {
    frame.strip_prefix(file)?.strip_prefix(':')?.strip_prefix(prefix)?.split(':').next()?.parse().ok()
}

#[test]
fn function_is_not_named_after_another_reusing_its_address() {
    if !can_capture() {
        return;
    }
    for_each(&programs(), |python| {
        let program = workload("python_reuse.py");
        let mut target = Target::start(python, &[&program]);
        target.lines_until_ready();
        let (mut compared, mut equal, mut unnamed, mut wrong) = (0, 0, 0, 0);
        let is_enough = |stacks: &Stacks| total(stacks) > 1000;
        for (frames, count) in captured(target.pid(), 999, ("python", &[]), is_enough) {
            let turn = frames.iter().find_map(|frame| numbered(frame, "python_reuse.py", "turn"));
            let made = frames.iter().find_map(|frame| numbered(frame, "<made>", "f"));
            match (turn, made) {
                (Some(turn), Some(made)) if made % 4 == turn => equal += count,
                (Some(_), Some(_)) => wrong += count,
                // Freed before it was read: it has a reason instead of a name.
                (Some(_), None) if frames.iter().any(|frame| frame.starts_with("[unknown: ")) => {
                    unnamed += count
                }
                _ => continue,
            }
            compared += count;
        }
        row(&python.name, "code objects reused", 1, compared, equal, unnamed);
        // Since 3.12 a code object has a unique version; before, only its name distinguishes it from the next, though
        // they agree in every field and every address.
        assert!(wrong == 0, "{}: {wrong} of {compared} under another function's name", python.name);
        assert!(compared > 20, "{}: {compared}", python.name);
    });
}
