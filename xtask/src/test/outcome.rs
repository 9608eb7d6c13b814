//! Outcomes: the result of each check, and the summary.
//!
//! Owns: counts of tests, reasons for skips, the verdict. Because: a skipped test must not look like a passed one, and
//! where `CI` is `true` only the lack of a GPU excuses a skip. Does not: run anything but the body of a check.

use crate::sh;
use anyhow::Result;
use std::collections::BTreeSet;
use std::time::Instant;

/// The result of one check.
#[derive(Default)]
pub(super) struct Outcome {
    pub(super) name: String,
    pub(super) ok: bool,
    pub(super) detail: String,
    pub(super) seconds: f64,
    /// CPU time of a test program, in seconds.
    pub(super) cpu_seconds: Option<f64>,
    /// Counts of a test program; any other check counts as one test.
    pub(super) counts: Option<Counts>,
    pub(super) skipped: Vec<SkipReason>,
    /// Lines of a table that the program printed.
    pub(super) table: Vec<String>,
    /// Names of failed tests, each followed by the panic's location and message.
    pub(super) failures: Vec<String>,
}

/// Why something was not tested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SkipReason {
    /// It needs a GPU and there is none, or it needs a machine without one.
    Gpu(String),
    /// This machine lacks something that can be installed, or that CI machines have.
    Missing(String),
}

/// Test counts of one program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) passed: usize,
    pub(super) failed: usize,
    pub(super) skipped: usize,
}

impl SkipReason {
    /// Parses the reason that a test printed on a separate line: `skipped: REASON`, `skipped, no GPU: REASON`, or
    /// `skipped, a GPU: REASON`.
    pub(super) fn in_line(line: &str) -> Option<Self> {
        if let Some(reason) = line.strip_prefix("skipped: ") {
            return Some(Self::Missing(reason.to_owned()));
        }
        let of_gpu = line.strip_prefix("skipped, no GPU: ").or_else(|| line.strip_prefix("skipped, a GPU: "));
        of_gpu.map(|reason| Self::Gpu(reason.to_owned()))
    }

    fn reason(&self) -> &str {
        match self {
            Self::Gpu(reason) | Self::Missing(reason) => reason,
        }
    }

    /// Whether CI accepts the skip.
    fn excused(&self) -> bool {
        matches!(self, Self::Gpu(_)) || !sh::in_ci()
    }
}

impl Outcome {
    pub(super) fn failed(name: &str, error: &anyhow::Error) -> Self {
        Self { name: name.to_owned(), detail: format!("{error:#}"), ..Self::default() }
    }

    /// A check that cannot run here: a failure if nothing may be skipped.
    pub(super) fn skipped(name: &str, skip: SkipReason) -> Self {
        Self { name: name.to_owned(), ok: true, skipped: vec![skip], ..Self::default() }.judged()
    }

    /// Fails if an unacceptable skip occurred.
    pub(super) fn judged(mut self) -> Self {
        if self.ok && !self.skipped.iter().all(SkipReason::excused) {
            self.ok = false;
            self.detail = format!("{}; CI=true allows no skipped test", self.detail);
            self.detail = self.detail.trim_start_matches("; ").to_owned();
        }
        self
    }

    /// Its line of the summary.
    pub(super) fn line(&self) -> String {
        let word = if self.ok { "ok    " } else { "FAILED" };
        let cpu = self.cpu_seconds.map_or(String::new(), |seconds| format!("{seconds:.1} CPU s"));
        format!("{word} {:<34} {:>6.1} s  {cpu:>12}  {}", self.name, self.seconds, self.detail)
    }

    /// Its share of the totals.
    fn counts(&self) -> Counts {
        let mut counts = self.counts.unwrap_or(match (self.ok, self.skipped.is_empty()) {
            (true, true) => Counts { passed: 1, ..Counts::default() },
            (true, false) => Counts { skipped: 1, ..Counts::default() },
            (false, _) => Counts { failed: 1, ..Counts::default() },
        });
        if !self.ok && counts.failed == 0 {
            counts.failed = 1;
        }
        counts
    }
}

/// Runs a check.
pub(super) fn check(name: &str, body: impl FnOnce() -> Result<()>) -> Outcome {
    eprintln!("==> {name}");
    let start = Instant::now();
    let mut outcome = match body() {
        Ok(()) => Outcome { name: name.to_owned(), ok: true, ..Outcome::default() },
        Err(error) => Outcome::failed(name, &error),
    };
    outcome.seconds = start.elapsed().as_secs_f64();
    eprintln!("    {}", outcome.line());
    outcome
}

/// Runs cargo as a check.
pub(super) fn cargo(name: &str, arguments: &[&str]) -> Outcome {
    check(name, || sh::run(sh::command("cargo").args(arguments)))
}

