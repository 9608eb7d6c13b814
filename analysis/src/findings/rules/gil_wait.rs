//! Threads that wait for Python's global interpreter lock.

use deepctx_profile::metric::Metric;

use super::{Facts, Outcome, PlaceKey, Rule, ShareCheck, Values, gil_holders, share_of_runnable};
use crate::amount::percent;
use crate::findings::facts::{Class, Classes};
use crate::findings::reason;
use crate::findings::rule::Parameter;

pub(super) const RULE: Rule = Rule {
    id: "gil-wait",
    what: "threads that wait for Python's global interpreter lock",
    definition: "time off the CPU below `take_gil` and `PyEval_RestoreThread`, without waits for a CPU / (that + time \
                 on the CPU) ≥ `min_percent`",
    source: "own rule; py-spy's share of threads that hold the lock",
    origin: "",
    needs: "time off the CPU, with native frames; an interpreter with symbols, unless threads return from calls",
    parameters: &[Parameter { name: "min_percent", default: 10.0, source: "own" }],
    check,
};

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    let share = match share_of_runnable(facts, gil_holders::is_wait) {
        Ok(share) => share,
        Err(missing) => return missing,
    };
    let outcome = ShareCheck {
        metric: Metric::OffCpuTime,
        share,
        limit: "min_percent",
        of: Some("time in which threads run or could run"),
        places: None,
        is_in: &|node| gil_holders::is_wait(facts.classes(node)),
        by: PlaceKey::Line,
        title: &|share| {
            format!("Threads that could run wait {share} of their time for Python's global lock (GIL)")
        },
        figure: "time waiting for the lock",
        advice: "Use processes instead of threads for Python code, or code that releases the lock (NumPy, \
                 I/O); a free-threaded build has none.",
        because: "the waits end with the lock; what they wait for may be needed",
    }
    .outcome(facts, values);
    match outcome {
        Outcome::Findings(mut findings) => {
            findings.iter_mut().for_each(|finding| finding.evidence.extend(gil_holders::figures(facts)));
            Outcome::Findings(findings)
        }
        Outcome::Healthy { .. } if may_be_hidden(facts, values) => {
            Outcome::missing(reason::INTERPRETER_STRIPPED)
        }
        other => other,
    }
}

/// Whether the threshold is met if every possible wait of an interpreter without symbols is for its lock.
fn may_be_hidden(facts: &Facts<'_>, values: &Values<'_>) -> bool {
    let may_wait = |classes: Classes, _| {
        let is_possible = classes.has(Class::PossibleGilWait) && !classes.has(Class::CpuQueue);
        gil_holders::is_wait(classes) || is_possible
    };
    let waits = facts.share_of(Metric::OffCpuTime, may_wait).part.value;
    let ran = facts.share(Metric::CpuTime, Class::GilWait).whole.value;
    percent(waits, waits.saturating_add(ran)) >= values.get("min_percent")
}

#[cfg(test)]
mod tests {
    use deepctx_profile::frame::{Frame, Role};
    use deepctx_profile::text;

    use super::super::tests::{found, profile};
    use super::*;

    /// The rule's outcome for a program that ran for 2 s, with waits of the given milliseconds in a stack that has an
    /// unnamed frame of this file, followed by the given frames.
    #[track_caller]
    fn check(module: &str, below: &str, milliseconds: u64, expect: &str) {
        let mut profile = profile("P py-7 / T a/7 / y /a/t.py:f:1 / n g 200");
        let mut frame = |text: &str| text::parse_frame(&mut profile, text).unwrap();
        let mut stack = vec![frame("P py-7"), frame("T b/8"), frame("y /a/t.py:f:2")];
        let below: Vec<_> = below.split(" / ").map(frame).collect();
        let (module, reason) = (profile.text(module), profile.text("no-symbol"));
        let unnamed = Frame::NativeUnnamed { module, offset: 0x4f_92c0, reason, role: Role::Interpreter };
        stack.push(profile.frame(unnamed));
        stack.extend(below);
        for _ in 0..10 {
            profile.add(&stack, Metric::OffCpuTime, milliseconds * 100_000);
        }
        assert_eq!(found("gil-wait", &profile), expect, "{stack:?}");
    }

    #[test]
    fn an_interpreter_without_symbols_may_hide_waits() {
        let (python, timed) = ("/usr/bin/python3.11", "n ___pthread_cond_timedwait64 / n futex_wait");
        let unknown = "record with --debuginfod, or an interpreter with symbols";
        check(python, timed, 1000, unknown);
        check("/opt/lib/libpython3.13.so.1.0", "n pthread_cond_timedwait@@GLIBC_2.3.2", 1000, unknown);
        // These are so short that their cause makes no difference.
        check(python, "n pthread_cond_timedwait", 100, "healthy");
        // It sleeps, waits for a lock of the program, or is not an interpreter.
        check(python, "n clock_nanosleep", 9000, "healthy");
        check(python, "n sem_clockwait / n pthread_cond_timedwait", 9000, "healthy");
        check("/v/torch/lib/libtorch_python.so", timed, 9000, "healthy");
    }

    #[test]
    fn what_every_interpreter_exports_takes_its_lock() {
        let run = "P py-7 / T a/7 / y /a/t.py:f:1 / n g 200
            off-cpu-time: P py-7 / T b/8 / y /a/t.py:f:2 / n PyEval_RestoreThread / n pthread_cond_timedwait 10x100000000";
        let expect = "Threads that could run wait 33% of their time for Python's global lock (GIL)";
        assert_eq!(found("gil-wait", &profile(run)), expect);
    }

    /// It was woken, and tries again once it runs.
    #[test]
    fn waits_for_a_cpu_are_not_waits_for_the_lock() {
        let mut queued = profile("P py-7 / T a/7 / y /a/t.py:f:1 / n g 200");
        let reason = queued.text("waiting for a CPU");
        let wait = queued.frame(Frame::Wait { reason });
        let above = ["P py-7", "T b/8", "y /a/t.py:f:2", "n take_gil"];
        let above = above.map(|frame| text::parse_frame(&mut queued, frame).unwrap());
        let stack: Vec<_> = above.into_iter().chain([wait]).collect();
        (0..10).for_each(|_| _ = queued.add(&stack, Metric::OffCpuTime, 100_000_000));
        assert_eq!(found("gil-wait", &queued), "healthy");
        let expect = "Threads that could run wait 33% of their time for a CPU";
        assert_eq!(found("cpu-queue", &queued), expect);
    }
}
