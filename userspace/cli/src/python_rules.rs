//! Rules in Python: those of a file `analyze --rules my_rules.py`, run by the Python module `deepctx`.
//!
//! Owns: starting the runner, its answers, and the report when there are none. Because: a rule is a third party's
//! program, which may raise, loop or print a gigabyte, and must only cost its own result. Does not: run a rule;
//! `python/deepctx/rules.py` gives each a process, a deadline and limits.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, absolute};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use deepctx_analysis::Query;
use deepctx_analysis::findings::ExternalRule;
use deepctx_profile::metric::Metric;
use deepctx_profile::view::Pattern;
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;

use super::failure::Failure;
use super::selection::StoredSelectionArgs;

/// Timeout for the next line. The runner ends a rule after 10 s; reading the profile precedes the first.
const SILENCE_MAX: Duration = Duration::from_secs(120);
/// Maximum bytes of all results: a rule may return a MiB.
const ANSWERS_MAX: u64 = 256 << 20;

/// A line from the runner.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Line {
    /// The first line: names of the rules, in run order.
    Rules { rules: Vec<String> },
    /// Instead of the first line: why nothing can run.
    Error { error: String },
    /// The result of a rule.
    Report(Box<ExternalRule>),
}

/// Whether a rules file is a Python program.
pub(crate) fn is_python(rules: &Path) -> bool {
    rules.extension() == Some(OsStr::new("py"))
}

/// Runs the rules of a file over the selected part of a profile; returns their results by name.
///
/// # Errors
/// The runner could not be started, or the file has no runnable rules.
pub(crate) fn run(
    rules: &Path,
    profile: &Path,
    selection: &StoredSelectionArgs,
) -> Result<Vec<ExternalRule>, Failure> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |error: std::io::Error| Failure::io(path.display(), &error)
    };
    let mut command = Command::new("python3");
    command.args(["-m", "deepctx.rules"]);
    command.arg(absolute(rules).map_err(failed(rules))?).arg(absolute(profile).map_err(failed(profile))?);
    let options = [
        ("--metric", selection.live.metric.map(Metric::name)),
        ("--filter", selection.live.filter.as_ref().map(Pattern::text)),
        ("--path", selection.path.as_ref().map(Query::text)),
    ];
    // One word each, since a value may begin with a dash.
    command.args(options.iter().filter_map(|(name, value)| Some(format!("{name}={}", (*value)?))));
    // `-m` searches the working folder first, where anyone may have put a `deepctx`.
    command.env("PYTHONSAFEPATH", "1");
    answers(command, &rules.display().to_string(), SILENCE_MAX)
}

fn answers(mut command: Command, file: &str, silence_max: Duration) -> Result<Vec<ExternalRule>, Failure> {
    // A separate process group, so that processes started by rules are ended as well.
    command.stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
    let mut runner = command.spawn().map_err(|error| {
        Failure::new(format_args!("{file}: python3 could not be started: {error}"))
            .hint("rules in Python need python3 and its module deepctx (docs/python.md)")
    })?;
    let answers = read(&mut runner, file, silence_max);
    end(&mut runner);
    answers
}

fn read(runner: &mut Child, file: &str, silence_max: Duration) -> Result<Vec<ExternalRule>, Failure> {
    let lines = lines(runner).map_err(|error| Failure::io(file, &error))?;
    let names = match next(&lines, silence_max).and_then(|line| line) {
        Ok(Line::Rules { rules }) => rules,
        Ok(Line::Error { error }) => return Err(Failure::new(format_args!("{file}: {error}"))),
        Ok(Line::Report(_)) => {
            return Err(Failure::new(format_args!("{file}: a result arrived before its rule")));
        }
        Err(why) => {
            return Err(Failure::new(format_args!("{file}: no rule could run: {why}"))
                .hint("rules in Python need the module deepctx in python3's module path (docs/python.md)"));
        }
    };
    let mut answers = Vec::with_capacity(names.len());
    let mut ended = None;
    for name in &names {
        let answer = match &ended {
            None => next(&lines, silence_max),
            Some(why) => Err(String::clone(why)),
        };
        answers.push(match answer {
            Ok(Ok(Line::Report(answer))) if answer.check.rule == *name => *answer,
            Ok(Ok(_)) => ExternalRule::failed(name, "the runner answered something else"),
            // Of this rule alone: the runner goes on.
            Ok(Err(why)) => ExternalRule::failed(name, &why),
            Err(why) => {
                let failed = ExternalRule::failed(name, &why);
                ended = Some(why);
                failed
            }
        });
    }
    Ok(answers)
}

/// The next line, or why there is none; of a line that is not understood, why. Others may follow that one.
fn next(lines: &Receiver<String>, silence_max: Duration) -> Result<Result<Line, String>, String> {
    match lines.recv_timeout(silence_max) {
        Ok(line) => Ok(understood(&line).map_err(|error| format!("the runner's answer: {error}"))),
        Err(RecvTimeoutError::Timeout) => Err(format!("the runner said nothing for {silence_max:?}")),
        Err(RecvTimeoutError::Disconnected) => Err("the runner ended early".to_owned()),
    }
}

