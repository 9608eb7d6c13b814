//! Programs: the programs of probes, loaded when the first probe is to be attached.
//!
//! Owns: when they are loaded, and the report when the kernel refuses them. Because: the kernel needs more time to
//! verify them than for everything else at the start of a capture, and most processes have nothing to probe. Does
//! not: attach them.

use crate::clock::monotonic_ns;
use crate::duty_cycle::{DutyCycle, DutyCyclePrograms};
use crate::error::CaptureError;
use crate::load::{LoadError, ProbeObject, ProbePrograms};

/// The programs of probes.
pub(super) struct Programs(State);

enum State {
    NotLoaded(Box<ProbeObject>, Option<Box<DutyCyclePrograms>>),
    Loaded(ProbePrograms),
    Refused,
}

impl Programs {
    /// Not loaded yet: the programs, and a second instance for the probes that have a budget.
    pub(super) fn new(object: ProbeObject, duty_cycled: Option<DutyCyclePrograms>) -> Self {
        Self(State::NotLoaded(Box::new(object), duty_cycled.map(Box::new)))
    }

    /// The programs, if loaded.
    pub(super) fn loaded(&self) -> Option<&ProbePrograms> {
        match &self.0 {
            State::Loaded(programs) => Some(programs),
            _ => None,
        }
    }

    /// Loads them unless that was tried before; then returns the second instance, if there is one.
    ///
    /// # Errors
    /// The kernel refuses them; returned once.
    pub(super) fn load(&mut self) -> Result<Option<DutyCycle>, LoadError> {
        let (object, duty_cycled) = match std::mem::replace(&mut self.0, State::Refused) {
            State::NotLoaded(object, duty_cycled) => (object, duty_cycled),
            tried => {
                self.0 = tried;
                return Ok(None);
            }
        };
        let began_ns = monotonic_ns();
        let programs = object.load()?;
        let duty_cycle = duty_cycled.map(|programs| DutyCycle::new(*programs)).transpose()?;
        self.0 = State::Loaded(programs);
        let milliseconds = monotonic_ns().saturating_sub(began_ns) as f64 / 1e6;
        tracing::debug!(milliseconds, "the programs of probes are loaded");
        Ok(duty_cycle)
    }
}

/// The notice for a refusal of the kernel.
pub(super) fn refusal(error: LoadError) -> String {
    let error = CaptureError::from(error);
    let said = error.to_string();
    tracing::debug!("nothing can be probed: {said}");
    let hint = error.hint().map_or(String::new(), |hint| format!(" ({hint})"));
    // The first line is followed by the verifier's output.
    format!("nothing can be probed: {}{hint}", said.lines().next().unwrap_or_default())
}
