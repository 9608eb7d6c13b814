//! `--on-finding`: the action when a rule finds something during a capture.
//!
//! Owns: the option, and the options that it requires. Because: for a defect that occurs once a day, the capture
//! should react when it occurs: keep its details, stop, notify someone. Does not: know rules, or when they run
//! ([`watch`]), or carry out the action ([`act`]).

mod act;
mod rule_watcher;

use std::fmt;
use std::str::FromStr;

use deepctx_analysis::findings::{Finding, Findings, Settings, Severity};
use deepctx_profile::units::counted;
use rustix::process::Signal;

use super::fail_on::FailCondition;
use super::failure::Failure;

pub(crate) use act::Actions;
pub(crate) use rule_watcher::{PendingFindings, RuleWatcher};

/// What to do when a rule has a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Write the data that the flight recorder keeps.
    Keep,
    /// Record individual events from now on.
    Trace,
    /// End the capture with exit code 1.
    Stop,
    /// Send this signal to the targets.
    Signal(Signal),
    /// Run this command in a shell.
    Run(String),
}

/// Signals that `signal:` accepts.
const SIGNALS: [(&str, Signal); 7] = [
    ("HUP", Signal::HUP),
    ("INT", Signal::INT),
    ("QUIT", Signal::QUIT),
    ("USR1", Signal::USR1),
    ("USR2", Signal::USR2),
    ("TERM", Signal::TERM),
    ("CONT", Signal::CONT),
];

impl FromStr for Action {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text.split_once(':') {
            None if text == "keep" => Action::Keep,
            None if text == "trace" => Action::Trace,
            None if text == "stop" => Action::Stop,
            Some(("run", command)) if !command.trim().is_empty() => Action::Run(command.to_owned()),
            Some(("signal", name)) => {
                let plain = name.strip_prefix("SIG").unwrap_or(name);
                let known = SIGNALS.iter().find(|(of, _)| *of == plain);
                let names = || SIGNALS.map(|(name, _)| name).join(", ");
                Action::Signal(known.ok_or_else(|| format!("expected one of {}, found '{name}'", names()))?.1)
            }
            _ => {
                return Err(format!(
                    "expected keep, trace, stop, signal:NAME or run:COMMAND, found '{text}'"
                ));
            }
        })
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Keep => f.write_str("keep"),
            Action::Trace => f.write_str("trace"),
            Action::Stop => f.write_str("stop"),
            Action::Signal(signal) => {
                let name = SIGNALS.iter().find(|(_, of)| of == signal).map_or("", |(name, _)| name);
                write!(f, "signal:{name}")
            }
            Action::Run(command) => write!(f, "run:{command}"),
        }
    }
}

/// One `--on-finding`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FindingAction {
    /// The findings to match.
    pub condition: FailCondition,
    /// The action on the first match.
    pub action: Action,
}

impl FromStr for FindingAction {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (condition, action) =
            text.split_once('=').ok_or("expected RULE=ACTION or RULE:SEVERITY=ACTION")?;
        Ok(FindingAction { condition: FailCondition::parse(condition)?, action: action.parse()? })
    }
}

impl fmt::Display for FindingAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rule, severity) = (self.condition.rule(), self.condition.severity());
        match severity {
            Severity::Low => write!(f, "{rule}={}", self.action),
            _ => write!(f, "{rule}:{severity}={}", self.action),
        }
    }
}

/// Features of a capture that actions need.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ActionNeeds {
    /// It has a flight recorder.
    pub keeps: bool,
    /// It records individual events on request.
    pub traces: bool,
    /// It has targets with known ids.
    pub has_targets: bool,
}