/// The answer of a line. What is wrong with the result of a rule is said by its field.
fn understood(line: &str) -> Result<Line, serde_json::Error> {
    let answer: serde_json::Value = serde_json::from_str(line)?;
    match answer.get("check") {
        Some(_) => serde_json::from_value(answer).map(Line::Report),
        None => serde_json::from_value(answer),
    }
}

/// Reads lines on a separate thread, because waiting for a line has a deadline.
fn lines(runner: &mut Child) -> std::io::Result<Receiver<String>> {
    let out = runner.stdout.take().ok_or(std::io::ErrorKind::BrokenPipe)?;
    let (send, lines) = bounded(1);
    std::thread::Builder::new().name("rules".into()).spawn(move || {
        let mut reader = BufReader::new(out.take(ANSWERS_MAX));
        let mut line = String::new();
        while matches!(reader.read_line(&mut line), Ok(read) if read > 0) {
            if send.send(std::mem::take(&mut line)).is_err() {
                return;
            }
        }
    })?;
    Ok(lines)
}

/// Ends the runner and its child processes.
fn end(runner: &mut Child) {
    if let Some(group) = i32::try_from(runner.id()).ok().and_then(Pid::from_raw) {
        // It may have ended already.
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = runner.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str = r#"{"check": {"rule": "a", "outcome": "healthy", "datapoints": 3, "reason": null,
        "record_with": null}, "findings": []}"#;

    /// Checks the result for a runner that prints this: `rule: outcome (reason)`.
    #[track_caller]
    fn check(script: &str, expect: Result<&[&str], &str>) {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).env("ANSWER", ANSWER.replace('\n', ""));
        let found = answers(shell, "my.py", Duration::from_millis(300));
        match (found, expect) {
            (Ok(found), Ok(expect)) => {
                let said = |of: &ExternalRule| match &of.check.reason {
                    Some(reason) => format!("{}: {} ({reason})", of.check.rule, of.check.outcome),
                    None => format!("{}: {}", of.check.rule, of.check.outcome),
                };
                assert_eq!(found.iter().map(said).collect::<Vec<_>>(), expect, "{script}");
            }
            (Err(failure), Err(part)) => assert!(failure.to_string().contains(part), "{script}: {failure}"),
            (found, _) => panic!("{script}: {found:?}"),
        }
    }

    #[test]
    fn each_rule_has_an_answer_or_a_reason() {
        let names = r#"echo '{"rules": ["a", "b"]}'; echo "$ANSWER""#;
        check(r#"echo '{"rules": []}'"#, Ok(&[]));
        check(&format!(r#"{names}; echo "$ANSWER" | sed 's/"a"/"b"/'"#), Ok(&["a: healthy", "b: healthy"]));
        check(names, Ok(&["a: healthy", "b: failed (the runner ended early)"]));
        check(
            &format!("{names}; sleep 60"),
            Ok(&["a: healthy", "b: failed (the runner said nothing for 300ms)"]),
        );
        check(
            &format!(r#"{names}; echo "$ANSWER""#),
            Ok(&["a: healthy", "b: failed (the runner answered something else)"]),
        );
        // An answer that is not understood costs its own rule.
        check(
            r#"echo '{"rules": ["b", "a"]}'; echo "$ANSWER" | sed 's/"a"/"b"/; s/ 3,/ -3,/'; echo "$ANSWER""#,
            Ok(&["b: failed (the runner's answer: invalid value: integer `-3`, expected u64)", "a: healthy"]),
        );
    }

    #[test]
    fn a_file_without_rules_is_an_error() {
        check(r#"echo '{"error": "my.py: no such file"}'"#, Err("my.py: no such file"));
        check("exit 1", Err("no rule could run: the runner ended early"));
        check("sleep 60", Err("the runner said nothing"));
        check("echo garbage", Err("the runner's answer"));
    }

    #[test]
    fn a_runner_that_ends_takes_its_children_along() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pid");
        check(&format!("sleep 600 & echo $! > {}; exec sleep 600", file.display()), Err("said nothing"));
        let pid = std::fs::read_to_string(file).unwrap();
        // It was killed; the kernel decides when it ends.
        let ended = || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
            stat.is_empty() || stat.contains(") Z ")
        };
        assert!((0..1000).any(|_| ended() || {
            std::thread::sleep(Duration::from_millis(10));
            false
        }));
    }

    #[test]
    fn a_python_file_is_known_by_its_name() {
        assert!(is_python(Path::new("a/my.rules.py")));
        assert!(!is_python(Path::new("my.toml")) && !is_python(Path::new("py")));
    }
}
