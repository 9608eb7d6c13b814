//! Start: a capture and its session, as the options define them.
//!
//! Owns: which of a capture's options its session gets. Because: commands that capture differ only in what consumes
//! the results. Does not: wait for anything.

use std::time::SystemTime;

use deepctx_capture::clock::{boot_id, monotonic_ns};
use deepctx_capture::config::TraceWindow;
use deepctx_capture::{Capture, CaptureConfig, CaptureError, allowed_cpus, doctor};
use deepctx_pipeline::{self as pipeline, Config};
use deepctx_profile::profile::Meta;
use deepctx_profile::units::{Nanos, Time};
use deepctx_session::{FlightOptions, HottestOperators, Options, Session, Sink, TraceSink};
use deepctx_symbolizer::native::DebugInfo;

use crate::failure::Failure;
use crate::target::Target;
use crate::{debuginfod, selection, step_marker};

/// Consumers of a session's results.
#[derive(Debug, Default)]
pub(crate) struct SessionSinks {
    /// Sinks of its records.
    pub sinks: Vec<Box<dyn Sink>>,
    /// The sink of individual events, and which to record.
    pub trace: Option<(TraceSink, pipeline::TraceWindow)>,
    /// Keeps recent data and writes it on request.
    pub flight_recorder: Option<FlightOptions>,
}

/// Starts the session of a capture with these options.
///
/// # Errors
/// The pipeline's thread cannot be started.
pub(crate) fn start_session(
    capture: &mut Capture,
    how: &CaptureConfig,
    named: &[u32],
    meta: Meta,
    takers: SessionSinks,
) -> Result<Session, Failure> {
    let SessionSinks { sinks, trace, flight_recorder } = takers;
    let config = Config {
        off_cpu: how.off_cpu,
        timer: selection::measured(how.clock),
        step_markers: step_marker::ranges(&how.step_markers),
        hands_out_steps: how.hands_out_steps,
        trace: trace.as_ref().map(|(_, window)| *window),
        trace_level: how.trace_level,
        stack_bytes: pipeline::stack_bytes(capture.cpus()),
        ..Config::default()
    };
    let options = Options {
        meta,
        config,
        debug_info: DebugInfo {
            bytes_max: how.debug_info.0,
            servers: debuginfod::of(how),
            ..DebugInfo::default()
        },
        named: named.to_vec(),
        layers: capture.called(),
        hottest: how.hottest().and_then(|most| Some(HottestOperators::new(most, capture.tensor_requests()?))),
        sinks,
        trace: trace.map(|(sink, _)| sink),
        flight_recorder,
    };
    let session = Session::start(capture.messages(), options)
        .map_err(|error| Failure::io("the thread of the pipeline", &error))?;
    doctor::capability_notices().into_iter().for_each(|notice| session.notice(notice));
    Ok(session)
}

/// Converts a trace window to the pipeline's form. `starts`: the program starts with the capture, and first has to
/// import modules and load a model.
pub(crate) fn window(window: TraceWindow, starts: bool) -> pipeline::TraceWindow {
    match window {
        TraceWindow::First(time) if starts => pipeline::TraceWindow::FromWork(time.into()),
        TraceWindow::First(time) => pipeline::TraceWindow::First(time.into()),
        TraceWindow::OnSignal(time) => pipeline::TraceWindow::OnRequest(time.into()),
        TraceWindow::Steps { from, until } => pipeline::TraceWindow::Steps { from, until },
        TraceWindow::Launches { from, until } => pipeline::TraceWindow::Launches { from, until },
    }
}

/// The metadata that a profile stores before the capture begins.
pub(crate) fn meta(target: &Target) -> Meta {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Meta {
        target: target.description.clone(),
        host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        started: Time::from_nanos(Nanos::from(since_1970).0),
        started_monotonic: Time::from_nanos(monotonic_ns()),
        boot_id: boot_id().unwrap_or_default(),
        frequency_hz: target.config.frequency.0,
        version: env!("CARGO_PKG_VERSION").into(),
        options: target.config.options(),
        allowed_cpus: allowed_cpus(&target.config.targets),
        kept: None,
    }
}

/// Starts the capture.
///
/// # Errors
/// What is missing, and how to fix it.
pub(crate) fn start_capture(target: &Target) -> Result<Capture, Failure> {
    Capture::start(target.config.clone()).map_err(|error| refused(&error))
}

/// Why no capture can start, and how to fix it.
pub(crate) fn refused(error: &CaptureError) -> Failure {
    let hint = error.hint();
    Failure::new(error)
        .hint(hint.as_deref().unwrap_or("`sudo deepctx-bpf doctor` checks what a capture needs"))
}
