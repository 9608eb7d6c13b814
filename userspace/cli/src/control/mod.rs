//! Control: what can be changed in a running capture.
//!
//! Owns: the requests, their text, and the form of the answers. Because: a job that trains for a week is not
//! restarted to sample it more often, or to attach probes for one hour. Does not: decide when requests are handled;
//! the capture loop does (`run`).

mod capture_control;
mod client;
mod server;
mod socket;

use std::fmt;

use clap::ValueEnum;
use deepctx_capture::ProbeHold;
use serde_json::{Value, json};

use super::capture_args::FREQUENCIES;

pub(crate) use capture_control::CaptureControl;
pub(crate) use client::run;
pub(crate) use server::ControlSocket;

/// A request to a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ControlRequest {
    /// Report the status.
    Status,
    /// Sample this often, in Hz, from now on.
    Frequency(u32),
    /// Attach or detach the probes that have a budget.
    Probes(ProbeHold),
    /// Write the data that the flight recorder keeps.
    Keep,
    /// Begin the window of single events.
    Trace,
    /// End the capture.
    Stop,
}

/// The arguments of `probes`.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum ProbeWord {
    On,
    Off,
    Budget,
}

impl ControlRequest {
    /// Parses one line.
    ///
    /// # Errors
    /// A description of the expected form.
    pub(crate) fn parse(line: &str) -> Result<Self, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["status"] => Ok(Self::Status),
            ["freq", hertz] => match hertz.parse() {
                Ok(frequency) if FREQUENCIES.contains(&frequency) => Ok(Self::Frequency(frequency)),
                _ => Err(format!("freq: expected 1 to 10000 samples a second, found '{}'", shown(hertz))),
            },
            ["probes", state] => match ProbeWord::from_str(state, false) {
                Ok(ProbeWord::On) => Ok(Self::Probes(ProbeHold::Attached)),
                Ok(ProbeWord::Off) => Ok(Self::Probes(ProbeHold::Detached)),
                Ok(ProbeWord::Budget) => Ok(Self::Probes(ProbeHold::Budget)),
                Err(_) => Err(format!("probes: expected on, off or budget, found '{}'", shown(state))),
            },
            ["keep"] => Ok(Self::Keep),
            ["trace"] => Ok(Self::Trace),
            ["stop"] => Ok(Self::Stop),
            _ => Err(format!(
                "expected status, freq HZ, probes on|off|budget, keep, trace or stop, found '{}'",
                shown(line.trim())
            )),
        }
    }
}

/// Received text, made safe for a terminal.
fn shown(text: &str) -> String {
    const SHOWN_MAX: usize = 40;
    deepctx_profile::frame::clean(text).chars().take(SHOWN_MAX).collect()
}

/// A capture's answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ControlAnswer {
    /// Done or in progress, as a sentence.
    Done(String),
    /// The status of the capture.
    Status(Value),
    /// Refused, as a sentence.
    Refused(String),
}

impl fmt::Display for ControlAnswer {
    /// One line of JSON.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ControlAnswer::Done(sentence) => json!({ "done": sentence }),
            ControlAnswer::Status(status) => json!({ "status": status }),
            ControlAnswer::Refused(sentence) => json!({ "error": sentence }),
        }
        .fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_words_and_errors_say_what_was_expected() {
        let check = |line: &str, expect: ControlRequest| assert_eq!(ControlRequest::parse(line), Ok(expect));
        check("status\n", ControlRequest::Status);
        check("  freq   999 ", ControlRequest::Frequency(999));
        check("probes on", ControlRequest::Probes(ProbeHold::Attached));
        check("probes off", ControlRequest::Probes(ProbeHold::Detached));
        check("probes budget", ControlRequest::Probes(ProbeHold::Budget));
        for (line, expect) in [("keep", ControlRequest::Keep), ("trace", ControlRequest::Trace)] {
            check(line, expect);
        }
        check("stop", ControlRequest::Stop);
        for (line, expect) in [
            ("", "expected status, freq HZ, probes on|off|budget, keep, trace or stop, found ''"),
            ("stop now", "found 'stop now'"),
            ("freq 0", "expected 1 to 10000 samples a second, found '0'"),
            ("freq 99999999999999", "found '99999999999999'"),
            ("freq -1", "found '-1'"),
            ("probes maybe", "expected on, off or budget, found 'maybe'"),
        ] {
            let error = ControlRequest::parse(line).unwrap_err();
            assert!(error.contains(expect), "{line}: {error}");
        }
        let long = ControlRequest::parse(&"x\u{1b}".repeat(4000)).unwrap_err();
        assert!(long.len() < 200 && !long.contains('\u{1b}'), "{long:?}");
    }
}
