//! Attach: one sampling event per CPU.
//!
//! Owns: which CPUs are sampled. Because: they come and go. Does not: load programs or read events.

use std::io;

use libbpf_rs::Link;

use super::load::{LoadError, LoadedPrograms};
use super::perf_event::{Clock, online_cpus, open_sampler};

/// Why sampling could not begin.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AttachError {
    /// `perf_event_open` failed.
    #[error("cannot open a sampling event on CPU {cpu} at {frequency} Hz: {source}")]
    PerfEvent {
        /// CPU number.
        cpu: u32,
        /// Frequency asked for.
        frequency: u32,
        /// The system's error.
        source: io::Error,
    },
    /// The list of CPUs cannot be read.
    #[error("cannot read the list of online CPUs (/sys/devices/system/cpu/online): {0}")]
    Cpus(io::Error),
    /// The program could not be attached.
    #[error(transparent)]
    Load(#[from] LoadError),
}

/// Samplers on every CPU; sampling ends when this goes.
#[derive(Debug)]
pub(crate) struct Samplers {
    links: Vec<Link>,
}

impl Samplers {
    /// Number of CPUs sampled.
    pub(crate) fn cpus(&self) -> usize {
        self.links.len()
    }
}

/// Opens a sampling event on every online CPU and attaches the sampler to it. `frequency` in Hz.
pub(crate) fn attach_samplers(
    loaded: &mut LoadedPrograms,
    clock: Clock,
    frequency: u32,
) -> Result<Samplers, AttachError> {
    let mut samplers = Samplers { links: Vec::new() };
    for cpu in online_cpus().map_err(AttachError::Cpus)? {
        let event = match open_sampler(clock, cpu, frequency) {
            Ok(event) => event,
            // A CPU that went offline since the list was read has nothing to sample.
            Err(e) if e.raw_os_error() == Some(libc::ENODEV) => continue,
            Err(source) => return Err(AttachError::PerfEvent { cpu, frequency, source }),
        };
        samplers.links.push(loaded.attach_sampler(event)?);
    }
    Ok(samplers)
}
