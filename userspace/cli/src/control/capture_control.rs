//! Capture control: carries out requests to a running capture.
//!
//! Owns: the effect of each request, and why it may be impossible here. Because: a request for something that the
//! capture lacks gets a sentence that names the option. Does not: read requests.

use std::fmt;
use std::time::Duration;

use deepctx_capture::clock::monotonic_ns;
use deepctx_capture::{Capture, ProbeHold};
use deepctx_profile::units::counted;
use deepctx_session::{FlightRequests, Session, Status, Trigger};
use serde_json::json;

use super::{ControlAnswer, ControlRequest};

/// The parts of a running capture that can be changed.
pub(crate) struct CaptureControl<'a> {
    /// The sampling side.
    pub capture: &'a mut Capture,
    /// The session that builds the profile.
    pub session: &'a Session,
    /// Sends requests to the flight recorder, if there is one.
    pub flight: Option<&'a FlightRequests>,
    /// Whether a window of single events can be requested.
    pub traces: bool,
    /// Current status.
    pub status: &'a Status,
    /// Time since the start.
    pub elapsed: Duration,
}

impl fmt::Debug for CaptureControl<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CaptureControl").field("elapsed", &self.elapsed).finish_non_exhaustive()
    }
}

impl CaptureControl<'_> {
    /// Executes a request. A change of the capture is also shown as a notice.
    pub(super) fn carry_out(&mut self, request: ControlRequest) -> ControlAnswer {
        let answer = match request {
            ControlRequest::Status => return self.status(),
            ControlRequest::Frequency(frequency) => self.sample_at(frequency),
            ControlRequest::Probes(hold) => self.hold_probes(hold),
            ControlRequest::Keep => self.keep(),
            ControlRequest::Trace => self.trace(),
            ControlRequest::Stop => Ok("the capture ends".to_owned()),
        };
        match answer {
            Ok(sentence) => {
                let at = self.elapsed.as_secs_f64();
                self.session.notice(format!("on request, {at:.1} s after the start: {sentence}"));
                ControlAnswer::Done(sentence)
            }
            Err(sentence) => ControlAnswer::Refused(sentence),
        }
    }

    fn status(&self) -> ControlAnswer {
        let status = self.status;
        ControlAnswer::Status(json!({
            "seconds": self.elapsed.as_secs_f64(),
            "frequency_hz": self.capture.frequency(),
            "samples": status.samples,
            "launches": status.launches,
            "lost": status.lost,
            "probes": status.probes.probes,
            "write_error": status.write_error,
        }))
    }

    fn sample_at(&mut self, frequency: u32) -> Result<String, String> {
        self.capture.set_frequency(frequency).map_err(|error| match error.hint() {
            Some(hint) => format!("{error}: {hint}"),
            None => error.to_string(),
        })?;
        Ok(format!("each CPU is sampled {} per second", counted(frequency.into(), "time")))
    }

    fn hold_probes(&self, hold: ProbeHold) -> Result<String, String> {
        if !self.capture.hold_probes(hold) {
            return Err("no probe of this capture has a budget: record with --probe-budget, and --probe, --shapes or \
                        --probe-file"
                .to_owned());
        }
        let sentence = match hold {
            ProbeHold::Attached => "budgeted probes are attached, regardless of their cost",
            ProbeHold::Detached => "budgeted probes are detached",
            ProbeHold::Budget => "budgeted probes are attached within their budget",
        };
        Ok(sentence.to_owned())
    }

    fn keep(&self) -> Result<String, String> {
        let flight = self.flight.ok_or("this capture keeps nothing in memory: record with --keep TIME")?;
        flight.request(Trigger::Request);
        Ok("writing the kept data".to_owned())
    }

    fn trace(&self) -> Result<String, String> {
        if !self.traces {
            return Err(
                "this capture has no pending trace window: record with --trace signal=TIME".to_owned()
            );
        }
        self.session.request_trace(monotonic_ns());
        Ok("recording of individual events requested".to_owned())
    }
}