/// The settings of the rules that actions wait for.
///
/// # Errors
/// A rule does not exist, or an action needs a feature that is missing.
pub(crate) fn settings(
    mut settings: Settings,
    on: &[FindingAction],
    means: ActionNeeds,
) -> Result<Settings, Failure> {
    let ActionNeeds { keeps, traces, has_targets } = means;
    for of in on {
        settings.only(of.condition.rule()).map_err(|error| {
            Failure::new(format_args!("--on-finding: {error}")).hint("see docs/findings.md")
        })?;
        let lacks = match of.action {
            Action::Keep if !keeps => Some("needs `--keep TIME`, which sets how much data is kept"),
            Action::Trace if !traces => {
                Some("needs `--trace signal=TIME`, which sets how long events are recorded")
            }
            Action::Signal(_) if !has_targets => Some("needs `--pid` or a command to send the signal to"),
            _ => None,
        };
        if let Some(lacks) = lacks {
            return Err(Failure::new(format_args!("--on-finding {of} {lacks}")));
        }
    }
    Ok(settings)
}

/// One line per finding.
pub(crate) fn lines(found: &Findings) -> Vec<String> {
    if found.findings.is_empty() {
        let checked = counted(found.checked() as u64, "rule");
        let unchecked = match found.checks.len() - found.checked() {
            1 => "1 lacks its input".to_owned(),
            several => format!("{several} lack their input"),
        };
        return vec![format!("no findings: {checked} checked, {unchecked}")];
    }
    let line =
        |finding: &Finding| format!("finding {} ({}): {}", finding.rule, finding.severity, finding.title);
    found.findings.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::options::{Cli, Command};
    use crate::record::means;

    #[test]
    fn actions_are_written_as_they_are_read() {
        let check = |text: &str| assert_eq!(text.parse::<FindingAction>().unwrap().to_string(), text);
        check("gil-wait=keep");
        check("gil-wait:high=trace");
        check("hotspot:medium=stop");
        check("hotspot=signal:USR1");
        check("hotspot=run:curl -d @- 'https://example.org/?a=b'");
    }

    #[test]
    fn one_rule_is_singular() {
        use deepctx_analysis::findings::Check;

        let check = |reason: Option<&str>| Check {
            rule: "hotspot".into(),
            outcome: Check::HEALTHY.into(),
            datapoints: 1,
            reason: reason.map(str::to_owned),
            reason_key: None,
            record_with: None,
        };
        let one = [check(None), check(Some("it has none"))];
        let mut found = Findings { checks: one.to_vec(), ..Findings::default() };
        assert_eq!(lines(&found), ["no findings: 1 rule checked, 1 lacks its input"]);
        found.checks.extend(one);
        assert_eq!(lines(&found), ["no findings: 2 rules checked, 2 lack their input"]);
    }

    #[test]
    fn what_cannot_be_done_is_refused() {
        let check = |arguments: &[&str], expect: &str| {
            let words = [&["deepctx-bpf", "record"][..], arguments].concat();
            let said = match Cli::try_parse_from(words) {
                Err(error) => error.to_string(),
                Ok(Cli { command: Some(Command::Record(record)), .. }) => {
                    settings(Settings::default(), &record.on_finding, means(&record))
                        .map_or_else(|failure| failure.to_string(), |_| String::new())
                }
                Ok(_) => "another command".to_owned(),
            };
            assert!(if expect.is_empty() { said.is_empty() } else { said.contains(expect) }, "{said}");
        };
        check(&["--on-finding", "hotspot"], "expected RULE=ACTION");
        check(&["--on-finding", "hotspot=dance"], "expected keep, trace, stop, signal:NAME or run:COMMAND");
        check(&["--on-finding", "hotspot=run: "], "expected keep");
        check(&["--on-finding", "hotspot=signal:KILL9"], "expected one of HUP");
        check(&["--on-finding", "hotspot:huge=stop"], "expected low, medium or high");
        check(&["--on-finding", "no-such-rule=stop"], "no-such-rule");
        check(&["--on-finding", "hotspot=keep"], "needs `--keep TIME`");
        check(&["--on-finding", "hotspot=trace", "--trace", "10s"], "needs `--trace signal=TIME`");
        check(&["--on-finding", "hotspot=signal:USR1", "--comm", "a"], "needs `--pid` or a command");
        check(&["--on-finding", "hotspot=keep", "--keep", "10s"], "");
        check(&["--on-finding", "hotspot=signal:SIGUSR1", "--", "sleep", "1"], "");
    }
}