impl Counts {
    /// Parses counts from a test program's output with `--show-output`. `None` without its last line.
    pub(super) fn of(text: &str) -> Option<Self> {
        let line = text.lines().rev().find_map(|line| line.strip_prefix("test result: "))?;
        let (_, counts) = line.split_once(". ")?;
        let count = |what: &str| {
            counts.split("; ").find_map(|part| part.strip_suffix(what)?.trim().parse::<usize>().ok())
        };
        let skipped = tests_with_skips(text);
        Some(Self { passed: count("passed")?.saturating_sub(skipped), failed: count("failed")?, skipped })
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

/// Lines of a panic repeated at the end: the location and the first lines of the message.
const PANIC_LINES: usize = 4;

/// Parses failed tests from a test program's output: name, location and message of each.
pub(super) fn failures(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    // The preceding section contains the output of passed tests.
    let section = text.lines().skip_while(|line| *line != "failures:");
    let mut rest_of_panic = 0;
    for line in section {
        if let Some(name) = line.strip_prefix("---- ").and_then(|line| line.strip_suffix(" stdout ----")) {
            found.push(name.to_owned());
        } else if line.starts_with("thread '") && line.contains(" panicked at ") {
            rest_of_panic = PANIC_LINES;
        } else if line.starts_with("stack backtrace:") || line.is_empty() {
            rest_of_panic = 0;
        }
        if rest_of_panic > 0 {
            rest_of_panic -= 1;
            found.push(format!("    {line}"));
        }
    }
    found
}

/// Number of tests that printed a skip.
fn tests_with_skips(text: &str) -> usize {
    let mut tests = BTreeSet::new();
    let mut test = "";
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("---- ").and_then(|line| line.strip_suffix(" stdout ----")) {
            test = name;
        } else if SkipReason::in_line(line).is_some() {
            tests.insert(test);
        }
    }
    tests.len()
}

/// Prints one line per check, then the counts of all tests; the exit code is 1 when a check failed.
pub(super) fn summary(outcomes: &[Outcome]) -> Result<()> {
    println!();
    for outcome in outcomes {
        println!("{}", outcome.line());
        for skip in &outcome.skipped {
            println!("       skipped: {}", skip.reason());
        }
        for line in &outcome.table {
            println!("       {line}");
        }
    }
    let failed = outcomes.iter().filter(|outcome| !outcome.ok).count();
    // Repeated at the end, where readers of a long log look first.
    for outcome in outcomes.iter().filter(|outcome| !outcome.ok) {
        println!("{}", outcome.line());
        for line in &outcome.failures {
            println!("       {line}");
        }
    }
    let seconds: f64 = outcomes.iter().map(|outcome| outcome.seconds).sum();
    println!("{} checks, {seconds:.0} s of them in all, {failed} failed", outcomes.len());
    let total = outcomes.iter().map(Outcome::counts).fold(Counts::default(), |total, counts| Counts {
        passed: total.passed + counts.passed,
        failed: total.failed + counts.failed,
        skipped: total.skipped + counts.skipped,
    });
    println!("{total}");
    if failed > 0 {
        std::process::exit(1);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAST: &str = "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out\n";

    #[test]
    fn counts_are_read_from_the_last_result_line() {
        let text = format!("running 2 tests\n{LAST}");
        assert_eq!(Counts::of(&text), Some(Counts { passed: 3, failed: 0, skipped: 0 }));
        assert_eq!(Counts::of("nothing here"), None);
    }

    #[test]
    fn a_test_that_skipped_has_not_passed() {
        let text = format!(
            "---- a stdout ----\nskipped: no x\nskipped: no y\n---- b stdout ----\nskipped, no GPU: z\n{LAST}"
        );
        assert_eq!(Counts::of(&text), Some(Counts { passed: 1, failed: 0, skipped: 2 }));
    }

    #[test]
    fn failed_tests_are_listed_with_their_panics() {
        let text = "---- fine stdout ----\nthread 'fine' (1) panicked at a.rs:1:1:\nexpected\n\nfailures:\n\n\
                    ---- a::b stdout ----\n| a row\n\n\
                    thread 'a::b' (2) panicked at b.rs:2:3:\nassertion failed\n  left: 1\n\nfailures:\n    a::b\n";
        let expect =
            ["a::b", "    thread 'a::b' (2) panicked at b.rs:2:3:", "    assertion failed", "      left: 1"];
        assert_eq!(failures(text), expect);
        assert!(failures(LAST).is_empty());
    }

    #[test]
    fn reasons_for_skips_are_typed() {
        let check =
            |line: &str, expect: Option<SkipReason>| assert_eq!(SkipReason::in_line(line), expect, "{line}");
        check("skipped: no disk", Some(SkipReason::Missing("no disk".to_owned())));
        check("skipped, no GPU: of clocks", Some(SkipReason::Gpu("of clocks".to_owned())));
        check("skipped, a GPU: with a driver", Some(SkipReason::Gpu("with a driver".to_owned())));
        check("it was skipped: never", None);
    }
}
